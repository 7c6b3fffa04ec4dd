// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The golden vectors of `nvmevirt-patch/` are what the firmware answers today, the C program answers them
//! the same, and no program of this workspace links its code.

#[path = "../testing/deadline.rs"]
mod deadline;
#[path = "../examples/vectors/device.rs"]
mod device;
#[path = "../examples/vectors/file.rs"]
mod file;
#[path = "../examples/vectors/op.rs"]
mod op;
#[path = "../examples/vectors/play.rs"]
mod play;
#[path = "../examples/vectors/script.rs"]
mod script;
#[path = "../examples/vectors/scripts.rs"]
mod scripts;
#[path = "../examples/vectors/scripts_admin.rs"]
mod scripts_admin;
#[path = "../examples/vectors/scripts_checks.rs"]
mod scripts_checks;
#[path = "../examples/vectors/scripts_data.rs"]
mod scripts_data;
#[path = "../examples/vectors/scripts_fences.rs"]
mod scripts_fences;
#[path = "../examples/vectors/scripts_map.rs"]
mod scripts_map;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn folder() -> PathBuf {
    root().join("nvmevirt-patch/vectors")
}

/// `cargo run -p gnstor-deengine --example vectors -- write` writes them.
#[test]
fn the_vectors_are_what_the_firmware_says() {
    let _deadline = deadline::deadline();
    let mut names = BTreeSet::new();
    for script in scripts::all() {
        assert!(names.insert(script.file.clone()), "two scripts are named {}", script.file);
        let found = std::fs::read(folder().join(format!("{}.gnv", script.file))).unwrap_or_default();
        assert!(found == script.file_bytes(), "{}: not what the firmware says", script.file);
    }
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.extension().is_some_and(|kind| kind == "gnv") && !names.contains(&name) {
            let bytes = std::fs::read(&path).unwrap();
            let script = file::Script::read(&name, &bytes).unwrap_or_else(|| panic!("{name}: damaged"));
            assert!(script.file_bytes() == bytes, "{name}: not what the firmware says");
        }
    }
    assert!(names.len() >= 200, "{} scripts", names.len());
}

fn make(target: &str, build: &Path) -> PathBuf {
    make_with("cc", target, build)
}

fn make_with(compiler: &str, target: &str, build: &Path) -> PathBuf {
    let made = Command::new("make")
        .arg(format!("CC={compiler}"))
        .args(["-s", "-C"])
        .arg(root().join("nvmevirt-patch"))
        .arg(format!("BUILD={}", build.display()))
        .arg(target)
        .output()
        .expect("this test needs make and a C compiler");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    build.join(if target == "checked" { "gn_run-checked" } else { "gn_run" })
}

#[test]
fn the_c_program_answers_the_vectors_as_the_firmware_does() {
    let _deadline = deadline::deadline();
    let found = |compiler: &&str| Command::new(compiler).arg("--version").output().is_ok();
    let compilers: Vec<&str> = ["gcc", "clang"].into_iter().filter(found).collect();
    assert!(!compilers.is_empty(), "this test needs gcc or clang");
    for compiler in compilers {
        let build = tempfile::tempdir().unwrap();
        // Debian's clang comes without its sanitizers: there the plain program is built.
        let target = if compiler == "gcc" { "checked" } else { "all" };
        let program = make_with(compiler, target, build.path());
        let ran = Command::new(&program).arg("--vectors").arg(folder()).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        let bad: Vec<&str> = said.lines().filter(|line| !line.starts_with("same")).collect();
        assert!(ran.status.success(), "{compiler}: {bad:#?}\n{}", String::from_utf8_lossy(&ran.stderr));
    }
}

/// Operations of random bytes are answered or refused, and leave no memory behind.
#[test]
fn the_c_program_takes_any_bytes() {
    let _deadline = deadline::deadline();
    let build = tempfile::tempdir().unwrap();
    let program = make("checked", build.path());
    for seed in ["1", "2", "3"] {
        let ran = Command::new(&program).args(["--hostile", seed, "100000"]).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "seed {seed}: {said}\n{}", String::from_utf8_lossy(&ran.stderr));
        let numbers: Vec<u64> = said.split([' ', ',', '\n']).filter_map(|word| word.parse().ok()).collect();
        let [taken, refused, _, reads, writes, _] = numbers[..] else { panic!("other words: {said}") };
        assert!(taken > 50_000 && refused > 500, "too one-sided to show anything: {said}");
        assert!(reads > 100 && writes > 100, "the checks let nothing by: {said}");
    }
}

/// A file that is damaged, and operations that there are not: a sentence and a status, and no crash.
#[test]
fn the_c_program_refuses_bad_input_in_words() {
    let _deadline = deadline::deadline();
    let build = tempfile::tempdir().unwrap();
    let program = make("checked", build.path());
    let good = std::fs::read(folder().join("delete.gnv")).unwrap();
    for (what, bend) in [
        ("cut short", &(|bytes: &mut Vec<u8>| bytes.truncate(bytes.len() - 3)) as &dyn Fn(&mut Vec<u8>)),
        ("version", &|bytes| bytes[4] = 2),
        ("checksum", &|bytes| *bytes.last_mut().unwrap() ^= 1),
        ("not a vector file", &|bytes| bytes[0] = b'X'),
    ] {
        let vectors = tempfile::tempdir().unwrap();
        let mut bytes = good.clone();
        bend(&mut bytes);
        std::fs::write(vectors.path().join("bad.gnv"), bytes).unwrap();
        let ran = Command::new(&program).arg("--vectors").arg(vectors.path()).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(1), "{what}: {said}");
        assert!(said.contains(what), "{what}: {said}");
    }
    for input in [&[4, 0, 0, 0, 0xFF, 1, 2, 3][..], &[0, 0, 0, 0], &[255; 8], &[1, 0, 0, 0, 8], &[9, 0, 0]] {
        use std::io::Write;
        let mut child = Command::new(&program)
            .stdin(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let ran = child.wait_with_output().unwrap();
        assert_eq!(ran.status.code(), Some(1), "{input:?}: {}", String::from_utf8_lossy(&ran.stderr));
    }
}

/// The folder is GPL-2.0-only; nothing of it goes into a program of the workspace.
#[test]
fn no_program_of_the_workspace_links_the_kernel_side() {
    let _deadline = deadline::deadline();
    let listed = Command::new("git").arg("-C").arg(root()).args(["ls-files"]).output().unwrap();
    let files = String::from_utf8(listed.stdout).unwrap();
    for file in files.lines().filter(|file| !file.starts_with("nvmevirt-patch/")) {
        let is_build = file.ends_with("build.rs")
            || file.ends_with("Cargo.toml")
            || file.ends_with(".cargo/config.toml");
        let is_c = [".c", ".h", ".cpp", ".hpp", ".cu", ".cuh"].iter().any(|kind| file.ends_with(kind));
        if is_build || is_c {
            let text = std::fs::read_to_string(root().join(file)).unwrap();
            assert!(!text.contains("nvmevirt"), "{file} names the folder");
        }
    }
    for file in files.lines().filter(|file| file.starts_with("nvmevirt-patch/")) {
        let path = root().join(file);
        if file.ends_with(".gnv") || file.ends_with("LICENSE") {
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.contains("SPDX-License-Identifier: GPL-2.0-only"), "{file} has no licence line");
    }
}
