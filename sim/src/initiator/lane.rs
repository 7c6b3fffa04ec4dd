// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The request of one lane: the SSD of its next command, and the capsule of that command.

use super::{Gate, NO_REPLICA, NONE, Outcome, QP_BROKEN};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::nvme::{self, KeyedSgl, ReadWrite, Sqe};
use gnstor_proto::placement::{AnyMap, Member, Rows as _, group_of};
use gnstor_proto::slba::{Address, ClientId, Slba, Stamp, Vid};
use std::sync::Arc;

/// A read leaves its turn for another replica only if that queue is shorter by this number of commands
/// (`SAME_LOAD` in `io.cuh`).
const SAME_LOAD: i32 = 4;
/// log2 of the largest number of blocks in a command (`COMMAND_MAX_SHIFT` in `io.cuh`).
const COMMAND_MAX_SHIFT: u8 = 8;
/// Reasons in DW0 after which the client tries a read at another replica (`ELSEWHERE` in `io.cuh`).
const ELSEWHERE: u64 = 1 << 2 | 1 << 11 | 1 << 12 | 1 << 13 | 1 << 17 | 1 << 18 | 1 << 40 | 1 << 42;

/// An open volume, as the device code knows it.
#[derive(Clone, Debug)]
pub struct Volume {
    /// The volume's id.
    pub vid: Vid,
    /// The client that sends the commands.
    pub client: ClientId,
    /// Placement factor.
    pub factor: u64,
    /// Copies of each block.
    pub replicas: u8,
    /// log2 of the blocks of a chunk.
    pub chunk_shift: u8,
    /// Epoch of the write lease.
    pub lease_epoch: u32,
    /// Capacity in blocks.
    pub blocks: u32,
    /// The fleet map in use.
    pub map: Arc<AnyMap>,
}

/// Location of the data of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Data {
    /// In registered memory.
    Memory {
        /// Address of the first block.
        address: u64,
        /// Remote key of the memory.
        key: u32,
    },
    /// No memory. The address of a block encodes the block and the write, see `address_of`.
    Tokens,
}

/// A read or a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// True for a write, false for a read.
    pub is_write: bool,
    /// The write brings no data: its blocks read as zeros afterwards (Write Zeroes).
    pub is_zeroes: bool,
    /// The write is durable before it completes (FUA).
    pub fua: bool,
    /// A write that starts over: the sequence that its first part had. `None`: it is a new one.
    pub sequence: Option<u64>,
    /// First block.
    pub vba: u32,
    /// Number of blocks, at least one.
    pub blocks: u32,
    /// Location of the data.
    pub data: Data,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            is_write: false,
            is_zeroes: false,
            fua: false,
            sequence: None,
            vba: 0,
            blocks: 0,
            data: Data::Tokens,
        }
    }
}

/// The address of a block for a client that has no memory.
pub(crate) fn address_of(sequence: u64, vba: u32) -> u64 {
    sequence << 32 | u64::from(vba) << 12
}

/// A lane with its request, and the fields that its slot keeps for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    pub(super) request: Request,
    /// Number of blocks whose commands are all staged.
    pub(super) sent: u32,
    /// For a read: 0 = any replica, k = the k-th serving one. For a write: the next replica of the block at
    /// `sent`.
    pub(super) attempt: u8,
    /// The lane's ticket, while it waits for its first slot.
    pub(super) ticket: Option<u32>,
    pub(super) head: u8,
    /// The staged command that is not sent yet, and its SSD.
    pub(super) staged: u8,
    pub(super) ssd: u16,
    /// Number of commands that were staged, and number of commands that were answered.
    pub(super) issued: u32,
    pub(super) done: u32,
    pub(super) outcome: Outcome,
}

impl Default for Lane {
    fn default() -> Self {
        Self::new(Request::default())
    }
}

/// Destination of the next command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) ssd: Option<u16>,
    /// Why the command cannot be sent; 0: it can.
    pub(super) error: u32,
    /// The read goes to another replica because a queue pair is broken.
    pub(super) is_elsewhere: bool,
}

impl Target {
    pub(super) fn sends(&self) -> bool {
        self.ssd.is_some() && self.error == 0
    }
}

impl Volume {
    /// log2 of the distance, in blocks, between the borders at which requests are cut.
    pub(super) fn cut_shift(&self) -> u8 {
        self.chunk_shift.min(COMMAND_MAX_SHIFT)
    }

    fn group(&self, vba: u32) -> u32 {
        group_of(self.vid, vba, self.chunk_shift, self.factor, self.map.groups())
    }

    fn row(&self, vba: u32) -> impl Iterator<Item = Option<Member>> {
        let group = self.group(vba);
        (0..usize::from(self.replicas)).map(move |place| self.map.place(group, place))
    }

    /// The SSD that takes over one of the block's places, and takes its writes.
    fn incoming(&self, vba: u32) -> Option<u16> {
        let incoming = self.map.incoming(self.group(vba));
        incoming.filter(|incoming| incoming.place < self.replicas).map(|incoming| incoming.ssd)
    }

    /// The SSD that takes part `number` of a write: a replica, or behind them an SSD that takes over a place.
    fn write_place(&self, vba: u32, number: u8) -> Option<u16> {
        if number == self.replicas {
            return self.incoming(vba);
        }
        self.row(vba).nth(number.into()).flatten().map(|member| member.ssd)
    }

    /// The SSD to read from (`read_place`). Attempt 0 chooses one of the serving replicas by `spread`.
    fn read_place(&self, vba: u32, attempt: u8, spread: u32) -> Option<u16> {
        let mut serving = [0; 4];
        let mut count = 0;
        for member in self.row(vba).flatten().filter(|member| !member.filling) {
            serving[count as usize] = member.ssd;
            count += 1;
        }
        if count == 0 {
            return None;
        }
        let skip = if attempt == 0 { spread } else { u32::from(attempt) - 1 };
        Some(serving[(skip % count) as usize])
    }
}

impl Lane {
    pub(super) fn new(request: Request) -> Self {
        let outcome = Outcome::default();
        Self {
            request,
            sent: 0,
            attempt: 0,
            ticket: None,
            head: NONE,
            staged: NONE,
            ssd: 0,
            issued: 0,
            done: 0,
            outcome,
        }
    }

    pub(super) fn is_all_sent(&self) -> bool {
        self.sent == self.request.blocks
    }

    /// Whether the request is a write that is sent in part.
    pub(super) fn is_midway(&self) -> bool {
        self.request.is_write && self.head != NONE && self.issued > 0 && !self.is_all_sent()
    }

    /// Number of parts in the request's first `blocks` blocks.
    pub(super) fn parts(&self, volume: &Volume, blocks: u32) -> u32 {
        let (shift, vba) = (volume.cut_shift(), self.request.vba);
        if blocks == 0 { 0 } else { ((vba + blocks - 1) >> shift) - (vba >> shift) + 1 }
    }

    /// Number of blocks of the command at `sent`.
    pub(super) fn part(&self, volume: &Volume) -> u32 {
        let all = 1 << volume.cut_shift();
        (all - (self.request.vba + self.sent) % all).min(self.request.blocks - self.sent)
    }

    /// Destination of the next command (`io_place`).
    pub(super) fn place(&self, volume: &Volume, gates: &[Gate], hint: u32) -> Target {
        let vba = self.request.vba + self.sent;
        let error = |ssd: u16| gates[usize::from(ssd)].error().unwrap_or(0);
        let ssd = match (self.request.is_write, self.attempt) {
            (true, number) => volume.write_place(vba, number),
            (false, 0) => idle_place(volume, gates, vba, hint),
            (false, attempt) => volume.read_place(vba, attempt, hint),
        };
        let Some(at) = ssd else { return Target { ssd, error: 0, is_elsewhere: false } };
        let target = Target { ssd, error: error(at), is_elsewhere: false };
        if target.error == 0 || self.request.is_write {
            return target;
        }
        let mut others = (1..=volume.replicas).filter_map(|k| volume.read_place(vba, k, 0));
        match others.find(|&other| error(other) == 0) {
            Some(other) => Target { ssd: Some(other), error: 0, is_elsewhere: true },
            None => target,
        }
    }

    /// Status of the command at `sent` if its lane cannot send it. A missing replica is no failure while
    /// another replica of the block has an SSD.
    pub(super) fn missing(&self, volume: &Volume, target: &Target) -> u32 {
        let vba = self.request.vba + self.sent;
        let lacks_all = !self.request.is_write || volume.row(vba).flatten().next().is_none();
        match target.error {
            0 if lacks_all => NO_REPLICA,
            error => error,
        }
    }

    /// Builds the capsule of the command at `sent` (`write_capsule`).
    pub(super) fn capsule(&self, volume: &Volume, cid: u8) -> Sqe {
        let Request { is_write, is_zeroes, fua, vba, data, .. } = self.request;
        let blocks = self.part(volume);
        let sequence =
            if is_write { self.outcome.sequence + u64::from(self.parts(volume, self.sent)) } else { 0 };
        let at = vba + self.sent;
        let (address, key) = match data {
            Data::Memory { address, key } => (address + u64::from(self.sent * BLOCK_BYTES), key),
            Data::Tokens => (address_of(sequence, at), 1),
        };
        let opcode = match (is_write, is_zeroes) {
            (false, _) => nvme::io::READ,
            (true, false) => nvme::io::WRITE,
            (true, true) => nvme::io::WRITE_ZEROES,
        };
        let mut sqe = Sqe { opcode, flags: nvme::FLAGS_SGL, nsid: 1.into(), ..Sqe::default() };
        sqe.cid = u16::from(cid).into();
        if !is_zeroes {
            sqe.dptr = KeyedSgl::keyed(address, blocks * BLOCK_BYTES, key);
        }
        let slba = Slba::pack(Address { vid: volume.vid, client: volume.client, vba: at });
        let stamp = Stamp { lease_epoch: volume.lease_epoch, sequence };
        let map_epoch = u32::try_from(volume.map.epoch() & 0xFFFF_FFFF).expect("32 bits");
        ReadWrite { slba, blocks, fua, map_epoch, stamp }.encode(&mut sqe);
        sqe
    }

    /// Goes on after a command that was staged or skipped.
    pub(super) fn advance(&mut self, volume: &Volume) {
        let blocks = self.part(volume);
        self.issued += 1;
        let vba = self.request.vba + self.sent;
        let places = volume.replicas + u8::from(volume.incoming(vba).is_some());
        if self.request.is_write && self.attempt + 1 < places {
            self.attempt += 1;
            return;
        }
        self.sent += blocks;
        if self.request.is_write {
            self.attempt = 0;
        }
    }

    /// A command has ended. The request keeps the status of the first failure.
    pub(super) fn end_command(&mut self, status: u32, dw0: u32, dw1: u32) {
        self.done += 1;
        if status != 0 && self.outcome.status == 0 {
            self.outcome = Outcome { status, dw0, dw1, ..self.outcome };
        }
    }

    /// Whether another replica may serve a read that failed (`try_elsewhere`).
    pub(super) fn tries_elsewhere(&self, volume: &Volume) -> bool {
        let Outcome { status, dw0, .. } = self.outcome;
        if status == 0 || self.request.is_write || self.attempt >= volume.replicas {
            return false;
        }
        let reason = dw0 & 0xFF;
        status & QP_BROKEN != 0 || status <= 0xFFFF && reason < 64 && ELSEWHERE >> reason & 1 == 1
    }
}

/// The replica at which a read is tried first. Of two, chosen in turn by `hint`, it is the one with less
/// load.
fn idle_place(volume: &Volume, gates: &[Gate], vba: u32, hint: u32) -> Option<u16> {
    let one = volume.read_place(vba, 0, hint)?;
    let other = volume.read_place(vba, 0, hint + 1)?;
    let load = |ssd: u16| gates[usize::from(ssd)].load();
    Some(if one != other && load(one) - load(other) > SAME_LOAD { other } else { one })
}
