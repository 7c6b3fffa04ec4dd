// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The modelled link between the initiator's HCA and the array's: bandwidth each way, latency, per-message overhead.

use crate::time::{Span, Time};
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

    /// The paper's testbed (section 5.1): 200 GbE, 22,118 MB/s goodput. The latency of 1 us one way is modelled: the paper gives none.
    /// Goodput has the headers taken off already.
    pub const PAPER_200GBE: Self =
        Self { bytes_per_second: 22_118_000_000, latency: Span::from_ns(1000), overhead_bytes: 0 };
}

/// A link: two directions, first come, first served. A clone is another end of the same wire.
#[derive(Clone, Debug)]
pub struct Link {
    config: LinkConfig,
    up: Arc<Wire>,
    down: Arc<Wire>,
}

/// When one direction is free again, ps. On a line of its own: every engine writes it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Wire(AtomicU64);

impl Link {
    /// An idle link.
    pub fn new(config: LinkConfig) -> Self {
        Self { config, up: Arc::default(), down: Arc::default() }
    }

    /// Its figures.
    pub fn config(&self) -> LinkConfig {
        self.config
    }

    /// When `bytes` handed in at `at` have arrived at the array.
    pub fn up(&self, at: Time, bytes: u64) -> Time {
        self.send(&self.up, at, bytes)
    }

    /// When `bytes` handed in at `at` have arrived at the initiator.
    pub fn down(&self, at: Time, bytes: u64) -> Time {
        self.send(&self.down, at, bytes)
    }

    /// When the answer to an RDMA READ of `bytes`, asked for by the array at `at`, has arrived there.
    pub fn pull(&self, at: Time, bytes: u64) -> Time {
        self.up(at + self.config.latency, bytes)
    }

    fn send(&self, wire: &Wire, at: Time, bytes: u64) -> Time {
        if self.config.bytes_per_second == 0 {
            return at + self.config.latency;
        }
        let takes = Span::transfer(bytes + u64::from(self.config.overhead_bytes), self.config.bytes_per_second);
        let end = |free: u64| Time::from_ps(free).max(at) + takes;
        // The word stands for itself alone.
        let before = wire.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| Some(end(free).as_ps()));
        end(before.unwrap_or_else(|free| free)) + self.config.latency
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_queue_for_the_wire_but_not_for_the_latency() {
        let config = LinkConfig { bytes_per_second: 1_000_000_000, latency: Span::from_ns(500), overhead_bytes: 0 };
        let link = Link::new(config);
        assert_eq!(link.up(Time::ZERO, 1000), Time::from_ns(1500));
        assert_eq!(link.up(Time::ZERO, 1000), Time::from_ns(2500));
        assert_eq!(link.down(Time::ZERO, 1000), Time::from_ns(1500), "directions are independent");
        assert_eq!(link.clone().up(Time::ZERO, 1000), Time::from_ns(3500), "a clone is on the same wire");
        assert_eq!(Link::new(LinkConfig::UNLIMITED).down(Time::from_ns(7), 1 << 20), Time::from_ns(7));
    }
}
