// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Room in the write buffer. A write takes it at its turn. The program of the unit with its data gives it
//! back.
//!
//! ```text
//!   admit(3 blocks) ... -> used -> release(unit at time t) -> given back to writes admitted from t on
//! ```
//! Writes are admitted in order. A program frees the pages of its unit, except pages without host data.

use gnstor_base::time::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The write buffer.
#[derive(Debug)]
pub(crate) struct WriteBuffer {
    pages: u32,
    used: u32,
    /// When the last write was admitted. No write overtakes another.
    admitted: Time,
    /// Units being programmed: when, and how many pages of the buffer that frees.
    leaving: BinaryHeap<Reverse<(Time, u32)>>,
    /// Pages of the next unit that hold no host data.
    padding: u32,
}

impl WriteBuffer {
    pub(crate) fn new(pages: u32, unit_pages: u32) -> Self {
        let units = (pages / unit_pages.max(1)) as usize * 2;
        let leaving = BinaryHeap::with_capacity(units + 64);
        Self { pages, used: 0, admitted: Time::ZERO, leaving, padding: 0 }
    }

    /// Takes room for `blocks`. Returns when it is available. If no program is running, no room will become
    /// free. Then the blocks are admitted beyond the limit, so that a write never waits for itself.
    pub(crate) fn admit(&mut self, from: Time, blocks: u32) -> Time {
        let mut at = from.max(self.admitted);
        while let Some(&Reverse((leaves, pages))) = self.leaving.peek() {
            if leaves > at && self.used + blocks <= self.pages {
                break;
            }
            at = at.max(leaves);
            self.used = self.used.saturating_sub(pages);
            self.leaving.pop();
        }
        self.used += blocks;
        self.admitted = at;
        at
    }

    /// Notes that `blocks` pages of the next unit hold no host data.
    pub(crate) fn pad(&mut self, blocks: u32) {
        self.padding += blocks;
    }

    /// The next unit leaves the buffer at `at`.
    pub(crate) fn release(&mut self, at: Time, unit_pages: u32) {
        let padding = std::mem::take(&mut self.padding);
        let pages = unit_pages.saturating_sub(padding);
        if pages > 0 {
            self.leaving.push(Reverse((at, pages)));
        }
    }

    /// Blocks in the buffer, including blocks whose unit has been programmed since the last admission.
    #[cfg(test)]
    pub(crate) fn used(&self) -> u32 {
        self.used
    }
}
