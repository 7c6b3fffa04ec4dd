// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cost of a lookup in the map beside a lookup in a flat array of as many pages. And how full the table
//! gets.
//!
//! `cargo bench -p gnstor-map --bench map_rate -- [--gib N | --mib N] [--json]`
//!
//! Every time is the best of many short rounds, alternating with its baseline, on one thread. On a shared
//! machine the other rounds measure the neighbours. Both sides draw random blocks in the same way, never
//! the same ones twice, since their lines would be in the cache. Both use the same batches of prefetches,
//! and huge pages where the system has them. Two maps have the same content: one uses the processor's
//! vectors, the other does not (`plain`).
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod blocks;
mod flat;
mod report;

use blocks::{Ahead, fill, fill_in_turn, look, look_dependent, look_in_turn, look_singly, overwrite, renew};
use flat::Flat;
use gnstor_map::{MAX_LOAD, Map, MapWriter};
use report::{ROUNDS, Report, Seeds, best, time};
use std::hint::black_box;

/// The same map twice: one uses vector instructions, the other does not.
struct Pair {
    fast: MapWriter,
    plain: MapWriter,
}

impl Pair {
    fn new(slots: u64, seed: u64) -> Self {
        let (entries, pages) = (slots * MAX_LOAD / 100, slots);
        let (_, fast) = Map::new(entries, pages, seed).expect("memory");
        let (_, plain) = Map::without_vectors(entries, pages, seed).expect("memory");
        Self { fast, plain }
    }

    /// Nanoseconds of one of `count` turns, for each of the two maps.
    fn time(&mut self, count: u64, mut run: impl FnMut(&mut MapWriter) -> u64) -> [f64; 2] {
        [&mut self.fast, &mut self.plain].map(|writer| {
            time(count, || {
                black_box(run(writer));
            })
        })
    }

    /// Both maps are equal, word for word.
    fn compare(&self) {
        let [mut fast, mut plain] = [vec![0; 1 << 16], vec![0; 1 << 16]];
        let words = self.fast.map().words();
        for from in (0..words).step_by(1 << 16) {
            let count = usize::try_from((words - from).min(1 << 16)).expect("few");
            self.fast.map().read_words(from, &mut fast[..count]);
            self.plain.map().read_words(from, &mut plain[..count]);
            assert_eq!(fast[..count], plain[..count], "the two maps from word {from}");
        }
    }
}

/// Time of one run with a seed of its own, for each of its `count` lookups.
fn keep(seeds: &mut Seeds, count: u64, run: &dyn Fn(u64) -> u64) -> f64 {
    let seed = seeds.draw();
    time(count, || {
        black_box(run(seed));
    })
}

/// The figures of [`lookups`], in their order.
const LOOKUPS: [(&str, &str); 16] = [
    ("flat_u32", "flat u32 array, batch of 32"),
    ("flat_u64", "flat u64 array, batch of 32"),
    ("flat_u64_turns_32", "flat u64 array, batches of 32 in turn: one announced, one looked at"),
    ("flat_u64_turns_16", "the same with batches of 16"),
    ("one_line", "floor: one random line of the map's size"),
    ("two_lines", "floor: two random lines of the map's size"),
    ("three_lines", "floor: three random lines of the map's size"),
    ("map", "map, batch of 32, second buckets asked for when they are needed"),
    ("map_both", "map, batch of 32, both buckets asked for"),
    ("map_turns_32", "map, batches of 32 in turn: one announced, one begun, one finished"),
    ("map_turns_16", "the same with batches of 16"),
    ("map_turns_8", "the same with batches of 8"),
    ("map_single", "map, both buckets asked for of 32, each block by itself"),
    ("plain_map", "map without vectors, as `map`"),
    ("plain_map_both", "map without vectors, as `map_both`"),
    ("plain_map_turns_16", "map without vectors, as `map_turns_16`"),
];

fn lookups(report: &mut Report, pair: &mut Pair, keys: u64, what: &str) {
    let (flat32, flat64) = (Flat::new(keys, 1), Flat::new(keys, 0));
    let lines = Flat::new(pair.fast.map().words(), 0);
    let count = 1 << 17;
    let keep = |seeds: &mut Seeds, run: &dyn Fn(u64) -> u64| keep(seeds, count, run);
    let figures = best(|seeds| {
        let (fast, slow) = (pair.fast.map(), pair.plain.map());
        [
            keep(seeds, &|seed| flat32.look::<1>(count, seed)),
            keep(seeds, &|seed| flat64.look::<1>(count, seed)),
            keep(seeds, &|seed| flat64.look_in_turn::<32>(count, seed)),
            keep(seeds, &|seed| flat64.look_in_turn::<16>(count, seed)),
            keep(seeds, &|seed| lines.look::<1>(count, seed)),
            keep(seeds, &|seed| lines.look::<2>(count, seed)),
            keep(seeds, &|seed| lines.look::<3>(count, seed)),
            keep(seeds, &|seed| look(fast, Ahead::First, 0..keys, count, seed)),
            keep(seeds, &|seed| look(fast, Ahead::Both, 0..keys, count, seed)),
            keep(seeds, &|seed| look_in_turn::<32>(fast, 0..keys, count, seed)),
            keep(seeds, &|seed| look_in_turn::<16>(fast, 0..keys, count, seed)),
            keep(seeds, &|seed| look_in_turn::<8>(fast, 0..keys, count, seed)),
            keep(seeds, &|seed| look_singly(fast, 0..keys, count, seed)),
            keep(seeds, &|seed| look(slow, Ahead::First, 0..keys, count, seed)),
            keep(seeds, &|seed| look(slow, Ahead::Both, 0..keys, count, seed)),
            keep(seeds, &|seed| look_in_turn::<16>(slow, 0..keys, count, seed)),
        ]
    });
    for ((name, text), value) in LOOKUPS.into_iter().zip(figures) {
        report.say(format!("{what}_{name}_ns"), value, &format!("ns, {text}"));
    }
    lookup_ratios(report, what);
    dependent_lookups(report, pair, keys, what);
}

fn lookup_ratios(report: &mut Report, what: &str) {
    report.ratio(what, ["map", "map", "flat_u64"], "x flat u64, both as batches of 32");
    report.ratio(what, ["map_turns_16", "map_turns_16", "flat_u64"], "x flat u64, only the map in turns");
    report.ratio(
        what,
        ["both_turns_16", "map_turns_16", "flat_u64_turns_16"],
        "x flat u64, both in turns of 16",
    );
    report.ratio(
        what,
        ["both_turns_32", "map_turns_32", "flat_u64_turns_32"],
        "x flat u64, both in turns of 32",
    );
    report.ratio(what, ["map_turns_16_to_two_lines", "map_turns_16", "two_lines"], "x two random lines");
    report.ratio(what, ["plain_map", "plain_map", "flat_u64"], "x flat u64, without vectors");
}

/// Lookups that each depend on the result of the one before.
fn dependent_lookups(report: &mut Report, pair: &mut Pair, keys: u64, what: &str) {
    let flat64 = Flat::new(keys, 0);
    let count = 1 << 14;
    let map = pair.fast.map();
    let keep = |seeds: &mut Seeds, run: &dyn Fn(u64) -> u64| keep(seeds, count, run);
    let [flat, found, missing] = best(|seeds| {
        [
            keep(seeds, &|seed| flat64.look_dependent(count, seed)),
            keep(seeds, &|seed| look_dependent(map, 0..keys, count, seed)),
            keep(seeds, &|seed| look_dependent(map, keys..2 * keys, count, seed)),
        ]
    });
    report.say(
        format!("{what}_flat_dependent_ns"),
        flat,
        "ns, flat u64 array, each look after the one before",
    );
    report.say(format!("{what}_map_dependent_ns"), found, "ns, map, each look after the one before");
    report.say(format!("{what}_map_missing_ns"), missing, "ns, map, the same for blocks that are not mapped");
}

/// Share of the keys that are in their first bucket, by the words of the image.
#[expect(clippy::cast_precision_loss, reason = "a share")]
fn first_share(map: &Map) -> f64 {
    let mut words = [0u64; 1024];
    let (mut first, mut all) = (0u64, 0u64);
    let mut at = 0;
    while at < map.words() {
        let count = usize::try_from((map.words() - at).min(1024)).expect("1024 at most");
        map.read_words(at, &mut words[..count]);
        all += words[..count].iter().filter(|&&word| word >> 63 == 1).count() as u64;
        first += words[..count].iter().filter(|&&word| word >> 62 == 2).count() as u64;
        at += count as u64;
    }
    first as f64 / all as f64
}

/// The figures of [`writes`], in their order.
const WRITES: [(&str, &str); 10] = [
    ("rmw", "read-modify-write of a random word, batch of 32"),
    ("rmw_and_read", "the same and a read of another line: an insertion's traffic"),
    ("rmw_and_two_reads", "the same and reads of two other lines: three probes"),
    ("insert", "insertion of a new block from 85 to 90 % load, batch of 32"),
    (
        "insert_turns_16",
        "the same, batches of 16 in turn: one announced, one with room asked for, one inserted",
    ),
    ("insert_turns_8", "the same with batches of 8"),
    ("plain_insert", "map without vectors, as `insert`"),
    ("plain_insert_turns_8", "map without vectors, as `insert_turns_8`"),
    ("overwrite", "insertion of a block that is mapped"),
    ("plain_overwrite", "map without vectors, as `overwrite`"),
];

fn write_ratios(report: &mut Report, what: &str) {
    report.ratio(what, ["insert", "insert", "rmw_and_read"], "x flat with the same traffic");
    report.ratio(
        what,
        ["insert_turns_16", "insert_turns_16", "rmw_and_read"],
        "x flat with the same traffic",
    );
    report.ratio(what, ["insert_turns_8", "insert_turns_8", "rmw_and_read"], "x flat with the same traffic");
    report.ratio(what, ["insert_to_rmw", "insert", "rmw"], "x flat with half the traffic");
    report.ratio(what, ["insert_to_three", "insert", "rmw_and_two_reads"], "x three probes");
    report.ratio(
        what,
        ["plain_insert", "plain_insert", "rmw_and_read"],
        "x flat with the same traffic, without vectors",
    );
    report.ratio(what, ["overwrite", "overwrite", "rmw_and_read"], "x flat with the same traffic");
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
fn writes(report: &mut Report, pair: &mut Pair, slots: u64, what: &str) -> u64 {
    let (from, to) = (slots * 85 / 100, slots * 90 / 100);
    pair.time(from, |writer| fill(writer, 0..from));
    let map = pair.fast.map().clone();
    report.say(
        format!("{what}_first_share_85"),
        first_share(&map),
        "of the keys in their first bucket at 85 %",
    );
    let (flat, step) = (Flat::new(to, 0), (to - from) / ROUNDS / 3 / 32 * 32);
    let (mut next, moved) = (from, map.relocations());
    let mut numbers = || {
        next += step;
        next - step..next
    };
    let figures = best(|seeds| {
        let blocks = numbers();
        let [insert, plain_insert] = pair.time(step, |writer| fill(writer, blocks.clone()));
        let blocks = numbers();
        let [turns_16, _] = pair.time(step, |writer| fill_in_turn::<16>(writer, blocks.clone()));
        let blocks = numbers();
        let [turns_8, plain_turns_8] = pair.time(step, |writer| fill_in_turn::<8>(writer, blocks.clone()));
        let seed = seeds.draw();
        let [replace, plain_replace] = pair.time(step, |writer| overwrite(writer, 0..from, step, seed));
        let [rmw, rmw2, rmw3] = [Flat::change::<1>, Flat::change::<2>, Flat::change::<3>].map(|change| {
            let seed = seeds.draw();
            time(step, || change(&flat, step, seed))
        });
        [rmw, rmw2, rmw3, insert, turns_16, turns_8, plain_insert, plain_turns_8, replace, plain_replace]
    });
    let moves = (map.relocations() - moved) as f64 / (next - from) as f64;
    for ((name, text), value) in WRITES.into_iter().zip(figures) {
        report.say(format!("{what}_{name}_ns"), value, &format!("ns, {text}"));
    }
    report.say(format!("{what}_moves"), moves, "moves for each insertion from 85 to 90 % load");
    write_ratios(report, what);
    pair.time(1, |writer| fill(writer, next..to));
    pair.compare();
    to
}

/// Removes the oldest of the blocks and inserts a new one, at 90 %, once for each key: the steady state.
#[expect(clippy::cast_precision_loss, reason = "a share")]
fn churn(report: &mut Report, writer: &mut MapWriter, keys: u64, what: &str) {
    let map = writer.map().clone();
    let moved = map.relocations();
    let slice = keys / 256 / 32 * 32;
    let mut ns = f64::INFINITY;
    for turn in 0..256 {
        ns = ns.min(time(slice, || {
            black_box(renew(writer, turn * slice..(turn + 1) * slice, keys));
        }));
    }
    report.say(format!("{what}_churn_ns"), ns, "ns, removal of a block and insertion of another at 90 %");
    let moves = (map.relocations() - moved) as f64 / (slice * 256) as f64;
    report.say(format!("{what}_churn_moves"), moves, "moves for each");
    report.say(
        format!("{what}_first_share_churned"),
        first_share(&map),
        "of the keys in their first bucket after it",
    );
    let count = 1 << 17;
    let [looks] = best(|seeds| {
        let seed = seeds.draw();
        [time(count, || {
            black_box(look_in_turn::<16>(&map, keys..keys + slice * 256, count, seed));
        })]
    });
    report.say(format!("{what}_churned_map_ns"), looks, "ns, a look after it, as `map_turns_16`");
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
fn full(report: &mut Report) {
    for shift in [16u32, 20, 22, 24] {
        let slots = 1u64 << shift;
        let (map, mut writer) = Map::new(slots * MAX_LOAD / 100, slots, u64::from(shift)).expect("memory");
        let (mut number, mut moved, page) = (0u64, 0, u32::from(shift == 16));
        while map.stashed() == 0 {
            let (vid, vba) = blocks::block(number);
            writer.insert(vid, vba, page, &mut |_, _| {}).expect("the stash at least");
            number += 1;
            if number == slots * MAX_LOAD / 100 {
                moved = map.relocations();
            }
        }
        report.say(
            format!("stash_load_2_{shift}"),
            map.load(),
            &format!("load at the first use of the stash, 2^{shift} slots"),
        );
        let moves = moved as f64 / (slots * MAX_LOAD / 100) as f64;
        report.say(format!("moves_2_{shift}"), moves, "moves for each insertion up to the rated load");
    }
}

/// The check of an image that was loaded.
fn restore(report: &mut Report, pair: &mut Pair) {
    let words = pair.fast.map().words();
    let mut check = [f64::INFINITY; 2];
    for _ in 0..9 {
        let round = pair.time(words, |writer| {
            let mut sum = 0u64;
            writer.finish_load(|page| sum += u64::from(page)).expect("a good image");
            sum
        });
        check = [0, 1].map(|of| check[of].min(round[of]));
    }
    report.say("check_ns", check[0], "ns for each word, check of an image at 90 % load");
    report.say("plain_check_ns", check[1], "ns, the same without vectors");
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        Some(
            args.get(at + 1)
                .and_then(|value| value.parse::<u64>().ok())
                .expect("a number after --gib or --mib"),
        )
    };
    let mib = number("--mib").or_else(|| number("--gib").map(|gib| gib << 10)).unwrap_or(1 << 10);
    assert!((1..=32 << 10).contains(&mib), "from 1 MiB to 32 GiB of slots, not {mib} MiB");
    let mut report = Report::new(args.iter().any(|arg| arg == "--json"));

    report.title("256 KiB of slots, in the cache");
    let mut small = Pair::new(1 << 15, 1);
    let keys = (1 << 15) * 9 / 10;
    small.time(keys, |writer| fill(writer, 0..keys));
    lookups(&mut report, &mut small, keys, "cached");

    report.title(&format!("{mib} MiB of slots"));
    let mut large = Pair::new(mib << 17, 2);
    let keys = writes(&mut report, &mut large, mib << 17, "large");
    let share = first_share(large.fast.map());
    report.say("large_first_share_90", share, "of the keys in their first bucket at 90 %");
    lookups(&mut report, &mut large, keys, "large");
    restore(&mut report, &mut large);
    churn(&mut report, &mut large.fast, keys, "large");
    full(&mut report);
    report.finish();
}
