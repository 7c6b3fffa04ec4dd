// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A batch of blocks, and their places in one map. `batches.rs` looks them up.

use crate::shape::{WHICH, key_of};
use crate::table::Probe;
use gnstor_proto::slba::Vid;

/// Blocks to look up together, their places in one map, and the pages found. A batch is large: keep one and
/// reuse it.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Batch {
    pub(crate) keys: [u64; Self::MOST],
    pub(crate) tags: [u64; Self::MOST],
    /// First and second.
    pub(crate) buckets: [[u32; Self::MOST]; 2],
    /// Pages of the blocks found.
    pub(crate) pages: [u32; Self::MOST],
    /// Bit i: block i was found.
    pub(crate) found: u64,
    /// The first buckets were looked into, the second not yet.
    pub(crate) begun: bool,
    pub(crate) len: usize,
}

impl Default for Batch {
    fn default() -> Self {
        let (words, halves) = ([0; Self::MOST], [0; Self::MOST]);
        Self { keys: words, tags: words, buckets: [halves; 2], pages: halves, found: 0, begun: false, len: 0 }
    }
}

impl Batch {
    /// The most blocks.
    pub const MOST: usize = 64;

    /// Number of blocks.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the batch has no blocks.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The place of block number `at`, as [`crate::Map::probe`] would give it.
    ///
    /// # Panics
    /// If there is no such block.
    #[inline]
    pub fn probe(&self, at: usize) -> Probe {
        self.check(at);
        Probe {
            key: self.keys[at],
            tag: self.tags[at],
            first: self.buckets[0][at],
            second: self.buckets[1][at],
        }
    }

    /// The place of block number `at`, if it is this block.
    #[inline]
    pub fn probe_of(&self, at: usize, vid: Vid, vba: u32) -> Option<Probe> {
        (at < self.len && self.keys[at] == key_of(vid, vba)).then(|| self.probe(at))
    }

    /// The page of block number `at`, as the last [`crate::Map::find_batch`] found it.
    ///
    /// # Panics
    /// If there is no such block.
    #[inline]
    pub fn page(&self, at: usize) -> Option<u32> {
        self.check(at);
        (self.found >> at & 1 != 0).then(|| self.pages[at])
    }

    #[inline]
    fn check(&self, at: usize) {
        assert!(at < self.len, "block {at} of a batch of {}", self.len);
    }

    /// Tags of slots in the first or the second bucket: the bits above the page.
    #[inline]
    pub(crate) fn tag(&self, at: usize, nth: usize) -> u64 {
        if nth == 0 { self.tags[at] } else { self.tags[at] | WHICH }
    }

    /// A bit for every block.
    #[inline]
    pub(crate) fn all(&self) -> u64 {
        if self.len == 0 { 0 } else { u64::MAX >> (Self::MOST - self.len) }
    }
}

/// The places of the bits that are set.
#[inline]
pub(crate) fn each(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = (bits != 0).then(|| bits.trailing_zeros() as usize);
        bits &= bits.wrapping_sub(1);
        at
    })
}
