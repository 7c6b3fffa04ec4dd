// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whose turn it is among the I/O queues of one controller: round robin, or weighted round robin with an urgent class.
//!
//! ```text
//!   urgent  q q q ----------------------------+
//!   high    q q     credits 8 of a round --+  |
//!   medium  q       credits 4              +--+--> next command
//!   low     q q q q credits 2            --+
//! ```
//! Only queues with a command waiting are in a ring. A round ends when no class with a waiting command has credits
//! left. Within a class queues take turns, each for as many commands as the arbitration burst says. A controller in
//! plain round robin has all its queues in one class.

use gnstor_base::controller::QueueKey;
use std::collections::VecDeque;

/// Priority class of a queue; the numbers are those of Connect, CATTR bits 1:0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    Urgent = 0,
    High = 1,
    Medium = 2,
    Low = 3,
}

impl Class {
    pub(crate) fn from_cattr(cattr: u8) -> Self {
        match cattr & 3 {
            0 => Self::Urgent,
            1 => Self::High,
            2 => Self::Medium,
            _ => Self::Low,
        }
    }
}

/// Feature 01h as the arbiter needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Weights {
    /// Commands of one queue in a row; none: until it is empty.
    burst: Option<u32>,
    /// Commands of the high, medium and low class in a round, at least 1.
    credits: [u32; 3],
}

impl Weights {
    /// From CDW11 of Set Features: weights zero-based, high in 31:24, medium in 23:16, low in 15:8; log2 of the burst in
    /// 2:0, where 7 is no limit.
    pub(crate) fn from_feature(value: u32) -> Self {
        let [burst, low, medium, high] = value.to_le_bytes();
        let burst = burst & 7;
        Self {
            burst: (burst != 7).then_some(1 << burst),
            credits: [high, medium, low].map(|weight_z| u32::from(weight_z) + 1),
        }
    }
}

/// The queues of one controller that have a command waiting.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    rings: [VecDeque<QueueKey>; 4],
    /// Commands that the first queue of each ring had in a row.
    run: [u32; 4],
    credits: [u32; 3],
}

impl Turns {
    pub(crate) fn is_empty(&self) -> bool {
        self.rings.iter().all(VecDeque::is_empty)
    }

    /// A queue has its first command waiting.
    pub(crate) fn add(&mut self, key: QueueKey, class: Class) {
        self.rings[class as usize].push_back(key);
    }

    /// A queue has no command waiting any more, for another reason than [`Self::served`].
    pub(crate) fn remove(&mut self, key: QueueKey, class: Class) {
        let ring = &mut self.rings[class as usize];
        if let Some(at) = ring.iter().position(|&queue| queue == key) {
            ring.remove(at);
            if at == 0 {
                self.run[class as usize] = 0;
            }
        }
    }

    /// The queue whose first command is next, and where to tell [`Self::served`] of it.
    pub(crate) fn pick(&mut self, weights: &Weights) -> Option<(QueueKey, usize)> {
        if let Some(&key) = self.rings[0].front() {
            return Some((key, 0));
        }
        for _ in 0..2 {
            for class in 1..4 {
                if let Some(&key) = self.rings[class].front().filter(|_| self.credits[class - 1] > 0) {
                    self.credits[class - 1] -= 1;
                    return Some((key, class));
                }
            }
            self.credits = weights.credits;
        }
        None
    }

    /// A command of the picked queue was taken; whether it has `more`.
    pub(crate) fn served(&mut self, ring: usize, more: bool, weights: &Weights) {
        self.run[ring] += 1;
        if !more {
            self.rings[ring].pop_front();
            self.run[ring] = 0;
        } else if weights.burst.is_some_and(|burst| self.run[ring] >= burst) {
            self.rings[ring].rotate_left(1);
            self.run[ring] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// HPW 8, MPW 4, LPW 2, burst 1.
    const FEATURE: u32 = 7 << 24 | 3 << 16 | 1 << 8;

    fn serve(turns: &mut Turns, weights: &Weights, left: &mut [u32]) -> Option<usize> {
        let (key, ring) = turns.pick(weights)?;
        let queue = key.0 as usize;
        left[queue] -= 1;
        turns.served(ring, left[queue] > 0, weights);
        Some(queue)
    }

    #[test]
    fn classes_share_a_round_by_their_weights() {
        let weights = Weights::from_feature(FEATURE);
        let mut turns = Turns::default();
        for class in 1..4u8 {
            turns.add(QueueKey(class.into()), Class::from_cattr(class));
        }
        let mut left = [0, 1000, 1000, 1000];
        for round in 1..=10 {
            for _ in 0..14 {
                serve(&mut turns, &weights, &mut left);
            }
            assert_eq!(left, [0, 1000 - 8 * round, 1000 - 4 * round, 1000 - 2 * round]);
        }
    }

    #[test]
    fn a_class_that_has_nothing_leaves_its_share_to_the_others() {
        let weights = Weights::from_feature(FEATURE);
        let mut turns = Turns::default();
        turns.add(QueueKey(1), Class::High);
        turns.add(QueueKey(3), Class::Low);
        let mut left = [0, 1000, 0, 1000];
        for _ in 0..100 {
            serve(&mut turns, &weights, &mut left);
        }
        assert_eq!(left, [0, 920, 0, 980]);
    }

    #[test]
    fn a_burst_is_one_queue_in_a_row() {
        for (burst, want) in [(0u32, "010101"), (1, "001100"), (2, "000011"), (7, "000000")] {
            let weights = Weights::from_feature(burst);
            let mut turns = Turns::default();
            turns.add(QueueKey(0), Class::Low);
            turns.add(QueueKey(1), Class::Low);
            let mut left = [100, 100];
            let order: String = (0..6)
                .map(|_| {
                    serve(&mut turns, &weights, &mut left).map_or('-', |q| if q == 0 { '0' } else { '1' })
                })
                .collect();
            assert_eq!(order, want, "burst {burst}");
        }
    }

    proptest! {
        /// Whatever the classes and the load: every command is served once, urgent ones first, and nothing that waits
        /// outside the urgent class waits longer than the rounds of those before it.
        #[test]
        fn every_waiting_command_is_served_once(
            queues in proptest::collection::vec((0u8..4, 1u32..20), 1..12),
            feature: u32,
        ) {
            let weights = Weights::from_feature(feature);
            let mut turns = Turns::default();
            let mut left: Vec<u32> = queues.iter().map(|&(_, count)| count).collect();
            for (key, &(class, _)) in (0u32..).zip(&queues) {
                turns.add(QueueKey(key), Class::from_cattr(class));
            }
            let total: u32 = left.iter().sum();
            for _ in 0..total {
                let urgent_left = queues.iter().zip(&left).any(|(&(class, _), &left)| class == 0 && left > 0);
                let served = serve(&mut turns, &weights, &mut left).expect("commands are left");
                prop_assert_eq!(queues[served].0 == 0, urgent_left);
            }
            prop_assert!(turns.is_empty() && turns.pick(&weights).is_none());
        }
    }
}
