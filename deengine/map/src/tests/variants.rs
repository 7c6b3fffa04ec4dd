// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares code for eight words at a time with code for one word, lane for lane. On a machine without such
//! instructions it only compares the two ways through the code.

use super::*;
use crate::load;
use crate::shape::{VALID, WHICH};
use crate::ways::Ways;
use crate::{Batch, SLOTS};
use gnstor_proto::placement::mix64;
use proptest::prelude::*;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

/// Numbers of buckets: the largest for which vector code exists, and lower ones.
fn buckets() -> impl Strategy<Value = u64> {
    prop_oneof![
        8u64..100,
        8u64..1 << 32,
        (3u32..32, 0u64..2).prop_map(|(shift, off)| (1 << shift) + off),
        Just(u64::from(u32::MAX))
    ]
}

/// The same map twice: with vector instructions if the processor has them, and without.
fn both(buckets: u64, pages: u64, seed: u64) -> [(Arc<Map>, MapWriter); 2] {
    [Map::with_buckets, Map::plain_with_buckets].map(|new| new(buckets, pages, seed).unwrap())
}

/// Fills the first eight buckets with possible words of an image: slots with keys, empty slots, and `wrong`
/// others.
fn scribble(maps: &[(Arc<Map>, MapWriter); 2], seed: u64, wrong: u64) {
    let shape = &maps[0].0.table.shape;
    for at in 0..64u64 {
        let dice = mix64(seed ^ at << 32);
        let rem = mix64(dice) % (((1 << 48) - 1) / shape.buckets + 1);
        let which = if dice & 1 == 0 { WHICH } else { 0 };
        let word = shape.tag(rem) | which | (mix64(!dice) % shape.pages);
        let word = match dice >> 8 & 0xFFFF {
            kind if kind < wrong => word ^ 1 << (dice >> 32 & 63),
            kind if kind < 2 * wrong => mix64(dice ^ 77),
            kind if kind % 5 == 0 => 0,
            _ => word,
        };
        for (map, _) in maps {
            map.table.memory.words()[usize::try_from(at).unwrap()].store(word, Ordering::Relaxed);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn places_are_the_same(seed: u64, buckets in buckets(), pages in 1u64..=1 << 32, count in 0usize..70) {
        let _deadline = crate::tests::deadline();
        let keys: Vec<_> = (0..count as u64).map(|nth| block(mix64(seed ^ nth), 0xFFFE, 1 << 32)).collect();
        for (map, _) in both(buckets, pages, seed) {
            let mut batch = Batch::default();
            map.probe_batch(keys.iter().copied(), &mut batch);
            prop_assert_eq!(batch.len(), count.min(Batch::MOST));
            for (at, &(vid, vba)) in keys.iter().enumerate().take(batch.len()) {
                let (place, probe) = (map.place(vid, vba), batch.probe(at));
                prop_assert_eq!((place.key, place.tag), (probe.key, probe.tag));
                prop_assert_eq!((place.first, place.second), (probe.first, probe.second));
            }
        }
    }

    #[test]
    fn a_bucket_is_compared_and_left_the_same_way(seed: u64, buckets in buckets(), pages in 1u64..=1 << 32) {
        let _deadline = crate::tests::deadline();
        let maps = both(buckets, pages, seed);
        scribble(&maps, seed, 0);
        let [map, plain] = maps.each_ref().map(|(map, _)| map);
        for (at, word) in plain.table.memory.words()[..64].iter().enumerate() {
            let bucket = (at / SLOTS) as u64;
            let word = word.load(Ordering::Relaxed);
            let tag = (word & !map.table.shape.page_mask | VALID) ^ (mix64(seed) >> 8 & 1) << 62;
            let line = plain.table.memory.line(bucket);
            prop_assert_eq!(map.compare(bucket, tag), plain.table.compare_plainly(line, tag));
            // A map has no key twice in a bucket; random words may, and which of them is found is left open.
            if map.compare(bucket, tag).hit.count_ones() < 2 {
                prop_assert_eq!(map.look(bucket, tag), plain.look(bucket, tag));
            }
            prop_assert_eq!(map.ways(bucket), Ways::plainly(&plain.table, bucket));
        }
    }

    #[test]
    fn words_are_checked_the_same_way(
        seed: u64,
        buckets in buckets(),
        pages in 1u64..=1 << 32,
        wrong in 0u64..2000,
    ) {
        let _deadline = crate::tests::deadline();
        let maps = both(buckets, pages, seed);
        scribble(&maps, seed, wrong);
        let mut reported = [[0; 64]; 2];
        let [fast, plain] = &maps;
        let [a, b] = &mut reported;
        let counts = [load::check(&fast.0, 0..8, a), load::check(&plain.0, 0..8, b)];
        prop_assert_eq!(counts[0], counts[1]);
        if let Ok(count) = counts[0] {
            prop_assert_eq!(&reported[0][..count], &reported[1][..count]);
        }
    }
}

#[test]
fn the_same_blocks_make_the_same_image_and_are_crowded_in_the_same_places() {
    let _deadline = crate::tests::deadline();
    let mut maps = both(512, 1 << 16, 5);
    let mut crowded = 0;
    for base in (0..3800u32).step_by(40) {
        let bits = maps.each_mut().map(|(map, writer)| {
            let mut batch = Batch::default();
            map.probe_batch((base..base + 40).map(|vba| (vid(3), vba ^ 1)), &mut batch);
            writer.announce(&batch);
            let bits = map.crowded(&batch);
            for at in (0..40u32).filter(|at| at % 3 != 0) {
                let probe = batch.probe(usize::try_from(at).unwrap());
                assert_eq!(writer.insert_at(&probe, base + at, &mut no_log), Ok(None));
            }
            bits | map.crowded(&batch) << 40
        });
        assert_eq!(bits[0], bits[1], "blocks from {base}");
        crowded += bits[0].count_ones();
        // The rest of them, so that the load is as high as it gets.
        for (_, writer) in &mut maps {
            for vba in (base..base + 40).filter(|vba| (vba - base) % 3 == 0) {
                assert_eq!(writer.insert(vid(3), vba ^ 1, vba, &mut no_log), Ok(None));
            }
        }
    }
    assert!(crowded > 50, "{crowded} times there was no room");
    let [fast, plain] = maps.map(|(map, _)| super::model::image(&map));
    assert!(fast == plain);
}

#[test]
fn there_are_no_vectors_for_more_buckets_than_they_count() {
    let _deadline = crate::tests::deadline();
    let (map, _) = Map::with_buckets(1 << 32, 1 << 32, 1).unwrap();
    assert!(map.vector.is_none());
    assert_eq!(map.get(vid(1), 1), None);
}

/// A word whose halves are equal is never seen with different halves. A tag is the upper half here, a page
/// the lower.
#[test]
fn a_bucket_is_never_read_with_a_torn_word() {
    let _deadline = crate::tests::deadline();
    let (map, _) = Map::with_buckets(1 << 18, 1 << 32, 3).unwrap();
    let half = |turn: u64| VALID >> 32 | mix64(turn) & 3;
    let line = map.table.memory.line(0);
    let store = |turn: u64| {
        line[usize::try_from(turn % 8).unwrap()].store(half(turn) << 32 | half(turn), Ordering::Release);
    };
    (0..8).for_each(store);
    let (done, both) = (AtomicBool::new(false), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            both.wait();
            (0..u64::MAX).take_while(|_| !done.load(Ordering::Relaxed)).for_each(store);
        });
        both.wait();
        let mut hits = 0;
        for turn in 0..3_000_000 {
            if let Some(page) = map.look(0, half(turn) << 32) {
                assert_eq!(u64::from(page), half(turn));
                hits += 1;
            }
        }
        done.store(true, Ordering::Relaxed);
        assert!(hits > 100_000, "{hits} hits");
    });
}
