// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pace of repairs: all of the SSD's time while no client uses it, otherwise a share of it.
//!
//! ```text
//!   idle    | work | work | work |                as fast as the medium is
//!   used    | work |   clients   | work |   ...   a turn is work's cost on a busy SSD, over the share
//! ```
//! Reads for other SSDs, blocks taken over and a scrub's reads take their turns one after the other. The cost
//! is that of a page on an SSD that does nothing else, so a queue of clients makes no turn longer.

use gnstor_base::time::{Span, Time};
use gnstor_proto::scrub::DEFAULT_SHARE;

/// Clients count as using the SSD for this long after the last command of theirs that was seen.
const QUIET: Span = Span::from_ms(2);
/// Least cost of a page. Also with a preset without times a page takes memory and processors.
const LEAST: Span = Span::from_ns(500);

#[derive(Debug)]
pub(in crate::repair) struct Pace {
    /// Percent of the SSD that repairs take while clients use it.
    pub(in crate::repair) share: u8,
    /// Number of commands of clients at the last look.
    seen: u64,
    used_until: Time,
    /// End of the last turn.
    turn_ends: Time,
}

/// Kinds of work of a repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::repair) enum Work {
    Read,
    Write,
}

impl Default for Pace {
    fn default() -> Self {
        Self { share: DEFAULT_SHARE, seen: 0, used_until: Time::ZERO, turn_ends: Time::ZERO }
    }
}

impl Pace {
    /// Earliest end of work on this many pages of this cost, if clients have sent `commands` so far.
    pub(in crate::repair) fn turn(&mut self, now: Time, commands: u64, cost: Span, pages: usize) -> Time {
        if commands != self.seen {
            (self.seen, self.used_until) = (commands, now + QUIET);
        }
        if now >= self.used_until {
            self.turn_ends = now;
            return now;
        }
        let cost = cost.max(LEAST);
        let pages = u64::try_from(pages).unwrap_or(u64::MAX);
        let turn =
            cost.as_ps().saturating_mul(pages).saturating_mul(100) / u64::from(self.share.clamp(1, 100));
        self.turn_ends = self.turn_ends.max(now) + Span::from_ps(turn);
        self.turn_ends
    }
}
