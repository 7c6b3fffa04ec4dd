// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The offset between the transport's clock and an executor's. The transport measures it by pings, one
//! after the other; the shortest round trip counts.

use super::{ExecutorId, RcTransport};
use crate::hca::Down;
use gnstor_base::time::Time;

/// Pings of a calibration.
const PINGS: u32 = 16;

impl RcTransport {
    /// Measures the offset between the transport's clock and the executor's. Later steps take the replies.
    /// The first ping only waits until the executor runs, so its round trip does not count.
    pub fn calibrate(&mut self, now: Time, executor: ExecutorId) {
        // A ping that is left from a launch that ended would measure the pause since then.
        self.pings.retain(|(of, _), _| *of != executor);
        // The clocks drift by microseconds a second: an earlier offset is good only until there is a newer
        // one.
        if let Some(best) = self.best_rtt.get_mut(&executor) {
            *best = u64::MAX;
        }
        self.ping(now, executor, PINGS);
    }

    fn ping(&mut self, now: Time, executor: ExecutorId, to_follow: u32) {
        let tag = self.id();
        if let Some(to) = self.executors.get_mut(&executor) {
            self.pings.insert((executor, tag), (now, to_follow));
            to.push(Down::Ping { tag });
        }
    }

    /// An executor saw ping `tag` at `stamp_ns`, on its own clock.
    pub(super) fn pong(&mut self, now: Time, executor: ExecutorId, tag: u32, stamp_ns: u64) {
        let Some((sent, to_follow)) = self.pings.remove(&(executor, tag)) else { return };
        if to_follow > 0 {
            self.ping(now, executor, to_follow - 1);
        }
        if to_follow == PINGS {
            return;
        }
        let rtt = now.since(sent).as_ns();
        if self.best_rtt.get(&executor).is_none_or(|&best| rtt < best) {
            self.best_rtt.insert(executor, rtt);
            let middle = i128::from(sent.as_ns()) + i128::from(rtt / 2);
            let offset = i64::try_from(middle - i128::from(stamp_ns)).unwrap_or(0);
            if let Some(executor) = self.executors.get_mut(&executor) {
                executor.set_clock_offset_ns(offset, rtt);
            }
        }
    }

    /// When an executor took a request, on the transport's clock; never in the future.
    pub(super) fn taken_at(&mut self, now: Time, executor: ExecutorId, stamp_ns: u64) -> Time {
        if stamp_ns == 0 || !self.best_rtt.contains_key(&executor) {
            return now;
        }
        let offset = self.executors.get(&executor).map_or(0, |executor| executor.clock_offset_ns());
        let ns = i128::from(stamp_ns) + i128::from(offset);
        Time::from_ns(u64::try_from(ns).unwrap_or(0)).min(now)
    }
}

/// A transport time on an executor's clock, whose offset is `transport = executor + offset`.
pub(super) fn executor_ns(at: Time, offset: i64) -> u64 {
    u64::try_from(i128::from(at.as_ns()) - i128::from(offset)).unwrap_or(0)
}
