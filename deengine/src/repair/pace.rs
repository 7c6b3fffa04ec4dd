// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pace of repairs: all that the SSD gives while no client uses it, else a share of it.

use gnstor_base::time::{Span, Time};
use gnstor_proto::scrub::DEFAULT_SHARE;

/// After the last command of a client that was seen, clients use the SSD for so long.
const QUIET: Span = Span::from_ms(2);

#[derive(Debug)]
pub(super) struct Pace {
    /// Percent of the SSD that repairs take while clients use it.
    pub(super) share: u8,
    /// Commands of clients that had come.
    seen: u64,
    used_until: Time,
}

impl Default for Pace {
    fn default() -> Self {
        Self { share: DEFAULT_SHARE, seen: 0, used_until: Time::ZERO }
    }
}

impl Pace {
    /// Clients have sent so many commands by now; whether they use the SSD.
    pub(super) fn is_used(&mut self, now: Time, commands: u64) -> bool {
        if commands != self.seen {
            (self.seen, self.used_until) = (commands, now + QUIET);
        }
        now < self.used_until
    }

    /// How long work that takes the SSD for `cost` keeps the next one away while clients use the SSD.
    pub(super) fn turn(&self, cost: Span) -> Span {
        Span::from_ps(cost.as_ps().saturating_mul(100) / u64::from(self.share.clamp(1, 100)))
    }
}
