// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The serving lease of one SSD (Gray and Cheriton). The SSD asks the voters, and the lease counts from the
//! moment of asking, on the asker's clock (rule 2a).
//!
//! ```text
//!   asks            a majority says yes         the lease is over
//!    |------------------->|                             |
//!    |<------------------- lease ---------------------->|      a late answer makes it no longer
//! ```

use crate::set::SsdSet;
use crate::{ArrayId, Epoch, Incarnation, Opening, SsdId, Uuid};

/// Lengths of leases, in the unit of the caller's clock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Timing {
    /// The lease.
    pub lease: u64,
    /// Largest difference of two clocks over one lease.
    pub drift: u64,
}

impl Timing {
    /// The lease of an array, in ms.
    pub const DEFAULT_MS: Self = Self { lease: 300, drift: 10 };
}

/// LEASE ASK.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LeaseAsk {
    /// The array.
    pub array: ArrayId,
    /// The SSD that asks.
    pub ssd: SsdId,
    /// The map that it serves by.
    pub epoch: Epoch,
    /// Incarnation of the SSD.
    pub incarnation: Incarnation,
    /// Number of the SSD's openings ([`crate::opening`]).
    pub opening: Opening,
    /// Uuid of the SSD; zero: not stated.
    pub uuid: Uuid,
}

/// A lease request under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Asking {
    /// The question of the SSD.
    pub ask: LeaseAsk,
    /// The time of asking, on the asker's clock. It was read before the first message left.
    pub asked_at: u64,
    /// The voters that said yes.
    pub yes: SsdSet,
}

/// The lease of an SSD. An SSD that never had one does not serve.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Lease {
    /// End of the lease, on the SSD's own clock.
    pub until: u64,
}

impl Lease {
    /// Whether it runs. `now` is read after the command was taken in: a process that was stopped in between
    /// would judge by the time before.
    pub fn runs(self, now: u64) -> bool {
        now < self.until
    }
}

impl Asking {
    /// An SSD asks.
    pub fn new(ask: LeaseAsk, now: u64) -> Self {
        Self { ask, asked_at: now, yes: SsdSet::EMPTY }
    }

    /// A voter said yes to this ask.
    pub fn said_yes(&mut self, voter: SsdId) {
        self.yes = self.yes.with(voter);
    }

    /// The lease that the answers give; `None` without a majority, or if the SSD's content has changed since
    /// the question. A newer map does not matter: the voters agreed to a lease under the older map, which
    /// allows less.
    pub fn lease(&self, voters: SsdSet, incarnation: Incarnation, timing: Timing) -> Option<Lease> {
        let same = self.ask.incarnation == incarnation;
        (same && self.yes.is_majority_of(voters)).then_some(Lease { until: self.asked_at + timing.lease })
    }
}
