// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table as memory and arithmetic: where a key belongs, and what a bucket holds.

use crate::memory::{Line, Memory};
use crate::shape::Shape;
use std::sync::atomic::Ordering;

/// Words of the image, and the meaning of their places.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) memory: Memory,
    pub(crate) shape: Shape,
}

/// A block's place in one map, computed once.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    pub(crate) key: u64,
    pub(crate) tag: u64,
    pub(crate) first: u32,
    pub(crate) second: u32,
}

/// Properties of the slots of a bucket; bit i is slot i.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Compared {
    /// The key looked for.
    pub(crate) hit: u32,
    /// Nothing.
    pub(crate) empty: u32,
}

impl Table {
    /// The place of a key.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "there are 2^32 buckets at most")]
    pub(crate) fn place_of(&self, key: u64) -> Probe {
        let (first, rem) = self.shape.split(key);
        let second = self.shape.other(first, rem);
        Probe { key, tag: self.shape.tag(rem), first: first as u32, second: second as u32 }
    }

    /// Compares without a branch for each slot.
    #[inline(never)]
    pub(crate) fn compare_plainly(&self, line: &Line, tag: u64) -> Compared {
        let (mut hit, mut empty) = (0, 0);
        for (slot, word) in line.iter().enumerate() {
            let word = word.load(Ordering::Relaxed);
            hit |= u32::from(word ^ tag <= self.shape.page_mask) << slot;
            empty |= u32::from(word == 0) << slot;
        }
        Compared { hit, empty }
    }
}
