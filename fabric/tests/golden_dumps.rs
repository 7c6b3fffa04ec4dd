// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The same queue dumps through both halves of the HCA: the Rust executor and the agent's device code on the CPU.
//!
//! A script writes queues, doorbells and descriptors into one side; [`both`] plays it on two sides with the same keys
//! and numbers, demands the same entries and the same completion queue from them, and returns them for the script's own
//! expectations.
#![expect(unsafe_code, reason = "an entry point for a kernel that ends at once")]

use gnstor_fabric::device::{Choice, Device, Kernel, Residency};
use gnstor_fabric::hca::abi::*;
use gnstor_fabric::hca::agent::{AgentHalf, AgentHca, ClientKernel, DeviceMr, DeviceQp, Shape};
use gnstor_fabric::hca::soft::{SoftHalf, SoftMr, SoftQp};
use gnstor_fabric::hca::{Down, Half};
use gnstor_fabric::mlx5::{self, CE_CQ_UPDATE, Cqe64, CtrlSeg, DataSeg, INLINE_FLAG, RaddrSeg, opcode, syndrome};
use gnstor_fabric::region::HostRegion;
use gnstor_proto::checksum::block_sum;
use proptest::prelude::*;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

const FIRST_QPN: u32 = 0x100;
/// The queue pair whose protection domain is not the others'.
const FOREIGN_QP: u32 = 1;

// Keys, in the order of registration.
const ALL: u32 = 0x0001;
const FOREIGN: u32 = 0x0102;
const READ_ONLY: u32 = 0x0203;
const STALE: u32 = 0x0304;
/// Opens exactly 64 bytes at `DATA`.
const SMALL: u32 = 0x0405;

// One queue pair's memory.
const RQ: u64 = 0x0000;
const CQ: u64 = 0x1000;
const DBR: u64 = 0x2000;
const RECV: u64 = 0x2400;
const UAR: u64 = 0x3000;
const DATA: u64 = 0x4000;
const SQ: u64 = 0x8000;
const RQ_ENTRIES: u32 = 16;
const CQ_LOG: u32 = 4;
const ARRAY_BYTES: usize = 64 << 10;

#[derive(Clone, Copy)]
struct Size {
    qps: u32,
    sq_blocks: u32,
}
const SMALL_SIZE: Size = Size { qps: 2, sq_blocks: 16 };

impl Size {
    fn stride(self) -> u64 {
        SQ + u64::from(self.sq_blocks) * 64
    }
}

#[expect(clippy::large_enum_variant, reason = "one at a time")]
enum Executor {
    Soft(SoftHalf),
    Agent(AgentHca, AgentHalf),
}

struct Side {
    executor: Executor,
    memory: Arc<HostRegion>,
    array: Arc<HostRegion>,
    size: Size,
    seen: Vec<Seen>,
}

/// An entry, reduced to what its kind gives a meaning to; addresses are relative to the side's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    kind: u32,
    qpn: u32,
    index: u32,
    flags: u32,
    status: u32,
    bytes: u32,
    sum: u32,
    arg: [u64; 2],
    payload: Vec<u8>,
}

/// Fills in the fields that are compared; the other ones stay zero.
fn reduce(e: &UpEntry, base: u64) -> Seen {
    let mut s = Seen { kind: e.kind, qpn: e.qpn, index: e.index, ..Seen::default() };
    match e.kind {
        UP_SEND => {
            s.payload = e.payload[..e.bytes as usize].to_vec();
            (s.flags, s.bytes) = (e.flags, e.bytes);
        }
        UP_WRITE | UP_READ => {
            s.payload = e.payload[..8].to_vec();
            (s.flags, s.bytes, s.arg) = (e.flags, e.bytes, [e.arg[0], e.arg[1].wrapping_sub(base)]);
        }
        UP_NOP | UP_WQE_FLUSH => s.flags = e.flags,
        UP_WQE_ERROR => (s.flags, s.status) = (e.flags, e.status),
        UP_DONE => (s.status, s.bytes, s.sum) = (e.status, e.bytes, e.sum),
        UP_RNR => (s.bytes, s.arg) = (e.bytes, e.arg),
        _ => s.status = e.status,
    }
    s
}

unsafe extern "C" fn ends_at_once(_: *mut c_void) {}

/// A client that does nothing: the agent beside it ends when it has done all that lies in its queues and rings.
fn nothing() -> ClientKernel {
    let kernel = Kernel { name: "nothing", image: &[], host: ends_at_once };
    ClientKernel { beside_agent: kernel, one_grid: kernel }
}

impl Side {
    fn new(agent: bool, size: Size, memory: Arc<HostRegion>, array: Arc<HostRegion>) -> Self {
        let executor = if agent { Self::agent(&memory, &array, size) } else { Self::soft(&memory, &array, size) };
        let side = Self { executor, memory, array, size, seen: Vec::new() };
        for q in 0..size.qps {
            for i in 0..1 << CQ_LOG {
                side.memory.fill(side.at(q, CQ) + i * 64 + 63, 1, 0xF1);
            }
        }
        side
    }

    /// Key, offset of its first byte, length, rights, protection domain; in the order of registration.
    fn regions(size: Size) -> [(u32, u64, u64, u32, u32); 5] {
        let all = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE;
        let bytes = size.stride() * u64::from(size.qps);
        [
            (ALL, 0, bytes, all, 1),
            (FOREIGN, 0, bytes, all, 2),
            (READ_ONLY, DATA, 4096, ACCESS_REMOTE_READ, 1),
            (STALE, DATA, 4096, all, 1),
            (SMALL, DATA, 64, all, 1),
        ]
    }

    fn pd(q: u32) -> u32 {
        if q == FOREIGN_QP { 2 } else { 1 }
    }

    fn agent(memory: &Arc<HostRegion>, array: &Arc<HostRegion>, size: Size) -> Executor {
        let device = Device::open(Choice::Host).expect("the CPU is always there");
        let (hca, mut halves) = AgentHca::new(&device, Residency::TwoKernels, 1).expect("memory");
        let mut half = halves.remove(0);
        half.add_region(array).expect("maps");
        assert_eq!((hca.alloc_pd(), hca.alloc_pd()), (1, 2));
        for (key, at, bytes, access, pd) in Self::regions(size) {
            let mr = DeviceMr { base: memory.address() + at, bytes, access, pd };
            assert_eq!(hca.register(mr).expect("room"), key);
        }
        hca.deregister(STALE).expect("was registered");
        for q in 0..size.qps {
            let base = memory.address() + u64::from(q) * size.stride();
            let cq = hca.create_cq(base + CQ, CQ_LOG).expect("room");
            let qp = DeviceQp {
                sq: (base + SQ, size.sq_blocks),
                rq: (base + RQ, RQ_ENTRIES),
                dbr: base + DBR,
                uar: base + UAR,
                cq,
                pd: Self::pd(q),
                ring: 0,
            };
            assert_eq!(hca.create_qps(&[qp]).expect("room"), FIRST_QPN + q);
        }
        Executor::Agent(hca, half)
    }

    fn soft(memory: &Arc<HostRegion>, array: &Arc<HostRegion>, size: Size) -> Executor {
        let mut half = SoftHalf::new();
        half.add_region(Arc::clone(array));
        for (key, at, bytes, access, pd) in Self::regions(size) {
            half.register(SoftMr { memory: Arc::clone(memory), range: (at, bytes), key, access, pd });
        }
        half.deregister(STALE);
        for q in 0..size.qps {
            let base = u64::from(q) * size.stride();
            half.create_qp(SoftQp {
                memory: Arc::clone(memory),
                qpn: FIRST_QPN + q,
                pd: Self::pd(q),
                sq: (base + SQ, size.sq_blocks - 1),
                rq: (base + RQ, RQ_ENTRIES - 1),
                cq: (base + CQ, CQ_LOG),
                dbr: base + DBR,
                uar: base + UAR,
            });
        }
        Executor::Soft(half)
    }

    fn at(&self, q: u32, offset: u64) -> u64 {
        u64::from(q) * self.size.stride() + offset
    }

    /// Address of a byte of queue pair `q`'s memory.
    fn address(&self, q: u32, offset: u64) -> u64 {
        self.memory.address() + self.at(q, offset)
    }

    /// Writes a work request from block `index` on, around the ring's end.
    fn write_wqe(&self, q: u32, index: u16, bytes: &[u8]) {
        for (block, piece) in (u32::from(index)..).zip(bytes.chunks(64)) {
            let block = u64::from(block & (self.size.sq_blocks - 1));
            self.memory.write(self.at(q, SQ) + block * 64, piece);
        }
    }

    fn record(&self, q: u32, producer: u16) {
        self.memory.word32(self.at(q, DBR) + 4).store(u32::from(producer).to_be(), Ordering::Release);
    }

    fn doorbell(&self, q: u32, producer: u16) {
        let value = u64::read_from_bytes(&mlx5::doorbell_value(producer, FIRST_QPN + q)).expect("eight bytes");
        self.memory.words64(self.at(q, UAR) + mlx5::UAR_DB0, 1)[0].store(value, Ordering::Release);
    }

    fn ring(&self, q: u32, producer: u16) {
        self.record(q, producer);
        self.doorbell(q, producer);
    }

    /// Posts receive `i` with this segment and tells nobody yet.
    fn write_receive(&self, q: u32, i: u16, bytes: u32, key: u32, address: u64) {
        let seg = DataSeg { byte_count: bytes.into(), lkey: key.into(), address: address.into() };
        let slot = u64::from(u32::from(i) & (RQ_ENTRIES - 1));
        self.memory.write(self.at(q, RQ) + slot * 16, seg.as_bytes());
    }

    /// Posts good receives up to `posted`.
    fn receives(&self, q: u32, from: u16, posted: u16) {
        for i in from..posted {
            self.write_receive(q, i, 16, ALL, self.address(q, RECV + u64::from(i & 15) * 16));
        }
        self.posted(q, posted);
    }

    fn posted(&self, q: u32, posted: u16) {
        self.memory.word32(self.at(q, DBR)).store(u32::from(posted).to_be(), Ordering::Release);
    }

    fn push(&mut self, message: Down) {
        match &mut self.executor {
            Executor::Soft(half) => half.push(message),
            Executor::Agent(_, half) => half.push(message),
        }
    }

    fn send(&mut self, q: u32, mark: u8) {
        self.push(Down::Send { qpn: FIRST_QPN + q, bytes: [mark; 16], due_ns: 0, late_after_ns: 1 });
    }

    /// Lets the half do all there is to do.
    fn go(&mut self) {
        let mut new = Vec::new();
        let base = self.memory.address();
        let mut drain = |half: &mut dyn Half| {
            while let Some(e) = half.poll() {
                new.push(reduce(&e, base));
            }
        };
        match &mut self.executor {
            Executor::Soft(half) => drain(half),
            Executor::Agent(hca, half) => {
                let shape = Shape { blocks: 1, threads: 32, smem_bytes: 0 };
                hca.launch(nothing(), shape, 0, Duration::from_secs(60)).expect("the agent ends");
                drain(half);
            }
        }
        // Copies of one round end in any order: the movers are several.
        new.sort_by_key(|e| if e.kind == UP_DONE { (1, e.index) } else { (0, 0) });
        self.seen.append(&mut new);
    }

    fn destroy(&mut self, q: u32) {
        match &mut self.executor {
            Executor::Soft(half) => half.destroy_qp(FIRST_QPN + q),
            Executor::Agent(hca, _) => hca.destroy_qps(FIRST_QPN + q, 1, q).expect("exists"),
        }
    }

    fn bytes(&self, q: u32, offset: u64, n: usize) -> Vec<u8> {
        let mut out = vec![0; n];
        self.memory.read(self.at(q, offset), &mut out);
        out
    }

    fn cqe(&self, q: u32, i: u64) -> Cqe64 {
        Cqe64::read_from_bytes(&self.bytes(q, CQ + i * 64, 64)).expect("64 bytes")
    }
}

/// What a script left behind on one side.
struct End {
    side: Side,
}

impl std::ops::Deref for End {
    type Target = Side;
    fn deref(&self) -> &Side {
        &self.side
    }
}

/// Plays a script on both sides, in the same memory one after the other, and demands the same from them; returns the
/// agent's.
fn both(size: Size, script: impl Fn(&mut Side)) -> End {
    let bytes = usize::try_from(size.stride() * u64::from(size.qps)).expect("64-bit host");
    let memory = HostRegion::alloc(bytes).expect("memory");
    let array = HostRegion::alloc(ARRAY_BYTES).expect("memory");
    let contents = |region: &HostRegion| {
        let mut out = vec![0; region.len()];
        region.read(0, &mut out);
        out
    };
    let play = |agent| {
        memory.fill(0, memory.len(), 0);
        array.fill(0, array.len(), 0);
        let mut side = Side::new(agent, size, Arc::clone(&memory), Arc::clone(&array));
        script(&mut side);
        (side, contents(&memory), contents(&array))
    };
    let (soft, agent) = (play(false), play(true));
    for (i, (left, right)) in soft.0.seen.iter().zip(&agent.0.seen).enumerate() {
        assert_eq!(left, right, "entry {i}: Rust executor on the left, device code on the right");
    }
    assert_eq!(soft.0.seen.len(), agent.0.seen.len(), "number of entries");
    let different = soft.1.iter().zip(&agent.1).position(|(left, right)| left != right);
    assert_eq!(different, None, "first byte of queues and data that differs");
    assert!(soft.2 == agent.2, "the array's memory differs");
    End { side: agent.0 }
}

fn kinds(end: &End) -> Vec<u32> {
    end.seen.iter().map(|e| e.kind).collect()
}

fn ctrl(op: u8, index: u16, q: u32, ds: u8) -> Vec<u8> {
    CtrlSeg::new(op, index, FIRST_QPN + q, ds, 0).as_bytes().to_vec()
}

fn data(bytes: u32, key: u32, address: u64) -> Vec<u8> {
    DataSeg { byte_count: bytes.into(), lkey: key.into(), address: address.into() }.as_bytes().to_vec()
}

fn inline(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("short") | INLINE_FLAG;
    let mut out = zerocopy::byteorder::big_endian::U32::new(length).as_bytes().to_vec();
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(16), 0);
    out
}

fn raddr(address: u64, key: u32) -> Vec<u8> {
    RaddrSeg { address: address.into(), rkey: key.into(), reserved: 0.into() }.as_bytes().to_vec()
}

/// A SEND of 64 bytes in one segment.
fn plain_send(side: &Side, q: u32, index: u16) -> Vec<u8> {
    [ctrl(opcode::SEND, index, q, 2), data(64, ALL, side.address(q, DATA))].concat()
}

fn fill_data(side: &Side, q: u32) {
    let bytes: Vec<u8> = (0..4096u32).map(|i| u8::try_from((i * 7 + i / 251) & 0xFF).expect("a byte")).collect();
    side.memory.write(side.at(q, DATA), &bytes);
}

// Work requests.

#[test]
fn golden_bytes_of_a_send_are_executed_as_one() {
    let end = both(SMALL_SIZE, |s| {
        fill_data(s, 0);
        #[rustfmt::skip]
        let mut wqe = [
            0x00, 0x00, 0x00, 0x0A,   0x00, 0x01, 0x00, 0x02,   0x00, 0x00, 0x00, 0x08,   0x00, 0x00, 0x00, 0x00,
            0x00, 0x00, 0x00, 0x40,   0x00, 0x00, 0x00, 0x01,   0, 0, 0, 0, 0, 0, 0, 0,
        ];
        wqe[24..].copy_from_slice(zerocopy::byteorder::big_endian::U64::new(s.address(0, DATA)).as_bytes());
        s.write_wqe(0, 0, &wqe);
        s.ring(0, 1);
        s.go();
    });
    assert_eq!(end.seen.len(), 1);
    assert_eq!((end.seen[0].kind, end.seen[0].flags, end.seen[0].qpn), (UP_SEND, UP_SIGNALLED, FIRST_QPN));
    assert_eq!(end.seen[0].payload, end.bytes(0, DATA, 64));
}

#[test]
fn a_send_gathers_its_segments_in_order() {
    let end = both(SMALL_SIZE, |s| {
        fill_data(s, 0);
        let at = |o| s.address(0, DATA + o);
        s.write_wqe(0, 0, &plain_send(s, 0, 0));
        s.write_wqe(0, 1, &[ctrl(opcode::SEND, 1, 0, 3), data(16, ALL, at(100)), data(48, ALL, at(32))].concat());
        let three = [ctrl(opcode::SEND, 2, 0, 4), data(3, ALL, at(5)), data(29, ALL, at(201)), data(32, ALL, at(64))];
        s.write_wqe(0, 2, &three.concat());
        // A SEND may mix inline bytes and memory, and may be empty.
        s.write_wqe(0, 3, &[ctrl(opcode::SEND, 3, 0, 3), inline(b"abcd"), data(5, ALL, at(9))].concat());
        s.write_wqe(0, 4, &ctrl(opcode::SEND, 4, 0, 1));
        s.ring(0, 5);
        s.go();
    });
    let d = end.bytes(0, DATA, 256);
    assert_eq!(kinds(&end), [UP_SEND; 5]);
    assert_eq!(end.seen[1].payload, [&d[100..116], &d[32..80]].concat());
    assert_eq!(end.seen[2].payload, [&d[5..8], &d[201..230], &d[64..96]].concat());
    assert_eq!(end.seen[3].payload, [b"abcd", &d[9..14]].concat());
    assert_eq!(end.seen[4].bytes, 0);
}

#[test]
fn inline_sends_of_two_blocks_wrap_at_the_rings_end() {
    let bytes: Vec<u8> = (1..=64).collect();
    let end = both(SMALL_SIZE, |s| {
        for index in 0..15 {
            s.write_wqe(0, index, &ctrl(opcode::NOP, index, 0, 1));
        }
        s.ring(0, 15);
        s.go();
        // Control and 4 + 64 bytes of inline data are six segments: block 15 and, behind the end, block 0.
        s.write_wqe(0, 15, &[ctrl(opcode::SEND, 15, 0, 6), inline(&bytes)].concat());
        s.write_wqe(0, 17, &[ctrl(opcode::SEND, 17, 0, 4), inline(&bytes[..44])].concat());
        s.ring(0, 18);
        s.go();
    });
    let sends = &end.seen[15..];
    assert_eq!((sends[0].index, sends[0].payload.as_slice()), (15, bytes.as_slice()));
    assert_eq!((sends[1].index, sends[1].payload.as_slice()), (17, &bytes[..44]));
}

#[test]
fn rdma_requests_are_decoded_and_checked() {
    let end = both(SMALL_SIZE, |s| {
        let local = s.address(0, DATA + 256);
        let remote = raddr(0x1122_3344_5566_7788, 0xAABB_CCDD);
        s.write_wqe(0, 0, &[ctrl(opcode::RDMA_WRITE, 0, 0, 3), remote.clone(), data(512, ALL, local)].concat());
        s.write_wqe(0, 1, &[ctrl(opcode::RDMA_READ, 1, 0, 3), remote.clone(), data(4096, ALL, local)].concat());
        // Writing needs no right to the local memory, reading does.
        let read_only = data(16, READ_ONLY, s.address(0, DATA));
        s.write_wqe(0, 2, &[ctrl(opcode::RDMA_WRITE, 2, 0, 3), remote.clone(), read_only.clone()].concat());
        s.write_wqe(0, 3, &[ctrl(opcode::RDMA_READ, 3, 0, 3), remote, read_only].concat());
        s.ring(0, 4);
        s.go();
    });
    assert_eq!(kinds(&end), [UP_WRITE, UP_READ, UP_WRITE, UP_WQE_ERROR]);
    assert_eq!(end.seen[0].arg, [0x1122_3344_5566_7788, end.at(0, DATA + 256)]);
    assert_eq!(end.seen[0].payload, 0xAABB_CCDD_0000_0001u64.as_bytes());
    assert_eq!(end.seen[3].status, u32::from(syndrome::LOCAL_PROTECTION));
}

#[test]
fn only_the_completion_mode_always_is_signalled() {
    let end = both(SMALL_SIZE, |s| {
        for (index, mode) in [(0, 0u8), (1, CE_CQ_UPDATE), (2, 0x04), (3, 0x0C), (4, CE_CQ_UPDATE | 0x42)] {
            s.write_wqe(0, index, CtrlSeg::new(opcode::NOP, index, FIRST_QPN, 1, mode).as_bytes());
        }
        s.ring(0, 5);
        s.go();
    });
    let flags: Vec<u32> = end.seen.iter().map(|e| e.flags).collect();
    assert_eq!(flags, [0, UP_SIGNALLED, 0, 0, UP_SIGNALLED]);
}

/// Posts a faulty request between good ones, and another good one after it; returns the fault's syndrome.
fn fault(wqe: impl Fn(&Side) -> Vec<u8>) -> u8 {
    let end = both(SMALL_SIZE, |s| {
        s.write_wqe(0, 0, &ctrl(opcode::NOP, 0, 0, 1));
        let faulty = wqe(s);
        let blocks = u16::try_from(faulty.len().div_ceil(64)).expect("short");
        s.write_wqe(0, 1, &faulty);
        for index in 1 + blocks..4 + blocks {
            s.write_wqe(0, index, &ctrl(opcode::NOP, index, 0, 1));
        }
        s.ring(0, 3 + blocks);
        s.go();
        s.ring(0, 4 + blocks);
        s.go();
    });
    assert_eq!(kinds(&end), [UP_NOP, UP_WQE_ERROR, UP_WQE_FLUSH, UP_WQE_FLUSH, UP_WQE_FLUSH]);
    let mut indexes: Vec<u32> = end.seen.iter().map(|e| e.index).collect();
    assert!(indexes.is_sorted());
    indexes.dedup();
    assert_eq!(indexes.len(), 5, "everything behind the error is flushed once, in order");
    u8::try_from(end.seen[1].status).expect("a byte")
}

#[test]
fn a_request_that_is_not_what_it_says_is_an_operation_error() {
    let send = |op, index, qpn: u32, ds| {
        move |s: &Side| {
            [CtrlSeg::new(op, index, qpn, ds, 0).as_bytes().to_vec(), data(64, ALL, s.address(0, DATA))].concat()
        }
    };
    let bad = [
        fault(send(opcode::SEND, 2, FIRST_QPN, 2)),
        fault(send(opcode::SEND, 1, FIRST_QPN + 1, 2)),
        fault(send(0x55, 1, FIRST_QPN, 2)),
        fault(send(opcode::SEND, 1, FIRST_QPN, 0)),
        fault(send(opcode::RDMA_WRITE, 1, FIRST_QPN, 2)),
        // Inline data that says it is longer than the request.
        fault(|_| [ctrl(opcode::SEND, 1, 0, 2), inline(&[7; 40])].concat()),
    ];
    assert_eq!(bad, [syndrome::LOCAL_QP_OPERATION; 6]);
}

#[test]
fn a_key_that_does_not_open_the_bytes_is_a_protection_error() {
    let send = |bytes, key, at: u64| {
        move |s: &Side| [ctrl(opcode::SEND, 1, 0, 2), data(bytes, key, s.memory.address().wrapping_add(at))].concat()
    };
    let end_of_memory = SMALL_SIZE.stride() * u64::from(SMALL_SIZE.qps);
    let bad = [
        fault(send(64, 0xDEAD_BEEF, DATA)),
        fault(send(64, ALL ^ 1, DATA)),
        fault(send(64, FOREIGN, DATA)),
        fault(send(64, STALE, DATA)),
        fault(send(64, SMALL, DATA + 1)),
        fault(send(64, SMALL, DATA - 1)),
        fault(send(64, ALL, end_of_memory - 63)),
        fault(send(16, ALL, u64::MAX - 0xFFFF)),
        // Too long and not opened: the key is looked at first.
        fault(send(65, SMALL, DATA)),
    ];
    assert_eq!(bad, [syndrome::LOCAL_PROTECTION; 9]);
}

#[test]
fn a_message_longer_than_a_capsule_is_a_length_error() {
    let bad = [
        fault(|s| [ctrl(opcode::SEND, 1, 0, 2), data(65, ALL, s.address(0, DATA))].concat()),
        fault(|s| {
            [ctrl(opcode::SEND, 1, 0, 3), data(64, ALL, s.address(0, DATA)), data(1, ALL, s.address(0, 0))].concat()
        }),
        fault(|_| [ctrl(opcode::SEND, 1, 0, 6), inline(&[7; 65])].concat()),
    ];
    assert_eq!(bad, [syndrome::LOCAL_LENGTH; 3]);
}

#[test]
fn a_protection_domain_opens_its_own_keys_only() {
    let end = both(SMALL_SIZE, |s| {
        let q = FOREIGN_QP;
        s.write_wqe(q, 0, &[ctrl(opcode::SEND, 0, q, 2), data(64, FOREIGN, s.address(q, DATA))].concat());
        s.write_wqe(q, 1, &[ctrl(opcode::SEND, 1, q, 2), data(64, ALL, s.address(q, DATA))].concat());
        s.ring(q, 2);
        s.go();
    });
    assert_eq!(kinds(&end), [UP_SEND, UP_WQE_ERROR]);
}

#[test]
fn good_requests_before_one_that_is_longer_than_what_was_posted_are_executed() {
    let end = both(SMALL_SIZE, |s| {
        for index in 0..3 {
            s.write_wqe(0, index, &plain_send(s, 0, index));
        }
        s.write_wqe(0, 3, &[ctrl(opcode::SEND, 3, 0, 6), inline(&[7; 64])].concat());
        s.ring(0, 4); // one block short
        s.go();
    });
    assert_eq!(kinds(&end), [UP_SEND, UP_SEND, UP_SEND, UP_WQE_ERROR]);
    assert_eq!(end.seen[3].status, u32::from(syndrome::LOCAL_QP_OPERATION));
}

#[test]
fn a_producer_index_beyond_the_ring_is_an_error_and_no_more() {
    let end = both(SMALL_SIZE, |s| {
        for index in 0..16 {
            s.write_wqe(0, index, &ctrl(opcode::NOP, index, 0, 1));
        }
        s.ring(0, 17);
        s.go();
    });
    assert_eq!(kinds(&end), [UP_WQE_ERROR]);
}

#[test]
fn indexes_wrap_at_65536() {
    let end = both(Size { qps: 1, sq_blocks: 2048 }, |s| {
        for index in 0..2048 {
            s.write_wqe(0, index, &ctrl(opcode::NOP, index, 0, 1));
        }
        let mut producer = 0u16;
        for _ in 0..33 {
            for i in 0..2048 {
                let index = producer.wrapping_add(i);
                s.write_wqe(0, index, &ctrl(opcode::NOP, index, 0, 1));
            }
            producer = producer.wrapping_add(2048);
            s.ring(0, producer);
            s.go();
        }
    });
    assert_eq!(end.seen.len(), 33 * 2048);
    let right = |(i, e): (usize, &Seen)| e.kind == UP_NOP && e.index as usize == i % 65_536;
    assert!(end.seen.iter().enumerate().all(right));
}

#[test]
fn a_request_of_two_blocks_lies_across_index_65535() {
    let end = both(Size { qps: 1, sq_blocks: 2048 }, |s| {
        let mut producer = 0u16;
        for _ in 0..32 {
            let n = if producer == 31 * 2048 { 2047 } else { 2048 };
            for i in 0..n {
                s.write_wqe(0, producer + i, &ctrl(opcode::NOP, producer + i, 0, 1));
            }
            producer += n;
            s.ring(0, producer);
            s.go();
        }
        s.write_wqe(0, 65_535, &[ctrl(opcode::SEND, 65_535, 0, 6), inline(&[9; 64])].concat());
        s.write_wqe(0, 1, &ctrl(opcode::NOP, 1, 0, 1));
        s.ring(0, 2);
        s.go();
    });
    let last = &end.seen[65_535..];
    assert_eq!(last.iter().map(|e| (e.kind, e.index)).collect::<Vec<_>>(), [(UP_SEND, 65_535), (UP_NOP, 1)]);
}

#[test]
fn repeated_early_and_old_doorbells_execute_each_request_once() {
    let end = both(SMALL_SIZE, |s| {
        for index in 0..6 {
            s.write_wqe(0, index, &ctrl(opcode::NOP, index, 0, 1));
        }
        s.record(0, 1); // a record alone rings nothing
        s.go();
        assert!(s.seen.is_empty());
        s.doorbell(0, 3); // newer than the record: it counts
        s.go();
        assert_eq!(s.seen.len(), 3);
        s.doorbell(0, 3);
        s.go();
        s.doorbell(0, 2); // an old one, late
        s.go();
        assert_eq!(s.seen.len(), 3);
        s.record(0, 6); // newer than the doorbell: it counts
        s.doorbell(0, 5);
        s.go();
        s.doorbell(0, 6);
        s.go();
    });
    assert_eq!(end.seen.iter().map(|e| e.index).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
}

// What arrives.

#[test]
fn inbound_sends_consume_receives_in_order() {
    let end = both(SMALL_SIZE, |s| {
        s.receives(0, 0, 8);
        for mark in 1..=8 {
            s.send(0, mark | 0x80); // bit 63 of both words: it travels apart
        }
        s.go();
    });
    assert!(end.seen.is_empty());
    for i in 0..8u16 {
        let cqe = end.cqe(0, i.into());
        assert_eq!((cqe.opcode(), cqe.wqe_counter.get(), cqe.byte_count.get()), (2, i, 16), "completion {i}");
        assert_eq!((cqe.sop_qpn.get(), cqe.op_own & 1), (FIRST_QPN, 0));
        let mark = u8::try_from(i + 1).expect("small") | 0x80;
        assert_eq!(end.bytes(0, RECV + u64::from(i) * 16, 16), [mark; 16], "message {i}");
    }
    assert_eq!(end.cqe(0, 8).op_own, 0xF1, "no further completion");
}

#[test]
fn a_send_without_a_receive_comes_back_whole_and_consumes_nothing() {
    let end = both(SMALL_SIZE, |s| {
        s.receives(0, 0, 1);
        s.send(0, 1);
        s.send(0, 0xF2);
        s.go();
        s.receives(0, 1, 2);
        s.send(0, 3);
        s.go();
        s.posted(0, 2 + 17); // more than the ring holds: as good as none
        s.send(0, 4);
        s.go();
    });
    assert_eq!(kinds(&end), [UP_RNR, UP_RNR]);
    assert_eq!((end.seen[0].index, end.seen[0].arg), (1, [0xF2F2_F2F2_F2F2_F2F2; 2]));
    assert_eq!((end.cqe(0, 1).wqe_counter.get(), end.bytes(0, RECV + 16, 1)), (1, vec![3]));
}

#[test]
fn a_faulty_receive_breaks_the_queue_pair_and_takes_nothing_more() {
    for (bytes, key, status) in [
        (15, ALL, syndrome::LOCAL_LENGTH),
        (16, STALE, syndrome::LOCAL_PROTECTION),
        (16, READ_ONLY, syndrome::LOCAL_PROTECTION),
        (16, FOREIGN, syndrome::LOCAL_PROTECTION),
    ] {
        let end = both(SMALL_SIZE, |s| {
            s.receives(0, 0, 4);
            s.write_receive(0, 1, bytes, key, s.address(0, DATA));
            s.send(0, 1);
            s.send(0, 2);
            s.send(0, 3);
            s.go();
            s.write_wqe(0, 0, &plain_send(s, 0, 0));
            s.ring(0, 1);
            s.go();
            s.push(Down::QpError { qpn: FIRST_QPN });
            s.go();
        });
        assert_eq!(kinds(&end), [UP_RECV_ERROR, UP_WQE_FLUSH, UP_RQ_FLUSH]);
        assert_eq!((end.seen[0].index, end.seen[0].status), (1, status.into()));
        assert_eq!((end.seen[2].index, end.seen[2].status), (2, 4), "receives 2 and 3 are left to flush");
        assert_eq!((end.cqe(0, 0).op_own, end.cqe(0, 1).op_own), (0x20, 0xF1));
    }
}

#[test]
fn the_owner_bit_turns_with_each_pass_of_the_completion_queue() {
    let end = both(SMALL_SIZE, |s| {
        for pass in 0..3u16 {
            for i in 0..16 {
                s.push(Down::Cqe { qpn: FIRST_QPN, opcode: 0, syndrome: 0, counter: pass * 16 + i });
            }
            s.go();
            for i in 0..16 {
                let cqe = s.cqe(0, i);
                assert_eq!(cqe.op_own, u8::try_from(pass & 1).expect("a bit"), "pass {pass}");
                assert_eq!(u64::from(cqe.wqe_counter.get()), u64::from(pass) * 16 + i, "completions in order");
                assert!(Cqe64::is_valid(cqe.op_own, u32::from(pass) * 16, CQ_LOG));
            }
        }
        s.push(Down::Cqe { qpn: FIRST_QPN, opcode: 13, syndrome: syndrome::FLUSH, counter: 0xFFFE });
        s.go();
    });
    let cqe = end.cqe(0, 0);
    assert_eq!((cqe.op_own, cqe.syndrome(), cqe.wqe_counter.get()), (0xD1, syndrome::FLUSH, 0xFFFE));
}

#[test]
fn sends_errors_and_completions_of_one_queue_pair_keep_their_order() {
    let end = both(SMALL_SIZE, |s| {
        s.receives(0, 0, 3);
        s.send(0, 1);
        s.push(Down::Cqe { qpn: FIRST_QPN, opcode: 0, syndrome: 0, counter: 7 });
        s.send(0, 2);
        s.push(Down::QpError { qpn: FIRST_QPN });
        s.send(0, 3);
        for counter in 8..12 {
            s.push(Down::Cqe { qpn: FIRST_QPN, opcode: 13, syndrome: syndrome::FLUSH, counter });
        }
        s.go();
    });
    assert_eq!(kinds(&end), [UP_RQ_FLUSH]);
    assert_eq!((end.seen[0].index, end.seen[0].status), (2, 3));
    let order: Vec<(u8, u16)> = (0..7).map(|i| (end.cqe(0, i).opcode(), end.cqe(0, i).wqe_counter.get())).collect();
    assert_eq!(order, [(2, 0), (0, 7), (2, 1), (13, 8), (13, 9), (13, 10), (13, 11)]);
}

#[test]
fn messages_for_a_queue_pair_that_is_gone_change_nothing() {
    let end = both(SMALL_SIZE, |s| {
        s.destroy(0); // not the last one, so that its number is still within the agent's table
        let qpn = FIRST_QPN;
        s.send(0, 1);
        s.push(Down::QpError { qpn });
        s.push(Down::Cqe { qpn, opcode: 0, syndrome: 0, counter: 0 });
        let local = s.array.slice(0, 4096);
        s.push(Down::FromOwner { qpn, local, address: s.address(0, DATA), key: ALL, tag: 9 });
        s.push(Down::Ping { tag: 5 });
        s.go();
    });
    assert_eq!(kinds(&end), [UP_PONG, UP_DONE]);
    assert_eq!(end.seen[1].status, COPY_BAD_KEY);
    assert_eq!((end.cqe(0, 0).op_own, end.cqe(1, 0).op_own), (0xF1, 0xF1));
}

// Copies.

#[test]
fn copies_with_the_right_key_move_the_bytes_and_their_sum() {
    let end = both(SMALL_SIZE, |s| {
        fill_data(s, 0);
        let (qpn, key) = (FIRST_QPN, ALL);
        let to = s.array.slice(8192, 4096);
        s.push(Down::FromOwner { qpn, local: to, address: s.address(0, DATA), key, tag: 1 });
        s.go();
        let sum = Some(s.seen[0].sum);
        s.push(Down::ToOwner { qpn, local: to, address: s.address(0, DATA + 8192), key, tag: 2, sum });
        s.push(Down::ToOwner { qpn, local: to, address: s.address(0, DATA + 4096), key, tag: 3, sum: None });
        s.go();
    });
    let block = end.bytes(0, DATA, 4096);
    assert!(end.seen.iter().all(|e| e.status == COPY_OK && e.bytes == 4096 && e.sum == block_sum(&block)));
    assert_eq!((end.bytes(0, DATA + 8192, 4096), end.bytes(0, DATA + 4096, 4096)), (block.clone(), block));
}

#[test]
fn only_whole_blocks_have_a_sum_whatever_their_alignment() {
    let end = both(SMALL_SIZE, |s| {
        fill_data(s, 0);
        s.memory.write(s.at(0, DATA + 4096), &[0x5A; 4096]);
        let (qpn, key) = (FIRST_QPN, ALL);
        for (tag, (from, to, bytes)) in
            [(0, 0, 512), (0, 4096, 8192), (3, 16_384, 4096), (4, 20_481, 4096), (1, 24_576, 17)]
                .into_iter()
                .enumerate()
        {
            let (tag, local) = (u32::try_from(tag).expect("small"), s.array.slice(to, bytes));
            s.push(Down::FromOwner { qpn, local, address: s.address(0, DATA + from), key, tag });
        }
        s.go();
    });
    let data = end.bytes(0, DATA, 8192);
    let sums: Vec<u32> = end.seen.iter().map(|e| e.sum).collect();
    assert_eq!(sums, [0, 0, block_sum(&data[3..4099]), block_sum(&data[4..4100]), 0]);
}

#[test]
fn copies_with_a_wrong_key_move_nothing() {
    let end = both(SMALL_SIZE, |s| {
        fill_data(s, 0);
        s.array.fill(0, 4096, 0xEE);
        let qpn = FIRST_QPN;
        let local = s.array.slice(0, 4096);
        let data = s.address(0, DATA);
        let end_of_memory = s.memory.address() + SMALL_SIZE.stride() * 2;
        for (tag, (address, key)) in [
            (data, 0xDEAD_BEEF),
            (data, FOREIGN),
            (data, STALE),
            (data, SMALL),
            (data, READ_ONLY),
            (end_of_memory - 4095, ALL),
            (data | 1 << 63, ALL),
        ]
        .into_iter()
        .enumerate()
        {
            let tag = u32::try_from(tag).expect("small");
            s.push(Down::ToOwner { qpn, local, address, key, tag, sum: None });
        }
        s.go();
        // The key that opens it for reading only does so.
        s.push(Down::FromOwner { qpn, local: s.array.slice(4096, 4096), address: data, key: READ_ONLY, tag: 20 });
        s.go();
    });
    assert_eq!(end.seen.iter().map(|e| e.status).collect::<Vec<_>>(), [1, 1, 1, 1, 1, 1, 1, COPY_OK]);
    assert_ne!(end.bytes(0, DATA, 64), [0xEE; 64]);
}

#[test]
fn a_block_without_its_sum_is_reported() {
    let end = both(SMALL_SIZE, |s| {
        let (qpn, key, address) = (FIRST_QPN, ALL, s.address(0, DATA));
        s.array.fill(0, 4096, 0x77);
        let right = block_sum(&[0x77; 4096]);
        for (tag, sum) in [(1, right), (2, right ^ 1)] {
            s.push(Down::ToOwner { qpn, local: s.array.slice(0, 4096), address, key, tag, sum: Some(sum) });
        }
        // What is not one block has no sum: asking for one is asking for what is not so.
        s.push(Down::ToOwner { qpn, local: s.array.slice(0, 512), address, key, tag: 3, sum: Some(0) });
        s.go();
    });
    assert_eq!(end.seen.iter().map(|e| e.status).collect::<Vec<_>>(), [COPY_OK, COPY_BAD_SUM, COPY_BAD_SUM]);
}

#[test]
fn a_queue_pair_in_error_opens_no_memory() {
    let end = both(SMALL_SIZE, |s| {
        let (qpn, local) = (FIRST_QPN, s.array.slice(0, 4096));
        s.push(Down::QpError { qpn });
        s.go();
        s.push(Down::FromOwner { qpn, local, address: s.address(0, DATA), key: ALL, tag: 1 });
        s.go();
    });
    assert_eq!((kinds(&end), end.seen[1].status), (vec![UP_RQ_FLUSH, UP_DONE], COPY_BAD_KEY));
}

// Damaged requests.

/// Each damaged request gets a queue pair of its own, all in one run.
fn damaged(requests: &[impl Fn(&Side, u32) -> Vec<u8>]) {
    for requests in requests.chunks(128) {
        let qps = u32::try_from(requests.len()).expect("few");
        both(Size { qps, sq_blocks: 4 }, |s| {
            for (q, request) in (0..).zip(requests) {
                s.write_wqe(q, 0, &request(s, q));
                s.write_wqe(q, 1, &ctrl(opcode::NOP, 1, q, 1));
                s.write_wqe(q, 2, &ctrl(opcode::NOP, 2, q, 1));
                s.ring(q, 3);
            }
            s.go();
        });
    }
}

fn shape(s: &Side, q: u32, which: usize) -> Vec<u8> {
    let key = if q == FOREIGN_QP { FOREIGN } else { ALL };
    match which {
        0 => [ctrl(opcode::SEND, 0, q, 2), data(64, key, s.address(q, DATA))].concat(),
        1 => [ctrl(opcode::SEND, 0, q, 4), inline(&[0x3C; 44])].concat(),
        2 => [ctrl(opcode::RDMA_READ, 0, q, 3), raddr(0x1000, 7), data(4096, key, s.address(q, DATA))].concat(),
        _ => [ctrl(opcode::SEND, 0, q, 3), data(32, key, s.address(q, DATA)), data(32, key, s.address(q, SQ))].concat(),
    }
}

#[test]
fn any_flipped_bit_of_a_request_means_the_same_to_both_halves() {
    for which in 0..4 {
        let flips: Vec<_> = (0..256usize)
            .map(|bit| {
                move |s: &Side, q: u32| {
                    let mut wqe = shape(s, q, which);
                    wqe[bit / 8] ^= 1 << (bit % 8);
                    wqe
                }
            })
            .collect();
        damaged(&flips);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn damaged_bytes_of_a_request_mean_the_same_to_both_halves(
        damage in proptest::collection::vec((0usize..4, proptest::collection::vec((0usize..48, any::<u8>()), 1..4)), 32)
    ) {
        let requests: Vec<_> = damage
            .into_iter()
            .map(|(which, bytes)| {
                move |s: &Side, q: u32| {
                    let mut wqe = shape(s, q, which);
                    wqe.resize(64, 0);
                    for (at, value) in &bytes {
                        wqe[*at] = *value;
                    }
                    wqe
                }
            })
            .collect();
        damaged(&requests);
    }
}
