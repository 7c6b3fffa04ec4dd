// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The crates depend only in the directions of the design (`docs/architecture.md`).

use crate::deadline::{Deadline, LIMIT};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates of the workspace on which each crate may depend.
const RULES: &[(&str, &[&str])] = &[
    ("gnstor-proto", &[]),
    ("gnstor-base", &["gnstor-proto"]),
    // The tests of four crates need hostile bytes.
    ("gnstor-auth", &["gnstor-hostile"]),
    ("gnstor-fleet", &["gnstor-proto"]),
    ("gnstor-hostile", &["gnstor-auth", "gnstor-proto"]),
    ("gnstor-chaos", &["libgnstor", "gnstor-fabric", "gnstor-base", "gnstor-proto"]),
    // It compiles single files of other crates with loom's atomics.
    ("gnstor-loom", &[]),
    ("gnstor-fabric", &["gnstor-hostile", "gnstor-auth", "gnstor-base", "gnstor-proto"]),
    ("gnstor-gnor", &["gnstor-fabric", "gnstor-auth", "gnstor-base", "gnstor-proto"]),
    (
        "gnstor-deengine",
        &[
            "gnstor-ftl",
            "gnstor-map",
            "gnstor-model",
            "gnstor-durable",
            "gnstor-flash",
            "gnstor-fabric",
            "gnstor-fleet",
            "gnstor-hostile",
            "gnstor-auth",
            "gnstor-base",
            "gnstor-proto",
        ],
    ),
    (
        "gnstor-ftl",
        &["gnstor-map", "gnstor-model", "gnstor-durable", "gnstor-flash", "gnstor-base", "gnstor-proto"],
    ),
    ("gnstor-map", &["gnstor-base", "gnstor-proto"]),
    ("gnstor-durable", &["gnstor-flash", "gnstor-proto"]),
    ("gnstor-model", &["gnstor-flash", "gnstor-base", "gnstor-proto"]),
    ("gnstor-flash", &["gnstor-base", "gnstor-proto"]),
    (
        "gnstor-daemon",
        &[
            "gnstor-deengine",
            "gnstor-fabric",
            "gnstor-fleet",
            "gnstor-hostile",
            "gnstor-auth",
            "gnstor-base",
            "gnstor-proto",
        ],
    ),
    ("libgnstor", &["gnstor-gnor", "gnstor-fabric", "gnstor-auth", "gnstor-base", "gnstor-proto"]),
    (
        "gnstor-array",
        &[
            "gnstor-daemon",
            "gnstor-deengine",
            "gnstor-ftl",
            "gnstor-fabric",
            "gnstor-auth",
            "gnstor-base",
            "gnstor-proto",
        ],
    ),
    ("gnstor-console", &["gnstor-array", "libgnstor", "gnstor-fabric", "gnstor-base"]),
    (
        "gnstor-bench",
        &[
            "gnstor-array",
            "gnstor-console",
            "libgnstor",
            "gnstor-gnor",
            "gnstor-deengine",
            "gnstor-model",
            "gnstor-fabric",
            "gnstor-base",
            "gnstor-proto",
        ],
    ),
    (
        "gnstor-sim",
        &[
            "gnstor-daemon",
            "gnstor-deengine",
            "gnstor-ftl",
            "gnstor-model",
            "gnstor-flash",
            "gnstor-fabric",
            "gnstor-base",
            "gnstor-proto",
        ],
    ),
    (
        "gnstor",
        &[
            "gnstor-bench",
            "gnstor-sim",
            "gnstor-console",
            "gnstor-array",
            "libgnstor",
            "gnstor-daemon",
            "gnstor-deengine",
            "gnstor-fabric",
            "gnstor-base",
            "gnstor-proto",
        ],
    ),
    (
        "gnstor-tests",
        &[
            "gnstor",
            "gnstor-bench",
            "gnstor-sim",
            "gnstor-console",
            "gnstor-array",
            "libgnstor",
            "gnstor-daemon",
            "gnstor-deengine",
            "gnstor-gnor",
            "gnstor-fabric",
            "gnstor-hostile",
            "gnstor-auth",
            "gnstor-base",
            "gnstor-proto",
        ],
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// Crates of the workspace. For each: the crates of the workspace that it names, build and test dependencies
/// included.
fn crates() -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let metadata = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let output = Command::new(cargo).args(metadata).current_dir(root()).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let name = |value: &Value| value["name"].as_str().expect("a name").to_owned();
    let ours: BTreeSet<String> = packages.iter().map(name).collect();
    let needs = |package: &Value| -> BTreeSet<String> {
        let all = package["dependencies"].as_array().expect("dependencies");
        all.iter().map(name).filter(|n| ours.contains(n)).collect()
    };
    packages.iter().map(|p| (name(p), needs(p))).collect()
}

#[test]
fn crates_depend_only_in_the_directions_of_the_design() {
    let _deadline = Deadline::after(LIMIT);
    let crates = crates();
    let known: BTreeSet<&str> = RULES.iter().map(|(name, _)| *name).collect();
    let found: BTreeSet<&str> = crates.keys().map(String::as_str).collect();
    assert_eq!(found, known, "every crate of the workspace has its line in RULES");
    for (name, allowed) in RULES {
        for needed in &crates[*name] {
            assert!(allowed.contains(&needed.as_str()), "{name} must not depend on {needed}");
        }
    }
}

#[test]
fn the_initiator_and_the_ssd_never_see_each_other() {
    let _deadline = Deadline::after(LIMIT);
    let crates = crates();
    let reach = |from: &str| {
        let (mut seen, mut todo) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(name) = todo.pop() {
            for needed in &crates[&name] {
                if seen.insert(needed.clone()) {
                    todo.push(needed.clone());
                }
            }
        }
        seen
    };
    assert!(
        !reach("gnstor-gnor").contains("gnstor-deengine")
            && !reach("gnstor-deengine").contains("gnstor-gnor")
    );
    assert!(!reach("libgnstor").contains("gnstor-deengine") && !reach("libgnstor").contains("gnstor-daemon"));
}

#[test]
fn only_tests_depend_on_the_command_and_nothing_on_tests() {
    let _deadline = Deadline::after(LIMIT);
    for (name, needed) in crates() {
        assert!(name == "gnstor-tests" || !needed.contains("gnstor"), "{name} depends on the command");
        assert!(!needed.contains("gnstor-tests"), "{name} depends on the tests");
    }
}

fn sources(folder: &Path, out: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, out);
        } else if path
            .extension()
            .is_some_and(|e| ["h", "hpp", "cu", "cuh", "cpp", "c"].iter().any(|x| e == *x))
        {
            out.push(path);
        }
    }
}

/// The first line under `folder` that includes a header of one of these folders.
fn includes(folder: &str, forbidden: &[&str]) -> Option<String> {
    let mut files = Vec::new();
    sources(&root().join(folder), &mut files);
    assert!(!files.is_empty(), "{folder} has sources");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let wrong = |line: &str| {
            let Some(what) = line.trim_start().strip_prefix('#').map(str::trim_start) else { return false };
            let Some(header) = what.strip_prefix("include").map(str::trim_start) else { return false };
            forbidden.iter().any(|f| {
                header.get(1..).is_some_and(|h| h.starts_with(f)) || header.contains(&format!("../{f}"))
            })
        };
        if let Some(line) = text.lines().find(|line| wrong(line)) {
            return Some(format!("{}: {line}", file.display()));
        }
    }
    None
}

#[test]
fn device_headers_include_only_in_the_directions_of_the_design() {
    let _deadline = Deadline::after(LIMIT);
    assert_eq!(includes("fabric/cuda", &["gnor/", "gnstor/"]), None);
    assert_eq!(includes("fabric/simt", &["gnor/", "gnstor/"]), None);
    assert_eq!(includes("gnor/cuda", &["gnstor/"]), None);
    // Checks that the search itself finds something.
    assert!(includes("libgnstor/include", &["gnor/"]).is_some());
}
