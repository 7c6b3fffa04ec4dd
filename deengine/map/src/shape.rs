// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places of keys and meaning of slots: pure arithmetic, no memory.
//!
//! ```text
//!   key = vid (16) | vba (32)
//!    | xor, shift, multiply, twice: every step can be undone
//!    v
//!    p --- reciprocal of m ---> rem = p div m, first = p mod m --- H(rem) ---> second
//! ```

use crate::SLOTS;
use gnstor_proto::placement::mix64;
use gnstor_proto::slba::Vid;

/// Bits of a key.
const KEY_BITS: u32 = 48;
const KEY_MASK: u64 = (1 << KEY_BITS) - 1;
const HALF: u32 = KEY_BITS / 2;
/// The slot is taken.
pub(crate) const VALID: u64 = 1 << 63;
/// The slot is in the key's second bucket.
pub(crate) const WHICH: u64 = 1 << 62;
/// Bits of a slot below `valid` and `which`.
const FIELD_BITS: u32 = 62;

/// Sizes, seed, and constants computed from them once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Number of buckets, the `m` of the drawing.
    pub(crate) buckets: u64,
    /// Pages are below this.
    pub(crate) pages: u64,
    page_bits: u32,
    /// The bits of the page in a slot.
    pub(crate) page_mask: u64,
    /// ceil(2^(64 + shift) / m).
    reciprocal: u64,
    /// m is above 2^shift and at most 2^(shift + 1).
    shift: u32,
    /// The remainder of the largest `p`: the only remainder that some buckets lack.
    last_rem: u64,
    mask: u64,
    multiply: [u64; 2],
    undo: [u64; 2],
    scatter: [u64; 3],
}

impl Shape {
    /// The shape of a table with at least `buckets` buckets, and pages below `pages`. It has more buckets if
    /// the remainder would not fit beside the page. `None` for impossible sizes.
    pub(crate) fn new(buckets: u64, pages: u64, seed: u64) -> Option<Self> {
        if pages == 0 || pages > 1 << 32 || buckets > 1 << 32 {
            return None;
        }
        let page_bits = 64 - (pages - 1).leading_zeros();
        // With 2^(48 - f) buckets the remainder has f bits.
        let buckets = buckets.max(8).max(1 << KEY_BITS.saturating_sub(FIELD_BITS - page_bits));
        let shift = 63 - (buckets - 1).leading_zeros();
        let reciprocal = u64::try_from((1u128 << (64 + shift)).div_ceil(u128::from(buckets))).ok()?;
        let mut drawn = seed;
        let mut draw = || {
            drawn = drawn.wrapping_add(0x9E37_79B9_7F4A_7C15);
            mix64(drawn)
        };
        let mask = draw() & KEY_MASK;
        let multiply = [factor(&mut draw) & KEY_MASK, factor(&mut draw) & KEY_MASK];
        let scatter = [draw(), factor(&mut draw), factor(&mut draw)];
        let undo = multiply.map(inverse);
        let last_rem = KEY_MASK / buckets;
        let page_mask = (1 << page_bits) - 1;
        Some(Self {
            buckets,
            pages,
            page_bits,
            page_mask,
            reciprocal,
            shift,
            last_rem,
            mask,
            multiply,
            undo,
            scatter,
        })
    }

    /// Number of slots.
    pub(crate) fn slots(&self) -> u64 {
        self.buckets * SLOTS as u64
    }

    /// First bucket and remainder of a key.
    #[inline]
    pub(crate) fn split(&self, key: u64) -> (u64, u64) {
        let p = self.permute(key);
        let rem = self.div(p);
        (p.wrapping_sub(rem.wrapping_mul(self.buckets)), rem)
    }

    /// The key in a slot of a bucket. From garbage it returns some key of 48 bits.
    #[inline]
    pub(crate) fn key(&self, bucket: u64, slot: u64) -> u64 {
        self.unpermute(self.point(bucket, slot) & KEY_MASK)
    }

    /// Whether a key can have the remainder in a slot of a bucket.
    #[inline]
    pub(crate) fn is_possible(&self, bucket: u64, slot: u64) -> bool {
        let rem = self.rem(slot);
        rem < self.last_rem || rem == self.last_rem && self.point(bucket, slot) <= KEY_MASK
    }

    /// `p` of a slot in a bucket.
    #[inline]
    fn point(&self, bucket: u64, slot: u64) -> u64 {
        let rem = self.rem(slot);
        let first = if slot & WHICH == 0 { bucket } else { self.other(bucket, rem) };
        rem.wrapping_mul(self.buckets).wrapping_add(first)
    }

    /// The other bucket of a remainder. The function is its own inverse.
    #[inline]
    pub(crate) fn other(&self, bucket: u64, rem: u64) -> u64 {
        let x = (rem ^ self.scatter[0]).wrapping_mul(self.scatter[1]);
        let hash = high((x ^ x >> 32).wrapping_mul(self.scatter[2]), self.buckets);
        let difference = hash.wrapping_sub(bucket);
        if hash >= bucket { difference } else { difference.wrapping_add(self.buckets) }
    }

    /// Tag of a slot in the first bucket: the bits above the page.
    #[inline]
    pub(crate) fn tag(&self, rem: u64) -> u64 {
        VALID | rem.wrapping_shl(self.page_bits)
    }

    /// The remainder in a slot or tag.
    #[inline]
    pub(crate) fn rem(&self, slot: u64) -> u64 {
        (slot & !(VALID | WHICH)).wrapping_shr(self.page_bits)
    }

    /// The page in a slot.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a page number has at most 32 bits")]
    pub(crate) fn page(&self, slot: u64) -> u32 {
        (slot & self.page_mask) as u32
    }

    /// `p div m` without a division.
    ///
    /// Let r = reciprocal and e = r m - 2^(64+shift), so 0 <= e < m. Then p r / 2^(64+shift) = p/m + p e /
    /// (m 2^(64+shift)). The integer part is that of p/m if the second term is below 1/m, that is p e <
    /// 2^(64+shift). It is, because p < 2^48 and e < m <= 2^(shift+1).
    #[inline]
    fn div(&self, p: u64) -> u64 {
        high(p, self.reciprocal).wrapping_shr(self.shift)
    }

    #[inline]
    fn permute(&self, key: u64) -> u64 {
        let x = key ^ self.mask;
        let x = (x ^ x >> HALF).wrapping_mul(self.multiply[0]) & KEY_MASK;
        let x = (x ^ x >> HALF).wrapping_mul(self.multiply[1]) & KEY_MASK;
        x ^ x >> HALF
    }

    /// Each step of `permute` undone, the last first. `x ^ x >> 24` is its own inverse for 48 bits: it leaves
    /// the upper half as it is.
    #[inline]
    fn unpermute(&self, p: u64) -> u64 {
        let x = (p ^ p >> HALF).wrapping_mul(self.undo[1]) & KEY_MASK;
        let x = (x ^ x >> HALF).wrapping_mul(self.undo[0]) & KEY_MASK;
        x ^ x >> HALF ^ self.mask
    }
}

/// The 48-bit key of a block.
#[inline]
pub(crate) fn key_of(vid: Vid, vba: u32) -> u64 {
    u64::from(vid.get()) << 32 | u64::from(vba)
}

/// The block of a key; `None` where the volume id is reserved or the key has more than 48 bits.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "taking 16 and 32 bits out of 48")]
pub(crate) fn block_of(key: u64) -> Option<(Vid, u32)> {
    if key > KEY_MASK {
        return None;
    }
    Vid::new((key >> 32) as u16).map(|vid| (vid, key as u32))
}

/// The upper half of a product.
#[inline]
fn high(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

/// An odd number with about as many ones as zeros in its lower 48 bits, so that it spreads bits well.
fn factor(draw: &mut impl FnMut() -> u64) -> u64 {
    loop {
        let number = draw() | 1;
        if (18..=30).contains(&(number & KEY_MASK).count_ones()) {
            return number;
        }
    }
}

/// The inverse of an odd number modulo 2^48, by Newton's iteration: each turn doubles the bits that are
/// right, from 3.
fn inverse(odd: u64) -> u64 {
    let mut x = odd;
    for _ in 0..5 {
        x = x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)));
    }
    x & KEY_MASK
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod eight;

#[cfg(test)]
mod tests;
