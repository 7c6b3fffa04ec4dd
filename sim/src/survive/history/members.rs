// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A write is acknowledged when all members of its group have it in one epoch (rule 5a).

use super::{History, Life, name};
use crate::survive::wire::Post;
use gnstor_proto::placement::{Rows as _, group_of};
use gnstor_proto::slba::Stamp;

impl History {
    /// A write is acknowledged: each member said so, by the map of one epoch.
    pub(in crate::survive) fn all_have(
        &mut self,
        life: Life,
        op: u64,
        (vba, blocks): (u32, u32),
        post: &mut Post,
    ) {
        let Some(volume) = self.volumes.get(&life) else { return };
        let stamps: Vec<(u32, Stamp)> = (vba..vba + blocks)
            .filter_map(|vba| {
                let versions = &volume.blocks[vba as usize].versions;
                let version = versions.iter().rev().find(|version| version.op == op)?;
                Some((vba, version.stamp.unwrap_or_default()))
            })
            .collect();
        for (vba, stamp) in stamps {
            let copies = post.tap.copies(life.0, vba, stamp);
            if copies.iter().any(|(_, epoch)| self.is_whole_in(life, vba, *epoch, &copies)) {
                continue;
            }
            let facts = format!(
                "volume {}, block {vba}: {}; SSDs that have it, with epochs: {copies:?}",
                life.0.get(),
                name(stamp)
            );
            return self.broken(post.now, "a write was acknowledged that a member lacks (rule 5a)", facts);
        }
    }

    /// Whether these copies are all that the map of the epoch asks for.
    fn is_whole_in(&self, life: Life, vba: u32, epoch: u64, copies: &[(u16, u64)]) -> bool {
        let (Some(volume), Some(map)) = (self.volumes.get(&life), self.maps.get(&epoch)) else {
            return false;
        };
        let entry = &volume.entry;
        let group = group_of(entry.vid, vba, entry.chunk_shift, entry.factor, map.groups());
        map.replicas(group, entry.replicas).all(|member| copies.contains(&(member.ssd, epoch)))
    }
}
