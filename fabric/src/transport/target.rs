// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Target offload: a controller's effects become RDMA operations, and their ends become answers to the
//! controller.

use super::{ConnId, Event, ExecutorId, Origin, RcTransport, Respond, Transfer, cqe_bytes};
use crate::hca::abi::{COPY_BAD_SUM, COPY_OK};
use crate::hca::{Copied, Down, Part, Up};
use gnstor_base::controller::{Effect, Outcome, PushRole};
use gnstor_base::time::Time;
use gnstor_proto::fabrics::Identity;

/// A transfer to be started.
pub(super) struct Start {
    origin: Origin,
    /// Time at which a Pull's data arrives by the model.
    not_before: Time,
    /// The command that a Pull is of.
    cid: u16,
}

impl Start {
    /// A transfer that the model does not time.
    pub(super) fn of(origin: Origin) -> Self {
        Self { origin, not_before: Time::ZERO, cid: 0 }
    }
}

impl RcTransport {
    /// Carries out the controller's effects. Returns whether there were any. Effects that follow from an
    /// effect are carried out after it, not within it. An SSD may close thousands of queues at once, and
    /// nested calls would exhaust the thread's stack.
    pub(super) fn drain_effects(&mut self, now: Time, target: u16) -> bool {
        let mut is_any = false;
        if std::mem::replace(&mut self.targets[usize::from(target)].is_draining, true) {
            return is_any;
        }
        loop {
            let t = &mut self.targets[usize::from(target)];
            let Some(effect) = t.controller.pop_effect() else {
                t.is_draining = false;
                return is_any;
            };
            is_any = true;
            self.carry_out(now, target, effect);
        }
    }

    fn carry_out(&mut self, now: Time, target: u16, effect: Effect) {
        match effect {
            Effect::Pull { transfer, queue, cid, remote, local } => {
                let clock = self.targets[usize::from(target)].clock;
                let not_before = self.link.pull(clock, u64::from(local.bytes));
                self.counters.pulled_bytes += u64::from(local.bytes);
                let origin = Origin::Local { target, transfer, pull: true };
                let start = Start { origin, not_before, cid };
                self.start(now, ConnId(queue.0), start, |qpn, tag| Down::FromOwner {
                    qpn,
                    local,
                    address: remote.address,
                    key: remote.key,
                    tag,
                });
            }
            Effect::Push {
                transfer,
                queue,
                remote,
                local,
                sum,
                role: role @ (PushRole::Part | PushRole::Last(_)),
            } => {
                let part = Part { local, address: remote.address, key: remote.key, sum };
                self.fused.add((target, transfer), part);
                if let PushRole::Last(reply) = role {
                    self.begin_fused(now, ConnId(queue.0), (target, transfer), reply);
                }
            }
            Effect::Push { transfer, queue, remote, local, sum, role: PushRole::Alone } => {
                self.counters.pushed_bytes += u64::from(local.bytes);
                let origin = Origin::Local { target, transfer, pull: false };
                self.start(now, ConnId(queue.0), Start::of(origin), |qpn, tag| Down::ToOwner {
                    qpn,
                    local,
                    address: remote.address,
                    key: remote.key,
                    tag,
                    sum,
                });
            }
            Effect::Complete { queue, cqe, at, pushed_bytes } => {
                let conn = ConnId(queue.0);
                let message = self.messages.put(&cqe_bytes(cqe));
                self.respond(now, Respond { conn, message, pushed: pushed_bytes, at });
            }
            Effect::Admitted { queue, who } => self.admit(ConnId(queue.0), who),
            Effect::Close { queue } => self.break_conn(now, ConnId(queue.0), None),
            Effect::Ask { ask, peer, local } => self.ask(target, ask, peer, local),
        }
    }

    /// An SSD admits the queue of a connection.
    fn admit(&mut self, id: ConnId, who: Identity) {
        self.set_proving(id, false);
        if let Some(conn) = self.conns.get_mut(&id)
            && let Some(executor) = self.executors.get_mut(&conn.executor)
        {
            conn.is_admitted = true;
            executor.admitted(conn.qpn, who);
            if let Some(token) = executor.peer().and_then(|peer| peer.wire().token()) {
                self.ready.set_admitted(token);
            }
        }
    }

    /// A tag that no transfer has. A client may keep one of its own while all other tags are used.
    fn free_tag(&mut self) -> u32 {
        loop {
            let tag = self.id();
            if !self.transfers.contains_key(&tag) {
                return tag;
            }
        }
    }

    /// Hands a transfer to the executor of its connection.
    pub(super) fn start(&mut self, now: Time, id: ConnId, start: Start, down: impl FnOnce(u32, u32) -> Down) {
        let tag = self.free_tag();
        let Start { origin, not_before, cid } = start;
        let Some(conn) = self.conns.get_mut(&id).filter(|c| !c.broken()) else {
            let transfer = Transfer {
                conn: id,
                executor: None,
                origin,
                asked: now,
                not_before: Time::ZERO,
                cid,
                outcome: Some(Outcome::ConnectionLost),
            };
            self.transfers.insert(tag, transfer);
            // Through the queue, not here: the controller is in the middle of giving its effects away.
            return self.queue(now, Event::Arrived { tag });
        };
        conn.transfers += 1;
        let (executor, qpn) = (conn.executor, conn.qpn);
        self.transfers.insert(
            tag,
            Transfer {
                conn: id,
                executor: Some(executor),
                origin,
                asked: now,
                not_before,
                cid,
                outcome: None,
            },
        );
        if let Some(executor) = self.executors.get_mut(&executor) {
            executor.push(down(qpn, tag));
        }
    }

    /// Handles a report if it says that something has ended which an executor was asked to move.
    pub(super) fn ended(&mut self, now: Time, executor: ExecutorId, up: &Up) {
        match up {
            Up::Copied(copied) => self.copied(now, executor, copied),
            Up::FusedDone { tag, status } => self.fused_done(now, executor, *tag, *status),
            _ => {}
        }
    }

    /// An executor has finished a copy.
    pub(super) fn copied(&mut self, now: Time, executor: ExecutorId, copied: &Copied) {
        let &Copied { tag, status, sum, .. } = copied;
        let Some(transfer) = self.transfers.get_mut(&tag) else { return };
        let id = transfer.conn;
        // A client of another process can name any transfer: it ends only its own, and each once.
        if transfer.outcome.is_some() || transfer.executor != Some(executor) {
            return;
        }
        match self.conns.get_mut(&id) {
            Some(conn) => conn.transfers -= 1,
            None => self.leaving.copy_ended(id),
        }
        transfer.outcome = Some(match outcome_of(status) {
            Outcome::Done { .. } => Outcome::Done { sum },
            other => other,
        });
        let at = transfer.not_before;
        self.counters.copies += 1;
        self.counters.copy_time = self.counters.copy_time + now.since(transfer.asked);
        if at > now {
            self.queue(at, Event::Arrived { tag });
        } else {
            self.finish_transfer(now, at.max(Time::ZERO), tag);
        }
        self.retire(id);
    }

    /// Tells the origin of the transfer how it ended. `at` is its modelled time.
    pub(super) fn finish_transfer(&mut self, now: Time, at: Time, tag: u32) {
        let Some(transfer) = self.transfers.remove(&tag) else { return };
        let outcome = transfer.outcome.unwrap_or(Outcome::ConnectionLost);
        match transfer.origin {
            Origin::Local { target, transfer: name, pull } => {
                let t = &mut self.targets[usize::from(target)];
                // A push's data left at the time the command was handled; only a pull brings a time of its
                // own.
                t.clock = t.clock.max(if pull { at } else { t.clock });
                if pull && let Some(conn) = self.conns.get_mut(&transfer.conn) {
                    conn.times_mut(transfer.cid).data_arrived(at, t.clock);
                }
                t.controller.transferred(t.clock, name, outcome);
                self.drain_effects(now, target);
            }
            Origin::Part { number } => self.end_copied_part(now, number, outcome),
            Origin::Remote(asked) => self.remote_transfer_done(transfer.conn, asked, outcome),
        }
    }

    /// Ends the transfers of a connection whose executor moves nothing more for it.
    pub(super) fn fail_transfers(&mut self, now: Time, id: ConnId) {
        let unanswered = |t: &Transfer| t.conn == id && t.outcome.is_none();
        let mut tags: Vec<u32> =
            self.transfers.iter().filter(|(_, t)| unanswered(t)).map(|(tag, _)| *tag).collect();
        tags.sort_unstable();
        for tag in tags {
            self.finish_transfer(now, now, tag);
        }
        self.fail_fused(now, id);
    }
}

/// The outcome for a controller that a `COPY_*` status means.
pub(super) fn outcome_of(status: u32) -> Outcome {
    match status {
        COPY_OK => Outcome::Done { sum: 0 },
        COPY_BAD_SUM => Outcome::BadChecksum,
        _ => Outcome::RemoteAccess,
    }
}
