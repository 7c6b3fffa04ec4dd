// SPDX-License-Identifier: Apache-2.0 OR MIT
//! I/O commands that pend until the modelled firmware is free. Every command pends with the worker of its
//! queue.
//!
//! ```text
//!   client 7: controller 1 --+--+
//!             controller 2 --+  +-- clients in turn, a command each
//!   client 8: controller 3 -----+     within a client: its controllers in turn
//!                                     within a controller: its arbiter
//! ```
//! A client that opens a thousand controllers has as many turns as one that opens one. Arbitration is a
//! controller's own affair in NVMe: an urgent class goes before the other queues of its controller, and
//! before no others. A pending command has not been fetched, so it does not move the queue's
//! head (SQHD). A write whose data was pulled early is fetched already.

use super::port::Ports;
use super::turn_rings::{Ring, Rings};
use crate::hosts::Standing;
use crate::hosts::arbiter::{Arbiter, Class, RoundRobin};
use crate::workers::worker_of;
use gnstor_base::controller::QueueKey;
use gnstor_base::peer_map::PeerMap;
use gnstor_base::time::Time;
use gnstor_proto::fabrics::Identity;
use gnstor_proto::nvme::Sqe;
use rustc_hash::FxHashMap;
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
    /// The clients with commands pending, in the order of their turns.
    clients: Rings<Client>,
    order: Ring,
    by_identity: PeerMap<Identity, u32>,
    /// The controllers of all these clients.
    controllers: Rings<Controller>,
    /// Places of controllers, by the addresses of their arbiters. The id of a controller that has ended may
    /// be another client's already, while commands of its queues still pend.
    by_arbiter: FxHashMap<usize, u32>,
    /// Number of the controllers that share their order with other workers.
    shared: usize,
    commands: usize,
    /// Whether the next command is a write with its data, as [`Self::is_write_next`] says. Kept for when no
    /// controller shares its order: every step of an engine asks.
    next: Option<bool>,
}

/// A client with commands pending. The daemon, and another SSD, are clients here, too.
#[derive(Debug)]
struct Client {
    identity: Identity,
    /// The client's controllers with commands pending, in the order of their turns.
    controllers: Ring,
}

/// The queues of a controller with commands pending.
#[derive(Debug)]
struct Controller {
    client: u32,
    arbiter: Arc<Arbiter>,
    /// This worker's own order of the queues, for a controller in plain round robin. Otherwise all workers
    /// share the arbiter's order.
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

    /// Removes a queue that has no command any more.
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
        let mut queues = self.clients.iter(&self.order).flat_map(|client| self.next_of(client, worker));
        let first = ports.look_at(queues.next()?).and_then(|port| port.waiting.front());
        Some(matches!(first, Some((_, Waiting::Write(_)))))
    }

    /// The next queue of a client that this worker may take a command from.
    fn next_of(&self, client: &Client, worker: usize) -> Option<QueueKey> {
        self.controllers.iter(&client.controllers).find_map(|controller| controller.next(worker))
    }

    /// Recomputes the kept answer, since the next command may have changed.
    fn has_changed(&mut self, ports: &Ports) {
        // Only a shared order depends on the worker.
        self.next = if self.shares_order() { None } else { self.look_at_next(0, ports) };
    }

    /// Number of clients with a command that this worker may take.
    #[inline]
    pub(super) fn clients(&self, worker: usize) -> usize {
        if !self.shares_order() {
            return self.order.len();
        }
        self.clients.iter(&self.order).filter(|client| self.next_of(client, worker).is_some()).count()
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
        let Standing::Io { identity, class, ref arbiter } = port.standing else { return None };
        port.waiting.push_back((at, what));
        self.commands += 1;
        if port.waiting.len() > 1 {
            return Some(false);
        }
        let place = self.place_of(identity, arbiter);
        port.listed = Some(place);
        if let Some(controller) = self.controllers.get_mut(place) {
            controller.add(queue, class);
        }
        self.has_changed(ports);
        Some(true)
    }

    /// The place of a controller among those with commands pending. One that has none yet gets the last turn
    /// of its client, and a client that has none the last turn of all.
    fn place_of(&mut self, identity: Identity, arbiter: &Arc<Arbiter>) -> u32 {
        if let Some(&place) = self.by_arbiter.get(&address(arbiter)) {
            return place;
        }
        let Self { clients, order, .. } = self;
        let new = || clients.push_back(order, Client { identity, controllers: Ring::default() });
        let client = *self.by_identity.get_or_insert(identity, new);
        self.shared += usize::from(arbiter.is_weighted());
        let (key, arbiter, own) = (address(arbiter), Arc::clone(arbiter), RoundRobin::default());
        let controller = Controller { client, arbiter, own, queues: 0 };
        let ring = &mut self.clients.get_mut(client).expect("it was just found").controllers;
        let place = self.controllers.push_back(ring, controller);
        self.by_arbiter.insert(key, place);
        place
    }

    /// Takes the next command, if this worker may.
    pub(super) fn pop(&mut self, worker: usize, ports: &mut Ports) -> Option<Taken> {
        let (place, queue) = self.take_next(worker, ports)?;
        let port = ports.get(queue)?;
        let (arrived, what) = port.waiting.pop_front()?;
        if port.waiting.is_empty() {
            port.listed = None;
        }
        self.commands -= 1;
        self.had_turn(place);
        self.has_changed(ports);
        Some(Taken { queue, arrived, what })
    }

    /// Takes a command off the first controller that this worker may serve. Returns the controller's place,
    /// and the command's queue.
    fn take_next(&mut self, worker: usize, ports: &Ports) -> Option<(u32, QueueKey)> {
        let has_more = |queue| ports.look_at(queue).is_some_and(|port| port.waiting.len() > 1);
        let mut next_client = self.order.first();
        while let Some(client) = next_client {
            let mut next = self.clients.get(client)?.controllers.first();
            while let Some(place) = next {
                if let Some(queue) = self.controllers.get_mut(place)?.take(worker, has_more) {
                    return Some((place, queue));
                }
                next = self.controllers.after(place);
            }
            next_client = self.clients.after(client);
        }
        None
    }

    /// Ends the turn of a controller and of its client.
    fn had_turn(&mut self, place: u32) {
        let Some(controller) = self.controllers.get(place) else { return };
        let (client, is_empty) = (controller.client, controller.queues == 0);
        if is_empty {
            self.remove_controller(place);
        } else if let Some(Client { controllers, .. }) = self.clients.get_mut(client) {
            self.controllers.move_last(controllers, place);
        }
        if self.clients.get(client).is_some() {
            self.clients.move_last(&mut self.order, client);
        }
    }

    /// A controller has no command any more.
    fn remove_controller(&mut self, place: u32) {
        let Some(client) = self.controllers.get(place).map(|controller| controller.client) else { return };
        let Some(Client { controllers, identity }) = self.clients.get_mut(client) else { return };
        let identity = *identity;
        let Some(gone) = self.controllers.remove(controllers, place) else { return };
        self.by_arbiter.remove(&address(&gone.arbiter));
        self.shared -= usize::from(gone.arbiter.is_weighted());
        if controllers.len() == 0 {
            self.clients.remove(&mut self.order, client);
            self.by_identity.remove(&identity);
        }
    }

    /// Removes all that pends in a queue.
    pub(super) fn remove(&mut self, ports: &mut Ports, queue: QueueKey) -> VecDeque<(Time, Waiting)> {
        let Some(port) = ports.get(queue) else { return VecDeque::new() };
        let waiting = std::mem::take(&mut port.waiting);
        self.commands -= waiting.len();
        if let Some(place) = port.listed.take() {
            self.delist(place, queue);
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
        if port.waiting.is_empty()
            && let Some(place) = port.listed.take()
        {
            self.delist(place, queue);
        }
        self.has_changed(ports);
        true
    }

    /// A queue of this controller has no command any more, for another reason than [`Self::pop`].
    fn delist(&mut self, place: u32, queue: QueueKey) {
        let Some(controller) = self.controllers.get_mut(place) else { return };
        controller.remove(queue);
        if controller.queues == 0 {
            self.remove_controller(place);
        }
    }
}

fn address(arbiter: &Arc<Arbiter>) -> usize {
    Arc::as_ptr(arbiter).addr()
}
