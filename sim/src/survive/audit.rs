// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The audit of media: compares the copies on each SSD of a block's group with the answers that clients got.

use crate::survive::world::World;
use gnstor_ftl::Kept;
use gnstor_proto::checksum::block_sum;
use gnstor_proto::placement::{AnyMap, Rows as _, group_of};
use gnstor_proto::slba::Stamp;
use gnstor_proto::vendor::VolumeEntry;

/// Stamp and sum of a block as a read returns it; `None`: zeros.
fn reads_as(kept: Kept) -> Option<(Stamp, u32)> {
    match kept {
        Kept::Block { stamp, sum } => Some((stamp, sum)),
        Kept::Nothing | Kept::Tombstone { .. } => None,
    }
}

/// An SSD whose copy differs from that of the first. A copy that is rotten is not among `copies`.
fn differs(copies: &[(u16, Kept)], first: u16) -> Option<u16> {
    let (_, own) = copies.iter().find(|(ssd, _)| *ssd == first)?;
    copies.iter().find(|(_, other)| reads_as(*other) != reads_as(*own)).map(|(ssd, _)| *ssd)
}

/// Copies that must hold the last acknowledged write or a newer one. The group's first SSD is authoritative.
/// Where its copy is rotten, each other one counts: an acknowledged write is in all of them. Without voters
/// no copy is made equal to another one, and each serves.
fn judged(copies: &[(u16, Kept)], first: u16, settles: bool) -> impl Iterator<Item = (u16, Kept)> {
    let by_first = settles && copies.iter().any(|(ssd, _)| *ssd == first);
    copies.iter().copied().filter(move |(ssd, _)| !by_first || *ssd == first)
}

impl World {
    /// The newest map that an SSD has.
    pub(super) fn newest_map(&self) -> Option<AnyMap> {
        let maps = self.nodes.iter().filter_map(|node| {
            let ssd = node.worker()?.ssd();
            ssd.fleet_map().cloned()
        });
        maps.max_by_key(AnyMap::epoch)
    }

    /// The first thing that is wrong with a volume.
    pub(super) fn audit_volume(&self, entry: &VolumeEntry) -> Option<String> {
        let map = self.newest_map()?;
        let is_settled = self.history.settles && self.is_settled(entry);
        let blocks = u32::try_from(entry.capacity_blocks).expect("small");
        (0..blocks).find_map(|vba| self.audit_block(entry, &map, vba, is_settled))
    }

    /// Whether no SSD knows of a writer of the volume, or that its copies may differ. A client that was
    /// killed holds its lease until another one wants it.
    pub(super) fn is_settled(&self, entry: &VolumeEntry) -> bool {
        let mut tables = self.nodes.iter().filter_map(|node| {
            let entries = node.worker()?.ssd().volume_entries();
            entries.get(&entry.vid).filter(|kept| kept.generation == entry.generation).cloned()
        });
        tables.all(|kept| kept.writer.is_none() && !kept.unsettled)
    }

    /// An SSD's copy of a block.
    pub(super) fn kept(&self, entry: &VolumeEntry, vba: u32, ssd: u16) -> Option<Kept> {
        let worker = self.nodes[usize::from(ssd)].worker()?;
        let ssd = worker.ssd();
        let kept = ssd.ftl().commits().kept(entry.vid, entry.generation, vba);
        Some(kept)
    }

    fn audit_block(&self, entry: &VolumeEntry, map: &AnyMap, vba: u32, is_settled: bool) -> Option<String> {
        let group = group_of(entry.vid, vba, entry.chunk_shift, entry.factor, map.groups());
        let kept = |ssd: u16| self.kept(entry, vba, ssd);
        let members = map.replicas(group, entry.replicas).map(|member| member.ssd);
        let copies: Vec<(u16, Kept)> = members.filter_map(|ssd| Some((ssd, kept(ssd)?))).collect();
        let rotten = copies.iter().find_map(|(ssd, _)| self.rotten(entry, vba, *ssd));
        let may_stay = rotten.is_none() || self.may_stay_rotten(map, entry, vba);
        if !may_stay {
            return rotten;
        }
        // A copy whose record has rotted, and may stay so, is not judged.
        let is_wrong = |(ssd, _): &(u16, Kept)| self.rotten(entry, vba, *ssd).is_some();
        let copies: Vec<(u16, Kept)> = match rotten {
            Some(_) => copies.into_iter().filter(|copy| !is_wrong(copy)).collect(),
            None => copies,
        };
        let first = map.first(group, entry.replicas)?;
        if let Some(other) = differs(&copies, first).filter(|_| is_settled) {
            return Some(format!("block {vba}: SSD {first} and SSD {other} differ: {copies:?}"));
        }
        let mut judged = judged(&copies, first, self.history.settles);
        judged.find_map(|(ssd, copy)| self.audit_copy(entry, vba, ssd, copy))
    }

    /// Whether a copy holds the last acknowledged write or a newer one.
    fn audit_copy(&self, entry: &VolumeEntry, vba: u32, ssd: u16, copy: Kept) -> Option<String> {
        let (vid, generation) = (entry.vid, entry.generation);
        if self.history.is_lost((vid, generation), vba) {
            return None;
        }
        let tags = self.history.may_be((vid, generation), vba);
        let is_one = tags.iter().any(|(stamp, tag)| match (reads_as(copy), tag) {
            (None, None) => true,
            (Some((held, sum)), Some(tag)) => {
                // A copy of a block whose record had rotted has no stamp.
                (held == *stamp || self.shape.rots_records && held == Stamp::default())
                    && sum == block_sum(&super::history::data_of(*tag))
            }
            _ => false,
        });
        let floor = self.history.floor((vid, generation), vba);
        let is_fresh = reads_as(copy).is_none() && floor == Stamp::default();
        (!is_one && !is_fresh).then(|| {
            let floor = super::history::name(floor);
            format!("block {vba}: acknowledged is {floor}, and SSD {ssd} keeps {copy:?}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(ssd: u16, sequence: u64) -> (u16, Kept) {
        (ssd, Kept::Block { stamp: Stamp { lease_epoch: 1, sequence }, sum: 7 })
    }

    #[test]
    fn where_the_copy_of_the_first_is_rotten_each_other_one_is_judged() {
        let _deadline = gnstor_base::testing::deadline();
        let all = |copies: &[(u16, Kept)], settles| -> Vec<u16> {
            judged(copies, 0, settles).map(|(ssd, _)| ssd).collect()
        };
        let copies = [copy(0, 3), copy(1, 3), copy(2, 2)];
        assert_eq!(all(&copies, true), [0], "the first decides");
        assert_eq!(all(&copies, false), [0, 1, 2], "each serves");
        assert_eq!(differs(&copies, 0), Some(2));
        // The copy of SSD 0 is rotten.
        assert_eq!(all(&copies[1..], true), [1, 2]);
        assert_eq!(differs(&copies[1..], 0), None, "no settle makes these equal");
        assert!(all(&[], true).is_empty());
    }
}
