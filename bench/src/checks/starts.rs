// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The schedule itself, without a clock: when each start is due, and which starts read.
#![expect(unsafe_code, reason = "asks the C++ compiler")]

use super::*;

/// Mirror of `gn::bench::schedule`.
#[repr(C)]
struct Schedule {
    begin: u64,
    taken: u64,
}

unsafe extern "C" {
    fn gn_bench_take_start(args: *const ArgsAbi, schedule: *mut Schedule, writes: *mut u32) -> u64;
}

/// Number of starts whose directions are shuffled together (`bench/cuda/pace.cuh`).
const WINDOW: usize = 64;
const BEGIN: u64 = 1_700_000_000_123_456_789;

/// The first starts of a client: when each is due, and whether it reads.
fn starts(pace: Pace, seed: u64, count: usize) -> Vec<(u64, bool)> {
    let args = ArgsAbi {
        clients: 0,
        stop: 0,
        warmup_ns: 0,
        runtime_ns: 0,
        seed,
        depth: 1,
        unit_blocks: 1,
        units: 1,
        read_percent: 0,
        flags: 0,
        replica: 0,
        multiprocessors: 0,
        interval: pace.interval(),
        read_share: pace.read_share(),
    };
    let mut schedule = Schedule { begin: BEGIN, taken: 0 };
    let mut take = || {
        let mut writes = 0;
        // SAFETY: the three are there, and only this thread uses them.
        let due = unsafe { gn_bench_take_start(&raw const args, &raw mut schedule, &raw mut writes) };
        (due, writes == 0)
    };
    let taken: Vec<_> = (0..count).map(|_| take()).collect();
    assert_eq!((schedule.begin, schedule.taken), (BEGIN, count as u64));
    taken
}

#[test]
fn each_start_is_due_its_number_of_intervals_after_the_begin() {
    let _deadline = deadline();
    for rate in [1, 3, 300, 7_000_003] {
        let starts = starts(Pace { read: rate, write: 0 }, 5, 3000);
        for (number, &(due, reads)) in starts.iter().enumerate() {
            // In whole numbers, of a second divided by the rate. An interval is rounded to 2^-16 ns.
            let exact = number as u128 * 1_000_000_000 / u128::from(rate);
            let rounding = 2 + number as u64 / (2 << 16);
            let after = due.checked_sub(BEGIN).expect("no start is due before the begin");
            assert!(
                u128::from(after).abs_diff(exact) <= rounding.into(),
                "start {number} at {rate}: {after}"
            );
            assert!(reads, "all read");
        }
    }
}

#[test]
fn reads_keep_their_share_in_each_window_and_every_thread_reads_and_writes() {
    let _deadline = deadline();
    for (read, write) in [(600, 300), (500, 500), (300, 700), (100, 50)] {
        let starts = starts(Pace { read, write }, 3, 64 * WINDOW);
        let share = f64::from(read) / f64::from(read + write);
        let reads = |of: &[(u64, bool)]| of.iter().filter(|(_, reads)| *reads).count();
        for (number, window) in starts.chunks(WINDOW).enumerate() {
            let wanted = share * WINDOW as f64;
            let error = (reads(window) as f64 - wanted).abs();
            assert!(error <= 1.0, "window {number} of {read}, {write}: {}", reads(window));
            let all = reads(&starts[..(number + 1) * WINDOW]) as f64;
            assert!((all - share * ((number + 1) * WINDOW) as f64).abs() <= 1.0, "up to {number}: {all}");
        }
        // Threads that take turns take every k-th start each.
        for threads in 2..=WINDOW {
            for thread in 0..threads {
                let own: Vec<_> = starts.iter().copied().skip(thread).step_by(threads).collect();
                let error = (reads(&own) as f64 / own.len() as f64 - share).abs();
                // Four standard deviations of as many independent draws.
                let most = 4.0 * (share * (1.0 - share) / own.len() as f64).sqrt();
                assert!(error <= most, "thread {thread} of {threads}, {read}, {write}: {}", reads(&own));
            }
        }
    }
}

#[test]
fn the_order_in_a_window_follows_the_seed() {
    let _deadline = deadline();
    let order = |seed| starts(Pace { read: 1, write: 1 }, seed, 4 * WINDOW);
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
    let windows: Vec<_> =
        order(1).chunks(WINDOW).map(|w| w.iter().map(|start| start.1).collect::<Vec<_>>()).collect();
    assert_ne!(windows[0], windows[1]);
}
