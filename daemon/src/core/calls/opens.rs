// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Open, Renew and Release: what a client may do with a volume, and for how long.

use super::{Call, Core};
use crate::core::Reply;
use crate::core::ends::holds;
use crate::core::failure::Failure;
use crate::core::publish::without;
use crate::core::request::{Request, Rights};
use crate::core::volume::{Change, DELETE_MARK, Purpose, Stage, Then, Volume};
use gnstor_proto::labels::SHA256;
use gnstor_proto::slba::ClientId;
use gnstor_proto::status::GrpcCode::{FailedPrecondition, ResourceExhausted, Unavailable};
use gnstor_proto::vendor::{MAX_READERS, VolumeEntry};
use std::collections::BTreeSet;

/// What a holder of a write lease reports with a renewal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    pub(super) lease_epoch: u32,
    /// SSDs that the holder reaches, bit N = SSD N.
    pub(super) reaches: Option<u64>,
    /// Whether one of the holder's writes has failed.
    pub(super) in_doubt: bool,
    /// The client follows a map in which an SSD comes in for another one.
    pub(super) follows_drains: bool,
}

impl Core {
    pub(super) fn open(&mut self, call: Call<'_>, rights: Rights, follows_drains: bool) {
        let Call { now, ticket, name, client } = call;
        if self.settles_first(call, rights, follows_drains) {
            return;
        }
        let Some(vid) = self.named(ticket, name).map(|volume| volume.entry.vid) else { return };
        let volume = &self.volumes[&vid];
        let opened = match rights {
            Rights::Read => self.with_reader(call, volume),
            Rights::Write { lease_ms } => self.with_writer(call, volume, lease_ms).map(Some),
        };
        // Without voters, every client may read any replica after a lease has ended, and the daemon drops no
        // SSD.
        let everywhere = self.map_of_voters().is_some() && volume.may_seem_writer(now, client);
        let is_named = matches!(opened, Ok(None));
        let (entry, then) = match opened {
            Ok(Some(entry)) if rights == Rights::Read => (entry, Then::OpenedRead { everywhere }),
            Ok(Some(entry)) => (entry, Then::OpenedWrite),
            Ok(None) if everywhere => {
                (volume.basis(now, self.term.number()), Then::OpenedRead { everywhere })
            }
            Ok(None) => {
                let view = volume.view(now);
                return self.reply(ticket, Ok(Reply::Opened { volume: view, lease_ms: 0 }));
            }
            Err(failure) => return self.reply(ticket, Err(failure)),
        };
        // A further reader is harmless even if an SSD does not know it yet. That SSD refuses the reader, and
        // gets the entry when it is back. But if that SSD takes it for the writer, it lets it read any
        // replica. So a former writer reads only when every SSD knows that it is none. A new writer is
        // admitted only when every SSD refuses the previous one.
        let missing = match then {
            Then::OpenedRead { everywhere: false } => None,
            Then::OpenedRead { .. } => self.needs_serving(name, "opened"),
            _ => self.needs_everyone(name, "opened"),
        };
        if let Some(message) = missing {
            return self.fail(ticket, Unavailable, message);
        }
        if let Some(caller) = self.callers.get(&ticket).filter(|_| !is_named) {
            let volumes = &self.volumes;
            let opened = self.clients.open(now, caller, (client, vid), |id, vid| holds(volumes, id, vid));
            if let Err(failure) = opened {
                return self.reply(ticket, Err(failure));
            }
        }
        self.clients.note(client);
        if let Some(volume) = self.volumes.get_mut(&vid).filter(|_| then == Then::OpenedWrite) {
            volume.opens_and_follows = follows_drains;
        }
        self.put(vid, entry, Purpose::Change(Change { ticket, then }));
    }

    /// Whether an Open for writing waits until the replicas of the volume agree.
    fn settles_first(&mut self, call: Call<'_>, rights: Rights, follows_drains: bool) -> bool {
        let Call { now, ticket, name, client } = call;
        if let (Rights::Write { .. }, Some(&vid)) = (rights, self.names.get(name.as_str()))
            && self.volumes[&vid].stage == Stage::Active
            && self.volumes[&vid].held_by_other(now, client, "opened for writing").is_none()
        {
            let request = Request::Open { name: name.clone(), client, rights, follows_drains };
            return self.wait_for_settle(now, ticket, vid, request).is_none();
        }
        false
    }

    /// The volume's entry with the caller as a further reader. `None`: it may read already.
    fn with_reader(&self, call: Call<'_>, volume: &Volume) -> Result<Option<VolumeEntry>, Failure> {
        let Call { now, ticket, name, client } = call;
        let mut entry = volume.basis(now, self.term.number());
        if entry.any_reader || entry.readers.contains(&client) {
            return Ok(None);
        }
        if entry.readers.len() == MAX_READERS {
            let message = format!(
                "client {client} cannot open volume {name} for reading: it has {MAX_READERS} readers, the \
                 most there can be; release one that is not in use"
            );
            return Err(Failure::new(ResourceExhausted, message));
        }
        if let Some(caller) = self.callers.get(&ticket) {
            self.clients.read(caller, name.as_str(), &entry.readers)?;
        }
        entry.readers.push(client);
        Ok(Some(entry))
    }

    /// The volume's entry with the caller as its writer.
    fn with_writer(&self, call: Call<'_>, volume: &Volume, lease_ms: u32) -> Result<VolumeEntry, Failure> {
        let Call { now, name, client, .. } = call;
        let mut entry = volume.basis(now, self.term.number());
        if let Some(message) = volume.held_by_other(now, client, "opened for writing") {
            return Err(Failure::new(FailedPrecondition, message));
        }
        entry.lease_epoch = entry.lease_epoch.max(volume.spent);
        if entry.lease_epoch == DELETE_MARK - 1 {
            let message = format!("volume {name} has used up its lease epochs: copy it to a new volume");
            return Err(Failure::new(ResourceExhausted, message));
        }
        entry.writer = Some(client);
        entry.lease_epoch += 1;
        entry.lease_ms = lease_ms;
        // From here on the content has another SHA-256.
        entry.labels = without(&entry.labels, SHA256);
        Ok(entry)
    }

    pub(super) fn renew(&mut self, call: Call<'_>, lease_ms: u32, says: Holder) {
        let Call { now, ticket, name, client } = call;
        let epoch = says.lease_epoch;
        let term = self.term.number();
        let Some(volume) = self.named(ticket, name) else { return };
        let holder = volume.writer(now);
        if holder != Some(client) || volume.entry.lease_epoch != epoch {
            let state = match holder {
                None => "has expired or was given back".into(),
                Some(holder) if holder == client => {
                    format!("is of epoch {} by now", volume.entry.lease_epoch)
                }
                Some(holder) => format!("belongs to client {holder}"),
            };
            let message = format!(
                "client {client} cannot renew its lease of epoch {epoch} on volume {name}: the write lease \
                 {state}; open the volume for writing again"
            );
            return self.fail(ticket, FailedPrecondition, message);
        }
        let vid = volume.entry.vid;
        let entry = VolumeEntry { lease_ms, ..volume.basis(now, term) };
        // The call may have waited for another change. Its report describes the time at which it arrived.
        let end = self.tickets.get(&ticket).copied();
        let came_at = end.map_or(now, |end| end.saturating_sub(self.config.request_ms));
        if let Some(volume) = self.volumes.get_mut(&vid) {
            volume.reaches = says.reaches.map(|ssds| (ssds, came_at)).or(volume.reaches);
            volume.in_doubt |= says.in_doubt;
            volume.follows |= says.follows_drains;
        }
        self.put(vid, entry, Purpose::Change(Change { ticket, then: Then::Renewed }));
    }

    /// Ends all rights of the client: a writer's lease, a reader's place. The core's own Release ends the
    /// rights of all clients whose ids are ending. A Release of an earlier lease of the client, or of a
    /// file that was open for reading, ends no lease.
    pub(super) fn release(&mut self, call: Call<'_>, all_acknowledged: bool, lease_epoch: Option<u32>) {
        let Call { now, ticket, name, client } = call;
        let term = self.term.number();
        let volume = self.names.get(name.as_str()).and_then(|vid| self.volumes.get(vid));
        let Some(volume) = volume else { return self.reply(ticket, Ok(Reply::Done)) };
        let vid = volume.entry.vid;
        let is_other = lease_epoch.is_some_and(|epoch| epoch != volume.entry.lease_epoch);
        let keeps_lease = is_other && volume.entry.writer == Some(client);
        let ends = |id: &ClientId| *id == client || ticket.is_own() && self.clients.is_ending(*id);
        let named = volume.entry.readers.iter().chain(volume.entry.writer.iter().filter(|_| !keeps_lease));
        let gone: BTreeSet<_> = named.filter(|id| ends(id)).copied().collect();
        if gone.is_empty() && keeps_lease {
            return self.reply(ticket, Ok(Reply::Done));
        }
        if volume.stage != Stage::Active || gone.is_empty() {
            let is_everywhere = volume.is_everywhere();
            gone.into_iter().chain([client]).for_each(|id| self.let_go(now, id, vid, is_everywhere));
            return self.reply(ticket, Ok(Reply::Done));
        }
        let mut entry = volume.basis(now, term);
        entry.readers.retain(|reader| !gone.contains(reader));
        if !keeps_lease && entry.writer.is_some_and(|writer| gone.contains(&writer)) {
            entry.writer = None;
            entry.lease_ms = 0;
        }
        self.put(vid, entry, Purpose::Change(Change { ticket, then: Then::Released { all_acknowledged } }));
    }
}
