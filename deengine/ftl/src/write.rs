// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What changes the map for hosts: commits, forgetting. Under the lock.

use crate::collect::journal_bytes;
use crate::layer::{CommitError, Committed, Forgotten, Ftl, Inner, NewBlock, Target};
use crate::space::Stream;
use gnstor_base::region::LocalRef;
use gnstor_base::time::Time;
use gnstor_durable::{Record, Seq};
use gnstor_flash::{Frame, Oob, Ppa};
use gnstor_map::{Batch, Probe};
use gnstor_proto::slba::{Stamp, Vid};
use std::sync::MutexGuard;

/// The layer, locked for commits: several writes cost one hold of the lock.
#[derive(Debug)]
pub struct Commits<'a> {
    ftl: &'a Ftl,
    inner: MutexGuard<'a, Inner>,
    /// Blocks applied since the layer last got on.
    applied: u32,
    has_committed: bool,
}

/// So many blocks are applied before the layer gets on.
const AT_ONCE: u32 = 64;

/// Blocks that are to be committed, by the groups in which they were announced.
///
/// ```text
///   group n + 2   buckets of the map and stamp windows asked for
///   group n + 1   looked up, records of the pages found there asked for
///   group n       committed
/// ```
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    groups: [Batch; 1 + Commits::AHEAD],
    /// Groups announced, groups of which all has been committed, and blocks committed of the next.
    announced: usize,
    over: usize,
    at: usize,
}

impl Ahead {
    fn clear(&mut self) {
        (self.announced, self.over, self.at) = (0, 0, 0);
    }

    fn group(&mut self, number: usize) -> &mut Batch {
        &mut self.groups[number % (1 + Commits::AHEAD)]
    }

    /// The place of the next block, if this is the one that was announced.
    #[inline]
    fn next(&mut self, vid: Vid, vba: u32) -> Option<Probe> {
        while self.over < self.announced && self.at >= self.group(self.over).len() {
            (self.over, self.at) = (self.over + 1, 0);
        }
        let at = self.at;
        let probe = (self.over < self.announced).then(|| self.group(self.over).probe_of(at, vid, vba)).flatten();
        self.at += usize::from(probe.is_some());
        probe
    }
}

impl Commits<'_> {
    /// How many groups are announced ahead of the one that is committed.
    pub const AHEAD: usize = 2;

    /// Asks for what commits of these blocks will look for, so that it is in the cache by then, and looks on for those of the group announced
    /// before. Blocks are committed in this order, a group when [`Self::AHEAD`] more have been announced, be they empty ones. No
    /// more than [`gnstor_map::Batch::MOST`] of a group count.
    pub fn announce(&mut self, blocks: impl IntoIterator<Item = (Vid, u32)>) {
        let Inner { ahead, windows, .. } = &mut *self.inner;
        let number = ahead.announced;
        ahead.announced += 1;
        let blocks = blocks.into_iter().inspect(|(vid, vba)| windows.touch(*vid, *vba));
        self.ftl.map.probe_batch(blocks, ahead.group(number));
        if let Some(before) = number.checked_sub(1) {
            let batch = ahead.group(before);
            self.ftl.map.find_batch(batch);
            (0..batch.len()).filter_map(|at| batch.page(at)).for_each(|page| self.ftl.flash.prefetch(Ppa(page)));
        }
    }

    /// All data of a write is there: from now on reads find it. It is as good as the write buffer is; see [`Ftl::harden`].
    ///
    /// # Errors
    /// [`CommitError`]; then the frames are still the caller's.
    pub fn commit(
        &mut self,
        now: Time,
        accepted: Time,
        target: &Target,
        blocks: &[NewBlock],
    ) -> Result<Committed, CommitError> {
        let committed = self.ftl.commit_in(&mut self.inner, now, accepted, target, blocks)?;
        self.inner.stats.commit_holds += u64::from(!std::mem::replace(&mut self.has_committed, true));
        self.applied += committed.applied;
        if self.applied >= AT_ONCE {
            self.advance(now);
        }
        Ok(committed)
    }

    /// Does what has become due by the commits. When the layer next has something to do: whoever commits sees to it that
    /// [`Self::settle`] or [`Ftl::settle`] is called then.
    pub fn advance(&mut self, now: Time) -> Time {
        self.ftl.advance(&mut self.inner, now, std::mem::take(&mut self.applied));
        self.ftl.next_program(&self.inner, now).min(self.ftl.next_quiet(&self.inner))
    }

    /// As [`Ftl::settle`].
    pub fn settle(&mut self, now: Time) -> Time {
        self.ftl.settle_all(&mut self.inner, now)
    }
}

impl Ftl {
    /// A frame for incoming data, while the write buffer has one.
    pub fn take_frame(&self) -> Option<Frame> {
        self.flash.take_frame()
    }

    /// Up to `most` frames for incoming data, as far as the write buffer has them.
    pub fn take_frames(&self, most: u32, each: impl FnMut(Frame)) {
        self.flash.take_frames(most, each);
    }

    /// A frame whose data is not wanted.
    pub fn give_frame(&self, frame: Frame) {
        self.flash.give_frame(frame);
    }

    /// Frames that nobody has written.
    pub fn give_frames(&self, frames: impl Iterator<Item = Frame>) {
        self.flash.give_frames(frames);
    }

    /// The bytes of a frame.
    pub fn frame(&self, frame: Frame) -> LocalRef {
        self.flash.frame(frame)
    }

    /// The lock, for commits one after the other. It is not to be held for long: everything else waits meanwhile.
    pub fn commits(&self) -> Commits<'_> {
        self.commits_with(self.lock())
    }

    /// As [`Self::commits`]; `None` where somebody has the lock.
    pub fn try_commits(&self) -> Option<Commits<'_>> {
        Some(self.commits_with(self.try_lock()?))
    }

    fn commits_with<'a>(&'a self, mut inner: MutexGuard<'a, Inner>) -> Commits<'a> {
        inner.ahead.clear();
        Commits { ftl: self, inner, applied: 0, has_committed: false }
    }

    /// As [`Commits::commit`], one by itself.
    ///
    /// # Errors
    /// [`CommitError`]; then the frames are still the caller's.
    pub fn commit(
        &self,
        now: Time,
        accepted: Time,
        target: &Target,
        blocks: &[NewBlock],
    ) -> Result<Committed, CommitError> {
        let mut commits = self.commits();
        let committed = commits.commit(now, accepted, target, blocks);
        commits.advance(now);
        committed
    }

    fn commit_in(
        &self,
        inner: &mut Inner,
        now: Time,
        accepted: Time,
        target: &Target,
        blocks: &[NewBlock],
    ) -> Result<Committed, CommitError> {
        let count = u32::try_from(blocks.len()).expect("blocks of a command");
        self.make_room(inner, now, count)?;
        let mut fresh = std::mem::take(&mut inner.fresh);
        fresh.clear();
        let mut new = 0;
        fresh.extend((0..count).map(|index| {
            let vba = target.vba + index;
            let probe = inner.ahead.next(target.vid, vba).unwrap_or_else(|| self.map.probe(target.vid, vba));
            let page = self.map.find(&probe).map(Ppa);
            let is_newer = self.is_newer(inner, target, index, page);
            new += u64::from(is_newer && page.is_none());
            is_newer.then_some(probe)
        }));
        if self.map.len() + new > self.logical_pages {
            inner.fresh = fresh;
            return Err(CommitError::Full);
        }
        let applied = u32::try_from(fresh.iter().flatten().count()).expect("at most count");
        let done = self.timing().map_or(accepted, |mut timing| timing.buffer(accepted, applied));
        for ((index, block), fresh) in (0u32..).zip(blocks).zip(&fresh) {
            let Some(probe) = fresh else {
                self.flash.give_frame(block.frame);
                continue;
            };
            let vba = target.vba + index;
            inner.page_seq += 1;
            let oob = Oob {
                vid: target.vid.get(),
                generation: target.generation,
                vba,
                stamp: target.stamp,
                sum: block.sum,
                seq: inner.page_seq,
            };
            self.put(inner, now, done, Stream::Host, &oob, probe, block.frame, Some(target.stamp));
            inner.windows.record(target.vid, vba, target.stamp);
        }
        inner.fresh = fresh;
        inner.stats.host_pages += u64::from(applied);
        inner.last_write = now;
        inner.nothing_to_collect = false;
        self.pay(inner, now, applied);
        Ok(Committed { done, seq: inner.journal.last(), applied, overtaken: count - applied })
    }

    /// Unmaps blocks, leaving their stamps behind; how many were mapped, and how many were left alone (rule 6).
    ///
    /// # Errors
    /// [`CommitError::Stalled`] where the journal has no room for now; nothing has been done then.
    pub fn forget(&self, now: Time, target: &Target, blocks: u32) -> Result<Forgotten, CommitError> {
        let mut guard = self.lock();
        let inner = &mut *guard;
        self.make_journal_room(inner, now, journal_bytes(blocks))?;
        let mut forgotten = Forgotten::default();
        for index in 0..blocks {
            let probe = self.map.probe(target.vid, target.vba + index);
            if !self.is_newer(inner, target, index, self.map.find(&probe).map(Ppa)) {
                forgotten.overtaken += 1;
                continue;
            }
            let vba = target.vba + index;
            inner.journal.begin();
            inner.journal.add(Record::Applied { vid: target.vid, vba, stamp: target.stamp });
            let journal = &mut inner.journal;
            let old = inner.writer.remove_at(&probe, &mut |index, value| journal.add(Record::Word { index, value }));
            let seq = inner.journal.commit();
            inner.windows.record(target.vid, vba, target.stamp);
            if let Some(old) = old {
                forgotten.mapped += 1;
                self.let_go(inner, Ppa(old), seq);
            }
        }
        forgotten.seq = inner.journal.last();
        self.advance(inner, now, blocks);
        Ok(forgotten)
    }

    /// Rule 6: a stamp at or below the one held was applied before, or has been overtaken. The block is mapped to `page`.
    fn is_newer(&self, inner: &Inner, target: &Target, index: u32, page: Option<Ppa>) -> bool {
        let vba = target.vba + index;
        let on_page = page.and_then(|page| {
            let oob = self.flash.oob(page)?;
            let same = (oob.vid, oob.generation, oob.vba) == (target.vid.get(), target.generation, vba);
            same.then_some(oob.stamp)
        });
        // A block that is mapped was written last of all that was applied to it: what forgets unmaps.
        let held = on_page.or_else(|| inner.windows.held(target.vid, vba));
        held.is_none_or(|held| target.stamp > held)
    }

    /// Writes a frame to the next page of a stream and maps its block there. There is room: it was made before.
    #[expect(clippy::too_many_arguments, reason = "one page's whole story")]
    pub(crate) fn put(
        &self,
        inner: &mut Inner,
        now: Time,
        ready: Time,
        stream: Stream,
        oob: &Oob,
        probe: &Probe,
        frame: Frame,
        applied: Option<Stamp>,
    ) {
        if !inner.streams[stream as usize].has_page(&self.flash) {
            self.open_superblock(inner, stream);
        }
        let seq = inner.journal.last() + 1;
        let page = inner.streams[stream as usize].take(&self.flash, seq, ready);
        // The record goes first: the map never names a page that does not say what it holds.
        self.flash.place(page, frame, oob);
        inner.journal.begin();
        if let Some((vid, stamp)) = Vid::new(oob.vid).zip(applied) {
            inner.journal.add(Record::Applied { vid, vba: oob.vba, stamp });
        }
        let Inner { writer, journal, sweeps, behind, .. } = inner;
        let old = writer.insert_at(probe, page.0, &mut |index, value| {
            journal.add(Record::Word { index, value });
            if !sweeps.is_empty() {
                behind.push((index, value));
            }
        });
        let old = old.expect("the map is sized for every logical page, and no commit takes more");
        let committed = inner.journal.commit();
        debug_assert_eq!(committed, seq);
        #[cfg(test)]
        if applied.is_some() {
            inner.applied_at.push(seq);
        }
        inner.space.get_mut(self.flash.geometry().superblock_of(page)).valid += 1;
        if let Some(old) = old {
            self.let_go(inner, Ppa(old), seq);
        }
        if !inner.behind.is_empty() {
            self.sweep_behind(inner);
        }
        self.close_unit(inner, now, stream);
    }

    /// As if bits of the map had flipped: the block is mapped to the page of another block of its volume. For tests of
    /// what a reader does then; the layer's own books are wrong from here on.
    #[doc(hidden)]
    pub fn misdirect(&self, vid: Vid, vba: u32, like: u32) {
        let mut inner = self.lock();
        if let Some(page) = self.map.get(vid, like) {
            let _ = inner.writer.insert(vid, vba, page, &mut |_, _| {});
        }
    }

    /// The map no longer names this page.
    pub(crate) fn let_go(&self, inner: &mut Inner, page: Ppa, seq: Seq) {
        let superblock = self.flash.geometry().superblock_of(page);
        let entry = inner.space.get_mut(superblock);
        entry.valid -= 1;
        entry.let_go = entry.let_go.max(seq);
        inner.nothing_to_collect = false;
        self.note_emptied(inner, superblock);
    }
}
