// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers: the data of a command and its response. An executor that can sends the response itself when it has
//! copied the data, and an answer is one message each way; for another executor the transport copies part by part
//! and sends the response then.
//!
//! ```text
//!   pushes of one transfer --> answer --soon before it is due--> QpExecutor::answer --> UP_FUSED_DONE --> transferred
//!                                    `--part by part: Down::ToOwner, UP_DONE--> transferred, Respond
//! ```

use super::target::NotBefore;
use super::{ConnId, Event, ExecutorId, Origin, RcTransport, cqe_bytes, executor_ns};
use crate::hca::abi::*;
use crate::hca::{Down, Part, Response};
use gnstor_base::controller::{Outcome, Reply, TransferId};
use gnstor_base::time::{Span, Time};

/// How long before its response is due an answer is handed over: longer than the copy takes where many are
/// under way.
const LEAD: Span = Span::from_ns(crate::hca::abi::FUSED_LEAD_NS);
/// Until an executor is asked again that had no room.
const RETRY: Span = Span::from_ns(1000);
/// Most parts that are handed over together.
const MOST_PARTS: usize = 256;

/// One answer on its way.
struct Answer {
    conn: ConnId,
    target: u16,
    transfer: TransferId,
    reply: Reply,
    /// When the response reaches the host, once the link is booked.
    due: Option<Time>,
    parts: Vec<Part>,
    bytes: u32,
    /// The executor to which it was handed over, and when.
    executor: Option<ExecutorId>,
    asked: Time,
    /// Parts under way, where the transport copies them.
    left: usize,
    outcome: Outcome,
    is_live: bool,
}

/// Answers by their numbers. A number is used again when its answer has ended everywhere.
#[derive(Default)]
pub(super) struct Answers {
    items: Vec<Answer>,
    free: Vec<u32>,
    /// The parts of the one that comes, and whose they are.
    coming: Vec<Part>,
    coming_of: Option<(u16, TransferId)>,
    live: usize,
}

impl Answers {
    /// Whether there are any.
    pub(super) fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Another part of the answer that comes.
    pub(super) fn add(&mut self, target: u16, transfer: TransferId, part: Part) {
        // The queue of an answer may go before its last part has come.
        if self.coming_of != Some((target, transfer)) {
            self.coming.clear();
            self.coming_of = Some((target, transfer));
        }
        self.coming.push(part);
    }

    /// All its parts are here.
    fn make(&mut self, conn: ConnId, target: u16, transfer: TransferId, reply: Reply) -> u32 {
        self.live += 1;
        self.coming_of = None;
        let number = self.free.pop().unwrap_or_else(|| {
            let number = u32::try_from(self.items.len()).expect("far fewer answers than 2^31");
            self.items.push(Answer {
                conn,
                target,
                transfer,
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
        let answer = &mut self.items[number as usize];
        (answer.conn, answer.target, answer.transfer, answer.reply) = (conn, target, transfer, reply);
        std::mem::swap(&mut answer.parts, &mut self.coming);
        self.coming.clear();
        answer.bytes = answer.parts.iter().map(|part| part.local.bytes).sum();
        (answer.due, answer.executor, answer.left, answer.is_live) = (None, None, 0, true);
        answer.outcome = Outcome::Done { sum: 0 };
        number
    }

    /// It has ended; who is to be told.
    fn end(&mut self, number: u32) -> Option<(u16, TransferId)> {
        let answer = self.items.get_mut(number as usize).filter(|answer| answer.is_live)?;
        answer.is_live = false;
        self.live -= 1;
        self.free.push(number);
        Some((answer.target, answer.transfer))
    }
}

impl RcTransport {
    /// The last part of an answer has come.
    pub(super) fn begin_answer(
        &mut self,
        now: Time,
        conn: ConnId,
        target: u16,
        transfer: TransferId,
        reply: Reply,
    ) {
        let number = self.answers.make(conn, target, transfer, reply);
        let executor = self.conns.get(&conn).filter(|c| !c.broken()).map(|c| c.executor);
        match executor {
            // Through the queue, not here: the controller is in the middle of giving its effects away.
            None => self.queue(now, Event::Answer { number }),
            Some(executor) if reply.at > now + LEAD && self.takes_answers(executor) => {
                self.queue(reply.at - LEAD, Event::Answer { number });
            }
            Some(_) => self.hand_over(now, number),
        }
    }

    fn takes_answers(&mut self, executor: ExecutorId) -> bool {
        self.executors.get_mut(&executor).is_some_and(|executor| executor.get().can_answer())
    }

    /// Hands the answer to the executor of its connection.
    pub(super) fn hand_over(&mut self, now: Time, number: u32) {
        let answer = &mut self.answers.items[number as usize];
        let Some(conn) = self.conns.get_mut(&answer.conn).filter(|conn| !conn.broken()) else {
            return self.end_answer(now, number, Outcome::ConnectionLost);
        };
        let Some(executor) = self.executors.get_mut(&conn.executor) else { return };
        let executor = executor.get();
        let Reply { cqe, at } = answer.reply;
        let fits = answer.parts.len() <= MOST_PARTS && cqe.dw0.get() == 0 && cqe.dw1.get() == 0;
        answer.asked = now;
        if answer.due.is_none() && (!fits || !executor.can_answer()) {
            return self.copy_parts(now, number);
        }
        // Asked for early, the link serves the answers in the order in which they would come to it.
        let due = *answer.due.get_or_insert_with(|| self.link.down(at, u64::from(answer.bytes) + 16));
        if due > now + LEAD || !executor.can_answer() {
            return self.queue((due - LEAD).max(now + RETRY), Event::Answer { number });
        }
        answer.executor = Some(conn.executor);
        conn.transfers += 1;
        conn.response_tries[usize::from(cqe.cid.get() & 0xFF)] = 0;
        let allowance = conn.times(cqe).allowance(due);
        let offset = executor.clock_offset_ns();
        let response = Response { bytes: cqe_bytes(cqe), due_ns: executor_ns(due, offset), allowance };
        executor.answer(conn.qpn, number, &answer.parts, &response);
        self.counters.pushed_bytes += u64::from(answer.bytes);
    }

    /// Copies the parts of an answer as transfers of their own.
    fn copy_parts(&mut self, now: Time, number: u32) {
        let answer = &mut self.answers.items[number as usize];
        let (id, parts) = (answer.conn, std::mem::take(&mut answer.parts));
        answer.left = parts.len();
        self.counters.pushed_bytes += u64::from(answer.bytes);
        for &Part { local, address, key, sum } in &parts {
            self.start(now, id, Origin::Part { number }, NotBefore::default(), |qpn, tag| Down::ToOwner {
                qpn,
                local,
                address,
                key,
                tag,
                sum,
            });
        }
        self.answers.items[number as usize].parts = parts;
    }

    /// A part that the transport had copied has ended.
    pub(super) fn end_copied_part(&mut self, now: Time, number: u32, outcome: Outcome) {
        let answer = &mut self.answers.items[number as usize];
        answer.left -= 1;
        if matches!(answer.outcome, Outcome::Done { .. }) {
            answer.outcome = outcome;
        }
        if answer.left > 0 {
            return;
        }
        let (id, bytes, Reply { cqe, at }) = (answer.conn, answer.bytes, answer.reply);
        let outcome = match answer.outcome {
            Outcome::Done { .. } => Outcome::Done { sum: 0 },
            other => other,
        };
        self.end_answer(now, number, outcome);
        if outcome == (Outcome::Done { sum: 0 }) {
            let message = self.messages.put(&cqe_bytes(cqe));
            self.respond(now, id, message, bytes, at);
        }
    }

    /// An executor has ended an answer.
    pub(super) fn answered(&mut self, now: Time, executor: ExecutorId, number: u32, status: u32) {
        let answer = self.answers.items.get(number as usize);
        let Some(answer) = answer.filter(|answer| answer.is_live && answer.executor == Some(executor)) else {
            return;
        };
        let id = answer.conn;
        self.counters.copies += answer.parts.len() as u64;
        let took = now.since(answer.asked).as_ps().saturating_mul(answer.parts.len() as u64);
        self.counters.copy_time = self.counters.copy_time + Span::from_ps(took);
        let is_broken = match self.conns.get_mut(&id) {
            Some(conn) => {
                conn.transfers -= 1;
                conn.broken()
            }
            None => {
                self.leaving.answered(id);
                false
            }
        };
        self.end_answer(now, number, outcome_of(status));
        if is_broken {
            self.retire(id);
        }
    }

    fn end_answer(&mut self, now: Time, number: u32, outcome: Outcome) {
        let Some((target, transfer)) = self.answers.end(number) else { return };
        let t = &mut self.targets[usize::from(target)];
        t.controller.transferred(t.clock, transfer, outcome);
        self.drain_effects(now, target);
    }

    /// Ends the answers of a connection whose executor has taken them back.
    pub(super) fn fail_answers(&mut self, now: Time, id: ConnId) {
        let is_its = |answer: &Answer| answer.is_live && answer.conn == id && answer.executor.is_some();
        let all = (0u32..).zip(&self.answers.items);
        let numbers: Vec<u32> = all.filter(|(_, answer)| is_its(answer)).map(|(number, _)| number).collect();
        for number in numbers {
            self.end_answer(now, number, Outcome::ConnectionLost);
        }
    }
}

/// What a `COPY_*` means to a controller.
pub(super) fn outcome_of(status: u32) -> Outcome {
    match status {
        COPY_OK => Outcome::Done { sum: 0 },
        COPY_BAD_SUM => Outcome::BadChecksum,
        _ => Outcome::RemoteAccess,
    }
}
