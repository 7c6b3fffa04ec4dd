// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A figure that was run, for people.

use super::paper::Quantity;
use super::summary::{FigureReport, PointSummary};
use crate::latency::{TAILS_HEAD, columns};
use gnstor_console::out;
use gnstor_console::print_json;
use std::fmt::Write;

impl FigureReport {
    /// Prints the figure for a person, or as JSON.
    pub(super) fn print(&self, json: bool) {
        if json { print_json(self) } else { out!("{}", self.text()) }
    }

    /// The figure for a person.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text)?;
        writeln!(
            text,
            "  figure {}: {}, {} a client in flight, preset {}",
            self.figure, self.title, self.iodepth, self.preset
        )?;
        writeln!(text)?;
        writeln!(
            text,
            "  {:<34} {:>9} {:>9} {:>9} {:>6} {:>8} {TAILS_HEAD} {:>7} {:>7}  SSDs",
            "point", "paper", "ideal", "measured", "+-", "of ideal", "late", "client"
        )?;
        for summary in &self.points {
            writeln!(text, "  {}", summary.line())?;
        }
        writeln!(text)?;
        let gb = if self.quantity == Quantity::Throughput {
            "; a GB is the paper's, 1.024 x 10^9 bytes"
        } else {
            " (means, as in the text)"
        };
        writeln!(text, "  values in {}{gb}; * = the text's factor times a value of the text", self.unit)?;
        writeln!(
            text,
            "  late: responses that the emulator delivered late; client: commands whose client waited long"
        )?;
        if self.points.len() < self.planned {
            writeln!(text, "  so far {} of {} points", self.points.len(), self.planned)?;
        }
        self.write_claims(text)?;
        self.write_notes(text)
    }

    /// The paper's statements about several points, with the measured values.
    fn write_claims(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text)?;
        writeln!(
            text,
            "  {:<68} {:>6} {:>9}",
            "the text of the paper on several points", "paper", "measured"
        )?;
        for claim in &self.claims {
            let measured = claim.measured.map_or_else(|| "-".into(), |value| format!("{value:.2}"));
            let of = match claim.points {
                0 => "none counts".into(),
                points => format!("of {points}"),
            };
            let what = format!("{} ({}, {of})", claim.what, claim.unit);
            writeln!(text, "  {what:<68} {:>6.2} {measured:>9}", claim.paper)?;
        }
        Ok(())
    }

    /// Causes, failures, choices, the device and what was emulated.
    fn write_notes(&self, text: &mut String) -> std::fmt::Result {
        for summary in &self.points {
            let why = [("cause", &summary.cause), ("failed", &summary.error)];
            for (what, why) in why.into_iter().filter_map(|(what, why)| Some((what, why.as_ref()?))) {
                writeln!(text, "  {what:<11} {}: {why}", summary.name)?;
            }
        }
        for chosen in &self.chosen {
            writeln!(text, "  chosen      {chosen}")?;
        }
        let runs = || self.points.iter().filter_map(|summary| summary.run.as_ref());
        if let Some(run) = runs().next() {
            writeln!(text, "  device      {} ({})", run.device.name, run.device.why)?;
        }
        let mut emulated: Vec<&str> = Vec::new();
        for sentence in runs().flat_map(|run| &run.emulated) {
            if !emulated.contains(&sentence.as_str()) {
                emulated.push(sentence);
            }
        }
        writeln!(text, "  emulated    {}", emulated.join("\n              "))
    }
}

impl PointSummary {
    /// The point's line of the table.
    pub(super) fn line(&self) -> String {
        let number =
            |value: Option<f64>, none: &str| value.map_or_else(|| none.to_owned(), |v| format!("{v:.2}"));
        let share = |value: f64| {
            if value < 10.0 { format!("{:.1} %", value * 100.0) } else { format!("{value:.0} x") }
        };
        let percent = |value: Option<f64>| value.map_or_else(|| "-".into(), share);
        let mark = if self.paper_from == Some("ratio") { "*" } else { "" };
        let paper = number(self.paper, "not given") + mark;
        let [ideal, measured] = [self.ideal, self.measured].map(|value| number(value, "-"));
        // A single run has no spread.
        let spread = self.spread.filter(|_| self.runs > 1);
        let spread = spread.map_or_else(|| "-".into(), |spread| format!("{:.1} %", spread.share() * 100.0));
        let tails = columns(self.latency_us.map_or([None; 4], |latency| latency.tails().map(Some)));
        let full = self.fill_share.map_or_else(String::new, |share| format!(", {:.1} % full", share * 100.0));
        let state = self.state.as_deref().unwrap_or_default();
        let mut marks = String::new();
        for (is, name) in [
            (self.core_bound, "  core-bound"),
            (self.error.is_some(), "  failed"),
            (self.run.as_ref().is_some_and(|run| run.interrupted), "  interrupted"),
        ] {
            marks += if is { name } else { "" };
        }
        format!(
            "{:<34} {paper:>9} {ideal:>9} {measured:>9} {spread:>6} {:>8} {tails} {:>7} {:>7}  \
             {state}{full}{marks}",
            self.name,
            percent(self.ratio),
            percent(self.late_share),
            percent(self.client_late_share)
        )
    }
}
