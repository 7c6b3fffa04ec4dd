// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor sim survive`: arguments in, seeds that failed out.

use crate::CliError;
use crate::args::SurviveArgs;
use gnstor_console::{Steps, outln, print_json};
use gnstor_sim::memory;
use gnstor_sim::survive::campaign::{Seeds, run_all};
use gnstor_sim::survive::planted::plant;
use gnstor_sim::survive::shrink::{LeftOut, shrink};
use gnstor_sim::survive::stats::{ENOUGH, Stats};
use gnstor_sim::survive::{Options, Outcome};
use serde::Serialize;
use std::collections::BTreeSet;

/// Seeds that failed of which the report names faults.
const FAULTS_SHOWN: usize = 12;

/// A seed that failed.
#[derive(Debug, Serialize)]
struct Failed {
    seed: u64,
    at_ms: u64,
    rule: String,
    facts: String,
    faults: Vec<String>,
    all_faults: usize,
    /// Clients that took turns, and all.
    clients: [usize; 2],
    /// Turns that they took, and all.
    turns: [usize; 2],
    replay: String,
}

/// A counter.
#[derive(Debug, Serialize)]
struct Counter {
    group: &'static str,
    name: &'static str,
    count: u64,
}

/// Everything that `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    first_seed: u64,
    last_seed: u64,
    played: u64,
    steps: u64,
    digest: String,
    failed: Vec<Failed>,
    counters: Vec<Counter>,
}

/// Plays the seeds.
///
/// # Errors
/// [`CliError::Verify`] if a seed breaks a promise, or many seeds with `--stats` did not meet everything.
/// [`CliError::Usage`] if the build does not have the mistake.
pub(crate) fn run(args: &SurviveArgs, steps: &Steps) -> Result<(), CliError> {
    if let Some(name) = &args.planted {
        plant(name).map_err(CliError::Usage)?;
    }
    memory::use_small_pages();
    let seeds = args.seed.map_or(args.seeds, |seed| Seeds { first: seed, last: seed });
    let (without, idle) = (args.without.clone().unwrap_or_default(), args.idle.clone().unwrap_or_default());
    let options = Options { trace: args.trace, without: without.0.clone(), idle: idle.clone() };
    let left_out = LeftOut { without, idle };
    let mut stats = Stats::default();
    let mut report = Report {
        schema: 1,
        first_seed: seeds.first,
        last_seed: seeds.last,
        played: 0,
        steps: 0,
        digest: String::new(),
        failed: Vec::new(),
        counters: Vec::new(),
    };
    let mut digest = 0u64;
    run_all(
        seeds,
        args.jobs,
        &options,
        || steps.interrupted(),
        |outcome| {
            outcome.log.iter().for_each(|line| outln!("{line}"));
            stats.add(&outcome.stats);
            report.played += 1;
            report.steps += outcome.steps;
            digest = digest.rotate_left(1) ^ outcome.digest;
            if outcome.violation.is_some() {
                let failed = failed(&outcome, args.shrink, &left_out);
                if !args.json {
                    print(&failed, args.shrink);
                }
                report.failed.push(failed);
            }
        },
    );
    let interrupted = steps.interrupted();
    report.digest = format!("{digest:016x}");
    report.counters =
        stats.rows().into_iter().map(|(group, name, count)| Counter { group, name, count }).collect();
    if args.json {
        print_json(&report);
    } else {
        conclude(args, &report);
    }
    let never = if args.stats && report.played >= ENOUGH { stats.never() } else { Vec::new() };
    match report.failed.len() {
        _ if interrupted => Err(CliError::Interrupted),
        0 if never.is_empty() => Ok(()),
        0 => Err(CliError::Verify(format!(
            "in {} seeds it never happened: {}",
            report.played,
            never.join("; ")
        ))),
        count => Err(CliError::Verify(format!("{count} of {} seeds broke a promise", report.played))),
    }
}

fn failed(outcome: &Outcome, shrinks: bool, left_out: &LeftOut) -> Failed {
    let all_faults = outcome.faults.len();
    let (best, left_out) =
        if shrinks { shrink(outcome, left_out) } else { (outcome.clone(), left_out.clone()) };
    let violation = best.violation.clone().expect("it failed");
    let clients = |of: &Outcome| of.turns.iter().map(|turn| turn.client).collect::<BTreeSet<_>>().len();
    Failed {
        seed: best.seed,
        at_ms: violation.at.as_ns() / 1_000_000,
        rule: violation.rule,
        facts: violation.facts,
        faults: best.faults.iter().map(|(_, what)| what.clone()).collect(),
        all_faults,
        clients: [&best, outcome].map(clients),
        turns: [&best, outcome].map(|of| of.turns.len()),
        replay: format!("gnstor sim survive --seed {}{} --trace", best.seed, left_out.arguments()),
    }
}

fn print(failed: &Failed, was_shrunk: bool) {
    let Failed { seed, at_ms, rule, facts, faults, all_faults, clients, turns, replay } = failed;
    outln!("seed {seed} failed at {}.{:03} s: {rule}", at_ms / 1000, at_ms % 1000);
    outln!("  {facts}");
    if was_shrunk {
        let shown: Vec<&str> = faults.iter().map(String::as_str).take(FAULTS_SHOWN).collect();
        let more = if faults.len() > FAULTS_SHOWN { ", ..." } else { "" };
        outln!("  {} of {all_faults} faults are needed: {}{more}", faults.len(), shown.join(", "));
        let ([clients, all_clients], [turns, all_turns]) = (clients, turns);
        outln!("  {clients} of {all_clients} clients are needed, in {turns} of {all_turns} turns");
    } else {
        outln!("  {all_faults} faults happened");
    }
    outln!("  {replay}");
}

fn conclude(args: &SurviveArgs, report: &Report) {
    let Report { played, steps, digest, failed, counters, .. } = report;
    if args.stats {
        outln!("{:<9} {:>10}  what", "counter", "times");
        for Counter { group, name, count } in counters {
            let never = if *count == 0 { "  NEVER" } else { "" };
            outln!("{group:<9} {count:>10}  {name}{never}");
        }
    }
    outln!("{played} seeds, {} failed, {steps} steps, digest {digest}", failed.len());
}
