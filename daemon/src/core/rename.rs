// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rename and Label: a volume gets another name, or other labels.
//!
//! Clients call a volume by its name, also to renew a lease and to release it. So a volume that a client has
//! open keeps its name.
//!
//! The old name is free when every SSD has the new one. A daemon may start where only an SSD with the old
//! entry is there. If another volume had the old name by then, there would be two of it.

use super::failure::{Failure, blame};
use super::holder::words;
use super::publish::label;
use super::request::{Label, Rename, VolumeName, no_volume};
use super::rights::Right;
use super::volume::{Change, Purpose, Stage, Then, Volume};
use super::{Core, Reply, Ticket};
use gnstor_proto::labels::PARTIAL;
use gnstor_proto::status::GrpcCode::{AlreadyExists, FailedPrecondition, InvalidArgument, Unavailable};
use gnstor_proto::vendor::{REQUEST_IDS, VolumeEntry};

impl Core {
    pub(super) fn rename(&mut self, now: u64, ticket: Ticket, request: &Rename) {
        if let Some(outcome) = self.earlier_rename(now, ticket, request) {
            return self.reply(ticket, outcome);
        }
        let entry = match self.renamed_entry(now, request) {
            Ok(entry) => entry,
            Err(failure) => return self.reply(ticket, Err(failure)),
        };
        self.publishing.insert(entry.name.clone(), (entry.vid, request.name.as_str().into()));
        self.put(entry.vid, entry, Purpose::Change(Change { ticket, then: Then::Renamed }));
    }

    /// The result of an earlier request with the same id, if there was one.
    fn earlier_rename(&self, now: u64, ticket: Ticket, request: &Rename) -> Option<Result<Reply, Failure>> {
        let id = request.request_id?;
        let volume = self.active().find(|volume| volume.entry.request_ids.contains(&id))?;
        let caller = self.callers.get(&ticket)?;
        if volume.entry.name == request.new_name.as_str()
            && caller.right(&volume.entry.labels) >= Some(Right::Admin)
        {
            return Some(Ok(Reply::Volume(volume.view(now))));
        }
        let message = format!(
            "the request id of this Rename of volume {} was used for another request: use a new one for each",
            request.name
        );
        Some(Err(Failure::new(InvalidArgument, message)))
    }

    /// The volume's entry with its new name, after every check.
    fn renamed_entry(&self, now: u64, request: &Rename) -> Result<VolumeEntry, Failure> {
        let Rename { name, new_name, request_id } = request;
        let vid = self.names.get(name.as_str()).filter(|vid| self.volumes[vid].stage == Stage::Active);
        let volume = vid.map(|vid| &self.volumes[vid]).ok_or_else(|| no_volume(name))?;
        let refuse = |code, why: String| {
            Err(Failure::new(code, format!("volume {name} cannot be renamed {new_name}: {why}")))
        };
        if label(&volume.entry.labels, PARTIAL).is_some() {
            let why = "a copy into it is in progress, which gives it its name; wait for its end, or delete the \
                       volume if the copy has failed";
            return refuse(FailedPrecondition, why.into());
        }
        let holders = self.holders(now, volume);
        if !holders.is_empty() {
            let why = format!(
                "{}; clients go by the name, so close it there first, or end what they have open (gnstor lease \
                 revoke)",
                words(&holders)
            );
            return refuse(FailedPrecondition, why);
        }
        if let Some(&other) = self.names.get(new_name.as_str()) {
            return match self.volumes[&other].stage {
                Stage::Creating | Stage::Active => refuse(
                    AlreadyExists,
                    format!("there is one of that name, number {other}; use another name"),
                ),
                Stage::Marked | Stage::Deleting(_) => {
                    refuse(Unavailable, "one of that name is still being deleted; try again later".into())
                }
            };
        }
        if let Some(copy) = self.copied_into(new_name) {
            let why = format!(
                "volume {copy:?} is a copy in progress that gets this name; use another name, or delete that \
                 volume if the copy has failed"
            );
            return refuse(FailedPrecondition, why);
        }
        if let Some(why) = self.is_still_named(new_name) {
            return refuse(Unavailable, why);
        }
        if volume.former_name().is_some() {
            let whose = blame(&volume.behind);
            return refuse(Unavailable, format!("{whose} still has an earlier name of it; try again later"));
        }
        let missing = self.is_needed(volume.entry.vid, "renamed");
        if let Some(message) = missing.or_else(|| self.needs_everyone(name, "renamed")) {
            return Err(Failure::new(Unavailable, message));
        }
        let mut entry = volume.basis(now, self.term.number());
        entry.name = new_name.as_str().into();
        if let Some(id) = *request_id {
            entry.request_ids.insert(0, id);
            entry.request_ids.truncate(REQUEST_IDS);
        }
        Ok(entry)
    }

    /// The volume of a copy in progress that gets this name in the end.
    fn copied_into(&self, name: &VolumeName) -> Option<&str> {
        let is_copy = |v: &&Volume| {
            matches!(v.stage, Stage::Creating | Stage::Active)
                && label(&v.entry.labels, PARTIAL) == Some(name.as_str())
        };
        self.volumes.values().find(is_copy).map(|volume| volume.entry.name.as_str())
    }

    /// A sentence if an SSD may still have a volume by this name that has another one by now.
    pub(super) fn is_still_named(&self, name: &VolumeName) -> Option<String> {
        let has = |volume: &&Volume| volume.former_name() == Some(name.as_str());
        let volume = self.volumes.values().find(has)?;
        Some(format!(
            "{} still has volume {:?} by this name, which it had before; try again later",
            blame(&volume.behind),
            volume.entry.name
        ))
    }

    pub(super) fn label(&mut self, now: u64, ticket: Ticket, request: &Label) {
        let (name, term) = (&request.name, self.term.number());
        let Some(volume) = self.named(ticket, name) else { return };
        let (vid, mut entry) = (volume.entry.vid, volume.basis(now, term));
        match request.applied(&entry.labels) {
            Ok(labels) if labels == entry.labels => {
                let view = self.volumes[&vid].view(now);
                return self.reply(ticket, Ok(Reply::Volume(view)));
            }
            Ok(labels) => entry.labels = labels,
            Err(failure) => return self.reply(ticket, Err(failure)),
        }
        if let Some(message) = self.needs_everyone(name, "labelled") {
            return self.fail(ticket, Unavailable, message);
        }
        self.put(vid, entry, Purpose::Change(Change { ticket, then: Then::Labelled }));
    }
}
