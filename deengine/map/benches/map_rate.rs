// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a look into the map costs beside a look into a flat array of as many pages, and how full the table gets.
//!
//! `cargo bench -p gnstor-map --bench map_rate -- [--gib N | --mib N] [--json]`
//!
//! Every time is the best of many short rounds, in turn with what it is compared with, on one thread: on a machine that
//! others use too, the other rounds measure them. Both sides draw the same random blocks and use the same batches of
//! prefetches; both are in huge pages where the system gives them.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(unsafe_code, reason = "a prefetch")]

use gnstor_fabric::region::HostRegion;
use gnstor_map::{MAX_LOAD, Map, MapWriter, Probe};
use gnstor_proto::placement::mix64;
use gnstor_proto::slba::Vid;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const BATCH: usize = 32;
const ROUNDS: usize = 31;

/// Figures in the order in which they came.
#[derive(Default)]
struct Report {
    json: bool,
    figures: Vec<(String, f64)>,
}

impl Report {
    fn say(&mut self, name: impl Into<String>, value: f64, text: &str) {
        let name = name.into();
        if !self.json {
            println!("{value:>12.3}  {text}   [{name}]");
        }
        self.figures.push((name, value));
    }

    fn of(&self, name: &str) -> f64 {
        self.figures.iter().find(|(known, _)| known == name).map_or(f64::NAN, |&(_, value)| value)
    }

    fn ratio(&mut self, name: &str, over: &str, under: &str, text: &str) {
        let value = self.of(over) / self.of(under);
        self.say(name, value, text);
    }

    fn finish(&self) {
        if self.json {
            let fields: Vec<_> = self.figures.iter().map(|(name, value)| format!("\"{name}\":{value:.4}")).collect();
            println!("{{{}}}", fields.join(","));
        }
    }
}

/// Block number `number`: volumes of 2^22 blocks.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "numbers are below 2^36")]
fn block(number: u64) -> (Vid, u32) {
    (Vid::new((number >> 22) as u16 + 1).expect("fewer than 2^16 volumes"), number as u32 & 0x3F_FFFF)
}

/// A random number below `n`.
#[inline]
fn below(dice: u64, n: u64) -> u64 {
    ((u128::from(mix64(dice)) * u128::from(n)) >> 64) as u64
}

#[inline]
fn prefetch(word: &AtomicU64) {
    // SAFETY: the address of a live atomic; a prefetch reads nothing that the program sees.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(word.as_ptr().cast_const().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = word;
}

/// Pages in a flat array of words of 4 or 8 bytes.
struct Flat {
    region: Arc<HostRegion>,
    words: usize,
    pages: u64,
    /// 1: two pages in a word.
    shift: u32,
}

impl Flat {
    #[expect(clippy::cast_possible_truncation, reason = "64-bit host")]
    fn new(pages: u64, shift: u32) -> Self {
        let words = (pages >> shift) as usize + 1;
        let region = HostRegion::alloc(words * 8).expect("memory");
        for (at, word) in region.words64(0, words).iter().enumerate() {
            word.store(at as u64 | 1, Ordering::Relaxed);
        }
        Self { region, words, pages, shift }
    }

    fn words(&self) -> &[AtomicU64] {
        self.region.words64(0, self.words)
    }
}

/// Nanoseconds of one of `count` turns of what `run` does.
#[expect(clippy::cast_precision_loss, reason = "a duration")]
fn time(count: u64, run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_nanos() as f64 / count as f64
}

/// The best of several measurements in turn.
fn best<const N: usize>(mut measure: impl FnMut(u64) -> [f64; N]) -> [f64; N] {
    let rounds: Vec<[f64; N]> = (0..ROUNDS as u64).map(|round| measure(round << 40)).collect();
    std::array::from_fn(|of| rounds.iter().map(|round| round[of]).fold(f64::INFINITY, f64::min))
}

/// `count` random looks into a flat array, `lines` places each.
fn flat_batches(flat: &Flat, lines: u64, count: u64, seed: u64) -> u64 {
    let words = flat.words();
    let mut sum = 0u64;
    let mut at = [(0usize, 0u32); BATCH * 2];
    for batch in 0..count / BATCH as u64 {
        let places = &mut at[..BATCH * usize::try_from(lines).expect("1 or 2")];
        for (turn, place) in places.iter_mut().enumerate() {
            let page = below(seed + (batch << 6) + turn as u64, flat.pages);
            *place = (usize::try_from(page >> flat.shift).expect("64-bit host"), u32::from(page & 1 == 1) << 5);
            prefetch(&words[place.0]);
        }
        for place in places {
            sum = sum.wrapping_add(words[place.0].load(Ordering::Relaxed) >> (place.1 * flat.shift) & 0xFFFF_FFFF);
        }
    }
    sum
}

/// `count` random looks into the map.
fn map_batches(map: &Map, both: bool, keys: u64, count: u64, seed: u64) -> u64 {
    let mut sum = 0u64;
    let (vid, vba) = block(0);
    let mut probes = [map.probe(vid, vba); BATCH];
    for batch in 0..count / BATCH as u64 {
        for (turn, probe) in probes.iter_mut().enumerate() {
            let (vid, vba) = block(below(seed + (batch << 6) + turn as u64, keys));
            *probe = if both { map.probe(vid, vba) } else { map.probe_first(vid, vba) };
        }
        for probe in &probes {
            sum = sum.wrapping_add(u64::from(map.find(probe).expect("every block below `keys` is mapped")));
        }
    }
    sum
}

/// Inserts blocks `from..to`, which are new, in batches.
fn fill(writer: &mut MapWriter, from: u64, to: u64, logged: &mut u64) {
    let map = writer.map().clone();
    let mut probes: Vec<Probe> = Vec::with_capacity(BATCH);
    let mut next = from;
    while next < to {
        probes.clear();
        probes.extend((next..to.min(next + BATCH as u64)).map(|number| {
            let (vid, vba) = block(number);
            map.probe(vid, vba)
        }));
        for (probe, number) in probes.iter().zip(next..) {
            let page = u32::try_from(number).expect("fewer than 2^32 pages");
            let old = writer.insert_at(probe, page, &mut |_, _| *logged += 1).expect("room");
            assert!(old.is_none(), "block {number} was there");
        }
        next += probes.len() as u64;
    }
}

fn lookups(report: &mut Report, map: &Map, keys: u64, what: &str) {
    let (flat32, flat64) = (Flat::new(keys, 1), Flat::new(keys, 0));
    let lines = Flat::new(map.words(), 0);
    let count = 1 << 17;
    let [a, b, c, d, first, both] = best(|seed| {
        [
            time(count, || {
                black_box(flat_batches(&flat32, 1, count, seed));
            }),
            time(count, || {
                black_box(flat_batches(&flat64, 1, count, seed));
            }),
            time(count, || {
                black_box(flat_batches(&lines, 1, count, seed));
            }),
            time(count, || {
                black_box(flat_batches(&lines, 2, count, seed));
            }),
            time(count, || {
                black_box(map_batches(map, false, keys, count, seed));
            }),
            time(count, || {
                black_box(map_batches(map, true, keys, count, seed));
            }),
        ]
    });
    report.say(format!("{what}_flat_u32_ns"), a, "ns, flat u32 array, batch of 32");
    report.say(format!("{what}_flat_u64_ns"), b, "ns, flat u64 array, batch of 32");
    report.say(format!("{what}_one_line_ns"), c, "ns, floor: one random line of the map's size");
    report.say(format!("{what}_two_lines_ns"), d, "ns, floor: two random lines of the map's size");
    report.say(format!("{what}_map_first_ns"), first, "ns, map, only the first bucket prefetched");
    report.say(format!("{what}_map_ns"), both, "ns, map, both buckets prefetched");
    report.ratio(&format!("{what}_ratio_u32"), &format!("{what}_map_ns"), &format!("{what}_flat_u32_ns"), "x flat u32");
    report.ratio(&format!("{what}_ratio_u64"), &format!("{what}_map_ns"), &format!("{what}_flat_u64_ns"), "x flat u64");

    let count = 1 << 14;
    let words = flat64.words();
    let [flat, map_ns, missing] = best(|seed| {
        let mut last = seed;
        let flat = time(count, || {
            for turn in 0..count {
                let at = below((seed + turn) ^ (last << 56), keys);
                last = words[usize::try_from(at).expect("64-bit host")].load(Ordering::Relaxed);
            }
        });
        let map_ns = time(count, || {
            for turn in 0..count {
                let (vid, vba) = block(below((seed + turn) ^ (last << 56), keys));
                last = u64::from(map.get(vid, vba).expect("mapped"));
            }
        });
        let missing = time(count, || {
            for turn in 0..count {
                let (vid, vba) = block(keys + below((seed + turn) ^ (last << 56), keys));
                last = u64::from(map.get(vid, vba).is_some());
            }
        });
        black_box(last);
        [flat, map_ns, missing]
    });
    report.say(format!("{what}_flat_dependent_ns"), flat, "ns, flat u64 array, each look after the one before");
    report.say(format!("{what}_map_dependent_ns"), map_ns, "ns, map, each look after the one before");
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

#[expect(clippy::cast_precision_loss, reason = "a share")]
fn writes(report: &mut Report, writer: &mut MapWriter, slots: u64, what: &str) -> u64 {
    let mut logged = 0;
    let (from, to) = (slots * 85 / 100, slots * 90 / 100);
    fill(writer, 0, from, &mut logged);
    report.say(
        format!("{what}_first_share_85"),
        first_share(writer.map()),
        "of the keys in their first bucket at 85 %",
    );
    let flat = Flat::new(to, 0);
    let (words, step) = (flat.words(), (to - from) / ROUNDS as u64 / BATCH as u64 * BATCH as u64);
    let (mut next, moved) = (from, writer.map().relocations());
    let [insert, rmw1, rmw2, replace] = best(|seed| {
        let insert = time(step, || fill(writer, next, next + step, &mut logged));
        next += step;
        let rmw = |lines: u64| {
            let mut at = [0usize; BATCH * 2];
            let places = &mut at[..BATCH * usize::try_from(lines).expect("1 or 2")];
            time(step, || {
                for batch in 0..step / BATCH as u64 {
                    for (turn, place) in places.iter_mut().enumerate() {
                        let page = below(seed + (batch << 6) + turn as u64, to);
                        *place = usize::try_from(page).expect("64-bit host");
                        prefetch(&words[*place]);
                    }
                    for (turn, &place) in places.iter().enumerate() {
                        let old = words[place].load(Ordering::Relaxed);
                        if (turn as u64).is_multiple_of(lines) {
                            words[place].store(old + batch, Ordering::Release);
                        } else {
                            black_box(old);
                        }
                    }
                }
            })
        };
        let (rmw1, rmw2) = (rmw(1), rmw(2));
        let map = writer.map().clone();
        let replace = time(step, || {
            let (vid, vba) = block(0);
            let mut probes = [map.probe(vid, vba); BATCH];
            for batch in 0..step / BATCH as u64 {
                for (turn, probe) in probes.iter_mut().enumerate() {
                    let (vid, vba) = block(below(seed + (batch << 6) + turn as u64, from));
                    *probe = map.probe(vid, vba);
                }
                for probe in &probes {
                    let page = u32::try_from(batch & 0xFFFF).expect("16 bits");
                    black_box(writer.insert_at(probe, page, &mut |_, _| logged += 1).expect("in place"));
                }
            }
        });
        [insert, rmw1, rmw2, replace]
    });
    report.say(format!("{what}_rmw_ns"), rmw1, "ns, read-modify-write of a random word, batch of 32");
    report.say(
        format!("{what}_rmw_and_read_ns"),
        rmw2,
        "ns, the same and a read of another line: an insertion's traffic",
    );
    report.say(format!("{what}_insert_ns"), insert, "ns, insertion of a new block from 85 to 90 % load");
    report.say(format!("{what}_overwrite_ns"), replace, "ns, insertion of a block that is mapped");
    let moves = (writer.map().relocations() - moved) as f64 / (next - from) as f64;
    report.say(format!("{what}_moves"), moves, "moves for each insertion from 85 to 90 % load");
    report.ratio(&format!("{what}_insert_ratio"), &format!("{what}_insert_ns"), &format!("{what}_rmw_ns"), "x flat");
    report.ratio(
        &format!("{what}_overwrite_ratio"),
        &format!("{what}_overwrite_ns"),
        &format!("{what}_rmw_ns"),
        "x flat",
    );
    fill(writer, next, to, &mut logged);
    black_box(logged);
    to
}

/// Removes the oldest of the blocks and inserts a new one, at 90 %, once for each key: the steady state.
fn churn(report: &mut Report, writer: &mut MapWriter, keys: u64, what: &str) {
    let mut logged = 0u64;
    let moved = writer.map().relocations();
    let map = writer.map().clone();
    let mut probes = Vec::with_capacity(BATCH * 2);
    let slice = keys / 256 / BATCH as u64 * BATCH as u64;
    let turns = slice * 256;
    let mut ns = f64::INFINITY;
    for from in (0..turns).step_by(usize::try_from(slice).expect("64-bit host")) {
        ns = ns.min(time(slice, || {
            for base in (from..from + slice).step_by(BATCH) {
                probes.clear();
                for number in base..base + BATCH as u64 {
                    let ((vid, vba), (new, at)) = (block(number), block(keys + number));
                    probes.push((map.probe(vid, vba), map.probe(new, at)));
                }
                for (old, new) in &probes {
                    let page = writer.remove_at(old, &mut |_, _| logged += 1).expect("mapped");
                    writer.insert_at(new, page, &mut |_, _| logged += 1).expect("room");
                }
            }
        }));
    }
    black_box(logged);
    report.say(format!("{what}_churn_ns"), ns, "ns, removal of a block and insertion of another at 90 %");
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let moves = (map.relocations() - moved) as f64 / turns as f64;
    report.say(format!("{what}_churn_moves"), moves, "moves for each");
    report.say(format!("{what}_first_share_churned"), first_share(&map), "of the keys in their first bucket after it");
    let count = 1 << 17;
    let [first] = best(|seed| {
        [time(count, || {
            for turn in (0..count).step_by(BATCH) {
                let probes: [Probe; BATCH] = std::array::from_fn(|at| {
                    let (vid, vba) = block(keys + below(seed + turn + at as u64, turns));
                    map.probe(vid, vba)
                });
                probes.iter().for_each(|probe| {
                    black_box(map.find(probe).expect("mapped"));
                });
            }
        })]
    });
    report.say(format!("{what}_churned_map_ns"), first, "ns, a look after it, batch of 32");
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
fn full(report: &mut Report) {
    for shift in [16u32, 20, 22, 24] {
        let slots = 1u64 << shift;
        let (map, mut writer) = Map::new(slots * MAX_LOAD / 100, slots, u64::from(shift)).expect("memory");
        let (mut number, mut moved, page) = (0u64, 0, u32::from(shift == 16));
        while map.stashed() == 0 {
            let (vid, vba) = block(number);
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

/// Loads an image back and checks it.
#[expect(clippy::cast_precision_loss, reason = "a rate")]
fn restore(report: &mut Report, writer: &mut MapWriter) {
    let mut sum = 0u64;
    let words = writer.map().words();
    let mut check = f64::INFINITY;
    for _ in 0..9 {
        check = check.min(time(words, || writer.finish_load(|page| sum += u64::from(page)).expect("a good image")));
    }
    black_box(sum);
    report.say("check_ns", check, "ns for each word, check of an image at 90 % load");
    report.say("check_2_28_s", check * (1u64 << 28) as f64 / 1e9, "s for 2^28 words at that rate");
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        Some(args.get(at + 1).and_then(|value| value.parse::<u64>().ok()).expect("a number after --gib or --mib"))
    };
    let mib = number("--mib").or_else(|| number("--gib").map(|gib| gib << 10)).unwrap_or(1 << 10);
    assert!((1..=32 << 10).contains(&mib), "from 1 MiB to 32 GiB of slots, not {mib} MiB");
    let mut report = Report { json: args.iter().any(|arg| arg == "--json"), ..Report::default() };

    if !report.json {
        println!("-- 256 KiB of slots, in the cache");
    }
    let slots = 1 << 15;
    let (_, mut small) = Map::new(slots * MAX_LOAD / 100, slots, 1).expect("memory");
    let keys = slots * 9 / 10;
    fill(&mut small, 0, keys, &mut 0);
    let map = small.map().clone();
    lookups(&mut report, &map, keys, "cached");

    if !report.json {
        println!("-- {mib} MiB of slots");
    }
    let slots = mib << 17;
    let (map, mut writer) = Map::new(slots * MAX_LOAD / 100, slots, 2).expect("memory");
    let keys = writes(&mut report, &mut writer, slots, "large");
    report.say("large_first_share_90", first_share(&map), "of the keys in their first bucket at 90 %");
    lookups(&mut report, &map, keys, "large");
    restore(&mut report, &mut writer);
    churn(&mut report, &mut writer, keys, "large");
    full(&mut report);
    report.finish();
}
