// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the end of a write lease to the next grant, where voters decide (rule 14).
//!
//! ```text
//!   lease ends, not all acknowledged --CHMOD: no writer, unsettled--> barrier
//!   every member has the entry --SETTLE, asked again until done--> each copy is that of its group's first
//!   all members of the epoch are done --CHMOD: settled--> the next Open for writing goes on
//! ```
//! The flag is in the SSDs' tables, so a daemon that starts goes on. While it is set, readers ask the first
//! of a group. A new epoch starts the questions over: another SSD may be the first.
//!
//! An SSD of an earlier version knows no SETTLE, and is not waited for.
//!
//! Which end is clean: a Release that says that every write was acknowledged. A lease that ran out, one that
//! was revoked, a client that is gone, and a second Open by the holder are not.

use super::effect::{SettleOf, SettleReport};
use super::members::members_of;
use super::report::SettleView;
use super::request::Request;
use super::volume::{Change, Purpose, Settle, Stage, Then, Volume};
use super::{Answer, Command, CommandId, Core, Owner, Ticket};
use gnstor_fleet::map::FleetView as _;
use gnstor_proto::slba::Vid;
use gnstor_proto::status::{GrpcCode, Refusal};
use gnstor_proto::vendor::VolumeEntry;
use std::collections::{BTreeMap, BTreeSet};

/// Time between two questions to one SSD: at first, and at most.
const POLL_MS: (u64, u64) = (10, 100);

/// The answer to a question of a settle.
pub(super) struct Answered {
    pub(super) ssd: u16,
    pub(super) id: CommandId,
    pub(super) answer: Answer,
}

impl Volume {
    /// The entry says that replicas may differ, and the volume is in use.
    fn is_unsettled(&self) -> bool {
        self.entry.unsettled && self.stage == Stage::Active
    }

    /// Every member has the entry: no older write is under way.
    fn is_quiet(&self) -> bool {
        self.round.is_none() && self.behind.is_empty() && !self.again
    }

    /// The entry's writer had a lease that is over.
    fn has_run_out(&self, now: u64) -> bool {
        self.stage == Stage::Active && self.entry.writer.is_some() && self.writer(now).is_none()
    }
}

impl Core {
    /// Sets the flag *unsettled* in an entry that takes the writer away, unless all writes were acknowledged.
    pub(super) fn mark_unsettled(&self, entry: &mut VolumeEntry, purpose: &Purpose) {
        let Some(volume) = self.volumes.get(&entry.vid).filter(|_| self.map_of_voters().is_some()) else {
            return;
        };
        let is_clean = matches!(
            purpose,
            Purpose::Change(Change { then: Then::Released { all_acknowledged: true }, .. })
                | Purpose::Mark { .. }
        ) && !volume.in_doubt;
        let is_clean = is_clean && (!self.is_filling(volume) || matches!(purpose, Purpose::Mark { .. }));
        if volume.entry.writer.is_some() && entry.writer.is_none() && !is_clean {
            entry.unsettled = true;
        }
    }

    /// A place fills or has filled while the volume's lease ran (decision 57, the forgotten TRIM).
    fn is_filling(&self, volume: &Volume) -> bool {
        volume.has_filled || !self.epoch.filling().is_empty()
    }

    /// The writer of a volume, which is in no change, loses its lease.
    pub(super) fn end_lease(&mut self, now: u64, vid: Vid) {
        let term = self.term.number();
        let is_open = |volume: &&Volume| volume.stage == Stage::Active && volume.round.is_none();
        let Some(volume) = self.volumes.get(&vid).filter(is_open) else { return };
        let writer = volume.entry.writer;
        let entry = VolumeEntry { writer: None, lease_ms: 0, ..volume.basis(now, term) };
        if let Some(writer) = writer.filter(|writer| !entry.readers.contains(writer)) {
            self.clients.released_early(now, writer, vid);
        }
        self.put(vid, entry, Purpose::Reconcile { reply: None });
    }

    /// Makes an Open for writing wait until the volume is settled. Returns the call if it need not wait.
    pub(super) fn wait_for_settle(
        &mut self,
        now: u64,
        ticket: Ticket,
        vid: Vid,
        request: Request,
    ) -> Option<Request> {
        let must = self.map_of_voters().is_some()
            && self.volumes.get(&vid).is_some_and(|v| v.entry.unsettled || v.entry.writer.is_some());
        let Some(volume) = self.volumes.get_mut(&vid).filter(|_| must) else { return Some(request) };
        let waiting = &mut volume.settle.get_or_insert_default().waiting;
        if waiting.len() >= self.config.max_queue {
            let message = format!(
                "{} requests wait for volume {:?}, which is being settled: try again later",
                waiting.len(),
                volume.entry.name
            );
            self.fail(ticket, GrpcCode::Unavailable, message);
            return None;
        }
        waiting.push_back((ticket, request));
        if !volume.entry.unsettled {
            self.end_lease(now, vid);
        }
        self.settle_volume(now, vid);
        None
    }

    /// Leases that ran out end, and volumes that may differ are settled.
    pub(super) fn settle_step(&mut self, now: u64) {
        if !self.is_serving() || self.map_of_voters().is_none() {
            return;
        }
        let over = |volume: &Volume| volume.has_run_out(now) && volume.is_quiet();
        let over: Vec<Vid> = self.volumes.iter().filter(|(_, v)| over(v)).map(|(&vid, _)| vid).collect();
        for vid in over {
            self.end_lease(now, vid);
        }
        let open: Vec<Vid> =
            self.volumes.iter().filter(|(_, v)| v.is_unsettled()).map(|(&vid, _)| vid).collect();
        for vid in open {
            self.settle_volume(now, vid);
        }
    }

    /// Advances the settle of one volume as far as possible.
    pub(super) fn settle_volume(&mut self, now: u64, vid: Vid) {
        let Some(map) = self.map_of_voters().filter(|_| self.is_serving()) else { return };
        let (epoch, array, term) = (map.epoch, map.array(), self.term.number());
        let members = members_of(map);
        let silent: BTreeSet<u16> = members.iter().filter(|ssd| self.is_silent(**ssd)).copied().collect();
        let Some(volume) = self.volumes.get_mut(&vid) else { return };
        if !volume.is_unsettled() || !volume.is_quiet() {
            return;
        }
        let generation = volume.entry.generation;
        let settle = volume.settle.get_or_insert_default();
        if settle.epoch != epoch {
            (settle.epoch, settle.parts, settle.done) = (epoch, BTreeMap::new(), BTreeSet::new());
        }
        if members.is_subset(&settle.done) {
            let entry = VolumeEntry { unsettled: false, ..volume.basis(now, term) };
            return self.put(vid, entry, Purpose::Reconcile { reply: None });
        }
        let mut due = Vec::new();
        for &ssd in members.difference(&settle.done) {
            let part = settle.parts.entry(ssd).or_default();
            if part.asked.is_none() && part.next_at <= now && !silent.contains(&ssd) {
                due.push(ssd);
            }
        }
        for ssd in due {
            let of = SettleOf { epoch, array, term, vid, generation };
            let id = self.command(ssd, Owner::Settle(vid), Command::Settle(of));
            let settle = self.volumes.get_mut(&vid).and_then(|volume| volume.settle.as_mut());
            if let Some(part) = settle.and_then(|settle| settle.parts.get_mut(&ssd)) {
                part.asked = Some(id);
            }
        }
    }

    pub(super) fn settle_answered(&mut self, now: u64, vid: Vid, answered: Answered) {
        let Answered { ssd, id, answer } = answered;
        let settle = self.volumes.get_mut(&vid).and_then(|volume| volume.settle.as_mut());
        let Some(settle) = settle else { return };
        let Some(part) = settle.parts.get_mut(&ssd).filter(|part| part.asked == Some(id)) else { return };
        part.asked = None;
        part.wait_ms = (part.wait_ms * 2).clamp(POLL_MS.0, POLL_MS.1);
        part.next_at = now + part.wait_ms;
        let cannot = answer == Answer::Refused(Refusal::InvalidOpcode);
        if cannot {
            tracing::warn!(ssd, %vid, "the SSD knows no SETTLE: copies on it may differ from those of others");
        }
        if cannot || answer == Answer::Settled(SettleReport::Done) {
            settle.done.insert(ssd);
            self.settle_volume(now, vid);
        }
    }

    /// A round of the volume has ended: whether it is settled by now.
    pub(super) fn settle_after_round(&mut self, now: u64, vid: Vid) {
        let Some(volume) = self.volumes.get_mut(&vid) else { return };
        if volume.is_unsettled() {
            return self.settle_volume(now, vid);
        }
        let is_over =
            !volume.entry.unsettled && volume.entry.writer.is_none() || volume.stage != Stage::Active;
        let Some(settle) = volume.settle.take_if(|_| is_over) else { return };
        for (ticket, request) in settle.waiting {
            if self.tickets.contains_key(&ticket) {
                self.dispatch(now, ticket, request);
            }
        }
    }

    /// The questions to this SSD will not be answered.
    pub(super) fn settle_lost(&mut self, ssd: u16) {
        for settle in self.volumes.values_mut().filter_map(|volume| volume.settle.as_mut()) {
            settle.parts.remove(&ssd);
            settle.done.remove(&ssd);
        }
    }

    pub(super) fn settle_wakes_at(&self) -> Option<u64> {
        if !self.is_serving() || self.map_of_voters().is_none() {
            return None;
        }
        let over = |volume: &Volume| {
            let lease = volume.lease.filter(|_| volume.stage == Stage::Active && volume.is_quiet())?;
            Some(lease.free_at)
        };
        let map = self.map_of_voters()?;
        let there: Vec<u16> = members_of(map).into_iter().filter(|ssd| !self.is_silent(*ssd)).collect();
        let polls = |volume: &Volume| {
            if !volume.is_unsettled() || !volume.is_quiet() {
                return None;
            }
            let Some(settle) = volume.settle.as_ref().filter(|settle| settle.epoch == map.epoch) else {
                return Some(self.now);
            };
            let open = there.iter().filter(|ssd| !settle.done.contains(ssd));
            let due = open.filter_map(|ssd| match settle.parts.get(ssd) {
                None => Some(self.now),
                Some(part) => Some(part.next_at).filter(|_| part.asked.is_none()),
            });
            due.min()
        };
        self.volumes.values().flat_map(|volume| over(volume).into_iter().chain(polls(volume))).min()
    }

    /// The volumes that are being settled.
    pub(super) fn settling(&self) -> Vec<SettleView> {
        let members = self.map_of_voters().map(members_of).unwrap_or_default();
        let view = |volume: &Volume| {
            let done = volume.settle.as_ref().map(|settle| settle.done.clone()).unwrap_or_default();
            let waits_for = members.difference(&done).copied().collect();
            SettleView { vid: volume.entry.vid, name: volume.entry.name.clone(), waits_for }
        };
        self.volumes.values().filter(|volume| volume.is_unsettled()).map(view).collect()
    }

    /// Requests that were answered wait for no volume any more.
    pub(super) fn forget_settles(&mut self) {
        let Self { volumes, tickets, .. } = self;
        for settle in volumes.values_mut().filter_map(|volume| volume.settle.as_mut()) {
            settle.waiting.retain(|(ticket, _)| tickets.contains_key(ticket));
        }
    }

    /// A sentence, if the request waits for a volume to be settled.
    pub(super) fn waits_for_settle(&self, ticket: Ticket) -> Option<String> {
        let has = |settle: &Settle| settle.waiting.iter().any(|(waiting, _)| *waiting == ticket);
        let volume = self.volumes.values().find(|volume| volume.settle.as_ref().is_some_and(has))?;
        let down = self.members.missing(false);
        if !down.is_empty() {
            let down: Vec<String> =
                down.iter().map(|(ssd, why)| format!("SSD {ssd} is down ({why})")).collect();
            return Some(format!(
                "volume {:?} cannot be opened for writing yet: its last writer ended before all its writes \
                 were known to be on all replicas, and these are made the same when every SSD is there: {}; \
                 try again when all are back",
                volume.entry.name,
                down.join(", ")
            ));
        }
        let settling = self.settling();
        let of = settling.iter().find(|view| view.vid == volume.entry.vid);
        let ssds: Vec<String> =
            of.iter().flat_map(|view| &view.waits_for).map(|ssd| format!("SSD {ssd}")).collect();
        Some(format!(
            "volume {:?} cannot be opened for writing yet: its last writer ended before all its writes were \
             known to be on all replicas, and {} make them the same; try again later",
            volume.entry.name,
            if ssds.is_empty() { "the SSDs".into() } else { ssds.join(", ") }
        ))
    }
}
