// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A deadline for a test. A test that hangs ends the process and names itself, instead of holding up the
//! whole run.
//!
//! The test modules of the crates under `deengine/` include this file by its path.

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
pub(crate) struct Deadline {
    _end: Sender<()>,
}

/// Starts the calling test's deadline. When it passes, the process prints the test's name and aborts.
#[track_caller]
pub(crate) fn deadline() -> Deadline {
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
