// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The layer under a closed loop, in virtual time.
//!
//! ```text
//!   depth commands in flight  ->  Ftl (accept, commit / extent, read_time, maintain)  ->  Timing
//!          ^---- the next one when one is done ----'
//! ```

use super::{Writer, in_ram};
use gnstor_base::time::{Span, Time};
use gnstor_ftl::{Collection, Extent, Ftl, LayerStats, geometry_for, reserved_superblocks};
use gnstor_model::measure::Outcome;
use gnstor_model::{Op, Pattern, Preset, State, Workload};
use gnstor_proto::placement::mix64;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Number of pages that one measurement reads. With so many the error is half a per cent.
const READ_PAGES: u32 = 100_000;
/// The load that fills an SSD.
const FILL: Workload = Workload { op: Op::Write, pattern: Pattern::Sequential, blocks: 16, depth: 256 };

/// The layer under a closed loop.
pub(crate) struct Ssd {
    pub(crate) ftl: Ftl,
    pub(crate) writer: Writer,
    number: u64,
    pub(crate) logical_pages: u32,
    in_flight: BinaryHeap<Reverse<Time>>,
    maintain_at: Time,
    /// The time up to which the layer has done its work: a stalled write delays the writes behind it.
    clock: Time,
}

impl Ssd {
    pub(crate) fn new(preset: &Preset, least_pages: u64) -> Self {
        Self::collecting(preset, least_pages, Collection::default())
    }

    pub(crate) fn collecting(preset: &Preset, least_pages: u64, collection: Collection) -> Self {
        let geometry = geometry_for(preset, least_pages).expect("a size that can be");
        // Superblocks are whole; the logical size takes the remainder, so that the spare space is exact.
        let reserved =
            u64::from(reserved_superblocks(preset, &geometry, least_pages) * geometry.superblock_pages());
        let exact =
            (geometry.pages() - reserved) * 1000 / (1000 + u64::from(preset.over_provisioning_permille));
        let mut config = in_ram(preset, exact, 65_536).expect("a size that can be");
        config.collection = collection;
        let ftl = Ftl::format(&config).expect("memory").ftl;
        assert_eq!(ftl.flash().geometry(), &geometry, "the exact size has the same geometry");
        let logical_pages = u32::try_from(exact).expect("less than 16 TiB");
        let in_flight = BinaryHeap::new();
        let (maintain_at, clock) = (Time::NEVER, Time::ZERO);
        Self { ftl, writer: Writer::new(), number: 0, logical_pages, in_flight, maintain_at, clock }
    }

    pub(crate) fn measure(&mut self, what: Workload, state: State) -> Outcome {
        let all = self.logical_pages / what.blocks;
        match (what.op, state) {
            (Op::Write, State::Steady) => {
                self.fill();
                self.run(Workload { pattern: Pattern::Random, blocks: 1, ..FILL }, 2 * self.logical_pages);
                self.number = 0;
                self.run(what, all)
            }
            (Op::Read, _) => {
                self.fill();
                // Before the first read everything is on flash, and no work is left.
                let (_, at) =
                    self.ftl.make_durable(self.in_flight.iter().map(|at| at.0).max().unwrap_or(Time::ZERO));
                self.in_flight.clear();
                self.in_flight.push(Reverse(at + Span::from_ms(1)));
                self.ftl.maintain(at + Span::from_ms(1));
                self.number = 0;
                let commands = (READ_PAGES / what.blocks).max(8 * what.depth);
                self.run(what, commands / 2);
                self.run(what, commands / 2)
            }
            (Op::Write, State::Fresh) => {
                self.run(what, all / 2);
                self.run(what, all / 2)
            }
        }
    }

    /// Writes everything once, in order.
    pub(crate) fn fill(&mut self) {
        self.run(FILL, self.logical_pages / 16);
        let now = self.in_flight.iter().map(|at| at.0).max().unwrap_or(Time::ZERO);
        for vba in self.logical_pages / 16 * 16..self.logical_pages {
            self.writer.write(&self.ftl, now, now, vba..vba + 1);
        }
    }

    /// Overwrites blocks that `pick` names; the write amplification of that.
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    pub(crate) fn overwrite(&mut self, writes: u64, mut pick: impl FnMut(u64) -> u32) -> f64 {
        let before = self.ftl.stats();
        for _ in 0..writes {
            self.number += 1;
            let vba = pick(self.number);
            let (_, at) = self.writer.write(&self.ftl, self.clock, self.clock, vba..vba + 1);
            self.clock = at;
            self.ftl.maintain(at);
        }
        let after = self.ftl.stats();
        (after.flash_pages - before.flash_pages) as f64 / (after.host_pages - before.host_pages) as f64
    }

    /// Issues this many commands, each when an earlier one is done.
    fn run(&mut self, what: Workload, commands: u32) -> Outcome {
        let before = self.ftl.stats();
        let begin = self.in_flight.peek().map_or(Time::ZERO, |first| first.0);
        let mut now = begin;
        while self.in_flight.len() < what.depth as usize {
            self.in_flight.push(Reverse(now));
        }
        let mut latency_us = 0.0;
        for _ in 0..commands {
            now = self.in_flight.pop().expect("commands in flight").0;
            self.clock = self.clock.max(now);
            if self.maintain_at <= self.clock {
                self.maintain_at = self.ftl.maintain(self.clock);
            }
            let done = self.issue(what, now);
            latency_us += us(done.since(now));
            self.in_flight.push(Reverse(done));
        }
        while self.in_flight.len() > what.depth as usize {
            self.in_flight.pop();
        }
        let run = Run { commands: f64::from(commands), took: now.since(begin), latency_us };
        outcome(what, &run, &before, &self.ftl.stats())
    }

    fn issue(&mut self, what: Workload, now: Time) -> Time {
        let places = u64::from(self.logical_pages / what.blocks);
        let place = match what.pattern {
            Pattern::Sequential => self.number % places,
            Pattern::Random => mix64(self.number) % places,
        };
        self.number += 1;
        let first = u32::try_from(place).expect("below the number of pages") * what.blocks;
        match what.op {
            Op::Read => self.read(now, first, what.blocks),
            Op::Write => {
                let accepted = self.ftl.accept_write(now);
                let (done, at) =
                    self.writer.write(&self.ftl, self.clock, accepted, first..first + what.blocks);
                self.clock = at;
                self.maintain_at = self.maintain_at.min(at + Span::from_ns(50_000));
                done
            }
        }
    }

    fn read(&self, now: Time, first: u32, blocks: u32) -> Time {
        let accepted = self.ftl.accept_read(now);
        let mut pages = Vec::with_capacity(blocks as usize);
        for vba in first..first + blocks {
            match self.ftl.extent(self.writer.vid, 1, vba) {
                Extent::Page(page, _) => pages.push(page),
                other => panic!("block {vba}: {other:?}"),
            }
        }
        let done = self.ftl.read_time(accepted, &pages, 0);
        pages.iter().for_each(|page| self.ftl.unpin(*page));
        done
    }
}

/// Commands one after the other: the time they took in all, and the sum of their latencies.
struct Run {
    commands: f64,
    took: Span,
    latency_us: f64,
}

#[expect(clippy::cast_precision_loss, reason = "figures to print")]
fn outcome(what: Workload, run: &Run, before: &LayerStats, after: &LayerStats) -> Outcome {
    let host = (after.host_pages - before.host_pages) as f64;
    let flash = (after.flash_pages - before.flash_pages) as f64;
    Outcome {
        iops: run.commands / us(run.took) * 1e6,
        mb_per_s: run.commands * f64::from(what.blocks) * 4096.0 / us(run.took),
        mean_us: run.latency_us / run.commands,
        write_amplification: if host == 0.0 { 1.0 } else { flash / host },
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure to print")]
fn us(span: Span) -> f64 {
    span.as_ps() as f64 / 1e6
}
