// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How full the table can get, and what happens when it is fuller.

use super::*;
use crate::{Full, MAX_CHANGES, MAX_LOAD, Map, SLOTS};
use gnstor_proto::placement::mix64;

type Pattern = fn(u64) -> (Vid, u32);

/// Ways to number blocks that a client could choose, none of which may hurt.
fn patterns() -> [(&'static str, Pattern); 6] {
    fn low(number: u64) -> u32 {
        u32::try_from(number & 0xFFFF_FFFF).unwrap()
    }
    [
        ("one volume, block after block", |n| (vid(1), low(n))),
        ("64 volumes in turn", |n| block(n, 64, 1 << 30)),
        ("a volume for each block", |n| block(n, 60_000, 1 << 30)),
        ("every 2048th block", |n| (vid(3), low(n << 11))),
        ("upper bits only", |n| (vid(9), low(n).reverse_bits())),
        ("random blocks", |n| block(mix64(n), 60_000, 1 << 32)),
    ]
}

#[test]
fn the_table_takes_97_percent_before_it_needs_the_stash() {
    let _deadline = crate::tests::deadline();
    for (buckets, seed) in [(2048, 0), (2048, u64::MAX), (8192, 42), (5003, 7)] {
        for (name, pattern) in patterns() {
            let (map, mut writer) = Map::with_buckets(buckets, 1 << 17, seed).unwrap();
            let mut added = 0u64;
            while map.stashed() == 0 {
                let (vid, vba) = pattern(added);
                let old = writer.insert(vid, vba, u32::try_from(added).unwrap(), &mut no_log);
                assert_eq!(old, Ok(None), "{name}: blocks of one run differ");
                added += 1;
            }
            let load = (added - 1) * 1000 / (buckets * SLOTS as u64);
            println!("{buckets} buckets, seed {seed}, {name}: first key in the stash at {load} per mille");
            assert!(load >= 970, "{buckets} buckets, seed {seed}, {name}: {load} per mille");
        }
    }
}

#[test]
fn churn_at_the_rated_load_needs_no_stash() {
    let _deadline = crate::tests::deadline();
    let entries = 60_000;
    let (map, mut writer) = Map::new(entries, 1 << 17, 7).unwrap();
    let key = |number: u64| block(number * 7, 1000, 1 << 22);
    let mut live: Vec<u64> = (0..entries).collect();
    for &number in &live {
        let (vid, vba) = key(number);
        assert_eq!(writer.insert(vid, vba, u32::try_from(number).unwrap(), &mut no_log), Ok(None));
    }
    assert!((0.92..=0.93).contains(&map.load()), "{}", map.load());
    let mut most = 0;
    for step in 0..200_000u64 {
        let at = usize::try_from(mix64(step ^ 0xABCD) % entries).unwrap();
        let (vid, vba) = key(live[at]);
        assert!(writer.remove(vid, vba, &mut no_log).is_some());
        live[at] = entries + step;
        let (vid, vba) = key(live[at]);
        let mut changes = 0;
        let page = u32::try_from(step & 0xFFFF).unwrap();
        assert_eq!(writer.insert(vid, vba, page, &mut |_, _| changes += 1), Ok(None));
        assert_eq!(map.stashed(), 0);
        most = most.max(changes);
    }
    println!("{} moves in 260,000 insertions, at most {most} words by one", map.relocations());
    assert!(map.relocations() > 0 && most <= MAX_CHANGES);
    let mut want: Vec<_> = live.iter().map(|&number| key(number)).collect();
    let mut got: Vec<_> = map.scan(0, map.buckets()).map(|(vid, vba, _)| (vid, vba)).collect();
    want.sort_unstable();
    got.sort_unstable();
    assert_eq!(got, want);
    assert_eq!(map.len(), entries);
}

#[test]
fn a_map_with_no_room_says_so_and_keeps_what_it_has() {
    let _deadline = crate::tests::deadline();
    let (map, mut writer) = Map::with_buckets(8, 256, 3).unwrap();
    let mut kept = Vec::new();
    for vba in 0..200u32 {
        let mut changes = 0;
        match writer.insert(vid(9), vba, vba, &mut |_, _| changes += 1) {
            Ok(old) => {
                assert_eq!(old, None);
                assert!((1..=MAX_CHANGES).contains(&changes));
                kept.push(vba);
            }
            Err(Full) => {
                assert_eq!(changes, 0, "a refused insertion changes nothing");
                break;
            }
        }
    }
    assert!(kept.len() > 8 * SLOTS && kept.len() < 200);
    assert!(map.stashed() > 0 && map.len() == kept.len() as u64);
    for &vba in &kept {
        assert_eq!(map.get(vid(9), vba), Some(vba));
        assert_eq!(writer.insert(vid(9), vba, vba ^ 1, &mut no_log), Ok(Some(vba)));
        assert!(!writer.replace_at(&map.probe(vid(9), vba), vba, 0, &mut no_log));
        assert!(writer.replace_at(&map.probe(vid(9), vba), vba ^ 1, vba, &mut no_log));
    }
    for &vba in &kept {
        assert_eq!(writer.remove(vid(9), vba, &mut no_log), Some(vba));
    }
    assert!(map.is_empty() && map.stashed() == 0 && map.scan(0, u64::MAX).next().is_none());
}

#[test]
fn a_map_has_room_for_all_its_entries_and_few_buckets_more() {
    let _deadline = crate::tests::deadline();
    for entries in [0u64, 1, 60, 1000, 4096] {
        let (map, mut writer) = Map::new(entries, 4096, 1).unwrap();
        assert!(map.buckets() * SLOTS as u64 * MAX_LOAD <= (entries * 100).max(64 * MAX_LOAD) + 8 * MAX_LOAD);
        for number in 0..entries {
            assert_eq!(writer.insert(vid(1), u32::try_from(number).unwrap(), 0, &mut no_log), Ok(None));
        }
        assert_eq!(map.len(), entries);
    }
    // Pages of 32 bits leave 30 for the remainder, which needs 2^18 buckets; they cost nothing before they
    // are used.
    let (map, mut writer) = Map::new(10, 1 << 32, 1).unwrap();
    assert_eq!(map.buckets(), 1 << 18);
    assert_eq!(writer.insert(vid(1), 1, u32::MAX, &mut no_log), Ok(None));
    assert_eq!(map.get(vid(1), 1), Some(u32::MAX));
}

#[test]
fn sizes_that_make_no_sense_are_errors() {
    let _deadline = crate::tests::deadline();
    for (entries, pages) in [(1, 0), (1, (1 << 32) + 1), (u64::MAX, 1), (1 << 40, 1 << 32)] {
        let error = Map::new(entries, pages, 0).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
    }
}

#[test]
#[should_panic(expected = "page 100 of 100")]
fn a_page_beyond_the_ssd_is_a_broken_invariant() {
    let _deadline = crate::tests::deadline();
    let (_, mut writer) = Map::new(100, 100, 0).unwrap();
    let _ = writer.insert(vid(1), 1, 100, &mut no_log);
}
