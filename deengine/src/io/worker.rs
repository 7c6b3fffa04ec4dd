// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Workers: each serves the queues that its thread polls.
//!
//! ```text
//!   thread a --> Worker --- read of blocks ------> rules, map, page, frame          no lock
//!   thread b --> Worker --- write of blocks -----> rules, frame, data, commit       the translation layer's
//!                       |                                   ^ a copy each
//!                       +- everything else ------> Ssd      one lock
//!                       <------- notes ----------- effects for the queues of this worker
//! ```
//! Most commands are reads ([`super::read`]) and plain writes ([`super::write`]). A worker carries them out
//! alone: it judges by its copy of the rules, and counts the command in flight where fences look
//! ([`crate::workers`]). What the rules do not plainly allow, and every other command, it asks of the [`Ssd`]
//! under its lock. So every rule is written once, and the worker's own path only ever says yes. The `Ssd`
//! hands a read or write back that it has allowed ([`super::grants`]).

use super::dispatch::{Backlog, is_plain};
use super::effects::Outbox;
use super::guard::{Handle, SsdGuard};
use super::judged::JudgedCommands;
use super::pending::Waiting;
use super::port::{Port, Ports};
use super::read::Reads;
use super::rules_copy::RulesCopy;
use super::write::Writes;
use crate::controller::{Ssd, refusal_of};
use crate::io::state::slab::{BOTH_MARKS, MARK, OTHER_MARK};
use crate::request::Submission;
use crate::workers::{MAX_WORKERS, WorkerSet, WorkerState};
use gnstor_base::controller::{AskId, Controller, Effect, Outcome, QueueKey, TransferId};
use gnstor_base::region::HostRegion;
use gnstor_base::time::Time;
use gnstor_proto::fabrics::{CmRequest, Identity, cm_reject};
use gnstor_proto::nvme::{self, Cqe, Sqe};
use std::sync::Arc;

/// One worker of an SSD. It is aligned, so that two workers share no cache line.
#[derive(Debug)]
#[repr(align(128))]
pub struct Worker {
    pub(super) shared: Handle,
    pub(super) rules: RulesCopy,
    pub(super) ports: Ports,
    pub(super) reads: Reads,
    pub(super) writes: Writes,
    pub(super) judged: JudgedCommands,
    pub(super) backlog: Backlog,
    pub(super) outbox: Outbox,
    /// Time of the latest call.
    pub(super) now: Time,
}

impl Ssd {
    /// Divides the SSD among threads, with a worker for each: 1 to 255, or one if `count` is larger. No queue
    /// may be open.
    pub fn into_workers(mut self, count: usize) -> Vec<Worker> {
        let count = if (1..MAX_WORKERS).contains(&count) { count } else { 1 };
        let workers = Arc::new(WorkerSet::new(count));
        self.share(Arc::clone(&workers));
        self.commands.share(count);
        let rules = Arc::clone(self.table.rules());
        let version = workers.version();
        let worker = |shared: Handle| {
            let index = shared.index();
            Worker {
                shared,
                rules: RulesCopy::new(&rules, version),
                ports: Ports::new(index),
                reads: Reads::new(),
                writes: Writes::beside(count),
                judged: JudgedCommands::default(),
                backlog: Backlog::new(index),
                outbox: Outbox::default(),
                now: Time::ZERO,
            }
        };
        let workers: Vec<Worker> = Handle::of_all(self, workers, count).map(worker).collect();
        drop(workers[0].ssd());
        workers
    }

    /// Tells a port the firmware's state of its queue. For a queue that is gone no command is judged.
    pub(super) fn refresh(&mut self, port: &mut Port) {
        let Some(state) = self.hosts.state(port.name) else { return port.reader = None };
        if let Some((Identity::Client(client), done)) = port.refresh(state) {
            self.table.watch(port.name, client, done);
        }
    }
}

impl Worker {
    /// Locks the SSD, for work other than I/O. Meanwhile the other workers go on with reads, and everything
    /// else waits.
    pub fn ssd(&self) -> SsdGuard<'_> {
        self.shared.lock()
    }

    /// From here on each note that the firmware, or another worker, leaves for this worker calls `wake`: its
    /// thread may sleep. Only the first call counts.
    pub fn wake_by(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.state().wake_by(wake);
    }

    /// Frames that this worker has taken for a client whose data is under way.
    #[cfg(test)]
    pub(crate) fn share_of(&self, client: gnstor_proto::slba::ClientId) -> u32 {
        self.writes.frames_of(client)
    }

    /// `None` if another worker has the lock.
    #[cfg(test)]
    pub(crate) fn try_ssd(&self) -> Option<SsdGuard<'_>> {
        self.shared.try_lock()
    }

    /// The memory that transfers touch, to be registered with the mover.
    pub fn regions(&self) -> Vec<Arc<HostRegion>> {
        self.ssd().regions()
    }

    /// A queue's name within the SSD.
    #[cfg(test)]
    pub(crate) fn name(&mut self, key: QueueKey) -> Option<QueueKey> {
        self.ports.called(key).map(|port| port.name)
    }

    /// Adds a command that arrived at `arrived` to the judged commands, if the worker may carry it out
    /// alone. `false`: nothing has happened.
    #[inline]
    pub(super) fn judge(
        &mut self,
        now: Time,
        arrived: Time,
        name: QueueKey,
        submission: Submission<'_>,
    ) -> bool {
        match submission.sqe.opcode {
            nvme::io::WRITE => self.judge_write(now, arrived, name, submission),
            _ => self.judge_read(now, arrived, name, submission),
        }
    }

    /// Commands that pend with this worker.
    #[cfg(test)]
    pub(crate) fn pending(&self) -> usize {
        self.backlog.len()
    }

    /// As at the end of a transport step: commits the writes that have arrived.
    #[cfg(test)]
    pub(crate) fn end_step(&mut self) {
        self.commit_arrived(self.now);
    }

    /// A function that commits the writes which all workers of this SSD have submitted.
    #[cfg(test)]
    pub(crate) fn committer(&self) -> impl Fn(Time) + Send + use<> {
        let shared = self.shared.of_first();
        move |now| {
            if let Some(commits) = shared.ftl().try_commits() {
                shared.commit_submitted(now, commits);
            }
        }
    }

    /// Writes that the worker has committed and answered alone.
    #[cfg(test)]
    pub(crate) fn writes_done(&self) -> u64 {
        self.state().writes_done()
    }

    pub(super) fn state(&self) -> &WorkerState {
        self.shared.state()
    }

    /// Whether the serving lease runs at this time.
    #[inline]
    pub(super) fn serves(&self, at: Time) -> bool {
        self.shared.workers().serves(at)
    }

    /// Fetches the rules again if they have changed.
    #[inline]
    pub(super) fn refresh(&mut self) {
        if self.shared.workers().version() != self.rules.version() {
            self.fetch_rules();
        }
    }

    #[cold]
    fn fetch_rules(&mut self) {
        let mut ssd = self.shared.lock();
        self.rules.fetch(&mut ssd, &self.shared, &mut self.ports);
        drop(ssd);
        // A fence may wait for writes that wait for room: they are judged at once.
        self.writes.try_again();
    }
}

impl Controller for Worker {
    fn open_queue(&mut self, now: Time, key: QueueKey, request: &CmRequest) -> Result<(), u16> {
        self.now = now;
        let entries = request.hsqsize_z.get().saturating_add(1);
        let name = self.ports.open(key, entries).ok_or(cm_reject::NO_RESOURCES)?.name;
        let opened = self.shared.lock().open_queue(now, name, request);
        if opened.is_err() {
            self.ports.close(name);
        }
        opened
    }

    fn close_queue(&mut self, now: Time, key: QueueKey) {
        self.now = now;
        let Some(name) = self.ports.called(key).map(|port| port.name) else { return };
        self.end(name);
        self.shared.lock().close_queue(now, name);
    }

    fn submit(&mut self, now: Time, key: QueueKey, sqe: &Sqe) {
        self.now = now;
        self.refresh();
        let Some(port) = self.ports.called(key) else { return self.ssd().count_late_capsule() };
        let (name, fits) = (port.name, port.arrive());
        let (is_connected, is_io) = (port.is_connected(), port.is_io());
        let plain = port.reader.filter(|_| is_plain(sqe)).map(|identity| Submission { identity, sqe });
        if !fits {
            port.fetch();
            return self.shared.lock().refuse_overrun(now, name, sqe.cid.get());
        }
        if is_connected {
            self.take_outcomes(now);
            // Pending commands came before this one.
            self.dispatch_pending(now);
            if is_io && self.is_busy(now) {
                let is_begun = plain.is_some_and(|submission| self.pull_ahead(now, name, submission));
                if is_begun || self.pend(name, now, Waiting::Command(*sqe)) {
                    return;
                }
            }
        }
        if let Some(submission) = plain
            && self.judge(now, now, name, submission)
        {
            return self.book_judged(now);
        }
        if !self.ask(now, now, name, sqe) {
            self.shared.lock().count_late_capsule();
        }
    }

    /// Prefetches the map's buckets for all reads, and then the records of the pages found there: two waits
    /// for memory in all. Writes look up their blocks at the commit.
    fn announce(&mut self, commands: &[Sqe]) {
        self.announce_reads(commands.iter());
    }

    fn own_memory(&self) -> Vec<Arc<HostRegion>> {
        self.shared.ftl().own_memory()
    }

    fn transferred(&mut self, now: Time, transfer: TransferId, outcome: Outcome) {
        self.now = now;
        match transfer.0 & BOTH_MARKS {
            MARK => match self.reads.end(transfer.0) {
                Some(read) => self.end_read(now, read, refusal_of(outcome)),
                None => self.shared.lock().smart_mut().count_unknown_transfer(),
            },
            OTHER_MARK => self.end_pull(now, transfer, outcome),
            BOTH_MARKS => self.end_push(now, transfer, outcome),
            _ => self.shared.end_transfer(now, (transfer, outcome)),
        }
    }

    fn leave(&mut self, now: Time) -> bool {
        self.ssd().say_goodbye(now)
    }

    fn answered(&mut self, now: Time, ask: AskId, answer: Option<&Cqe>, data: &[u8]) {
        self.now = now;
        let mut ssd = self.ssd();
        if crate::repair::is_of_repair(ask) {
            ssd.peer_answered(now, ask, answer, data);
        } else {
            ssd.voter_answered(now, ask, answer);
        }
    }

    fn step(&mut self, now: Time) {
        self.now = now;
        self.shared.workers().saw(now);
        self.refresh();
        // Writes that the modelled firmware takes now have their data. They are committed together with all
        // others that have arrived.
        self.dispatch_pending(now);
        self.commit_arrived(now);
        self.take_loads(now);
        let workers = self.shared.workers();
        // A worker that commits meanwhile also runs the maintenance.
        if workers.is_maintenance_due(now)
            && !workers.is_committing()
            && let Some(mut commits) = self.shared.ftl().try_commits()
        {
            workers.maintain_at(commits.maintain(now));
            workers.note_change();
        }
        if workers.is_to_look(now)
            && let Some(mut ssd) = self.shared.try_lock()
        {
            workers.looked();
            ssd.watch_flash(now);
            ssd.count_on(now);
        }
        // The worker that holds the lock does this maintenance, or sets the time for it.
        if now >= workers.alarm()
            && let Some(mut ssd) = self.shared.try_lock()
        {
            ssd.step(now);
        }
    }

    fn resumed(&mut self, now: Time) {
        self.shared.lock().hosts.resumed(now);
    }

    fn next_event(&self) -> Option<Time> {
        let writes = self.writes.wants().unwrap_or(Time::NEVER);
        if writes <= self.now || self.outbox.has_mail() || self.state().has_mail() {
            return Some(self.now);
        }
        let workers = self.shared.workers();
        let own = self.backlog.at().min(writes).min(self.reads.wants());
        Some(workers.next(self.shared.index()).min(own)).filter(|&at| at != Time::NEVER)
    }

    fn pop_effect(&mut self) -> Option<Effect> {
        self.next_effect()
    }
}

impl Drop for Worker {
    /// An SSD may be switched off with reads in flight; their hosts see the connection break.
    fn drop(&mut self) {
        self.forfeit_commands();
    }
}
