// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Capacity: how many blocks of each SSD the volumes reserve, and how large a volume may still be.
//!
//! Hashed placement gives the SSDs unequal shares of a volume. The daemon therefore counts the blocks that
//! each SSD holds when a volume is written whole. It refuses a volume whose blocks do not fit on one of the
//! SSDs.
//!
//! The count is exact up to [`EXACT_CHUNKS`] chunks. Above, it is an upper bound for an SSD in the share `p`
//! of the placement groups. There `n` chunks put at most `n p + 6 sqrt(n p (1 - p))` replicas on it.

use gnstor_proto::placement::{AnyMap, Rows, group_of};
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::VolumeEntry;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Number of chunks that are counted one by one: 256 GiB of chunks of 64 KiB.
const EXACT_CHUNKS: u64 = 1 << 22;
/// Largest volume in blocks: a VBA can name no more.
const MAX_BLOCKS: u64 = 1 << 32;

/// Answers of [`Capacity::largest`] that are kept: those of some volume ids, for each number of replicas.
const KEPT_ANSWERS: usize = 64;

/// The properties of a volume that place its blocks, beside the fleet map.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Layout {
    pub(super) vid: Vid,
    pub(super) factor: u64,
    pub(super) chunk_shift: u8,
    pub(super) replicas: u8,
}

impl Layout {
    fn of(entry: &VolumeEntry) -> Self {
        let VolumeEntry { vid, factor, chunk_shift, replicas, .. } = *entry;
        Self { vid, factor, chunk_shift, replicas }
    }
}

/// An SSD's blocks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct SsdBlocks {
    pub(super) capacity: u64,
    /// Number of blocks on the SSD when every volume is written completely.
    pub(super) reserved: u64,
}

/// The capacity of an array, and what its volumes reserve of it.
#[derive(Debug)]
pub(super) struct Capacity {
    map: AnyMap,
    ssds: Vec<SsdBlocks>,
    volumes: BTreeMap<Vid, Vec<(u16, u64)>>,
    /// Answers of [`Self::largest`] since a volume came or went. Each is a walk over all chunks, and `gnstor
    /// up` asks every second.
    largest: RefCell<BTreeMap<Layout, u64>>,
}

impl Capacity {
    /// An array without volumes. `blocks[i]` is the capacity of SSD `i` of the map.
    pub(super) fn new(map: AnyMap, blocks: &[u64]) -> Self {
        let ssds = blocks.iter().map(|&capacity| SsdBlocks { capacity, reserved: 0 }).collect();
        Self { map, ssds, volumes: BTreeMap::new(), largest: RefCell::default() }
    }

    pub(super) fn ssds(&self) -> &[SsdBlocks] {
        &self.ssds
    }

    /// Reserves the blocks of a volume, whether they fit or not.
    pub(super) fn reserve(&mut self, entry: &VolumeEntry) {
        self.release(entry.vid);
        let blocks = self.blocks_on_each(Layout::of(entry), entry.capacity_blocks);
        let used: Vec<_> = (0u16..).zip(blocks).filter(|&(_, blocks)| blocks > 0).collect();
        for &(ssd, blocks) in &used {
            self.ssds[usize::from(ssd)].reserved += blocks;
        }
        self.volumes.insert(entry.vid, used);
    }

    /// Frees the blocks that a volume reserves.
    pub(super) fn release(&mut self, vid: Vid) {
        self.largest.get_mut().clear();
        for (ssd, blocks) in self.volumes.remove(&vid).unwrap_or_default() {
            self.ssds[usize::from(ssd)].reserved -= blocks;
        }
    }

    /// Whether some block of a volume with `replicas` replicas has no SSD at all.
    pub(super) fn has_holes(&self, replicas: u8) -> bool {
        (0..self.map.groups()).any(|group| self.map.replicas(group, replicas).next().is_none())
    }

    /// Whether a volume of this number of blocks fits on every SSD.
    pub(super) fn fits(&self, layout: Layout, blocks: u64) -> bool {
        let free = self.free();
        // The sum first: it is cheap, and refuses a volume far too large without a walk over its chunks.
        if !self.has_holes(layout.replicas) && blocks > free.iter().sum() {
            return false;
        }
        self.blocks_on_each(layout, blocks).iter().zip(&free).all(|(blocks, free)| blocks <= free)
    }

    /// The largest volume, in blocks, that [`Self::fits`] accepts.
    pub(super) fn largest(&self, layout: Layout) -> u64 {
        let mut kept = self.largest.borrow_mut();
        if let Some(&blocks) = kept.get(&layout) {
            return blocks;
        }
        if kept.len() >= KEPT_ANSWERS {
            kept.clear();
        }
        let blocks = self.walk_to_largest(layout);
        kept.insert(layout, blocks);
        blocks
    }

    fn walk_to_largest(&self, layout: Layout) -> u64 {
        if self.has_holes(layout.replicas) {
            return 0;
        }
        let chunk = 1u64 << layout.chunk_shift;
        let mut free = self.free();
        let last = EXACT_CHUNKS.min(MAX_BLOCKS / chunk);
        for index in 0..last {
            let room = self.members(layout, index).map(|ssd| free[ssd]).min().unwrap_or(0);
            if room < chunk {
                return index * chunk + room;
            }
            self.members(layout, index).for_each(|ssd| free[ssd] -= chunk);
        }
        // Beyond the exact range: the largest number of chunks whose upper bound fits.
        let (mut low, mut high) = (last, MAX_BLOCKS / chunk);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if self.fits(layout, middle * chunk) { low = middle } else { high = middle - 1 }
        }
        low * chunk
    }

    /// Blocks that each SSD holds of a volume of `blocks` blocks that is written whole.
    fn blocks_on_each(&self, layout: Layout, blocks: u64) -> Vec<u64> {
        let chunk = 1u64 << layout.chunk_shift;
        let chunks = blocks.div_ceil(chunk);
        let mut on_each = vec![0; self.ssds.len()];
        if chunks > EXACT_CHUNKS {
            for (ssd, share) in self.shares(layout.replicas).into_iter().enumerate() {
                on_each[ssd] = upper_bound(chunks, share) * chunk;
            }
            return on_each;
        }
        for index in 0..chunks {
            let count = chunk.min(blocks - index * chunk);
            self.members(layout, index).for_each(|ssd| on_each[ssd] += count);
        }
        on_each
    }

    /// The SSDs of a chunk.
    fn members(&self, layout: Layout, chunk: u64) -> impl Iterator<Item = usize> + '_ {
        let vba = u32::try_from(chunk << layout.chunk_shift).expect("a chunk begins below 2^32 blocks");
        let group = group_of(layout.vid, vba, layout.chunk_shift, layout.factor, self.map.groups());
        self.map.replicas(group, layout.replicas).map(|member| usize::from(member.ssd))
    }

    fn free(&self) -> Vec<u64> {
        self.ssds.iter().map(|ssd| ssd.capacity.saturating_sub(ssd.reserved)).collect()
    }

    /// The share of the placement groups in which each SSD is one of the first `replicas` places.
    fn shares(&self, replicas: u8) -> Vec<f64> {
        let mut groups = vec![0u32; self.ssds.len()];
        for member in (0..self.map.groups()).flat_map(|group| self.map.replicas(group, replicas)) {
            groups[usize::from(member.ssd)] += 1;
        }
        groups.into_iter().map(|count| f64::from(count) / f64::from(self.map.groups())).collect()
    }
}

/// Chunks of `chunks` that an SSD in the share `share` of the groups holds at most.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "up to 2^32 chunks, which an f64 counts exactly; the bound is not negative"
)]
fn upper_bound(chunks: u64, share: f64) -> u64 {
    let mean = chunks as f64 * share;
    let bound = mean + 6.0 * (mean * (1.0 - share)).max(0.0).sqrt();
    (bound.ceil() as u64).min(chunks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};
    use gnstor_proto::placement::FleetMap;
    use gnstor_proto::slba::ClientId;
    use gnstor_proto::vendor::Limits;

    fn layout(vid: u16, replicas: u8) -> Layout {
        Layout { vid: Vid::new(vid).unwrap(), factor: 0x1234_5678 * u64::from(vid), chunk_shift: 4, replicas }
    }

    fn array(map: FleetMap, blocks: u64) -> Capacity {
        let count = map.ssds.len();
        Capacity::new(map.into(), &vec![blocks; count])
    }

    fn equal(ssds: usize) -> FleetMap {
        FleetMap::equal(ssds, 256, 7, 1).unwrap()
    }

    #[test]
    fn the_largest_volume_fits_and_one_block_more_does_not() {
        let _deadline = Deadline::after(LIMIT);
        for ssds in 1..=5 {
            for replicas in 1..=u8::try_from(ssds.min(3)).unwrap() {
                let array = array(equal(ssds), 16_384);
                let largest = array.largest(layout(1, replicas));
                assert!(largest <= 16_384 * ssds as u64 / u64::from(replicas));
                assert!(
                    largest > 16_384 * ssds as u64 / u64::from(replicas) * 8 / 10,
                    "{ssds} {replicas} {largest}"
                );
                assert!(array.fits(layout(1, replicas), largest));
                assert!(!array.fits(layout(1, replicas), largest + 1));
            }
        }
    }

    #[test]
    fn the_largest_volume_follows_volumes_that_come_and_go() {
        let _deadline = Deadline::after(LIMIT);
        let mut array = array(equal(4), 16_384);
        let empty = array.largest(layout(1, 2));
        let entry = VolumeEntry {
            vid: Vid::new(2).unwrap(),
            generation: 1,
            version: 1,
            term: 1,
            deleting: false,
            name: "v".into(),
            labels: String::new(),
            capacity_blocks: 8000,
            replicas: 2,
            chunk_shift: 4,
            factor: 5,
            owner: ClientId::new(1).unwrap(),
            any_reader: false,
            readers: Vec::new(),
            writer: None,
            unsettled: false,
            lease_epoch: 0,
            lease_ms: 0,
            request_ids: Vec::new(),
            limits: Limits::default(),
            salvaged_s: 0,
        };
        array.reserve(&entry);
        let less = array.largest(layout(1, 2));
        assert!(less < empty - 7000 && array.fits(layout(1, 2), less) && !array.fits(layout(1, 2), less + 1));
        array.release(entry.vid);
        assert_eq!(array.largest(layout(1, 2)), empty);
        for vid in 1..500 {
            assert!(array.largest(layout(vid, 1)) > 0);
        }
        assert!(array.largest.borrow().len() <= KEPT_ANSWERS);
    }

    #[test]
    fn the_count_agrees_with_the_placement_of_every_block() {
        let _deadline = Deadline::after(LIMIT);
        for map in [equal(4), equal(4).without(2), equal(5).without(0).without(3)] {
            let array = array(map.clone(), 1 << 20);
            let layout = layout(9, 3);
            let mut naive = vec![0; map.ssds.len()];
            for vba in 0..9_999 {
                let group = group_of(layout.vid, vba, layout.chunk_shift, layout.factor, map.groups());
                map.replicas(group, layout.replicas).for_each(|member| naive[usize::from(member.ssd)] += 1);
            }
            assert_eq!(array.blocks_on_each(layout, 9_999), naive);
        }
    }

    #[test]
    fn the_upper_bound_is_above_the_exact_count_and_within_a_few_percent() {
        let _deadline = Deadline::after(LIMIT);
        let array = array(equal(5), 1 << 30);
        for (vid, replicas) in [(1, 1), (2, 2), (3, 3)] {
            let exact = array.blocks_on_each(layout(vid, replicas), 1 << 21);
            for (ssd, share) in array.shares(replicas).into_iter().enumerate() {
                let bound = upper_bound(1 << 17, share) << 4;
                assert!(bound >= exact[ssd] && bound < exact[ssd] * 105 / 100, "{bound} {}", exact[ssd]);
            }
        }
        assert_eq!((upper_bound(1 << 28, 1.0), upper_bound(1 << 28, 0.0)), (1 << 28, 0));
    }

    #[test]
    fn a_volume_beyond_the_exact_range_keeps_room_for_the_spread() {
        let _deadline = Deadline::after(LIMIT);
        let array = array(equal(4), 1 << 26);
        let largest = array.largest(layout(1, 2));
        assert!(largest > EXACT_CHUNKS << 4 && largest < 1 << 27, "{largest}");
        assert!(array.fits(layout(1, 2), largest) && !array.fits(layout(1, 2), largest + 16));
    }

    #[test]
    fn a_block_without_an_ssd_is_a_hole() {
        let _deadline = Deadline::after(LIMIT);
        let array = array(equal(2).without(0), 1 << 20);
        assert!(array.has_holes(1) && !array.has_holes(2));
        assert_eq!(array.largest(layout(1, 1)), 0);
        assert_eq!(array.largest(layout(1, 2)), 1 << 20);
    }
}
