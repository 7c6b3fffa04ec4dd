// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The life of a write, second part, after its data has arrived. The worker submits the write in its
//! combining queue. The holder of the layer's lock commits it, and the worker completes it.

use super::{Submitted, Write, Writes};
use crate::commands::CompletionPermit;
use crate::commands::OK;
use crate::controller::Ssd;
use crate::io::guard::Handle;
use crate::io::waiting::without_room;
use crate::io::worker::Worker;
use crate::permission::Authorized;
use crate::request::Refused;
use crate::request::Request;
use crate::workers::combining::{CombiningQueue, CommitOutcome, Job, commit_all};
use gnstor_base::controller::Effect;
use gnstor_base::time::Time;
use gnstor_ftl::{CommitError, Target};
use gnstor_ftl::{Commits, Committed};
use gnstor_proto::nvme::Cqe;
use gnstor_proto::placement::Rows;
use gnstor_proto::status::Refusal;

/// This many arrived writes are committed without waiting for the end of the step. While a batch is pending,
/// the worker retries after every BATCH arrivals.
const BATCH: usize = 16;
/// How often a worker tries the lock, once a step, before it sleeps for it. A thread that sleeps wakes
/// many microseconds late, and its engine does nothing meanwhile.
const PATIENCE: u32 = 1 << 14;

impl Worker {
    /// Completes the writes that another worker has committed. A long step calls it with each command and
    /// transfer.
    #[inline]
    pub(in crate::io) fn take_outcomes(&mut self, now: Time) {
        if !self.writes.submitted.is_empty() && !self.combining().is_submitted() {
            self.complete_submitted(now);
            if self.writes.arrived.len() >= BATCH {
                self.commit_arrived(now);
            }
        }
    }

    #[inline]
    pub(in crate::io) fn arrive(&mut self, id: u32) {
        self.writes.arrived.push(id);
        // While a batch is pending, retry after every BATCH arrivals.
        if self.writes.arrived.len().is_multiple_of(BATCH) {
            self.commit_arrived(self.now);
        }
    }

    /// Commits the arrived writes and completes them. If another worker commits, that worker commits these
    /// too, or the next step does.
    pub(in crate::io) fn commit_arrived(&mut self, now: Time) {
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

    /// Waits until every submitted write is committed and its outcome is read. Afterwards this worker has
    /// no write submitted.
    pub(in crate::io) fn finish_submitted(&mut self, now: Time) {
        if self.combining().is_submitted() {
            let commits = self.shared.ftl().commits();
            self.shared.commit_submitted(now, commits);
        }
        self.complete_submitted(now);
    }

    fn combining(&self) -> &CombiningQueue {
        self.state().combining()
    }

    /// Judges the arrived writes again, and submits each that the rules allow.
    fn submit_arrived(&mut self, now: Time) {
        self.refresh();
        // Judged by the time of the commit: a lease that ends before the commit counts as ended already.
        let now = now.max(self.shared.workers().latest());
        let Writes { commands, arrived, submitted, is_stalled, judges_all, .. } = &mut self.writes;
        let (has_no_room, judges_all) = (std::mem::take(is_stalled), std::mem::take(judges_all));
        // If the layer had no room, a few writes test whether it has now. After a change of rights all are
        // judged, else a fence would wait for the room of those behind.
        let is_test = has_no_room && !judges_all;
        let most = if is_test { BATCH.min(arrived.len()) } else { arrived.len() };
        let queue = self.shared.state().combining();
        // The lease is read after the version: see `workers/lease_word.rs`.
        let lease_end = self.shared.workers().lease_end();
        let mut work = queue.work();
        work.begin(self.rules.version());
        for id in arrived.drain(..most) {
            let Some(write) = commands.get_mut(id) else { continue };
            if std::mem::take(&mut write.is_stalled) {
                write.data_at = write.data_at.max(now);
            }
            let allowed = match &write.command {
                Some((_, request)) if write.failure.is_none() => {
                    let is_judged = write.version == self.rules.version();
                    let judged = self.rules.confirm_until((now, lease_end), request, is_judged);
                    write.failure = judged.err();
                    let only_mapped = self.rules.only_mapped(request);
                    let fills = self.rules.fills(request);
                    judged.ok().map(|until| (Target { only_mapped, fills, ..target(request) }, until))
                }
                _ => None,
            };
            let Some((target, until)) = allowed else {
                submitted.push(Submitted { write: id, is_job: false });
                continue;
            };
            // The current entry allows the write, too, so the write counts as judged by that. A fence then
            // does not wait for it: the layer may have no room for long.
            if write.version != self.rules.version()
                && let Some((_, request)) = &mut write.command
                && let Some(serial) = self.rules.serial(request.slot()).filter(|now| *now != request.serial())
                && self.shared.workers().enter(self.shared.index(), request.slot(), self.rules.version())
            {
                self.shared.state().in_flight(request.slot()).leave(false);
                request.confirmed_by(serial);
                write.version = self.rules.version();
            }
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

    /// Commits the submitted writes of all workers. `false`: another worker has the lock.
    fn commit_submitted(&mut self, now: Time) -> bool {
        let (ftl, workers) = (self.shared.ftl(), self.shared.workers());
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
        self.shared.commit_submitted(now, commits);
        true
    }

    /// Completes the committed writes. A write that was judged by old rules is judged again.
    fn complete_submitted(&mut self, now: Time) {
        self.writes.looks = 0;
        let mut submitted = std::mem::take(&mut self.writes.submitted);
        let mut outcomes = std::mem::take(&mut self.writes.outcomes);
        outcomes.extend(self.combining().work().jobs.drain(..).map(|job| job.outcome));
        let mut next = outcomes.drain(..);
        // Writes that are submitted again came before later arrivals.
        let mut again = std::mem::take(&mut self.writes.again);
        for Submitted { write: id, is_job } in submitted.drain(..) {
            let outcome = if is_job { next.next() } else { None };
            if let Some(CommitOutcome::Stalled) = outcome {
                self.writes.stall(id, now, self.shared.ftl().flash().is_held());
            }
            if let Some(CommitOutcome::Stale | CommitOutcome::Stalled) = outcome {
                again.push(id);
                continue;
            }
            let Some(write) = self.writes.commands.remove(id) else { continue };
            match (write.command, outcome) {
                // A queue is closed only after its submitted writes are finished.
                (None, Some(CommitOutcome::Committed(_))) => {
                    unreachable!("a write of a closed queue is not committed")
                }
                (Some((permit, request)), Some(CommitOutcome::Committed(committed))) => {
                    self.state().left();
                    self.keep_list(write.blocks);
                    self.answer_write(now, permit, request, &committed);
                }
                (command, outcome) => {
                    let now = now.max(self.shared.workers().latest());
                    let refused = match outcome {
                        Some(CommitOutcome::Refused(error)) => self.refusal_of(error),
                        _ => write.failure.unwrap_or(Refusal::NotReady.into()),
                    };
                    self.refuse_write(now, Write { command, ..write }, refused);
                }
            }
        }
        drop(next);
        if !again.is_empty() {
            again.append(&mut self.writes.arrived);
            std::mem::swap(&mut self.writes.arrived, &mut again);
        }
        (self.writes.submitted, self.writes.outcomes, self.writes.again) = (submitted, outcomes, again);
    }

    #[inline]
    fn answer_write(
        &mut self,
        now: Time,
        permit: CompletionPermit,
        request: Authorized<Request>,
        committed: &Committed,
    ) {
        let is_durable_write = request.get().fua || self.shared.workers().writes_through();
        // The serving lease may have ended in the meantime (protocol rule 2).
        if is_durable_write || !self.serves(committed.done) {
            self.shared.lock().written(now, permit, &request, committed);
            return self.leave(now, &request);
        }
        let blocks = request.get().blocks;
        self.state().count_write(request.slot(), blocks, committed.overtaken);
        let (queue, cid) = permit.spend();
        if let Some(port) = self.ports.get(queue) {
            port.count_write(blocks);
            let mut cqe = Cqe { sqhd: port.complete().into(), cid: cid.into(), ..Cqe::default() };
            cqe.set_status_word(OK.status.0);
            self.outbox.push(Effect::Complete { queue, cqe, at: committed.done, pushed_bytes: 0 });
        }
        self.leave(now, &request);
    }

    /// Ends a write that is not committed.
    #[cold]
    pub(super) fn refuse_write(&mut self, now: Time, write: Write, refused: Refused) {
        self.state().left();
        self.release_frames(write.blocks);
        let Some((permit, request)) = write.command else { return };
        let (vid, at) = (request.get().address.vid.get(), write.stage.time().max(now));
        self.shared.lock().refuse(permit, vid, refused, at);
        self.leave(now, &request);
    }

    /// The refusal of a write that the layer refuses.
    #[cold]
    fn refusal_of(&self, error: CommitError) -> Refused {
        match error {
            CommitError::Unmapped => {
                let ssd = self.shared.lock();
                let epoch = ssd.table.fleet().map_or(0, |fleet| fleet.map().wire_epoch());
                Refused::at(Refusal::GroupFull, epoch)
            }
            _ => without_room(error).into(),
        }
    }
}

impl Handle {
    /// Commits the writes that all workers have submitted, this worker's after the others. Then runs
    /// maintenance of the layer.
    pub(in crate::io) fn commit_submitted(&self, now: Time, mut commits: Commits<'_>) {
        let workers = self.workers();
        let committing = workers.committing();
        // Under the lock: see the module's doc.
        let version = workers.version();
        commit_all(
            workers.combining_queues(self.index()),
            || now.max(workers.latest()),
            version,
            &mut commits,
        );
        workers.note_change();
        // Before the lock is let go: the next holder overwrites this with a newer time.
        workers.maintain_at(commits.advance(now));
        drop(committing);
    }
}

impl Ssd {
    /// Counts and answers a write that is in the map.
    pub(crate) fn written(
        &mut self,
        now: Time,
        permit: CompletionPermit,
        request: &Authorized<Request>,
        committed: &Committed,
    ) {
        let vid = request.get().address.vid.get();
        self.smart_mut().count_write(request.get().blocks, committed.overtaken);
        let fua = request.get().fua || !self.write_cache_enabled();
        self.count(request);
        // A queue that has ended takes no answer, so nothing waits for its sake.
        if fua && self.hosts.queue(permit.queue()).is_some() {
            self.make_durable(now, permit, vid, committed.done);
        } else {
            self.acknowledge(permit, vid, committed.done);
        }
    }
}

pub(in crate::io) fn target(request: &Authorized<Request>) -> Target {
    let Request { address, stamp, .. } = *request.get();
    // The permission check has seen that the last block is below a capacity of at most 2^32.
    Target {
        vid: address.vid,
        generation: request.generation(),
        vba: address.vba,
        stamp,
        only_mapped: false,
        fills: false,
    }
}
