// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The map against a plain hash map, and at the loads it is meant for.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

fn vid(raw: u16) -> Vid {
    Vid::new(raw).unwrap()
}

/// A key from a small space, so that operations meet.
fn key(dice: u64, volumes: u64, blocks: u64) -> (Vid, u32) {
    let volume = u16::try_from(dice % volumes).unwrap() + 1;
    (vid(volume), u32::try_from(dice / volumes % blocks).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_map_does_what_a_hash_map_does(seed: u64, entries in 1u64..3000) {
        let mut map = Map::new(entries, 1 << 16, seed);
        let mut oracle = HashMap::new();
        for step in 0..9_000u64 {
            let dice = mix64(seed ^ step);
            let (vid, vba) = key(dice >> 8, 3, entries);
            match dice % 8 {
                0..4 if oracle.len() as u64 >= entries && !oracle.contains_key(&(vid, vba)) => {}
                0..4 => {
                    let page = Ppa(u32::try_from(dice >> 48).unwrap());
                    prop_assert_eq!(map.insert(vid, vba, page), Ok(oracle.insert((vid, vba), page)));
                }
                4..6 => prop_assert_eq!(map.remove(vid, vba), oracle.remove(&(vid, vba))),
                _ => prop_assert_eq!(map.get(vid, vba), oracle.get(&(vid, vba)).copied()),
            }
            prop_assert_eq!(map.len(), oracle.len() as u64);
        }
        let listed: HashMap<_, _> = map.iter().map(|(vid, vba, page)| ((vid, vba), page)).collect();
        prop_assert_eq!(map.iter().count(), oracle.len());
        prop_assert_eq!(listed, oracle);
    }

    #[test]
    fn the_permutation_loses_nothing(seed: u64, key in 0u64..1 << KEY_BITS) {
        let map = Map::new(1000, 1000, seed);
        let p = map.permute(key);
        prop_assert!(p < 1 << KEY_BITS);
        prop_assert_eq!(map.unpermute(p), key);
    }
}

#[test]
fn the_table_takes_at_least_93_percent_before_it_needs_the_stash() {
    for (buckets, name) in [(16_384, "2^16 slots"), (25_013, "a prime number of buckets")] {
        for spread in [false, true] {
            let mut map = Map::with_buckets(buckets, 1 << 17, 42);
            let mut added = 0u64;
            while map.stashed() == 0 {
                let (volume, vba) = if spread { key(mix64(added), 64, 1 << 30) } else { key(added * 64, 64, 1 << 30) };
                if map.insert(volume, vba, Ppa(u32::try_from(added).unwrap() & 0xFFFF)).unwrap().is_none() {
                    added += 1;
                } else {
                    unreachable!("keys of one run differ");
                }
            }
            let load = (added - 1) * 1000 / (buckets * SLOTS as u64);
            println!("{name}, spread {spread}: first key in the stash at {}.{} % load", load / 10, load % 10);
            assert!(load >= 930, "{name}: {load} per mille");
        }
    }
}

#[test]
fn churn_at_the_rated_load_never_fails_and_the_scan_equals_the_key_set() {
    let entries = 60_000;
    let mut map = Map::new(entries, 1 << 17, 7);
    let key = |number: u64| key(number * 7, 1000, 1 << 22);
    let mut live: Vec<u64> = (0..entries).collect();
    for &number in &live {
        let (vid, vba) = key(number);
        assert_eq!(map.insert(vid, vba, Ppa(u32::try_from(number).unwrap())), Ok(None));
    }
    for step in 0..200_000u64 {
        let at = usize::try_from(mix64(step ^ 0xABCD) % entries).unwrap();
        let (vid, vba) = key(live[at]);
        assert!(map.remove(vid, vba).is_some());
        live[at] = entries + step;
        let (vid, vba) = key(live[at]);
        assert_eq!(map.insert(vid, vba, Ppa(u32::try_from(step & 0xFFFF).unwrap())), Ok(None));
    }
    println!("{} relocations in 260,000 insertions", map.relocations());
    assert_eq!((map.len(), map.stashed()), (entries, 0));
    let mut want: Vec<_> = live.iter().map(|&number| key(number)).collect();
    let mut got: Vec<_> = map.iter().map(|(vid, vba, _)| (vid, vba)).collect();
    want.sort_unstable();
    got.sort_unstable();
    assert_eq!(got, want);
}

#[test]
fn a_table_with_no_room_says_so_and_keeps_what_it_has() {
    let mut map = Map::with_buckets(8, 256, 3);
    let mut kept = Vec::new();
    for vba in 0..200u32 {
        match map.insert(vid(9), vba, Ppa(vba)) {
            Ok(old) => {
                assert_eq!(old, None);
                kept.push(vba);
            }
            Err(Full) => break,
        }
    }
    assert!(kept.len() >= 8 * SLOTS && kept.len() < 200);
    for &vba in &kept {
        assert_eq!(map.get(vid(9), vba), Some(Ppa(vba)));
    }
    for &vba in &kept {
        assert_eq!(map.remove(vid(9), vba), Some(Ppa(vba)));
    }
    assert!(map.is_empty() && map.stashed() == 0 && map.iter().next().is_none());
}

#[test]
fn fields_fit_at_every_size() {
    let rem_bits = |buckets: u64| 64 - (((1u64 << KEY_BITS) - 1) / buckets).leading_zeros();
    for shift in 4..32 {
        let pages = 1u64 << shift;
        let buckets = (pages * 100).div_ceil(MAX_LOAD * SLOTS as u64).max(8);
        assert!(rem_bits(buckets) + shift < FIELD_BITS, "2^{shift} pages");
    }
}
