// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers that a seed draws.

use gnstor_proto::placement::mix64;

/// A generator (splitmix64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The dice of this seed and this purpose.
    pub fn new(seed: u64, purpose: u64) -> Self {
        Self(mix64(seed ^ mix64(purpose.wrapping_add(1))))
    }

    /// Any number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix64(self.0)
    }

    /// A number from `low` on and below `high`, which is above `low`.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.draw() % (high - low)
    }

    /// One of these.
    ///
    /// # Panics
    /// If there is none.
    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        let at = self.within(0, all.len() as u64);
        all[usize::try_from(at).expect("an index")]
    }

    /// True once in so many cases.
    pub fn once_in(&mut self, cases: u64) -> bool {
        self.within(0, cases) == 0
    }
}
