// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How calls end: which failures are allowed, and how many there were.

use super::{Judge, Op, blocks_of};
use crate::history::{Call, Failure, Outcome, Time};
use std::collections::BTreeMap;

/// How often a call ended in a way; `None`: well. Calls of killed clients have no end.
pub type Counts = BTreeMap<(&'static str, Option<Failure>), u64>;

#[derive(Debug)]
pub(super) struct Round {
    pub(super) round: u64,
    pub(super) begins: Time,
    /// When all was healthy again.
    pub(super) ends: Time,
    /// The only fault was one of one SSD.
    pub(super) alone: bool,
    pub(super) faults: String,
}

fn word(call: &Call) -> &'static str {
    match call {
        Call::Create { .. } => "create",
        Call::Open { writes: true, .. } => "open to write",
        Call::Open { writes: false, .. } => "open to read",
        Call::Release { .. } => "release",
        Call::Delete { .. } => "delete",
        Call::Write { .. } => "write",
        Call::Zero { .. } => "zero",
        Call::Read { .. } => "read",
        Call::Copy { .. } => "read of a copy",
    }
}

impl Judge {
    pub(super) fn outcome_of(&mut self, op: &Op) {
        let Some(outcome) = &op.outcome else { return };
        let Outcome::Failed(failure, why) = outcome else {
            *self.counts.entry((word(&op.call), None)).or_default() += 1;
            return;
        };
        *self.counts.entry((word(&op.call), Some(*failure))).or_default() += 1;
        let Some((life, block, _)) = blocks_of(&op.call).filter(|_| !matches!(op.call, Call::Copy { .. }))
        else {
            return;
        };
        // A volume may be deleted under a reader.
        let deleting = self.volumes.get(&life).and_then(|volume| volume.deleting);
        if deleting.is_some_and(|at| op.end.is_none_or(|end| at < end)) {
            return;
        }
        let round = self.rounds.last();
        let Some(round) = round.filter(|round| round.alone && (round.begins..round.ends).contains(&op.begin))
        else {
            return;
        };
        let facts = format!(
            "round {} ({}): {} of {} at life {life:#x}, block {block}, failed after {} ms: {why}",
            round.round,
            round.faults,
            word(&op.call),
            op.who,
            op.end.unwrap_or(op.begin).saturating_sub(op.begin) / 1_000_000
        );
        self.breaks("no call fails where one SSD alone is faulty (2b)", facts);
    }
}
