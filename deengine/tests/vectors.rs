// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The golden vectors of `nvmevirt-patch/` are what the firmware answers today, and the C program answers the
//! same. No program of this workspace links its code.

#[path = "../testing/deadline.rs"]
mod deadline;
#[path = "../examples/vectors/device.rs"]
mod device;
#[path = "../examples/vectors/file.rs"]
mod file;
#[path = "../testing/long.rs"]
mod long;
#[path = "../examples/vectors/op.rs"]
mod op;
#[expect(dead_code, reason = "the fuzzer alone compares answers by the number of their operation")]
#[expect(clippy::disallowed_methods, reason = "two threads at the two ends of a pipe")]
#[path = "../examples/vectors/pipe.rs"]
mod pipe;
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
#[path = "../examples/vectors/scripts_edges.rs"]
mod scripts_edges;
#[path = "../examples/vectors/scripts_fences.rs"]
mod scripts_fences;
#[path = "../examples/vectors/scripts_map.rs"]
mod scripts_map;
#[path = "../examples/vectors/scripts_map3.rs"]
mod scripts_map3;
#[path = "../examples/vectors/scripts_prp.rs"]
mod scripts_prp;

#[path = "vectors/images.rs"]
mod images;
#[path = "vectors/links.rs"]
mod links;
#[path = "vectors/statuses.rs"]
mod statuses;

use long::is_long;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

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

fn make(target: &str) -> PathBuf {
    make_with("cc", target)
}

/// The program, which make builds where its sources have changed. Each compiler has a folder.
fn make_with(compiler: &str, target: &str) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let build = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nvmevirt-{compiler}"));
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

/// Whether a compiler is here, and whether it has the libraries of its sanitizers.
fn find_compiler(compiler: &str) -> Option<bool> {
    Command::new(compiler).arg("--version").output().ok()?;
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("empty.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let built = Command::new(compiler)
        .args(["-fsanitize=address,undefined", "-o"])
        .arg(folder.path().join("empty"))
        .arg(source)
        .output()
        .unwrap();
    Some(built.status.success())
}

/// Runs the program. Returns its standard output.
fn run(program: &Path, arguments: &[&str]) -> String {
    let ran = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let bad: Vec<&str> =
        said.lines().filter(|line| !line.starts_with("same") && !line.starts_with("right")).collect();
    assert!(ran.status.success(), "{arguments:?}: {bad:#?}\n{}", String::from_utf8_lossy(&ran.stderr));
    said
}

/// The program of a compiler, with ASan and UBSan if it has their libraries. `None`: there is no such
/// compiler.
fn program_of(compiler: &str) -> Option<PathBuf> {
    let Some(has_sanitizers) = find_compiler(compiler) else {
        println!("left out: {compiler} is not here");
        return None;
    };
    if !has_sanitizers {
        println!("left out: {compiler} has no ASan and UBSan here, so its plain program is tried");
    }
    Some(make_with(compiler, if has_sanitizers { "checked" } else { "all" }))
}

/// The program answers the vectors, and is right in the states that it goes through by itself.
fn answers_as_the_firmware(program: &Path) {
    // A PRP twin beside every device. Each answers as it does without the twin.
    run(program, &["--prp", "--vectors", folder().to_str().unwrap()]);
    let states = run(program, &["--alone"]);
    assert!(states.contains("NotReady") && states.contains("WrongKey"), "{states}");
}

#[test]
#[ignore = ".ci/run runs it: a compilation with sanitizers takes longer than the test"]
fn the_checked_c_program_answers_the_vectors_as_the_firmware_does() {
    let _deadline = deadline::deadline();
    answers_as_the_firmware(&program_of("cc").expect("this test needs a C compiler named cc"));
}

#[test]
#[ignore = ".ci/run runs it: a compilation with sanitizers takes longer than the test"]
fn the_checked_c_program_of_clang_answers_the_vectors_as_the_firmware_does() {
    let _deadline = deadline::deadline();
    if let Some(program) = program_of("clang") {
        answers_as_the_firmware(&program);
    }
}

#[test]
fn the_plain_c_program_answers_the_vectors_as_the_firmware_does() {
    let _deadline = deadline::deadline();
    answers_as_the_firmware(&make("all"));
}

/// As in measurements.
#[test]
fn the_plain_c_program_without_twins_answers_the_vectors_as_the_firmware_does() {
    let _deadline = deadline::deadline();
    run(&make("all"), &["--vectors", folder().to_str().unwrap()]);
}

#[test]
fn the_plain_c_program_takes_any_bytes() {
    let _deadline = deadline::deadline();
    takes_any_bytes(&make("all"));
}

#[test]
#[ignore = ".ci/run runs it: a compilation with sanitizers takes longer than the test"]
fn the_checked_c_program_takes_any_bytes() {
    let _deadline = deadline::deadline();
    takes_any_bytes(&make("checked"));
}

/// Operations of random bytes are answered or refused. The checked program says if they leave memory behind.
fn takes_any_bytes(program: &Path) {
    let seeds = if is_long() { &["1", "2", "3"][..] } else { &["1"] };
    for seed in seeds {
        let ran = Command::new(program).args(["--hostile", seed, "60000"]).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "seed {seed}: {said}\n{}", String::from_utf8_lossy(&ran.stderr));
        let numbers: Vec<u64> = said.split([' ', ',', '\n']).filter_map(|word| word.parse().ok()).collect();
        let [taken, refused, _, files, bad_files, reads, writes, _] = numbers[..] else {
            panic!("other words: {said}")
        };
        assert!(taken > 50_000 && refused > 300, "too one-sided to show anything: {said}");
        assert!(files > 30 && bad_files > 60, "too few vector files: {said}");
        assert!(reads > 100 && writes > 100, "the checks let nothing by: {said}");
    }
}

/// Makes the checksum of a vector file right again.
fn reseal(bytes: &mut [u8]) {
    let crc = crc32c::crc32c(&bytes[16..]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn the_plain_c_program_refuses_bad_input_in_words() {
    let _deadline = deadline::deadline();
    refuses_bad_input_in_words(&make("all"));
}

#[test]
#[ignore = ".ci/run runs it: a compilation with sanitizers takes longer than the test"]
fn the_checked_c_program_refuses_bad_input_in_words() {
    let _deadline = deadline::deadline();
    refuses_bad_input_in_words(&make("checked"));
}

/// A file that is damaged, and operations that there are not: a sentence and a status, and no crash.
fn refuses_bad_input_in_words(program: &Path) {
    let good = std::fs::read(folder().join("delete.gnv")).unwrap();
    for (what, bend) in [
        ("cut short", &(|bytes: &mut Vec<u8>| bytes.truncate(bytes.len() - 3)) as &dyn Fn(&mut Vec<u8>)),
        ("version", &|bytes| bytes[4] = 2),
        ("checksum", &|bytes| *bytes.last_mut().unwrap() ^= 1),
        ("not a vector file", &|bytes| bytes[0] = b'X'),
        ("not a vector file", &|bytes| bytes.truncate(3)),
        ("cut short", &|bytes| bytes.truncate(17)),
        ("too long", &|bytes| bytes.push(0)),
        ("reserved", &|bytes| bytes[6] = 1),
        ("beyond the file", &|bytes| {
            let at = bytes.len() - 13;
            bytes[at] = 200;
            reseal(bytes);
        }),
        ("has no answer", &|bytes| {
            bytes.truncate(bytes.len() - 13);
            let length = u32::try_from(bytes.len() - 16).unwrap();
            bytes[8..12].copy_from_slice(&length.to_le_bytes());
            reseal(bytes);
        }),
        ("name is longer", &|bytes| {
            bytes[17] = 0xFF;
            reseal(bytes);
        }),
    ] {
        let vectors = tempfile::tempdir().unwrap();
        let mut bytes = good.clone();
        bend(&mut bytes);
        std::fs::write(vectors.path().join("bad.gnv"), bytes).unwrap();
        let ran = Command::new(program).arg("--vectors").arg(vectors.path()).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(1), "{what}: {said}");
        assert!(said.contains(what), "{what}: {said}");
    }
    for input in [&[4, 0, 0, 0, 0xFF, 1, 2, 3][..], &[0, 0, 0, 0], &[255; 8], &[1, 0, 0, 0, 8], &[9, 0, 0]] {
        use std::io::Write;
        let mut child = Command::new(program)
            .stdin(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let ran = child.wait_with_output().unwrap();
        assert_eq!(ran.status.code(), Some(1), "{input:?}: {}", String::from_utf8_lossy(&ran.stderr));
    }
}
