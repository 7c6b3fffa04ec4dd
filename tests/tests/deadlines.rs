// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks that every test has a deadline, so that a test that hangs fails with its name.

use crate::deadline::{Deadline, LIMIT};
use regex::Regex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Folders whose tests have their deadline in a helper of another file, and what such a test's text has. In
/// the firmware's tests each harness has one. A campaign makes a harness for each of its seeds.
const HELPERS: &[(&str, &[&str])] = &[
    ("daemon/tests/daemon/random/", &["comes_to_one_state"]),
    ("deengine/src/tests/", &["arness", "Campaign::new", "World::new", "many(", "seeds(", "run("]),
];

/// Adds the Rust sources below a folder.
pub(crate) fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the workspace").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The text from after an opening brace to the brace that closes it. Braces in literals must be paired.
fn body(text: &str) -> &str {
    let mut depth = 1;
    let end = text.find(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        depth == 0
    });
    &text[..end.unwrap_or(text.len())]
}

/// Bodies of a file's functions by name, and the names of the file's tests.
fn functions(text: &str) -> (BTreeMap<&str, &str>, Vec<&str>) {
    let before = r"(?m)^(?P<before>(?:[ \t]*(?:#\[[^\n]*\]|//[^\n]*)\n)*)";
    let head = r"[ \t]*(?:pub(?:\([a-z]+\))? )?fn (?P<name>\w+)[^{;]*\{";
    let function = Regex::new(&format!("{before}{head}")).expect("a pattern");
    let (mut bodies, mut tests) = (BTreeMap::new(), Vec::new());
    for found in function.captures_iter(text) {
        let name = found.name("name").expect("a group").as_str();
        bodies.insert(name, body(&text[found.get(0).expect("all").end()..]));
        if found["before"].lines().any(|line| line.trim() == "#[test]") {
            tests.push(name);
        }
    }
    (bodies, tests)
}

/// Whether a function has a deadline or one of these words, or calls a function of its file that has.
fn has_deadline(name: &str, bodies: &BTreeMap<&str, &str>, words: &[&str], depth: u32) -> bool {
    let text = bodies[name];
    let itself = ["Deadline", "deadline()", "within("].iter().chain(words).any(|word| text.contains(word));
    let called = |other: &str| {
        other != name && text.contains(&format!("{other}(")) && has_deadline(other, bodies, words, depth - 1)
    };
    itself || (depth > 0 && bodies.keys().any(|other| called(other)))
}

#[test]
fn every_test_has_a_deadline() {
    let _deadline = Deadline::after(LIMIT);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut files = Vec::new();
    sources(root, &mut files);
    let (mut seen, mut without) = (0, Vec::new());
    for path in files {
        let text = std::fs::read_to_string(&path).expect("a source");
        let place = path.strip_prefix(root).expect("within").to_string_lossy().into_owned();
        let words: Vec<&str> = HELPERS
            .iter()
            .filter(|(at, _)| place.starts_with(at))
            .flat_map(|(_, words)| *words)
            .copied()
            .collect();
        let (bodies, tests) = functions(&text);
        seen += tests.len();
        let has = |name: &str| has_deadline(name, &bodies, &words, 2);
        without.extend(tests.iter().filter(|name| !has(name)).map(|name| format!("{place}: {name}")));
    }
    assert!(seen > 1_400, "{seen} tests were found");
    assert!(without.is_empty(), "without a deadline:\n{}", without.join("\n"));
}

#[test]
fn a_test_without_a_deadline_is_found() {
    let _deadline = Deadline::after(LIMIT);
    let text = "#[test]\nfn bare() {\n    if true { wait() }\n}\n\n#[test]\nfn good() {\n    helped();\n}\n\n\
                fn helped() {\n    let _d = deadline();\n}\n";
    let (bodies, tests) = functions(text);
    assert_eq!(tests, ["bare", "good"]);
    assert_eq!(["bare", "good"].map(|name| has_deadline(name, &bodies, &[], 2)), [false, true]);
    assert!(has_deadline("bare", &bodies, &["wait("], 0), "a helper of another file has one");
}
