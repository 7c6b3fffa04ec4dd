// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Durability: completes programs, and writes the journal behind them.
//!
//! ```text
//!   unit sealed --modelled program time--> on flash --> journal pages that name only such units --> durable
//! ```
//! A journal page is written only when every page that it names is on flash ("data first"). Nothing here
//! waits for a disk: a flush of the journal is started, and each call polls for its end.
//!
//! [`Ftl::make_durable`] pads half-filled units, so that everything committed so far becomes durable: FUA
//! waits for that. [`Ftl::make_durable_of`] does so for some volumes, and only if one of their changes is not
//! durable: Flush waits for that.

use crate::flushing::MEDIUM_PAUSE;
use crate::layer::{Ftl, Inner};
use crate::stream::Writing;
use crate::types::{CommitError, NotDurable};
use crate::units::STREAMS;
use gnstor_base::time::{Span, Time};
use gnstor_durable::Seq;
use gnstor_flash::{Superblock, Unit};
use gnstor_proto::slba::Vid;
use std::task::Poll;

/// Journal bytes in memory from which on full pages are written.
const TAIL_BYTES: u64 = 16 << 10;
/// Journal bytes in memory from which on half-filled units are padded.
const HELD_BYTES: u64 = 64 << 10;
/// Pause between two pieces of a checkpoint while hosts are idle.
const CHECKPOINT_PAUSE: Span = Span::from_ns(100_000);
/// Pause between the erases of two blocks while hosts are idle.
const ERASE_PAUSE: Span = Span::from_ns(50_000);
/// The pause on a full disk, where nothing ends before its owner makes room.
const HELD_PAUSE: Span = Span::from_ms(10);
/// Frames that writes leave free while the disk is full.
const FRAMES_LEFT: u32 = 64;

impl Ftl {
    /// Does all work that is due: programs that have ended, the journal, erases, a piece of the checkpoint,
    /// background collection. Returns when the next work is due, if nothing else happens.
    pub fn maintain(&self, now: Time) -> Time {
        self.maintain_locked(&mut self.lock(), now)
    }

    pub(crate) fn maintain_locked(&self, inner: &mut Inner, now: Time) -> Time {
        self.complete_programs(inner, now);
        let loads = self.finish_loads(inner, now);
        self.continue_checkpoint(inner, now >= inner.collector.idle_from());
        let background = self.collect_in_background(inner, now);
        self.complete_programs(inner, now);
        self.next_work(inner, now).min(background).min(loads)
    }

    /// Time at which [`Self::maintain`] has work next, if nothing else happens.
    pub fn next_event(&self, now: Time) -> Time {
        let inner = self.lock();
        self.next_work(&inner, now).min(self.next_background(&inner))
    }

    /// Time at which the next program, piece of a checkpoint, or erase is due.
    pub(crate) fn next_work(&self, inner: &Inner, now: Time) -> Time {
        let next = inner.streams.iter().filter_map(|s| s.oldest()).map(|s| s.at).min().unwrap_or(Time::NEVER);
        // A program that is due and not done waits for the medium.
        let pause = if self.flash.is_held() { HELD_PAUSE } else { MEDIUM_PAUSE };
        let next = if next <= now { now + pause } else { next };
        let flush = match inner.journal.is_flushing() {
            true => now + inner.flushing.pause(now),
            false => Time::NEVER,
        };
        let checkpoint = if inner.checkpoints.is_running() { now + CHECKPOINT_PAUSE } else { Time::NEVER };
        let erase = match inner.erasures.has_more() {
            true if self.erases_at_once(inner, now) > 0 => now + ERASE_PAUSE,
            true => inner.collector.idle_from(),
            false => Time::NEVER,
        };
        let has_failed = inner.streams.iter().any(Writing::has_failed);
        let is_loading = inner.collector.is_loading();
        let failed = if has_failed || is_loading { now + CHECKPOINT_PAUSE } else { Time::NEVER };
        next.min(flush).min(checkpoint).min(erase).min(failed)
    }

    /// Completes the programs that have ended by now, writes the journal, and erases.
    pub(crate) fn complete_programs(&self, inner: &mut Inner, now: Time) {
        self.complete_due(inner, now, now);
    }

    /// As [`Self::complete_programs`], for programs that end by `due` in the model.
    pub(crate) fn complete_due(&self, inner: &mut Inner, due: Time, now: Time) {
        for stream in STREAMS {
            while let Some(&sealed) = inner.streams[stream as usize].oldest() {
                if sealed.at > due {
                    break;
                }
                let Poll::Ready(result) = self.flash.finish_program(sealed.unit) else { break };
                inner.streams[stream as usize].pop_oldest();
                match result {
                    Ok(()) => self.unit_is_done(inner, sealed.unit),
                    Err(_) => self.program_failed(inner, stream, sealed),
                }
            }
        }
        self.relocate(inner, now);
        inner.flushing.note_held(now, self.flash.is_held());
        self.write_journal(inner, now);
        if !inner.erasures.is_empty() {
            self.erase_emptied(inner, now, self.erases_at_once(inner, now));
        }
    }

    /// No page of this unit is in the buffer only.
    pub(crate) fn unit_is_done(&self, inner: &mut Inner, unit: Unit) {
        let superblock = self.flash.geometry().superblock_of_unit(unit);
        inner.space.get_mut(superblock).unprogrammed -= 1;
        inner.collector.look_again();
    }

    /// On a full disk frames come back only when its owner makes room. A write that took the last ones would
    /// leave all others without a frame, and so without a status.
    pub(crate) fn check_frames(&self, inner: &Inner) -> Result<(), CommitError> {
        let is_short = inner.flushing.is_held() && self.flash.free_frames() < FRAMES_LEFT;
        if is_short { Err(CommitError::Stalled) } else { Ok(()) }
    }

    /// What becomes of a write or TRIM that finds no room. On a disk that stays full, or that takes no
    /// writes, it is refused, so that its client has a status. The data of acknowledged writes waits in
    /// memory.
    pub(crate) fn stalled(&self, inner: &mut Inner, now: Time, error: CommitError) -> CommitError {
        // The caller may do no other work of the layer meanwhile.
        inner.flushing.note_held(now, self.flash.is_held());
        inner.flushing.note_checkpoint(now, inner.checkpoints.has_failed);
        match inner.flushing.has_no_room(now) {
            Some(NotDurable::Full) if error == CommitError::Stalled => {
                inner.stats.refused_on_full_disk += 1;
                CommitError::Full
            }
            Some(NotDurable::Failing) if error == CommitError::Stalled => CommitError::Failing,
            Some(_) | None => error,
        }
    }

    /// Whether a caller that waits for room or durability waits in vain: what is acknowledged stays in
    /// memory, and a status tells the client.
    pub fn gives_up(&self, now: Time) -> Option<NotDurable> {
        let mut guard = self.lock();
        let inner = &mut *guard;
        inner.flushing.note_held(now, self.flash.is_held());
        inner.flushing.gives_up(now)
    }

    /// Starts to write the part of the journal that names only pages on flash, where it is long enough or a
    /// caller waits for it.
    fn write_journal(&self, inner: &mut Inner, now: Time) {
        let before = inner.journal.durable();
        let ended = inner.journal.poll_flush();
        inner.flushing.note(now, inner.journal.durable() > before, ended);
        // A half-filled unit holds back a transaction that a caller waits for, or too many of them.
        if inner.journal.tail_bytes() >= HELD_BYTES
            || inner.flushing.wanted() > inner.journal.durable().max(self.safe(inner))
        {
            self.release_tail(inner, now);
        }
        if inner.journal.is_flushing() || !inner.flushing.may_begin(now) {
            return;
        }
        let safe = self.safe(inner);
        let durable = inner.journal.durable();
        let holds_space =
            |superblock: Superblock| (durable + 1..=safe).contains(&inner.space.get(superblock).released);
        let force = durable < inner.flushing.wanted() && inner.flushing.wanted() <= safe
            || inner.space.free() <= self.low && inner.erasures.iter().any(holds_space);
        let due = inner.journal.tail_bytes() >= TAIL_BYTES && safe > durable;
        if force || due {
            inner.flushing.begins(now);
            let started = inner.journal.start_flush(safe, force);
            inner.flushing.note(now, inner.journal.durable() > durable, started);
            if !inner.journal.is_flushing() {
                inner.flushing.ends();
            }
        }
    }

    /// Pads the units that hold back the journal: units that are older than every unit on its way to flash.
    fn release_tail(&self, inner: &mut Inner, now: Time) {
        let started = inner.streams.iter().filter_map(|s| s.sealed_since()).min().unwrap_or(Seq::MAX);
        if inner.streams.iter().filter_map(|s| s.filling_since()).any(|since| since < started) {
            self.pad_units(inner, now);
        }
    }

    /// The last transaction before the first that names a page not on flash.
    fn safe(&self, inner: &Inner) -> Seq {
        let unprogrammed = inner.streams.iter().filter_map(|s| s.unprogrammed_since()).min();
        unprogrammed.map_or(inner.journal.last(), |first| first - 1)
    }

    /// After a write of so many pages: does the work that is due at once, and a share of the checkpoint.
    pub(crate) fn advance(&self, inner: &mut Inner, now: Time, pages: u32) {
        self.pay_for_checkpoint(inner, pages);
        let due = |s: &Writing| s.oldest().is_some_and(|sealed| sealed.at <= now);
        if inner.streams.iter().any(due) || inner.journal.tail_bytes() >= TAIL_BYTES {
            self.complete_programs(inner, now);
        }
    }

    /// Starts making everything committed so far durable. Returns the transaction to wait for with
    /// [`Self::durable`], and the time at which it is on flash in the model.
    pub fn make_durable(&self, now: Time) -> (Seq, Time) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        self.pad_units(inner, now);
        inner.want_all();
        let at = inner.streams.iter().filter_map(Writing::programmed_at).max().unwrap_or(now);
        let seq = inner.journal.last();
        self.complete_programs(inner, now);
        (seq, at.max(now))
    }

    /// As [`Self::make_durable`], for the changes of these volumes, and for the transactions up to `before`.
    /// Units in which no page is of those are not padded. Nothing is written if all of them are durable.
    pub fn make_durable_of(&self, now: Time, volumes: impl Iterator<Item = Vid>, before: Seq) -> (Seq, Time) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let seq = volumes.map(|vid| inner.written.of(vid)).max().unwrap_or(0).max(before);
        if seq <= inner.journal.durable() {
            return (seq, now);
        }
        if inner.streams.iter().filter_map(|s| s.filling_since()).any(|since| since <= seq) {
            self.pad_units(inner, now);
        }
        inner.flushing.want(seq);
        let at = inner.streams.iter().filter_map(|s| s.programmed_with(seq)).max().unwrap_or(now);
        self.complete_programs(inner, now);
        (seq, at.max(now))
    }

    /// Makes durable what prevents erases, because a write waits for space.
    pub(crate) fn unblock_erases(&self, inner: &mut Inner, now: Time) {
        if let Some(needed) = self.awaited_by_erases(inner).filter(|needed| *needed > inner.journal.durable())
        {
            let filling = inner.streams.iter().filter_map(|s| s.filling_since()).min();
            if filling.is_some_and(|since| since <= needed) {
                self.pad_units(inner, now);
            }
            inner.want_all();
        }
        self.complete_programs(inner, now);
    }
}
