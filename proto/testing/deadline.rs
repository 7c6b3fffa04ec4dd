// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A deadline for a test. A test that hangs ends the process and names itself, instead of holding up the
//! whole run.
//!
//! The tests of the contracts, the daemon, the library and the whole system include this file by its path.

use std::io::Write;
use std::panic::Location;
use std::string::String;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// The limit of most tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);
/// Set this variable, in seconds, for runs that are longer on purpose. It replaces every limit.
const VARIABLE: &str = "GNSTOR_TEST_DEADLINE_S";

/// Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Deadline {
    _end: Sender<()>,
}

impl Deadline {
    /// Starts the calling test's deadline. When it passes, the process prints the test's name and aborts.
    #[track_caller]
    pub(crate) fn after(limit: Duration) -> Self {
        let longer = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok());
        let limit = longer.map_or(limit, Duration::from_secs);
        let test = String::from(thread::current().name().unwrap_or("without a name"));
        let place = Location::caller();
        let (end, ended) = mpsc::channel();
        let watch = move || {
            if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                // Written directly: an abort loses the output that the test harness has captured.
                let text = std::format!("test {test} ({place}) still runs after {limit:?} ({VARIABLE})\n");
                let _ = std::io::stderr().write_all(text.as_bytes());
                std::process::abort();
            }
        };
        thread::Builder::new().name("deadline".into()).spawn(watch).expect("a thread for the deadline");
        Self { _end: end }
    }
}
