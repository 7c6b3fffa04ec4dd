// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the unclean end of a write lease to the next grant (rule 14, decision 57). The daemon leads, and the
//! SSDs pull.
//!
//! ```text
//!   Barrier  all members take the writer away and set the flag; older work is drained or cut
//!   Copy     each member makes its copy that of the first
//!   Clear    all members clear the flag
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
    Copy,
    Clear,
    Done,
}

/// A settle of one group in one epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Settle {
    /// The epoch. With a newer one it begins again.
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

    /// A member has done the step. `lease_epoch` is the one in its entry. A filling member has to do each
    /// step, too, because it may have a write of the dead writer that the first never got.
    pub fn done(&mut self, ssd: SsdId, lease_epoch: u32) {
        self.done = self.done.with(ssd);
        self.lease_epoch = self.lease_epoch.max(lease_epoch);
    }

    /// Goes on to the next step if all members have done this one.
    pub fn advance(&mut self, members: SsdSet) {
        if self.step != Step::Done && members.is_subset_of(self.done) {
            self.step = match self.step {
                Step::Barrier => Step::Copy,
                Step::Copy => Step::Clear,
                Step::Clear | Step::Done => Step::Done,
            };
            self.done = SsdSet::EMPTY;
        }
    }

    /// The lease epoch that may be granted now; `None` before all is settled in the active epoch.
    pub fn may_grant(&self, active: Epoch) -> Option<u32> {
        (self.step == Step::Done && self.epoch == active).then(|| self.lease_epoch + 1)
    }
}
