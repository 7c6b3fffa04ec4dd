// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Taking commands from a worker's line: when, how many at once, and whose turn it is among the workers.

use super::pending::Waiting;
use super::read::Judged;
use super::worker::Worker;
use crate::io::permit::CompletionPermit;
use gnstor_base::controller::QueueKey;
use gnstor_base::time::{Span, Time};
use gnstor_proto::status::Refusal;

/// How long the modelled firmware is left free for the worker whose turn it is; after that whoever comes goes on. As a late call changes no
/// modelled time, nothing is lost by it.
const TURN: Span = Span::from_ns(500);

/// How long before the modelled firmware is free a write with its data is taken: what has to be done for it until its response is due takes as
/// long. Its modelled time is that of the firmware; only who comes later meanwhile comes later.
const AHEAD: Span = Span::from_ns(90_000);

/// Most commands that a worker takes at once from its line, and which part of the line that may be: where few wait, all take turns one by one.
const BURST: usize = 16;
const BURST_SHARE: usize = 4;

impl Worker {
    /// Whether a read that comes now has to wait: behind those that do, or for the modelled firmware.
    #[inline]
    pub(super) fn is_busy(&self, now: Time) -> bool {
        let ftl = &self.shared.ftl;
        !ftl.is_timeless()
            && (!self.line.is_empty() || self.shared.workers.is_waiting() || ftl.firmware_free() > now)
    }

    /// Has a command wait with the worker; `false` where arbitration is the firmware's.
    pub(super) fn wait_in_line(&mut self, name: QueueKey, arrived: Time, what: Waiting) -> bool {
        let Some(controller) = self.ports.get(name).and_then(|port| port.in_turn) else { return false };
        if let Waiting::Command(_) = what {
            self.share().entered();
        }
        if self.line.is_empty() {
            self.shared.workers.join_line(self.index);
        }
        self.line.push(&mut self.ports, name, controller, arrived, what);
        self.publish_line();
        true
    }

    #[inline]
    pub(super) fn publish_line(&self) {
        self.shared.workers.set_in_line(self.index, self.line.controllers());
    }

    /// A Fabrics command has come, which may end the queue: the commands that wait go before it.
    pub(super) fn end_before_fabrics(&mut self, now: Time, name: QueueKey) {
        for (arrived, what) in self.line.remove(&mut self.ports, name) {
            match what {
                Waiting::Command(sqe) => {
                    self.share().went();
                    self.ask(now, name, &sqe, false);
                }
                Waiting::Write(id) => self.book_write(id, arrived),
            }
        }
        self.publish_line();
        if let Some(port) = self.ports.get(name) {
            port.is_ending = true;
        }
    }

    /// The host asks for a command of this queue back.
    pub(super) fn take_back(&mut self, name: QueueKey, cid: u16, abort: u32) {
        let is_taken = self.line.take(&mut self.ports, name, cid);
        self.publish_line();
        if is_taken {
            // Its entry is free again.
            if let Some(port) = self.ports.get(name) {
                port.fetch();
            }
            self.share().left();
        }
        let mut ssd = self.shared.lock();
        if is_taken {
            let permit = CompletionPermit::issue(name, cid);
            ssd.refuse_for_worker(permit, 0, Refusal::AbortRequested.into(), self.now);
        }
        ssd.end_abort(self.now, abort, is_taken);
    }

    /// Takes waiting commands as long as the modelled firmware is free by `now`, or soon where a write is next; what waits under the lock takes turns
    /// with them.
    #[inline]
    pub(super) fn serve_line(&mut self, now: Time) {
        while self.line_is_due().is_some_and(|at| at <= now) && self.serve_some(now) {}
        self.publish_line();
    }

    /// When the next command of the line may be taken; none waits: `None`.
    #[inline]
    fn line_is_due(&self) -> Option<Time> {
        if self.line.is_empty() {
            return None;
        }
        let free = self.shared.ftl.firmware_free();
        Some(if self.may_be_ahead() { free.before(AHEAD) } else { free })
    }

    /// Whether what is next may be taken before the modelled firmware is free.
    #[inline]
    fn may_be_ahead(&self) -> bool {
        self.line.is_write_next(&self.ports) && !self.shared.workers.is_waiting()
    }

    /// When the worker has something to do for its line: where it is another's turn, when that is over.
    #[inline]
    pub(super) fn line_wants(&self) -> Option<Time> {
        let at = self.line_is_due()?;
        let is_others = at <= self.now && !self.shared.workers.is_next(self.index);
        Some(if is_others { self.turn_is_over() } else { at })
    }

    /// When this worker may go on although it is another worker's turn.
    #[inline]
    fn turn_is_over(&self) -> Time {
        self.shared.ftl.firmware_free() + TURN
    }

    /// Takes the next command, or a burst of them where many wait: the model's state and what reads look for come to this worker's cache once for
    /// all of a burst. `false` where it is not this worker's turn.
    fn serve_some(&mut self, now: Time) -> bool {
        let workers = &self.shared.workers;
        if workers.is_waiting()
            && let Some(mut ssd) = self.shared.try_lock()
        {
            ssd.arbitrate(now);
            drop(ssd);
            // An Abort among them may ask for what is next here.
            if self.share().has_mail() {
                return false;
            }
        }
        if !workers.is_workers_turn() {
            return false;
        }
        // A late call makes nobody wait longer: the command is taken as of the time at which the firmware was free.
        let is_my_turn = || now >= self.turn_is_over() || workers.is_next(self.index);
        if !(self.line_is_due().is_some_and(|at| at <= now) && is_my_turn()) {
            return false;
        }
        let most = (self.line.len() / BURST_SHARE).clamp(1, BURST);
        let is_ahead = self.shared.ftl.firmware_free() > now;
        let mut burst = std::mem::take(&mut self.burst);
        while burst.len() < most
            && (!is_ahead || self.line.is_write_next(&self.ports))
            && self.shared.workers.is_workers_turn()
            && let Some(next) = self.line.pop(&mut self.ports)
        {
            self.shared.workers.worker_took(self.index);
            burst.push(next);
        }
        // Commits may come in between: what is next here is to be known before.
        self.publish_line();
        if burst.len() > 1 {
            self.announce_reads(burst.iter().filter_map(|(_, _, what)| match what {
                Waiting::Command(sqe) => Some(sqe),
                Waiting::Write(_) => None,
            }));
        }
        for (name, arrived, what) in burst.drain(..) {
            match what {
                Waiting::Write(id) => self.judged.push(Judged::write(arrived, id)),
                Waiting::Command(sqe) => {
                    self.share().went();
                    let reader = self.ports.get(name).and_then(|port| port.reader);
                    if !reader.is_some_and(|identity| self.judge(now, arrived, name, identity, &sqe)) {
                        // Those before it go first.
                        self.book_judged(now);
                        self.ask(now, name, &sqe, false);
                    }
                }
            }
        }
        self.burst = burst;
        self.book_judged(now);
        true
    }
}
