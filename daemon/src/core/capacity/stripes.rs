// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stripes of a volume, by the row of groups in which each lies. A stripe is 32 consecutive chunks in 32
//! consecutive groups ([`STRIPE_GROUPS`]), so a count by stripes draws one hash for 32 chunks.

use super::Layout;
use gnstor_proto::placement::{STRIPE_GROUPS, group_of};
use std::sync::Arc;

/// Chunks of a stripe.
pub(super) const CHUNKS: u64 = STRIPE_GROUPS as u64;

/// The whole stripes of a volume. They depend on the number of groups, and not on the SSDs of those.
#[derive(Clone, Debug)]
pub(super) struct Stripes {
    layout: Layout,
    blocks: u64,
    groups: u32,
    /// Rows that have stripes, and the number of these.
    rows: Arc<[(u32, u32)]>,
}

/// The row of a stripe: the groups from 32 times this number on.
pub(super) fn row_of(layout: Layout, stripe: u64, groups: u32) -> u32 {
    let block = (stripe * CHUNKS) << layout.chunk_shift;
    let vba = u32::try_from(block).expect("a stripe begins below 2^32 blocks");
    group_of(layout.vid, vba, layout.chunk_shift, layout.factor, groups) / STRIPE_GROUPS
}

/// The groups of a stripe's chunks. An array of fewer groups has its groups in turn.
pub(super) fn groups_of(row: u32, groups: u32) -> impl Iterator<Item = u32> {
    (0..STRIPE_GROUPS).map(move |nth| (row * STRIPE_GROUPS + nth) & (groups - 1))
}

impl Stripes {
    /// Counts the stripes of a volume of `blocks` blocks.
    pub(super) fn count(layout: Layout, blocks: u64, groups: u32) -> Self {
        let mut of_rows = vec![0u32; groups.div_ceil(STRIPE_GROUPS) as usize];
        for stripe in 0..whole(layout, blocks) {
            of_rows[row_of(layout, stripe, groups) as usize] += 1;
        }
        let rows = (0u32..).zip(of_rows).filter(|&(_, count)| count > 0).collect();
        Self { layout, blocks, groups, rows }
    }

    /// Whether these are of a volume of `blocks` blocks with this layout.
    pub(super) fn are_of(&self, layout: Layout, blocks: u64, groups: u32) -> bool {
        (self.layout, self.blocks, self.groups) == (layout, blocks, groups)
    }

    /// Rows that have stripes, and the number of these.
    pub(super) fn rows(&self) -> &[(u32, u32)] {
        &self.rows
    }

    /// Number of stripes with 32 whole chunks.
    pub(super) fn whole(&self) -> u64 {
        whole(self.layout, self.blocks)
    }
}

fn whole(layout: Layout, blocks: u64) -> u64 {
    (blocks >> layout.chunk_shift) / CHUNKS
}
