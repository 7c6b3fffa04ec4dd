// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The firmware's effects on their way through a worker, and the end of its queues.

use super::worker::Worker;
use gnstor_base::controller::{Controller, Effect, Outcome, QueueKey};

impl Worker {
    /// Ends the worker's part of a queue that the engine or the firmware has dropped.
    pub(super) fn end(&mut self, name: QueueKey) {
        self.finish_submitted(self.now);
        self.orphan_commands(name);
        self.drop_pending(name);
        self.ports.close(name);
        self.shared.lock(self.index).table.unwatch(name);
    }

    /// Closes the queues whose reads of the volume in this slot were judged by an older entry.
    pub(super) fn close_older(&mut self, slot: u16) {
        self.refresh();
        let queues = self.older_queues(slot);
        let mut ssd = self.shared.lock(self.index);
        for name in queues {
            ssd.smart_mut().stats_mut().stragglers_closed += 1;
            ssd.shut(self.now, name);
        }
    }

    /// Translates an effect of the firmware for the engine. `None`: the effect is not for the engine.
    pub(super) fn translate(&mut self, effect: Effect) -> Option<Effect> {
        let name = match effect {
            Effect::Pull { queue, .. }
            | Effect::Push { queue, .. }
            | Effect::Complete { queue, .. }
            | Effect::Admitted { queue, .. }
            | Effect::Close { queue } => queue,
            Effect::Ask { .. } => return Some(effect),
        };
        let Some(port) = self.ports.get(name) else {
            // The queue went while the effect was on its way.
            if let Effect::Pull { transfer, .. } | Effect::Push { transfer, .. } = effect {
                self.transferred(self.now, transfer, Outcome::ConnectionLost);
            }
            return None;
        };
        let key = port.key;
        Some(match effect {
            Effect::Pull { transfer, cid, remote, local, .. } => {
                Effect::Pull { transfer, queue: key, cid, remote, local }
            }
            Effect::Push { transfer, remote, local, sum, role, .. } => {
                Effect::Push { transfer, queue: key, remote, local, sum, role }
            }
            Effect::Complete { mut cqe, at, pushed_bytes, .. } => {
                // The capsule may be the completion of a Connect.
                if !port.is_connected() {
                    self.shared.lock(self.index).refresh(port);
                }
                cqe.sqhd = port.complete().into();
                Effect::Complete { queue: key, cqe, at, pushed_bytes }
            }
            Effect::Admitted { who, .. } => Effect::Admitted { queue: key, who },
            Effect::Close { .. } => {
                self.end(name);
                Effect::Close { queue: key }
            }
            Effect::Ask { .. } => effect,
        })
    }
}
