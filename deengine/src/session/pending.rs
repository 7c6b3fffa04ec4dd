// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that wait for the firmware, and which of them is next.
//!
//! ```text
//!   admin queues       in turn       before everything else
//!   controller 1 --+
//!   controller 2 --+-- in turn, a command each;  within a controller: `turns`
//!   controller 3 --+
//! ```
//! Arbitration is a controller's own affair in NVMe, so an urgent class goes before the other queues of its host, not
//! before those of other hosts. A waiting command has not been fetched: it does not move the queue's head (SQHD), and
//! nothing of it has been looked at.

use super::hosts::{Hosts, index};
use super::turns::{Class, Weights};
use crate::io::permit::CompletionPermit;
use gnstor_base::controller::QueueKey;
use gnstor_proto::nvme::Sqe;
use std::collections::VecDeque;

/// A command that has arrived and that the firmware has not taken.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) permit: CompletionPermit,
    pub(crate) sqe: Sqe,
}

/// Where the commands of a queue stand in line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    /// Nowhere: the queue is not connected, its commands are looked at as they come.
    None,
    /// With the admin queues.
    Admin,
    /// With the I/O queues of this controller.
    Io(u16, Class),
}

/// Everything that waits.
#[derive(Debug, Default)]
pub(crate) struct Line {
    admin: VecDeque<QueueKey>,
    /// Controllers with an I/O command waiting.
    ready: VecDeque<u16>,
    waiting: usize,
}

impl Hosts {
    /// How many commands wait.
    pub(crate) fn waiting(&self) -> usize {
        self.line.waiting
    }

    /// Whether an admin command is next.
    pub(crate) fn is_admin_waiting(&self) -> bool {
        !self.line.admin.is_empty()
    }

    /// Controllers whose I/O commands wait.
    pub(crate) fn controllers_waiting(&self) -> usize {
        self.line.ready.len()
    }

    /// Puts a command at the end of its queue; the queue has a lane.
    pub(crate) fn wait(&mut self, key: QueueKey, command: Waiting) {
        let queue = self.queues.get_mut(&key).expect("the caller has looked it up");
        queue.waiting.push_back(command);
        self.line.waiting += 1;
        if queue.waiting.len() > 1 {
            return;
        }
        match queue.lane {
            Lane::Admin => self.line.admin.push_back(key),
            Lane::Io(cntlid, class) => {
                let host =
                    self.controllers[index(cntlid)].as_mut().expect("a connected queue has a controller");
                if host.turns.is_empty() {
                    self.line.ready.push_back(cntlid);
                }
                host.turns.add(key, class);
            }
            Lane::None => unreachable!("commands of a queue without a lane do not wait"),
        }
    }

    /// Takes the command that is next.
    pub(crate) fn next_waiting(&mut self) -> Option<(QueueKey, Waiting)> {
        if let Some(key) = self.line.admin.pop_front() {
            let (command, more) = self.pop(key)?;
            if more {
                self.line.admin.push_back(key);
            }
            return Some((key, command));
        }
        let cntlid = self.line.ready.pop_front()?;
        let host = self.controllers[index(cntlid)].as_mut()?;
        let weights = Weights::from_feature(host.features.arbitration);
        let (key, ring) = host.turns.pick(&weights)?;
        let (command, more) = self.pop(key)?;
        let host = self.controllers[index(cntlid)].as_mut()?;
        host.turns.served(ring, more, &weights);
        if !host.turns.is_empty() {
            self.line.ready.push_back(cntlid);
        }
        Some((key, command))
    }

    fn pop(&mut self, key: QueueKey) -> Option<(Waiting, bool)> {
        let queue = self.queues.get_mut(&key)?;
        let command = queue.waiting.pop_front()?;
        self.line.waiting -= 1;
        Some((command, !queue.waiting.is_empty()))
    }

    /// Takes every waiting command of a queue out of the line.
    pub(crate) fn take_waiting(&mut self, key: QueueKey) -> VecDeque<Waiting> {
        let Some(queue) = self.queues.get_mut(&key) else { return VecDeque::new() };
        let taken = std::mem::take(&mut queue.waiting);
        self.line.waiting -= taken.len();
        if !taken.is_empty() {
            self.delist(key);
        }
        taken
    }

    /// Takes one waiting command of a queue, where it is there.
    pub(crate) fn take_one(&mut self, key: QueueKey, cid: u16) -> Option<Waiting> {
        let queue = self.queues.get_mut(&key)?;
        let at = queue.waiting.iter().position(|command| command.sqe.cid.get() == cid)?;
        let taken = queue.waiting.remove(at)?;
        let empty = queue.waiting.is_empty();
        self.line.waiting -= 1;
        if empty {
            self.delist(key);
        }
        Some(taken)
    }

    fn delist(&mut self, key: QueueKey) {
        match self.queues.get(&key).map_or(Lane::None, |queue| queue.lane) {
            Lane::Admin => self.line.admin.retain(|&other| other != key),
            Lane::Io(cntlid, class) => {
                // The controller may have gone first; then it is out of the line already.
                let Some(host) = self.host(cntlid) else { return };
                host.turns.remove(key, class);
                if host.turns.is_empty() {
                    self.leave_line(cntlid);
                }
            }
            Lane::None => {}
        }
    }

    /// The controller is gone, or nothing of it waits.
    pub(super) fn leave_line(&mut self, cntlid: u16) {
        self.line.ready.retain(|&other| other != cntlid);
    }

    /// Every waiting command, for an SSD that is switched off.
    pub(crate) fn drain_waiting(&mut self) -> impl Iterator<Item = Waiting> {
        self.line = Line::default();
        self.queues.values_mut().flat_map(|queue| queue.waiting.drain(..))
    }
}
