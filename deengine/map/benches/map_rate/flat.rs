// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Baselines: a flat array of as many pages, and random lines of memory of the map's size.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "a prefetch"))]

use crate::blocks::{BATCH, below};
use gnstor_base::region::HostRegion;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The largest number of cache lines in one lookup.
const MOST_LINES: usize = 3;

#[inline]
fn prefetch(word: &AtomicU64) {
    // SAFETY: the address of a live atomic; a prefetch reads nothing that the program sees.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(word.as_ptr().cast_const().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = word;
}

/// Pages in a flat array of words of 4 or 8 bytes.
pub(crate) struct Flat {
    region: Arc<HostRegion>,
    words: usize,
    pages: u64,
    /// 1: two pages in a word.
    shift: u32,
}

impl Flat {
    #[expect(clippy::cast_possible_truncation, reason = "64-bit host")]
    pub(crate) fn new(pages: u64, shift: u32) -> Self {
        let words = (pages >> shift) as usize + 1;
        let region = HostRegion::alloc(words * 8).expect("memory");
        for (at, word) in region.words64(0, words).iter().enumerate() {
            word.store(at as u64 | 1, Ordering::Relaxed);
        }
        Self { region, words, pages, shift }
    }

    fn words(&self) -> &[AtomicU64] {
        self.region.words64(0, self.words)
    }

    /// `count` random looks, `LINES` places each.
    pub(crate) fn look<const LINES: usize>(&self, count: u64, seed: u64) -> u64 {
        let words = self.words();
        let mut sum = 0u64;
        let mut at = [(0usize, 0u32); BATCH * MOST_LINES];
        let places = &mut at[..BATCH * LINES];
        for batch in 0..count / BATCH as u64 {
            for (turn, place) in places.iter_mut().enumerate() {
                let page = below(seed + (batch << 7) + turn as u64, self.pages);
                *place = (
                    usize::try_from(page >> self.shift).expect("64-bit host"),
                    u32::from(page & 1 == 1) << 5,
                );
                prefetch(&words[place.0]);
            }
            for place in &*places {
                sum = sum.wrapping_add(
                    words[place.0].load(Ordering::Relaxed) >> (place.1 * self.shift) & 0xFFFF_FFFF,
                );
            }
        }
        sum
    }

    /// `count` times: changes a random word and reads others, `LINES` in all.
    pub(crate) fn change<const LINES: usize>(&self, count: u64, seed: u64) {
        let words = self.words();
        let mut at = [0usize; BATCH * MOST_LINES];
        let places = &mut at[..BATCH * LINES];
        for batch in 0..count / BATCH as u64 {
            for (turn, place) in places.iter_mut().enumerate() {
                let page = below(seed + (batch << 7) + turn as u64, self.pages);
                *place = usize::try_from(page).expect("64-bit host");
                prefetch(&words[*place]);
            }
            for places in places.chunks_exact(LINES) {
                let old = words[places[0]].load(Ordering::Relaxed);
                words[places[0]].store(old + batch, Ordering::Release);
                for &place in &places[1..] {
                    black_box(words[place].load(Ordering::Relaxed));
                }
            }
        }
    }

    /// `count` random lookups. Each depends on the result of the one before.
    pub(crate) fn look_dependent(&self, count: u64, seed: u64) -> u64 {
        let words = self.words();
        let mut last = seed;
        for turn in 0..count {
            let at = below((seed + turn) ^ (last << 56), self.pages);
            last = words[usize::try_from(at).expect("64-bit host")].load(Ordering::Relaxed);
        }
        last
    }

    /// As [`Self::look`] of one place, with the next batch announced before this one is looked up.
    pub(crate) fn look_in_turn<const BATCH: usize>(&self, count: u64, seed: u64) -> u64 {
        let words = self.words();
        let mut sum = 0u64;
        let mut at = [[0usize; BATCH]; 2];
        let [mut this, mut next] = at.each_mut();
        for batch in 0..=count / BATCH as u64 {
            for (turn, place) in next.iter_mut().enumerate() {
                let page = below(seed + (batch << 7) + turn as u64, self.pages);
                *place = usize::try_from(page >> self.shift).expect("64-bit host");
                prefetch(&words[*place]);
            }
            for place in &*this {
                sum = sum.wrapping_add(words[*place].load(Ordering::Relaxed) & 0xFFFF_FFFF);
            }
            std::mem::swap(&mut this, &mut next);
        }
        sum
    }
}
