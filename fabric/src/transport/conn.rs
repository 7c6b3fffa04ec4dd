// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One RC connection at the initiator: work requests in order, acknowledgements, error state and flush.
//!
//! Work requests retire in the order of the send queue. A failed one puts the queue pair into error;
//! everything behind it is flushed. No failure is reported while a transfer of the connection still moves.
//! When the owner reads the completion, nothing touches its buffers any more (protocol rule 9).

mod acks;

use super::times::Times;
use super::{ConnId, Event, ExecutorId, RcTransport, sqe_of};
use crate::hca::{Down, WorkRequest};
use crate::mlx5::{cqe_opcode, syndrome};
use gnstor_base::controller::QueueKey;
use gnstor_base::time::{Span, Time};
use gnstor_proto::fabrics::{self, fctype, fctype_of};
use gnstor_proto::nvme::Sqe;
use std::collections::VecDeque;

/// The other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum To {
    Local(u16),
    Remote(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Waiting(Time),
    /// A key was invalidated: the request waits until the HCA is quiescent, by this wait of the executor's.
    Quiescing(u64),
    Acked,
    Failed(u8),
}

/// A work request that has not been completed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    index: u16,
    signalled: bool,
    state: State,
}

impl Pending {
    pub(super) fn of(request: &WorkRequest, state: State) -> Self {
        Self { index: request.index, signalled: request.signalled, state }
    }
}

#[derive(Debug)]
pub(super) struct Conn {
    pub(super) executor: ExecutorId,
    pub(super) qpn: u32,
    pub(super) to: To,
    /// Transfers on their way through the executor.
    pub(super) transfers: u32,
    sent: VecDeque<Pending>,
    first_psn: u64,
    broken: bool,
    /// A response has been handed to the executor.
    pub(super) answered: bool,
    /// The SSD has admitted its queue.
    pub(super) is_admitted: bool,
    /// A proof has begun on its queue and is not over.
    is_proving: bool,
    /// The executor has said which receives to flush.
    flush_known: bool,
    /// The receive that failed and why, reported once nothing moves.
    rq_error: Option<(u16, u8)>,
    /// Receives to flush once nothing moves: first, past the last.
    rq_flush: Option<(u16, u16)>,
    /// Records of the commands in flight, by the low bits of the command id. A peer that has sent one command
    /// uses one block.
    commands: [Option<Box<CommandBlock>>; BLOCKS],
}

/// Command ids that share an allocation, and the blocks of a connection.
const BLOCK: usize = 16;
const BLOCKS: usize = 256 / BLOCK;

/// Record of a command in flight.
#[derive(Clone, Copy, Default, Debug)]
struct InFlight {
    times: Times,
    /// Number of times that its response found no receive.
    tries: u8,
}

type CommandBlock = [InFlight; BLOCK];

/// Block of a command id, and place in the block.
fn split(cid: u16) -> (usize, usize) {
    let low = usize::from(cid & 0xFF);
    (low / BLOCK, low % BLOCK)
}

impl Conn {
    pub(super) fn new(executor: ExecutorId, qpn: u32, to: To) -> Self {
        Self {
            executor,
            qpn,
            to,
            transfers: 0,
            sent: VecDeque::new(),
            first_psn: 0,
            broken: false,
            answered: false,
            is_admitted: false,
            is_proving: false,
            flush_known: false,
            rq_error: None,
            rq_flush: None,
            commands: [const { None }; BLOCKS],
        }
    }

    /// A connection whose requests are all flushed.
    pub(super) fn in_error(executor: ExecutorId, qpn: u32, to: To) -> Self {
        Self { broken: true, flush_known: true, ..Self::new(executor, qpn, to) }
    }

    pub(super) fn broken(&self) -> bool {
        self.broken
    }

    /// Whether it is broken and has nothing in flight.
    pub(super) fn is_over(&self) -> bool {
        let nothing_moves = self.transfers == 0 && self.sent.is_empty();
        self.broken && nothing_moves && self.flush_known && self.rq_flush.is_none()
    }

    /// Appends a work request; returns its packet sequence number.
    pub(super) fn push(&mut self, pending: Pending) -> u64 {
        self.sent.push_back(pending);
        self.first_psn + self.sent.len() as u64 - 1
    }

    fn in_flight_mut(&mut self, cid: u16) -> &mut InFlight {
        let (block, place) = split(cid);
        &mut self.commands[block].get_or_insert_default()[place]
    }

    /// The times of command `cid`.
    pub(super) fn times(&self, cid: u16) -> Times {
        let (block, place) = split(cid);
        self.commands[block].as_ref().map(|commands| commands[place].times).unwrap_or_default()
    }

    /// The times of command `cid`, to be changed.
    pub(super) fn times_mut(&mut self, cid: u16) -> &mut Times {
        &mut self.in_flight_mut(cid).times
    }

    /// Number of times that the response of command `cid` found no receive.
    pub(super) fn tries_mut(&mut self, cid: u16) -> &mut u8 {
        &mut self.in_flight_mut(cid).tries
    }

    /// Notes that a receive has failed.
    pub(super) fn receive_failed(&mut self, index: u16, syndrome: u8) {
        self.rq_error = Some((index, syndrome));
    }

    /// Notes the receives to flush.
    pub(super) fn flush_receives(&mut self, first: u16, end: u16) {
        self.rq_flush = Some((first, end));
        self.flush_known = true;
    }

    fn signalled(&self, psn: u64) -> bool {
        let position = usize::try_from(psn.wrapping_sub(self.first_psn)).unwrap_or(usize::MAX);
        self.sent.get(position).is_some_and(|pending| pending.signalled)
    }
}

/// Whether this is a message of a proof, which may cost the SSD a power.
fn is_of_proof(sqe: &Sqe) -> bool {
    sqe.opcode == fabrics::OPCODE && fctype_of(sqe) == fctype::AUTH_SEND
}

impl RcTransport {
    /// The capsule of request `psn` of a connection reaches its target at `at`.
    pub(super) fn capsule_arrives(&mut self, now: Time, at: Time, (id, psn): (ConnId, u64), raw: &[u8; 64]) {
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
            conn.times_mut(sqe.cid.get()).command_delay = t.clock.since(at);
        }
        t.controller.submit(t.clock, QueueKey(id.0), &sqe);
        if is_of_proof(&sqe) && self.conns.get(&id).is_some_and(|conn| !conn.is_admitted) {
            self.set_proving(id, true);
        }
        self.drain_effects(now, target);
    }

    /// A proof begins on the queue of a connection, or is over: its queue is admitted or closed.
    pub(super) fn set_proving(&mut self, id: ConnId, proves: bool) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if std::mem::replace(&mut conn.is_proving, proves) == proves {
            return;
        }
        if let Some(executor) = self.executors.get_mut(&conn.executor)
            && let Some(token) = executor.peer().and_then(|peer| peer.wire().token())
        {
            self.ready.count_proof(token, proves);
        }
    }

    /// Completes work requests from the front of the queue.
    pub(super) fn retire(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let Some(executor) = self.executors.get_mut(&conn.executor) else { return };
        let qpn = conn.qpn;
        let opcode = cqe_opcode::RESPONDER_ERROR;
        if conn.transfers == 0
            && let Some((counter, syndrome)) = conn.rq_error.take()
        {
            executor.push(Down::Cqe { qpn, opcode, syndrome, counter });
        }
        while let Some(front) = conn.sent.front().copied() {
            let (opcode, status) = match front.state {
                State::Waiting(_) | State::Quiescing(_) => break,
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

    /// Completes the invalidations of keys whose wait is over. Returns whether there was one.
    pub(super) fn check_quiesce(&mut self) -> bool {
        let mut worked = false;
        for id in std::mem::take(&mut self.quiescing) {
            let Some(conn) = self.conns.get_mut(&id) else { continue };
            let Some(executor) = self.executors.get_mut(&conn.executor) else { continue };
            let mut still = false;
            for pending in &mut conn.sent {
                match pending.state {
                    State::Quiescing(wait) if executor.is_quiescent(wait) => pending.state = State::Acked,
                    State::Quiescing(_) => still = true,
                    _ => {}
                }
            }
            if still {
                self.quiescing.push(id);
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
                self.waiting -= 1;
                next = syndrome::FLUSH;
            }
        }
        let (executor, qpn, to) = (conn.executor, conn.qpn, conn.to);
        // The queue pair may have a newer connection, which goes on.
        let is_its = self.by_qp.get(&(executor, qpn)) == Some(&id);
        if let Some(executor) = self.executors.get_mut(&executor).filter(|_| is_its) {
            executor.push(Down::QpError { qpn });
        }
        match to {
            To::Local(target) => {
                let t = &mut self.targets[usize::from(target)];
                if !t.silent {
                    t.clock = t.clock.max(now);
                    t.controller.close_queue(t.clock, QueueKey(id.0));
                    self.drain_effects(now, target);
                }
                self.set_proving(id, false);
            }
            To::Remote(remote) => {
                if let Some(r) = self.remotes.get_mut(&remote) {
                    r.send(&super::Frame::Close { conn: id.0 });
                }
            }
        }
        self.retire(id);
    }

    /// The host gives up a connection, because its peer does not answer on another one. Waiting requests end
    /// as flushed.
    pub fn give_up(&mut self, now: Time, id: ConnId) {
        self.break_conn(now, id, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host may hold thousands of queue pairs that have proven nothing.
    #[test]
    fn a_connection_takes_memory_for_the_command_ids_that_its_peer_uses() {
        let _deadline = gnstor_base::testing::deadline();
        let mut conn = Conn::new(ExecutorId(0), 7, To::Local(0));
        let blocks = |conn: &Conn| conn.commands.iter().flatten().count();
        assert_eq!(blocks(&conn), 0);
        *conn.tries_mut(0) = 3;
        conn.times_mut(15).command_delay = Span::from_ns(5);
        assert_eq!((blocks(&conn), *conn.tries_mut(0)), (1, 3));
        assert!(size_of::<Conn>() + size_of::<CommandBlock>() < 1200);
        // The low byte of a command id names its place.
        conn.times_mut(0x1FF).command_delay = Span::from_ns(9);
        let delay = |cid| conn.times(cid).command_delay;
        assert_eq!(
            [15, 0xFF, 0x2FF, 100].map(delay),
            [Span::from_ns(5), Span::from_ns(9), Span::from_ns(9), Span::default()]
        );
        assert_eq!(blocks(&conn), 2);
    }
}
