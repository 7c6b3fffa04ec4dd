// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The slots of a channel, given to the lanes of a warp as `slots.cuh` does when they call together.

use super::{LANES, SLOTS, bits};

const WORDS: usize = SLOTS / 32;
const ALL: u32 = 128;
const _: () = assert!(ALL as usize == SLOTS && LANES == 32, "words of 32 bits");

/// The slot that a lane asks for (`slot_wish`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wish {
    /// A first slot. The lane draws a ticket.
    Ticket,
    /// A first slot. The lane has this ticket from an earlier call.
    Has(u32),
    /// A further slot, if no ticket waits for it.
    Spare,
}

/// Result for a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Got {
    /// The lane gets this slot.
    Slot(u8),
    /// No slot. The lane waits for its first one with this ticket.
    Ticket(u32),
    /// No slot.
    Nothing,
}

/// A bitmap of the slots that are taken, and the two counters of tickets, which wrap.
#[derive(Debug, Default)]
pub(super) struct Slots {
    taken: [u32; WORDS],
    tickets: u32,
    returned: u32,
}

/// The lowest `n` bits of `mask`, or all of its bits if it has no more.
fn some_of(mask: u32, n: u32) -> u32 {
    let (mut some, mut rest) = (0, mask);
    for _ in 0..n.min(mask.count_ones()) {
        some |= rest & rest.wrapping_neg();
        rest &= rest - 1;
    }
    some
}

impl Slots {
    /// Gives a slot to each lane that asks for one. A lane that wants its first slot gets the bit of its own
    /// number in word `first`, if that is free. The others search from there on, in the order of the lanes.
    pub(super) fn take(&mut self, first: usize, wishes: &[(usize, Wish)], got: &mut Vec<Got>) {
        got.clear();
        for (_, wish) in wishes {
            got.push(match *wish {
                Wish::Ticket => {
                    let ticket = self.tickets;
                    self.tickets = self.tickets.wrapping_add(1);
                    Got::Ticket(ticket)
                }
                Wish::Has(ticket) => Got::Ticket(ticket),
                Wish::Spare => Got::Nothing,
            });
        }
        let spares = wishes.iter().filter(|(_, wish)| *wish == Wish::Spare).count();
        let room = self.returned.wrapping_add(ALL).wrapping_sub(self.tickets).cast_signed().max(0);
        let mut admitted = u32::try_from(spares).expect("at most 32").min(room.unsigned_abs());
        self.tickets = self.tickets.wrapping_add(admitted);
        let mut searches = 0u32;
        for (i, (lane, wish)) in wishes.iter().enumerate() {
            let may = match got[i] {
                Got::Ticket(ticket) => ticket.wrapping_sub(self.returned).wrapping_sub(ALL).cast_signed() < 0,
                _ => admitted > 0,
            };
            if !may {
                continue;
            }
            admitted -= u32::from(*wish == Wish::Spare);
            match if *wish == Wish::Spare { None } else { self.own(first, *lane) } {
                Some(slot) => got[i] = Got::Slot(slot),
                None => searches |= 1 << i,
            }
        }
        let mut word = first;
        for i in bits(searches) {
            match self.lowest(&mut word, first) {
                Some(slot) => got[i] = Got::Slot(slot),
                None if wishes[i].1 == Wish::Spare => self.returned = self.returned.wrapping_add(1),
                None => {}
            }
        }
    }

    /// The slot of the lane's own number in word `first`, if that is free.
    fn own(&mut self, first: usize, lane: usize) -> Option<u8> {
        let bits = &mut self.taken[first % WORDS];
        if *bits >> lane & 1 == 1 {
            return None;
        }
        *bits |= 1 << lane;
        Some(u8::try_from(first % WORDS * 32 + lane).expect("below 128"))
    }

    /// The lowest free slot, in the words from `word` on. The search wraps once and ends before `first`.
    fn lowest(&mut self, word: &mut usize, first: usize) -> Option<u8> {
        while *word < first + WORDS {
            let bits = &mut self.taken[*word % WORDS];
            let bit = some_of(!*bits, 1);
            if bit != 0 {
                *bits |= bit;
                let slot = u32::try_from(*word % WORDS).expect("small") * 32 + bit.trailing_zeros();
                return Some(u8::try_from(slot).expect("below 128"));
            }
            *word += 1;
        }
        None
    }

    /// Gives a slot back.
    pub(super) fn give(&mut self, slot: u8) {
        let bits = &mut self.taken[usize::from(slot / 32)];
        assert!(*bits >> (slot % 32) & 1 == 1, "slot {slot} was given back twice");
        *bits &= !(1 << (slot % 32));
        self.returned = self.returned.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    fn take(slots: &mut Slots, first: usize, wishes: &[Wish]) -> Vec<Got> {
        let mut got = Vec::new();
        let wishes: Vec<_> = wishes.iter().copied().enumerate().collect();
        slots.take(first, &wishes, &mut got);
        got
    }

    #[test]
    fn a_ticket_that_waits_keeps_spare_slots_from_others() {
        let _deadline = deadline();
        let mut slots = Slots::default();
        for warp in 0..4 {
            assert!(
                take(&mut slots, warp, &[Wish::Ticket; 32]).iter().all(|got| matches!(got, Got::Slot(_)))
            );
        }
        assert_eq!(take(&mut slots, 0, &[Wish::Ticket, Wish::Spare]), [Got::Ticket(128), Got::Nothing]);
        slots.give(7);
        assert_eq!(take(&mut slots, 0, &[Wish::Spare]), [Got::Nothing], "ticket 128 waits for it");
        assert_eq!(take(&mut slots, 0, &[Wish::Has(128)]), [Got::Slot(7)]);
        slots.give(9);
        assert_eq!(take(&mut slots, 0, &[Wish::Spare, Wish::Spare]), [Got::Slot(9), Got::Nothing]);
    }

    #[test]
    fn a_warp_begins_at_its_word_and_goes_round() {
        let _deadline = deadline();
        let mut slots = Slots::default();
        let got = take(&mut slots, 3, &[Wish::Spare; 32]);
        assert_eq!((got[0], got[31]), (Got::Slot(96), Got::Slot(127)));
        assert_eq!(take(&mut slots, 3, &[Wish::Ticket]), [Got::Slot(0)]);
    }

    #[test]
    fn a_lane_gets_the_slot_of_its_number_first_and_another_one_if_that_is_taken() {
        let _deadline = deadline();
        let mut slots = Slots::default();
        assert_eq!(take(&mut slots, 1, &[Wish::Spare, Wish::Ticket]), [Got::Slot(32), Got::Slot(33)]);
        slots.give(32);
        let mut got = Vec::new();
        slots.take(1, &[(1, Wish::Ticket), (2, Wish::Ticket)], &mut got);
        assert_eq!(got, [Got::Slot(32), Got::Slot(34)], "slot 33 is taken");
    }
}
