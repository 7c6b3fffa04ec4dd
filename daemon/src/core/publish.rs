// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Publish: a volume that is whole gets its name and its labels, and may take the name of another.
//!
//! ```text
//!   T "v.partial-1"   O "v"      one CHMOD: T "v", labels, "replaces O"; no writer
//!   T "v" on every SSD           from here on the daemon serves T as "v"
//!   T "v"             O marked   then deleted as any volume
//! ```
//! Between the second step and the end of O the SSDs hold two volumes of one name. The label
//! [`labels::REPLACES`] of T says which of them the name belongs to. So a daemon that starts in between
//! serves O if no SSD has T's new entry, and T otherwise; then it finishes. O gets its mark only when T's
//! entry is on every SSD. Until O's mark is on every SSD too, T can be neither deleted nor replaced: without
//! T's label O would be served again.

use super::failure::{Failure, blame};
use super::request::{Publish, Request, VolumeName};
use super::rights::{Caller, OWNER_PREFIX, Right};
use super::volume::{Change, Purpose, Stage, Successor, Then, Volume};
use super::{Core, Reply, Ticket};
use gnstor_proto::labels::{PARTIAL, REPLACES};
use gnstor_proto::slba::Vid;
use gnstor_proto::status::GrpcCode::{AlreadyExists, Unavailable};
use gnstor_proto::status::GrpcCode::{FailedPrecondition, InvalidArgument, NotFound, PermissionDenied};
use gnstor_proto::vendor::{LABEL_BYTES, VolumeEntry};
use std::collections::BTreeMap;

/// The value of a label in an entry's lines.
pub(super) fn label<'a>(lines: &'a str, key: &str) -> Option<&'a str> {
    lines.lines().filter_map(|line| line.split_once('=')).find(|(k, _)| *k == key).map(|(_, value)| value)
}

/// An entry's lines without this label.
pub(super) fn without(lines: &str, key: &str) -> String {
    let other = |line: &&str| line.split_once('=').is_none_or(|(k, _)| k != key);
    lines.split_inclusive('\n').filter(other).collect()
}

/// The volume, and its generation, whose name this entry took.
pub(super) fn replaced_by(entry: &VolumeEntry) -> Option<(Vid, u32)> {
    let (vid, generation) = label(&entry.labels, REPLACES)?.split_once('.')?;
    Some((Vid::new(vid.parse().ok()?)?, generation.parse().ok()?))
}

/// Labels of a published volume: its own, the request's, and the name of the volume that it replaces.
/// Rights go with the name: the volume has the owner and the lists of the one that it replaces.
fn merged(there: &str, new: &str, replaces: Option<&VolumeEntry>) -> Result<String, Failure> {
    let pairs = there.lines().chain(new.lines()).filter_map(|line| line.split_once('='));
    let mut labels: BTreeMap<&str, String> = pairs.map(|(key, value)| (key, value.into())).collect();
    labels.remove(PARTIAL);
    labels.remove(REPLACES);
    if let Some(old) = replaces {
        labels.retain(|key, _| !key.starts_with(OWNER_PREFIX));
        let rights = old.labels.lines().filter_map(|line| line.split_once('='));
        let rights = rights.filter(|(key, _)| key.starts_with(OWNER_PREFIX));
        labels.extend(rights.map(|(key, value)| (key, value.into())));
        labels.insert(REPLACES, format!("{}.{}", old.vid, old.generation));
    }
    let lines: String = labels.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
    if lines.len() > LABEL_BYTES {
        let message =
            format!("the labels take {} bytes: {LABEL_BYTES} is the most a volume can hold", lines.len());
        return Err(Failure::new(InvalidArgument, message));
    }
    Ok(lines)
}

impl Core {
    /// Checks that the caller speaks for the client, owns the volume, and may delete the one that has the
    /// name.
    pub(super) fn may_publish(&mut self, caller: &Caller, request: &Publish) -> Result<(), Failure> {
        let old = self.names.get(request.name.as_str()).filter(|&&old| old != request.vid);
        for vid in [Some(&request.vid), old].into_iter().flatten() {
            if let Some(volume) = self.volumes.get(vid) {
                caller.needs(Right::Admin, &volume.entry.labels, &volume.entry.name)?;
            }
        }
        self.clients.take(caller, request.client)
    }

    /// The volume with a round under way that this request waits for.
    pub(super) fn waits_for_round(&self, request: &Request) -> Option<Vid> {
        let named = |name: &VolumeName| {
            let publishing = self.publishing.get(name.as_str()).map(|(vid, _)| *vid);
            publishing.into_iter().chain(self.names.get(name.as_str()).copied())
        };
        let mut vids: Vec<Vid> = match request {
            Request::Create(create) => named(&create.name).collect(),
            Request::Publish(publish) => {
                // Another volume may be taking the name that this one has: it is deleted then.
                let own = self.volumes.get(&publish.vid).map(|volume| &volume.entry.name);
                let taking = own.and_then(|name| self.publishing.get(name)).map(|(vid, _)| *vid);
                std::iter::once(publish.vid).chain(taking).chain(named(&publish.name)).collect()
            }
            Request::Rename(rename) => named(&rename.name).chain(named(&rename.new_name)).collect(),
            Request::Label(label) => named(&label.name).collect(),
            Request::Resize(resize) => named(&resize.name).collect(),
            Request::Delete { name, .. }
            | Request::Open { name, .. }
            | Request::Renew { name, .. }
            | Request::Share { name, .. }
            | Request::Revoke { name, .. }
            | Request::RevokeLease { name, .. }
            | Request::Release { name, .. } => named(name).collect(),
            Request::List(_)
            | Request::ListLeases { .. }
            | Request::Room
            | Request::Get { .. }
            | Request::Register
            | Request::Keep { .. }
            | Request::GetMap
            | Request::Fleet
            | Request::Resume { .. }
            | Request::Fail { .. }
            | Request::Remove { .. }
            | Request::Replace { .. }
            | Request::Salvage { .. }
            | Request::Add(_)
            | Request::Drain { .. }
            | Request::Repair { .. } => Vec::new(),
        };
        if matches!(request, Request::Publish(_) | Request::Delete { .. } | Request::Rename(_)) {
            let replaced: Vec<Vid> = vids.iter().filter_map(|&vid| self.still_replaces(vid)).collect();
            vids.extend(replaced);
        }
        vids.into_iter().find(|vid| self.volumes.get(vid).is_some_and(|volume| volume.round.is_some()))
    }

    /// The volume whose name this one took, if it does not have its mark on every SSD yet.
    fn still_replaces(&self, vid: Vid) -> Option<Vid> {
        let (old, generation) = replaced_by(&self.volumes.get(&vid)?.entry)?;
        self.volumes.get(&old).filter(|old| old.was_replaced_by(vid, generation)).map(|_| old)
    }

    /// A sentence if the volume that this one replaced could come back without it.
    pub(super) fn is_needed(&self, vid: Vid, what: &str) -> Option<String> {
        let old = self.still_replaces(vid)?;
        let name = &self.volumes[&vid].entry.name;
        let behind = &self.volumes[&old].behind;
        let whose = if behind.is_empty() { String::new() } else { format!(" on {}", blame(behind)) };
        Some(format!(
            "volume {name:?} cannot be {what} yet: the volume that it replaced is still being \
             deleted{whose}; try again later"
        ))
    }

    pub(super) fn publish_volume(&mut self, now: u64, ticket: Ticket, request: Publish) {
        match self.published_entry(now, &request) {
            Err(failure) => self.reply(ticket, Err(failure)),
            Ok(None) => {
                let view = self.volumes[&request.vid].view(now);
                self.reply(ticket, Ok(Reply::Volume(view)));
            }
            Ok(Some(entry)) => {
                let before = self.volumes[&request.vid].entry.name.clone();
                self.publishing.insert(entry.name.clone(), (request.vid, before));
                self.put(request.vid, entry, Purpose::Change(Change { ticket, then: Then::Published }));
            }
        }
    }

    /// The entry of the published volume, after every check; `None` if it is published already.
    fn published_entry(&self, now: u64, request: &Publish) -> Result<Option<VolumeEntry>, Failure> {
        let Publish { vid, generation, client, name, labels, replace } = request;
        let refuse = |code, message: String| Err(Failure::new(code, message));
        let lives = |v: &&Volume| v.stage == Stage::Active && v.entry.generation == *generation;
        let Some(volume) = self.volumes.get(vid).filter(lives) else {
            let message = format!(
                "volume {name} cannot be published: there is no volume with number {vid} and generation \
                 {generation}; copy again"
            );
            return refuse(NotFound, message);
        };
        let own = &volume.entry.name;
        if volume.entry.owner != *client {
            let message =
                format!("volume {own:?} cannot be published by client {client}: it is not the owner");
            return refuse(PermissionDenied, message);
        }
        if label(&volume.entry.labels, PARTIAL).is_none() {
            if own == name.as_str() {
                return Ok(None);
            }
            let message = format!(
                "volume {own:?} cannot be published as {name}: it is published already and keeps its name"
            );
            return refuse(FailedPrecondition, message);
        }
        if let Some(message) = volume.held_by_other(now, *client, "published") {
            return refuse(FailedPrecondition, message);
        }
        let old = self.names.get(name.as_str()).filter(|&old| old != vid).map(|old| &self.volumes[old]);
        if let Some(old) = old {
            let refusal = match old.stage {
                Stage::Active if *replace => None,
                Stage::Creating | Stage::Active => Some((AlreadyExists, "there is one of that name")),
                Stage::Marked | Stage::Deleting(_) => {
                    Some((Unavailable, "one of that name is still being deleted; try again later"))
                }
            };
            if let Some((code, why)) = refusal {
                return refuse(code, format!("volume {own:?} cannot be published as {name}: {why}"));
            }
            if let Some(message) = old.held_by_other(now, *client, "replaced") {
                return refuse(FailedPrecondition, message);
            }
            if let Some(message) = self.is_needed(old.entry.vid, "replaced") {
                return refuse(Unavailable, message);
            }
        }
        if let Some(why) = self.is_still_named(name) {
            return refuse(Unavailable, format!("volume {own:?} cannot be published as {name}: {why}"));
        }
        if let Some(message) = self.needs_everyone(name, "published") {
            return refuse(Unavailable, message);
        }
        let labels = merged(&volume.entry.labels, labels, old.map(|old| &old.entry))?;
        let (name, writer, lease_ms) = (name.as_str().into(), None, 0);
        Ok(Some(VolumeEntry { name, labels, writer, lease_ms, ..volume.basis(now, self.term.number()) }))
    }

    /// The daemon has adopted the volume's new entry; `everywhere` if every SSD has it. A published volume
    /// has its new name from here on, and the volume that had the name has none. Once every SSD has the
    /// entry, that older volume is deleted.
    pub(super) fn complete_name(&mut self, vid: Vid, everywhere: bool) {
        let entry = &self.volumes[&vid].entry;
        let (name, replaced) = (entry.name.clone(), replaced_by(entry));
        if self.publishing.get(&name).is_some_and(|(publishing, _)| *publishing == vid) {
            let (_, before) = self.publishing.remove(&name).expect("it is there");
            if self.names.get(&before) == Some(&vid) {
                self.names.remove(&before);
            }
            if let Some(old) = self.names.insert(name, vid).filter(|&old| old != vid) {
                self.supersede(old, vid);
            }
            if let Some(volume) = self.volumes.get_mut(&vid) {
                volume.former = Some(before);
            }
        }
        if let Some(volume) = self.volumes.get_mut(&vid).filter(|_| everywhere) {
            volume.former = None;
        }
        let Some((old, generation)) = replaced.filter(|_| everywhere) else { return };
        let there = self.volumes.get_mut(&old).filter(|old| old.was_replaced_by(vid, generation));
        // Once the mark is under way it is repeated until every SSD has it.
        let begun = |volume: &Volume| volume.successor.is_some_and(|successor| successor.everywhere);
        let Some(volume) = there.filter(|volume| !begun(volume)) else { return };
        volume.successor = Some(Successor { vid, everywhere });
        if volume.round.is_some() {
            volume.again = true;
        } else {
            self.mark(old, None, None);
        }
    }

    /// The volume has lost its name to another: it is deleted once that one is on every SSD.
    fn supersede(&mut self, old: Vid, by: Vid) {
        let volume = self.volumes.get_mut(&old).expect("a volume that had a name");
        volume.behind.clear();
        volume.supersede(by);
    }
}

impl Volume {
    /// The volume has lost its name to another, whose entry may not be on every SSD yet.
    pub(super) fn supersede(&mut self, by: Vid) {
        self.stage = Stage::Marked;
        self.successor = Some(Successor { vid: by, everywhere: false });
        self.retry = None;
    }

    /// This is the volume of that generation, it has lost its name to `by`, and some SSD may lack its mark.
    fn was_replaced_by(&self, by: Vid, generation: u32) -> bool {
        self.entry.generation == generation && self.successor.is_some_and(|successor| successor.vid == by)
    }
}
