// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls of `gnstor.proto`: what each checks against the state, and the entry it wants on the SSDs.

mod create;
mod fleet;
mod opens;

use super::failure::Failure;
use super::request::{Create, Label, Rename, Request, RequestId, Resize, Rights, VolumeName, no_volume};
use super::rights::{self, Caller, ClientProof, Right};
use super::volume::{Change, Creation, Purpose, Stage, Then, Volume};
use super::{Core, Reply, SHARES, Ticket};
use fleet::Wish;
use gnstor_proto::slba::{ClientId, Vid};
use gnstor_proto::status::GrpcCode::{FailedPrecondition, PermissionDenied, Unavailable};
use opens::Holder;

/// A right that a principal gets to a volume; `None`: it loses all.
#[derive(Clone, Copy)]
struct Share<'a> {
    name: &'a VolumeName,
    principal: &'a str,
    right: Option<Right>,
}

/// A client's call on a volume.
#[derive(Clone, Copy)]
struct Call<'a> {
    now: u64,
    ticket: Ticket,
    name: &'a VolumeName,
    client: ClientId,
}

impl Core {
    /// Serves a request, or queues it behind the change of its volume that is under way.
    pub(super) fn dispatch(&mut self, now: u64, ticket: Ticket, request: Request) {
        let Some(caller) = self.callers.get(&ticket).cloned() else { return };
        if !ticket.is_own()
            && let Err(failure) = self.allowed(&caller, &request)
        {
            return self.reply(ticket, Err(failure));
        }
        // The call may have proven the serial of an id.
        self.end_clients();
        self.enqueue(now, ticket, request);
    }

    fn enqueue(&mut self, now: u64, ticket: Ticket, request: Request) {
        let Some(caller) = self.callers.get(&ticket).cloned() else { return };
        let vid = self.waits_for_round(&request);
        if let Some(volume) = vid.and_then(|vid| self.volumes.get_mut(&vid)) {
            let (waiting, most) = (volume.queue.len(), self.config.max_queue);
            let is_of_caller =
                |ticket: &Ticket| self.callers.get(ticket).is_some_and(|other| other.name == caller.name);
            let of_caller = || volume.queue.iter().filter(|(ticket, _)| is_of_caller(ticket)).count();
            let is_scarce = waiting + most / SHARES >= most;
            let is_greedy = !ticket.is_own() && !caller.single && is_scarce && of_caller() >= most / SHARES;
            if waiting < most && !is_greedy {
                return volume.queue.push_back((ticket, request));
            }
            let message = format!(
                "{} requests wait for volume {:?}: try again later",
                volume.queue.len(),
                volume.entry.name
            );
            return self.fail(ticket, Unavailable, message);
        }
        self.serve(now, ticket, request, &caller);
    }

    /// Executes a request. No change of its volume is under way.
    fn serve(&mut self, now: u64, ticket: Ticket, request: Request, caller: &Caller) {
        match request {
            Request::Create(request) => self.create_for(now, ticket, request, caller),
            Request::List(page) => {
                let listed = self.list(now, caller, page);
                self.reply(ticket, Ok(listed));
            }
            Request::Room => self.reply(ticket, Ok(Reply::Room(self.room(now)))),
            Request::Get { name } => {
                if let Some(volume) = self.named(ticket, &name) {
                    let view = volume.shown(now);
                    self.reply(ticket, Ok(Reply::Volume(view)));
                }
            }
            Request::Delete { name, client, request_id, force, only } => {
                self.delete(Call { now, ticket, name: &name, client }, request_id, (force, only));
            }
            Request::Open { name, client, rights, follows_drains } => {
                self.open(Call { now, ticket, name: &name, client }, rights, follows_drains);
            }
            Request::Renew { name, client, lease_epoch, lease_ms, reaches, in_doubt, follows_drains } => {
                let holder = Holder { lease_epoch, reaches, in_doubt, follows_drains };
                self.renew(Call { now, ticket, name: &name, client }, lease_ms, holder);
            }
            Request::Release { name, client, all_acknowledged, lease_epoch } => {
                self.release(Call { now, ticket, name: &name, client }, all_acknowledged, lease_epoch);
            }
            Request::Publish(request) => self.publish_volume(now, ticket, request),
            Request::Rename(request) => self.rename(now, ticket, &request),
            Request::Label(request) => self.label(now, ticket, &request),
            Request::Resize(request) => self.resize(now, ticket, &request),
            Request::ListLeases { name, page } => {
                let listed = self.list_leases(now, caller, name.as_ref(), page);
                self.reply(ticket, listed);
            }
            Request::RevokeLease { name, client } => self.revoke_lease(now, ticket, &name, client),
            Request::Share { name, principal, right } => {
                self.share(now, ticket, Share { name: &name, principal: &principal, right: Some(right) });
            }
            Request::Revoke { name, principal } => {
                self.share(now, ticket, Share { name: &name, principal: &principal, right: None });
            }
            Request::Register => self.register(now, ticket, caller),
            // `waits_for_round` has noted the id. There is no more to do.
            Request::Keep { .. } => self.reply(ticket, Ok(Reply::Done)),
            Request::GetMap => self.reply(ticket, Ok(Reply::Map(self.epoch.bytes()))),
            Request::Fleet => {
                let fleet = self.fleet_reply(now);
                self.reply(ticket, fleet);
            }
            Request::Resume { ssd, lose_data } => self.wish(now, ticket, Wish::Resume { lose_data }, ssd),
            Request::Fail { ssd, lose_data } => self.wish(now, ticket, Wish::Fail { lose_data }, ssd),
            Request::Remove { ssd } => self.wish(now, ticket, Wish::Remove, ssd),
            Request::Drain { ssd } => self.wish(now, ticket, Wish::Drain, ssd),
            Request::Add(add) => self.add(now, ticket, &add),
            Request::Replace { ssd, lose_data } => {
                self.wish(now, ticket, Wish::Replace { lose_data }, ssd);
            }
            Request::Salvage { dry_run, at_s } => self.salvage(now, ticket, dry_run, at_s),
            Request::Repair { order } => self.repair(ticket, order),
        }
    }

    /// Makes a volume that belongs to the caller.
    fn create_for(&mut self, now: u64, ticket: Ticket, request: Create, caller: &Caller) {
        let Some(mut request) = self.park(now, ticket, request) else { return };
        match rights::owned(&request.labels, caller) {
            Ok(labels) => {
                request.labels = labels;
                self.create(now, Creation { ticket, request, attempt: 1 });
            }
            Err(failure) => self.reply(ticket, Err(failure)),
        }
    }

    /// Gives the caller a client id.
    fn register(&mut self, now: u64, ticket: Ticket, caller: &Caller) {
        let volumes = &self.volumes;
        let named = || {
            let entries = volumes.values().map(|v| &v.entry);
            entries.flat_map(|e| e.readers.iter().chain(&e.writer).copied()).collect()
        };
        let numbered = self.clients.number(now, caller, self.term.number(), named);
        self.end_clients();
        self.reply(ticket, numbered.map(|(client, serial)| Reply::Client { client, serial }));
    }

    /// Checks the caller's rights: to the volume, and to the client id that the request names.
    fn allowed(&mut self, caller: &Caller, request: &Request) -> Result<(), Failure> {
        may_take_room(caller, request)?;
        let (client, name, right) = match request {
            Request::Create(create) => (Some(create.client), None, None),
            Request::Get { name } => (None, Some(name), Some(Right::Read)),
            Request::Delete { name, client, .. } => (Some(*client), Some(name), Some(Right::Admin)),
            Request::Open { name, client, rights: Rights::Read, .. } => {
                (Some(*client), Some(name), Some(Right::Read))
            }
            Request::Open { name, client, .. } => (Some(*client), Some(name), Some(Right::Write)),
            Request::Renew { name, client, .. } => (Some(*client), Some(name), Some(Right::Write)),
            // The principal of the id may release the volume even after its right was revoked.
            Request::Release { name, client, .. } => (Some(*client), Some(name), None),
            Request::Share { name, .. }
            | Request::Revoke { name, .. }
            | Request::Rename(Rename { name, .. })
            | Request::Label(Label { name, .. })
            | Request::Resize(Resize { name, .. })
            | Request::ListLeases { name: Some(name), .. }
            | Request::RevokeLease { name, .. } => (None, Some(name), Some(Right::Admin)),
            Request::Publish(publish) => return self.may_publish(caller, publish),
            Request::Keep { client } => (Some(*client), None, None),
            Request::Resume { .. }
            | Request::Fail { .. }
            | Request::Remove { .. }
            | Request::Replace { .. }
            | Request::Salvage { .. }
            | Request::Add(_)
            | Request::Drain { .. }
            | Request::Repair { order: Some(_) } => {
                return fleet::may_change(caller);
            }
            Request::List(_)
            | Request::ListLeases { name: None, .. }
            | Request::Room
            | Request::Register
            | Request::GetMap
            | Request::Fleet
            | Request::Repair { order: None } => {
                return Ok(());
            }
        };
        let entry = name.and_then(|name| self.names.get(name.as_str())).map(|vid| &self.volumes[vid].entry);
        if let (Some(entry), Some(right)) = (entry, right) {
            caller.needs(right, &entry.labels, &entry.name)?;
        }
        let Some(client) = client else { return Ok(()) };
        match self.clients.is_inherited(client) {
            true => self.inherited_allowed(caller, client, request, name),
            false => self.clients.take(caller, client),
        }
    }

    /// An earlier daemon gave the id. Its client may renew and release, if it has a right to the volume. The
    /// id is not kept alive if it has a volume open to which its caller lost the right.
    fn inherited_allowed(
        &mut self,
        caller: &Caller,
        client: ClientId,
        request: &Request,
        name: Option<&VolumeName>,
    ) -> Result<(), Failure> {
        if !caller.may_be(client) || self.clients.is_outdated(caller, client) {
            let message = format!(
                "client id {client} is of an earlier start of the daemon, and the call does not prove that \
                 it is its own: register again"
            );
            return Err(Failure::new(PermissionDenied, message));
        }
        self.clients.learn(caller, client);
        // The id of a writer may release the volume, which needs the right to write.
        let is_enough = |v: &Volume| {
            let needed = if v.entry.writer == Some(client) { Right::Write } else { Right::Read };
            caller.right(&v.entry.labels) >= Some(needed)
        };
        let has_right = |vid| self.volumes.get(&vid).is_none_or(is_enough);
        let names_it = matches!(request, Request::Renew { .. } | Request::Keep { .. });
        if names_it && self.clients.inherited_opens(client).all(has_right) {
            self.clients.adopt(caller, client);
        }
        let entry = name.and_then(|name| self.names.get(name.as_str())).map(|vid| &self.volumes[vid].entry);
        match (request, entry) {
            (Request::Renew { .. }, Some(_)) => Ok(()),
            (Request::Release { .. }, Some(entry)) => {
                let right = if entry.writer == Some(client) { Right::Write } else { Right::Read };
                caller.needs(right, &entry.labels, &entry.name)
            }
            _ => self.clients.take(caller, client),
        }
    }

    /// A principal gets a right to a volume, or loses all. The opens of its clients that need more end.
    fn share(&mut self, now: u64, ticket: Ticket, share: Share<'_>) {
        let Share { name, principal, right } = share;
        let term = self.term.number();
        let ids = self.clients.of(principal);
        let Some(volume) = self.named(ticket, name) else { return };
        let (vid, mut entry) = (volume.entry.vid, volume.basis(now, term));
        entry.labels = match rights::shared(&entry.labels, principal, right) {
            Ok(labels) => labels,
            Err(failure) => return self.reply(ticket, Err(failure)),
        };
        let left = Caller {
            name: principal.into(),
            admin: false,
            creator: false,
            single: false,
            connection: 0,
            client: ClientProof::NotAsked,
        }
        .right(&entry.labels);
        if left.is_none() {
            entry.readers.retain(|reader| !ids.contains(reader));
        }
        if left < Some(Right::Write) && entry.writer.is_some_and(|writer| ids.contains(&writer)) {
            entry.writer = None;
            entry.lease_ms = 0;
        }
        if let Some(message) = self.needs_everyone(name, "shared") {
            return self.fail(ticket, Unavailable, message);
        }
        let then = if right.is_some() { Then::Shared } else { Then::Revoked };
        self.put(vid, entry, Purpose::Change(Change { ticket, then }));
    }

    fn delete(&mut self, call: Call<'_>, id: Option<RequestId>, (force, only): (bool, Option<(Vid, u32)>)) {
        let Call { now, ticket, name, client } = call;
        let done =
            id.and_then(|id| self.tombstones.find(now, id)).is_some_and(|entry| entry.name == name.as_str());
        if done || id.is_some_and(|id| self.tombstones.gone_before(now, id).is_some()) {
            return self.reply(ticket, Ok(Reply::Ended(Vec::new())));
        }
        let known = self.names.get(name.as_str()).map(|vid| (*vid, self.volumes[vid].entry.generation));
        if let Some((vid, generation)) = only.filter(|only| known != Some(*only)) {
            // Under another name the caller learns of it only with a right to it.
            let caller = self.callers.get(&ticket);
            let has_right = |labels: &str| caller.is_some_and(|caller| caller.right(labels).is_some());
            let same = self.volumes.get(&vid).filter(|volume| volume.entry.generation == generation);
            return match same.is_some_and(|volume| has_right(&volume.entry.labels)) {
                true => self.not_found(ticket, name),
                false => self.reply(ticket, Ok(Reply::Ended(Vec::new()))),
            };
        }
        match id.and_then(|id| self.idle_deletes.find(now, id, name.as_str())) {
            Some(None) => return self.not_found(ticket, name),
            Some(life) if life != known => return self.reply(ticket, Ok(Reply::Ended(Vec::new()))),
            Some(_) | None => {}
        }
        let is_deleting = |(vid, _): &(Vid, u32)| matches!(self.volumes[vid].stage, Stage::Deleting(_));
        if known.as_ref().is_none_or(is_deleting)
            && let Some(id) = id
        {
            self.idle_deletes.note(now, id, name.as_str(), known);
        }
        let Some((vid, _)) = known else { return self.not_found(ticket, name) };
        let volume = &self.volumes[&vid];
        match volume.stage {
            Stage::Deleting(_) => return self.delete_everywhere(now, vid, Some(ticket)),
            Stage::Creating | Stage::Active | Stage::Marked => {}
        }
        if let Some(message) = self.deleted_under_others(now, vid, client).filter(|_| !force) {
            return self.fail(ticket, FailedPrecondition, message);
        }
        if let Some(message) = self.is_needed(vid, "deleted") {
            return self.fail(ticket, Unavailable, message);
        }
        if let Some(message) = self.needs_everyone(name, "deleted") {
            return self.fail(ticket, Unavailable, message);
        }
        if self.volumes[&vid].stage == Stage::Active {
            let mut others = self.holders(now, &self.volumes[&vid]);
            others.retain(|holder| holder.client != client);
            self.note_ended(ticket, vid, others);
        }
        self.mark(vid, Some(ticket), id);
    }

    /// The active volume of this name; answers the ticket if there is none.
    pub(super) fn named(&mut self, ticket: Ticket, name: &VolumeName) -> Option<&Volume> {
        let vid = self.names.get(name.as_str()).copied();
        match vid.filter(|vid| self.volumes[vid].stage == Stage::Active) {
            Some(vid) => self.volumes.get(&vid),
            None => {
                self.not_found(ticket, name);
                None
            }
        }
    }

    fn not_found(&mut self, ticket: Ticket, name: &VolumeName) {
        self.reply(ticket, Err(no_volume(name)));
    }
}

/// Whether the caller may take room of the array.
fn may_take_room(caller: &Caller, request: &Request) -> Result<(), Failure> {
    let (what, name) = match request {
        Request::Create(Create { name, .. }) => ("create", name),
        Request::Resize(Resize { name, .. }) => ("resize", name),
        _ => return Ok(()),
    };
    if caller.creator {
        return Ok(());
    }
    let message = format!(
        "{:?} may not {what} volume {name}: that takes room, and the daemon lists who may (gnstor up \
         --creators)",
        caller.name
    );
    Err(Failure::new(PermissionDenied, message))
}

impl Volume {
    /// A sentence if another client than this one holds the write lease.
    pub(super) fn held_by_other(&self, now: u64, client: ClientId, what: &str) -> Option<String> {
        let holder = self.writer(now).filter(|&holder| holder != client)?;
        let left_ms = self.lease.map_or(0, |lease| lease.free_at.saturating_sub(now));
        Some(format!(
            "volume {:?} cannot be {what} by client {client}: client {holder} holds the write lease for at \
             most another {} s; have it release the volume, or try again then",
            self.entry.name,
            left_ms.div_ceil(1000)
        ))
    }

    fn behind_note(&self) -> String {
        if self.behind.is_empty() {
            String::new()
        } else {
            format!(" on {}", super::failure::blame(&self.behind))
        }
    }
}
