// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls, written down before and after.

use crate::history::{Call, Event, Failure, Outcome, Writer, now};
use libgnstor::Error;
use std::path::Path;

pub(super) struct Recorder {
    writer: Writer,
    who: String,
    next: u64,
}

/// The kind of an error.
fn failure_of(error: &Error) -> Failure {
    match error {
        Error::Daemon(_) => Failure::Daemon,
        Error::Unreachable { .. } | Error::Silent { .. } => Failure::Unreachable,
        Error::LeaseLost { .. } => Failure::LeaseLost,
        Error::AfterTimeout => Failure::TimedOut,
        Error::Io(failure) if failure.errno() == TIMED_OUT => Failure::TimedOut,
        Error::Io(failure) if failure.rule().is_some() => Failure::Refused,
        Error::Io(_) => Failure::Io,
        _ => Failure::Other,
    }
}

/// `ETIMEDOUT`.
const TIMED_OUT: i32 = 110;

impl Recorder {
    pub(super) fn open(path: &Path, who: String) -> std::io::Result<Self> {
        Ok(Self { writer: Writer::open(path)?, who, next: 0 })
    }

    /// Makes a call, and writes it down before and after.
    pub(super) fn call<T>(
        &mut self,
        call: Call,
        make: impl FnOnce() -> Result<T, Error>,
        outcome: impl FnOnce(&T) -> Outcome,
    ) -> Result<T, Error> {
        let (who, id) = (self.who.clone(), self.next);
        self.next += 1;
        self.writer.add(&Event::Begin { who: who.clone(), id, at: now(), call });
        let made = make();
        let at = now();
        let outcome = match &made {
            Ok(made) => outcome(made),
            Err(why) => Outcome::Failed(failure_of(why), why.to_string()),
        };
        self.writer.add(&Event::End { who, id, at, outcome });
        made
    }
}
