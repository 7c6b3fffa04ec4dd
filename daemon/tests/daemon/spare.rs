// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Spares that are late when another SSD leaves, and spares that are lost.

use crate::bench::{Bench, refused};
use crate::deadline::{Deadline, LIMIT};
use crate::drain::{done, drain, maps, view};
use crate::join::{add, call, open_array};
use crate::replace::swap;
use crate::shrink::{all_maps_keep, newest, states};
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::{Add, Reply};
use gnstor_proto::placement::map3::State3;
use gnstor_proto::status::GrpcCode::FailedPrecondition;

/// How long others wait for an SSD that was added.
const WAITS_MS: u64 = 5_000;

/// Adds SSD `ssd` as a spare, and goes on until the map names it. The SSD itself has executed nothing.
/// Without `is_found` the daemon does not reach it either.
fn with_a_late_spare(ssds: u16, is_found: bool) -> Bench {
    let mut bench = open_array(ssds.into());
    bench.array = bench.array.and_an_empty_one();
    bench.array.ssd(ssds.into()).dead = !is_found;
    let spare = Add { spare: true, ..add(ssds) };
    assert_eq!(call(&mut bench, spare), Ok(Reply::Joins { ssd: ssds, is_done: true }));
    run_others(&mut bench, ssds);
    assert_eq!(bench.core.fleet().unwrap().ssds.len(), usize::from(ssds) + 1, "the map names it");
    bench
}

/// The first SSDs execute what they were given.
fn run_others(bench: &mut Bench, ssds: u16) {
    for _ in 0..1_000 {
        (0..ssds).for_each(|ssd| _ = bench.execute(ssd.into()));
    }
}

fn comes_in(bench: &Bench) -> bool {
    maps(bench).iter().any(|map| map.rows.iter().any(|row| row.incoming.is_some()))
}

/// Places that volumes of two replicas use.
fn used(bench: &Bench, ssd: u16) -> usize {
    let map = newest(bench);
    map.rows.iter().flat_map(|row| &row.places[..2]).flatten().filter(|place| place.ssd == ssd).count()
}

#[test]
fn a_drain_waits_for_a_spare_that_has_answered_nothing_yet() {
    let _deadline = Deadline::after(LIMIT);
    for (ssds, is_found) in [(4, true), (4, false), (6, true), (6, false)] {
        let mut bench = with_a_late_spare(ssds, is_found);
        let had = used(&bench, 1);
        done(bench.ask_now(drain(1)));
        run_others(&mut bench, ssds);
        assert!(!comes_in(&bench), "{ssds}, {is_found}: {:?}", view(&bench, 1).leave_waits);
        if !is_found {
            bench.run_for(WAITS_MS / 2);
            assert!(!comes_in(&bench), "{ssds}: {:?}", view(&bench, 1).leave_waits);
            let waits = view(&bench, 1).leave_waits.unwrap_or_default();
            assert!(waits.contains(&format!("SSD {ssds} is not up to date yet")), "{waits}");
            bench.find(ssds);
        }
        bench.run_for(20_000);
        assert_eq!((states(&bench)[1], states(&bench)[usize::from(ssds)]), (State3::Out, State3::In));
        assert_eq!(used(&bench, ssds), had, "{ssds}, {is_found}: it has all that SSD 1 had");
        all_maps_keep(&bench, 2);
    }
}

/// A removal drops the SSD first. Then the spare gets its places, and no other SSD.
#[test]
fn a_removal_keeps_the_places_for_a_spare_that_has_answered_nothing_yet() {
    let _deadline = Deadline::after(LIMIT);
    for is_found in [true, false] {
        let mut bench = with_a_late_spare(6, is_found);
        let (had, others) = (used(&bench, 1), used(&bench, 0));
        done(bench.ask_now(Request::Remove { ssd: 1 }));
        run_others(&mut bench, 6);
        if !is_found {
            bench.run_for(WAITS_MS / 2);
            assert!(newest(&bench).rows.iter().any(|row| row.places[..2].contains(&None)), "they wait");
            bench.find(6);
        }
        bench.run_for(20_000);
        assert_eq!((states(&bench)[1], states(&bench)[6]), (State3::Out, State3::In));
        assert_eq!((used(&bench, 6), used(&bench, 0)), (had, others), "{is_found}");
        assert_eq!(bench.core.fleet().unwrap().groups_by_copies, [0, 0, 64]);
    }
}

/// The others come in, and hold up nothing longer.
#[test]
fn a_spare_that_never_answers_holds_up_a_drain_and_a_removal_for_five_seconds() {
    let _deadline = Deadline::after(LIMIT);
    for drains in [true, false] {
        let mut bench = with_a_late_spare(6, false);
        let request = if drains { drain(1) } else { Request::Remove { ssd: 1 } };
        done(bench.ask_now(request));
        bench.run_for(WAITS_MS - 1);
        let before = used(&bench, 0);
        bench.run_for(3_000);
        assert!(used(&bench, 0) > before, "drains: {drains}");
        assert_eq!((states(&bench)[1], states(&bench)[6]), (State3::Out, State3::Spare));
        assert_eq!(bench.core.fleet().unwrap().groups_by_copies, [0, 0, 64]);
        // It was waited for once. The next drain begins at once.
        done(bench.ask_now(drain(2)));
        bench.run_for(2_000);
        assert_eq!(states(&bench)[2], State3::Out, "drains: {drains}; {:?}", view(&bench, 2).leave_waits);
    }
}

/// A spare has no blocks. So an empty SSD may have its number without more ado.
#[test]
fn an_empty_ssd_replaces_a_spare_that_is_lost_and_takes_the_places_of_the_next_loss() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = open_array(4);
    assert_eq!(call(&mut bench, Add { spare: true, ..add(4) }), Ok(Reply::Joins { ssd: 4, is_done: true }));
    bench.run_for(60_000);
    let replace = || Request::Replace { ssd: 4, lose_data: false };
    refused(&bench.ask(replace()), FailedPrecondition, &["the SSD that the map names is there"]);
    bench.lose(4);
    bench.run_for(10_000);
    assert_eq!(states(&bench)[4], State3::Spare);
    refused(&bench.ask(replace()), FailedPrecondition, &["start an SSD with an empty file there"]);
    let before = newest(&bench).ssds[4].uuid;
    swap(&mut bench, 4);
    let note = view(&bench, 4).away.unwrap_or_default();
    assert!(note.contains("gnstor fleet replace 4"), "{note}");
    done(bench.ask(replace()));
    bench.run_for(10_000);
    let known = newest(&bench).ssds[4].clone();
    assert_eq!((known.state, known.uuid), (State3::Spare, bench.array.ssd(4).vote.uuid));
    assert_ne!(known.uuid, before);
    assert_eq!(view(&bench, 4).away, None);
    done(bench.ask(replace()));
    bench.lose(1);
    bench.run_for(80_000);
    assert_eq!((states(&bench)[1], states(&bench)[4]), (State3::Out, State3::In));
    assert_eq!(bench.core.fleet().unwrap().groups_by_copies, [0, 0, 64]);
    all_maps_keep(&bench, 2);
}

/// A spare that was failed is taken out like any other SSD: its number is free for an empty one after resume.
#[test]
fn a_spare_that_was_failed_is_resumed_before_an_empty_one_replaces_it() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = open_array(4);
    assert_eq!(call(&mut bench, Add { spare: true, ..add(4) }), Ok(Reply::Joins { ssd: 4, is_done: true }));
    bench.run_for(60_000);
    done(bench.ask(Request::Fail { ssd: 4, lose_data: false }));
    bench.run_for(10_000);
    swap(&mut bench, 4);
    let replace = || Request::Replace { ssd: 4, lose_data: false };
    refused(&bench.ask(replace()), FailedPrecondition, &["gnstor fleet resume 4"]);
    done(bench.ask(crate::drain::resume(4)));
    bench.run_for(1_000);
    done(bench.ask(replace()));
    bench.run_for(10_000);
    let known = newest(&bench).ssds[4].clone();
    assert_eq!((known.state, known.uuid), (State3::Spare, bench.array.ssd(4).vote.uuid));
    assert_eq!(view(&bench, 4).away, None);
}
