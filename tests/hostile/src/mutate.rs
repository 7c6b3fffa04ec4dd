// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzzing without the tools of a fuzzer: inputs of a corpus, mutated as a seed says.
//!
//! `GNSTOR_FUZZ_SECONDS` sets how long a target runs, and `GNSTOR_FUZZ_SEED` its first seed. The same seed
//! mutates the same inputs in the same way.
#![expect(clippy::disallowed_methods, reason = "how long to go on is a matter of the wall clock")]

use crate::random::Random;
use std::time::Instant;

/// Largest size to which a mutation lengthens an input.
const LONGEST: usize = 1 << 16;
/// Numbers at which code often changes its behaviour.
const EDGES: [u32; 10] = [0, 1, 0x7F, 0x80, 0xFF, 0x0FFF, 0x1000, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs at least `least` seeds, and more while the time of the environment lasts. Returns the number of
/// seeds.
pub fn seeds(least: u64, mut run: impl FnMut(u64)) -> u64 {
    let (first, seconds) =
        (number("GNSTOR_FUZZ_SEED").unwrap_or(0), number("GNSTOR_FUZZ_SECONDS").unwrap_or(0));
    let start = Instant::now();
    let mut count = 0;
    while count < least || start.elapsed().as_secs() < seconds {
        let seed = first.wrapping_add(count);
        if count.is_multiple_of(1000) {
            println!("seed {seed}");
        }
        run(seed);
        count += 1;
    }
    count
}

/// An input of the corpus, mutated one to four times.
///
/// # Panics
/// If the corpus is empty.
pub fn bent(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut input = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(4) {
        bend(random, corpus, &mut input);
    }
    input
}

fn bend(random: &mut Random, corpus: &[Vec<u8>], input: &mut Vec<u8>) {
    let length = input.len();
    if length == 0 {
        let count = 1 + random.below(64);
        *input = random.bytes(count);
        return;
    }
    let at = random.below(length);
    match random.below(8) {
        0 | 1 => input[at] ^= 1 << random.below(8),
        2 => input[at] = random.bytes(1)[0],
        3 => {
            let edge = EDGES[random.below(EDGES.len())].to_le_bytes();
            let end = (at + 1 + random.below(4)).min(length);
            input[at..end].copy_from_slice(&edge[..end - at]);
        }
        4 => input.truncate(at),
        5 => {
            let end = at + random.below(length - at + 1);
            drop(input.drain(at..end));
        }
        6 => {
            let piece = input[at..(at + 1 + random.below(64)).min(length)].to_vec();
            input.splice(at..at, piece);
        }
        _ => {
            let other = &corpus[random.below(corpus.len())];
            let from = random.below(other.len().max(1));
            input.truncate(at);
            input.extend_from_slice(&other[from.min(other.len())..]);
        }
    }
    input.truncate(LONGEST);
}

/// Splits a corpus file. Each input follows its length of 4 bytes, little-endian.
///
/// # Panics
/// If the file has another form.
pub fn inputs(file: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = file;
    let mut inputs = Vec::new();
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let (input, tail) = tail.split_at_checked(length).expect("the file ends within an input");
        inputs.push(input.to_vec());
        rest = tail;
    }
    assert!(rest.is_empty() && !inputs.is_empty(), "a corpus file ends with an input");
    inputs
}

/// The bytes of a corpus file with these inputs.
///
/// # Panics
/// If an input has 4 GiB or more.
pub fn file_of(inputs: &[Vec<u8>]) -> Vec<u8> {
    let length = |input: &Vec<u8>| u32::try_from(input.len()).expect("far shorter").to_le_bytes();
    inputs.iter().flat_map(|input| [&length(input)[..], input].concat()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_bends_in_one_way_and_most_inputs_change() {
        let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
        let corpus = vec![vec![1, 2, 3, 4], vec![9; 100], Vec::new()];
        let run = |seed| {
            let mut random = Random::new(seed);
            (0..1000).map(|_| bent(&mut random, &corpus)).collect::<Vec<_>>()
        };
        let (first, other) = (run(1), run(2));
        assert_eq!(first, run(1));
        assert_ne!(first, other);
        let changed = first.iter().filter(|input| !corpus.contains(input)).count();
        assert!(changed > 900, "{changed} of 1000 were bent");
        assert_eq!(inputs(&file_of(&corpus)), corpus);
    }
}
