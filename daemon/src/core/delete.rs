// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How volumes come and go: the ends of Create, and Delete in two halves.
//!
//! A deletion cannot be undone once an SSD sweeps, and an SSD that has swept forgets the volume. So the
//! daemon first puts a mark on every SSD: the lease epoch [`DELETE_MARK`], with all rights taken away. The
//! SSD refuses I/O from then on. Only then does it tell any SSD to delete. A daemon that starts in between
//! finds the mark, and finishes.

use super::failure::{Failure, Trouble, blame, code_of};
use super::request::RequestId;
use super::volume::{Action, Creation, DELETE_MARK, Purpose, Round, Stage, Undo};
use super::{Core, Reply, Ticket};
use gnstor_proto::slba::Vid;
use gnstor_proto::status::{GrpcCode, Refusal};
use gnstor_proto::vendor::{REQUEST_IDS, VolumeEntry};
use std::collections::BTreeMap;

/// Number of volume ids that one Create tries before it fails.
const VID_ATTEMPTS: u32 = 8;

impl Core {
    /// All SSDs have answered VOLUME ADD.
    pub(super) fn created(&mut self, now: u64, entry: &VolumeEntry, round: Round, creation: Creation) {
        let Creation { ticket, request, attempt } = creation;
        let volume = self.volumes.get_mut(&entry.vid).expect("the round's volume");
        if round.failed.is_empty() {
            volume.stage = Stage::Active;
            let view = volume.view(now);
            return self.reply(ticket, Ok(Reply::Volume(view)));
        }
        // Some SSD does not take the id yet: its sweep is not done, or it knows a later generation than this
        // daemon.
        let rests =
            |t: &Trouble| matches!(t, Trouble::Refused(Refusal::SweepPending | Refusal::StaleVersion));
        let sweeping = round.failed.values().all(rests);
        let again =
            (sweeping && attempt < VID_ATTEMPTS).then(|| Creation { ticket, request, attempt: attempt + 1 });
        let failure = if sweeping {
            Failure::new(
                GrpcCode::ResourceExhausted,
                format!(
                    "volume {:?} was not created: no volume id is free, {VID_ATTEMPTS} were tried and \
                     deleted volumes are still being swept; try again later",
                    entry.name
                ),
            )
        } else {
            Failure::new(
                code_of(&round.failed),
                format!(
                    "volume {:?} was not created: {}; try again when the array is complete",
                    entry.name,
                    blame(&round.failed)
                ),
            )
        };
        let undo = Undo { ticket, failure, again };
        let targets = round.touched();
        if targets.is_empty() {
            return self.uncreated(now, entry.vid, undo);
        }
        volume.last_version += 1;
        let version = volume.last_version;
        volume.stage = Stage::Deleting(targets.clone());
        self.begin(entry.vid, Action::Delete(version), Purpose::Undo(undo), targets);
    }

    /// The SSDs have answered the deletion of a failed Create's volume.
    pub(super) fn undone(&mut self, now: u64, vid: Vid, round: Round, undo: Undo) {
        if round.failed.is_empty() {
            return self.uncreated(now, vid, undo);
        }
        // The name stays taken until the last SSD has forgotten it: a restart must never find a name twice.
        self.still_deleting(now, vid, round.failed);
        self.reply(undo.ticket, Err(undo.failure));
    }

    fn uncreated(&mut self, now: u64, vid: Vid, undo: Undo) {
        let Some(creation) = undo.again else {
            self.reply(undo.ticket, Err(undo.failure));
            return self.vanish(now, vid, self.config.sweep_ms);
        };
        // Requests that wait for the name now wait for the next attempt.
        let queue = std::mem::take(&mut self.volumes.get_mut(&vid).expect("the round's volume").queue);
        // At least 1 ms, or the next attempt would find the same id.
        self.vanish(now, vid, self.config.sweep_ms.max(1));
        self.create(now, creation);
        for (ticket, request) in queue {
            self.dispatch(now, ticket, request);
        }
    }

    /// First half of a deletion: every SSD takes away all rights to the volume.
    pub(super) fn mark(&mut self, vid: Vid, ticket: Option<Ticket>, request_id: Option<RequestId>) {
        let volume = self.volumes.get_mut(&vid).expect("the volume to mark");
        volume.stage = Stage::Marked;
        let entry = &mut volume.entry;
        entry.writer = None;
        entry.lease_ms = 0;
        entry.lease_epoch = DELETE_MARK;
        entry.readers.clear();
        entry.any_reader = false;
        if let Some(id) = request_id.filter(|id| !entry.request_ids.contains(id)) {
            entry.request_ids.insert(0, id);
            entry.request_ids.truncate(REQUEST_IDS);
        }
        volume.lease = None;
        // An SSD takes no entry with fewer blocks than it has.
        let entry = volume.grown(volume.entry.clone());
        self.put(vid, entry, Purpose::Mark { ticket });
    }

    pub(super) fn marked(&mut self, now: u64, entry: &VolumeEntry, round: Round, ticket: Option<Ticket>) {
        let members = self.members.all().clone();
        let volume = self.volumes.get_mut(&entry.vid).expect("the round's volume");
        volume.entry = entry.clone();
        if round.failed.is_empty() {
            volume.stage = Stage::Deleting(members);
            volume.successor = None;
            return self.delete_everywhere(now, entry.vid, ticket);
        }
        self.deletion_delayed(ticket, &entry.name, &round.failed);
        self.note_behind(now, entry.vid, round.failed);
    }

    /// Second half of a deletion: sends VOLUME DELETE to every SSD that has not confirmed it.
    pub(super) fn delete_everywhere(&mut self, now: u64, vid: Vid, ticket: Option<Ticket>) {
        let volume = self.volumes.get_mut(&vid).expect("the volume to delete");
        volume.last_version += 1;
        let version = volume.last_version;
        let Stage::Deleting(targets) = volume.stage.clone() else {
            unreachable!("a deletion is decided before it is carried out");
        };
        let (purpose, action) = (Purpose::Delete { ticket }, Action::Delete(version));
        if targets.is_empty() {
            // The map has dropped the last SSD that had still to delete the volume.
            return self.deleted(now, vid, Round::new(purpose, action, targets), ticket);
        }
        self.begin(vid, action, purpose, targets);
    }

    pub(super) fn deleted(&mut self, now: u64, vid: Vid, round: Round, ticket: Option<Ticket>) {
        let entry = self.volumes[&vid].entry.clone();
        if round.failed.is_empty() {
            if let Some(ticket) = ticket {
                let ended = self.volumes[&vid].ended.clone();
                self.reply(ticket, Ok(Reply::Ended(ended)));
            }
            // The volume of a failed Create has no mark: a retry of that Create must not find it.
            if entry.lease_epoch == DELETE_MARK {
                self.tombstones.bury(now, entry);
            }
            return self.vanish(now, vid, self.config.sweep_ms);
        }
        self.deletion_delayed(ticket, &entry.name, &round.failed);
        self.still_deleting(now, vid, round.failed);
    }

    fn still_deleting(&mut self, now: u64, vid: Vid, failed: BTreeMap<u16, Trouble>) {
        let volume = self.volumes.get_mut(&vid).expect("the round's volume");
        volume.stage = Stage::Deleting(failed.keys().copied().collect());
        self.note_behind(now, vid, failed);
    }

    fn deletion_delayed(&mut self, ticket: Option<Ticket>, name: &str, failed: &BTreeMap<u16, Trouble>) {
        let Some(ticket) = ticket else { return };
        let message = format!(
            "the deletion of volume {name:?} is decided, but {} did not take it; it is repeated until \
             every SSD has: ask again later",
            blame(failed)
        );
        self.fail(ticket, GrpcCode::Unavailable, message);
    }
}
