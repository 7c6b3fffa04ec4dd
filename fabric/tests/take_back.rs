// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The transport can take back copies of an HCA in device memory only while the HCA's agent is not resident.
#![expect(unsafe_code, reason = "an entry point for a kernel that does what the test says")]

use gnstor_base::region::HostRegion;
use gnstor_base::testing::deadline;
use gnstor_fabric::device::{Choice, Device, DeviceError, Kernel, Residency};
use gnstor_fabric::hca::abi::*;
use gnstor_fabric::hca::agent::{AgentExecutor, AgentHca, ClientKernel, DeviceCq, DeviceMr, DeviceQp, Shape};
use gnstor_fabric::hca::{Down, QpExecutor, Up};
use std::ffi::c_void;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);
const QPNS: [u32; 2] = [0x100, 0x101];
const BLOCK: u32 = 4096;

struct World {
    hca: AgentHca,
    executor: AgentExecutor,
    owner: Arc<HostRegion>,
    array: Arc<HostRegion>,
    key: u32,
}

/// Argument of the client kernel: the executor, and its answer.
type Beside = Mutex<(AgentExecutor, Option<bool>)>;

/// The head of what a client kernel is launched with.
#[repr(C)]
struct ClientLaunch {
    agent: u64,
    args: u64,
}

/// Asks once for the copies of the first queue pair, while the agent is resident.
unsafe extern "C" fn asks(launch: *mut c_void) {
    // SAFETY: called with the launch's argument; its `args` is null or a `Beside` that outlives the launch.
    let beside = unsafe { ((*launch.cast::<ClientLaunch>().cast_const()).args as *const Beside).as_ref() };
    if let Some(beside) = beside {
        let (executor, said) = &mut *beside.lock().expect("lanes take turns on one thread");
        if said.is_none() {
            *said = Some(executor.take_back(QPNS[0]));
        }
    }
}

impl World {
    fn new() -> Self {
        let device = Device::open(Choice::Host).expect("the CPU is always there");
        let (hca, mut executors) = AgentHca::new(&device, Residency::TwoKernels, 1).expect("memory");
        let mut executor = executors.remove(0);
        let (owner, array) =
            (HostRegion::alloc(1 << 16).expect("memory"), HostRegion::alloc(1 << 16).expect("memory"));
        executor.map(&array).expect("maps");
        owner.fill(0, BLOCK as usize, 0xAB);
        let pd = hca.alloc_pd();
        let access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE;
        let mr = DeviceMr { base: owner.address(), bytes: owner.len() as u64, access, pd };
        let key = hca.register(mr).expect("room");
        for qpn in QPNS {
            let base = owner.address() + 0x4000 + u64::from(qpn & 1) * 0x4000;
            let cq = hca
                .create_cq(DeviceCq { address: base, log_entries: 4, dbr: None, in_host: false })
                .expect("room");
            let qp = DeviceQp {
                sq: (base + 0x1000, 16),
                rq: (base + 0x2000, 16),
                dbr: base + 0x2800,
                uar: base + 0x3000,
                cq,
                pd,
                ring: 0,
            };
            assert_eq!(hca.create_qps(&[qp]).expect("room"), qpn);
        }
        Self { hca, executor, owner, array, key }
    }

    /// Asks for the owner's first block, to block `tag` of the array.
    fn pull(&mut self, qpn: u32, tag: u32) {
        let local = self.array.slice(u64::from(tag) * u64::from(BLOCK), BLOCK);
        self.executor.push(Down::FromOwner { qpn, local, address: self.owner.address(), key: self.key, tag });
    }

    fn launch(&self, args: u64, limit: Duration) -> Result<(), DeviceError> {
        let kernel = Kernel { name: "asks", image: &[], host: asks };
        let client = ClientKernel { beside_agent: kernel, one_grid: kernel };
        self.hca.launch(client, Shape { blocks: 1, threads: 32, smem_bytes: 0 }, args, limit)
    }

    fn has_landed(&self, tag: u32) -> bool {
        let mut byte = [0];
        self.array.read(u64::from(tag) * u64::from(BLOCK), &mut byte);
        byte[0] == 0xAB
    }
}

fn answers(executor: &mut AgentExecutor) -> Vec<(u32, u32)> {
    let mut all: Vec<(u32, u32)> = std::iter::from_fn(|| executor.poll())
        .filter_map(|up| if let Up::Copied(copied) = up { Some((copied.tag, copied.status)) } else { None })
        .collect();
    all.sort_unstable();
    all
}

#[test]
fn a_copy_that_was_taken_back_never_lands_and_the_others_do() {
    let _deadline = deadline();
    let mut world = World::new();
    world.pull(QPNS[0], 1);
    world.pull(QPNS[1], 2);
    assert!(world.executor.take_back(QPNS[0]));
    world.pull(QPNS[1], 3);
    world.launch(0, LIMIT).expect("ends");
    assert_eq!([1, 2, 3].map(|tag| world.has_landed(tag)), [false, true, true]);
    assert_eq!(answers(&mut world.executor), [(1, COPY_BAD_KEY), (2, COPY_OK), (3, COPY_OK)]);
}

#[test]
fn copies_that_have_not_reached_the_ring_are_taken_back_too() {
    let _deadline = deadline();
    const RING: u32 = 2048;
    let mut world = World::new();
    for _ in 0..RING {
        world.executor.push(Down::Ping { tag: 1 });
    }
    world.pull(QPNS[0], 1);
    world.pull(QPNS[1], 2);
    assert!(world.executor.take_back(QPNS[0]));
    world.launch(0, LIMIT).expect("ends");
    assert!(
        std::iter::from_fn(|| world.executor.poll()).all(|up| matches!(up, Up::Pong { .. })),
        "the ring was full"
    );
    world.launch(0, LIMIT).expect("ends");
    assert_eq!([1, 2].map(|tag| world.has_landed(tag)), [false, true]);
    assert_eq!(answers(&mut world.executor), [(2, COPY_OK)]);
}

#[test]
fn nothing_is_taken_back_beside_a_resident_agent() {
    let _deadline = deadline();
    let mut world = World::new();
    world.pull(QPNS[0], 1);
    // The kernel gets the executor, and the world an idle one.
    let (_idle, mut others) = AgentHca::new(world.hca.device(), Residency::TwoKernels, 1).expect("memory");
    let other = others.remove(0);
    let executor = std::mem::replace(&mut world.executor, other);
    let beside: Box<Beside> = Box::new(Mutex::new((executor, None)));
    world.launch(std::ptr::from_ref(&*beside) as u64, LIMIT).expect("ends");
    let (mut executor, said) = beside.into_inner().expect("no panic while held");
    assert_eq!(said, Some(false));
    assert!(world.has_landed(1));
    assert_eq!(answers(&mut executor), [(1, COPY_OK)]);
    assert!(executor.take_back(QPNS[0]), "the launch has ended");
}

#[test]
fn what_the_agent_may_touch_outlives_the_transport() {
    let _deadline = deadline();
    let World { hca, executor, array, .. } = World::new();
    let memory = Arc::downgrade(&array);
    drop((executor, array));
    assert!(memory.upgrade().is_some());
    drop(hca);
    assert!(memory.upgrade().is_none());
}

#[test]
fn after_a_launch_that_was_cut_off_nothing_is_done_twice() {
    let _deadline = deadline();
    let mut world = World::new();
    world.pull(QPNS[0], 1);
    let cut = world.launch(0, Duration::from_nanos(1)).expect_err("no time at all");
    assert!(matches!(cut, DeviceError::Timeout { .. }), "{cut}");
    assert!(world.executor.take_back(QPNS[0]));
    world.array.fill(0, world.array.len(), 0);
    let refused = world.launch(0, LIMIT).expect_err("the rings cannot be trusted");
    assert!(refused.to_string().contains("an earlier launch was cut off"), "{refused}");
    assert!(!world.has_landed(1));
}
