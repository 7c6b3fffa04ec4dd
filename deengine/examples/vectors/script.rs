// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How scripts are written: a clock, tokens, stamps, and commands as hosts and the daemon send them.

use crate::device::device_op;
use crate::file::Script;
use crate::op::{DAEMON, Op};
use gnstor_proto::nvme::{FLAGS_SGL, KeyedSgl, ReadWrite, Sqe, io};
use gnstor_proto::placement::FleetMap;
use gnstor_proto::slba::{ClientId, Slba, Stamp, Vid};
use gnstor_proto::vendor::{Limits, RawEntry, VolumeEntry, opcode};
use zerocopy::IntoBytes;

/// The volume, its writer, a reader, a client that is neither, and the writer's lease epoch.
pub(crate) const VOLUME: u16 = 5;
pub(crate) const WRITER: u16 = 7;
pub(crate) const READER: u16 = 8;
pub(crate) const STRANGER: u16 = 9;
pub(crate) const LEASE: u32 = 3;
pub(crate) const MS: u64 = 1_000_000;
const BLOCK: u32 = 4096;

pub(crate) const VERBS: [u8; 5] =
    [io::READ, io::WRITE, io::COMPARE, io::WRITE_ZEROES, io::DATASET_MANAGEMENT];

pub(crate) fn client(raw: u16) -> ClientId {
    ClientId::new(raw).expect("a client id")
}

pub(crate) fn entry(raw: u16) -> VolumeEntry {
    VolumeEntry {
        vid: Vid::new(raw).expect("a volume id"),
        generation: 1,
        version: 1,
        term: 1,
        deleting: false,
        name: format!("volume {raw}"),
        labels: "a=b\n".into(),
        capacity_blocks: 512,
        replicas: 1,
        chunk_shift: 4,
        factor: 42,
        owner: client(WRITER),
        any_reader: false,
        readers: vec![client(READER)],
        writer: ClientId::new(WRITER),
        unsettled: false,
        lease_epoch: LEASE,
        lease_ms: 10_000,
        request_ids: vec![[raw.to_le_bytes()[0]; 16]],
        limits: Limits::default(),
        salvaged_s: 0,
    }
}

/// Destination and content of a command.
#[derive(Clone, Copy)]
pub(crate) struct Io {
    pub(crate) opcode: u8,
    /// The client that the queue is bound to, and the one that the command names.
    pub(crate) from: u16,
    pub(crate) client: u16,
    pub(crate) vid: u16,
    pub(crate) vba: u32,
    pub(crate) blocks: u32,
    pub(crate) map_epoch: u32,
    pub(crate) lease_epoch: u32,
}

impl Io {
    pub(crate) fn new(opcode: u8, client: u16, vba: u32, blocks: u32) -> Self {
        Self { opcode, from: client, client, vid: VOLUME, vba, blocks, map_epoch: 1, lease_epoch: LEASE }
    }

    fn slba(&self) -> u64 {
        u64::from(self.vid) << 48 | u64::from(self.client) << 32 | u64::from(self.vba)
    }

    pub(crate) fn sqe(&self, sequence: u64) -> Sqe {
        let mut sqe = Sqe { opcode: self.opcode, flags: FLAGS_SGL, nsid: 1.into(), ..Sqe::default() };
        let bytes = if self.opcode == io::DATASET_MANAGEMENT { 16 } else { self.blocks.min(4095) * BLOCK };
        sqe.dptr = KeyedSgl::keyed(0x1000, bytes, 1);
        ReadWrite {
            slba: Slba(self.slba()),
            blocks: self.blocks,
            fua: false,
            map_epoch: self.map_epoch,
            stamp: Stamp { lease_epoch: self.lease_epoch, sequence },
        }
        .encode(&mut sqe);
        if self.opcode == io::DATASET_MANAGEMENT {
            // One range with the attribute "deallocate".
            (sqe.cdw10, sqe.cdw11) = (0.into(), 4.into());
        }
        sqe
    }

    /// The range of a Dataset Management command.
    pub(crate) fn range(&self) -> Vec<u8> {
        [&[0; 4][..], &self.blocks.to_le_bytes(), &self.slba().to_le_bytes()].concat()
    }
}

pub(crate) struct Writing {
    ops: Vec<Op>,
    pub(crate) now_ns: u64,
    pub(crate) token: u32,
    pub(crate) sequence: u64,
    content: u8,
}

impl Writing {
    /// A script without an SSD, for a map.
    pub(crate) fn empty() -> Self {
        Self { ops: Vec::new(), now_ns: 1000, token: 0, sequence: 0, content: 0 }
    }

    /// An SSD of 1,024 blocks without map and volumes.
    pub(crate) fn bare() -> Self {
        Self::sized(1024, 0)
    }

    pub(crate) fn sized(blocks: u64, id: u16) -> Self {
        let mut script = Self::empty();
        script.ops.push(device_op(blocks, id, 4096, false));
        script
    }

    /// As [`Self::bare`], alone in its array, with [`VOLUME`].
    pub(crate) fn new() -> Self {
        Self::bare().with_volume()
    }

    /// As [`Self::new`], with a twin that plays the same commands with PRP.
    pub(crate) fn twins() -> Self {
        let mut script = Self::empty();
        script.ops.push(device_op(1024, 0, 4096, true));
        script.with_volume()
    }

    fn with_volume(self) -> Self {
        let mut script = self;
        script.set_map(&FleetMap::equal(1, 64, 7, 1).expect("a map"));
        script.add(&entry(VOLUME));
        script
    }

    pub(crate) fn finish(mut self, file: impl Into<String>, name: impl Into<String>) -> Script {
        if matches!(self.ops[0], Op::Device { .. }) {
            self.ops.push(Op::State);
        }
        Script { file: file.into(), name: name.into(), ops: self.ops }
    }

    pub(crate) fn push(&mut self, op: Op) {
        self.ops.push(op);
    }

    pub(crate) fn advance(&mut self, ns: u64) {
        self.now_ns += ns;
        self.ops.push(Op::Tick { now_ns: self.now_ns });
    }

    /// Waits so long that every sweep of a small SSD is over.
    pub(crate) fn wait_for_sweeps(&mut self) {
        for _ in 0..8 {
            self.advance(200_000);
        }
    }

    pub(crate) fn send(&mut self, from: u16, sqe: Sqe) -> u32 {
        self.token += 1;
        self.ops.push(Op::Command { now_ns: self.now_ns, client: from, token: self.token, sqe });
        self.token
    }

    /// Sends a command; its data is under way.
    pub(crate) fn begin(&mut self, io: Io) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.send(io.from, io.sqe(self.sequence))
    }

    /// Ends the data of a command; refused commands have none.
    pub(crate) fn end(&mut self, io: Io, token: u32) {
        self.end_as(io, token, false);
    }

    pub(crate) fn end_as(&mut self, io: Io, token: u32, failed: bool) {
        let now_ns = self.now_ns;
        self.content = self.content % 255 + 1;
        let op = match io.opcode {
            io::READ => Op::Done { now_ns, token, failed },
            io::WRITE_ZEROES => return,
            io::DATASET_MANAGEMENT => Op::Data { now_ns, token, failed, bytes: io.range() },
            _ => {
                let blocks = usize::try_from(io.blocks).expect("few");
                Op::Data { now_ns, token, failed, bytes: vec![self.content; blocks] }
            }
        };
        self.ops.push(op);
    }

    /// Sends a command and ends its data.
    pub(crate) fn run(&mut self, io: Io) -> u32 {
        let token = self.begin(io);
        self.end(io, token);
        token
    }

    /// Runs each verb once, as the writer or as the given client.
    pub(crate) fn run_verbs(&mut self, io: Io) {
        for opcode in VERBS {
            self.run(Io { opcode, ..io });
        }
    }

    /// Reads blocks, one by one, as the reader.
    pub(crate) fn look(&mut self, vbas: impl IntoIterator<Item = u32>) {
        for vba in vbas {
            self.run(Io::new(io::READ, READER, vba, 1));
        }
    }

    pub(crate) fn admin(&mut self, from: u16, sqe: Sqe, data: &[u8]) -> u32 {
        self.token += 1;
        let (now_ns, token) = (self.now_ns, self.token);
        self.ops.push(Op::Admin { now_ns, client: from, token, sqe, data: data.to_vec() });
        token
    }

    pub(crate) fn set_map(&mut self, map: &FleetMap) -> u32 {
        self.set_map_bytes(&map.encode())
    }

    pub(crate) fn set_map_bytes(&mut self, bytes: &[u8]) -> u32 {
        let sqe = vendor(opcode::MAP_SET, u32::try_from(bytes.len().div_ceil(4) * 4).expect("small"));
        self.admin(DAEMON, sqe, bytes)
    }

    pub(crate) fn add(&mut self, entry: &VolumeEntry) -> u32 {
        self.send_entry(opcode::VOLUME_ADD, &entry.encode())
    }

    pub(crate) fn chmod(&mut self, entry: &VolumeEntry) -> u32 {
        self.send_entry(opcode::VOLUME_CHMOD, &entry.encode())
    }

    pub(crate) fn send_entry(&mut self, code: u8, raw: &RawEntry) -> u32 {
        self.admin(DAEMON, vendor(code, 4096), raw.as_bytes())
    }

    pub(crate) fn delete(&mut self, vid: u16, generation: u32, version: u64, term: u64) -> u32 {
        let sqe = Sqe {
            cdw12: u32::from(vid).into(),
            cdw13: generation.into(),
            ..vendor(opcode::VOLUME_DELETE, 0)
        };
        self.admin(DAEMON, versioned(sqe, version, term), &[])
    }

    pub(crate) fn renew(&mut self, ms: u32, version: u64, term: u64) -> u32 {
        let sqe = Sqe { cdw12: ms.into(), ..vendor(opcode::LEASE_RENEW, 0) };
        self.admin(DAEMON, versioned(sqe, version, term), &[])
    }

    pub(crate) fn list(&mut self, first: u32, bytes: u32, tombstones: bool) -> u32 {
        let sqe = Sqe {
            cdw12: first.into(),
            cdw13: u32::from(tombstones).into(),
            ..vendor(opcode::VOLUME_LIST, bytes)
        };
        self.admin(DAEMON, sqe, &[])
    }

    pub(crate) fn get_map(&mut self, bytes: u32) -> u32 {
        self.admin(DAEMON, vendor(opcode::MAP_GET, bytes), &[])
    }
}

/// A command of the daemon with `bytes` of data.
pub(crate) fn vendor(code: u8, bytes: u32) -> Sqe {
    Sqe {
        opcode: code,
        flags: FLAGS_SGL,
        nsid: 1.into(),
        dptr: KeyedSgl::keyed(0x2000, bytes, 1),
        cdw10: (bytes / 4).into(),
        ..Sqe::default()
    }
}

fn halves(value: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
}

pub(crate) fn versioned(sqe: Sqe, version: u64, term: u64) -> Sqe {
    let (version, term) = (halves(version), halves(term));
    Sqe { cdw2: version.0.into(), cdw3: version.1.into(), cdw14: term.0.into(), cdw15: term.1.into(), ..sqe }
}

/// Changes an entry's bytes and makes its checksum right again.
pub(crate) fn bent(entry: &VolumeEntry, bend: impl FnOnce(&mut RawEntry)) -> Box<RawEntry> {
    let mut raw = entry.encode();
    bend(&mut raw);
    raw.crc = crc32c::crc32c(&raw.as_bytes()[..4092]).into();
    raw
}
