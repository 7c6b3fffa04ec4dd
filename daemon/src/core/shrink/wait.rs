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

use super::state::Proposed;
use gnstor_fleet::lease::Timing;
use gnstor_fleet::map::FleetView as _;
use gnstor_fleet::set::SsdSet;
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

/// A map that this daemon made, and how long it waited for leases.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapChange {
    /// The map's epoch.
    pub epoch: u64,
    /// SSDs that lost a place.
    pub deprived: SsdSet,
    /// The ones among them that had said goodbye.
    pub stopped: SsdSet,
    /// The wait for the leases of the others, in milliseconds of the daemon's clock.
    pub waited_ms: u64,
}

/// The last maps that this daemon made.
#[derive(Default, Debug)]
pub(in crate::core) struct History(VecDeque<MapChange>);

impl History {
    fn push(&mut self, change: MapChange) {
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

impl Proposed {
    /// Makes the map active if a majority of these voters holds it and the leases that it ends are over.
    pub(super) fn look(&mut self, now: u64, voters: SsdSet, history: &mut History) {
        if self.is_active {
            return;
        }
        let seen = self.round.decided_at.map_or(now, |at| self.wait.look(now, at));
        let gone = self.round.gone(voters);
        self.is_active = self.round.may_activate(seen, Timing::DEFAULT_MS, gone);
        if self.is_active {
            let map = &self.round.map;
            let (epoch, deprived) = (map.epoch(), map.deprived());
            let stopped = deprived.iter().filter(|ssd| gone.contains(*ssd)).collect();
            let waited_ms = self.round.decided_at.map_or(0, |at| now.saturating_sub(at));
            tracing::info!(epoch, ?deprived, ?stopped, waited_ms, "the fleet map is made");
            history.push(MapChange { epoch, deprived, stopped, waited_ms });
        }
    }
}
