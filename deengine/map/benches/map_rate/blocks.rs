// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks by number, and operations on many of them in a map.

use gnstor_map::{Batch, Map, MapWriter};
use gnstor_proto::placement::mix64;
use gnstor_proto::slba::Vid;
use std::hint::black_box;
use std::ops::Range;

/// Blocks announced together.
pub(crate) const BATCH: usize = 32;

/// Block number `number`: volumes of 2^22 blocks.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "numbers are below 2^36")]
pub(crate) fn block(number: u64) -> (Vid, u32) {
    (Vid::new((number >> 22) as u16 + 1).expect("fewer than 2^16 volumes"), number as u32 & 0x3F_FFFF)
}

/// A random number below `n`.
#[inline]
pub(crate) fn below(dice: u64, n: u64) -> u64 {
    ((u128::from(mix64(dice)) * u128::from(n)) >> 64) as u64
}

/// Draws a batch of random blocks from the range.
#[inline]
fn draw(blocks: &Range<u64>, batch: usize, seed: u64) -> impl Iterator<Item = (Vid, u32)> {
    let (start, count) = (blocks.start, blocks.end - blocks.start);
    (0..batch as u64).map(move |turn| block(start + below(seed + turn, count)))
}

/// Parts of the map that are prefetched before a lookup.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ahead {
    First,
    Both,
}

/// Makes `count` lookups of random blocks in the range, all of which are mapped.
pub(crate) fn look(map: &Map, ahead: Ahead, blocks: Range<u64>, count: u64, seed: u64) -> u64 {
    let mut sum = 0u64;
    let mut batch = Batch::default();
    for turn in 0..count / BATCH as u64 {
        let drawn = draw(&blocks, BATCH, seed + (turn << 7));
        match ahead {
            Ahead::First => map.probe_batch_first(drawn, &mut batch),
            Ahead::Both => map.probe_batch(drawn, &mut batch),
        }
        map.find_batch(&mut batch);
        for at in 0..BATCH {
            sum = sum.wrapping_add(u64::from(batch.page(at).expect("every block drawn is mapped")));
        }
    }
    sum
}

/// As [`look`], with three batches in flight: one is announced, one has its second buckets prefetched, and
/// one is finished. A processor has a limit of outstanding cache lines. With a smaller `BATCH` it computes
/// meanwhile.
pub(crate) fn look_in_turn<const BATCH: usize>(map: &Map, blocks: Range<u64>, count: u64, seed: u64) -> u64 {
    let mut sum = 0u64;
    let mut batches = [Batch::default(), Batch::default(), Batch::default()];
    let [mut new, mut begun, mut last] = batches.each_mut();
    for turn in 0..count / BATCH as u64 {
        map.probe_batch_first(draw(&blocks, BATCH, seed + (turn << 7)), new);
        map.begin_find(begun);
        map.find_batch(last);
        // The first two turns finish no batch.
        for at in 0..last.len() {
            sum = sum.wrapping_add(u64::from(last.page(at).expect("every block drawn is mapped")));
        }
        (new, begun, last) = (last, new, begun);
    }
    sum
}

/// As [`look`], but computes each place and finds each block by itself.
pub(crate) fn look_singly(map: &Map, blocks: Range<u64>, count: u64, seed: u64) -> u64 {
    let mut sum = 0u64;
    let (vid, vba) = block(0);
    let mut probes = [map.probe(vid, vba); BATCH];
    for turn in 0..count / BATCH as u64 {
        for (probe, (vid, vba)) in probes.iter_mut().zip(draw(&blocks, BATCH, seed + (turn << 7))) {
            *probe = map.probe(vid, vba);
        }
        for probe in &probes {
            sum = sum.wrapping_add(u64::from(map.find(probe).expect("every block drawn is mapped")));
        }
    }
    sum
}

/// Does `count` lookups in sequence. The result depends on how many blocks were mapped.
pub(crate) fn look_dependent(map: &Map, blocks: Range<u64>, count: u64, seed: u64) -> u64 {
    let mut last = seed;
    for turn in 0..count {
        let number = below((seed + turn) ^ (last << 56), blocks.end - blocks.start);
        let (vid, vba) = block(blocks.start + number);
        last = map.get(vid, vba).map_or(0, u64::from);
    }
    last
}

/// Inserts new blocks in batches. Returns the number of words that the log got.
pub(crate) fn fill(writer: &mut MapWriter, blocks: Range<u64>) -> u64 {
    let map = writer.map().clone();
    let (mut batch, mut logged) = (Batch::default(), 0);
    let mut next = blocks.start;
    while next < blocks.end {
        let end = blocks.end.min(next + BATCH as u64);
        map.probe_batch((next..end).map(block), &mut batch);
        writer.announce(&batch);
        for (at, number) in (next..end).enumerate() {
            let page = u32::try_from(number).expect("fewer than 2^32 pages");
            let old = writer.insert_at(&batch.probe(at), page, &mut |_, _| logged += 1).expect("room");
            assert!(old.is_none(), "block {number} was there");
        }
        next = end;
    }
    logged
}

/// As [`fill`], with three batches in flight. One has its buckets prefetched, one has other buckets
/// prefetched, and one is inserted. The number of blocks is a multiple of `BATCH`.
pub(crate) fn fill_in_turn<const BATCH: usize>(writer: &mut MapWriter, blocks: Range<u64>) -> u64 {
    let map = writer.map().clone();
    let mut logged = 0;
    let mut batches = [Batch::default(), Batch::default(), Batch::default()];
    let [mut new, mut begun, mut last] = batches.each_mut();
    let mut inserted = blocks.start;
    while inserted < blocks.end {
        let ahead = inserted + ((begun.len() + last.len()) as u64);
        map.probe_batch((ahead..blocks.end.min(ahead + BATCH as u64)).map(block), new);
        writer.announce(begun);
        for at in 0..last.len() {
            let page = u32::try_from(inserted).expect("fewer than 2^32 pages");
            let old = writer.insert_at(&last.probe(at), page, &mut |_, _| logged += 1).expect("room");
            assert!(old.is_none(), "block {inserted} was there");
            inserted += 1;
        }
        (new, begun, last) = (last, new, begun);
    }
    logged
}

/// Changes the page of `count` random blocks, all of which are mapped.
pub(crate) fn overwrite(writer: &mut MapWriter, blocks: Range<u64>, count: u64, seed: u64) -> u64 {
    let map = writer.map().clone();
    let (mut batch, mut logged) = (Batch::default(), 0);
    for turn in 0..count / BATCH as u64 {
        map.probe_batch(draw(&blocks, BATCH, seed + (turn << 7)), &mut batch);
        for at in 0..BATCH {
            let page = u32::try_from(turn & 0xFFFF).expect("16 bits");
            black_box(writer.insert_at(&batch.probe(at), page, &mut |_, _| logged += 1).expect("in place"));
        }
    }
    logged
}

/// Removes the oldest blocks and inserts new ones, `ahead` numbers later.
pub(crate) fn renew(writer: &mut MapWriter, blocks: Range<u64>, ahead: u64) -> u64 {
    let map = writer.map().clone();
    let (mut old, mut new, mut logged) = (Batch::default(), Batch::default(), 0);
    for base in blocks.step_by(BATCH) {
        let numbers = base..base + BATCH as u64;
        map.probe_batch(numbers.clone().map(block), &mut old);
        map.probe_batch(numbers.map(|number| block(ahead + number)), &mut new);
        writer.announce(&new);
        for at in 0..BATCH {
            let page = writer.remove_at(&old.probe(at), &mut |_, _| logged += 1).expect("mapped");
            writer.insert_at(&new.probe(at), page, &mut |_, _| logged += 1).expect("room");
        }
    }
    logged
}
