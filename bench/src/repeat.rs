// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The same load several times, each time on an array, a node and volumes of its own: median and spread.

use super::args::BenchArgs;
use super::latency::Tails;
use super::load::Load;
use super::report::{Report, SCHEMA};
use super::spread::{Better, Spread};
use super::{plot, run_load};
use gnstor_console::CliError;
use gnstor_console::outln;
use gnstor_console::{Steps, print_json};
use serde::Serialize;

/// The run in the middle by this figure; of an even number of runs the worse of the two in the middle.
pub(super) fn middle(runs: &[Report], better: Better, figure: impl Fn(&Report) -> f64) -> Option<usize> {
    let mut order: Vec<usize> = (0..runs.len()).collect();
    order.sort_by(|a, b| figure(&runs[*a]).total_cmp(&figure(&runs[*b])));
    order.get(better.middle(runs.len())?).copied()
}

/// A load that was run several times.
#[derive(Debug, Serialize)]
pub(super) struct Repeated {
    schema: u32,
    /// Runs that were to be.
    planned: u32,
    interrupted: bool,
    iops: Option<Spread>,
    gbps: Option<Spread>,
    /// Mean latency of the reads, and of the writes.
    read_mean_us: Option<Spread>,
    write_mean_us: Option<Spread>,
    /// Percentiles and maximum of the reads, and of the writes.
    read_tails: Tails,
    write_tails: Tails,
    late_share: Option<Spread>,
    client_late_share: Option<Spread>,
    /// Measured by ideal.
    ideal_ratio: Option<Spread>,
    /// The run in the middle by I/Os a second.
    median_run: usize,
    runs: Vec<Report>,
}

/// Runs the load as often as requested, prints and draws the results.
///
/// # Errors
/// [`CliError`]: impossible options, an error that ended a run before there were figures, and everything
/// wrong in the figures.
pub(super) fn command(args: &BenchArgs, steps: &Steps) -> Result<(), CliError> {
    let load = Load::new(args)?;
    args.plot.as_deref().map_or(Ok(()), plot::reserve)?;
    let mut runs = Vec::new();
    for number in 1..=args.runs() {
        steps.done(format!("run {number} of {}", args.runs()));
        match run_load(args, load.clone(), steps) {
            Ok(run) => runs.push(run),
            Err(CliError::Interrupted) if !runs.is_empty() => break,
            Err(error) => return Err(error),
        }
        if steps.interrupted() || runs.last().is_some_and(|run| run.verdict().is_err()) {
            break;
        }
    }
    let all = Repeated::of(runs, args.runs());
    all.print(args.json);
    args.plot.as_deref().map_or(Ok(()), |path| plot::write(path, &all.runs[all.median_run]))?;
    all.runs.iter().try_for_each(Report::verdict)?;
    if all.interrupted { Err(CliError::Interrupted) } else { Ok(()) }
}

impl Repeated {
    /// Summary of at least one run.
    fn of(runs: Vec<Report>, planned: u32) -> Self {
        let of =
            |better, figure: fn(&Report) -> Option<f64>| Spread::of(runs.iter().filter_map(figure), better);
        Self {
            schema: SCHEMA,
            planned,
            interrupted: runs.len() < planned as usize || runs.iter().any(|run| run.interrupted),
            iops: of(Better::High, |run| Some(run.iops)),
            gbps: of(Better::High, |run| Some(run.gbps)),
            read_mean_us: of(Better::Low, |run| run.read.as_ref().map(|timed| timed.latency_us.mean)),
            write_mean_us: of(Better::Low, |run| run.write.as_ref().map(|timed| timed.latency_us.mean)),
            read_tails: Tails::of(runs.iter().filter_map(|run| run.read.as_ref())),
            write_tails: Tails::of(runs.iter().filter_map(|run| run.write.as_ref())),
            late_share: of(Better::Low, |run| run.late.share),
            client_late_share: of(Better::Low, |run| run.late.client_share),
            ideal_ratio: of(Better::High, |run| run.ideal.as_ref().map(|ideal| ideal.ratio)),
            median_run: middle(&runs, Better::High, |run| run.iops).unwrap_or(0),
            runs,
        }
    }

    fn print(&self, json: bool) {
        if json {
            return print_json(self);
        }
        self.runs[self.median_run].print(false);
        outln!();
        outln!(
            "  the above is run {} of {}; median (least..most) of all:",
            self.median_run + 1,
            self.runs.len()
        );
        let line = |what: &str, spread: Option<Spread>, factor: f64, digits: usize| {
            let Some(Spread { median, least, most }) = spread else { return };
            let scaled = Spread { median: median * factor, least: least * factor, most: most * factor };
            outln!("  {what:<14} {}", scaled.line(digits));
        };
        line("IOPS", self.iops, 1.0, 0);
        line("GB/s", self.gbps, 1.0, 3);
        for (what, tails) in [("read", self.read_tails), ("write", self.write_tails)] {
            for (name, spread) in tails.named() {
                line(&format!("{what} {name} us"), spread, 1.0, 1);
            }
        }
        line("late %", self.late_share, 100.0, 2);
        line("client late %", self.client_late_share, 100.0, 2);
        line("of ideal %", self.ideal_ratio, 100.0, 1);
    }
}
