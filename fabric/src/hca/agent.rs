// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queue pairs in device memory. [`AgentHca`] is the control path, which fills in the agent's contexts.
//! [`AgentExecutor`] is a transport's end of a pair of rings. A block of the agent serves up to three pairs
//! of rings. Each pair has a transport of its own, and each queue pair belongs to one pair of rings.

mod executor;
mod held;
mod launch;
mod quiesce;
mod rings;
mod tables;

use super::abi::*;
use crate::device::{AgentWords, Device, DeviceError, DeviceMem, Kernel, Launch, Residency};
use gnstor_base::region::HostRegion;
use rings::Ring;
use std::mem::{offset_of, size_of};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

pub use executor::AgentExecutor;
pub use held::Unordered;
pub use launch::{AGENT_THREADS, ClientKernel, ExpectedLaunch, Shape, agent_kernel, idle_client};

/// Most blocks of the agent, each of which takes a multiprocessor of a GPU. With more pairs of rings a
/// block serves two or three, if it has room.
const MAX_BLOCKS: usize = 8;
const MAX_RINGS_A_BLOCK: usize = 3;
/// Most pairs of rings.
pub const MAX_RINGS: usize = MAX_BLOCKS * MAX_RINGS_A_BLOCK;
/// Largest number of queue pairs of an HCA.
pub const MAX_QPS: u32 = 1024;
const MAX_CQS: u32 = 256;
const MAX_MRS: u32 = 1024;
const FIRST_QPN: u32 = 0x100;
/// Number of checks of the GPU, and the time between two, after a failed launch: one second in all. The
/// checks end when its kernels have ended.
const LOOKS: u32 = 1000;
const LOOK: Duration = Duration::from_millis(1);
/// A queue pair in device memory, as create_qp needs it.
#[derive(Clone, Copy, Debug)]
pub struct DeviceQp {
    /// Send queue: address, blocks.
    pub sq: (u64, u32),
    /// Receive queue: address, entries.
    pub rq: (u64, u32),
    /// Doorbell record.
    pub dbr: u64,
    /// Doorbell page.
    pub uar: u64,
    /// Completion queue.
    pub cq: u32,
    /// Protection domain.
    pub pd: u32,
    /// The pair of rings, and agent block, that serves it.
    pub ring: usize,
}

/// A completion queue, as create_cq needs it.
#[derive(Clone, Copy, Debug)]
pub struct DeviceCq {
    /// First entry.
    pub address: u64,
    /// The queue has `1 << log_entries` entries.
    pub log_entries: u32,
    /// Doorbell record with the consumer index. With it an overrun puts queue pairs into error; without it
    /// (the hardware's `oi`) it overwrites what the owner has not taken.
    pub dbr: Option<u64>,
    /// Whether the owner is on the CPU. Then a completion waits until the owner can see everything before it.
    pub in_host: bool,
}

/// A memory region in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMr {
    /// First byte.
    pub base: u64,
    /// Length.
    pub bytes: u64,
    /// `ACCESS_*`.
    pub access: u32,
    /// Protection domain.
    pub pd: u32,
}

#[derive(Debug, Default)]
struct Tables {
    qps: Vec<bool>,
    next_qp: usize,
    cqs: Vec<bool>,
    mrs: Vec<Option<u32>>,
    variants: u32,
    next_pd: u32,
    launches: u32,
    /// Memory in which inbound data waits for a DUMP, and the kinds of messages that wait there.
    held: Option<(DeviceMem, Unordered)>,
}

/// Counters of the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentStats {
    /// Responses delivered to queue owners.
    pub responses: u64,
    /// Number of these that were late: delivered later than the model says.
    pub late: u64,
    /// Number of these whose client waited longer than the model gives the command alone.
    pub client_late: u64,
    /// Reports of ended fused responses: each names up to 32.
    pub reports: u64,
    /// Responses by how long after they were due their owners could see them. Bucket i counts 2^i to
    /// 2^(i+1) - 1 ns; bucket 0 also counts early responses.
    pub lateness: [u64; LATENESS_BUCKETS],
}

/// State that the control path shares with the transports' ends.
#[derive(Debug, Default)]
struct Resident {
    /// Locked while an agent is resident.
    launches: Mutex<Launches>,
    /// Launches that are about to begin ([`AgentHca::expect_launch`]).
    expected: Mutex<u32>,
    /// Memory that the agent may touch. It stays allocated as long as an agent can exist, even after the
    /// transports have ended.
    regions: Mutex<Vec<Arc<HostRegion>>>,
}

#[derive(Debug, Default)]
struct Launches {
    /// A launch failed. On a GPU its kernels may still run.
    failed: bool,
}

/// The control path of an HCA whose queue pairs are in device memory.
#[derive(Debug)]
pub struct AgentHca {
    device: Arc<Device>,
    contexts: DeviceMem,
    rings: Vec<Ring>,
    tables: Mutex<Tables>,
    resident: Arc<Resident>,
    residency: Residency,
}

const PORT_ACTIVE: u32 = 1;
const QPS_AT: usize = 0;
const CQS_AT: usize = QPS_AT + MAX_QPS as usize * size_of::<QpCtx>();
const MRS_AT: usize = CQS_AT + MAX_CQS as usize * size_of::<CqCtx>();
const RINGS_AT: usize = MRS_AT + MAX_MRS as usize * size_of::<MrCtx>();
const ARGS_AT: usize = RINGS_AT + MAX_RINGS * size_of::<RingCtx>();
const CLIENT_AT: usize = ARGS_AT + 128;
/// Whether an agent serves the queues: the state of the HCA's port, for its users.
const PORT_AT: usize = CLIENT_AT + 64;
const FUSED_AT: usize = PORT_AT + 64;
const FUSED_BYTES: usize = FUSED_SLOTS * size_of::<FusedSlot>();
const CONTEXT_BYTES: usize = FUSED_AT + MAX_RINGS * FUSED_BYTES;

fn memory(what: &'static str, bytes: usize, cause: &str) -> DeviceError {
    DeviceError::Memory { bytes, what, cause: cause.into() }
}

/// Largest number of pairs of rings for a block of the agent. If it shares a grid with the client, it has
/// warps for one.
fn most_rings_a_block(device: &Device, residency: Residency) -> usize {
    let has_room = |count: &usize| {
        device.kind() == "host" || device.most_smem_bytes() as usize >= count * AGENT_SMEM_BYTES as usize
    };
    if residency == Residency::OneGrid {
        1
    } else {
        (1..=MAX_RINGS_A_BLOCK).rev().find(has_room).unwrap_or(1)
    }
}

impl AgentHca {
    /// An HCA on `device`, and the transports' ends of its rings. It has `rings` pairs of rings, or fewer if
    /// the device has no room for them, but at least one.
    ///
    /// # Errors
    /// Memory and driver errors.
    pub fn new(
        device: &Arc<Device>,
        residency: Residency,
        rings: usize,
    ) -> Result<(Self, Vec<AgentExecutor>), DeviceError> {
        let count = rings.clamp(1, MAX_BLOCKS * most_rings_a_block(device, residency));
        let contexts = device.alloc(CONTEXT_BYTES)?;
        let rings = (0..count).map(|_| Ring::new(device)).collect::<Result<Vec<_>, _>>()?;
        for (index, ring) in rings.iter().enumerate() {
            let fused_at = FUSED_AT + index * FUSED_BYTES;
            contexts.write(fused_at, &[0; FUSED_BYTES])?;
            let ctx = RingCtx { fused_addr: contexts.address() + fused_at as u64, ..ring.context() };
            contexts.write(RINGS_AT + index * size_of::<RingCtx>(), ctx.as_bytes())?;
        }
        device.preload(&[agent_kernel()])?;
        let resident: Arc<Resident> = Arc::default();
        let rounds = quiesce::Rounds::new(count);
        let executor = |ring| AgentExecutor::new(device, &resident, ring, &rounds);
        let executors = rings.iter().enumerate().map(executor).collect();
        let tables = Tables {
            qps: vec![false; MAX_QPS as usize],
            cqs: vec![false; MAX_CQS as usize],
            mrs: vec![None; MAX_MRS as usize],
            ..Tables::default()
        };
        let hca = Self {
            device: Arc::clone(device),
            contexts,
            rings,
            tables: Mutex::new(tables),
            resident,
            residency,
        };
        if let Some(what) = Unordered::asked_for()? {
            hca.set_unordered(what)?;
        }
        Ok((hca, executors))
    }

    /// Pairs of rings.
    pub fn rings(&self) -> usize {
        self.rings.len()
    }

    /// Pairs of rings that a block of the agent serves.
    fn rings_a_block(&self) -> usize {
        self.rings.len().div_ceil(MAX_BLOCKS)
    }

    /// Blocks of the agent.
    pub fn blocks(&self) -> u32 {
        u32::try_from(self.rings.len().div_ceil(self.rings_a_block())).expect("at most MAX_RINGS")
    }

    /// Device address of the state of the port, a `u32`: 0 while no agent serves the queues.
    pub fn port_address(&self) -> u64 {
        self.contexts.address() + PORT_AT as u64
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    fn tables(&self) -> std::sync::MutexGuard<'_, Tables> {
        self.tables.lock().expect("no panic while held")
    }

    /// Waits until no agent is resident, and keeps it so: the agent does not expect its contexts to change.
    /// It is an error if kernels of a failed launch are still on the GPU, or wait for it: they would find
    /// other contexts.
    fn quiet(&self) -> Result<std::sync::MutexGuard<'_, Launches>, DeviceError> {
        let mut launches = self.resident.launches.lock().expect("no panic while held");
        if launches.failed && self.device.kind() != "host" {
            // An agent that was asked to end before it began does so as soon as there is room for it.
            let mut looks = 0;
            while !self.device.is_idle() {
                if looks == LOOKS {
                    let cause = "kernels of an earlier launch that failed are still on the GPU".into();
                    return Err(DeviceError::Kernel { kernel: agent_kernel().name, cause });
                }
                looks += 1;
                std::thread::sleep(LOOK);
            }
            launches.failed = false;
        }
        Ok(launches)
    }

    /// The agent's counters so far.
    ///
    /// # Errors
    /// Driver errors.
    pub fn stats(&self) -> Result<AgentStats, DeviceError> {
        let mut sum = AgentStats::default();
        for index in 0..self.rings.len() {
            let mut ctx = RingCtx::default();
            self.contexts.read(RINGS_AT + index * size_of::<RingCtx>(), ctx.as_mut_bytes())?;
            sum.responses += ctx.responses;
            sum.late += ctx.late;
            sum.client_late += ctx.client_late;
            sum.reports += ctx.reports;
            sum.lateness.iter_mut().zip(ctx.lateness).for_each(|(all, some)| *all += some);
        }
        Ok(sum)
    }
}

/// Reads a context back, for tests and diagnosis.
///
/// # Errors
/// Driver errors.
pub fn read_qp(hca: &AgentHca, qpn: u32) -> Result<QpCtx, DeviceError> {
    let mut raw = vec![0; size_of::<QpCtx>()];
    hca.contexts.read(QPS_AT + (qpn - FIRST_QPN) as usize * size_of::<QpCtx>(), &mut raw)?;
    Ok(QpCtx::read_from_bytes(&raw).expect("the length matches"))
}
