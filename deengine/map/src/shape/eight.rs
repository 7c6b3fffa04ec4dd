// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of `shape.rs` for eight keys or slots at once: the same results, lane by lane.
//!
//! The products modulo 2^48, and the quotient, need factors of 52 bits at most. For these the processor has
//! one instruction each for the lower and the upper 52 bits of the product.

use super::{HALF, KEY_MASK, Shape, VALID, WHICH};
use gnstor_proto::slba::Vid;
use std::arch::x86_64::{
    __m512i, __mmask8, _mm_cvtsi64_si128, _mm512_add_epi64, _mm512_and_si512, _mm512_andnot_si512,
    _mm512_cmple_epu64_mask, _mm512_cmplt_epu64_mask, _mm512_madd52hi_epu64, _mm512_madd52lo_epu64,
    _mm512_mask_add_epi64, _mm512_mask_blend_epi64, _mm512_movepi64_mask, _mm512_mul_epu32,
    _mm512_mullo_epi64, _mm512_or_si512, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_sll_epi64,
    _mm512_srl_epi64, _mm512_srli_epi64, _mm512_sub_epi64, _mm512_test_epi64_mask, _mm512_xor_si512,
};

/// [`Shape::other`] multiplies by the number of buckets as a 32-bit number.
pub(crate) const MAX_BUCKETS: u64 = (1 << 32) - 1;

/// Probes of eight keys.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    pub(crate) tag: __m512i,
    pub(crate) first: __m512i,
    pub(crate) second: __m512i,
}

/// Result of checking the eight words of a bucket. Bit i: word i.
#[derive(Clone, Copy)]
pub(crate) struct Checked {
    /// Mask of slots that are not empty.
    pub(crate) taken: __mmask8,
    /// Mask of slots whose word is not empty and not possible in this bucket.
    pub(crate) wrong: __mmask8,
    /// The pages of the words taken.
    pub(crate) pages: __m512i,
}

/// A constant in every lane.
#[inline]
#[target_feature(enable = "avx512f")]
fn all(value: u64) -> __m512i {
    _mm512_set1_epi64(value.cast_signed())
}

/// The lower 48 bits of the products of numbers of 48 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn multiply48(a: __m512i, b: u64) -> __m512i {
    _mm512_and_si512(_mm512_madd52lo_epu64(_mm512_setzero_si512(), a, all(b)), all(KEY_MASK))
}

/// `x ^ x >> 24`.
#[inline]
#[target_feature(enable = "avx512f")]
fn fold(x: __m512i) -> __m512i {
    _mm512_xor_si512(x, _mm512_srli_epi64::<HALF>(x))
}

impl Shape {
    /// As [`Self::split`], [`Self::other`] and [`Self::tag`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
    pub(crate) fn places_of_eight(&self, keys: __m512i) -> Places {
        let p = self.permute_eight(keys);
        let rem = self.div_eight(p);
        let whole = _mm512_madd52lo_epu64(_mm512_setzero_si512(), rem, all(self.buckets));
        let first = _mm512_sub_epi64(p, whole);
        let tag = _mm512_or_si512(_mm512_sll_epi64(rem, count(self.page_bits)), all(VALID));
        Places { tag, first, second: self.other_of_eight(first, rem) }
    }

    /// As [`Self::other`], for fewer than 2^32 buckets. The hash times the number of buckets, shifted down
    /// by 64 bits, is put together from two products of 32 bits each.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    fn other_of_eight(&self, buckets: __m512i, rem: __m512i) -> __m512i {
        let m = all(self.buckets);
        let x = _mm512_mullo_epi64(_mm512_xor_si512(rem, all(self.scatter[0])), all(self.scatter[1]));
        let x = _mm512_xor_si512(x, _mm512_srli_epi64::<32>(x));
        let x = _mm512_mullo_epi64(x, all(self.scatter[2]));
        let upper = _mm512_mul_epu32(_mm512_srli_epi64::<32>(x), m);
        let lower = _mm512_srli_epi64::<32>(_mm512_mul_epu32(x, m));
        let hash = _mm512_srli_epi64::<32>(_mm512_add_epi64(upper, lower));
        let difference = _mm512_sub_epi64(hash, buckets);
        _mm512_mask_add_epi64(difference, _mm512_cmplt_epu64_mask(hash, buckets), difference, m)
    }

    /// The other buckets of the slots of a bucket.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    pub(crate) fn other_of_slots(&self, bucket: u64, slots: __m512i) -> __m512i {
        self.other_of_eight(all(bucket), self.rem_of_eight(slots))
    }

    /// Whether the words of a bucket are possible slots. Each is used, with a page below `pages`, a
    /// possible remainder ([`Self::is_possible`]), and the key of a block ([`super::block_of`]).
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
    pub(crate) fn check_eight(&self, bucket: u64, slots: __m512i) -> Checked {
        let taken = _mm512_test_epi64_mask(slots, slots);
        let pages = _mm512_and_si512(slots, all(self.page_mask));
        let rem = self.rem_of_eight(slots);
        let here = all(bucket);
        let is_second = _mm512_test_epi64_mask(slots, all(WHICH));
        let first = _mm512_mask_blend_epi64(is_second, here, self.other_of_eight(here, rem));
        // Right where the remainder is possible, and then below 2^49; elsewhere no matter.
        let point = _mm512_madd52lo_epu64(first, rem, all(self.buckets));
        let key = self.unpermute_eight(_mm512_and_si512(point, all(KEY_MASK)));
        let volume = _mm512_srli_epi64::<32>(key);
        let good = _mm512_movepi64_mask(slots)
            & _mm512_cmplt_epu64_mask(pages, all(self.pages))
            & _mm512_cmple_epu64_mask(rem, all(self.last_rem))
            & _mm512_cmple_epu64_mask(point, all(KEY_MASK))
            & _mm512_cmplt_epu64_mask(_mm512_sub_epi64(volume, all(1)), all(u64::from(Vid::MAX.get())));
        Checked { taken, wrong: taken & !good, pages }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn rem_of_eight(&self, slots: __m512i) -> __m512i {
        _mm512_srl_epi64(_mm512_andnot_si512(all(VALID | WHICH), slots), count(self.page_bits))
    }

    /// As [`Self::div`], with r = ceil(2^(52+shift) / m), which has 52 bits. From p < 2^48 and e < m <=
    /// 2^(shift+1) follows p e < 2^(49+shift), far below the 2^(52+shift) that the argument there needs.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn div_eight(&self, p: __m512i) -> __m512i {
        let reciprocal = all(self.reciprocal.div_ceil(1 << 12));
        _mm512_srl_epi64(_mm512_madd52hi_epu64(_mm512_setzero_si512(), p, reciprocal), count(self.shift))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn permute_eight(&self, keys: __m512i) -> __m512i {
        let x = fold(_mm512_xor_si512(keys, all(self.mask)));
        let x = fold(multiply48(x, self.multiply[0]));
        fold(multiply48(x, self.multiply[1]))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn unpermute_eight(&self, p: __m512i) -> __m512i {
        let x = fold(multiply48(fold(p), self.undo[1]));
        let x = fold(multiply48(x, self.undo[0]));
        _mm512_xor_si512(x, all(self.mask))
    }
}

/// How far to shift.
#[inline]
#[target_feature(enable = "avx512f")]
fn count(bits: u32) -> std::arch::x86_64::__m128i {
    _mm_cvtsi64_si128(i64::from(bits))
}
