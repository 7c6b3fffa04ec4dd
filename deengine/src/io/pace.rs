// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work that a worker does early, because it takes real time.

use super::worker::Worker;
use gnstor_base::ahead;
use gnstor_base::time::Span;

/// How early a worker takes commands, and how many at a time. No modelled time of a command depends on it.
/// But the order of commands of several queues is decided earlier by this time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// How long before the modelled firmware is free a write with its data is taken.
    pub(super) ahead: Span,
    /// Largest number of commands taken in one hold of the model's lock.
    pub(super) burst: usize,
}

impl Pace {
    /// The pace of a worker on a thread, whose commits and responses take real time.
    pub const REAL: Self = Self { ahead: ahead::FIRMWARE, burst: 16 };
    /// The pace of a worker under a virtual clock: it takes each command by itself when the firmware is free.
    pub const EXACT: Self = Self { ahead: Span::ZERO, burst: 1 };
}

impl Worker {
    /// Commands are taken at this pace from now on. A worker begins with [`Pace::REAL`].
    pub fn set_pace(&mut self, pace: Pace) {
        self.backlog.set_pace(pace);
    }
}
