// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor demo --fault`: a kernel that fails with reads in flight (`cli/cuda/fault.cu`). The error must
//! name it, in time, and the array must go on serving others.

use crate::args::{DemoArgs, FaultArg};
use crate::demo::{Cast, VOLUME, write_and_check_replicas};
use gnstor_console::{CliError, outln};
use gnstor_console::{Steps, print_json};
use libgnstor::{
    Choice, ClientKernel, Device, DeviceFile, Error, File, Kernel, Node, Residency, Rights, Shape,
};
use serde::Serialize;
use std::ffi::c_void;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::{Immutable, IntoBytes};

#[expect(unsafe_code, reason = "the kernel's entries for the CPU execution")]
mod entry {
    use std::ffi::c_void;
    unsafe extern "C" {
        pub(super) fn gn_demo_fault(launch: *mut c_void);
        pub(super) fn gn_demo_fault_one_grid(launch: *mut c_void);
    }
}

#[expect(unsafe_code, reason = "forwards to the C++ entry")]
unsafe extern "C" fn fault_entry(launch: *mut c_void) {
    // SAFETY: called by the CPU runtime with the launch's argument.
    unsafe { entry::gn_demo_fault(launch) }
}

#[expect(unsafe_code, reason = "forwards to the C++ entry")]
unsafe extern "C" fn fault_one_grid_entry(launch: *mut c_void) {
    // SAFETY: called by the CPU runtime with the launch's argument.
    unsafe { entry::gn_demo_fault_one_grid(launch) }
}

fn kernel() -> ClientKernel {
    let image = include_bytes!("../cuda/fault.fatbin");
    ClientKernel {
        beside_agent: Kernel { name: "gn_demo_fault", image, host: fault_entry },
        one_grid: Kernel { name: "gn_demo_fault_one_grid", image, host: fault_one_grid_entry },
    }
}

/// Mirror of `fault_args`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Args {
    file: DeviceFile,
    blocks: u32,
    what: u32,
    never: u64,
}

/// `sizeof(gn::batch)`.
const BATCH_BYTES: u32 = 32 * 4 + 1024 * 8;
/// Deadline of the kernel: short, because the launch must report a kernel that exceeds it.
const KERNEL: Duration = Duration::from_secs(3);
/// The launch's end after that, at most: the agent is asked to end too.
const GRACE: Duration = Duration::from_secs(15);

/// Result of the fault.
#[derive(Debug, Serialize)]
pub struct FaultReport {
    fault: &'static str,
    /// `cuda` or `host`.
    device: &'static str,
    device_name: String,
    /// Error of the launch.
    error: String,
    /// Time until the launch ended.
    seconds: f64,
    /// Bytes that another client, on the CPU, has read back since and compared.
    read_back: usize,
}

/// Writes the volume, lets a kernel fail on it, and reads it back with another client on another device. On a
/// GPU whose kernel still runs, this ends the process, because memory that a running kernel may use cannot be
/// freed.
///
/// # Errors
/// [`CliError`]: the fault was not reported as it should be, or harmed others.
#[expect(clippy::disallowed_methods, reason = "how long a person would wait")]
pub fn run(what: FaultArg, args: &DemoArgs, steps: &Steps) -> Result<(), CliError> {
    let cast = Cast::new(args, steps)?;
    let writer = cast.connect("writer")?;
    cast.create(&writer)?;
    write_and_check_replicas(&writer, &cast.data, steps)?;
    let reader = cast.connect("reader")?;
    let file = reader.open(VOLUME, Rights::Read)?;
    let began = Instant::now();
    let ended = launch(&file, what, args, cast.data.padded.len());
    let took = began.elapsed();
    let error = match ended {
        Ok(()) => return Err(CliError::Verify("the kernel that should fail ended well".into())),
        Err(error) => error.to_string(),
    };
    if !error.contains("gn_demo_fault") || took > KERNEL + GRACE {
        return Err(CliError::Verify(format!("the fault was reported after {took:?} as: {error}")));
    }
    steps.done(format!("fault       {error}"));
    let read_back = read_back(&cast)?;
    steps.done("array       still serves: a client on the CPU read the whole volume back and compared it");
    let device = cast.device.kind();
    let fault = if what == FaultArg::Trap { "trap" } else { "hang" };
    let device_name = cast.device.name();
    let report = FaultReport { fault, device, device_name, error, seconds: took.as_secs_f64(), read_back };
    print(&report, args.json);
    if device == "cuda" && what == FaultArg::Hang {
        leave();
    }
    Ok(())
}

/// Ends the process without destructors and exit handlers: the driver's would wait for the kernel, too.
#[expect(unsafe_code, reason = "the standard library has no such end")]
fn leave() -> ! {
    let _ = std::io::stdout().flush();
    // SAFETY: it takes a number and does not return; what was to be said has been.
    unsafe { nix::libc::_exit(0) }
}

fn launch(file: &File, what: FaultArg, args: &DemoArgs, bytes: usize) -> Result<(), Error> {
    let device = file.client().node().device();
    let never = device.alloc(4)?;
    let argument = device.alloc(size_of::<Args>())?;
    let abi = Args {
        file: file.device_file(),
        blocks: u32::try_from(bytes / 4096).expect("the demo has read it"),
        what: if what == FaultArg::Trap { 1 } else { 2 },
        never: never.address(),
    };
    argument.write(0, abi.as_bytes())?;
    let shape = Shape { blocks: args.blocks, threads: args.threads, smem_bytes: BATCH_BYTES };
    let ended = file.launch(kernel(), shape, argument.address(), KERNEL);
    // A kernel that still runs reads them: giving them back would wait for its end.
    if ended.is_err() && !device.is_idle() {
        std::mem::forget((never, argument));
    }
    ended
}

/// By a client of its own on a device that nothing has happened to.
fn read_back(cast: &Cast<'_>) -> Result<usize, CliError> {
    let device = Device::open(Choice::Host).map_err(Error::from)?;
    let node =
        Arc::new(Node::new(cast.array.transport(), &device, Residency::TwoKernels).map_err(Error::from)?);
    let client = cast.connect_by(&node, "witness")?;
    let (file, data) = (client.open(VOLUME, Rights::Read)?, &cast.data.padded);
    let mut back = vec![0; 1 << 20];
    for (number, part) in data.chunks(1 << 20).enumerate() {
        let back = &mut back[..part.len()];
        file.read_at((number << 20) as u64, back)?;
        if back != part {
            return Err(CliError::Verify(format!(
                "after the fault, MiB {number} of the volume differs from what was written"
            )));
        }
    }
    Ok(data.len())
}

fn print(report: &FaultReport, json: bool) {
    if json {
        return print_json(report);
    }
    outln!();
    outln!(
        "  fault       {} on {}, reported after {:.1} s",
        report.fault,
        report.device_name,
        report.seconds
    );
    outln!("  error       {}", report.error);
    outln!("  array       serves: {} bytes read back by another client and compared", report.read_back);
}
