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
//! Most commands are reads of blocks in memory ([`super::read`]) and plain writes ([`super::write`]). A
//! worker carries them out alone: it judges by its copy of the rules, and counts the command in flight
//! where fences look ([`crate::workers`]). What the rules do not plainly allow, and every other command,
//! it asks of the [`Ssd`] under its lock. So every rule is written once, and the worker's own path only
//! ever says yes.

use super::dispatch::is_plain;
use super::guard::{Shared, SsdGuard};
use super::pace::Pace;
use super::pending::{Pending, Taken, Waiting};
use super::port::{Port, Ports};
use super::read::{Found, Judged, Read};
use super::write::Writes;
use crate::controller::Ssd;
use crate::io::state::slab::{MARK, OTHER_MARK, Slab};
use crate::permission::Rules;
use crate::request::Submission;
use crate::workers::{MAX_WORKERS, Note, Place, WorkerSet, WorkerState};
use gnstor_base::controller::{AskId, Controller, Effect, Outcome, QueueKey, TransferId};
use gnstor_base::region::HostRegion;
use gnstor_base::time::Time;
use gnstor_ftl::Batch;
use gnstor_proto::fabrics::{CmRequest, Identity, cm_reject};
use gnstor_proto::nvme::{self, Cqe, ReadWrite, Sqe};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// One worker of an SSD. It is aligned, so that two workers share no cache line.
#[derive(Debug)]
#[repr(align(128))]
pub struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) index: usize,
    pub(super) rules: Arc<Rules>,
    /// The version of `rules`.
    pub(super) version: u64,
    pub(super) ports: Ports,
    pub(super) reads: Slab<Read>,
    pub(super) writes: Writes,
    /// Commands that pend, and the list of commands that are taken at a time.
    pub(super) pending: Pending,
    pub(super) burst: Vec<Taken>,
    /// Time at which pending commands must be checked. Before that none can be taken.
    pub(super) pending_at: Time,
    pub(super) place: Place,
    /// Commands that may go the worker's own path and wait for the model.
    pub(super) judged: Vec<Judged>,
    /// The data of the reads among those.
    pub(super) found: Vec<Found>,
    /// Effects of the worker itself, not yet taken.
    pub(super) effects: VecDeque<Effect>,
    /// Notes of the firmware, not yet taken.
    pub(super) mail: VecDeque<Note>,
    pub(super) batch: Batch,
    pub(super) zero_sum: u32,
    pub(super) pace: Pace,
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
        let (ftl, rules, zero_sum) =
            (self.share_ftl(), Arc::clone(self.table.rules()), self.commands.lists.zero_sum);
        let shared = Arc::new(Shared { ssd: Mutex::new(self), workers, ftl });
        let worker = |index| Worker {
            shared: Arc::clone(&shared),
            index,
            rules: Arc::clone(&rules),
            version: shared.workers.version(),
            ports: Ports::new(index),
            reads: Slab::marked(),
            writes: Writes::beside(count),
            pending: Pending::default(),
            burst: Vec::new(),
            pending_at: Time::NEVER,
            place: Place::new(index),
            judged: Vec::new(),
            found: Vec::new(),
            effects: VecDeque::new(),
            mail: VecDeque::new(),
            batch: Batch::default(),
            zero_sum,
            pace: Pace::REAL,
            now: Time::ZERO,
        };
        let workers = (0..count).map(worker).collect();
        drop(shared.lock(0));
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
        self.shared.lock(self.index)
    }

    /// From here on each note that the firmware, or another worker, leaves for this worker calls `wake`: its
    /// thread may sleep. Only the first call counts.
    pub fn wake_by(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.state().wake_by(wake);
    }

    /// Frames that this worker has taken for a client whose data is under way.
    #[cfg(test)]
    pub(crate) fn share_of(&self, client: gnstor_proto::slba::ClientId) -> u32 {
        self.writes.shares.held(client)
    }

    /// `None` if another worker has the lock.
    #[cfg(test)]
    pub(crate) fn try_ssd(&self) -> Option<SsdGuard<'_>> {
        self.shared.try_lock(self.index)
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

    /// Asks for the map's entries and the pages' records that the reads among these will look for.
    pub(super) fn announce_reads<'a>(&mut self, commands: impl Iterator<Item = &'a Sqe>) {
        let blocks = commands
            .filter(|sqe| sqe.opcode == nvme::io::READ)
            .filter_map(|sqe| ReadWrite::decode(sqe).slba.unpack());
        let mut blocks = blocks.map(|address| (address.vid, address.vba)).peekable();
        while blocks.peek().is_some() {
            self.shared.ftl.announce(blocks.by_ref(), &mut self.batch);
        }
    }

    /// Commands that pend with this worker.
    #[cfg(test)]
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// As at the end of a transport step: commits the writes that have arrived.
    #[cfg(test)]
    pub(crate) fn end_step(&mut self) {
        self.commit_arrived(self.now);
    }

    /// A function that commits the writes which all workers of this SSD have submitted.
    #[cfg(test)]
    pub(crate) fn committer(&self) -> impl Fn(Time) + Send + use<> {
        let shared = Arc::clone(&self.shared);
        move |now| {
            if let Some(commits) = shared.ftl.try_commits() {
                shared.commit_submitted(0, now, commits);
            }
        }
    }

    /// Writes that the worker has committed and answered alone.
    #[cfg(test)]
    pub(crate) fn writes_done(&self) -> u64 {
        self.state().writes_done()
    }

    pub(super) fn state(&self) -> &WorkerState {
        self.shared.workers.state(self.index)
    }

    /// Whether the serving lease runs at this time.
    #[inline]
    pub(super) fn serves(&self, at: Time) -> bool {
        self.shared.workers.serves(at)
    }

    /// Fetches the rules again if they have changed.
    #[inline]
    pub(super) fn refresh(&mut self) {
        if self.shared.workers.version() != self.version {
            self.fetch_rules();
        }
    }

    #[cold]
    fn fetch_rules(&mut self) {
        let mut ssd = self.shared.lock(self.index);
        // The version does not change while the lock is held.
        let (rules, version) = (Arc::clone(ssd.table.rules()), self.shared.workers.version());
        self.ports.iter_mut().for_each(|port| ssd.refresh(port));
        drop(ssd);
        self.shared.workers.state(self.index).adopt_rules(self.rules.changed(&rules), version);
        (self.rules, self.version) = (rules, version);
        // A fence may wait for writes that wait for room: they are judged at once.
        self.writes.try_again();
    }
}

impl Controller for Worker {
    fn open_queue(&mut self, now: Time, key: QueueKey, request: &CmRequest) -> Result<(), u16> {
        self.now = now;
        let entries = request.hsqsize_z.get().saturating_add(1);
        let name = self.ports.open(key, entries).ok_or(cm_reject::NO_RESOURCES)?.name;
        let opened = self.shared.lock(self.index).open_queue(now, name, request);
        if opened.is_err() {
            self.ports.close(name);
        }
        opened
    }

    fn close_queue(&mut self, now: Time, key: QueueKey) {
        self.now = now;
        let Some(name) = self.ports.called(key).map(|port| port.name) else { return };
        self.end(name);
        self.shared.lock(self.index).close_queue(now, name);
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
            return self.shared.lock(self.index).refuse_overrun(now, name, sqe.cid.get());
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
            self.shared.lock(self.index).count_late_capsule();
        }
    }

    /// Prefetches the map's buckets for all reads, and then the records of the pages found there: two waits
    /// for memory in all. Writes look up their blocks at the commit.
    fn announce(&mut self, commands: &[Sqe]) {
        self.announce_reads(commands.iter());
    }

    fn own_memory(&self) -> Vec<Arc<HostRegion>> {
        self.shared.ftl.own_memory()
    }

    fn transferred(&mut self, now: Time, transfer: TransferId, outcome: Outcome) {
        self.now = now;
        if transfer.0 & OTHER_MARK != 0 {
            return self.end_pull(now, transfer, outcome);
        }
        if transfer.0 & MARK == 0 {
            return self.shared.end_transfer(self.index, now, (transfer, outcome));
        }
        match self.reads.remove(transfer.0) {
            Some(read) => self.end_read(now, read, outcome),
            None => self.shared.lock(self.index).smart_mut().stats_mut().unknown_transfers += 1,
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
        self.shared.workers.saw(now);
        self.refresh();
        // Writes that the modelled firmware takes now have their data. They are committed together with all
        // others that have arrived.
        self.dispatch_pending(now);
        self.commit_arrived(now);
        let workers = &self.shared.workers;
        // A worker that commits meanwhile also runs the maintenance.
        if workers.is_maintenance_due(now)
            && !workers.is_committing()
            && let Some(mut commits) = self.shared.ftl.try_commits()
        {
            workers.maintain_at(commits.maintain(now));
            workers.note_change();
        }
        if workers.is_to_look(now)
            && let Some(mut ssd) = self.shared.try_lock(self.index)
        {
            workers.looked();
            ssd.watch_flash(now);
            ssd.count_on(now);
        }
        // The worker that holds the lock does this maintenance, or sets the time for it.
        if now >= workers.alarm()
            && let Some(mut ssd) = self.shared.try_lock(self.index)
        {
            ssd.step(now);
        }
    }

    fn resumed(&mut self, now: Time) {
        self.shared.lock(self.index).hosts.resumed(now);
    }

    fn next_event(&self) -> Option<Time> {
        let writes = self.writes.wants().unwrap_or(Time::NEVER);
        if writes <= self.now || !self.mail.is_empty() || self.state().has_mail() {
            return Some(self.now);
        }
        let workers = &self.shared.workers;
        Some(workers.next(self.index).min(self.pending_at).min(writes)).filter(|&at| at != Time::NEVER)
    }

    fn pop_effect(&mut self) -> Option<Effect> {
        loop {
            if self.mail.is_empty() && self.state().has_mail() {
                self.shared.workers.state(self.index).take_mail(&mut self.mail);
            }
            match self.mail.pop_front() {
                Some(Note::Effect(effect)) => {
                    if let Some(effect) = self.translate(effect) {
                        return Some(effect);
                    }
                }
                Some(Note::CloseOlder(slot)) => self.close_older(slot),
                Some(Note::TakeBack { queue, cid, command }) => self.take_back(queue, cid, command),
                None => return self.pop_own(),
            }
        }
    }
}

impl Drop for Worker {
    /// An SSD may be switched off with reads in flight; their hosts see the connection break.
    fn drop(&mut self) {
        self.forfeit_commands();
    }
}
