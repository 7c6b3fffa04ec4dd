// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD leaves while each block keeps all its copies.

use crate::bench::{Bench, Outcome, create, create_with, read, refused, renew, write};
use crate::deadline::{Deadline, LIMIT};
use crate::shrink::{DROP_MS, newest, of_replicas, serving, states};
use gnstor_daemon::core::Reply;
use gnstor_daemon::core::report::SsdView;
use gnstor_daemon::core::request::Request;
use gnstor_fleet::map::{Map, Row};
use gnstor_proto::placement::map3::{FleetMap3, Ssd3, State3};
use gnstor_proto::status::GrpcCode::{FailedPrecondition, NotFound, Unavailable};

/// Where an SSD comes in for a place, the copies up to that place stay: it was none of them.
pub(crate) fn takes_no_copy(before: &FleetMap3, after: &FleetMap3) {
    let (Some(old), Some(new)) = (Map::of(before), Map::of(after)) else { return };
    let begins = |(was, is): &(&Row, &Row)| was.incoming.is_none() && is.incoming.is_some();
    for (was, is) in old.rows.iter().zip(&new.rows).filter(begins) {
        let place = is.incoming.expect("it begins").place;
        let copies = |row: &Row| row.copies(place + 1);
        assert_eq!(copies(was), copies(is), "epoch {}: SSDs come in and a copy goes", after.epoch);
    }
}

pub(crate) fn drain(ssd: u16) -> Request {
    Request::Drain { ssd }
}

pub(crate) fn resume(ssd: u16) -> Request {
    Request::Resume { ssd, lose_data: false }
}

pub(crate) fn view(bench: &Bench, ssd: u16) -> SsdView {
    bench.core.fleet().unwrap().ssds[usize::from(ssd)].clone()
}

pub(crate) fn done(outcome: Outcome) {
    assert_eq!(outcome, Ok(Reply::Done));
}

pub(crate) fn maps(bench: &Bench) -> Vec<FleetMap3> {
    let log = bench.array.ssd(0).vote.log.clone();
    let log = log.lock().unwrap();
    log.active_from(0).cloned().collect()
}

/// So many copies of each block serve, in every map, and the SSD has left.
pub(crate) fn has_left(bench: &Bench, ssd: u16, replicas: u8, from: u64) {
    let last = newest(bench);
    let index = usize::from(ssd);
    assert_eq!((last.ssds[index].state, last.ssds[index].weight), (State3::Out, 0), "{:?}", last.ssds);
    for map in maps(bench).iter().filter(|map| map.epoch >= from) {
        let rules = Map::of(map).unwrap();
        let copies = rules.rows.iter().map(|row| row.copies(replicas).len());
        assert_eq!(copies.min(), Some(replicas.into()), "epoch {}", map.epoch);
    }
    assert!(last.rows.iter().all(|row| row.incoming.is_none()));
}

#[test]
fn an_ssd_leaves_and_all_blocks_keep_their_copies_at_every_moment() {
    let _deadline = Deadline::after(LIMIT);
    for (ssds, ssd) in [(3, 2), (4, 3), (4, 0), (5, 1), (6, 5)] {
        let mut bench = serving(ssds);
        let from = newest(&bench).epoch;
        bench.ask(write("a", 7, 60_000)).unwrap();
        done(bench.ask(drain(ssd)));
        done(bench.ask(drain(ssd)));
        assert!(view(&bench, ssd).leaves);
        bench.run_for(10_000);
        has_left(&bench, ssd, 2, from);
        assert!(view(&bench, ssd).taken_out && !view(&bench, ssd).leaves);
        // One epoch takes its places, all at once.
        let shrunk: Vec<u64> = maps(&bench)
            .iter()
            .filter(|m| m.ssds[usize::from(ssd)].shrunk_at == m.epoch)
            .map(|m| m.epoch)
            .collect();
        assert_eq!(shrunk.len(), 1, "{shrunk:?}");
        let others = |map: &FleetMap3| {
            let is_other =
                |(index, ssd_): &(usize, &Ssd3)| *index != usize::from(ssd) && ssd_.shrunk_at > from;
            map.ssds.iter().enumerate().filter(is_other).count()
        };
        assert_eq!(others(&newest(&bench)), 0, "no other one loses anything");
        bench.ask(renew("a", 7, 1, 60_000)).unwrap();
        bench.ask(create("b")).unwrap();
        assert_eq!(bench.array.agreed().len(), 2);
        refused(&bench.ask(drain(ssd)), FailedPrecondition, &["no place"]);
        done(bench.ask(resume(ssd)));
        bench.run_for(60_000);
        // Where the SSDs that came in had no part in the rows, there is no hole for it.
        let state = if ssds > 4 { State3::Out } else { State3::In };
        assert_eq!(states(&bench)[usize::from(ssd)], state, "{:?}", view(&bench, ssd));
    }
}

#[test]
fn an_ssd_that_is_back_and_has_no_place_takes_those_of_the_next_one_that_leaves() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(5);
    let from = newest(&bench).epoch;
    done(bench.ask(drain(1)));
    bench.run_for(10_000);
    done(bench.ask(resume(1)));
    bench.run_for(10_000);
    assert_eq!(states(&bench)[1], State3::Out);
    done(bench.ask(drain(2)));
    bench.run_for(10_000);
    has_left(&bench, 2, 2, from);
    assert_eq!(states(&bench)[1], State3::In);
    let has_places =
        |ssd: u16| newest(&bench).rows.iter().flat_map(|row| row.places).flatten().any(|p| p.ssd == ssd);
    assert!(has_places(1) && !has_places(2));
}

#[test]
fn a_volume_of_one_replica_is_moved() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    bench.ask(of_replicas("single", 1)).unwrap();
    bench.run_for(1_000);
    let from = newest(&bench).epoch;
    done(bench.ask(drain(1)));
    bench.run_for(10_000);
    has_left(&bench, 1, 2, from);
    has_left(&bench, 1, 1, from);
    assert_eq!(bench.core.fleet().unwrap().groups_by_copies, [0, 0, 64]);
    bench.ask(write("single", 7, 1_000)).unwrap();
}

#[test]
fn a_drain_is_called_off_at_any_moment() {
    let _deadline = Deadline::after(LIMIT);
    for pause in [0, 1, 100, 400, 700] {
        let mut bench = serving(4);
        (0..4).for_each(|ssd| bench.array.ssd(ssd).fill.takes = 5);
        let before = newest(&bench);
        done(bench.ask(drain(3)));
        bench.run_for(pause);
        done(bench.ask(resume(3)));
        bench.run_for(60_000);
        let after = newest(&bench);
        assert_eq!((states(&bench), after.ssds[3].weight), (vec![State3::In; 4], 1 << 16), "{pause}");
        assert!(
            after.rows.iter().all(|row| row.incoming.is_none() && row.places.iter().all(Option::is_some))
        );
        let uses = |map: &FleetMap3| map.rows.iter().map(|row| row.places[..2].to_vec()).collect::<Vec<_>>();
        if pause < 400 {
            assert_eq!(uses(&after), uses(&before), "{pause}");
        }
        let counts = bench.core.fleet().unwrap().groups_by_copies;
        assert_eq!(counts, [0, 0, 64], "{pause}");
    }
}

#[test]
fn a_daemon_that_starts_goes_on_with_the_drain_wherever_the_one_before_ended() {
    let _deadline = Deadline::after(LIMIT);
    for commands in 0..80 {
        let mut bench = serving(4);
        (0..4).for_each(|ssd| bench.array.ssd(ssd).fill.takes = 2);
        let from = newest(&bench).epoch;
        done(bench.ask(drain(2)));
        for turn in 0..commands {
            bench.execute(turn % 4);
            if turn % 4 == 3 {
                bench.pass(40);
            }
        }
        let (array, now) = (bench.array.clone(), bench.now);
        let mut bench = Bench::cold(&array, now);
        bench.run_for(20_000);
        assert!(bench.core.is_serving(), "{:?}", bench.core.waits_for());
        has_left(&bench, 2, 2, from);
    }
}

#[test]
fn losses_during_a_drain_are_answered_and_the_drain_goes_on() {
    let _deadline = Deadline::after(LIMIT);
    for lost in [0, 1, 3, 4] {
        for pause in [0, 50, 200, 400, 600] {
            let mut bench = serving(5);
            (0..5).for_each(|ssd| bench.array.ssd(ssd).fill.takes = 5);
            done(bench.ask(drain(3)));
            bench.run_for(pause);
            bench.lose(lost);
            bench.run_for(5_000);
            bench.find(lost);
            bench.run_for(60_000);
            let map = newest(&bench);
            assert_eq!(map.ssds[3].state, State3::Out, "SSD {lost} at {pause}: {:?}", map.ssds);
            let in_ = states(&bench).iter().filter(|state| **state == State3::In).count();
            assert_eq!(in_, 4, "SSD {lost} at {pause}");
            assert_eq!(bench.core.fleet().unwrap().groups_by_copies, [0, 0, 64], "SSD {lost} at {pause}");
            assert!(map.rows.iter().all(|row| row.incoming.is_none()));
            crate::shrink::all_maps_keep(&bench, 2);
        }
    }
}

#[test]
fn a_writer_that_does_not_follow_loses_its_lease_before_ssds_come_in() {
    let _deadline = Deadline::after(LIMIT);
    let comes_in =
        |bench: &Bench| maps(bench).iter().any(|m| m.rows.iter().any(|row| row.incoming.is_some()));
    let mut bench = serving(4);
    let mut opens = write("a", 7, 60_000);
    if let Request::Open { follows_drains, .. } = &mut opens {
        *follows_drains = false;
    }
    bench.ask(opens).unwrap();
    done(bench.ask(drain(3)));
    bench.run_for(4_900);
    assert!(!comes_in(&bench));
    let waits = view(&bench, 3).leave_waits.unwrap();
    assert!(waits.contains("a writer has not said yet"), "{waits}");
    // It says so in time.
    bench.ask(renew("a", 7, 1, 60_000)).unwrap();
    bench.run_for(2_000);
    assert!(comes_in(&bench));
    assert_eq!(states(&bench)[3], State3::Out);
    bench.ask(renew("a", 7, 1, 60_000)).unwrap();

    let mut bench = serving(4);
    let mut opens = write("a", 7, 60_000);
    if let Request::Open { follows_drains, .. } = &mut opens {
        *follows_drains = false;
    }
    bench.ask(opens).unwrap();
    done(bench.ask(drain(3)));
    bench.run_for(10_000);
    assert_eq!(states(&bench)[3], State3::Out);
    refused(&bench.ask(renew("a", 7, 1, 60_000)), FailedPrecondition, &["open the volume for writing again"]);
}

#[test]
fn a_drain_that_cannot_be_is_refused_with_numbers_and_the_remedy() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    refused(&bench.ask(drain(4)), NotFound, &["SSD 4 cannot be drained", "SSDs 0 to 3"]);
    bench.ask(of_replicas("four", 4)).unwrap();
    let words =
        ["SSD 3 cannot be drained", "3 SSDs are left", "1 volumes have 4 replicas", "\"four\"", "gnstor cp"];
    refused(&bench.ask(drain(3)), FailedPrecondition, &words);
    bench.ask(crate::bench::delete("four", 1)).unwrap();
    bench.run_for(100);
    // Each SSD is as full as may be.
    bench.ask(create_with("large", 400_000, None)).unwrap();
    refused(&bench.ask(drain(3)), FailedPrecondition, &["too little room", "bytes on SSD", "delete volumes"]);
    bench.ask(crate::bench::delete("large", 1)).unwrap();
    bench.run_for(100);
    bench.lose(3);
    bench.run_until_quiet();
    refused(&bench.ask(drain(3)), FailedPrecondition, &["pulled", "gnstor fleet fail 3"]);
    bench.run_for(DROP_MS);
    refused(&bench.ask(drain(3)), FailedPrecondition, &["no place", "gnstor fleet resume 3"]);
    bench.find(3);
    bench.run_for(20_000);
    (0..4).for_each(|ssd| bench.array.ssd(ssd).fill.takes = 100);
    done(bench.ask(drain(3)));
    refused(&bench.ask(drain(2)), FailedPrecondition, &["SSD 3 is being drained", "gnstor fleet resume 3"]);
    refused(&bench.ask(of_replicas("three", 3)), Unavailable, &["SSD 3 is being drained", "at most 2"]);
    bench.run_for(1_000);
    refused(&bench.ask(of_replicas("three", 3)), Unavailable, &["SSD 3 is being drained", "at most 2"]);
    bench.ask(of_replicas("two", 2)).unwrap();
    bench.ask(read("two", 3)).unwrap();
    bench.run_for(60_000);
    assert_eq!(states(&bench)[3], State3::Out);
    bench.ask(of_replicas("three", 3)).unwrap();
}
