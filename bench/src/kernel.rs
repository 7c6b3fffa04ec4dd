// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mirror of `bench/cuda/bench.h`: what the kernel is told and what it leaves behind.

use libgnstor::{ClientKernel, DeviceFile, Kernel};
use std::ffi::c_void;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

#[expect(unsafe_code, reason = "the kernels' entries for the CPU execution")]
mod entry {
    use std::ffi::c_void;
    unsafe extern "C" {
        pub(super) fn gn_bench_of_block(launch: *mut c_void);
        pub(super) fn gn_bench_of_block_one_grid(launch: *mut c_void);
        pub(super) fn gn_bench_in_pieces(launch: *mut c_void);
        pub(super) fn gn_bench_in_pieces_one_grid(launch: *mut c_void);
        pub(super) fn gn_bench_of_warp(launch: *mut c_void);
        pub(super) fn gn_bench_of_warp_one_grid(launch: *mut c_void);
        pub(super) fn gn_bench_by_cpu(launch: *mut c_void);
        pub(super) fn gn_bench_by_cpu_one_grid(launch: *mut c_void);
    }
}

macro_rules! entries {
    ($($name:ident),*) => { $(
        #[expect(unsafe_code, reason = "forwards to the C++ entry")]
        unsafe extern "C" fn $name(launch: *mut c_void) {
            // SAFETY: called by the CPU runtime with the launch's argument.
            unsafe { entry::$name(launch) }
        }
    )* };
}
entries!(
    gn_bench_of_block,
    gn_bench_of_block_one_grid,
    gn_bench_in_pieces,
    gn_bench_in_pieces_one_grid,
    gn_bench_of_warp,
    gn_bench_of_warp_one_grid,
    gn_bench_by_cpu,
    gn_bench_by_cpu_one_grid
);

/// The threads that use a client's channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Who {
    /// The warps of a block.
    Block,
    /// The same, with buffers in pieces.
    BlockInPieces,
    /// One warp alone, which needs no atomics.
    Warp,
    /// No device thread: the kernel asks a CPU thread, which has queues of its own.
    Cpu,
}

/// The kernel for clients of this kind.
pub(super) fn kernel(who: Who) -> ClientKernel {
    let image = include_bytes!("../cuda/bench.fatbin");
    let of = |name, host| Kernel { name, image, host };
    match who {
        Who::Block => ClientKernel {
            beside_agent: of("gn_bench_of_block", gn_bench_of_block),
            one_grid: of("gn_bench_of_block_one_grid", gn_bench_of_block_one_grid),
        },
        Who::BlockInPieces => ClientKernel {
            beside_agent: of("gn_bench_in_pieces", gn_bench_in_pieces),
            one_grid: of("gn_bench_in_pieces_one_grid", gn_bench_in_pieces_one_grid),
        },
        Who::Warp => ClientKernel {
            beside_agent: of("gn_bench_of_warp", gn_bench_of_warp),
            one_grid: of("gn_bench_of_warp_one_grid", gn_bench_of_warp_one_grid),
        },
        Who::Cpu => ClientKernel {
            beside_agent: of("gn_bench_by_cpu", gn_bench_by_cpu),
            one_grid: of("gn_bench_by_cpu_one_grid", gn_bench_by_cpu_one_grid),
        },
    }
}

pub(super) const RANDOM: u32 = 1;
pub(super) const VERIFY: u32 = 2;
pub(super) const WHOLE: u32 = 4;
pub(super) const ONCE: u32 = 8;
pub(super) const STAMPS: u32 = 16;

/// `sizeof(shared)`: a batch, a channel and a schedule.
pub(super) const SHARED_BYTES: u32 = 32 * 4 + 1024 * 8 + 6_376 + 16;
/// Buckets of a histogram.
pub(super) const BUCKETS: usize = 2240;
const SUB: u64 = 64;

/// The latency that represents a bucket: its middle.
pub(super) fn bucket_ns(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * SUB {
        return bucket;
    }
    let shift = bucket / SUB - 1;
    ((bucket % SUB + SUB) << shift) + (1 << shift) / 2
}

/// The counters of one thread.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct LaneResult {
    pub(super) ios: [u64; 2],
    pub(super) sum_ns: [u64; 2],
    pub(super) max_ns: [u64; 2],
    pub(super) verified: u64,
    pub(super) whole_blocks: u64,
    pub(super) generations: u64,
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
    pub(super) wrong: u64,
    pub(super) wrong_sector: u64,
    pub(super) found: [u64; 2],
    pub(super) wanted: u32,
    pub(super) status: u32,
    pub(super) dw0: u32,
    pub(super) failed_vba: u32,
}

/// No sector was wrong yet.
pub(super) const NO_SECTOR: u64 = u64::MAX;

/// An account before anything has happened.
pub(super) const FRESH: LaneResult = LaneResult {
    ios: [0; 2],
    sum_ns: [0; 2],
    max_ns: [0; 2],
    verified: 0,
    whole_blocks: 0,
    generations: 0,
    first_ns: 0,
    last_ns: 0,
    wrong: 0,
    wrong_sector: NO_SECTOR,
    found: [0; 2],
    wanted: 0,
    status: 0,
    dw0: 0,
    failed_vba: 0,
};

#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct ClientAbi {
    pub(super) file: DeviceFile,
    pub(super) buffers: u64,
    pub(super) generations: u64,
    pub(super) lanes: u64,
    pub(super) histograms: u64,
    pub(super) requests: u64,
    pub(super) answers: u64,
    pub(super) key: u32,
    pub(super) reserved: u32,
}

#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct ArgsAbi {
    pub(super) clients: u64,
    pub(super) stop: u64,
    pub(super) warmup_ns: u64,
    pub(super) runtime_ns: u64,
    pub(super) seed: u64,
    pub(super) depth: u32,
    pub(super) unit_blocks: u32,
    pub(super) units: u32,
    pub(super) read_percent: u32,
    pub(super) flags: u32,
    pub(super) replica: u32,
    pub(super) multiprocessors: u64,
    pub(super) interval: u64,
    pub(super) read_share: u64,
}

#[cfg(test)]
mod tests {
    #![expect(unsafe_code, reason = "asks the C++ compiler")]
    use super::*;
    use crate::layout::{Row, assert_same};
    use gnstor_base::testing::deadline;
    use std::mem::offset_of;

    unsafe extern "C" {
        static gn_bench_layout: Row;
        fn gn_bench_bucket_of(ns: u64) -> u32;
    }

    #[test]
    fn every_size_and_offset_is_the_same_in_both_languages() {
        let _deadline = deadline();
        let mirror = [
            ("lane_result", size_of::<LaneResult>()),
            ("lane_result.verified", offset_of!(LaneResult, verified)),
            ("lane_result.wrong", offset_of!(LaneResult, wrong)),
            ("lane_result.found", offset_of!(LaneResult, found)),
            ("lane_result.wanted", offset_of!(LaneResult, wanted)),
            ("lane_result.failed_vba", offset_of!(LaneResult, failed_vba)),
            ("client", size_of::<ClientAbi>()),
            ("client.buffers", offset_of!(ClientAbi, buffers)),
            ("client.generations", offset_of!(ClientAbi, generations)),
            ("client.lanes", offset_of!(ClientAbi, lanes)),
            ("client.histograms", offset_of!(ClientAbi, histograms)),
            ("client.requests", offset_of!(ClientAbi, requests)),
            ("client.answers", offset_of!(ClientAbi, answers)),
            ("client.key", offset_of!(ClientAbi, key)),
            ("args", size_of::<ArgsAbi>()),
            ("args.stop", offset_of!(ArgsAbi, stop)),
            ("args.seed", offset_of!(ArgsAbi, seed)),
            ("args.depth", offset_of!(ArgsAbi, depth)),
            ("args.units", offset_of!(ArgsAbi, units)),
            ("args.flags", offset_of!(ArgsAbi, flags)),
            ("args.replica", offset_of!(ArgsAbi, replica)),
            ("args.multiprocessors", offset_of!(ArgsAbi, multiprocessors)),
            ("args.interval", offset_of!(ArgsAbi, interval)),
            ("args.read_share", offset_of!(ArgsAbi, read_share)),
            ("shared", SHARED_BYTES as usize),
            ("buckets", BUCKETS),
        ];
        // SAFETY: the C++ file ends this table with a null name, and its other names are string literals.
        unsafe { assert_same(&raw const gn_bench_layout, &mirror) }
    }

    #[test]
    fn a_bucket_is_within_one_per_cent_of_its_values() {
        let _deadline = deadline();
        let near_powers = (0..40).flat_map(|p| [(1u64 << p) - 1, 1 << p, (1 << p) + 1]);
        let spread = (0..100_000u64).map(|i| gnstor_proto::placement::mix64(i) >> (24 + i % 40));
        let mut last = (0, 0);
        let mut all: Vec<u64> = near_powers.chain(spread).collect();
        all.sort_unstable();
        for ns in all {
            // SAFETY: a function of one number.
            let bucket = unsafe { gn_bench_bucket_of(ns) } as usize;
            assert!(
                bucket < BUCKETS && bucket >= last.0,
                "{ns} falls into {bucket}, and {} into {}",
                last.1,
                last.0
            );
            last = (bucket, ns);
            assert!(bucket_ns(bucket).abs_diff(ns) * 100 <= ns, "{ns} ns is told as {}", bucket_ns(bucket));
        }
        // SAFETY: as above.
        assert_eq!(unsafe { gn_bench_bucket_of(u64::MAX) } as usize, BUCKETS - 1);
    }
}
