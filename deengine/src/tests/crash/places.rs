// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places of the structures in the system area, and damage to one of them.

use super::super::*;
use super::work::Campaign;
use gnstor_durable::Sizes;
use gnstor_flash::{RamStore, Store};
use gnstor_ftl::{DUMP_BYTES, FtlConfig};
use std::ops::Range;

const PAGE: u64 = 4096;
const SECTOR: usize = 512;

/// A structure with its own checksum.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Part {
    Header,
    Term,
    Map,
    Entry,
    Tombstone,
    SmartCounters,
    Dump,
    Journal,
    Checkpoint(Section),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Section {
    Head,
    Table,
    Meta,
    Words,
}

pub(super) const PARTS: [Part; 12] = [
    Part::Header,
    Part::Term,
    Part::Map,
    Part::Entry,
    Part::Tombstone,
    Part::SmartCounters,
    Part::Dump,
    Part::Journal,
    Part::Checkpoint(Section::Head),
    Part::Checkpoint(Section::Table),
    Part::Checkpoint(Section::Meta),
    Part::Checkpoint(Section::Words),
];

/// Places of all structures: the table at the head of `gnstor_durable::layout`.
struct Areas {
    sizes: Sizes,
    len: u64,
}

impl Areas {
    /// Both copies of a part, and the distance between two cells.
    fn twin(&self, part: Part) -> ([Range<u64>; 2], u64) {
        let (map, volumes) =
            (u64::from(self.sizes.map_bytes).next_multiple_of(PAGE) + PAGE, u64::from(self.sizes.volumes));
        let (entries, tombstones) = (8192 * volumes, 512 * (16 * volumes).min(65_536));
        let (at, bytes, pitch) = match part {
            Part::Header => (0, PAGE, PAGE),
            Part::Term => (2 * PAGE, PAGE, PAGE),
            Part::Map => (4 * PAGE, map, map),
            Part::Entry => (4 * PAGE + 2 * map, entries, 8192),
            Part::Tombstone => (4 * PAGE + 2 * map + 2 * entries, tombstones, 512),
            Part::SmartCounters => (4 * PAGE + 2 * map + 2 * entries + 2 * tombstones, PAGE, PAGE),
            Part::Dump | Part::Journal | Part::Checkpoint(_) => unreachable!("not kept twice"),
        };
        ([at..at + bytes, at + bytes..at + 2 * bytes], pitch)
    }

    fn dump(&self) -> Range<u64> {
        let from = self.twin(Part::SmartCounters).0[1].end;
        from..from + self.sizes.dump_bytes
    }

    fn journal(&self) -> Range<u64> {
        let from = self.dump().end;
        from..from + self.sizes.journal_bytes.next_multiple_of(PAGE)
    }

    fn checkpoint(&self, which: u64, section: Section) -> Range<u64> {
        let held = self.twin(Part::Map).0[1].end - self.twin(Part::Map).0[0].start;
        let bytes = (self.len - held - self.journal().end) / 2;
        let at = self.journal().end + which * bytes;
        let words = (self.sizes.map_words * 8).next_multiple_of(PAGE);
        match section {
            Section::Head => at..at + PAGE,
            Section::Table => at + PAGE..at + 2 * PAGE,
            Section::Meta => at + 2 * PAGE..at + 2 * PAGE + (1 << 16),
            Section::Words => at + bytes - words..at + bytes,
        }
    }
}

/// Sectors of a range that are not all zeros.
fn sectors(store: &RamStore, range: Range<u64>) -> Vec<u64> {
    let mut found = Vec::new();
    let mut chunk = vec![0; 1 << 20];
    for at in range.clone().step_by(chunk.len()) {
        let bytes = usize::try_from((range.end - at).min(1 << 20)).expect("a chunk");
        store.read(at, &mut chunk[..bytes]).expect("within the store");
        let whole = (at..).step_by(512).zip(chunk[..bytes].chunks(512));
        found.extend(whole.filter(|(_, s)| s.iter().any(|byte| *byte != 0)).map(|(at, _)| at));
    }
    found
}

/// Noise, nothing, or a flipped bit, in a sector; the flip is where a checksum sees it.
fn damage(store: &RamStore, dice: &mut oracle::Dice, at: u64, seen: usize) {
    let mut bytes = [0; SECTOR];
    store.read(at, &mut bytes).expect("within the store");
    match dice.below(3) {
        0 => bytes.fill(0),
        1 => bytes[dice.index(seen)] ^= 1 << dice.below(8),
        _ => bytes.iter_mut().for_each(|byte| *byte = dice.roll().to_le_bytes()[0]),
    }
    store.write(at, &bytes).expect("within the store");
    store.sync().expect("there is power");
}

/// Whether both copies of the header are zeros, as on a store that was never formatted.
pub(super) fn is_header_blank(campaign: &Campaign) -> bool {
    let store = campaign.bench.store.as_ref().expect("a store");
    let pages = campaign.config.capacity_bytes / PAGE;
    let sizes = FtlConfig::sizes(&campaign.config.preset, pages, DUMP_BYTES).expect("the SSD's");
    let ([a, b], _) = Areas { sizes, len: store.len() }.twin(Part::Header);
    [a, b].into_iter().all(|copy| sectors(store, copy).is_empty())
}

/// What was damaged, if anything of that kind is there: `None`, or whether both copies were.
pub(super) fn damage_part(campaign: &mut Campaign, part: Part) -> Option<bool> {
    let store = Arc::clone(campaign.bench.store.as_ref().expect("a store"));
    let pages = campaign.config.capacity_bytes / PAGE;
    let sizes = FtlConfig::sizes(&campaign.config.preset, pages, DUMP_BYTES).expect("the SSD's");
    let areas = Areas { sizes, len: store.len() };
    let dice = &mut campaign.dice;
    match part {
        Part::Header | Part::Term | Part::Map | Part::Entry | Part::Tombstone | Part::SmartCounters => {
            let ([a, b], pitch) = areas.twin(part);
            let cells: Vec<u64> = sectors(&store, a.clone())
                .into_iter()
                .filter(|at| (at - a.start).is_multiple_of(pitch))
                .collect();
            if cells.is_empty() {
                return None;
            }
            let cell = dice.of(&cells);
            let copies = [cell, b.start + (cell - a.start)];
            let both = dice.one_in(2);
            if both {
                copies.iter().for_each(|at| damage(&store, dice, *at, 36));
            } else {
                let at = dice.of(&copies);
                damage(&store, dice, at, 36);
            }
            Some(both)
        }
        Part::Dump | Part::Journal => {
            let range = if part == Part::Dump { areas.dump() } else { areas.journal() };
            let found = sectors(&store, range);
            if found.is_empty() {
                return None;
            }
            let at = dice.of(&found);
            damage(&store, dice, at, SECTOR);
            Some(false)
        }
        Part::Checkpoint(section) => {
            let both = dice.one_in(3);
            let which = dice.below(2);
            let mut hit = 0;
            for which in [which, 1 - which].into_iter().take(1 + usize::from(both)) {
                let found = sectors(&store, areas.checkpoint(which, section));
                if !found.is_empty() {
                    let at = dice.of(&found);
                    // A head is a page; a table has few entries.
                    let seen = if section == Section::Table { 8 } else { SECTOR };
                    damage(&store, dice, at, seen);
                    hit += 1;
                }
            }
            (hit > 0).then_some(hit == 2)
        }
    }
}

/// Flips a bit in both copies of the first cell of a kind, or leaves nothing of them.
pub(super) fn damage_both(campaign: &Campaign, part: Part, zeros: bool) {
    let store = campaign.bench.store.as_ref().expect("a store");
    let pages = campaign.config.capacity_bytes / PAGE;
    let sizes = FtlConfig::sizes(&campaign.config.preset, pages, DUMP_BYTES).expect("the SSD's");
    let ([a, b], _) = Areas { sizes, len: store.len() }.twin(part);
    for at in [a.start, b.start] {
        let mut bytes = [0; SECTOR];
        store.read(at, &mut bytes).expect("within the store");
        bytes[20] ^= 1;
        store.write(at, &if zeros { [0; SECTOR] } else { bytes }).expect("within the store");
    }
    store.sync().expect("there is power");
}
