// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A principal's share of the requests that may be under way, and of the daemon's time.

use super::rights::{Party, get, share};
use super::{ANY, Client, run, with_tokens};
use crate::array::SimArray;
use crate::bench::{Bench, opened, release, renew, write};
use crate::deadline::{Deadline, LIMIT};
use gnstor_daemon::Daemon;
use gnstor_daemon::core::CoreConfig;
use gnstor_daemon::core::rights::Right;
use gnstor_proto::grpc::ShowRequest;
use std::time::{Duration, Instant};

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
    assert_eq!(refused, most_waiting / 4, "the last share");

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
    assert_eq!(under_way.count(), most * 3 / 4, "the last share");
}

/// A caller asks what takes the daemon long, and gives up at once, again and again. What it gave up is not
/// done, and the calls of others have their turns.
#[test]
fn calls_that_are_given_up_and_calls_of_others_hold_up_no_call() {
    let _deadline = Deadline::after(LIMIT);
    let mut config = with_tokens();
    config.core.groups = 1 << 16;
    let array = SimArray::new(4);
    let daemon = Daemon::start(ANY, array.ports(), config).unwrap();
    run(async {
        let mut anna = Client::connect(&daemon, Some("anna")).await;
        let id = anna.register().await.unwrap();
        anna.create("v", id).await.unwrap();
        let ends = Instant::now() + Duration::from_secs(4);
        let mut flood = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let ben = Client::connect(&daemon, Some("ben")).await;
            for _ in 0..32 {
                let mut ben = ben.clone();
                flood.spawn(async move {
                    let mut asked = 0;
                    while Instant::now() < ends {
                        let call = ben.fleet.show(ben.sign(ShowRequest {}));
                        _ = tokio::time::timeout(Duration::from_millis(5), call).await;
                        asked += 1;
                    }
                    asked
                });
            }
        }
        let mut waits = Vec::new();
        while Instant::now() < ends {
            let began = Instant::now();
            anna.get("v").await.expect("it is anna's");
            waits.push(began.elapsed());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let asked: u64 = flood.join_all().await.into_iter().sum();
        let began = Instant::now();
        anna.get("v").await.expect("it is anna's");
        let after = began.elapsed();
        let most = waits.iter().max().expect("some");
        println!(
            "{asked} calls were given up; of {} others the longest took {most:?}; one after them {after:?}",
            waits.len()
        );
        assert!(asked > 500, "{asked}");
        assert!(after < Duration::from_secs(1) && *most < Duration::from_secs(2), "{most:?} {after:?}");
    });
}
