// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plays every queue dump of `tests/golden_dumps` on the Rust executor and on the resident agent, on a GPU or
//! on the CPU.
//!
//! ```text
//!   hca_dumps --device cuda|host [PART OF A NAME]
//! ```
//! It prints a line for each case, then a JSON summary. Exit status: 0; 1 if the executors differ or a dump
//! has another result than it must; 2 without such a device. It needs only a driver: the agent's fat binary
//! is in the program.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a report for a terminal")]
#![expect(clippy::disallowed_methods, reason = "says how long each case took")]

#[path = "../tests/golden_dumps/dumps/mod.rs"]
mod dumps;

use dumps::harness::Harness;
use gnstor_fabric::device::{Choice, Device};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

fn usage() -> ExitCode {
    eprintln!("usage: hca_dumps --device cuda|host [PART OF A NAME]");
    ExitCode::from(2)
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let choice = match (args.next().as_deref(), args.next().as_deref()) {
        (Some("--device"), Some("cuda")) => Choice::Cuda,
        (Some("--device"), Some("host")) => Choice::Host,
        _ => return usage(),
    };
    let part = args.next().unwrap_or_default();
    let harness = match Device::open(choice) {
        Ok(device) => Harness::new(device),
        Err(e) => {
            eprintln!("{e}");
            return ExitCode::from(2);
        }
    };
    // The line of a failed case says so, so the panic prints nothing.
    std::panic::set_hook(Box::new(|_| {}));
    let (mut played, mut failed) = (0, Vec::new());
    for (name, case) in dumps::all().filter(|(name, _)| name.contains(&part)) {
        let start = Instant::now();
        let ended = catch_unwind(AssertUnwindSafe(|| case(&harness)));
        let ms = start.elapsed().as_millis();
        played += 1;
        match ended {
            Ok(()) => println!("ok      {name} ({ms} ms)"),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
                println!("FAILED  {name} ({ms} ms): {text}");
                failed.push(format!("{name:?}"));
            }
        }
    }
    let (device, kind) = (harness.device().name(), harness.device().kind());
    let (passed, list) = (played - failed.len(), failed.join(", "));
    println!(
        "{{\"device\": {device:?}, \"kind\": {kind:?}, \"cases\": {played}, \"passed\": {passed}, \
         \"failed\": [{list}]}}"
    );
    if failed.is_empty() && played > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
