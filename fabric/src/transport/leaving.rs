// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections that were closed while their executors still move data for them, and executors that were
//! removed meanwhile.
//!
//! A transfer ends when its executor has reported its end or has taken it back, and not before. Freed
//! memory may have a new owner at once, and a copy that lands late must not land there (protocol rule 9).
//!
//! ```text
//!   close, remove_executor --> leaving -- copies ended, or taken back --> transfers end, executor dropped
//! ```

use super::conn::Conn;
use super::executors::AnyExecutor;
use super::{ConnId, ExecutorId, RcTransport};
use crate::hca::STEP_REPORTS;
use gnstor_base::time::Time;

/// Closed connections and removed executors that have not ended.
#[derive(Default)]
pub(super) struct Leaving {
    conns: Vec<Closed>,
    executors: Vec<(ExecutorId, AnyExecutor)>,
}

struct Closed {
    conn: ConnId,
    executor: ExecutorId,
    qpn: u32,
    /// Number of copies whose end the executor has not reported.
    moving: u32,
}

impl Leaving {
    /// A connection that is about to be forgotten.
    pub(super) fn add(&mut self, id: ConnId, conn: &Conn) {
        self.conns.push(Closed { conn: id, executor: conn.executor, qpn: conn.qpn, moving: conn.transfers });
    }

    /// An executor that was removed: the transport polls it as long as it moves something.
    pub(super) fn keep(&mut self, id: ExecutorId, executor: AnyExecutor) {
        if self.conns.iter().any(|closed| closed.executor == id) {
            self.executors.push((id, executor));
        }
    }

    /// Whether an executor still moves data for a connection that this queue pair had.
    pub(super) fn holds(&self, executor: ExecutorId, qpn: u32) -> bool {
        self.conns.iter().any(|closed| (closed.executor, closed.qpn) == (executor, qpn))
    }

    /// A copy of a forgotten connection has ended.
    pub(super) fn copy_ended(&mut self, id: ConnId) {
        if let Some(closed) = self.conns.iter_mut().find(|closed| closed.conn == id) {
            closed.moving -= 1;
        }
    }
}

impl RcTransport {
    /// Polls the executors that leave, and ends transfers that no executor moves any more. Returns whether
    /// anything happened.
    pub(super) fn reap_leaving(&mut self, now: Time) -> bool {
        if self.leaving.conns.is_empty() {
            return false;
        }
        let mut worked = false;
        for i in 0..self.leaving.executors.len() {
            // The executor's other reports concern connections that are already removed.
            for _ in 0..STEP_REPORTS {
                let Some(up) = self.leaving.executors[i].1.poll() else { break };
                worked = true;
                self.ended(now, self.leaving.executors[i].0, &up);
            }
        }
        let (executors, leaving) = (&mut self.executors, &mut self.leaving.executors);
        let mut over = Vec::new();
        self.leaving.conns.retain(|closed| {
            let executor = match executors.get_mut(&closed.executor) {
                Some(executor) => Some(executor),
                None => {
                    leaving.iter_mut().find(|(id, _)| *id == closed.executor).map(|(_, executor)| executor)
                }
            };
            let still = closed.moving > 0 && executor.is_some_and(|executor| !executor.take_back(closed.qpn));
            if !still {
                over.push(closed.conn);
            }
            still
        });
        let conns = &self.leaving.conns;
        self.leaving.executors.retain(|(id, _)| conns.iter().any(|closed| closed.executor == *id));
        for &conn in &over {
            self.fail_transfers(now, conn);
        }
        worked || !over.is_empty()
    }
}
