// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU time of the firmware alone, for 4 KiB random reads from submission queue entry to completion entry.
//! The firmware passes references to data; the HCA would move it. The preset is `null`, and queues are filled
//! in advance. With the feature `unchecked-for-benchmarks` it measures one worker with the access check and
//! without. Then it measures several workers of one SSD, and as many SSDs with one worker each, which shows
//! what the machine allows. It does the same for writes: of blocks never written, and at random over a full
//! SSD. There collection and its copies are part of the figure. Another table has the reads of a host
//! that is told of blocks without content (DULBE).
//!
//! `cargo bench -p gnstor-deengine --bench firmware_rate [-- SECONDS [MOST_CORES]]`
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod common;

use common::{client, connect, enable, io, map, queue_request, vendor, volume};
use gnstor_base::controller::{Controller, Effect, Outcome, PushRole, QueueKey};
use gnstor_base::region::HostRegion;
use gnstor_base::time::Time;
use gnstor_deengine::{Preset, Ssd, SsdConfig, SsdMedia, Worker};
use gnstor_proto::fabrics::{CNTLID_ANY, Identity};
use gnstor_proto::nvme::{self, Cqe, KeyedSgl, Sqe};
use gnstor_proto::placement::mix64;
use gnstor_proto::vendor::opcode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Once};
use std::time::Instant;
use zerocopy::IntoBytes;

const BLOCKS: u64 = 1 << 18;
const DEPTH: usize = 64;
/// Rounds of each measurement; the best counts.
const ROUNDS: u32 = 3;
const NOW: Time = Time::from_ns(1_000_000);
/// How far the clock advances when commands wait, and the largest number of times in one batch.
const TICK_NS: u64 = 20_000;
const PATIENCE: u32 = 1_000_000;
const DAEMON: QueueKey = QueueKey(1);
const ADMIN: QueueKey = QueueKey(2);
const IO: QueueKey = QueueKey(3);

/// Carries out effects for admin commands, with real bytes.
fn admin(
    worker: &mut Worker,
    regions: &[Arc<HostRegion>],
    queue: QueueKey,
    mut sqe: Sqe,
    data: &[u8],
) -> Cqe {
    sqe.flags = nvme::FLAGS_SGL;
    sqe.dptr = KeyedSgl::keyed(4096, u32::try_from(data.len()).expect("small"), 1);
    worker.submit(NOW, queue, &sqe);
    loop {
        match worker.pop_effect() {
            Some(Effect::Pull { transfer, local, .. }) => {
                let region = regions.iter().find(|r| r.id() == local.region).expect("a region of the SSD");
                region.write(local.offset, &data[..data.len().min(local.bytes as usize)]);
                worker.transferred(NOW, transfer, Outcome::Done { sum: 0 });
            }
            Some(Effect::Push { transfer, .. }) => {
                worker.transferred(NOW, transfer, Outcome::Done { sum: 0 })
            }
            Some(Effect::Complete { cqe, .. }) => {
                assert_eq!(cqe.status_word(), 0, "{sqe:?}");
                return cqe;
            }
            Some(Effect::Admitted { .. }) => {}
            Some(Effect::Close { .. } | Effect::Ask { .. }) => panic!("the SSD closed a queue, or asks"),
            None => worker.step(NOW),
        }
    }
}

/// A Connect: the queue, whose it is, and the controller's id.
struct Opening {
    queue: QueueKey,
    qid: u16,
    identity: Identity,
    cntlid: u16,
}

fn open(worker: &mut Worker, regions: &[Arc<HostRegion>], how: Opening) -> u16 {
    worker.open_queue(NOW, how.queue, &queue_request(how.qid)).expect("a queue");
    let (sqe, data) = connect(how.qid, how.identity, how.cntlid);
    let cqe = admin(worker, regions, how.queue, sqe, data.as_bytes());
    if how.qid == 0 {
        admin(worker, regions, how.queue, enable(), &[]);
    }
    u16::try_from(cqe.dw0.get() & 0xFFFF).expect("16 bits")
}

/// Runs commands that were made in advance, `DEPTH` at a time. Returns the number of completed ones. Time
/// advances only in `clock`, when commands wait for collection.
fn drive(worker: &mut Worker, commands: &[Sqe], clock: &AtomicU64) -> u64 {
    let mut done = 0;
    let now = || Time::from_ns(clock.load(Ordering::Relaxed));
    for batch in commands.chunks(DEPTH) {
        worker.announce(batch);
        for sqe in batch {
            worker.submit(now(), IO, sqe);
        }
        let (mut open, mut patience) = (batch.len(), PATIENCE);
        while open > 0 {
            match worker.pop_effect() {
                Some(Effect::Push { role: PushRole::Part, .. }) => {}
                Some(Effect::Push { transfer, role: PushRole::Last(reply), .. }) => {
                    assert_eq!(reply.cqe.status_word(), 0);
                    open -= 1;
                    worker.transferred(now(), transfer, Outcome::Done { sum: 0 });
                }
                Some(Effect::Push { transfer, .. } | Effect::Pull { transfer, .. }) => {
                    worker.transferred(now(), transfer, Outcome::Done { sum: 0 });
                }
                Some(Effect::Complete { cqe, .. }) => {
                    assert_eq!(cqe.status_word(), 0);
                    open -= 1;
                }
                Some(Effect::Admitted { .. }) => {}
                Some(Effect::Close { .. } | Effect::Ask { .. }) => panic!("the SSD closed a queue, or asks"),
                // The end of a step, with which no time passes.
                None if worker.next_event().is_some_and(|at| at <= now()) && patience > 0 => {
                    patience -= 1;
                    worker.step(now());
                }
                None => {
                    assert_ne!(patience, 0, "{open} commands are never answered");
                    patience -= 1;
                    clock.fetch_add(TICK_NS, Ordering::Relaxed);
                    worker.step(now());
                }
            }
        }
        done += batch.len() as u64;
    }
    done
}

/// An empty SSD with an I/O queue on each worker.
fn empty(workers: usize) -> Vec<Worker> {
    let preset = Preset::by_name("null").expect("a preset");
    let capacity_bytes = BLOCKS * 4096;
    let config = SsdConfig { index: 0, preset, capacity_bytes, serial: "BENCH".into(), media: SsdMedia::Ram };
    let mut workers = Ssd::format(config).expect("an SSD").into_workers(workers);
    let regions = workers[0].regions();
    let daemon = Opening { queue: DAEMON, qid: 0, identity: Identity::Daemon, cntlid: CNTLID_ANY };
    open(&mut workers[0], &regions, daemon);
    let map = map();
    admin(&mut workers[0], &regions, DAEMON, vendor(opcode::MAP_SET, map.len()), &map);
    admin(
        &mut workers[0],
        &regions,
        DAEMON,
        vendor(opcode::VOLUME_ADD, 4096),
        volume(BLOCKS).encode().as_bytes(),
    );
    let identity = Identity::Client(client());
    let own = Opening { queue: ADMIN, qid: 0, identity, cntlid: CNTLID_ANY };
    let cntlid = open(&mut workers[0], &regions, own);
    for (qid, worker) in (1..).zip(&mut workers) {
        open(worker, &regions, Opening { queue: IO, qid, identity, cntlid });
    }
    workers
}

fn cid(n: u64) -> usize {
    usize::try_from(n).expect("small") % DEPTH
}

fn clock() -> AtomicU64 {
    AtomicU64::new(NOW.as_ns())
}

/// The first fill prints its time.
static FILLS: Once = Once::new();

/// As [`empty`], written once.
fn ssd(workers: usize) -> Vec<Worker> {
    let mut workers = empty(workers);
    let fill: Vec<Sqe> = (0..BLOCKS).map(|n| io(nvme::io::WRITE, n, cid(n), n + 1)).collect();
    let start = Instant::now();
    assert_eq!(drive(&mut workers[0], &fill, &clock()), BLOCKS);
    FILLS.call_once(|| println!("sequential write: {} ns", start.elapsed().as_nanos() / u128::from(BLOCKS)));
    workers
}

/// The host asks to be told of blocks without content.
fn tell_of_unwritten(workers: &mut [Worker]) {
    let regions = workers[0].regions();
    // Error Recovery with DULBE.
    let (feature, value) = (0x05.into(), (1 << 16).into());
    let opcode = nvme::admin::SET_FEATURES;
    let sqe = Sqe { opcode, nsid: 1.into(), cdw10: feature, cdw11: value, ..Sqe::default() };
    admin(&mut workers[0], &regions, ADMIN, sqe, &[]);
}

/// The blocks to write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pattern {
    /// Every block, in order, for the first time.
    First,
    /// Every block, in order, again and again. Collection has nothing to move.
    Again,
    /// At random over a full SSD, after a lap that is not counted.
    Random,
}

/// Rate of writes of all these workers together, in million a second. Each writes its own part of the blocks:
/// once, or for a given time.
#[expect(clippy::cast_precision_loss, reason = "a rate to print")]
fn write_rate(ssds: &mut [Vec<Worker>], pattern: Pattern, seconds: f64) -> f64 {
    let clocks: Vec<AtomicU64> = ssds.iter().map(|_| clock()).collect();
    let start = Barrier::new(ssds.iter().map(Vec::len).sum());
    let write = |worker: &mut Worker, clock: &AtomicU64, part: u64, parts: u64| {
        let own = BLOCKS / parts;
        let place = |n: u64| (if pattern == Pattern::Random { mix64(n) % own } else { n }) * parts + part;
        let mut writes: Vec<Sqe> = (0..own).map(|n| io(nvme::io::WRITE, place(n), cid(n), n + 1)).collect();
        // A stamp that was seen before changes nothing: each lap has its own.
        let mut lap = |worker: &mut Worker, number: u64| {
            writes.iter_mut().for_each(|sqe| sqe.cdw15 = u32::try_from(number).expect("few laps").into());
            drive(worker, &writes, clock)
        };
        if pattern == Pattern::Random {
            lap(worker, 1);
        }
        start.wait();
        let (begin, mut done, mut number) = (Instant::now(), 0, 1);
        while done == 0 || pattern != Pattern::First && begin.elapsed().as_secs_f64() < seconds {
            number += 1;
            done += lap(worker, number);
        }
        done as f64 / begin.elapsed().as_secs_f64() / 1e6
    };
    std::thread::scope(|scope| {
        let write = &write;
        let mut threads = Vec::new();
        for (workers, clock) in ssds.iter_mut().zip(&clocks) {
            let parts = workers.len() as u64;
            for (part, worker) in (0..).zip(workers) {
                threads.push(scope.spawn(move || write(worker, clock, part, parts)));
            }
        }
        threads.into_iter().map(|thread| thread.join().expect("a writer")).sum()
    })
}

/// Reads a second by all of these workers at once, in millions, each on a thread of its own.
#[expect(clippy::cast_precision_loss, reason = "a rate to print")]
fn rate(workers: &mut [&mut Worker], seconds: f64) -> f64 {
    let start = Barrier::new(workers.len());
    let read = |seed: u64, worker: &mut Worker| {
        let place = |n: u64| (mix64(seed << 32 | n) % BLOCKS, usize::try_from(n).expect("small") % DEPTH);
        let reads: Vec<Sqe> =
            (0..1u64 << 18).map(place).map(|(vba, cid)| io(nvme::io::READ, vba, cid, 0)).collect();
        start.wait();
        let (begin, mut done, clock) = (Instant::now(), 0, clock());
        while begin.elapsed().as_secs_f64() < seconds {
            done += drive(worker, &reads, &clock);
        }
        done as f64 / begin.elapsed().as_secs_f64() / 1e6
    };
    std::thread::scope(|scope| {
        let read = &read;
        let threads: Vec<_> =
            (0..).zip(workers).map(|(seed, worker)| scope.spawn(move || read(seed, worker))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a reader")).sum()
    })
}

fn main() {
    let numbers: Vec<f64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let seconds = numbers.first().copied().unwrap_or(2.0);
    let here = std::thread::available_parallelism().map_or(1, usize::from);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of workers")]
    let most = numbers.get(1).map_or(here.min(8), |&most| most as usize);
    let counts: Vec<usize> = [1, 2, 4, 8, 16, 32].into_iter().filter(|&count| count <= most).collect();
    if !std::env::args().any(|argument| argument == "--writes") {
        read_tables(seconds, &counts);
        path_table(seconds, &counts);
    }
    write_table(seconds, &counts);
}

/// Needs `--features unchecked-for-benchmarks`.
#[cfg(feature = "unchecked-for-benchmarks")]
fn access_check(seconds: f64) {
    let (mut workers, mut free) = (ssd(1), ssd(1));
    free[0].ssd().measure_unchecked();
    // They take turns, so that a slow phase of the machine affects both.
    let (mut checked, mut unchecked) = (0.0f64, 0.0f64);
    for _ in 0..ROUNDS {
        checked = checked.max(rate(&mut [&mut workers[0]], seconds / 2.0));
        unchecked = unchecked.max(rate(&mut [&mut free[0]], seconds / 2.0));
    }
    for (what, rate) in [("random read", checked), ("random read, access check off", unchecked)] {
        println!("{what}: {:.0} ns, {rate:.3} M/s", 1e3 / rate);
    }
    println!("rate with the check on: {:.2} of the rate with it off", checked / unchecked);
}

fn read_tables(seconds: f64, counts: &[usize]) {
    #[cfg(feature = "unchecked-for-benchmarks")]
    access_check(seconds);
    println!("\ncores   one SSD, M/s   times one worker   as many SSDs, M/s   times one");
    let (mut one, mut apart_one) = (f64::NAN, f64::NAN);
    for &count in counts {
        let mut workers = ssd(count);
        let mut ssds: Vec<Vec<Worker>> = (0..count).map(|_| ssd(1)).collect();
        let (mut together, mut apart) = (0.0f64, 0.0f64);
        for _ in 0..ROUNDS {
            together = together.max(rate(&mut workers.iter_mut().collect::<Vec<_>>(), seconds / 2.0));
            apart = apart.max(rate(
                &mut ssds.iter_mut().map(|workers| &mut workers[0]).collect::<Vec<_>>(),
                seconds / 2.0,
            ));
        }
        if count == 1 {
            (one, apart_one) = (together, apart);
        }
        let (times, apart_times) = (together / one, apart / apart_one);
        println!("{count:>5}   {together:>12.3}   {times:>14.2}   {apart:>17.3}   {apart_times:>9.2}");
    }
}

/// Reads of a host, beside reads of a host that is told of blocks without content.
fn path_table(seconds: f64, counts: &[usize]) {
    println!("\nreads   workers   one SSD, M/s   with DULBE, M/s   times");
    for &count in counts {
        let (mut plain, mut told) = (ssd(count), ssd(count));
        tell_of_unwritten(&mut told);
        let (mut without, mut with) = (0.0f64, 0.0f64);
        for _ in 0..ROUNDS {
            without = without.max(rate(&mut plain.iter_mut().collect::<Vec<_>>(), seconds / 2.0));
            with = with.max(rate(&mut told.iter_mut().collect::<Vec<_>>(), seconds / 2.0));
        }
        println!("        {count:>7}   {without:>12.3}   {with:>15.3}   {:>5.2}", with / without);
    }
}

#[expect(clippy::cast_precision_loss, reason = "rates to print")]
fn write_table(seconds: f64, counts: &[usize]) {
    println!(
        "\nwrites   workers   one SSD, M/s   times one worker   as many SSDs, M/s   \
         times one   blocks a hold   put off a block"
    );
    for (what, pattern) in [("first", Pattern::First), ("again", Pattern::Again), ("random", Pattern::Random)]
    {
        let made = |count| if pattern == Pattern::First { empty(count) } else { ssd(count) };
        let (mut one, mut apart_one) = (f64::NAN, f64::NAN);
        for &count in counts {
            let (mut together, mut apart, mut held, mut put_off) = (0.0f64, 0.0f64, 0.0, 0.0);
            for _ in 0..ROUNDS {
                let mut workers = [made(count)];
                let looked = |workers: &[Worker]| {
                    let ssd = workers[0].ssd();
                    (ssd.ftl().stats(), ssd.stats().commits_put_off)
                };
                let (before, off_before) = looked(&workers[0]);
                together = together.max(write_rate(&mut workers, pattern, seconds / 2.0));
                let (after, off_after) = looked(&workers[0]);
                let pages = (after.host_pages - before.host_pages) as f64;
                held = pages / (after.commit_holds - before.commit_holds) as f64;
                put_off = (off_after - off_before) as f64 / pages;
                apart = apart.max(write_rate(
                    &mut (0..count).map(|_| made(1)).collect::<Vec<_>>(),
                    pattern,
                    seconds / 2.0,
                ));
            }
            if count == 1 {
                (one, apart_one) = (together, apart);
            }
            let (times, apart_times) = (together / one, apart / apart_one);
            println!(
                "{what:<6}   {count:>5}   {together:>12.3}   {times:>14.2}   {apart:>17.3}   \
                 {apart_times:>9.2}   {held:>13.1}   {put_off:>15.3}"
            );
        }
    }
}
