// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Readers beside the writer: at every step of either, and in real threads.

use super::*;
use crate::search::At;
use crate::shape::WHICH;
use crate::{Batch, Map, MapWriter, SLOTS};
use gnstor_proto::placement::mix64;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Blocks that stay are found after every single step of a writer that fills, moves, stashes and brings back.
#[test]
fn a_block_that_stays_is_found_at_every_step_of_the_writer() {
    let _deadline = crate::tests::deadline();
    for seed in 0..4u64 {
        let (map, mut writer) = Map::with_buckets(8, 1 << 16, seed).unwrap();
        for vba in 0..75 {
            writer.insert(vid(1), vba, vba, &mut no_log).unwrap();
        }
        assert!(map.stashed() > 0);
        let (steps, stashed) = (Rc::new(Cell::new(0)), Rc::new(Cell::new([0; 2])));
        let (seen, busy) = (map.clone(), Rc::new(Cell::new(0)));
        let (count, sorts, now) = (steps.clone(), stashed.clone(), busy.clone());
        at_each_step(move |_| {
            count.set(count.get() + 1);
            let mut both = sorts.get();
            both[usize::from(seen.stashed() > 0)] += 1;
            sorts.set(both);
            for vba in (0..75).filter(|&vba| vba < 40 || vba == 40 + now.get()) {
                let page = seen.get(vid(1), vba).unwrap_or_else(|| panic!("block {vba} is gone"));
                assert_eq!(page % 75, vba);
            }
            // A block that was never mapped is never found.
            assert_eq!(seen.get(vid(2), 1), None);
        });
        // Blocks from 40 on are inserted and removed in turn. The one named by `busy` stays this time.
        for turn in 0..600u64 {
            let dice = mix64(turn ^ seed << 32);
            let vba = 40 + u32::try_from(dice % 35).unwrap();
            let mut stays = u32::try_from(dice >> 32).unwrap() % 35;
            if 40 + stays == vba || map.get(vid(1), 40 + stays).is_none() {
                stays = 100;
            }
            busy.set(stays);
            if writer.remove(vid(1), vba, &mut no_log).is_none() || map.stashed() == 0 {
                writer.insert(vid(1), vba, vba + 75, &mut no_log).unwrap();
            }
            let kept = u32::try_from(dice >> 16 & 31).unwrap();
            writer.insert(vid(1), kept, kept + 75 * u32::try_from(turn & 7).unwrap(), &mut no_log).unwrap();
        }
        no_hook();
        println!("seed {seed}: {} steps, {:?} of them without and with a stash", steps.get(), stashed.get());
        assert!(map.relocations() > 0 && stashed.get().iter().all(|&steps| steps > 0));
    }
}

/// A key in its second bucket, with room in the first: the key, and its slot.
fn movable(writer: &MapWriter) -> Vec<(u32, At)> {
    let map = writer.map();
    let mut found = Vec::new();
    for vba in 0..u32::try_from(map.len()).unwrap() {
        let probe = map.place(vid(1), vba);
        let line = map.table.memory.line(u64::from(probe.second));
        let slot = (0..SLOTS).find(|&slot| {
            let word = line[slot].load(Ordering::Relaxed);
            word & !map.table.shape.page_mask == probe.tag | WHICH
        });
        if let (Some(slot), Some(_), true) =
            (slot, empty_in(map, u64::from(probe.first)), probe.first != probe.second)
        {
            found.push((vba, At { bucket: u64::from(probe.second), slot }));
        }
    }
    found
}

type Look = fn(&Map, u32) -> Option<u32>;

/// The ways to look for a block.
fn ways() -> [(&'static str, Look); 3] {
    fn batch(map: &Map, vba: u32, begin: bool) -> Option<u32> {
        let mut batch = Batch::default();
        map.probe_batch_first([(vid(1), vba)], &mut batch);
        if begin {
            map.begin_find(&mut batch);
        }
        map.find_batch(&mut batch);
        batch.page(0)
    }
    [
        ("get", |map, vba| map.get(vid(1), vba)),
        ("batch", |map, vba| batch(map, vba, false)),
        ("batch, begun before", |map, vba| batch(map, vba, true)),
    ]
}

/// After each lookup in vain, an adversary moves the key to the bucket where the reader has just looked.
#[test]
fn a_miss_is_not_believed_while_the_key_moves() {
    let _deadline = crate::tests::deadline();
    let (map, mut writer) = Map::with_buckets(64, 1 << 16, 9).unwrap();
    for vba in 0..400 {
        writer.insert(vid(1), vba, vba, &mut no_log).unwrap();
    }
    for vba in (0..400).step_by(2) {
        writer.remove(vid(1), vba, &mut no_log);
    }
    for vba in (0..200).map(|at| at * 2) {
        writer.insert(vid(1), vba, vba, &mut no_log).unwrap();
    }
    let keys = movable(&writer);
    assert!(keys.len() > 5, "{} keys to try", keys.len());
    let writer = Rc::new(RefCell::new(writer));
    for (vba, at) in keys {
        let probe = map.place(vid(1), vba);
        let place = Rc::new(Cell::new(at));
        for (moves, (way, look)) in (1..12u32).flat_map(|moves| ways().map(|way| (moves, way))) {
            let left = Rc::new(Cell::new(moves));
            let (hook_left, hook_place, hook_writer) = (left.clone(), place.clone(), writer.clone());
            at_each_step(move |step| {
                if step == Step::Missed && hook_left.get() > 0 {
                    hook_left.set(hook_left.get() - 1);
                    relocate(&hook_writer.borrow(), &probe, &hook_place);
                }
            });
            assert_eq!(look(&map, vba), Some(vba), "block {vba}, {moves} moves, {way}");
            no_hook();
            assert_eq!(left.get(), 0, "the reader looked in vain as often as the key moved");
            if moves % 2 == 1 {
                relocate(&writer.borrow(), &probe, &place);
            }
        }
    }
}

/// An empty slot of a bucket.
fn empty_in(map: &Map, bucket: u64) -> Option<usize> {
    map.table.memory.line(bucket).iter().position(|slot| slot.load(Ordering::Relaxed) == 0)
}

/// Moves a key to its other bucket, as the writer does.
fn relocate(writer: &MapWriter, probe: &crate::Probe, place: &Cell<At>) {
    let (map, from) = (writer.map(), place.get());
    let to = other_gap(map, from, probe);
    writer.shift(from, to, &mut no_log);
    map.table.memory.line(from.bucket)[from.slot].store(0, Ordering::Release);
    place.set(to);
}

fn other_gap(map: &Map, from: At, probe: &crate::Probe) -> At {
    let (first, second) = (u64::from(probe.first), u64::from(probe.second));
    let bucket = if from.bucket == first { second } else { first };
    At { bucket, slot: empty_in(map, bucket).unwrap() }
}

/// The key goes from the stash to the table just when the reader has looked into the table.
#[test]
fn a_miss_is_not_believed_while_the_key_leaves_the_stash() {
    let _deadline = crate::tests::deadline();
    let mut tried = 0;
    for (seed, (way, look)) in (0..40u64).flat_map(|seed| ways().map(|way| (seed, way))) {
        let (map, mut writer) = Map::with_buckets(8, 1 << 16, seed).unwrap();
        let mut last = 0;
        while map.stashed() == 0 {
            writer.insert(vid(1), last, last, &mut no_log).unwrap();
            last += 1;
        }
        last -= 1;
        let writer = RefCell::new(writer);
        let next = Cell::new(0);
        let inner = map.clone();
        at_each_step(move |step| {
            // The writer makes room until the stash is empty.
            while step == Step::TableMissed && inner.stashed() > 0 {
                writer.borrow_mut().remove(vid(1), next.get(), &mut no_log);
                next.set(next.get() + 1);
            }
        });
        assert_eq!(look(&map, last), Some(last), "seed {seed}, {way}");
        no_hook();
        tried += usize::from(map.stashed() == 0);
    }
    assert_eq!(tried, 120);
}

/// The block of a number.
fn key(number: u64) -> (Vid, u32) {
    (vid(1 + u16::try_from(number % 3).unwrap()), u32::try_from(number).unwrap())
}

/// Blocks that readers look up while one thread writes.
struct Race<'a> {
    map: &'a Map,
    /// Blocks below this number stay mapped.
    stay: u64,
    all: u64,
    number_bits: u32,
}

impl Race<'_> {
    fn page(&self, number: u64, version: u64) -> u32 {
        u32::try_from(version << self.number_bits | number).unwrap()
    }

    /// Looks blocks up until the writer is done; returns the number of lookups.
    fn read(&self, reader: u64, done: &AtomicBool) -> u64 {
        let mut newest = vec![0; usize::try_from(self.all).unwrap()];
        let mut turn = reader << 40;
        let mut batch = Batch::default();
        while !done.load(Ordering::Relaxed) {
            let numbers: [u64; 16] = std::array::from_fn(|at| mix64(turn + at as u64) % self.all);
            turn += 16;
            self.map.probe_batch_first(numbers.map(key), &mut batch);
            self.map.find_batch(&mut batch);
            let seen = newest.clone();
            for (at, &number) in numbers.iter().enumerate() {
                let (vid, vba) = key(number);
                // One reader looks up many blocks at once, in random order. The other one looks them up one
                // after the other.
                let (found, before) = match reader {
                    0 => (batch.page(at), seen[usize::try_from(number).unwrap()]),
                    _ => (self.map.get(vid, vba), newest[usize::try_from(number).unwrap()]),
                };
                let Some(found) = found else {
                    assert!(number >= self.stay, "block {number} was missed, reader {reader}, turn {turn}");
                    continue;
                };
                let version = u64::from(found) >> self.number_bits;
                assert_eq!(found, self.page(number, version), "the page of another block");
                assert!(version >= before, "block {number}: version {version} after {before}");
                let newest: &mut u64 = &mut newest[usize::try_from(number).unwrap()];
                *newest = version.max(*newest);
            }
        }
        turn & 0xFF_FFFF_FFFF
    }
}

/// Threads read while one writes. Readers never miss blocks that stay, never get another block's page, and
/// never see an older page after a newer one. A page is the number of a block and how often it was changed.
///
/// `stay` blocks stay, `live` of others are mapped at any time, `spare` are not.
fn race(map: &Map, mut writer: MapWriter, [stay, live, spare]: [u64; 3], turns: u64) {
    let buckets = map.buckets();
    let all = stay + live + spare;
    let number_bits = 64 - (all - 1).leading_zeros();
    let race = Race { map, stay, all, number_bits };
    let page = |number: u64, version: u64| race.page(number, version);
    for number in 0..stay + live {
        let (vid, vba) = key(number);
        writer.insert(vid, vba, page(number, 0), &mut no_log).unwrap();
    }
    let (done, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for reader in 0..2u64 {
            let (race, done, reads) = (&race, &done, &reads);
            scope.spawn(move || {
                let turns = race.read(reader, done);
                reads.fetch_add(turns, Ordering::Relaxed);
            });
        }
        // With more threads than cores, the writer pauses in the middle of a change only if it yields itself.
        let count = Cell::new(0u64);
        at_each_step(move |_| {
            count.set(count.get() + 1);
            if mix64(count.get()).is_multiple_of(2048) {
                std::thread::yield_now();
            }
        });
        let (mut versions, mut most) = (vec![0u64; usize::try_from(all).unwrap()], 0);
        let mut live: Vec<u64> = (stay..stay + live).collect();
        let mut dead: Vec<u64> = (all - spare..all).collect();
        let mut next = |number: u64| {
            let version = &mut versions[usize::try_from(number).unwrap()];
            *version += 1;
            page(number, *version)
        };
        for turn in 0..turns {
            let pick = |from: usize, dice: u64| usize::try_from(mix64(dice) % from as u64).unwrap();
            let number = mix64(!turn) % stay;
            let (vid, vba) = key(number);
            let new = next(number);
            assert!(writer.replace_at(&map.probe(vid, vba), new - (1 << number_bits), new, &mut no_log));
            let (out, back) = (pick(live.len(), turn), pick(dead.len(), turn << 20));
            let (vid, vba) = key(live[out]);
            assert!(writer.remove(vid, vba, &mut no_log).is_some());
            std::mem::swap(&mut live[out], &mut dead[back]);
            let (vid, vba) = key(live[out]);
            assert_eq!(writer.insert(vid, vba, next(live[out]), &mut no_log), Ok(None));
            most = most.max(writer.map().stashed());
        }
        no_hook();
        done.store(true, Ordering::Relaxed);
        println!("{buckets} buckets: {} moves, stash up to {most}", writer.map().relocations());
    });
    println!("{} reads", reads.load(Ordering::Relaxed));
}

/// A function that makes a map with these numbers of buckets and pages, from a seed.
type New = fn(u64, u64, u64) -> std::io::Result<(Arc<Map>, MapWriter)>;

fn races(new: New, buckets: u64, page_bits: u32, blocks: [u64; 3], turns: u64) {
    let (map, writer) = new(buckets, 1 << page_bits, 77).unwrap();
    assert_eq!(map.buckets(), buckets);
    race(&map, writer, blocks, turns);
}

#[test]
fn readers_beside_a_writer_at_a_high_load() {
    let _deadline = crate::tests::deadline();
    for new in [Map::with_buckets, Map::plain_with_buckets] {
        races(new, 32, 19, [100, 138, 150], 40_000);
    }
}

#[test]
fn readers_beside_a_writer_that_uses_the_stash() {
    let _deadline = crate::tests::deadline();
    races(Map::with_buckets, 8, 17, [40, 34, 40], if is_long() { 16_000 } else { 3_000 });
}

#[test]
fn readers_without_vectors_beside_a_writer_that_uses_the_stash() {
    let _deadline = crate::tests::deadline();
    races(Map::plain_with_buckets, 8, 17, [40, 34, 40], if is_long() { 16_000 } else { 3_000 });
}
