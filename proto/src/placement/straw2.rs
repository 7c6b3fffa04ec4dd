// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The draw of one SSD for one placement group, in integers only.

/// The straw of one draw: `-ln(u) / weight` in fixed point, where u is uniform in (0, 1]. The shortest
/// straw wins.
pub(super) fn straw2(hash: u64, weight: u32) -> u64 {
    let u = (hash >> 16) + 1; // 1..=2^48
    let neg_ln = (48u64 << LOG_BITS) - log2_fixed(u); // -log2(u / 2^48) >= 0, Q.40
    (neg_ln << 8) / u64::from(weight)
}

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
