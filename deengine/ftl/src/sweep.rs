// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sweeps: unmap every block of a deleted volume, a bounded part of the map at a time (protocol rule 10).
//!
//! An insertion of another volume may move a word from a part that the sweep has not reached to a part that
//! it has passed. So may a removal, for an entry of the stash then goes back into the table. While a sweep
//! runs, the layer therefore checks each word that is written behind the sweep's front, and one pass finds
//! everything. The stash is listed with the first bucket. Only an insertion's own block goes there, and a
//! swept volume has no insertions.

pub(crate) mod state;

use crate::layer::{Ftl, Inner};
use gnstor_base::time::Time;
use gnstor_durable::{Record, Seq};
use gnstor_flash::Ppa;
use gnstor_proto::slba::Vid;
use state::Sweep;

/// Blocks in a bucket of the map.
const BUCKET_BLOCKS: u64 = 8;
/// Longest transaction that unmaps a block, in bytes.
const REMOVAL_BYTES: u64 = 128;

impl Ftl {
    /// Begins to unmap a volume. It may have no command in flight, and no later one may write to it.
    pub fn sweep(&self, vid: Vid, generation: u32) {
        let mut inner = self.lock();
        if inner.edits.sweeps.running.iter().all(|sweep| sweep.vid != vid) {
            inner.edits.sweeps.running.push(Sweep { vid, generation, next_bucket: 0, end: None });
        }
    }

    /// Continues every sweep by up to `buckets` buckets of the map. Returns how many blocks were unmapped.
    pub fn sweep_step(&self, now: Time, buckets: u64) -> u64 {
        let mut guard = self.lock();
        let inner = &mut *guard;
        // Each unmapped block takes a transaction, and the journal of a small SSD is short.
        let room = self.journal_bytes.min(self.dump_budget.unwrap_or(u64::MAX)) / 8;
        let buckets = buckets.min(room / (BUCKET_BLOCKS * REMOVAL_BYTES)).max(1);
        let mut unmapped = 0;
        for at in 0..inner.edits.sweeps.running.len() {
            let sweep = inner.edits.sweeps.running[at];
            if sweep.end.is_some() {
                continue;
            }
            if self.make_journal_room(inner, now, (buckets + 8) * BUCKET_BLOCKS * REMOVAL_BYTES).is_err() {
                break;
            }
            let found: Vec<u32> = self
                .map
                .scan(sweep.next_bucket, buckets)
                .filter(|&(vid, _, page)| self.is_swept(&sweep, vid, page))
                .map(|(_, vba, _)| vba)
                .collect();
            let next = sweep.next_bucket + buckets;
            // These buckets are listed: what moves there from now on is behind the front.
            inner.edits.sweeps.running[at].next_bucket = next;
            for vba in found {
                unmapped += u64::from(self.unmap(inner, sweep.vid, vba));
            }
            unmapped += self.sweep_written(inner);
            if next >= self.map.buckets() {
                inner.edits.sweeps.running[at].end = Some(self.end_sweep(inner, now, &sweep));
            }
        }
        self.advance(inner, now, 0);
        self.complete_programs(inner, now);
        unmapped
    }

    /// The pass of a sweep is over. Returns the transaction after which its volume is gone.
    fn end_sweep(&self, inner: &mut Inner, now: Time, sweep: &Sweep) -> Seq {
        inner.journal.begin();
        inner.journal.add(Record::Forgotten { vid: sweep.vid, generation: sweep.generation });
        let seq = inner.journal.commit();
        inner.stamps.histories.remove(sweep.vid);
        self.pad_units(inner, now);
        inner.flushing.want(seq);
        seq
    }

    /// A volume whose sweep is durable, with the generation that has ended. Each is returned once.
    pub fn swept(&self) -> Option<(Vid, u32)> {
        let mut inner = self.lock();
        let durable = inner.journal.durable();
        let sweeps = &mut inner.edits.sweeps.running;
        let at = sweeps.iter().position(|sweep| sweep.end.is_some_and(|seq| seq <= durable))?;
        let sweep = sweeps.swap_remove(at);
        Some((sweep.vid, sweep.generation))
    }

    /// Whether a sweep runs or waits to be durable.
    pub fn is_sweeping(&self) -> bool {
        !self.lock().edits.sweeps.running.is_empty()
    }

    /// Checks the words that insertions and removals have written while a sweep runs. Returns how many blocks
    /// were unmapped.
    pub(crate) fn sweep_written(&self, inner: &mut Inner) -> u64 {
        let mut unmapped = 0;
        // The unmapping itself writes words, which this loop then also takes.
        while let Some((index, value)) = inner.edits.sweeps.written.pop() {
            // The stash has no entry of a word: see the module's comment.
            let Some((vid, vba, page)) = self.map.entry_of_word(index, value) else { continue };
            let bucket = self.map.bucket_of_word(index);
            let passed =
                |s: &Sweep| self.is_swept(s, vid, page) && s.end.is_none() && bucket < Some(s.next_bucket);
            if inner.edits.sweeps.running.iter().any(passed) {
                unmapped += u64::from(self.unmap(inner, vid, vba));
            }
        }
        unmapped
    }

    /// Whether the page belongs to a generation that the sweep ends, not to a later one.
    fn is_swept(&self, sweep: &Sweep, vid: Vid, page: u32) -> bool {
        let is_earlier = |(_, generation, ..): (u16, u32, u32, u32)| {
            generation <= sweep.generation
                && (generation == sweep.generation || self.flash.is_sound(Ppa(page)))
        };
        vid == sweep.vid && self.flash.key(Ppa(page)).is_none_or(is_earlier)
    }

    /// Whether the block was mapped.
    fn unmap(&self, inner: &mut Inner, vid: Vid, vba: u32) -> bool {
        inner.journal.begin();
        let old = inner.edits.remove(&mut inner.journal, vid, vba);
        let seq = inner.journal.commit();
        if let Some(old) = old {
            self.release_page(inner, Ppa(old), seq);
        }
        old.is_some()
    }
}
