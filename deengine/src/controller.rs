// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The SSD as target offload drives it: commands in flight, their transfers and their completions.

use crate::command::{Answer, Command, NewBlock, Transfer, TransferKind, Work, WriteEnd};
use crate::fleet::Fleet;
use crate::ftl::{Extent, Ftl};
use crate::hosts::{Hosts, MAX_IO_QUEUES, MAX_QUEUE_ENTRIES, Role};
use crate::media::Ppa;
use crate::permission::Table;
use crate::permit::CompletionPermit;
use crate::preset::Preset;
use crate::request::{MDTS, Refused};
use crate::scratch::{Buffer, Scratch};
use crate::slab::Slab;
use crate::stats::Stats;
use crate::timing::Timing;
use crate::volumes::Sweep;
use gnstor_fabric::controller::{Controller, Effect, Outcome, QueueKey, Remote, TransferId};
use gnstor_fabric::region::{HostRegion, LocalRef};
use gnstor_fabric::time::Time;
use gnstor_proto::checksum::block_sum;
use gnstor_proto::fabrics::{CmRequest, cm_reject};
use gnstor_proto::nvme::{Cqe, Sqe};
use gnstor_proto::placement::mix64;
use gnstor_proto::status::{Detail, Refusal};
use gnstor_proto::{BLOCK_BYTES, fabrics};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// What an SSD is made from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SsdConfig {
    /// Number of the SSD in the array; its subsystem NQN and its rows of the fleet map follow from it.
    pub index: u16,
    /// Modelled figures.
    pub preset: Preset,
    /// Logical capacity; physical pages are 7 % more.
    pub capacity_bytes: u64,
    /// Serial number, ASCII, at most 20 bytes.
    pub serial: String,
}

/// One emulated SSD.
#[derive(Debug)]
pub struct Ssd {
    pub(crate) config: SsdConfig,
    pub(crate) timing: Timing,
    pub(crate) ftl: Ftl,
    pub(crate) table: Table,
    pub(crate) fleet: Option<Fleet>,
    pub(crate) hosts: Hosts,
    pub(crate) scratch: Scratch,
    pub(crate) stats: Stats,
    pub(crate) commands: Slab<Command>,
    pub(crate) fences: Vec<u32>,
    pub(crate) sweeps: Vec<Sweep>,
    /// No later than the next time at which [`Controller::step`] has something to do.
    pub(crate) alarm: Time,
    /// Reused lists: extents and pages of the command in hand, and block lists of finished writes.
    pub(crate) extents: Vec<Extent>,
    pub(crate) touched: Vec<Ppa>,
    pub(crate) spare_blocks: Vec<Vec<NewBlock>>,
    pub(crate) zero_sum: u32,
    transfers: Slab<Transfer>,
    pub(crate) effects: VecDeque<Effect>,
}

impl Ssd {
    /// An empty SSD: nothing mapped, no volumes, no map.
    ///
    /// # Errors
    /// Where the memory cannot be had or the capacity is not between one block and 2^32 pages.
    pub fn new(config: SsdConfig) -> io::Result<Self> {
        let seed = mix64(0x474E_5374_6F72 ^ u64::from(config.index));
        let ftl = Ftl::new(&config.preset, config.capacity_bytes, seed)?;
        Ok(Self {
            timing: Timing::new(config.preset, ftl.media.pages()),
            ftl,
            config,
            table: Table::default(),
            fleet: None,
            hosts: Hosts::default(),
            scratch: Scratch::new()?,
            stats: Stats::default(),
            commands: Slab::new(),
            fences: Vec::new(),
            sweeps: Vec::new(),
            alarm: Time::NEVER,
            extents: Vec::new(),
            touched: Vec::new(),
            spare_blocks: Vec::new(),
            zero_sum: block_sum(&[0; BLOCK_BYTES as usize]),
            transfers: Slab::new(),
            effects: VecDeque::new(),
        })
    }

    /// What it was made from.
    pub fn config(&self) -> &SsdConfig {
        &self.config
    }

    /// The memory behind the flash pages, to be registered with the mover.
    pub fn media(&self) -> Arc<HostRegion> {
        Arc::clone(self.ftl.media.region())
    }

    /// The memory behind admin data, to be registered with the mover.
    pub fn scratch(&self) -> Arc<HostRegion> {
        Arc::clone(self.scratch.region())
    }

    /// What it has counted.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Blocks mapped, over all volumes.
    pub fn mapped_blocks(&self) -> u64 {
        self.ftl.map.len()
    }

    /// Commands accepted and not completed yet.
    pub fn in_flight(&self) -> usize {
        self.commands.len()
    }

    pub(crate) fn issue(&mut self, queue: QueueKey, cid: u16) -> CompletionPermit {
        self.stats.permits_issued += 1;
        CompletionPermit::issue(queue, cid)
    }

    pub(crate) fn complete(&mut self, permit: CompletionPermit, answer: Answer, at: Time, pushed_bytes: u32) {
        let (key, cid) = permit.spend();
        self.stats.permits_spent += 1;
        let Some(queue) = self.hosts.queue(key) else { return };
        queue.outstanding -= 1;
        let mut cqe = Cqe {
            dw0: answer.dw0.into(),
            dw1: answer.dw1.into(),
            sqhd: queue.sqhd.into(),
            cid: cid.into(),
            ..Cqe::default()
        };
        cqe.set_status_word(answer.status.0);
        self.effects.push_back(Effect::Complete { queue: key, cqe, at, pushed_bytes });
    }

    pub(crate) fn refuse(&mut self, permit: CompletionPermit, vid: u16, refused: Refused, at: Time) {
        self.stats.count_refusal(refused.refusal);
        let detail = Detail { code: refused.refusal as u8, vid };
        let answer = Answer { status: refused.refusal.status(), dw0: detail.to_dw0(), dw1: refused.epoch };
        self.complete(permit, answer, at, 0);
    }

    /// Gives a command a slot; its transfers are started next, and the last of them finishes it.
    pub(crate) fn start(
        &mut self,
        permit: CompletionPermit,
        queue: QueueKey,
        vid: u16,
        done_at: Time,
        work: Work,
    ) -> u32 {
        let (permit, pending, failure, pushed_bytes) = (Some(permit), 0, None, 0);
        self.commands.insert(Command { permit, queue, vid, pending, failure, done_at, pushed_bytes, work })
    }

    /// Whether a command with a whole transfer of blocks can still be numbered.
    pub(crate) fn has_room(&self) -> bool {
        self.commands.has_room(1) && self.transfers.has_room(1 << MDTS)
    }

    pub(crate) fn push(&mut self, id: u32, kind: TransferKind, remote: Remote, local: LocalRef, sum: Option<u32>) {
        let Some(command) = self.commands.get_mut(id) else { return };
        command.pending += 1;
        command.pushed_bytes += local.bytes;
        let queue = command.queue;
        let transfer = TransferId(self.transfers.insert(Transfer { command: id, kind }));
        self.effects.push_back(Effect::Push { transfer, queue, remote, local, sum });
    }

    pub(crate) fn pull(&mut self, id: u32, kind: TransferKind, remote: Remote, local: LocalRef) {
        let Some(command) = self.commands.get_mut(id) else { return };
        command.pending += 1;
        let queue = command.queue;
        let transfer = TransferId(self.transfers.insert(Transfer { command: id, kind }));
        self.effects.push_back(Effect::Pull { transfer, queue, remote, local });
    }

    /// Asks for a call of [`Controller::step`] not later than `at`.
    pub(crate) fn wake_at(&mut self, at: Time) {
        self.alarm = self.alarm.min(at);
    }

    pub(crate) fn finish(&mut self, now: Time, id: u32) {
        let Some(command) = self.commands.remove(id) else { return };
        let Command { permit, queue, vid, failure, done_at, pushed_bytes, work, .. } = command;
        let Some(permit) = permit else {
            let Work::Orphan { blocks, buffer } = work else { unreachable!("only orphans have no permit") };
            self.release_blocks(blocks);
            if let Some(buffer) = buffer {
                self.scratch.give(buffer);
            }
            return;
        };
        let failed = |buffer: Buffer, ssd: &mut Self| {
            ssd.scratch.give(buffer);
            failure
        };
        let refused = match work {
            Work::Read(request) => return self.finish_read(now, permit, failure, done_at, pushed_bytes, request),
            Work::Write { request, identity, blocks, claimed } => {
                return self.finish_write(
                    now,
                    permit,
                    failure,
                    done_at,
                    WriteEnd { request, identity, blocks, claimed },
                );
            }
            Work::Deallocate { sqe, identity, buffer } => {
                let data = self.scratch.read(&buffer);
                match failed(buffer, self) {
                    None => return self.finish_deallocate(now, permit, done_at, &sqe, identity, &data),
                    Some(refused) => refused,
                }
            }
            Work::Connect { fields, buffer } => {
                let data = self.scratch.read(&buffer);
                let failure = failed(buffer, self);
                return self.finish_connect(now, permit, queue, failure, &fields, &data);
            }
            Work::Answer { dw0, buffer } => match failed(buffer, self) {
                None => return self.complete(permit, Answer::dw0(dw0), now, pushed_bytes),
                Some(refused) => refused,
            },
            Work::Entry { opcode, buffer } => {
                let data = self.scratch.read(&buffer);
                match failed(buffer, self) {
                    None => return self.finish_entry(now, permit, queue, opcode, &data),
                    Some(refused) => refused,
                }
            }
            Work::SetMap { buffer } => {
                let data = self.scratch.read(&buffer);
                match failed(buffer, self) {
                    None => return self.finish_set_map(now, permit, &data),
                    Some(refused) => refused,
                }
            }
            Work::Fence { .. } | Work::AwaitEvent | Work::Orphan { .. } => {
                unreachable!("these have no transfers, or no permit")
            }
        };
        self.refuse(permit, vid, refused, now);
    }

    pub(crate) fn release_blocks(&mut self, mut blocks: Vec<NewBlock>) {
        for block in blocks.drain(..) {
            self.ftl.media.free(block.page);
        }
        self.spare_blocks.push(blocks);
    }
}

/// What a failed transfer says of its command.
fn refusal_of(outcome: Outcome) -> Option<Refusal> {
    match outcome {
        Outcome::Done { .. } => None,
        Outcome::BadChecksum => Some(Refusal::BadChecksum),
        Outcome::RemoteAccess | Outcome::ConnectionLost => Some(Refusal::TransferError),
    }
}

impl Controller for Ssd {
    fn open_queue(&mut self, _now: Time, key: QueueKey, request: &CmRequest) -> Result<(), u16> {
        if request.recfmt.get() != 0 {
            return Err(cm_reject::INVALID_RECFMT);
        }
        if request.qid.get() > MAX_IO_QUEUES {
            return Err(cm_reject::INVALID_QID);
        }
        if !(1..MAX_QUEUE_ENTRIES).contains(&request.hsqsize_z.get()) {
            return Err(cm_reject::INVALID_HSQSIZE);
        }
        if request.hrqsize.get() == 0 {
            return Err(cm_reject::INVALID_HRQSIZE);
        }
        let entries = request.hsqsize_z.get() + 1;
        if !self.hosts.has_room(key, entries) {
            return Err(cm_reject::NO_RESOURCES);
        }
        self.hosts.open(key, request.qid.get(), entries);
        Ok(())
    }

    fn close_queue(&mut self, now: Time, key: QueueKey) {
        self.tear_down(now, key);
    }

    fn submit(&mut self, now: Time, key: QueueKey, sqe: &Sqe) {
        let room = self.has_room();
        let Some(queue) = self.hosts.queue(key) else {
            self.stats.late_capsules += 1;
            return;
        };
        queue.sqhd = (queue.sqhd + 1) % queue.size;
        queue.outstanding += 1;
        let (role, overrun) = (queue.role, queue.outstanding > u32::from(queue.size));
        let permit = self.issue(key, sqe.cid.get());
        if overrun {
            return self.refuse(permit, 0, Refusal::SequenceError.into(), now);
        }
        if !room {
            return self.refuse(permit, 0, Refusal::NotReady.into(), now);
        }
        match role {
            Role::Io(_, identity) if sqe.opcode != fabrics::OPCODE => {
                self.submit_io(now, permit, key, identity, sqe);
            }
            Role::Admin(cntlid) if sqe.opcode != fabrics::OPCODE => self.submit_admin(now, permit, key, cntlid, sqe),
            Role::Fresh | Role::Admin(_) | Role::Io(..) if sqe.opcode == fabrics::OPCODE => {
                self.submit_fabrics(now, permit, key, role, sqe);
            }
            Role::Fresh | Role::Connecting | Role::Ended | Role::Admin(_) | Role::Io(..) => {
                self.refuse(permit, 0, Refusal::SequenceError.into(), now);
            }
        }
    }

    fn transferred(&mut self, now: Time, transfer: TransferId, outcome: Outcome) {
        let Some(Transfer { command: id, kind }) = self.transfers.remove(transfer.0) else {
            self.stats.unknown_transfers += 1;
            return;
        };
        if let TransferKind::FromPage(page) = kind {
            self.ftl.media.unpin(page);
        }
        let Some(command) = self.commands.get_mut(id) else { return };
        match refusal_of(outcome) {
            Some(refusal) => command.failure = command.failure.or(Some(refusal.into())),
            None => {
                if let (TransferKind::ToBlock(index), Outcome::Done { sum }) = (kind, outcome)
                    && let Work::Write { blocks, .. } = &mut command.work
                {
                    blocks[index as usize].sum = sum;
                }
            }
        }
        command.pending -= 1;
        if command.pending == 0 {
            self.finish(now, id);
        }
    }

    fn step(&mut self, now: Time) {
        if now < self.alarm {
            return;
        }
        let keep_alive = loop {
            match self.hosts.first_deadline() {
                (deadline, Some(admin)) if deadline <= now => self.shut(now, admin),
                (deadline, _) => break deadline,
            }
        };
        let fence = self.close_stragglers(now);
        let sweep = self.sweep(now);
        self.alarm = keep_alive.min(fence).min(sweep);
    }

    fn next_event(&self) -> Option<Time> {
        (self.alarm != Time::NEVER).then_some(self.alarm)
    }

    fn pop_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }
}

impl Drop for Ssd {
    /// An SSD may be switched off with commands in flight; their hosts see the connection break.
    fn drop(&mut self) {
        let ids: Vec<u32> = self.commands.iter().map(|(id, _)| id).collect();
        for id in ids {
            if let Some(permit) = self.commands.get_mut(id).and_then(|command| command.permit.take()) {
                permit.forfeit();
            }
        }
    }
}
