// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A link that carries one transfer at a time. A transfer may be booked before transfers that are booked
//! already.
//!
//! ```text
//!   slots of 4.2 us    | ###.... | ####### | ####### | #...... |      # = how much of the slot is taken
//!                          ^-- a transfer from here takes the rest of each slot that it comes to
//! ```
//! Work reaches a link in any order of time, because a page is ready when its die is. Only the used part of a
//! slot is kept, not where in the slot a transfer lies. So the rate is exact over slots, and a single end may
//! be early by less than a slot. Times are whole picoseconds: a page at 14 GB/s takes 292,571 of them,
//! rounded down.

use gnstor_base::time::{Span, Time};
use gnstor_flash::PAGE_BYTES;

/// Length of a slot: 4.2 us, short beside the latency of flash, long beside one transfer.
const SLOT_SHIFT: u32 = 22;
const SLOT_PS: u64 = 1 << SLOT_SHIFT;
const SLOTS_SHIFT: u32 = 14;
/// Number of slots: 69 ms. A slot further in the future replaces an old one, which then counts as full.
const SLOTS: u64 = 1 << SLOTS_SHIFT;

/// A link.
#[derive(Debug)]
pub(crate) struct Link {
    /// Time of one page; 0 for a link that takes no time.
    page_ps: u64,
    slots: Vec<Slot>,
    /// Slots known to be full, so that a backlog is stepped over at once.
    full: std::ops::Range<u64>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Slot {
    /// Laps of the ring.
    round: u32,
    used_ps: u32,
}

impl Link {
    /// An idle link; a rate of 0 takes no time.
    pub(crate) fn new(bytes_per_s: u64) -> Self {
        let page_ps = Span::transfer(u64::from(PAGE_BYTES), bytes_per_s).as_ps();
        let slots = if page_ps == 0 { 0 } else { 1 << SLOTS_SHIFT };
        Self { page_ps, slots: vec![Slot::default(); slots], full: 0..0 }
    }

    /// Books the transfer of `pages` not before `from`; the time it ends.
    pub(crate) fn book(&mut self, from: Time, pages: u32) -> Time {
        let mut left = self.page_ps * u64::from(pages);
        if left == 0 {
            return from;
        }
        let mut at = from.as_ps();
        if self.full.contains(&(at >> SLOT_SHIFT)) {
            at = self.full.end << SLOT_SHIFT;
        }
        let first = at >> SLOT_SHIFT;
        loop {
            let number = at >> SLOT_SHIFT;
            let start = number << SLOT_SHIFT;
            let begin = at.max(start + self.used(number));
            let taken = left.min(start + SLOT_PS - begin);
            left -= taken;
            if self.take(number, taken) {
                self.note_full(first, number);
            }
            if left == 0 {
                return Time::ZERO + Span::from_ps(begin + taken);
            }
            at = start + SLOT_PS;
        }
    }

    fn place(number: u64) -> (usize, u32) {
        let index = usize::try_from(number & (SLOTS - 1)).expect("below the ring's size");
        // 2^64 ps make 2^28 rounds.
        (index, u32::try_from(number >> SLOTS_SHIFT).expect("64 - 22 - 14 bits"))
    }

    /// Used part of this slot. A slot that the ring has passed counts as fully used.
    #[inline]
    fn used(&self, number: u64) -> u64 {
        let (index, round) = Self::place(number);
        let slot = self.slots[index];
        match slot.round.cmp(&round) {
            std::cmp::Ordering::Less => 0,
            std::cmp::Ordering::Equal => u64::from(slot.used_ps),
            std::cmp::Ordering::Greater => SLOT_PS,
        }
    }

    /// Uses a part of this slot. Returns whether it is full now.
    #[inline]
    fn take(&mut self, number: u64, taken_ps: u64) -> bool {
        let (index, round) = Self::place(number);
        let slot = &mut self.slots[index];
        if slot.round > round {
            return true;
        }
        if slot.round < round {
            *slot = Slot { round, used_ps: 0 };
        }
        slot.used_ps += u32::try_from(taken_ps).expect("a part of a slot");
        u64::from(slot.used_ps) == SLOT_PS
    }

    fn note_full(&mut self, first: u64, number: u64) {
        if number == self.full.end {
            self.full.end += 1;
        } else if number == first {
            self.full = number..number + 1;
        }
    }
}
