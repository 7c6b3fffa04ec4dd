// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A principal's share of the requests that may be under way.

use super::rights::{Party, get, share};
use crate::array::SimArray;
use crate::bench::{Bench, opened, release, renew, write};
use crate::deadline::{Deadline, LIMIT};
use gnstor_daemon::core::CoreConfig;
use gnstor_daemon::core::rights::Right;

/// A Release needs no right to the volume.
#[test]
fn one_principal_fills_neither_what_waits_for_a_volume_nor_all_requests() {
    let _deadline = Deadline::after(LIMIT);
    let (most_waiting, most) = (CoreConfig::default().max_queue, CoreConfig::default().max_requests);
    let mut bench = Bench::start(&SimArray::new(2), 0);
    let (anna, ben) = (Party::new(&mut bench, "anna", 1), Party::new(&mut bench, "ben", 2));
    anna.make(&mut bench, "v");
    let epoch = opened(&anna.ask(&mut bench, write("v", anna.id.get(), 60_000))).lease_epoch;
    anna.send(&mut bench, share("v", "carl", Right::Read));
    let calls: Vec<_> = (0..most_waiting).map(|_| ben.send(&mut bench, release("v", ben.id.get()))).collect();
    let late = anna.send(&mut bench, renew("v", anna.id.get(), epoch, 60_000));
    bench.run_until_quiet();
    assert!(bench.replies[&late].is_ok(), "{:?}", bench.replies[&late]);
    let refused = calls.iter().filter(|ticket| bench.replies[ticket].is_err()).count();
    assert!(refused >= most_waiting * 3 / 4, "{refused}");

    // The same with volumes of its own: all of them are in a change.
    for nth in 0..=most / most_waiting * 4 {
        ben.make(&mut bench, &format!("w{nth}"));
    }
    let mut calls = Vec::new();
    for nth in 0..=most / most_waiting * 4 {
        calls.push(ben.send(&mut bench, share(&format!("w{nth}"), "carl", Right::Read)));
        let waits = || release(&format!("w{nth}"), ben.id.get());
        calls.extend((0..most_waiting / 4).map(|_| ben.send(&mut bench, waits())));
    }
    assert!(anna.ask(&mut bench, get("v")).is_ok());
    bench.run_until_quiet();
    let under_way = calls.iter().filter(|ticket| {
        !matches!(&bench.replies[ticket], Err(failure) if failure.message.contains("has 1024 requests"))
    });
    assert_eq!(under_way.count(), most / 4);
}
