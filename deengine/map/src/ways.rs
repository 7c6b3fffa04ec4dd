// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The buckets to which the keys of a full bucket could move.

use crate::SLOTS;
use crate::shape::WHICH;
use crate::table::Table;
use std::sync::atomic::Ordering;

/// Buckets that are asked for ahead of the look into them. At 90 % load every second bucket has room.
pub(crate) const AHEAD: usize = 3;

/// The buckets to which the keys of a full bucket could move, in the order of the search. Keys that would
/// move to their first bucket come first, because readers look there first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ways {
    /// The other buckets of the keys.
    pub(crate) buckets: [u64; SLOTS],
    /// The keys' slots in the bucket that they are in.
    pub(crate) slots: [u64; SLOTS],
}

impl Ways {
    /// The ways out of a bucket, without the instructions that only some processors have.
    pub(crate) fn plainly(table: &Table, bucket: u64) -> Self {
        let words = table.memory.line(bucket).each_ref().map(|slot| slot.load(Ordering::Relaxed));
        let mut ways = Self { buckets: [0; SLOTS], slots: [0; SLOTS] };
        let (mut seconds, mut firsts) = (0, words.iter().filter(|&word| word & WHICH != 0).count());
        for (slot, &word) in words.iter().enumerate() {
            let at = if word & WHICH != 0 { &mut seconds } else { &mut firsts };
            (ways.buckets[*at], ways.slots[*at]) =
                (table.shape.other(bucket, table.shape.rem(word)), slot as u64);
            *at += 1;
        }
        ways
    }

    /// Prefetches the buckets that the search visits first.
    #[inline]
    pub(crate) fn announce(&self, table: &Table) {
        self.buckets[..AHEAD].iter().for_each(|&bucket| table.memory.prefetch(bucket));
    }

    #[expect(clippy::cast_possible_truncation, reason = "a slot is below 8")]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, usize)> {
        self.buckets.iter().zip(&self.slots).map(|(&bucket, &slot)| (bucket, slot as usize))
    }
}
