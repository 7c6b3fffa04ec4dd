// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A deadline for a test. A test that hangs ends the process and names itself, instead of holding up the
//! whole run.
//!
//! The test modules of the crates under `deengine/` include this file by its path.

#[path = "../../proto/testing/deadline.rs"]
mod limit;

pub(crate) use limit::Deadline;

/// Starts the calling test's deadline, 300 s. When it passes, the process prints the test's name and aborts.
#[track_caller]
pub(crate) fn deadline() -> Deadline {
    Deadline::after(limit::LIMIT)
}
