// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One executor with its queues, as a script reads and writes them.

use super::place::{Memory, Place, to_usize};
use gnstor_base::region::HostRegion;
use gnstor_fabric::device::{Device, Residency};
use gnstor_fabric::hca::abi::*;
use gnstor_fabric::hca::agent::{
    AgentExecutor, AgentHca, DeviceCq, DeviceMr, DeviceQp, Shape, Unordered, idle_client,
};
use gnstor_fabric::hca::soft::{SoftExecutor, SoftMr, SoftQp};
use gnstor_fabric::hca::{Allowance, Down, QpExecutor};
use gnstor_fabric::mlx5::{self, Cqe64, DataSeg};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

pub(crate) const FIRST_QPN: u32 = 0x100;
/// The queue pair with a protection domain of its own.
pub(crate) const FOREIGN_QP: u32 = 1;
const DEADLINE: Duration = Duration::from_secs(60);

// Keys, in the order of registration.
pub(crate) const ALL: u32 = 0x0001;
pub(crate) const FOREIGN: u32 = 0x0102;
pub(crate) const READ_ONLY: u32 = 0x0203;
pub(crate) const STALE: u32 = 0x0304;
/// Opens exactly 64 bytes at `DATA`.
pub(crate) const SMALL: u32 = 0x0405;

// One queue pair's memory. No key covers the part after `QUEUES`. So no message contains addresses, which
// differ between the sides.
pub(crate) const CQ: u64 = 0x1000;
pub(crate) const DBR: u64 = 0x2000;
pub(crate) const CQ_DBR: u64 = 0x2040;
pub(crate) const RECV: u64 = 0x2400;
pub(crate) const UAR: u64 = 0x3000;
pub(crate) const DATA: u64 = 0x4000;
const QUEUES: u64 = 0x8000;
pub(crate) const RQ: u64 = QUEUES;
pub(crate) const SQ: u64 = RQ + 16 * RQ_ENTRIES as u64;
pub(crate) const RQ_ENTRIES: u32 = 16;
pub(crate) const CQ_LOG: u32 = 4;
const ARRAY_BYTES: usize = 64 << 10;

/// Number and form of the queue pairs.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) qps: u32,
    pub(crate) sq_blocks: u32,
    /// Whether an overrun of a completion queue is an error.
    pub(crate) checked_cq: bool,
    /// What waits for a DUMP at the agent. Host memory is always in order.
    pub(crate) unordered: Option<Unordered>,
}

pub(crate) const SMALL_SIZE: Size = Size { qps: 2, sq_blocks: 16, checked_cq: false, unordered: None };

impl Size {
    /// Number of bytes that the keys cover, for all queue pairs together.
    pub(crate) fn keyed(self) -> u64 {
        QUEUES * u64::from(self.qps)
    }

    fn bytes(self) -> u64 {
        self.at(self.qps, QUEUES)
    }

    /// Offset of a byte of queue pair `q`'s memory in the whole memory.
    fn at(self, q: u32, offset: u64) -> u64 {
        match offset.checked_sub(QUEUES) {
            None => u64::from(q) * QUEUES + offset,
            Some(offset) => {
                self.keyed() + u64::from(q) * (SQ - QUEUES + u64::from(self.sq_blocks) * 64) + offset
            }
        }
    }
}

enum Executor {
    Soft(SoftExecutor),
    Agent(Box<(AgentHca, AgentExecutor)>),
}

/// One executor with its queues.
pub(crate) struct Side {
    executor: Executor,
    memory: Memory,
    /// What the script has written: where the memory differs from it, the HCA has.
    script: RefCell<Vec<u8>>,
    /// The SSDs' memory.
    pub(crate) array: Arc<HostRegion>,
    pub(crate) size: Size,
    pub(crate) seen: Vec<Seen>,
}

/// An entry, reduced to what its kind gives a meaning to; addresses are relative to the side's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) kind: u32,
    pub(crate) qpn: u32,
    pub(crate) index: u32,
    pub(crate) flags: u32,
    pub(crate) status: u32,
    pub(crate) bytes: u32,
    pub(crate) sum: u32,
    pub(crate) arg: [u64; 2],
    pub(crate) payload: Vec<u8>,
}

/// Fills in the fields to compare. Other fields stay zero.
fn reduce(e: &UpEntry, base: u64) -> Seen {
    let mut s = Seen { kind: e.kind, qpn: e.qpn, index: e.index, ..Seen::default() };
    let immediate = e.flags & UP_IMMEDIATE != 0;
    match e.kind {
        UP_SEND | UP_SEND_INVAL => {
            s.payload = e.payload[..e.bytes as usize].to_vec();
            (s.flags, s.bytes) = (e.flags, e.bytes);
            s.arg[0] = e.arg[0];
        }
        UP_WRITE | UP_READ => {
            s.payload = e.payload[..if immediate { 16 } else { 8 }].to_vec();
            // A damaged request may use the high half of an address as its remote key, which differs from run
            // to run.
            if s.payload[4..8] == base.to_le_bytes()[4..] {
                s.payload[4..8].fill(0);
            }
            // A work request whose data is all inline has no local memory.
            let local = if e.arg[1] == 0 { 0 } else { e.arg[1].wrapping_sub(base) };
            (s.flags, s.bytes, s.arg) = (e.flags, e.bytes, [e.arg[0], local]);
        }
        UP_NOP | UP_WQE_FLUSH => s.flags = e.flags,
        UP_DUMP => (s.flags, s.bytes) = (e.flags, e.bytes),
        UP_LOCAL_INVAL => (s.flags, s.arg[0]) = (e.flags, e.arg[0]),
        UP_WQE_ERROR => (s.flags, s.status) = (e.flags, e.status),
        UP_DONE => (s.status, s.bytes, s.sum) = (e.status, e.bytes, e.sum),
        UP_RNR => (s.bytes, s.arg) = (e.bytes, e.arg),
        _ => s.status = e.status,
    }
    s
}

impl Side {
    pub(crate) fn new(device: Option<&Arc<Device>>, size: Size) -> Self {
        let array = HostRegion::alloc(ARRAY_BYTES).expect("memory");
        let memory = Memory::new(device, size.bytes());
        let executor = match device {
            Some(device) => Self::agent(device, memory.address(), &array, size),
            None => Self::soft(&memory, &array, size),
        };
        let script = RefCell::new(vec![0; to_usize(size.bytes())]);
        let side = Self { executor, memory, script, array, size, seen: Vec::new() };
        for q in 0..size.qps {
            for i in 0..1 << CQ_LOG {
                side.write(q, CQ + i * 64 + 63, &[0xF1]);
            }
        }
        side
    }

    /// Key, offset of its first byte, length, rights, protection domain; in the order of registration.
    fn regions(size: Size) -> [(u32, u64, u64, u32, u32); 5] {
        let all = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE;
        [
            (ALL, 0, size.keyed(), all, 1),
            (FOREIGN, 0, size.keyed(), all, 2),
            (READ_ONLY, DATA, 4096, ACCESS_REMOTE_READ, 1),
            (STALE, DATA, 4096, all, 1),
            (SMALL, DATA, 64, all, 1),
        ]
    }

    fn pd(q: u32) -> u32 {
        if q == FOREIGN_QP { 2 } else { 1 }
    }

    fn agent(device: &Arc<Device>, memory: u64, array: &Arc<HostRegion>, size: Size) -> Executor {
        let (hca, mut executors) = AgentHca::new(device, Residency::TwoKernels, 1).expect("memory");
        let mut executor = executors.remove(0);
        executor.map(array).expect("maps");
        if let Some(what) = size.unordered {
            hca.set_unordered(what).expect("memory");
        }
        assert_eq!((hca.alloc_pd(), hca.alloc_pd()), (1, 2));
        for (key, at, bytes, access, pd) in Self::regions(size) {
            let mr = DeviceMr { base: memory + at, bytes, access, pd };
            assert_eq!(hca.register(mr).expect("room"), key);
        }
        hca.deregister(STALE).expect("was registered");
        for q in 0..size.qps {
            let at = |offset| memory + size.at(q, offset);
            let record = size.checked_cq.then_some(at(CQ_DBR));
            let qp = DeviceQp {
                sq: (at(SQ), size.sq_blocks),
                rq: (at(RQ), RQ_ENTRIES),
                dbr: at(DBR),
                uar: at(UAR),
                cq: hca
                    .create_cq(DeviceCq { address: at(CQ), log_entries: CQ_LOG, dbr: record, in_host: false })
                    .expect("room"),
                pd: Self::pd(q),
                ring: 0,
            };
            assert_eq!(hca.create_qps(&[qp]).expect("room"), FIRST_QPN + q);
        }
        Executor::Agent(Box::new((hca, executor)))
    }

    fn soft(memory: &Memory, array: &Arc<HostRegion>, size: Size) -> Executor {
        let Memory { place: Place::Host(region), start } = memory else {
            unreachable!("made for this executor")
        };
        let mut executor = SoftExecutor::new();
        executor.add_region(array);
        for (key, at, bytes, access, pd) in Self::regions(size) {
            let range = (start + at, bytes);
            executor.register(SoftMr { memory: Arc::clone(region), range, key, access, pd });
        }
        executor.deregister(STALE);
        for q in 0..size.qps {
            let at = |offset| start + size.at(q, offset);
            executor.create_qp(SoftQp {
                memory: Arc::clone(region),
                qpn: FIRST_QPN + q,
                pd: Self::pd(q),
                sq: (at(SQ), size.sq_blocks - 1),
                rq: (at(RQ), RQ_ENTRIES - 1),
                cq: (at(CQ), CQ_LOG),
                cq_dbr: size.checked_cq.then_some(at(CQ_DBR)),
                dbr: at(DBR),
                uar: at(UAR),
            });
        }
        Executor::Soft(executor)
    }

    /// Offset of a byte of queue pair `q`'s memory in the whole memory.
    pub(crate) fn at(&self, q: u32, offset: u64) -> u64 {
        self.size.at(q, offset)
    }

    /// Address of a byte of queue pair `q`'s memory.
    pub(crate) fn address(&self, q: u32, offset: u64) -> u64 {
        self.memory.address() + self.at(q, offset)
    }

    pub(crate) fn write(&self, q: u32, offset: u64, bytes: &[u8]) {
        let at = self.at(q, offset);
        self.memory.write(at, bytes);
        let at = to_usize(at);
        self.script.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn bytes(&self, q: u32, offset: u64, n: usize) -> Vec<u8> {
        let mut out = vec![0; n];
        self.memory.read(self.at(q, offset), &mut out);
        out
    }

    /// Fills queue pair `q`'s data with a pattern.
    pub(crate) fn fill_data(&self, q: u32) {
        let bytes: Vec<u8> =
            (0..4096u32).map(|i| u8::try_from((i * 7 + i / 251) & 0xFF).expect("a byte")).collect();
        self.write(q, DATA, &bytes);
    }

    /// Writes a work request from block `index` on, around the ring's end.
    pub(crate) fn write_wqe(&self, q: u32, index: u16, bytes: &[u8]) {
        for (block, piece) in (u32::from(index)..).zip(bytes.chunks(64)) {
            let block = u64::from(block & (self.size.sq_blocks - 1));
            self.write(q, SQ + block * 64, piece);
        }
    }

    pub(crate) fn record(&self, q: u32, producer: u16) {
        self.write(q, DBR + 4, U32::from(u32::from(producer)).as_bytes());
    }

    pub(crate) fn doorbell(&self, q: u32, producer: u16) {
        self.doorbell_at(q, mlx5::UAR_DB0, producer);
    }

    /// Rings the register at this offset of the page.
    pub(crate) fn doorbell_at(&self, q: u32, register: u64, producer: u16) {
        self.write(q, UAR + register, &mlx5::doorbell_value(producer, FIRST_QPN + q));
    }

    pub(crate) fn ring(&self, q: u32, producer: u16) {
        self.record(q, producer);
        self.doorbell(q, producer);
    }

    /// Posts receive `i` with this segment and does not ring the doorbell yet.
    pub(crate) fn write_receive(&self, q: u32, i: u16, (bytes, key, address): (u32, u32, u64)) {
        let seg = DataSeg { byte_count: bytes.into(), lkey: key.into(), address: address.into() };
        let slot = u64::from(u32::from(i) & (RQ_ENTRIES - 1));
        self.write(q, RQ + slot * 16, seg.as_bytes());
    }

    /// Posts good receives up to `posted`.
    pub(crate) fn receives(&self, q: u32, from: u16, posted: u16) {
        for i in from..posted {
            self.write_receive(q, i, (16, ALL, self.address(q, RECV + u64::from(i & 15) * 16)));
        }
        self.posted(q, posted);
    }

    pub(crate) fn posted(&self, q: u32, posted: u16) {
        self.write(q, DBR, U32::from(u32::from(posted)).as_bytes());
    }

    /// The owner has taken this many completions.
    pub(crate) fn taken(&self, q: u32, completions: u32) {
        self.write(q, CQ_DBR, U32::from(completions).as_bytes());
    }

    pub(crate) fn push(&mut self, message: Down) {
        match &mut self.executor {
            Executor::Soft(executor) => executor.push(message),
            Executor::Agent(agent) => agent.1.push(message),
        }
    }

    pub(crate) fn send(&mut self, q: u32, mark: u8) {
        self.push(Down::Send {
            qpn: FIRST_QPN + q,
            bytes: [mark; 16],
            due_ns: 0,
            allowance: Allowance::NEVER,
        });
    }

    pub(crate) fn complete(&mut self, q: u32, counter: u16) {
        self.push(Down::Cqe { qpn: FIRST_QPN + q, opcode: 0, syndrome: 0, counter });
    }

    /// Runs the executor until it has no more work.
    pub(crate) fn go(&mut self) {
        let mut new = Vec::new();
        let base = self.memory.address();
        let mut drain = |next: &mut dyn FnMut() -> Option<UpEntry>| {
            while let Some(e) = next() {
                new.push(reduce(&e, base));
            }
        };
        match &mut self.executor {
            Executor::Soft(executor) => drain(&mut || executor.poll_entry()),
            Executor::Agent(agent) => {
                let (hca, executor) = &mut **agent;
                let shape = Shape { blocks: 1, threads: 32, smem_bytes: 0 };
                hca.launch(idle_client(), shape, 0, DEADLINE).expect("the agent ends");
                drain(&mut || executor.poll_entry());
            }
        }
        // What different warps do in one round has no order: the front ends a queue pair each, the responder,
        // the movers.
        new.sort_by_key(|e| match e.kind {
            UP_DONE => (2, e.index),
            UP_RNR | UP_RECV_ERROR | UP_RQ_FLUSH | UP_PONG | UP_CQ_ERROR => (1, 0),
            _ => (0, e.qpn),
        });
        self.seen.append(&mut new);
    }

    pub(crate) fn destroy(&mut self, q: u32) {
        match &mut self.executor {
            Executor::Soft(executor) => executor.destroy_qp(FIRST_QPN + q),
            Executor::Agent(agent) => agent.0.destroy_qps(FIRST_QPN + q, 1, q).expect("exists"),
        }
    }

    pub(crate) fn is_agent(&self) -> bool {
        matches!(self.executor, Executor::Agent(..))
    }

    pub(crate) fn cqe(&self, q: u32, i: u64) -> Cqe64 {
        Cqe64::read_from_bytes(&self.bytes(q, CQ + i * 64, 64)).expect("64 bytes")
    }

    pub(crate) fn kinds(&self) -> Vec<u32> {
        self.seen.iter().map(|e| e.kind).collect()
    }

    /// The bytes that the HCA has written, with their places.
    pub(crate) fn written(&self) -> Vec<(usize, u8)> {
        let script = self.script.borrow();
        let now = self.bytes(0, 0, script.len());
        (0..).zip(now).filter(|(at, byte)| script[*at] != *byte).collect()
    }

    pub(crate) fn array_bytes(&self) -> Vec<u8> {
        let mut out = vec![0; self.array.len()];
        self.array.read(0, &mut out);
        out
    }
}
