// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads and writes that found the modelled firmware busy, where the queues of their controller take plain turns: they wait with their
//! core, not under the SSD's lock. Controllers take turns, and within a controller its queues do, as in
//! [`crate::hosts`]. A waiting command has not been fetched.

use super::port::Ports;
use gnstor_fabric::controller::QueueKey;
use gnstor_fabric::time::Time;
use gnstor_proto::nvme::Sqe;
use std::collections::VecDeque;

/// Which queues have commands waiting; the commands are with their ports.
#[derive(Debug, Default)]
pub(super) struct Line {
    turns: VecDeque<(u16, VecDeque<QueueKey>)>,
    commands: usize,
}

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Commands waiting.
    pub(super) fn len(&self) -> usize {
        self.commands
    }

    /// Controllers with commands waiting.
    pub(super) fn controllers(&self) -> usize {
        self.turns.len()
    }

    /// Puts a read that arrived at `now` at the end of its queue; `controller` is the queue's.
    pub(super) fn push(&mut self, ports: &mut Ports, name: QueueKey, controller: u16, now: Time, sqe: &Sqe) {
        let Some(port) = ports.get(name) else { return };
        port.waiting.push_back((now, *sqe));
        self.commands += 1;
        if port.waiting.len() > 1 {
            return;
        }
        match self.turns.iter_mut().find(|(of, _)| *of == controller) {
            Some((_, queues)) => queues.push_back(name),
            None => self.turns.push_back((controller, VecDeque::from([name]))),
        }
    }

    /// The read that is next: its queue, when it arrived, the command.
    pub(super) fn pop(&mut self, ports: &mut Ports) -> Option<(QueueKey, Time, Sqe)> {
        let (controller, mut queues) = self.turns.pop_front()?;
        let name = queues.pop_front()?;
        let port = ports.get(name)?;
        let (at, sqe) = port.waiting.pop_front()?;
        self.commands -= 1;
        if !port.waiting.is_empty() {
            queues.push_back(name);
        }
        if !queues.is_empty() {
            self.turns.push_back((controller, queues));
        }
        Some((name, at, sqe))
    }

    /// Takes out what waits in a queue.
    pub(super) fn remove(&mut self, ports: &mut Ports, name: QueueKey) -> VecDeque<(Time, Sqe)> {
        let waiting = ports.get(name).map(|port| std::mem::take(&mut port.waiting)).unwrap_or_default();
        self.commands -= waiting.len();
        if !waiting.is_empty() {
            self.delist(name);
        }
        waiting
    }

    /// Takes out one command of a queue, where it is there.
    pub(super) fn take(&mut self, ports: &mut Ports, name: QueueKey, cid: u16) -> Option<Sqe> {
        let port = ports.get(name)?;
        let at = port.waiting.iter().position(|(_, sqe)| sqe.cid.get() == cid)?;
        let (_, sqe) = port.waiting.remove(at)?;
        self.commands -= 1;
        if port.waiting.is_empty() {
            self.delist(name);
        }
        Some(sqe)
    }

    fn delist(&mut self, name: QueueKey) {
        for (_, queues) in &mut self.turns {
            queues.retain(|&other| other != name);
        }
        self.turns.retain(|(_, queues)| !queues.is_empty());
    }
}
