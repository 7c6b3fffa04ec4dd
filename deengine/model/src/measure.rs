// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures a preset: a small SSD without data, driven in virtual time by a closed loop.
//!
//! ```text
//!   depth commands in flight  ->  Ssd (map, two streams, greedy collection)  ->  Timing
//!          ^---- the next one when one is done ----'
//! ```
//! The [`Ssd`] here is no FTL. It keeps just enough to give [`Timing`] the calls of an FTL, in the same
//! order, so that collection leads to a steady state. Its users are the tests, `examples/figures.rs`, and
//! authors of presets.
//!
//! [`Timing`]: crate::Timing

mod ssd;

pub use ssd::Ssd;

use crate::figure::{Measure, Op, Pattern, State, Workload};
use crate::preset::Preset;
use gnstor_base::time::Time;
use gnstor_flash::{GeometryError, PAGE_BYTES};
use gnstor_proto::placement::mix64;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Results of a load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Outcome {
    /// Commands a second.
    pub iops: f64,
    /// 10^6 bytes a second.
    pub mb_per_s: f64,
    /// Mean latency, microseconds.
    pub mean_us: f64,
    /// Pages programmed for each page that the host wrote, while measured; 1 where nothing was written.
    pub write_amplification: f64,
}

impl Outcome {
    /// The value that a figure of this kind speaks of.
    pub fn value(&self, unit: Measure) -> f64 {
        match unit {
            Measure::MbPerS => self.mb_per_s,
            Measure::Iops => self.iops,
            Measure::Us => self.mean_us,
        }
    }
}

/// Runs `what` on a new SSD of at least `logical_pages`, brought into `state` first.
///
/// Give at least 2 GiB for a steady figure of the large presets. Below that there are few superblocks,
/// because they cannot get smaller. Then half a superblock of spare space shows, and writes are some per cent
/// too fast.
///
/// # Errors
/// When the preset's shape allows no SSD of that size.
pub fn measure(
    preset: &Preset,
    what: Workload,
    state: State,
    logical_pages: u32,
) -> Result<Outcome, GeometryError> {
    let mut ssd = Ssd::new(preset, logical_pages)?;
    let logical_pages = ssd.logical_pages();
    let mut load = Load { number: 0, logical_pages, in_flight: BinaryHeap::new() };
    let commands = match (what.op, state) {
        (Op::Write, State::Steady) => {
            // A whole overwrite: pages that the fill wrote side by side still come to collection in waves.
            load.precondition(&mut ssd);
            return Ok(load.run(&mut ssd, what, logical_pages / what.blocks));
        }
        (Op::Read, _) => {
            ssd.fill_at_once();
            (READ_PAGES / what.blocks).max(8 * what.depth)
        }
        (Op::Write, State::Fresh) => logical_pages / what.blocks,
    };
    load.run(&mut ssd, what, commands / 2);
    Ok(load.run(&mut ssd, what, commands / 2))
}

/// Number of pages in one measurement of reads. With so many the error is half a per cent.
const READ_PAGES: u32 = 100_000;

struct Load {
    number: u64,
    logical_pages: u32,
    in_flight: BinaryHeap<Reverse<Time>>,
}

impl Load {
    /// A sequential fill and two random overwrites, deep enough that only the SSD limits the rate.
    fn precondition(&mut self, ssd: &mut Ssd) {
        let fill = Workload { op: Op::Write, pattern: Pattern::Sequential, blocks: 16, depth: 256 };
        self.run(ssd, fill, self.logical_pages / 16);
        let overwrite = Workload { pattern: Pattern::Random, blocks: 1, ..fill };
        self.run(ssd, overwrite, 2 * self.logical_pages);
        self.number = 0;
    }

    /// Issues this many commands, each when an earlier one is done.
    fn run(&mut self, ssd: &mut Ssd, what: Workload, commands: u32) -> Outcome {
        let (host_before, flash_before) = ssd.written();
        let begin = self.in_flight.peek().map_or(Time::ZERO, |first| first.0);
        let mut now = begin;
        while self.in_flight.len() < what.depth as usize {
            self.in_flight.push(Reverse(now));
        }
        let mut latency_us = 0.0;
        for _ in 0..commands {
            now = self.in_flight.pop().expect("commands in flight").0;
            let done = self.issue(ssd, what, now);
            latency_us += us(done.since(now).as_ps());
            self.in_flight.push(Reverse(done));
        }
        while self.in_flight.len() > what.depth as usize {
            self.in_flight.pop();
        }
        let took_us = us(now.since(begin).as_ps());
        let commands = f64::from(commands);
        let (host, flash) = ssd.written();
        let mb = commands * f64::from(what.blocks * PAGE_BYTES) / 1e6;
        Outcome {
            iops: commands / took_us * 1e6,
            mb_per_s: mb / took_us * 1e6,
            mean_us: latency_us / commands,
            write_amplification: if host == host_before {
                1.0
            } else {
                ratio(flash - flash_before, host - host_before)
            },
        }
    }

    fn issue(&mut self, ssd: &mut Ssd, what: Workload, now: Time) -> Time {
        let places = u64::from(self.logical_pages / what.blocks);
        let place = match what.pattern {
            Pattern::Sequential => self.number % places,
            Pattern::Random => mix64(self.number) % places,
        };
        self.number += 1;
        let first = u32::try_from(place).expect("below the number of pages") * what.blocks;
        match what.op {
            Op::Read => ssd.read(now, first, what.blocks),
            Op::Write => ssd.write(now, first, what.blocks),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure to print")]
fn us(ps: u64) -> f64 {
    ps as f64 / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "a figure to print")]
fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b as f64
}
