// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's commands: VOLUME ADD, LIST, DELETE, CHMOD and MAP SET, GET; fences; sweeps. Commands for
//! voters are received here and judged in [`super::voting`].
//!
//! A CHMOD or DELETE changes the table at once, so nothing new is judged by the old entry. Its completion
//! waits until no command that the old entry judged is in flight (a *fence*, protocol rule 8). A fence does
//! not wait for ever: at its deadline the queues of the stragglers are closed. A deleted volume's pages are
//! unmapped in the background (a *sweep*, rule 10), a bounded part of the table at a time.

use crate::admin::identify::data_bytes;
use crate::admin::state::Change;
use crate::commands::{CompletionPermit, Delivered, Fetched};
use crate::commands::{OK, Work};
use crate::controller::Ssd;
use crate::permission::Authorized;
use crate::request::{Refused, Request, check_namespace};
use gnstor_base::controller::QueueKey;
use gnstor_base::time::{Span, Time};
use gnstor_proto::fabrics::Identity;
use gnstor_proto::nvme::Sqe;
use gnstor_proto::repair::REPAIR_BYTES;
use gnstor_proto::slba::Vid;
use gnstor_proto::ssd_identity::KnownOpening;
use gnstor_proto::status::Refusal;
use gnstor_proto::vendor::{
    ENTRY_BYTES, GET_HELD, LIST_TOMBSTONES, TOMBSTONE_BYTES, VolumeEntry, WRITE_LEASE_MS, opcode, takes_lease,
};
use gnstor_proto::voting::{HEAD_BYTES, PROMISE_BYTES};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Time after which a fence closes the queues of stragglers.
pub(crate) const FENCE_DEADLINE: Span = Span::from_ms(2000);
/// Time between two checks of a fence, if several workers have reads in flight.
const FENCE_POLL: Span = Span::from_ns(50_000);
/// Number of map buckets that one step of a sweep scans.
const SWEEP_BUCKETS: u64 = 2048;
/// Modelled time between two steps of a sweep: it must not hold up I/O.
const SWEEP_PAUSE: Span = Span::from_ns(100_000);
/// As `SWEEP_PAUSE`, on a full disk: its owner has to make room first.
const HELD_PAUSE: Span = Span::from_ms(10);
const ENTRY: u32 = 4096;
const _: () = assert!(ENTRY as usize == ENTRY_BYTES);

/// Version and term of a command that carries no entry.
pub(crate) fn version_and_term(sqe: &Sqe) -> (u64, u64) {
    let word = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    (word(sqe.cdw2.get(), sqe.cdw3.get()), word(sqe.cdw14.get(), sqe.cdw15.get()))
}

/// Whether a host of this identity may send this command. A client that follows the map asks any SSD for it.
fn may_send(identity: Identity, code: u8) -> Result<(), Refused> {
    let may = match identity {
        Identity::Daemon => !matches!(code, opcode::LEASE_ASK | opcode::PEER_READ),
        Identity::Peer(_) => {
            matches!(code, opcode::LEASE_ASK | opcode::ACTIVATE | opcode::MAP_GET | opcode::PEER_READ)
        }
        Identity::Client(_) => code == opcode::MAP_GET,
    };
    match identity {
        _ if may => Ok(()),
        // An SSD asks for its own lease, and reads for its own places.
        Identity::Daemon => Err(Refusal::WrongIdentity.into()),
        Identity::Peer(_) | Identity::Client(_) => Err(Refusal::NotTheDaemon.into()),
    }
}

impl Ssd {
    pub(crate) fn submit_vendor(&mut self, now: Time, permit: CompletionPermit, cntlid: u16, sqe: &Sqe) {
        if let Err(refused) = self.check_vendor(cntlid, sqe) {
            return self.refuse(permit, 0, refused, now);
        }
        let code = sqe.opcode;
        if code == opcode::VOLUME_DELETE {
            return self.delete(now, permit, sqe);
        }
        if code == opcode::LEASE_RENEW {
            return self.renew_lease(now, permit, sqe);
        }
        if code == opcode::REPAIR {
            return self.take_order(now, permit, sqe);
        }
        if code == opcode::CLIENT_END {
            return self.end_client(now, permit, sqe);
        }
        if code == opcode::OPENING {
            return self.hear_opening(now, permit, KnownOpening::of(sqe));
        }
        let bytes = match data_bytes(sqe) {
            Ok(bytes) => bytes,
            Err(refused) => return self.refuse(permit, 0, refused, now),
        };
        let content = Fetched { bytes, work: |buffer| Work::Map { opcode: code, buffer } };
        match code {
            opcode::VOLUME_LIST => {
                let (data, count) = self.list(now, sqe, bytes);
                self.deliver(now, permit, sqe, Delivered::at_once(now, bytes, count, &data));
            }
            opcode::MAP_GET => {
                let data = self.map_bytes(sqe.cdw12.get() & GET_HELD != 0);
                let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
                self.deliver(now, permit, sqe, Delivered::at_once(now, bytes, length, &data));
            }
            opcode::MAP_SET | opcode::MAP_HOLD | opcode::ACTIVATE => self.fetch(now, permit, sqe, content),
            opcode::TERM_TAKE if bytes as usize >= PROMISE_BYTES => {
                let change = Change::Grant { sqe: Box::new(*sqe) };
                self.ask_change(now, permit, 0, change);
            }
            opcode::LEASE_ASK if bytes as usize == HEAD_BYTES => self.fetch(now, permit, sqe, content),
            opcode::SETTLE if bytes as usize == REPAIR_BYTES => self.fetch(now, permit, sqe, content),
            opcode::PEER_READ => self.answer_peer(now, permit, cntlid, sqe),
            opcode::TERM_TAKE | opcode::LEASE_ASK | opcode::SETTLE => {
                self.refuse(permit, 0, Refusal::InvalidField.into(), now);
            }
            _ if bytes != ENTRY => self.refuse(permit, 0, Refusal::InvalidField.into(), now),
            _ => {
                let entry = Fetched { bytes, work: |buffer| Work::Entry { opcode: code, buffer } };
                self.fetch(now, permit, sqe, entry);
            }
        }
    }

    fn check_vendor(&mut self, cntlid: u16, sqe: &Sqe) -> Result<(), Refused> {
        may_send(self.hosts.identity_of(cntlid).ok_or(Refusal::SequenceError)?, sqe.opcode)?;
        if self.table.is_recovering() {
            return Err(Refusal::NotReady.into());
        }
        check_namespace(sqe)
    }

    /// The bytes of the map by which it serves, or of the held map; empty if there is none.
    fn map_bytes(&self, held: bool) -> Arc<[u8]> {
        let bytes = if held { self.held_bytes() } else { self.table.fleet().map(|fleet| fleet.bytes()) };
        bytes.map_or_else(|| Arc::from([]), Arc::clone)
    }

    fn list(&mut self, now: Time, sqe: &Sqe, bytes: u32) -> (Vec<u8>, u32) {
        let [a, b, c, d] = sqe.cdw12.get().to_le_bytes();
        let (first, skip) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
        let mut data = Vec::new();
        let mut count = 0;
        if sqe.cdw13.get() & LIST_TOMBSTONES != 0 {
            for tombstone in
                self.table.tombstones(now, first, skip).iter().take(bytes as usize / TOMBSTONE_BYTES)
            {
                data.extend_from_slice(tombstone.as_bytes());
                count += 1;
            }
            return (data, count);
        }
        for volume in self.table.volumes_from(first).take((bytes / ENTRY) as usize) {
            data.extend_from_slice(volume.entry().encode().as_bytes());
            count += 1;
        }
        (data, count)
    }

    fn delete(&mut self, now: Time, permit: CompletionPermit, sqe: &Sqe) {
        let (version, term) = version_and_term(sqe);
        let raw = u16::try_from(sqe.cdw12.get()).unwrap_or(0);
        let Some(vid) = Vid::new(raw) else {
            return self.refuse(permit, raw, Refusal::InvalidField.into(), now);
        };
        let change = Change::Delete { vid, generation: sqe.cdw13.get(), version, term };
        self.ask_change(now, permit, raw, change);
    }

    /// The permission entry of an ADD or CHMOD has arrived.
    pub(crate) fn finish_entry(&mut self, now: Time, permit: CompletionPermit, code: u8, data: &[u8]) {
        let Ok(entry) = VolumeEntry::decode(data) else {
            return self.refuse(permit, 0, Refusal::InvalidField.into(), now);
        };
        let (vid, entry) = (entry.vid.get(), Box::new(entry));
        if !takes_lease(entry.lease_ms, &WRITE_LEASE_MS) {
            return self.refuse(permit, vid, Refusal::InvalidField.into(), now);
        }
        self.ask_change(now, permit, vid, Change::Entry { code, entry });
    }

    /// The data of a command about maps or leases has arrived.
    pub(crate) fn finish_map(&mut self, now: Time, permit: CompletionPermit, code: u8, data: Vec<u8>) {
        let change = match code {
            opcode::MAP_HOLD => Change::Hold { data },
            opcode::ACTIVATE => Change::Activate { data },
            opcode::LEASE_ASK => return self.finish_lease_ask(now, permit, &data),
            opcode::SETTLE => return self.finish_settle(now, permit, &data),
            _ => Change::Map { data },
        };
        self.ask_change(now, permit, 0, change);
    }

    /// Completes the command once no command that an older entry of the volume allowed is in flight.
    pub(crate) fn fence(&mut self, now: Time, permit: CompletionPermit, vid: Vid) {
        let deadline = now + FENCE_DEADLINE;
        let id = self.start(permit, vid.get(), now, Work::Fence { vid, deadline });
        self.admin.volumes.fences.push(id);
        self.wake_at(deadline);
        self.complete_fences(now);
        let next = self.watch_fences(now);
        self.wake_at(next);
    }

    /// Checks the fences. A worker reports the last read that a fence waits for, but may not have seen the
    /// fence. Returns the time of the next check.
    pub(crate) fn watch_fences(&mut self, now: Time) -> Time {
        if self.admin.volumes.fences.is_empty() {
            return Time::NEVER;
        }
        self.complete_fences(now);
        now + FENCE_POLL
    }

    /// Completes the fences whose volumes have no older command in flight, oldest first.
    pub(crate) fn complete_fences(&mut self, now: Time) {
        let mut at = 0;
        while let Some(&id) = self.admin.volumes.fences.get(at) {
            if self.fence_of(id).is_some_and(|(vid, _)| !self.table.is_fenced(vid)) {
                at += 1;
                continue;
            }
            self.admin.volumes.fences.remove(at);
            if let Some(permit) = self.commands.remove(id).and_then(|command| command.end().permit) {
                self.complete(permit, OK, now, 0);
            }
        }
    }

    fn fence_of(&mut self, id: u32) -> Option<(Vid, Time)> {
        match *self.commands.get_mut(id)?.work() {
            Work::Fence { vid, deadline } => Some((vid, deadline)),
            _ => None,
        }
    }

    /// Closes the queues that hold up a fence past its deadline. Returns the next deadline.
    pub(crate) fn close_stragglers(&mut self, now: Time) -> Time {
        let mut next = Time::NEVER;
        for id in self.admin.volumes.fences.clone() {
            // Closing queues completes fences, so this one may be gone.
            let Some((vid, deadline)) = self.fence_of(id) else { continue };
            if deadline > now {
                next = next.min(deadline);
                continue;
            }
            if let Some(slot) = self.table.slot_of(vid) {
                self.workers().close_older(slot);
            }
            for queue in self.stragglers(vid) {
                self.smart_mut().count_straggler();
                self.shut(now, queue);
            }
        }
        next
    }

    /// Queues with a command in flight that was judged by an older entry of the volume.
    fn stragglers(&self, vid: Vid) -> Vec<QueueKey> {
        let Some(serial) = self.table.volume(vid).map(|volume| volume.serial()) else { return Vec::new() };
        let is_older =
            |request: &Authorized<Request>| request.get().address.vid == vid && request.serial() < serial;
        let older = self.commands.iter().filter(|(_, command)| match command.work() {
            Work::Compare { request, .. } | Work::Starved(request) => is_older(request),
            Work::Trim(requests) => requests.iter().any(is_older),
            _ => false,
        });
        // The worker of a grant may stand still.
        let granted = self.commands.granted().filter(|grant| is_older(&grant.request));
        let granted = granted.map(|grant| grant.queue);
        let mut queues: Vec<QueueKey> = older.map(|(_, command)| command.queue()).chain(granted).collect();
        queues.sort_unstable();
        queues.dedup();
        queues
    }

    /// Unmaps the next part of each deleted volume. Returns when there is more to do.
    pub(crate) fn sweep(&mut self, now: Time) -> Time {
        if !self.ftl().is_sweeping() && self.admin.volumes.swept.is_empty() {
            return Time::NEVER;
        }
        if self.admin.volumes.sweep_at > now {
            return self.admin.volumes.sweep_at;
        }
        let swept = self.ftl().sweep_step(now, SWEEP_BUCKETS);
        self.smart_mut().count_trimmed(swept, 0);
        while let Some((vid, generation)) = self.ftl().swept() {
            self.admin.volumes.swept.push((vid, generation));
        }
        // A transfer that was judged by the living entry may still be under way.
        let (over, waiting) = std::mem::take(&mut self.admin.volumes.swept)
            .into_iter()
            .partition::<Vec<_>, _>(|&(vid, _)| self.table.is_fenced(vid));
        self.admin.volumes.swept = waiting;
        self.ask_burials(now, over);
        self.admin.volumes.sweep_at =
            now + if self.ftl().flash().is_held() { HELD_PAUSE } else { SWEEP_PAUSE };
        if self.ftl().is_sweeping() || !self.admin.volumes.swept.is_empty() {
            self.admin.volumes.sweep_at
        } else {
            Time::NEVER
        }
    }
}
