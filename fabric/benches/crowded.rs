// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures how long an engine waits for its core beside threads that are always busy. A thread gives the
//! engine one job after the other, and pauses between them. So the engine rests before each job.
//!
//! ```text
//!   cargo bench -p gnstor-fabric --bench crowded [-- THREADS SECONDS]     28 busy threads, 10 s by default
//! ```
//! The thread that gives the jobs sleeps for their ends, so it waits for a core, too.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock and sleeps")]

use gnstor_fabric::runtime::TransportThreads;
use gnstor_fabric::transport::{RcTransport, TransportConfig};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Pause between two jobs: an engine that was busy for a moment is still awake then.
const PAUSE: Duration = Duration::from_micros(100);

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse().ok());
    let (threads, seconds) = (numbers.next().unwrap_or(28), numbers.next().unwrap_or(10));
    let transport = RcTransport::new(TransportConfig::default());
    let engine = TransportThreads::start(vec![transport]).expect("a thread");
    let handle = engine.handle();
    let (stop, spun) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    spun.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(seconds) {
            let asked = Instant::now();
            let ran_at = handle.call(|_, _| Instant::now()).expect("the engine answers within ten seconds");
            times.push(ran_at.saturating_duration_since(asked).as_secs_f64() * 1e3);
            let paused = Instant::now();
            while paused.elapsed() < PAUSE {
                std::hint::spin_loop();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    times.sort_by(f64::total_cmp);
    let at = |part: usize| times[(times.len() * part / 1000).min(times.len() - 1)];
    println!(
        "{threads} busy threads, {seconds} s: {} jobs; from job to engine p50 {:.3} p99 {:.3} p99.9 {:.3} longest \
         {:.3} ms",
        times.len(),
        at(500),
        at(990),
        at(999),
        at(1000)
    );
}
