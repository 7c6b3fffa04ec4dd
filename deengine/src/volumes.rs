// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's commands: VOLUME ADD, LIST, DELETE, CHMOD and MAP SET, GET; fences; sweeps.
//!
//! A CHMOD or DELETE changes the table at once, so nothing new is judged by the old entry; its completion waits until
//! nothing that was is in flight (a *fence*, protocol rule 8). A fence does not wait for ever: at its deadline the
//! queues of the stragglers are closed. A deleted volume's pages are unmapped in the background (a *sweep*, rule 10),
//! a bounded part of the table at a time.

use crate::admin::data_bytes;
use crate::command::{OK, Work};
use crate::controller::Ssd;
use crate::fleet::Fleet;
use crate::permit::CompletionPermit;
use crate::request::{Refused, check_namespace};
use gnstor_fabric::controller::QueueKey;
use gnstor_fabric::time::{Span, Time};
use gnstor_proto::fabrics::Identity;
use gnstor_proto::nvme::Sqe;
use gnstor_proto::placement::FleetMap;
use gnstor_proto::slba::Vid;
use gnstor_proto::status::Refusal;
use gnstor_proto::vendor::{ENTRY_BYTES, VolumeEntry, opcode};
use zerocopy::IntoBytes;

/// How long a fence waits before it closes the queues of stragglers.
pub(crate) const FENCE_DEADLINE: Span = Span::from_ms(2000);
/// Buckets of the map scanned by one step of a sweep.
const SWEEP_BUCKETS: u64 = 4096;
/// Modelled time between two steps of a sweep: it must not hold up I/O.
const SWEEP_PAUSE: Span = Span::from_ns(100_000);
const ENTRY: u32 = 4096;
const _: () = assert!(ENTRY as usize == ENTRY_BYTES);

/// A deleted volume on its way out of the map.
#[derive(Debug)]
pub(crate) struct Sweep {
    vid: Vid,
    next_bucket: u64,
    at: Time,
}

impl Ssd {
    pub(crate) fn submit_vendor(&mut self, now: Time, permit: CompletionPermit, key: QueueKey, cntlid: u16, sqe: &Sqe) {
        if let Err(refused) = self.check_vendor(cntlid, sqe) {
            return self.refuse(permit, 0, refused, now);
        }
        let code = sqe.opcode;
        if code == opcode::VOLUME_DELETE {
            return self.delete(now, permit, key, sqe);
        }
        let bytes = match data_bytes(sqe) {
            Ok(bytes) => bytes,
            Err(refused) => return self.refuse(permit, 0, refused, now),
        };
        match code {
            opcode::VOLUME_LIST => {
                let (data, count) = self.list(sqe, bytes);
                self.deliver(now, permit, key, sqe, bytes, &data, count);
            }
            opcode::MAP_GET => {
                let data = self.fleet.as_ref().map(|fleet| fleet.map().encode()).unwrap_or_default();
                let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
                self.deliver(now, permit, key, sqe, bytes, &data, length);
            }
            opcode::MAP_SET => self.fetch(now, permit, key, sqe, bytes, |buffer| Work::SetMap { buffer }),
            _ if bytes != ENTRY => self.refuse(permit, 0, Refusal::InvalidField.into(), now),
            _ => self.fetch(now, permit, key, sqe, bytes, |buffer| Work::Entry { opcode: code, buffer }),
        }
    }

    fn check_vendor(&mut self, cntlid: u16, sqe: &Sqe) -> Result<(), Refused> {
        let host = self.hosts.host(cntlid).ok_or(Refusal::SequenceError)?;
        if host.identity != Identity::Daemon {
            return Err(Refusal::NotTheDaemon.into());
        }
        check_namespace(sqe)
    }

    fn list(&self, sqe: &Sqe, bytes: u32) -> (Vec<u8>, u32) {
        #[expect(clippy::cast_possible_truncation, reason = "bits 15:0 are the first volume id")]
        let first = sqe.cdw12.get() as u16;
        let mut data = Vec::new();
        let mut count = 0;
        for volume in self.table.volumes_from(first).take((bytes / ENTRY) as usize) {
            data.extend_from_slice(volume.entry().encode().as_bytes());
            count += 1;
        }
        (data, count)
    }

    fn delete(&mut self, now: Time, permit: CompletionPermit, key: QueueKey, sqe: &Sqe) {
        let word = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let (version, term) = (word(sqe.cdw2.get(), sqe.cdw3.get()), word(sqe.cdw14.get(), sqe.cdw15.get()));
        let raw = u16::try_from(sqe.cdw12.get()).unwrap_or(0);
        let Some(vid) = Vid::new(raw) else {
            return self.refuse(permit, raw, Refusal::InvalidField.into(), now);
        };
        match self.table.delete(vid, sqe.cdw13.get(), version, term) {
            Err(refused) => self.refuse(permit, raw, refused, now),
            Ok(false) => self.complete(permit, OK, now, 0),
            Ok(true) => {
                if self.sweeps.iter().all(|sweep| sweep.vid != vid) {
                    self.sweeps.push(Sweep { vid, next_bucket: 0, at: now });
                    self.wake_at(now);
                }
                self.fence(now, permit, key, vid);
            }
        }
    }

    /// The permission entry of an ADD or CHMOD is there.
    pub(crate) fn finish_entry(&mut self, now: Time, permit: CompletionPermit, key: QueueKey, code: u8, data: &[u8]) {
        let Ok(entry) = VolumeEntry::decode(data) else {
            return self.refuse(permit, 0, Refusal::InvalidField.into(), now);
        };
        let vid = entry.vid;
        let taken = if code == opcode::VOLUME_ADD { self.table.add(now, entry) } else { self.table.chmod(now, entry) };
        match taken {
            Err(refused) => self.refuse(permit, vid.get(), refused, now),
            Ok(()) => self.fence(now, permit, key, vid),
        }
    }

    pub(crate) fn finish_set_map(&mut self, now: Time, permit: CompletionPermit, data: &[u8]) {
        match self.take_map(data) {
            Ok(()) => self.complete(permit, OK, now, 0),
            Err(refused) => self.refuse(permit, 0, refused, now),
        }
    }

    fn take_map(&mut self, data: &[u8]) -> Result<(), Refused> {
        let map = FleetMap::decode(data).map_err(|_| Refusal::InvalidField)?;
        self.table.take_term(map.term)?;
        if let Some(fleet) = self.fleet.as_ref().filter(|fleet| map.epoch < fleet.map().epoch) {
            return Err(Refused::at(Refusal::StaleVersion, fleet.map().wire_epoch()));
        }
        self.fleet = Some(Fleet::new(map, self.config.index));
        Ok(())
    }

    /// Completes the command when nothing judged by an older entry of the volume is in flight.
    fn fence(&mut self, now: Time, permit: CompletionPermit, key: QueueKey, vid: Vid) {
        let deadline = now + FENCE_DEADLINE;
        let id = self.start(permit, key, vid.get(), now, Work::Fence { vid, deadline });
        self.fences.push(id);
        self.wake_at(deadline);
        self.settle_fences(now);
    }

    /// Completes the fences whose volumes have drained, oldest first.
    pub(crate) fn settle_fences(&mut self, now: Time) {
        let mut at = 0;
        while let Some(&id) = self.fences.get(at) {
            if self.fence_of(id).is_some_and(|(vid, _)| self.table.volume(vid).is_some_and(|v| !v.is_fenced())) {
                at += 1;
                continue;
            }
            self.fences.remove(at);
            if let Some(permit) = self.commands.remove(id).and_then(|command| command.permit) {
                self.complete(permit, OK, now, 0);
            }
        }
    }

    fn fence_of(&mut self, id: u32) -> Option<(Vid, Time)> {
        match self.commands.get_mut(id)?.work {
            Work::Fence { vid, deadline } => Some((vid, deadline)),
            _ => None,
        }
    }

    /// Closes the queues that keep a fence past its deadline; the next deadline.
    pub(crate) fn close_stragglers(&mut self, now: Time) -> Time {
        let mut next = Time::NEVER;
        for id in self.fences.clone() {
            // Closing queues settles fences: this one may be gone.
            let Some((vid, deadline)) = self.fence_of(id) else { continue };
            if deadline > now {
                next = next.min(deadline);
                continue;
            }
            for queue in self.stragglers(vid) {
                self.stats.stragglers_closed += 1;
                self.shut(now, queue);
            }
        }
        next
    }

    /// Queues with a command in flight that was judged by an older entry of the volume.
    fn stragglers(&self, vid: Vid) -> Vec<QueueKey> {
        let Some(serial) = self.table.volume(vid).map(|volume| volume.serial()) else { return Vec::new() };
        let older = self.commands.iter().filter(|(_, command)| match &command.work {
            Work::Read(request) | Work::Write { request, .. } => {
                request.get().address.vid == vid && request.serial() < serial
            }
            _ => false,
        });
        let mut queues: Vec<QueueKey> = older.map(|(_, command)| command.queue).collect();
        queues.sort_unstable();
        queues.dedup();
        queues
    }

    /// Unmaps the next part of each deleted volume; when there is more to do.
    pub(crate) fn sweep(&mut self, now: Time) -> Time {
        let mut next = Time::NEVER;
        let mut sweeps = std::mem::take(&mut self.sweeps);
        sweeps.retain_mut(|sweep| {
            if sweep.at <= now {
                // Insertions elsewhere may move a block behind the scan; the count of mapped blocks says when all are
                // gone.
                if self.ftl.mapped_of(sweep.vid) != 0 {
                    self.stats.blocks_forgotten += self.ftl.sweep(sweep.vid, sweep.next_bucket, SWEEP_BUCKETS);
                    sweep.next_bucket += SWEEP_BUCKETS;
                    if sweep.next_bucket >= self.ftl.map.buckets() {
                        sweep.next_bucket = 0;
                    }
                }
                let drained = self.table.volume(sweep.vid).is_none_or(|volume| volume.is_fenced());
                if drained && self.ftl.mapped_of(sweep.vid) == 0 {
                    self.table.bury(sweep.vid);
                    return false;
                }
                sweep.at = now + SWEEP_PAUSE;
            }
            next = next.min(sweep.at);
            true
        });
        self.sweeps = sweeps;
        next
    }
}
