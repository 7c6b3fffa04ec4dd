// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One step of an transport: what has come up from the executors, what is due, what the SSDs want done.

use super::conn::To;
use super::{AnyExecutor, ConnId, Event, ExecutorId, Message, RcTransport, executor_ns, sqe_of};
use crate::hca::abi::UP_SEND;
use crate::hca::{Allowance, Down};
use crate::runtime::Waits;
use gnstor_base::time::{Span, Time};
use gnstor_proto::nvme::Cqe;

/// Entries that are taken from an executor in one step: the bound keeps one executor from starving the others.
const BATCH: usize = 64;

/// The link's part of a response's way, more or less.
const SOON: Span = Span::from_ns(4000);

/// Steps from one look at the host queues to the next.
const SOFT_TURN: u32 = 16;

impl RcTransport {
    /// Handles an event at its time: at once, where that has come and nothing earlier waits.
    pub(super) fn schedule(&mut self, now: Time, at: Time, event: Event) {
        if self.is_next(now, at) {
            return self.handle(now, at, event);
        }
        self.queue(at, event);
    }

    /// An SSD is done with a command at `at`: its response is handed over as long before it is due as it
    /// takes to get there.
    pub(super) fn respond(&mut self, now: Time, conn: ConnId, message: Message, pushed: u32, at: Time) {
        let from = at.before(self.lead(conn));
        self.schedule(now, from, Event::Respond { conn, message, pushed, at });
    }

    /// Whether what happens at `at` has its turn now.
    pub(super) fn is_next(&self, now: Time, at: Time) -> bool {
        at <= now && self.events.first().is_none_or(|first| first > at)
    }

    pub(super) fn queue(&mut self, at: Time, event: Event) {
        self.events.push(at, event);
    }

    /// Does everything that is due. Returns whether anything happened.
    pub fn step(&mut self, now: Time) -> bool {
        let mut worked = self.poll_executors(now);
        worked |= self.settle_leaving(now);
        worked |= self.check_settling();
        worked |= self.poll_remotes(now);
        while let Some((at, event)) = self.events.pop_due(now) {
            self.handle(now, at, event);
            worked = true;
        }
        for i in 0..self.targets.len() {
            let t = &mut self.targets[i];
            if !t.silent && t.controller.next_event().is_some_and(|at| at <= now) {
                t.clock = t.clock.max(now);
                t.controller.step(t.clock);
                let has_effects = self.drain_effects(now, u16::try_from(i).expect("few targets"));
                // One that only looks again and again for what another thread does leaves the core to that.
                let still_due = self.targets[i].controller.next_event().is_some_and(|at| at <= now);
                worked |= has_effects || !still_due;
            }
        }
        if now.since(self.last_timeout_check) >= Span::from_ms(10) {
            self.last_timeout_check = now;
            self.check_timeouts(now);
            self.end_idle_remotes(now);
        }
        self.counters.steps[usize::from(!worked)] += 1;
        worked
    }

    /// Whether anything is under way.
    pub fn busy(&self) -> bool {
        !self.events.is_empty() || self.is_moving()
    }

    /// Whether an executor moves data for this transport, or invalidates a key.
    fn is_moving(&self) -> bool {
        !self.transfers.is_empty() || !self.answers.is_empty() || !self.settling.is_empty()
    }

    /// What the thread of an idle transport waits for.
    pub fn waits(&mut self) -> Waits {
        let polls =
            self.is_moving() || self.executors.values_mut().any(|executor| executor.get().must_be_polled());
        Waits { next: self.next_event(), polls }
    }

    /// Has the next step look at every executor, the host queues among them. Call this after a pause.
    pub fn look_everywhere(&mut self) {
        self.steps = SOFT_TURN - 1;
    }

    /// When the next modelled event is due, for a virtual clock.
    pub fn next_event(&self) -> Option<Time> {
        let targets = self.targets.iter().filter(|t| !t.silent).filter_map(|t| t.controller.next_event());
        targets.chain(self.events.first()).min()
    }

    fn lead(&mut self, conn: ConnId) -> Span {
        let executor = self.conns.get(&conn).and_then(|c| self.executors.get_mut(&c.executor));
        executor.map_or(Span::ZERO, |h| Span::from_ns(h.get().lead_ns()))
    }

    fn poll_executors(&mut self, now: Time) -> bool {
        let mut worked = false;
        self.steps = self.steps.wrapping_add(1);
        for i in 0..self.order.len() {
            let Some(&id) = self.order.get(i) else { break };
            // Host queues carry administration: looking at all their doorbells every time would cost more
            // than the I/O does.
            if matches!(self.executors.get(&id), Some(AnyExecutor::Soft(_)))
                && !self.steps.is_multiple_of(SOFT_TURN)
            {
                continue;
            }
            // The end of a stream's transfer writes its data when it is taken: what came before it must have
            // been handled.
            let ahead =
                if matches!(self.executors.get(&id), Some(AnyExecutor::Agent(_) | AnyExecutor::Other(_))) {
                    BATCH
                } else {
                    1
                };
            for _ in 0..BATCH / ahead {
                if !self.poll_executor(now, id, ahead) {
                    break;
                }
                worked = true;
            }
            if let Some(AnyExecutor::Peer(peer)) = self.executors.get(&id)
                && peer.is_dead()
            {
                self.remove_executor(now, id);
                worked = true;
            }
        }
        worked
    }

    /// Handles up to `most` entries of an executor, after telling the SSDs of all the commands among them: what
    /// those look for is on its way to the cache while the first is handled.
    fn poll_executor(&mut self, now: Time, id: ExecutorId, most: usize) -> bool {
        let mut batch = std::mem::take(&mut self.batch);
        if let Some(executor) = self.executors.get_mut(&id) {
            let executor = executor.get();
            while batch.len() < most
                && let Some(entry) = executor.poll()
            {
                batch.push((entry, None));
            }
        }
        for (entry, conn) in &mut batch {
            if entry.kind != UP_SEND {
                continue;
            }
            *conn = self.by_qp.get(&(id, entry.qpn)).copied();
            if let Some(To::Local(target)) = conn.and_then(|conn| self.conns.get(&conn)).map(|conn| conn.to) {
                self.targets[usize::from(target)].coming.push(sqe_of(&entry.payload));
            }
        }
        for target in self.targets.iter_mut().filter(|target| !target.coming.is_empty()) {
            target.controller.announce(&target.coming);
            target.coming.clear();
        }
        let worked = !batch.is_empty();
        for (entry, conn) in batch.drain(..) {
            self.on_up(now, id, &entry, conn);
        }
        self.batch = batch;
        worked
    }

    fn handle(&mut self, now: Time, at: Time, event: Event) {
        match event {
            Event::Capsule { conn, psn, message } => {
                let raw = self.messages.take(message);
                self.capsule_arrives(now, at, conn, psn, &raw);
            }
            Event::Acked { conn, psn } => self.acknowledged(conn, psn),
            Event::Arrived { tag } => self.finish_transfer(now, at, tag),
            Event::Answer { number } => self.hand_over(now, number),
            Event::Respond { conn, message, pushed, at } => {
                let cqe: [u8; 16] = *self.messages.items[message as usize].first_chunk().expect("64 bytes");
                let due = self.link.down(at, u64::from(pushed) + 16);
                let times = self.conns.get(&conn).map(|c| c.times(zerocopy::transmute!(cqe)));
                let allowance = times.map_or(Allowance::NEVER, |times| times.allowance(due));
                let lead = self.lead(conn);
                let deliver = Event::Deliver { conn, message, tries: 0, due, allowance };
                // An executor that holds responses until they are due may have one a little earlier: it is another
                // event otherwise.
                if lead >= SOON && due - lead <= now + SOON {
                    return self.handle(now, now, deliver);
                }
                self.schedule(now, due - lead, deliver);
            }
            Event::Deliver { conn, message, tries, due, allowance } => {
                let cqe: [u8; 16] = self.messages.take(message);
                let Some(c) = self.conns.get_mut(&conn) else { return };
                if c.broken() {
                    return;
                }
                let response: Cqe = zerocopy::transmute!(cqe);
                c.response_tries[usize::from(response.cid.get() & 0xFF)] = tries;
                let (executor, qpn) = (c.executor, c.qpn);
                if let Some(executor) = self.executors.get_mut(&executor) {
                    let executor = executor.get();
                    let due_ns = executor_ns(due, executor.clock_offset_ns());
                    executor.push(Down::Send { qpn, bytes: cqe, due_ns, allowance });
                }
            }
        }
    }
}
