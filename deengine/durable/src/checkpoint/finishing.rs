// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of a checkpoint: its bytes are synced, then the header names it.

use super::WRITING;
use crate::durable::{Durable, UpdateNumber};
use crate::error::{DurableError, Patience, Running, end_sync};
use crate::header::Slot;
use crate::journal::Journal;
use std::task::Poll;

/// A checkpoint that is whole and not in the header yet.
#[derive(Debug)]
pub struct Finishing {
    pub(super) durable: Durable,
    pub(super) which: usize,
    pub(super) slot: Slot,
    pub(super) meta: Vec<u8>,
    pub(super) stage: Stage,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// A sync of its bytes is running.
    Content(Running),
    /// The checkpoint's bytes are durable.
    Written,
    /// The header is being changed.
    Header(UpdateNumber),
}

impl Finishing {
    /// Continues finishing. Ready when the checkpoint counts. Then the ring before it is free, and
    /// [`Self::into_meta`] returns the memory of the meta.
    ///
    /// # Errors
    /// If the store fails. The previous checkpoint stays the newest.
    pub fn poll(&mut self, journal: &mut Journal) -> Result<Poll<()>, DurableError> {
        self.finish(journal, Patience::None)
    }

    /// As [`Self::poll`], but waits for the medium.
    ///
    /// # Errors
    /// As [`Self::poll`].
    pub fn wait(mut self, journal: &mut Journal) -> Result<Vec<u8>, DurableError> {
        while self.finish(journal, Patience::Blocks)?.is_pending() {}
        Ok(self.meta)
    }

    /// Memory for the meta of the next checkpoint.
    pub fn into_meta(self) -> Vec<u8> {
        self.meta
    }

    fn finish(&mut self, journal: &mut Journal, patience: Patience) -> Result<Poll<()>, DurableError> {
        let ended = self.advance(patience)?;
        if ended.is_ready() {
            journal.release_before(self.slot.page);
        }
        Ok(ended)
    }

    pub(super) fn advance(&mut self, patience: Patience) -> Result<Poll<()>, DurableError> {
        if let Stage::Content(sync) = self.stage {
            if end_sync(self.durable.store(), sync, patience, WRITING)?.is_pending() {
                return Ok(Poll::Pending);
            }
            self.stage = Stage::Written;
        }
        if let Stage::Written = self.stage {
            if patience == Patience::None && self.durable.is_updating() {
                return Ok(Poll::Pending);
            }
            let (which, slot) = (self.which, self.slot);
            self.stage = Stage::Header(self.durable.start_update(|header| header.slots[which] = slot)?);
        }
        let Stage::Header(number) = self.stage else { return Ok(Poll::Pending) };
        self.durable.end_update(number, patience)
    }
}
