// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An admin queue that is up, and its exchange of questions: answers come in, Keep Alives and capsules go
//! out.

use crate::survive::end::Port;
use gnstor_fabric::admin::{AdminQueue, ChannelError, Dialogue, Exchange};

/// The driver of an admin queue.
#[derive(Debug)]
pub(crate) struct Driver<Q = Port> {
    port: Q,
    /// Interval of Keep Alives, and the time of the next one.
    every_ms: u64,
    alive_at: u64,
}

impl<Q: AdminQueue> Driver<Q> {
    /// The queue is up since `now`.
    pub(crate) fn new(port: Q, now: u64, every_ms: u64) -> Self {
        Self { port, every_ms, alive_at: now + every_ms }
    }

    /// Takes answers, and sends what is due. Returns whether an answer came.
    ///
    /// # Errors
    /// The queue is broken, or a question had no answer in time.
    pub(crate) fn go_on<K, D: Dialogue>(
        &mut self,
        exchange: &mut Exchange<K, D>,
        now: u64,
    ) -> Result<bool, ChannelError> {
        let mut any = false;
        while let Some(cqe) = self.port.poll()? {
            any = true;
            exchange.completed(cqe, |at, data| self.port.read(at, data))?;
        }
        exchange.step(now)?;
        if self.alive_at <= now {
            self.alive_at = now + self.every_ms;
            exchange.keep_alive();
        }
        while let Some(capsule) = exchange.next(now) {
            self.port.send(&capsule)?;
        }
        Ok(any)
    }

    /// The time of the next call.
    pub(crate) fn wakes_at<K, D: Dialogue>(&self, exchange: &Exchange<K, D>) -> u64 {
        exchange.wakes_at().map_or(self.alive_at, |at| at.min(self.alive_at))
    }
}
