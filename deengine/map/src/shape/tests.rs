// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The arithmetic against the slow way.

use super::*;
use proptest::prelude::*;

/// Numbers of buckets: small, odd, powers of two and beside them, the largest.
fn buckets() -> impl Strategy<Value = u64> {
    prop_oneof![
        8u64..100,
        8u64..1 << 32,
        (3u32..=32, -1i64..=1)
            .prop_map(|(shift, off)| (1u64 << shift).saturating_add_signed(off).clamp(8, 1 << 32)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_permutation_loses_nothing(seed: u64, key in 0..=KEY_MASK) {
        let _deadline = crate::tests::deadline();
        let shape = Shape::new(8, 1, seed).unwrap();
        let p = shape.permute(key);
        prop_assert!(p <= KEY_MASK);
        prop_assert_eq!(shape.unpermute(p), key);
    }

    #[test]
    fn the_reciprocal_divides_exactly(buckets in buckets(), p in 0..=KEY_MASK, near: u64, off in -1i64..=1) {
        let _deadline = crate::tests::deadline();
        let shape = Shape::new(buckets, 1, 0).unwrap();
        prop_assert_eq!(shape.buckets, buckets);
        prop_assert_eq!(shape.div(p), p / buckets);
        // An error would show first where the quotient changes.
        let edge = (near % (KEY_MASK / buckets + 1) * buckets).saturating_add_signed(off).min(KEY_MASK);
        prop_assert_eq!(shape.div(edge), edge / buckets);
        prop_assert_eq!(shape.div(KEY_MASK), KEY_MASK / buckets);
    }

    #[test]
    fn a_slot_in_either_bucket_gives_its_key_back(
        seed: u64, buckets in buckets(), pages in 1u64..=1 << 32, key in 0..=KEY_MASK, page: u64
    ) {
        let _deadline = crate::tests::deadline();
        let shape = Shape::new(buckets, pages, seed).unwrap();
        let (first, rem) = shape.split(key);
        let second = shape.other(first, rem);
        prop_assert!(first < shape.buckets && second < shape.buckets);
        prop_assert_eq!(shape.other(second, rem), first);
        for (bucket, slot) in [(first, shape.tag(rem)), (second, shape.tag(rem) | WHICH)] {
            let slot = slot | (page % pages);
            prop_assert_eq!(slot & VALID, VALID);
            prop_assert_eq!(shape.key(bucket, slot), key);
            prop_assert_eq!(u64::from(shape.page(slot)), page % pages);
            prop_assert!(shape.is_possible(bucket, slot));
        }
    }

    #[test]
    fn a_possible_slot_is_one_that_a_key_leads_to(seed: u64, buckets in buckets(), word: u64, at: u64) {
        let _deadline = crate::tests::deadline();
        let shape = Shape::new(buckets, 1 << 32, seed).unwrap();
        let bucket = at % shape.buckets;
        let last = shape.tag(KEY_MASK / shape.buckets);
        for slot in [word | VALID, last, last | WHICH] {
            let (first, rem) = shape.split(shape.key(bucket, slot));
            let place = if slot & WHICH == 0 { first } else { shape.other(first, rem) };
            prop_assert_eq!(shape.is_possible(bucket, slot), place == bucket && rem == shape.rem(slot));
        }
    }
}

#[test]
fn the_fields_fit_whatever_the_sizes() {
    let _deadline = crate::tests::deadline();
    for shift in 0..=32 {
        for buckets in [1, 1 << 10, 1 << 32] {
            let shape = Shape::new(buckets, 1 << shift, 5).unwrap();
            let tag = shape.tag(KEY_MASK / shape.buckets);
            assert_eq!(shape.rem(tag), KEY_MASK / shape.buckets, "2^{shift} pages, {buckets} buckets");
            assert_eq!(tag & (shape.page_mask | WHICH), 0, "2^{shift} pages, {buckets} buckets");
        }
    }
}

#[test]
fn sizes_that_make_no_sense_are_refused() {
    let _deadline = crate::tests::deadline();
    assert!(Shape::new(8, 0, 0).is_none());
    assert!(Shape::new(8, (1 << 32) + 1, 0).is_none());
    assert!(Shape::new((1 << 32) + 1, 1, 0).is_none());
}

#[test]
fn blocks_of_reserved_volumes_are_none() {
    let _deadline = crate::tests::deadline();
    assert_eq!(block_of(7), None);
    assert_eq!(block_of(0xFFFF_0000_0007), None);
    assert_eq!(block_of(1 << 48 | 1 << 32), None);
    assert_eq!(block_of(0xFFFE_0000_0007), Some((Vid::MAX, 7)));
    assert_eq!(key_of(Vid::MAX, 7), 0xFFFE_0000_0007);
}
