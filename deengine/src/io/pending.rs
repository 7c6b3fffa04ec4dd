// SPDX-License-Identifier: Apache-2.0 OR MIT
//! I/O commands that pend until the modelled firmware is free. Every command pends with the worker of its
//! queue.
//!
//! ```text
//!   controller 1 --+
//!   controller 2 --+-- in turn, a command each;  within a controller: its arbiter
//!   controller 3 --+
//! ```
//! Arbitration is a controller's own affair in NVMe: an urgent class goes before the other queues of its
//! host, not before other hosts. A pending command has not been fetched, so it does not move the queue's
//! head (SQHD). A write whose data was pulled early is fetched already.

use super::port::Ports;
use crate::hosts::Standing;
use crate::hosts::arbiter::{Arbiter, Class, RoundRobin};
use crate::workers::worker_of;
use gnstor_base::controller::QueueKey;
use gnstor_base::time::Time;
use gnstor_proto::nvme::Sqe;
use std::collections::VecDeque;
use std::sync::Arc;

/// An entry that pends in a queue.
#[derive(Debug)]
pub(super) enum Waiting {
    /// A command as it arrived.
    Command(Sqe),
    /// A write with its data: its number among the worker's writes.
    Write(u32),
}

/// A command that was pending and is taken.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) queue: QueueKey,
    pub(super) arrived: Time,
    pub(super) what: Waiting,
}

/// Which queues of one worker have commands pending; the commands are with their ports.
#[derive(Debug, Default)]
pub(super) struct Pending {
    controllers: VecDeque<Controller>,
    /// Number of the controllers that share their order with other workers.
    shared: usize,
    commands: usize,
    /// Whether the next command is a write with its data, as [`Self::is_write_next`] says. Kept for when no
    /// controller shares its order: every step of an engine asks.
    next: Option<bool>,
}

/// The queues of a controller with commands pending.
#[derive(Debug)]
struct Controller {
    id: u16,
    arbiter: Arc<Arbiter>,
    /// The order of this worker alone, for a controller in plain round robin. Otherwise all workers share the
    /// arbiter's order.
    own: RoundRobin,
    /// Queues of this worker with a command.
    queues: u32,
}

impl Controller {
    fn add(&mut self, queue: QueueKey, class: Class) {
        self.queues += 1;
        match self.arbiter.shared_order() {
            Some(mut order) => order.add(queue, class),
            None => self.own.add(queue, class),
        }
    }

    /// The queue has no command any more; it need not be of this controller.
    fn remove(&mut self, queue: QueueKey) {
        let is_listed = match self.arbiter.shared_order() {
            Some(mut order) => order.remove(queue),
            None => self.own.remove(queue),
        };
        self.queues -= u32::from(is_listed);
    }

    /// The next queue, if it belongs to this worker.
    #[inline]
    fn next(&self, worker: usize) -> Option<QueueKey> {
        match self.arbiter.shared_order() {
            Some(order) => order.next().map(|(queue, _)| queue).filter(|&queue| worker_of(queue) == worker),
            None => self.own.next().map(|(queue, _)| queue),
        }
    }

    /// Removes a command from the next queue, if that belongs to this worker. `has_more` says whether the
    /// queue has others.
    fn take(&mut self, worker: usize, has_more: impl Fn(QueueKey) -> bool) -> Option<QueueKey> {
        let weights = self.arbiter.weights();
        let mut shared = self.arbiter.shared_order();
        let order = shared.as_deref_mut().unwrap_or(&mut self.own);
        let (queue, class) = order.next().filter(|&(queue, _)| worker_of(queue) == worker)?;
        let more = has_more(queue);
        order.took(class, more, &weights);
        self.queues -= u32::from(!more);
        Some(queue)
    }
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.commands == 0
    }

    /// Commands pending.
    pub(super) fn len(&self) -> usize {
        self.commands
    }

    /// Whether a controller shares its order with other workers. Then commands are taken one at a time.
    pub(super) fn shares_order(&self) -> bool {
        self.shared > 0
    }

    /// Whether the next command is a write with its data. `None`: this worker has no command that it may
    /// take.
    #[inline]
    pub(super) fn is_write_next(&self, worker: usize, ports: &Ports) -> Option<bool> {
        if self.shares_order() { self.look_at_next(worker, ports) } else { self.next }
    }

    fn look_at_next(&self, worker: usize, ports: &Ports) -> Option<bool> {
        let queue = self.controllers.iter().find_map(|controller| controller.next(worker))?;
        let first = ports.look_at(queue).and_then(|port| port.waiting.front());
        Some(matches!(first, Some((_, Waiting::Write(_)))))
    }

    /// The next command may have changed.
    fn has_changed(&mut self, ports: &Ports) {
        // Only a shared order depends on the worker.
        self.next = if self.shares_order() { None } else { self.look_at_next(0, ports) };
    }

    /// Number of controllers with a command that this worker may take.
    #[inline]
    pub(super) fn controllers(&self, worker: usize) -> usize {
        if !self.shares_order() {
            return self.controllers.len();
        }
        self.controllers.iter().filter(|controller| controller.next(worker).is_some()).count()
    }

    /// Puts a command that arrived at `at` at the end of its queue. Returns whether it is the first there.
    /// `None`: it is no I/O queue.
    pub(super) fn push(
        &mut self,
        ports: &mut Ports,
        queue: QueueKey,
        at: Time,
        what: Waiting,
    ) -> Option<bool> {
        let port = ports.get(queue)?;
        let Standing::Io { controller: id, class, arbiter } = &port.standing else { return None };
        port.waiting.push_back((at, what));
        self.commands += 1;
        if port.waiting.len() > 1 {
            return Some(false);
        }
        let at = self.controllers.iter().position(|other| other.id == *id);
        let at = at.unwrap_or_else(|| {
            let (arbiter, own) = (Arc::clone(arbiter), RoundRobin::default());
            self.shared += usize::from(arbiter.is_weighted());
            self.controllers.push_back(Controller { id: *id, arbiter, own, queues: 0 });
            self.controllers.len() - 1
        });
        self.controllers[at].add(queue, *class);
        self.has_changed(ports);
        Some(true)
    }

    /// Takes the next command, if this worker may.
    pub(super) fn pop(&mut self, worker: usize, ports: &mut Ports) -> Option<Taken> {
        let has_more = |queue| ports.look_at(queue).is_some_and(|port| port.waiting.len() > 1);
        let mut all = self.controllers.iter_mut().enumerate();
        let (at, queue) = all.find_map(|(at, controller)| Some((at, controller.take(worker, has_more)?)))?;
        let controller = self.controllers.remove(at)?;
        if controller.queues > 0 {
            self.controllers.push_back(controller);
        } else {
            self.shared -= usize::from(controller.arbiter.is_weighted());
        }
        let (arrived, what) = ports.get(queue)?.waiting.pop_front()?;
        self.commands -= 1;
        self.has_changed(ports);
        Some(Taken { queue, arrived, what })
    }

    /// Removes all that pends in a queue.
    pub(super) fn remove(&mut self, ports: &mut Ports, queue: QueueKey) -> VecDeque<(Time, Waiting)> {
        let Some(port) = ports.get(queue) else { return VecDeque::new() };
        let waiting = std::mem::take(&mut port.waiting);
        self.commands -= waiting.len();
        if !waiting.is_empty() {
            self.delist(queue);
            self.has_changed(ports);
        }
        waiting
    }

    /// Removes one command of a queue that has not been fetched. Returns whether it was there.
    pub(super) fn take_back(&mut self, ports: &mut Ports, queue: QueueKey, cid: u16) -> bool {
        let Some(port) = ports.get(queue) else { return false };
        let is_it = |what: &Waiting| matches!(what, Waiting::Command(sqe) if sqe.cid.get() == cid);
        let Some(at) = port.waiting.iter().position(|(_, what)| is_it(what)) else { return false };
        port.waiting.remove(at);
        self.commands -= 1;
        if port.waiting.is_empty() {
            self.delist(queue);
        }
        self.has_changed(ports);
        true
    }

    /// A queue has no command any more, for another reason than [`Self::pop`].
    fn delist(&mut self, queue: QueueKey) {
        for controller in &mut self.controllers {
            controller.remove(queue);
        }
        self.controllers.retain(|controller| controller.queues > 0);
        self.shared = self.controllers.iter().filter(|controller| controller.arbiter.is_weighted()).count();
    }
}
