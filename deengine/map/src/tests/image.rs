// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Images that are wrong.

use super::model::image;
use super::*;
use crate::shape::{VALID, WHICH, key_of};
use crate::{BadImage, Map, MapWriter};
use proptest::prelude::*;

const PAGES: u64 = 1000;

/// A table of 64 slots with 70 blocks.
fn crowded() -> MapWriter {
    let (_, mut writer) = Map::with_buckets(8, PAGES, 11).unwrap();
    for vba in 0..70 {
        writer.insert(vid(5), vba, vba, &mut no_log).unwrap();
    }
    assert!(writer.map().stashed() >= 6);
    writer
}

/// A map's verdict on the words, with vectors and without.
fn check(words: &[u64]) -> Result<u64, BadImage> {
    let said = [Map::with_buckets, Map::plain_with_buckets].map(|new| {
        let (map, mut writer) = new(8, PAGES, 11).unwrap();
        writer.load_words(0, words)?;
        let mut reported = Vec::new();
        writer.finish_load(|page| reported.push(page))?;
        assert_eq!(map.len(), reported.len() as u64);
        let mut listed: Vec<_> = map.scan(0, u64::MAX).map(|(_, _, page)| page).collect();
        listed.sort_unstable();
        reported.sort_unstable();
        assert_eq!(listed, reported);
        Ok(map.len())
    });
    assert_eq!(said[0], said[1]);
    said[0]
}

#[test]
fn each_kind_of_wrong_word_is_found() {
    let _deadline = crate::tests::deadline();
    let good = image(crowded().map());
    assert_eq!(check(&good), Ok(70));
    let with = |index: usize, value: u64| {
        let mut words = good.clone();
        words[index] = value;
        check(&words)
    };
    let (stash, slot) = (64, good[3]);
    assert_eq!(with(3, 0), Ok(69), "an empty slot is not reported");
    assert_eq!(with(3, slot & !VALID), Err(BadImage::Word { index: 3, value: slot & !VALID }));
    assert_eq!(with(3, slot | 1023), Err(BadImage::Page { index: 3, page: 1023, pages: PAGES }));
    let beyond = slot | 1 << 61;
    assert_eq!(with(3, beyond), Err(BadImage::Key { index: 3, value: beyond }));
    assert_eq!(with(stash + 1, PAGES), Err(BadImage::Page { index: 65, page: PAGES, pages: PAGES }));
    assert_eq!(with(stash, 0), Err(BadImage::Word { index: 64, value: 0 }), "a page without a key");
    for key in [1, key_of(vid(0xFFFE), 0) + (1 << 32), 1 << 50, WHICH] {
        assert_eq!(with(stash, VALID | key), Err(BadImage::Key { index: 64, value: VALID | key }));
    }
    assert_eq!(with(stash + 2, good[stash]), Err(BadImage::Twice { index: 66 }));
    let in_table = (0..70).find(|&vba| !good.contains(&(VALID | key_of(vid(5), vba)))).unwrap();
    assert_eq!(with(stash, VALID | key_of(vid(5), in_table)), Err(BadImage::Twice { index: 64 }));
}

#[test]
fn a_reserved_volume_in_a_slot_is_found() {
    let _deadline = crate::tests::deadline();
    let (map, _) = Map::with_buckets(8, PAGES, 11).unwrap();
    // Try every remainder that bucket 0 can have, until one belongs to volume 0 or FFFFh. One of 32,768 does.
    for reserved in [0, 0xFFFF] {
        let found = (0..1u64 << 22).find_map(|rem| {
            let word = map.table.shape.tag(rem);
            (map.table.shape.key(0, word) >> 32 == reserved).then_some(word)
        });
        let value = found.unwrap();
        assert_eq!(check(&[value]), Err(BadImage::Key { index: 0, value }));
    }
}

#[test]
fn words_beyond_the_image_are_refused() {
    let _deadline = crate::tests::deadline();
    let mut writer = crowded();
    let words = writer.map().words();
    assert_eq!(words, 128);
    for (first, count) in [(words, 1), (words - 1, 2), (u64::MAX, 1), (u64::MAX - 1, 3), (0, 129)] {
        let error = BadImage::Beyond { first, count: count as u64, words };
        assert_eq!(writer.load_words(first, &vec![1; count]), Err(error));
    }
    assert_eq!(writer.redo(words, 0).unwrap_err().to_string(), "words 128..+1 of an image of 128 words");
    // Nothing was loaded, so the map has not changed.
    assert_eq!(writer.remove(vid(5), 3, &mut no_log), Some(3));
}

#[test]
fn a_bad_image_can_be_loaded_again_or_cleared() {
    let _deadline = crate::tests::deadline();
    let mut writer = crowded();
    let good = image(writer.map());
    writer.redo(0, 77).unwrap();
    assert!(writer.finish_load(|_| ()).is_err());
    writer.load_words(0, &good).unwrap();
    assert_eq!(writer.finish_load(|_| ()), Ok(()));
    assert_eq!(writer.map().get(vid(5), 69), Some(69));
    writer.redo(0, 77).unwrap();
    writer.clear();
    assert!(writer.map().is_empty());
    assert_eq!(writer.insert(vid(5), 1, 1, &mut no_log), Ok(None));
}

#[test]
#[should_panic(expected = "loaded and not checked")]
fn a_loaded_map_is_not_used_unchecked() {
    let _deadline = crate::tests::deadline();
    let mut writer = crowded();
    writer.redo(0, 0).unwrap();
    writer.remove(vid(5), 1, &mut no_log);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_words_bring_the_map_down(
        changes in prop::collection::vec((0u64..128, any::<u64>(), 0u32..64), 1..40),
    ) {
        let _deadline = crate::tests::deadline();
        let good = image(crowded().map());
        let (map, mut writer) = Map::with_buckets(8, PAGES, 11).unwrap();
        writer.load_words(0, &good).unwrap();
        for (index, value, keep) in changes {
            // Some words that are almost right.
            let value = if keep < 48 { good[usize::try_from(index).unwrap()] ^ 1 << keep } else { value };
            writer.redo(index, value).unwrap();
        }
        // Readers of an unchecked map get anything, and nothing worse happens.
        for vba in 0..70 {
            let _ = map.get(vid(5), vba);
        }
        let _ = map.scan(0, u64::MAX).count();
        if writer.finish_load(|_| ()).is_ok() {
            prop_assert_eq!(map.scan(0, u64::MAX).count() as u64, map.len());
            for vba in 0..200 {
                let _ = writer.remove(vid(5), vba, &mut no_log);
                let _ = writer.insert(vid(6), vba, 1, &mut no_log);
            }
        }
    }
}
