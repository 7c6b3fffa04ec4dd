// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prefetching for commits: the words that a commit will look up are read into the cache two groups ahead.
//!
//! ```text
//!   group n + 2   buckets of the map and stamp histories are prefetched
//!   group n + 1   blocks are looked up, records of the pages found are prefetched
//!   group n       is committed
//! ```

use crate::layer::Inner;
use crate::write::Commits;
use gnstor_flash::Ppa;
use gnstor_map::{Batch, Probe};
use gnstor_proto::slba::Vid;

/// State of commits: announced blocks, memory that each commit reuses, and the number of the last page.
#[derive(Debug, Default)]
pub(crate) struct CommitState {
    groups: [Batch; 1 + Commits::AHEAD],
    /// Groups announced.
    announced: usize,
    /// Number of groups whose blocks are all committed, and number of committed blocks of the next group.
    over: usize,
    at: usize,
    /// For each block of the current write, its place in the map; `None` if a newer stamp is there.
    probes: Vec<Option<Probe>>,
    page_seq: u64,
    /// Transactions of the blocks that hosts wrote.
    #[cfg(test)]
    pub(crate) applied_at: Vec<gnstor_durable::Seq>,
}

impl CommitState {
    /// For an SSD whose last page had this number.
    pub(crate) fn new(page_seq: u64) -> Self {
        Self { page_seq, ..Self::default() }
    }

    /// Drops the groups that were announced in an earlier hold of the lock.
    pub(crate) fn clear(&mut self) {
        (self.announced, self.over, self.at) = (0, 0, 0);
    }

    /// Number of the last page that a host wrote.
    pub(crate) fn page_seq(&self) -> u64 {
        self.page_seq
    }

    /// Counts a page that a host writes, and returns its number.
    #[inline]
    pub(crate) fn next_page_seq(&mut self) -> u64 {
        self.page_seq += 1;
        self.page_seq
    }

    /// Pages up to this number were written before a restore.
    pub(crate) fn raise_page_seq(&mut self, seq: u64) {
        self.page_seq = self.page_seq.max(seq);
    }

    /// Takes the empty list for the probes of a write. [`Self::put_probes`] returns it.
    #[inline]
    pub(crate) fn take_probes(&mut self) -> Vec<Option<Probe>> {
        let mut probes = std::mem::take(&mut self.probes);
        probes.clear();
        probes
    }

    #[inline]
    pub(crate) fn put_probes(&mut self, probes: Vec<Option<Probe>>) {
        self.probes = probes;
    }

    fn group(&mut self, number: usize) -> &mut Batch {
        &mut self.groups[number % (1 + Commits::AHEAD)]
    }

    /// The place of the next block, if this block was announced next.
    #[inline]
    pub(crate) fn next(&mut self, vid: Vid, vba: u32) -> Option<Probe> {
        while self.over < self.announced && self.at >= self.group(self.over).len() {
            (self.over, self.at) = (self.over + 1, 0);
        }
        let at = self.at;
        let probe =
            (self.over < self.announced).then(|| self.group(self.over).probe_of(at, vid, vba)).flatten();
        self.at += usize::from(probe.is_some());
        probe
    }
}

impl Commits<'_> {
    /// Number of groups that are announced before the group that is committed.
    pub const AHEAD: usize = 2;

    /// Prefetches what commits of these blocks will look up, and looks up the blocks of the group announced
    /// before.
    ///
    /// Blocks are committed in this order. A group is committed after [`Self::AHEAD`] more are announced,
    /// which may be empty. At most [`gnstor_map::Batch::MOST`] blocks of a group count.
    pub fn announce(&mut self, blocks: impl IntoIterator<Item = (Vid, u32)>) {
        let Inner { commits, stamps, .. } = &mut *self.inner;
        let number = commits.announced;
        commits.announced += 1;
        let blocks = blocks.into_iter().inspect(|(vid, vba)| stamps.histories.touch(*vid, *vba));
        self.ftl.map.probe_batch(blocks, commits.group(number));
        if let Some(before) = number.checked_sub(1) {
            let batch = commits.group(before);
            self.ftl.map.find_batch(batch);
            (0..batch.len())
                .filter_map(|at| batch.page(at))
                .for_each(|page| self.ftl.flash.prefetch(Ppa(page)));
        }
    }
}
