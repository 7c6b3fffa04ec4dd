// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queue pairs in device memory: the control path that fills in the agent's contexts ([`AgentHca`]) and the engine's end of the
//! rings ([`AgentHalf`]).

use super::abi::*;
use super::ring::{DOWN_WORDS, DownRing, UP_WORDS, UpRing};
use super::{Down, Half};
use crate::device::{AgentWords, Device, DeviceError, DeviceMem, Kernel, Launch, Residency};
use crate::region::{HostRegion, LocalRef, RegionId};
use rustc_hash::FxHashMap as HashMap;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::mem::{offset_of, size_of};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

const UP_ENTRIES: usize = 4096;
const DOWN_ENTRIES: usize = 2048;
#[expect(clippy::cast_possible_truncation, reason = "small constants")]
const MASKS: (u32, u32) = (UP_ENTRIES as u32 - 1, DOWN_ENTRIES as u32 - 1);
/// Queue pairs an HCA holds.
pub const MAX_QPS: u32 = 1024;
const MAX_CQS: u32 = 256;
const MAX_MRS: u32 = 1024;
const FIRST_QPN: u32 = 0x100;
/// Threads of an agent block: dispatcher, responder, 8 front ends, 16 movers.
const AGENT_THREADS: u32 = 832;
/// On the CPU one of each is enough: they share one core.
const AGENT_THREADS_HOST: u32 = 128;

#[expect(unsafe_code, reason = "the agent's entry for the CPU execution")]
mod entry {
    unsafe extern "C" {
        pub(super) fn gn_hca_agent(args: *mut std::ffi::c_void);
    }
}

/// The agent's kernel.
pub fn agent_kernel() -> Kernel {
    Kernel { name: "gn_hca_agent", image: include_bytes!("../../cuda/agent.fatbin"), host: entry_point }
}

#[expect(unsafe_code, reason = "forwards to the C++ entry")]
unsafe extern "C" fn entry_point(args: *mut c_void) {
    // SAFETY: called by the CPU runtime with the launch's argument, an AgentArgs in memory that outlives the launch.
    unsafe { entry::gn_hca_agent(args) }
}

/// Offsets within the ring region.
const UP_AT: u64 = 0;
const DOWN_AT: u64 = UP_AT + (UP_ENTRIES * UP_WORDS * 8) as u64;
const WORDS_AT: u64 = DOWN_AT + (DOWN_ENTRIES * DOWN_WORDS * 8) as u64;
const UP_HEAD: u64 = WORDS_AT;
const DOWN_HEAD: u64 = WORDS_AT + 64;
const STOP: u64 = WORDS_AT + 128;
const READY: u64 = WORDS_AT + 192;
const RING_BYTES: usize = (UP_ENTRIES * UP_WORDS + DOWN_ENTRIES * DOWN_WORDS) * 8 + 256;

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
}

/// Counters of the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentStats {
    /// Responses delivered to queue owners.
    pub responses: u64,
    /// Of these, late.
    pub late: u64,
}

/// What the control path and the engine's end know of the agent together.
#[derive(Debug, Default)]
struct Resident {
    /// Locked while an agent is resident.
    launches: Mutex<Launches>,
    /// What the agent may touch: it stays allocated as long as there can be one, also where the engine has ended.
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
    ring: Arc<HostRegion>,
    tables: Mutex<Tables>,
    resident: Arc<Resident>,
    residency: Residency,
}

const QPS_AT: usize = 0;
const CQS_AT: usize = QPS_AT + MAX_QPS as usize * size_of::<QpCtx>();
const MRS_AT: usize = CQS_AT + MAX_CQS as usize * size_of::<CqCtx>();
const RINGS_AT: usize = MRS_AT + MAX_MRS as usize * size_of::<MrCtx>();
const ARGS_AT: usize = RINGS_AT + size_of::<RingCtx>();
const CLIENT_AT: usize = ARGS_AT + 64;
const CONTEXT_BYTES: usize = CLIENT_AT + 64;

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

impl AgentHca {
    /// An HCA on `device`, and the engine's end of it.
    ///
    /// # Errors
    /// Memory and driver errors.
    pub fn new(device: &Arc<Device>, residency: Residency) -> Result<(Self, AgentHalf), DeviceError> {
        let contexts = device.alloc(CONTEXT_BYTES)?;
        let ring = HostRegion::alloc(RING_BYTES).map_err(|e| memory("ring memory", RING_BYTES, &e.to_string()))?;
        let base = device.map(&ring)?;
        let ctx = RingCtx {
            up_addr: base + UP_AT,
            up_head_addr: base + UP_HEAD,
            down_addr: base + DOWN_AT,
            down_head_addr: base + DOWN_HEAD,
            up_mask: MASKS.0,
            down_mask: MASKS.1,
            stop_addr: base + STOP,
            ready_addr: base + READY,
            ..RingCtx::default()
        };
        contexts.write(RINGS_AT, ctx.as_bytes())?;
        device.preload(&[agent_kernel()])?;
        let resident: Arc<Resident> = Arc::default();
        let half = AgentHalf {
            device: Arc::clone(device),
            resident: Arc::clone(&resident),
            ring: Arc::clone(&ring),
            up: UpRing::default(),
            down: DownRing::default(),
            backlog: VecDeque::new(),
            regions: HashMap::default(),
            clock_offset_ns: 0,
            lead_ns: 0,
        };
        let tables = Tables {
            qps: vec![false; MAX_QPS as usize],
            cqs: vec![false; MAX_CQS as usize],
            mrs: vec![None; MAX_MRS as usize],
            ..Tables::default()
        };
        let hca = Self { device: Arc::clone(device), contexts, ring, tables: Mutex::new(tables), resident, residency };
        Ok((hca, half))
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    fn tables(&self) -> std::sync::MutexGuard<'_, Tables> {
        self.tables.lock().expect("no panic while held")
    }

    /// Waits until no agent is resident, and keeps it so: the agent reads its contexts without looking whether they change.
    fn quiet(&self) -> std::sync::MutexGuard<'_, Launches> {
        self.resident.launches.lock().expect("no panic while held")
    }

    /// A new protection domain.
    pub fn alloc_pd(&self) -> u32 {
        let mut tables = self.tables();
        tables.next_pd += 1;
        tables.next_pd
    }

    /// Registers a completion queue of `1 << log_entries` entries at `address`; the owner has filled it with invalid entries.
    ///
    /// # Errors
    /// When the table is full; driver errors.
    pub fn create_cq(&self, address: u64, log_entries: u32) -> Result<u32, DeviceError> {
        let _alone = self.quiet();
        let mut tables = self.tables();
        let free = tables.cqs.iter().position(|used| !used);
        let index = free.ok_or_else(|| memory("completion queues", 1, "the HCA's table is full"))?;
        let ctx = CqCtx { addr: address, mask: (1 << log_entries) - 1, log_entries, ..CqCtx::default() };
        self.contexts.write(CQS_AT + index * size_of::<CqCtx>(), ctx.as_bytes())?;
        tables.cqs[index] = true;
        Ok(u32::try_from(index).expect("a small table"))
    }

    /// Registers queue pairs with consecutive numbers, ready to send; returns the first number.
    ///
    /// # Errors
    /// When the table is full; driver errors.
    pub fn create_qps(&self, specs: &[DeviceQp]) -> Result<u32, DeviceError> {
        let _alone = self.quiet();
        let mut tables = self.tables();
        // Numbers go round: a message for a queue pair that is gone may still wait in the ring for the next launch, and must not meet
        // a new queue pair of the same number.
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
        let _alone = self.quiet();
        let mut tables = self.tables();
        let free = tables.mrs.iter().position(Option::is_none);
        let index = free.ok_or_else(|| memory("memory regions", 1, "the HCA's table is full"))?;
        tables.variants = tables.variants.wrapping_add(1);
        let key = u32::try_from(index).expect("a small table") << 8 | (tables.variants & 0xFF);
        let ctx = MrCtx { base: mr.base, bytes: mr.bytes, key, access: mr.access, pd: mr.pd, reserved: 0 };
        self.contexts.write(MRS_AT + index * size_of::<MrCtx>(), ctx.as_bytes())?;
        tables.mrs[index] = Some(key);
        Ok(key)
    }

    /// Forgets a memory region. Its key opens nothing from here on.
    ///
    /// # Errors
    /// Driver errors.
    pub fn deregister(&self, key: u32) -> Result<(), DeviceError> {
        let _alone = self.quiet();
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
        let _alone = self.quiet();
        let mut tables = self.tables();
        for i in (first - FIRST_QPN) as usize..(first - FIRST_QPN) as usize + count {
            self.contexts.write(QPS_AT + i * size_of::<QpCtx>(), QpCtx::default().as_bytes())?;
            tables.qps[i] = false;
        }
        tables.cqs[cq as usize] = false;
        Ok(())
    }

    /// The agent's counters so far.
    ///
    /// # Errors
    /// Driver errors.
    pub fn stats(&self) -> Result<AgentStats, DeviceError> {
        let mut ctx = RingCtx::default();
        self.contexts.read(RINGS_AT, ctx.as_mut_bytes())?;
        Ok(AgentStats { responses: ctx.responses, late: ctx.late })
    }

    /// Runs a client kernel with the agent beside it; returns when both have ended. `kernel` takes a `client_launch`, whose `args` is
    /// the device address given here. One launch at a time: a second caller waits.
    ///
    /// # Errors
    /// As [`Device::run`]. On the CPU every launch after one that failed fails too.
    pub fn launch(&self, client: ClientKernel, shape: Shape, args: u64, deadline: Duration) -> Result<(), DeviceError> {
        let mut alone = self.quiet();
        // On the CPU its lanes were dropped where they stood: what the rings hold has been done, or half done, or not.
        if alone.failed && self.device.kind() == "host" {
            let cause = "an earlier launch was cut off, and the agent of this HCA with it".into();
            return Err(DeviceError::Kernel { kernel: client.beside_agent.name, cause });
        }
        let (number, qp_count, mr_count) = {
            let mut tables = self.tables();
            tables.launches += 1;
            let used = |used: Option<usize>| u32::try_from(used.map_or(0, |i| i + 1)).expect("a small table");
            let qps = used(tables.qps.iter().rposition(|&u| u));
            let mrs = used(tables.mrs.iter().rposition(Option::is_some));
            (tables.launches, qps, mrs)
        };
        let at = self.contexts.address();
        let agent_args = AgentArgs {
            qps: at + QPS_AT as u64,
            cqs: at + CQS_AT as u64,
            mrs: at + MRS_AT as u64,
            rings: at + RINGS_AT as u64,
            qp_count,
            mr_count,
            first_qpn: FIRST_QPN,
            launch: number,
            blocks: 1,
            reserved: 0,
        };
        self.contexts.write(ARGS_AT, agent_args.as_bytes())?;
        let launch = ClientLaunch { agent: at + ARGS_AT as u64, args, blocks: shape.blocks, done: 0 };
        self.contexts.write(CLIENT_AT, launch.as_bytes())?;
        let agent_threads = if self.device.kind() == "host" { AGENT_THREADS_HOST } else { AGENT_THREADS };
        let agent = Launch {
            kernel: agent_kernel(),
            blocks: 1,
            threads: agent_threads,
            smem_bytes: AGENT_SMEM_BYTES,
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
            launch.blocks += 1;
            launch.threads = launch.threads.max(AGENT_THREADS_HOST);
            launch.smem_bytes = launch.smem_bytes.max(AGENT_SMEM_BYTES);
        }
        let words = AgentWords { stop: vec![self.ring.word32(STOP)], ready: vec![self.ring.word32(READY)], number };
        let ended = self.device.run(&agent, &launch, &words, self.residency, deadline);
        alone.failed |= ended.is_err();
        ended
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
    /// Threads a block, a multiple of 32. In the one-grid form blocks are at least 128 threads: a kernel must not rely on an exact
    /// `blockDim`.
    pub threads: u32,
    /// Shared memory a block.
    pub smem_bytes: u32,
}

/// The engine's end of the rings.
#[derive(Debug)]
pub struct AgentHalf {
    device: Arc<Device>,
    resident: Arc<Resident>,
    ring: Arc<HostRegion>,
    up: UpRing,
    down: DownRing,
    backlog: VecDeque<[u64; DOWN_WORDS]>,
    regions: HashMap<RegionId, u64>,
    clock_offset_ns: i64,
    lead_ns: u64,
}

/// The dispatcher waits for what comes early: never longer than this.
const MAX_LEAD_NS: u64 = 4000;
const TAG_MASK: u64 = (1 << 31) - 1;
const QPN_MASK: u64 = 0xFF_FFFF;

impl AgentHalf {
    /// Makes a region known that [`Down`] messages refer to; with CUDA it is pinned.
    ///
    /// # Errors
    /// Driver errors.
    pub fn add_region(&mut self, region: &Arc<HostRegion>) -> Result<(), DeviceError> {
        self.regions.insert(region.id(), self.device.map(region)?);
        self.resident.regions.lock().expect("no panic while held").push(Arc::clone(region));
        Ok(())
    }

    fn address(&self, local: LocalRef) -> u64 {
        self.regions[&local.region] + local.offset
    }

    fn encode(&self, message: Down) -> [u64; DOWN_WORDS] {
        let head = |op: u64, qpn: u32, bytes: u32| op << 56 | (u64::from(qpn) & QPN_MASK) << 32 | u64::from(bytes);
        let key_tag = |key: u32, tag: u32| u64::from(key) << 31 | u64::from(tag) & TAG_MASK;
        let mut w = [0; DOWN_WORDS];
        match message {
            Down::ToOwner { qpn, local, address, key, tag, sum } => {
                w[0] = head(DOWN_TO_DEVICE, qpn, local.bytes);
                w[1] = self.address(local);
                w[2] = address & !PHASE_BIT;
                w[3] = key_tag(key, tag);
                w[5] = sum.map_or(0, |sum| DOWN_CHECK_SUM << 32 | u64::from(sum));
            }
            Down::FromOwner { qpn, local, address, key, tag } => {
                w[0] = head(DOWN_TO_HOST, qpn, local.bytes);
                w[1] = self.address(local);
                w[2] = address & !PHASE_BIT;
                w[3] = key_tag(key, tag);
            }
            Down::Send { qpn, bytes, due_ns, late_after_ns } => {
                let [lo, hi]: [u64; 2] = zerocopy::transmute!(bytes);
                w[0] = head(DOWN_SEND, qpn, 16);
                w[2] = due_ns & !PHASE_BIT;
                w[4] = late_after_ns & !PHASE_BIT;
                w[5] = (lo >> 63) << 40 | (hi >> 63) << 41;
                w[6] = lo & !PHASE_BIT;
                w[7] = hi & !PHASE_BIT;
            }
            Down::Cqe { qpn, opcode, syndrome, counter } => {
                w[0] = head(DOWN_CQE, qpn, 0);
                w[1] = u64::from(opcode) << 40 | u64::from(syndrome) << 32 | u64::from(counter);
            }
            Down::QpError { qpn } => w[0] = head(DOWN_QP_ERROR, qpn, 0),
            Down::Ping { tag } => {
                w[0] = head(DOWN_PING, 0, 0);
                w[3] = key_tag(0, tag);
            }
        }
        w
    }

    fn try_push(&mut self, descriptor: [u64; DOWN_WORDS]) -> bool {
        let words = self.ring.words64(DOWN_AT, DOWN_ENTRIES * DOWN_WORDS);
        self.down.push(words, &self.ring.words64(DOWN_HEAD, 1)[0], descriptor)
    }

    fn drain_backlog(&mut self) {
        while let Some(&descriptor) = self.backlog.front() {
            if !self.try_push(descriptor) {
                return;
            }
            self.backlog.pop_front();
        }
    }
}

impl Half for AgentHalf {
    fn poll(&mut self) -> Option<UpEntry> {
        self.drain_backlog();
        let words = self.ring.words64(UP_AT, UP_ENTRIES * UP_WORDS);
        self.up.pop(words, &self.ring.words64(UP_HEAD, 1)[0])
    }

    fn push(&mut self, message: Down) {
        // An address with bit 63 set cannot be a valid one; its key check must fail, so make sure that it does.
        let message = match message {
            Down::ToOwner { qpn, local, address, tag, sum, .. } if address & PHASE_BIT != 0 => {
                Down::ToOwner { qpn, local, address: 0, key: 0, tag, sum }
            }
            Down::FromOwner { qpn, local, address, tag, .. } if address & PHASE_BIT != 0 => {
                Down::FromOwner { qpn, local, address: 0, key: 0, tag }
            }
            other => other,
        };
        let descriptor = self.encode(message);
        self.drain_backlog();
        if !self.backlog.is_empty() || !self.try_push(descriptor) {
            self.backlog.push_back(descriptor);
        }
    }

    /// Where no agent is resident, what waits in the ring is made harmless: a copy for a queue pair that no HCA has is refused. A
    /// resident agent answers soon, or its launch ends.
    fn take_back(&mut self, qpn: u32) -> bool {
        let Ok(alone) = self.resident.launches.try_lock() else { return false };
        if alone.failed && !self.device.is_idle() {
            return false;
        }
        let is_ours = |head: u64| {
            matches!(head >> 56, DOWN_TO_DEVICE | DOWN_TO_HOST) && head >> 32 & QPN_MASK == u64::from(qpn) & QPN_MASK
        };
        self.backlog.retain(|descriptor| !is_ours(descriptor[0]));
        let words = self.ring.words64(DOWN_AT, DOWN_ENTRIES * DOWN_WORDS);
        self.down.rewrite(words, |head| if is_ours(head) { head & !(QPN_MASK << 32) } else { head });
        true
    }

    fn clock_offset_ns(&self) -> i64 {
        self.clock_offset_ns
    }

    fn lead_ns(&self) -> u64 {
        self.lead_ns
    }

    fn set_clock_offset_ns(&mut self, offset: i64, rtt_ns: u64) {
        self.clock_offset_ns = offset;
        self.lead_ns = (rtt_ns / 2).min(MAX_LEAD_NS);
    }
}

const _: () = assert!(offset_of!(ClientLaunch, blocks) == 16 && size_of::<UpEntry>() == UP_WORDS * 8);
const _: () = assert!(size_of::<AgentArgs>() <= 64 && size_of::<ClientLaunch>() <= 64);

/// Reads a context back, for tests and diagnosis.
///
/// # Errors
/// Driver errors.
pub fn read_qp(hca: &AgentHca, qpn: u32) -> Result<QpCtx, DeviceError> {
    let mut raw = vec![0; size_of::<QpCtx>()];
    hca.contexts.read(QPS_AT + (qpn - FIRST_QPN) as usize * size_of::<QpCtx>(), &mut raw)?;
    Ok(QpCtx::read_from_bytes(&raw).expect("the length matches"))
}
