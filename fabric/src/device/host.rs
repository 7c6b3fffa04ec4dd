// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPU as the device: agent and client are two grids of one scheduler (`fabric/simt`), on the calling
//! thread.
#![expect(unsafe_code, reason = "calls the C++ runtime that executes device code")]

use super::{AgentWords, DeviceError, Launch, Residency, Together};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::time::Duration;

#[repr(C)]
struct Grid {
    grid: u32,
    block: u32,
    smem_bytes: u64,
    body: unsafe extern "C" fn(*mut c_void),
    arg: *mut c_void,
    on_done: Option<unsafe extern "C" fn(*mut c_void)>,
    done_arg: *mut c_void,
}

#[repr(C)]
struct Options {
    seed: u64,
    max_steps: u64,
    deadline_ns: u64,
    stack_bytes: u64,
    preempt: u32,
    weak: u32,
    idle_yields: u32,
    nregions: u32,
    regions: *const c_void,
    host_step: Option<unsafe extern "C" fn(*mut c_void) -> u32>,
    host_arg: *mut c_void,
}

#[repr(C)]
struct RunResult {
    yields: u64,
    switches: u64,
    os_yields: u64,
    failure: u32,
    reserved: u32,
    message: [c_char; 512],
}

const GN_SIMT_OK: c_int = 0;
const GN_SIMT_DEADLINE: c_int = 5;

unsafe extern "C" {
    fn gn_simt_default_options(options: *mut Options);
    fn gn_simt_run(
        grids: *const Grid,
        count: usize,
        options: *const Options,
        result: *mut RunResult,
    ) -> c_int;
}

pub(super) struct HostDevice;

unsafe extern "C" fn client_done(words: *mut c_void) {
    // SAFETY: `run` passes a pointer to its own `words`, which outlives the call of gn_simt_run.
    let words = unsafe { &*words.cast::<AgentWords<'_>>() };
    words.ask_to_stop();
}

impl HostDevice {
    #[expect(clippy::unused_self, reason = "the same shape as the GPU's")]
    pub(super) fn run(
        &self,
        pair: &Together,
        words: &AgentWords<'_>,
        deadline: Duration,
    ) -> Result<(), DeviceError> {
        let &Together { ref agent, ref client, residency } = pair;
        let grid = |launch: &Launch, on_done: Option<unsafe extern "C" fn(*mut c_void)>| Grid {
            grid: launch.blocks,
            block: launch.threads,
            smem_bytes: u64::from(launch.smem_bytes),
            body: launch.kernel.host,
            arg: launch.args as *mut c_void,
            on_done,
            done_arg: std::ptr::from_ref(words).cast_mut().cast(),
        };
        let mut grids = vec![grid(client, Some(client_done))];
        if residency == Residency::TwoKernels {
            grids.push(grid(agent, None));
        }
        run_grids(&grids, client.kernel.name, deadline)
    }

    /// Runs one grid on the calling thread, without an agent. Another thread may run grids at the same time.
    #[expect(clippy::unused_self, reason = "the same shape as the GPU's")]
    pub(super) fn run_alone(&self, launch: &Launch, deadline: Duration) -> Result<(), DeviceError> {
        let grid = Grid {
            grid: launch.blocks,
            block: launch.threads,
            smem_bytes: u64::from(launch.smem_bytes),
            body: launch.kernel.host,
            arg: launch.args as *mut c_void,
            on_done: None,
            done_arg: std::ptr::null_mut(),
        };
        run_grids(&[grid], launch.kernel.name, deadline)
    }
}

fn run_grids(grids: &[Grid], kernel: &'static str, deadline: Duration) -> Result<(), DeviceError> {
    let mut options = std::mem::MaybeUninit::<Options>::uninit();
    // SAFETY: plain data; the callee fills in every field.
    let mut options = unsafe {
        gn_simt_default_options(options.as_mut_ptr());
        options.assume_init()
    };
    options.deadline_ns = u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX);
    let mut result =
        RunResult { yields: 0, switches: 0, os_yields: 0, failure: 0, reserved: 0, message: [0; 512] };
    // SAFETY: the grids' bodies are kernels that take one pointer, which each launch provides. The memory
    // that they use stays allocated during the call. The call returns only when every lane has ended or
    // been dropped.
    let code = unsafe { gn_simt_run(grids.as_ptr(), grids.len(), &raw const options, &raw mut result) };
    if code == GN_SIMT_OK {
        return Ok(());
    }
    // SAFETY: the callee NUL-terminates the message.
    let message = unsafe { CStr::from_ptr(result.message.as_ptr()) }.to_string_lossy().into_owned();
    if code == GN_SIMT_DEADLINE {
        let what = format!("kernel {kernel} did not end ({message})");
        return Err(DeviceError::Timeout { what, after: deadline });
    }
    Err(DeviceError::Kernel { kernel, cause: message })
}
