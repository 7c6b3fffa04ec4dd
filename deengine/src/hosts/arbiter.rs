// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The arbiter of one controller: round robin among its I/O queues, or weighted round robin with an urgent
//! class.
//!
//! ```text
//!   urgent  q q q ----------------------------+
//!   high    q q     credits 8 of a round --+  |
//!   medium  q       credits 4              +--+--> next command
//!   low     q q q q credits 2            --+
//! ```
//! Only queues with a command waiting are in a ring. A round ends when no class with a waiting command has
//! credits left. Within a class queues take turns, each for as many commands as the arbitration burst
//! says. A controller in plain round robin has all its queues in one class. Then every worker takes turns
//! among its own queues. With weights the order is one for all queues of the controller, so its workers
//! share the rings.

use gnstor_base::controller::QueueKey;
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

/// The arbiter of one controller's queues.
#[derive(Debug)]
pub(crate) struct Arbiter {
    /// Feature 01h.
    feature: AtomicU32,
    /// With weighted round robin: the order of all queues, on whichever worker they are.
    weighted: Option<Mutex<RoundRobin>>,
}

impl Arbiter {
    /// An arbiter with this value of feature 01h.
    pub(crate) fn new(is_weighted: bool, feature: u32) -> Self {
        Self { feature: AtomicU32::new(feature), weighted: is_weighted.then(Mutex::default) }
    }

    pub(crate) fn set_feature(&self, feature: u32) {
        self.feature.store(feature, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_weighted(&self) -> bool {
        self.weighted.is_some()
    }

    #[inline]
    pub(crate) fn weights(&self) -> Weights {
        Weights::from_feature(self.feature.load(Ordering::Relaxed))
    }

    /// The rings that all workers share; `None` if each worker has its own.
    #[inline]
    pub(crate) fn shared_order(&self) -> Option<MutexGuard<'_, RoundRobin>> {
        self.weighted.as_ref().map(Mutex::lock)
    }
}

/// Priority class of a queue, numbered as in Connect, CATTR bits 1:0.
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
    /// Number of commands of one queue in a row; `None`: until it is empty.
    burst: Option<u32>,
    /// Commands of the high, medium and low class in a round, at least 1.
    credits: [u32; 3],
}

impl Weights {
    /// From CDW11 of Set Features: weights zero-based, high in 31:24, medium in 23:16, low in 15:8. Bits 2:0
    /// are log2 of the burst, where 7 is no limit.
    pub(crate) fn from_feature(value: u32) -> Self {
        let [burst, low, medium, high] = value.to_le_bytes();
        let burst = burst & 7;
        Self {
            burst: (burst != 7).then_some(1 << burst),
            credits: [high, medium, low].map(|weight_z| u32::from(weight_z) + 1),
        }
    }
}

/// The queues of one controller with a pending command.
#[derive(Debug, Default)]
pub(crate) struct RoundRobin {
    rings: [VecDeque<QueueKey>; 4],
    /// Commands that the first queue of each ring had in a row.
    run: [u32; 4],
    credits: [u32; 3],
}

impl RoundRobin {
    /// A queue has its first command waiting.
    pub(crate) fn add(&mut self, key: QueueKey, class: Class) {
        self.rings[class as usize].push_back(key);
    }

    /// Removes a queue that has no command any more, for another reason than [`Self::took`]. Returns whether
    /// it had one.
    pub(crate) fn remove(&mut self, key: QueueKey) -> bool {
        for (ring, run) in self.rings.iter_mut().zip(&mut self.run) {
            let Some(at) = ring.iter().position(|&queue| queue == key) else { continue };
            ring.remove(at);
            if at == 0 {
                *run = 0;
            }
            return true;
        }
        false
    }

    /// The queue whose first command is next, and its ring.
    #[inline]
    pub(crate) fn next(&self) -> Option<(QueueKey, usize)> {
        let first = |ring: usize| self.rings[ring].front().map(|&key| (key, ring));
        let with_credit = |ring: usize| first(ring).filter(|_| self.credits[ring - 1] > 0);
        // If no class with a command has credits left, a new round begins.
        first(0).or_else(|| (1..4).find_map(with_credit)).or_else(|| (1..4).find_map(first))
    }

    /// Notes that the command which [`Self::next`] named was taken. `more`: its queue has further ones.
    #[inline]
    pub(crate) fn took(&mut self, ring: usize, more: bool, weights: &Weights) {
        if let Some(class) = ring.checked_sub(1) {
            if self.credits[class] == 0 {
                self.credits = weights.credits;
            }
            self.credits[class] -= 1;
        }
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
    use crate::deadline::deadline;
    use proptest::prelude::*;

    /// HPW 8, MPW 4, LPW 2, burst 1.
    const FEATURE: u32 = 7 << 24 | 3 << 16 | 1 << 8;

    fn serve(order: &mut RoundRobin, weights: &Weights, left: &mut [u32]) -> Option<usize> {
        let (key, ring) = order.next()?;
        let queue = key.0 as usize;
        left[queue] -= 1;
        order.took(ring, left[queue] > 0, weights);
        Some(queue)
    }

    #[test]
    fn classes_share_a_round_by_their_weights() {
        let _deadline = deadline();
        let weights = Weights::from_feature(FEATURE);
        let mut order = RoundRobin::default();
        for class in 1..4u8 {
            order.add(QueueKey(class.into()), Class::from_cattr(class));
        }
        let mut left = [0, 1000, 1000, 1000];
        for round in 1..=10 {
            for _ in 0..14 {
                serve(&mut order, &weights, &mut left);
            }
            assert_eq!(left, [0, 1000 - 8 * round, 1000 - 4 * round, 1000 - 2 * round]);
        }
    }

    #[test]
    fn an_empty_class_leaves_its_share_to_the_others() {
        let _deadline = deadline();
        let weights = Weights::from_feature(FEATURE);
        let mut order = RoundRobin::default();
        order.add(QueueKey(1), Class::High);
        order.add(QueueKey(3), Class::Low);
        let mut left = [0, 1000, 0, 1000];
        for _ in 0..100 {
            serve(&mut order, &weights, &mut left);
        }
        assert_eq!(left, [0, 920, 0, 980]);
    }

    #[test]
    fn a_burst_is_one_queue_in_a_row() {
        let _deadline = deadline();
        for (burst, want) in [(0u32, "010101"), (1, "001100"), (2, "000011"), (7, "000000")] {
            let weights = Weights::from_feature(burst);
            let mut order = RoundRobin::default();
            order.add(QueueKey(0), Class::Low);
            order.add(QueueKey(1), Class::Low);
            let mut left = [100, 100];
            let order: String = (0..6)
                .map(|_| {
                    serve(&mut order, &weights, &mut left).map_or('-', |q| if q == 0 { '0' } else { '1' })
                })
                .collect();
            assert_eq!(order, want, "burst {burst}");
        }
    }

    proptest! {
        /// With any classes and load, every command is served once, and urgent ones come first.
        #[test]
        fn every_waiting_command_is_served_once(
            queues in proptest::collection::vec((0u8..4, 1u32..20), 1..12),
            feature: u32,
        ) {
            let _deadline = deadline();
            let weights = Weights::from_feature(feature);
            let mut order = RoundRobin::default();
            let mut left: Vec<u32> = queues.iter().map(|&(_, count)| count).collect();
            for (key, &(class, _)) in (0u32..).zip(&queues) {
                order.add(QueueKey(key), Class::from_cattr(class));
            }
            let total: u32 = left.iter().sum();
            for _ in 0..total {
                let urgent_left = queues.iter().zip(&left).any(|(&(class, _), &left)| class == 0 && left > 0);
                let served = serve(&mut order, &weights, &mut left).expect("commands are left");
                prop_assert_eq!(queues[served].0 == 0, urgent_left);
            }
            prop_assert!(order.next().is_none());
        }
    }
}
