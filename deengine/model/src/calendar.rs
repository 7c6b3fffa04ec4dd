// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When a plane of a die is busy: always before `free`, except for a few gaps that other work may still fill.
//!
//! ```text
//!   |##sense##|     gap     |####program####|......free
//!              ^-- work booked from here runs in the gap, is suspended for the program, and ends behind it
//! ```
//! Work is booked as soon as it is known. Some of it begins late: a program whose data is still being
//! collected, an erase that waits for programs elsewhere. A controller would use the plane until then, so
//! the gap is kept. Work that does not fit into it is suspended and resumed, as flash can do. Few gaps are
//! kept: the oldest is dropped.

/// Number of gaps kept for one plane.
const GAPS: usize = 6;

#[cfg(target_arch = "x86_64")]
const CACHE_LINE: usize = 64;

/// When one plane is busy; picoseconds. A pair of cache lines of its own.
#[derive(Clone, Copy, Default, Debug)]
#[repr(align(128))]
pub(crate) struct Calendar {
    free: u64,
    /// Gaps `[begin, end)`, ascending, none empty. The first `count` are in use.
    gaps: [(u64, u64); GAPS],
    count: usize,
}

impl Calendar {
    /// Asks for it, ahead of [`Self::book`].
    #[inline]
    #[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "a prefetch has no safe form"))]
    pub(crate) fn announce(&self) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            for half in
                [&raw const self.free, (&raw const self.free).wrapping_add(CACHE_LINE / size_of::<u64>())]
            {
                // SAFETY: a prefetch reads nothing and fails nowhere.
                unsafe { _mm_prefetch::<_MM_HINT_ET0>(half.cast()) };
            }
        }
    }

    /// The first moment from `from` on at which the plane has nothing to do.
    #[inline]
    pub(crate) fn idle_from(&self, from: u64) -> u64 {
        if from >= self.free {
            return from;
        }
        let gap = self.gaps[..self.count].iter().find(|gap| gap.1 > from);
        gap.map_or(self.free, |gap| gap.0.max(from))
    }

    /// Books `span` not before `from`; when it is done.
    #[inline]
    pub(crate) fn book(&mut self, from: u64, span: u64) -> u64 {
        if span == 0 {
            return self.idle_from(from);
        }
        let mut left = span;
        if from < self.free && self.count > 0 {
            let (end, rest) = self.fill_gaps(from, span);
            if rest == 0 {
                return end;
            }
            left = rest;
        }
        let start = self.free.max(from);
        if start > self.free {
            self.insert(self.count, (self.free, start));
        }
        self.free = start + left;
        self.free
    }

    /// Uses the gaps from `from` on. Returns where that ends, and how much work is left.
    fn fill_gaps(&mut self, from: u64, span: u64) -> (u64, u64) {
        let (mut end, mut left, mut index) = (from, span, 0);
        while index < self.count && left > 0 {
            let gap = self.gaps[index];
            let start = gap.0.max(from);
            if start >= gap.1 {
                index += 1;
                continue;
            }
            end = gap.1.min(start.saturating_add(left));
            left -= end - start;
            let (before, after) = ((gap.0, start), (end, gap.1));
            match (before.0 < before.1, after.0 < after.1) {
                (false, false) => self.remove(index),
                (true, false) => self.gaps[index] = before,
                (false, true) => self.gaps[index] = after,
                (true, true) => {
                    self.gaps[index] = after;
                    self.insert(index, before);
                }
            }
            // The rest of this gap ends at `from` or begins at `end`: the loop does not meet it again with
            // work left.
            if before.0 < before.1 {
                index += 1;
            }
        }
        (end, left)
    }

    fn remove(&mut self, index: usize) {
        self.gaps.copy_within(index + 1..self.count, index);
        self.count -= 1;
    }

    /// Inserts a gap before gap `index`. If there is no room, the oldest gap is dropped, which may be the new
    /// one.
    fn insert(&mut self, index: usize, gap: (u64, u64)) {
        if self.count < GAPS {
            self.gaps.copy_within(index..self.count, index + 1);
            self.gaps[index] = gap;
            self.count += 1;
        } else if index > 0 {
            self.gaps.copy_within(1..index, 0);
            self.gaps[index - 1] = gap;
        }
    }
}
