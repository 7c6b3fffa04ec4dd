// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The check of a command that arrives: rights, serving lease, map epoch and place ([`Rules::check`]). The
//! write lease is checked in `volume.rs`. The rules are the volumes' entries and the fleet map. Commands do
//! not change them, so the workers of an SSD share one copy and read it without a lock. A change makes a new
//! copy
//! ([`crate::workers::WorkerSet`]). The caller passes the end of the serving lease, which changes often.

use super::Authorized;
use super::volume::VolumeRules;
use crate::permission::fleet::{Fleet, Place};
use crate::request::{Refused, Request, Verb};
use crate::workers::runs;
use gnstor_base::time::{Span, Time};
use gnstor_proto::fabrics::Identity;
use gnstor_proto::placement::Rows;
use gnstor_proto::slba::{Address, Vid};
use gnstor_proto::status::Refusal;
use std::sync::Arc;

const NO_SLOT: u16 = u16::MAX;
/// The smallest step of time.
const INSTANT: Span = Span::from_ps(1);

/// Everything that decides whether a request is allowed, apart from the levels of rate limits.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    by_vid: Arc<Vec<u16>>,
    volumes: Vec<Option<Arc<VolumeRules>>>,
    pub(super) fleet: Option<Arc<Fleet>>,
    /// Content and table are still being restored.
    pub(super) recovering: bool,
    /// A benchmark has turned the checks off: every request for a volume that exists is allowed.
    #[cfg(feature = "unchecked-for-benchmarks")]
    pub(super) unchecked: bool,
    /// [`Self::runs_until`] states an end that is this much too early, so that a test sees both disagree.
    #[cfg(test)]
    pub(super) early: Span,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            by_vid: Arc::new(vec![NO_SLOT; 1 << 16]),
            volumes: Vec::new(),
            fleet: None,
            recovering: false,
            #[cfg(feature = "unchecked-for-benchmarks")]
            unchecked: false,
            #[cfg(test)]
            early: Span::ZERO,
        }
    }
}

impl Rules {
    /// Judges a request while the serving lease ends at `lease_end`. The caller counts an allowed request as
    /// in flight, and hands it back when it is done.
    ///
    /// # Errors
    /// The first rule that refuses, in the order of the protocol page.
    #[inline]
    pub(crate) fn authorise(
        &self,
        now: Time,
        lease_end: Time,
        identity: Identity,
        request: Request,
    ) -> Result<Authorized<Request>, Refused> {
        let (slot, volume) = self.check(now, lease_end, identity, &request)?;
        let (serial, generation) = (volume.serial, volume.entry.generation);
        Ok(Authorized { inner: request, slot, serial, generation })
    }

    /// Judges an authorised request again; see [`super::Table::confirm`].
    ///
    /// # Errors
    /// As [`Self::authorise`]; `UnknownVolume` where the volume id has a new life.
    #[inline]
    pub(crate) fn confirm(
        &self,
        now: Time,
        lease_end: Time,
        identity: Identity,
        request: &Authorized<Request>,
    ) -> Result<(), Refused> {
        let (_, volume) = self.check(now, lease_end, identity, &request.inner)?;
        if volume.entry.generation == request.generation {
            Ok(())
        } else {
            Err(Refusal::UnknownVolume.into())
        }
    }

    /// The first end of a lease by which these rules allow the write. No other part of the rules changes with
    /// time.
    #[inline]
    pub(crate) fn runs_until(&self, lease_end: Time, request: &Authorized<Request>) -> Time {
        if self.is_unchecked() {
            return Time::NEVER;
        }
        let volume = self.volumes.get(usize::from(request.slot)).and_then(Option::as_ref);
        let has_voters = self.has_voters();
        let until = volume.map_or(Time::ZERO, |volume| volume.writes_until(has_voters).min(lease_end));
        #[cfg(test)]
        let until = until.before(self.early);
        until
    }

    /// As [`Self::confirm`]. Returns until when the request is allowed, at least for this instant.
    /// `is_judged`: these rules have allowed it before, and only time has passed.
    #[inline]
    pub(crate) fn confirm_until(
        &self,
        (now, lease_end): (Time, Time),
        request: &Authorized<Request>,
        is_judged: bool,
    ) -> Result<Time, Refused> {
        let until = self.runs_until(lease_end, request);
        if !(is_judged && runs(until, now)) {
            let identity = Identity::Client(request.inner.address.client);
            self.confirm(now, lease_end, identity, request)?;
        }
        // If `runs_until` and `confirm` disagreed, the commit would find the request stale at the same time.
        // Then it would be judged again for ever.
        Ok(until.max(now + INSTANT))
    }

    fn has_voters(&self) -> bool {
        self.fleet.as_deref().is_some_and(Fleet::has_voters)
    }

    /// Whether the write may touch only blocks that are mapped, as an SSD of their group is full (rule 15).
    #[inline]
    pub(crate) fn only_mapped(&self, request: &Authorized<Request>) -> bool {
        let Address { vid, vba, .. } = request.inner.address;
        let fleet = self.fleet.as_deref().filter(|fleet| fleet.has_full());
        fleet
            .is_some_and(|fleet| self.volume(vid).is_some_and(|volume| fleet.only_mapped(&volume.entry, vba)))
    }

    /// Whether the blocks of a request are of a place that fills (rule 13).
    #[inline]
    pub(crate) fn fills(&self, request: &Authorized<Request>) -> bool {
        let Address { vid, vba, .. } = request.inner.address;
        let fleet = self.fleet.as_deref().filter(|fleet| !fleet.fills().is_empty());
        fleet
            .is_some_and(|fleet| self.volume(vid).is_some_and(|volume| fleet.fills_block(&volume.entry, vba)))
    }

    #[inline]
    pub(crate) fn is_unchecked(&self) -> bool {
        #[cfg(feature = "unchecked-for-benchmarks")]
        let unchecked = self.unchecked;
        #[cfg(not(feature = "unchecked-for-benchmarks"))]
        let unchecked = false;
        unchecked
    }

    /// The map, if it is the request's and this SSD serves by it.
    fn serving_fleet(&self, now: Time, lease_end: Time, map_epoch: u32) -> Result<&Fleet, Refused> {
        let fleet = self.fleet.as_deref().ok_or(Refusal::NotServing)?;
        if fleet.needs_salvage() {
            // This SSD has no lease. If the client's map is out of date, the refusal says so, since a new map
            // helps the client.
            fleet.check_epoch(map_epoch)?;
            return Err(Refused::at(Refusal::NeedsSalvage, fleet.map().wire_epoch()));
        }
        if !runs(lease_end, now) {
            return Err(Refusal::NotServing.into());
        }
        fleet.check_epoch(map_epoch)?;
        if fleet.serves() { Ok(fleet) } else { Err(Refusal::NotServing.into()) }
    }

    /// Slot and rules of the volume, if the request is allowed.
    pub(super) fn check(
        &self,
        now: Time,
        lease_end: Time,
        identity: Identity,
        request: &Request,
    ) -> Result<(u16, &VolumeRules), Refused> {
        let Address { client, vid, vba } = request.address;
        if self.is_unchecked() {
            return self.find(vid).ok_or_else(|| Refusal::UnknownVolume.into());
        }
        if identity != Identity::Client(client) {
            return Err(Refusal::WrongIdentity.into());
        }
        let fleet = self.serving_fleet(now, lease_end, request.map_epoch)?;
        let (slot, volume) = self.find(vid).ok_or(Refusal::UnknownVolume)?;
        let entry = &volume.entry;
        if entry.deleting {
            return Err(Refusal::Deleting.into());
        }
        let last = u64::from(vba) + u64::from(request.blocks) - 1;
        if last >= entry.capacity_blocks {
            return Err(Refusal::OutOfRange.into());
        }
        match request.verb {
            Verb::Read | Verb::Compare if !volume.readers.allow(client) => {
                return Err(Refusal::NotAReader.into());
            }
            Verb::Read | Verb::Compare => {}
            Verb::Write | Verb::Trim => {
                volume.check_writer(now, client, request.stamp.lease_epoch, fleet.has_voters())?;
            }
        }
        if u64::from(vba >> entry.chunk_shift) != last >> entry.chunk_shift {
            return Err(Refusal::InvalidField.into());
        }
        let (place, map_epoch) = (fleet.place(entry, vba), fleet.map().wire_epoch());
        match request.verb {
            // A client reads from another copy instead; a write must reach all copies.
            _ if fleet.stands_in() && place != Place::Absent => {
                return Err(Refused::at(Refusal::CopyUnusable, map_epoch));
            }
            _ if place == Place::Absent => return Err(Refused::at(Refusal::WrongTarget, map_epoch)),
            Verb::Read | Verb::Compare => {
                fleet.check_group(entry, vba, false)?;
                let has_writer = volume.has_writer(now, fleet.has_voters());
                volume.check_read(client, place, map_epoch, has_writer)?;
            }
            Verb::Write | Verb::Trim if fleet.has_forgotten() && place == Place::Filling => {
                // A client waits for a newer map then, and sends again.
                return Err(Refused::at(Refusal::NotServing, map_epoch));
            }
            Verb::Write | Verb::Trim => fleet.check_group(entry, vba, true)?,
        }
        Ok((slot, volume))
    }

    pub(crate) fn is_recovering(&self) -> bool {
        self.recovering
    }

    pub(crate) fn volume(&self, vid: Vid) -> Option<&VolumeRules> {
        self.find(vid).map(|(_, volume)| volume)
    }

    /// Serial of the entry in a slot, if there is one.
    #[inline]
    pub(crate) fn serial(&self, slot: u16) -> Option<u64> {
        self.volumes.get(usize::from(slot))?.as_ref().map(|volume| volume.serial)
    }

    /// Whether the volume of a request has a rate limit.
    #[inline]
    pub(crate) fn is_limited(&self, request: &Authorized<Request>) -> bool {
        self.volumes
            .get(usize::from(request.slot))
            .and_then(Option::as_ref)
            .is_some_and(|volume| volume.is_limited())
    }

    /// Slots whose entry differs between these rules and `newer`. A slot that was used before counts, too.
    pub(crate) fn changed<'a>(&'a self, newer: &'a Self) -> impl Iterator<Item = u16> + 'a {
        let slots = u16::try_from(self.volumes.len()).expect("at most MAX_VOLUMES");
        (0..slots).filter(|&slot| self.serial(slot) != newer.serial(slot))
    }

    pub(super) fn slot_of(&self, vid: Vid) -> Option<u16> {
        Some(self.by_vid[usize::from(vid.get())]).filter(|&slot| slot != NO_SLOT)
    }

    /// Slots and rules of the volumes whose id is at least `first`, in the order of their ids.
    pub(super) fn from(&self, first: u16) -> impl Iterator<Item = (u16, &VolumeRules)> {
        self.by_vid[usize::from(first)..]
            .iter()
            .filter_map(|&slot| Some((slot, self.volumes.get(usize::from(slot))?.as_deref()?)))
    }

    /// The first free slot; the one after the last if none is free.
    pub(super) fn free_slot(&self) -> usize {
        self.volumes.iter().position(Option::is_none).unwrap_or(self.volumes.len())
    }

    /// Puts a volume into the slot that [`Self::free_slot`] named.
    pub(super) fn put(&mut self, slot: usize, volume: VolumeRules) {
        let vid = volume.entry.vid;
        if slot == self.volumes.len() {
            self.volumes.push(None);
        }
        Arc::make_mut(&mut self.by_vid)[usize::from(vid.get())] =
            u16::try_from(slot).expect("below MAX_VOLUMES");
        self.volumes[slot] = Some(Arc::new(volume));
    }

    /// Removes a volume. Returns its slot.
    pub(super) fn remove(&mut self, vid: Vid) -> Option<(u16, Arc<VolumeRules>)> {
        let slot = self.slot_of(vid)?;
        Arc::make_mut(&mut self.by_vid)[usize::from(vid.get())] = NO_SLOT;
        Some((slot, self.volumes[usize::from(slot)].take()?))
    }

    pub(super) fn volume_mut(&mut self, slot: u16) -> Option<&mut VolumeRules> {
        self.volumes.get_mut(usize::from(slot))?.as_mut().map(Arc::make_mut)
    }

    #[inline]
    fn find(&self, vid: Vid) -> Option<(u16, &VolumeRules)> {
        let slot = self.by_vid[usize::from(vid.get())];
        self.volumes.get(usize::from(slot)).and_then(Option::as_deref).map(|volume| (slot, volume))
    }
}
