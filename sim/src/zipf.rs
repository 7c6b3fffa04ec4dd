// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Zipf's distribution, from a table of whole numbers: place k is drawn in proportion to 1 / k^s. Integer
//! squares and square roots give the powers, so that the table is the same on every machine.

use crate::dice::Dice;

/// Fraction bits of a weight. The sum of 2^20 weights, each at most 1, is below 2^63.
const POINT: u32 = 42;
/// Fraction bits of a logarithm.
const LOG_BITS: u32 = 32;

/// Draws places below a fixed number.
#[derive(Debug)]
pub struct Zipf {
    /// Sums of the weights up to each place.
    sums: Vec<u64>,
}

impl Zipf {
    /// A distribution over `places` places. The exponent is in thousandths.
    pub fn new(places: u32, exponent_permille: u32) -> Self {
        let roots = roots();
        let mut sum = 0;
        let weight = |place| power(log2(place) * u128::from(exponent_permille) / 1000, &roots);
        let sums = (1..=places).map(|place| {
            sum += weight(place).max(1);
            sum
        });
        Self { sums: sums.collect() }
    }

    /// Draws a place. Place 0 comes most often.
    pub fn draw(&self, dice: &mut Dice) -> u32 {
        let total = self.sums.last().copied().unwrap_or(1);
        let at = u64::try_from((u128::from(dice.bits()) * u128::from(total)) >> 64).expect("below the total");
        u32::try_from(self.sums.partition_point(|&sum| sum <= at)).expect("below `places`")
    }
}

/// Logarithm to base 2 of a number that is not 0.
fn log2(number: u32) -> u128 {
    let whole = number.ilog2();
    // In [1, 2), with 62 bits behind the point.
    let mut rest = u128::from(number) << 62 >> whole;
    let mut log = u128::from(whole) << LOG_BITS;
    for bit in (0..LOG_BITS).rev() {
        rest = (rest * rest) >> 62;
        if rest >= 2 << 62 {
            rest >>= 1;
            log |= 1 << bit;
        }
    }
    log
}

/// 2^(-1/2), 2^(-1/4), and so on, with 62 bits behind the point.
fn roots() -> [u128; LOG_BITS as usize] {
    let mut root = 1u128 << 61;
    std::array::from_fn(|_| {
        root = (root << 62).isqrt();
        root
    })
}

/// 2^-log.
fn power(log: u128, roots: &[u128; LOG_BITS as usize]) -> u64 {
    let mut power = 1u128 << 62;
    for (root, bit) in roots.iter().zip((0..LOG_BITS).rev()) {
        if log >> bit & 1 == 1 {
            power = (power * root) >> 62;
        }
    }
    u64::try_from(power >> (log >> LOG_BITS) >> (62 - POINT)).expect("at most 1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    #[expect(clippy::cast_precision_loss, reason = "a comparison with the library's power")]
    fn weights_are_the_powers_that_they_stand_for() {
        let _deadline = deadline();
        let roots = roots();
        for exponent in [0u32, 500, 990, 1000, 1200] {
            for place in [1u32, 2, 3, 10, 1000, 65_537, 1 << 20] {
                let weight = power(log2(place) * u128::from(exponent) / 1000, &roots) as f64;
                let wanted = f64::from(place).powf(-f64::from(exponent) / 1000.0) * 2f64.powi(42);
                assert!((weight / wanted - 1.0).abs() < 1e-4, "{place}^-{exponent}: {weight} for {wanted}");
            }
        }
    }

    #[test]
    fn places_are_drawn_as_often_as_their_weights_say() {
        let _deadline = deadline();
        let (zipf, mut dice, mut seen) = (Zipf::new(4, 1000), Dice::new(3, 1), [0u32; 4]);
        (0..250_000).for_each(|_| seen[zipf.draw(&mut dice) as usize] += 1);
        // 1 + 1/2 + 1/3 + 1/4 = 25/12
        for (count, wanted) in seen.iter().zip([120_000u32, 60_000, 40_000, 30_000]) {
            assert!(count.abs_diff(wanted) < 1500, "{seen:?}");
        }
    }
}
