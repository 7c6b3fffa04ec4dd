// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A queue of events by time. The queue moves its entries, so they are small; the events themselves are
//! stored beside it.

use gnstor_base::time::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Future events. Events with the same time keep the order of their insertion.
#[derive(Debug)]
pub(super) struct Events<T> {
    queue: BinaryHeap<Reverse<(Time, u64, u32)>>,
    /// The things; the last word of an entry of `queue` is the index here.
    items: Vec<T>,
    free: Vec<u32>,
    next: u64,
}

impl<T> Default for Events<T> {
    fn default() -> Self {
        Self { queue: BinaryHeap::new(), items: Vec::new(), free: Vec::new(), next: 0 }
    }
}

impl<T: Copy> Events<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Time of the next event.
    #[inline]
    pub(super) fn first(&self) -> Option<Time> {
        self.queue.peek().map(|&Reverse((at, ..))| at)
    }

    #[inline]
    pub(super) fn push(&mut self, at: Time, what: T) {
        let name = match self.free.pop() {
            Some(name) => {
                self.items[name as usize] = what;
                name
            }
            None => {
                self.items.push(what);
                u32::try_from(self.items.len() - 1).expect("far fewer events than 2^32")
            }
        };
        self.next += 1;
        self.queue.push(Reverse((at, self.next, name)));
    }

    /// Takes the next event that is due by `now`, with its time.
    #[inline]
    pub(super) fn pop_due(&mut self, now: Time) -> Option<(Time, T)> {
        if self.first()? > now {
            return None;
        }
        let Reverse((at, _, name)) = self.queue.pop()?;
        self.free.push(name);
        Some((at, self.items[name as usize]))
    }
}

/// Names a message in [`Messages`].
pub(super) type Message = u32;

/// The bytes of messages under way, apart from their events: most events have none.
#[derive(Default)]
pub(super) struct Messages {
    items: Vec<[u8; 64]>,
    free: Vec<Message>,
}

impl Messages {
    /// The first bytes of a message, which stays.
    pub(super) fn peek<const N: usize>(&self, name: Message) -> [u8; N] {
        *self.items[name as usize].first_chunk().expect("messages are at most 64 bytes")
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> Message {
        let name = self.free.pop().unwrap_or_else(|| {
            self.items.push([0; 64]);
            u32::try_from(self.items.len() - 1).expect("far fewer messages than 2^32")
        });
        self.items[name as usize][..bytes.len()].copy_from_slice(bytes);
        name
    }

    pub(super) fn take<const N: usize>(&mut self, name: Message) -> [u8; N] {
        self.free.push(name);
        *self.items[name as usize].first_chunk().expect("messages are at most 64 bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn events_come_in_the_order_of_their_times_and_then_as_they_were_put_in() {
        let _deadline = deadline();
        let mut events = Events::default();
        let at = Time::from_ns;
        for (time, what) in [(5, 'd'), (3, 'a'), (3, 'b'), (4, 'c')] {
            events.push(at(time), what);
        }
        assert_eq!((events.first(), events.pop_due(at(2))), (Some(at(3)), None));
        assert_eq!(events.pop_due(at(4)), Some((at(3), 'a')));
        events.push(at(4), 'e');
        let rest: Vec<_> = std::iter::from_fn(|| events.pop_due(at(9))).collect();
        assert_eq!(rest, [(at(3), 'b'), (at(4), 'c'), (at(4), 'e'), (at(5), 'd')]);
        assert!(events.is_empty() && events.items.len() == 4, "a place is used again");
    }
}
