// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Rust ends of the two rings between the executors of the HCA. The other ends are in
//! `fabric/cuda/fabric/hca/{up,agent}.cuh`.
//!
//! The rings are generic over the word, so that `tests/loom/rings.rs` can check them with loom's.

use super::abi::{PHASE_BIT, UP_ARG, UP_EVEN_SHIFT, UP_ODD_SHIFT, UP_PAYLOAD, UpEntry};
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::IntoBytes;

/// A 64-bit word that another agent can see, with the accesses the rings use.
pub trait Word {
    /// Acquire load.
    fn load_acquire(&self) -> u64;
    /// Release store.
    fn store_release(&self, value: u64);
}

impl Word for AtomicU64 {
    fn load_acquire(&self) -> u64 {
        self.load(Ordering::Acquire)
    }
    fn store_release(&self, value: u64) {
        self.store(value, Ordering::Release);
    }
}

/// Words of an up entry.
pub const UP_WORDS: usize = 16;
/// Words of a down descriptor.
pub const DOWN_WORDS: usize = 8;

/// Consumer of the up ring.
#[derive(Debug, Default)]
pub struct UpRing {
    head: u64,
}

impl UpRing {
    fn place_of<W, const N: usize>(words: &[W], position: u64) -> usize {
        usize::try_from(position).expect("64-bit host") % (words.len() / N) * N
    }

    /// Takes the next entry, if its producer has published it. `words` is the ring. In `head_word` the
    /// producers read how far the consumer is.
    pub fn pop<W: Word>(&mut self, words: &[W], head_word: &W) -> Option<UpEntry> {
        self.pop_words(words, head_word).map(take_apart)
    }

    /// As [`Self::pop`], for entries of `N` words, with their phases.
    pub fn pop_words<W: Word, const N: usize>(&mut self, words: &[W], head_word: &W) -> Option<[u64; N]> {
        let entries = words.len() / N;
        debug_assert!(entries.is_power_of_two());
        let at = Self::place_of::<W, N>(words, self.head);
        let entry = &words[at..at + N];
        let pass = self.head / entries as u64;
        let phase = if pass.is_multiple_of(2) { PHASE_BIT } else { 0 };
        if entry[0].load_acquire() & PHASE_BIT != phase {
            return None;
        }
        // The words may become visible in any order. Pairs with the fence in up_push_together: a copied byte
        // is before the entry.
        let raw: [u64; N] = std::array::from_fn(|i| entry[i].load_acquire());
        if raw.iter().any(|word| word & PHASE_BIT != phase) {
            return None;
        }
        self.head += 1;
        // Pairs with the acquire in up_reserve: the entry is read before a producer may write it again.
        head_word.store_release(self.head);
        Some(raw)
    }
}

/// Extracts the fields of an entry; `up_entry` in fabric/cuda/fabric/hca/abi.h has their places.
#[expect(clippy::cast_possible_truncation, reason = "parts of words")]
fn take_apart(mut w: [u64; UP_WORDS]) -> UpEntry {
    let (even, odd) = (w[2] >> UP_EVEN_SHIFT, w[2] >> UP_ODD_SHIFT);
    for (pair, words) in w.as_chunks_mut::<2>().0.iter_mut().enumerate() {
        for (word, tops) in words.iter_mut().zip([even, odd]) {
            *word = *word & !PHASE_BIT | (tops >> pair & 1) << 63;
        }
    }
    let mut payload = [0; 64];
    payload.copy_from_slice(w[UP_PAYLOAD..].as_bytes());
    UpEntry {
        kind: (w[0] >> 56) as u32,
        qpn: (w[0] >> 32) as u32 & 0xFF_FFFF,
        stamp_ns: w[1],
        index: w[0] as u32,
        flags: (w[2] >> 32) as u32 & 0xFF,
        status: (w[3] >> 32) as u32,
        bytes: w[2] as u32,
        sum: w[3] as u32,
        arg: [w[UP_ARG], w[UP_ARG + 1]],
        payload,
    }
}

/// Producer of the down ring.
#[derive(Debug, Default)]
pub struct DownRing {
    tail: u64,
    /// The consumer's head as last read: reading it fetches a line that the device writes.
    head_seen: u64,
}

impl DownRing {
    /// Publishes a descriptor; false when the ring is full. Bit 63 of every word is the ring's, and must be
    /// clear.
    pub fn push<W: Word>(&mut self, words: &[W], head_word: &W, descriptor: [u64; DOWN_WORDS]) -> bool {
        let entries = words.len() / DOWN_WORDS;
        debug_assert!(entries.is_power_of_two());
        if self.tail - self.head_seen >= entries as u64 {
            // Pairs with the consumer's store after it has read the descriptors.
            self.head_seen = head_word.load_acquire();
            if self.tail - self.head_seen >= entries as u64 {
                return false;
            }
        }
        let position = usize::try_from(self.tail).expect("64-bit host");
        let phase = if (position / entries).is_multiple_of(2) { PHASE_BIT } else { 0 };
        let at = position % entries * DOWN_WORDS;
        for (word, value) in words[at..at + DOWN_WORDS].iter().zip(descriptor) {
            debug_assert_eq!(value & PHASE_BIT, 0);
            // Each word carries its phase, so the order among them does not matter; the release is for what
            // the descriptor points to. Pairs with ld_poll2_sys + fence_acquire_sys in agent.cuh.
            word.store_release(value | phase);
        }
        self.tail += 1;
        true
    }

    /// Changes the first word of every descriptor in the ring, taken or not. Only while there is no consumer.
    pub fn rewrite<W: Word>(&self, words: &[W], change: impl Fn(u64) -> u64) {
        for word in words.iter().step_by(DOWN_WORDS) {
            let old = word.load_acquire();
            word.store_release(change(old & !PHASE_BIT) & !PHASE_BIT | old & PHASE_BIT);
        }
    }
}
