// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fits the values that a data sheet lacks: `cargo run --release -p gnstor-model --example fit -- NAME`.
//!
//! Prints `program_ns` for the preset's sequential write figure, then `over_provisioning_permille` for its
//! steady random write figure. And how the latter depends on the size of the SSD.

use gnstor_model::{Figure, Op, Pattern, Preset, State, measure::measure};

/// 4 GiB.
const LOGICAL_PAGES: u32 = 1 << 20;

fn main() {
    for name in std::env::args().skip(1) {
        match Preset::by_name(&name) {
            Some(preset) => fit(preset),
            None => eprintln!("{name}: no preset"),
        }
    }
}

fn fit(mut preset: Preset) {
    let figures = preset.figures.clone();
    let find = |pattern, state| {
        figures.iter().find(|f| {
            f.what.op == Op::Write && f.what.pattern == pattern && f.state == state && f.what.depth > 1
        })
    };
    if let Some(figure) = find(Pattern::Sequential, State::Fresh) {
        let (mut low, mut high) = (1_000_u64, 10_000_000);
        while high - low > 100 {
            preset.program_ns = low.midpoint(high);
            if off(&preset, figure) > 0.0 { low = preset.program_ns } else { high = preset.program_ns }
        }
        println!("{}: program_ns = {} ({:+.2} %)", preset.name, preset.program_ns, off(&preset, figure));
    }
    if let Some(figure) = find(Pattern::Random, State::Steady) {
        let (mut low, mut high) = (20_u32, 600);
        while high - low > 1 {
            preset.over_provisioning_permille = low.midpoint(high);
            if off(&preset, figure) < 0.0 {
                low = preset.over_provisioning_permille
            } else {
                high = preset.over_provisioning_permille
            }
        }
        println!(
            "{}: over_provisioning_permille = {} ({:+.2} %)",
            preset.name,
            preset.over_provisioning_permille,
            off(&preset, figure)
        );
        for shift in 17..22 {
            let got = measure(&preset, figure.what, figure.state, 1 << shift).expect("an SSD of that size");
            let (off, amplification) =
                (figure.deviation_percent(got.value(figure.unit)), got.write_amplification);
            println!("  2^{shift} pages: {off:+.2} %, write amplification {amplification:.3}");
        }
    }
}

fn off(preset: &Preset, figure: &Figure) -> f64 {
    let got = measure(preset, figure.what, figure.state, LOGICAL_PAGES).expect("an SSD of that size");
    figure.deviation_percent(got.value(figure.unit))
}
