// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The modelled link between the initiator's HCA and the array's: bandwidth each way, latency, per-message
//! overhead.

use gnstor_base::padding::Padded;
use gnstor_base::time::{Span, Time};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Figures of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkConfig {
    /// Bytes per second each way; 0 = not limited.
    pub bytes_per_second: u64,
    /// One-way latency.
    pub latency: Span,
    /// Header bytes of a message.
    pub overhead_bytes: u32,
}

impl LinkConfig {
    /// No limit, no latency.
    pub const UNLIMITED: Self = Self { bytes_per_second: 0, latency: Span::ZERO, overhead_bytes: 0 };

    /// The paper's testbed (section 5.1): 200 GbE with 22,118 MB/s of goodput. The latency of 1 us one way is
    /// assumed: the paper gives none. Goodput does not include headers.
    pub const PAPER_200GBE: Self =
        Self { bytes_per_second: 22_118_000_000, latency: Span::from_ns(1000), overhead_bytes: 0 };
}

/// Messages of at most this size (capsules and responses) are not booked one by one. When their time reaches
/// [`MOST_OWED`], all of them are booked together. Every transport writes the wire's word, and taking its
/// cache line costs more time than such a message takes on the wire.
const SMALL_BYTES: u64 = 128;
/// Largest time that each end may owe: the wire is busier than its word says by up to this time. That is 2
/// KiB at 200 GbE.
const MOST_OWED: Span = Span::from_ns(100);

/// A link with two directions, each first come, first served. A clone is another end of the same wire.
#[derive(Clone, Debug)]
pub struct Link {
    config: LinkConfig,
    up: End,
    down: End,
}

/// A wire, and the time of small messages of this end that are not in the wire's word yet.
#[derive(Clone, Debug, Default)]
struct End {
    /// Time at which the direction is free again, ps. Every transport writes it.
    wire: Arc<Padded<AtomicU64>>,
    owed: Span,
}

impl Link {
    /// An idle link.
    pub fn new(config: LinkConfig) -> Self {
        Self { config, up: End::default(), down: End::default() }
    }

    /// The configuration of the link.
    pub fn config(&self) -> LinkConfig {
        self.config
    }

    /// Arrival time at the array of `bytes` that are handed in at `at`.
    pub fn up(&mut self, at: Time, bytes: u64) -> Time {
        self.up.send(&self.config, at, bytes)
    }

    /// Arrival time at the initiator of `bytes` that are handed in at `at`.
    pub fn down(&mut self, at: Time, bytes: u64) -> Time {
        self.down.send(&self.config, at, bytes)
    }

    /// Arrival time at the array of the answer to an RDMA READ of `bytes`, which the array sends at `at`.
    pub fn pull(&mut self, at: Time, bytes: u64) -> Time {
        self.up(at + self.config.latency, bytes)
    }
}

impl End {
    fn send(&mut self, config: &LinkConfig, at: Time, bytes: u64) -> Time {
        if config.bytes_per_second == 0 {
            return at + config.latency;
        }
        let takes = Span::transfer(bytes + u64::from(config.overhead_bytes), config.bytes_per_second);
        let owed = self.owed;
        // If the wire has been free for long enough, the owed messages went out in that time.
        let end = |free: u64| (Time::from_ps(free) + owed).max(at) + takes;
        // No other memory depends on this word.
        let free = &**self.wire;
        let before = if bytes <= SMALL_BYTES && takes <= MOST_OWED {
            let before = free.load(Ordering::Relaxed);
            self.owed = owed + takes;
            if self.owed > MOST_OWED {
                // Added to the word instead of booked at a time, so it delays no earlier message.
                free.fetch_add(std::mem::take(&mut self.owed).as_ps(), Ordering::Relaxed);
            }
            before
        } else {
            self.owed = Span::ZERO;
            let before =
                free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| Some(end(free).as_ps()));
            before.unwrap_or_else(|free| free)
        };
        end(before) + config.latency
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn messages_queue_for_the_wire_but_not_for_the_latency() {
        let _deadline = deadline();
        let config =
            LinkConfig { bytes_per_second: 1_000_000_000, latency: Span::from_ns(500), overhead_bytes: 0 };
        let mut link = Link::new(config);
        assert_eq!(link.up(Time::ZERO, 1000), Time::from_ns(1500));
        assert_eq!(link.up(Time::ZERO, 1000), Time::from_ns(2500));
        assert_eq!(link.down(Time::ZERO, 1000), Time::from_ns(1500), "directions are independent");
        assert_eq!(link.clone().up(Time::ZERO, 1000), Time::from_ns(3500), "a clone is on the same wire");
        assert_eq!(Link::new(LinkConfig::UNLIMITED).down(Time::from_ns(7), 1 << 20), Time::from_ns(7));
    }
    #[test]
    fn small_messages_are_paid_for_by_the_next_message() {
        let _deadline = deadline();
        let config = LinkConfig { bytes_per_second: 1_000_000_000, latency: Span::ZERO, overhead_bytes: 0 };
        let mut link = Link::new(config);
        let mut other = link.clone();
        // A message comes after those of its own end. The other end does not see them yet.
        assert_eq!(link.up(Time::ZERO, 60), Time::from_ns(60));
        assert_eq!(link.up(Time::ZERO, 40), Time::from_ns(100));
        assert_eq!(other.up(Time::ZERO, 10), Time::from_ns(10));
        // One more exceeds the limit: all of them are on the wire, for both ends.
        assert_eq!(link.up(Time::ZERO, 1), Time::from_ns(101));
        assert_eq!(other.up(Time::ZERO, 10), Time::from_ns(121), "and its own ten before");
        assert_eq!(other.up(Time::ZERO, 1000), Time::from_ns(1121));
        assert_eq!(link.up(Time::ZERO, 1000), Time::from_ns(2121));
        // A message for a later time delays no earlier one.
        assert_eq!(link.up(Time::from_ns(4000), 60), Time::from_ns(4060));
        assert_eq!(link.up(Time::from_ns(4000), 60), Time::from_ns(4060));
        assert_eq!(link.up(Time::from_ns(3000), 1000), Time::from_ns(4000));
        // The wire has long been free when the next one comes.
        assert_eq!(link.up(Time::from_ns(5000), 64), Time::from_ns(5064));
        assert_eq!(link.up(Time::from_ns(6000), 1000), Time::from_ns(7000));
    }
}
