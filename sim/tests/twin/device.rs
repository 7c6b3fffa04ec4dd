// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program that plays traces through the device headers.

use crate::trace::{Run, Sent};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles the program.
pub(crate) fn build() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("twin");
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "g++".into());
    let mut build = Command::new(&compiler);
    build.args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"]);
    build.args(["-Wno-unused-function", "-DGN_SIMT_HOST", "-pthread"]);
    for headers in ["fabric/simt", "fabric/cuda", "gnor/cuda"] {
        build.arg("-I").arg(root.join(headers));
    }
    build.arg(root.join("sim/tests/device/twin.cpp")).arg("-o").arg(&program);
    for source in ["collective", "report", "run", "sched", "switch", "weak"] {
        build.arg(root.join(format!("fabric/simt/rt_{source}.cpp")));
    }
    let built = build.output().expect("a C++ compiler");
    assert!(built.status.success(), "{compiler}: {}", String::from_utf8_lossy(&built.stderr));
    program
}

/// Plays traces. Returns their runs in order.
pub(crate) fn play(program: &Path, text: String) -> impl Iterator<Item = Run> {
    let traces = program.with_extension("traces");
    std::fs::write(&traces, text).expect("it is written");
    let traces = std::fs::File::open(&traces).expect("it is there");
    let output = Command::new(program).stdin(traces).output().expect("it runs");
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{} failed: {}", program.display(), said.lines().last().unwrap_or(""));
    let runs: Vec<Run> = said.split("quiet\n").map(run_of).collect();
    runs.into_iter()
}

fn run_of(text: &str) -> Run {
    let mut run = Run::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let decimal = |at: usize| words[at].parse::<usize>().expect("a number");
        match words[0] {
            "sent" => {
                let index = u16::try_from(decimal(2)).expect("16 bits");
                let (bytes, signalled) = (words[4].as_bytes(), decimal(3) == 1);
                let pair = |k: usize| {
                    let two = std::str::from_utf8(&bytes[2 * k..2 * k + 2]).expect("ASCII");
                    u8::from_str_radix(two, 16).expect("hexadecimal")
                };
                run.send(decimal(1), Sent { index, signalled, capsule: std::array::from_fn(pair) });
            }
            "ended" => {
                let hex = |at: usize| u32::from_str_radix(words[at], 16).expect("a number");
                run.end(decimal(1), [hex(2), hex(3), hex(4)]);
            }
            _ => panic!("the program says: {line}"),
        }
    }
    run
}
