// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One volume as the SSD keeps it: the checks that need only its entry, and state that changes with its
//! commands.

use crate::permission::fleet::Place;
use crate::permission::rate::Rate;
use crate::request::Refused;
use crate::smart::counters::{Counters, Done};
use crate::workers::runs;
use gnstor_base::time::{Span, Time};
use gnstor_proto::slba::ClientId;
use gnstor_proto::status::Refusal;
use gnstor_proto::vendor::{Limits, VolumeEntry};

/// Who may read a volume, made ready for the check: an entry lists up to 512 readers in any order.
#[derive(Clone, PartialEq, Eq, Debug)]
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

    /// As [`VolumeEntry::may_read`], with at most ten comparisons.
    #[inline]
    pub(super) fn allow(&self, client: ClientId) -> bool {
        self.any || self.list.binary_search(&client).is_ok()
    }
}

/// A volume's entry, and data derived from it.
#[derive(Clone, Debug)]
pub(crate) struct VolumeRules {
    pub(super) entry: VolumeEntry,
    pub(super) readers: Readers,
    pub(super) lease_until: Time,
    /// The SSD has started since the grant: it knows the writer, and not whether the lease runs. The daemon
    /// says so with the next change of the entry.
    pub(super) recalled: bool,
    /// The client that held the write lease before. It is refused with "held by another" or "expired".
    pub(super) former_writer: Option<ClientId>,
    /// Serial of this state of the entry. The table never uses a serial again.
    pub(super) serial: u64,
}

impl VolumeRules {
    pub(super) fn new(entry: VolumeEntry, now: Time, serial: u64) -> Self {
        let (readers, lease_until) = (Readers::of(&entry), lease_end(&entry, now));
        Self { entry, readers, lease_until, recalled: false, former_writer: None, serial }
    }

    pub(crate) fn entry(&self) -> &VolumeEntry {
        &self.entry
    }

    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    pub(super) fn is_limited(&self) -> bool {
        self.entry.limits != Limits::default()
    }

    /// Restores the state from before a power cycle. As far as the SSD knows, no lease is valid.
    pub(super) fn recall(&mut self, term: u64, deleting: bool) {
        self.recalled = self.entry.writer.is_some();
        (self.lease_until, self.entry.term, self.entry.deleting) = (Time::ZERO, term, deleting);
    }

    pub(super) fn take(&mut self, entry: VolumeEntry, now: Time) {
        if self.entry.writer != entry.writer && self.entry.writer.is_some() {
            self.former_writer = self.entry.writer;
        }
        let (former_writer, serial) = (self.former_writer, self.serial + 1);
        *self = Self { former_writer, ..Self::new(entry, now, serial) };
    }

    pub(super) fn lease_runs(&self, now: Time) -> bool {
        self.entry.writer.is_some() && runs(self.lease_until, now)
    }

    pub(super) fn check_read(
        &self,
        client: ClientId,
        place: Place,
        map_epoch: u32,
        has_writer: bool,
    ) -> Result<(), Refused> {
        match place {
            Place::Absent => Err(Refused::at(Refusal::WrongTarget, map_epoch)),
            Place::Filling => Err(Refused::at(Refusal::NotHereYet, map_epoch)),
            Place::Serving { first: false } if self.may_differ(client, has_writer) => {
                Err(Refused::at(Refusal::AskTheFirst, map_epoch))
            }
            Place::Serving { .. } => Ok(()),
        }
    }

    /// Whether the volume has a writer. In an array with voters the entry has one until the daemon takes it
    /// away (rule 8a), whatever this SSD's clock says. Elsewhere no daemon may do so, and the clock decides.
    pub(super) fn has_writer(&self, now: Time, has_voters: bool) -> bool {
        if has_voters { self.entry.writer.is_some() } else { self.recalled || self.lease_runs(now) }
    }

    /// Whether replicas may differ in a way that this client must not see. That is so while the volume has a
    /// writer, and after that until it is settled (rule 7a).
    fn may_differ(&self, client: ClientId, has_writer: bool) -> bool {
        self.entry.unsettled || has_writer && self.entry.writer != Some(client)
    }

    /// Until when the entry allows its writer to write. In an array with voters the daemon alone ends a write
    /// lease, by another entry (rule 8a). An SSD that does not hear the daemon is dropped from the map, and
    /// serves nothing then (rule 2a).
    pub(super) fn writes_until(&self, has_voters: bool) -> Time {
        if has_voters && self.entry.writer.is_some() { Time::NEVER } else { self.lease_until }
    }

    pub(super) fn check_writer(
        &self,
        now: Time,
        client: ClientId,
        lease_epoch: u32,
        has_voters: bool,
    ) -> Result<(), Refused> {
        let refusal = if self.entry.writer == Some(client) {
            if lease_epoch == self.entry.lease_epoch && runs(self.writes_until(has_voters), now) {
                return Ok(());
            }
            if lease_epoch == self.entry.lease_epoch && self.recalled {
                return Err(Refusal::NotServing.into());
            }
            Refusal::LeaseExpired
        } else if self.former_writer == Some(client) {
            let other_writes = self.entry.writer.is_some() && runs(self.writes_until(has_voters), now);
            if other_writes { Refusal::LeaseHeldByOther } else { Refusal::LeaseExpired }
        } else if self.readers.allow(client) {
            Refusal::ReadOnly
        } else {
            Refusal::NotAReader
        };
        Err(Refused::at(refusal, self.entry.lease_epoch))
    }
}

fn lease_end(entry: &VolumeEntry, now: Time) -> Time {
    if entry.lease_ms == 0 { Time::ZERO } else { now + Span::from_ms(entry.lease_ms.into()) }
}

/// State that changes with a volume's commands.
#[derive(Debug, Default)]
pub(super) struct Use {
    pub(super) rate: Rate,
    pub(super) counters: Counters,
    pub(super) in_flight: u32,
    /// Commands in flight that were judged by an older entry.
    pub(super) in_flight_older: u32,
    /// Version of the workers' rules at which the entry was last replaced.
    pub(super) aged_at: u64,
    /// The workers' counts in this slot before the volume took it.
    pub(super) done_before: Done,
}

impl Use {
    /// Counts the commands in flight as judged by an older entry, since the entry has been replaced.
    pub(super) fn age(&mut self, version: u64) {
        self.in_flight_older += std::mem::take(&mut self.in_flight);
        self.aged_at = version;
    }
}
