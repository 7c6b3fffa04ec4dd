// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bits of stored blocks flip, and of the records beside them. Of each block at least one copy stays good
//! then. Clients read, and must never be given a rotten block. Later the operator orders a scrub, which must
//! replace each of them.
//!
//! ```text
//!   at rest   bits flip   clients read, 300 ms   scrub of all SSDs, 60 s   each copy matches its sum
//!   beside    bits flip   load, other faults     at rest: scrub            the same, but for blocks
//!                                                                          whose other copies were dropped
//! ```

use crate::survive::stats::Fault;
use crate::survive::world::World;
use gnstor_base::time::Span;
use gnstor_flash::PageState;
use gnstor_ftl::Extent;
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::placement::{AnyMap, Rows as _, group_of};
use gnstor_proto::vendor::VolumeEntry;

/// Clients read for so long.
const READS: Span = Span::from_ms(300);
/// In one of `RECORDS` cases the bit is in the record beside the page.
const RECORDS: u32 = 8;

/// Blocks that one fault looks at, at most.
const MOST: u32 = 16;

/// An SSD that has a copy, its uuid, and the number of its content.
pub(super) type CopyOf = (u16, [u8; 16], u32);

/// A block of which copies rotted beside load.
#[derive(Clone, Debug)]
pub(super) struct Rotted {
    /// Epoch of the map of then.
    epoch: u64,
    /// How many SSDs served the block.
    serving: usize,
    /// Those among them whose copies stayed good.
    good: Vec<CopyOf>,
}

/// Which content of an SSD a map names.
fn content(map: &AnyMap, ssd: u16) -> CopyOf {
    match map {
        AnyMap::Three(map) => {
            let named = &map.ssds[usize::from(ssd)];
            (ssd, named.uuid, named.incarnation)
        }
        AnyMap::Two(_) => (ssd, [0; 16], 0),
    }
}

impl World {
    /// Some blocks of a volume rot beside load.
    pub(super) fn rot_any(&mut self) -> Option<String> {
        let (map, lives) = (self.newest_map()?, self.history.lasting());
        let entry = lives.get(self.any(lives.len().max(1)))?.clone();
        let blocks = u32::try_from(entry.capacity_blocks).expect("small");
        let (first, most) = (self.chaos.dice.below(blocks), 1 + self.chaos.dice.below(MOST));
        let mut flipped = 0;
        for vba in (first..blocks).take(most as usize) {
            let copies = self.copies(&map, &entry, vba);
            let is_good = |world: &Self, (ssd, ..): &CopyOf| world.rotten(&entry, vba, *ssd).is_none();
            let all_good = copies.iter().all(|copy| is_good(self, copy));
            let rotted = if all_good { self.rot_block(&map, &entry, vba) } else { 0 };
            if rotted > 0 {
                flipped += rotted;
                let mut good = self.serving(&map, &entry, vba);
                let (epoch, serving) = (map.epoch(), good.len());
                good.retain(|copy| is_good(self, copy));
                let rotted = Rotted { epoch, serving, good };
                self.chaos.rotted.insert(((entry.vid, entry.generation), vba), rotted);
            }
        }
        (flipped > 0).then(|| {
            self.post.stats.fault(Fault::RotBeside);
            format!("{flipped} copies of blocks of volume {} rot", entry.vid.get())
        })
    }

    /// The copies of a block, whether they serve or fill.
    pub(super) fn copies(&self, map: &AnyMap, entry: &VolumeEntry, vba: u32) -> Vec<CopyOf> {
        let group = group_of(entry.vid, vba, entry.chunk_shift, entry.factor, map.groups());
        map.replicas(group, entry.replicas).map(|place| content(map, place.ssd)).collect()
    }

    /// The copies of a block that serve.
    fn serving(&self, map: &AnyMap, entry: &VolumeEntry, vba: u32) -> Vec<CopyOf> {
        let group = group_of(entry.vid, vba, entry.chunk_shift, entry.factor, map.groups());
        let serving = map.replicas(group, entry.replicas).filter(|place| !place.filling);
        serving.map(|place| content(map, place.ssd)).collect()
    }

    /// Whether it rotted beside load, and maps have dropped each good copy since. A map that gives a place to
    /// another SSD drops no copy: as many serve as before.
    pub(super) fn may_stay_rotten(&self, map: &AnyMap, entry: &VolumeEntry, vba: u32) -> bool {
        let Some(rotted) = self.chaos.rotted.get(&((entry.vid, entry.generation), vba)) else { return false };
        let drops = |map: &AnyMap, good: &CopyOf| {
            let serving = self.serving(map, entry, vba);
            serving.len() < rotted.serving && !serving.contains(good)
        };
        // Of some maps no client has heard.
        let has_other =
            |good: &CopyOf| self.copies(map, entry, vba).iter().any(|copy| copy.0 == good.0 && copy != good);
        rotted.good.iter().all(|good| {
            self.history.maps_since(rotted.epoch).any(|map| drops(map, good))
                || drops(map, good)
                || has_other(good)
        })
    }

    /// Scrubs for blocks that rotted beside load, once there are no further faults.
    pub(super) fn scrub_if_rotten(&mut self) -> bool {
        self.chaos.rotted.is_empty() || self.scrub() && self.history.violation.is_none() && self.heals()
    }

    /// Returns false if something is wrong.
    pub(super) fn rot(&mut self) -> bool {
        let Some(map) = self.newest_map() else { return true };
        let mut flipped = 0;
        for entry in self.history.lasting() {
            for vba in 0..u32::try_from(entry.capacity_blocks).expect("small") {
                flipped += self.rot_block(&map, &entry, vba);
            }
        }
        if flipped == 0 {
            return true;
        }
        self.say(|| format!("{flipped} copies of blocks have rotted"));
        self.clients_read();
        self.run(self.post.now + READS);
        self.clients.iter_mut().for_each(|client| client.rests = true);
        self.history.violation.is_none() && self.heals() && self.scrub() && self.history.violation.is_none()
    }

    /// Some copies of a block rot, but for one. Returns how many.
    fn rot_block(&mut self, map: &AnyMap, entry: &VolumeEntry, vba: u32) -> u32 {
        let group = group_of(entry.vid, vba, entry.chunk_shift, entry.factor, map.groups());
        let mut serves: Vec<u16> = map
            .replicas(group, entry.replicas)
            .filter(|place| !place.filling)
            .map(|place| place.ssd)
            .collect();
        if serves.len() < 2 || self.chaos.dice.below(3) > 0 {
            return 0;
        }
        let at = self.any(serves.len());
        let good = serves.remove(at);
        if self.rotten(entry, vba, good).is_some() {
            return 0;
        }
        // Where a client died, copies may differ. Then each may be the last one of its write.
        let kept = |ssd: u16| self.kept(entry, vba, ssd);
        let is_same = |ssd: &u16| kept(*ssd).is_some() && kept(*ssd) == kept(good);
        let serves: Vec<u16> = serves.into_iter().filter(is_same).collect();
        let mut flipped = 0;
        for ssd in serves {
            let bit = self.chaos.dice.below(BLOCK_BYTES * 8);
            if self.chaos.dice.below(3) == 0 {
                continue;
            }
            let Some(worker) = self.nodes[usize::from(ssd)].worker() else { continue };
            let ssd_of = worker.ssd();
            let ftl = ssd_of.ftl();
            let Extent::Page(page, _) = ftl.extent(entry.vid, entry.generation, vba) else { continue };
            let is_stored = matches!(ftl.flash().page(page), PageState::Programmed(_));
            ftl.unpin(page);
            if is_stored && self.shape.rots_records && bit.is_multiple_of(RECORDS) {
                ftl.flash().rot_record(page, bit / RECORDS);
                self.post.stats.fault(Fault::RotRecord);
                flipped += 1;
            } else if is_stored {
                self.nodes[usize::from(ssd)].bench.faults.rot(page, bit);
                self.post.stats.fault(Fault::Rot);
                flipped += 1;
            }
        }
        flipped
    }

    /// The first block of a volume of which a stored copy does not match its sum.
    pub(super) fn rotten(&self, entry: &VolumeEntry, vba: u32, ssd: u16) -> Option<String> {
        let worker = self.nodes[usize::from(ssd)].worker()?;
        let ssd_of = worker.ssd();
        let ftl = ssd_of.ftl();
        let (page, sum) = match ftl.extent(entry.vid, entry.generation, vba) {
            Extent::Page(page, sum) => (page, sum),
            Extent::WrongKey => {
                return Some(format!("block {vba}: the copy of SSD {ssd} has a wrong record"));
            }
            Extent::Unmapped | Extent::StaleGeneration => return None,
        };
        let is_sound = ftl.flash().is_sound(page);
        let mut bytes = [0; BLOCK_BYTES as usize];
        let frame = ftl.take_frame();
        let is_read = frame.is_some_and(|frame| {
            let is_read = ftl.flash().copy(page, frame).is_ok();
            ftl.flash().read_frame(frame, &mut bytes);
            ftl.give_frame(frame);
            is_read
        });
        ftl.unpin(page);
        let is_good = is_sound && is_read && gnstor_proto::checksum::block_sum(&bytes) == sum;
        (!is_good).then(|| format!("block {vba}: the copy of SSD {ssd} does not match its sum"))
    }
}
