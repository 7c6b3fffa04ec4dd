// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scripts of the map alone: the same words as Rust's, at every load.

use crate::file::Script;
use crate::op::Op;
use crate::script::Writing;
use gnstor_proto::placement::mix64;

fn index(value: u64) -> u32 {
    u32::try_from(value & 0xFFFF_FFFF).expect("32 bits")
}

/// Blocks of three volumes, the same for the same number.
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
