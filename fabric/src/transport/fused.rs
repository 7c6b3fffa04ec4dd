// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fused responses: the data of a command and its response, handed over together. If the executor can, it
//! sends the response itself when it has copied the data: one message each way. Otherwise the transport
//! copies part by part, and then sends the response.
//!
//! ```text
//!   pushes of a transfer --> FusedResponse --soon before it is due--> push_fused, FusedDone --> transferred
//!                                 `--part by part: Down::ToOwner, Up::Copied--> transferred, Respond
//! ```

use super::clock::executor_ns;
use super::target::{Start, outcome_of};
use super::{ConnId, Event, ExecutorId, Origin, RcTransport, Respond, cqe_bytes};
use crate::hca::{Down, Part, Response};
use gnstor_base::ahead;
use gnstor_base::controller::{Outcome, Reply, TransferId};
use gnstor_base::time::{Span, Time};

/// Pause before the next try if an executor has no room.
const RETRY: Span = Span::from_ns(1000);
/// Most parts that are handed over together.
const MOST_PARTS: usize = 256;

/// The name that a transfer's target has for it, and the target.
type TransferOf = (u16, TransferId);

/// A fused response in progress.
struct FusedResponse {
    conn: ConnId,
    of: TransferOf,
    reply: Reply,
    /// Time at which the response reaches the host, once the link is booked.
    due: Option<Time>,
    parts: Vec<Part>,
    bytes: u32,
    /// The executor to which it was handed over, and when.
    executor: Option<ExecutorId>,
    asked: Time,
    /// Number of parts in progress, if the transport copies them.
    left: usize,
    outcome: Outcome,
    is_live: bool,
}

/// Fused responses by their numbers. A number is used again when its response has ended everywhere.
#[derive(Default)]
pub(super) struct FusedResponses {
    items: Vec<FusedResponse>,
    free: Vec<u32>,
    /// Parts of the next fused response that have come so far, and their transfer.
    coming: Vec<Part>,
    coming_of: Option<TransferOf>,
    live: usize,
}

impl FusedResponses {
    /// Whether there are no parts.
    pub(super) fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Another part of the next response.
    pub(super) fn add(&mut self, of: TransferOf, part: Part) {
        // The queue may be closed before the last part comes.
        if self.coming_of != Some(of) {
            self.coming.clear();
            self.coming_of = Some(of);
        }
        self.coming.push(part);
    }

    /// All parts have come.
    fn make(&mut self, conn: ConnId, of: TransferOf, reply: Reply) -> u32 {
        self.live += 1;
        self.coming_of = None;
        let number = self.free.pop().unwrap_or_else(|| {
            let number = u32::try_from(self.items.len()).expect("far fewer responses than 2^31");
            self.items.push(FusedResponse {
                conn,
                of,
                reply,
                due: None,
                parts: Vec::new(),
                bytes: 0,
                executor: None,
                asked: Time::ZERO,
                left: 0,
                outcome: Outcome::ConnectionLost,
                is_live: false,
            });
            number
        });
        let fused = &mut self.items[number as usize];
        (fused.conn, fused.of, fused.reply) = (conn, of, reply);
        std::mem::swap(&mut fused.parts, &mut self.coming);
        self.coming.clear();
        fused.bytes = fused.parts.iter().map(|part| part.local.bytes).sum();
        (fused.due, fused.executor, fused.left, fused.is_live) = (None, None, 0, true);
        fused.outcome = Outcome::Done { sum: 0 };
        number
    }

    /// Notes that the fused response has ended, and returns the transfer that ends with it.
    fn end(&mut self, number: u32) -> Option<TransferOf> {
        let fused = self.items.get_mut(number as usize).filter(|fused| fused.is_live)?;
        fused.is_live = false;
        self.live -= 1;
        self.free.push(number);
        Some(fused.of)
    }
}

impl RcTransport {
    /// The last part of a fused response has come.
    pub(super) fn begin_fused(&mut self, now: Time, conn: ConnId, of: TransferOf, reply: Reply) {
        let number = self.fused.make(conn, of, reply);
        let executor = self.conns.get(&conn).filter(|c| !c.broken()).map(|c| c.executor);
        match executor {
            // Through the queue, not here: the controller is in the middle of giving its effects away.
            None => self.queue(now, Event::Fused { number }),
            Some(executor) if reply.at > now + ahead::FUSED && self.can_fuse(executor) => {
                self.queue(reply.at - ahead::FUSED, Event::Fused { number });
            }
            Some(_) => self.hand_over(now, number),
        }
    }

    fn can_fuse(&self, executor: ExecutorId) -> bool {
        self.executors.get(&executor).is_some_and(|executor| executor.can_fuse())
    }

    /// Hands the response and its data to the executor of its connection.
    pub(super) fn hand_over(&mut self, now: Time, number: u32) {
        let fused = &mut self.fused.items[number as usize];
        let Some(conn) = self.conns.get_mut(&fused.conn).filter(|conn| !conn.broken()) else {
            return self.end_fused(now, number, Outcome::ConnectionLost);
        };
        let Some(executor) = self.executors.get_mut(&conn.executor) else { return };
        let Reply { cqe, at } = fused.reply;
        let fits = fused.parts.len() <= MOST_PARTS && cqe.dw0.get() == 0 && cqe.dw1.get() == 0;
        fused.asked = now;
        if fused.due.is_none() && (!fits || !executor.can_fuse()) {
            return self.copy_parts(now, number);
        }
        // Booked early, the link serves the responses in the order in which they would come to it.
        let due = *fused.due.get_or_insert_with(|| self.link.down(at, u64::from(fused.bytes) + 16));
        if due > now + ahead::FUSED || !executor.can_fuse() {
            return self.queue((due - ahead::FUSED).max(now + RETRY), Event::Fused { number });
        }
        fused.executor = Some(conn.executor);
        conn.transfers += 1;
        *conn.tries_mut(cqe.cid.get()) = 0;
        let allowance = conn.times(cqe.cid.get()).allowance(due);
        let offset = executor.clock_offset_ns();
        let response = Response { bytes: cqe_bytes(cqe), due_ns: executor_ns(due, offset), allowance };
        executor.push_fused(conn.qpn, number, &fused.parts, &response);
        self.counters.pushed_bytes += u64::from(fused.bytes);
    }

    /// Copies the parts of a fused response as transfers of their own.
    fn copy_parts(&mut self, now: Time, number: u32) {
        let fused = &mut self.fused.items[number as usize];
        let (id, parts) = (fused.conn, std::mem::take(&mut fused.parts));
        fused.left = parts.len();
        self.counters.pushed_bytes += u64::from(fused.bytes);
        for &Part { local, address, key, sum } in &parts {
            self.start(now, id, Start::of(Origin::Part { number }), |qpn, tag| Down::ToOwner {
                qpn,
                local,
                address,
                key,
                tag,
                sum,
            });
        }
        self.fused.items[number as usize].parts = parts;
    }

    /// A part that the transport had copied has ended.
    pub(super) fn end_copied_part(&mut self, now: Time, number: u32, outcome: Outcome) {
        let fused = &mut self.fused.items[number as usize];
        fused.left -= 1;
        if matches!(fused.outcome, Outcome::Done { .. }) {
            fused.outcome = outcome;
        }
        if fused.left > 0 {
            return;
        }
        let (id, bytes, Reply { cqe, at }) = (fused.conn, fused.bytes, fused.reply);
        let outcome = match fused.outcome {
            Outcome::Done { .. } => Outcome::Done { sum: 0 },
            other => other,
        };
        self.end_fused(now, number, outcome);
        if outcome == (Outcome::Done { sum: 0 }) {
            let message = self.messages.put(&cqe_bytes(cqe));
            self.respond(now, Respond { conn: id, message, pushed: bytes, at });
        }
    }

    /// An executor has ended a fused response.
    pub(super) fn fused_done(&mut self, now: Time, executor: ExecutorId, number: u32, status: u32) {
        let fused = self.fused.items.get(number as usize);
        let Some(fused) = fused.filter(|fused| fused.is_live && fused.executor == Some(executor)) else {
            return;
        };
        let id = fused.conn;
        self.counters.copies += fused.parts.len() as u64;
        let took = now.since(fused.asked).as_ps().saturating_mul(fused.parts.len() as u64);
        self.counters.copy_time = self.counters.copy_time + Span::from_ps(took);
        let is_broken = match self.conns.get_mut(&id) {
            Some(conn) => {
                conn.transfers -= 1;
                conn.broken()
            }
            None => {
                self.leaving.copy_ended(id);
                false
            }
        };
        self.end_fused(now, number, outcome_of(status));
        if is_broken {
            self.retire(id);
        }
    }

    fn end_fused(&mut self, now: Time, number: u32, outcome: Outcome) {
        let Some((target, transfer)) = self.fused.end(number) else { return };
        let t = &mut self.targets[usize::from(target)];
        t.controller.transferred(t.clock, transfer, outcome);
        self.drain_effects(now, target);
    }

    /// Ends the fused responses of a connection whose executor has taken them back.
    pub(super) fn fail_fused(&mut self, now: Time, id: ConnId) {
        let is_its = |fused: &FusedResponse| fused.is_live && fused.conn == id && fused.executor.is_some();
        let all = (0u32..).zip(&self.fused.items);
        let numbers: Vec<u32> = all.filter(|(_, fused)| is_its(fused)).map(|(number, _)| number).collect();
        for number in numbers {
            self.end_fused(now, number, Outcome::ConnectionLost);
        }
    }
}
