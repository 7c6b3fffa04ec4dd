// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The order in which actors are stepped: one heap of (time, tie, actor).
//!
//! ```text
//!   wake(actor, at) --> heap --> next(): the actor with the earliest time
//! ```
//! An actor has at most one time. A call with an earlier time replaces it; the old entry stays in the heap
//! and is skipped when it reaches the top. The seed draws the order of actors that have the same time.

use crate::dice::Dice;
use gnstor_base::time::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The next step time of each actor.
#[derive(Debug)]
pub struct Agenda {
    heap: BinaryHeap<Reverse<(Time, u32, u32)>>,
    /// For each actor: its time, and the tie of its valid entry in the heap.
    armed: Vec<(Time, u32)>,
    ties: Dice,
}

impl Agenda {
    /// An agenda of `actors` actors, none of which has a time.
    pub fn new(actors: usize, ties: Dice) -> Self {
        Self { heap: BinaryHeap::with_capacity(2 * actors), armed: vec![(Time::NEVER, 0); actors], ties }
    }

    /// Has the actor stepped at `at`, or at its present time if that is earlier.
    pub fn wake(&mut self, actor: u32, at: Time) {
        let armed = &mut self.armed[actor as usize];
        if at < armed.0 {
            let tie = u32::try_from(self.ties.bits() >> 32).expect("32 bits");
            *armed = (at, tie);
            self.heap.push(Reverse((at, tie, actor)));
        }
    }

    /// Takes out the actor to step next, with its time.
    pub fn pop(&mut self) -> Option<(Time, u32)> {
        while let Some(Reverse((at, tie, actor))) = self.heap.pop() {
            let armed = &mut self.armed[actor as usize];
            if *armed == (at, tie) {
                *armed = (Time::NEVER, 0);
                return Some((at, actor));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    fn order(seed: u64) -> Vec<u32> {
        let mut agenda = Agenda::new(16, Dice::new(seed, 0));
        (0..16).for_each(|actor| agenda.wake(actor, Time::from_ns(5)));
        std::iter::from_fn(|| agenda.pop()).map(|(_, actor)| actor).collect()
    }

    #[test]
    fn ties_are_broken_by_the_seed_alone() {
        let _deadline = deadline();
        let mut sorted = order(1);
        assert_eq!(sorted, order(1));
        assert_ne!(sorted, order(2));
        sorted.sort_unstable();
        assert_eq!(sorted, (0..16).collect::<Vec<_>>(), "each actor comes once");
    }

    #[test]
    fn an_actor_is_stepped_at_its_earliest_time_and_once() {
        let _deadline = deadline();
        let mut agenda = Agenda::new(2, Dice::new(1, 0));
        let at = Time::from_ns;
        agenda.wake(0, at(9));
        agenda.wake(1, at(7));
        agenda.wake(0, at(3));
        agenda.wake(0, at(5));
        assert_eq!(agenda.pop(), Some((at(3), 0)));
        agenda.wake(0, at(8));
        assert_eq!(agenda.pop(), Some((at(7), 1)));
        assert_eq!(agenda.pop(), Some((at(8), 0)));
        assert_eq!(agenda.pop(), None);
    }
}
