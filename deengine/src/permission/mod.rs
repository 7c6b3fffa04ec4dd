// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The permission table, and the only place where a request becomes an authorised one.
//!
//! [`Authorized`] has a private constructor: code that moves data or changes the map takes an
//! `Authorized<Request>`, so forgetting the check does not compile. Each one is counted under the version
//! of the entry it was judged by, until it is handed back to [`Table::leave`]. That count is what VOLUME
//! CHMOD and DELETE wait for (protocol rule 8). The workers of an SSD judge by the same rules and count for
//! themselves (`crate::io`).

mod changes;
mod check;
pub mod fleet;
mod last_renewal;
mod rate;
mod tombstones;
mod volume;
mod writers;

use crate::permission::fleet::Fleet;
pub use crate::request::MAX_VOLUMES;
use crate::request::{Refused, Request, Verb};
use crate::smart::counters::{Clients, Counters, QueueCounters};
use crate::workers::WorkerSet;
pub(crate) use check::Rules;
use gnstor_base::controller::QueueKey;
use gnstor_base::time::Time;
use gnstor_durable::Seq;
use gnstor_proto::fabrics::Identity;
use gnstor_proto::slba::{ClientId, Vid};
use last_renewal::LastRenewal;
use std::sync::Arc;
use tombstones::Tombstones;
use volume::{Use, VolumeRules};
use writers::Writers;

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
    /// The allowed request.
    pub fn get(&self) -> &T {
        &self.inner
    }

    /// The slot of the volume in the table.
    pub(crate) fn slot(&self) -> u16 {
        self.slot
    }

    /// The generation of the volume id that it was allowed for.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Serial of the entry's state that allowed it. It grows with every change.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// The request was confirmed just now: it counts as judged by this state of the entry. The caller counts
    /// it anew.
    pub(crate) fn confirmed_by(&mut self, serial: u64) {
        self.serial = serial;
    }
}

/// All volumes of one SSD, and the highest daemon term it has seen.
#[derive(Debug, Default)]
pub struct Table {
    rules: Arc<Rules>,
    /// Per volume, in the slots of the rules: state that changes with the volume's commands.
    uses: Vec<Use>,
    workers: Arc<WorkerSet>,
    tombstones: Tombstones,
    writers: Writers,
    clients: Clients,
    term: u64,
    serial: u64,
    renewal: LastRenewal,
}

impl Table {
    /// Judges a request. The caller must hand the returned value back to [`Self::leave`].
    ///
    /// # Errors
    /// The first rule that refuses, in the order of the protocol page.
    pub fn authorise(
        &mut self,
        now: Time,
        identity: Identity,
        request: Request,
    ) -> Result<Authorized<Request>, Refused> {
        let allowed = self.rules.authorise(now, self.workers.lease_end(), identity, request)?;
        self.uses[usize::from(allowed.slot)].in_flight += 1;
        Ok(allowed)
    }

    /// Judges an authorised request again, when its data is there and before it changes anything. Entry,
    /// lease and map may have changed meanwhile (protocol rules 2 and 8).
    ///
    /// # Errors
    /// As [`Self::authorise`]; `UnknownVolume` if the volume id belongs to a new volume.
    pub fn confirm(
        &self,
        now: Time,
        identity: Identity,
        request: &Authorized<Request>,
    ) -> Result<(), Refused> {
        self.rules.confirm(now, self.workers.lease_end(), identity, request)
    }

    /// Whether the entry that allowed the request has been replaced.
    pub(crate) fn is_older(&self, request: &Authorized<Request>) -> bool {
        self.rules.serial(request.slot) != Some(request.serial)
    }

    /// A request that was confirmed just now counts as judged by the entry of now: a fence need not wait.
    pub(crate) fn renew(&mut self, mut request: Authorized<Request>) -> Authorized<Request> {
        let newer = self.rules.serial(request.slot).filter(|&serial| serial != request.serial);
        if let Some(serial) = newer
            && let Some(count) = self.count_of(&request)
        {
            *count -= 1;
            request.confirmed_by(serial);
            if let Some(count) = self.count_of(&request) {
                *count += 1;
            }
        }
        request
    }

    /// The request is no longer in flight.
    pub fn leave(&mut self, request: Authorized<Request>) {
        self.release(&request);
    }

    /// As [`Self::leave`].
    pub(crate) fn release(&mut self, request: &Authorized<Request>) {
        if let Some(count) = self.count_of(request) {
            *count -= 1;
        }
    }

    /// The counter of the request.
    fn count_of(&mut self, request: &Authorized<Request>) -> Option<&mut u32> {
        // A volume goes only when nothing is in flight, but its slot may have been taken over after a
        // forced fence.
        let volume = self.rules.volume(request.inner.address.vid)?;
        if self.rules.slot_of(volume.entry.vid) != Some(request.slot)
            || volume.entry.generation != request.generation
        {
            return None;
        }
        let current = request.serial == volume.serial;
        let used = &mut self.uses[usize::from(request.slot)];
        Some(if current { &mut used.in_flight } else { &mut used.in_flight_older })
    }

    /// When the rate limit of a volume lets a command that moves `blocks` start, `now` or later. A volume
    /// that is gone, or is being deleted, has no limit.
    pub(crate) fn start_of(&self, now: Time, vid: u16, blocks: u32) -> Time {
        let lives = |vid: &Vid| self.rules.volume(*vid).is_some_and(|volume| !volume.entry.deleting);
        let slot = Vid::new(vid).filter(lives).and_then(|vid| self.rules.slot_of(vid));
        slot.map_or(now, |slot| self.uses[usize::from(slot)].rate.start(now, blocks))
    }

    /// Charges a request to its volume's rate limit: it begins at `at`.
    pub(crate) fn charge(&mut self, at: Time, request: &Authorized<Request>) {
        let used = &mut self.uses[usize::from(request.slot)];
        used.rate.charge(at, request.inner.charged_blocks());
    }

    /// Counts a request that has to wait for its volume's rate limit.
    pub(crate) fn count_throttled(&mut self, request: &Authorized<Request>) {
        self.uses[usize::from(request.slot)].counters.throttled += 1;
        self.clients.of(request.inner.address.client).throttled += 1;
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
            Verb::Trim => counters.writes += 1,
        };
        count(self.clients.of(address.client));
        count(&mut self.uses[usize::from(request.slot)].counters);
    }

    /// Registers a queue's counters, by which the table counts commands that a worker executes alone for this
    /// client.
    pub(crate) fn watch(&mut self, queue: QueueKey, client: ClientId, done: Arc<QueueCounters>) {
        self.clients.watch(queue, client, done);
    }

    /// Adds the counters of a queue that is gone to its client's.
    pub(crate) fn unwatch(&mut self, queue: QueueKey) {
        self.clients.unwatch(queue);
    }

    /// Counts a refused command of a client. It named this volume, which need not exist.
    pub(crate) fn count_refusal(&mut self, vid: u16, client: ClientId) {
        self.clients.of(client).refusals += 1;
        if let Some(slot) = Vid::new(vid).and_then(|vid| self.rules.slot_of(vid)) {
            self.uses[usize::from(slot)].counters.refusals += 1;
        }
    }

    /// Id, generation and counters of each volume, ascending.
    pub(crate) fn volume_counters(&self) -> impl Iterator<Item = (u16, u32, Counters)> {
        self.rules.from(0).map(|(slot, volume)| {
            let used = &self.uses[usize::from(slot)];
            let mut counters = used.counters;
            counters.add(self.workers.done_in(slot) - used.done_before);
            (volume.entry.vid.get(), volume.entry.generation, counters)
        })
    }

    /// Id, 0 and counters of each client, ascending.
    pub(crate) fn client_counters(&self) -> impl Iterator<Item = (u16, u32, Counters)> {
        self.clients.iter().map(|(id, counters)| (id, 0, counters))
    }

    pub(crate) fn volume(&self, vid: Vid) -> Option<&VolumeRules> {
        self.rules.volume(vid)
    }

    /// Whether nothing is in flight, on any worker, that was judged by an older entry of the volume.
    /// `true` for a volume that is gone.
    pub(crate) fn is_fenced(&self, vid: Vid) -> bool {
        self.rules.slot_of(vid).is_none_or(|slot| {
            let used = &self.uses[usize::from(slot)];
            used.in_flight_older == 0 && self.workers.is_fenced(slot, used.aged_at)
        })
    }

    /// The volumes whose entries name this client as their writer.
    pub(crate) fn volumes_of(&self, client: ClientId) -> impl Iterator<Item = Vid> {
        self.writers.volumes_of(client)
    }

    /// The last transaction that the client may have written to volumes that it writes no more.
    pub(crate) fn written_before(&self, client: ClientId) -> Option<Seq> {
        self.writers.former(client)
    }

    /// A client has lost the right to write a volume; the volume's `last` transaction, and the `durable` one.
    pub(crate) fn lost_writer(&mut self, client: ClientId, last: Seq, durable: Seq) {
        self.writers.lost(client, last, durable);
    }

    /// The slot of a volume.
    pub(crate) fn slot_of(&self, vid: Vid) -> Option<u16> {
        self.rules.slot_of(vid)
    }

    /// Volumes whose id is at least `first`, in the order of their ids.
    pub(crate) fn volumes_from(&self, first: u16) -> impl Iterator<Item = &VolumeRules> {
        self.rules.from(first).map(|(_, volume)| volume)
    }

    pub(crate) fn fleet(&self) -> Option<&Fleet> {
        self.rules.fleet.as_deref()
    }

    pub(crate) fn set_fleet(&mut self, fleet: Option<Fleet>) {
        self.change().fleet = fleet.map(Arc::new);
    }

    pub(crate) fn is_recovering(&self) -> bool {
        self.rules.recovering
    }

    pub(crate) fn set_recovering(&mut self, recovering: bool) {
        if recovering != self.rules.recovering {
            self.change().recovering = recovering;
        }
    }

    /// [`Rules::runs_until`] states an end that is this much too early.
    #[cfg(test)]
    pub(crate) fn end_early(&mut self, early: gnstor_base::time::Span) {
        self.change().early = early;
    }

    /// Turns every access check off.
    #[cfg(feature = "unchecked-for-benchmarks")]
    pub(crate) fn leave_unchecked(&mut self) {
        self.change().unchecked = true;
    }

    /// The highest term of a daemon seen.
    pub(crate) fn term(&self) -> u64 {
        self.term
    }

    /// From now on the rules are published to these workers.
    pub(crate) fn share(&mut self, workers: Arc<WorkerSet>) {
        workers.end_lease_at(self.workers.lease_end());
        self.workers = workers;
    }

    /// The rules as they are.
    pub(crate) fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    /// The rules, to be changed. A worker that judged by the old rules has been counted, or will find them
    /// old.
    fn change(&mut self) -> &mut Rules {
        self.workers.change();
        Arc::make_mut(&mut self.rules)
    }

    /// Notes a change, other than of the rules, that the workers must check again.
    pub(crate) fn touch(&self) {
        self.workers.change();
    }

    /// Replaces the entry of a volume. Requests that the previous entry allowed count as older from here on.
    fn replace(&mut self, slot: u16, change: impl FnOnce(&mut VolumeRules)) {
        if let Some(volume) = self.change().volume_mut(slot) {
            change(volume);
        }
        self.uses[usize::from(slot)].age(self.workers.version());
    }
}

#[cfg(test)]
mod tests;
