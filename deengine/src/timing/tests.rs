// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The model in virtual time against the paper's Table 2.

use super::*;
use gnstor_proto::placement::mix64;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const PAGES: u32 = 1 << 18;

fn model(name: &str) -> Timing {
    Timing::new(Preset::by_name(name).unwrap(), PAGES)
}

/// Keeps `depth` commands in flight and gives MB/s over the second half of the run.
fn throughput_mb(depth: usize, commands: u64, blocks: u32, mut issue: impl FnMut(Time, u64) -> Time) -> f64 {
    let mut in_flight: BinaryHeap<Reverse<Time>> = std::iter::repeat_n(Reverse(Time::ZERO), depth).collect();
    let mut middle = Time::ZERO;
    let mut now = Time::ZERO;
    for number in 0..commands {
        now = in_flight.pop().unwrap().0;
        if number == commands / 2 {
            middle = now;
        }
        in_flight.push(Reverse(issue(now, number)));
    }
    let bytes = (commands - commands / 2) * u64::from(blocks) * u64::from(BLOCK_BYTES);
    #[expect(clippy::cast_precision_loss, reason = "a figure to compare within 2 %")]
    let mb = bytes as f64 / (now.since(middle).as_ps() as f64 / 1e6);
    mb
}

fn run(first: u32, blocks: u32) -> Vec<Ppa> {
    (first..first + blocks).map(Ppa).collect()
}

fn read_mb(depth: usize, blocks: u32) -> f64 {
    let mut model = model("gnstor-980pro");
    throughput_mb(depth, 40_000, blocks, |now, number| {
        let first = u32::try_from(mix64(number) % u64::from(PAGES / blocks)).unwrap() * blocks;
        let accepted = model.accept_read(now);
        model.read(accepted, &run(first, blocks), 0)
    })
}

fn write_mb(depth: usize, blocks: u32) -> f64 {
    let mut model = model("gnstor-980pro");
    throughput_mb(depth, 40_000, blocks, |now, number| {
        let first = u32::try_from(number % u64::from(PAGES / blocks)).unwrap() * blocks;
        let accepted = model.accept_write(now);
        model.write(accepted, &run(first, blocks))
    })
}

#[test]
fn the_980pro_preset_meets_the_four_figures_of_table_2_within_2_percent() {
    let figures = [
        ("4K random read", read_mb(256, 1), 3250.0),
        ("4K write", write_mb(256, 1), 2980.0),
        ("64K read", read_mb(256, 16), 6988.0),
        ("64K write", write_mb(256, 16), 4950.0),
    ];
    for (name, got, want) in figures {
        println!("{name}: {got:.0} MB/s, the paper {want:.0}");
    }
    for (name, got, want) in figures {
        assert!((got / want - 1.0).abs() < 0.02, "{name}: {got:.0} MB/s, the paper has {want:.0}");
    }
}

#[test]
fn a_lone_read_takes_firmware_and_hash_and_sense_and_transfers() {
    let mut model = model("gnstor-980pro");
    let start = Time::from_ns(1_000_003);
    let accepted = model.accept_read(start);
    let took = model.read(accepted, &[Ppa(77)], 0).since(start);
    let want = Span::from_ns(1260 + 276 + model.preset.sense_ns)
        + Span::transfer(4096, 1_200_000_000)
        + Span::transfer(4096, 6_988_000_000);
    println!("QD1 4K read: {took:?}");
    assert_eq!(took, want);
}

#[test]
fn a_lone_write_is_done_when_the_buffer_has_it() {
    let mut model = model("gnstor-980pro");
    let accepted = model.accept_write(Time::ZERO);
    let took = model.write(accepted, &[Ppa(77)]).since(Time::ZERO);
    assert_eq!(took, Span::from_ns(1374 + 276) + Span::transfer(4096, 6_988_000_000));
}

#[test]
fn a_page_in_the_write_buffer_is_read_without_sensing() {
    let mut model = model("gnstor-980pro");
    let written = model.write(Time::ZERO, &[Ppa(5)]);
    let read = model.read(written, &[Ppa(5)], 0);
    assert_eq!(read.since(written), Span::transfer(4096, 6_988_000_000));
}

#[test]
fn null_takes_no_time_at_all() {
    let mut model = model("null");
    let now = Time::from_ns(5);
    for first in (0..4096).step_by(16) {
        let accepted = model.accept_write(now);
        assert_eq!(model.write(accepted, &run(first, 16)), now);
        let accepted = model.accept_read(now);
        assert_eq!(model.read(accepted, &run(first, 16), 3), now);
    }
}

#[test]
fn a_lane_never_carries_more_than_its_rate() {
    let mut lane = Lane::new(1_000_000_000);
    let mut last = Time::ZERO;
    for number in 0..10_000u64 {
        let from = Time::from_ns(mix64(number) % 1_000_000);
        let end = lane.book(from, 1000);
        assert!(end.since(from) >= Span::from_ns(1000));
        last = last.max(end);
    }
    assert!(last >= Time::from_ns(10_000_000), "10 MB at 1 GB/s in {last:?}");
    assert!(last <= Time::from_ns(10_010_000), "the lane idles under backlog: {last:?}");
}
