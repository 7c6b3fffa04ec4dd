// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a person sees while a command works and when it is done.

use gnstor_fabric::hca::agent::Unordered;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Progress on standard error; silent with `--json` and where standard error is not a terminal.
#[derive(Clone, Debug)]
pub struct Steps {
    quiet: bool,
    interrupted: Arc<AtomicBool>,
}

impl Steps {
    /// Progress, unless `quiet`; Ctrl-C sets `interrupted`.
    pub fn new(quiet: bool, interrupted: Arc<AtomicBool>) -> Self {
        Self { quiet, interrupted }
    }

    /// The same Ctrl-C, and nothing to see: for parts of something that shows itself.
    #[must_use]
    pub fn hidden(&self) -> Self {
        Self { quiet: true, interrupted: Arc::clone(&self.interrupted) }
    }

    /// A finished step, in a line.
    pub fn done(&self, text: impl AsRef<str>) {
        if !self.quiet {
            eprintln!("  {}", text.as_ref());
        }
    }

    /// A bar over `bytes`.
    pub fn bytes(&self, what: &str, bytes: u64) -> ProgressBar {
        let bar = ProgressBar::new(bytes);
        if self.quiet {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let style = ProgressStyle::with_template("  {msg:10} [{bar:32}] {bytes}/{total_bytes} {bytes_per_sec}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
        bar.set_message(what.to_owned());
        bar
    }

    /// A bar over `total` of anything; its message is what the caller says.
    pub fn bar(&self, what: &str, total: u64) -> ProgressBar {
        let bar = ProgressBar::new(total);
        if self.quiet {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let style = ProgressStyle::with_template("  {prefix:10} [{bar:32}] {percent} %  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
        bar.set_prefix(what.to_owned());
        bar
    }

    /// Whether Ctrl-C was pressed.
    pub fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Acquire)
    }
}

/// What every report says of the HCA.
pub(crate) fn told_of_hca(unordered: Option<Unordered>) -> String {
    let how = unordered.map_or(String::new(), |what| format!("; {}", what.told()));
    format!("HCA (genuine mlx5 queue bytes, executed in software{how})")
}

/// Prints a value as JSON on standard output.
pub fn print_json(value: &impl Serialize) {
    outln!("{}", serde_json::to_string_pretty(value).expect("plain data serialises"));
}

/// Bytes for a person.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    #[expect(clippy::cast_precision_loss, reason = "for display")]
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_well() {
        assert_eq!(human_bytes(900), "900 B");
        assert_eq!(human_bytes(1 << 20), "1.0 MiB");
        assert_eq!(human_bytes(5 * (1 << 40)), "5.0 TiB");
    }
}
