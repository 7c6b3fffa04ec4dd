// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The maps that clients got.

use super::{History, Seen};
use crate::survive::changes::{changes, shown};
use crate::survive::stats::Stats;
use gnstor_base::time::Time;
use gnstor_proto::placement::{AnyMap, Rows as _, group_of};
use gnstor_proto::vendor::VolumeEntry;
use std::sync::Arc;

/// Whether the maps are equal. Without voters each daemon's start gives SSDs the same map in its own term.
fn is_same(known: &AnyMap, map: &AnyMap) -> bool {
    match (known, map) {
        (AnyMap::Two(known), AnyMap::Two(map)) => known.places() == map.places(),
        _ => known == map,
    }
}

impl History {
    /// A map was seen on the wire. Two maps of one epoch are never active. Counts what a new one changes.
    pub(in crate::survive) fn map(&mut self, map: &Arc<AnyMap>, stats: &mut Stats, now: Time) {
        if let Some(known) = self.maps.get(&map.epoch()) {
            if !is_same(known, map) {
                let facts = format!("epoch {}: {} and {}", map.epoch(), shown(known), shown(map));
                self.broken(now, "two maps of one epoch are active (rule 2b)", facts);
            }
            return;
        }
        let newest = self.maps.last_key_value();
        if let Some((_, before)) = newest.filter(|(epoch, _)| **epoch < map.epoch()) {
            changes(before, map).into_iter().for_each(|change| stats.change(change));
            self.has_news = true;
        }
        self.maps.insert(map.epoch(), Arc::clone(map));
    }

    /// The newest map, and the one before.
    pub(in crate::survive) fn newest_maps(&self) -> [Option<Arc<AnyMap>>; 2] {
        let mut newest = self.maps.values().rev().cloned();
        let map = newest.next();
        [newest.next(), map]
    }

    /// The maps of later epochs that clients got.
    pub(in crate::survive) fn maps_since(&self, epoch: u64) -> impl Iterator<Item = &AnyMap> {
        self.maps.range(epoch + 1..).map(|(_, map)| &**map)
    }

    /// Whether a map behind the one of that read took the block's place from the SSD, or gave it to another
    /// content. No client may have got that map: a later one says when the SSD lost places.
    pub(super) fn dropped_since(&self, entry: &VolumeEntry, vba: u32, seen: &Seen) -> bool {
        let row = |map: &AnyMap| {
            let group = group_of(entry.vid, vba, entry.chunk_shift, entry.factor, map.groups());
            let serves = map.row(group).flatten().any(|place| place.ssd == seen.ssd && !place.filling);
            let ssd = match map {
                AnyMap::Three(map) => map.ssds.get(usize::from(seen.ssd)),
                AnyMap::Two(_) => None,
            };
            let lost_places = ssd.map(|ssd| ssd.shrunk_at).filter(|at| !self.maps.contains_key(at));
            (serves, ssd.map(|ssd| (ssd.uuid, ssd.incarnation)), lost_places.unwrap_or(0))
        };
        let Some((_, map)) = self.maps.range(..=seen.epoch).next_back() else { return true };
        let before = row(map);
        let is_drop =
            |now: (bool, Option<_>, u64)| before.0 && !now.0 || now.1 != before.1 || now.2 > seen.epoch;
        self.maps.range(seen.epoch + 1..).any(|(_, map)| is_drop(row(map)))
    }
}
