// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long a map that a majority holds has waited for the leases that it ends (rule 2b). The daemon's clock
//! may leap ahead meanwhile, and the clocks of the SSDs that have the leases do not.
//!
//! ```text
//!   clock   1000   1004   1008   6012   6016   6020      it leaps by 5 s
//!   counts     0      4      8     17     21     25      of each step 9 ms at most
//! ```
//! The daemon looks often, so a leap counts as one step. A daemon that did not run for some time waits
//! longer.

use gnstor_fleet::lease::Timing;

/// Interval of the looks.
const LOOK_MS: u64 = 4;
/// Of the time between two looks so much counts at most. A leap in a wait is less than the drift bound, and
/// what is left of that is for clocks that run off.
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
    /// The daemon looks. Returns `now` without the time that does not count.
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
