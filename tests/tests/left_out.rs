// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests that `cargo test` ignores: `.ci/run` names each of them, as a name that no test has would pass.

use crate::deadline::{Deadline, LIMIT};
use crate::deadlines::sources;
use regex::Regex;
use std::collections::BTreeSet;
use std::path::Path;

/// What the reason of such a test begins with.
const REASON: &str = ".ci/run runs it";

fn names(pattern: &str, text: &str) -> Vec<String> {
    let pattern = Regex::new(pattern).expect("a pattern");
    pattern.captures_iter(text).map(|found| found[1].to_owned()).collect()
}

#[test]
fn ci_runs_each_test_that_is_left_to_it_and_names_no_other() {
    let _deadline = Deadline::after(LIMIT);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut files = Vec::new();
    sources(root, &mut files);
    let ignored =
        format!(r#"#\[ignore = "{}[^\n]*\]\n(?:[ \t]*#\[[^\n]*\n)*[ \t]*fn (\w+)"#, regex::escape(REASON));
    let mut tests = BTreeSet::new();
    for path in files {
        let text = std::fs::read_to_string(&path).expect("a source");
        tests.extend(names(&ignored, &text));
    }
    let run = std::fs::read_to_string(root.join(".ci/run")).expect("the script");
    // A name on a line of its own, in a list.
    let named: BTreeSet<String> = names(r"(?m)^  '?(?:\w+::)*([a-z]\w{20,})'?$", &run).into_iter().collect();
    assert_eq!(tests, named, "tests that cargo test ignores, and tests that .ci/run names");
    assert!(tests.len() > 10, "the search finds them: {tests:?}");
}
