// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor bench --suite`: a set of loads, each several times, in as many calls as it takes.
//!
//! ```text
//!   rows      the loads                                        targets, figure
//!   rounds    every row once, then every row a second time     here
//!   folder    finished runs, so that the next call goes on     store
//!   report    one JSON object and a transcript                 targets, figure
//! ```
//! Rounds: where the time ends early, every row has run, if less often. The results of a folder are of one
//! build on one machine.

mod gap;
mod store;
mod targets;

use super::args::BenchArgs;
use super::copy_baseline::{self, CopyBaseline};
use super::load::Load;
use super::machine::{self, Build, Machine};
use super::report::Report;
use super::words::SuiteArg;
use super::{figure, plot, run_load};
use gnstor_console::CliError;
use gnstor_console::out;
use gnstor_console::{Steps, print_json};
use libgnstor::{Device, Error};
use serde::Serialize;
use std::fmt::Write;
use std::time::{Duration, Instant};
pub(super) use store::{Done, Kept};
use store::{Label, Store};

/// Largest number of agent blocks for which the bare copy has as many warps as the agent has movers. Each
/// block serves one pair of rings.
const MOST_BLOCKS: u32 = 8;
/// Longest measuring of each bare copy.
const COPY: Duration = Duration::from_millis(500);
/// Time that a row's first run is expected to take beyond its load.
const UNKNOWN: Duration = Duration::from_secs(12);

/// One row.
#[derive(Debug)]
struct Row {
    name: String,
    what: What,
}

#[derive(Debug)]
enum What {
    /// The bare copy.
    Copy,
    /// A load.
    Load(Box<BenchArgs>),
}

/// The lines above the rows.
#[derive(Debug, Serialize)]
struct Head<'a> {
    #[serde(flatten)]
    label: &'a Label,
    /// Time at which the last run ended, UTC.
    date: &'a str,
    /// Every row has run as often as it was to.
    complete: bool,
    /// Number of finished runs, and number of planned ones.
    done: usize,
    planned: usize,
    runs_a_row: usize,
}

/// Runs what is missing, until everything is there or the time is over, and reports the results so far.
///
/// # Errors
/// [`CliError`]: impossible options, a folder with other contents, and runs that failed.
#[expect(clippy::disallowed_methods, reason = "a budget of real time")]
pub(super) fn command(suite: SuiteArg, args: &BenchArgs, steps: &Steps) -> Result<(), CliError> {
    let began = Instant::now();
    let folder = args.out.as_deref().ok_or_else(|| CliError::Usage("--suite needs --out".into()))?;
    let rows = match suite {
        SuiteArg::Targets => targets::rows(args),
        SuiteArg::Figures => {
            figure::loads(args)?.into_iter().map(|(name, args)| Row::load(name, args)).collect()
        }
    };
    rows.iter().try_for_each(Row::check)?;
    let device = Device::open(args.device.into()).map_err(Error::from)?;
    let label = Label::new(suite, args, Build::this()?, Machine::of(&device));
    let mut store = Store::open(folder, &label)?;
    let mut kept: Vec<Kept> = rows.iter().map(|row| store.row(&row.name)).collect();
    steps.done(format!("machine     {}", label.machine.line()));
    let enough = args.runs() as usize;
    let left =
        |began: Instant| args.budget.map_or(Duration::MAX, |budget| budget.saturating_sub(began.elapsed()));
    let mut ended = None;
    'rounds: for round in 1..=enough {
        for (row, kept) in rows.iter().zip(&mut kept) {
            if kept.is_enough(round) {
                continue;
            }
            if left(began) < expected(kept, args) {
                ended = Some("the time is over");
                break 'rounds;
            }
            let started = Instant::now();
            let ran = row.run(args, &device, steps);
            if steps.interrupted() || matches!(ran, Err(CliError::Interrupted)) {
                ended = Some("interrupted");
                break 'rounds;
            }
            // Wrong data concerns one run. An error before there are figures may be the device's fault, and
            // would end the other rows, too.
            let broken = matches!(&ran, Err(error) if !matches!(error, CliError::Verify(_)));
            keep(kept, ran, started.elapsed(), steps);
            store.keep(kept)?;
            if broken {
                ended = Some("ended by that error");
                break 'rounds;
            }
        }
    }
    let count = |kept: &Kept| if kept.is_enough(enough) { enough } else { kept.runs.len().min(enough) };
    let (done, planned) = (kept.iter().map(count).sum(), rows.len() * enough);
    if let Some(why) = ended {
        steps.done(format!("{why}: {done} of {planned} runs are there; the same call again goes on"));
    }
    let date = kept.iter().map(|kept| kept.date.as_str()).max().unwrap_or_default();
    let head = Head { label: &label, date, complete: done == planned, done, planned, runs_a_row: enough };
    match suite {
        SuiteArg::Targets => targets::report(&head, &kept, args, &store)?,
        SuiteArg::Figures => figures(&head, &kept, args, &store)?,
    }
    verdict(&kept, ended == Some("interrupted"))
}

/// Estimated time of a run of this row.
fn expected(kept: &Kept, args: &BenchArgs) -> Duration {
    if kept.seconds > 0.0 {
        return Duration::from_secs_f64(kept.seconds * 1.5);
    }
    args.warmup + args.runtime() + UNKNOWN
}

/// Records the outcome of a run. A run with wrong data counts as failed.
fn keep(kept: &mut Kept, ran: Result<Done, CliError>, took: Duration, steps: &Steps) {
    let checked = ran.and_then(|done| match &done {
        Done::Load(report) => report.verdict().map(|()| done),
        Done::Copy(_) => Ok(done),
    });
    kept.seconds = kept.seconds.max(took.as_secs_f64());
    kept.date = machine::now();
    let (name, seconds) = (&kept.name, took.as_secs_f64());
    match checked {
        Ok(done) => {
            let line = match &done {
                Done::Copy(copy_baseline) => format!("{} copies", copy_baseline.copies.len()),
                Done::Load(report) => load_line(report),
            };
            steps.done(format!("{name:<34} run {}: {line} ({seconds:.1} s)", kept.runs.len() + 1));
            kept.runs.push(done);
        }
        Err(error) => {
            steps.done(format!("{name:<34} failed: {error} ({seconds:.1} s)"));
            kept.failed.push(error.to_string());
        }
    }
}

/// Rate and latency of a run.
fn load_line(report: &Report) -> String {
    let rate = format!("{:.0} IOPS, {:.3} GB/s", report.iops, report.gbps);
    let Some(timed) = report.timed() else { return rate };
    let [p50, p99, p99_9, max] = timed.latency_us.tails();
    format!("{rate}, p50 {p50:.1} us, p99 {p99:.1}, p99.9 {p99_9:.1}, max {max:.1}")
}

/// Whether every run passed. A row that has not run yet is no error.
fn verdict(kept: &[Kept], interrupted: bool) -> Result<(), CliError> {
    let failed = || kept.iter().filter_map(|kept| Some((&kept.name, kept.failed.first()?)));
    if let Some((name, error)) = failed().next() {
        return Err(CliError::Verify(format!("runs of {} rows failed; {name}: {error}", failed().count())));
    }
    if interrupted { Err(CliError::Interrupted) } else { Ok(()) }
}

impl Row {
    fn load(name: String, args: BenchArgs) -> Self {
        Self { name, what: What::Load(Box::new(args)) }
    }

    /// Checks that its load can run.
    fn check(&self) -> Result<(), CliError> {
        match &self.what {
            What::Copy => Ok(()),
            What::Load(args) => Load::new(args).map(drop),
        }
    }

    fn run(
        &self,
        args: &BenchArgs,
        device: &std::sync::Arc<Device>,
        steps: &Steps,
    ) -> Result<Done, CliError> {
        match &self.what {
            What::Copy => {
                let blocks = u32::try_from(args.engines.count()).unwrap_or(u32::MAX).min(MOST_BLOCKS);
                Ok(Done::Copy(copy_baseline::measure(device, blocks, args.runtime().min(COPY))?))
            }
            What::Load(args) => Ok(Done::Load(Box::new(run_load(args, Load::new(args)?, &steps.hidden())?))),
        }
    }
}

/// The lines above a transcript's rows: machine, build, and the settings of all rows.
fn head_text(head: &Head<'_>, kept: &[Kept]) -> String {
    let mut text = String::new();
    let Label { suite, build, machine, options, .. } = head.label;
    let mut line = |what: &str, value: &str| {
        let _ = writeln!(text, "  {what:<11} {value}");
    };
    let share =
        if head.complete { "complete".into() } else { format!("{} of {} runs", head.done, head.planned) };
    line("suite", &format!("{suite}, {share}, up to {} runs a row: median (least..most)", head.runs_a_row));
    line("date", head.date);
    line("machine", &machine.line());
    line("build", &format!("{} {}", build.version, &build.sha256[..16]));
    line(
        "load",
        &format!(
            "{} s after {} s of warm-up, volumes of {} bytes, seed {}, checks {}",
            options.runtime_s,
            options.warmup_s,
            options.size,
            options.seed,
            if options.verify { "on" } else { "off" }
        ),
    );
    line("engines", &options.engines.to_string());
    let reports = || kept.iter().flat_map(Kept::reports);
    if let Some(Report { agent, .. }) = reports().next() {
        let of = agent.multiprocessors.map_or_else(String::new, |all| format!(" on {all} multiprocessors"));
        line("agent", &format!("{} blocks{of}", agent.blocks));
    }
    let mut emulated: Vec<&str> = reports().flat_map(|report| &report.emulated).map(String::as_str).collect();
    emulated.sort_unstable();
    emulated.dedup();
    emulated.iter().for_each(|what| line("emulated", what));
    text
}

/// Figures 9 to 13 of the rows that ran.
fn figures(head: &Head<'_>, kept: &[Kept], args: &BenchArgs, store: &Store) -> Result<(), CliError> {
    #[derive(Serialize)]
    struct Figures<'a> {
        #[serde(flatten)]
        head: &'a Head<'a>,
        figures: &'a [figure::FigureReport],
    }
    let of = |name: &str| {
        let row = kept.iter().find(|kept| kept.name == name)?;
        (!row.runs.is_empty()).then(|| row.reports().cloned().collect())
    };
    let figures = figure::reports(args, of)?;
    let mut text = head_text(head, kept);
    for figure in &figures {
        text += &figure.text();
        plot::write(&store.path(&format!("figure-{}.png", figure.figure)), figure)?;
    }
    let all = Figures { head, figures: &figures };
    store.save("figures.json", &all)?;
    store.write("figures.txt", &text)?;
    if args.json {
        print_json(&all)
    } else {
        out!("{text}")
    }
    Ok(())
}

/// The median of what the bare copy reached in each run, pieces a second. Rows are held against it, so of two
/// runs the faster one counts.
fn copy_baseline(kept: &[Kept], to_device: bool, piece: u64) -> Option<f64> {
    let best = |copy_baseline: &CopyBaseline| copy_baseline.best(to_device, piece);
    let all = kept.iter().flat_map(Kept::copy_baselines).filter_map(best);
    crate::Spread::of(all, crate::Better::Low).map(|spread| spread.median)
}
