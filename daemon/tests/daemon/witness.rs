// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two SSDs and a witness, which votes and holds no blocks (rule 3a).

use crate::array::SimArray;
use crate::bench::{Bench, create, create_with, read, refused};
use crate::deadline::{Deadline, LIMIT};
use crate::shrink::{DROP_MS, all_maps_keep, newest, of_replicas, states, three};
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::{CoreConfig, Reply, Stop};
use gnstor_proto::placement::map3::{FleetMap3, State3, Vote};
use gnstor_proto::status::GrpcCode::{FailedPrecondition, InvalidArgument, ResourceExhausted};

const IN: State3 = State3::In;
const OUT: State3 = State3::Out;

fn with_witness() -> CoreConfig {
    CoreConfig { has_witness: true, ..three() }
}

/// A serving daemon of this array, whose last SSD is a witness.
fn starts(array: &SimArray) -> Bench {
    let mut bench = Bench::cold_with(array, 0, with_witness());
    bench.run_for(10_000);
    assert!(bench.core.is_serving(), "{:?} {:?}", bench.stopped, bench.core.waits_for());
    bench
}

/// An array of two SSDs and a witness, with a volume of two replicas.
fn two_and_witness() -> Bench {
    let mut bench = starts(&SimArray::new(3));
    bench.ask(create("a")).unwrap();
    bench
}

fn votes(map: &FleetMap3) -> Vec<Vote> {
    map.ssds.iter().map(|ssd| ssd.vote).collect()
}

/// Checks that the witness has no place in any row.
fn holds_nothing(map: &FleetMap3, witness: u16) {
    let mut places = map.rows.iter().flat_map(|row| row.places).flatten().map(|place| place.ssd);
    assert!(places.all(|ssd| ssd != witness));
    assert!(map.rows.iter().all(|row| row.incoming.is_none_or(|incoming| incoming.ssd != witness)));
}

/// Each group has both SSDs, and both serve.
fn is_whole(bench: &Bench) {
    let map = newest(bench);
    assert_eq!(states(bench), [IN, IN, OUT]);
    let serving = |row: &gnstor_proto::placement::map3::Row3| {
        row.places.iter().flatten().filter(|place| !place.filling).count()
    };
    assert!(map.rows.iter().all(|row| serving(row) == 2), "{:?}", map.rows);
    assert_eq!(votes(&map), [Vote::Voter, Vote::Voter, Vote::Witness]);
    holds_nothing(&map, 2);
}

#[test]
fn two_ssds_and_a_witness_vote_and_the_witness_holds_no_blocks() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = two_and_witness();
    is_whole(&bench);
    bench.run_for(60_000);
    is_whole(&bench);
    let fleet = bench.core.fleet().unwrap();
    assert_eq!((&fleet.voters[..], fleet.ssds[2].is_witness), (&[0, 1, 2][..], true));
    assert_eq!(fleet.groups_by_copies[2], fleet.groups, "no copy is missing");
    // A volume of three replicas has no room, and the witness's capacity counts for none.
    let three = bench.ask(of_replicas("three", 3));
    refused(&three, InvalidArgument, &["3 replicas", "the array has 2"]);
    let huge = bench.ask(create_with("huge", 1 << 31, None));
    refused(&huge, ResourceExhausted, &[]);
}

#[test]
fn each_of_the_three_may_be_lost_and_comes_back() {
    let _deadline = Deadline::after(LIMIT);
    for lost in 0..3u16 {
        let mut bench = two_and_witness();
        let epoch = newest(&bench).epoch;
        bench.lose(lost);
        bench.run_for(DROP_MS + 100);
        let map = newest(&bench);
        holds_nothing(&map, 2);
        if lost == 2 {
            assert_eq!((map.epoch, states(&bench)), (epoch, vec![IN, IN, OUT]), "no map changes");
        } else {
            assert_eq!(states(&bench)[usize::from(lost)], OUT);
        }
        bench.ask(create("b")).unwrap();
        bench.ask(read("a", 3)).unwrap();
        bench.find(lost);
        bench.run_for(20_000);
        is_whole(&bench);
        bench.ask(create("c")).unwrap();
        all_maps_keep(&bench, 2);
        // Another one may be lost now.
        let other = (lost + 1) % 3;
        bench.lose(other);
        bench.run_for(DROP_MS + 100);
        bench.ask(create("d")).unwrap();
    }
}

#[test]
fn a_daemon_starts_with_any_two_of_the_three() {
    let _deadline = Deadline::after(LIMIT);
    for away in 0..3 {
        let bench = two_and_witness();
        let array = bench.array.clone();
        drop(bench);
        array.ssd(away).dead = true;
        let mut bench = Bench::cold_with(&array, 0, with_witness());
        bench.core.ssd_lost(0, u16::try_from(away).unwrap(), "pulled");
        bench.run_for(10_000);
        assert!(bench.core.is_serving(), "{away}: {:?} {:?}", bench.stopped, bench.core.waits_for());
        assert_eq!(states(&bench)[away], OUT);
        holds_nothing(&newest(&bench), 2);
        bench.ask(create("b")).unwrap();
    }
}

#[test]
fn an_empty_witness_takes_the_place_of_a_lost_one_and_votes() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = two_and_witness();
    let before = newest(&bench);
    bench.lose(2);
    bench.run_for(DROP_MS);
    bench.format(2);
    bench.find(2);
    bench.run_for(5_000);
    assert_eq!(newest(&bench).ssds[2].uuid, before.ssds[2].uuid, "only an operator replaces it");
    assert_eq!(bench.ask(Request::Replace { ssd: 2, lose_data: false }), Ok(Reply::Done));
    bench.run_for(10_000);
    is_whole(&bench);
    assert_ne!(newest(&bench).ssds[2].uuid, before.ssds[2].uuid);
    // It votes: without it and SSD 0 there is no majority, and with it there is one.
    bench.lose(0);
    bench.run_for(DROP_MS + 100);
    assert_eq!(states(&bench)[0], OUT);
}

#[test]
fn an_operator_does_not_take_a_witness_out() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = two_and_witness();
    let (fail, remove) = (Request::Fail { ssd: 2, lose_data: false }, Request::Remove { ssd: 2 });
    for request in [fail, remove, Request::Drain { ssd: 2 }] {
        refused(&bench.ask(request), FailedPrecondition, &["SSD 2", "witness"]);
    }
    bench.run_for(1_000);
    is_whole(&bench);
}

#[test]
fn an_array_of_two_ssds_with_a_map_of_format_2_gets_a_witness() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let mut old = Bench::start(&array, 0);
    old.ask(create("a")).unwrap();
    drop(old);
    let array = array.and_an_empty_one();
    let mut bench = starts(&array);
    is_whole(&bench);
    bench.ask(read("a", 3)).unwrap();
    bench.lose(1);
    bench.run_for(DROP_MS + 100);
    assert_eq!(states(&bench)[1], OUT);
}

#[test]
fn a_daemon_that_was_not_told_of_the_witness_says_what_is_missing() {
    let _deadline = Deadline::after(LIMIT);
    let bench = two_and_witness();
    let array = bench.array.without_the_last();
    drop(bench);
    let mut bench = Bench::cold_with(&array, 0, three());
    bench.run_for(10_000);
    let Some(Stop::Array(why)) = &bench.stopped else { panic!("{:?}", bench.stopped) };
    assert!(why.contains("names 3 SSDs, but 2") && why.contains("--witness"), "{why}");
}

#[test]
fn a_map_gets_the_addresses_at_which_the_daemon_reaches_the_ssds() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let at = |port: u16| (0..3).map(|ssd| format!("10.0.0.{ssd}:{port}")).collect::<Vec<_>>();
    let named = |bench: &Bench| newest(bench).ssds.iter().map(|ssd| ssd.address.clone()).collect::<Vec<_>>();
    let config = CoreConfig { names_addresses: true, ..with_witness() };
    let start = |port: u16| {
        let mut bench = Bench::cold_with(&array, 0, config);
        bench.core = bench.core.reached_at(at(port));
        bench.run_for(10_000);
        bench
    };
    let bench = start(1);
    assert_eq!((named(&bench), newest(&bench).epoch), (at(1), 1));
    let bench = start(2);
    assert_eq!((named(&bench), newest(&bench).epoch), (at(2), 2), "the witness moves, too");
    let bench = start(2);
    assert_eq!(newest(&bench).epoch, 2, "nothing changes");
}
