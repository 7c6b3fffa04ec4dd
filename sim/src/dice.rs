// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random numbers. Each part of the world has its own generator, so that a draw of one part changes no draw
//! of another.

use gnstor_proto::placement::mix64;

/// A generator (SplitMix64) with an explicit seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The generator of part `part` in the world with seed `seed`.
    pub fn new(seed: u64, part: u64) -> Self {
        Self(mix64(mix64(seed.wrapping_add(STEP)) ^ part.wrapping_mul(STEP)))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix64(self.0)
    }

    /// A number below `end`, which must not be 0. All are equally likely, within 2^-32.
    pub fn below(&mut self, end: u32) -> u32 {
        let product = (self.bits() >> 32) * u64::from(end);
        u32::try_from(product >> 32).expect("below `end`")
    }
}

/// SplitMix64's increment.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn each_number_comes_about_as_often_as_the_others() {
        let _deadline = deadline();
        let mut dice = Dice::new(7, 1);
        let mut seen = [0u32; 6];
        (0..60_000).for_each(|_| seen[dice.below(6) as usize] += 1);
        assert!(seen.iter().all(|&n| n.abs_diff(10_000) < 500), "{seen:?}");
    }

    #[test]
    fn seeds_and_parts_have_draws_of_their_own() {
        let _deadline = deadline();
        let first = |seed, part| Dice::new(seed, part).bits();
        assert_eq!(first(1, 2), first(1, 2));
        assert!(first(1, 2) != first(2, 1) && first(1, 2) != first(1, 3) && first(0, 0) != first(0, 1));
    }
}
