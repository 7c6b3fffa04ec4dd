// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of arrays that were made before the numbers of openings were drawn ([`crate::openings`]): nothing in
//! them names their array.
//!
//! Every change of a volume goes to all SSDs of its array. So two entries of one generation, version and term
//! that say different things were made by two arrays. Files that agree may be of one array or of two that did
//! the same: this cannot be known. The first start with this version takes them for one array, says so, and
//! gives them its number.

use crate::media::{CameUp, Made};
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::VolumeEntry;
use std::collections::BTreeMap;

type Entries = BTreeMap<Vid, VolumeEntry>;

fn contradict(one: &Entries, other: &Entries) -> bool {
    let rank = |entry: &VolumeEntry| (entry.generation, entry.version, entry.term, entry.deleting);
    one.iter().any(|(vid, entry)| other.get(vid).is_some_and(|e| rank(e) == rank(entry) && e != entry))
}

/// Indexes of the SSDs that contradict the array. Picks the SSD with the fewest contradictions (the first, on
/// a tie). It and all that agree with it are the array. `None` contradicts nothing.
fn strangers(all: &[Option<Entries>]) -> Vec<usize> {
    let against = |one: &Entries| -> Vec<usize> {
        let of = |(place, other): (usize, &Option<Entries>)| {
            other.as_ref().is_some_and(|other| contradict(one, other)).then_some(place)
        };
        all.iter().enumerate().filter_map(of).collect()
    };
    all.iter().flatten().map(against).min_by_key(Vec::len).unwrap_or_default()
}

/// Indexes of the SSDs whose contents show that another array made them, each with a sentence about the
/// reason. `None`: an SSD that cannot be used.
pub(crate) fn strangers_of<'a>(array: impl Iterator<Item = Option<&'a Made>>) -> Vec<(usize, String)> {
    let array: Vec<_> = array.collect();
    let entries: Vec<_> = array.iter().map(|made| made.map(|made| made.ssd.volume_entries())).collect();
    let why = |place: usize| {
        let file = array[place].and_then(|made| made.about.data.as_ref());
        let file = file.map_or(String::new(), |path| format!("{}: ", path.display()));
        format!(
            "{file}it is the file of an SSD of another array: volumes are not what the other SSDs say; put \
             this array's file back"
        )
    };
    strangers(&entries).into_iter().map(|place| (place, why(place))).collect()
}

/// Notes at each SSD of an array without a number that its array is taken for granted from now on.
pub(crate) fn note(array: &mut [Made]) {
    let is_held = |made: &&mut Made| !matches!(made.about.came_up, CameUp::Fresh | CameUp::InMemory);
    for made in array.iter_mut().filter(is_held).filter(|made| !made.about.came_up.stands_in()) {
        made.about.is_numbered_now = true;
    }
    tracing::warn!(
        "the data files were made before arrays had numbers: that they are of one array cannot be known, \
         and is taken for granted; a file of another array is told from now on"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;
    use gnstor_proto::slba::ClientId;
    use gnstor_proto::vendor::Limits;

    fn entry(vid: Vid, name: &str, version: u64) -> VolumeEntry {
        VolumeEntry {
            vid,
            generation: 1,
            version,
            term: 2,
            deleting: false,
            name: name.into(),
            labels: String::new(),
            capacity_blocks: 512,
            replicas: 1,
            chunk_shift: 4,
            factor: 42,
            owner: ClientId::MIN,
            any_reader: false,
            readers: Vec::new(),
            writer: None,
            unsettled: false,
            lease_epoch: 0,
            lease_ms: 0,
            request_ids: Vec::new(),
            limits: Limits::default(),
            salvaged_s: 0,
        }
    }

    #[test]
    fn one_change_that_says_two_things_was_made_by_two_arrays() {
        let _deadline = deadline();
        let vid = Vid::new(5).expect("an id");
        let with = |name: &str, version| Some(Entries::from([(vid, entry(vid, name, version))]));
        let none = Some(Entries::new());
        assert_eq!(strangers(&[with("a", 1), with("b", 1), with("a", 1)]), [1]);
        assert_eq!(strangers(&[with("b", 1), with("a", 1), with("a", 1)]), [0]);
        assert_eq!(strangers(&[with("b", 1), with("a", 1)]), [1], "halves: the array of the first");
        // A change that has not reached all SSDs, an SSD that lost its entries, and one that cannot be used.
        assert_eq!(strangers(&[with("a", 1), with("b", 2), none, None]), [0; 0]);
        assert_eq!(strangers(&[None, with("a", 1), with("a", 1)]), [0; 0]);
    }
}
