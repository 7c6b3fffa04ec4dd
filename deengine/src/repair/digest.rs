// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Digests: if 64 blocks of two SSDs are the same, no rows are listed. The layer is locked during the
//! comparison, so no client's write comes in between.

use super::state::{Walk, Window};
use crate::controller::Ssd;
use crate::permission::fleet::Place;
use gnstor_proto::pull::LEAF;
use gnstor_proto::vendor::VolumeEntry;
use std::collections::VecDeque;

/// The blocks for which `is_meant` holds. All blocks of a chunk are in one group, so it is called once for
/// each chunk.
pub(super) fn of_chunks(
    entry: &VolumeEntry,
    blocks: impl Iterator<Item = u32>,
    is_meant: impl Fn(u32) -> bool,
) -> Vec<u32> {
    let (mut last, mut meant) = (None, false);
    let is_meant = |vba: &u32| {
        let chunk = Some(*vba >> entry.chunk_shift);
        if last != chunk {
            (last, meant) = (chunk, is_meant(*vba));
        }
        meant && u64::from(*vba) < entry.capacity_blocks
    };
    blocks.filter(is_meant).collect()
}

/// The ascending blocks that fall into each leaf of so many blocks from `first` on.
pub(super) fn leaves_of(first: u32, count: usize, blocks: &[u32]) -> impl Iterator<Item = &[u32]> {
    let place = move |vba: u32| (vba.saturating_sub(first) / LEAF) as usize;
    (0..count.div_ceil(LEAF as usize)).map(move |leaf| {
        let from = blocks.partition_point(|vba| place(*vba) < leaf);
        let to = blocks.partition_point(|vba| place(*vba) <= leaf);
        &blocks[from..to]
    })
}

impl Ssd {
    /// Takes the digests of a window. `None`: the data is no answer to the question.
    pub(super) fn compare_digests(
        &mut self,
        walk: &Walk,
        window: &mut Window,
        leaves: u32,
        data: &[u8],
    ) -> Option<()> {
        let (first, blocks) = (window.first, window.blocks);
        let data = data.get(..usize::try_from(leaves).ok()? * size_of::<u64>())?;
        let theirs: Vec<u64> = data.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        if theirs.len() != blocks.div_ceil(LEAF) as usize {
            return None;
        }
        (window.is_digested, window.to_list) = (true, VecDeque::new());
        let Some(decided) = self.blocks_decided_by_peer(walk, window) else { return Some(()) };
        let count = usize::try_from(blocks).ok()?;
        for (at, (leaf, theirs)) in (0u32..).zip(leaves_of(first, count, &decided).zip(theirs)) {
            if self.has_digest(walk, window, leaf, theirs) {
                continue;
            }
            let from = first + at * LEAF;
            let part = LEAF.min(blocks - at * LEAF);
            match window.to_list.back_mut() {
                Some((before, blocks)) if *before + *blocks == from => *blocks += part,
                _ => window.to_list.push_back((from, part)),
            }
        }
        Some(())
    }

    /// The blocks of a window where its SSD decides and this SSD has a place. `None`: the volume is gone, or
    /// has a writer.
    fn blocks_decided_by_peer(&self, walk: &Walk, window: &Window) -> Option<Vec<u32>> {
        let &Window { vid, generation, first, blocks, peer, .. } = window;
        let entry = self.entry_for(walk, vid).filter(|entry| entry.generation == generation)?;
        let fleet = self.table.fleet()?;
        // The answer has the digests of the blocks of which the peer tells, whatever the walk is for.
        let is_decided = |vba| {
            let tells = fleet.source(entry, vba) == Some(peer)
                || fleet.merges(entry, vba) && fleet.has_member(entry, vba, peer);
            tells && fleet.place(entry, vba) != Place::Absent
        };
        Some(of_chunks(entry, first..=first + (blocks - 1), is_decided))
    }

    /// Whether these blocks have this digest. Then each is equal to the other SSD's, and counts as compared.
    fn has_digest(&self, walk: &Walk, window: &Window, leaf: &[u32], theirs: u64) -> bool {
        let &Window { vid, generation, .. } = window;
        let filling = self.entry_for(walk, vid).zip(self.table.fleet()).map(|(entry, fleet)| {
            let counts = |vba| fleet.fills_block(entry, vba) && !fleet.merges(entry, vba);
            of_chunks(entry, leaf.iter().copied(), counts)
        });
        self.ftl().announce_rows(vid, leaf);
        let mut commits = self.ftl().commits();
        let is_same = commits.digest(vid, generation, leaf) == theirs;
        for vba in filling.into_iter().flatten().filter(|_| is_same) {
            commits.mark_current(vid, generation, vba);
        }
        is_same
    }
}
