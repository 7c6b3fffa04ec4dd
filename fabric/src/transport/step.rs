// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One step of a transport: it handles the executors' reports, the events that are due, and the effects of
//! the SSDs.

use super::clock::executor_ns;
use super::conn::To;
use super::executors::Polled;
use super::ready::TICK;
use super::{ConnId, Delivery, Event, ExecutorId, RcTransport, Respond, sqe_of};
use crate::hca::{Allowance, Down, Operation, STEP_REPORTS, Up};
use gnstor_base::time::{Clock, Span, Time};
use gnstor_proto::nvme::Cqe;

/// What a transport waits for, apart from unannounced work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waits {
    /// When its next event is due that was not due at its last look.
    pub next: Option<Time>,
    /// Whether an SSD that was due at the last look still is: it waits for another thread.
    pub is_due: bool,
    /// Whether an executor moves data for it, or an executor or a stream may have work at any time without
    /// waking the thread.
    pub polls: bool,
}

/// The link's part of a response's way, more or less.
const SOON: Span = Span::from_ns(4000);
/// An SSD whose next step is at least this far away does nothing meanwhile.
const FAR: Span = Span::from_ms(1);

impl RcTransport {
    /// Handles an event at its time. It does so at once if that time has come and no earlier event waits.
    pub(super) fn schedule(&mut self, now: Time, at: Time, event: Event) {
        if self.is_next(now, at) {
            return self.handle(now, at, event);
        }
        self.queue(at, event);
    }

    /// An SSD will be done with a command at `response.at`. The transport hands the response over earlier, by
    /// the time that the hand-over takes.
    pub(super) fn respond(&mut self, now: Time, response: Respond) {
        let from = response.at.before(self.lead(response.conn));
        self.schedule(now, from, Event::Respond(response));
    }

    /// Whether an event at `at` has its turn now.
    pub(super) fn is_next(&self, now: Time, at: Time) -> bool {
        at <= now && self.events.first().is_none_or(|first| first > at)
    }

    pub(super) fn queue(&mut self, at: Time, event: Event) {
        self.events.push(at, event);
    }

    /// Does all that is due. Returns whether anything happened.
    ///
    /// The step takes the input first and reads the clock afterwards. So no command is judged by a time
    /// before its arrival, however long the process was stopped in between. An SSD whose lease ended
    /// meanwhile refuses it (protocol rule 2).
    pub fn step(&mut self, mut clock: impl Clock) -> bool {
        self.step_by(&mut clock)
    }

    fn step_by(&mut self, clock: &mut dyn Clock) -> bool {
        let all = std::mem::take(&mut self.poll_all);
        let mut worked = self.poll_executors(clock, all);
        let mut now = clock.now();
        self.resume(now);
        if worked {
            self.newcomers.serve(now);
        }
        worked |= self.reap_leaving(now);
        worked |= self.check_quiesce();
        if self.poll_streams(clock, now, all) {
            now = clock.now();
            self.resume(now);
            worked = true;
        }
        if self.has_ended_remotes {
            self.forget_ended_remotes();
        }
        while let Some((at, event)) = self.events.pop_due(now) {
            self.handle(now, at, event);
            worked = true;
        }
        if worked {
            now = clock.now();
            self.resume(now);
        }
        worked |= self.step_targets(clock, now);
        if self.ack_alarm().is_some_and(|at| at <= now) {
            self.check_acknowledgements(now);
            worked = true;
        }
        worked |= self.send_asks(now);
        let since_last = now.since(self.last_look);
        if since_last >= TICK {
            self.last_look = now;
            self.end_idle_remotes(now);
            self.tick_streams(now, since_last);
        }
        self.counters.steps[usize::from(!worked)] += 1;
        worked
    }

    /// Steps the SSDs that are due, each at the time of its step. Other threads book the firmware of an SSD
    /// up to their own times, so a step with an older time would find it busy.
    fn step_targets(&mut self, clock: &mut dyn Clock, mut now: Time) -> bool {
        let mut worked = false;
        for i in 0..self.targets.len() {
            let t = &mut self.targets[i];
            if t.silent || t.controller.next_event().is_none_or(|at| at > now) {
                continue;
            }
            t.clock = t.clock.max(now);
            t.controller.step(t.clock);
            let has_effects = self.drain_effects(now, u16::try_from(i).expect("few targets"));
            worked |= has_effects || self.is_at_work(now, i);
            now = clock.now();
            self.resume(now);
        }
        worked
    }

    /// Whether an SSD is at work, after it stepped and had nothing for the link. An SSD that is still due
    /// keeps checking for another thread's work, and leaves the core to that thread. An SSD that is due later
    /// waits for a disk, and polling for that would keep a core awake.
    fn is_at_work(&self, now: Time, target: usize) -> bool {
        let next = self.targets[target].controller.next_event();
        next.is_some_and(|at| at > now && at.since(now) < FAR)
    }

    /// Whether anything is under way.
    pub fn busy(&self) -> bool {
        !self.events.is_empty() || self.is_moving()
    }

    /// Whether an executor moves data for this transport, or invalidates a key.
    fn is_moving(&self) -> bool {
        !self.transfers.is_empty() || !self.fused.is_empty() || !self.quiescing.is_empty()
    }

    /// What the thread of an idle transport waits for. The last step read the clock at `looked` or later.
    pub fn waits(&self, looked: Time) -> Waits {
        let must = |polled: &Polled| self.executors.get(&polled.id).is_some_and(|e| e.must_be_polled());
        let polls = self.is_moving() || self.ready.must_be_polled() || self.order.iter().any(must);
        let mut waits = Waits { polls, ..Waits::default() };
        for at in self.next_events().chain(self.ready.next_tick(self.last_look)) {
            if at <= looked {
                waits.is_due = true;
            } else {
                waits.next = Some(waits.next.map_or(at, |next| next.min(at)));
            }
        }
        waits
    }

    /// The next step polls every executor, whatever its interval. Call this after a pause.
    pub fn look_everywhere(&mut self) {
        self.poll_all = true;
    }

    /// When the next modelled event is due, or a wait for an acknowledgement may end: for a virtual clock.
    pub fn next_event(&self) -> Option<Time> {
        self.next_events().min()
    }

    /// The next event of each SSD, of the link and of the waits for acknowledgements.
    fn next_events(&self) -> impl Iterator<Item = Time> {
        let targets = self.targets.iter().filter(|t| !t.silent).filter_map(|t| t.controller.next_event());
        targets.chain(self.events.first()).chain(self.ack_alarm())
    }

    fn lead(&self, conn: ConnId) -> Span {
        let executor = self.conns.get(&conn).and_then(|c| self.executors.get(&c.executor));
        executor.map_or(Span::ZERO, |executor| Span::from_ns(executor.lead_ns()))
    }

    fn poll_executors(&mut self, clock: &mut dyn Clock, all: bool) -> bool {
        let mut worked = false;
        self.steps = self.steps.wrapping_add(1);
        for i in 0..self.order.len() {
            let Some(&Polled { id, interval, ahead }) = self.order.get(i) else { break };
            if !all && !self.steps.is_multiple_of(interval) {
                continue;
            }
            for _ in 0..STEP_REPORTS / ahead {
                if !self.poll_executor(clock, id, ahead) {
                    break;
                }
                worked = true;
            }
            if self.executors.get(&id).is_some_and(|executor| executor.is_dead()) {
                self.remove_executor(clock.now(), id);
                worked = true;
            }
        }
        worked
    }

    /// Handles up to `most` reports of an executor. First it announces all commands among them to the SSDs,
    /// which prefetch what these need while the first is handled. Reads the clock when it has taken them.
    pub(super) fn poll_executor(&mut self, clock: &mut dyn Clock, id: ExecutorId, most: usize) -> bool {
        let mut batch = std::mem::take(&mut self.batch);
        if let Some(executor) = self.executors.get_mut(&id) {
            while batch.len() < most
                && let Some(up) = executor.poll()
            {
                batch.push((up, None));
            }
        }
        for (up, conn) in &mut batch {
            let Up::Request(request) = up else { continue };
            let Operation::Send { capsule, .. } = &request.operation else { continue };
            *conn = self.by_qp.get(&(id, request.qpn)).copied();
            if let Some(To::Local(target)) = conn.and_then(|conn| self.conns.get(&conn)).map(|conn| conn.to) {
                self.targets[usize::from(target)].coming.push(sqe_of(capsule));
            }
        }
        for target in self.targets.iter_mut().filter(|target| !target.coming.is_empty()) {
            target.controller.announce(&target.coming);
            target.coming.clear();
        }
        let worked = !batch.is_empty();
        if worked {
            let now = clock.now();
            for (up, conn) in batch.drain(..) {
                self.on_up(now, id, &up, conn);
            }
        }
        self.batch = batch;
        worked
    }

    fn handle(&mut self, now: Time, at: Time, event: Event) {
        match event {
            Event::Capsule { conn, psn, message } => {
                let raw = self.messages.take(message);
                self.capsule_arrives(now, at, (conn, psn), &raw);
            }
            Event::Acked { conn, psn } => self.acknowledged(conn, psn),
            Event::Arrived { tag } => self.finish_transfer(now, at, tag),
            Event::Fused { number } => self.hand_over(now, number),
            Event::Respond(response) => self.send_response(now, response),
            Event::Deliver(delivery) => self.deliver(delivery),
        }
    }

    /// Books the link for a response, which is delivered when it is due.
    fn send_response(&mut self, now: Time, response: Respond) {
        let Respond { conn, message, pushed, at } = response;
        let cqe: Cqe = zerocopy::transmute!(self.messages.peek::<16>(message));
        let due = self.link.down(at, u64::from(pushed) + 16);
        let times = self.conns.get(&conn).map(|c| c.times(cqe.cid.get()));
        let allowance = times.map_or(Allowance::NEVER, |times| times.allowance(due));
        let lead = self.lead(conn);
        let deliver = Event::Deliver(Delivery { conn, message, tries: 0, due, allowance });
        // An executor that holds responses until they are due may get one slightly earlier. Otherwise this
        // would need another event.
        if lead >= SOON && due - lead <= now + SOON {
            return self.handle(now, now, deliver);
        }
        self.schedule(now, due - lead, deliver);
    }

    fn deliver(&mut self, delivery: Delivery) {
        let Delivery { conn, message, tries, due, allowance } = delivery;
        let bytes: [u8; 16] = self.messages.take(message);
        let Some(c) = self.conns.get_mut(&conn).filter(|c| !c.broken()) else { return };
        let response: Cqe = zerocopy::transmute!(bytes);
        *c.tries_mut(response.cid.get()) = tries;
        c.answered = true;
        let qpn = c.qpn;
        if let Some(executor) = self.executors.get_mut(&c.executor) {
            let due_ns = executor_ns(due, executor.clock_offset_ns());
            executor.push(Down::Send { qpn, bytes, due_ns, allowance });
        }
    }
}
