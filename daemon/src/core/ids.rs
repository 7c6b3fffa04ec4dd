// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers that must not be given out twice, and the memory of volumes that are gone.

use crate::core::GoneVolume;
use crate::core::request::RequestId;
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::{REQUEST_IDS, VolumeEntry};
use std::collections::{BTreeMap, VecDeque};

/// How long the request ids of a deleted volume are remembered (protocol rule 12).
const TOMBSTONE_MS: u64 = 24 * 3600 * 1000;
/// Most deleted volumes remembered; beyond it the oldest are forgotten first.
const TOMBSTONES: usize = 4096;

/// The last generation and version of a volume id that was used before.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Past {
    /// The last generation.
    pub(super) generation: u32,
    /// The last version of an entry with this id.
    pub(super) version: u64,
    /// The id is not tried again before this time, because the SSDs are probably still sweeping its blocks.
    pub(super) not_before_ms: u64,
}

/// Volume ids that were used and are free.
#[derive(Default, Debug)]
pub(super) struct PastVids(BTreeMap<Vid, Past>);

impl PastVids {
    /// The lowest volume id that is not in `taken`, and whose sweep may be done.
    pub(super) fn lowest_free(&self, now: u64, taken: impl Fn(Vid) -> bool) -> Option<(Vid, Past)> {
        (Vid::MIN.get()..=Vid::MAX.get()).filter_map(Vid::new).find_map(|vid| {
            let past = self.0.get(&vid).copied().unwrap_or_default();
            (!taken(vid) && past.not_before_ms <= now && past.generation < u32::MAX).then_some((vid, past))
        })
    }

    /// Whether this generation of the volume is known to be deleted.
    pub(super) fn is_dead(&self, vid: Vid, generation: u32) -> bool {
        self.0.get(&vid).is_some_and(|past| generation <= past.generation)
    }

    /// SSDs remember volumes that are gone. They take no volume of the same id and an earlier generation.
    pub(super) fn recall(&mut self, gone: &[GoneVolume]) {
        for gone in gone {
            let past = self.0.entry(gone.vid).or_default();
            past.generation = past.generation.max(gone.generation);
        }
    }

    /// An SSD has a volume with this id that the array does not have: no volume gets the id.
    pub(super) fn is_strange(&mut self, vid: Vid) {
        self.0.entry(vid).or_default().not_before_ms = u64::MAX;
    }

    /// A volume with this id is gone; the id rests until `not_before_ms`.
    pub(super) fn retire(&mut self, entry: &VolumeEntry, version: u64, not_before_ms: u64) {
        let past = self.0.entry(entry.vid).or_default();
        past.generation = past.generation.max(entry.generation);
        past.version = past.version.max(version);
        past.not_before_ms = past.not_before_ms.max(not_before_ms);
    }
}

/// The last deleted volumes, so that a retried request is answered as the first one was.
#[derive(Default, Debug)]
pub(super) struct Tombstones {
    /// Volumes that this daemon deleted, and until when it remembers each.
    own: VecDeque<(u64, VolumeEntry)>,
    /// The requests that changed volumes which were gone when this daemon started, by the SSDs.
    earlier: BTreeMap<RequestId, Earlier>,
}

/// A volume that was gone before, and until when it is remembered.
#[derive(Clone, Copy, Debug)]
struct Earlier {
    until: u64,
    vid: Vid,
    generation: u32,
}

impl Tombstones {
    /// A volume was deleted.
    pub(super) fn bury(&mut self, now: u64, entry: VolumeEntry) {
        self.expire(now);
        if self.own.len() == TOMBSTONES {
            self.own.pop_front();
        }
        self.own.push_back((now + TOMBSTONE_MS, entry));
    }

    /// Takes the SSDs' records of volumes that were deleted earlier. If there are too many, only the youngest
    /// are kept.
    pub(super) fn recall(&mut self, now: u64, mut gone: Vec<GoneVolume>) {
        gone.sort_by_key(|gone| gone.age_ms);
        // Each SSD names the same volumes.
        let mut ids = gone.iter().flat_map(|gone| gone.request_ids.iter().map(move |id| (*id, gone)));
        while self.earlier.len() < TOMBSTONES * REQUEST_IDS
            && let Some((id, &GoneVolume { vid, generation, age_ms, .. })) = ids.next()
        {
            let until = (now + TOMBSTONE_MS).saturating_sub(age_ms);
            self.earlier.entry(id).or_insert(Earlier { until, vid, generation });
        }
    }

    /// The volume that this request created or deleted, if it was gone before the daemon started: both write
    /// their ids into its entry.
    pub(super) fn gone_before(&self, now: u64, id: RequestId) -> Option<(Vid, u32)> {
        let earlier = self.earlier.get(&id).filter(|earlier| now < earlier.until)?;
        Some((earlier.vid, earlier.generation))
    }

    /// The deleted volume that the request with this id changed.
    pub(super) fn find(&mut self, now: u64, id: RequestId) -> Option<&VolumeEntry> {
        self.expire(now);
        self.own.iter().map(|(_, entry)| entry).find(|entry| entry.request_ids.contains(&id))
    }

    fn expire(&mut self, now: u64) {
        while self.own.front().is_some_and(|&(until, _)| until <= now) {
            self.own.pop_front();
        }
    }
}

/// The last Deletes that deleted nothing themselves: there was no such volume, or another Delete was under
/// way. A repetition that comes late is answered as the first one was. It deletes no later volume of the
/// name.
#[derive(Default, Debug)]
pub(super) struct IdleDeletes(VecDeque<IdleDelete>);

#[derive(Debug)]
struct IdleDelete {
    until: u64,
    id: RequestId,
    name: String,
    life: Option<(Vid, u32)>,
}

impl IdleDeletes {
    /// The Delete found this life of the volume under deletion, or no volume.
    pub(super) fn note(&mut self, now: u64, id: RequestId, name: &str, life: Option<(Vid, u32)>) {
        if self.find(now, id, name).is_some() {
            return;
        }
        if self.0.len() == TOMBSTONES {
            self.0.pop_front();
        }
        self.0.push_back(IdleDelete { until: now + TOMBSTONE_MS, id, name: name.into(), life });
    }

    /// The result of the Delete with this id, if it is in the list.
    pub(super) fn find(&mut self, now: u64, id: RequestId, name: &str) -> Option<Option<(Vid, u32)>> {
        while self.0.front().is_some_and(|delete| delete.until <= now) {
            self.0.pop_front();
        }
        self.0.iter().find(|delete| delete.id == id && delete.name == name).map(|delete| delete.life)
    }
}
