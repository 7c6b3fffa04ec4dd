// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The `gnstor` command.

use gnstor_bench as bench;
use gnstor_cli::args::{Cli, Command, SimArgs, SimCommand, SsdCommand};
use gnstor_cli::parse::{self, command};
use gnstor_cli::{
    CliError, certs, cp, demo, demo_fault, fleet_ops, lease, repair_ops, sim, ssd, ssd_health, ssd_log,
    status, up, volume,
};
use gnstor_console::{Steps, out};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Signals within this time after the first one count as one.
const ONE_SIGNAL: Duration = Duration::from_secs(1);

/// What is logged. Simulated arrays log their faults, thousands in a campaign: only if that is asked for.
fn level(cli: &Cli) -> &str {
    match &cli.command {
        Command::Sim(SimArgs { command: SimCommand::Survive(args) }) if !args.trace && cli.log == "warn" => {
            "off"
        }
        _ => &cli.log,
    }
}

fn main() -> ExitCode {
    let cli = match parse::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(refusal) => {
            match &refusal.sentence {
                Some(sentence) => eprintln!("gnstor: {sentence}"),
                // Help goes to standard output, a refusal to standard error.
                None => out::note(refusal.error.print()),
            }
            return ExitCode::from(refusal.code);
        }
    };
    let filter = tracing_subscriber::EnvFilter::try_new(level(&cli)).unwrap_or_else(|_| "warn".into());
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).init();
    let interrupted = Arc::new(AtomicBool::new(false));
    let pressed = Arc::clone(&interrupted);
    // The first Ctrl-C asks politely: leases are released, SSDs are shut down. A second one ends the process,
    // unless it is the same signal again: some programs signal a process and then its group.
    let mut first = None;
    let handler = ctrlc::set_handler(move || {
        pressed.store(true, Ordering::Release);
        #[expect(clippy::disallowed_methods, reason = "main reads the clock")]
        let now = Instant::now();
        if now.duration_since(*first.get_or_insert(now)) > ONE_SIGNAL {
            std::process::exit(130);
        }
    });
    if let Err(e) = handler {
        tracing::warn!("Ctrl-C will not clean up: {e}");
    }
    match run(&cli, interrupted) {
        Ok(code) => match out::failure() {
            None => ExitCode::from(code),
            Some((why, code)) => {
                why.iter().for_each(|why| eprintln!("gnstor: standard output: {why}"));
                ExitCode::from(code)
            }
        },
        Err(e) => {
            eprintln!("gnstor: {e}");
            let code = if e.is_usage() { parse::usage_code(&cli) } else { e.exit_code() };
            ExitCode::from(code)
        }
    }
}

/// The manual page of `gnstor`, or of one of its commands.
fn man_page(words: &[String], page: &mut Vec<u8>) -> Result<(), CliError> {
    let mut command = command();
    command.build();
    let mut name = "gnstor".to_owned();
    for word in words {
        let found = command.find_subcommand(word).cloned();
        command = found.ok_or_else(|| CliError::Usage(format!("{name} has no command '{word}'")))?;
        name = format!("{name}-{word}");
    }
    // A page needs the whole name, for its title and its synopsis; clap keeps names for ever.
    let command = command.name(&*name.clone().leak()).bin_name(name.replace('-', " "));
    clap_mangen::Man::new(command).render(page).map_err(|e| CliError::Usage(e.to_string()))
}

/// Runs the command; the exit code.
fn run(cli: &Cli, interrupted: Arc<AtomicBool>) -> Result<u8, CliError> {
    let done: Result<(), CliError> = match &cli.command {
        Command::Fleet(args) => return fleet_ops::run(args, &interrupted),
        Command::Scrub(args) => return repair_ops::scrub(args),
        Command::Rebuild(args) => return repair_ops::rebuild(args),
        Command::Demo(args) => {
            let steps = Steps::new(args.json, interrupted);
            if let Some(fault) = args.fault {
                return demo_fault::run(fault, args, &steps).map(|()| 0);
            }
            let report = demo::run(args, &steps)?;
            demo::print(&report, args.json);
            Ok(())
        }
        Command::Bench(args) => bench::command(args, &Steps::new(args.json, interrupted)),
        Command::Up(args) => up::run(args, &Steps::new(args.json, interrupted)),
        Command::Ssd(args) => match &args.command {
            Some(SsdCommand::Smart(args)) => ssd_health::run(args),
            Some(SsdCommand::Log(args)) => ssd_log::run(args),
            None => ssd::run(args, &Steps::new(args.json, interrupted)),
        },
        Command::Volume(args) => volume::run(args),
        Command::Lease(args) => lease::run(args),
        Command::Certs(args) => certs::run(&args.command),
        Command::Ls(args) => volume::list(args),
        Command::Rm(args) => volume::delete(args),
        Command::Df(args) => status::df(args),
        Command::Status(args) => return status::status(args),
        Command::Cp(args) => cp::run(args, &Steps::new(args.array.json, interrupted)),
        Command::Sim(args) => sim::run(args, &Steps::new(args.is_json(), interrupted)),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command(), "gnstor", &mut script);
            out::note(std::io::stdout().write_all(&script));
            Ok(())
        }
        Command::Man { command } => {
            let mut page = Vec::new();
            man_page(command, &mut page)?;
            out::note(std::io::stdout().write_all(&page));
            Ok(())
        }
    };
    done.map(|()| 0)
}
