// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a worker does early, because work takes real time.

use super::worker::Worker;
use gnstor_base::time::Span;

/// How early, and how much at a time, a worker takes commands. No modelled time of a command depends on it.
/// But the order in which commands of several queues are taken is decided so much earlier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// How long before the modelled firmware is free a write with its data is taken.
    pub(super) ahead: Span,
    /// Most commands that are taken under one hold of the model's lock.
    pub(super) burst: usize,
}

impl Pace {
    /// The pace of a worker on a thread, whose commits and responses take so long in real time.
    pub const REAL: Self = Self { ahead: Span::from_ns(90_000), burst: 16 };
    /// Of a worker under a virtual clock: each command is taken by itself when the firmware is free.
    pub const EXACT: Self = Self { ahead: Span::ZERO, burst: 1 };
}

impl Worker {
    /// Commands are taken at this pace from now on. A worker begins with [`Pace::REAL`].
    pub fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
    }
}
