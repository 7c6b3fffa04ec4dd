// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long the places of a lost SSD are kept for it (`gnstor up --out-after`).

use crate::bench::Bench;
use crate::deadline::{Deadline, LIMIT};
use crate::grow::{dropped, holes};
use crate::shrink::{serving_with, three};
use gnstor_daemon::core::CoreConfig;

#[test]
fn the_places_of_a_lost_ssd_are_kept_for_it_as_long_as_the_operator_says() {
    let _deadline = Deadline::after(LIMIT);
    let config = |out_after_ms| CoreConfig { out_after_ms, ..three() };
    let view = |bench: &Bench| bench.core.fleet().unwrap().ssds[5].drawn_anew_at_ms;

    let mut bench = serving_with(6, config(120_000));
    dropped(&mut bench, 5);
    bench.run_for(110_000);
    let at = view(&bench).expect("a time");
    assert!(holes(&bench) > 0 && (bench.now + 1..bench.now + 15_000).contains(&at), "{at}, {}", bench.now);
    bench.run_for(12_000);
    assert_eq!((holes(&bench), view(&bench)), (0, None));

    let mut bench = serving_with(6, config(0));
    dropped(&mut bench, 5);
    bench.run_for(3_000);
    assert_eq!(holes(&bench), 0, "at once");

    let mut bench = serving_with(6, config(u64::MAX));
    dropped(&mut bench, 5);
    bench.run_for(3_600_000);
    assert_eq!((holes(&bench) > 0, view(&bench)), (true, None), "never");
    bench.find(5);
    bench.run_for(2_000);
    assert_eq!(holes(&bench), 0, "it has its own places back");
}
