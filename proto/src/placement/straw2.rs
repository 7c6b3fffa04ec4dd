// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The draw of one SSD for one placement group, in integers only.

use core::cell::Cell;
use core::cmp::Ordering;

/// The straw of one SSD for one group. The shortest straw wins.
///
/// Its length needs a logarithm, which takes longer than the rest of a draw. So two straws of the same weight
/// are compared by `u`, unless their values of `u` are almost equal.
#[derive(Clone, Debug)]
pub(super) struct Straw {
    /// Uniform in 1..=2^48.
    u: u64,
    weight: u32,
    /// Length of the straw, once it was computed.
    length: Cell<Option<u64>>,
}

/// If `u` of two straws differs by more than one part in `2^NEAR_SHIFT`, their logarithms differ by more than
/// `2^(LOG_BITS - NEAR_SHIFT)` in fixed point. That is far more than the error of the logarithm.
const NEAR_SHIFT: u32 = 24;
/// Up to this weight the lengths still differ after the division by the weight.
const MOST_WEIGHT: u32 = 1 << (LOG_BITS - NEAR_SHIFT + WEIGHT_SHIFT);

impl Straw {
    /// The straw of an SSD of this weight, which must not be 0.
    pub(super) fn new(hash: u64, weight: u32) -> Self {
        Self { u: (hash >> 16) + 1, weight, length: Cell::new(None) }
    }

    /// Compares the lengths of two straws.
    pub(super) fn cmp(&self, other: &Self) -> Ordering {
        let is_near = self.u.abs_diff(other.u) <= self.u.max(other.u) >> NEAR_SHIFT;
        if is_near || self.weight != other.weight || self.weight > MOST_WEIGHT {
            return self.length().cmp(&other.length());
        }
        // The length falls as u grows.
        other.u.cmp(&self.u)
    }

    /// `-ln(u / 2^48) / weight` in fixed point.
    pub(super) fn length(&self) -> u64 {
        self.length.get().unwrap_or_else(|| {
            let neg_ln = (48u64 << LOG_BITS) - log2_fixed(self.u); // -log2(u / 2^48) >= 0, Q.40
            let length = (neg_ln << WEIGHT_SHIFT) / u64::from(self.weight);
            self.length.set(Some(length));
            length
        })
    }
}

const WEIGHT_SHIFT: u32 = 8;
const LOG_BITS: u32 = 40;

/// log2 of `x` >= 1 with 40 fractional bits, by repeated squaring: the same on every machine, unlike
/// `f64::ln`.
fn log2_fixed(x: u64) -> u64 {
    let whole = 63 - x.leading_zeros();
    let mut mantissa = x << (63 - whole); // [1, 2) in Q1.63
    let mut log = u64::from(whole) << LOG_BITS;
    for bit in (0..LOG_BITS).rev() {
        let square = (u128::from(mantissa) * u128::from(mantissa)) >> 63; // [1, 4) in Q.63
        #[expect(clippy::cast_possible_truncation, reason = "the shift brings it below 2^64")]
        if square >> 64 != 0 {
            log |= 1 << bit;
            mantissa = (square >> 1) as u64;
        } else {
            mantissa = square as u64;
        }
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// The comparison agrees with the lengths, for straws that are far apart and at the border of the
        /// shortcut.
        #[test]
        fn straws_are_compared_as_their_lengths_are(
            a: u64, far: u64, near in -4i64..5, parts in 0u64..5, own: u32, others: u32, are_alike: bool,
        ) {
            let _deadline = Deadline::after(LIMIT);
            let weight = own.max(1);
            let other = if are_alike { weight } else { others.max(1) };
            let beside = a.saturating_add((a >> NEAR_SHIFT) * parts).saturating_add_signed(near << 16);
            for b in [far, beside] {
                for (weight, other) in [(weight, other), (1 << 16, 1 << 16), (MOST_WEIGHT, MOST_WEIGHT)] {
                    let (a, b) = (Straw::new(a, weight), Straw::new(b, other));
                    let quick = a.cmp(&b);
                    prop_assert_eq!(quick, a.length().cmp(&b.length()), "{:?} and {:?}", a, b);
                }
            }
        }
    }

    #[test]
    fn the_fixed_point_logarithm_is_right() {
        let _deadline = Deadline::after(LIMIT);
        for x in [1u64, 2, 3, 10, 1 << 20, (1 << 48) - 1, 1 << 48] {
            #[expect(clippy::cast_precision_loss, reason = "a comparison with a tolerance")]
            let (got, want) = (log2_fixed(x) as f64 / (1u64 << LOG_BITS) as f64, (x as f64).log2());
            assert!((got - want).abs() < 1e-9, "log2({x}) = {got}, not {want}");
        }
    }
}
