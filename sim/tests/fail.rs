// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD fails under load: the daemon drops it, clients go on by the new map, and others take its places.

use gnstor_base::testing::deadline;
use gnstor_base::time::Span;
use gnstor_deengine::Preset;
use gnstor_fabric::link::LinkConfig;
use gnstor_sim::Fail;
use gnstor_sim::load::Rw;
use gnstor_sim::scale::{Measured, Range, Row, Sweep, csv};
use std::process::Command;

fn one(count: usize) -> Range {
    Range { first: count, last: count }
}

fn sweep(rw: Rw, ssds: usize) -> Sweep {
    Sweep {
        clients: one(2),
        ssds: one(ssds),
        nodes: 1,
        replicas: 2,
        rw,
        bs: 4096,
        zipf_permille: 0,
        iodepth: 2,
        size: 1 << 20,
        ssd_bytes: None,
        preset: Preset::by_name("gnstor-980pro").unwrap(),
        link: LinkConfig::PAPER_200GBE,
        warmup: Span::from_ns(200_000),
        runtime: Span::from_ms(1400),
        seed: 1,
        memory: 2 << 30,
        fail: Some(Fail { ssd: 1, at: Span::from_ms(50), out_after: Span::from_ms(200) }),
    }
}

fn rows(sweep: &Sweep) -> Vec<Row> {
    gnstor_sim::memory::use_small_pages();
    let mut measured = Measured::default();
    sweep.plans().unwrap().iter().map(|plan| sweep.run(plan, &mut measured).unwrap()).collect()
}

#[test]
fn others_take_the_places_of_an_ssd_that_fails_and_clients_go_on() {
    let _deadline = deadline();
    for rw in [Rw::Randread, Rw::Randwrite] {
        let few = Sweep { bs: 65536, clients: one(1), iodepth: 1, ..sweep(rw, 6) };
        let row = &rows(&if rw.is_write() { few } else { sweep(rw, 6) })[0];
        let failure = row.failure.as_ref().unwrap();
        let (dropped, whole) = (failure.dropped_ns.unwrap(), failure.whole_ns.unwrap());
        // A lost SSD is noticed by its silence, and its lease has to end.
        assert!((100_000_000..2_000_000_000).contains(&dropped) && dropped < whole, "{failure:?}");
        // Each SSD had about a sixth of 512 blocks, in two copies.
        let blocks = failure.rebuilt_bytes / 4096;
        assert!((50..400).contains(&blocks), "{failure:?}");
        assert!(failure.pause_ns >= 100_000_000 && failure.pause_ns <= dropped + 50_000_000, "{failure:?}");
        let rates = [failure.before_iops, failure.out_iops, failure.after_iops];
        let [before, out, after] = rates.map(Option::unwrap);
        assert!(out < before * 9 / 10 && after > before / 2, "{failure:?}");
    }
}

/// Where each SSD has a copy of each block, no other SSD can take a place.
#[test]
fn places_stay_empty_where_each_ssd_has_each_block() {
    let _deadline = deadline();
    let runtime = Span::from_ms(1100);
    let row = &rows(&Sweep { replicas: 3, runtime, ..sweep(Rw::Randread, 3) })[0];
    let failure = row.failure.as_ref().unwrap();
    assert!(failure.dropped_ns.is_some() && failure.fill_iops.is_some(), "{failure:?}");
    assert_eq!((failure.whole_ns, failure.after_iops, failure.rebuilt_bytes), (None, None, 0));
}

/// Reads, and writes of whole chunks.
fn table() -> String {
    let fail = |ssd, at| Some(Fail { ssd, at: Span::from_ms(at), out_after: Span::from_ms(200) });
    let mut all = rows(&sweep(Rw::Randread, 5));
    all.extend(rows(&Sweep {
        bs: 65536,
        clients: one(1),
        iodepth: 1,
        fail: fail(4, 20),
        ..sweep(Rw::Randwrite, 5)
    }));
    csv(&all)
}

const GOLDEN: &str = include_str!("golden/fail.csv");

#[test]
fn a_failure_gives_the_bytes_that_are_checked_in() {
    let _deadline = deadline();
    let table = table();
    if std::env::var_os("GNSTOR_PRINT_TABLE").is_some() {
        print!("{table}");
    }
    assert_eq!(
        table, GOLDEN,
        "firmware, daemon or simulator changed what happens when: see docs/simulator.md"
    );
}

/// Another process has other addresses, and another order in the standard library's hash maps.
#[test]
fn a_failure_goes_the_same_way_in_another_process() {
    let _deadline = deadline();
    let test = ["--exact", "a_failure_gives_the_bytes_that_are_checked_in", "--nocapture"];
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args(test).env("GNSTOR_PRINT_TABLE", "1").output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().contains(GOLDEN));
}

#[test]
fn a_failure_that_cannot_be_is_refused_in_words() {
    let _deadline = deadline();
    let fail = |ssd, at| Some(Fail { ssd, at: Span::from_ms(at), out_after: Span::ZERO });
    let load = || sweep(Rw::Randread, 4);
    for (sweep, word) in [
        (Sweep { fail: fail(4, 10), ..load() }, "--fail 4@...: 4 SSDs have the numbers 0 to 3"),
        (
            Sweep { fail: fail(1, 1400), ..load() },
            "--fail 1@1400ms is not before the end: --runtime is 1400 ms",
        ),
        (Sweep { replicas: 1, ..load() }, "with --replicas 1 the last copies would be lost: use 2 or more"),
        (Sweep { ssds: one(2), ..load() }, "1 of 2 voters is no majority: use 3 SSDs or more"),
    ] {
        let said = sweep.plans().expect_err("a refusal").0;
        assert!(said.contains(word), "{said}");
    }
}
