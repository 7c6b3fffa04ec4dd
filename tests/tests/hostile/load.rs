// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The honest load. It reads back and checks what it writes, and counts failures.

use gnstor_tests::{BLOCK, pattern};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Results of a load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rounds {
    /// Time of each round, which writes and reads 64 KiB, in ms.
    pub(crate) times: Vec<f64>,
    /// Failures, each with its time.
    pub(crate) errors: Vec<String>,
    /// How long the load was meant to run.
    pub(crate) over: Duration,
}

impl Rounds {
    pub(crate) fn add(&mut self, more: Self) {
        self.times.extend(more.times);
        self.errors.extend(more.errors);
        self.over += more.over;
    }

    /// Rounds a second.
    pub(crate) fn rate(&self) -> f64 {
        self.times.len() as f64 / self.over.as_secs_f64()
    }

    /// Rounds a second and quantiles of the times, in words.
    pub(crate) fn summary(&mut self) -> String {
        self.times.sort_by(f64::total_cmp);
        let times = &self.times;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of the length")]
        let place = |part: f64| (times.len() as f64 * part) as usize;
        let at =
            |part| times.get(place(part).min(times.len().saturating_sub(1))).copied().unwrap_or(f64::NAN);
        let (rate, errors) = (self.rate(), self.errors.len());
        let [p50, p99, p999, max] = [0.5, 0.99, 0.999, 1.0].map(at);
        format!(
            "{rate:.1} rounds/s, p50 {p50:.2} p99 {p99:.2} p99.9 {p999:.2} max {max:.2} ms, {errors} errors"
        )
    }
}

/// A checked load on one file. A further run goes on where the last one ended.
pub(crate) struct Load {
    pub(crate) file: Arc<libgnstor::File>,
    pub(crate) next: u64,
}

impl Load {
    pub(crate) fn new(file: libgnstor::File) -> Self {
        Self { file: Arc::new(file), next: 0 }
    }

    /// Runs the load for this time.
    pub(crate) fn run(&mut self, over: Duration) -> Rounds {
        let stop = AtomicBool::new(false);
        let (file, first) = (&self.file, self.next);
        let mut rounds = std::thread::scope(|scope| {
            let load = scope.spawn(|| checked_load(file, first, &stop));
            std::thread::sleep(over);
            stop.store(true, Ordering::Release);
            load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        self.next += (rounds.times.len() + rounds.errors.len()) as u64;
        rounds.over = over;
        rounds
    }
}

/// Writes and reads back until `stop` is set.
fn checked_load(file: &libgnstor::File, first: u64, stop: &AtomicBool) -> Rounds {
    let (begun, mut rounds) = (Instant::now(), Rounds::default());
    let mut back = vec![0; 16 * BLOCK];
    for round in first.. {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let (data, at) = (pattern(round, back.len()), round % 16 * back.len() as u64);
        let start = Instant::now();
        let result = file
            .write_at(at, &data)
            .map_err(|error| format!("write: {error}"))
            .and_then(|()| file.read_at(at, &mut back).map_err(|error| format!("read: {error}")))
            .and_then(|()| if back == data { Ok(()) } else { Err("read: other bytes than written".into()) });
        match result {
            Ok(()) => rounds.times.push(start.elapsed().as_secs_f64() * 1e3),
            Err(why) => {
                let [since, took] = [begun, start].map(|from| from.elapsed().as_secs_f64());
                let line =
                    format!("round {round}, {since:.1} s after the load began, took {took:.1} s: {why}");
                println!("  ERROR: {line}");
                rounds.errors.push(line);
            }
        }
    }
    rounds
}
