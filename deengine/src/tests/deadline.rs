// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The deadline of tests ends a test that hangs, and names it.

use crate::deadline::deadline;

/// Hangs if the other test asks for it.
#[test]
fn hangs_when_asked_to() {
    let _deadline = deadline();
    if std::env::var_os("GNSTOR_TEST_HANG").is_some() {
        loop {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_test_that_hangs_ends_with_its_name() {
    let _deadline = deadline();
    let this = std::env::current_exe().expect("the path of the test binary");
    let output = std::process::Command::new(this)
        .args(["--exact", "tests::deadline::hangs_when_asked_to"])
        .envs([("GNSTOR_TEST_HANG", "1"), ("GNSTOR_TEST_DEADLINE_S", "1")])
        .env("RUST_TEST_THREADS", "2")
        .output()
        .expect("the test binary runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains("hangs_when_asked_to") && text.contains("still runs after 1s"), "{text}");
}
