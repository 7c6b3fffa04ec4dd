// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The conductor starts an array and clients in network namespaces, and lets faults happen that the seed
//! draws. It waits for the array to heal, and has the judge look at what clients wrote down.
//!
//! `scripts/chaos` starts it in namespaces of network, mounts and processes, which end with it.
#![expect(clippy::disallowed_methods, reason = "the runtime part of this program: clocks, threads, pauses")]

mod array;
mod clients;
mod faults;
mod net;
mod plan;
mod process;
mod rounds;

use std::path::PathBuf;
use std::process::ExitCode;

/// What the conductor was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    rounds: u64,
    seed: u64,
    /// Folder of logs and histories; data files are in `data` there.
    out: PathBuf,
    gnstor: PathBuf,
    client: PathBuf,
}

fn settings() -> Result<Settings, String> {
    let all: Vec<String> = std::env::args().skip(1).collect();
    let [rounds, seed, out, gnstor] = all.as_slice() else {
        return Err("arguments: ROUNDS SEED FOLDER GNSTOR; scripts/chaos gives the last two".into());
    };
    let number = |text: &String| text.parse::<u64>().map_err(|e| format!("{text}: {e}"));
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let client = own.with_file_name("gnstor-chaos-client");
    Ok(Settings {
        rounds: number(rounds)?,
        seed: number(seed)?,
        out: PathBuf::from(out),
        gnstor: PathBuf::from(gnstor),
        client,
    })
}

/// Runs the campaign. Exit code 1: a promise was broken; 2: it could not be tried.
pub fn run() -> ExitCode {
    let settings = match settings() {
        Ok(settings) => settings,
        Err(why) => {
            eprintln!("gnstor-chaos: {why}");
            return ExitCode::from(2);
        }
    };
    match rounds::campaign(&settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("FAILED with seed {}: {why}", settings.seed);
            println!("logs and histories: {}", settings.out.display());
            ExitCode::FAILURE
        }
    }
}
