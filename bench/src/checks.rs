// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks that the load generator's kernel (`bench/cuda/bench.cu`) notices storage that returns too little or
//! wrong data. The storage is a thread here, which keeps what is written and returns what the test says.

mod rate;
mod starts;

use super::kernel::{
    ArgsAbi, BUCKETS, ClientAbi, FRESH, LaneResult, ONCE, SHARED_BYTES, VERIFY, WHOLE, Who, kernel,
};
use super::rate::Pace;
use gnstor_base::region::HostRegion;
use gnstor_base::testing::deadline;
use gnstor_fabric::device::{AgentWords, Launch, Together};
use gnstor_gnor::abi::VolumeAbi;
use libgnstor::{Choice, Device, DeviceFile, DeviceMem, Residency};
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes};

const BLOCK: usize = 4096;
const SECTOR: usize = 512;
/// Bytes that a thread compares at once.
const PIECE: usize = 16;
const VID: u8 = 5;
/// Offset of the VID in `gn::volume`, and its length.
const VID_AT: usize = offset_of!(VolumeAbi, vid);
const VOLUME_BYTES: usize = size_of::<VolumeAbi>();
/// Number of request words. The answer words follow them.
const LANES: usize = 128;
/// Longest time for anything here. Nothing here waits for it in practice.
const LIMIT: Duration = Duration::from_secs(60);
const POISON: u64 = 0xDEAD_BEEF_DEAD_BEEF;

/// Mirror of `gn::client_launch`.
#[derive(Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
struct ClientLaunch {
    agent: u64,
    args: u64,
    blocks: u32,
    done: u32,
}

/// The parameters of a launch.
#[derive(Clone, Copy)]
struct Asked {
    flags: u32,
    read_percent: u32,
    runtime: Duration,
    pace: Option<Pace>,
}

/// Every unit once.
fn once(flags: u32, read_percent: u32) -> Asked {
    Asked { flags: VERIFY | ONCE | flags, read_percent, runtime: LIMIT, pace: None }
}

/// The data of a read: bytes by their offsets in its buffer.
type Brought = Vec<(usize, Vec<u8>)>;

/// One client of the kernel, and the data that it has written.
struct Bed {
    device: Arc<Device>,
    depth: u32,
    units: u32,
    unit_blocks: u32,
    words: Arc<HostRegion>,
    buffers: DeviceMem,
    lanes: DeviceMem,
    args: DeviceMem,
    launch: DeviceMem,
    client: DeviceMem,
    /// Memory that only the kernel uses: stop word, multiprocessors, volume, generations, histograms.
    rest: [DeviceMem; 5],
    stored: Vec<Vec<u8>>,
}

impl Bed {
    /// A volume of `units` units. Each was written once by one of `depth` threads.
    fn new(depth: u32, units: u32, unit_blocks: u32) -> Self {
        let device = Device::open(Choice::Host).expect("the CPU");
        let alloc = |bytes| device.alloc(bytes).expect("memory");
        let unit = unit_blocks as usize * BLOCK;
        let mut bed = Self {
            words: HostRegion::alloc(2 * LANES * 8).expect("memory"),
            buffers: alloc(depth as usize * unit),
            lanes: alloc(depth as usize * size_of::<LaneResult>()),
            args: alloc(size_of::<ArgsAbi>()),
            launch: alloc(size_of::<ClientLaunch>()),
            client: alloc(size_of::<ClientAbi>()),
            rest: [
                alloc(4),
                alloc(4),
                alloc(VOLUME_BYTES),
                alloc(units as usize * 4),
                alloc(2 * BUCKETS * 8),
            ],
            stored: vec![vec![0; unit]; units as usize],
            device,
            depth,
            units,
            unit_blocks,
        };
        let written = bed.run(once(0, 0), |_, _| Vec::new());
        assert_eq!(written.iter().map(|lane| lane.ios[1]).sum::<u64>(), u64::from(units));
        bed
    }

    /// Reads every unit once, with checks. `brings` turns a unit's number and its written data into the data
    /// that the read returns.
    fn read(&mut self, flags: u32, brings: impl Fn(usize, &[u8]) -> Brought + Sync) -> Vec<LaneResult> {
        let lanes = self.run(once(flags, 100), brings);
        assert_eq!(lanes.iter().map(|lane| lane.ios[0]).sum::<u64>(), u64::from(self.units));
        assert!(lanes.iter().all(|lane| lane.verified + lane.wrong == lane.ios[0]));
        lanes
    }

    /// Writes what the kernel reads: its arguments, its client, its volume.
    fn prepare(&self, asked: &Asked) {
        let [stop, multiprocessors, volume, generations, histograms] = &self.rest;
        let ns = |time: Duration| u64::try_from(time.as_nanos()).expect("a minute");
        let args = ArgsAbi {
            clients: self.client.address(),
            stop: stop.address(),
            warmup_ns: 0,
            runtime_ns: ns(asked.runtime),
            seed: 3,
            depth: self.depth,
            unit_blocks: self.unit_blocks,
            units: self.units,
            read_percent: asked.read_percent,
            flags: asked.flags,
            replica: 0,
            multiprocessors: multiprocessors.address(),
            interval: asked.pace.map_or(0, |pace| pace.interval()),
            read_share: asked.pace.map_or(0, |pace| pace.read_share()),
        };
        let client = ClientAbi {
            file: DeviceFile { channel: 0, volume: volume.address(), timeout_ns: ns(LIMIT) },
            buffers: self.buffers.address(),
            generations: generations.address(),
            lanes: self.lanes.address(),
            histograms: histograms.address(),
            requests: self.words.address(),
            answers: self.words.address() + LANES as u64 * 8,
            key: 0,
            reserved: 0,
        };
        let launch = ClientLaunch { agent: 0, args: self.args.address(), blocks: 1, done: 0 };
        let write = |memory: &DeviceMem, at: usize, data: &[u8]| memory.write(at, data).expect("it fits");
        write(&self.args, 0, args.as_bytes());
        write(&self.client, 0, client.as_bytes());
        write(&self.launch, 0, launch.as_bytes());
        write(volume, VID_AT, &[VID, 0]);
        write(&self.lanes, 0, [FRESH].repeat(self.depth as usize).as_bytes());
        write(histograms, 0, &vec![0; 2 * BUCKETS * 8]);
        self.words.fill(0, 2 * LANES * 8, 0);
    }

    fn run(&mut self, asked: Asked, brings: impl Fn(usize, &[u8]) -> Brought + Sync) -> Vec<LaneResult> {
        self.prepare(&asked);
        let launch = Launch {
            kernel: kernel(Who::Cpu).beside_agent,
            blocks: 1,
            threads: 32,
            smem_bytes: SHARED_BYTES,
            args: self.launch.address(),
        };
        // There is no agent: in one grid, only the client is launched.
        let no_agent = AgentWords { stop: Vec::new(), ready: Vec::new(), number: 0 };
        let over = AtomicBool::new(false);
        let storage = Storage { words: &self.words, buffers: &self.buffers, unit_blocks: self.unit_blocks };
        let (stored, depth) = (&mut self.stored, self.depth as usize);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut seen = vec![0; depth];
                while !over.load(Ordering::Acquire) {
                    seen.iter_mut()
                        .enumerate()
                        .for_each(|(lane, seen)| storage.serve(lane, seen, stored, &brings));
                    std::thread::yield_now();
                }
            });
            let ended = self.device.run(
                &Together { agent: launch, client: launch, residency: Residency::OneGrid },
                &no_agent,
                2 * LIMIT,
            );
            over.store(true, Ordering::Release);
            ended.expect("the kernel ends");
        });
        let mut raw = vec![0; depth * size_of::<LaneResult>()];
        self.lanes.read(0, &mut raw).expect("it is inside");
        let lane = |raw: &[u8]| LaneResult::read_from_bytes(raw).expect("the length matches");
        let lanes: Vec<_> = raw.chunks_exact(size_of::<LaneResult>()).map(lane).collect();
        assert!(lanes.iter().all(|lane| lane.status == 0), "{lanes:?}");
        lanes
    }
}

/// The substitute for the proxy and the array.
struct Storage<'a> {
    words: &'a HostRegion,
    buffers: &'a DeviceMem,
    unit_blocks: u32,
}

impl Storage<'_> {
    fn serve(
        &self,
        lane: usize,
        seen: &mut u64,
        stored: &mut [Vec<u8>],
        brings: &impl Fn(usize, &[u8]) -> Brought,
    ) {
        // Pairs with the kernel's release.
        let word = self.words.words64(lane as u64 * 8, 1)[0].load(Ordering::Acquire);
        let sequence = word >> 48;
        if sequence == *seen {
            return;
        }
        *seen = sequence;
        let unit = usize::try_from((word & 0xFFFF_FFFF) / u64::from(self.unit_blocks)).expect("a unit");
        let buffer = lane * self.unit_blocks as usize * BLOCK;
        if word >> 32 & 1 == 1 {
            self.buffers.read(buffer, &mut stored[unit]).expect("it is inside");
        } else {
            for (offset, data) in brings(unit, &stored[unit]) {
                self.buffers.write(buffer + offset, &data).expect("it fits");
            }
        }
        // The kernel acquires it.
        self.words.words64((LANES + lane) as u64 * 8, 1)[0].store(sequence << 48, Ordering::Release);
    }
}

fn sum(lanes: &[LaneResult], of: fn(&LaneResult) -> u64) -> u64 {
    lanes.iter().map(of).sum()
}

/// All of the data.
fn whole(data: &[u8]) -> Brought {
    vec![(0, data.to_vec())]
}

#[test]
fn what_was_written_is_right_and_one_block_of_64_is_compared_in_full() {
    let _deadline = deadline();
    let mut bed = Bed::new(3, 6, 64);
    let lanes = bed.read(0, |_, data| whole(data));
    assert_eq!((sum(&lanes, |lane| lane.verified), sum(&lanes, |lane| lane.wrong)), (6, 0));
    assert_eq!(sum(&lanes, |lane| lane.whole_blocks), 6, "a unit has 64 blocks, whichever of them is drawn");
    let lanes = bed.read(WHOLE, |_, data| whole(data));
    assert_eq!((sum(&lanes, |lane| lane.verified), sum(&lanes, |lane| lane.whole_blocks)), (6, 6 * 64));
    assert_eq!(sum(&lanes, |lane| lane.generations), 6);
}

#[test]
fn a_read_that_brings_nothing_is_wrong_though_its_buffer_held_the_right_bytes() {
    let _deadline = deadline();
    // Each thread has one unit. Its buffer holds the data that it wrote and then read.
    let mut bed = Bed::new(2, 2, 2);
    let lanes = bed.read(0, |_, _| Vec::new());
    assert!(lanes.iter().all(|lane| lane.wrong == 1 && lane.found[0] == POISON), "{lanes:?}");
    for missing in 0..2 * BLOCK / SECTOR {
        bed.read(0, |_, data| whole(data));
        let lanes = bed.read(0, |_, data| {
            let sectors = data.chunks_exact(SECTOR).enumerate().filter(|(sector, _)| *sector != missing);
            sectors.map(|(sector, data)| (sector * SECTOR, data.to_vec())).collect()
        });
        for (unit, lane) in (0..).zip(&lanes) {
            let sector = unit * 2 * BLOCK / SECTOR + missing;
            assert_eq!(
                (lane.wrong, lane.wrong_sector, lane.found[0]),
                (1, sector as u64, POISON),
                "sector {missing}"
            );
        }
    }
}

#[test]
fn a_wrong_bit_is_found_wherever_it_lies_in_a_block() {
    let _deadline = deadline();
    // In unit p it is in piece p.
    let pieces = u32::try_from(BLOCK / PIECE).expect("a few");
    let mut bed = Bed::new(4, pieces, 1);
    let lanes = bed.read(WHOLE, |unit, data| {
        let mut data = data.to_vec();
        data[unit * PIECE + unit % PIECE] ^= 1 << (unit % 8);
        whole(&data)
    });
    assert_eq!((sum(&lanes, |lane| lane.wrong), sum(&lanes, |lane| lane.verified)), (pieces.into(), 0));
}

#[test]
fn wrong_bytes_inside_sectors_are_found_in_the_block_that_is_drawn() {
    let _deadline = deadline();
    let mut bed = Bed::new(2, 4, 64);
    let lanes = bed.read(0, |_, data| {
        let mut data = data.to_vec();
        data.chunks_exact_mut(BLOCK).for_each(|block| block[2000] ^= 1);
        whole(&data)
    });
    assert_eq!((sum(&lanes, |lane| lane.wrong), sum(&lanes, |lane| lane.verified)), (4, 0));
    for lane in &lanes {
        let header = u64::from(VID) << 48 | lane.wrong_sector;
        assert_eq!((lane.found[0], lane.found[1] >> 32), (header, 1), "its headers are right: {lane:?}");
    }
}
