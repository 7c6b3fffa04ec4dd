// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State of erases under the layer's lock.

use gnstor_base::time::Time;
use gnstor_flash::{Block, Superblock};

/// Superblocks on their way from emptied to erased.
#[derive(Debug, Default)]
pub(crate) struct Erasures {
    /// Superblocks without a valid page.
    pub(in crate::erase) emptied: Vec<Superblock>,
    /// The superblock whose erase has begun.
    pub(in crate::erase) running: Option<Erasing>,
    /// A late reader has the next block pinned.
    pub(in crate::erase) awaits_reader: bool,
    /// More erases wait, and only time prevents the next one.
    pub(in crate::erase) has_more: bool,
}

/// A superblock whose blocks are being erased, a few at a time. Erasing thousands of pages at once would hold
/// the layer's lock for milliseconds. After a power cut in between the superblock is closed and empty, and is
/// erased again.
#[derive(Debug)]
pub(in crate::erase) struct Erasing {
    pub(in crate::erase) superblock: Superblock,
    /// Number of blocks that are erased, one of each die.
    pub(in crate::erase) done: usize,
    /// Blocks whose erase has failed.
    pub(in crate::erase) bad: Vec<Block>,
    /// Time at which the last of them is erased in the model.
    pub(in crate::erase) erased_at: Time,
}

impl Erasures {
    /// Adds a superblock without a valid page.
    pub(crate) fn add(&mut self, superblock: Superblock) {
        if !self.emptied.contains(&superblock) {
            self.emptied.push(superblock);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.emptied.is_empty()
    }

    /// Superblocks that wait for their erase.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.emptied.len()).expect("at most all superblocks")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Superblock> + '_ {
        self.emptied.iter().copied()
    }

    /// Whether only time prevents the next erase.
    pub(crate) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Whether a superblock is partly erased.
    #[cfg(test)]
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }
}
