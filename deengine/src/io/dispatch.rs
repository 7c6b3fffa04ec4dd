// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Dispatch: when a worker takes a command, and whether the worker or the firmware executes it.
//!
//! The modelled firmware serves one I/O command at a time. A command that arrives while it is busy pends with
//! the worker of its queue ([`super::pending`]). Whenever the firmware is free, the arbiter names the next
//! command. A preset that takes no time is never busy, so nothing pends.
//!
//! Admin commands take no time of the firmware. They are carried out when they arrive, so they wait for no
//! other worker.
//!
//! ```text
//!   arrivals   a b c d                          time ->
//!   firmware   [a     ][c     ][b     ][d     ]      c is urgent
//!              ^ taken at once
//!                      ^ `step` at this time, or the next call behind it, takes c as of this time
//! ```
//! A late call delays no command: commands are taken as of the time at which the firmware was free. They
//! are judged at the time of the call, never in the past. The worker carries out plain reads and writes
//! alone. For everything else it calls the firmware under the SSD's lock.

use super::pace::Pace;
use super::pending::{Pending, Taken, Waiting};
use super::worker::Worker;
use crate::commands::CompletionPermit;
use crate::request::Submission;
use crate::workers::{Next, Place};
use gnstor_base::controller::QueueKey;
use gnstor_base::time::{Span, Time};
use gnstor_proto::nvme::{Sqe, io};
use gnstor_proto::status::Refusal;

/// How long the modelled firmware is left free for the worker that is next. Then another worker goes on, so a
/// worker whose thread does not run delays no other. A late call changes no modelled time.
const TURN: Span = Span::from_ns(500);

/// An overdue worker books the firmware at most this far ahead, well within a serving lease.
const MOST_AHEAD: Span = Span::from_ms(1);

/// A worker takes at most this part of its pending commands at once. If few pend, all queues take turns one
/// by one.
const BURST_SHARE: usize = 4;

/// The commands that pend with a worker, and when it takes them.
#[derive(Debug)]
pub(super) struct Backlog {
    pending: Pending,
    /// The list of commands that are taken at a time, reused.
    burst: Vec<Taken>,
    /// Time at which pending commands must be checked. Before that none can be taken.
    at: Time,
    /// The worker's place among the workers that have pending commands.
    place: Place,
    pace: Pace,
}

impl Backlog {
    /// The backlog of a worker of this number.
    pub(super) fn new(worker: usize) -> Self {
        Self {
            pending: Pending::default(),
            burst: Vec::new(),
            at: Time::NEVER,
            place: Place::new(worker),
            pace: Pace::REAL,
        }
    }

    /// Time at which pending commands must be checked.
    #[inline]
    pub(super) fn at(&self) -> Time {
        self.at
    }

    pub(super) fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
    }

    /// Commands that pend.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }
}

impl Worker {
    /// Whether a command that arrives now has to pend, because of others or because the modelled firmware is
    /// busy.
    #[inline]
    pub(super) fn is_busy(&self, now: Time) -> bool {
        let ftl = self.shared.ftl();
        !ftl.is_timeless() && (!self.backlog.pending.is_empty() || ftl.firmware_free() > now)
    }

    /// Makes a command pend. `false`: its queue is not a connected I/O queue.
    pub(super) fn pend(&mut self, queue: QueueKey, arrived: Time, what: Waiting) -> bool {
        if self.backlog.pending.is_empty() {
            self.shared.workers().join(&mut self.backlog.place);
        }
        let is_command = matches!(what, Waiting::Command(_));
        let Some(is_first) = self.backlog.pending.push(&mut self.ports, queue, arrived, what) else {
            return false;
        };
        if is_command {
            self.state().entered();
        }
        // A later command of a queue changes neither the next command nor the words that other workers see.
        if is_first {
            self.publish_pending();
        }
        true
    }

    /// After a change of the pending commands: publishes them to other workers, and computes when to check
    /// them again.
    #[inline]
    pub(super) fn publish_pending(&mut self) {
        let clients = self.backlog.pending.clients(self.shared.index());
        self.shared.workers().publish_pending(&mut self.backlog.place, clients);
        self.backlog.at = self.pending_wants();
    }

    /// Takes pending commands while the modelled firmware is free by `now`, or soon if a write with its
    /// data is next.
    #[inline]
    pub(super) fn dispatch_pending(&mut self, now: Time) {
        if now < self.backlog.at {
            return;
        }
        self.catch_up(now);
        while self.dispatch_some(now) {}
        self.publish_pending();
    }

    /// The firmware was to be free by now. If other workers have booked it since and it was this worker's
    /// turn, this worker books a burst behind them. An overdue worker books as many as the others have had.
    /// So a worker whose calls come late or seldom is not passed over without end.
    fn catch_up(&mut self, now: Time) {
        if self.shared.workers().is_only_one() {
            return;
        }
        while self.pending_due().is_some_and(|at| at > now && at <= now + MOST_AHEAD) {
            let turn = self.shared.workers().turn(&self.backlog.place);
            if turn == Next::Another {
                return;
            }
            self.take(now, false);
            if turn == Next::This {
                return;
            }
        }
    }

    /// When the next command may be taken. `None`: this worker has none that it may take.
    #[inline]
    fn pending_due(&self) -> Option<Time> {
        let is_write = self.backlog.pending.is_write_next(self.shared.index(), &self.ports)?;
        let free = self.shared.ftl().firmware_free();
        Some(if is_write { free.before(self.backlog.pace.ahead) } else { free })
    }

    /// When this worker next has something to do for its pending commands. If another worker is next, that is
    /// the end of that worker's turn. The firmware may be taken by another worker until then, but it is not
    /// free earlier.
    #[inline]
    fn pending_wants(&self) -> Time {
        if self.backlog.pending.is_empty() {
            return Time::NEVER;
        }
        let own = self.pending_due().filter(|&at| at > self.now || self.is_next());
        own.unwrap_or_else(|| self.turn_is_over())
    }

    /// Whether this worker is the next to dispatch.
    #[inline]
    fn is_next(&self) -> bool {
        self.shared.workers().is_next(&self.backlog.place)
    }

    /// Time at which this worker may go on although another one is next.
    #[inline]
    fn turn_is_over(&self) -> Time {
        self.shared.ftl().firmware_free() + TURN
    }

    /// Takes the next commands. `false`: there is nothing to take yet, or another worker is next.
    fn dispatch_some(&mut self, now: Time) -> bool {
        let is_due = self.pending_due().is_some_and(|at| at <= now);
        if !is_due || !(self.is_next() || now >= self.turn_is_over()) {
            return false;
        }
        self.take(now, self.shared.ftl().firmware_free() > now);
        true
    }

    /// Takes the next command, or a burst if many pend. A burst brings the model's state and the map entries
    /// of reads into this worker's cache once. `is_ahead`: the firmware is busy, so it takes only writes with
    /// their data.
    fn take(&mut self, now: Time, is_ahead: bool) {
        let free = self.shared.ftl().firmware_free();
        let mut burst = self.take_burst(is_ahead);
        // Commits may follow, and take long. Other workers must know this worker's pending commands before
        // that.
        self.publish_pending();
        if burst.len() > 1 {
            self.announce_reads(burst.iter().filter_map(|taken| match &taken.what {
                Waiting::Command(sqe) => Some(sqe),
                Waiting::Write(_) => None,
            }));
        }
        burst.drain(..).for_each(|taken| self.dispatch_one(now, free, taken));
        self.backlog.burst = burst;
        self.book_judged(now);
    }

    /// Takes the commands of a burst out of their queues.
    fn take_burst(&mut self, is_ahead: bool) -> Vec<Taken> {
        let most = if self.backlog.pending.shares_order() {
            1
        } else {
            (self.backlog.pending.len() / BURST_SHARE).clamp(1, self.backlog.pace.burst)
        };
        let mut burst = std::mem::take(&mut self.backlog.burst);
        while burst.len() < most
            && (!is_ahead
                || self.backlog.pending.is_write_next(self.shared.index(), &self.ports) == Some(true))
            && let Some(taken) = self.backlog.pending.pop(self.shared.index(), &mut self.ports)
        {
            self.backlog.place.took();
            burst.push(taken);
        }
        burst
    }

    /// Executes a command that was pending. `free`: when the firmware became free for it.
    fn dispatch_one(&mut self, now: Time, free: Time, Taken { queue, arrived, what }: Taken) {
        let sqe = match &what {
            Waiting::Write(id) => return self.judged.add_write(arrived, *id),
            Waiting::Command(sqe) => sqe,
        };
        let reader = self.ports.get(queue).and_then(|port| port.reader);
        if is_plain(sqe)
            && let Some(identity) = reader
            && self.judge(now, arrived, queue, Submission { identity, sqe })
        {
            // `judge` has counted the command again.
            return self.state().handed_over();
        }
        // The commands judged before it go first.
        self.book_judged(now);
        self.hand_to_firmware(now, free.max(arrived), queue, sqe);
    }

    /// Hands a pending command over to the firmware.
    fn hand_to_firmware(&mut self, now: Time, start: Time, queue: QueueKey, sqe: &Sqe) {
        if self.ask(now, start, queue, sqe) {
            self.state().handed_over();
        } else {
            self.state().forfeit();
            self.state().left();
        }
    }

    /// Asks the firmware to carry out a command; `false` if it does not know the queue.
    pub(super) fn ask(&mut self, now: Time, start: Time, queue: QueueKey, sqe: &Sqe) -> bool {
        let Some(port) = self.ports.get(queue) else { return false };
        port.fetch();
        let mut ssd = self.shared.lock();
        let is_known = ssd.take_command(now, start, queue, sqe);
        // Connect and Disconnect change the role of the queue.
        ssd.refresh(port);
        let has_ended = !port.is_connected() && !port.waiting.is_empty();
        drop(ssd);
        if has_ended {
            self.drain(now, queue);
        }
        is_known
    }

    /// Ends a queue after Disconnect. Commands that pend behind the Disconnect are refused; writes that were
    /// begun go on.
    fn drain(&mut self, now: Time, queue: QueueKey) {
        for (arrived, what) in self.backlog.pending.remove(&mut self.ports, queue) {
            match what {
                Waiting::Command(sqe) => self.hand_to_firmware(now, now, queue, &sqe),
                Waiting::Write(id) => self.book_write(id, arrived),
            }
        }
        self.publish_pending();
    }

    /// Takes a pending command of this queue back, for an Abort.
    pub(super) fn take_back(&mut self, queue: QueueKey, cid: u16, abort: u32) {
        let is_taken = self.backlog.pending.take_back(&mut self.ports, queue, cid);
        self.publish_pending();
        if is_taken {
            // The command's queue entry is free again.
            if let Some(port) = self.ports.get(queue) {
                port.fetch();
            }
            self.state().left();
        }
        let mut ssd = self.shared.lock();
        if is_taken {
            ssd.refuse(CompletionPermit::issue(queue, cid), 0, Refusal::AbortRequested.into(), self.now);
        }
        ssd.end_abort(self.now, abort, is_taken);
    }

    /// Drops the pending commands of a queue that is gone.
    pub(super) fn drop_pending(&mut self, queue: QueueKey) {
        for (_, what) in self.backlog.pending.remove(&mut self.ports, queue) {
            match what {
                Waiting::Command(_) => {
                    self.state().forfeit();
                    self.state().left();
                }
                Waiting::Write(id) => self.abandon_write(id),
            }
        }
        self.publish_pending();
    }
}

/// Whether a worker may carry out this command alone.
#[inline]
pub(super) fn is_plain(sqe: &Sqe) -> bool {
    matches!(sqe.opcode, io::READ | io::WRITE)
}
