// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Deletions of volumes: which volumes may still be judged.

use super::{History, Life, Volume};
use gnstor_proto::vendor::VolumeEntry;

impl Volume {
    pub(super) fn is_judged(&self) -> bool {
        !self.over && self.deletes == 0
    }
}

impl History {
    /// A client asks to delete the volumes of this name.
    pub(in crate::survive) fn delete_is_asked(&mut self, name: &str) {
        let named = self.volumes.values_mut().filter(|volume| volume.entry.name == name);
        named.for_each(|volume| volume.asked = true);
    }

    /// Notes a Delete that arrives. Returns the volumes that it may delete.
    pub(in crate::survive) fn delete_begins(&mut self, name: &str, only: Option<Life>) -> Vec<Life> {
        let named = self.volumes.iter_mut().filter(|(life, volume)| {
            volume.entry.name == name && !volume.over && only.is_none_or(|only| only == **life)
        });
        named.map(|(life, volume)| (volume.deletes += 1, *life).1).collect()
    }

    /// Notes that a Delete that has begun may delete this volume, too.
    pub(in crate::survive) fn may_die(&mut self, life: Life) {
        if let Some(volume) = self.volumes.get_mut(&life) {
            volume.deletes += 1;
        }
    }

    /// A Delete has ended, and deleted none of them.
    pub(in crate::survive) fn delete_ends(&mut self, lives: &[Life]) {
        for life in lives {
            if let Some(volume) = self.volumes.get_mut(life) {
                volume.deletes -= 1;
            }
        }
    }

    /// Notes that the volume is deleted.
    pub(in crate::survive) fn dies(&mut self, life: Life) {
        if let Some(volume) = self.volumes.get_mut(&life) {
            volume.over = true;
        }
    }

    /// The volumes that are judged.
    pub(in crate::survive) fn lives(&self) -> Vec<VolumeEntry> {
        self.volumes.values().filter(|volume| volume.is_judged()).map(|volume| volume.entry.clone()).collect()
    }

    /// The volumes that no client has asked to delete.
    pub(in crate::survive) fn lasting(&self) -> Vec<VolumeEntry> {
        let lasting = self.volumes.values().filter(|volume| volume.is_judged() && !volume.asked);
        lasting.map(|volume| volume.entry.clone()).collect()
    }
}
