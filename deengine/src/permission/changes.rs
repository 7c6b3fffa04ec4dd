// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes of the table: by the daemon's commands, and from the metadata store when an SSD starts.

use super::volume::{Use, VolumeRules};
use super::{MAX_VOLUMES, Table};
use crate::permission::rate::Rate;
use crate::request::Refused;
use gnstor_base::time::Time;
use gnstor_durable::Tombstone;
use gnstor_proto::slba::{ClientId, Vid};
use gnstor_proto::status::Refusal;
use gnstor_proto::vendor::{RawTombstone, VolumeEntry};

/// Largest step from the last term to a new one.
const TERM_JUMP: u64 = 1 << 20;
/// Highest term. The number of a registration has the term of its daemon in its upper 32 bits.
const MAX_TERM: u64 = u32::MAX as u64;

impl Table {
    /// Whether a daemon's term may be taken. One that is lower than an earlier one may not (protocol rule 3).
    pub(crate) fn check_term(&self, term: u64) -> Result<(), Refused> {
        if term < self.term {
            return Err(Refusal::StaleTerm.into());
        }
        // Terms rise by one for each daemon. A jump would use them up, and lock out every later daemon. An
        // SSD that has heard of no term may be new in an old array.
        let jumps = self.term > 0 && term - self.term > TERM_JUMP;
        if term > self.term && (jumps || term > MAX_TERM) {
            return Err(Refusal::InvalidField.into());
        }
        Ok(())
    }

    /// Takes a daemon's term, as [`Self::check_term`] allows. A command does so where it takes effect: one
    /// that is refused leaves the term as it is.
    pub(crate) fn take_term(&mut self, term: u64) -> Result<(), Refused> {
        self.check_term(term)?;
        self.term = term;
        Ok(())
    }

    /// Whether VOLUME ADD may add this.
    pub(crate) fn check_add(&self, entry: &VolumeEntry) -> Result<(), Refused> {
        self.check_term(entry.term)?;
        match self.volume(entry.vid) {
            Some(volume) if volume.entry.deleting => return Err(Refusal::SweepPending.into()),
            Some(_) => return Err(Refusal::VolumeExists.into()),
            None if entry.deleting => return Err(Refusal::InvalidField.into()),
            None => {}
        }
        if self.tombstones.generation(entry.vid).is_some_and(|dead| entry.generation <= dead) {
            return Err(Refusal::StaleVersion.into());
        }
        if self.rules.free_slot() == MAX_VOLUMES { Err(Refusal::TableFull.into()) } else { Ok(()) }
    }

    /// VOLUME ADD.
    pub(crate) fn add(&mut self, now: Time, entry: VolumeEntry) -> Result<(), Refused> {
        self.check_add(&entry)?;
        self.take_term(entry.term)?;
        let free = self.rules.free_slot();
        let slot = u16::try_from(free).expect("below MAX_VOLUMES");
        let done_before = self.workers.done_in(slot);
        let used = Use { rate: Rate::new(entry.limits), done_before, ..Use::default() };
        if free == self.uses.len() {
            self.uses.push(used);
        } else {
            self.uses[free] = used;
        }
        // Serials are the table's, not the volume's: a re-created volume never repeats one.
        self.serial += 1 << 32;
        let serial = self.serial;
        self.writers.replace(entry.vid, None, entry.writer);
        self.change().put(free, VolumeRules::new(entry, now, serial));
        Ok(())
    }

    /// Checks whether VOLUME CHMOD may turn a volume's entry into this one. Inputs of placement cannot change
    /// under mapped blocks.
    pub(crate) fn check_chmod(&self, entry: &VolumeEntry) -> Result<(), Refused> {
        self.check_term(entry.term)?;
        let old = &self.rules.volume(entry.vid).ok_or(Refusal::VolumeAbsent)?.entry;
        if old.deleting {
            return Err(Refusal::Deleting.into());
        }
        if entry.version <= old.version {
            return Err(Refusal::StaleVersion.into());
        }
        let same = (entry.generation, entry.replicas, entry.chunk_shift, entry.factor)
            == (old.generation, old.replicas, old.chunk_shift, old.factor);
        let grows = entry.capacity_blocks >= old.capacity_blocks && entry.lease_epoch >= old.lease_epoch;
        if same && grows && !entry.deleting { Ok(()) } else { Err(Refusal::InvalidField.into()) }
    }

    /// VOLUME CHMOD. Returns the client that may write the volume no more.
    pub(crate) fn chmod(&mut self, now: Time, entry: VolumeEntry) -> Result<Option<ClientId>, Refused> {
        self.check_chmod(&entry)?;
        self.take_term(entry.term)?;
        let slot = self.rules.slot_of(entry.vid).ok_or(Refusal::VolumeAbsent)?;
        let (old, new) = (self.rules.volume(entry.vid).and_then(|volume| volume.entry.writer), entry.writer);
        self.writers.replace(entry.vid, old, new);
        let used = &mut self.uses[usize::from(slot)];
        // Unchanged limits keep their buckets: a renewal of the lease does not fill them.
        if entry.limits != used.rate.limits() {
            used.rate = Rate::new(entry.limits);
        }
        self.replace(slot, |volume| volume.take(entry, now));
        Ok(old.filter(|_| old != new))
    }

    /// The entry of a volume after VOLUME DELETE; `None` if that generation is gone already.
    pub(crate) fn check_delete(
        &self,
        vid: Vid,
        generation: u32,
        version: u64,
        term: u64,
    ) -> Result<Option<VolumeEntry>, Refused> {
        self.check_term(term)?;
        if self.volume(vid).is_none() && self.tombstones.generation(vid) == Some(generation) {
            return Ok(None);
        }
        let entry = &self.rules.volume(vid).ok_or(Refusal::VolumeAbsent)?.entry;
        if generation != entry.generation {
            let newer_here = generation < entry.generation;
            return Err(if newer_here { Refusal::StaleVersion } else { Refusal::VolumeAbsent }.into());
        }
        if entry.deleting {
            return Ok(Some(entry.clone()));
        }
        if version <= entry.version {
            return Err(Refusal::StaleVersion.into());
        }
        Ok(Some(VolumeEntry { deleting: true, version, term, ..entry.clone() }))
    }

    /// VOLUME DELETE: stores the entry that [`Self::check_delete`] made.
    pub(crate) fn mark_deleting(&mut self, entry: &VolumeEntry) {
        let Some(slot) = self.rules.slot_of(entry.vid) else { return };
        if self.rules.volume(entry.vid).is_some_and(|volume| volume.entry != *entry) {
            self.replace(slot, |volume| {
                volume.serial += 1;
                volume.entry = entry.clone();
            });
        }
    }

    /// Notes that the volume's sweep is done. A new volume with a higher generation may now use the id.
    pub(crate) fn bury(&mut self, now: Time, vid: Vid) {
        let (_, volume) = self.change().remove(vid).expect("the volume was swept");
        self.writers.replace(vid, volume.entry.writer, None);
        self.tombstones.add(now, &volume.entry);
    }

    /// Volumes that died within the last day; see [`Tombstones::list`].
    pub(crate) fn tombstones(&mut self, now: Time, first: u16, skip: u16) -> Vec<RawTombstone> {
        self.tombstones.list(now, first, skip)
    }

    /// LEASE RENEW. It touches no rules.
    pub(crate) fn renew_lease(&mut self, term: u64, version: u64, until: Time) -> Result<(), Refused> {
        self.take_term(term)?;
        self.renewal.take(term, version)?;
        self.workers.end_lease_at(until);
        Ok(())
    }

    /// Sets the end of the serving lease, which a daemon or voters gave.
    pub(crate) fn end_lease(&self, until: Time) {
        self.workers.end_lease_at(until);
    }

    /// End of the serving lease.
    pub(crate) fn lease_end(&self) -> Time {
        self.workers.lease_end()
    }

    /// Whether the last renewal since the start was of this term.
    pub(crate) fn was_renewed_in(&self, term: u64) -> bool {
        self.renewal.is_of(term)
    }

    /// Whether the serving lease runs at this time.
    #[inline]
    pub(crate) fn serves(&self, at: Time) -> bool {
        self.workers.serves(at)
    }

    /// Restores an entry from the metadata. No write lease is valid, as its clock stopped with the power.
    pub(crate) fn recall(&mut self, entry: VolumeEntry) {
        let (vid, term) = (entry.vid, entry.term);
        let deleting = entry.deleting;
        self.recall_term(term);
        let added = self.add(Time::ZERO, VolumeEntry { term: self.term, deleting: false, ..entry });
        assert!(added.is_ok(), "the metadata store holds each volume once, and no more than the table");
        if let Some(slot) = self.rules.slot_of(vid)
            && let Some(volume) = self.change().volume_mut(slot)
        {
            volume.recall(term, deleting);
        }
    }

    /// A tombstone from the metadata.
    pub(crate) fn recall_tombstone(&mut self, vid: Vid, tombstone: &Tombstone) {
        self.tombstones.recall(vid, tombstone);
    }

    /// The highest term of a daemon, from the metadata.
    pub(crate) fn recall_term(&mut self, term: u64) {
        self.term = self.term.max(term);
    }

    /// Restores from the metadata that there was a serving lease. It is over, as its clock stopped.
    pub(crate) fn recall_lease(&self) {
        self.workers.end_lease_at(Time::ZERO);
    }
}
