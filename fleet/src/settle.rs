// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the end of a write lease to the next grant (rule 14). The daemon leads; the SSDs pull.
//!
//! ```text
//!   Barrier  all members take the writer away; older work is drained or cut
//!   Gather   the first pulls what is unsettled from the other serving members
//!   Spread   the others pull it from the first
//!   Mark     every member: all is settled
//!   Done     the next lease may be granted
//! ```

use crate::Epoch;
use crate::SsdId;
use crate::set::SsdSet;

/// A step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "the drawing above")]
pub enum Step {
    Barrier,
    Gather,
    Spread,
    Mark,
    Done,
}

/// A settle of one group in one epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Settle {
    /// The epoch. In a newer one it begins anew.
    pub epoch: Epoch,
    /// The step.
    pub step: Step,
    /// The members that have done the step.
    pub done: SsdSet,
    /// The highest lease epoch that a member knows.
    pub lease_epoch: u32,
}

impl Settle {
    /// A settle begins.
    pub fn new(epoch: Epoch) -> Self {
        Self { epoch, step: Step::Barrier, done: SsdSet::EMPTY, lease_epoch: 0 }
    }

    /// The SSDs that have to do the step.
    pub fn needed(&self, members: SsdSet, serving: SsdSet, first: SsdId) -> SsdSet {
        match self.step {
            Step::Barrier | Step::Mark => members,
            // The first pulls from each of them; a filling member has nothing that counts.
            Step::Gather => serving.without(first),
            Step::Spread => members.without(first),
            Step::Done => SsdSet::EMPTY,
        }
    }

    /// A member has done the step; `lease_epoch` is what its entry says.
    pub fn done(&mut self, ssd: SsdId, lease_epoch: u32) {
        self.done = self.done.with(ssd);
        self.lease_epoch = self.lease_epoch.max(lease_epoch);
    }

    /// Goes on to the next step where all have done this one.
    pub fn advance(&mut self, members: SsdSet, serving: SsdSet, first: SsdId) {
        while self.step != Step::Done && self.needed(members, serving, first).is_subset_of(self.done) {
            self.step = match self.step {
                Step::Barrier => Step::Gather,
                Step::Gather => Step::Spread,
                Step::Spread => Step::Mark,
                Step::Mark | Step::Done => Step::Done,
            };
            self.done = SsdSet::EMPTY;
        }
    }

    /// The lease epoch that may be granted now; `None` before all is settled in the active epoch.
    pub fn may_grant(&self, active: Epoch) -> Option<u32> {
        (self.step == Step::Done && self.epoch == active).then(|| self.lease_epoch + 1)
    }
}
