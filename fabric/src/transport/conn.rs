// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One RC connection at the initiator: work requests in order, acknowledgements, error state and flush.
//!
//! Work requests retire in the order of the send queue. A failed one puts the queue pair into error;
//! everything behind it is flushed. No failure is reported while a transfer of the connection is still
//! moving: when the owner reads the completion, nothing will touch its buffers any more (protocol rule 9).

use super::{ConnId, Event, ExecutorId, RcTransport, cqe_bytes, low16, sqe_of};
use crate::hca::abi::*;
use crate::hca::{Allowance, Down};
use crate::mlx5::{cqe_opcode, syndrome};
use gnstor_base::controller::QueueKey;
use gnstor_base::time::{Span, Time};
use gnstor_proto::nvme::Cqe;
use std::collections::VecDeque;
use std::sync::mpsc;

/// How many times longer a SEND over TCP may wait for its acknowledgement: the stream itself loses nothing,
/// and the software that answers at its other end, unlike an HCA, may be busy with its disk.
const REMOTE_PATIENCE: u64 = 10;

/// The other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum To {
    Local(u16),
    Remote(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Waiting(Time),
    /// A key was invalidated, and what was under way with it must be over first: this wait of the executor's.
    Settling(u64),
    Acked,
    Failed(u8),
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    index: u16,
    signalled: bool,
    state: State,
}

/// A command's times on the transport's clock.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Times {
    /// When the executor took the command from its owner: the model begins here.
    taken: Time,
    /// How long before that the owner had written the command, where it says so.
    untaken: Span,
    /// How much later than its modelled arrival the controller was given the command.
    command_delay: Span,
    /// Modelled arrival of the data that the controller pulled.
    data: Time,
    /// How much later the controller was told of it.
    data_delay: Span,
}

impl Times {
    /// When a response that is due at `due` counts as late.
    ///
    /// The model answers what it is given, when it is given it: delays of the emulator before that move
    /// `due`. The client's measure takes them out again, so that they are delays to the client, as the time
    /// is before the executor took the command.
    pub(super) fn allowance(&self, due: Time) -> Allowance {
        let waits = due.since(self.taken);
        let moved = self.command_delay + self.data_delay;
        let alone = Span::from_ps(waits.as_ps().saturating_sub(moved.as_ps()));
        let delay = self.untaken + moved;
        let late_ns = u32::try_from(slack(waits).as_ns()).unwrap_or(u32::MAX).min(Allowance::NEVER.late_ns);
        let ns = |span: Span| i64::try_from(span.as_ns()).unwrap_or(i64::MAX);
        let client = ns(slack(alone)).saturating_sub(ns(delay));
        let least = if client < 0 { i32::MIN } else { i32::MAX };
        Allowance { late_ns, client_late_ns: i32::try_from(client).unwrap_or(least) }
    }
}

/// How long after its modelled time a response that takes `modelled` counts as late.
fn slack(modelled: Span) -> Span {
    Span::from_ps((modelled.as_ps() / 20).max(Span::from_ns(2000).as_ps()))
}

/// How long the client had waited when the executor took its SEND, by the clock that they share.
fn untaken(e: &UpEntry) -> Span {
    let stamp = e.client_stamp();
    if e.stamp_ns == 0 || stamp == 0 {
        return Span::ZERO;
    }
    #[expect(clippy::cast_possible_truncation, reason = "the low half of the clock")]
    let ago = (e.stamp_ns as u32).wrapping_sub(stamp);
    // The last bit of a stamp is not the clock's, and parts of a GPU do not read the same nanosecond.
    if ago.cast_signed() < 0 { Span::ZERO } else { Span::from_ns(ago.into()) }
}

#[derive(Debug)]
pub(super) struct Conn {
    pub(super) executor: ExecutorId,
    pub(super) qpn: u32,
    pub(super) to: To,
    /// Transfers on their way through the executor.
    pub(super) transfers: u32,
    /// How often a response found no receive, by the low bits of its command id.
    pub(super) response_tries: Box<[u8; 256]>,
    sent: VecDeque<Pending>,
    first_psn: u64,
    broken: bool,
    /// The receive that failed and why, reported once nothing moves.
    rq_error: Option<(u16, u8)>,
    /// Receives to flush once nothing moves: first, past the last.
    rq_flush: Option<(u16, u16)>,
    /// Times of the commands in flight, by the low bits of the command id.
    times: Box<[Times; 256]>,
}

impl Conn {
    pub(super) fn new(executor: ExecutorId, qpn: u32, to: To) -> Self {
        Self {
            executor,
            qpn,
            to,
            transfers: 0,
            response_tries: Box::new([0; 256]),
            sent: VecDeque::new(),
            first_psn: 0,
            broken: false,
            rq_error: None,
            rq_flush: None,
            times: Box::new([Times::default(); 256]),
        }
    }

    pub(super) fn broken(&self) -> bool {
        self.broken
    }

    /// The times of the command that this completion ends.
    pub(super) fn times(&self, cqe: Cqe) -> &Times {
        &self.times[usize::from(cqe.cid.get() & 0xFF)]
    }

    /// The controller hears at `heard` that data of a command is there, which the model has arrive at
    /// `modelled`.
    pub(super) fn data_arrived(&mut self, cid: u16, modelled: Time, heard: Time) {
        let times = &mut self.times[usize::from(cid & 0xFF)];
        times.data = times.data.max(modelled);
        times.data_delay = heard.since(times.data);
    }

    fn signalled(&self, psn: u64) -> bool {
        let position = usize::try_from(psn.wrapping_sub(self.first_psn)).unwrap_or(usize::MAX);
        self.sent.get(position).is_some_and(|pending| pending.signalled)
    }

    fn oldest_waiting(&self) -> Option<Time> {
        self.sent.iter().find_map(|p| if let State::Waiting(at) = p.state { Some(at) } else { None })
    }
}

impl RcTransport {
    /// Handles an entry; `known` is the connection of its queue pair, where that has been looked up and is
    /// still there.
    pub(super) fn on_up(&mut self, now: Time, executor: ExecutorId, e: &UpEntry, known: Option<ConnId>) {
        if e.kind == UP_PONG {
            return self.pong(now, executor, e);
        }
        if self.ended(now, executor, e) {
            return;
        }
        if e.kind == crate::tcp::UP_CONNECT {
            return self.peer_connects(now, executor, e);
        }
        let known = known.filter(|id| self.conns.get(id).is_some());
        let Some(id) = known.or_else(|| self.by_qp.get(&(executor, e.qpn)).copied()) else {
            tracing::debug!("entry of kind {} for an unconnected queue pair {}", e.kind, e.qpn);
            return;
        };
        if e.kind == crate::tcp::UP_CLOSE {
            return self.close(now, id);
        }
        let nominal = self.stamp(now, executor, e);
        let conn = self.conns.get_mut(&id).expect("by_qp names live connections");
        let pending =
            |state| Pending { index: low16(e.index), signalled: e.flags & UP_SIGNALLED != 0, state };
        match e.kind {
            UP_SEND if conn.broken => conn.sent.push_back(pending(State::Failed(syndrome::FLUSH))),
            UP_SEND => {
                conn.sent.push_back(pending(State::Waiting(now)));
                let psn = conn.first_psn + conn.sent.len() as u64 - 1;
                let sqe = sqe_of(&e.payload);
                conn.times[usize::from(sqe.cid.get() & 0xFF)] =
                    Times { taken: nominal, untaken: untaken(e), ..Times::default() };
                self.counters.capsules += 1;
                self.counters.fetch_time = self.counters.fetch_time + now.since(nominal);
                match conn.to {
                    To::Local(_) => {
                        let at = self.link.up(nominal, u64::from(e.bytes));
                        if self.is_next(now, at) {
                            self.capsule_arrives(now, at, id, psn, &e.payload);
                        } else {
                            let message = self.messages.put(&e.payload);
                            self.queue(at, Event::Capsule { conn: id, psn, message });
                        }
                    }
                    To::Remote(remote) => self.remote_capsule(remote, id, e),
                }
                // What there was to complete has been completed with its acknowledgement.
                return;
            }
            UP_NOP | UP_DUMP | UP_LOCAL_INVAL if conn.broken => {
                conn.sent.push_back(pending(State::Failed(syndrome::FLUSH)));
            }
            // A DUMP is done when it is reported: its bytes were read, and all that was to be seen before
            // them has been completed.
            UP_NOP | UP_DUMP => conn.sent.push_back(pending(State::Acked)),
            UP_LOCAL_INVAL => {
                let wait = self.executors.get_mut(&executor).map_or(0, |executor| executor.get().settle());
                conn.sent.push_back(pending(State::Settling(wait)));
                self.settling.push(id);
            }
            // The only peers are NVMe targets: they expose no memory to RDMA WRITE or READ, and no key to
            // invalidate.
            UP_WRITE | UP_READ | UP_SEND_INVAL => {
                conn.sent.push_back(pending(State::Failed(syndrome::REMOTE_ACCESS)));
                self.break_conn(now, id, None);
            }
            UP_WQE_ERROR => {
                #[expect(clippy::cast_possible_truncation, reason = "a syndrome is a byte")]
                conn.sent.push_back(pending(State::Failed(e.status as u8)));
                self.break_conn(now, id, None);
            }
            UP_WQE_FLUSH => conn.sent.push_back(pending(State::Failed(syndrome::FLUSH))),
            UP_RNR => self.no_receive(now, id, e),
            UP_RECV_ERROR => {
                #[expect(clippy::cast_possible_truncation, reason = "a syndrome is a byte")]
                let status = e.status as u8;
                conn.rq_error = Some((low16(e.index), status));
                self.break_conn(now, id, None);
            }
            UP_CQ_ERROR => {
                tracing::warn!(
                    "the completion queue of queue pair {} has overrun: its owner does not take completions",
                    e.qpn
                );
                self.break_conn(now, id, None);
            }
            UP_RQ_FLUSH => conn.rq_flush = Some((low16(e.index), low16(e.status))),
            other => tracing::warn!("up entry of unknown kind {other}"),
        }
        self.retire(id);
    }

    /// The modelled time of an entry: when the executor took the work, on the transport's clock, never in the
    /// future.
    fn stamp(&mut self, now: Time, executor: ExecutorId, e: &UpEntry) -> Time {
        if e.stamp_ns == 0 || !self.best_rtt.contains_key(&executor) {
            return now;
        }
        let offset = self.executors.get_mut(&executor).map_or(0, |h| h.get().clock_offset_ns());
        let ns = i128::from(e.stamp_ns) + i128::from(offset);
        Time::from_ns(u64::try_from(ns).unwrap_or(0)).min(now)
    }

    fn pong(&mut self, now: Time, executor: ExecutorId, e: &UpEntry) {
        let Some((sent, to_follow)) = self.pings.remove(&(executor, e.index)) else { return };
        if to_follow > 0 {
            self.ping(now, executor, to_follow - 1);
        }
        if to_follow == super::PINGS {
            return;
        }
        let rtt = now.since(sent).as_ns();
        if self.best_rtt.get(&executor).is_none_or(|&best| rtt < best) {
            self.best_rtt.insert(executor, rtt);
            let middle = i128::from(sent.as_ns()) + i128::from(rtt / 2);
            let offset = i64::try_from(middle - i128::from(e.stamp_ns)).unwrap_or(0);
            if let Some(h) = self.executors.get_mut(&executor) {
                h.get().set_clock_offset_ns(offset, rtt);
            }
        }
    }

    pub(super) fn capsule_arrives(&mut self, now: Time, at: Time, id: ConnId, psn: u64, raw: &[u8; 64]) {
        let Some(conn) = self.conns.get(&id) else { return };
        let To::Local(target) = conn.to else { return };
        if conn.broken || self.targets[usize::from(target)].silent {
            return;
        }
        let back = at + self.link.config().latency;
        // The owner cannot see when an unsignalled SEND is acknowledged.
        let signalled = conn.signalled(psn);
        self.schedule(now, if signalled { back } else { now }, Event::Acked { conn: id, psn });
        let t = &mut self.targets[usize::from(target)];
        t.clock = t.clock.max(at);
        let sqe = sqe_of(raw);
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.times[usize::from(sqe.cid.get() & 0xFF)].command_delay = t.clock.since(at);
        }
        t.controller.submit(t.clock, QueueKey(id.0), &sqe);
        self.drain_effects(now, target);
    }

    /// Everything up to `psn` has arrived at the peer.
    pub(super) fn acknowledged(&mut self, id: ConnId, psn: u64) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        for (p, pending) in (conn.first_psn..).zip(conn.sent.iter_mut()) {
            if p > psn {
                break;
            }
            if matches!(pending.state, State::Waiting(_)) {
                pending.state = State::Acked;
            }
        }
        self.retire(id);
    }

    /// The peer has acknowledged the oldest work request that waits.
    pub(super) fn acknowledge_next(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get(&id) {
            let waiting = conn.sent.iter().position(|p| matches!(p.state, State::Waiting(_)));
            if let Some(position) = waiting {
                self.acknowledged(id, conn.first_psn + position as u64);
            }
        }
    }

    /// Completes work requests from the front of the queue.
    pub(super) fn retire(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let Some(executor) = self.executors.get_mut(&conn.executor) else { return };
        let executor = executor.get();
        let qpn = conn.qpn;
        let opcode = cqe_opcode::RESPONDER_ERROR;
        if conn.transfers == 0
            && let Some((counter, syndrome)) = conn.rq_error.take()
        {
            executor.push(Down::Cqe { qpn, opcode, syndrome, counter });
        }
        while let Some(front) = conn.sent.front().copied() {
            let (opcode, status) = match front.state {
                State::Waiting(_) | State::Settling(_) => break,
                State::Acked => (cqe_opcode::REQUESTER, 0),
                State::Failed(_) if conn.transfers > 0 => break,
                State::Failed(status) => (cqe_opcode::REQUESTER_ERROR, status),
            };
            conn.sent.pop_front();
            conn.first_psn += 1;
            if front.signalled || opcode == cqe_opcode::REQUESTER_ERROR {
                executor.push(Down::Cqe { qpn, opcode, syndrome: status, counter: front.index });
            }
        }
        if conn.transfers == 0
            && conn.sent.is_empty()
            && let Some((mut at, end)) = conn.rq_flush.take()
        {
            while at != end {
                executor.push(Down::Cqe { qpn, opcode, syndrome: syndrome::FLUSH, counter: at });
                at = at.wrapping_add(1);
            }
        }
    }

    /// Completes invalidations of keys with which nothing is under way any more. Returns whether there was
    /// one.
    pub(super) fn check_settling(&mut self) -> bool {
        let mut worked = false;
        for id in std::mem::take(&mut self.settling) {
            let Some(conn) = self.conns.get_mut(&id) else { continue };
            let Some(executor) = self.executors.get_mut(&conn.executor) else { continue };
            let executor = executor.get();
            let mut still = false;
            for pending in &mut conn.sent {
                match pending.state {
                    State::Settling(wait) if executor.settled(wait) => pending.state = State::Acked,
                    State::Settling(_) => still = true,
                    _ => {}
                }
            }
            if still {
                self.settling.push(id);
            } else {
                worked = true;
            }
            self.retire(id);
        }
        worked
    }

    /// Puts a connection into error: `first` is the syndrome of the oldest request that waits, the others are
    /// flushed.
    pub(super) fn break_conn(&mut self, now: Time, id: ConnId, first: Option<u8>) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.broken {
            return;
        }
        conn.broken = true;
        self.counters.broken += 1;
        let mut next = first.unwrap_or(syndrome::FLUSH);
        for pending in &mut conn.sent {
            if matches!(pending.state, State::Waiting(_)) {
                pending.state = State::Failed(next);
                next = syndrome::FLUSH;
            }
        }
        let (executor, qpn, to) = (conn.executor, conn.qpn, conn.to);
        if let Some(executor) = self.executors.get_mut(&executor) {
            executor.get().push(Down::QpError { qpn });
        }
        match to {
            To::Local(target) => {
                let t = &mut self.targets[usize::from(target)];
                if !t.silent {
                    t.clock = t.clock.max(now);
                    t.controller.close_queue(t.clock, QueueKey(id.0));
                    self.drain_effects(now, target);
                }
            }
            To::Remote(remote) => {
                if let Some(r) = self.remotes.get_mut(&remote) {
                    r.send(&super::Frame::Close { conn: id.0 });
                }
            }
        }
        self.retire(id);
    }

    /// The host gives a connection up, because its peer no longer answers on another one: requests that wait
    /// end as flushed.
    pub fn give_up(&mut self, now: Time, id: ConnId) {
        self.break_conn(now, id, None);
    }

    fn no_receive(&mut self, now: Time, id: ConnId, e: &UpEntry) {
        self.counters.rnr += 1;
        let conn = self.conns.get_mut(&id).expect("checked by the caller");
        let response: Cqe = zerocopy::transmute!(e.arg);
        let tries = &mut conn.response_tries[usize::from(response.cid.get() & 0xFF)];
        *tries += 1;
        let tries = *tries;
        if tries > self.config.rnr_retries {
            // The failing request is the target's: this side's own requests are flushed.
            return self.break_conn(now, id, None);
        }
        let cqe: [u8; 16] = zerocopy::transmute!(e.arg);
        let at = now + self.config.rnr_timer;
        let message = self.messages.put(&cqe);
        self.schedule(
            now,
            at,
            Event::Deliver { conn: id, message, tries, due: at, allowance: Allowance::AT_ONCE },
        );
    }

    pub(super) fn check_timeouts(&mut self, now: Time) {
        let limit = |c: &Conn| match c.to {
            To::Local(_) => self.config.ack_timeout,
            To::Remote(_) => Span::from_ps(self.config.ack_timeout.as_ps().saturating_mul(REMOTE_PATIENCE)),
        };
        let late = |c: &Conn| !c.broken && c.oldest_waiting().is_some_and(|at| now.since(at) > limit(c));
        let mut ids: Vec<ConnId> = self.conns.iter().filter(|(_, c)| late(c)).map(|(id, _)| id).collect();
        ids.sort_unstable();
        for id in ids {
            self.break_conn(now, id, Some(syndrome::RETRY_EXCEEDED));
        }
    }

    fn peer_connects(&mut self, now: Time, executor: ExecutorId, e: &UpEntry) {
        let (request, ssd) = crate::tcp::connect_of(e);
        let (reply, answer) = mpsc::channel();
        // A number names one connection: a second one of the same number would make the first unreachable.
        let target = ssd.checked_sub(self.first_ssd).filter(|_| !self.by_qp.contains_key(&(executor, e.qpn)));
        if let Some(target) = target {
            self.connect(now, executor, e.qpn, super::Port::Local(target), &request, reply);
        }
        let refused = answer.try_recv().unwrap_or(Err(super::REFUSED_NO_PEER)).err().unwrap_or(0);
        if let Some(super::AnyExecutor::Peer(peer)) = self.executors.get_mut(&executor) {
            peer.answer_connect(e.qpn, refused);
        }
    }

    /// A response from a remote SSD reached this process.
    pub(super) fn remote_response(&mut self, id: ConnId, cqe: Cqe) {
        let Some(conn) = self.conns.get(&id) else { return };
        if conn.broken {
            return;
        }
        let (executor, qpn) = (conn.executor, conn.qpn);
        if let Some(executor) = self.executors.get_mut(&executor) {
            // Over a real network nothing is modelled, so nothing is late.
            let allowance = Allowance::NEVER;
            executor.get().push(Down::Send { qpn, bytes: cqe_bytes(cqe), due_ns: 0, allowance });
        }
    }
}
