// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages for a person, while a command works and when it is done.

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
        let style =
            ProgressStyle::with_template("  {msg:10} [{bar:32}] {bytes}/{total_bytes} {bytes_per_sec}");
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

/// The HCA, as every report names it.
pub fn describe_hca(unordered: Option<Unordered>) -> String {
    let how = unordered.map_or(String::new(), |what| format!("; {}", what.describe()));
    format!("HCA (genuine mlx5 queue bytes, executed in software{how})")
}

/// Prints a value as JSON on standard output.
pub fn print_json(value: &impl Serialize) {
    crate::outln!("{}", serde_json::to_string_pretty(value).expect("plain data serialises"));
}
