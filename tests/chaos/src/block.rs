// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bytes of a block name the write that they are of, in each of its lines of 64 bytes.
//!
//! ```text
//!   word   0      1      2      3       4         5       6      7
//!        magic | life | block | lease | counter | writer | line | mix of the seven before
//! ```

use gnstor_proto::placement::mix64;
use serde::{Deserialize, Serialize};

/// Bytes of a block.
pub const BLOCK: usize = 4096;
const LINE: usize = 64;
const MAGIC: u64 = 0x736f_6168_6372_6f67;

/// A volume between its creation and its deletion: its id, and how often that id was given out.
pub type Life = u64;

/// The life of a volume.
pub fn life_of(vid: u32, generation: u32) -> Life {
    u64::from(vid) << 32 | u64::from(generation)
}

/// Order of the writes of a block: by write lease, and by counter within it. Nothing was written: (0, 0).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Stamp(pub u32, pub u64);

/// What a block holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Found {
    /// Zeros: never written, or unmapped.
    Zeros,
    /// The bytes of one write: life, block, stamp and writer.
    Of(Life, u32, Stamp, u32),
    /// Anything else, and where it begins.
    Mixed(String),
}

fn words(life: Life, block: u32, stamp: Stamp, writer: u32, line: usize) -> [u64; 8] {
    let named = [MAGIC, life, block.into(), stamp.0.into(), stamp.1, writer.into(), line as u64];
    let mixed = named.iter().fold(0, |mixed, word| mix64(mixed ^ word));
    let [a, b, c, d, e, f, g] = named;
    [a, b, c, d, e, f, g, mixed]
}

/// The bytes of one block of a write.
pub fn bytes_of(life: Life, block: u32, stamp: Stamp, writer: u32) -> Vec<u8> {
    let lines = (0..BLOCK / LINE).map(|line| words(life, block, stamp, writer, line));
    lines.flatten().flat_map(u64::to_le_bytes).collect()
}

/// Which write the bytes of a block are of.
///
/// # Panics
/// If it is not one block.
pub fn found_in(bytes: &[u8]) -> Found {
    assert_eq!(bytes.len(), BLOCK, "one block");
    if bytes.iter().all(|byte| *byte == 0) {
        return Found::Zeros;
    }
    let word = |at: usize| u64::from_le_bytes(bytes[at * 8..at * 8 + 8].try_into().expect("eight bytes"));
    let small = |at: usize| u32::try_from(word(at)).unwrap_or(u32::MAX);
    let (life, block, stamp, writer) = (word(1), small(2), Stamp(small(3), word(4)), small(5));
    let right = bytes_of(life, block, stamp, writer);
    match bytes.chunks(LINE).zip(right.chunks(LINE)).position(|(got, want)| got != want) {
        None => Found::Of(life, block, stamp, writer),
        Some(line) => {
            let end: Vec<u64> = (0..8).map(|at| word(line * 8 + at)).collect();
            Found::Mixed(format!("begins as life {life:#x} block {block} {stamp:?}; line {line} is {end:x?}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_names_its_write_and_one_of_two_writes_is_mixed() {
        let _deadline = gnstor_base::testing::deadline();
        let one = bytes_of(7 << 32 | 3, 5, Stamp(2, 9), 1);
        let other = bytes_of(7 << 32 | 3, 5, Stamp(2, 10), 1);
        assert_eq!(found_in(&one), Found::Of(7 << 32 | 3, 5, Stamp(2, 9), 1));
        assert_eq!(found_in(&[0; BLOCK]), Found::Zeros);
        for cut in [64, 512, 2048, 4032] {
            let torn = [&one[..cut], &other[cut..]].concat();
            assert!(matches!(found_in(&torn), Found::Mixed(_)), "torn at {cut}");
            let zeroed = [&one[..cut], &vec![0; BLOCK - cut]].concat();
            assert!(matches!(found_in(&zeroed), Found::Mixed(_)), "zeros from {cut} on");
        }
        let mut flipped = one;
        flipped[4000] ^= 1;
        assert!(matches!(found_in(&flipped), Found::Mixed(_)));
    }
}
