// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls of `gnstor.proto`: what each checks against the state, and the entry it wants on the SSDs.

use super::capacity::Layout;
use super::failure::Failure;
use super::publish::without;
use super::request::{Create, Request, RequestId, Rights, VolumeName};
use super::rights::{self, Caller, Right};
use super::volume::{Action, Change, Creation, DELETE_MARK, Purpose, Stage, Then, Volume};
use super::{Core, Reply, Ticket};
use gnstor_proto::BLOCK_SHIFT;
use gnstor_proto::labels::SHA256;
use gnstor_proto::placement::mix64;
use gnstor_proto::slba::{ClientId, Vid};
use gnstor_proto::status::GrpcCode::{
    AlreadyExists, FailedPrecondition, InvalidArgument, NotFound, PermissionDenied, ResourceExhausted,
    Unavailable,
};
use gnstor_proto::vendor::{MAX_READERS, MAX_REPLICAS, VolumeEntry};
use std::sync::Arc;

/// Copies of a volume whose creator does not say how many: the paper's default.
const DEFAULT_REPLICAS: u8 = 2;
/// How often a volume id can be used again by one daemon before its generations might meet the next one's.
const GENERATIONS_PER_TERM: u32 = 4096;

/// A client's call on a volume.
#[derive(Clone, Copy)]
struct Call<'a> {
    now: u64,
    ticket: Ticket,
    name: &'a VolumeName,
    client: ClientId,
}

impl Core {
    /// Serves a request, or queues it behind the change that its volume is in.
    pub(super) fn dispatch(&mut self, now: u64, ticket: Ticket, request: Request) {
        let Some(caller) = self.callers.get(&ticket).cloned() else { return };
        if let Err(failure) = self.allowed(&caller, &request) {
            return self.reply(ticket, Err(failure));
        }
        self.enqueue(now, ticket, request);
    }

    fn enqueue(&mut self, now: u64, ticket: Ticket, request: Request) {
        let Some(caller) = self.callers.get(&ticket).cloned() else { return };
        let vid = self.waits_for_round(&request);
        if let Some(volume) = vid.and_then(|vid| self.volumes.get_mut(&vid)) {
            if volume.queue.len() < self.config.max_queue {
                return volume.queue.push_back((ticket, request));
            }
            let message = format!(
                "{} requests wait for volume {:?}: try again later",
                volume.queue.len(),
                volume.entry.name
            );
            return self.fail(ticket, Unavailable, message);
        }
        match request {
            Request::Create(mut request) => match rights::owned(&request.labels, &caller) {
                Ok(labels) => {
                    request.labels = labels;
                    self.create(now, Creation { ticket, request, attempt: 1 });
                }
                Err(failure) => self.reply(ticket, Err(failure)),
            },
            Request::List => {
                let volumes = self.active().filter(|v| caller.right(&v.entry.labels).is_some());
                let volumes = volumes.map(|v| v.view(now)).collect();
                self.reply(ticket, Ok(Reply::Volumes(volumes)));
            }
            Request::Get { name } => {
                if let Some(volume) = self.named(ticket, &name) {
                    let view = volume.view(now);
                    self.reply(ticket, Ok(Reply::Volume(view)));
                }
            }
            Request::Delete { name, client, request_id } => {
                self.delete(Call { now, ticket, name: &name, client }, request_id);
            }
            Request::Open { name, client, rights } => {
                self.open(Call { now, ticket, name: &name, client }, rights);
            }
            Request::Renew { name, client, lease_epoch, lease_ms } => {
                self.renew(Call { now, ticket, name: &name, client }, lease_epoch, lease_ms);
            }
            Request::Release { name, client } => self.release(Call { now, ticket, name: &name, client }),
            Request::Publish(request) => self.publish_volume(now, ticket, request),
            Request::Share { name, principal, right } => {
                self.share(now, ticket, &name, &principal, Some(right))
            }
            Request::Revoke { name, principal } => self.share(now, ticket, &name, &principal, None),
            Request::Register => {
                let volumes = &self.volumes;
                let named = || {
                    let entries = volumes.values().map(|v| &v.entry);
                    entries.flat_map(|e| e.readers.iter().chain(&e.writer).copied()).collect()
                };
                let registered = self.clients.register(&caller, named);
                let term = self.term;
                let numbered =
                    registered.map(|client| Reply::Client { client, serial: self.clients.next_serial(term) });
                self.reply(ticket, numbered);
            }
            // Taking the id, above, was all there is to do.
            Request::Keep { .. } => self.reply(ticket, Ok(Reply::Done)),
            Request::GetMap => self.reply(ticket, Ok(Reply::Map(self.map.clone()))),
        }
    }

    /// Checks the caller's rights: to the volume, and to the client id that the request names.
    fn allowed(&mut self, caller: &Caller, request: &Request) -> Result<(), Failure> {
        let (client, name, right) = match request {
            Request::Create(create) if !caller.creator => {
                let message = format!(
                    "{:?} may not create volume {}: the daemon lists who may (gnstor up --creators)",
                    caller.name, create.name
                );
                return Err(Failure::new(PermissionDenied, message));
            }
            Request::Create(create) => (Some(create.client), None, None),
            Request::Get { name } => (None, Some(name), Some(Right::Read)),
            Request::Delete { name, client, .. } => (Some(*client), Some(name), Some(Right::Admin)),
            Request::Open { name, client, rights: Rights::Read } => {
                (Some(*client), Some(name), Some(Right::Read))
            }
            Request::Open { name, client, .. } => (Some(*client), Some(name), Some(Right::Write)),
            Request::Renew { name, client, .. } => (Some(*client), Some(name), Some(Right::Write)),
            // Rights are given back by the principal of the id, also after its right was revoked.
            Request::Release { name, client } => (Some(*client), Some(name), None),
            Request::Share { name, .. } | Request::Revoke { name, .. } => {
                (None, Some(name), Some(Right::Admin))
            }
            Request::Publish(publish) => return self.may_publish(caller, publish),
            Request::Keep { client } => (Some(*client), None, None),
            Request::List | Request::Register | Request::GetMap => return Ok(()),
        };
        let entry = name.and_then(|name| self.names.get(name.as_str())).map(|vid| &self.volumes[vid].entry);
        if let (Some(entry), Some(right)) = (entry, right) {
            caller.needs(right, &entry.labels, &entry.name)?;
        }
        let Some(client) = client else { return Ok(()) };
        // A daemon before this one gave the id. Its client renews and releases, with a right to the volume.
        if self.clients.is_inherited(client) {
            let has_right = |vid| {
                self.volumes.get(&vid).is_some_and(|v: &Volume| caller.right(&v.entry.labels).is_some())
            };
            let names_it = matches!(request, Request::Renew { .. } | Request::Keep { .. });
            if names_it && self.clients.inherited_opens(client).all(has_right) {
                self.clients.adopt(caller, client);
            }
            match (request, entry) {
                (Request::Renew { .. }, Some(_)) => {
                    self.clients.heard(client);
                    return Ok(());
                }
                (Request::Release { .. }, Some(entry)) => {
                    let right = if entry.writer == Some(client) { Right::Write } else { Right::Read };
                    return caller.needs(right, &entry.labels, &entry.name);
                }
                _ => {}
            }
        }
        self.clients.take(caller, client)
    }

    /// A principal gets a right to a volume, or loses all; what its clients hold beyond that ends.
    fn share(&mut self, now: u64, ticket: Ticket, name: &VolumeName, principal: &str, right: Option<Right>) {
        let term = self.term;
        let ids = self.clients.of(principal);
        let Some(volume) = self.named(ticket, name) else { return };
        let (vid, mut entry) = (volume.entry.vid, volume.basis(now, term));
        entry.labels = match rights::shared(&entry.labels, principal, right) {
            Ok(labels) => labels,
            Err(failure) => return self.reply(ticket, Err(failure)),
        };
        let left =
            Caller { name: principal.into(), admin: false, creator: false, single: false, connection: 0 }
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

    /// Releases a volume for an id that ended.
    pub(super) fn end_client(&mut self, now: u64, ticket: Ticket, name: VolumeName, client: ClientId) {
        self.callers.insert(ticket, Arc::new(Caller::local(0)));
        let request = Request::Release { name, client };
        self.enqueue(now, ticket, request);
    }

    pub(super) fn create(&mut self, now: u64, creation: Creation) {
        let Creation { ticket, request, .. } = &creation;
        if let Some(outcome) = self.earlier_create(now, *ticket, request) {
            return self.reply(*ticket, outcome);
        }
        let entry = match self.new_entry(now, request) {
            Ok(entry) => entry,
            Err(failure) => return self.reply(*ticket, Err(failure)),
        };
        self.clients.note(request.client);
        self.names.insert(entry.name.clone(), entry.vid);
        if let Some(capacity) = &mut self.capacity {
            capacity.reserve(&entry);
        }
        self.volumes.insert(entry.vid, Volume::new(entry.clone(), Stage::Creating));
        let (vid, every_ssd) = (entry.vid, self.every_ssd());
        self.begin(vid, Action::Add(Arc::new(entry)), Purpose::Create(creation), every_ssd);
    }

    /// The outcome of an earlier request with the same id, if there was one.
    fn earlier_create(
        &mut self,
        now: u64,
        ticket: Ticket,
        request: &Create,
    ) -> Option<Result<Reply, Failure>> {
        let id = request.request_id?;
        let alive = self.active().find(|v| v.entry.request_ids.contains(&id)).map(|v| v.view(now));
        let entry = alive.or_else(|| self.tombstones.find(now, id).cloned())?;
        let own = self.callers.get(&ticket).is_some_and(|caller| caller.right(&entry.labels).is_some());
        if entry.name == request.name.as_str() && own {
            return Some(Ok(Reply::Volume(entry)));
        }
        let other = if own { format!("volume {:?}", entry.name) } else { "another volume".into() };
        let message = format!(
            "the request id of this Create of volume {} was used for {other}: use a new one for each request",
            request.name
        );
        Some(Err(Failure::new(InvalidArgument, message)))
    }

    /// The entry of a new volume, after every check.
    fn new_entry(&self, now: u64, request: &Create) -> Result<VolumeEntry, Failure> {
        let name = &request.name;
        self.name_is_free(name)?;
        if let Some(message) = self.needs_everyone(name, "created") {
            return Err(Failure::new(Unavailable, message));
        }
        let replicas = self.replicas(request)?;
        let Some((vid, past)) = self.past.lowest_free(now, |vid| self.volumes.contains_key(&vid)) else {
            let message = format!(
                "volume {name} cannot be created: no volume id is free, each of the 65,534 is in use or \
                 still being swept; delete volumes, or try again later"
            );
            return Err(Failure::new(ResourceExhausted, message));
        };
        let generation = self.generation(past.generation);
        let (chunk_shift, factor) = (request.chunk_shift, self.factor(vid, generation));
        let layout = Layout { vid, factor, chunk_shift, replicas };
        if let Some(message) = self.lacks_room(name, layout, request.capacity_blocks) {
            return Err(Failure::new(ResourceExhausted, message));
        }
        Ok(VolumeEntry {
            vid,
            generation,
            version: past.version + 1,
            term: self.term,
            deleting: false,
            name: name.as_str().into(),
            labels: request.labels.clone(),
            capacity_blocks: request.capacity_blocks,
            replicas,
            chunk_shift,
            factor,
            owner: request.client,
            any_reader: false,
            readers: Vec::new(),
            writer: None,
            lease_epoch: 0,
            lease_ms: 0,
            request_ids: request.request_id.into_iter().collect(),
            limits: request.limits,
        })
    }

    fn name_is_free(&self, name: &VolumeName) -> Result<(), Failure> {
        let Some(&vid) = self.names.get(name.as_str()) else { return Ok(()) };
        let volume = &self.volumes[&vid];
        Err(match volume.stage {
            Stage::Creating | Stage::Active => Failure::new(
                AlreadyExists,
                format!(
                    "volume {name} cannot be created: there is one of that name, number {vid}; use another \
                     name"
                ),
            ),
            Stage::Marked | Stage::Deleting(_) => Failure::new(
                Unavailable,
                format!(
                    "volume {name} cannot be created yet: one of that name is still being deleted{}; try \
                     again later",
                    volume.behind_note()
                ),
            ),
        })
    }

    fn replicas(&self, request: &Create) -> Result<u8, Failure> {
        let most = u8::try_from(self.ssds).unwrap_or(u8::MAX).min(MAX_REPLICAS);
        let replicas = if request.replicas == 0 { DEFAULT_REPLICAS.min(most) } else { request.replicas };
        if replicas <= most {
            return Ok(replicas);
        }
        let message = format!(
            "volume {} cannot have {replicas} replicas: each is on an SSD of its own and the array has {}; \
             use 1 to {most}",
            request.name, self.ssds
        );
        Err(Failure::new(InvalidArgument, message))
    }

    /// A sentence if a volume cannot be written whole. Every block of every volume is reserved: there is no
    /// thin provisioning.
    fn lacks_room(&self, name: &VolumeName, layout: Layout, blocks: u64) -> Option<String> {
        let capacity = self.capacity.as_ref()?;
        let replicas = layout.replicas;
        if capacity.has_holes(replicas) {
            return Some(format!(
                "volume {name} cannot be created: with {replicas} replicas some of its blocks have no SSD, \
                 because the fleet map has lost SSDs; use more replicas"
            ));
        }
        if capacity.fits(layout, blocks) {
            return None;
        }
        let largest = capacity.largest(layout) << BLOCK_SHIFT;
        Some(format!(
            "volume {name} of {} bytes with {replicas} replicas does not fit: at most {largest} bytes fit \
             now; use a smaller capacity, fewer replicas, or delete volumes",
            blocks << BLOCK_SHIFT
        ))
    }

    /// The generation after `last`, which is 0 where none is known: once its sweep is done an SSD may have
    /// forgotten a volume. But its pages lie in flash until they are collected, and a map rebuilt from
    /// flash must not take them for the next volume's. So every term has generations of its own.
    fn generation(&self, last: u32) -> u32 {
        let floor = u32::try_from(self.term).ok().and_then(|term| term.checked_mul(GENERATIONS_PER_TERM));
        (last + 1).max(floor.unwrap_or(0))
    }

    /// The hash factor spreads volumes that are written alike; it needs to differ, not to be secret.
    fn factor(&self, vid: Vid, generation: u32) -> u64 {
        mix64(
            self.config.seed ^ mix64(u64::from(vid.get()) << 32 | u64::from(generation)) ^ mix64(!self.term),
        )
    }

    fn delete(&mut self, call: Call<'_>, id: Option<RequestId>) {
        let Call { now, ticket, name, client } = call;
        let done =
            id.and_then(|id| self.tombstones.find(now, id)).is_some_and(|entry| entry.name == name.as_str());
        if done {
            return self.reply(ticket, Ok(Reply::Done));
        }
        let Some(&vid) = self.names.get(name.as_str()) else { return self.not_found(ticket, name) };
        let volume = &self.volumes[&vid];
        match volume.stage {
            Stage::Deleting(_) => return self.delete_everywhere(vid, Some(ticket)),
            Stage::Creating | Stage::Active | Stage::Marked => {}
        }
        if let Some(message) = volume.held_by_other(now, client, "deleted") {
            return self.fail(ticket, FailedPrecondition, message);
        }
        if let Some(message) = self.is_needed(vid, "deleted") {
            return self.fail(ticket, Unavailable, message);
        }
        if let Some(message) = self.needs_everyone(name, "deleted") {
            return self.fail(ticket, Unavailable, message);
        }
        self.mark(vid, Some(ticket), id);
    }

    fn open(&mut self, call: Call<'_>, rights: Rights) {
        let Call { now, ticket, name, client } = call;
        let term = self.term;
        let Some(volume) = self.named(ticket, name) else { return };
        let vid = volume.entry.vid;
        let mut entry = volume.basis(now, term);
        let then = match rights {
            Rights::Read if entry.any_reader || entry.readers.contains(&client) => {
                let view = volume.view(now);
                return self.reply(ticket, Ok(Reply::Opened { volume: view, lease_ms: 0 }));
            }
            Rights::Read => {
                if entry.readers.len() == MAX_READERS {
                    let message = format!(
                        "client {client} cannot open volume {name} for reading: it has {MAX_READERS} \
                         readers, the most there can be; release one that is not in use"
                    );
                    return self.fail(ticket, ResourceExhausted, message);
                }
                entry.readers.push(client);
                Then::OpenedRead
            }
            Rights::Write { lease_ms } => {
                if let Some(message) = volume.held_by_other(now, client, "opened for writing") {
                    return self.fail(ticket, FailedPrecondition, message);
                }
                if entry.lease_epoch == DELETE_MARK - 1 {
                    let message =
                        format!("volume {name} has used up its lease epochs: copy it to a new volume");
                    return self.fail(ticket, ResourceExhausted, message);
                }
                entry.writer = Some(client);
                entry.lease_epoch += 1;
                entry.lease_ms = lease_ms;
                // What is written from here on has another sum.
                entry.labels = without(&entry.labels, SHA256);
                Then::OpenedWrite
            }
        };
        if let Some(message) = self.needs_everyone(name, "opened") {
            return self.fail(ticket, Unavailable, message);
        }
        self.clients.note(client);
        if let Some(caller) = self.callers.get(&ticket) {
            let volumes = &self.volumes;
            let opened = self.clients.open(caller, client, vid, |id, vid| super::holds(volumes, id, vid));
            if let Err(failure) = opened {
                return self.reply(ticket, Err(failure));
            }
        }
        self.put(vid, entry, Purpose::Change(Change { ticket, then }));
    }

    fn renew(&mut self, call: Call<'_>, epoch: u32, lease_ms: u32) {
        let Call { now, ticket, name, client } = call;
        let term = self.term;
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
        self.put(vid, entry, Purpose::Change(Change { ticket, then: Then::Renewed }));
    }

    /// All rights of the client end: a writer's lease, a reader's place.
    fn release(&mut self, call: Call<'_>) {
        let Call { now, ticket, name, client } = call;
        let term = self.term;
        let holds_none = |v: &Volume| v.entry.writer != Some(client) && !v.entry.readers.contains(&client);
        let volume = self.names.get(name.as_str()).and_then(|vid| self.volumes.get(vid));
        let Some(volume) = volume else { return self.reply(ticket, Ok(Reply::Done)) };
        let vid = volume.entry.vid;
        if volume.stage != Stage::Active || holds_none(volume) {
            self.clients.released(now, client, vid);
            return self.reply(ticket, Ok(Reply::Done));
        }
        let mut entry = volume.basis(now, term);
        entry.readers.retain(|&reader| reader != client);
        if entry.writer == Some(client) {
            entry.writer = None;
            entry.lease_ms = 0;
        }
        self.put(vid, entry, Purpose::Change(Change { ticket, then: Then::Released }));
    }

    /// The active volume of this name; answers the ticket if there is none.
    fn named(&mut self, ticket: Ticket, name: &VolumeName) -> Option<&Volume> {
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
        self.fail(
            ticket,
            NotFound,
            format!("there is no volume {name}; gnstor volume list shows those there are"),
        );
    }
}

impl Volume {
    /// A sentence if a client other than this one holds the write lease.
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
