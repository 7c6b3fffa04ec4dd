// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counters of the layer.

use crate::space::Wear;
use gnstor_durable::JournalSyncs;

/// Counters since the layer was opened; pages written continue from the checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LayerStats {
    /// Pages that hosts wrote.
    pub host_pages: u64,
    /// Number of times that the lock was taken to commit. Writes that arrive together share one hold.
    pub commit_holds: u64,
    /// Pages programmed: host pages, moved pages and padding.
    pub flash_pages: u64,
    /// Pages that collection and relocations moved.
    pub moved_pages: u64,
    /// Pages programmed with nothing in them.
    pub padded_pages: u64,
    /// Superblocks erased.
    pub erases: u64,
    /// Victims chosen.
    pub victims: u64,
    /// Steps of background collection.
    pub background_steps: u64,
    /// Times a write had to wait for collection or for a checkpoint.
    pub stalls: u64,
    /// Writes refused because the disk under the data file is full.
    pub refused_on_full_disk: u64,
    /// Checkpoints finished.
    pub checkpoints: u64,
    /// Units that could not be programmed.
    pub program_failures: u64,
    /// Blocks that went bad in use.
    pub bad_blocks: u64,
    /// Pages of failed units that had to wait for another place.
    pub stranded_pages: u64,
    /// Valid pages whose data could not be read when they were to be moved.
    pub lost_pages: u64,
    /// Syncs of the medium behind pages of the journal, and before them for the data that they name.
    pub syncs: JournalSyncs,
}

impl LayerStats {
    /// Write amplification in thousandths: pages programmed for each thousand that hosts wrote.
    pub fn amplification_milli(&self) -> u64 {
        (self.flash_pages * 1000).checked_div(self.host_pages).unwrap_or(0)
    }
}

/// Health of the flash.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Health {
    /// Spread of the erase counts.
    pub wear: Wear,
    /// Spare space left, in percent of the original spare space.
    pub spare_percent: u8,
    /// No spare space is left: the SSD is read-only.
    pub worn_out: bool,
    /// Superblocks that are erased.
    pub free_superblocks: u32,
    /// Blocks that went bad in use.
    pub bad_blocks: u64,
}
