// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A launch: a client kernel, with the agent beside it.

use super::*;
use crate::device::Together;
use std::ffi::c_void;

/// Threads of an agent block: dispatcher, responder, 4 front ends and 18 movers. Of two pairs of rings each
/// has 2 front ends and 8 movers, of three each 1 and 5.
pub const AGENT_THREADS: u32 = 768;
/// On the CPU one of each is enough, because they share one core.
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
    Kernel { name: "gn_hca_agent", image: include_bytes!("../../../cuda/agent.fatbin"), host: entry_point }
}

#[expect(unsafe_code, reason = "forwards to the C++ entry")]
unsafe extern "C" fn entry_point(args: *mut c_void) {
    // SAFETY: called by the CPU runtime with the launch's argument, an AgentArgs in memory that outlives the
    // launch.
    unsafe { entry::gn_hca_agent(args) }
}

/// A client that does nothing, for [`Residency::TwoKernels`]. The agent beside it ends when it has done all
/// the work in its queues and rings.
pub fn idle_client() -> ClientKernel {
    let kernel = Kernel { name: "gn_hca_idle", image: agent_kernel().image, host: idle_entry_point };
    ClientKernel { beside_agent: kernel, one_grid: kernel }
}

#[expect(unsafe_code, reason = "forwards to the C++ entry")]
unsafe extern "C" fn idle_entry_point(args: *mut c_void) {
    // SAFETY: the kernel does nothing with its argument.
    unsafe { entry::gn_hca_idle(args) }
}

/// Mirror of `gn::client_launch` in gnor/cuda/gnor/kernel.cuh: what every client kernel is launched with.
#[derive(Clone, Copy, IntoBytes, zerocopy::Immutable)]
#[repr(C)]
struct ClientLaunch {
    agent: u64,
    args: u64,
    blocks: u32,
    done: u32,
}

/// The parts of a launch beside the client.
struct Plan {
    args: AgentArgs,
    smem_bytes: u32,
}

/// A launch is about to begin. It is taken back when this is dropped.
#[derive(Debug)]
pub struct ExpectedLaunch<'a>(&'a AgentHca);

impl Drop for ExpectedLaunch<'_> {
    fn drop(&mut self) {
        *self.0.resident.expected.lock().expect("no panic while held") -= 1;
    }
}

impl AgentHca {
    /// From here on the transports' threads look for work of queue owners by themselves. Call this before a
    /// job that wakes them for a launch: they may do that job before the launch has begun, and sleep again.
    pub fn expect_launch(&self) -> ExpectedLaunch<'_> {
        *self.resident.expected.lock().expect("no panic while held") += 1;
        ExpectedLaunch(self)
    }

    /// Runs a client kernel with the agent beside it, and returns when both have ended. `kernel` takes a
    /// `client_launch`, whose `args` is the device address given here. There is one launch at a time: a
    /// second caller waits.
    ///
    /// # Errors
    /// As [`Device::run`]. On the CPU every launch after a failed one fails too.
    pub fn launch(
        &self,
        client: ClientKernel,
        shape: Shape,
        args: u64,
        deadline: Duration,
    ) -> Result<(), DeviceError> {
        let mut alone = self.quiet()?;
        // On the CPU the agent's lanes were dropped where they were. So the work in the rings may be done,
        // half done, or not begun.
        if alone.failed && self.device.kind() == "host" {
            let cause =
                "an earlier launch was cut off, and the agent of this HCA with it: start a new process";
            return Err(DeviceError::Kernel { kernel: client.beside_agent.name, cause: cause.into() });
        }
        let plan = self.plan();
        let at = self.contexts.address();
        self.contexts.write(ARGS_AT, plan.args.as_bytes())?;
        let launch = ClientLaunch { agent: at + ARGS_AT as u64, args, blocks: shape.blocks, done: 0 };
        self.contexts.write(CLIENT_AT, launch.as_bytes())?;
        self.contexts.write(PORT_AT, &PORT_ACTIVE.to_le_bytes())?;
        let words = AgentWords {
            stop: self.rings.iter().map(Ring::stop).collect(),
            ready: self.rings.iter().map(Ring::ready).collect(),
            number: plan.args.launch,
        };
        let ended = self.device.run(&self.together(client, shape, &plan), &words, deadline);
        alone.failed |= ended.is_err();
        let closed = self.contexts.write(PORT_AT, &[0; 4]);
        ended.and(closed)
    }

    /// The agent's arguments and shared memory for the next launch.
    fn plan(&self) -> Plan {
        let mut tables = self.tables();
        tables.launches += 1;
        let used = |last: Option<usize>| u32::try_from(last.map_or(0, |i| i + 1)).expect("a small table");
        let qp_count = used(tables.qps.iter().rposition(|&used| used));
        let mr_count = used(tables.mrs.iter().rposition(Option::is_some));
        let cq_count = used(tables.cqs.iter().rposition(|&used| used));
        let rings_a_block = small(self.rings_a_block());
        let smem_bytes = rings_a_block * AGENT_SMEM_BYTES;
        // Contexts that do not fit into shared memory stay in device memory, where each access takes longer.
        let contexts = qp_count as usize * size_of::<QpCtx>()
            + mr_count as usize * size_of::<MrCtx>()
            + cq_count as usize * size_of::<CqCtx>();
        let with_contexts = smem_bytes + u32::try_from(contexts).expect("small tables");
        let in_smem =
            self.residency == Residency::TwoKernels && with_contexts <= self.device.most_smem_bytes();
        let at = |offset: usize| self.contexts.address() + offset as u64;
        let held = tables.held.as_ref();
        let args = AgentArgs {
            qps: at(QPS_AT),
            cqs: at(CQS_AT),
            mrs: at(MRS_AT),
            rings: at(RINGS_AT),
            qp_count,
            mr_count,
            cq_count,
            first_qpn: FIRST_QPN,
            launch: tables.launches,
            blocks: self.blocks(),
            in_smem: in_smem.into(),
            held_addr: held.map_or(0, |(memory, _)| memory.address()),
            held_messages: held.is_some_and(|(_, what)| *what == Unordered::All).into(),
            rings_a_block,
            ring_count: small(self.rings.len()),
            ring: 0,
            cqs_home: at(CQS_AT),
            mrs_home: at(MRS_AT),
        };
        Plan { args, smem_bytes: if in_smem { with_contexts } else { smem_bytes } }
    }

    /// The two kernels of a launch.
    fn together(&self, client: ClientKernel, shape: Shape, plan: &Plan) -> Together {
        let AgentArgs { blocks, rings_a_block, .. } = plan.args;
        let at = self.contexts.address();
        let threads =
            if self.device.kind() == "host" { rings_a_block * AGENT_THREADS_HOST } else { AGENT_THREADS };
        let args = at + ARGS_AT as u64;
        let agent = Launch { kernel: agent_kernel(), blocks, threads, smem_bytes: plan.smem_bytes, args };
        let Shape { blocks: client_blocks, threads, smem_bytes } = shape;
        let args = at + CLIENT_AT as u64;
        let mut client_launch =
            Launch { kernel: client.beside_agent, blocks: client_blocks, threads, smem_bytes, args };
        if self.residency == Residency::OneGrid {
            client_launch.kernel = client.one_grid;
            client_launch.blocks += blocks;
            client_launch.threads = threads.max(AGENT_THREADS_HOST);
            client_launch.smem_bytes = smem_bytes.max(AGENT_SMEM_BYTES);
        }
        Together { agent, client: client_launch, residency: self.residency }
    }
}

fn small(count: usize) -> u32 {
    u32::try_from(count).expect("a few rings")
}

/// A client kernel in its two forms (`GN_CLIENT` in gnor/cuda/gnor/kernel.cuh).
#[derive(Clone, Copy, Debug)]
pub struct ClientKernel {
    /// The kernel for a launch beside a resident agent.
    pub beside_agent: Kernel,
    /// The kernel for a launch in one grid with the agent.
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
