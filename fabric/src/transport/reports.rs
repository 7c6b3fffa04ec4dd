// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handles the reports of executors: work requests enter the send queue of their connection, and failures
//! break it.

use super::conn::{Pending, State, To};
use super::times::{Times, untaken};
use super::{ConnId, Connect, Delivery, Event, ExecutorId, Port, RcTransport, cqe_bytes, sqe_of};
use crate::cm::REFUSED_NO_PEER;
use crate::hca::{Allowance, Down, Operation, Up, WorkRequest};
use crate::mlx5::syndrome;
use gnstor_base::time::{Span, Time};
use gnstor_proto::fabrics::CmRequest;
use gnstor_proto::nvme::Cqe;
use std::sync::mpsc;

/// The model hides up to so much of the time between an executor's stamp and the transport's look at the
/// command. A stamp may be further back because the two clocks have drifted apart since they were compared.
/// An SSD that judged by it would serve after its lease, so this is below the drift bound of 10 ms.
const HIDDEN: Span = Span::from_ms(5);

/// A command on its way to its target.
struct Capsule<'a> {
    /// Time at which the executor took it, on the transport's clock.
    taken: Time,
    bytes: u32,
    psn: u64,
    to: To,
    raw: &'a [u8; 64],
}

impl RcTransport {
    /// Handles a report; `known` is the connection of its queue pair, where that has been looked up.
    pub(super) fn on_up(&mut self, now: Time, executor: ExecutorId, up: &Up, known: Option<ConnId>) {
        match up {
            Up::Request(request) => self.on_request(now, executor, request, known),
            Up::Copied(copied) => self.copied(now, executor, copied),
            Up::FusedDone { tag, status } => self.fused_done(now, executor, *tag, *status),
            Up::Pong { tag, stamp_ns } => self.pong(now, executor, *tag, *stamp_ns),
            Up::QpAnew { tag, .. } => self.begun_anew(executor, *tag),
            Up::NoReceive { qpn, bytes } => {
                if let Some(id) = self.conn_of(executor, *qpn) {
                    self.no_receive(now, id, bytes);
                }
            }
            Up::ReceiveFailed { qpn, index, syndrome } => {
                let Some(id) = self.conn_of(executor, *qpn) else { return };
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.receive_failed(*index, *syndrome);
                }
                self.break_conn(now, id, None);
                self.retire(id);
            }
            Up::FlushReceives { qpn, first, end } => {
                let Some(id) = self.conn_of(executor, *qpn) else { return };
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.flush_receives(*first, *end);
                }
                self.retire(id);
            }
            Up::CqOverrun { qpn } => {
                let Some(id) = self.conn_of(executor, *qpn) else { return };
                let cause = "its owner does not take completions";
                tracing::warn!("the completion queue of queue pair {qpn} has overrun: {cause}");
                self.break_conn(now, id, None);
            }
            Up::Connect { qpn, ssd, request } => {
                let ssd = ssd.checked_sub(self.first_ssd);
                let port = ssd.map(Port::Local);
                self.peer_connects(now, executor, *qpn, port.map(|port| (port, request)));
            }
            Up::Close { qpn } => {
                if let Some(id) = self.conn_of(executor, *qpn) {
                    self.close(now, id);
                }
            }
        }
    }

    /// The connection of a queue pair.
    fn conn_of(&self, executor: ExecutorId, qpn: u32) -> Option<ConnId> {
        let id = self.by_qp.get(&(executor, qpn)).copied();
        if id.is_none() {
            tracing::debug!("a report for queue pair {qpn}, which is not connected");
        }
        id
    }

    fn on_request(&mut self, now: Time, executor: ExecutorId, request: &WorkRequest, known: Option<ConnId>) {
        let known = known.filter(|id| self.conns.get(id).is_some());
        let Some(id) = known.or_else(|| self.conn_of(executor, request.qpn)) else { return };
        let taken = self.taken_at(now, executor, request.stamp_ns);
        let conn = self.conns.get_mut(&id).expect("by_qp names live connections");
        let state = match &request.operation {
            Operation::Failed { syndrome } => State::Failed(*syndrome),
            // The only peers are NVMe targets: they expose no memory and no key.
            Operation::Remote => State::Failed(syndrome::REMOTE_ACCESS),
            Operation::Flushed => State::Failed(syndrome::FLUSH),
            _ if conn.broken() => State::Failed(syndrome::FLUSH),
            Operation::Send { bytes, capsule } => {
                let psn = conn.push(Pending::of(request, State::Waiting(now)));
                let to = conn.to;
                *conn.times_mut(sqe_of(capsule).cid.get()) = Times::of(taken, untaken(request));
                let capsule = Capsule { taken, bytes: *bytes, psn, to, raw: capsule };
                self.await_acknowledgement(now, to);
                // The acknowledgement completes the request. Until then nothing can be retired.
                return self.send_capsule(now, id, &capsule);
            }
            // A DUMP is done when it is reported: its bytes were read, and all that was to be seen before
            // them has been completed.
            Operation::Nop | Operation::Dump => State::Acked,
            Operation::LocalInval => {
                self.quiescing.push(id);
                State::Quiescing(self.executors.get_mut(&executor).map_or(0, |executor| executor.quiesce()))
            }
        };
        conn.push(Pending::of(request, state));
        if matches!(request.operation, Operation::Failed { .. } | Operation::Remote) {
            self.break_conn(now, id, None);
        }
        self.retire(id);
    }

    fn send_capsule(&mut self, now: Time, id: ConnId, capsule: &Capsule<'_>) {
        let &Capsule { taken, bytes, psn, to, raw } = capsule;
        self.counters.capsules += 1;
        self.counters.fetch_time = self.counters.fetch_time + now.since(taken);
        match to {
            To::Local(_) => {
                let at = self.link.up(taken.max(now.before(HIDDEN)), u64::from(bytes));
                if self.is_next(now, at) {
                    self.capsule_arrives(now, at, (id, psn), raw);
                } else {
                    let message = self.messages.put(raw);
                    self.queue(at, Event::Capsule { conn: id, psn, message });
                }
            }
            To::Remote(remote) => self.remote_capsule(remote, id, raw),
        }
    }

    fn no_receive(&mut self, now: Time, id: ConnId, response: &[u8; 16]) {
        self.counters.rnr += 1;
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let cqe: Cqe = zerocopy::transmute!(*response);
        let tries = conn.tries_mut(cqe.cid.get());
        *tries += 1;
        let tries = *tries;
        if tries > self.config.rnr_retries {
            // The failing request is the target's: this side's own requests are flushed.
            return self.break_conn(now, id, None);
        }
        let due = now + self.config.rnr_timer;
        let message = self.messages.put(response);
        let allowance = Allowance::AT_ONCE;
        self.schedule(now, due, Event::Deliver(Delivery { conn: id, message, tries, due, allowance }));
    }

    /// A client of another process connects; `to` is `None` where no SSD has the number that it names.
    fn peer_connects(&mut self, now: Time, executor: ExecutorId, qpn: u32, to: Option<(Port, &CmRequest)>) {
        let (reply, answer) = mpsc::channel();
        // A number identifies one connection. A second one with the same number would make the first
        // unreachable.
        let is_free = !self.by_qp.contains_key(&(executor, qpn));
        if let Some((port, request)) = to.filter(|_| is_free) {
            self.connect(now, Connect { executor, qpn, port, request: *request }, reply);
        }
        let refused = answer.try_recv().unwrap_or(Err(REFUSED_NO_PEER)).err().unwrap_or(0);
        if let Some(executor) = self.executors.get_mut(&executor) {
            executor.reply_connect(qpn, refused);
        }
    }

    /// A response from a remote SSD reached this process.
    pub(super) fn remote_response(&mut self, id: ConnId, cqe: Cqe) {
        let Some(conn) = self.conns.get(&id) else { return };
        if conn.broken() {
            return;
        }
        let (executor, qpn) = (conn.executor, conn.qpn);
        if let Some(executor) = self.executors.get_mut(&executor) {
            // Over a real network nothing is modelled, so nothing is late.
            let allowance = Allowance::NEVER;
            executor.push(Down::Send { qpn, bytes: cqe_bytes(cqe), due_ns: 0, allowance });
        }
    }
}
