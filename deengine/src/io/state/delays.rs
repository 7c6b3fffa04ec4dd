// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When commands that wait for their volume's rate limit start.

use gnstor_base::time::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// When which command starts; commands that start at the same time keep their order.
#[derive(Debug, Default)]
pub(in crate::io) struct Delays {
    starts: BinaryHeap<Reverse<(Time, u64, u32)>>,
    serial: u64,
}

impl Delays {
    pub(in crate::io) fn add(&mut self, at: Time, id: u32) {
        self.serial += 1;
        self.starts.push(Reverse((at, self.serial, id)));
    }

    pub(in crate::io) fn pop(&mut self, now: Time) -> Option<(Time, u32)> {
        let &Reverse((at, _, id)) = self.starts.peek().filter(|start| start.0.0 <= now)?;
        self.starts.pop();
        Some((at, id))
    }

    pub(in crate::io) fn next(&self) -> Time {
        self.starts.peek().map_or(Time::NEVER, |start| start.0.0)
    }
}
