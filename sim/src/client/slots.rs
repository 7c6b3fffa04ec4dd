// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The slots of a client, as `slots.cuh` hands them out. A request draws a ticket for its first slot, and a
//! further slot is given only while no ticket waits.

use super::SLOTS;
use std::collections::VecDeque;

/// A bit for each slot that is taken, and the requests that wait for their first one.
#[derive(Debug, Default)]
pub(super) struct Slots {
    taken: u128,
    waiting: VecDeque<u16>,
}

const _: () = assert!(SLOTS == 128, "one bit a slot");

impl Slots {
    fn lowest(&mut self) -> Option<u8> {
        let slot = u8::try_from((!self.taken).trailing_zeros()).ok().filter(|&slot| slot < 128)?;
        self.taken |= 1 << slot;
        Some(slot)
    }

    /// The first slot of a request; `None`: it has a ticket now.
    pub(super) fn draw(&mut self, request: u16) -> Option<u8> {
        let slot = if self.waiting.is_empty() { self.lowest() } else { None };
        if slot.is_none() {
            self.waiting.push_back(request);
        }
        slot
    }

    /// The request whose turn has come, with its slot.
    pub(super) fn turn(&mut self) -> Option<(u16, u8)> {
        if self.waiting.is_empty() {
            return None;
        }
        let slot = self.lowest()?;
        self.waiting.pop_front().map(|request| (request, slot))
    }

    /// A slot that no ticket waits for.
    pub(super) fn spare(&mut self) -> Option<u8> {
        if self.waiting.is_empty() { self.lowest() } else { None }
    }

    /// Gives a slot back.
    pub(super) fn give(&mut self, slot: u8) {
        assert!(self.taken >> slot & 1 == 1, "slot {slot} was given back twice");
        self.taken &= !(1 << slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn a_ticket_that_waits_keeps_spare_slots_from_others() {
        let _deadline = deadline();
        let mut slots = Slots::default();
        let mut heads: Vec<u8> = (0..100).filter_map(|request| slots.draw(request)).collect();
        heads.extend(std::iter::from_fn(|| slots.spare()));
        assert_eq!((heads.len(), slots.draw(100), slots.draw(101)), (128, None, None));
        slots.give(7);
        assert_eq!(slots.spare(), None, "request 100 waits for it");
        assert_eq!((slots.turn(), slots.turn()), (Some((100, 7)), None));
        slots.give(9);
        slots.give(3);
        assert_eq!((slots.turn(), slots.turn()), (Some((101, 3)), None));
        assert_eq!(slots.spare(), Some(9));
    }
}
