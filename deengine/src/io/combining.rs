// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the workers of an SSD have to commit, where all of them see it: whoever has the translation layer's lock commits for all.
//!
//! ```text
//!   worker a --post--> lane a --.
//!   worker b --post--> lane b ---+--> the worker that has the lock --> commits --> results in the lanes --> each answers its own
//!   worker c --post--> lane c --'
//! ```
//! So a worker never waits for its turn at the lock: what it would have done there is done by whoever was there first, with the map, the journal and
//! the stamp windows in that worker's cache. A lane is its worker's until submitted, the holder's of the lock until it is done, and its worker's again.

use super::workers::Line;
use crate::permission::lease::runs;
use gnstor_base::time::Time;
use gnstor_ftl::{CommitError, Commits, Committed, NewBlock, Target};
use gnstor_proto::slba::Vid;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Blocks whose places are asked for together, and as many of them [`Commits::AHEAD`] groups ahead: what is asked for much earlier than it is
/// used has left the cache again (`cargo bench -p gnstor-ftl --bench commits_together`).
const TOGETHER: usize = 16;

/// A write to be committed.
#[derive(Debug)]
pub(super) struct Job {
    /// When its data was there, and when the modelled firmware had taken it.
    pub(super) at: Time,
    pub(super) accepted: Time,
    pub(super) target: Target,
    /// How many of the lane's blocks are its.
    pub(super) blocks: u32,
    /// Until when the leases run by which it was judged.
    pub(super) until: Time,
    pub(super) outcome: CommitOutcome,
}

/// What became of it.
#[derive(Clone, Copy, Debug)]
pub(super) enum CommitOutcome {
    /// It has not been looked at; or the rules have changed since it was judged, or a lease has ended.
    Stale,
    Committed(Committed),
    /// There is no room for it just now, or it comes behind one for which there is none; the frames are still the worker's.
    Stalled,
    /// The layer refuses; the frames are still the worker's.
    Refused,
}

/// What a worker has submitted.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// The version of the rules that all of it was judged by.
    version: u64,
    pub(super) jobs: Vec<Job>,
    /// Of all jobs, in their order; and how many of them the holder of the lock has been through.
    blocks: Vec<NewBlock>,
    over: usize,
}

/// One worker's.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// The work is the holder's of the lock. Apart from the work: the worker looks at it while the holder writes there.
    submitted: Line<AtomicBool>,
    /// Nobody waits for it: whose it is says `submitted`.
    work: Line<Mutex<Work>>,
}

impl Lane {
    /// The work, which is the worker's own.
    pub(super) fn work(&self) -> MutexGuard<'_, Work> {
        self.work.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the work to whoever has the lock.
    pub(super) fn post(&self) {
        // Pairs with the load in `is_submitted`.
        self.submitted.0.store(true, Ordering::Release);
    }

    /// Whether the work still has to be done.
    #[inline]
    pub(super) fn is_submitted(&self) -> bool {
        // Pairs with the stores in `post` and `give_back`.
        self.submitted.0.load(Ordering::Acquire)
    }

    /// Its worker may have the work again.
    fn give_back(&self) {
        // Pairs with the load in `is_submitted`.
        self.submitted.0.store(false, Ordering::Release);
    }
}

/// Commits what is submitted in any of these lanes, in their order, where it was judged by the rules of `version`, which are those of now. What one lane
/// waits for may take time, so the time is asked for anew. Whether anything was submitted and there was room for it.
pub(super) fn commit_all<'a>(
    lanes: impl Iterator<Item = &'a Lane>,
    now: impl Fn() -> Time,
    version: u64,
    commits: &mut Commits<'_>,
) -> bool {
    let mut works: Vec<_> =
        lanes.filter(|lane| lane.is_submitted()).map(|lane| (lane, Some(lane.work()))).collect();
    if works.is_empty() {
        return false;
    }
    let mut groups = Vec::new();
    for (index, (lane, work)) in works.iter_mut().enumerate() {
        match work.take_if(|work| work.version != version) {
            None => groups.extend(work.iter_mut().flat_map(|work| work.groups()).map(|group| (index, group))),
            Some(work) => {
                drop(work);
                lane.give_back();
            }
        }
    }
    if groups.is_empty() {
        return true;
    }
    let mut is_full = false;
    for number in 0..groups.len() + Commits::AHEAD {
        // What is not tried is not looked for.
        let next = groups.get(number).filter(|_| !is_full);
        let coming = next.and_then(|&(index, (from, to))| Some(&works[index].1.as_ref()?.jobs[from..to]));
        commits.announce(coming.unwrap_or_default().iter().flat_map(Job::places));
        let Some((index, (from, to))) = number.checked_sub(Commits::AHEAD).map(|at| groups[at]) else {
            continue;
        };
        let (lane, work) = &mut works[index];
        let is_last = work.as_mut().is_some_and(|work| {
            is_full = work.commit(now(), from..to, commits, is_full);
            to == work.jobs.len()
        });
        if is_last {
            *work = None;
            lane.give_back();
        }
    }
    !is_full
}

impl Work {
    /// Nothing is in it, and what comes was judged by the rules of this version.
    pub(super) fn begin(&mut self, version: u64) {
        self.version = version;
        self.jobs.clear();
        self.blocks.clear();
    }

    /// Adds a write of these blocks.
    pub(super) fn add(&mut self, job: Job, blocks: &[NewBlock]) {
        let count = u32::try_from(blocks.len()).expect("blocks of a command");
        self.jobs.push(Job { blocks: count, ..job });
        self.blocks.extend_from_slice(blocks);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// The jobs in groups whose places are asked for together, from and to: as many as fit, or one, however long.
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

    /// Commits these jobs, which come next, as far as there is room: where `is_full` there is none. Whether it is full then.
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
            // One that has been committed is not committed again, also where whoever did it did not live to say so.
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
                Err(CommitError::Full | CommitError::WornOut) => CommitOutcome::Refused,
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
