// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queue pairs that begin anew while the agent is resident. Before that their owner asks whether everything
//! of the last connection is over.
//!
//! ```text
//!   owner: old connection over? --> closed --> begin_anew --QpAnew--> executor --reply--> owner connects
//! ```

use super::{ConnId, ExecutorId, RcTransport};
use crate::hca::Down;
use std::sync::mpsc::Sender;

/// Progress of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// The connection is in error, or no connection has this name.
    pub broken: bool,
    /// The connection is broken, and its executor has been handed the completion of everything that was in
    /// flight: nothing moves for it any more.
    pub over: bool,
    /// A response has been handed to its executor.
    pub answered: bool,
}

impl RcTransport {
    /// Resets a queue pair and closes its connection. While the executor runs, the answer comes through
    /// `reply`. Without an agent it comes with the next launch.
    pub fn begin_anew(&mut self, executor: ExecutorId, qpn: u32, reply: Sender<()>) {
        let tag = self.id();
        if let Some(to) = self.executors.get_mut(&executor) {
            self.anew.insert((executor, tag), reply);
            to.push(Down::QpAnew { qpn, tag });
        }
    }

    /// An executor has begun anew.
    pub(super) fn begun_anew(&mut self, executor: ExecutorId, tag: u32) {
        if let Some(reply) = self.anew.remove(&(executor, tag)) {
            // The caller may have given up.
            let _ = reply.send(());
        }
    }

    /// Progress of a connection.
    pub fn progress(&self, id: ConnId) -> Progress {
        let none = Progress { broken: true, over: true, answered: false };
        self.conns.get(&id).map_or(none, |conn| Progress {
            broken: conn.broken(),
            over: conn.is_over(),
            answered: conn.answered,
        })
    }
}
