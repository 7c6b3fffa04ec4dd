// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The last step of a start: it makes one state out of the tables of all SSDs.

use super::Step;
use crate::core::absence::{Absence, OTHER};
use crate::core::capacity::Capacity;
use crate::core::publish::replaced_by;
use crate::core::volume::{DELETE_MARK, Purpose, Stage, Volume, rest_of_lease};
use crate::core::{Command, Core, Effect, GoneVolume, Owner, Phase, Stop};
use gnstor_proto::BLOCK_SHIFT;
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::VolumeEntry;
use std::collections::{BTreeMap, BTreeSet};

impl Core {
    /// Makes one state out of the SSDs' tables, and starts rounds for SSDs that differ from it.
    pub(super) fn reconcile(&mut self, now: u64) {
        // The table of another SSD in the place of an absent one says nothing of the array.
        let all = self.members.all().iter().copied();
        let strangers: BTreeSet<u16> = all.filter(|ssd| self.is_stranger(*ssd)).collect();
        strangers.iter().for_each(|&ssd| self.members.lose(ssd, Absence::new(OTHER)));
        for (ssd, why) in self.members_without() {
            tracing::error!("the array runs without SSD {ssd}: {why}");
            self.members.lose(ssd, Absence::new(why));
        }
        let Phase::Starting(start) = &mut self.phase else { return };
        let mut volumes: BTreeMap<Vid, BTreeMap<u16, VolumeEntry>> = BTreeMap::new();
        // A map may have dropped an SSD whose table told of the volumes.
        let members = self.members.all() - &strangers;
        let counts = |ssd: &u16| members.contains(ssd) || start.known_by.contains(ssd);
        for (ssd, probe) in (0u16..).zip(&mut start.probes).filter(|(ssd, _)| counts(ssd)) {
            for entry in std::mem::take(&mut probe.table) {
                volumes.entry(entry.vid).or_default().insert(ssd, entry);
            }
        }
        let gone = start.probes.iter_mut().flat_map(|probe| std::mem::take(&mut probe.gone));
        let gone: Vec<GoneVolume> = gone.collect();
        self.past.recall(&gone);
        self.tombstones.recall(now, gone);
        // A client may wait for a deletion that had begun on an SSD which was dropped meanwhile.
        for (ssd, probe) in (0u16..).zip(&mut start.probes).filter(|(ssd, _)| start.beside.contains(ssd)) {
            let is_begun = |entry: &VolumeEntry| entry.lease_epoch == DELETE_MARK && !entry.deleting;
            for entry in std::mem::take(&mut probe.table).into_iter().filter(is_begun) {
                let Some(copies) = volumes.get_mut(&entry.vid) else { continue };
                let known = newest(copies);
                if known.generation == entry.generation
                    && (entry.term, entry.version) > (known.term, known.version)
                {
                    copies.insert(ssd, entry);
                }
            }
        }
        let superseded = superseded(&volumes);
        let is_there = |ssd: &u16| self.members.contains(*ssd) && !self.members.is_away(*ssd);
        let there: BTreeSet<u16> = members.iter().copied().filter(is_there).collect();
        let replacing: BTreeSet<Vid> = superseded.iter().flat_map(|(old, by)| [*old, *by]).collect();
        let unfinished = &unfinished(&volumes, &there) - &replacing;
        for (vid, copies) in volumes {
            for entry in copies.values() {
                self.clients.note(entry.owner);
                let named = entry.readers.iter().chain(&entry.writer);
                named.for_each(|&id| self.clients.inherit(now, id, vid));
            }
            if unfinished.contains(&vid) {
                self.mark_unfinished(vid, newest(&copies).clone());
                continue;
            }
            if let Err(stop) = self.adopt(now, vid, &copies, superseded.get(&vid).copied()) {
                return self.stop(stop);
            }
        }
        for by in superseded.into_values() {
            if self.volumes[&by].round.is_none() {
                self.complete_name(by, true);
            }
        }
        self.warn_of_overcommitted();
        self.start_reconciled();
    }

    /// The daemon serves volumes that do not fit (a lost SSD, or an older daemon that made them): it
    /// creates no more.
    fn warn_of_overcommitted(&self) {
        let ssds = self.capacity.iter().flat_map(Capacity::ssds);
        for (ssd, blocks) in (0u16..).zip(ssds).filter(|(_, blocks)| blocks.reserved > blocks.capacity) {
            let (reserved, capacity) = (blocks.reserved << BLOCK_SHIFT, blocks.capacity << BLOCK_SHIFT);
            tracing::warn!(
                ssd,
                "the volumes reserve {reserved} bytes of an SSD of {capacity}: it is full before they are; \
                 delete volumes"
            );
        }
    }

    /// Deletes a volume whose creation did not end.
    fn mark_unfinished(&mut self, vid: Vid, entry: VolumeEntry) {
        tracing::warn!(%vid, name = ?entry.name, "a volume that was not completely created is deleted");
        if let Some(capacity) = &mut self.capacity {
            capacity.reserve(&entry);
        }
        self.volumes.insert(vid, Volume::new(entry, Stage::Active));
        self.mark(vid, None, None);
    }

    /// An SSD may have missed that an earlier volume of this id was deleted. It refuses each entry of the
    /// later one until it has deleted that, too.
    fn delete_former_lives(&mut self, winner: &VolumeEntry, copies: &BTreeMap<u16, VolumeEntry>) {
        let term = self.term.number();
        let is_former = |entry: &VolumeEntry| entry.generation < winner.generation && !entry.deleting;
        for (&ssd, entry) in copies.iter().filter(|(_, entry)| is_former(entry)) {
            if !self.members.contains(ssd) {
                continue;
            }
            let &VolumeEntry { vid, generation, version, .. } = entry;
            let command = Command::Delete { vid, generation, version: version.saturating_add(1), term };
            self.command(ssd, Owner::Stray, command);
        }
    }

    /// Adopts one volume as the SSDs have it. `successor` is the volume that took its name.
    fn adopt(
        &mut self,
        now: u64,
        vid: Vid,
        copies: &BTreeMap<u16, VolumeEntry>,
        successor: Option<Vid>,
    ) -> Result<(), Stop> {
        let mut winner = newest(copies).clone();
        // An SSD may have taken a Resize that no other one has. It takes no entry with fewer blocks.
        let same = copies.values().filter(|entry| entry.generation == winner.generation);
        winner.capacity_blocks = same.map(|entry| entry.capacity_blocks).max().unwrap_or(0);
        let last_version = copies.values().map(|e| e.version).max().unwrap_or(0);
        self.delete_former_lives(&winner, copies);
        if copies.values().all(|entry| entry.deleting) {
            self.past.retire(&winner, last_version, now + self.config.sweep_ms);
            if winner.lease_epoch == DELETE_MARK {
                self.tombstones.bury(now, winner);
            }
            return Ok(());
        }
        // A volume that is being deleted leaves its name to one that stays.
        let dies = |vid: &Vid| self.volumes[vid].stage != Stage::Active;
        let other = self.names.get(&winner.name).copied().filter(|other| !dies(other));
        if successor.is_none() && (other.is_none() || !marked(&winner)) {
            self.names.insert(winner.name.clone(), vid);
        }
        if let Some(other) = other.filter(|_| successor.is_none() && !marked(&winner)) {
            return Err(Stop::Array(format!(
                "the array holds two volumes called {:?}, numbers {other} and {vid}: delete one with the \
                 daemon that made them",
                winner.name
            )));
        }
        if let Some(capacity) = &mut self.capacity {
            capacity.reserve(&winner);
        }
        let is_member = |ssd: &u16| self.members.contains(*ssd);
        let alive = copies.iter().filter(|(ssd, entry)| is_member(ssd) && !entry.deleting);
        let alive: BTreeSet<u16> = alive.map(|(&ssd, _)| ssd).collect();
        let mut volume = Volume::new(winner.clone(), Stage::Active);
        volume.last_version = last_version;
        volume.writers.extend(copies.values().filter_map(|entry| entry.writer));
        volume.former = copies.values().map(|entry| &entry.name).find(|name| **name != winner.name).cloned();
        if let Some(by) = successor {
            volume.supersede(by);
            self.volumes.insert(vid, volume);
        } else if winner.deleting || copies.values().all(marked) {
            volume.stage = Stage::Deleting(alive);
            self.volumes.insert(vid, volume);
            self.delete_everywhere(now, vid, None);
        } else if marked(&winner) {
            self.volumes.insert(vid, volume);
            self.mark(vid, None, None);
        } else if self.is_on_all_that_are_there(&winner, copies) {
            // The start of the lease is not known, so it counts from now.
            volume.commit(now, &winner, true, self.config.drift_ms);
            self.volumes.insert(vid, volume);
        } else {
            self.volumes.insert(vid, volume);
            let lease_ms = rest_of_lease(winner.lease_ms);
            self.put(vid, VolumeEntry { lease_ms, ..winner }, Purpose::Reconcile { reply: None });
        }
        Ok(())
    }

    /// Whether each member has this entry, but the ones that a start goes on without. These are compared when
    /// they are back.
    fn is_on_all_that_are_there(&self, winner: &VolumeEntry, copies: &BTreeMap<u16, VolumeEntry>) -> bool {
        let is_without = |ssd: &u16| {
            let Phase::Starting(start) = &self.phase else { return false };
            start.is_degraded() && start.without.contains(ssd)
        };
        self.members.all().iter().all(|ssd| is_without(ssd) || copies.get(ssd) == Some(winner))
    }

    /// Serves once no round of the start is under way. Changes that an SSD still did not take are repeated
    /// while serving.
    pub(in crate::core) fn start_reconciled(&mut self) {
        let reconciling = matches!(&self.phase, Phase::Starting(start) if start.step == Step::Reconcile);
        if reconciling && self.volumes.values().all(|v| v.round.is_none()) {
            let without = self.members_without();
            self.phase = Phase::Serving;
            self.effects.push_back(Effect::Serving);
            self.changes.found_fewest = None;
            self.follow_fills(self.now);
            for (ssd, why) in self.changes.take_presumed().into_iter().chain(without) {
                self.ssd_without(ssd, why);
            }
            // An SSD may have been away until shortly before. So each writer has to say that it reaches it.
            let there = self.members.all().iter().filter(|ssd| !self.changes.is_down(**ssd));
            for ssd in there.copied().collect::<Vec<_>>() {
                self.changes.admitted(ssd, self.now);
            }
            self.ask_who_they_are();
            // A daemon that starts fills no holes. If no SSD is out, nothing else looks for them.
            self.change_step(self.now);
        }
    }

    /// A map that an earlier daemon proposed may have made an SSD a member of which the start had no answer.
    /// The map may also mean another SSD than the one that answers. Then the daemon checks that SSD.
    fn ask_who_they_are(&mut self) {
        if self.map_of_voters().is_none() {
            return;
        }
        let returning: Vec<u16> = self.returning().collect();
        let is_other =
            |ssd: &u16| self.is_stranger(*ssd) && !self.changes.is_down(*ssd) && !returning.contains(ssd);
        let is_unknown =
            |ssd: &u16| is_other(ssd) || self.changes.says(*ssd).is_none() && !self.is_silent(*ssd);
        let unknown: Vec<u16> = self.members.all().iter().copied().filter(is_unknown).collect();
        unknown.into_iter().for_each(|ssd| self.resync(ssd));
    }
}

/// The entry that is valid for a volume.
fn newest(copies: &BTreeMap<u16, VolumeEntry>) -> &VolumeEntry {
    let rank = |e: &&VolumeEntry| (e.generation, e.version, e.term, e.deleting);
    copies.values().max_by_key(rank).expect("a volume was seen on some SSD")
}

/// Whether the entry has the mark of a deletion.
fn marked(entry: &VolumeEntry) -> bool {
    entry.deleting || entry.lease_epoch == DELETE_MARK
}

/// The volumes whose name another volume took and whose deletion had not begun, with that other volume.
fn superseded(volumes: &BTreeMap<Vid, BTreeMap<u16, VolumeEntry>>) -> BTreeMap<Vid, Vid> {
    let replaces = |(&by, copies)| {
        let entry: &VolumeEntry = Some(newest(copies)).filter(|entry| !marked(entry))?;
        let (vid, generation) = replaced_by(entry)?;
        let old = newest(volumes.get(&vid)?);
        let same = old.name == entry.name && old.generation == generation && !marked(old) && vid != by;
        same.then_some((vid, by))
    };
    volumes.iter().filter_map(replaces).collect()
}

/// The volumes whose creation did not end, and whose name another volume has. An SSD of `there` lacks such a
/// volume, and the other one is on all of them. A daemon that had not read the table of the SSD with the
/// first one created the second.
fn unfinished(volumes: &BTreeMap<Vid, BTreeMap<u16, VolumeEntry>>, there: &BTreeSet<u16>) -> BTreeSet<Vid> {
    let is_whole = |copies: &BTreeMap<u16, VolumeEntry>| there.iter().all(|ssd| copies.contains_key(ssd));
    let mut names: BTreeMap<&str, Vid> = BTreeMap::new();
    for (&vid, copies) in volumes.iter().filter(|(_, copies)| is_whole(copies) && !marked(newest(copies))) {
        names.insert(&newest(copies).name, vid);
    }
    let is_unfinished = |(&vid, copies): (&Vid, &BTreeMap<u16, VolumeEntry>)| {
        let entry = newest(copies);
        let lost_its_name = names.get(entry.name.as_str()).is_some_and(|&of| of != vid);
        // A volume that a client has opened was whole once. It may be of another array.
        let is_new = entry.lease_epoch == 0 && entry.readers.is_empty() && !entry.any_reader;
        (!is_whole(copies) && !marked(entry) && lost_its_name && is_new).then_some(vid)
    };
    volumes.iter().filter_map(is_unfinished).collect()
}
