// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data and response handed to an HCA in device memory together: both arrive, or neither does.

mod due;

use gnstor_base::region::HostRegion;
use gnstor_base::testing::deadline;
use gnstor_fabric::device::{Choice, Device, Residency};
use gnstor_fabric::hca::abi::*;
use gnstor_fabric::hca::agent::{
    AgentExecutor, AgentHca, DeviceCq, DeviceMr, DeviceQp, Shape, Unordered, idle_client,
};
use gnstor_fabric::hca::{Allowance, Down, Operation, Part, QpExecutor, Response, Up, WorkRequest};
use gnstor_fabric::mlx5::{self, Cqe64, CtrlSeg, DataSeg, opcode};
use gnstor_proto::checksum::block_sum;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::U32;

const LIMIT: Duration = Duration::from_secs(20);
const QPN: u32 = 0x100;
const BLOCK: u32 = 4096;
const BYTES: usize = BLOCK as usize;
/// Offset in the owner's memory.
const CQ: u64 = 0x10_0000;
const SQ: u64 = CQ + 0x8000;
const RQ: u64 = CQ + 0x9000;
const DBR: u64 = CQ + 0x2800;
const UAR: u64 = CQ + 0x3000;
const RECEIVES: u64 = CQ + 0x4000;
const LOG_CQ: u32 = 7;
/// Places for receives.
const RQ_ENTRIES: u32 = 128;

struct World {
    hca: AgentHca,
    executor: AgentExecutor,
    owner: Arc<HostRegion>,
    array: Arc<HostRegion>,
    key: u32,
    /// Completions taken.
    taken: u64,
}

impl World {
    /// Bytes of the owner that its key opens.
    const OWNED: u64 = 1 << 21;

    /// A queue pair with `receives` receives posted; block `i` of the array is full of `i + 1`.
    fn new(receives: u16) -> Self {
        let device = Device::open(Choice::Host).expect("the CPU is always there");
        let (hca, mut executors) = AgentHca::new(&device, Residency::TwoKernels, 1).expect("memory");
        let mut executor = executors.remove(0);
        let (owner, array) =
            (HostRegion::alloc(1 << 21).expect("memory"), HostRegion::alloc(1 << 20).expect("memory"));
        executor.map(&array).expect("maps");
        for block in 0..=255u8 {
            array.fill(u64::from(block) * u64::from(BLOCK), BYTES, block.wrapping_add(1));
        }
        let pd = hca.alloc_pd();
        let access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE;
        let key =
            hca.register(DeviceMr { base: owner.address(), bytes: Self::OWNED, access, pd }).expect("room");
        owner.fill(CQ, 64 << LOG_CQ, 0xFF);
        let base = owner.address();
        let cq = hca
            .create_cq(DeviceCq { address: base + CQ, log_entries: LOG_CQ, dbr: None, in_host: true })
            .expect("room");
        let qp = DeviceQp {
            sq: (base + SQ, 16),
            rq: (base + RQ, RQ_ENTRIES),
            dbr: base + DBR,
            uar: base + UAR,
            cq,
            pd,
            ring: 0,
        };
        assert_eq!(hca.create_qps(&[qp]).expect("room"), QPN);
        let world = Self { hca, executor, owner, array, key, taken: 0 };
        for i in 0..u64::from(RQ_ENTRIES) {
            let to = base + RECEIVES + i * 16;
            let segment = DataSeg { byte_count: 16.into(), lkey: key.into(), address: to.into() };
            world.owner.write(RQ + i * 16, segment.as_bytes());
        }
        world.post(receives);
        world
    }

    fn post(&self, receives: u16) {
        self.owner.word32(DBR).store(u32::from(receives).to_be(), Ordering::Release);
    }

    /// Block `from` of the array to block `to` of the owner.
    fn part(&self, from: u8, to: u8) -> Part {
        Part {
            local: self.array.slice(u64::from(from) * u64::from(BLOCK), BLOCK),
            address: self.owner.address() + u64::from(to) * u64::from(BLOCK),
            key: self.key,
            sum: Some(block_sum(&[from.wrapping_add(1); BYTES])),
        }
    }

    fn answer(&mut self, tag: u32, parts: &[Part]) {
        self.answer_at(tag, parts, 0);
    }

    fn answer_at(&mut self, tag: u32, parts: &[Part], due_ns: u64) {
        let mut bytes = [0; 16];
        bytes[8..].copy_from_slice(&(u64::from(tag) | 1 << 63).to_le_bytes());
        self.executor.push_fused(QPN, tag, parts, &Response { bytes, due_ns, allowance: Allowance::NEVER });
    }

    fn launch(&self) {
        self.hca
            .launch(idle_client(), Shape { blocks: 1, threads: 32, smem_bytes: 0 }, 0, LIMIT)
            .expect("ends");
    }

    /// Tags of the responses that have arrived since the last call, in order.
    fn responses(&mut self) -> Vec<u64> {
        let mut tags = Vec::new();
        loop {
            let at = CQ + (self.taken & ((1 << LOG_CQ) - 1)) * 64;
            let mut cqe = Cqe64::default();
            self.owner.read(at, cqe.as_mut_bytes());
            if cqe.op_own >> 4 == 15 || u64::from(cqe.op_own & 1) != self.taken >> LOG_CQ & 1 {
                return tags;
            }
            assert_eq!(cqe.op_own >> 4, 2, "a SEND");
            let receive = u64::from(u32::from(cqe.wqe_counter.get()) & (RQ_ENTRIES - 1));
            let mut response = [0; 16];
            self.owner.read(RECEIVES + receive * 16, &mut response);
            let [first, second]: [u64; 2] = zerocopy::transmute!(response);
            assert_eq!((first, second >> 63), (0, 1));
            tags.push(second & !(1 << 63));
            self.taken += 1;
        }
    }

    /// Time at which the agent saw the ping, on its clock.
    fn pong_ns(&mut self) -> u64 {
        let mut reports = std::iter::from_fn(|| self.executor.poll());
        reports
            .find_map(|up| if let Up::Pong { stamp_ns, .. } = up { Some(stamp_ns) } else { None })
            .expect("a pong")
    }

    /// Reports of the executor about fused responses: tags and status.
    fn outcomes(&mut self) -> Vec<(u32, u32)> {
        let all = std::iter::from_fn(|| self.executor.poll());
        let mut all: Vec<_> = all
            .map(|up| if let Up::FusedDone { tag, status } = up { (tag, status) } else { panic!("{up:?}") })
            .collect();
        all.sort_unstable();
        all
    }

    fn block(&self, at: u8) -> u8 {
        let mut data = [0; BYTES];
        self.owner.read(u64::from(at) * u64::from(BLOCK), &mut data);
        assert!(data.iter().all(|byte| *byte == data[0]));
        data[0]
    }
}

#[test]
fn data_and_response_arrive_together() {
    let _deadline = deadline();
    let mut world = World::new(64);
    world.answer(1, &[world.part(7, 0)]);
    world.answer(2, &[world.part(8, 1), world.part(9, 2), world.part(10, 3)]);
    world.launch();
    assert_eq!(world.outcomes(), [(1, COPY_OK), (2, COPY_OK)]);
    let mut seen = world.responses();
    seen.sort_unstable();
    assert_eq!(seen, [1, 2]);
    assert_eq!([0, 1, 2, 3].map(|at| world.block(at)), [8, 9, 10, 11]);
    let stats = world.hca.stats().expect("contexts");
    assert_eq!((stats.responses, stats.lateness.iter().sum::<u64>()), (2, 2));
}

#[test]
fn blocks_that_the_owner_has_side_by_side_go_two_in_a_descriptor() {
    let _deadline = deadline();
    let mut world = World::new(64);
    // Adjacent except for one, from any source. The last part of each goes alone.
    for (tag, count) in (1..).zip([2, 3, 5, 6, 16]) {
        let parts: Vec<Part> =
            (0..count).map(|i| world.part(200 - 7 * i, if i < 4 { i } else { i + 20 })).collect();
        world.answer(tag, &parts);
        world.launch();
        assert_eq!(
            (world.outcomes(), world.responses()),
            (vec![(tag, COPY_OK)], vec![u64::from(tag)]),
            "{count} blocks"
        );
        for i in 0..count {
            assert_eq!(world.block(if i < 4 { i } else { i + 20 }), 201 - 7 * i, "block {i} of {count}");
        }
        world.owner.fill(0, 64 * BYTES, 0);
    }
    // Each part has its own sum, and the key gives access to both or to none.
    let wrong = |part: Part| Part { sum: Some(1), ..part };
    world.answer(6, &[wrong(world.part(1, 0)), world.part(2, 1), world.part(3, 2)]);
    world.answer(7, &[world.part(1, 0), wrong(world.part(2, 1)), world.part(3, 2)]);
    let edge = World::OWNED - u64::from(BLOCK);
    let beyond = |from, at: u64| Part { address: world.owner.address() + at, ..world.part(from, 0) };
    world.answer(8, &[beyond(8, edge), beyond(9, edge + u64::from(BLOCK)), world.part(3, 2)]);
    world.launch();
    assert_eq!(world.outcomes(), [(6, COPY_BAD_SUM), (7, COPY_BAD_SUM), (8, COPY_BAD_KEY)]);
    assert!(world.responses().is_empty());
    let mut last = [1; BYTES];
    world.owner.read(edge, &mut last);
    assert_eq!(last, [0; BYTES]);
}

#[test]
fn a_part_that_fails_keeps_the_response_back_and_says_why() {
    let _deadline = deadline();
    let mut world = World::new(64);
    let wrong_sum = Part { sum: Some(1), ..world.part(2, 1) };
    let wrong_key = Part { key: world.key ^ 1, ..world.part(3, 2) };
    world.answer(1, &[world.part(1, 0), wrong_sum, world.part(4, 3)]);
    world.answer(2, &[wrong_key]);
    world.answer(3, &[wrong_sum, wrong_key]);
    world.answer(4, &[Part { address: 1 << 63, ..world.part(5, 4) }]);
    world.answer(5, &[world.part(6, 5)]);
    world.launch();
    let outcomes = world.outcomes();
    assert_eq!(
        outcomes,
        [(1, COPY_BAD_SUM), (2, COPY_BAD_KEY), (3, COPY_BAD_KEY), (4, COPY_BAD_KEY), (5, COPY_OK)]
    );
    assert_eq!(world.responses(), [5]);
    assert_eq!([2, 4, 5].map(|at| world.block(at)), [0, 0, 7]);
}

#[test]
fn more_answers_than_there_are_receives_and_slots_all_arrive() {
    let _deadline = deadline();
    let mut world = World::new(0);
    let (mut ended, mut seen, mut sent) = (0, 0, 0u32);
    let all = 3 * u32::try_from(FUSED_SLOTS).expect("small");
    while seen < all {
        while sent < all && sent - seen < 64 && world.executor.can_fuse() {
            let at = u8::try_from(sent % 200).expect("small");
            world.answer(sent, &[world.part(at, at)]);
            sent += 1;
        }
        world.post(u16::try_from(seen & 0xFFFF).expect("16 bits").wrapping_add(64));
        world.launch();
        ended += u32::try_from(world.outcomes().len()).expect("few");
        let new = u32::try_from(world.responses().len()).expect("few");
        assert_ne!(new, 0, "nothing arrives any more");
        seen += new;
    }
    assert_eq!((ended, sent), (all, all));
}

#[test]
fn an_answer_without_a_receive_is_reported_with_its_response() {
    let _deadline = deadline();
    let mut world = World::new(1);
    world.answer(1, &[world.part(1, 0)]);
    world.answer(2, &[world.part(2, 1)]);
    world.launch();
    let mut ended = 0;
    let mut lost = Vec::new();
    for up in std::iter::from_fn(|| world.executor.poll()) {
        match up {
            Up::FusedDone { .. } => ended += 1,
            Up::NoReceive { bytes, .. } => {
                let [_, second]: [u64; 2] = zerocopy::transmute!(bytes);
                lost.push(second & !(1 << 63));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((lost.len(), ended), (1, 2));
    let lost = lost[0];
    let seen = world.responses();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0] + lost, 3, "one arrived, the other came back");
}
