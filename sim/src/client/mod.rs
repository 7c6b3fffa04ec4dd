// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The actor of one client: the initiator of the device headers as a host program, and its closed loop.
//!
//! ```text
//!   Load: which request next --> Client: slots, split, placement, stamps --> Gate of each SSD --> Port
//!     ^--- latency, ended <------------- completions <------------------------------------------- Port
//! ```
//! It follows `gnor/cuda/gnor/{io,slots,gate}.cuh` decision by decision. A request is cut at chunk borders. A
//! read goes to the less loaded of two replicas. A write has a command for each replica, with one sequence a
//! part. 128 slots are handed out in the order of arrival, and send blocks up to the gate's limit. Time of
//! the GPU itself is not modelled: a client does all that it can at the moment at which something arrives. It
//! does not retry: a refusal ends the world with an error.

mod gate;
mod slots;

pub(crate) use gate::Gate;
use slots::Slots;

use crate::load::{Load, Next};
use crate::port::{Arrived, Port, token};
use crate::ssd::{WorldError, io_qp};
use gnstor_base::time::Time;
use gnstor_proto::nvme::{self, Cqe, KeyedSgl, ReadWrite, Sqe};
use gnstor_proto::placement::{FleetMap, Rows as _, group_of};
use gnstor_proto::slba::{Address, ClientId, Slba, Stamp, Vid};
use std::collections::VecDeque;
use std::sync::Arc;

/// Commands in flight of one client (`SLOTS` in `abi.h`).
pub(crate) const SLOTS: usize = 128;
/// By so many commands a queue must be shorter before a read leaves its turn (`SAME_LOAD` in `io.cuh`).
const SAME_LOAD: i32 = 4;
/// log2 of the blocks of a chunk.
pub(crate) const CHUNK_SHIFT: u8 = gnstor_proto::placement::DEFAULT_CHUNK_SHIFT;
const CHUNK: u32 = 1 << CHUNK_SHIFT;
/// A request without a slot.
const NO_SLOT: u8 = 0xFF;

/// What a client knows of its volume and of the array.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    pub(crate) vid: Vid,
    pub(crate) client: ClientId,
    pub(crate) factor: u64,
    pub(crate) replicas: u8,
    pub(crate) blocks: u32,
    pub(crate) map: Arc<FleetMap>,
}

/// One request of the closed loop.
#[derive(Clone, Copy, Debug)]
struct Request {
    is_write: bool,
    vba: u32,
    blocks: u32,
    /// Blocks whose commands are all sent.
    sent: u32,
    /// Of a write: the next replica of the part at `sent`.
    replica: u8,
    head: u8,
    issued: u32,
    done: u32,
    /// Sequence of the first part of a write.
    sequence: u64,
    start: Time,
}

/// A client.
pub(crate) struct Client {
    number: u32,
    volume: Volume,
    ports: Vec<Port>,
    /// By SSD of its array.
    gates: Vec<Gate>,
    slots: Slots,
    /// The request of each command in flight, and its SSD.
    commands: [(u16, u16); SLOTS],
    requests: Vec<Request>,
    /// Requests with commands to be sent, in the order in which they began.
    unsent: VecDeque<u16>,
    next_sequence: u64,
    /// By block: the sequence of the write that was answered last.
    versions: Vec<u32>,
    /// Blocks of each SSD's reads and writes, for the spread of the load.
    pub(crate) sent_blocks: Vec<u64>,
    pub(crate) load: Load,
    in_flight: u32,
    /// SSDs with commands at their gates that have said something since the last step.
    wider: Vec<u16>,
    /// SSDs that were sent something in this step.
    touched: Vec<u16>,
}

impl Client {
    pub(crate) fn new(number: u32, volume: Volume, ports: Vec<Port>, depth: u32, load: Load) -> Self {
        let gates = ports.iter().map(|_| Gate::new(depth)).collect();
        let request = Request {
            is_write: false,
            vba: 0,
            blocks: 0,
            sent: 0,
            replica: 0,
            head: NO_SLOT,
            issued: 0,
            done: 0,
            sequence: 0,
            start: Time::ZERO,
        };
        Self {
            number,
            versions: vec![0; volume.blocks as usize],
            volume,
            gates,
            slots: Slots::default(),
            commands: [(0, 0); SLOTS],
            requests: vec![request; SLOTS],
            unsent: VecDeque::new(),
            next_sequence: 1,
            sent_blocks: vec![0; ports.len()],
            ports,
            load,
            in_flight: 0,
            wider: Vec::new(),
            touched: Vec::new(),
        }
    }

    /// Requests that have begun and not ended.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Takes what an SSD has for this client.
    pub(crate) fn take(&mut self, now: Time, ssd: u16, arrived: Arrived) -> Result<(), WorldError> {
        if self.gates[usize::from(ssd)].is_blocked() && !self.wider.contains(&ssd) {
            self.wider.push(ssd);
        }
        match arrived {
            Arrived::Response(cqe) => self.complete(now, ssd, &cqe),
            Arrived::Retired { index } => {
                self.gates[usize::from(ssd)].retire(index);
                Ok(())
            }
            Arrived::Block { address, token: got } => {
                let block = u32::try_from(address >> 12 & 0xF_FFFF).expect("20 bits");
                let version = self.versions.get(block as usize).copied().unwrap_or(0);
                if got == token(io_qp(self.number), address_of(version.into(), block)) {
                    return Ok(());
                }
                Err(WorldError::WrongData { client: self.number as usize, block })
            }
            Arrived::Broken => {
                Err(WorldError::Broken { ssd: usize::from(ssd), client: self.number as usize })
            }
        }
    }

    fn complete(&mut self, now: Time, ssd: u16, cqe: &Cqe) -> Result<(), WorldError> {
        let (status, cid) = (cqe.status_word(), cqe.cid.get());
        if status != 0 {
            let reason = cqe.dw0.get() & 0xFF;
            let client = self.number as usize;
            return Err(WorldError::Refused { ssd: usize::from(ssd), client, status, reason });
        }
        self.gates[usize::from(ssd)].complete();
        let (number, _) = self.commands[usize::from(cid)];
        let request = &mut self.requests[usize::from(number)];
        request.done += 1;
        let cid = u8::try_from(cid).expect("below SLOTS");
        if cid != request.head {
            self.slots.give(cid);
        }
        if request.sent == request.blocks && request.done == request.issued {
            self.end(now, number);
        }
        Ok(())
    }

    fn end(&mut self, now: Time, number: u16) {
        let request = self.requests[usize::from(number)];
        self.slots.give(request.head);
        self.in_flight -= 1;
        if request.is_write {
            // One sequence a part.
            for block in request.vba..request.vba + request.blocks {
                let part = u64::from((block >> CHUNK_SHIFT) - (request.vba >> CHUNK_SHIFT));
                let sequence = u32::try_from(request.sequence + part).expect("far fewer writes than 2^32");
                self.versions[block as usize] = sequence;
            }
        }
        self.load.ended(now, request.start, number);
    }

    /// Begins what the load wants, and sends all that can be sent. Returns when the load wants to go on by
    /// itself; the SSDs in `touched` have been sent something.
    pub(crate) fn step(&mut self, now: Time) -> Time {
        loop {
            match self.load.next(now) {
                Next::Request { number, is_write, vba, blocks } => {
                    self.begin(now, number, is_write, vba, blocks);
                }
                Next::Later(at) => {
                    self.send_all();
                    return at;
                }
            }
        }
    }

    /// The SSDs that were sent something since the last call.
    pub(crate) fn touched(&mut self) -> Vec<u16> {
        std::mem::take(&mut self.touched)
    }

    pub(crate) fn keep(&mut self, mut touched: Vec<u16>) {
        touched.clear();
        self.touched = touched;
    }

    fn begin(&mut self, now: Time, number: u16, is_write: bool, vba: u32, blocks: u32) {
        let head = self.slots.draw(number).unwrap_or(NO_SLOT);
        let request = Request {
            is_write,
            vba,
            blocks,
            sent: 0,
            replica: 0,
            head,
            issued: 0,
            done: 0,
            sequence: 0,
            start: now,
        };
        self.requests[usize::from(number)] = request;
        self.in_flight += 1;
        self.unsent.push_back(number);
    }

    /// Sends the commands that have a slot, and the waiting ones that the gates admit.
    fn send_all(&mut self) {
        while let Some((number, slot)) = self.slots.turn() {
            self.requests[usize::from(number)].head = slot;
        }
        for _ in 0..self.unsent.len() {
            let Some(number) = self.unsent.pop_front() else { break };
            if !self.send(number) {
                self.unsent.push_back(number);
            }
        }
        // Only the gates of SSDs that have said something can have become wider.
        let mut wider = std::mem::take(&mut self.wider);
        for ssd in wider.drain(..) {
            while let Some(sqe) = self.gates[usize::from(ssd)].admit() {
                self.post(ssd, &sqe);
            }
        }
        self.wider = wider;
    }

    /// Sends commands of a request for as long as there are slots; whether all of them are sent.
    fn send(&mut self, number: u16) -> bool {
        loop {
            let request = self.requests[usize::from(number)];
            if request.head == NO_SLOT {
                return false;
            }
            if request.sent == request.blocks {
                return true;
            }
            // Its own slot is free while none of its commands is under way.
            let spare = if request.issued == 0 { None } else { self.slots.spare() };
            let cid = match spare {
                Some(slot) => slot,
                None if request.issued == request.done => request.head,
                None => return false,
            };
            self.command(number, cid);
        }
    }

    /// Builds and sends the next command of a request.
    fn command(&mut self, number: u16, cid: u8) {
        let mut request = self.requests[usize::from(number)];
        if request.is_write && request.issued == 0 {
            request.sequence = self.next_sequence;
            self.next_sequence += u64::from(parts(request.vba, request.blocks));
        }
        let vba = request.vba + request.sent;
        let blocks = (CHUNK - vba % CHUNK).min(request.blocks - request.sent);
        let ssd = self.place(&request, vba, number);
        let part = u64::from((vba >> CHUNK_SHIFT) - (request.vba >> CHUNK_SHIFT));
        let sequence = if request.is_write { request.sequence + part } else { 0 };
        let sqe = self.capsule(request.is_write, cid, vba, blocks, sequence);
        request.issued += 1;
        request.replica += u8::from(request.is_write);
        if !request.is_write || request.replica == self.volume.replicas {
            request.sent += blocks;
            request.replica = 0;
        }
        self.requests[usize::from(number)] = request;
        self.commands[usize::from(cid)] = (number, ssd);
        self.sent_blocks[usize::from(ssd)] += u64::from(blocks);
        if let Some(sqe) = self.gates[usize::from(ssd)].arrive(sqe) {
            self.post(ssd, &sqe);
        }
    }

    fn post(&mut self, ssd: u16, sqe: &Sqe) {
        let (index, signalled) = self.gates[usize::from(ssd)].take();
        self.ports[usize::from(ssd)].send(io_qp(self.number), index, signalled, sqe);
        if !self.touched.contains(&ssd) {
            self.touched.push(ssd);
        }
    }

    /// The SSD of the next command: a write's next replica, or of two replicas the one that is asked for
    /// less, in turn by `hint`.
    fn place(&self, request: &Request, vba: u32, hint: u16) -> u16 {
        let Volume { vid, factor, map, replicas, .. } = &self.volume;
        let group = group_of(*vid, vba, CHUNK_SHIFT, *factor, map.groups());
        let at = |k: u16| {
            let k = usize::from(k % u16::from(*replicas));
            map.place(group, k).map_or(0, |member| member.ssd)
        };
        if request.is_write {
            return at(request.replica.into());
        }
        let (one, other) = (at(hint), at(hint + 1));
        let load = |ssd: u16| self.gates[usize::from(ssd)].load();
        if load(one) - load(other) > SAME_LOAD { other } else { one }
    }

    fn capsule(&self, is_write: bool, cid: u8, vba: u32, blocks: u32, sequence: u64) -> Sqe {
        let opcode = if is_write { nvme::io::WRITE } else { nvme::io::READ };
        let mut sqe = Sqe { opcode, flags: nvme::FLAGS_SGL, nsid: 1.into(), ..Sqe::default() };
        sqe.cid = u16::from(cid).into();
        sqe.dptr = KeyedSgl::keyed(address_of(sequence, vba), blocks * gnstor_proto::BLOCK_BYTES, 1);
        let Volume { vid, client, map, .. } = &self.volume;
        let address = Address { vid: *vid, client: *client, vba };
        let stamp = Stamp { lease_epoch: 1, sequence };
        let map_epoch = u32::try_from(map.epoch & 0xFFFF_FFFF).expect("32 bits");
        ReadWrite { slba: Slba::pack(address), blocks, fua: false, map_epoch, stamp }.encode(&mut sqe);
        sqe
    }
}

/// Parts of a request.
fn parts(vba: u32, blocks: u32) -> u32 {
    ((vba + blocks - 1) >> CHUNK_SHIFT) - (vba >> CHUNK_SHIFT) + 1
}

/// Where the data of a block is in its client's memory: the address names block and write.
fn address_of(sequence: u64, vba: u32) -> u64 {
    sequence << 32 | u64::from(vba) << 12
}
