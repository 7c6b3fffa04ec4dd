// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checkpoints: copied in small pieces beside the writes, or whole at the end of a restore.

pub(crate) mod state;

use crate::layer::{Ftl, Inner};
use crate::space::State;
use crate::types::CommitError;
use gnstor_base::time::Time;
use gnstor_durable::{Checkpoint, DurableError, Finishing, Meta, SuperblockMeta, SuperblockState};
use gnstor_flash::Block;
use gnstor_proto::slba::Vid;
use state::{HISTORY_WORDS, PIECE_WORDS, Running};
use std::task::Poll;

/// The journal is this full, in thousandths, when a checkpoint begins.
const CHECKPOINT_AT: u32 = 500;
/// Words that are copied at a time while hosts are idle.
const IDLE_WORDS: u64 = 8192;
/// Bytes that the disk may be behind the copy of a checkpoint. Beyond them the copy waits for the disk.
const MOST_QUEUED: u64 = 4 << 20;
/// Journal bytes of one written page, about: decides how fast a checkpoint is copied.
const BYTES_PER_PAGE: u64 = 50;

impl Ftl {
    /// Makes sure that `bytes` of transactions fit into the journal and into a dump, by finishing a
    /// checkpoint if necessary.
    pub(crate) fn make_journal_room(
        &self,
        inner: &mut Inner,
        now: Time,
        bytes: u64,
    ) -> Result<(), CommitError> {
        self.make_dump_room_for_tail(inner, now, bytes)?;
        if !inner.journal.has_kept_room(bytes) {
            // Memory that outlives the process has room again when the journal is durable.
            inner.want_all();
            self.complete_programs(inner, now);
            if !inner.journal.has_kept_room(bytes) {
                inner.stats.stalls += 1;
                return Err(CommitError::Stalled);
            }
        }
        if inner.journal.has_room(bytes)
            || inner.checkpoints.is_restoring && inner.journal.has_room_to_restore(bytes)
        {
            return Ok(());
        }
        if !inner.checkpoints.is_running() {
            self.begin_checkpoint(inner);
        }
        self.copy_up_to(inner, u64::MAX);
        if inner.checkpoints.is_running() {
            // The checkpoint ends when everything that it names is on flash.
            self.pad_units(inner, now);
            inner.want_all();
            self.complete_programs(inner, now);
            self.copy_up_to(inner, 0);
        }
        if inner.journal.has_room(bytes) {
            return Ok(());
        }
        inner.stats.stalls += 1;
        Err(CommitError::Stalled)
    }

    /// Begins a checkpoint and copies every word of the map at once.
    #[cfg(test)]
    pub(crate) fn copy_checkpoint(&self) {
        let inner = &mut *self.lock();
        self.begin_checkpoint(inner);
        self.copy_up_to(inner, u64::MAX);
    }

    /// Copies a piece of a running checkpoint, a larger one while hosts are idle.
    pub(crate) fn continue_checkpoint(&self, inner: &mut Inner, is_idle: bool) {
        self.copy_up_to(inner, if is_idle { IDLE_WORDS } else { PIECE_WORDS });
    }

    /// Called after a write of this number of pages. Begins a checkpoint if the journal is half full, or
    /// copies a share of the running one.
    pub(crate) fn pay_for_checkpoint(&self, inner: &mut Inner, pages: u32) {
        if !inner.checkpoints.is_running() && inner.journal.fill_permille() >= CHECKPOINT_AT {
            self.begin_checkpoint(inner);
        }
        if let Some(running) = &inner.checkpoints.running {
            self.copy_up_to(inner, u64::from(pages) * running.words_per_page);
        }
    }

    fn begin_checkpoint(&self, inner: &mut Inner) {
        // The header is being changed: the next call tries again.
        if self.durable.is_updating() {
            return;
        }
        let writing =
            self.meta(inner).and_then(|meta| Checkpoint::start_with(&self.durable, &inner.journal, meta));
        match writing {
            Ok(writing) => {
                // The copy ends by the time the journal is three quarters full.
                let pages = (self.journal_bytes / 4 / BYTES_PER_PAGE).max(1);
                let histories = inner.stamps.histories.iter().count() as u64;
                let words_per_page = (self.map.words() + 2 * histories * HISTORY_WORDS).div_ceil(pages);
                let next_history = Some(Vid::MIN);
                inner.checkpoints.running = Some(Running {
                    writing,
                    next_word: 0,
                    owed: 0,
                    words_per_page,
                    next_history,
                    complete_at: None,
                });
            }
            Err(error) => inner.checkpoints.fails(&error, "begun"),
        }
    }

    /// Copies pieces of the running checkpoint, worth up to `words` more words. Finishes it if all is copied
    /// and durable.
    fn copy_up_to(&self, inner: &mut Inner, words: u64) {
        if let Some(finishing) = inner.checkpoints.finishing.take() {
            return self.go_on_finishing(inner, finishing);
        }
        let Some(mut running) = inner.checkpoints.running.take() else { return };
        running.owed = running.owed.saturating_add(words);
        match self.copy_owed(inner, &mut running) {
            Ok(()) if running.complete_at.is_none_or(|seq| inner.journal.durable() < seq) => {
                inner.checkpoints.running = Some(running);
            }
            Ok(()) => match running.writing.start_finish(&inner.journal) {
                Ok(finishing) => self.go_on_finishing(inner, finishing),
                Err(error) => inner.checkpoints.fails(&error, "written"),
            },
            Err(error) => inner.checkpoints.fails(&error, "written"),
        }
    }

    /// Copies what is owed, as far as the disk keeps up.
    fn copy_owed(&self, inner: &mut Inner, running: &mut Running) -> Result<(), DurableError> {
        if !running.writing.is_ready()? {
            return Ok(());
        }
        let total = self.map.words();
        while running.complete_at.is_none() {
            let count = PIECE_WORDS.min(total - running.next_word);
            let cost = running.next_cost(count);
            if running.owed < cost || self.durable.store().queued_bytes() > MOST_QUEUED {
                break;
            }
            self.copy_piece(inner, running, count)?;
            running.owed = running.owed.saturating_sub(cost);
            let has_all_meta = running.next_history.is_none() && !running.writing.has_meta_piece();
            if running.next_word == total && has_all_meta {
                inner.want_all();
                running.complete_at = Some(inner.journal.last().max(running.writing.needs()));
            }
        }
        Ok(())
    }

    /// Goes on with a checkpoint that is copied, until the header names it.
    fn go_on_finishing(&self, inner: &mut Inner, mut finishing: Finishing) {
        match finishing.poll(&mut inner.journal) {
            Ok(Poll::Pending) => inner.checkpoints.finishing = Some(finishing),
            Ok(Poll::Ready(())) => {
                inner.checkpoints.meta_buffer = finishing.into_meta();
                inner.checkpoints.has_failed = false;
                inner.stats.checkpoints += 1;
            }
            Err(error) => inner.checkpoints.fails(&error, "written"),
        }
    }

    /// Copies the next `count` words of the map, and a piece of the meta. If the meta so far is written, it
    /// copies the next stamp history instead. So it holds the lock for a bounded time.
    fn copy_piece(&self, inner: &mut Inner, running: &mut Running, count: u64) -> Result<(), DurableError> {
        self.copy_words(inner, &mut running.writing, running.next_word, count)?;
        running.next_word += count;
        if running.writing.has_meta_piece() {
            return running.writing.meta_piece();
        }
        let Some(from) = running.next_history else { return Ok(()) };
        let mut histories = inner.stamps.histories.iter_from(from);
        if let Some((vid, history)) = histories.next() {
            running.writing.history(inner.journal.last(), vid, history.parts())?;
        }
        running.next_history = histories.next().map(|(vid, _)| vid);
        Ok(())
    }

    fn copy_words(
        &self,
        inner: &mut Inner,
        writing: &mut Checkpoint,
        first: u64,
        count: u64,
    ) -> Result<(), DurableError> {
        let words = &mut inner.checkpoints.words;
        words.resize(usize::try_from(count).expect("a piece"), 0);
        self.map.read_words(first, words);
        writing.words(first, words)
    }

    /// The state after the last transaction as bytes, without the map and the stamp histories, which come
    /// later.
    fn meta(&self, inner: &mut Inner) -> Result<Vec<u8>, DurableError> {
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
            bad: (0..self.flash.geometry().blocks())
                .map(Block)
                .filter(|block| self.flash.is_bad(*block))
                .collect(),
            histories: Vec::new(),
            next_order: inner.space.opened(),
            page_seq: inner.commits.page_seq(),
            written_host: inner.stats.host_pages,
            written_flash: inner.stats.flash_pages,
        };
        front.encode_front(std::mem::take(&mut inner.checkpoints.meta_buffer), self.durable.sizes())
    }

    /// Writes a whole checkpoint at once: at the end of a restore and after formatting.
    pub(crate) fn checkpoint_now(&self, inner: &mut Inner) -> Result<(), DurableError> {
        inner.checkpoints.abandon();
        if let Some(finishing) = inner.checkpoints.finishing.take() {
            inner.checkpoints.meta_buffer = finishing.wait(&mut inner.journal)?;
        }
        inner.journal.flush(inner.journal.last(), true)?;
        let meta = self.meta(inner)?;
        let mut writing = Checkpoint::begin_with(&self.durable, &inner.journal, meta)?;
        let total = self.map.words();
        let mut next = 0;
        while next < total {
            let count = PIECE_WORDS.min(total - next);
            self.copy_words(inner, &mut writing, next, count)?;
            next += count;
            while self.durable.store().queued_bytes() > MOST_QUEUED {
                std::thread::yield_now();
            }
        }
        for (vid, history) in inner.stamps.histories.iter() {
            writing.history(inner.journal.last(), vid, history.parts())?;
        }
        inner.checkpoints.meta_buffer = writing.finish(&mut inner.journal)?;
        Ok(())
    }
}
