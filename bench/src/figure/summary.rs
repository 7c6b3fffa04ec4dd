// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A finished figure, in the form of the JSON (`docs/bench-report.md`).

use super::claim::{ClaimSummary, Measured};
use super::paper::{Figure, PAPER_GB, Quantity};
use super::point::{Given, Point};
use crate::args::BenchArgs;
use crate::latency::Latency;
use crate::repeat;
use crate::report::{Report, SCHEMA};
use crate::spread::{Better, Spread};
use crate::words::Mode;
use gnstor_array::media::DEFAULT_PRESET;
use gnstor_console::CliError;
use serde::Serialize;

/// From this share of late responses on the emulator, and not the modelled array, set the pace.
const LATE_HIGH: f64 = 0.1;
/// Requests in flight of one client in the paper.
const DEPTH: u32 = 32;
/// Differences from the paper that need a cause.
const DIFFERENT: f64 = 0.1;

/// A figure, point by point.
#[derive(Debug, Serialize)]
pub(crate) struct FigureReport {
    schema: u32,
    pub(crate) figure: u8,
    pub(crate) title: &'static str,
    #[serde(skip)]
    pub(crate) quantity: Quantity,
    /// Unit of every point's `paper`, `ideal` and `measured`.
    pub(super) unit: &'static str,
    /// Bytes of a GB in `unit`.
    gb_bytes: f64,
    pub(super) preset: String,
    pub(super) iodepth: u32,
    /// Choices that the text leaves open, and differences that the user asked for.
    pub(super) chosen: Vec<String>,
    pub(super) interrupted: bool,
    /// Points that were to be run.
    pub(super) planned: usize,
    pub(crate) points: Vec<PointSummary>,
    pub(super) claims: Vec<ClaimSummary>,
}

/// One point.
#[derive(Debug, Serialize)]
pub(crate) struct PointSummary {
    pub(crate) name: String,
    #[serde(skip)]
    pub(crate) point: Point,
    #[serde(skip)]
    pub(crate) quantity: Quantity,
    pub(crate) paper: Option<f64>,
    /// `text`, or `ratio`: the text's factor times a value of the text.
    pub(super) paper_from: Option<&'static str>,
    pub(super) ideal: Option<f64>,
    pub(super) measured: Option<f64>,
    /// Measured by ideal; none for a point that had too few cores.
    pub(super) ratio: Option<f64>,
    /// Spread of all runs. `measured` and its neighbours are from the run in the middle.
    pub(super) spread: Option<Spread>,
    pub(super) runs: usize,
    /// Mean latency, and what it is at the ideal rate, microseconds: in every figure.
    pub(super) mean_us: Option<f64>,
    ideal_us: Option<f64>,
    /// Percentiles and maximum of the run in the middle.
    pub(super) latency_us: Option<Latency>,
    /// Responses that the emulator delivered late, and commands whose client waited too long.
    pub(super) late_share: Option<f64>,
    pub(super) client_late_share: Option<f64>,
    pub(crate) core_bound: bool,
    pub(super) state: Option<String>,
    pub(super) fill_share: Option<f64>,
    /// Why it differs from the paper's value, if the report knows.
    pub(super) cause: Option<String>,
    /// Why the point failed.
    pub(super) error: Option<String>,
    pub(super) run: Option<Report>,
    /// The runs that are not in the middle.
    other_runs: Vec<Report>,
}

impl FigureReport {
    pub(super) fn new(figure: &Figure, args: &BenchArgs) -> Self {
        Self {
            schema: SCHEMA,
            figure: figure.number,
            title: figure.title,
            quantity: figure.quantity,
            unit: figure.quantity.unit(),
            gb_bytes: PAPER_GB,
            preset: args.preset.clone(),
            iodepth: args.iodepth,
            chosen: chosen(figure, args),
            interrupted: false,
            planned: figure.points.len(),
            points: Vec::new(),
            claims: Vec::new(),
        }
    }

    /// A point that ran, at least once.
    pub(super) fn add(&mut self, point: &Point, mut runs: Vec<Report>) {
        self.interrupted |= runs.iter().any(|run| run.interrupted);
        let latency = self.quantity == Quantity::Latency;
        let of = |both: Measured| if latency { both.mean_us } else { both.gbps };
        let better = if latency { Better::Low } else { Better::High };
        let value = |run: &Report| measured(run).map_or(f64::NAN, of);
        let Some(middle) = repeat::middle(&runs, better, value) else { return };
        let (count, spread) = (runs.len(), Spread::of(runs.iter().map(value), better));
        let errors = runs.iter().filter_map(|run| run.verdict().err());
        let error = errors.into_iter().find(|error| !matches!(error, CliError::Interrupted));
        let run = runs.swap_remove(middle);
        let in_flight = f64::from(run.load.clients * run.load.iodepth);
        let found = measured(&run);
        let bound = run.ideal.as_ref().map(|ideal| Measured {
            gbps: ideal.gbps * 1e9 / PAPER_GB,
            // Little's law: requests in flight divided by the rate.
            mean_us: in_flight * 1e6 / ideal.iops,
        });
        let (measured, ideal) = (found.map(of), bound.map(of));
        let mut summary = PointSummary {
            ideal,
            measured,
            ratio: measured
                .zip(ideal)
                .map(|(measured, ideal)| measured / ideal)
                .filter(|_| !run.busy.core_bound),
            spread,
            runs: count,
            mean_us: found.map(|found| found.mean_us),
            ideal_us: bound.map(|bound| bound.mean_us),
            latency_us: run.timed().map(|timed| timed.latency_us),
            late_share: run.late.share,
            client_late_share: run.late.client_share,
            core_bound: run.busy.core_bound,
            state: Some(run.array.state.clone()),
            fill_share: Some(run.array.fill_share),
            error: error.map(|error| error.to_string()),
            ..PointSummary::new(point, self.quantity)
        };
        summary.cause = summary.cause(&run);
        summary.run = Some(run);
        summary.other_runs = runs;
        self.points.push(summary);
    }

    /// A point that could not be run.
    pub(super) fn fail(&mut self, point: &Point, error: &CliError) {
        self.points
            .push(PointSummary { error: Some(error.to_string()), ..PointSummary::new(point, self.quantity) });
    }

    /// Adds the paper's statements about several points.
    pub(super) fn conclude(&mut self, figure: &Figure) {
        let counted = |summary: &PointSummary| {
            let counts = !summary.core_bound && summary.error.is_none();
            summary.run.as_ref().filter(|_| counts).and_then(measured)
        };
        let points: Vec<_> = self.points.iter().map(|summary| (&summary.point, counted(summary))).collect();
        self.claims = figure.claims.iter().map(|claim| claim.summary(&points)).collect();
    }

    /// Whether every check passed.
    ///
    /// # Errors
    /// [`CliError::Verify`] with the first point that failed; [`CliError::Interrupted`].
    pub(super) fn verdict(&self) -> Result<(), CliError> {
        let failed =
            || self.points.iter().filter_map(|summary| Some((&summary.name, summary.error.as_ref()?)));
        if let Some((name, error)) = failed().next() {
            let count = failed().count();
            return Err(CliError::Verify(format!(
                "{count} of {} points failed; {name}: {error}",
                self.planned
            )));
        }
        if self.interrupted || self.points.len() < self.planned { Err(CliError::Interrupted) } else { Ok(()) }
    }
}

fn chosen(figure: &Figure, args: &BenchArgs) -> Vec<String> {
    let mut all: Vec<String> = figure.chosen.iter().map(|&text| text.into()).collect();
    if args.preset != DEFAULT_PRESET {
        all.push(format!("--preset {}: not the paper's SSDs", args.preset));
    }
    if args.iodepth != DEPTH {
        all.push(format!("--iodepth {}: the paper's is {DEPTH}", args.iodepth));
    }
    if let Some(most) = args.max_clients.filter(|_| !figure.varies_clients) {
        all.push(format!("--max-clients {most}"));
    }
    all
}

/// Throughput in the paper's unit, and mean latency, if there is a result.
fn measured(run: &Report) -> Option<Measured> {
    let timed = run.timed()?;
    Some(Measured { gbps: run.gbps * 1e9 / PAPER_GB, mean_us: timed.latency_us.mean })
}

impl PointSummary {
    fn new(point: &Point, quantity: Quantity) -> Self {
        let [mode, rw, bs, clients, ssds] = point.words();
        Self {
            name: format!("{mode} {rw} {bs} {clients} {ssds}"),
            point: point.clone(),
            quantity,
            paper: point.paper.map(|given: Given| given.value),
            paper_from: point.paper.map(|given| given.from),
            ideal: None,
            measured: None,
            ratio: None,
            spread: None,
            runs: 0,
            mean_us: None,
            ideal_us: None,
            latency_us: None,
            late_share: None,
            client_late_share: None,
            core_bound: false,
            state: None,
            fill_share: None,
            cause: None,
            error: None,
            run: None,
            other_runs: Vec::new(),
        }
    }

    /// The measured value of a quantity.
    pub(crate) fn found(&self, of: Quantity) -> Option<f64> {
        if of == self.quantity { self.measured } else { self.mean_us }
    }

    /// The model's bound of a quantity.
    pub(crate) fn bound(&self, of: Quantity) -> Option<f64> {
        if of == self.quantity { self.ideal } else { self.ideal_us }
    }

    fn cause(&self, run: &Report) -> Option<String> {
        let (paper, measured) = self.paper.zip(self.measured)?;
        let by = measured / paper - 1.0;
        if by.abs() <= DIFFERENT {
            return None;
        }
        let is_better = (by > 0.0) == (self.quantity == Quantity::Throughput);
        let causes =
            if is_better { self.why_better(run.load.mode, paper) } else { self.why_worse(run, paper) };
        let causes = if causes.is_empty() { "the cause is not known".into() } else { causes.join(", ") };
        Some(format!("{:+.0} % from the paper: {causes}", by * 100.0))
    }

    /// Why a point is better than the paper's by this factor. The reasons for the baselines are reasoned, not
    /// measured.
    fn why_better(&self, mode: Mode, paper: f64) -> Vec<String> {
        let model = self.ideal.map(|ideal| ideal / paper).filter(|more| (more - 1.0).abs() > DIFFERENT);
        let cpu = "its CPU threads poll on cores of their own, through queues without driver or interrupt";
        let of_mode = match mode {
            Mode::Gnstor => None,
            Mode::Gd | Mode::GdDeengine => Some(cpu.to_owned()),
            Mode::Basic => Some(format!("{cpu}, and copies in batches")),
        };
        let of_model = |more| format!("the model's SSDs and link allow {more:.1} times the paper's value");
        of_mode.into_iter().chain(model.filter(|_| mode == Mode::Gnstor).map(of_model)).collect()
    }

    fn why_worse(&self, run: &Report, paper: f64) -> Vec<String> {
        let late = self.late_share.filter(|&share| share >= LATE_HIGH);
        let cores = || format!("core-bound ({} busy threads on {} cores)", run.busy.threads, run.busy.cores);
        let emulator = |share: f64| format!("emulator-bound ({:.1} % of responses late)", share * 100.0);
        let model = self.ideal.map(|ideal| ideal / paper).filter(|more| (more - 1.0).abs() > DIFFERENT);
        let of_model = |more| format!("the model's SSDs and link allow {more:.2} times the paper's value");
        let causes = self.core_bound.then(cores).into_iter().chain(late.map(emulator));
        // The model explains nothing if it allows better values than the paper's.
        let is_tighter = |more: &f64| (*more < 1.0) == (self.quantity == Quantity::Throughput);
        causes.chain(model.filter(is_tighter).map(of_model)).collect()
    }
}

#[cfg(test)]
mod tests;
