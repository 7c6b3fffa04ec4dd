// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The presets in virtual time through the layer: a host's view, beside the preset's figures.
//!
//! `cargo bench -p gnstor-ftl --bench steady -- [--gib 2] [--preset NAME] [--steady-only] [--json]`
//!
//! Beside each figure is that of the simulator in `gnstor-model` at the same size: the layer must agree with
//! it.

mod common;

use common::closed_loop::Ssd;
use common::{flag, machine, option};
use gnstor_model::measure::measure;
use gnstor_model::{Figure, Measure, Op, Pattern, Preset, State, Workload};
use std::process::ExitCode;

/// A sourced figure that is further off than this, in percent, fails the bench: virtual time is the same on
/// every machine.
const MOST: f64 = 2.0;

fn main() -> ExitCode {
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
        for figure in figures.iter().filter(|figure| !flag("--steady-only") || figure.state == State::Steady)
        {
            let off = row(&preset, figure, gib << 18);
            if figure.is_sourced() {
                worst = worst.max(off.abs());
            }
        }
    }
    if !flag("--json") {
        println!("furthest off of a sourced figure: {worst:.2} %");
    }
    if worst > MOST {
        eprintln!("a sourced figure is {worst:.2} % off, more than {MOST} %");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// The figures of the preset. If it has none for steady 4K random writes, one without a source is added.
fn figures(preset: &Preset) -> Vec<Figure> {
    let mut figures = preset.figures().to_vec();
    if !preset.is_null() && figures.iter().all(|figure| figure.state == State::Fresh) {
        let what = Workload { op: Op::Write, pattern: Pattern::Random, blocks: 1, depth: 256 };
        let model = measure(preset, what, State::Steady, 1 << 19).expect("a size that can be").iops;
        let (unit, bound, source) =
            (Measure::Iops, gnstor_model::Bound::About, gnstor_model::MODELLED.to_owned());
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
            "{{\"bench\":\"steady\",\"preset\":\"{}\",\"load\":\"{what}\",\"state\":\"{state}\",\
             \"figure\":{},\"unit\":\"{unit}\",\"layer\":{value:.3},\"off_percent\":{off:.3},\
             \"model_off_percent\":{model_off:.3},\"write_amplification\":{wa:.4},\
             \"model_write_amplification\":{model_wa:.4},\"erases_least\":{},\"erases_most\":{},\
             \"stalls\":{stalls},\"source\":\"{source}\"}}",
            preset.name, figure.value, wear.least, wear.most
        );
    } else {
        println!(
            "{:<14} {what:<24} {state:<7} {:>10.1} {unit:<5} {value:>10.1} {off:>+8.2} {model_off:>+8.2} \
             {wa:>6.3} {model_wa:>6.3} {:>3}-{:<3} {stalls:>7}  {source}",
            preset.name, figure.value, wear.least, wear.most
        );
        if flag("--stats") {
            println!("    {:?} {:?}", ssd.ftl.stats(), ssd.ftl.health());
        }
    }
    off
}
