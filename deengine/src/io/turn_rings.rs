// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lists whose elements take turns, all in one vector. Adding an element, removing one, and giving one its
//! next turn take the same time however many there are.

/// The end of a list, and the list that is empty.
const NONE: u32 = u32::MAX;

/// Elements of any number of [`Ring`]s.
#[derive(Debug)]
pub(super) struct Rings<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    /// `None`: the slot is free.
    value: Option<T>,
    before: u32,
    after: u32,
}

/// One list, in the order of turns. It says nothing without the [`Rings`] that has its elements.
#[derive(Debug)]
pub(super) struct Ring {
    first: u32,
    last: u32,
    len: usize,
}

impl Default for Ring {
    fn default() -> Self {
        Self { first: NONE, last: NONE, len: 0 }
    }
}

impl Ring {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The element whose turn is next.
    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }
}

impl<T> Default for Rings<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Rings<T> {
    /// Adds an element at the end of a list. Returns its number.
    pub(super) fn push_back(&mut self, ring: &mut Ring, value: T) -> u32 {
        let slot = Slot { value: Some(value), before: NONE, after: NONE };
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[index(at)] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                u32::try_from(self.slots.len() - 1).expect("fewer than queues")
            }
        };
        self.link_last(ring, at);
        at
    }

    /// Removes an element of this list.
    pub(super) fn remove(&mut self, ring: &mut Ring, at: u32) -> Option<T> {
        let value = self.slots[index(at)].value.take()?;
        self.unlink(ring, at);
        self.free.push(at);
        Some(value)
    }

    /// An element of this list has had its turn: all others come first.
    #[inline]
    pub(super) fn move_last(&mut self, ring: &mut Ring, at: u32) {
        if ring.last != at {
            self.unlink(ring, at);
            self.link_last(ring, at);
        }
    }

    /// The element behind this one.
    #[inline]
    pub(super) fn after(&self, at: u32) -> Option<u32> {
        let after = self.slots[index(at)].after;
        (after != NONE).then_some(after)
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> Option<&T> {
        self.slots.get(index(at))?.value.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.slots.get_mut(index(at))?.value.as_mut()
    }

    /// The elements of a list, the one whose turn is next first.
    #[inline]
    pub(super) fn iter(&self, ring: &Ring) -> impl Iterator<Item = &T> {
        std::iter::successors(ring.first(), |&at| self.after(at)).filter_map(|at| self.get(at))
    }

    fn link_last(&mut self, ring: &mut Ring, at: u32) {
        let before = std::mem::replace(&mut ring.last, at);
        match before {
            NONE => ring.first = at,
            _ => self.slots[index(before)].after = at,
        }
        let slot = &mut self.slots[index(at)];
        (slot.before, slot.after) = (before, NONE);
        ring.len += 1;
    }

    fn unlink(&mut self, ring: &mut Ring, at: u32) {
        let Slot { before, after, .. } = self.slots[index(at)];
        match before {
            NONE => ring.first = after,
            _ => self.slots[index(before)].after = after,
        }
        match after {
            NONE => ring.last = before,
            _ => self.slots[index(after)].before = before,
        }
        ring.len -= 1;
    }
}

fn index(at: u32) -> usize {
    at as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_proto::placement::mix64;
    use std::collections::VecDeque;

    /// Two lists in one vector, against two plain ones.
    #[test]
    fn lists_keep_their_orders_whatever_is_done() {
        let _deadline = crate::deadline::deadline();
        let (mut rings, mut next) = (Rings::default(), 0u64);
        let mut lists = [(Ring::default(), VecDeque::new()), (Ring::default(), VecDeque::new())];
        for step in 0..20_000 {
            let dice = |nth: u64, sides: usize| {
                usize::try_from(mix64(3 * step + nth) % sides as u64).expect("few sides")
            };
            let (ring, plain) = &mut lists[dice(0, 2)];
            let at = dice(1, plain.len().max(1));
            match (dice(2, 3), plain.get(at).copied()) {
                (1, Some((slot, value))) => {
                    assert_eq!(rings.remove(ring, slot), Some(value));
                    assert!(rings.get(slot).is_none());
                    plain.remove(at);
                }
                (2, Some(element)) => {
                    rings.move_last(ring, element.0);
                    plain.remove(at);
                    plain.push_back(element);
                }
                _ => {
                    next += 1;
                    let slot = rings.push_back(ring, next);
                    plain.push_back((slot, next));
                }
            }
            for (ring, plain) in &lists {
                assert!(rings.iter(ring).eq(plain.iter().map(|(_, value)| value)));
                assert_eq!((ring.len(), ring.first()), (plain.len(), plain.front().map(|first| first.0)));
            }
        }
        assert!(rings.slots.len() < 1000, "slots are used again");
    }
}
