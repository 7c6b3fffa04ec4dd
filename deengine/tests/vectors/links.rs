// SPDX-License-Identifier: Apache-2.0 OR MIT
//! No program or library of the workspace contains code of the folder, which is GPL-2.0-only. The tests check
//! the build files, the files that the compiler has read, and the symbols.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

const FOLDER: &str = "nvmevirt-patch";

fn tracked() -> Vec<String> {
    let listed = Command::new("git").arg("-C").arg(crate::root()).args(["ls-files"]).output().unwrap();
    String::from_utf8(listed.stdout).unwrap().lines().map(String::from).collect()
}

#[test]
fn no_source_that_is_built_names_the_kernel_side() {
    let _deadline = crate::deadline::deadline();
    for file in tracked() {
        let path = crate::root().join(&file);
        if file.starts_with(FOLDER) {
            if !file.ends_with(".gnv") && !file.ends_with("LICENSE") {
                let text = std::fs::read_to_string(path).unwrap();
                assert!(text.contains("SPDX-License-Identifier: GPL-2.0-only"), "{file} has no licence line");
            }
            continue;
        }
        let is_build = file.ends_with("build.rs")
            || file.ends_with("Cargo.toml")
            || file.ends_with(".cargo/config.toml");
        let is_c = [".c", ".h", ".cpp", ".hpp", ".cu", ".cuh"].iter().any(|kind| file.ends_with(kind));
        if is_build || is_c {
            let text = std::fs::read_to_string(path).unwrap();
            assert!(!text.contains("nvmevirt"), "{file} names the folder");
        }
    }
}

/// The symbols that a program or library defines.
fn symbols(path: &Path) -> BTreeSet<String> {
    let listed = Command::new("nm").args(["--defined-only", "--format=posix"]).arg(path).output();
    let listed = listed.expect("this test needs nm (binutils)");
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    text.lines().filter_map(|line| line.split(' ').next()).map(String::from).collect()
}

/// The functions that the headers of `deengine/` and `play/` declare, and that the C program has. Those of
/// `user/` are not among them: a short name like `gn_open` is another library's, too.
fn kernel_names(program: &Path) -> BTreeSet<String> {
    let mut declared = BTreeSet::new();
    for part in ["deengine", "play"] {
        for entry in std::fs::read_dir(crate::root().join(FOLDER).join(part)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|kind| kind == "h") {
                let text = std::fs::read_to_string(path).unwrap();
                let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
                declared.extend(words.filter(|word| word.starts_with("gn_")).map(String::from));
            }
        }
    }
    symbols(program).intersection(&declared).cloned().collect()
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let files = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    files.collect()
}

/// Whether the file is a program, a shared library or an archive.
fn is_binary(path: &Path) -> bool {
    use std::io::Read;
    let mut head = [0; 8];
    let read = std::fs::File::open(path).and_then(|mut file| file.read(&mut head));
    read.is_ok_and(|count| head[..count].starts_with(b"\x7fELF") || head[..count].starts_with(b"!<arch>"))
}

#[test]
fn no_program_of_the_workspace_has_a_function_of_the_kernel_side() {
    let _deadline = crate::deadline::deadline();
    let names = kernel_names(&crate::make("all"));
    assert!(names.len() >= 50 && names.contains("gn_map_insert") && names.contains("gn_play"), "{names:?}");
    let own = std::env::current_exe().unwrap();
    // The path is target/PROFILE/deps/vectors-...: programs and libraries are in a parent folder.
    let profile = own.parent().and_then(Path::parent).expect("a target folder");
    let mut binaries = vec![own.clone()];
    binaries.extend(files_of(profile).into_iter().filter(|path| is_binary(path)));
    binaries.extend(files_of(&profile.join("examples")).into_iter().filter(|path| is_binary(path)));
    for path in &binaries {
        let found: Vec<String> = symbols(path).intersection(&names).cloned().collect();
        assert!(found.is_empty(), "{} has {found:?} of the kernel side", path.display());
    }
    assert!(symbols(&own).len() > 1000, "this program has its symbols");

    // What the compiler has read for each program and library, and what build scripts have told the linker.
    let mut has_seen_ours = false;
    for path in
        files_of(&profile.join("deps")).iter().filter(|path| path.extension().is_some_and(|k| k == "d"))
    {
        let text = std::fs::read_to_string(path).unwrap();
        has_seen_ours |= text.contains("deengine/src/lib.rs");
        assert!(!text.contains(FOLDER), "{} was compiled from the kernel side", path.display());
    }
    assert!(has_seen_ours, "no list of what this program was compiled from");
    let Ok(scripts) = std::fs::read_dir(profile.join("build")) else { return };
    for script in scripts {
        for name in ["output", "stderr"] {
            let text = std::fs::read(script.as_ref().unwrap().path().join(name)).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            assert!(!text.contains(FOLDER), "{script:?} builds from the kernel side");
        }
    }
}
