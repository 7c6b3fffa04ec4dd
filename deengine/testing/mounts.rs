// SPDX-License-Identifier: Apache-2.0 OR MIT
//! For tests that need a mount or a loop device. Without one such a test fails, as it has checked nothing. A
//! variable allows that it is left out.
//!
//! The test modules of the crates under `deengine/`, and the tests of the whole system, include this file by
//! its path.

/// Set this variable to 1 where the tests' user may mount nothing.
const VARIABLE: &str = "GNSTOR_NO_MOUNT";

/// Leaves the calling test out, which needs `what` and got `why` instead. Panics unless [`VARIABLE`] allows
/// it.
#[track_caller]
pub(crate) fn left_out(what: &str, why: &dyn std::fmt::Debug) {
    let is_allowed = std::env::var_os(VARIABLE).is_some_and(|value| value == "1");
    assert!(
        is_allowed,
        "this test needs {what}: run it as root, or set {VARIABLE}=1 to leave it out ({why:?})"
    );
    eprintln!("left out by {VARIABLE}=1: this test needs {what} ({why:?})");
}
