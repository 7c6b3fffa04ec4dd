// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the machine can: a bare copy between memory of the kind that SSDs have and device memory
//! (`bench/cuda/copy.cu`).

use gnstor_base::region::HostRegion;
use gnstor_console::CliError;
use gnstor_fabric::device::{AgentWords, Launch, Together};
use gnstor_proto::placement::mix64;
use libgnstor::{Device, DeviceMem, Error, Kernel, Residency};
use serde::{Deserialize, Serialize};
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes};

#[expect(unsafe_code, reason = "the kernel's entry for the CPU execution")]
mod entry {
    use std::ffi::c_void;
    unsafe extern "C" {
        pub(super) fn gn_copy(args: *mut c_void);
    }
}

#[expect(unsafe_code, reason = "forwards to the C++ entry")]
unsafe extern "C" fn gn_copy(args: *mut c_void) {
    // SAFETY: called by the CPU runtime with the launch's argument.
    unsafe { entry::gn_copy(args) }
}

fn kernel() -> Kernel {
    Kernel { name: "gn_copy", image: include_bytes!("../cuda/copy.fatbin"), host: gn_copy }
}

/// Mirror of `gn::copy::result`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct WarpResult {
    pieces: u64,
    first_ns: u64,
    last_ns: u64,
    host_at: u64,
    device_at: u64,
}

/// Mirror of `gn::copy::args`.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
struct ArgsAbi {
    host: u64,
    device: u64,
    results: u64,
    host_pieces: u64,
    runtime_ns: u64,
    seed: u64,
    piece: u32,
    slots: u32,
    to_host: u32,
    reserved: u32,
}

/// Movers of an agent's block: the warps that `AgentHca::launch` does not use for other roles.
const MOVERS: u32 = 18;
const MOVERS_HOST: u32 = 1;
/// Pieces of device memory for each warp.
const SLOTS: u32 = 4;
const SMALL: u32 = 4 << 10;
const LARGE: u32 = 64 << 10;
/// Number of warps whose last piece is compared.
const COMPARED: usize = 64;
/// Time a launch may take beyond the copy.
const GRACE: Duration = Duration::from_secs(30);

/// The result of one copy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Copied {
    /// Whether it goes into device memory, as a volume's reads do, or out of it.
    pub(super) to_device: bool,
    /// Bytes of a piece.
    pub(super) piece: u32,
    /// Blocks, and warps of each: as many as the agent has movers, or many more.
    pub(super) blocks: u32,
    pub(super) warps: u32,
    pub(super) like_movers: bool,
    pub(super) pieces_per_s: f64,
    /// Decimal.
    pub(super) gbps: f64,
    /// Last pieces that were compared, and were right.
    pub(super) compared: usize,
}

/// All copies, measured one after the other on the same memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct CopyBaseline {
    pub(super) host_bytes: u64,
    pub(super) copies: Vec<Copied>,
}

impl CopyBaseline {
    /// Pieces a second of the fastest copy of this kind.
    pub(super) fn best(&self, to_device: bool, piece: u64) -> Option<f64> {
        let of_kind = |copy: &&Copied| copy.to_device == to_device && u64::from(copy.piece) == piece;
        self.copies.iter().filter(of_kind).map(|copy| copy.pieces_per_s).max_by(f64::total_cmp)
    }
}

/// A copy to measure; its fields are those of [`Copied`].
#[derive(Clone, Copy)]
struct Shape {
    to_device: bool,
    piece: u32,
    blocks: u32,
    warps: u32,
    like_movers: bool,
}

/// Memory for copies, pinned and filled.
struct Bed<'a> {
    device: &'a Arc<Device>,
    host: Arc<HostRegion>,
    host_at: u64,
    memory: DeviceMem,
    results: DeviceMem,
    args: DeviceMem,
}

/// Measures every copy for `runtime` on `device`: with as many warps as an agent of `blocks` blocks has
/// movers, and with many more.
///
/// # Errors
/// [`CliError`]: no memory, a kernel that failed, or a copy with wrong data.
pub(super) fn measure(
    device: &Arc<Device>,
    agent_blocks: u32,
    runtime: Duration,
) -> Result<CopyBaseline, CliError> {
    let gpu = device.kind() == "cuda";
    let movers = (agent_blocks, if gpu { MOVERS } else { MOVERS_HOST });
    let many = if gpu { (64, 32) } else { (4, 2) };
    let host_bytes: usize = if gpu { 2 << 30 } else { 64 << 20 };
    let warps = (movers.0 * movers.1).max(many.0 * many.1) as usize;
    let bed = Bed::new(device, host_bytes, warps)?;
    let mut copies = Vec::new();
    for to_device in [true, false] {
        for piece in [SMALL, LARGE] {
            for ((blocks, warps), like_movers) in [(movers, true), (many, false)] {
                copies.push(bed.copy(Shape { to_device, piece, blocks, warps, like_movers }, runtime)?);
            }
        }
    }
    Ok(CopyBaseline { host_bytes: host_bytes as u64, copies })
}

impl<'a> Bed<'a> {
    fn new(device: &'a Arc<Device>, host_bytes: usize, warps: usize) -> Result<Self, CliError> {
        let host = HostRegion::alloc(host_bytes)
            .map_err(|cause| Error::Os { what: format!("{host_bytes} bytes to copy from"), cause })?;
        let mut chunk: Vec<u8> = (0..LARGE as u64 / 8).flat_map(|word| mix64(word).to_le_bytes()).collect();
        for at in (0..host_bytes).step_by(LARGE as usize) {
            // Each 4 KiB differ from all others.
            for (piece, bytes) in (at..).step_by(SMALL as usize).zip(chunk.chunks_exact_mut(SMALL as usize)) {
                bytes[..8].copy_from_slice(&(piece as u64).to_le_bytes());
            }
            host.write(at as u64, &chunk);
        }
        let host_at = device.map(&host).map_err(Error::from)?;
        let alloc = |bytes| device.alloc(bytes).map_err(Error::from);
        Ok(Self {
            device,
            host,
            host_at,
            memory: alloc(warps * (SLOTS * LARGE) as usize)?,
            results: alloc(warps * size_of::<WarpResult>())?,
            args: alloc(size_of::<ArgsAbi>())?,
        })
    }

    fn copy(&self, shape: Shape, runtime: Duration) -> Result<Copied, CliError> {
        let Shape { to_device, piece, blocks, warps, like_movers } = shape;
        let args = ArgsAbi {
            host: self.host_at,
            device: self.memory.address(),
            results: self.results.address(),
            host_pieces: self.host.len() as u64 / u64::from(piece),
            runtime_ns: u64::try_from(runtime.as_nanos()).expect("at most days"),
            seed: u64::from(piece) << 32 | u64::from(blocks),
            piece,
            slots: SLOTS,
            to_host: u32::from(!to_device),
            reserved: 0,
        };
        self.args.write(0, args.as_bytes()).map_err(Error::from)?;
        let launch = Launch {
            kernel: kernel(),
            blocks,
            threads: warps * 32,
            smem_bytes: 0,
            args: self.args.address(),
        };
        // There is no agent: in one grid, only the client is launched.
        let no_agent = AgentWords { stop: Vec::new(), ready: Vec::new(), number: 0 };
        self.device
            .run(
                &Together { agent: launch, client: launch, residency: Residency::OneGrid },
                &no_agent,
                runtime + GRACE,
            )
            .map_err(Error::from)?;
        let mut raw = vec![0; (blocks * warps) as usize * size_of::<WarpResult>()];
        self.results.read(0, &mut raw).map_err(Error::from)?;
        let raw = raw.chunks_exact(size_of::<WarpResult>());
        let results: Vec<_> =
            raw.map(|raw| WarpResult::read_from_bytes(raw).expect("the length matches")).collect();
        let compared = self.compare(&results, piece as usize)?;
        let pieces: u64 = results.iter().map(|warp| warp.pieces).sum();
        let first = results.iter().map(|warp| warp.first_ns).min().unwrap_or(0);
        let last = results.iter().map(|warp| warp.last_ns).max().unwrap_or(0);
        #[expect(clippy::cast_precision_loss, reason = "figures to print")]
        let pieces_per_s = pieces as f64 * 1e9 / last.saturating_sub(first).max(1) as f64;
        let gbps = pieces_per_s * f64::from(piece) / 1e9;
        Ok(Copied { to_device, piece, blocks, warps, like_movers, pieces_per_s, gbps, compared })
    }

    /// Compares the last pieces of some warps with their sources. Returns the number of pieces.
    fn compare(&self, results: &[WarpResult], bytes: usize) -> Result<usize, CliError> {
        let (mut here, mut there) = (vec![0; bytes], vec![0; bytes]);
        let some = results.iter().step_by(results.len().div_ceil(COMPARED).max(1));
        let mut compared = 0;
        for warp in some {
            let (host_at, device_at) = (warp.host_at, warp.device_at);
            let inside = |at: u64, len: usize| at + bytes as u64 <= len as u64;
            if warp.pieces == 0 || !inside(host_at, self.host.len()) || !inside(device_at, self.memory.len())
            {
                return Err(CliError::Verify("a warp of the bare copy has copied nothing".into()));
            }
            self.host.read(host_at, &mut here);
            self.memory.read(usize::try_from(device_at).expect("inside"), &mut there).map_err(Error::from)?;
            if here != there {
                let what =
                    format!("the bare copy: {bytes} bytes at {host_at} of the host differ from the device's");
                return Err(CliError::Verify(what));
            }
            compared += 1;
        }
        Ok(compared)
    }
}

#[cfg(test)]
mod tests {
    #![expect(unsafe_code, reason = "asks the C++ compiler")]
    use super::*;
    use crate::layout::{Row, assert_same};
    use gnstor_base::testing::deadline;
    use libgnstor::Choice;
    use std::mem::offset_of;

    unsafe extern "C" {
        static gn_copy_layout: Row;
    }

    #[test]
    fn every_size_and_offset_is_the_same_in_both_languages() {
        let _deadline = deadline();
        let mirror = [
            ("result", size_of::<WarpResult>()),
            ("result.host_at", offset_of!(WarpResult, host_at)),
            ("result.device_at", offset_of!(WarpResult, device_at)),
            ("args", size_of::<ArgsAbi>()),
            ("args.results", offset_of!(ArgsAbi, results)),
            ("args.host_pieces", offset_of!(ArgsAbi, host_pieces)),
            ("args.seed", offset_of!(ArgsAbi, seed)),
            ("args.piece", offset_of!(ArgsAbi, piece)),
            ("args.slots", offset_of!(ArgsAbi, slots)),
            ("args.to_host", offset_of!(ArgsAbi, to_host)),
        ];
        // SAFETY: the C++ file ends this table with a null name, and its other names are string literals.
        unsafe { assert_same(&raw const gn_copy_layout, &mirror) }
    }

    #[test]
    fn copies_bring_what_was_there_both_ways() {
        let _deadline = deadline();
        let device = Device::open(Choice::Host).expect("the CPU");
        let copy_baseline = measure(&device, 2, Duration::from_millis(10)).expect("copies");
        assert_eq!(copy_baseline.copies.len(), 8);
        for copy in &copy_baseline.copies {
            assert!(copy.pieces_per_s > 0.0, "{copy:?}");
            assert_eq!(copy.compared, (copy.blocks * copy.warps) as usize);
        }
        let movers: Vec<u32> =
            copy_baseline.copies.iter().filter(|c| c.like_movers).map(|c| c.blocks * c.warps).collect();
        assert_eq!(movers, [2; 4]);
        let best = copy_baseline.best(true, 4096).expect("one of this kind");
        assert!(copy_baseline.copies[..2].iter().all(|copy| copy.pieces_per_s <= best));
        assert_eq!(copy_baseline.best(true, 8192), None);
    }

    #[test]
    fn a_piece_that_was_not_copied_is_found() {
        let _deadline = deadline();
        let device = Device::open(Choice::Host).expect("the CPU");
        let bed = Bed::new(&device, 1 << 20, 1).expect("memory");
        let mut warp = WarpResult { pieces: 1, first_ns: 0, last_ns: 1, host_at: 4096, device_at: 0 };
        let found =
            |warp: &WarpResult| bed.compare(std::slice::from_ref(warp), 4096).map_err(|e| e.to_string());
        assert!(found(&warp).is_err_and(|why| why.contains("differ")));
        let shape = Shape { to_device: true, piece: SMALL, blocks: 1, warps: 1, like_movers: true };
        bed.copy(shape, Duration::from_millis(1)).expect("a copy");
        warp.pieces = 0;
        assert!(found(&warp).is_err_and(|why| why.contains("nothing")));
    }
}
