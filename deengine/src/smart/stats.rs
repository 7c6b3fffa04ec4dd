// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counters of an SSD.

use super::Smart;
use gnstor_proto::status::Refusal;

/// More than the highest number of a [`Refusal`].
const REFUSALS: usize = 64;

/// Counters since the SSD was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stats {
    /// Read commands completed with success.
    pub reads: u64,
    /// Write, Write Zeroes and Dataset Management commands completed with success.
    pub writes: u64,
    /// Blocks in successful reads.
    pub blocks_read: u64,
    /// Blocks in successful writes.
    pub blocks_written: u64,
    /// Blocks unmapped by Write Zeroes, Dataset Management and sweeps.
    pub blocks_trimmed: u64,
    /// Blocks read that were not mapped; they read as zeros.
    pub unmapped_reads: u64,
    /// Blocks read whose page belongs to another generation of the volume id; they read as zeros.
    pub stale_generation_reads: u64,
    /// Blocks written with a stamp not above the one held: completed, not applied (protocol rule 6).
    pub old_stamps: u64,
    /// How often a worker found another one committing and left its writes for its next step.
    pub commits_put_off: u64,
    /// Commands accepted into a slot.
    pub permits_issued: u64,
    /// Commands completed.
    pub permits_spent: u64,
    /// Commands whose queue was closed before their completion.
    pub permits_forfeited: u64,
    /// Transfers answered that no command waits for: a bug of the target.
    pub unknown_transfers: u64,
    /// Capsules for a queue that is not open: they arrived behind its end.
    pub late_capsules: u64,
    /// Queues closed by the SSD (keep-alive, fencing, reset).
    pub queues_closed: u64,
    /// Queues closed at a fence's deadline.
    pub stragglers_closed: u64,
    refusals: [u64; REFUSALS],
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            reads: 0,
            writes: 0,
            blocks_read: 0,
            blocks_written: 0,
            blocks_trimmed: 0,
            unmapped_reads: 0,
            stale_generation_reads: 0,
            old_stamps: 0,
            commits_put_off: 0,
            permits_issued: 0,
            permits_spent: 0,
            permits_forfeited: 0,
            unknown_transfers: 0,
            late_capsules: 0,
            queues_closed: 0,
            stragglers_closed: 0,
            refusals: [0; REFUSALS],
        }
    }
}

impl Stats {
    /// Number of refusals for this reason.
    pub fn refusals(&self, refusal: Refusal) -> u64 {
        self.refusals[refusal as usize]
    }

    fn count_refusal(&mut self, refusal: Refusal) {
        self.refusals[refusal as usize] += 1;
    }
}

/// What the firmware counts of itself.
impl Smart {
    /// The firmware has accepted a command into a slot.
    pub(crate) fn count_accepted(&mut self) {
        self.stats.permits_issued += 1;
    }

    /// A worker goes on with the command, and counts it.
    pub(crate) fn count_granted(&mut self) {
        self.stats.permits_issued -= 1;
    }

    /// A command of the firmware is completed.
    pub(crate) fn count_completed(&mut self) {
        self.stats.permits_spent += 1;
    }

    /// A command's queue was closed before its completion.
    pub(crate) fn count_forfeited(&mut self) {
        self.stats.permits_forfeited += 1;
    }

    pub(crate) fn count_refusal(&mut self, refusal: Refusal) {
        self.stats.count_refusal(refusal);
    }

    /// A capsule arrived for a queue that is not open.
    pub(crate) fn count_late_capsule(&mut self) {
        self.stats.late_capsules += 1;
    }

    /// A transfer was answered that no command waits for.
    pub(crate) fn count_unknown_transfer(&mut self) {
        self.stats.unknown_transfers += 1;
    }

    pub(crate) fn count_closed_queue(&mut self) {
        self.stats.queues_closed += 1;
    }

    /// A queue is closed because others wait for it.
    pub(crate) fn count_straggler(&mut self) {
        self.stats.stragglers_closed += 1;
    }

    /// A read has found a page of another generation of its volume id.
    pub(crate) fn count_stale_generations(&mut self, blocks: u64) {
        self.stats.stale_generation_reads += blocks;
    }

    /// A write of so many blocks has succeeded; so many of them had an old stamp.
    pub(crate) fn count_write(&mut self, blocks: u32, old_stamps: u32) {
        self.stats.writes += 1;
        self.stats.blocks_written += u64::from(blocks);
        self.stats.old_stamps += u64::from(old_stamps);
    }

    /// A command that unmaps blocks has succeeded.
    pub(crate) fn count_trim(&mut self) {
        self.stats.writes += 1;
    }

    /// So many blocks were unmapped. So many others were not, because of an old stamp.
    pub(crate) fn count_trimmed(&mut self, blocks: u64, old_stamps: u32) {
        self.stats.blocks_trimmed += blocks;
        self.stats.old_stamps += u64::from(old_stamps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_a_counter() {
        let _deadline = crate::deadline::deadline();
        let mut stats = Stats::default();
        for &refusal in Refusal::ALL {
            stats.count_refusal(refusal);
            assert_eq!(stats.refusals(refusal), 1, "{refusal:?}");
        }
    }
}
