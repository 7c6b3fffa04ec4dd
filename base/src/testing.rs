// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A deadline for a test. A test that hangs ends the process and names itself, instead of holding up the
//! whole run. Other crates get this module by the feature `testing`, in their development dependencies.

#[path = "../../proto/testing/deadline.rs"]
mod limit;

/// Ends when it is dropped.
#[derive(Debug)]
#[must_use = "a deadline ends when it is dropped"]
pub struct Deadline(#[expect(dead_code, reason = "its end is all that it is for")] limit::Deadline);

/// Starts the calling test's deadline, 300 s. When it passes, the process prints the test's name and aborts.
///
/// # Panics
/// When the operating system gives no thread.
#[track_caller]
pub fn deadline() -> Deadline {
    Deadline(limit::Deadline::after(limit::LIMIT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn a_test_that_hangs_is_aborted_and_named() {
        const HANGS: &str = "GNSTOR_TEST_HANGS";
        let _deadline = deadline();
        if std::env::var_os(HANGS).is_some() {
            loop {
                thread::sleep(Duration::from_millis(10));
            }
        }
        let name = "testing::tests::a_test_that_hangs_is_aborted_and_named";
        let program = std::env::current_exe().expect("the test's program");
        let mut again = Command::new(program);
        again.args(["--exact", name, "--nocapture"]).env(HANGS, "1").env("GNSTOR_TEST_DEADLINE_S", "1");
        let output = again.output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(name) && said.contains("after 1s"), "{said}");
    }
}
