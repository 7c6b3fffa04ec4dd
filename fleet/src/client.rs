// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One write of a client. It is acknowledged when all members of the group have it in one and the same epoch
//! (rule 5a).

use crate::set::SsdSet;
use crate::{Epoch, SsdId};
use gnstor_proto::slba::Stamp;

/// A write that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    /// Stamp of the write: the same in every retry.
    pub stamp: Stamp,
    /// The epoch that it was last sent in.
    pub epoch: Epoch,
    /// The members that have the write in that epoch.
    pub has_it: SsdSet,
}

impl Request {
    /// A write that is being sent.
    pub fn new(stamp: Stamp, epoch: Epoch) -> Self {
        Self { stamp, epoch, has_it: SsdSet::EMPTY }
    }

    /// Starts the request over under a newer map, with the same stamp.
    pub fn restart(&mut self, epoch: Epoch) {
        *self = Self::new(self.stamp, epoch);
    }

    /// An SSD completed the command that was sent in `epoch`. A completion of an earlier epoch counts
    /// nothing.
    pub fn completed(&mut self, ssd: SsdId, epoch: Epoch) {
        if epoch == self.epoch {
            self.has_it = self.has_it.with(ssd);
        }
    }

    /// Whether the write is acknowledged; `members` are those of the group in its epoch.
    pub fn is_acknowledged(&self, members: SsdSet) -> bool {
        !members.is_empty() && members.is_subset_of(self.has_it)
    }
}
