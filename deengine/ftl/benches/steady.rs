// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The presets in virtual time through the layer itself: what a host would measure, beside what the preset promises.
//!
//! ```text
//!   depth commands in flight  ->  Ftl (accept, commit / extent, read_time, settle)  ->  Timing
//!          ^---- the next one when one is done ----'
//! ```
//! `cargo bench -p gnstor-ftl --bench steady -- [--gib 2] [--preset NAME] [--steady-only] [--json]`
//!
//! Beside each figure stands what the simulator of `gnstor-model` gives at the same size: the layer is to be like it.

mod common;

use common::{Writer, flag, in_ram, machine, option};
use gnstor_fabric::time::{Span, Time};
use gnstor_ftl::{Extent, Ftl, LayerStats, geometry_for, reserved_superblocks};
use gnstor_model::measure::{Outcome, measure};
use gnstor_model::{Figure, Measure, Op, Pattern, Preset, State, Workload};
use gnstor_proto::placement::mix64;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Read by one measurement: enough for half a per cent.
const READ_PAGES: u32 = 100_000;

fn main() {
    let gib: u64 = option("--gib", 2);
    let only: String = option("--preset", String::new());
    if !flag("--json") {
        println!("{} GiB, {}", gib, machine());
        println!(
            "{:<14} {:<24} {:<7} {:>10} {:<5} {:>10} {:>8} {:>8} {:>6} {:>6} {:>7} {:>7}  source",
            "preset",
            "load",
            "state",
            "figure",
            "unit",
            "layer",
            "off %",
            "model %",
            "WA",
            "WA mod",
            "erases",
            "stalls"
        );
    }
    let mut worst = 0.0f64;
    for name in Preset::NAMES.iter().filter(|name| only.is_empty() || **name == only) {
        let preset = Preset::by_name(name).expect("one of its names");
        let figures = figures(&preset);
        for figure in figures.iter().filter(|figure| !flag("--steady-only") || figure.state == State::Steady) {
            let off = row(&preset, figure, gib << 18);
            if figure.is_sourced() {
                worst = worst.max(off.abs());
            }
        }
    }
    if !flag("--json") {
        println!("furthest off of a sourced figure: {worst:.2} %");
    }
}

/// The preset's figures, and a steady 4K random write where it names none: that one has nothing to be compared with.
fn figures(preset: &Preset) -> Vec<Figure> {
    let mut figures = preset.figures().to_vec();
    if !preset.is_null() && figures.iter().all(|figure| figure.state == State::Fresh) {
        let what = Workload { op: Op::Write, pattern: Pattern::Random, blocks: 1, depth: 256 };
        let model = measure(preset, what, State::Steady, 1 << 19).expect("a size that can be").iops;
        let (unit, bound, source) = (Measure::Iops, gnstor_model::Bound::About, gnstor_model::MODELLED.to_owned());
        figures.push(Figure { what, value: model, unit, bound, state: State::Steady, source });
    }
    figures
}

fn row(preset: &Preset, figure: &Figure, logical_pages: u64) -> f64 {
    let mut ssd = Ssd::new(preset, logical_pages);
    let got = ssd.measure(figure.what, figure.state);
    let small = u32::try_from(logical_pages).expect("less than 16 TiB");
    let model = measure(preset, figure.what, figure.state, small).expect("a size that can be");
    let off = figure.deviation_percent(got.value(figure.unit));
    let model_off = figure.deviation_percent(model.value(figure.unit));
    let wear = ssd.ftl.health().wear;
    let what = figure.what.to_string();
    let (state, unit) = (figure.state.to_string(), figure.unit.to_string());
    let (value, wa, model_wa) = (got.value(figure.unit), got.write_amplification, model.write_amplification);
    let (source, stalls) = (&figure.source, ssd.writer.stalls);
    if flag("--json") {
        println!(
            r#"{{"bench":"steady","preset":"{}","load":"{what}","state":"{state}","figure":{},"unit":"{unit}","layer":{value:.3},"off_percent":{off:.3},"model_off_percent":{model_off:.3},"write_amplification":{wa:.4},"model_write_amplification":{model_wa:.4},"erases_least":{},"erases_most":{},"stalls":{stalls},"source":"{source}"}}"#,
            preset.name, figure.value, wear.least, wear.most
        );
    } else {
        println!(
            "{:<14} {what:<24} {state:<7} {:>10.1} {unit:<5} {value:>10.1} {off:>+8.2} {model_off:>+8.2} {wa:>6.3} {model_wa:>6.3} {:>3}-{:<3} {stalls:>7}  {source}",
            preset.name, figure.value, wear.least, wear.most
        );
        if flag("--stats") {
            println!("    {:?} {:?}", ssd.ftl.stats(), ssd.ftl.health());
        }
    }
    off
}

/// The layer under a closed loop.
struct Ssd {
    ftl: Ftl,
    writer: Writer,
    number: u64,
    logical_pages: u32,
    in_flight: BinaryHeap<Reverse<Time>>,
    settle_at: Time,
    /// How far the layer has been told time has gone: a stalled write holds up those behind it.
    clock: Time,
}

impl Ssd {
    fn new(preset: &Preset, least_pages: u64) -> Self {
        let geometry = geometry_for(preset, least_pages).expect("a size that can be");
        // Superblocks are whole, the logical size takes up what rounding left, so that the spare space is exact.
        let reserved = u64::from(reserved_superblocks(preset, &geometry, least_pages) * geometry.superblock_pages());
        let exact = (geometry.pages() - reserved) * 1000 / (1000 + u64::from(preset.over_provisioning_permille));
        let config = in_ram(preset, exact, 65_536).expect("a size that can be");
        let ftl = Ftl::format(&config).expect("memory").ftl;
        assert_eq!(ftl.flash().geometry(), &geometry, "the exact size has the same geometry");
        let logical_pages = u32::try_from(exact).expect("less than 16 TiB");
        let in_flight = BinaryHeap::new();
        let (settle_at, clock) = (Time::NEVER, Time::ZERO);
        Self { ftl, writer: Writer::new(), number: 0, logical_pages, in_flight, settle_at, clock }
    }

    fn measure(&mut self, what: Workload, state: State) -> Outcome {
        let all = self.logical_pages / what.blocks;
        let fill = Workload { op: Op::Write, pattern: Pattern::Sequential, blocks: 16, depth: 256 };
        match (what.op, state) {
            (Op::Write, State::Steady) => {
                self.fill(fill);
                self.run(Workload { pattern: Pattern::Random, blocks: 1, ..fill }, 2 * self.logical_pages);
                self.number = 0;
                self.run(what, all)
            }
            (Op::Read, _) => {
                self.fill(fill);
                // All of it is on flash, and nobody has anything to do, before the first read.
                let (_, at) = self.ftl.harden(self.in_flight.iter().map(|at| at.0).max().unwrap_or(Time::ZERO));
                self.in_flight.clear();
                self.in_flight.push(Reverse(at + Span::from_ms(1)));
                self.ftl.settle(at + Span::from_ms(1));
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

    fn fill(&mut self, fill: Workload) {
        self.run(fill, self.logical_pages / 16);
        let now = self.in_flight.iter().map(|at| at.0).max().unwrap_or(Time::ZERO);
        for vba in self.logical_pages / 16 * 16..self.logical_pages {
            self.writer.write(&self.ftl, now, now, vba, 1);
        }
    }

    /// Issues so many commands, the next one always when one is done.
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
            if self.settle_at <= self.clock {
                self.settle_at = self.ftl.settle(self.clock);
            }
            let done = self.issue(what, now);
            latency_us += us(done.since(now));
            self.in_flight.push(Reverse(done));
        }
        while self.in_flight.len() > what.depth as usize {
            self.in_flight.pop();
        }
        outcome(what, commands, now.since(begin), latency_us, &before, &self.ftl.stats())
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
                let (done, at) = self.writer.write(&self.ftl, self.clock, accepted, first, what.blocks);
                self.clock = at;
                self.settle_at = self.settle_at.min(at + Span::from_ns(50_000));
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

#[expect(clippy::cast_precision_loss, reason = "figures to print")]
fn outcome(
    what: Workload,
    commands: u32,
    took: Span,
    latency_us: f64,
    before: &LayerStats,
    after: &LayerStats,
) -> Outcome {
    let commands = f64::from(commands);
    let host = (after.host_pages - before.host_pages) as f64;
    let flash = (after.flash_pages - before.flash_pages) as f64;
    Outcome {
        iops: commands / us(took) * 1e6,
        mb_per_s: commands * f64::from(what.blocks) * 4096.0 / us(took),
        mean_us: latency_us / commands,
        write_amplification: if host == 0.0 { 1.0 } else { flash / host },
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure to print")]
fn us(span: Span) -> f64 {
    span.as_ps() as f64 / 1e6
}
