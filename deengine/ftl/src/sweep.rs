// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Forgetting a volume: every block of it is unmapped, a bounded part of the map at a time (protocol rule 10).
//!
//! Insertions of other volumes may move a word from a part not yet swept to one already swept. While a sweep runs, the
//! words written behind its front are looked at one by one, so that one pass finds everything. The stash is listed with the
//! first bucket; only an insertion's own block goes there, and a swept volume has no insertions.

use crate::layer::{Ftl, Inner};
use gnstor_base::time::Time;
use gnstor_durable::{Record, Seq};
use gnstor_flash::Ppa;
use gnstor_proto::slba::Vid;

/// Blocks in a bucket of the map.
const BUCKET_BLOCKS: u64 = 8;
/// A transaction that unmaps one, at its longest.
const REMOVAL_BYTES: u64 = 128;

/// A volume on its way out of the map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sweep {
    vid: Vid,
    generation: u32,
    next_bucket: u64,
    /// Set once the pass is over: the transaction that must be durable.
    end: Option<Seq>,
}

impl Ftl {
    /// Begins to forget a volume. Nothing of it may be in flight, and nobody writes to it any more.
    pub fn sweep(&self, vid: Vid, generation: u32) {
        let mut inner = self.lock();
        if inner.sweeps.iter().all(|sweep| sweep.vid != vid) {
            inner.sweeps.push(Sweep { vid, generation, next_bucket: 0, end: None });
        }
    }

    /// Goes on with every sweep by up to `buckets` buckets of the map; how many blocks were unmapped.
    pub fn sweep_step(&self, now: Time, buckets: u64) -> u64 {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let mut unmapped = 0;
        for at in 0..inner.sweeps.len() {
            let sweep = inner.sweeps[at];
            if sweep.end.is_some() {
                continue;
            }
            // What a step unmaps goes into the journal, and the journal of a small SSD is short.
            let buckets = buckets.min(self.journal_bytes / 8 / (BUCKET_BLOCKS * REMOVAL_BYTES)).max(1);
            if self.make_journal_room(inner, now, (buckets + 8) * BUCKET_BLOCKS * REMOVAL_BYTES).is_err() {
                break;
            }
            let found: Vec<u32> = self
                .map
                .scan(sweep.next_bucket, buckets)
                .filter(|&(vid, _, page)| self.is_swept(&sweep, vid, page))
                .map(|(_, vba, _)| vba)
                .collect();
            unmapped += found.len() as u64;
            for vba in found {
                self.unmap(inner, sweep.vid, vba);
            }
            let next = sweep.next_bucket + buckets;
            inner.sweeps[at].next_bucket = next;
            if next >= self.map.buckets() {
                inner.journal.begin();
                inner.journal.add(Record::Forgotten { vid: sweep.vid, generation: sweep.generation });
                let seq = inner.journal.commit();
                inner.windows.forget(sweep.vid);
                inner.sweeps[at].end = Some(seq);
                self.cut_short(inner, now);
                inner.wanted = inner.wanted.max(seq);
            }
        }
        self.advance(inner, now, 0);
        self.settle_in(inner, now);
        unmapped
    }

    /// A volume whose sweep is durable, with the generation that is over.
    pub fn swept(&self) -> Option<(Vid, u32)> {
        let mut inner = self.lock();
        let durable = inner.journal.durable();
        let at = inner.sweeps.iter().position(|sweep| sweep.end.is_some_and(|seq| seq <= durable))?;
        let sweep = inner.sweeps.swap_remove(at);
        Some((sweep.vid, sweep.generation))
    }

    /// Whether there is anything to sweep or to wait for.
    pub fn is_sweeping(&self) -> bool {
        !self.lock().sweeps.is_empty()
    }

    /// Words have been written while a sweep runs.
    pub(crate) fn sweep_behind(&self, inner: &mut Inner) {
        let mut behind = std::mem::take(&mut inner.behind);
        for (index, value) in behind.drain(..) {
            // An insertion puts only its own block into the stash, never one of a swept volume.
            let Some((vid, vba, page)) = self.map.entry_of_word(index, value) else { continue };
            let bucket = self.map.bucket_of_word(index);
            let passed = |s: &Sweep| self.is_swept(s, vid, page) && s.end.is_none() && bucket < Some(s.next_bucket);
            if inner.sweeps.iter().any(passed) {
                self.unmap(inner, vid, vba);
            }
        }
        inner.behind = behind;
    }

    /// Whether the page belongs to the life that a sweep ends: a later one is none of its business.
    fn is_swept(&self, sweep: &Sweep, vid: Vid, page: u32) -> bool {
        vid == sweep.vid && self.flash.key(Ppa(page)).is_none_or(|(_, generation, ..)| generation <= sweep.generation)
    }

    fn unmap(&self, inner: &mut Inner, vid: Vid, vba: u32) {
        inner.journal.begin();
        let journal = &mut inner.journal;
        let old = inner.writer.remove(vid, vba, &mut |index, value| journal.add(Record::Word { index, value }));
        let seq = inner.journal.commit();
        if let Some(old) = old {
            self.let_go(inner, Ppa(old), seq);
        }
    }
}
