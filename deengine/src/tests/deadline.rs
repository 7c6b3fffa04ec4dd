// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A deadline for every test: a test that hangs ends the process with the test's name.
//!
//! Each [`super::Harness`] holds a [`Deadline`], and so does each test that loops without one. A watchdog thread looks at
//! all of them. The limit is far above what a test takes on a slow machine, so it finds only tests that never end.
#![expect(
    clippy::disallowed_methods,
    reason = "a hanging test is a matter of the wall clock, not of any result"
)]

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

/// How long one SSD of a test may be in use.
const LIMIT: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// `GNSTOR_TEST_DEADLINE_MS` sets another limit, so that a test of the watchdog itself is short.
const VARIABLE: &str = "GNSTOR_TEST_DEADLINE_MS";

struct Open {
    test: String,
    since: Instant,
}

static OPEN: Mutex<(u64, BTreeMap<u64, Open>)> = Mutex::new((0, BTreeMap::new()));
static WATCHDOG: Once = Once::new();

/// The test that holds it has until the limit to drop it.
pub(super) struct Deadline(u64);

impl Deadline {
    /// Starts the time of the test that runs on this thread.
    pub(super) fn start() -> Self {
        WATCHDOG.call_once(|| _ = std::thread::spawn(watch));
        let test = std::thread::current().name().unwrap_or("a test without a name").to_owned();
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let number = open.0;
        open.0 += 1;
        open.1.insert(number, Open { test, since: Instant::now() });
        Self(number)
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&self.0);
    }
}

fn watch() {
    let limit = super::crash::number(VARIABLE).map_or(LIMIT, Duration::from_millis);
    loop {
        std::thread::sleep(LOOK_EVERY.min(limit));
        let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(late) = open.1.values().find(|open| open.since.elapsed() > limit) else { continue };
        // Written directly: the test harness would capture what a macro prints.
        let text = format!("\n{} has not ended within {limit:?}: the test hangs\n", late.test);
        _ = std::io::stderr().write_all(text.as_bytes());
        std::process::abort();
    }
}

/// Hangs when the other test asks for it.
#[test]
fn hangs_when_asked_to() {
    if std::env::var_os("GNSTOR_TEST_HANG").is_some() {
        let _deadline = Deadline::start();
        loop {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_test_that_hangs_ends_with_its_name() {
    let this = std::env::current_exe().expect("the path of the test binary");
    let output = std::process::Command::new(this)
        .args(["--exact", "tests::deadline::hangs_when_asked_to"])
        .envs([("GNSTOR_TEST_HANG", "1"), (VARIABLE, "200")])
        .env("RUST_TEST_THREADS", "2")
        .output()
        .expect("the test binary runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains("hangs_when_asked_to has not ended"), "{text}");
}
