// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The life of a write, second part, after its data has arrived. The worker submits the write in its
//! combining queue. The holder of the layer's lock commits it, and the worker completes it.

use super::{Submitted, Writes};
use crate::commands::Accepted;
use crate::commands::CompletionPermit;
use crate::commands::Work;
use crate::commands::{OK, WriteEnd};
use crate::controller::Ssd;
use crate::io::guard::{Handle, SsdGuard};
use crate::io::waiting::without_room;
use crate::io::worker::Worker;
use crate::permission::Authorized;
use crate::request::Refused;
use crate::request::Request;
use crate::workers::combining::{CombiningQueue, CommitOutcome, Job, commit_all};
use crate::workers::runs;
use gnstor_base::controller::Effect;
use gnstor_base::time::Time;
use gnstor_ftl::{CommitError, Target};
use gnstor_ftl::{Commits, Committed};
use gnstor_proto::fabrics::Identity;
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

    /// Judges the arrived writes again and submits them. A write that may not be committed goes to the
    /// firmware.
    fn submit_arrived(&mut self, now: Time) {
        self.refresh();
        // Judged by the time of the commit: a lease that ends before the commit counts as ended already.
        let now = now.max(self.shared.workers().latest());
        let Writes { commands, arrived, submitted, is_stalled, .. } = &mut self.writes;
        // If the layer had no room, a few writes test whether it has now.
        let most = if std::mem::take(is_stalled) { BATCH.min(arrived.len()) } else { arrived.len() };
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
            let allowed =
                write.command.as_ref().filter(|_| write.failure.is_none()).and_then(|(_, request)| {
                    let identity = Identity::Client(request.get().address.client);
                    // A write whose leases have ended by `until` is not submitted, even if `confirm` allows
                    // it. The commit would return it as stale, and the worker would submit it again at the
                    // same time, for ever.
                    let until = self.rules.runs_until(lease_end, request);
                    let same = write.version == self.rules.version();
                    let allowed = runs(until, now)
                        && (same || self.rules.confirm(now, lease_end, identity, request).is_ok());
                    let only_mapped = self.rules.only_mapped(request);
                    let fills = self.rules.fills(request);
                    allowed.then(|| (Target { only_mapped, fills, ..target(request) }, until))
                });
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
            self.state().left();
            match (write.command, outcome) {
                // A queue is closed only after its submitted writes are finished.
                (None, Some(CommitOutcome::Committed(_))) => {
                    unreachable!("a write of a closed queue is not committed")
                }
                (None, _) => self.release_frames(write.blocks),
                (Some((permit, request)), Some(CommitOutcome::Committed(committed))) => {
                    self.keep_list(write.blocks);
                    self.answer_write(now, permit, request, &committed);
                }
                (Some((permit, request)), _) => {
                    let identity = Identity::Client(request.get().address.client);
                    let accepted = write.stage.time();
                    let now = now.max(self.shared.workers().latest());
                    let mut ssd = self.hand_over(&request);
                    let end = WriteEnd { request, identity, blocks: write.blocks };
                    let command = Accepted { now, at: accepted, permit };
                    ssd.finish_write(command, write.failure.map(Into::into), end);
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
            let mut ssd = self.hand_over(&request);
            return ssd.written(now, permit, request, committed);
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

    /// Hands a write to the firmware, which counts it in flight from now on.
    fn hand_over(&self, request: &Authorized<Request>) -> SsdGuard<'_> {
        let is_current = self.rules.serial(request.slot()) == Some(request.serial());
        let mut ssd = self.shared.lock();
        ssd.adopt(request);
        self.state().in_flight(request.slot()).leave(is_current);
        ssd
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
    /// All data has arrived. Readers see no change yet, and the write is judged again now.
    pub(crate) fn finish_write(&mut self, command: Accepted, failure: Option<Refused>, end: WriteEnd) {
        let Accepted { now, at: accepted, permit } = command;
        let vid = end.request.get().address.vid.get();
        let judged = match failure {
            Some(refused) => Err(refused),
            None => self.table.confirm(now, end.identity, &end.request),
        };
        if let Err(refused) = judged {
            self.give_up(now, end);
            return self.refuse(permit, vid, refused, accepted.max(now));
        }
        let (committed, maintain_at) = {
            let mut commits = self.ftl().commits();
            let only_mapped = self.table.rules().only_mapped(&end.request);
            let fills = self.table.rules().fills(&end.request);
            let target = Target { only_mapped, fills, ..target(&end.request) };
            let committed = commits.commit(now, accepted.max(now), &target, &end.blocks);
            (committed, commits.advance(now))
        };
        self.maintain_by(maintain_at);
        let committed = match committed {
            Ok(committed) => committed,
            Err(CommitError::Stalled) => {
                // The write waits for room, which may take long. A fence does not wait for it: the write
                // counts as judged by the current entry.
                let end = WriteEnd { request: self.table.renew(end.request), ..end };
                let id = self.start(permit, vid, accepted, Work::Stalled(end));
                self.wait(now, id);
                return self.complete_fences(now);
            }
            Err(CommitError::Unmapped) => {
                let epoch = self.table.fleet().map_or(0, |fleet| fleet.map().wire_epoch());
                self.give_up(now, end);
                let refused = Refused::at(Refusal::GroupFull, epoch);
                return self.refuse(permit, vid, refused, accepted.max(now));
            }
            Err(error @ (CommitError::WornOut | CommitError::Full | CommitError::Failing)) => {
                self.give_up(now, end);
                return self.refuse(permit, vid, without_room(error).into(), accepted.max(now));
            }
        };
        let WriteEnd { request, mut blocks, .. } = end;
        blocks.clear();
        self.commands.lists.spare_blocks.push(blocks);
        self.written(now, permit, request, &committed);
    }

    /// Counts and answers a write that is in the map.
    pub(crate) fn written(
        &mut self,
        now: Time,
        permit: CompletionPermit,
        request: Authorized<Request>,
        committed: &Committed,
    ) {
        let vid = request.get().address.vid.get();
        self.smart_mut().count_write(request.get().blocks, committed.overtaken);
        let fua = request.get().fua || !self.write_cache_enabled();
        self.count(&request);
        self.leave(now, request);
        if fua {
            self.make_durable(now, permit, vid, committed.done);
        } else {
            self.acknowledge(permit, vid, committed.done);
        }
    }

    /// Takes over a write that a worker began.
    pub(crate) fn adopt(&mut self, request: &Authorized<Request>) {
        self.table.adopt(request);
    }

    /// Gives up a write that will not be committed: its frames go back.
    pub(crate) fn give_up(&mut self, now: Time, end: WriteEnd) {
        let WriteEnd { request, blocks, .. } = end;
        self.release_blocks(blocks);
        self.leave(now, request);
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
