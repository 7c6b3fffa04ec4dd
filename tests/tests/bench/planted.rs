// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The test plants wrong data or a silent SSD beside a run, and the run finds it.

use super::LIMIT;
use gnstor_bench::{self as bench, BenchArgs, Buffers, Harness, Load, Mode, Report, Rw, Switch};
use gnstor_console::CliError;
use gnstor_console::Steps;
use gnstor_console::words::{DeviceArg, EngineArgs};
use gnstor_tests::BLOCK;
use gnstor_tests::within;
use libgnstor::File;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn small(mode: Mode, rw: Rw) -> BenchArgs {
    BenchArgs {
        job: None,
        array: None,
        volume: None,
        overwrite: false,
        status_interval: None,
        figure: None,
        suite: None,
        out: None,
        budget: None,
        runs: None,
        points: Vec::new(),
        max_clients: None,
        mode,
        rw,
        rwmixread: None,
        bs: 8192,
        iodepth: 32,
        rate_iops: None,
        clients: 2,
        size: 1 << 20,
        runtime: Some(Duration::from_millis(500)),
        warmup: Duration::ZERO,
        verify: Switch::On,
        seed: 7,
        device: DeviceArg::Host,
        ssds: 2,
        replicas: Some(2),
        preset: "null".into(),
        link: None,
        central_engine: None,
        bounce: None,
        buffers: Buffers::Contiguous,
        ssd_size: Some(64 << 20),
        one_grid: false,
        engines: EngineArgs { engines: Some(2) },
        io_timeout: Duration::from_secs(10),
        json: true,
        plot: None,
    }
}

/// Fills the volumes and reads them back. `before` and `after` change the second client's volume before and
/// after the measured part.
fn planted(rw: Rw, before: fn(&File), after: fn(&File)) -> Report {
    within(LIMIT, move || {
        let args = small(Mode::Gnstor, rw);
        let steps = Steps::new(true, Arc::new(AtomicBool::new(false)));
        let harness = Harness::new(&args, Load::new(&args).expect("a load that can be run"), &steps)
            .expect("a harness");
        bench::fill(&harness, &steps).expect("the volumes are filled");
        let file = harness.files().nth(1).expect("two clients");
        before(file);
        let mut report = bench::measure(&harness, &args, &steps).expect("figures");
        after(file);
        bench::read_back(&harness, &mut report, &steps).expect("everything can be read");
        report
    })
}

#[test]
fn an_ssd_that_falls_silent_ends_the_run_with_its_status() {
    for mode in [Mode::Gnstor, Mode::GdDeengine, Mode::Gd] {
        within(LIMIT, move || {
            let args = BenchArgs { runtime: Some(Duration::from_secs(3600)), ..small(mode, Rw::Randrw) };
            let steps = Steps::new(true, Arc::new(AtomicBool::new(false)));
            let harness = Harness::new(&args, Load::new(&args).expect("a load that can be run"), &steps)
                .expect("a harness");
            bench::fill(&harness, &steps).expect("the volumes are filled");
            let node = Arc::clone(harness.files().next().expect("a client").client().node());
            node.transport().each(|engine, _| engine.set_silent(0, true)).expect("the engines run");
            let mut report = bench::measure(&harness, &args, &steps).expect("figures");
            node.transport().each(|engine, _| engine.set_silent(0, false)).expect("the engines run");
            bench::read_back(&harness, &mut report, &steps).expect("nothing is read back");
            let Err(CliError::Verify(sentence)) = report.verdict() else { panic!("{:?}", report.verdict()) };
            assert!(sentence.contains("I/Os failed") && sentence.contains("broke"), "{mode:?}: {sentence}");
            let served: Vec<u16> = report.array.served.iter().map(|ssd| ssd.ssd).collect();
            assert_eq!(served, [1], "{mode:?}: the other one does not answer");
            // One request for each thread that had one in flight, and no more.
            assert!(
                (1..=64).contains(&report.errors.iter().map(|error| error.count).sum::<u64>()),
                "{mode:?}: {sentence}"
            );
        });
    }
}

/// Checks that the report finds wrong data, with these words.
fn found(report: &Report, words: &[&str]) {
    let verify = report.verify.as_ref().expect("it was checked");
    assert!(verify.verified_ios < verify.ios, "{verify:?}");
    let Err(CliError::Verify(sentence)) = report.verdict() else { panic!("{:?}", report.verdict()) };
    for word in words {
        assert!(sentence.contains(word), "'{word}' in: {sentence}");
    }
}

fn block(file: &File, number: u64) -> Vec<u8> {
    let mut data = vec![0; BLOCK];
    file.read_at(number * BLOCK as u64, &mut data).expect("it can be read");
    data
}

fn put(file: &File, number: u64, data: &[u8]) {
    file.write_at(number * BLOCK as u64, data).expect("it can be written");
}

fn nothing(_: &File) {}

#[test]
fn a_run_without_planted_errors_passes() {
    for rw in [Rw::Randread, Rw::Randrw] {
        planted(rw, nothing, nothing).verdict().expect("all is well");
    }
}

#[test]
fn a_block_of_a_wrong_generation_is_found() {
    let report = planted(
        Rw::Randread,
        |file| {
            let mut data = block(file, 6);
            data.chunks_exact_mut(512).for_each(|sector| sector[12] += 1);
            put(file, 6, &data);
        },
        nothing,
    );
    found(&report, &["bench-1", "block 6", "sector 0, generation 1", "block 6, sector 0, generation 2"]);
}

#[test]
fn one_stale_sector_of_a_block_is_found() {
    let report = planted(
        Rw::Randread,
        |file| {
            let mut data = block(file, 9);
            data[3 * 512..4 * 512].fill(0);
            put(file, 9, &data);
        },
        nothing,
    );
    found(&report, &["bench-1", "block 9", "sector 3", "zeros"]);
}

#[test]
fn a_block_in_the_place_of_another_is_found() {
    let report = planted(Rw::Read, |file| put(file, 20, &block(file, 21)), nothing);
    found(&report, &["bench-1", "block 20", "block 21"]);
}

#[test]
fn a_lost_write_is_found_when_all_is_read_back() {
    // Restores the content before the last write, with its own correct checksum.
    let report = planted(Rw::Randwrite, nothing, |file| {
        let mut old = block(file, 30);
        old.chunks_exact_mut(512).for_each(|sector| sector[12] = sector[12].wrapping_sub(1));
        put(file, 30, &old);
    });
    found(&report, &["replica 1", "bench-1", "block 30"]);
}

#[test]
fn a_changed_byte_between_the_headers_is_found_when_all_is_read_back() {
    let report = planted(Rw::Randwrite, nothing, |file| {
        let mut data = block(file, 77);
        data[2000] ^= 1;
        put(file, 77, &data);
    });
    found(&report, &["bench-1", "block 77", "right headers around other bytes"]);
}
