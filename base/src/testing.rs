// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A deadline for a test. A test that hangs ends the process and names itself, instead of holding up the
//! whole run. Other crates get this module by the feature `testing`, in their development dependencies.

use std::io::Write;
use std::panic::Location;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// Seconds that a test may take, unless [`VARIABLE`] sets another limit.
const LIMIT_S: u64 = 300;
/// Set this variable, in seconds, for campaigns that are longer on purpose.
const VARIABLE: &str = "GNSTOR_TEST_DEADLINE_S";

/// Ends when it is dropped.
#[derive(Debug)]
#[must_use = "a deadline ends when it is dropped"]
pub struct Deadline {
    _end: Sender<()>,
}

/// Starts the calling test's deadline. When it passes, the process prints the test's name and aborts.
///
/// # Panics
/// When the operating system gives no thread.
#[track_caller]
pub fn deadline() -> Deadline {
    let limit_s = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(LIMIT_S);
    let test = thread::current().name().unwrap_or("without a name").to_owned();
    let place = Location::caller();
    let (end, ended) = mpsc::channel();
    let watch = move || {
        if ended.recv_timeout(Duration::from_secs(limit_s)) == Err(RecvTimeoutError::Timeout) {
            // Written directly: an abort loses the output that the test harness has captured.
            let text = format!("test {test} ({place}) still runs after {limit_s} s ({VARIABLE})\n");
            let _ = std::io::stderr().write_all(text.as_bytes());
            std::process::abort();
        }
    };
    thread::Builder::new().name("deadline".into()).spawn(watch).expect("a thread for the deadline");
    Deadline { _end: end }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

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
        again.args(["--exact", name, "--nocapture"]).env(HANGS, "1").env(VARIABLE, "1");
        let output = again.output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(name) && said.contains("after 1 s"), "{said}");
    }
}
