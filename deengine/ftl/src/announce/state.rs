// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State of commits under the layer's lock.

use gnstor_map::{Batch, Probe};
use gnstor_proto::slba::Vid;

/// Number of groups that are announced before the group that is committed.
pub(in crate::announce) const AHEAD: usize = 2;

/// State of commits: announced blocks, memory that each commit reuses, and the number of the last page.
#[derive(Debug, Default)]
pub(crate) struct CommitState {
    pub(in crate::announce) groups: [Batch; 1 + AHEAD],
    /// Groups announced.
    pub(in crate::announce) announced: usize,
    /// Number of groups whose blocks are all committed, and number of committed blocks of the next group.
    pub(in crate::announce) over: usize,
    pub(in crate::announce) at: usize,
    /// For each block of the current write, its place in the map; `None` if a newer stamp is there.
    pub(in crate::announce) probes: Vec<Option<Probe>>,
    pub(in crate::announce) page_seq: u64,
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

    pub(in crate::announce) fn group(&mut self, number: usize) -> &mut Batch {
        &mut self.groups[number % (1 + AHEAD)]
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
