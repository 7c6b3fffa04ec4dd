// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Batches: a processor with vectors computes the places of eight blocks in the time of one. It compares a
//! bucket by one instruction.
//!
//! ```text
//!   reader    probe_batch_first   places of all   prefetches first buckets
//!             begin_find          first buckets   prefetches second buckets of blocks not found, one of five
//!             find_batch          second buckets  blocks not found there either: as a single lookup
//!
//!   writer    probe_batch         places of all   prefetches both buckets
//!             announce            both buckets    prefetches buckets to move keys to, if both are full
//!             insert_at           one by one
//! ```
//! A reader with three batches in flight rarely waits: in each turn it announces the first, begins the second
//! and finishes the third. Small batches are best then, because a processor has a limit of outstanding lines.

use crate::batch::{Batch, each};
use crate::map::Map;
use crate::shape::key_of;
use crate::table::{Compared, Probe};
use crate::{Step, step};
use gnstor_proto::slba::Vid;
use std::sync::atomic::{Ordering, fence};

impl Map {
    /// Fills a batch with as many blocks as it takes, computes their places, and prefetches both buckets of
    /// each, because a writer needs both.
    #[inline]
    pub fn probe_batch(&self, blocks: impl IntoIterator<Item = (Vid, u32)>, batch: &mut Batch) {
        self.fill(blocks, batch, true);
    }

    /// As [`Self::probe_batch`], but prefetches only the first buckets, where most keys are.
    /// [`Self::find_batch`] prefetches the second buckets that it needs.
    #[inline]
    pub fn probe_batch_first(&self, blocks: impl IntoIterator<Item = (Vid, u32)>, batch: &mut Batch) {
        self.fill(blocks, batch, false);
    }

    #[inline]
    fn fill(&self, blocks: impl IntoIterator<Item = (Vid, u32)>, batch: &mut Batch, both: bool) {
        batch.len = 0;
        for (key, (vid, vba)) in batch.keys.iter_mut().zip(blocks) {
            *key = key_of(vid, vba);
            batch.len += 1;
        }
        (batch.found, batch.begun) = (0, false);
        if let Some(vector) = self.vector {
            return vector.probe(&self.table, batch, both);
        }
        for at in 0..batch.len {
            let Probe { tag, first, second, .. } = self.table.place_of(batch.keys[at]);
            (batch.tags[at], batch.buckets[0][at], batch.buckets[1][at]) = (tag, first, second);
            self.table.memory.prefetch(u64::from(first));
            if both {
                self.table.memory.prefetch(u64::from(second));
            }
        }
    }

    /// Looks into the first buckets, and prefetches the second buckets of blocks not found. Work between this
    /// call and [`Self::find_batch`], such as announcing the next batch, overlaps with the prefetch.
    #[inline]
    pub fn begin_find(&self, batch: &mut Batch) {
        let all = batch.all();
        let missed = self.find_in(batch, all, 0);
        each(missed).for_each(|at| self.table.memory.prefetch(u64::from(batch.buckets[1][at])));
        (batch.found, batch.begun) = (all & !missed, true);
    }

    /// Looks up all blocks of a batch that was filled for this map, or after [`Self::begin_find`] the blocks
    /// that it did not find. Each result is what [`Self::find`] would have returned at some time since the
    /// lookup began.
    #[inline]
    pub fn find_batch(&self, batch: &mut Batch) {
        if !batch.begun {
            self.begin_find(batch);
        }
        batch.begun = false;
        let missed = batch.all() & !batch.found;
        each(missed).for_each(|_| step(Step::Missed));
        let missed = self.find_in(batch, missed, 1);
        batch.found = batch.all() & !missed;
        for at in each(missed) {
            step(Step::Missed);
            if let Some(page) = self.find_surely(&batch.probe(at)) {
                batch.pages[at] = page;
                batch.found |= 1 << at;
            }
        }
    }

    /// Looks for the blocks `wanted` of a batch in one of their buckets. Returns those not found as a mask.
    #[inline]
    fn find_in(&self, batch: &mut Batch, wanted: u64, nth: usize) -> u64 {
        if let Some(vector) = self.vector {
            let missed = vector.find(&self.table, batch, wanted, nth);
            // As in `look`.
            fence(Ordering::Acquire);
            return missed;
        }
        let mut missed = 0;
        for at in each(wanted) {
            match self.look(u64::from(batch.buckets[nth][at]), batch.tag(at, nth)) {
                Some(page) => batch.pages[at] = page,
                None => missed |= 1 << at,
            }
        }
        missed
    }

    /// The blocks of a batch that are in neither of their buckets, both of which are full.
    #[inline]
    pub(crate) fn crowded(&self, batch: &Batch) -> u64 {
        if let Some(vector) = self.vector {
            return vector.crowded(&self.table, batch);
        }
        let is_crowded = |&at: &usize| {
            let bits = [0, 1].map(|nth| {
                let Compared { hit, empty } =
                    self.compare(u64::from(batch.buckets[nth][at]), batch.tag(at, nth));
                hit | empty
            });
            bits == [0; 2]
        };
        (0..batch.len).filter(is_crowded).fold(0, |bits, at| bits | 1 << at)
    }
}
