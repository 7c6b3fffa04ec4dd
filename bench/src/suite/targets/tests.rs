// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows of the targets, and what a table says of them.

use super::*;
use crate::args::parsed;
use crate::made_up::{kept, report};
use gnstor_base::testing::deadline;

const WORDS: [&str; 4] = ["--mode", "gnstor", "--rw", "randread"];

#[test]
fn a_row_with_too_few_cores_has_no_ratio() {
    let _deadline = deadline();
    for (core_bound, ratio) in [(false, Some(0.5)), (true, None)] {
        let mut run = report(&WORDS, 50.0);
        run.busy.core_bound = core_bound;
        run.ideal.as_mut().expect("a made-up run has one").ratio = 0.5;
        let rows = [kept("one gnstor randread 4k c1 q32 s4", [run])];
        let summary = summary(&rows[0], &rows);
        assert_eq!(summary.ratio.map(|ratio| ratio.median), ratio);
        assert_eq!(summary.line().contains("core-bound"), core_bound, "{}", summary.line());
        assert_eq!(summary.line().contains("50.0 %"), !core_bound, "{}", summary.line());
    }
}

#[test]
fn a_row_has_tails_both_late_shares_and_the_state_of_its_ssds() {
    let _deadline = deadline();
    let mut run = report(&WORDS, 50.0);
    (run.late.share, run.late.client_share) = (Some(0.031), Some(0.247));
    let mut collecting = run.clone();
    collecting.array.state = "collecting".into();
    let rows = [kept("one gnstor randread 4k c1 q32 s4", [run.clone(), collecting, run])];
    let summary = summary(&rows[0], &rows);
    // A made-up run has p50, p99, p99.9 and maximum at 1, 2, 4 and 8 times the mean.
    for word in ["50.0     100.0     200.0     400.0", "3.1 %  24.7 %", "collecting"] {
        assert!(summary.line().contains(word), "'{word}' in: {}", summary.line());
    }
    let json = serde_json::to_value(&summary).expect("plain data");
    for (field, value) in [("p50_us", 50.0), ("p99_us", 100.0), ("p99_9_us", 200.0), ("max_us", 400.0)] {
        assert_eq!(json[field]["median"], value, "{field}");
    }
    assert_eq!((&json["client_late_share"]["most"], &json["state"]), (&0.247.into(), &"collecting".into()));
}

#[test]
fn every_row_of_writes_has_room_for_all_that_its_depth_can_write() {
    let _deadline = deadline();
    let rows = rows(&parsed(&["--suite", "targets", "--out", "x", "--runtime", "1s", "--warmup", "1s"]));
    let mut checked = 0;
    for row in &rows {
        let What::Load(load) = &row.what else { continue };
        if load.rw != Rw::Randwrite {
            continue;
        }
        let bytes = load.ssd_size.unwrap_or_else(|| panic!("{} has no size", row.name));
        let shares = u64::from(load.clients) * u64::from(load.replicas.unwrap_or(2));
        let in_flight = u64::from(load.iodepth) * load.bs * shares / u64::from(load.ssds);
        // 25 us a write are 40,000 rounds a second of all requests in flight. An SSD accepts 6 GB/s at
        // most.
        let written = 2 * (in_flight * 40_000).min(6_000_000_000);
        let filled = load.size * shares / u64::from(load.ssds);
        assert!(bytes > filled + written, "{}: {bytes} for {filled} + {written}", row.name);
        assert!(bytes < 2 * (filled + written + LEAST_SSD), "{}: {bytes} is too much", row.name);
        checked += 1;
    }
    // null 1, array 2, bare 4, one 4.
    assert_eq!(checked, 11);
}

#[test]
fn a_row_of_two_runs_shows_the_worse_one_in_each_column() {
    let _deadline = deadline();
    let (mut fast, mut slow) = (report(&WORDS, 50.0), report(&WORDS, 100.0));
    (fast.late.share, slow.late.share) = (Some(0.01), Some(0.02));
    fast.ideal.as_mut().expect("a made-up run has one").ratio = 0.6;
    let rows = [kept("one gnstor randread 4k c1 q32 s4", [fast, slow])];
    let summary = summary(&rows[0], &rows);
    let median = |spread: Option<Spread>| spread.expect("both runs have it").median;
    let iops = median(summary.iops);
    assert!((iops - 320_000.0).abs() < 1.0, "{iops}: 32 in flight, 100 us each");
    assert_eq!((median(summary.mean_us), median(summary.tails.p99_us)), (100.0, 200.0));
    assert_eq!((median(summary.late_share), median(summary.ratio)), (0.02, 0.5));
}

#[test]
fn of_two_runs_with_one_ssd_the_faster_one_is_the_goal_of_the_others() {
    let _deadline = deadline();
    let rows = [
        kept("scale gnstor randread 4k c32 q128 s1", [report(&WORDS, 50.0), report(&WORDS, 100.0)]),
        kept("scale gnstor randread 4k c32 q128 s4", [report(&WORDS, 50.0)]),
    ];
    let ratio = summary(&rows[1], &rows).ratio.expect("it is held against one SSD's").median;
    assert!((ratio - 0.25).abs() < 1e-9, "{ratio}: as fast as one SSD, where four are expected");
}
