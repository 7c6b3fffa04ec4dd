// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queue pairs in device memory: the control path that fills in the agent's contexts ([`AgentHca`]), and the
//! transports' ends of the rings ([`AgentExecutor`]). The agent has a block for each pair of rings or for two of
//! them, and each pair an transport of its own: a queue pair belongs to one.

mod executor;
mod held;
mod settle;

use super::abi::*;
use crate::device::{AgentWords, Device, DeviceError, DeviceMem, Kernel, Launch, Residency};
use executor::Ring;
use gnstor_base::region::HostRegion;
use std::ffi::c_void;
use std::mem::{offset_of, size_of};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

pub use executor::AgentExecutor;
pub use held::Unordered;

/// Most blocks of the agent, each of which takes a multiprocessor of a GPU: with more pairs of rings a block
/// serves two or three, if it can.
const MAX_BLOCKS: usize = 8;
const MAX_RINGS_A_BLOCK: usize = 3;
/// Most pairs of rings.
pub const MAX_RINGS: usize = MAX_BLOCKS * MAX_RINGS_A_BLOCK;
/// Queue pairs an HCA holds.
pub const MAX_QPS: u32 = 1024;
const MAX_CQS: u32 = 256;
const MAX_MRS: u32 = 1024;
const FIRST_QPN: u32 = 0x100;
/// How often, and how far apart, the GPU is looked at after a launch that failed, until its kernels have
/// ended: a second.
const LOOKS: u32 = 1000;
const LOOK: Duration = Duration::from_millis(1);
/// Threads of an agent block: dispatcher, responder, 4 front ends, 18 movers; for each of two pairs of rings
/// 2 front ends and 8 movers, of three 1 and 5.
pub const AGENT_THREADS: u32 = 768;
/// On the CPU one of each is enough: they share one core.
const AGENT_THREADS_HOST: u32 = 128;

#[expect(unsafe_code, reason = "the agent's entry for the CPU execution")]
mod entry {
    unsafe extern "C" {
        pub(super) fn gn_hca_agent(args: *mut std::ffi::c_void);
        pub(super) fn gn_hca_idle(args: *mut std::ffi::c_void);
    }
}

/// The agent's kernel.
pub fn agent_kernel() -> Kernel {
    Kernel { name: "gn_hca_agent", image: include_bytes!("../../cuda/agent.fatbin"), host: entry_point }
}

#[expect(unsafe_code, reason = "forwards to the C++ entry")]
unsafe extern "C" fn entry_point(args: *mut c_void) {
    // SAFETY: called by the CPU runtime with the launch's argument, an AgentArgs in memory that outlives the
    // launch.
    unsafe { entry::gn_hca_agent(args) }
}

/// A client that does nothing, for [`Residency::TwoKernels`]: the agent beside it ends when it has done all
/// that lies in its queues and rings.
pub fn idle_client() -> ClientKernel {
    let kernel = Kernel { name: "gn_hca_idle", image: agent_kernel().image, host: idle_entry_point };
    ClientKernel { beside_agent: kernel, one_grid: kernel }
}

#[expect(unsafe_code, reason = "forwards to the C++ entry")]
unsafe extern "C" fn idle_entry_point(args: *mut c_void) {
    // SAFETY: the kernel does nothing with its argument.
    unsafe { entry::gn_hca_idle(args) }
}

/// A queue pair in device memory, as create_qp is told about it.
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

/// A completion queue, as create_cq is told about it.
#[derive(Clone, Copy, Debug)]
pub struct DeviceCq {
    /// First entry.
    pub address: u64,
    /// It has `1 << log_entries` entries.
    pub log_entries: u32,
    /// Doorbell record with the consumer index. With it an overrun puts queue pairs into error; without it
    /// (the hardware's `oi`) it overwrites what the owner has not taken.
    pub dbr: Option<u64>,
    /// Whether the owner is on the CPU: completions then wait until all that is before them can be seen
    /// there.
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
    /// Where inbound data waits for a DUMP, and what does.
    held: Option<(DeviceMem, Unordered)>,
}

/// Counters of the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentStats {
    /// Responses delivered to queue owners.
    pub responses: u64,
    /// Of these, late: delivered later than the model says.
    pub late: u64,
    /// Of these, responses of commands whose client waited longer than the model gives the command alone.
    pub client_late: u64,
    /// Reports of answers that have ended: each tells of up to 32.
    pub reports: u64,
    /// Responses by how long after they were due their owners could see them: bucket i counts 2^i to 2^(i+1)
    /// - 1 ns, bucket 0 also what was early.
    pub lateness: [u64; LATENESS_BUCKETS],
}

/// What the control path and the transports' ends know of the agent together.
#[derive(Debug, Default)]
struct Resident {
    /// Locked while an agent is resident.
    launches: Mutex<Launches>,
    /// What the agent may touch: it stays allocated as long as there can be one, also where the transports have
    /// ended.
    regions: Mutex<Vec<Arc<HostRegion>>>,
}

#[derive(Debug, Default)]
struct Launches {
    /// A launch failed: on a GPU its kernels may still be there.
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
const ANSWERS_AT: usize = PORT_AT + 64;
const ANSWERS_BYTES: usize = FUSED_SLOTS * size_of::<FusedSlot>();
const CONTEXT_BYTES: usize = ANSWERS_AT + MAX_RINGS * ANSWERS_BYTES;

/// Mirror of `gn::client_launch` in gnor/cuda/gnor/kernel.cuh: what every client kernel is launched with.
#[derive(Clone, Copy, IntoBytes, zerocopy::Immutable)]
#[repr(C)]
struct ClientLaunch {
    agent: u64,
    args: u64,
    blocks: u32,
    done: u32,
}

fn memory(what: &'static str, bytes: usize, cause: &str) -> DeviceError {
    DeviceError::Memory { bytes, what, cause: cause.into() }
}

/// How many pairs of rings a block of the agent has room for. Where it shares a grid with the client it has
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
    /// An HCA on `device` with `rings` pairs of rings, and the transports' ends of them: at least one, and fewer
    /// than asked for where there cannot be so many.
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
            let answers_at = ANSWERS_AT + index * ANSWERS_BYTES;
            contexts.write(answers_at, &[0; ANSWERS_BYTES])?;
            let ctx = RingCtx { fused_addr: contexts.address() + answers_at as u64, ..ring.context() };
            contexts.write(RINGS_AT + index * size_of::<RingCtx>(), ctx.as_bytes())?;
        }
        device.preload(&[agent_kernel()])?;
        let resident: Arc<Resident> = Arc::default();
        let rounds = settle::Rounds::new(count);
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

    /// Waits until no agent is resident, and keeps it so: the agent reads its contexts without looking
    /// whether they change. An error where kernels of a launch that failed are still on the GPU, or wait for
    /// it: they would find contexts that are not theirs.
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

    /// A new protection domain.
    pub fn alloc_pd(&self) -> u32 {
        let mut tables = self.tables();
        tables.next_pd += 1;
        tables.next_pd
    }

    /// Registers a completion queue, which the owner has filled with invalid entries.
    ///
    /// # Errors
    /// When the table is full; driver errors.
    pub fn create_cq(&self, cq: DeviceCq) -> Result<u32, DeviceError> {
        let DeviceCq { address, log_entries, dbr, in_host } = cq;
        let _alone = self.quiet()?;
        let mut tables = self.tables();
        let free = tables.cqs.iter().position(|used| !used);
        let index = free.ok_or_else(|| memory("completion queues", 1, "the HCA's table is full"))?;
        let (mask, dbr_addr) = ((1 << log_entries) - 1, dbr.unwrap_or(0));
        let ctx = CqCtx { addr: address, mask, in_host: in_host.into(), dbr_addr, ..CqCtx::default() };
        self.contexts.write(CQS_AT + index * size_of::<CqCtx>(), ctx.as_bytes())?;
        tables.cqs[index] = true;
        Ok(u32::try_from(index).expect("a small table"))
    }

    /// Registers queue pairs with consecutive numbers, ready to send; returns the first number.
    ///
    /// # Errors
    /// When the table is full; driver errors.
    pub fn create_qps(&self, specs: &[DeviceQp]) -> Result<u32, DeviceError> {
        let _alone = self.quiet()?;
        let mut tables = self.tables();
        // Numbers go round: a message for a queue pair that is gone may still wait in the ring for the next
        // launch, and must not meet a new queue pair of the same number.
        let fits = |first: &usize| tables.qps[*first..*first + specs.len()].iter().all(|used| !used);
        let last = (MAX_QPS as usize).checked_sub(specs.len());
        let run = last.and_then(|last| (tables.next_qp..=last).chain(0..=last).find(fits));
        let first = run.ok_or_else(|| memory("queue pairs", specs.len(), "the HCA's table is full"))?;
        tables.next_qp = first + specs.len();
        for (i, spec) in (first..).zip(specs) {
            let qpn = FIRST_QPN + u32::try_from(i).expect("a small table");
            let ctx = QpCtx {
                sq_addr: spec.sq.0,
                rq_addr: spec.rq.0,
                dbr_addr: spec.dbr,
                uar_addr: spec.uar,
                qpn,
                state: QP_RTS,
                sq_mask: spec.sq.1 - 1,
                rq_mask: spec.rq.1 - 1,
                cq: spec.cq,
                pd: spec.pd,
                ring: u32::try_from(spec.ring % self.rings.len()).expect("few rings"),
                ..QpCtx::default()
            };
            self.contexts.write(QPS_AT + i * size_of::<QpCtx>(), ctx.as_bytes())?;
            tables.qps[i] = true;
        }
        Ok(FIRST_QPN + u32::try_from(first).expect("a small table"))
    }

    /// Registers memory; returns its key, local and remote.
    ///
    /// # Errors
    /// When the table is full; driver errors.
    pub fn register(&self, mr: DeviceMr) -> Result<u32, DeviceError> {
        let _alone = self.quiet()?;
        let mut tables = self.tables();
        let free = tables.mrs.iter().position(Option::is_none);
        let index = free.ok_or_else(|| memory("memory regions", 1, "the HCA's table is full"))?;
        tables.variants = tables.variants.wrapping_add(1);
        let key = u32::try_from(index).expect("a small table") << 8 | (tables.variants & 0xFF);
        let ctx = MrCtx { base: mr.base, bytes: mr.bytes, key, access: mr.access, pd: mr.pd, invalid: 0 };
        self.contexts.write(MRS_AT + index * size_of::<MrCtx>(), ctx.as_bytes())?;
        tables.mrs[index] = Some(key);
        Ok(key)
    }

    /// Forgets a memory region. Its key opens nothing from here on.
    ///
    /// # Errors
    /// Driver errors.
    pub fn deregister(&self, key: u32) -> Result<(), DeviceError> {
        let _alone = self.quiet()?;
        let mut tables = self.tables();
        let index = (key >> 8) as usize;
        if tables.mrs.get(index) == Some(&Some(key)) {
            self.contexts.write(MRS_AT + index * size_of::<MrCtx>(), MrCtx::default().as_bytes())?;
            tables.mrs[index] = None;
        }
        Ok(())
    }

    /// Frees queue pairs `first..first + count` and their completion queue.
    ///
    /// # Errors
    /// Driver errors.
    pub fn destroy_qps(&self, first: u32, count: usize, cq: u32) -> Result<(), DeviceError> {
        let _alone = self.quiet()?;
        let mut tables = self.tables();
        for i in (first - FIRST_QPN) as usize..(first - FIRST_QPN) as usize + count {
            self.contexts.write(QPS_AT + i * size_of::<QpCtx>(), QpCtx::default().as_bytes())?;
            tables.qps[i] = false;
        }
        tables.cqs[cq as usize] = false;
        let qpns = first..first + u32::try_from(count).expect("a small table");
        tables.held.as_ref().map_or(Ok(()), |(held, _)| self.forget_held(held, &qpns))
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

    /// Runs a client kernel with the agent beside it; returns when both have ended. `kernel` takes a
    /// `client_launch`, whose `args` is the device address given here. One launch at a time: a second caller
    /// waits.
    ///
    /// # Errors
    /// As [`Device::run`]. On the CPU every launch after one that failed fails too.
    pub fn launch(
        &self,
        client: ClientKernel,
        shape: Shape,
        args: u64,
        deadline: Duration,
    ) -> Result<(), DeviceError> {
        let mut alone = self.quiet()?;
        // On the CPU its lanes were dropped where they stood: what the rings hold has been done, or half
        // done, or not.
        if alone.failed && self.device.kind() == "host" {
            let cause = "an earlier launch was cut off, and the agent of this HCA with it".into();
            return Err(DeviceError::Kernel { kernel: client.beside_agent.name, cause });
        }
        let mut tables = self.tables();
        tables.launches += 1;
        let number = tables.launches;
        let used = |used: Option<usize>| u32::try_from(used.map_or(0, |i| i + 1)).expect("a small table");
        let qp_count = used(tables.qps.iter().rposition(|&u| u));
        let mr_count = used(tables.mrs.iter().rposition(Option::is_some));
        let at = self.contexts.address();
        let small = |count: usize| u32::try_from(count).expect("a few rings");
        let (blocks, rings_a_block) = (self.blocks(), small(self.rings_a_block()));
        let smem_bytes = rings_a_block * AGENT_SMEM_BYTES;
        // Contexts that do not fit beside the rest stay in device memory, where each access takes longer.
        let cq_count = used(tables.cqs.iter().rposition(|&u| u));
        let contexts = qp_count as usize * size_of::<QpCtx>()
            + mr_count as usize * size_of::<MrCtx>()
            + cq_count as usize * size_of::<CqCtx>();
        let with_contexts = smem_bytes + u32::try_from(contexts).expect("small tables");
        let in_smem =
            self.residency == Residency::TwoKernels && with_contexts <= self.device.most_smem_bytes();
        let agent_args = AgentArgs {
            qps: at + QPS_AT as u64,
            cqs: at + CQS_AT as u64,
            mrs: at + MRS_AT as u64,
            rings: at + RINGS_AT as u64,
            qp_count,
            mr_count,
            cq_count,
            first_qpn: FIRST_QPN,
            launch: number,
            blocks,
            in_smem: in_smem.into(),
            held_addr: tables.held.as_ref().map_or(0, |(memory, _)| memory.address()),
            held_messages: tables.held.as_ref().is_some_and(|(_, what)| *what == Unordered::All).into(),
            rings_a_block,
            ring_count: small(self.rings.len()),
            ring: 0,
            cqs_home: at + CQS_AT as u64,
            mrs_home: at + MRS_AT as u64,
        };
        drop(tables);
        self.contexts.write(ARGS_AT, agent_args.as_bytes())?;
        let launch = ClientLaunch { agent: at + ARGS_AT as u64, args, blocks: shape.blocks, done: 0 };
        self.contexts.write(CLIENT_AT, launch.as_bytes())?;
        let agent_threads =
            if self.device.kind() == "host" { rings_a_block * AGENT_THREADS_HOST } else { AGENT_THREADS };
        let agent = Launch {
            kernel: agent_kernel(),
            blocks,
            threads: agent_threads,
            smem_bytes: if in_smem { with_contexts } else { smem_bytes },
            args: at + ARGS_AT as u64,
        };
        let mut launch = Launch {
            kernel: client.beside_agent,
            blocks: shape.blocks,
            threads: shape.threads,
            smem_bytes: shape.smem_bytes,
            args: at + CLIENT_AT as u64,
        };
        if self.residency == Residency::OneGrid {
            launch.kernel = client.one_grid;
            launch.blocks += blocks;
            launch.threads = launch.threads.max(AGENT_THREADS_HOST);
            launch.smem_bytes = launch.smem_bytes.max(AGENT_SMEM_BYTES);
        }
        self.contexts.write(PORT_AT, &PORT_ACTIVE.to_le_bytes())?;
        let words = AgentWords {
            stop: self.rings.iter().map(Ring::stop).collect(),
            ready: self.rings.iter().map(Ring::ready).collect(),
            number,
        };
        let ended = self.device.run(&agent, &launch, &words, self.residency, deadline);
        alone.failed |= ended.is_err();
        let closed = self.contexts.write(PORT_AT, &[0; 4]);
        ended.and(closed)
    }
}

/// A client kernel in its two forms (`GN_CLIENT` in gnor/cuda/gnor/kernel.cuh).
#[derive(Clone, Copy, Debug)]
pub struct ClientKernel {
    /// Beside a resident agent.
    pub beside_agent: Kernel,
    /// In one grid with it.
    pub one_grid: Kernel,
}

/// Shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks.
    pub blocks: u32,
    /// Threads a block, a multiple of 32. In the one-grid form blocks are at least 128 threads: a kernel must
    /// not rely on an exact `blockDim`.
    pub threads: u32,
    /// Shared memory a block.
    pub smem_bytes: u32,
}

const _: () = assert!(offset_of!(ClientLaunch, blocks) == 16);
const _: () = assert!(
    size_of::<AgentArgs>() <= CLIENT_AT - ARGS_AT && size_of::<ClientLaunch>() <= PORT_AT - CLIENT_AT
);

/// Reads a context back, for tests and diagnosis.
///
/// # Errors
/// Driver errors.
pub fn read_qp(hca: &AgentHca, qpn: u32) -> Result<QpCtx, DeviceError> {
    let mut raw = vec![0; size_of::<QpCtx>()];
    hca.contexts.read(QPS_AT + (qpn - FIRST_QPN) as usize * size_of::<QpCtx>(), &mut raw)?;
    Ok(QpCtx::read_from_bytes(&raw).expect("the length matches"))
}
