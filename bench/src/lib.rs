// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor bench`: the load generator.
//!
//! ```text
//!   Load      what was asked for, checked                     args, words, load
//!   Harness   array, node, clients, volumes, the kernel       harness, target, kernel, cuda/bench.cu
//!             the baselines' CPU side                         proxy, central, host_channel, copier
//!   fill      every unit of every volume is written once
//!   measure   warm-up, measured part, drain: one launch       latency, cpu, ideal
//!   read back after writing: every replica of every block     read_back
//!   Report    table, JSON, drawing                            report, summary, served, lateness, plot
//!   Jobs      loads of a file, one after another              jobs
//!   Repeated  a load several times: median and spread         repeat, spread
//!   Figure    a figure of the paper: many loads, one table    figure
//!   Suite     loads beside what the machine can, resumable    suite, copy_baseline, machine
//! ```

mod args;
mod central;
#[cfg(test)]
mod checks;
mod copier;
mod copy_baseline;
mod cpu;
mod figure;
mod harness;
mod host_channel;
mod ideal;
mod jobs;
mod kernel;
mod latency;
mod lateness;
#[cfg(test)]
mod layout;
mod load;
mod machine;
#[cfg(test)]
mod made_up;
mod plot;
mod proxy;
mod rate;
mod read_back;
mod repeat;
mod report;
mod served;
mod spread;
mod suite;
mod summary;
mod target;
mod words;

pub use args::BenchArgs;
pub use harness::Harness;
pub use latency::{Latency, Timed};
pub use lateness::Lateness;
pub use load::Load;
pub use rate::{Pace, RateIops, RateSummary};
pub use read_back::read_back;
pub use report::Report;
pub use spread::{Better, Spread};
pub use words::{Bounce, Buffers, LinkArg, Mode, Rw, SuiteArg, Switch};

use cpu::{Busy, CpuTime};
use gnstor_console::CliError;
use gnstor_console::{Steps, human_bytes};
use harness::{Outcome, Phase};
use kernel::{LaneResult, NO_SECTOR, ONCE, RANDOM, VERIFY};
use libgnstor::describe_status;
use report::{DeviceSummary, ErrorSummary, SCHEMA, Verify};
use std::time::Duration;

/// Longest time for filling or reading back.
const ONCE_LIMIT: Duration = Duration::from_secs(3600);

/// Runs the wanted loads, prints and draws the results.
///
/// # Errors
/// [`CliError`]: impossible options, an error that ended the run before there were figures, and everything
/// wrong in the figures.
pub fn command(args: &BenchArgs, steps: &Steps) -> Result<(), CliError> {
    if let Some(path) = &args.job {
        return jobs::command(path, steps);
    }
    args.check_words()?;
    run_and_print(args, steps)
}

/// Runs the loads of a command line, or of a job of a file.
fn run_and_print(args: &BenchArgs, steps: &Steps) -> Result<(), CliError> {
    if let Some(suite) = args.suite {
        return suite::command(suite, args, steps);
    }
    if args.figure.is_some() {
        return figure::command(args, steps);
    }
    if args.runs() > 1 {
        return repeat::command(args, steps);
    }
    let report = run(args, steps)?;
    report.print(args.json);
    args.plot.as_deref().map_or(Ok(()), |path| plot::write(path, &report))?;
    report.verdict()
}

/// Runs the load and returns its report. A report with wrong data or failed I/Os is a report, too: see
/// [`Report::verdict`].
///
/// # Errors
/// [`CliError`]: impossible options, and an error that ended the run before there were figures.
pub fn run(args: &BenchArgs, steps: &Steps) -> Result<Report, CliError> {
    let load = Load::new(args)?;
    args.plot.as_deref().map_or(Ok(()), plot::reserve)?;
    run_load(args, load, steps)
}

fn run_load(args: &BenchArgs, load: Load, steps: &Steps) -> Result<Report, CliError> {
    if args.array.is_none() {
        load.check_memory(gnstor_console::free_memory())?;
    }
    let harness = Harness::new(args, load, steps)?;
    let report = run_on(&harness, args, steps);
    let removed = harness.remove_volumes();
    let report = report?;
    removed.map(|()| report)
}

fn run_on(harness: &Harness, args: &BenchArgs, steps: &Steps) -> Result<Report, CliError> {
    fill(harness, steps)?;
    let mut report = measure(harness, args, steps)?;
    read_back(harness, &mut report, steps)?;
    Ok(report)
}

/// Writes every unit of every volume once.
///
/// # Errors
/// [`CliError`]: a write that failed, or Ctrl-C.
pub fn fill(harness: &Harness, steps: &Steps) -> Result<(), CliError> {
    let phase = Phase {
        what: "fill",
        flags: VERIFY | ONCE,
        read_percent: 0,
        warmup: Duration::ZERO,
        runtime: ONCE_LIMIT,
        replica: 0,
        pace: None,
    };
    let outcome = harness.run(&phase, steps)?;
    if outcome.interrupted {
        return Err(CliError::Interrupted);
    }
    whole(harness, &outcome, 1, "filling the volumes")?;
    harness.flush()?;
    let load = harness.load();
    steps.done(format!(
        "filled      {} x {} in {} replicas",
        load.clients,
        human_bytes(load.size),
        load.replicas
    ));
    Ok(())
}

/// Runs the load on filled volumes and tells what it found.
///
/// # Errors
/// [`CliError`]: what ended the run before there were figures.
pub fn measure(harness: &Harness, args: &BenchArgs, steps: &Steps) -> Result<Report, CliError> {
    let load = harness.load();
    let checked = args.verify == Switch::On;
    let phase = Phase {
        what: "measure",
        flags: if load.is_random() { RANDOM } else { 0 } | if checked { VERIFY } else { 0 },
        read_percent: load.read_percent,
        warmup: args.warmup,
        runtime: args.runtime(),
        replica: 0,
        pace: load.rate_iops,
    };
    let (stages_before, cpu_before) = (harness.stages()?, CpuTime::now());
    let outcome = harness.run(&phase, steps)?;
    let mut cpu = CpuTime::now().since(&cpu_before);
    for &(name, seconds) in &outcome.threads {
        *cpu.threads.entry(name.into()).or_insert(0.0) += seconds;
    }
    let stages = harness.stages()?;
    let (array, ios) =
        (summary::array(harness, &stages_before, &stages), sum(&outcome, |lane| lane.ios.iter().sum()));
    let errors = errors(&outcome);
    let verify = checked.then(|| verified(harness, &outcome, ios));
    // A limited rate is kept over the whole time, also where the last request ends before it.
    let kept = load.rate_iops.filter(|_| !outcome.interrupted && errors.is_empty());
    let least = if kept.is_some() { args.runtime() } else { Duration::ZERO };
    let ns = latency::elapsed_ns(&outcome, least);
    let (read, write) = (latency::timed(&outcome, 0, load.bs, ns), latency::timed(&outcome, 1, load.bs, ns));
    let both = |f: fn(&Timed) -> f64| read.iter().chain(&write).map(f).sum::<f64>();
    let (iops, gbps) = (both(|t| t.iops), both(|t| t.gbps));
    #[expect(clippy::cast_precision_loss, reason = "figures to print")]
    let elapsed_s = ns as f64 / 1e9;
    let device = harness.device();
    Ok(Report {
        schema: SCHEMA,
        load: load.clone(),
        device: DeviceSummary { kind: device.kind().into(), name: device.name(), why: device.why().into() },
        agent: summary::agent(harness, outcome.multiprocessors),
        emulated: summary::emulated(harness),
        interrupted: outcome.interrupted,
        elapsed_s,
        iops,
        gbps,
        ideal: ideal::ideal(load, harness.preset(), harness.link(), harness.ssds(), iops),
        rate: load.rate_iops.and_then(|pace| summary::rate(load, pace, &phase, &outcome)),
        read,
        write,
        verify,
        errors,
        late: summary::late(&stages_before, &stages, harness.preset().is_null()),
        busy: Busy::of(load, args.engines.count(), device.kind()),
        cpu,
        stages: summary::stages(&stages_before, &stages, &array, ios),
        array,
    })
}

/// The results of the checks of a launch with this number of I/Os.
fn verified(harness: &Harness, outcome: &Outcome, ios: u64) -> Verify {
    Verify {
        ios,
        verified_ios: sum(outcome, |lane| lane.verified),
        whole_blocks: sum(outcome, |lane| lane.whole_blocks),
        replicas_read_back: 0,
        first_wrong: first_wrong(harness, outcome, "any replica"),
    }
}

impl Report {
    /// Whether every check passed.
    ///
    /// # Errors
    /// [`CliError::Verify`] with what is not; [`CliError::Interrupted`] when it is only that the run was cut
    /// short.
    pub fn verdict(&self) -> Result<(), CliError> {
        if let Some(error) = self.errors.first() {
            let count: u64 = self.errors.iter().map(|error| error.count).sum();
            return Err(CliError::Verify(format!("{count} I/Os failed; {} x {}", error.count, error.what)));
        }
        if let Some(wrong) = self.verify.as_ref().and_then(|verify| verify.first_wrong.as_ref()) {
            return Err(CliError::Verify(format!("not what was written: {wrong}")));
        }
        if self.stages.leaked != 0 || self.stages.protocol_errors != 0 {
            return Err(CliError::Verify(format!(
                "the channels are not clean after the run: {:?}",
                self.stages
            )));
        }
        if self.interrupted {
            return Err(CliError::Interrupted);
        }
        if let Some(Verify { ios, verified_ios, .. }) =
            self.verify.as_ref().filter(|v| v.verified_ios != v.ios)
        {
            return Err(CliError::Verify(format!("{verified_ios} of {ios} I/Os were verified")));
        }
        Ok(())
    }
}

/// Every unit was done once, by reads (0) or writes (1).
fn whole(harness: &Harness, outcome: &Outcome, op: usize, what: &str) -> Result<(), CliError> {
    if let Some(error) = errors(outcome).first() {
        return Err(CliError::Verify(format!("{what}: {} x {}", error.count, error.what)));
    }
    let done: u64 = outcome.lanes.iter().flatten().map(|lane| lane.ios[op]).sum();
    let units = u64::from(harness.load().units) * u64::from(harness.load().clients);
    if done != units {
        return Err(CliError::Verify(format!("{what}: {done} of {units} requests in {ONCE_LIMIT:?}")));
    }
    Ok(())
}

/// Sum of a number of each thread.
fn sum(outcome: &Outcome, f: fn(&LaneResult) -> u64) -> u64 {
    outcome.lanes.iter().flatten().map(f).sum()
}

/// The first wrong sector of a launch, in words.
fn first_wrong(harness: &Harness, outcome: &Outcome, whose: &str) -> Option<String> {
    let mut all =
        (0..).zip(&outcome.lanes).flat_map(|(client, lanes)| lanes.iter().map(move |lane| (client, lane)));
    let (client, lane): (usize, &LaneResult) = all.find(|(_, lane)| lane.wrong_sector != NO_SECTOR)?;
    let wrong: u64 = outcome.lanes.iter().flatten().map(|lane| lane.wrong).sum();
    let (vba, sector) = (lane.wrong_sector / 8, lane.wrong_sector % 8);
    let [place, age] = lane.found;
    let (vid, at, generation) = (place >> 48, place & 0xFFFF_FFFF_FFFF, age >> 32);
    let found = match place {
        0xDEAD_BEEF_DEAD_BEEF => "nothing that was read (the buffer's poison)".to_owned(),
        _ if at == lane.wrong_sector && generation == u64::from(lane.wanted) => {
            "the right headers around other bytes".into()
        }
        0 => "zeros".into(),
        _ => format!("what says VID {vid}, block {}, sector {}, generation {generation}", at / 8, at % 8),
    };
    Some(format!(
        "{wrong} reads of {whose}; first volume {}, block {vba}, sector {sector}, generation {}: found \
         {found}",
        harness.volume(client),
        lane.wanted
    ))
}

fn errors(outcome: &Outcome) -> Vec<ErrorSummary> {
    let mut all: Vec<ErrorSummary> = Vec::new();
    for &LaneResult { status, dw0, failed_vba, .. } in
        outcome.lanes.iter().flatten().filter(|lane| lane.status != 0)
    {
        match all.iter_mut().find(|error| error.status == status) {
            Some(error) => error.count += 1,
            None => {
                let what = format!("{} (first at block {failed_vba})", describe_status(status, dw0));
                all.push(ErrorSummary { status, dw0, what, count: 1 });
            }
        }
    }
    all
}
