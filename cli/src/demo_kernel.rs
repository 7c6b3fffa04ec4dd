// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The demo's kernel (`cli/cuda/demo.cu`) and its results.

use libgnstor::{ClientKernel, DeviceFile, DeviceMem, Error, File, Kernel, Shape};
use std::ffi::c_void;
use std::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes};

#[expect(unsafe_code, reason = "the kernel's entries for the CPU execution")]
mod entry {
    use std::ffi::c_void;
    unsafe extern "C" {
        pub(super) fn gn_demo_read(launch: *mut c_void);
        pub(super) fn gn_demo_read_one_grid(launch: *mut c_void);
    }
}

#[expect(unsafe_code, reason = "forwards to the C++ entry")]
unsafe extern "C" fn read_entry(launch: *mut c_void) {
    // SAFETY: called by the CPU runtime with the launch's argument.
    unsafe { entry::gn_demo_read(launch) }
}

#[expect(unsafe_code, reason = "forwards to the C++ entry")]
unsafe extern "C" fn read_one_grid_entry(launch: *mut c_void) {
    // SAFETY: called by the CPU runtime with the launch's argument.
    unsafe { entry::gn_demo_read_one_grid(launch) }
}

fn kernel() -> ClientKernel {
    let image = include_bytes!("../cuda/demo.fatbin");
    ClientKernel {
        beside_agent: Kernel { name: "gn_demo_read", image, host: read_entry },
        one_grid: Kernel { name: "gn_demo_read_one_grid", image, host: read_one_grid_entry },
    }
}

/// Mirror of `demo_args`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Args {
    file: DeviceFile,
    blocks: u32,
    reserved: u32,
    hashes: u64,
    start_ns: u64,
    end_ns: u64,
    status: u64,
    detail: u64,
}

/// Results of the threads, per block.
#[derive(Debug)]
pub(crate) struct Findings {
    pub(crate) hashes: Vec<u64>,
    pub(crate) start_ns: Vec<u64>,
    pub(crate) end_ns: Vec<u64>,
    pub(crate) status: Vec<u32>,
    pub(crate) detail: Vec<u32>,
}

/// The hash the kernel computes, for the host's side of the comparison: each word mixed with its position.
pub(crate) fn hash_block(block: &[u8]) -> u64 {
    let words = block.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes")));
    (1u64..).zip(words).fold(0, |sum, (position, word)| {
        let salted = word.wrapping_add(position.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        sum.wrapping_add(gnstor_proto::placement::mix64(salted))
    })
}

/// `sizeof(gn::batch)`.
const BATCH_BYTES: u32 = 32 * 4 + 1024 * 8;

/// Lets every thread of the grid read its own blocks of the file.
pub(crate) fn run(
    file: &File,
    blocks: u32,
    shape: (u32, u32),
    deadline: Duration,
) -> Result<Findings, Error> {
    let n = blocks as usize;
    let device = file.client().node().device();
    let words = device.alloc(n * 24)?;
    let states = device.alloc(n * 8)?;
    // Statuses start as a value that no request ends with: a block that no thread read is then not a success.
    states.write(0, &vec![0xFF; n * 8])?;
    let at = |mem: &DeviceMem, offset: usize| mem.address() + offset as u64;
    let args = Args {
        file: file.device_file(),
        blocks,
        reserved: 0,
        hashes: at(&words, 0),
        start_ns: at(&words, n * 8),
        end_ns: at(&words, n * 16),
        status: at(&states, 0),
        detail: at(&states, n * 4),
    };
    let argument = device.alloc(size_of::<Args>())?;
    argument.write(0, args.as_bytes())?;
    let shape = Shape { blocks: shape.0, threads: shape.1, smem_bytes: BATCH_BYTES };
    file.launch(kernel(), shape, argument.address(), deadline)?;
    let u64s = |offset: usize| -> Result<Vec<u64>, Error> {
        let mut raw = vec![0; n * 8];
        words.read(offset, &mut raw)?;
        Ok(raw.chunks_exact(8).map(|b| u64::read_from_bytes(b).expect("eight bytes")).collect())
    };
    let u32s = |offset: usize| -> Result<Vec<u32>, Error> {
        let mut raw = vec![0; n * 4];
        states.read(offset, &mut raw)?;
        Ok(raw.chunks_exact(4).map(|b| u32::read_from_bytes(b).expect("four bytes")).collect())
    };
    Ok(Findings {
        hashes: u64s(0)?,
        start_ns: u64s(n * 8)?,
        end_ns: u64s(n * 16)?,
        status: u32s(0)?,
        detail: u32s(n * 4)?,
    })
}
