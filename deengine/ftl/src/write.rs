// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commits and TRIM: how hosts change the map. All of it runs under the layer's lock.

use crate::collect::journal_bytes;
use crate::layer::{Ftl, Inner};
use crate::place::Placement;
use crate::space::Stream;
use crate::types::{CommitError, Committed, NewBlock, Target, Trimmed};
use gnstor_base::region::LocalRef;
use gnstor_base::time::Time;
use gnstor_durable::Record;
use gnstor_flash::{Frame, Oob, Ppa};
use gnstor_proto::slba::Vid;
use parking_lot::MutexGuard;

/// The layer, locked for commits. Several writes share one hold of the lock.
#[derive(Debug)]
pub struct Commits<'a> {
    pub(crate) ftl: &'a Ftl,
    pub(crate) inner: MutexGuard<'a, Inner>,
    /// Blocks applied since the last [`Self::advance`].
    pub(crate) applied: u32,
    has_committed: bool,
}

/// A change of blocks under the layer's lock.
pub(crate) struct Change<'a> {
    pub(crate) now: Time,
    pub(crate) target: &'a Target,
    /// Whatever the stamps are.
    pub(crate) by_force: bool,
}

/// Blocks that a TRIM unmaps with the room that it has asked for at once.
const TRIM_PIECE: u32 = 64;

/// Blocks that are applied between two calls of [`Commits::advance`] at most.
const AT_ONCE: u32 = 64;

impl Commits<'_> {
    /// Commits a write whose data is complete. From now on reads find it. The data is as safe as the write
    /// buffer; see [`Ftl::make_durable`].
    ///
    /// # Errors
    /// [`CommitError`]; then the caller still owns the frames.
    pub fn commit(
        &mut self,
        now: Time,
        accepted: Time,
        target: &Target,
        blocks: &[NewBlock],
    ) -> Result<Committed, CommitError> {
        let change = Change { now, target, by_force: false };
        let committed = self.ftl.commit_locked(&mut self.inner, &change, accepted, blocks)?;
        self.inner.stats.commit_holds += u64::from(!std::mem::replace(&mut self.has_committed, true));
        self.applied += committed.applied;
        if self.applied >= AT_ONCE {
            self.advance(now);
        }
        Ok(committed)
    }

    /// Does the work that the commits have made due. Returns when the layer next has work: the caller makes
    /// sure that [`Self::maintain`] or [`Ftl::maintain`] is called then.
    pub fn advance(&mut self, now: Time) -> Time {
        self.ftl.advance(&mut self.inner, now, std::mem::take(&mut self.applied));
        self.ftl.next_work(&self.inner, now).min(self.ftl.next_background(&self.inner))
    }

    /// As [`Ftl::maintain`].
    pub fn maintain(&mut self, now: Time) -> Time {
        self.ftl.maintain_locked(&mut self.inner, now)
    }
}

impl Ftl {
    /// A frame for incoming data, if one is free.
    pub fn take_frame(&self) -> Option<Frame> {
        self.flash.take_frame()
    }

    /// Up to `most` frames for incoming data, as many as are free.
    pub fn take_frames(&self, most: u32, each: impl FnMut(Frame)) {
        self.flash.take_frames(most, each);
    }

    /// Returns a frame whose data is not needed.
    pub fn give_frame(&self, frame: Frame) {
        self.flash.give_frame(frame);
    }

    /// Returns frames that were never written.
    pub fn give_frames(&self, frames: impl Iterator<Item = Frame>) {
        self.flash.give_frames(frames);
    }

    /// The bytes of a frame.
    pub fn frame(&self, frame: Frame) -> LocalRef {
        self.flash.frame(frame)
    }

    /// Takes the lock for several commits. The caller must hold it only for a short time, since everything
    /// else waits meanwhile.
    pub fn commits(&self) -> Commits<'_> {
        self.commits_with(self.lock())
    }

    /// As [`Self::commits`]; `None` if another thread has the lock.
    pub fn try_commits(&self) -> Option<Commits<'_>> {
        Some(self.commits_with(self.try_lock()?))
    }

    fn commits_with<'a>(&'a self, mut inner: MutexGuard<'a, Inner>) -> Commits<'a> {
        inner.commits.clear();
        Commits { ftl: self, inner, applied: 0, has_committed: false }
    }

    /// As [`Commits::commit`], for a single write.
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

    pub(crate) fn commit_locked(
        &self,
        inner: &mut Inner,
        change: &Change<'_>,
        accepted: Time,
        blocks: &[NewBlock],
    ) -> Result<Committed, CommitError> {
        let &Change { now, target, by_force } = change;
        let count = u32::try_from(blocks.len()).expect("blocks of a command");
        self.check_frames(inner)
            .and_then(|()| self.make_room(inner, now, count))
            .map_err(|error| self.stalled(inner, now, error))?;
        let mut probes = inner.commits.take_probes();
        let mut new = 0;
        probes.extend((0..count).map(|index| {
            let vba = target.vba + index;
            let probe =
                inner.commits.next(target.vid, vba).unwrap_or_else(|| self.map.probe(target.vid, vba));
            let page = self.map.find(&probe).map(Ppa);
            let is_newer = by_force || self.is_newer(inner, target, index, page);
            new += u64::from(is_newer && page.is_none());
            is_newer.then_some(probe)
        }));
        let refused = if target.only_mapped && new > 0 {
            Some(CommitError::Unmapped)
        } else {
            (self.map.len() + new > self.logical_pages).then_some(CommitError::Full)
        };
        if let Some(refused) = refused {
            inner.commits.put_probes(probes);
            return Err(refused);
        }
        let applied = u32::try_from(probes.iter().flatten().count()).expect("at most count");
        let done = self.timing().map_or(accepted, |mut timing| timing.buffer(accepted, applied));
        for ((index, block), probe) in (0u32..).zip(blocks).zip(&probes) {
            let Some(probe) = probe else {
                self.flash.give_frame(block.frame);
                continue;
            };
            let &Target { vid, generation, stamp, .. } = target;
            let (vba, seq) = (target.vba + index, inner.commits.next_page_seq());
            let oob = Oob { vid: vid.get(), generation, vba, stamp, sum: block.sum, seq };
            let (stream, frame, applied) = (Stream::Host, block.frame, Some(stamp));
            self.place_page(inner, now, &Placement { stream, oob: &oob, probe, frame, ready: done, applied });
            inner.stamps.applied(target, vba);
        }
        inner.commits.put_probes(probes);
        if applied > 0 {
            inner.written.note(target.vid, inner.journal.last());
        }
        inner.stats.host_pages += u64::from(applied);
        inner.collector.host_wrote(now);
        self.pay(inner, now, applied);
        Ok(Committed { done, seq: inner.journal.last(), applied, overtaken: count - applied })
    }

    /// Unmaps blocks and keeps their stamps. Returns how many were mapped, and how many had a newer stamp
    /// (rule 6).
    ///
    /// # Errors
    /// [`CommitError::Stalled`] where the journal has no room for now. Blocks before that are unmapped by
    /// then, and a repetition counts them as overtaken. As for a commit, [`CommitError::Full`] and
    /// [`CommitError::Failing`] where there will be no room soon.
    pub fn trim(&self, now: Time, target: &Target, blocks: u32) -> Result<Trimmed, CommitError> {
        let mut inner = self.lock();
        let trimmed = self.trim_locked(&mut inner, &Change { now, target, by_force: false }, blocks);
        self.advance(&mut inner, now, blocks);
        trimmed.map_err(|error| self.stalled(&mut inner, now, error))
    }

    pub(crate) fn trim_locked(
        &self,
        inner: &mut Inner,
        change: &Change<'_>,
        blocks: u32,
    ) -> Result<Trimmed, CommitError> {
        let &Change { now, target, by_force } = change;
        let mut trimmed = Trimmed::default();
        for index in 0..blocks {
            // Not for all at once: memory that outlives a kill, or a small journal, never has so much room.
            if index % TRIM_PIECE == 0 {
                self.make_journal_room(inner, now, journal_bytes(TRIM_PIECE.min(blocks - index)))?;
            }
            let vba = target.vba + index;
            let probe = self.map.probe(target.vid, vba);
            let page = self.map.find(&probe).map(Ppa);
            if !(by_force || self.is_newer(inner, target, index, page)) {
                trimmed.overtaken += 1;
                continue;
            }
            inner.journal.begin();
            inner.journal.add(Record::Applied { vid: target.vid, vba, stamp: target.stamp });
            let old = inner.edits.remove_at(&mut inner.journal, &probe);
            let seq = inner.journal.commit();
            inner.written.note(target.vid, seq);
            inner.stamps.applied(target, vba);
            if let Some(old) = old {
                trimmed.mapped += 1;
                self.release_page(inner, Ppa(old), seq);
            }
            if inner.edits.sweeps.has_written() {
                self.sweep_written(inner);
            }
        }
        trimmed.seq = inner.journal.last();
        Ok(trimmed)
    }

    /// Rule 6: a stamp at or below the stamp held was applied before, or a newer write has overtaken it. The
    /// map has the block on `page`.
    fn is_newer(&self, inner: &Inner, target: &Target, index: u32, page: Option<Ppa>) -> bool {
        let vba = target.vba + index;
        // What is of an earlier life has a stamp that counts for nothing.
        if !inner.stamps.count(target, vba) {
            return true;
        }
        let on_page = page.and_then(|page| {
            let oob = self.flash.oob(page)?;
            let same = (oob.vid, oob.generation, oob.vba) == (target.vid.get(), target.generation, vba);
            same.then_some(oob.stamp)
        });
        // The last change of a mapped block was a write, since TRIM unmaps. So its page has the newest stamp.
        let of_history = || inner.stamps.held(target.vid, vba);
        let is_newer = on_page.or_else(of_history).is_none_or(|held| target.stamp > held);
        // A stamp that has rotted must not hold up the writes of a block.
        is_newer
            || page.is_some_and(|page| !self.flash.is_sound(page))
                && of_history().is_none_or(|held| target.stamp > held)
    }

    /// Maps a block to the page of another block of its volume, as if bits of the map had flipped. Tests
    /// use it to see a reader in that state. The counts of valid pages are wrong afterwards.
    #[doc(hidden)]
    pub fn misdirect(&self, vid: Vid, vba: u32, like: u32) {
        let mut inner = self.lock();
        if let Some(page) = self.map.get(vid, like) {
            let _ = inner.edits.move_in_place(vid, vba, page);
        }
    }
}
