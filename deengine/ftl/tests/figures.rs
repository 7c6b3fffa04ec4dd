// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sourced figures of every preset, measured through the translation layer.
//!
//! `cargo bench -p gnstor-ftl --bench steady` measures the same on larger SSDs.

use crate::common::closed_loop::Ssd;
use crate::deadline::deadline;
use crate::long::is_long;
use gnstor_model::{Preset, State};

/// Most deviation of a figure, in percent.
const MOST: f64 = 2.0;

fn misses(names: &[&str], state: State, logical_pages: u64) -> Vec<String> {
    let (mut misses, mut looked_at) = (Vec::new(), 0);
    for name in names {
        let preset = Preset::by_name(name).expect("one of its names");
        for figure in preset.figures().iter().filter(|figure| figure.state == state && figure.is_sourced()) {
            let got = Ssd::new(&preset, logical_pages).measure(figure.what, state);
            let off = figure.deviation_percent(got.value(figure.unit));
            println!("{name}: {}, {state}: {off:+.2} % off ({})", figure.what, figure.source);
            looked_at += 1;
            if off.abs() > MOST {
                misses.push(format!("{name}: {}: {off:+.2} %", figure.what));
            }
        }
    }
    assert!(looked_at > 0, "no figure of {names:?} is {state}");
    misses
}

#[test]
fn every_fresh_figure_is_met_through_the_layer() {
    let _deadline = deadline();
    assert_eq!(misses(Preset::NAMES, State::Fresh, 1 << 17), [""; 0]);
}

#[test]
fn steady_figures_are_met_through_the_layer() {
    let _deadline = deadline();
    let long = (["p5800x", "9550max"].as_slice(), 1 << 19);
    let (names, logical_pages) = if is_long() { long } else { (["p5800x"].as_slice(), 1 << 17) };
    assert_eq!(misses(names, State::Steady, logical_pages), [""; 0]);
}
