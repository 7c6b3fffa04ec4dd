// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes whose data is there: submitted in the worker's lane, committed by whoever has the layer's lock, answered.

use super::worker::{Shared, SsdGuard, Worker};
use super::write::{Submitted, Writes};
use crate::io::command::{OK, WriteEnd};
use crate::io::firmware_write::target;
use crate::io::permit::CompletionPermit;
use crate::permission::Authorized;
use crate::permission::lease::runs;
use crate::request::Request;
use crate::workers::combining::{CombiningQueue, CommitOutcome, Job, commit_all};
use gnstor_base::controller::Effect;
use gnstor_base::time::Time;
use gnstor_ftl::{Commits, Committed};
use gnstor_proto::fabrics::Identity;
use gnstor_proto::nvme::Cqe;

/// So many that have arrived are committed without waiting for the end of the step.
const BATCH: usize = 16;
/// How often a worker that has the lock looks for what was submitted meanwhile: workers that wait for it need not ask for the lock themselves.
const ROUNDS: u32 = 2;
/// How often the lock is looked at, once a step, before a worker waits for it: a thread that sleeps for it is woken many microseconds late, and
/// all that its engine could have done meanwhile with it.
const PATIENCE: u32 = 1 << 14;

impl Worker {
    /// Answers what another worker has committed meanwhile: a step takes long where much has come up.
    #[inline]
    pub(super) fn take_outcomes(&mut self, now: Time) {
        if !self.writes.submitted.is_empty() && !self.combining().is_submitted() {
            self.complete_submitted(now);
            if self.writes.arrived.len() >= BATCH {
                self.commit_arrived(now);
            }
        }
    }

    #[inline]
    pub(super) fn arrive(&mut self, id: u32) {
        self.writes.arrived.push(id);
        // Those that find others submitted are looked after as often as there are as many more.
        if self.writes.arrived.len().is_multiple_of(BATCH) {
            self.commit_arrived(self.now);
        }
    }

    /// Has committed what has arrived, and answers it. Where another worker commits just now that one does it, or it is done at the next step.
    pub(super) fn commit_arrived(&mut self, now: Time) {
        while self.writes.wants().is_some_and(|at| at <= now) {
            if self.writes.submitted.is_empty() {
                self.submit_arrived(now);
            }
            if self.combining().is_submitted() && !self.commit_submitted(now) {
                return;
            }
            self.complete_submitted(now);
        }
    }

    /// What has been submitted is committed, and its results are heard, however long that takes: nothing of this worker's is under way then.
    pub(super) fn finish_submitted(&mut self, now: Time) {
        if self.combining().is_submitted() {
            let commits = self.shared.ftl.commits();
            self.shared.commit_submitted(self.index, now, commits);
        }
        self.complete_submitted(now);
    }

    fn combining(&self) -> &CombiningQueue {
        self.state().combining()
    }

    /// Judges what has arrived once more and posts it; what is not to be committed any more goes to the firmware.
    fn submit_arrived(&mut self, now: Time) {
        self.refresh();
        // Not before the time by which it is committed: a lease that is over then is over now.
        let now = now.max(self.shared.workers.latest());
        let Writes { commands, arrived, submitted, is_stalled, .. } = &mut self.writes;
        // Where there was no room a few find out whether there is.
        let most = if std::mem::take(is_stalled) { BATCH.min(arrived.len()) } else { arrived.len() };
        let queue = self.shared.workers.state(self.index).combining();
        let mut work = queue.work();
        work.begin(self.version);
        for id in arrived.drain(..most) {
            let Some(write) = commands.get_mut(id) else { continue };
            if std::mem::take(&mut write.is_stalled) {
                write.data_at = write.data_at.max(now);
            }
            let allowed =
                write.command.as_ref().filter(|_| write.failure.is_none()).and_then(|(_, request)| {
                    let identity = Identity::Client(request.get().address.client);
                    // Whatever `confirm` says, a write whose leases have ended by `until` is not submitted: the commit
                    // would return it as stale, and the worker would submit it again at the same time, for ever.
                    let until = self.rules.runs_until(request);
                    let same = write.version == self.version;
                    let allowed =
                        runs(until, now) && (same || self.rules.confirm(now, identity, request).is_ok());
                    allowed.then(|| (target(request), until))
                });
            let Some((target, until)) = allowed else {
                submitted.push(Submitted { write: id, is_job: false });
                continue;
            };
            let (at, accepted) = (write.data_at, write.stage.time().max(write.data_at));
            work.add(
                Job { at, accepted, target, until, blocks: 0, outcome: CommitOutcome::Stale },
                &write.blocks,
            );
            submitted.push(Submitted { write: id, is_job: true });
        }
        if !work.is_empty() {
            drop(work);
            queue.submit();
        }
    }

    /// Commits what all workers have submitted; `false` where another worker has the lock.
    fn commit_submitted(&mut self, now: Time) -> bool {
        let Shared { ftl, workers, .. } = &*self.shared;
        let commits = match self.writes.looks {
            PATIENCE.. => Some(ftl.commits()),
            _ if workers.is_committing() => None,
            _ => ftl.try_commits(),
        };
        let Some(commits) = commits else {
            self.writes.looks += 1;
            self.state().put_off();
            return false;
        };
        self.shared.commit_submitted(self.index, now, commits);
        true
    }

    /// Answers what has been committed; what was judged by old rules is judged again.
    fn complete_submitted(&mut self, now: Time) {
        self.writes.looks = 0;
        let mut submitted = std::mem::take(&mut self.writes.submitted);
        let mut outcomes = std::mem::take(&mut self.writes.outcomes);
        outcomes.extend(self.combining().work().jobs.drain(..).map(|job| job.outcome));
        let mut next = outcomes.drain(..);
        // They came before those that have arrived meanwhile.
        let mut again = std::mem::take(&mut self.writes.again);
        for Submitted { write: id, is_job } in submitted.drain(..) {
            let outcome = if is_job { next.next() } else { None };
            if let Some(CommitOutcome::Stalled) = outcome {
                self.writes.stall(id, now);
            }
            if let Some(CommitOutcome::Stale | CommitOutcome::Stalled) = outcome {
                again.push(id);
                continue;
            }
            let Some(write) = self.writes.commands.remove(id) else { continue };
            self.state().left();
            match (write.command, outcome) {
                // Whoever takes a command away has the lane finished before.
                (None, Some(CommitOutcome::Committed(_))) => unreachable!("nothing is committed for nobody"),
                (None, _) => self.release_frames(write.blocks),
                (Some((permit, request)), Some(CommitOutcome::Committed(committed))) => {
                    self.keep_list(write.blocks);
                    self.answer_write(now, permit, request, &committed);
                }
                (Some((permit, request)), _) => {
                    let (queue, identity) = (permit.queue(), Identity::Client(request.get().address.client));
                    let accepted = write.stage.time();
                    let now = now.max(self.shared.workers.latest());
                    let mut ssd = self.hand_over(&request);
                    let end = WriteEnd { request, identity, blocks: write.blocks };
                    ssd.finish_write(now, permit, queue, write.failure.map(Into::into), accepted, end);
                }
            }
        }
        drop(next);
        if !again.is_empty() {
            again.append(&mut self.writes.arrived);
            std::mem::swap(&mut self.writes.arrived, &mut again);
        }
        (self.writes.submitted, self.writes.outcomes, self.writes.again) = (submitted, outcomes, again);
        self.rest();
    }

    #[inline]
    fn answer_write(
        &mut self,
        now: Time,
        permit: CompletionPermit,
        request: Authorized<Request>,
        committed: &Committed,
    ) {
        let is_durable_write = request.get().fua || self.shared.workers.writes_through();
        // The serving lease may have ended in the meantime (protocol rule 2).
        if is_durable_write || !self.rules.serves(committed.done) {
            let queue = permit.queue();
            let mut ssd = self.hand_over(&request);
            return ssd.written(now, permit, queue, request, committed);
        }
        let blocks = request.get().blocks;
        self.state().count_write(request.slot(), blocks, committed.overtaken);
        let (queue, cid) = permit.spend();
        if let Some(port) = self.ports.get(queue) {
            port.count_write(blocks);
            let mut cqe = Cqe { sqhd: port.complete().into(), cid: cid.into(), ..Cqe::default() };
            cqe.set_status_word(OK.status.0);
            self.effects.push_back(Effect::Complete { queue, cqe, at: committed.done, pushed_bytes: 0 });
        }
        self.leave(now, &request);
    }

    /// The firmware goes on with a write, and counts it in flight from now on.
    fn hand_over(&self, request: &Authorized<Request>) -> SsdGuard<'_> {
        let is_current = self.rules.serial(request.slot()) == Some(request.serial());
        let mut ssd = self.shared.lock();
        ssd.adopt(request);
        self.state().in_flight(request.slot()).leave(is_current);
        ssd
    }
}

impl Shared {
    /// Commits what all workers have submitted, that of worker `last` after the others', and lets the layer get on.
    pub(super) fn commit_submitted(&self, last: usize, now: Time, mut commits: Commits<'_>) {
        let workers = &self.workers;
        let committing = workers.committing();
        for _ in 0..ROUNDS {
            // Under the lock: see the module's doc.
            let version = workers.version();
            if !commit_all(
                workers.combining_queues(last),
                || now.max(workers.latest()),
                version,
                &mut commits,
            ) {
                break;
            }
        }
        workers.note_change();
        // Before the lock is let go: the next one to have it knows better.
        workers.maintain_at(commits.advance(now));
        drop(committing);
    }
}
