// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tests of the device headers, which are in C++. An agent and clients are in one run, with a peer that
//! acts as the Rust half. Sanitizers and planted mistakes take longer, so `.ci/run` calls the script for
//! them.

use gnstor_base::testing::deadline;
use std::process::Command;

#[test]
fn the_device_headers_pass_their_own_tests() {
    let _deadline = deadline();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/device/run.sh");
    let output = Command::new("sh").args([script, "behaviour"]).output().expect("a POSIX shell");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script} failed:\n{said}\n{complained}");
}
