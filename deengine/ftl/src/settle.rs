// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What becomes durable, and when: programs that end, the journal behind them, the checkpoint in the background.
//!
//! ```text
//!   unit sealed --modelled program time--> on flash --> journal pages that name only such units --> durable
//! ```
//! A journal page is written only when every page it names is on flash ("data first"). [`Ftl::harden`] closes half-filled
//! units so that what has been committed so far becomes durable; Flush and FUA wait for that.

use crate::collect::QUIET;
use crate::layer::{CommitError, Ftl, Inner};
use crate::space::{State, Stream};
use crate::windows::WINDOW;
use gnstor_base::time::{Span, Time};
use gnstor_durable::{Checkpoint, DurableError, Meta, Remembered, Seq, SuperblockMeta, SuperblockState};
use gnstor_flash::{Block, Ppa, Superblock};
use gnstor_proto::slba::Vid;
use std::task::Poll;

/// Journal bytes in memory beyond which whole pages are written.
const TAIL_BYTES: u64 = 16 << 10;
/// Journal bytes in memory beyond which no half-filled unit may hold them back.
const HELD_BYTES: u64 = 64 << 10;
/// The journal is this full, in thousandths, when a checkpoint begins.
const CHECKPOINT_AT: u32 = 500;
/// Words of the map copied at a time: the lock is held for as long.
const PIECE_WORDS: u64 = if cfg!(test) { 32 } else { 1024 };
/// As many in quiet times.
const QUIET_WORDS: u64 = 8192;
/// What copying a window counts for; writing it counts for as much again.
const WINDOW_WORDS: u64 = if cfg!(test) { 128 } else { (WINDOW * size_of::<Remembered>() / 8) as u64 };
/// Between two pieces of a checkpoint in quiet times.
const CHECKPOINT_PAUSE: Span = Span::from_ns(100_000);
/// Between the erases of two blocks in quiet times.
const ERASE_PAUSE: Span = Span::from_ns(50_000);
/// How long to wait before looking again at a program that the medium has not finished.
const MEDIUM_PAUSE: Span = Span::from_ns(5_000);

/// A checkpoint under way.
#[derive(Debug)]
pub(crate) struct Running {
    writing: Checkpoint,
    next_word: u64,
    /// Words still to be copied on account of what has been written meanwhile.
    owed: u64,
    words_per_page: u64,
    /// The windows of volumes before this one are copied; none: all are.
    next_window: Option<Vid>,
    /// All words are copied; it counts once this transaction, the last they can know of, is durable.
    complete_at: Option<Seq>,
}

#[cfg(test)]
impl Running {
    /// How many transactions what was copied last may know of beyond the one at which the checkpoint began.
    pub(crate) fn ahead(&self) -> Seq {
        self.writing.needs() - self.writing.seq()
    }
}

const STREAMS: [Stream; 2] = [Stream::Host, Stream::Collect];

impl Ftl {
    /// Does what has become due: programs that have ended, the journal, erases, a piece of the checkpoint, background
    /// collection. The next time at which there is something to do, if nothing else happens.
    pub fn settle(&self, now: Time) -> Time {
        self.settle_all(&mut self.lock(), now)
    }

    pub(crate) fn settle_all(&self, inner: &mut Inner, now: Time) -> Time {
        self.settle_in(inner, now);
        if let Some(running) = &mut inner.checkpoint {
            let is_quiet = now >= inner.last_write + QUIET;
            running.owed = running.owed.saturating_add(if is_quiet { QUIET_WORDS } else { PIECE_WORDS });
            self.checkpoint_step(inner);
        }
        let quiet = self.collect_quietly(inner, now);
        self.settle_in(inner, now);
        self.next_program(inner, now).min(quiet)
    }

    /// When [`Self::settle`] next has something to do, if nothing else happens.
    pub fn next_event(&self, now: Time) -> Time {
        let inner = self.lock();
        self.next_program(&inner, now).min(self.next_quiet(&inner))
    }

    pub(crate) fn next_program(&self, inner: &Inner, now: Time) -> Time {
        let next = inner.streams.iter().filter_map(|s| s.oldest()).map(|s| s.at).min().unwrap_or(Time::NEVER);
        // A program that is due and still there waits for the medium.
        let next = if next <= now { now + MEDIUM_PAUSE } else { next };
        let checkpoint = if inner.checkpoint.is_some() { now + CHECKPOINT_PAUSE } else { Time::NEVER };
        let erase = match inner.more_to_erase {
            true if self.erases_at_once(inner, now) > 0 => now + ERASE_PAUSE,
            true => inner.last_write + QUIET,
            false => Time::NEVER,
        };
        next.min(checkpoint).min(erase)
    }

    pub(crate) fn settle_in(&self, inner: &mut Inner, now: Time) {
        self.settle_due(inner, now, now);
    }

    /// As [`Self::settle_in`], for programs that the model ends by `due`.
    pub(crate) fn settle_due(&self, inner: &mut Inner, due: Time, now: Time) {
        for stream in STREAMS {
            while let Some(&sealed) = inner.streams[stream as usize].oldest() {
                if sealed.at > due {
                    break;
                }
                let Poll::Ready(result) = self.flash.finish_program(sealed.unit) else { break };
                inner.streams[stream as usize].pop_oldest();
                let superblock = self.flash.geometry().superblock_of_unit(sealed.unit);
                inner.space.get_mut(superblock).unsettled -= 1;
                inner.nothing_to_collect = false;
                if result.is_err() {
                    self.rescue(inner, now, stream, sealed);
                }
            }
        }
        // Somebody waits for a transaction that a half-filled unit holds back, or the tail grows too long behind one.
        if inner.journal.tail_bytes() >= HELD_BYTES || inner.wanted > inner.journal.durable().max(self.safe(inner)) {
            self.release_tail(inner, now);
        }
        let safe = self.safe(inner);
        let durable = inner.journal.durable();
        let holds_space = |superblock: &Superblock| (durable + 1..=safe).contains(&inner.space.get(*superblock).let_go);
        let force = durable < inner.wanted && inner.wanted <= safe
            || inner.space.free() <= self.low && inner.emptied.iter().any(holds_space);
        let due = inner.journal.tail_bytes() >= TAIL_BYTES && safe > durable;
        if (force || due)
            && let Err(error) = inner.journal.flush(safe, force)
        {
            // Nothing became durable; it is tried again. Whoever waits for it goes on waiting.
            tracing::error!("the journal cannot be written: {error}");
        }
        if !inner.emptied.is_empty() {
            self.erase_emptied(inner, now, self.erases_at_once(inner, now));
        }
    }

    /// A unit that nobody goes on filling holds back the journal for all: it is cut short.
    fn release_tail(&self, inner: &mut Inner, now: Time) {
        let started = inner.streams.iter().filter_map(|s| s.sealed_since()).min().unwrap_or(Seq::MAX);
        if inner.streams.iter().filter_map(|s| s.filling_since()).any(|since| since < started) {
            self.cut_short(inner, now);
        }
    }

    /// The last transaction before the first one that names a page not on flash.
    fn safe(&self, inner: &Inner) -> Seq {
        let unsettled = inner.streams.iter().filter_map(|s| s.unsettled_since()).min();
        unsettled.map_or(inner.journal.last(), |first| first - 1)
    }

    /// After a write: what is due at once, and a share of the checkpoint.
    pub(crate) fn advance(&self, inner: &mut Inner, now: Time, pages: u32) {
        if inner.checkpoint.is_none() && inner.journal.fill_permille() >= CHECKPOINT_AT {
            self.begin_checkpoint(inner, now);
        }
        if let Some(running) = &mut inner.checkpoint {
            running.owed = running.owed.saturating_add(u64::from(pages) * running.words_per_page);
            self.checkpoint_step(inner);
        }
        let due = |s: &crate::stream::Writing| s.oldest().is_some_and(|sealed| sealed.at <= now);
        if inner.streams.iter().any(due) || inner.journal.tail_bytes() >= TAIL_BYTES {
            self.settle_in(inner, now);
        }
    }

    /// Sees to it that everything committed so far becomes durable; the transaction to wait for with
    /// [`Self::durable`], and when the model has it.
    pub fn harden(&self, now: Time) -> (Seq, Time) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        self.cut_short(inner, now);
        inner.wanted = inner.wanted.max(inner.journal.last());
        let at = inner.streams.iter().filter_map(crate::stream::Writing::settled_at).max().unwrap_or(now);
        let seq = inner.journal.last();
        self.settle_in(inner, now);
        (seq, at.max(now))
    }

    /// Fills half-filled units with padding, so that they can be programmed.
    pub(crate) fn cut_short(&self, inner: &mut Inner, now: Time) {
        for stream in STREAMS {
            let geometry = self.flash.geometry();
            let Some((full, missing)) = inner.streams[stream as usize].cut_short(geometry) else { continue };
            if stream == Stream::Host
                && let Some(mut timing) = self.timing()
            {
                timing.pad(u32::try_from(missing.len()).expect("pages of a unit"));
            }
            inner.stats.padded_pages += missing.len() as u64;
            missing.map(Ppa).for_each(|page| self.flash.pad(page));
            self.seal(inner, now, stream, full);
        }
    }

    /// A write waits for space: what stands in the way of erasing is made durable.
    pub(crate) fn hurry(&self, inner: &mut Inner, now: Time) {
        let needed = inner.emptied.iter().map(|s| inner.space.get(*s).let_go).max();
        if let Some(needed) = needed.filter(|needed| *needed > inner.journal.durable()) {
            let filling = inner.streams.iter().filter_map(|s| s.filling_since()).min();
            if filling.is_some_and(|since| since <= needed) {
                self.cut_short(inner, now);
            }
            inner.wanted = inner.wanted.max(inner.journal.last());
        }
        self.settle_in(inner, now);
    }

    // ---- checkpoint ----

    /// Sees that `bytes` of transactions fit into the journal; a checkpoint makes room.
    pub(crate) fn make_journal_room(&self, inner: &mut Inner, now: Time, bytes: u64) -> Result<(), CommitError> {
        if inner.journal.has_room(bytes) || inner.restoring && inner.journal.has_room_to_restore(bytes) {
            return Ok(());
        }
        if inner.checkpoint.is_none() {
            self.begin_checkpoint(inner, now);
        }
        if let Some(running) = &mut inner.checkpoint {
            running.owed = u64::MAX;
            self.checkpoint_step(inner);
        }
        if inner.checkpoint.is_some() {
            // It ends when everything it names is on flash.
            self.cut_short(inner, now);
            inner.wanted = inner.journal.last();
            self.settle_in(inner, now);
            self.checkpoint_step(inner);
        }
        if inner.journal.has_room(bytes) {
            return Ok(());
        }
        inner.stats.stalls += 1;
        Err(CommitError::Stalled)
    }

    /// Begins a checkpoint and copies every word of the map at once, for tests.
    #[cfg(test)]
    pub(crate) fn copy_checkpoint(&self, now: Time) {
        let inner = &mut *self.lock();
        self.begin_checkpoint(inner, now);
        inner.checkpoint.as_mut().expect("a checkpoint has begun").owed = u64::MAX;
        self.checkpoint_step(inner);
    }

    fn begin_checkpoint(&self, inner: &mut Inner, _now: Time) {
        let writing = self.meta(inner).and_then(|meta| Checkpoint::begin_with(&self.durable, &inner.journal, meta));
        match writing {
            Ok(writing) => {
                // Done by the time the journal is three quarters full, at some fifty bytes a page written.
                let pages = (self.journal_bytes / 4 / 50).max(1);
                let windows = inner.windows.iter().count() as u64;
                let words_per_page = (self.map.words() + 2 * windows * WINDOW_WORDS).div_ceil(pages);
                let next_window = Some(Vid::MIN);
                inner.checkpoint =
                    Some(Running { writing, next_word: 0, owed: 0, words_per_page, next_window, complete_at: None });
            }
            Err(error) => tracing::error!("a checkpoint cannot be begun: {error}"),
        }
    }

    fn checkpoint_step(&self, inner: &mut Inner) {
        let Some(mut running) = inner.checkpoint.take() else { return };
        let total = self.map.words();
        while running.complete_at.is_none() {
            let count = PIECE_WORDS.min(total - running.next_word);
            let (has_meta, has_window) = (running.writing.has_meta_piece(), running.next_window.is_some());
            let due = match (has_meta, has_window) {
                (true, _) => PIECE_WORDS,
                (false, true) => WINDOW_WORDS,
                (false, false) => count,
            };
            if running.owed < due {
                break;
            }
            if let Err(error) = self.copy_piece(inner, &mut running, count) {
                tracing::error!("a checkpoint is given up: {error}");
                return;
            }
            running.owed = running.owed.saturating_sub(due);
            let is_all = running.next_window.is_none() && !running.writing.has_meta_piece();
            if running.next_word == total && is_all {
                inner.wanted = inner.wanted.max(inner.journal.last());
                running.complete_at = Some(inner.journal.last().max(running.writing.needs()));
            }
        }
        if running.complete_at.is_none_or(|seq| inner.journal.durable() < seq) {
            inner.checkpoint = Some(running);
            return;
        }
        match running.writing.finish(&mut inner.journal) {
            Ok(buffer) => {
                inner.meta_buffer = buffer;
                inner.stats.checkpoints += 1;
            }
            Err(error) => tracing::error!("a checkpoint is given up: {error}"),
        }
    }

    /// Copies the next `count` words of the map, and a piece of the meta, or the next window where all of that is written: commits wait for no more.
    fn copy_piece(&self, inner: &mut Inner, running: &mut Running, count: u64) -> Result<(), DurableError> {
        inner.words.resize(usize::try_from(count).expect("a piece"), 0);
        self.map.read_words(running.next_word, &mut inner.words);
        running.writing.words(running.next_word, &inner.words)?;
        running.next_word += count;
        if running.writing.has_meta_piece() {
            return running.writing.meta_piece();
        }
        let Some(from) = running.next_window else { return Ok(()) };
        let mut windows = inner.windows.iter_from(from);
        if let Some((vid, window)) = windows.next() {
            running.writing.window(inner.journal.last(), vid, window.parts())?;
        }
        running.next_window = windows.next().map(|(vid, _)| vid);
        Ok(())
    }

    /// State of everything but the map and the windows, as it is after the last transaction, as bytes. The windows are most of it: they come later, one by
    /// one.
    pub(crate) fn meta(&self, inner: &mut Inner) -> Result<Vec<u8>, DurableError> {
        let superblocks = inner.space.iter().map(|(_, entry)| SuperblockMeta {
            state: match entry.state {
                State::Free => SuperblockState::Free,
                State::Open(stream) => SuperblockState::Open { stream: stream as u8 },
                State::Closed => SuperblockState::Closed,
                State::Dead => SuperblockState::Dead,
            },
            erases: entry.erases,
            order: entry.order,
        });
        let front = Meta {
            superblocks: superblocks.collect(),
            bad: (0..self.flash.geometry().blocks()).map(Block).filter(|block| self.flash.is_bad(*block)).collect(),
            windows: Vec::new(),
            next_order: inner.space.opened(),
            page_seq: inner.page_seq,
            written_host: inner.stats.host_pages,
            written_flash: inner.stats.flash_pages,
        };
        front.encode_front(std::mem::take(&mut inner.meta_buffer), self.durable.sizes())
    }

    /// Writes a whole checkpoint at once: at the end of a restore and before a clean shutdown.
    pub(crate) fn checkpoint_now(&self, inner: &mut Inner) -> Result<(), DurableError> {
        inner.checkpoint = None;
        inner.journal.flush(inner.journal.last(), true)?;
        let meta = self.meta(inner)?;
        let mut writing = Checkpoint::begin_with(&self.durable, &inner.journal, meta)?;
        let total = self.map.words();
        let mut next = 0;
        while next < total {
            let count = PIECE_WORDS.min(total - next);
            inner.words.resize(usize::try_from(count).expect("a piece"), 0);
            self.map.read_words(next, &mut inner.words);
            writing.words(next, &inner.words)?;
            next += count;
        }
        for (vid, window) in inner.windows.iter() {
            writing.window(inner.journal.last(), vid, window.parts())?;
        }
        inner.meta_buffer = writing.finish(&mut inner.journal)?;
        Ok(())
    }
}
