// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A volume's rate limit: two token buckets, for commands and for bytes.
//!
//! A bucket holds what 100 ms bring, and one command at least. A command that finds too little does not
//! fail: it starts when there is enough, and is charged then. Instead of a level, a bucket keeps the time at
//! which it would be full again.
//!
//! ```text
//!             |<---- 100 ms ---->|
//!   now ------+------------------+------> full again, with all that was charged so far
//!             start of the next command: when "full again" is at most 100 ms away, this command included
//! ```

use gnstor_base::time::{Span, Time};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::vendor::Limits;

const BURST: Span = Span::from_ms(100);
const SECOND_PS: u64 = 1_000_000_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Bucket {
    full_at: Time,
}

impl Bucket {
    /// When the bucket holds `cost`, `now` or later.
    fn start(&self, now: Time, cost: Span) -> Time {
        let ahead = Span::from_ps(BURST.as_ps().saturating_sub(cost.as_ps()));
        now.max(self.full_at.max(now) - ahead)
    }

    /// Takes `cost` from the bucket.
    fn charge(&mut self, at: Time, cost: Span) {
        self.full_at = self.full_at.max(at) + cost;
    }
}

/// The limits of one volume, and how much of them it has used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rate {
    limits: Limits,
    commands: Bucket,
    bytes: Bucket,
}

impl Rate {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// When a command that moves `blocks` may start, `now` or later.
    #[inline]
    pub(crate) fn start(&self, now: Time, blocks: u32) -> Time {
        let commands = self.of_command().map_or(now, |cost| self.commands.start(now, cost));
        let bytes = self.of_bytes(blocks).map_or(now, |cost| self.bytes.start(now, cost));
        commands.max(bytes)
    }

    /// Charges a command that moves `blocks` and starts at `at`.
    #[inline]
    pub(crate) fn charge(&mut self, at: Time, blocks: u32) {
        if let Some(cost) = self.of_command() {
            self.commands.charge(at, cost);
        }
        if let Some(cost) = self.of_bytes(blocks) {
            self.bytes.charge(at, cost);
        }
    }

    /// Cost of a command under the limit of commands.
    fn of_command(&self) -> Option<Span> {
        SECOND_PS.checked_div(u64::from(self.limits.max_iops)).map(Span::from_ps)
    }

    /// Cost of `blocks` blocks under the limit of bytes.
    fn of_bytes(&self, blocks: u32) -> Option<Span> {
        let bytes = u64::from(blocks) * u64::from(BLOCK_BYTES);
        let rate = self.limits.max_bytes_per_s;
        (rate != 0).then(|| Span::transfer(bytes, rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Rate {
        fn take(&mut self, now: Time, blocks: u32) -> Time {
            let start = self.start(now, blocks);
            self.charge(start, blocks);
            start
        }
    }

    proptest! {
        /// Against a bucket that is filled drop by drop: no command starts before its tokens are there,
        /// and none later.
        #[test]
        fn a_command_starts_exactly_when_its_tokens_are_there(
            iops in 1u32..2000,
            gaps in proptest::collection::vec(0u64..30_000_000, 1..200),
        ) {
            let _deadline = crate::deadline::deadline();
            let mut rate = Rate::new(Limits { max_iops: iops, max_bytes_per_s: 0 });
            let per_token = 1_000_000_000_000 / u64::from(iops);
            // Level in picoseconds of refill, as of `at`; a command larger than the bucket needs it full.
            let burst = 100_000_000_000u64;
            let (mut level, mut at) = (i128::from(burst), 0u64);
            let mut now = 0u64;
            for gap in gaps {
                now += gap * 1000;
                let need = i128::from(per_token.min(burst));
                let filled = |level: i128, from: u64, to: u64| {
                    let level = level + i128::from(to - from);
                    level.min(i128::from(burst))
                };
                let seen = if now >= at { filled(level, at, now) } else { level };
                let begin = now.max(at);
                let start = begin + u64::try_from((need - seen).max(0)).expect("positive");
                level = filled(seen, begin, start) - i128::from(per_token);
                at = start;
                prop_assert_eq!(rate.take(Time::ZERO + Span::from_ps(now), 1).as_ps(), start);
            }
        }
    }

    #[test]
    fn no_limit_takes_no_time() {
        let _deadline = crate::deadline::deadline();
        let mut rate = Rate::default();
        assert!((0..1000).all(|_| rate.take(Time::from_ns(5), 256) == Time::from_ns(5)));
    }
}
