// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long a map that a majority holds has waited for the leases that it ends (rule 2b). The daemon's clock
//! may leap ahead meanwhile, and the clocks of the SSDs that have the leases do not.
//!
//! ```text
//!   clock   1000   1004   1008   6012   6016   6020      it leaps by 5 s
//!   counts     0      4      8     17     21     25      of each step 9 ms at most
//! ```
//! The daemon checks the clock often, and a leap counts as one step. A daemon that did not run for some time
//! waits longer.

use crate::core::report::MapChange;
use gnstor_fleet::lease::Timing;
use std::collections::VecDeque;

/// Interval of the looks.
const LOOK_MS: u64 = 4;
/// Most time that one check adds to a wait. A leap of the clock adds less than the drift bound, and the rest
/// of the bound is for drifting clocks.
const MOST_MS: u64 = 9;
const _: () = assert!(MOST_MS < Timing::DEFAULT_MS.drift && LOOK_MS < MOST_MS);

/// The wait of one map.
#[derive(Default, Debug)]
pub(super) struct Wait {
    looked_at: Option<u64>,
    /// Time that does not count.
    missed_ms: u64,
}

impl Wait {
    /// Notes a check of the clock. Returns `now` without the time that does not count.
    pub(super) fn look(&mut self, now: u64, decided_at: u64) -> u64 {
        let before = self.looked_at.replace(now).unwrap_or(decided_at);
        self.missed_ms += now.saturating_sub(before).saturating_sub(MOST_MS);
        now.saturating_sub(self.missed_ms)
    }

    /// The next look of a wait that ends at `over`, in time that counts.
    pub(super) fn looks_at(&self, over: u64) -> u64 {
        let over = over + self.missed_ms;
        self.looked_at.map_or(over, |at| over.min(at + LOOK_MS))
    }
}

/// Number of maps that the daemon remembers.
const REMEMBERED: usize = 16;

/// The last maps that this daemon made.
#[derive(Default, Debug)]
pub(in crate::core) struct History(VecDeque<MapChange>);

impl History {
    pub(super) fn push(&mut self, change: MapChange) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(change);
    }

    /// Oldest first.
    pub(in crate::core) fn changes(&self) -> Vec<MapChange> {
        self.0.iter().cloned().collect()
    }
}
