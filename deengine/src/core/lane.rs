// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the cores of an SSD have to commit, where all of them see it: whoever has the translation layer's lock commits for all.
//!
//! ```text
//!   core a --post--> lane a --.
//!   core b --post--> lane b ---+--> the core that has the lock --> commits --> results in the lanes --> each answers its own
//!   core c --post--> lane c --'
//! ```
//! So a core never waits for its turn at the lock: what it would have done there is done by whoever was there first, with the map, the journal and
//! the stamp windows in that core's cache. A lane is its core's until posted, the holder's of the lock until it is done, and its core's again.

use gnstor_fabric::time::Time;
use gnstor_ftl::{Commits, Committed, NewBlock, Target};
use gnstor_proto::slba::Vid;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Blocks whose places are asked for together: what is asked for much earlier than it is used has left the cache again
/// (`cargo bench -p gnstor-ftl --bench commits_together`).
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
    pub(super) verdict: Verdict,
}

/// What became of it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict {
    /// It has not been looked at; or the rules have changed since it was judged, or a lease has ended.
    Stale,
    Committed(Committed),
    /// The layer refuses; the frames are still the core's.
    Refused,
}

/// What a core has posted.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// The version of the rules that all of it was judged by.
    version: u64,
    pub(super) jobs: Vec<Job>,
    /// Of all jobs, in their order.
    blocks: Vec<NewBlock>,
}

/// One core's.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Lane {
    /// The work is the holder's of the lock.
    posted: AtomicBool,
    /// Nobody waits for it: whose it is says `posted`.
    work: Mutex<Work>,
}

impl Lane {
    /// The work, which is the core's own.
    pub(super) fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the work to whoever has the lock.
    pub(super) fn post(&self) {
        // Pairs with the load in `commit`.
        self.posted.store(true, Ordering::Release);
    }

    /// Whether the work still has to be done.
    #[inline]
    pub(super) fn is_posted(&self) -> bool {
        // Pairs with the store in `commit`.
        self.posted.load(Ordering::Acquire)
    }

    /// Commits what is posted here, if anything is, where it was judged by the rules of `version`, which are those of now.
    pub(super) fn commit(&self, now: Time, version: u64, commits: &mut Commits<'_>) {
        if self.is_posted() {
            self.work().commit(now, version, commits);
            // Pairs with the load in `is_posted`.
            self.posted.store(false, Ordering::Release);
        }
    }
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

    fn commit(&mut self, now: Time, version: u64, commits: &mut Commits<'_>) {
        let Self { version: judged_by, jobs, blocks } = self;
        if *judged_by != version {
            return;
        }
        let (mut rest, mut announced) = (blocks.as_slice(), 0);
        for at in 0..jobs.len() {
            // What several writes look for comes to the cache together.
            if at >= announced {
                announced = at + Self::announce(&jobs[at..], commits);
            }
            let job = &mut jobs[at];
            let own;
            (own, rest) = rest.split_at(job.blocks as usize);
            // One that has been committed is not committed again, also where whoever did it did not live to say so.
            if now >= job.until || !matches!(job.verdict, Verdict::Stale) {
                continue;
            }
            job.verdict = match commits.commit(job.at, job.accepted, &job.target, own) {
                Ok(committed) => Verdict::Committed(committed),
                Err(_) => Verdict::Refused,
            };
        }
    }

    /// Has fetched what the first of these jobs look for; how many. At least one, however long.
    fn announce(jobs: &[Job], commits: &mut Commits<'_>) -> usize {
        let mut blocks = 0;
        let fits = |job: &&Job| {
            blocks += job.blocks as usize;
            blocks <= TOGETHER
        };
        let count = jobs.iter().take_while(fits).count().max(1);
        commits.announce(jobs[..count].iter().flat_map(Job::places));
        count
    }
}

impl Job {
    /// The blocks that it writes.
    fn places(&self) -> impl Iterator<Item = (Vid, u32)> + use<> {
        let Target { vid, vba, .. } = self.target;
        (0..self.blocks).map(move |index| (vid, vba + index))
    }
}
