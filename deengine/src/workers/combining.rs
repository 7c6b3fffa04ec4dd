// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Combined commits: the worker that has the translation layer's lock commits the writes of all workers.
//!
//! ```text
//!   worker a --submit--> queue a --.
//!   worker b --submit--> queue b ---+--> the lock holder commits --> outcomes in the queues
//!   worker c --submit--> queue c --'                                 each worker completes its own writes
//! ```
//! So a worker need not wait for the lock. The lock holder commits for it, with map, journal and stamp
//! histories in its own cache. A queue belongs to its worker until it is submitted, then to the lock
//! holder until its writes are done.

use super::OwnLine;
use crate::workers::runs;
use gnstor_base::time::Time;
use gnstor_ftl::{CommitError, Commits, Committed, NewBlock, Target};
use gnstor_proto::slba::Vid;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Blocks whose map entries are prefetched together, [`Commits::AHEAD`] groups ahead. An entry that is
/// prefetched much earlier has left the cache before it is used (`cargo bench -p gnstor-ftl --bench
/// commits_together`).
const TOGETHER: usize = 16;

/// A write to be committed.
#[derive(Debug)]
pub(crate) struct Job {
    /// Time at which its data had arrived, and the modelled firmware had taken it.
    pub(crate) at: Time,
    pub(crate) accepted: Time,
    pub(crate) target: Target,
    /// Number of the queue's blocks that belong to it.
    pub(crate) blocks: u32,
    /// First end of a lease that allows it.
    pub(crate) until: Time,
    pub(crate) outcome: CommitOutcome,
}

/// Result of committing a write.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CommitOutcome {
    /// Not tried: the rules have changed since it was judged, or a lease has ended.
    Stale,
    Committed(Committed),
    /// There is no room for the write now, or for an earlier one. The worker keeps the frames.
    Stalled,
    /// The layer refuses it. The worker keeps the frames.
    Refused(CommitError),
}

/// The writes of one worker.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Version of the rules by which all writes were judged.
    version: u64,
    pub(crate) jobs: Vec<Job>,
    /// Blocks of all jobs, in order, and the number of them that the lock holder has handled.
    blocks: Vec<NewBlock>,
    over: usize,
}

/// One worker's queue.
#[derive(Debug, Default)]
pub(crate) struct CombiningQueue {
    /// The work belongs to the lock holder. The worker polls this flag while the holder writes the work,
    /// so it has a cache line of its own.
    submitted: OwnLine<AtomicBool>,
    /// The lock is never contended: `submitted` decides who owns it.
    work: OwnLine<Mutex<Work>>,
}

impl CombiningQueue {
    /// Locks the work while it belongs to the worker.
    pub(crate) fn work(&self) -> MutexGuard<'_, Work> {
        self.work.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits the work to the lock holder.
    pub(crate) fn submit(&self) {
        // Pairs with the load in `is_submitted`.
        self.submitted.0.store(true, Ordering::Release);
    }

    /// Whether the work still has to be done.
    #[inline]
    pub(crate) fn is_submitted(&self) -> bool {
        // Pairs with the stores in `submit` and `give_back`.
        self.submitted.0.load(Ordering::Acquire)
    }

    /// The worker may use its queue again.
    fn give_back(&self) {
        // Pairs with the load in `is_submitted`.
        self.submitted.0.store(false, Ordering::Release);
    }
}

/// Commits the submitted writes of these queues in order, if the rules still have the `version` by which the
/// writes were judged. A queue may take time, so it reads `now` for each group.
pub(crate) fn commit_all<'a>(
    queues: impl Iterator<Item = &'a CombiningQueue>,
    now: impl Fn() -> Time,
    version: u64,
    commits: &mut Commits<'_>,
) {
    let mut works: Vec<_> =
        queues.filter(|queue| queue.is_submitted()).map(|queue| (queue, Some(queue.work()))).collect();
    let mut groups = Vec::new();
    for (index, (queue, work)) in works.iter_mut().enumerate() {
        match work.take_if(|work| work.version != version) {
            None => groups.extend(work.iter_mut().flat_map(|work| work.groups()).map(|group| (index, group))),
            Some(work) => {
                drop(work);
                queue.give_back();
            }
        }
    }
    if groups.is_empty() {
        return;
    }
    let mut is_full = false;
    for number in 0..groups.len() + Commits::AHEAD {
        // The combiner prefetches nothing for jobs that it will not try.
        let next = groups.get(number).filter(|_| !is_full);
        let coming = next.and_then(|&(index, (from, to))| Some(&works[index].1.as_ref()?.jobs[from..to]));
        commits.announce(coming.unwrap_or_default().iter().flat_map(Job::places));
        let Some((index, (from, to))) = number.checked_sub(Commits::AHEAD).map(|at| groups[at]) else {
            continue;
        };
        let (queue, work) = &mut works[index];
        let is_last = work.as_mut().is_some_and(|work| {
            is_full = work.commit(now(), from..to, commits, is_full);
            to == work.jobs.len()
        });
        if is_last {
            *work = None;
            queue.give_back();
        }
    }
}

impl Work {
    /// Empties the work, for writes that were judged by this version of the rules.
    pub(crate) fn begin(&mut self, version: u64) {
        self.version = version;
        self.jobs.clear();
        self.blocks.clear();
    }

    /// Adds a write of these blocks.
    pub(crate) fn add(&mut self, job: Job, blocks: &[NewBlock]) {
        let count = u32::try_from(blocks.len()).expect("blocks of a command");
        self.jobs.push(Job { blocks: count, ..job });
        self.blocks.extend_from_slice(blocks);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Ranges of jobs that are prefetched together: as many as fit into [`TOGETHER`] blocks, or one job.
    fn groups(&mut self) -> Vec<(usize, usize)> {
        self.over = 0;
        let mut groups: Vec<(usize, usize)> = Vec::new();
        let mut blocks = 0;
        for (at, job) in self.jobs.iter().enumerate() {
            blocks += job.blocks as usize;
            match groups.last_mut() {
                Some((_, to)) if blocks <= TOGETHER => *to = at + 1,
                _ => {
                    groups.push((at, at + 1));
                    blocks = job.blocks as usize;
                }
            }
        }
        groups
    }

    /// Commits these jobs, which are next, until there is no room. `is_full`: there is no room already.
    /// Returns whether it is full then.
    fn commit(
        &mut self,
        now: Time,
        which: Range<usize>,
        commits: &mut Commits<'_>,
        mut is_full: bool,
    ) -> bool {
        let Self { jobs, blocks, over, .. } = self;
        for job in &mut jobs[which] {
            let own = &blocks[*over..*over + job.blocks as usize];
            *over += job.blocks as usize;
            // A job that was committed is not committed again, even if its lock holder panicked before it
            // said so.
            if !runs(job.until, now) || !matches!(job.outcome, CommitOutcome::Stale) {
                continue;
            }
            if is_full {
                job.outcome = CommitOutcome::Stalled;
                continue;
            }
            job.outcome = match commits.commit(job.at, job.accepted, &job.target, own) {
                Ok(committed) => CommitOutcome::Committed(committed),
                Err(CommitError::Stalled) => CommitOutcome::Stalled,
                Err(error) => CommitOutcome::Refused(error),
            };
            is_full = matches!(job.outcome, CommitOutcome::Stalled);
        }
        is_full
    }
}

impl Job {
    /// The blocks that it writes.
    fn places(&self) -> impl Iterator<Item = (Vid, u32)> + use<> {
        let Target { vid, vba, .. } = self.target;
        (0..self.blocks).map(move |index| (vid, vba + index))
    }
}
