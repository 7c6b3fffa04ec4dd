// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD's memory of deleted volumes.
//!
//! * For ever: the last generation of each volume id. No later volume may have it (protocol rule 10).
//! * For a day: the ids of the requests that last changed the volume. With them a restarted daemon recognises
//!   a repeated request (rule 12).

use gnstor_base::time::{Span, Time};
use gnstor_durable::Tombstone;
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::{RawTombstone, TOMBSTONE_HOURS, VolumeEntry};
use std::collections::{BTreeMap, VecDeque};

/// Time for which request ids are kept.
const MEMORY: Span = Span::from_ms(TOMBSTONE_HOURS * 3_600_000);
/// Most volumes remembered with their request ids; the oldest go first.
const MAX_RECENT: usize = 1 << 16;

/// A volume that died within the last day.
#[derive(Clone, Debug)]
struct Recent {
    died: Time,
    vid: Vid,
    generation: u32,
    version: u64,
    term: u64,
    request_ids: Vec<[u8; 16]>,
}

/// All tombstones of an SSD.
#[derive(Debug, Default)]
pub(crate) struct Tombstones {
    generations: BTreeMap<Vid, u32>,
    /// In the order of their deletion.
    recent: VecDeque<Recent>,
}

impl Tombstones {
    /// The highest generation of the volume id that is gone.
    pub(crate) fn generation(&self, vid: Vid) -> Option<u32> {
        self.generations.get(&vid).copied()
    }

    /// Adds a tombstone for a volume whose sweep is done. `entry` is its last entry.
    pub(crate) fn add(&mut self, now: Time, entry: &VolumeEntry) {
        self.generations.insert(entry.vid, entry.generation);
        self.expire(now);
        if self.recent.len() == MAX_RECENT {
            self.recent.pop_front();
        }
        let &VolumeEntry { vid, generation, version, term, .. } = entry;
        self.recent.push_back(Recent {
            died: now,
            vid,
            generation,
            version,
            term,
            request_ids: entry.request_ids.clone(),
        });
    }

    /// Restores a tombstone after a power cycle. Its day begins anew, as the SSD does not know how long the
    /// power was off.
    pub(crate) fn recall(&mut self, vid: Vid, tombstone: &Tombstone) {
        let &Tombstone { generation, term, version, ref ids, .. } = tombstone;
        self.generations.insert(vid, generation);
        if !ids.is_empty() {
            let (died, request_ids) = (Time::ZERO, ids.iter().map(|(id, _)| *id).collect());
            self.recent.push_back(Recent { died, vid, generation, version, term, request_ids });
        }
    }

    /// The tombstones of volume ids from `first` on, ascending by id and generation, without the first
    /// `skip`.
    pub(crate) fn list(&mut self, now: Time, first: u16, skip: u16) -> Vec<RawTombstone> {
        self.expire(now);
        let mut found: Vec<&Recent> = self.recent.iter().filter(|recent| recent.vid.get() >= first).collect();
        found.sort_unstable_by_key(|recent| (recent.vid, recent.generation));
        let skipped = found.iter().take(skip.into()).take_while(|recent| recent.vid.get() == first).count();
        found[skipped..].iter().map(|recent| recent.raw(now)).collect()
    }

    fn expire(&mut self, now: Time) {
        while self.recent.front().is_some_and(|recent| now.since(recent.died) >= MEMORY) {
            self.recent.pop_front();
        }
    }
}

impl Recent {
    fn raw(&self, now: Time) -> RawTombstone {
        let mut raw = RawTombstone {
            magic: RawTombstone::MAGIC,
            format: RawTombstone::FORMAT.into(),
            vid: self.vid.get().into(),
            generation: self.generation.into(),
            age_s: u32::try_from(now.since(self.died).as_ns() / 1_000_000_000).unwrap_or(u32::MAX).into(),
            version: self.version.into(),
            term: self.term.into(),
            request_ids: Default::default(),
            reserved: [0; 32],
        };
        for (slot, id) in raw.request_ids.iter_mut().zip(&self.request_ids) {
            *slot = *id;
        }
        raw
    }
}
