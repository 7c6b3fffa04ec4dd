// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When the invalidation of a key is complete, the key opens no memory. This holds for new copies and for
//! copies under way on any ring.

use gnstor_base::region::HostRegion;
use gnstor_base::testing::deadline;
use gnstor_fabric::device::{Choice, Device, Residency};
use gnstor_fabric::hca::abi::*;
use gnstor_fabric::hca::agent::{AgentExecutor, AgentHca, DeviceCq, DeviceMr, DeviceQp, Shape, idle_client};
use gnstor_fabric::hca::{Down, QpExecutor};
use gnstor_fabric::mlx5::{self, CtrlSeg, opcode};
use std::sync::Arc;
use std::time::Duration;
use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::U32;

const BLOCK: u32 = 4096;
/// Offsets in a queue pair's part of the owner's memory.
const SQ: u64 = 0x1000;
const DBR: u64 = 0x2800;
const UAR: u64 = 0x3000;

struct World {
    hca: AgentHca,
    executors: Vec<AgentExecutor>,
    owner: Arc<HostRegion>,
    array: Arc<HostRegion>,
    key: u32,
    qpns: Vec<u32>,
}

fn part(q: usize) -> u64 {
    0x4000 * (q as u64 + 1)
}

impl World {
    fn new() -> Self {
        Self::with(2)
    }

    /// An HCA with `rings` rings. Each has a queue pair, and all are in one protection domain.
    fn with(rings: usize) -> Self {
        let device = Device::open(Choice::Host).expect("the CPU is always there");
        let (hca, mut executors) = AgentHca::new(&device, Residency::TwoKernels, rings).expect("memory");
        let (owner, array) =
            (HostRegion::alloc(1 << 18).expect("memory"), HostRegion::alloc(1 << 16).expect("memory"));
        for executor in &mut executors {
            executor.map(&array).expect("maps");
        }
        owner.fill(0, BLOCK as usize, 0xAB);
        let pd = hca.alloc_pd();
        let mr = DeviceMr { base: owner.address(), bytes: BLOCK.into(), access: ACCESS_REMOTE_READ, pd };
        let key = hca.register(mr).expect("room");
        let create = |ring: usize| {
            let base = owner.address() + part(ring);
            let cq = hca
                .create_cq(DeviceCq { address: base, log_entries: 4, dbr: None, in_host: false })
                .expect("room");
            let (sq, rq) = ((base + SQ, 16), (base + 0x2000, 16));
            hca.create_qps(&[DeviceQp { sq, rq, dbr: base + DBR, uar: base + UAR, cq, pd, ring }])
                .expect("room")
        };
        let qpns = (0..rings).map(create).collect();
        Self { hca, executors, owner, array, key, qpns }
    }

    fn pull(&mut self, ring: usize, tag: u32) {
        let local = self.array.slice(u64::from(tag) * u64::from(BLOCK), BLOCK);
        let address = self.owner.address();
        self.executors[ring].push(Down::FromOwner {
            qpn: self.qpns[ring],
            local,
            address,
            key: self.key,
            tag,
        });
    }

    fn launch(&self) {
        let shape = Shape { blocks: 1, threads: 32, smem_bytes: 0 };
        self.hca.launch(idle_client(), shape, 0, Duration::from_secs(20)).expect("ends");
    }

    /// What an executor reports. What it has heard itself it acts upon when it is polled again.
    fn heard(&mut self, ring: usize) -> Vec<(u32, u32, u32)> {
        let mut all = Vec::new();
        for _ in 0..2 {
            all.extend(
                std::iter::from_fn(|| self.executors[ring].poll_entry()).map(|e| (e.kind, e.index, e.status)),
            );
        }
        all
    }
}

#[test]
fn a_wait_ends_when_every_ring_has_done_what_it_was_asked_before() {
    let _deadline = deadline();
    let mut w = World::new();
    w.pull(1, 1);
    let wait = w.executors[0].quiesce();
    assert!(!w.executors[0].is_quiescent(wait), "no executor has seen it yet");
    assert_eq!((w.heard(0), w.heard(1)), (vec![], vec![]));
    assert!(!w.executors[0].is_quiescent(wait), "a copy is in the ring");
    w.launch();
    assert!(!w.executors[0].is_quiescent(wait), "its end was not heard");
    assert_eq!(w.heard(1), [(UP_DONE, 1, COPY_OK)]);
    assert!(!w.executors[0].is_quiescent(wait), "the other ring's ping was not heard");
    assert!(w.heard(0).is_empty(), "the transport does not see the executor's pings");
    assert!(w.executors[0].is_quiescent(wait));
}

#[test]
fn a_block_serves_two_pairs_of_rings_where_there_are_many() {
    let _deadline = deadline();
    let mut w = World::with(9);
    assert_eq!((w.executors.len(), w.hca.blocks()), (9, 5));
    for launch in 0..2 {
        (0..9).for_each(|ring| w.pull(ring, 1 + u32::try_from(ring).expect("few")));
        let wait = w.executors[4].quiesce();
        (0..9).for_each(|ring| assert_eq!(w.heard(ring), [], "ring {ring} before launch {launch}"));
        w.launch();
        for ring in (0..9).rev() {
            let tag = 1 + u32::try_from(ring).expect("few");
            assert_eq!(w.heard(ring), [(UP_DONE, tag, COPY_OK)], "ring {ring}, launch {launch}");
        }
        assert!(w.executors[4].is_quiescent(wait));
    }
}

#[test]
fn what_comes_during_a_wait_is_done_after_it() {
    let _deadline = deadline();
    let mut w = World::new();
    w.pull(1, 1);
    let wait = w.executors[0].quiesce();
    assert_eq!((w.heard(0), w.heard(1)), (vec![], vec![]));
    w.pull(1, 2);
    w.launch();
    assert_eq!((w.heard(0), w.heard(1)), (vec![], vec![(UP_DONE, 1, COPY_OK)]));
    assert!(w.executors[0].is_quiescent(wait));
    w.launch();
    assert_eq!(w.heard(1), [(UP_DONE, 2, COPY_OK)]);
}

#[test]
fn waits_that_begin_during_another_end_too() {
    let _deadline = deadline();
    let mut w = World::new();
    let first = w.executors[0].quiesce();
    assert_eq!((w.heard(0), w.heard(1)), (vec![], vec![]));
    let second = w.executors[1].quiesce();
    assert_eq!((w.heard(0), w.heard(1)), (vec![], vec![]));
    assert!(!w.executors[0].is_quiescent(first) && !w.executors[1].is_quiescent(second));
    w.launch();
    assert_eq!((w.heard(0), w.heard(1)), (vec![], vec![]));
    assert!(w.executors[0].is_quiescent(first) && w.executors[1].is_quiescent(second));
}

#[test]
fn an_executor_that_is_gone_keeps_no_other_waiting() {
    let _deadline = deadline();
    let mut w = World::new();
    w.executors.truncate(1);
    let wait = w.executors[0].quiesce();
    assert!(w.heard(0).is_empty());
    w.launch();
    assert!(w.heard(0).is_empty());
    assert!(w.executors[0].is_quiescent(wait));
}

#[test]
fn a_copy_asked_for_after_the_wait_finds_the_key_closed() {
    let _deadline = deadline();
    let mut w = World::new();
    let ctrl = CtrlSeg::new(opcode::LOCAL_INVAL, 0, w.qpns[0], 1, 0).with_imm(w.key);
    w.owner.write(part(0) + SQ, ctrl.as_bytes());
    w.owner.write(part(0) + DBR + 4, U32::new(1).as_bytes());
    w.owner.write(part(0) + UAR + mlx5::UAR_DB0, &mlx5::doorbell_value(1, w.qpns[0]));
    w.launch();
    assert_eq!(w.heard(0), [(UP_LOCAL_INVAL, 0, 0)]);
    w.pull(0, 1);
    w.pull(1, 2);
    w.launch();
    assert_eq!(
        (w.heard(0), w.heard(1)),
        (vec![(UP_DONE, 1, COPY_BAD_KEY)], vec![(UP_DONE, 2, COPY_BAD_KEY)])
    );
}
