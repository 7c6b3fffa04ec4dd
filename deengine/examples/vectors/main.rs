// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes and checks the firmware's answers for `nvmevirt-patch/`, which has the same checks in C for a
//! kernel's emulator.
//!
//! ```text
//!   cargo run -p gnstor-deengine --example vectors -- write             the golden files
//!   ... -- check                      compares them with the firmware's answers
//!   ... -- fuzz PROGRAM [SECONDS]     plays drawn commands to the firmware and, through a pipe, to PROGRAM
//!   ... -- record FILE COMMANDS       drawn commands into a file, for the module
//! ```
//! These are two processes: no program of this crate links code of that folder.
#![expect(clippy::disallowed_methods, reason = "a tool that runs for so many seconds reads the clock")]

mod device;
mod dice;
mod drawn_map3;
mod file;
mod fuzz;
mod map_session;
mod op;
mod pipe;
mod play;
mod script;
mod scripts;
mod scripts_admin;
mod scripts_checks;
mod scripts_data;
mod scripts_edges;
mod scripts_fences;
mod scripts_map;
mod scripts_map3;
mod scripts_prp;
mod session;
mod shrink;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../nvmevirt-patch/vectors")
}

fn write() -> std::io::Result<()> {
    let scripts = scripts::all();
    for script in &scripts {
        std::fs::write(folder().join(format!("{}.gnv", script.file)), script.file_bytes())?;
    }
    let found = found(&scripts)?;
    for (path, file, bytes) in &found {
        let script = file::Script::read(file, bytes);
        let script = script.ok_or_else(|| std::io::Error::other(format!("{file}: a damaged script")))?;
        std::fs::write(path, script.file_bytes())?;
    }
    println!("{} scripts", scripts.len() + found.len());
    Ok(())
}

/// The golden files of scripts that the fuzzer has found: path, name and bytes. They are played as they are.
fn found(scripts: &[file::Script]) -> std::io::Result<Vec<(PathBuf, String, Vec<u8>)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder())? {
        let path = entry?.path();
        let file = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.extension().is_some_and(|kind| kind == "gnv") && scripts.iter().all(|s| s.file != file) {
            let bytes = std::fs::read(&path)?;
            found.push((path, file, bytes));
        }
    }
    Ok(found)
}

/// Golden files that differ from the firmware's answers.
fn stale() -> std::io::Result<Vec<String>> {
    let scripts = scripts::all();
    let mut stale = Vec::new();
    for script in &scripts {
        let found = std::fs::read(folder().join(format!("{}.gnv", script.file))).unwrap_or_default();
        if found != script.file_bytes() {
            stale.push(script.file.clone());
        }
    }
    for (_, file, bytes) in found(&scripts)? {
        if file::Script::read(&file, &bytes).is_none_or(|script| script.file_bytes() != bytes) {
            stale.push(file);
        }
    }
    Ok(stale)
}

fn run(arguments: &[&str]) -> Result<(), String> {
    let number = |at: usize, default: u64| match arguments.get(at) {
        Some(text) => text.parse().map_err(|_| format!("{text}: not a number")),
        None => Ok(default),
    };
    match arguments {
        ["write"] => write().map_err(|error| error.to_string()),
        ["check"] => {
            let stale = stale().map_err(|error| error.to_string())?;
            if stale.is_empty() { Ok(()) } else { Err(format!("not what the firmware says: {stale:?}")) }
        }
        ["fuzz", program, ..] => fuzz::fuzz(program, number(2, 60)?),
        ["record", file, ..] => fuzz::record(file, number(2, 1_000_000)?),
        _ => Err("vectors write | check | fuzz PROGRAM [SECONDS] | record FILE [COMMANDS]".into()),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("vectors: {why}");
            ExitCode::FAILURE
        }
    }
}
