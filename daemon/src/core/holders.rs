// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which clients have a volume open, and how another party ends that.
//!
//! A client that lost its write lease this way is refused by each SSD as after a lease that has expired. Then
//! the volume is settled ([`super::settle`]).

use super::failure::Failure;
use super::holder::{Holder, WriteLease, words};
use super::page::{PAGE_MOST, Page};
use super::request::{VolumeName, no_volume};
use super::rights::{Caller, Right};
use super::volume::{Change, Purpose, Stage, Then, Volume};
use super::{Core, Reply, Ticket};
use gnstor_proto::slba::{ClientId, Vid};

impl Core {
    /// The clients that have the volume open, the writer first.
    pub(super) fn holders(&self, now: u64, volume: &Volume) -> Vec<Holder> {
        let (entry, writer) = (&volume.entry, volume.writer(now));
        let left_ms = volume.lease.map_or(0, |lease| lease.free_at.saturating_sub(now));
        let holder = |client, lease| Holder {
            volume: entry.name.clone(),
            client,
            principal: self.clients.principal(client),
            lease,
        };
        let lease = WriteLease { epoch: entry.lease_epoch, left_ms };
        let writes = writer.map(|client| holder(client, Some(lease)));
        let readers = entry.readers.iter().copied().filter(|reader| writer != Some(*reader));
        writes.into_iter().chain(readers.map(|client| holder(client, None))).collect()
    }

    /// What clients have open of one volume, or of all to which the caller has the admin right. A page ends
    /// with a whole volume.
    pub(super) fn list_leases(
        &self,
        now: u64,
        caller: &Caller,
        name: Option<&VolumeName>,
        page: Page,
    ) -> Result<Reply, Failure> {
        let is_active = |volume: &&Volume| volume.stage == Stage::Active;
        if let Some(name) = name {
            let volume = self.names.get(name.as_str()).map(|vid| &self.volumes[vid]).filter(is_active);
            let leases = self.holders(now, volume.ok_or_else(|| no_volume(name))?);
            return Ok(Reply::Leases { leases, next: None });
        }
        let mut leases = Vec::new();
        let there = self.volumes.range(page.from..).map(|(_, volume)| volume).filter(is_active);
        for volume in there.filter(|v| caller.right(&v.entry.labels) >= Some(Right::Admin)) {
            let held = self.holders(now, volume);
            if !held.is_empty() && leases.len() >= page.most.unwrap_or(PAGE_MOST) {
                return Ok(Reply::Leases { leases, next: Some(volume.entry.vid.to_string()) });
            }
            leases.extend(held);
        }
        Ok(Reply::Leases { leases, next: None })
    }

    /// Ends what a client has open of a volume. While an SSD is away the others refuse the client, and the
    /// daemon repeats the change until that SSD has it, too.
    pub(super) fn revoke_lease(&mut self, now: u64, ticket: Ticket, name: &VolumeName, client: ClientId) {
        let term = self.term.number();
        let Some(vid) = self.named(ticket, name).map(|volume| volume.entry.vid) else { return };
        let mut ended = self.holders(now, &self.volumes[&vid]);
        ended.retain(|holder| holder.client == client);
        if ended.is_empty() {
            return self.reply(ticket, Ok(Reply::Ended(ended)));
        }
        self.note_ended(ticket, vid, ended);
        let mut entry = self.volumes[&vid].basis(now, term);
        entry.readers.retain(|reader| *reader != client);
        if entry.writer == Some(client) {
            entry.writer = None;
            entry.lease_ms = 0;
        }
        self.put(vid, entry, Purpose::Change(Change { ticket, then: Then::LeaseRevoked }));
    }

    /// Remembers what a change ends, for its answer.
    pub(super) fn note_ended(&mut self, ticket: Ticket, vid: Vid, ended: Vec<Holder>) {
        if let (Some(caller), false) = (self.callers.get(&ticket), ended.is_empty()) {
            let by = &caller.name;
            tracing::warn!(%vid, %by, "a caller ends what others have open: {}", words(&ended));
        }
        if let Some(volume) = self.volumes.get_mut(&vid) {
            volume.ended = ended;
        }
    }

    /// A sentence if another client writes to the volume that this one wants to delete.
    pub(super) fn deleted_under_others(&self, now: u64, vid: Vid, client: ClientId) -> Option<String> {
        let volume = &self.volumes[&vid];
        volume.writer(now).filter(|&holder| holder != client)?;
        let mut others = self.holders(now, volume);
        others.retain(|holder| holder.client != client);
        Some(format!(
            "volume {:?} cannot be deleted by client {client}: {}; have the writer release it, try again when its \
             lease has ended, or delete the volume all the same (gnstor volume delete --force)",
            volume.entry.name,
            words(&others)
        ))
    }
}
