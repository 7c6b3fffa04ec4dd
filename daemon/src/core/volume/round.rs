// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a round: which SSDs it waits for, which took its command, which failed.
//!
//! ```text
//!   waiting --answered--> took | failed
//!      '--- drop_ssd: the SSD is no member any more, whatever it had answered
//!   over: none is waited for
//! ```

use super::{Action, Change, Creation, Purpose, Undo};
use crate::core::Ticket;
use crate::core::failure::Trouble;
use std::collections::{BTreeMap, BTreeSet};

/// One command to each of several SSDs, and their answers.
#[derive(Debug)]
pub(in crate::core) struct Round {
    pub(in crate::core) purpose: Purpose,
    pub(in crate::core) action: Action,
    waiting: BTreeSet<u16>,
    took: BTreeSet<u16>,
    pub(in crate::core) failed: BTreeMap<u16, Trouble>,
}

impl Round {
    /// A round whose command has been sent to these SSDs.
    pub(in crate::core) fn new(purpose: Purpose, action: Action, targets: BTreeSet<u16>) -> Self {
        Self { purpose, action, waiting: targets, took: BTreeSet::new(), failed: BTreeMap::new() }
    }

    /// An SSD has answered.
    pub(in crate::core) fn answered(&mut self, ssd: u16, outcome: Result<(), Trouble>) {
        if !self.waiting.remove(&ssd) {
            return;
        }
        match outcome {
            Ok(()) => drop(self.took.insert(ssd)),
            Err(trouble) => drop(self.failed.insert(ssd, trouble)),
        }
    }

    /// The round does not wait for this SSD any longer.
    pub(in crate::core) fn drop_ssd(&mut self, ssd: u16) {
        self.waiting.remove(&ssd);
        self.took.remove(&ssd);
        self.failed.remove(&ssd);
    }

    /// Notes that the command has been sent to one more SSD.
    pub(in crate::core) fn add_ssd(&mut self, ssd: u16) {
        self.waiting.insert(ssd);
    }

    /// Whether the SSD has yet to answer.
    pub(in crate::core) fn waits_for(&self, ssd: u16) -> bool {
        self.waiting.contains(&ssd)
    }

    /// Whether all SSDs have answered.
    pub(in crate::core) fn is_over(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether this SSD carried the command out.
    pub(in crate::core) fn has_taken(&self, ssd: u16) -> bool {
        self.took.contains(&ssd)
    }

    /// Whether an SSD carried the command out.
    pub(in crate::core) fn some_took(&self) -> bool {
        !self.took.is_empty()
    }

    /// The request that the round is for.
    pub(in crate::core) fn ticket(&self) -> Option<Ticket> {
        match &self.purpose {
            Purpose::Create(Creation { ticket, .. })
            | Purpose::Undo(Undo { ticket, .. })
            | Purpose::Change(Change { ticket, .. }) => Some(*ticket),
            Purpose::Reconcile { reply } => reply.as_ref().map(|(ticket, _)| *ticket),
            Purpose::Mark { ticket } | Purpose::Delete { ticket } => *ticket,
        }
    }

    /// SSDs that have the command's effect, or may have it.
    pub(in crate::core) fn touched(&self) -> BTreeSet<u16> {
        let lost = self.failed.iter().filter(|(_, t)| matches!(t, Trouble::Lost(_))).map(|(&ssd, _)| ssd);
        self.took.iter().copied().chain(lost).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round() -> Round {
        let purpose = Purpose::Mark { ticket: None };
        Round::new(purpose, Action::Delete(1), BTreeSet::from([0, 1, 3]))
    }

    #[test]
    fn a_round_is_over_when_all_have_answered_or_were_dropped() {
        let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
        let mut round = round();
        round.answered(0, Ok(()));
        round.answered(3, Err(Trouble::Lost("pulled".into())));
        assert!(!round.is_over());
        round.drop_ssd(1);
        assert!(round.is_over());
        assert_eq!((round.touched(), round.failed.len()), (BTreeSet::from([0, 3]), 1));
        round.drop_ssd(3);
        assert_eq!((round.touched(), round.failed.len()), (BTreeSet::from([0]), 0), "its failure, too");
        round.answered(1, Ok(()));
        assert_eq!(round.touched(), BTreeSet::from([0]), "a late answer");
    }
}
