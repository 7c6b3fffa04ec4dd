// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An operator gives up blocks (`--lose-data`): which blocks these are, and the map without them (rule 1c).
//!
//! ```text
//!   absent: an empty SSD is in its place   gnstor fleet replace N --lose-data   it begins empty
//!   absent: it is back and lacks writes    gnstor fleet resume N --lose-data    it begins as it is
//! ```
//! The rules are in `gnstor_fleet::change::lost`. One SSD's content decides: other absent copies are dropped.

use crate::core::Core;
use crate::core::report::LostBlocks;
use gnstor_fleet::map::Map;
use gnstor_fleet::wire;
use gnstor_proto::placement::map3::{FleetMap3, Row3, Ssd3, State3};
use gnstor_proto::placement::{Rows as _, group_of};
use gnstor_proto::vendor::VolumeEntry;
use std::collections::{BTreeMap, BTreeSet};

/// Largest number of chunks that are checked one by one. With more, the share of the groups is a close
/// estimate, because groups are drawn.
const EXACT_CHUNKS: u64 = 4_096;

/// Whether all copies of a volume with this number of replicas are on this SSD or on absent ones, and this
/// one decides. Of a merge (rule 17) each SSD may have what no other one has.
fn is_only_on(map: &FleetMap3, row: &Row3, replicas: u8, ssd: u16) -> bool {
    let used = || row.places.iter().take(replicas.into()).flatten();
    if used().all(|place| place.filling) && used().count() > 1 {
        return used().any(|place| place.ssd == ssd);
    }
    let places = || row.places.iter().take(replicas.into()).flatten().filter(|place| !place.filling);
    let is_gone = |of: u16| of == ssd || map.state(of) == Some(State3::Absent);
    places().next().is_some_and(|place| place.ssd == ssd) && places().all(|place| is_gone(place.ssd))
}

/// Blocks of a volume in these groups.
pub(super) fn blocks_in(map: &FleetMap3, entry: &VolumeEntry, groups: &[bool]) -> u64 {
    let (chunk, capacity) = (1u64 << entry.chunk_shift, entry.capacity_blocks);
    let chunks = capacity.div_ceil(chunk);
    if chunks > EXACT_CHUNKS {
        let count = groups.iter().filter(|is_in| **is_in).count() as u128;
        let share = u128::from(capacity) * count / groups.len().max(1) as u128;
        return u64::try_from(share).unwrap_or(capacity);
    }
    let is_in = |index: &u64| {
        let vba = u32::try_from(index << entry.chunk_shift).unwrap_or(u32::MAX);
        let group = group_of(entry.vid, vba, entry.chunk_shift, entry.factor, map.groups());
        groups.get(group as usize) == Some(&true)
    };
    (0..chunks).filter(is_in).map(|index| chunk.min(capacity - index * chunk)).sum()
}

impl Core {
    /// The blocks that only this SSD has, or it and others that are absent.
    pub(in crate::core) fn only_on(&self, ssd: u16) -> Vec<LostBlocks> {
        let Some(map) = self.map_of_voters() else { return Vec::new() };
        let mut groups: BTreeMap<u8, Vec<bool>> = BTreeMap::new();
        let mut lost = Vec::new();
        for entry in self.volumes.values().map(|volume| &volume.entry) {
            let replicas = entry.replicas;
            let groups = groups
                .entry(replicas)
                .or_insert_with(|| map.rows.iter().map(|row| is_only_on(map, row, replicas, ssd)).collect());
            let blocks = blocks_in(map, entry, groups);
            if blocks > 0 {
                lost.push(LostBlocks { volume: entry.name.clone(), blocks });
            }
        }
        lost
    }

    /// Whether the operator has given up all blocks that only this SSD has now. After the operator's call
    /// another SSD may become absent, whose copies would be dropped, too. The wish then waits until that one
    /// is back, or until the operator repeats it with the longer list in view.
    pub(super) fn loses_what_was_said(&self, ssd: u16) -> bool {
        let given_up = self.changes.given_up.get(&ssd).map_or(&[][..], Vec::as_slice);
        let covers =
            |now: &LostBlocks, was: &LostBlocks| was.volume == now.volume && was.blocks >= now.blocks;
        self.only_on(ssd).iter().all(|now| given_up.iter().any(|was| covers(now, was)))
    }

    /// Other absent SSDs with copies of these blocks, after a comma. If one of them comes back, the blocks
    /// are not lost.
    pub(in crate::core) fn others_with_copies(&self, ssd: u16) -> String {
        let Some(map) = self.map_of_voters() else { return String::new() };
        let with_it = |row: &&Row3| row.places.iter().flatten().any(|place| place.ssd == ssd);
        let places = map.rows.iter().filter(with_it).flat_map(|row| row.places).flatten();
        let absent = places.filter(|place| place.ssd != ssd && map.state(place.ssd) == Some(State3::Absent));
        let absent: BTreeSet<u16> = absent.map(|place| place.ssd).collect();
        if absent.is_empty() {
            return String::new();
        }
        let names: Vec<String> = absent.iter().map(u16::to_string).collect();
        format!(", of which absent SSDs have copies, too: try these first (SSD {})", names.join(", "))
    }

    /// Whether the SSD is absent in the map, answers with its own identity, and has lost writes.
    pub(in crate::core) fn is_back_lossy(&self, ssd: u16) -> bool {
        let known = self.map_of_voters().and_then(|map| map.ssds.get(usize::from(ssd)));
        let says = self.changes.says(ssd).filter(|_| !self.changes.is_down(ssd));
        known.zip(says).is_some_and(|(known, says)| {
            known.state == State3::Absent
                && known.is(&says.uuid)
                && says.incarnation != known.incarnation
                && self.map_of_voters().is_some_and(|map| serves_some(map, ssd))
        })
    }

    /// Whether the SSD's copies were given up, and it is not up to date yet. It may have no volumes at all.
    pub(in crate::core) fn begins_empty(&self, ssd: u16) -> bool {
        let Some(map) = self.map_of_voters() else { return false };
        map.state(ssd) == Some(State3::Absent) && !serves_some(map, ssd)
    }

    /// An absent SSD that answers, is up to date, and has the content that it had. It may have a later
    /// content if its copies were called lost and none serves. It comes back however often it went: only it
    /// has some blocks. If none serves, it has all entries first: it fills by its table, and would serve
    /// zeros of another volume.
    pub(super) fn to_be_back(&self, map: &FleetMap3) -> Option<(u16, u32)> {
        let absent = (0u16..).zip(&map.ssds).filter(|(_, ssd)| ssd.state == State3::Absent);
        let is_there = |ssd: u16| {
            let is_away = self.changes.is_down(ssd) || self.members.is_away(ssd);
            let is_taken_out = map.ssds[usize::from(ssd)].weight == 0;
            let knows_all = || serves_some(map, ssd) || self.is_serving() && self.has_all(ssd);
            !is_away && !is_taken_out && knows_all()
        };
        let content = |(ssd, known): (u16, &Ssd3)| {
            // If the SSD has not stated its incarnation, the one in the map counts.
            let has = self.changes.says(ssd).map_or(known.incarnation, |says| says.incarnation);
            let is_named = self.changes.says(ssd).is_none_or(|says| known.is(&says.uuid));
            let is_same = has == known.incarnation;
            let may = is_named && (is_same || has > known.incarnation && !serves_some(map, ssd));
            may.then_some((ssd, has))
        };
        absent.filter(|&(ssd, _)| is_there(ssd)).filter_map(content).next()
    }

    /// The next map, if the operator takes an SSD back as it is.
    pub(super) fn accepted(&self, map: &FleetMap3) -> Option<FleetMap3> {
        let accepted = self.changes.accepted.iter().copied();
        let ssd =
            accepted.filter(|&ssd| self.is_back_lossy(ssd)).find(|&ssd| self.loses_what_was_said(ssd))?;
        let (incarnation, term) = (self.changes.says(ssd)?.incarnation, self.term.number());
        wire::change(map, |map: &Map| map.call_lost(ssd, incarnation, term)).ok()
    }
}

/// Whether the SSD has a place that serves.
pub(super) fn serves_some(map: &FleetMap3, ssd: u16) -> bool {
    map.rows.iter().flat_map(|row| row.places).flatten().any(|place| place.ssd == ssd && !place.filling)
}
