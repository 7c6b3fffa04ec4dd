// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One volume as the SSD keeps it, and the part of the check that asks nothing but its entry.

use crate::counters::Counters;
use crate::fleet::Place;
use crate::rate::Rate;
use crate::request::Refused;
use gnstor_fabric::time::{Span, Time};
use gnstor_proto::slba::ClientId;
use gnstor_proto::status::Refusal;
use gnstor_proto::vendor::{Limits, VolumeEntry};

/// Who may read a volume, made ready for the check: an entry lists up to 512 readers in any order.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Readers {
    any: bool,
    /// The readers and the writer, ascending.
    list: Box<[ClientId]>,
}

impl Readers {
    pub(super) fn of(entry: &VolumeEntry) -> Self {
        let mut list: Vec<ClientId> = entry.readers.iter().copied().chain(entry.writer).collect();
        list.sort_unstable();
        list.dedup();
        Self { any: entry.any_reader, list: list.into_boxed_slice() }
    }

    /// As [`VolumeEntry::may_read`], in at most ten steps.
    #[inline]
    pub(super) fn allow(&self, client: ClientId) -> bool {
        self.any || self.list.binary_search(&client).is_ok()
    }
}

/// A volume as the SSD keeps it.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(super) entry: VolumeEntry,
    pub(super) readers: Readers,
    pub(super) rate: Rate,
    pub(super) counters: Counters,
    pub(super) lease_until: Time,
    /// Who held the write lease before: told "held by another" or "expired" rather than that it never had it.
    pub(super) former_writer: Option<ClientId>,
    pub(super) serial: u64,
    pub(super) in_flight: u32,
    /// In flight, but judged by an entry that has been replaced.
    pub(super) in_flight_older: u32,
}

impl Volume {
    pub(crate) fn entry(&self) -> &VolumeEntry {
        &self.entry
    }

    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.in_flight_older == 0
    }

    pub(crate) fn limits(&self) -> Limits {
        self.rate.limits()
    }

    /// As it was before the power went; no lease runs.
    pub(super) fn recall(&mut self, term: u64, deleting: bool) {
        (self.lease_until, self.entry.term, self.entry.deleting) = (Time::ZERO, term, deleting);
    }

    pub(super) fn take(&mut self, entry: VolumeEntry, limits: Limits, now: Time) {
        // The same limits go on where they are: a renewal of the lease fills no bucket.
        if limits != self.rate.limits() {
            self.rate = Rate::new(limits);
        }
        if self.entry.writer != entry.writer && self.entry.writer.is_some() {
            self.former_writer = self.entry.writer;
        }
        self.lease_until = lease_end(&entry, now);
        self.readers = Readers::of(&entry);
        self.entry = entry;
        self.age();
    }

    pub(super) fn age(&mut self) {
        self.serial += 1;
        self.in_flight_older += std::mem::take(&mut self.in_flight);
    }

    pub(super) fn lease_runs(&self, now: Time) -> bool {
        self.entry.writer.is_some() && now < self.lease_until
    }

    pub(super) fn check_read(&self, now: Time, client: ClientId, place: Place, map_epoch: u32) -> Result<(), Refused> {
        match place {
            Place::Absent => Err(Refused::at(Refusal::WrongTarget, map_epoch)),
            Place::Filling => Err(Refused::at(Refusal::NotHereYet, map_epoch)),
            Place::Serving { first: false } if self.lease_runs(now) && self.entry.writer != Some(client) => {
                Err(Refused::at(Refusal::AskTheFirst, map_epoch))
            }
            Place::Serving { .. } => Ok(()),
        }
    }

    pub(super) fn check_writer(&self, now: Time, client: ClientId, lease_epoch: u32) -> Result<(), Refused> {
        let refusal = if self.entry.writer == Some(client) {
            if lease_epoch == self.entry.lease_epoch && now < self.lease_until {
                return Ok(());
            }
            Refusal::LeaseExpired
        } else if self.former_writer == Some(client) {
            if self.lease_runs(now) { Refusal::LeaseHeldByOther } else { Refusal::LeaseExpired }
        } else if self.readers.allow(client) {
            Refusal::ReadOnly
        } else {
            Refusal::NotAReader
        };
        Err(Refused::at(refusal, self.entry.lease_epoch))
    }
}

pub(super) fn lease_end(entry: &VolumeEntry, now: Time) -> Time {
    if entry.lease_ms == 0 { Time::ZERO } else { now + Span::from_ms(entry.lease_ms.into()) }
}
