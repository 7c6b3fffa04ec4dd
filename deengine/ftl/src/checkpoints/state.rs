// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State of checkpoints under the layer's lock.

use crate::stamp_history::HISTORY;
use gnstor_durable::{AppliedStamp, Checkpoint, DurableError, Finishing, Seq};
use gnstor_proto::slba::Vid;

/// Words of the map that are copied at a time, under the layer's lock.
pub(in crate::checkpoints) const PIECE_WORDS: u64 = if cfg!(test) { 32 } else { 1024 };
/// Cost of copying a stamp history, in words. Writing it costs the same again.
pub(in crate::checkpoints) const HISTORY_WORDS: u64 =
    if cfg!(test) { 128 } else { (HISTORY * size_of::<AppliedStamp>() / 8) as u64 };

/// The checkpoint that is being copied, and buffers that each checkpoint reuses.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    pub(in crate::checkpoints) running: Option<Running>,
    /// A checkpoint that is copied and not yet in the header.
    pub(in crate::checkpoints) finishing: Option<Finishing>,
    pub(in crate::checkpoints) words: Vec<u64>,
    /// Memory of the meta. Fresh memory would be cleared page by page while commits wait.
    pub(in crate::checkpoints) meta_buffer: Vec<u8>,
    /// The pages of a dump are being written to new places.
    pub(in crate::checkpoints) is_restoring: bool,
    /// The last checkpoint could not be written.
    pub(crate) has_failed: bool,
}

/// A checkpoint under way.
#[derive(Debug)]
pub(in crate::checkpoints) struct Running {
    pub(in crate::checkpoints) writing: Checkpoint,
    pub(in crate::checkpoints) next_word: u64,
    /// Words still to be copied on account of pages written meanwhile.
    pub(in crate::checkpoints) owed: u64,
    pub(in crate::checkpoints) words_per_page: u64,
    /// The next volume whose stamp history must be copied; `None` if all are copied.
    pub(in crate::checkpoints) next_history: Option<Vid>,
    /// Set when everything is copied: the checkpoint counts once this transaction is durable.
    pub(in crate::checkpoints) complete_at: Option<Seq>,
}

impl Checkpoints {
    /// Whether a checkpoint is being copied.
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some() || self.finishing.is_some()
    }

    /// A checkpoint cannot be begun or written. Later calls begin another one.
    pub(in crate::checkpoints) fn fails(&mut self, error: &DurableError, what: &str) {
        // It is tried often.
        if !std::mem::replace(&mut self.has_failed, true) {
            tracing::error!("a checkpoint cannot be {what}: {error}");
        }
    }

    /// Says whether the pages of a dump are being written to new places. The journal keeps room for these.
    pub(crate) fn set_restoring(&mut self, is_restoring: bool) {
        self.is_restoring = is_restoring;
    }

    /// Abandons the checkpoint that is being copied. One that is copied names only pages on flash, and goes
    /// on.
    pub(crate) fn abandon(&mut self) {
        self.running = None;
    }

    /// Transactions that the running checkpoint may contain beyond the one at which it began.
    #[cfg(test)]
    pub(crate) fn ahead(&self) -> Option<Seq> {
        self.running.as_ref().map(|running| running.writing.needs() - running.writing.seq())
    }
}

impl Running {
    /// Cost of the next piece in words, with `count` words of the map in it.
    pub(in crate::checkpoints) fn next_cost(&self, count: u64) -> u64 {
        match (self.writing.has_meta_piece(), self.next_history.is_some()) {
            (true, _) => PIECE_WORDS,
            (false, true) => HISTORY_WORDS,
            (false, false) => count,
        }
    }
}
