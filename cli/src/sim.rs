// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor sim scale`: arguments in, tables out. The simulator is the crate gnstor-sim.

use crate::CliError;
use crate::args::{ScaleArgs, SimArgs, SimCommand, SimLink};
use crate::sim_survive;
use gnstor_array::media::preset;
use gnstor_base::time::Span;
use gnstor_console::{Steps, human_bytes, outln, print_json};
use gnstor_fabric::link::LinkConfig;
use gnstor_sim::scale::{Failure, Measured, Row, Sweep, csv, curves};
use gnstor_sim::world::Plan;
use gnstor_sim::{Fail, Usage, memory};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// The real parts behind these figures. The report prints them beside the figures.
const REAL: &str = "firmware, translation layer, permission checks, RC transport, placement, command bytes";
const MODELLED: &str = "time of flash and links; clients, which take no time; data: a token a block, checked";
/// What is added in the array of an SSD that fails.
const OF_FLEET: &str = "in the array of that SSD also real: daemon core and links, voters, leases, maps, fills, blocks; \
                        modelled: gRPC, hosts that ask for maps";

/// Everything that `--json` prints.
#[derive(Debug, Serialize)]
struct Report<'a> {
    schema: u32,
    seed: u64,
    preset: &'a str,
    real: &'a str,
    modelled: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    of_fail: Option<&'a str>,
    rows: &'a [Row],
}

/// Runs `gnstor sim`.
///
/// # Errors
/// [`CliError::Usage`] for what cannot be simulated; [`CliError::Stopped`] when a simulated part fails.
pub fn run(args: &SimArgs, steps: &Steps) -> Result<(), CliError> {
    match &args.command {
        SimCommand::Scale(args) => scale(args, steps),
        SimCommand::Survive(args) => sim_survive::run(args, steps),
    }
}

fn scale(args: &ScaleArgs, steps: &Steps) -> Result<(), CliError> {
    let sweep = sweep(args)?;
    let plans = sweep.plans().map_err(|Usage(what)| CliError::Usage(what))?;
    if let Some(path) = &args.csv {
        // A file that cannot be written is found out before the work.
        write(path, "")?;
    }
    if let Some(folder) = &args.plot {
        std::fs::create_dir_all(folder)
            .map_err(|e| CliError::File { path: folder.display().to_string(), cause: e.to_string() })?;
    }
    let most = plans.iter().map(memory::estimate).max().unwrap_or(0);
    steps.done(format!("{} points, each with up to {} of memory", plans.len(), human_bytes(most)));
    memory::use_small_pages();
    let rows = rows(&sweep, &plans, steps)?;
    if let Some(path) = &args.csv {
        write(path, csv(&rows))?;
    }
    if let Some(folder) = &args.plot {
        for (name, drawing) in curves(&rows).map_err(CliError::Stopped)? {
            write(&folder.join(name), drawing)?;
        }
    }
    if args.json {
        let preset = &sweep.preset.name;
        let (real, modelled, of_fail) = (REAL, MODELLED, args.fail.map(|_| OF_FLEET));
        print_json(&Report { schema: 1, seed: args.seed, preset, real, modelled, of_fail, rows: &rows });
    } else {
        print(args, &rows);
    }
    Ok(())
}

fn rows(sweep: &Sweep, plans: &[Plan], steps: &Steps) -> Result<Vec<Row>, CliError> {
    let (mut rows, mut measured) = (Vec::new(), Measured::default());
    for plan in plans {
        if steps.interrupted() {
            return Err(CliError::Interrupted);
        }
        let row = sweep.run(plan, &mut measured);
        rows.push(row.map_err(|cause| CliError::Stopped(format!("the simulated array: {cause}")))?);
        steps.done(format!("{} clients, {} SSDs", plan.clients, plan.ssds));
    }
    Ok(rows)
}

fn sweep(args: &ScaleArgs) -> Result<Sweep, CliError> {
    let span = |time: Duration| {
        let ps = time.as_nanos().saturating_mul(1000);
        Span::from_ps(u64::try_from(ps).unwrap_or(u64::MAX))
    };
    let fewest = u8::try_from(args.ssds.first.clamp(1, 2)).expect("1 or 2");
    Ok(Sweep {
        clients: args.clients,
        ssds: args.ssds,
        nodes: args.nodes,
        replicas: args.replicas.unwrap_or(fewest),
        rw: args.rw.into(),
        bs: args.bs,
        zipf_permille: args.zipf,
        iodepth: args.iodepth,
        size: args.size,
        ssd_bytes: args.ssd_size,
        preset: preset(&args.preset)?,
        link: match args.link {
            SimLink::Paper => LinkConfig::PAPER_200GBE,
            SimLink::None => LinkConfig::UNLIMITED,
        },
        warmup: span(args.warmup),
        runtime: span(args.runtime),
        seed: args.seed,
        memory: args.memory,
        fail: args.fail.map(|(ssd, at)| Fail { ssd, at: span(at), out_after: span(args.rebuild_after) }),
    })
}

fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<(), CliError> {
    std::fs::write(path, text)
        .map_err(|e| CliError::File { path: path.display().to_string(), cause: e.to_string() })
}

#[expect(clippy::cast_precision_loss, reason = "figures to print")]
fn print(args: &ScaleArgs, rows: &[Row]) {
    let order = format!("{:?}", args.rw).to_lowercase();
    let bs = human_bytes(args.bs);
    let replicas = rows.first().map_or(0, |row| row.replicas);
    let (depth, preset) = (args.iodepth, &args.preset);
    outln!(
        "{order} {bs}, {depth} in flight a client, replicas {replicas}, preset {preset}, seed {}",
        args.seed
    );
    outln!("real      {REAL}");
    outln!("modelled  {MODELLED}");
    if args.fail.is_some() {
        outln!("--fail    {OF_FLEET}");
    }
    outln!();
    outln!("clients  SSDs    GB/s      IOPS  of SSDs  p50 us  p99 us  p99.9 us   max us  load max/mean");
    for row in rows {
        let us = |ns: u64| ns as f64 / 1e3;
        let share = match row.share_permille {
            Some(share) => format!("{:.1} %", share as f64 / 10.0),
            None => "-".into(),
        };
        outln!(
            "{:>7} {:>5} {:>7.2} {:>9} {:>8} {:>7.1} {:>7.1} {:>9.1} {:>8.1} {:>14.3}",
            row.clients,
            row.ssds,
            row.mb_per_s as f64 / 1e3,
            row.iops,
            share,
            us(row.p50_ns),
            us(row.p99_ns),
            us(row.p999_ns),
            us(row.max_ns),
            row.load_permille as f64 / 1e3
        );
    }
    for row in rows {
        row.failure.iter().for_each(|failure| print_failure(row, failure));
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures to print")]
fn print_failure(row: &Row, failure: &Failure) {
    let Failure { ssd, at_ns, maps, rebuilt_bytes, .. } = failure;
    let ms = |ns: &u64| format!("{:.1} ms", *ns as f64 / 1e6);
    let after =
        |ns: &Option<u64>| ns.as_ref().map_or("not in this run".into(), |ns| format!("after {}", ms(ns)));
    let rate = |iops: Option<u64>| iops.map_or("-".into(), |iops| iops.to_string());
    outln!();
    outln!("{} clients, {} SSDs: SSD {ssd} fails at {}", row.clients, row.ssds, ms(at_ns));
    outln!("  all clients follow a map without it   {}", after(&failure.dropped_ns));
    outln!("  every place has an SSD that serves    {}", after(&failure.whole_ns));
    outln!("  maps {maps}, rebuilt {}", human_bytes(*rebuilt_bytes));
    outln!("  longest pause of a client             {}", ms(&failure.pause_ns));
    let rates = [failure.before_iops, failure.out_iops, failure.fill_iops, failure.after_iops].map(rate);
    let [before, out, fill, then] = rates;
    outln!("  IOPS before {before}, until it is dropped {out}, until it is whole {fill}, then {then}");
}
