// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The permission table, and the only place where a request becomes an authorised one.
//!
//! [`Authorized`] has a private constructor: code that moves data or changes the map takes an `Authorized<Request>`, so
//! forgetting the check does not compile. Each one is counted under the version of the entry it was judged by, until
//! it is handed back to [`Table::leave`]; that count is what VOLUME CHMOD and DELETE wait for (protocol rule 8).

mod volume;

use crate::counters::{Clients, Counters};
use crate::fleet::{Fleet, Place};
use crate::lease::ServingLease;
use crate::rate::Rate;
use crate::request::{Refused, Request, Verb};
use crate::tombstones::Tombstones;
use gnstor_fabric::time::Time;
use gnstor_proto::fabrics::Identity;
use gnstor_proto::slba::{Address, ClientId, Vid};
use gnstor_proto::status::Refusal;
use gnstor_proto::vendor::{Limits, RawTombstone, VolumeEntry};
pub(crate) use volume::Volume;
use volume::{Readers, lease_end};

/// Most volumes an SSD knows at once.
pub const MAX_VOLUMES: usize = 4096;

/// A `T` that the permission table has allowed, under one version of one volume's entry.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "an authorised request is in flight until `Table::leave` takes it"]
pub struct Authorized<T> {
    inner: T,
    slot: u16,
    serial: u64,
    generation: u32,
}

impl<T> Authorized<T> {
    /// What was allowed.
    pub fn get(&self) -> &T {
        &self.inner
    }

    /// The generation of the volume id that it was allowed for.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Which state of the volume's entry allowed it; grows with every change.
    pub fn serial(&self) -> u64 {
        self.serial
    }
}

const NO_SLOT: u16 = u16::MAX;

/// All volumes of one SSD, and the highest daemon term it has seen.
#[derive(Debug)]
pub struct Table {
    by_vid: Vec<u16>,
    volumes: Vec<Option<Box<Volume>>>,
    tombstones: Tombstones,
    lease: ServingLease,
    clients: Clients,
    term: u64,
    serial: u64,
    /// Nothing is asked but whether the volume is there: what the checks cost is measured against this.
    unchecked: bool,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            by_vid: vec![NO_SLOT; 1 << 16],
            volumes: Vec::new(),
            tombstones: Tombstones::default(),
            lease: ServingLease::default(),
            clients: Clients::default(),
            term: 0,
            serial: 0,
            unchecked: false,
        }
    }
}

impl Table {
    /// Judges a request. What it returns must come back to [`Self::leave`].
    ///
    /// # Errors
    /// The first rule that refuses, in the order of the protocol page.
    pub fn authorise(
        &mut self,
        now: Time,
        identity: Identity,
        fleet: Option<&Fleet>,
        request: Request,
    ) -> Result<Authorized<Request>, Refused> {
        let slot = self.check(now, identity, fleet, &request)?;
        let volume = self.volumes[usize::from(slot)].as_mut().expect("check found it");
        volume.in_flight += 1;
        let (serial, generation) = (volume.serial, volume.entry.generation);
        Ok(Authorized { inner: request, slot, serial, generation })
    }

    /// Judges an authorised request again, when its data is there and before it changes anything: entry, lease and
    /// map may have changed while it waited (protocol rules 2 and 8).
    ///
    /// # Errors
    /// As [`Self::authorise`]; `UnknownVolume` where the volume id has a new life.
    pub fn confirm(
        &self,
        now: Time,
        identity: Identity,
        fleet: Option<&Fleet>,
        request: &Authorized<Request>,
    ) -> Result<(), Refused> {
        let slot = self.check(now, identity, fleet, &request.inner)?;
        let volume = self.volumes[usize::from(slot)].as_ref().expect("check found it");
        if volume.entry.generation == request.generation { Ok(()) } else { Err(Refusal::UnknownVolume.into()) }
    }

    /// The request is no longer in flight.
    pub fn leave(&mut self, request: Authorized<Request>) {
        // A volume goes only when nothing is in flight, but its slot may have been taken over after a forced fence.
        let Some(volume) = self.volumes[usize::from(request.slot)].as_mut() else { return };
        if volume.entry.vid != request.inner.address.vid || volume.entry.generation != request.generation {
            return;
        }
        let count = if request.serial == volume.serial { &mut volume.in_flight } else { &mut volume.in_flight_older };
        *count -= 1;
    }

    fn check(&self, now: Time, identity: Identity, fleet: Option<&Fleet>, request: &Request) -> Result<u16, Refused> {
        let Address { client, vid, vba } = request.address;
        if self.unchecked {
            let slot = self.by_vid[usize::from(vid.get())];
            return if slot == NO_SLOT { Err(Refusal::UnknownVolume.into()) } else { Ok(slot) };
        }
        if identity != Identity::Client(client) {
            return Err(Refusal::WrongIdentity.into());
        }
        let fleet = fleet.filter(|_| self.serves(now)).ok_or(Refusal::NotServing)?;
        fleet.check_epoch(request.map_epoch)?;
        let slot = self.by_vid[usize::from(vid.get())];
        let volume = self.volumes.get(usize::from(slot)).and_then(Option::as_ref).ok_or(Refusal::UnknownVolume)?;
        let entry = &volume.entry;
        if entry.deleting {
            return Err(Refusal::Deleting.into());
        }
        let last = u64::from(vba) + u64::from(request.blocks) - 1;
        if last >= entry.capacity_blocks {
            return Err(Refusal::OutOfRange.into());
        }
        match request.verb {
            Verb::Read | Verb::Compare if !volume.readers.allow(client) => return Err(Refusal::NotAReader.into()),
            Verb::Read | Verb::Compare => {}
            Verb::Write | Verb::Forget => volume.check_writer(now, client, request.stamp.lease_epoch)?,
        }
        if u64::from(vba >> entry.chunk_shift) != last >> entry.chunk_shift {
            return Err(Refusal::InvalidField.into());
        }
        let (place, map_epoch) = (fleet.place(entry, vba), fleet.map().wire_epoch());
        match request.verb {
            Verb::Read | Verb::Compare => volume.check_read(now, client, place, map_epoch)?,
            Verb::Write | Verb::Forget if place == Place::Absent => {
                return Err(Refused::at(Refusal::WrongTarget, map_epoch));
            }
            Verb::Write | Verb::Forget => {}
        }
        Ok(slot)
    }

    /// Charges a request to its volume's rate limit; when it may start.
    pub(crate) fn charge(&mut self, now: Time, request: &Authorized<Request>) -> Time {
        let Request { verb, blocks, address, .. } = request.inner;
        let Some(volume) = self.volumes[usize::from(request.slot)].as_mut() else { return now };
        let start = volume.rate.take(now, if verb == Verb::Forget { 0 } else { blocks });
        if start > now {
            volume.counters.throttled += 1;
            self.clients.of(address.client).throttled += 1;
        }
        start
    }

    /// A request has succeeded.
    pub(crate) fn count(&mut self, request: &Authorized<Request>) {
        let Request { verb, blocks, address, .. } = request.inner;
        let count = |counters: &mut Counters| match verb {
            Verb::Read | Verb::Compare => {
                counters.reads += 1;
                counters.blocks_read += u64::from(blocks);
            }
            Verb::Write => {
                counters.writes += 1;
                counters.blocks_written += u64::from(blocks);
            }
            Verb::Forget => counters.writes += 1,
        };
        count(self.clients.of(address.client));
        if let Some(volume) = self.volumes[usize::from(request.slot)].as_mut() {
            count(&mut volume.counters);
        }
    }

    /// A client's command was refused; it named this volume, which need not be there.
    pub(crate) fn count_refusal(&mut self, vid: u16, client: ClientId) {
        self.clients.of(client).refusals += 1;
        if let Some(volume) = Vid::new(vid).and_then(|vid| self.volume_mut(vid)) {
            volume.counters.refusals += 1;
        }
    }

    /// Id, generation and counters of each volume, ascending.
    pub(crate) fn volume_counters(&self) -> impl Iterator<Item = (u16, u32, Counters)> {
        self.volumes_from(0).map(|volume| (volume.entry.vid.get(), volume.entry.generation, volume.counters))
    }

    /// Id, 0 and counters of each client, ascending.
    pub(crate) fn client_counters(&self) -> impl Iterator<Item = (u16, u32, Counters)> {
        self.clients.iter().map(|(id, counters)| (id, 0, counters))
    }

    pub(crate) fn volume(&self, vid: Vid) -> Option<&Volume> {
        self.volumes.get(usize::from(self.by_vid[usize::from(vid.get())])).and_then(Option::as_deref)
    }

    /// Volumes whose id is at least `first`, in the order of their ids.
    pub(crate) fn volumes_from(&self, first: u16) -> impl Iterator<Item = &Volume> {
        self.by_vid[usize::from(first)..].iter().filter_map(|&slot| self.volumes.get(usize::from(slot))?.as_deref())
    }

    /// Takes note of a daemon's term; a lower one than seen before is refused (protocol rule 3).
    pub(crate) fn take_term(&mut self, term: u64) -> Result<(), Refused> {
        if term < self.term {
            return Err(Refusal::StaleTerm.into());
        }
        self.term = term;
        Ok(())
    }

    /// VOLUME ADD.
    pub(crate) fn add(&mut self, now: Time, entry: VolumeEntry, limits: Limits) -> Result<(), Refused> {
        self.take_term(entry.term)?;
        match self.volume(entry.vid) {
            Some(volume) if volume.entry.deleting => return Err(Refusal::SweepPending.into()),
            Some(_) => return Err(Refusal::VolumeExists.into()),
            None if entry.deleting => return Err(Refusal::InvalidField.into()),
            None => {}
        }
        if self.tombstones.generation(entry.vid).is_some_and(|dead| entry.generation <= dead) {
            return Err(Refusal::StaleVersion.into());
        }
        let free = self.volumes.iter().position(Option::is_none).unwrap_or(self.volumes.len());
        if free == MAX_VOLUMES {
            return Err(Refusal::TableFull.into());
        }
        if free == self.volumes.len() {
            self.volumes.push(None);
        }
        self.by_vid[usize::from(entry.vid.get())] = u16::try_from(free).expect("below MAX_VOLUMES");
        // Serials are the table's, not the volume's: a re-created volume never repeats one.
        self.serial += 1 << 32;
        self.volumes[free] = Some(Box::new(Volume {
            lease_until: lease_end(&entry, now),
            readers: Readers::of(&entry),
            rate: Rate::new(limits),
            counters: Counters::default(),
            entry,
            former_writer: None,
            serial: self.serial,
            in_flight: 0,
            in_flight_older: 0,
        }));
        Ok(())
    }

    /// VOLUME CHMOD. What placement is computed from cannot change under mapped blocks.
    pub(crate) fn chmod(&mut self, now: Time, entry: VolumeEntry, limits: Limits) -> Result<(), Refused> {
        self.take_term(entry.term)?;
        let volume = self.volume_mut(entry.vid).ok_or(Refusal::VolumeAbsent)?;
        let old = &volume.entry;
        if old.deleting {
            return Err(Refusal::Deleting.into());
        }
        if entry.version <= old.version {
            return Err(Refusal::StaleVersion.into());
        }
        let same = (entry.generation, entry.replicas, entry.chunk_shift, entry.factor)
            == (old.generation, old.replicas, old.chunk_shift, old.factor);
        let grows = entry.capacity_blocks >= old.capacity_blocks && entry.lease_epoch >= old.lease_epoch;
        if !same || !grows || entry.deleting {
            return Err(Refusal::InvalidField.into());
        }
        volume.take(entry, limits, now);
        Ok(())
    }

    /// VOLUME DELETE: `true` if the volume is there and must be swept, `false` if that generation is gone already.
    pub(crate) fn delete(&mut self, vid: Vid, generation: u32, version: u64, term: u64) -> Result<bool, Refused> {
        self.take_term(term)?;
        if self.volume(vid).is_none() && self.tombstones.generation(vid) == Some(generation) {
            return Ok(false);
        }
        let volume = self.volume_mut(vid).ok_or(Refusal::VolumeAbsent)?;
        if generation != volume.entry.generation {
            let newer_here = generation < volume.entry.generation;
            return Err(if newer_here { Refusal::StaleVersion } else { Refusal::VolumeAbsent }.into());
        }
        if !volume.entry.deleting {
            if version <= volume.entry.version {
                return Err(Refusal::StaleVersion.into());
            }
            volume.entry.deleting = true;
            volume.entry.version = version;
            volume.entry.term = term;
            volume.age();
        }
        Ok(true)
    }

    /// The volume's sweep is done: its id may live again, in a higher generation.
    pub(crate) fn bury(&mut self, now: Time, vid: Vid) {
        let slot = std::mem::replace(&mut self.by_vid[usize::from(vid.get())], NO_SLOT);
        let volume = self.volumes.get_mut(usize::from(slot)).and_then(Option::take).expect("the volume was swept");
        self.tombstones.add(now, &volume.entry);
    }

    /// Volumes that died within the last day; see [`Tombstones::list`].
    pub(crate) fn tombstones(&mut self, now: Time, first: u16, skip: u16) -> Vec<RawTombstone> {
        self.tombstones.list(now, first, skip)
    }

    /// LEASE RENEW.
    pub(crate) fn renew_lease(&mut self, term: u64, version: u64, until: Time) -> Result<(), Refused> {
        self.take_term(term)?;
        self.lease.renew(term, version, until)
    }

    /// Whether the serving lease runs at this time.
    #[inline]
    pub(crate) fn serves(&self, at: Time) -> bool {
        self.lease.runs(at)
    }

    /// An entry from the ledger. No lease runs: its clock stopped with the power.
    pub(crate) fn recall(&mut self, entry: VolumeEntry, limits: Limits) {
        let (vid, term) = (entry.vid, entry.term);
        let deleting = entry.deleting;
        let added = self.add(Time::ZERO, VolumeEntry { term: self.term.max(term), deleting: false, ..entry }, limits);
        debug_assert!(added.is_ok(), "a ledger holds each volume once, and no more than the table");
        if let Some(volume) = self.volume_mut(vid) {
            volume.recall(term, deleting);
        }
    }

    /// A tombstone from the ledger.
    pub(crate) fn recall_tombstone(&mut self, vid: Vid, generation: u32, request_ids: Vec<[u8; 16]>) {
        self.tombstones.recall(vid, generation, request_ids);
    }

    /// The highest term of a daemon, from the ledger.
    pub(crate) fn recall_term(&mut self, term: u64) {
        self.term = self.term.max(term);
    }

    /// Leaves out the checks, for measurements.
    pub(crate) fn leave_unchecked(&mut self) {
        self.unchecked = true;
    }

    /// The highest term of a daemon seen.
    pub(crate) fn term(&self) -> u64 {
        self.term
    }

    fn volume_mut(&mut self, vid: Vid) -> Option<&mut Volume> {
        self.volumes.get_mut(usize::from(self.by_vid[usize::from(vid.get())])).and_then(Option::as_deref_mut)
    }
}

#[cfg(test)]
mod tests;
