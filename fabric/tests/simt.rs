// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPU runtime's own tests, which are C++. Sanitizers take longer, so `.ci/run` calls the script for
//! them.

use gnstor_base::testing::deadline;
use std::process::Command;

#[test]
fn the_cpu_runtime_passes_its_own_tests() {
    let _deadline = deadline();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/simt/tests/run.sh");
    let output = Command::new("sh").args([script, "behaviour"]).output().expect("a POSIX shell");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script} failed:\n{said}\n{complained}");
}
