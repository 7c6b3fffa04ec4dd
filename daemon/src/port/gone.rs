// SPDX-License-Identifier: Apache-2.0 OR MIT
//! VOLUME LIST of deleted volumes: the last requests for each, as an SSD remembers them (rule 12).

use super::LIST_ENTRIES;
use crate::core::{Answer, GoneVolume};
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::{ENTRY_BYTES, RawTombstone, TOMBSTONE_BYTES};
use zerocopy::FromBytes as _;

/// Tombstones that fit into a page.
const MOST: usize = LIST_ENTRIES * ENTRY_BYTES / TOMBSTONE_BYTES;

/// A page of tombstones.
pub(super) fn page(count: usize, data: &[u8]) -> Result<Answer, Answer> {
    let bad = |what: String| Answer::Lost(format!("VOLUME LIST of volumes that are gone: {what}"));
    if count > MOST {
        return Err(bad(format!("{count} tombstones where {MOST} fit")));
    }
    let mut gone: Vec<GoneVolume> = Vec::with_capacity(count);
    for bytes in data.chunks_exact(TOMBSTONE_BYTES).take(count) {
        let raw = RawTombstone::read_from_bytes(bytes).map_err(|_| bad("too few bytes".into()))?;
        if raw.magic != RawTombstone::MAGIC || raw.format.get() != RawTombstone::FORMAT {
            return Err(bad("not a tombstone".into()));
        }
        let vid = Vid::new(raw.vid.get()).ok_or_else(|| bad("no volume id".into()))?;
        // Paging goes on after the last one, so only ascending ids guarantee an end.
        if gone.last().is_some_and(|last| last.vid > vid) {
            return Err(bad("they are not in order of their volume ids".into()));
        }
        let request_ids = raw.request_ids.into_iter().filter(|id| *id != [0; 16]).collect();
        gone.push(GoneVolume {
            vid,
            generation: raw.generation.get(),
            age_ms: u64::from(raw.age_s.get()) * 1000,
            request_ids,
        });
    }
    Ok(Answer::Gone { gone, more: count == MOST })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};
    use zerocopy::IntoBytes as _;

    fn raw(vid: u16) -> RawTombstone {
        let mut raw = RawTombstone::read_from_bytes(&[0; TOMBSTONE_BYTES]).unwrap();
        (raw.magic, raw.format) = (RawTombstone::MAGIC, RawTombstone::FORMAT.into());
        (raw.vid, raw.age_s, raw.request_ids[0]) = (vid.into(), 7.into(), [3; 16]);
        raw
    }

    fn bytes(all: &[RawTombstone]) -> Vec<u8> {
        all.iter().flat_map(|raw| raw.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_page_of_tombstones_is_read_and_a_bad_one_is_none() {
        let _deadline = Deadline::after(LIMIT);
        let good = bytes(&[raw(2), raw(2), raw(9)]);
        let Ok(Answer::Gone { gone, more: false }) = page(3, &good) else { panic!("a page") };
        let found: Vec<_> = gone.iter().map(|gone| (gone.vid.get(), gone.age_ms)).collect();
        assert_eq!(found, [(2, 7_000), (2, 7_000), (9, 7_000)]);
        assert_eq!(gone[0].request_ids, [[3; 16]]);
        let Ok(Answer::Gone { gone, .. }) = page(1, &good) else { panic!("a page") };
        assert_eq!(gone.len(), 1, "as many as DW0 says");
        let full = bytes(&[raw(5); MOST]);
        assert!(matches!(page(MOST, &full), Ok(Answer::Gone { more: true, .. })));
        for (count, data) in [
            (MOST + 1, full),
            (2, bytes(&[raw(9), raw(2)])),
            (1, bytes(&[raw(0)])),
            (1, vec![0; TOMBSTONE_BYTES]),
        ] {
            assert!(matches!(page(count, &data), Err(Answer::Lost(_))), "{count}");
        }
    }
}
