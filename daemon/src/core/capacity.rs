// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Capacity: how many blocks of each SSD the volumes reserve, and how large a volume may still be.
//!
//! Hashed placement gives the SSDs unequal shares of a volume. The daemon therefore counts the blocks that
//! each SSD holds when a volume is written whole. It refuses a volume whose blocks do not fit on one of the
//! SSDs.
//!
//! The count is exact up to [`EXACT_CHUNKS`] chunks. Above, it is an upper bound for an SSD in the share `p`
//! of the placement groups. There `n` chunks put at most `n p + 6 sqrt(n p (1 - p))` replicas on it.
//!
//! A volume is counted by [`stripes`], once in its life. The next map gives the groups of a stripe other
//! SSDs. The stripes of the volume stay.

mod stripes;

use gnstor_proto::placement::{AnyMap, Rows, group_of};
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::VolumeEntry;
use std::cell::RefCell;
use std::collections::BTreeMap;
use stripes::Stripes;

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

/// What a volume reserves.
#[derive(Debug)]
struct Reserved {
    on_ssds: Vec<(u16, u64)>,
    /// `None`: its stripes are not counted one by one.
    stripes: Option<Stripes>,
}

/// The capacity of an array, and what its volumes reserve of it.
#[derive(Debug)]
pub(super) struct Capacity {
    map: AnyMap,
    ssds: Vec<SsdBlocks>,
    volumes: BTreeMap<Vid, Reserved>,
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

    /// This array with the volumes of the previous map. Stripes that were counted under that one are not
    /// counted again.
    pub(super) fn with(
        mut self,
        volumes: impl Iterator<Item = VolumeEntry>,
        previous: Option<&Self>,
    ) -> Self {
        for entry in volumes {
            let known = previous.and_then(|previous| previous.volumes.get(&entry.vid)?.stripes.as_ref());
            self.reserve_by(&entry, known);
        }
        self
    }

    /// Reserves the blocks of a volume, whether they fit or not.
    pub(super) fn reserve(&mut self, entry: &VolumeEntry) {
        self.reserve_by(entry, None);
    }

    fn reserve_by(&mut self, entry: &VolumeEntry, known: Option<&Stripes>) {
        self.release(entry.vid);
        let (layout, blocks) = (Layout::of(entry), entry.capacity_blocks);
        let stripes = self.stripes(layout, blocks, known);
        let on_each = self.blocks_on_each(layout, blocks, stripes.as_ref());
        let on_ssds: Vec<_> = (0u16..).zip(on_each).filter(|&(_, blocks)| blocks > 0).collect();
        for &(ssd, blocks) in &on_ssds {
            self.ssds[usize::from(ssd)].reserved += blocks;
        }
        self.volumes.insert(entry.vid, Reserved { on_ssds, stripes });
    }

    /// Reserves the blocks of a volume that had `before` blocks and gets those of the entry.
    ///
    /// # Errors
    /// They do not fit, and nothing changes. The largest number of blocks that the volume can have.
    pub(super) fn grow(&mut self, entry: &VolumeEntry, before: u64) -> Result<(), u64> {
        self.release(entry.vid);
        if self.fits(Layout::of(entry), entry.capacity_blocks) {
            self.reserve(entry);
            return Ok(());
        }
        let largest = self.largest(Layout::of(entry));
        self.reserve(&VolumeEntry { capacity_blocks: before, ..entry.clone() });
        Err(largest)
    }

    /// Frees the blocks that a volume reserves.
    pub(super) fn release(&mut self, vid: Vid) {
        self.largest.get_mut().clear();
        for (ssd, blocks) in self.volumes.remove(&vid).into_iter().flat_map(|reserved| reserved.on_ssds) {
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
        let stripes = self.stripes(layout, blocks, None);
        self.blocks_on_each(layout, blocks, stripes.as_ref())
            .iter()
            .zip(&free)
            .all(|(blocks, free)| blocks <= free)
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
        let last = EXACT_CHUNKS.min(MAX_BLOCKS / chunk);
        if let Some(blocks) = self.walk_exactly(layout, last) {
            return blocks;
        }
        // Beyond the exact range: the largest number of chunks whose upper bound fits.
        let (mut low, mut high) = (last, MAX_BLOCKS / chunk);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if self.fits(layout, middle * chunk) { low = middle } else { high = middle - 1 }
        }
        low * chunk
    }

    /// The largest volume, unless so many chunks fit.
    fn walk_exactly(&self, layout: Layout, last: u64) -> Option<u64> {
        let chunk = 1u64 << layout.chunk_shift;
        let mut free = self.free();
        let mut shares = BTreeMap::new();
        let mut stripe = 0;
        // Whole stripes as long as they fit.
        while (stripe + 1) * stripes::CHUNKS <= last {
            let row = stripes::row_of(layout, stripe, self.map.groups());
            let share = shares.entry(row).or_insert_with(|| self.share_of(row, layout.replicas));
            if share.iter().any(|&(ssd, chunks)| free[ssd] < chunks * chunk) {
                break;
            }
            share.iter().for_each(|&(ssd, chunks)| free[ssd] -= chunks * chunk);
            stripe += 1;
        }
        for index in stripe * stripes::CHUNKS..last {
            let room = self.members(layout, index).map(|ssd| free[ssd]).min().unwrap_or(0);
            if room < chunk {
                return Some(index * chunk + room);
            }
            self.members(layout, index).for_each(|ssd| free[ssd] -= chunk);
        }
        None
    }

    /// The stripes of a volume, if its chunks are counted one by one.
    fn stripes(&self, layout: Layout, blocks: u64, known: Option<&Stripes>) -> Option<Stripes> {
        let groups = self.map.groups();
        if let Some(known) = known.filter(|known| known.are_of(layout, blocks, groups)) {
            return Some(known.clone());
        }
        let chunks = blocks.div_ceil(1 << layout.chunk_shift);
        (chunks <= EXACT_CHUNKS).then(|| Stripes::count(layout, blocks, groups))
    }

    /// Blocks that each SSD holds of a volume of `blocks` blocks that is written whole.
    fn blocks_on_each(&self, layout: Layout, blocks: u64, stripes: Option<&Stripes>) -> Vec<u64> {
        let chunk = 1u64 << layout.chunk_shift;
        let chunks = blocks.div_ceil(chunk);
        let mut on_each = vec![0; self.ssds.len()];
        let Some(stripes) = stripes else {
            for (ssd, share) in self.shares(layout.replicas).into_iter().enumerate() {
                on_each[ssd] = upper_bound(chunks, share) * chunk;
            }
            return on_each;
        };
        for &(row, count) in stripes.rows() {
            for (ssd, chunks) in self.share_of(row, layout.replicas) {
                on_each[ssd] += u64::from(count) * chunks * chunk;
            }
        }
        for index in stripes.whole() * stripes::CHUNKS..chunks {
            let count = chunk.min(blocks - index * chunk);
            self.members(layout, index).for_each(|ssd| on_each[ssd] += count);
        }
        on_each
    }

    /// The SSDs of a stripe in this row of groups, each with the number of its chunks.
    fn share_of(&self, row: u32, replicas: u8) -> Vec<(usize, u64)> {
        let mut share = BTreeMap::new();
        for group in stripes::groups_of(row, self.map.groups()) {
            for member in self.map.replicas(group, replicas) {
                *share.entry(usize::from(member.ssd)).or_insert(0) += 1;
            }
        }
        share.into_iter().collect()
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
mod tests;
