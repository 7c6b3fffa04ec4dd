// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The short way of plain writes. The core judges, takes frames and pulls the data without a lock; what has arrived by the end of a step
//! is committed together, under one hold of the translation layer's lock. The lock of the [`crate::Ssd`] is not asked for.
//!
//! ```text
//!   submit        rules, frames, count in flight -> Pull                                                   no lock
//!   transferred   the data of one block is there; the last one puts the write among those that have arrived
//!   step          judge again, post in the core's lane                                                     no lock
//!                 whoever has the lock: rules still the same? commit what is posted in all lanes           the layer's lock
//!                 -> Complete; what is not plain (refused, stalled, FUA) goes to the Ssd                   no lock; the Ssd's
//! ```
//! Where another core commits, it commits these writes too, or they wait for the next step, and more of them come together. A sweep or a fence
//! that began before the lock was taken has changed the version of the rules before, so writes that were judged by the version found under the
//! lock are committed before either; others are judged again.

use super::lane::{Job, Lane, Verdict, commit_all};
use super::read::Command;
use super::{Core, Shared, SsdGuard};
use crate::command::{OK, WriteEnd};
use crate::controller::refusal_of;
use crate::permission::Authorized;
use crate::permit::CompletionPermit;
use crate::request::{Request, Submission};
use crate::slab::Slab;
use crate::write::target;
use gnstor_fabric::controller::{Effect, Outcome, QueueKey, TransferId};
use gnstor_fabric::time::Time;
use gnstor_ftl::{Commits, Committed, NewBlock};
use gnstor_proto::fabrics::Identity;
use gnstor_proto::nvme::{Cqe, Sqe};
use gnstor_proto::status::Refusal;

/// So many that have arrived are committed without waiting for the end of the step.
const BATCH: usize = 16;
/// How often the lock is looked at, once a step, before a core waits for it: a thread that sleeps for it is woken many microseconds late, and
/// all that its engine could have done meanwhile with it.
const PATIENCE: u32 = 1 << 14;
/// Looks after which a core takes the lock although somebody helps, who may have lost the processor.
const HELPED_PATIENCE: u32 = 64;
/// Looks after which a core asks for help.
const ALONE_PATIENCE: u32 = 4;

/// The writes of one core.
#[derive(Debug)]
pub(super) struct Writes {
    commands: Slab<Write>,
    pulls: Slab<Pull>,
    /// All of their data is there, oldest first.
    arrived: Vec<Arrived>,
    /// What the core's lane was given, oldest first, and what has not been committed because it is not to be.
    posted: Vec<Posted>,
    verdicts: Vec<Verdict>,
    /// Looks at the lock that found it taken, since those that have arrived last were committed.
    looks: u32,
    /// Reused lists.
    spare: Vec<Vec<NewBlock>>,
}

impl Default for Writes {
    fn default() -> Self {
        Self {
            commands: Slab::new(),
            pulls: Slab::marked_otherwise(),
            arrived: Vec::new(),
            posted: Vec::new(),
            verdicts: Vec::new(),
            looks: 0,
            spare: Vec::new(),
        }
    }
}

/// A write whose data is under way, or has arrived.
#[derive(Debug)]
pub(super) struct Write {
    /// What is answered; gone once the queue is.
    pub(super) command: Command,
    blocks: Vec<NewBlock>,
    /// When the modelled firmware had taken it.
    accepted: Time,
    /// Blocks whose transfers have not ended.
    pending: u32,
    /// The first transfer that failed.
    failure: Option<Refusal>,
    /// The version of the rules that it was judged by.
    version: u64,
}

/// It is moved twice, in and out of its slot.
const _: () = assert!(size_of::<Option<Write>>() <= 160);

/// A write whose data is there.
#[derive(Debug)]
struct Arrived {
    write: u32,
    /// Since when: the model commits it then, however late the core gets to it.
    at: Time,
}

/// One that is about to be committed or refused.
#[derive(Debug)]
struct Posted {
    write: u32,
    at: Time,
    /// Whether it is in the lane.
    is_job: bool,
}

/// A block under way.
#[derive(Debug)]
struct Pull {
    write: u32,
    /// Which block of the write.
    index: u32,
}

impl Writes {
    /// Whether some wait to be committed.
    #[inline]
    pub(super) fn have_arrived(&self) -> bool {
        !self.arrived.is_empty() || !self.posted.is_empty()
    }

    /// What the writes under way are to answer.
    pub(super) fn commands(&mut self) -> impl Iterator<Item = &mut Command> {
        self.commands.iter_mut().map(|write| &mut write.command)
    }
}

impl Core {
    /// Begins the write, which the modelled firmware takes at `start`, if it is plainly allowed and there is room for its data; otherwise
    /// nothing has happened.
    #[inline]
    pub(super) fn begin_write(
        &mut self,
        now: Time,
        start: Time,
        queue: QueueKey,
        identity: Identity,
        sqe: &Sqe,
    ) -> bool {
        if self.rules.is_recovering() {
            return false;
        }
        let Ok(request) = Request::parse(&Submission { identity, sqe }) else { return false };
        if !self.writes.commands.has_room(1) || !self.writes.pulls.has_room(request.blocks) {
            return false;
        }
        let Ok(request) = self.rules.authorise(now, identity, request) else { return false };
        if self.rules.is_limited(&request) {
            return false;
        }
        let (ftl, count) = (&self.shared.ftl, request.get().blocks);
        let mut blocks = self.writes.spare.pop().unwrap_or_default();
        blocks.extend((0..count).map_while(|_| ftl.take_frame()).map(|frame| NewBlock { frame, sum: 0 }));
        let is_whole = blocks.len() == count as usize;
        if !is_whole || !self.shared.roster.enter(self.index, request.slot(), self.version) {
            self.drop_blocks(blocks);
            return false;
        }
        let booked = ftl.book_write(start);
        self.share().work(booked.free.since(start));
        self.share().entered();
        if let Some(port) = self.ports.get(queue) {
            port.fetch();
        }
        let first = *request.get();
        let command = Some((CompletionPermit::issue(queue, sqe.cid.get()), request));
        let (accepted, pending) = (booked.done, count);
        let write = Write { command, blocks, accepted, pending, failure: None, version: self.version };
        let id = self.writes.commands.insert(write);
        let Some(write) = self.writes.commands.get_mut(id) else { return true };
        for (index, block) in (0u32..).zip(&write.blocks) {
            let transfer = TransferId(self.writes.pulls.insert(Pull { write: id, index }));
            let (remote, local) = (first.remote_of(index), self.shared.ftl.frame(block.frame));
            self.effects.push_back(Effect::Pull { transfer, queue, remote, local });
        }
        true
    }

    /// The transfer of a block has ended.
    #[inline]
    pub(super) fn end_pull(&mut self, now: Time, transfer: TransferId, outcome: Outcome) {
        let Some(Pull { write: id, index }) = self.writes.pulls.remove(transfer.0) else {
            self.shared.lock().stats.unknown_transfers += 1;
            return;
        };
        let Some(write) = self.writes.commands.get_mut(id) else { return };
        match outcome {
            Outcome::Done { sum } => write.blocks[index as usize].sum = sum,
            _ => write.failure = write.failure.or(refusal_of(outcome)),
        }
        write.pending -= 1;
        if write.pending > 0 {
            return;
        }
        if write.command.is_none() {
            return self.bury_write(id);
        }
        self.writes.arrived.push(Arrived { write: id, at: now });
        if self.writes.arrived.len() >= BATCH && self.writes.posted.is_empty() {
            self.commit_arrived(now);
        }
    }

    /// Has committed what has arrived, and answers it. Where another core commits just now that one does it, or it is done at the next step.
    pub(super) fn commit_arrived(&mut self, now: Time) {
        while self.writes.have_arrived() {
            if self.writes.posted.is_empty() {
                self.post(now);
            }
            if self.lane().is_posted() && !self.commit_posted(now) {
                return;
            }
            self.answer_posted(now);
        }
    }

    /// What has been posted is committed, and its results are heard, however long that takes: nothing of this core's is under way then.
    pub(super) fn finish_posted(&mut self, now: Time) {
        if self.lane().is_posted() {
            let commits = self.shared.ftl.commits();
            self.shared.commit_lanes(self.index, now, commits);
        }
        self.answer_posted(now);
    }

    fn lane(&self) -> &Lane {
        self.share().lane()
    }

    /// Judges what has arrived once more and posts it; what is not to be committed any more goes to the firmware.
    fn post(&mut self, now: Time) {
        self.refresh();
        let Writes { commands, arrived, posted, .. } = &mut self.writes;
        let lane = self.shared.roster.share(self.index).lane();
        let mut work = lane.work();
        work.begin(self.version);
        for Arrived { write: id, at } in arrived.drain(..) {
            let Some(write) = commands.get_mut(id) else { continue };
            let allowed = write.command.as_ref().filter(|_| write.failure.is_none()).and_then(|(_, request)| {
                let identity = Identity::Client(request.get().address.client);
                // By the same rules only the time can have taken the right away.
                let until = self.rules.runs_until(request);
                let same = write.version == self.version && now < until;
                (same || self.rules.confirm(now, identity, request).is_ok()).then(|| (target(request), until))
            });
            let Some((target, until)) = allowed else {
                posted.push(Posted { write: id, at, is_job: false });
                continue;
            };
            let accepted = write.accepted.max(at);
            work.add(Job { at, accepted, target, until, blocks: 0, verdict: Verdict::Stale }, &write.blocks);
            posted.push(Posted { write: id, at, is_job: true });
        }
        if !work.is_empty() {
            drop(work);
            lane.post();
        }
    }

    /// Commits what all cores have posted; `false` where another core has the lock.
    fn commit_posted(&mut self, now: Time) -> bool {
        let Shared { ftl, roster, .. } = &*self.shared;
        let commits = match self.writes.looks {
            PATIENCE.. => Some(ftl.commits()),
            _ if roster.is_committing() => None,
            ..HELPED_PATIENCE if roster.has_help() => None,
            _ => ftl.try_commits(),
        };
        let Some(commits) = commits else {
            self.writes.looks += 1;
            if self.writes.looks == ALONE_PATIENCE {
                roster.ask_for_help();
            }
            self.share().put_off();
            return false;
        };
        self.shared.commit_lanes(self.index, now, commits);
        true
    }
    /// Answers what has been committed; what was judged by old rules is judged again.
    fn answer_posted(&mut self, now: Time) {
        self.writes.looks = 0;
        let mut posted = std::mem::take(&mut self.writes.posted);
        let mut verdicts = std::mem::take(&mut self.writes.verdicts);
        verdicts.extend(self.lane().work().jobs.drain(..).map(|job| job.verdict));
        let mut next = verdicts.drain(..);
        for Posted { write: id, at, is_job } in posted.drain(..) {
            let verdict = if is_job { next.next() } else { None };
            if let Some(Verdict::Stale) = verdict {
                self.writes.arrived.push(Arrived { write: id, at });
                continue;
            }
            let Some(write) = self.writes.commands.remove(id) else { continue };
            self.share().left();
            match (write.command, verdict) {
                // Whoever takes a command away has the lane finished before.
                (None, Some(Verdict::Committed(_))) => unreachable!("nothing is committed for nobody"),
                (None, _) => self.drop_blocks(write.blocks),
                (Some((permit, request)), Some(Verdict::Committed(committed))) => {
                    self.keep_list(write.blocks);
                    self.answer_write(now, permit, request, &committed);
                }
                (Some((permit, request)), _) => {
                    let (queue, identity) = (permit.queue(), Identity::Client(request.get().address.client));
                    let mut ssd = self.hand_over(&permit, &request);
                    let end = WriteEnd { request, identity, blocks: write.blocks };
                    ssd.finish_write(now, permit, queue, write.failure.map(Into::into), write.accepted, end);
                }
            }
        }
        drop(next);
        (self.writes.posted, self.writes.verdicts) = (posted, verdicts);
    }

    #[inline]
    fn answer_write(
        &mut self,
        now: Time,
        permit: CompletionPermit,
        request: Authorized<Request>,
        committed: &Committed,
    ) {
        let hardens = request.get().fua || self.shared.roster.writes_through();
        // The serving lease may have ended in the meantime (protocol rule 2).
        if hardens || !self.rules.serves(committed.done) {
            let queue = permit.queue();
            let mut ssd = self.hand_over(&permit, &request);
            return ssd.written(now, permit, queue, request, committed);
        }
        let blocks = request.get().blocks;
        self.share().count_write(request.slot(), blocks, committed.overtaken);
        let (queue, cid) = permit.spend();
        if let Some(port) = self.ports.get(queue) {
            port.count_write(blocks);
            port.complete();
            let mut cqe = Cqe { sqhd: port.head().into(), cid: cid.into(), ..Cqe::default() };
            cqe.set_status_word(OK.status.0);
            self.effects.push_back(Effect::Complete { queue, cqe, at: committed.done, pushed_bytes: 0 });
        }
        self.leave(now, &request);
    }

    /// The firmware goes on with a write, and counts it in flight from now on.
    fn hand_over(&self, permit: &CompletionPermit, request: &Authorized<Request>) -> SsdGuard<'_> {
        let is_current = self.rules.serial(request.slot()) == Some(request.serial());
        let mut ssd = self.shared.lock();
        ssd.adopt(permit, request);
        self.share().flight(request.slot()).leave(is_current);
        ssd
    }

    /// Nobody waits for the write any more, nor for its transfers.
    fn bury_write(&mut self, id: u32) {
        if let Some(write) = self.writes.commands.remove(id) {
            self.share().left();
            self.drop_blocks(write.blocks);
        }
    }

    /// The data of a write is not wanted.
    fn drop_blocks(&mut self, blocks: Vec<NewBlock>) {
        blocks.iter().for_each(|block| self.shared.ftl.give_frame(block.frame));
        self.keep_list(blocks);
    }

    fn keep_list(&mut self, mut blocks: Vec<NewBlock>) {
        blocks.clear();
        self.writes.spare.push(blocks);
    }
}

impl Shared {
    /// Commits what all cores have posted, that of core `first` before the others', and lets the layer get on.
    pub(super) fn commit_lanes(&self, first: usize, now: Time, mut commits: Commits<'_>) {
        let roster = &self.roster;
        let committing = roster.committing();
        // Under the lock: see the module's doc.
        let version = roster.version();
        commit_all(roster.lanes(first), || now.max(roster.latest()), version, &mut commits);
        roster.note_change();
        // Before the lock is let go: the next one to have it knows better.
        roster.settle_at(commits.advance(now));
        drop(committing);
    }
}
