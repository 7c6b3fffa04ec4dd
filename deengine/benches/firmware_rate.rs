// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU time of the firmware alone: 4 KiB random reads from submission queue entry to completion entry, data by
//! reference (the HCA moves it, not the firmware), preset `null`, queues filled in advance. One core with the access check
//! and without, then several cores of one SSD, beside as many SSDs with a core each: what the machine allows.
//!
//! `cargo bench -p gnstor-deengine --bench firmware_rate [-- SECONDS [MOST_CORES]]`
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod common;

use common::{client, connect, enable, io, map, queue_request, vendor, volume};
use gnstor_deengine::{Core, Preset, Ssd, SsdConfig, SsdMedia};
use gnstor_fabric::controller::{Controller, Effect, Outcome, QueueKey};
use gnstor_fabric::region::HostRegion;
use gnstor_fabric::time::Time;
use gnstor_proto::fabrics::{CNTLID_ANY, Identity};
use gnstor_proto::nvme::{self, Cqe, KeyedSgl, Sqe};
use gnstor_proto::placement::mix64;
use gnstor_proto::vendor::opcode;
use std::sync::{Arc, Barrier};
use std::time::Instant;
use zerocopy::IntoBytes;

const BLOCKS: u64 = 1 << 18;
const DEPTH: usize = 64;
/// Rounds of each measurement; the best counts.
const ROUNDS: u32 = 3;
const NOW: Time = Time::from_ns(1_000_000);
const DAEMON: QueueKey = QueueKey(1);
const ADMIN: QueueKey = QueueKey(2);
const IO: QueueKey = QueueKey(3);

/// Carries out effects for admin commands, with real bytes.
fn admin(core: &mut Core, regions: &[Arc<HostRegion>], queue: QueueKey, mut sqe: Sqe, data: &[u8]) -> Cqe {
    sqe.flags = nvme::FLAGS_SGL;
    sqe.dptr = KeyedSgl::keyed(4096, u32::try_from(data.len()).expect("small"), 1);
    core.submit(NOW, queue, &sqe);
    loop {
        match core.pop_effect() {
            Some(Effect::Pull { transfer, local, .. }) => {
                let region = regions.iter().find(|r| r.id() == local.region).expect("a region of the SSD");
                region.write(local.offset, &data[..data.len().min(local.bytes as usize)]);
                core.transferred(NOW, transfer, Outcome::Done { sum: 0 });
            }
            Some(Effect::Push { transfer, .. }) => core.transferred(NOW, transfer, Outcome::Done { sum: 0 }),
            Some(Effect::Complete { cqe, .. }) => {
                assert_eq!(cqe.status_word(), 0, "{sqe:?}");
                return cqe;
            }
            Some(Effect::Close { .. }) => panic!("the SSD closed a queue"),
            None => core.step(NOW),
        }
    }
}

fn open(core: &mut Core, regions: &[Arc<HostRegion>], queue: QueueKey, qid: u16, identity: Identity, id: u16) -> u16 {
    core.open_queue(NOW, queue, &queue_request(qid)).expect("a queue");
    let (sqe, data) = connect(qid, identity, id);
    let cqe = admin(core, regions, queue, sqe, data.as_bytes());
    if qid == 0 {
        admin(core, regions, queue, enable(), &[]);
    }
    u16::try_from(cqe.dw0.get() & 0xFFFF).expect("16 bits")
}

/// Runs commands that are ready in advance, `DEPTH` at a time; how many completed.
fn drive(core: &mut Core, commands: &[Sqe]) -> u64 {
    let mut done = 0;
    for batch in commands.chunks(DEPTH) {
        core.announce(batch);
        for sqe in batch {
            core.submit(NOW, IO, sqe);
        }
        while let Some(effect) = core.pop_effect() {
            match effect {
                Effect::Push { transfer, .. } | Effect::Pull { transfer, .. } => {
                    core.transferred(NOW, transfer, Outcome::Done { sum: 0 });
                }
                Effect::Complete { cqe, .. } => {
                    assert_eq!(cqe.status_word(), 0);
                    done += 1;
                }
                Effect::Close { .. } => panic!("the SSD closed a queue"),
            }
        }
    }
    done
}

/// An SSD that is written once, with an I/O queue on each core.
fn ssd(cores: usize) -> Vec<Core> {
    let preset = Preset::by_name("null").expect("a preset");
    let capacity_bytes = BLOCKS * 4096;
    let config = SsdConfig { index: 0, preset, capacity_bytes, serial: "BENCH".into(), media: SsdMedia::Ram };
    let mut cores = Ssd::format(config).expect("an SSD").into_cores(cores);
    let regions = cores[0].regions();
    open(&mut cores[0], &regions, DAEMON, 0, Identity::Daemon, CNTLID_ANY);
    let map = map();
    admin(&mut cores[0], &regions, DAEMON, vendor(opcode::MAP_SET, map.len()), &map);
    admin(&mut cores[0], &regions, DAEMON, vendor(opcode::VOLUME_ADD, 4096), volume(BLOCKS).encode().as_bytes());
    let identity = Identity::Client(client());
    let cntlid = open(&mut cores[0], &regions, ADMIN, 0, identity, CNTLID_ANY);
    for (qid, core) in (1..).zip(&mut cores) {
        open(core, &regions, IO, qid, identity, cntlid);
    }
    let cid = |n: u64| usize::try_from(n).expect("small") % DEPTH;
    let fill: Vec<Sqe> = (0..BLOCKS).map(|n| io(nvme::io::WRITE, n, cid(n), n + 1)).collect();
    let start = Instant::now();
    assert_eq!(drive(&mut cores[0], &fill), BLOCKS);
    println!("sequential write: {} ns", start.elapsed().as_nanos() / u128::from(BLOCKS));
    cores
}

/// Reads a second by all of these cores at once, in millions, each on a thread of its own.
#[expect(clippy::cast_precision_loss, reason = "a rate to print")]
fn rate(cores: &mut [&mut Core], seconds: f64) -> f64 {
    let start = Barrier::new(cores.len());
    let read = |seed: u64, core: &mut Core| {
        let place = |n: u64| (mix64(seed << 32 | n) % BLOCKS, usize::try_from(n).expect("small") % DEPTH);
        let reads: Vec<Sqe> = (0..1u64 << 18).map(place).map(|(vba, cid)| io(nvme::io::READ, vba, cid, 0)).collect();
        start.wait();
        let (begin, mut done) = (Instant::now(), 0);
        while begin.elapsed().as_secs_f64() < seconds {
            done += drive(core, &reads);
        }
        done as f64 / begin.elapsed().as_secs_f64() / 1e6
    };
    std::thread::scope(|scope| {
        let read = &read;
        let threads: Vec<_> = (0..).zip(cores).map(|(seed, core)| scope.spawn(move || read(seed, core))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a reader")).sum()
    })
}

fn main() {
    let numbers: Vec<f64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let seconds = numbers.first().copied().unwrap_or(2.0);
    let here = std::thread::available_parallelism().map_or(1, usize::from);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of cores")]
    let most = numbers.get(1).map_or(here.min(8), |&most| most as usize);

    let (mut cores, mut free) = (ssd(1), ssd(1));
    free[0].ssd().measure_unchecked();
    // In turn, so that a slow hour of the machine meets both.
    let (mut checked, mut unchecked) = (0.0f64, 0.0f64);
    for _ in 0..ROUNDS {
        checked = checked.max(rate(&mut [&mut cores[0]], seconds / 2.0));
        unchecked = unchecked.max(rate(&mut [&mut free[0]], seconds / 2.0));
    }
    for (what, rate) in [("random read", checked), ("random read, access check off", unchecked)] {
        println!("{what}: {:.0} ns, {rate:.3} M/s", 1e3 / rate);
    }
    println!("rate with the check on: {:.2} of the rate with it off", checked / unchecked);
    drop((cores, free));

    println!("\ncores   one SSD, M/s   times one core   as many SSDs, M/s   times one");
    let (mut one, mut apart_one) = (f64::NAN, f64::NAN);
    for count in [1, 2, 4, 8, 16, 32].into_iter().filter(|&count| count <= most) {
        let mut cores = ssd(count);
        let mut ssds: Vec<Vec<Core>> = (0..count).map(|_| ssd(1)).collect();
        let (mut together, mut apart) = (0.0f64, 0.0f64);
        for _ in 0..ROUNDS {
            together = together.max(rate(&mut cores.iter_mut().collect::<Vec<_>>(), seconds / 2.0));
            apart = apart.max(rate(&mut ssds.iter_mut().map(|cores| &mut cores[0]).collect::<Vec<_>>(), seconds / 2.0));
        }
        if count == 1 {
            (one, apart_one) = (together, apart);
        }
        let (times, apart_times) = (together / one, apart / apart_one);
        println!("{count:>5}   {together:>12.3}   {times:>14.2}   {apart:>17.3}   {apart_times:>9.2}");
    }
}
