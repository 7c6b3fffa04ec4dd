// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The modelled link between the initiator's HCA and the array's: bandwidth each way, latency, per-message overhead.

use crate::time::{Span, Time};

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

/// A link: two directions, first come, first served.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    config: LinkConfig,
    up_busy: Time,
    down_busy: Time,
}

impl Link {
    /// An idle link.
    pub fn new(config: LinkConfig) -> Self {
        Self { config, up_busy: Time::ZERO, down_busy: Time::ZERO }
    }

    /// Its figures.
    pub fn config(&self) -> LinkConfig {
        self.config
    }

    /// When `bytes` handed in at `at` have arrived at the array.
    pub fn up(&mut self, at: Time, bytes: u64) -> Time {
        Self::send(&self.config, &mut self.up_busy, at, bytes)
    }

    /// When `bytes` handed in at `at` have arrived at the initiator.
    pub fn down(&mut self, at: Time, bytes: u64) -> Time {
        Self::send(&self.config, &mut self.down_busy, at, bytes)
    }

    /// When the answer to an RDMA READ of `bytes`, asked for by the array at `at`, has arrived there.
    pub fn pull(&mut self, at: Time, bytes: u64) -> Time {
        self.up(at + self.config.latency, bytes)
    }

    fn send(config: &LinkConfig, busy: &mut Time, at: Time, bytes: u64) -> Time {
        let start = (*busy).max(at);
        *busy = start + Span::transfer(bytes + u64::from(config.overhead_bytes), config.bytes_per_second);
        *busy + config.latency
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_queue_for_the_wire_but_not_for_the_latency() {
        let config = LinkConfig { bytes_per_second: 1_000_000_000, latency: Span::from_ns(500), overhead_bytes: 0 };
        let mut link = Link::new(config);
        assert_eq!(link.up(Time::ZERO, 1000), Time::from_ns(1500));
        assert_eq!(link.up(Time::ZERO, 1000), Time::from_ns(2500));
        assert_eq!(link.down(Time::ZERO, 1000), Time::from_ns(1500), "directions are independent");
        assert_eq!(Link::new(LinkConfig::UNLIMITED).down(Time::from_ns(7), 1 << 20), Time::from_ns(7));
    }
}
