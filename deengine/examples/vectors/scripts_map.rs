// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scripts of the map alone: the same words as Rust's, at every load.

use crate::file::Script;
use crate::op::{MOST_FILLED, Op, block_of};
use crate::script::Writing;
use gnstor_map::Map;
use gnstor_proto::placement::mix64;
use gnstor_proto::slba::Vid;

fn index(value: u64) -> u32 {
    u32::try_from(value & 0xFFFF_FFFF).expect("32 bits")
}

/// A block of three volumes, determined by its number.
fn block(seed: u64, number: u64) -> (u16, u32) {
    let vid = [1, 7, 0xFFFE][usize::try_from(number % 3).expect("small")];
    (vid, index(mix64(seed ^ number << 20)))
}

pub(crate) fn maps(scripts: &mut Vec<Script>) {
    for (entries, pages, seed) in [
        (1u64, 1u64, 0u64),
        (1, 2, 1),
        (50, 64, 2),
        (59, 1 << 14, 3),
        (59, 1 << 15, 4),
        (500, 1000, 5),
        (1000, 1 << 20, 6),
        (4000, 5000, u64::MAX),
    ] {
        let mut s = Writing::empty();
        s.push(Op::Map { entries, pages, seed });
        // Up to 93 % and beyond, so that keys move and the stash fills.
        let most = entries.div_ceil(93) * 100 + 100;
        for number in 0..most.min(1500) {
            let (vid, vba) = block(seed, number);
            s.push(Op::Insert { vid, vba, page: index(number % pages) });
            if number % 97 == 0 {
                s.push(Op::Image);
            }
        }
        s.push(Op::Image);
        s.push(Op::Scan { first: 0, count: u64::MAX });
        for number in (0..most.min(1500)).step_by(3) {
            let (vid, vba) = block(seed, number);
            s.push(Op::Find { vid, vba });
            s.push(Op::Replace { vid, vba, from: index(number % pages), to: index((number + 1) % pages) });
            s.push(Op::Replace { vid, vba: vba ^ 1, from: 0, to: 0 });
            if number % 2 == 0 {
                s.push(Op::Remove { vid, vba });
                s.push(Op::Remove { vid, vba });
            }
        }
        s.push(Op::Image);
        for first in 0..6 {
            s.push(Op::Sweep { vid: 7, first: first * 3, count: 3 });
            s.push(Op::Image);
        }
        s.push(Op::Sweep { vid: 1, first: 0, count: u64::MAX });
        s.push(Op::Scan { first: 0, count: 5 });
        s.push(Op::Image);
        scripts.push(s.finish(
            format!("map-{entries}-{pages}"),
            format!("map: {entries} keys and {pages} pages, filled, moved, swept"),
        ));
    }
    full(scripts);
    images(scripts);
    large(scripts);
    loaded(scripts);
}

/// Maps at 93 % load and beyond, by many blocks at a time.
fn large(scripts: &mut Vec<Script>) {
    for (entries, pages) in [(20_000u64, 20_000u64), (300_000, 1 << 22)] {
        let (mut s, seed) = (Writing::empty(), 11);
        s.push(Op::Map { entries, pages, seed });
        let most = u64::from(MOST_FILLED);
        let parts = |end: u64| {
            (0..end).step_by(MOST_FILLED as usize).map(move |first| (first, most.min(end - first)))
        };
        for (first, count) in parts(entries) {
            let count = index(count);
            s.push(Op::Fill { first, seed, count });
            s.push(Op::Image);
        }
        for (first, count) in parts(entries) {
            s.push(Op::Look { first, seed, count: index(count) });
        }
        s.push(Op::Scan { first: 0, count: u64::MAX });
        s.push(Op::Words { first: 4096, count: 16 });
        // Up to a full stash.
        s.push(Op::Fill { first: entries, seed, count: index(entries / 10) });
        s.push(Op::Image);
        s.push(Op::Look { first: 0, seed, count: MOST_FILLED });
        s.push(Op::Sweep { vid: 7, first: 0, count: 1000 });
        s.push(Op::Image);
        s.push(Op::Scan { first: 0, count: u64::MAX });
        scripts.push(s.finish(
            format!("map-load-{entries}"),
            format!("map: {entries} keys at 93 % load, every one found, and more"),
        ));
    }
}

/// The image of a map of Rust's, word for word, and then every key looked up.
fn loaded(scripts: &mut Vec<Script>) {
    for entries in [50u64, 1000] {
        let (mut s, seed) = (Writing::empty(), 12);
        let (map, mut writer) = Map::new(entries, entries, seed).expect("possible sizes");
        let mut placed = 0;
        // More keys than the table holds, so that some are in the stash.
        for number in 0..entries * 110 / 100 {
            let (vid, vba) = block_of(seed, number);
            let (vid, page) = (Vid::new(vid).expect("a volume id"), index(number % entries));
            placed += u32::from(writer.insert(vid, vba, page, &mut |_, _| {}).is_ok());
        }
        let mut words = vec![0; usize::try_from(map.words()).expect("few")];
        map.read_words(0, &mut words);
        s.push(Op::Map { entries, pages: entries, seed });
        for (at, &value) in (0..).zip(&words).filter(|&(_, &word)| word != 0) {
            s.push(Op::SetWord { index: at, value });
        }
        s.push(Op::Check);
        s.push(Op::Image);
        s.push(Op::Look { first: 0, seed, count: index(entries * 110 / 100) });
        s.push(Op::Scan { first: 0, count: u64::MAX });
        for number in (0..entries).step_by(7) {
            let (vid, vba) = block_of(seed, number);
            s.push(Op::Find { vid, vba });
            s.push(Op::Remove { vid, vba });
        }
        s.push(Op::Image);
        scripts.push(s.finish(
            format!("image-of-rust-{entries}"),
            format!("image: {placed} keys of a map of the firmware's are found where they were"),
        ));
    }
}

/// One table of eight buckets, filled until nothing fits.
fn full(scripts: &mut Vec<Script>) {
    for seed in 0..8u64 {
        let mut s = Writing::empty();
        s.push(Op::Map { entries: 10, pages: 200, seed });
        for number in 0..110 {
            let (vid, vba) = block(seed, number);
            s.push(Op::Insert { vid, vba, page: index(number) });
        }
        s.push(Op::Image);
        s.push(Op::Sweep { vid: 7, first: 0, count: 1 });
        s.push(Op::Image);
        for number in 0..110 {
            let (vid, vba) = block(seed, number);
            s.push(Op::Find { vid, vba });
        }
        for number in 0..40 {
            let (vid, vba) = block(seed, number);
            s.push(Op::Remove { vid, vba });
            s.push(Op::Image);
        }
        scripts.push(
            s.finish(format!("stash-{seed}"), format!("stash: a full table of eight buckets, seed {seed}")),
        );
    }
}

/// Words that are set from outside, and their check.
fn images(scripts: &mut Vec<Script>) {
    let mut s = Writing::empty();
    s.push(Op::Map { entries: 50, pages: 100, seed: 9 });
    s.push(Op::Check);
    let valid = 1u64 << 63;
    for (at, value) in [
        (0u64, 1u64),
        (0, valid),
        (0, valid | 99),
        (0, valid | 100),
        (5, valid | 1 << 62 | 12 << 7 | 3),
        (7, u64::MAX >> 2 | valid),
        (0, 0),
        (64, 1),
        (64, valid | 1 << 32),
        (65, 100),
        (65, 99),
        (66, valid | 1 << 32),
        (66, valid | 7 << 32),
        (66, valid | 1 << 48),
        (66, valid),
        (127, 1),
        (127, 0),
        (66, 0),
        (128, 1),
        (u64::MAX, 0),
    ] {
        s.push(Op::SetWord { index: at, value });
        s.push(Op::Check);
    }
    for _ in 0..2 {
        s.push(Op::Clear);
        s.push(Op::Insert { vid: 1, vba: 2, page: 3 });
        s.push(Op::Image);
    }
    for number in 0..400u64 {
        s.push(Op::SetWord { index: number % 64, value: valid | mix64(number) >> 2 });
        s.push(Op::Check);
        s.push(Op::SetWord { index: number % 64, value: 0 });
    }
    s.push(Op::Check);
    scripts.push(s.finish("image", "image: a loaded word that no block can have there is found"));
}
