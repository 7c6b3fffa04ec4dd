// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The block sum: 32 bits over the 1,024 little-endian words of a 4 KiB block.
//!
//! The part that moves the data computes it: copy warps of the emulated HCA, or the CPU. They take the words
//! in any order. So the sum is a wrapping sum of `mix(word + (index + 1) * STEP)`. `mix` is a bijection of
//! 32-bit words, so a change of any single word always changes the sum. A change of several words goes
//! unnoticed with a chance of 2^-32. The sum detects faults, not attacks.

use crate::BLOCK_BYTES;

const STEP: u32 = 0x9E37_79B9;

/// The bijection `mix` of the sum (the 32-bit finaliser of MurmurHash3).
pub const fn mix(word: u32) -> u32 {
    let mut x = word;
    x ^= x >> 16;
    x = x.wrapping_mul(0x85EB_CA6B);
    x ^= x >> 13;
    x = x.wrapping_mul(0xC2B2_AE35);
    x ^ (x >> 16)
}

/// The sum of one block.
///
/// # Panics
/// If `block` is not [`BLOCK_BYTES`] long.
pub fn block_sum(block: &[u8]) -> u32 {
    assert_eq!(block.len(), BLOCK_BYTES as usize, "a block sum is taken over one whole block");
    let mut salt = 0u32;
    let mut sum = 0u32;
    for word in block.chunks_exact(4) {
        salt = salt.wrapping_add(STEP);
        let value = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        sum = sum.wrapping_add(mix(value.wrapping_add(salt)));
    }
    sum
}

/// CRC-32C of a structure that holds its own checksum. The four bytes of the checksum, at offset `at`, count
/// as zeros.
///
/// # Panics
/// If the structure ends before `at + 4`.
pub(crate) fn crc_around(bytes: &[u8], at: usize) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..at]), &[0; 4]);
    crc32c::crc32c_append(crc, &bytes[at + 4..])
}

/// Computes [`crc_around`] of a structure and writes it at offset `at`.
pub(crate) fn seal_around(bytes: &mut [u8], at: usize) {
    let crc = crc_around(bytes, at);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_changed_word_changes_the_sum(seed: u32, index in 0usize..1024, flip in 1u32..) {
            let _deadline = Deadline::after(LIMIT);
            let mut block = [0u8; BLOCK_BYTES as usize];
            for (i, word) in block.chunks_exact_mut(4).enumerate() {
                word.copy_from_slice(&mix(seed.wrapping_add(u32::try_from(i).unwrap())).to_le_bytes());
            }
            let before = block_sum(&block);
            let at = index * 4;
            let value = u32::from_le_bytes(block[at..at + 4].try_into().unwrap()) ^ flip;
            block[at..at + 4].copy_from_slice(&value.to_le_bytes());
            prop_assert_ne!(before, block_sum(&block));
        }
    }

    #[test]
    fn swapped_words_change_the_sum() {
        let _deadline = Deadline::after(LIMIT);
        let mut block = [0u8; BLOCK_BYTES as usize];
        block[0] = 1;
        let first = block_sum(&block);
        block[0] = 0;
        block[4] = 1;
        assert_ne!(first, block_sum(&block));
    }
}
