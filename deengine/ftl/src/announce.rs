// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prefetching for commits: the words that a commit will look up are read into the cache two groups ahead.
//!
//! ```text
//!   group n + 2   buckets of the map and stamp histories are prefetched
//!   group n + 1   blocks are looked up, records of the pages found are prefetched
//!   group n       is committed
//! ```

pub(crate) mod state;

use crate::layer::Inner;
use crate::write::Commits;
use gnstor_flash::Ppa;
use gnstor_proto::slba::Vid;

impl Commits<'_> {
    /// Number of groups that are announced before the group that is committed.
    pub const AHEAD: usize = state::AHEAD;

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
