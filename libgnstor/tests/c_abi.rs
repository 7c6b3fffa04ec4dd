// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The C interface from C: `c_abi.c` is compiled against `include/gnstor.h`, linked with the library and run.
//! And the example kernel compiles for the CPU.

#[path = "../../proto/testing/deadline.rs"]
mod deadline;

use deadline::{Deadline, LIMIT};
use std::path::{Path, PathBuf};
use std::process::Command;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Folder of cargo's libraries: this test's own folder, or its parent.
fn library(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its path");
    let folders = test.ancestors().skip(1).take(2);
    let found = folders.map(|f| f.join(name)).find(|f| f.exists());
    found.unwrap_or_else(|| panic!("{name} is not beside {}", test.display()))
}

fn compiler(variable: &str, usual: &str) -> Command {
    Command::new(std::env::var(variable).unwrap_or_else(|_| usual.into()))
}

fn succeeds(mut command: Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

fn c_program_passes(library: &Path, link: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder for the program");
    let program = folder.path().join("c_abi");
    let mut compile = compiler("CC", "cc");
    compile
        .args(["-std=c11"])
        .args(STRICT)
        .arg("-I")
        .arg(here().join("include"))
        .arg(here().join("tests/c_abi.c"));
    compile.arg(library).args(link).arg("-o").arg(&program);
    succeeds(compile);
    let mut run = Command::new(&program);
    run.env("LD_LIBRARY_PATH", library.parent().expect("a file has a folder"));
    succeeds(run);
}

#[test]
fn a_c_program_passes_with_the_shared_library() {
    let _deadline = Deadline::after(LIMIT);
    c_program_passes(&library("liblibgnstor.so"), &[]);
}

#[test]
fn a_c_program_passes_with_the_static_library() {
    let _deadline = Deadline::after(LIMIT);
    c_program_passes(&library("liblibgnstor.a"), &["-lstdc++", "-lpthread", "-ldl", "-lm"]);
}

#[test]
fn the_header_is_c99_and_cpp() {
    let _deadline = Deadline::after(LIMIT);
    for (mut compile, language, standard) in [
        (compiler("CC", "cc"), "c", "-std=c99"),
        (compiler("CXX", "c++"), "c++", "-std=c++11"),
        (compiler("CXX", "c++"), "c++", "-std=c++17"),
    ] {
        compile
            .args(["-fsyntax-only", "-x", language, standard])
            .args(STRICT)
            .arg(here().join("include/gnstor.h"));
        succeeds(compile);
    }
}

#[test]
fn the_example_kernels_compile_for_the_cpu() {
    let _deadline = Deadline::after(LIMIT);
    for example in ["read_volume.cu", "read_async.cu"] {
        let mut compile = compiler("CXX", "c++");
        compile.args([
            "-std=c++17",
            "-fsyntax-only",
            "-Wall",
            "-Wno-unknown-pragmas",
            "-Wno-unused-function",
        ]);
        compile.args(["-DGN_SIMT_HOST", "-x", "c++"]);
        for folder in ["../fabric/simt", "../fabric/cuda", "../gnor/cuda", "include"] {
            compile.arg("-I").arg(here().join(folder));
        }
        compile.arg(here().join("examples").join(example));
        succeeds(compile);
    }
}
