// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares the table of an SSD that is back with the array's volumes.

use crate::core::failure::Trouble;
use crate::core::volume::{DELETE_MARK, Retry, Stage, Volume};
use crate::core::{Command, Core, Owner};
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::VolumeEntry;
use std::collections::BTreeMap;

impl Core {
    /// Puts entries that the SSD's table lacks on it, and deletes volumes there that the array no longer
    /// has.
    pub(super) fn compare(&mut self, now: u64, ssd: u16, table: &BTreeMap<Vid, VolumeEntry>) {
        let mut due = Vec::new();
        let (mut dead, mut late, mut marked) = (Vec::new(), Vec::new(), Vec::new());
        let mut grown = Vec::new();
        for (&vid, volume) in &mut self.volumes {
            let held = table.get(&vid).filter(|entry| !entry.deleting);
            // An SSD that was away at the start may have a version that no other SSD has.
            let same = held.filter(|old| old.generation == volume.entry.generation);
            if let Some(old) = same.filter(|_| volume.stage == Stage::Active) {
                if volume.is_to_be_deleted_by(old) {
                    marked.push(vid);
                } else if old.lease_epoch != DELETE_MARK {
                    volume.spent = volume.spent.max(old.lease_epoch);
                }
            }
            grown.extend(same.and_then(|old| volume.grows_to(old.capacity_blocks)));
            volume.last_version = volume.last_version.max(same.map_or(0, |old| old.version));
            if let Some(old) = held.filter(|old| old.generation < volume.entry.generation) {
                dead.push((vid, old.generation, old.version));
            }
            let still_has = held.is_some_and(|old| old.generation == volume.entry.generation);
            if let Stage::Deleting(left) = &mut volume.stage
                && still_has
                && left.insert(ssd)
            {
                if volume.round.is_some() {
                    late.push(vid)
                } else {
                    due.push(vid)
                }
                continue;
            }
            if volume.round.is_some() {
                volume.again = true;
                continue;
            }
            // A restarted SSD knows the writer, but not that the writer's lease is still valid.
            let has_writer = volume.writer(now).is_some();
            if volume.stage == Stage::Active && (has_writer || held != Some(&volume.entry)) {
                volume
                    .behind
                    .insert(ssd, Trouble::Lost("came back without the volume's newest state".into()));
            }
            if !volume.behind.is_empty() {
                volume.retry = Some(Retry { at: now, wait_ms: self.config.retry_ms });
                due.push(vid);
            }
        }
        if let Some(capacity) = &mut self.capacity {
            grown.iter().for_each(|entry| capacity.reserve(entry));
        }
        let (unknown, strange) = self.unknown(ssd, table);
        dead.extend(unknown);
        strange.into_iter().for_each(|vid| self.past.is_strange(vid));
        let term = self.term.number();
        for (vid, generation, version) in dead {
            let command = Command::Delete { vid, generation, version: version.saturating_add(1), term };
            self.command(ssd, Owner::Stray, command);
        }
        late.into_iter().for_each(|vid| self.extend_round(vid, ssd));
        for vid in due {
            if marked.contains(&vid) { self.mark(vid, None, None) } else { self.retry(now, vid) }
        }
    }

    /// The volumes of this table that the array does not have. First come the ones to be deleted, with their
    /// generation and version, and then the others.
    fn unknown(&self, ssd: u16, table: &BTreeMap<Vid, VolumeEntry>) -> (Vec<(Vid, u32, u64)>, Vec<Vid>) {
        let of_voters = self.map_of_voters().is_some();
        let (mut dead, mut strange) = (Vec::new(), Vec::new());
        for (&vid, entry) in
            table.iter().filter(|(vid, entry)| !entry.deleting && !self.volumes.contains_key(*vid))
        {
            // A start without some SSDs has read the table of a member with all volumes that any client was
            // told of. So a volume that is only on this SSD, with an earlier daemon's term, was never
            // completely created.
            let is_of_this_ssd_alone = of_voters && entry.term < self.term.number();
            if is_of_this_ssd_alone || self.past.is_dead(vid, entry.generation) {
                dead.push((vid, entry.generation, entry.version));
            } else {
                // Without voters an SSD does not prove that it is of this array, so it loses nothing. The
                // next start with all SSDs decides.
                strange.push(vid);
                tracing::warn!(ssd, %vid, name = ?entry.name, "an SSD came back with a volume that this \
                    array does not have");
            }
        }
        (dead, strange)
    }

    /// Repeats a round during which an SSD came back.
    pub(in crate::core) fn repeat(&mut self, now: u64, vid: Vid) {
        let Some(volume) = self.volumes.get_mut(&vid).filter(|v| v.again && v.round.is_none()) else {
            return;
        };
        volume.again = false;
        self.retry(now, vid);
    }
}

impl Volume {
    /// An SSD has the volume with so many blocks. Returns the entry with them if these are more than was
    /// known.
    fn grows_to(&mut self, blocks: u64) -> Option<VolumeEntry> {
        let is_more = blocks > self.most_blocks;
        self.most_blocks = self.most_blocks.max(blocks);
        is_more.then(|| self.grown(self.entry.clone()))
    }

    /// This entry of an SSD that was away has the mark of a deletion, and no later change of the volume is
    /// known. So an earlier daemon began the deletion, and a client waited for it. It is finished.
    fn is_to_be_deleted_by(&self, held: &VolumeEntry) -> bool {
        let is_newer = (held.term, held.version) > (self.entry.term, self.entry.version);
        let is_same = (&held.name, held.owner) == (&self.entry.name, self.entry.owner);
        held.lease_epoch == DELETE_MARK && is_newer && is_same && self.round.is_none()
    }
}
