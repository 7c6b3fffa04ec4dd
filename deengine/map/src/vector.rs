// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Eight keys, or the eight slots of a bucket, at once: the only module with instructions that not every
//! processor has.
//!
//! One load of 64 bytes reads a bucket. It is assembly, because Rust has no atomic access of that size.
//! **Why that is correct.** To the compiler the assembly may do anything that memory allows. So its actual
//! effect counts: eight relaxed loads, one for each lane. Processors never split an access to an aligned
//! word of 8 bytes. The manuals promise that for single words and, with AVX, for aligned 16 bytes. They do
//! not promise that a load of an aligned line consists of such parts. But every processor with these
//! instructions reads 32 or 64 bytes at a time, and a test here searches for torn words.
//!
//! The eight loads need no order among them. The argument in `map.rs` needs an order between lookups. There
//! this processor never lets a load overtake an earlier one, and the `Acquire` fences after the relaxed loads
//! hold back the compiler.
#![expect(unsafe_code, reason = "instructions of one processor, chosen at run time")]

use crate::SLOTS;
use crate::batch::Batch;
use crate::memory::Line;
use crate::shape::eight::MAX_BUCKETS;
use crate::shape::{Shape, WHICH};
use crate::table::{Compared, Table};
use crate::ways::Ways;
use std::arch::asm;
use std::arch::x86_64::{
    __m512i, _mm_cvtsi128_si32, _mm512_castsi512_si128, _mm512_cmple_epu64_mask, _mm512_cvtepi64_epi32,
    _mm512_maskz_compress_epi64, _mm512_set1_epi64, _mm512_test_epi64_mask, _mm512_testn_epi64_mask,
    _mm512_xor_si512,
};
use std::mem::transmute;
use std::ops::Range;

/// Proof that the processor has the instructions used here. Only [`Self::for_shape`] makes one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vector {
    _detected: (),
}

impl Vector {
    /// Vector functions of this processor for maps of this shape.
    pub(crate) fn for_shape(shape: &Shape) -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512ifma")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("popcnt");
        (has && shape.buckets <= MAX_BUCKETS).then_some(Self { _detected: () })
    }

    /// Computes the places of a batch and has the first buckets fetched, or `both`.
    #[inline]
    pub(crate) fn probe(self, table: &Table, batch: &mut Batch, both: bool) {
        // SAFETY: `self` exists only if the processor has these instructions.
        unsafe { probe(table, batch, both) }
    }

    /// Looks for the blocks `wanted` of a batch in their first or second buckets. Returns the blocks not
    /// found as a mask.
    #[inline]
    pub(crate) fn find(self, table: &Table, batch: &mut Batch, wanted: u64, nth: usize) -> u64 {
        // SAFETY: as in `probe`.
        unsafe { find(table, batch, wanted, nth) }
    }

    /// As [`Ways::plainly`].
    #[inline]
    pub(crate) fn ways(self, table: &Table, bucket: u64) -> Ways {
        // SAFETY: as in `probe`.
        unsafe { ways(table, bucket) }
    }

    /// The blocks of a batch that are in neither of their buckets, both of which are full.
    #[inline]
    pub(crate) fn crowded(self, table: &Table, batch: &Batch) -> u64 {
        // SAFETY: as in `probe`.
        unsafe { crowded(table, batch) }
    }

    /// As `check_plainly` of `load.rs`.
    #[inline]
    pub(crate) fn check(self, table: &Table, buckets: Range<u64>, pages: &mut [u32]) -> Result<usize, u64> {
        // SAFETY: as in `probe`.
        unsafe { check(table, buckets, pages) }
    }

    /// Looks for a tag in a cache line. Returns whether it is there, and its page.
    #[inline]
    pub(crate) fn page(self, line: &Line, tag: u64, page_mask: u64) -> (bool, u32) {
        let (hit, page): (u32, u32);
        // SAFETY: as in `compare`.
        unsafe {
            asm!(
                "vpbroadcastq zmm16, {tag}",
                "vpbroadcastq zmm17, {mask}",
                "vpxorq zmm16, zmm16, [{line}]",
                "vpcmpleuq k1, zmm16, zmm17",
                "vpcompressq zmm16 {{k1}} {{z}}, zmm16",
                "kmovb {hit:e}, k1",
                "vmovd {page:e}, xmm16",
                line = in(reg) line,
                tag = in(reg) tag,
                mask = in(reg) page_mask,
                hit = lateout(reg) hit,
                page = lateout(reg) page,
                out("zmm16") _, out("zmm17") _, out("k1") _,
                options(readonly, nostack, preserves_flags),
            );
        }
        (hit != 0, page)
    }

    /// Which slots of a line have a key, and which are empty; bit i is slot i.
    #[inline]
    pub(crate) fn compare(self, line: &Line, tag: u64, page_mask: u64) -> Compared {
        let (hit, empty);
        // SAFETY: `self` exists only where the processor has these instructions. They read the line, which a
        // reference keeps alive and aligned to its 64 bytes (`Memory`). The module's comment says why that is
        // atomic enough.
        unsafe {
            asm!(
                "vmovdqa64 zmm16, [{line}]",
                "vpbroadcastq zmm17, {tag}",
                "vpbroadcastq zmm18, {mask}",
                "vpxorq zmm17, zmm17, zmm16",
                "vptestnmq k2, zmm16, zmm16",
                "vpcmpleuq k1, zmm17, zmm18",
                "kmovb {empty:e}, k2",
                "kmovb {hit:e}, k1",
                line = in(reg) line,
                tag = in(reg) tag,
                mask = in(reg) page_mask,
                hit = lateout(reg) hit,
                empty = lateout(reg) empty,
                out("zmm16") _, out("zmm17") _, out("zmm18") _, out("k1") _, out("k2") _,
                options(readonly, nostack, preserves_flags),
            );
        }
        Compared { hit, empty }
    }
}

/// The words of a line.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(line: &Line) -> __m512i {
    let words;
    // SAFETY: as in `Vector::compare`.
    unsafe {
        asm!(
            "vmovdqa64 {words}, [{line}]",
            words = lateout(zmm_reg) words,
            line = in(reg) line,
            options(readonly, nostack, preserves_flags),
        );
    }
    words
}

// By value: the pointer methods of `std` are checked in this profile, which costs time.

#[inline]
#[target_feature(enable = "avx512f")]
fn from_array(words: [u64; SLOTS]) -> __m512i {
    // SAFETY: both are 512 bits, of which every value is allowed.
    unsafe { transmute(words) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn to_array(vector: __m512i) -> [u64; SLOTS] {
    // SAFETY: as in `from_array`.
    unsafe { transmute(vector) }
}

/// The lower halves of the lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn to_halves(vector: __m512i) -> [u32; SLOTS] {
    // SAFETY: both are 256 bits, of which every value is allowed.
    unsafe { transmute(_mm512_cvtepi64_epi32(vector)) }
}

#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
fn probe(table: &Table, batch: &mut Batch, both: bool) {
    let len = batch.len();
    let [firsts, seconds] = &mut batch.buckets;
    let (keys, tags) = (batch.keys.as_chunks().0, batch.tags.as_chunks_mut().0);
    let (firsts, seconds) = (firsts.as_chunks_mut().0, seconds.as_chunks_mut().0);
    for group in 0..len.div_ceil(SLOTS) {
        let places = table.shape.places_of_eight(from_array(keys[group]));
        tags[group] = to_array(places.tag);
        firsts[group] = to_halves(places.first);
        seconds[group] = to_halves(places.second);
        let used = SLOTS.min(len - group * SLOTS);
        for &bucket in &firsts[group][..used] {
            table.memory.prefetch(u64::from(bucket));
        }
        if both {
            for &bucket in &seconds[group][..used] {
                table.memory.prefetch(u64::from(bucket));
            }
        }
    }
}

#[target_feature(enable = "avx512f,bmi1")]
fn find(table: &Table, batch: &mut Batch, wanted: u64, nth: usize) -> u64 {
    let mask = _mm512_set1_epi64(table.shape.page_mask.cast_signed());
    let (mut left, mut missed) = (wanted, 0);
    while left != 0 {
        let at = left.trailing_zeros() as usize;
        let bit = left & left.wrapping_neg();
        left ^= bit;
        let tag = _mm512_set1_epi64(batch.tag(at, nth).cast_signed());
        let words = _mm512_xor_si512(load(table.memory.line(u64::from(batch.buckets[nth][at]))), tag);
        let hit = _mm512_cmple_epu64_mask(words, mask);
        let page = _mm512_castsi512_si128(_mm512_maskz_compress_epi64(hit, words));
        batch.pages[at] = _mm_cvtsi128_si32(page).cast_unsigned();
        missed |= if hit == 0 { bit } else { 0 };
    }
    missed
}

#[target_feature(enable = "avx512f,avx512dq,popcnt")]
fn ways(table: &Table, bucket: u64) -> Ways {
    let words = load(table.memory.line(bucket));
    let others = table.shape.other_of_slots(bucket, words);
    let slots = from_array(std::array::from_fn(|slot| slot as u64));
    let seconds = _mm512_test_epi64_mask(words, _mm512_set1_epi64(WHICH.cast_signed()));
    let front = seconds.count_ones() as usize;
    let order = |lanes| {
        // The second part overwrites the lanes after the first part.
        let mut ordered = [0; 2 * SLOTS];
        ordered[..SLOTS].copy_from_slice(&to_array(_mm512_maskz_compress_epi64(seconds, lanes)));
        ordered[front..][..SLOTS].copy_from_slice(&to_array(_mm512_maskz_compress_epi64(!seconds, lanes)));
        *ordered.first_chunk().expect("half of it")
    };
    Ways { buckets: order(others), slots: order(slots) }
}

#[target_feature(enable = "avx512f")]
fn crowded(table: &Table, batch: &Batch) -> u64 {
    let mask = _mm512_set1_epi64(table.shape.page_mask.cast_signed());
    let mut crowded = 0;
    for at in 0..batch.len() {
        let mut hit_or_empty = 0;
        for nth in 0..2 {
            let words = load(table.memory.line(u64::from(batch.buckets[nth][at])));
            let pages = _mm512_xor_si512(words, _mm512_set1_epi64(batch.tag(at, nth).cast_signed()));
            hit_or_empty |= _mm512_testn_epi64_mask(words, words) | _mm512_cmple_epu64_mask(pages, mask);
        }
        crowded |= u64::from(hit_or_empty == 0) << at;
    }
    crowded
}

#[target_feature(enable = "avx512f,avx512dq,avx512ifma,popcnt")]
fn check(table: &Table, buckets: Range<u64>, pages: &mut [u32]) -> Result<usize, u64> {
    let mut count = 0;
    for bucket in buckets {
        let checked = table.shape.check_eight(bucket, load(table.memory.line(bucket)));
        if checked.wrong != 0 {
            return Err(bucket);
        }
        let taken = _mm512_maskz_compress_epi64(checked.taken, checked.pages);
        pages[count..][..SLOTS].copy_from_slice(&to_halves(taken));
        count += checked.taken.count_ones() as usize;
    }
    Ok(count)
}
