// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The mark of a boot: it tells volatile words of this boot from words that older boots left in the file.
//!
//! ```text
//!   31                      8 7           0
//!  +-------------------------+-------------+
//!  | boot                    | crc-8 of it |
//!  +-------------------------+-------------+
//! ```
//! No checksum in the file covers those words. The marks of two boots differ in at least four bits. So up
//! to three flipped bits never turn an older word into a current one.

/// The last boot that has a mark.
pub(crate) const LAST_BOOT: u32 = (1 << 24) - 1;

/// x^8 + x^2 + x + 1: distance 4 over up to 119 bits.
const POLYNOMIAL: u8 = 0x07;

/// The mark of a boot.
pub(crate) fn mark(boot: u32) -> u32 {
    debug_assert!(boot <= LAST_BOOT);
    let [low, middle, high, _] = boot.to_le_bytes();
    let crc = [high, middle, low].into_iter().fold(0u8, |crc, byte| {
        (0..8).fold(crc ^ byte, |crc, _| if crc & 0x80 == 0 { crc << 1 } else { crc << 1 ^ POLYNOMIAL })
    });
    boot << 8 | u32::from(crc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_two_boots_differ_in_four_bits() {
        let _deadline = crate::tests::deadline();
        // The code is linear: the distance of two marks is the weight of the mark of their boots' difference.
        assert_eq!(mark(5) ^ mark(600), mark(5 ^ 600));
        let least = (1..=LAST_BOOT).map(|difference| mark(difference).count_ones()).min();
        assert_eq!(least, Some(4));
    }
}
