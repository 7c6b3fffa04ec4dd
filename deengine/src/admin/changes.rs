// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that change the metadata, and burials: one at a time, in the order in which they came.
//!
//! ```text
//!   ask -> queue -> begin: judge, start the writes -> .. polls .. -> end: table, fence, completion
//!                   `- first in the queue only -'
//! ```
//! No engine waits for the disk meanwhile. The table changes when the writes are durable, so that it is never
//! ahead of the disk (protocol rule 3). In memory the writes end at once, and so does the command.

use crate::admin::identify::data_bytes;
use crate::admin::state::{Asked, Begun, Change};
use crate::commands::{Answer, CompletionPermit, Delivered};
use crate::commands::{OK, Work};
use crate::controller::Ssd;
use crate::error::not_durable;
use crate::permission::fleet::UNKNOWN_EPOCH;
use crate::request::Refused;
use gnstor_base::time::{Span, Time};
use gnstor_durable::Tombstone;
use gnstor_proto::nvme::Sqe;
use gnstor_proto::placement::{AnyMap, Rows};
use gnstor_proto::slba::Vid;
use gnstor_proto::status::Refusal;
use gnstor_proto::vendor::{VolumeEntry, opcode};
use gnstor_proto::voting::TermTake;
use std::task::Poll;
use zerocopy::IntoBytes;

/// Time between two polls of a write of the metadata.
const POLL: Span = Span::from_ns(100_000);

impl Ssd {
    /// A command asks for a change of the metadata.
    pub(super) fn ask_change(&mut self, now: Time, permit: CompletionPermit, vid: u16, change: Change) {
        let id = self.start(permit, vid, now, Work::Change);
        self.admin.changes.waiting.push_back(Asked { command: Some(id), change });
        let next = self.change_on(now);
        self.wake_at(next);
    }

    /// The SSD itself asks for a change.
    pub(super) fn ask_own_change(&mut self, now: Time, change: Change) {
        self.admin.changes.waiting.push_back(Asked { command: None, change });
        let next = self.change_on(now);
        self.wake_at(next);
    }

    /// Requests tombstones for these volumes, whose sweeps are over.
    pub(crate) fn ask_burials(&mut self, now: Time, volumes: Vec<(Vid, u32)>) {
        for (vid, generation) in volumes {
            self.admin
                .changes
                .waiting
                .push_back(Asked { command: None, change: Change::Bury { vid, generation } });
        }
        let next = self.change_on(now);
        self.wake_at(next);
    }

    /// Continues the changes. Returns the time of the next call.
    pub(crate) fn change_on(&mut self, now: Time) -> Time {
        loop {
            if let Some(Asked { command, change }) = self.admin.changes.begun.take() {
                match self.admin.volumes.metadata_mut().poll() {
                    Poll::Pending => {
                        self.admin.changes.begun = Some(Asked { command, change });
                        return now + POLL;
                    }
                    Poll::Ready(Ok(())) => self.end_change(now, command, change),
                    Poll::Ready(Err(error)) => {
                        if let Begun::Bury { vid, generation } = change {
                            tracing::error!(
                                "the tombstone of volume {} cannot be written: {error}",
                                vid.get()
                            );
                            self.ftl().sweep(vid, generation);
                            self.admin.volumes.sweep_at(now);
                        }
                        if matches!(change, Begun::Raise) {
                            self.admin.asker.is_not_raised();
                        }
                        self.refuse_change(now, command, not_durable(&error));
                    }
                }
                continue;
            }
            let Some(Asked { command, change }) = self.admin.changes.waiting.pop_front() else {
                return Time::NEVER;
            };
            match self.begin_change(now, change) {
                Ok(Some(change)) => self.admin.changes.begun = Some(Asked { command, change }),
                Ok(None) => self.complete_change(now, command),
                Err(refused) => self.refuse_change(now, command, refused),
            }
        }
    }

    /// Judges a change and starts its writes. `None`: nothing is to be done.
    fn begin_change(&mut self, now: Time, change: Change) -> Result<Option<Begun>, Refused> {
        Ok(Some(match change {
            Change::Entry { code, entry } => self.begin_entry(code, entry)?,
            Change::Delete { vid, generation, version, term } => {
                let entry = self.table.check_delete(vid, generation, version, term)?;
                let Some(entry) = entry else { return Ok(None) };
                self.table.take_term(term)?;
                // Durable before anything is unmapped (protocol rule 10).
                self.start_entry(&entry);
                Begun::Deleting(Box::new(entry))
            }
            Change::Map { data } => self.begin_map(&data)?,
            Change::Grant { sqe } => {
                self.begin_grant(TermTake::of(&sqe))?;
                Begun::Grant(sqe)
            }
            Change::Hold { data } => Begun::Hold(self.begin_hold(&data)?),
            Change::Heard { ask } => {
                // The number must be durable before the answer, so that the yes of a majority is remembered.
                if let Some(new) = self.judge_lease_ask(&ask)? {
                    self.start_opening(ask.ssd, new);
                }
                Begun::Heard(ask)
            }
            Change::Raise if self.begin_raise() => Begun::Raise,
            Change::Raise => {
                self.admin.asker.is_not_raised();
                return Ok(None);
            }
            Change::Open if self.begin_raise() => Begun::Open,
            Change::Open => return Err(Refusal::NotServing.into()),
            Change::Older { known } if self.begin_older(known) => Begun::Older,
            Change::Older { .. } => return Ok(None),
            Change::Activate { data } => {
                let (map, bytes) = self.activated(&data)?;
                self.start_map(map, &bytes)
            }
            Change::Lease { term, version, until } => {
                self.table.take_term(term)?;
                // The note of a lease comes first. An SSD that has served under a lease must never start
                // again as one that needs none.
                if self.admin.volumes.metadata().contents().leased {
                    self.start_term(term);
                } else {
                    self.admin.volumes.metadata_mut().start_leased(term);
                }
                Begun::Lease { term, version, until }
            }
            Change::Bury { vid, generation } => {
                self.start_bury(now, vid, generation);
                Begun::Bury { vid, generation }
            }
        }))
    }

    /// VOLUME ADD or CHMOD.
    fn begin_entry(&mut self, code: u8, entry: Box<VolumeEntry>) -> Result<Begun, Refused> {
        let is_new = code == opcode::VOLUME_ADD;
        if is_new {
            self.table.check_add(&entry)?
        } else {
            self.table.check_chmod(&entry)?
        }
        if is_new && !self.admin.volumes.metadata().has_room(entry.vid) {
            return Err(Refusal::TableFull.into());
        }
        self.table.take_term(entry.term)?;
        self.start_entry(&entry);
        Ok(Begun::Entry(entry, is_new))
    }

    /// MAP SET.
    fn begin_map(&mut self, data: &[u8]) -> Result<Begun, Refused> {
        let map = AnyMap::decode(data).map_err(|_| Refusal::InvalidField)?;
        // This check comes before the term: a map of another array must change nothing.
        self.table.fleet().map_or(Ok(()), |fleet| fleet.check_array(&map))?;
        self.table.check_term(map.term())?;
        if let Some(fleet) = self.table.fleet().filter(|fleet| map.epoch() < fleet.map().epoch()) {
            return Err(Refused::at(Refusal::StaleVersion, fleet.map().wire_epoch()));
        }
        self.table.take_term(map.term())?;
        self.start_term(self.table.term());
        Ok(self.start_map(map, data))
    }

    /// The volume's sweep is over: starts writing its tombstone.
    fn start_bury(&mut self, now: Time, vid: Vid, generation: u32) {
        let ms = now.as_ns() / 1_000_000;
        let mut tombstone = Tombstone { generation, buried_at: ms, ..Tombstone::default() };
        if let Some(entry) = self.table.volume(vid).map(|volume| volume.entry()) {
            (tombstone.term, tombstone.version) = (entry.term, entry.version);
            tombstone.ids = entry.request_ids.iter().map(|id| (*id, ms)).collect();
        }
        self.admin.volumes.metadata_mut().start_bury(vid, tombstone);
    }

    /// Starts writing the bytes of a map that has been judged, for the SSD to serve by.
    fn start_map(&mut self, map: AnyMap, bytes: &[u8]) -> Begun {
        // Before the map: a cut in between leaves a content that no map gives a place.
        let is_new = matches!(&map, AnyMap::Three(map) if self.has_another_serve(map));
        if let Some(identity) = self.dropped_by(&map) {
            self.admin.volumes.metadata_mut().start_identity(identity, None);
        }
        // The openings also change before the map. With the new map and the number of the previous SSD, the
        // new SSD would count as an older image. A cut in between forgets the number early, and by the old
        // map no voter compares it.
        if let Some(openings) = self.openings_under(&map) {
            self.admin.volumes.metadata_mut().start_openings(&openings);
        }
        self.admin.volumes.metadata_mut().start_map(bytes);
        if self.admin.volumes.metadata().contents().filling == Some(UNKNOWN_EPOCH) {
            self.admin.volumes.metadata_mut().start_filling(map.epoch());
        }
        Begun::Map(Box::new(map), is_new)
    }

    /// Starts writing a volume's new entry, and the term of its command.
    fn start_entry(&mut self, entry: &VolumeEntry) {
        self.start_term(self.table.term());
        self.admin.volumes.metadata_mut().start_entry(entry.vid, entry.encode().as_bytes());
    }

    /// Starts writing the daemon's term, if it is new.
    fn start_term(&mut self, term: u64) {
        if term > self.admin.volumes.metadata().contents().term {
            self.admin.volumes.metadata_mut().start_term(term);
        }
    }

    fn end_entry(&mut self, now: Time, command: Option<u32>, entry: VolumeEntry, is_new: bool) {
        let vid = entry.vid;
        let taken = match is_new {
            true => self.table.add(now, entry).map(|()| None),
            false => self.table.chmod(now, entry),
        };
        match taken {
            Ok(former) => {
                former.into_iter().for_each(|client| self.note_former_writer(client, vid));
                self.judge_starved(now, vid);
                self.schedule(now, vid.get());
                if is_new {
                    self.fill_added(now, vid);
                }
                self.fence_change(now, command, vid);
            }
            Err(refused) => self.refuse_change(now, command, refused),
        }
    }

    /// The writes of a change are durable, so it takes effect.
    fn end_change(&mut self, now: Time, command: Option<u32>, change: Begun) {
        match change {
            Begun::Entry(entry, is_new) => self.end_entry(now, command, *entry, is_new),
            Begun::Deleting(entry) => {
                let (vid, generation) = (entry.vid, entry.generation);
                self.table.mark_deleting(&entry);
                self.judge_starved(now, vid);
                // Commands that wait for the volume's rate limit end.
                self.schedule(now, vid.get());
                // If VOLUME DELETE is repeated while the last transfers or the tombstone are awaited, no
                // second sweep may start. It would unmap blocks of the id's next volume.
                if !self.admin.volumes.awaits_burial(vid) && !self.admin.changes.buries(vid) {
                    self.ftl().sweep(vid, generation);
                }
                self.admin.volumes.sweep_at(now);
                self.wake_at(now);
                self.fence_change(now, command, vid);
            }
            Begun::Map(map, is_new) => {
                self.end_map(now, *map);
                self.complete_change(now, command);
                if is_new {
                    self.end_daemon(now);
                }
            }
            Begun::Grant(sqe) => {
                self.end_former_link(now, command);
                self.deliver_promise(now, command, &sqe);
            }
            Begun::Hold(held) => {
                let answer = self.end_hold(held);
                self.answer_change(now, command, answer);
            }
            Begun::Heard(ask) => match self.judge_lease_ask(&ask) {
                Ok(_) => {
                    if let Some(permit) = self.permit_of(command) {
                        self.say_yes(now, permit);
                    }
                }
                Err(refused) => self.refuse_change(now, command, refused),
            },
            Begun::Raise => self.is_opened(now),
            Begun::Open => self.end_open(now, command),
            Begun::Older => {
                self.complete_change(now, command);
                self.end_older(now);
            }
            Begun::Lease { term, version, until } => match self.table.renew_lease(term, version, until) {
                Ok(()) => self.complete_change(now, command),
                Err(refused) => self.refuse_change(now, command, refused),
            },
            Begun::Bury { vid, .. } => self.table.bury(now, vid),
        }
    }

    /// Makes the SSD serve by this map from now on.
    fn end_map(&mut self, now: Time, map: AnyMap) {
        if self.admin.volumes.filling_since().is_some_and(|epoch| epoch == UNKNOWN_EPOCH) {
            self.admin.volumes.set_filling_since(Some(map.epoch()));
        }
        if self.admin.volumes.filling_since().is_some_and(|epoch| self.ends_filling(&map, epoch)) {
            self.admin.volumes.set_filling_since(None);
        }
        let fleet = self.seen(map);
        self.table.set_fleet(Some(fleet));
        self.follow_voters(now);
        self.follow_fill(now);
    }

    pub(super) fn permit_of(&mut self, command: Option<u32>) -> Option<CompletionPermit> {
        self.commands.remove(command?).and_then(|command| command.end().permit)
    }

    fn complete_change(&mut self, now: Time, command: Option<u32>) {
        self.answer_change(now, command, OK);
    }

    fn answer_change(&mut self, now: Time, command: Option<u32>, answer: Answer) {
        if let Some(permit) = self.permit_of(command) {
            self.complete(permit, answer, now, 0);
        }
    }

    /// A daemon was granted a term on this command's queue. The queue that was granted one before is closed.
    /// Otherwise commands still on their way there could be executed after the daemon has read the SSD's
    /// tables. A daemon of an earlier term learns that it is deposed when it connects again.
    fn end_former_link(&mut self, now: Time, command: Option<u32>) {
        let Some(queue) = command.and_then(|id| self.commands.get_mut(id)).map(|command| command.queue())
        else {
            return;
        };
        if let Some(former) = self.admin.leads.replace(queue).filter(|former| *former != queue) {
            self.shut(now, former);
        }
    }

    /// Delivers the promise that answers a granted TERM TAKE.
    fn deliver_promise(&mut self, now: Time, command: Option<u32>, sqe: &Sqe) {
        let Some(permit) = self.permit_of(command) else { return };
        let (Some(promise), Ok(bytes)) = (self.promise(), data_bytes(sqe)) else {
            return self.refuse(permit, 0, Refusal::NotServing.into(), now);
        };
        self.deliver(now, permit, sqe, Delivered::at_once(now, bytes, 0, &promise.encode()));
    }

    fn refuse_change(&mut self, now: Time, command: Option<u32>, refused: Refused) {
        let Some(command) = command.and_then(|id| self.commands.remove(id)) else { return };
        let vid = command.vid();
        if let Some(permit) = command.end().permit {
            self.refuse(permit, vid, refused, now);
        }
    }

    fn fence_change(&mut self, now: Time, command: Option<u32>, vid: Vid) {
        if let Some(permit) = self.permit_of(command) {
            self.fence(now, permit, vid);
        }
    }
}
