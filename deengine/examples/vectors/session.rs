// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drawn sessions: commands good, bent and random, volumes that come and go, data that ends in any order,
//! moves.

mod orders;

use crate::device::device_op;
use crate::dice::Dice;
use crate::drawn_map3;
use crate::op::{DAEMON, Op};
use crate::play::event;
use crate::script::{Io, MS, bent, client, entry, vendor, versioned};
use gnstor_proto::nvme::{FLAGS_SGL, KeyedSgl, Sqe, io};
use gnstor_proto::placement::map3::State3;
use gnstor_proto::placement::{FleetMap, Rows, SsdState, mix64};
use gnstor_proto::slba::ClientId;
use gnstor_proto::vendor::{VolumeEntry, opcode};
use std::collections::VecDeque;
use zerocopy::{FromBytes, IntoBytes};

const CLIENTS: [u16; 5] = [1, 7, 8, 9, 0xFFFE];
const VIDS: [u16; 7] = [1, 2, 3, 5, 0x0100, 0xFFFE, 0x1234];
/// Most commands under way, and most blocks of writes.
const MOST_OPEN: usize = 60;
const MOST_BLOCKS: u32 = 3000;
/// Most commands in flight whose data uses the firmware's few large buffers.
const MOST_LARGE: usize = 4;

/// A command whose data is in flight.
#[derive(Clone, Copy)]
struct Open {
    token: u32,
    opcode: u8,
    blocks: u32,
    bytes: u32,
}

pub(crate) struct Session {
    dice: Dice,
    now_ns: u64,
    token: u32,
    sequence: u64,
    /// Each command's queue is bound to a client, or none is.
    bound: bool,
    map: FleetMap,
    volumes: Vec<VolumeEntry>,
    open: Vec<Open>,
    /// The command whose answer comes next.
    asked: Option<Open>,
    /// Operations to do first.
    due: VecDeque<Op>,
    lease_version: u64,
    /// Of a hundred operations this number end a transfer of data. If it is small, much is in flight.
    ends: u32,
    /// The SSD's number, and the incarnation of its content as far as maps have ended it.
    id: u16,
    incarnation: u32,
    /// The last map that was taken names its array.
    is_three: bool,
}

impl Session {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice(mix64(seed));
        let blocks = dice.of(&[2048u64, 1 << 14, 1 << 16]);
        let count = dice.of(&[1usize, 2, 3, 5, 40]);
        let id = u16::try_from(dice.index(count)).expect("few");
        let mut map = FleetMap::equal(count, 64, dice.roll(), 1).expect("a map");
        map.epoch = dice.of(&[1, 1 << 31, (1 << 32) - 2, 1 << 40]);
        let volumes = VIDS[..6].iter().map(|&vid| drawn_entry(&mut dice, vid)).collect();
        let mut session = Self {
            bound: !dice.one_in(4),
            dice,
            now_ns: 1000,
            token: 0,
            sequence: 0,
            map,
            volumes,
            open: Vec::new(),
            asked: None,
            due: VecDeque::new(),
            lease_version: 0,
            ends: 28,
            id,
            incarnation: 1,
            is_three: false,
        };
        let twin = session.dice.one_in(3);
        session.due.push_back(device_op(blocks, id, 1 << 15, twin));
        let map = session.map.encode();
        session.order_bytes(opcode::MAP_SET, &map);
        for entry in session.volumes.clone() {
            session.order_bytes(opcode::VOLUME_ADD, entry.encode().as_bytes());
        }
        session
    }

    /// The next operation. `answer` is the answer to the previous one.
    pub(crate) fn next(&mut self, answer: &[u8]) -> Op {
        if let Some(asked) = self.asked.take() {
            match answer.first() {
                Some(&event::PAGES) => self.open.push(asked),
                Some(&event::WANTS) => {
                    let bytes = u32::from_le_bytes([answer[5], answer[6], answer[7], answer[8]]);
                    self.open.push(Open { bytes, ..asked });
                }
                _ => {}
            }
        }
        if let Some(op) = self.due.pop_front() {
            return op;
        }
        let blocks: u32 =
            self.open.iter().filter(|open| open.opcode == io::WRITE).map(|open| open.blocks).sum();
        let large = self.open.iter().filter(|open| open.opcode == io::COMPARE).count();
        if self.open.len() >= MOST_OPEN || blocks >= MOST_BLOCKS || large >= MOST_LARGE {
            return self.end_data(large >= MOST_LARGE);
        }
        self.now_ns += u64::from(self.dice.below(300));
        match self.dice.below(100) {
            at if at < self.ends => self.end_data(false),
            0..90 => self.command(),
            90..93 => self.pass_time(),
            93..97 => self.order(),
            97..99 => Op::Move { count: self.dice.below(30), seed: self.dice.roll() },
            _ => Op::State,
        }
    }

    fn end_data(&mut self, large: bool) -> Op {
        let now_ns = self.now_ns;
        if self.open.is_empty() {
            return Op::Tick { now_ns };
        }
        let at = match self.open.iter().position(|open| large && open.opcode == io::COMPARE) {
            Some(at) => at,
            None if self.dice.one_in(2) => 0,
            None => self.dice.index(self.open.len()),
        };
        let Open { token, opcode, blocks, bytes } = self.open.remove(at);
        let failed = self.dice.one_in(40);
        match opcode {
            io::READ => Op::Done { now_ns, token, failed },
            io::DATASET_MANAGEMENT => {
                let count = bytes / 16;
                let bytes = (0..count.min(4)).flat_map(|_| self.range()).collect();
                Op::Data { now_ns, token, failed, bytes }
            }
            _ => {
                let bytes = (0..blocks).map(|_| self.dice.byte()).collect();
                Op::Data { now_ns, token, failed, bytes }
            }
        }
    }

    fn pass_time(&mut self) -> Op {
        let ns = match self.dice.below(60) {
            0..3 => u64::from(self.dice.below(11_000)) * MS,
            3..6 => u64::from(self.dice.below(200)) * MS,
            _ => u64::from(self.dice.below(200_000)),
        };
        self.ends = self.dice.of(&[2, 10, 28]);
        self.now_ns += ns;
        self.due.push_back(Op::Tick { now_ns: self.now_ns });
        if ns > 1000 * MS {
            self.lease_version += 1;
            let sqe = Sqe { cdw12: 60_000.into(), ..vendor(opcode::LEASE_RENEW, 0) };
            let version = self.lease_version;
            self.admin(DAEMON, versioned(sqe, version, 1), Vec::new());
        }
        self.due.pop_front().expect("just put in")
    }

    /// A volume that probably exists, or any.
    fn volume(&mut self) -> VolumeEntry {
        let at = self.dice.index(self.volumes.len());
        self.volumes[at].clone()
    }

    fn io(&mut self, opcode: u8) -> Io {
        let volume = self.volume();
        let who = match self.dice.below(10) {
            0..7 => volume.writer.map_or(7, ClientId::get),
            7 => 8,
            _ => self.dice.of(&CLIENTS),
        };
        let blocks = self.dice.of(&[1u32, 1, 1, 2, 4, 16]);
        let near = u32::try_from(volume.capacity_blocks.min(1 << 31)).expect("31 bits");
        let vba = match self.dice.below(40) {
            0 => near.wrapping_sub(self.dice.below(4)),
            1 => self.dice.below(near),
            _ => self.dice.below(96) / blocks * blocks,
        };
        let wire = self.map.wire_epoch();
        let map_epoch = if self.dice.one_in(25) {
            wire.wrapping_add(self.dice.of(&[1, u32::MAX, 1 << 31, (1 << 31) - 1, 5]))
        } else {
            wire
        };
        let lease_epoch = volume.lease_epoch.wrapping_sub(u32::from(self.dice.one_in(30)));
        let from = if !self.bound {
            0
        } else if self.dice.one_in(30) {
            self.dice.of(&[1, 7, 8, 9, 0xFFFE, DAEMON])
        } else {
            who
        };
        let vid = if self.dice.one_in(40) { 0x1234 } else { volume.vid.get() };
        Io { opcode, from, client: who, vid, vba, blocks, map_epoch, lease_epoch }
    }

    fn range(&mut self) -> Vec<u8> {
        let io = self.io(io::DATASET_MANAGEMENT);
        io.range()
    }

    fn command(&mut self) -> Op {
        let opcode = match self.dice.below(20) {
            0..8 => io::WRITE,
            8..15 => io::READ,
            15..17 => io::WRITE_ZEROES,
            17 => io::COMPARE,
            18 => io::DATASET_MANAGEMENT,
            _ => io::FLUSH,
        };
        let io = self.io(opcode);
        self.sequence += 1;
        let sequence = match self.dice.below(10) {
            0 => self.sequence.saturating_sub(u64::from(self.dice.below(60))),
            1 => self.sequence.saturating_sub(u64::from(self.dice.below(6000))),
            _ => self.sequence,
        };
        let mut sqe = io.sqe(sequence);
        if self.dice.one_in(200) {
            let bytes: Vec<u8> = (0..8).flat_map(|_| self.dice.roll().to_le_bytes()).collect();
            sqe = Sqe::read_from_bytes(&bytes).expect("64 bytes");
        } else if self.dice.one_in(12) {
            for _ in 0..=self.dice.below(2) {
                let bit = self.dice.index(512);
                sqe.as_mut_bytes()[bit / 8] ^= 1 << (bit % 8);
            }
        }
        // A script sends no Fabrics commands. A queue without a client is played by one of a few clients.
        if sqe.opcode == 0x7F {
            sqe.opcode = io::READ;
        }
        // The client of ranges is not in the command, so there a queue of no client has no player.
        if !self.bound && sqe.opcode == io::DATASET_MANAGEMENT {
            sqe.opcode = io::READ;
        }
        // A Write Zeroes of many blocks at once makes the firmware wait for room in its journal.
        if sqe.opcode == io::WRITE_ZEROES {
            sqe.cdw12 = (sqe.cdw12.get() & 0xFFFF_00FF).into();
        }
        if !self.bound && !CLIENTS.contains(&u16::try_from(sqe.cdw11.get() & 0xFFFF).expect("16 bits")) {
            sqe.cdw11 = (sqe.cdw11.get() & 0xFFFF_0000 | 7).into();
        }
        self.token += 1;
        let blocks = (sqe.cdw12.get() & 0xFFFF) + 1;
        self.asked = Some(Open { token: self.token, opcode: sqe.opcode, blocks, bytes: 0 });
        Op::Command { now_ns: self.now_ns, client: io.from, token: self.token, sqe }
    }

    fn admin(&mut self, client: u16, sqe: Sqe, data: Vec<u8>) {
        self.token += 1;
        self.due.push_back(Op::Admin { now_ns: self.now_ns, client, token: self.token, sqe, data });
    }

    fn order_bytes(&mut self, code: u8, data: &[u8]) {
        let bytes = u32::try_from(data.len().div_ceil(4) * 4).expect("small");
        self.admin(DAEMON, vendor(code, bytes), data.to_vec());
    }
}

/// An entry of a volume; rates are not limited.
fn drawn_entry(dice: &mut Dice, vid: u16) -> VolumeEntry {
    let writers =
        [ClientId::new(7), ClientId::new(7), ClientId::new(7), ClientId::new(0xFFFE), ClientId::new(1), None];
    let count = dice.of(&[0usize, 1, 2, 5]);
    VolumeEntry {
        capacity_blocks: dice.of(&[90, 100, 512, 1 << 20, (1 << 32) - 1, 1 << 32]),
        replicas: dice.of(&[1u8, 1, 2, 3, 4]),
        chunk_shift: dice.of(&[4u8, 4, 4, 8, 12, 0]),
        factor: dice.roll(),
        any_reader: dice.one_in(4),
        readers: (0..count).map(|_| client(dice.of(&CLIENTS))).collect(),
        writer: dice.of(&writers),
        lease_ms: dice.of(&[60_000u32, 60_000, 10_000, 100, 0]),
        ..entry(vid)
    }
}
