// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small worlds. The same seed gives the same output, and impossible options are refused with a sentence.

use gnstor_base::testing::deadline;
use gnstor_base::time::Span;
use gnstor_deengine::{Pace, Preset};
use gnstor_fabric::link::LinkConfig;
use gnstor_sim::load::Rw;
use gnstor_sim::scale::{Measured, Range, Row, Sweep, csv, curves};
use std::process::Command;

fn one(count: usize) -> Range {
    Range { first: count, last: count }
}

fn sweep(rw: Rw) -> Sweep {
    Sweep {
        clients: one(2),
        ssds: one(3),
        nodes: 1,
        replicas: 2,
        rw,
        bs: 4096,
        zipf_permille: 0,
        iodepth: 32,
        size: 1 << 20,
        ssd_bytes: None,
        preset: Preset::by_name("gnstor-980pro").unwrap(),
        link: LinkConfig::PAPER_200GBE,
        warmup: Span::from_ns(200_000),
        runtime: Span::from_ms(2),
        seed: 1,
        memory: 1 << 30,
        fail: None,
    }
}

fn rows(sweep: &Sweep) -> Vec<Row> {
    let mut measured = Measured::default();
    sweep.plans().unwrap().iter().map(|plan| sweep.run(plan, &mut measured).unwrap()).collect()
}

/// A sweep with reads and writes, within chunks and across them.
fn table() -> String {
    let mut all = rows(&sweep(Rw::Randread));
    all.extend(rows(&Sweep { zipf_permille: 990, ..sweep(Rw::Randread) }));
    all.extend(rows(&Sweep { bs: 20 << 10, iodepth: 100, size: 4 << 20, ..sweep(Rw::Write) }));
    csv(&all)
}

const GOLDEN: &str = include_str!("golden/scale.csv");

#[test]
fn a_seed_gives_the_bytes_that_are_checked_in() {
    let _deadline = deadline();
    let table = table();
    if std::env::var_os("GNSTOR_PRINT_TABLE").is_some() {
        print!("{table}");
    }
    assert_eq!(
        table, GOLDEN,
        "firmware, transport or simulator changed what happens when: see docs/simulator.md"
    );
}

#[test]
fn a_seed_goes_the_same_way_twice_in_one_process_and_another_seed_does_not() {
    let _deadline = deadline();
    let first = rows(&sweep(Rw::Randwrite));
    assert_eq!(first, rows(&sweep(Rw::Randwrite)));
    assert_ne!(first[0].trace, rows(&Sweep { seed: 2, ..sweep(Rw::Randwrite) })[0].trace);
}

/// Another process has other addresses, and another order in the standard library's hash maps.
#[test]
fn a_seed_goes_the_same_way_in_another_process() {
    let _deadline = deadline();
    let run = || {
        let test = ["--exact", "a_seed_gives_the_bytes_that_are_checked_in", "--nocapture"];
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.args(test).env("GNSTOR_PRINT_TABLE", "1").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(run().contains(GOLDEN));
}

#[test]
fn no_latency_is_below_that_of_the_model_and_no_rate_above_it() {
    let _deadline = deadline();
    let row = &rows(&Sweep { clients: one(1), iodepth: 1, ..sweep(Rw::Randread) })[0];
    // A single read takes 38.5 us in the SSD, 1 us of wire each way, and the time of 4,176 bytes on it.
    assert!((40_500..41_500).contains(&row.p50_ns), "{row:?}");
    // Skips the writes that begin together.
    let warmup = Span::from_ms(2);
    let write = &rows(&Sweep { clients: one(16), warmup, ..sweep(Rw::Randwrite) })[0];
    assert!((900..=1_000).contains(&write.share_permille.unwrap()), "{write:?}");
}

/// On threads a worker takes writes early, and takes several commands at once. This changes no modelled time
/// by much.
#[test]
fn the_pace_of_threads_moves_modelled_times_by_less_than_one_per_cent() {
    let _deadline = deadline();
    for (rw, clients) in [(Rw::Randread, 4), (Rw::Randwrite, 8)] {
        let sweep = Sweep { clients: one(clients), size: 16 << 20, runtime: Span::from_ms(8), ..sweep(rw) };
        let mut plan = sweep.plans().unwrap().remove(0);
        let mut measured = Measured::default();
        let real = sweep.run(&plan, &mut measured).unwrap();
        plan.pace = Pace::EXACT;
        let exact = sweep.run(&plan, &mut measured).unwrap();
        // In a closed loop the mean latency is the number of requests in flight divided by the rate.
        let off = exact.iops.abs_diff(real.iops) * 1000 / exact.iops;
        assert!(off < 10, "{rw:?}, {clients} clients: {exact:?} and {real:?}");
    }
}

#[test]
fn what_is_impossible_is_refused_in_words_before_anything_is_made() {
    let _deadline = deadline();
    let why = |sweep: Sweep| sweep.plans().expect_err("a refusal").0;
    let load = || sweep(Rw::Randread);
    let range = |first, last| Range { first, last };
    for (sweep, word) in [
        (Sweep { replicas: 4, ..load() }, "--replicas 4 is not possible with 3 SSDs: use 1 to 3"),
        (Sweep { replicas: 0, ..load() }, "--replicas 0"),
        (Sweep { ssds: range(2, 8), replicas: 3, ..load() }, "with 2 SSDs"),
        (Sweep { clients: range(8, 2), ..load() }, "--clients 8..2 ends before it begins: use 2..8"),
        (Sweep { ssds: range(1, 1025), replicas: 1, ..load() }, "--ssds 1..1025 must be within 1..1024"),
        (Sweep { nodes: 4, ..load() }, "--nodes 4 is not possible with 3 SSDs"),
        (Sweep { memory: 1 << 20, ..load() }, "MiB of memory, and --memory is 1 MiB"),
        (Sweep { ssds: one(1024), clients: one(4), ..load() }, "1024 SSDs are 16 arrays"),
        (Sweep { iodepth: 129, size: 1 << 30, ..load() }, "--iodepth 129 must be 1 to 128"),
        (Sweep { bs: 5000, ..load() }, "--bs 5000 must be a multiple of 4096"),
        (Sweep { size: 4096, ..load() }, "--size 4096 must be 128 KiB"),
        (Sweep { ssd_bytes: Some(1 << 20), ..load() }, "do not fit into --ssd-size"),
        (Sweep { zipf_permille: 990, ..sweep(Rw::Read) }, "--zipf is 0 to 2, and needs"),
        (Sweep { runtime: Span::ZERO, ..load() }, "--runtime must be more than 0"),
    ] {
        let said = why(sweep);
        assert!(said.contains(word), "{said}");
    }
}

#[test]
fn each_figure_is_there_as_svg_and_as_png() {
    let _deadline = deadline();
    let clients = Range { first: 1, last: 2 };
    let files = curves(&rows(&Sweep { clients, ..sweep(Rw::Randread) })).unwrap();
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    for name in ["throughput", "latency", "latency-p999", "latency-max"] {
        for end in ["svg", "png"] {
            assert!(names.contains(&format!("{name}.{end}").as_str()), "{names:?}");
        }
    }
    for (name, bytes) in &files {
        let begin: &[u8] = if name.ends_with("png") { b"\x89PNG\r\n\x1a\n" } else { b"<svg " };
        assert!(bytes.starts_with(begin) && bytes.len() > 500, "{name}: {} bytes", bytes.len());
    }
}
