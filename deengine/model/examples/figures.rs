// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prints the figures that each preset must reach and the model's: `cargo run --release -p gnstor-model
//! --example figures`. Arguments: presets, or preset files.

use gnstor_model::{Preset, measure};
use std::process::ExitCode;

/// 2 GiB: large enough that a figure does not move.
const LOGICAL_PAGES: u32 = 1 << 19;

fn main() -> ExitCode {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        names = Preset::NAMES.iter().map(|name| name.to_string()).collect();
    }
    println!("| preset | load | state | figure | source | model | off |");
    println!("|---|---|---|---|---|---|---|");
    for name in names {
        let preset = match load(&name) {
            Ok(preset) => preset,
            Err(problem) => {
                eprintln!("{name}: {problem}");
                return ExitCode::FAILURE;
            }
        };
        for figure in preset.figures() {
            let outcome = match measure::measure(&preset, figure.what, figure.state, LOGICAL_PAGES) {
                Ok(outcome) => outcome,
                Err(problem) => {
                    eprintln!("{name}: {problem}");
                    return ExitCode::FAILURE;
                }
            };
            let got = outcome.value(figure.unit);
            let (what, state, unit, source) = (figure.what, figure.state, figure.unit, &figure.source);
            let off = figure.deviation_percent(got);
            println!(
                "| {} | {what} | {state} | {} {unit} | {source} | {got:.2} | {off:+.2} % |",
                preset.name, figure.value
            );
            if outcome.write_amplification > 1.01 {
                eprintln!("{name}: {what}: write amplification {:.2}", outcome.write_amplification);
            }
        }
    }
    ExitCode::SUCCESS
}

fn load(name: &str) -> Result<Preset, String> {
    if let Some(preset) = Preset::by_name(name) {
        return Ok(preset);
    }
    let text = std::fs::read_to_string(name).map_err(|error| format!("no preset, and no file: {error}"))?;
    Preset::from_toml(&text).map_err(|error| error.to_string())
}
