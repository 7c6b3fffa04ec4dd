// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads and writes that found the modelled firmware busy, where the queues of their controller take plain turns: they wait with their
//! worker, not under the SSD's lock. Controllers take turns, and within a controller its queues do, as in
//! [`crate::session`]. A waiting command has not been fetched, but for a write whose data has been pulled already.

use super::port::Ports;
use gnstor_base::controller::QueueKey;
use gnstor_base::time::Time;
use gnstor_proto::nvme::Sqe;
use std::collections::VecDeque;

/// What waits in a queue.
#[derive(Debug)]
pub(super) enum Waiting {
    /// A command as it came.
    Command(Sqe),
    /// A write with its data: its number among the worker's.
    Write(u32),
}

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

    /// Whether what is next is a write with its data.
    #[inline]
    pub(super) fn is_write_next(&self, ports: &Ports) -> bool {
        let queue = self.turns.front().and_then(|(_, queues)| queues.front());
        let first = queue.and_then(|&name| ports.look_at(name)).and_then(|port| port.waiting.front());
        matches!(first, Some((_, Waiting::Write(_))))
    }

    /// Controllers with commands waiting.
    pub(super) fn controllers(&self) -> usize {
        self.turns.len()
    }

    /// Puts a command that arrived at `at` at the end of its queue; `controller` is the queue's.
    pub(super) fn push(
        &mut self,
        ports: &mut Ports,
        name: QueueKey,
        controller: u16,
        at: Time,
        what: Waiting,
    ) {
        let Some(port) = ports.get(name) else { return };
        port.waiting.push_back((at, what));
        self.commands += 1;
        if port.waiting.len() > 1 {
            return;
        }
        match self.turns.iter_mut().find(|(of, _)| *of == controller) {
            Some((_, queues)) => queues.push_back(name),
            None => self.turns.push_back((controller, VecDeque::from([name]))),
        }
    }

    /// The command that is next: its queue, when it arrived, the command.
    pub(super) fn pop(&mut self, ports: &mut Ports) -> Option<(QueueKey, Time, Waiting)> {
        let (controller, mut queues) = self.turns.pop_front()?;
        let name = queues.pop_front()?;
        let port = ports.get(name)?;
        let (at, what) = port.waiting.pop_front()?;
        self.commands -= 1;
        if !port.waiting.is_empty() {
            queues.push_back(name);
        }
        if !queues.is_empty() {
            self.turns.push_back((controller, queues));
        }
        Some((name, at, what))
    }

    /// Takes out what waits in a queue.
    pub(super) fn remove(&mut self, ports: &mut Ports, name: QueueKey) -> VecDeque<(Time, Waiting)> {
        let waiting = ports.get(name).map(|port| std::mem::take(&mut port.waiting)).unwrap_or_default();
        self.commands -= waiting.len();
        if !waiting.is_empty() {
            self.delist(name);
        }
        waiting
    }

    /// Takes out one command of a queue that has not been fetched; whether it is there.
    pub(super) fn take(&mut self, ports: &mut Ports, name: QueueKey, cid: u16) -> bool {
        let Some(port) = ports.get(name) else { return false };
        let is_it = |what: &Waiting| matches!(what, Waiting::Command(sqe) if sqe.cid.get() == cid);
        let Some(at) = port.waiting.iter().position(|(_, what)| is_it(what)) else { return false };
        port.waiting.remove(at);
        self.commands -= 1;
        if port.waiting.is_empty() {
            self.delist(name);
        }
        true
    }

    fn delist(&mut self, name: QueueKey) {
        for (_, queues) in &mut self.turns {
            queues.retain(|&other| other != name);
        }
        self.turns.retain(|(_, queues)| !queues.is_empty());
    }
}
