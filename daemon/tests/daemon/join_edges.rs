// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD joins, and something goes wrong: writers that do not reach it, losses, daemons that end, and what
//! is refused.

use crate::array::SSD_BYTES;
use crate::bench::{Bench, create, create_with, refused, renew, write};
use crate::deadline::{Deadline, LIMIT};
use crate::drain::{done, drain, maps, resume, view};
use crate::join::{add, apart, call, has_its_share, joins, open_array};
use crate::shrink::{DROP_MS, all_maps_keep, newest, serving, states};
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::{Add, Found, Reply};
use gnstor_fleet::map::FleetView as _;
use gnstor_proto::placement::map3::State3;
use gnstor_proto::ssd_identity::SsdSays;
use gnstor_proto::status::GrpcCode::{AlreadyExists, FailedPrecondition, InvalidArgument, Unavailable};

fn comes_in(bench: &Bench) -> bool {
    maps(bench).iter().any(|map| map.rows.iter().any(|row| row.incoming.is_some()))
}

/// The holder says that it reaches these SSDs.
fn reaches(ssds: u64) -> Request {
    let mut request = renew("a", 7, 1, 600_000);
    if let Request::Renew { reaches, .. } = &mut request {
        *reaches = Some(ssds);
    }
    request
}

#[test]
fn it_comes_in_when_each_writer_reaches_it_and_one_that_does_not_loses_its_lease() {
    let _deadline = Deadline::after(LIMIT);
    for says_so in [true, false] {
        let mut bench = open_array(4);
        bench.ask(write("a", 7, 600_000)).unwrap();
        joins(&mut bench, 4);
        bench.run_for(1_000);
        bench.ask(reaches(0b1111)).unwrap();
        bench.run_for(3_000);
        assert!(!comes_in(&bench));
        let waits = view(&bench, 4).share_waits.unwrap();
        assert!(waits.contains("a writer does not reach it"), "{waits}");
        if says_so {
            bench.ask(reaches(0b1_1111)).unwrap();
            bench.run_for(500);
            assert!(comes_in(&bench));
        }
        bench.run_for(60_000);
        has_its_share(&bench, 4, 2, 1);
        assert_eq!(view(&bench, 4).share_waits, None);
        let outcome = bench.ask(reaches(0b1_1111));
        match says_so {
            true => drop(outcome.unwrap()),
            false => refused(&outcome, FailedPrecondition, &["open the volume for writing again"]),
        }
    }
}

#[test]
fn a_writer_that_does_not_follow_loses_its_lease_before_it_comes_in() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = open_array(4);
    let mut opens = write("a", 7, 600_000);
    if let Request::Open { follows_drains, .. } = &mut opens {
        *follows_drains = false;
    }
    bench.ask(opens).unwrap();
    joins(&mut bench, 4);
    bench.run_for(4_500);
    assert!(!comes_in(&bench));
    bench.run_for(10_000);
    has_its_share(&bench, 4, 2, 1);
    refused(&bench.ask(renew("a", 7, 1, 60_000)), FailedPrecondition, &["open the volume for writing again"]);
}

#[test]
fn losses_while_it_fills_are_answered_and_it_has_its_share_in_the_end() {
    let _deadline = Deadline::after(LIMIT);
    for lost in [0, 2, 4] {
        for pause in [1, 50, 200, 400, 700, 1_100] {
            let mut bench = open_array(4);
            (0..4).for_each(|ssd| bench.array.ssd(ssd).fill.takes = 5);
            joins(&mut bench, 4);
            bench.array.ssd(4).fill.takes = 5;
            bench.run_for(pause);
            bench.lose(lost);
            bench.run_for(5_000);
            bench.find(lost);
            bench.run_for(90_000);
            assert_eq!(states(&bench), [State3::In; 5], "SSD {lost} at {pause}");
            assert_eq!(bench.core.fleet().unwrap().groups_by_copies, [0, 0, 64], "SSD {lost} at {pause}");
            assert!(newest(&bench).rows.iter().all(|row| row.incoming.is_none()));
            all_maps_keep(&bench, 2);
        }
    }
}

/// It may know nothing of the SSD but what is in the map, also in one that is held and not active.
#[test]
fn a_daemon_that_starts_connects_to_it_and_goes_on_wherever_the_one_before_ended() {
    let _deadline = Deadline::after(LIMIT);
    let mut joined = 0;
    for commands in 0..100 {
        let mut bench = open_array(4);
        (0..4).for_each(|ssd| bench.array.ssd(ssd).fill.takes = 2);
        let from = newest(&bench).epoch;
        joins(&mut bench, 4);
        bench.array.ssd(4).fill.takes = 2;
        for turn in 0..commands {
            bench.execute(turn % 5);
            if turn % 5 == 4 {
                bench.pass(40);
            }
        }
        let (array, now) = (bench.array.clone(), bench.now);
        let mut bench = Bench::cold_given(&array, 4, now, apart());
        bench.run_for(20_000);
        assert!(bench.core.is_serving(), "{commands}: {:?} {:?}", bench.stopped, bench.core.waits_for());
        if newest(&bench).ssds.len() == 4 {
            // No voter holds a map that names it: the operator repeats the command.
            joins(&mut bench, 4);
            bench.run_for(20_000);
        } else {
            joined += 1;
        }
        has_its_share(&bench, 4, 2, from);
    }
    assert!(joined > 80, "{joined}");
}

/// Two of the three voters answer, and one of these is an SSD that the daemon was not given.
#[test]
fn a_daemon_that_starts_connects_to_a_voter_that_only_the_map_names_beside_a_dead_one() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = open_array(3);
    joins(&mut bench, 3);
    bench.run_for(20_000);
    done(bench.ask_now(drain(1)));
    bench.run_for(60_000);
    let map = newest(&bench);
    assert_eq!(map.voters().iter().collect::<Vec<_>>(), [0, 2, 3], "the vote of SSD 1 is that of SSD 3 now");
    let (array, now) = (bench.array.clone(), bench.now);
    drop(bench);
    array.ssd(0).dead = true;
    let mut bench = Bench::cold_given(&array, 3, now, apart());
    bench.run_for(20_000);
    assert!(bench.core.is_serving(), "{:?} {:?}", bench.stopped, bench.core.waits_for());
}

#[test]
fn a_drain_waits_for_it_and_one_that_is_called_off_at_once_is_none() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = open_array(5);
    (0..5).for_each(|ssd| bench.array.ssd(ssd).fill.takes = 20);
    joins(&mut bench, 5);
    bench.array.ssd(5).fill.takes = 20;
    bench.run_for(1_000);
    assert!(comes_in(&bench));
    refused(&bench.ask(drain(2)), FailedPrecondition, &["SSD 5 fills its share", "gnstor fleet show"]);
    bench.run_for(60_000);
    has_its_share(&bench, 5, 2, 1);
    // A drain that begins first goes on, and the SSD that joins takes part in it.
    done(bench.ask(drain(2)));
    joins(&mut bench, 6);
    bench.run_for(1_000);
    done(bench.ask(resume(2)));
    bench.run_for(90_000);
    assert_eq!(states(&bench), [State3::In; 7]);
    assert_eq!(bench.core.fleet().unwrap().groups_by_copies, [0, 0, 64]);
}

#[test]
fn an_ssd_is_taken_out_again_while_it_fills() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = open_array(4);
    joins(&mut bench, 4);
    bench.array.ssd(4).fill.takes = 50;
    bench.run_for(1_000);
    assert!(comes_in(&bench));
    done(bench.ask(Request::Fail { ssd: 4, lose_data: false }));
    bench.run_for(5_000);
    let map = newest(&bench);
    assert_eq!((map.ssds[4].state, map.ssds[4].weight), (State3::Out, 0));
    assert!(map.rows.iter().all(|row| row.incoming.is_none()));
    assert_eq!(bench.core.fleet().unwrap().groups_by_copies, [0, 0, 64]);
    done(bench.ask(resume(4)));
    bench.run_for(60_000);
    has_its_share(&bench, 4, 2, 1);
}

#[test]
fn without_room_for_its_share_the_ssd_waits_and_says_what_is_missing() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = open_array(4);
    bench.ask(create_with("large", 400_000, None)).unwrap();
    let small = |bytes| SsdSays { capacity_bytes: bytes, ..add(4).found.unwrap().says.unwrap() };
    let found = |bytes| Some(Found { ssd: 4, says: Some(small(bytes)), array: None, volume: None });
    // Half the weight has half the share, and this SSD has a third of the room.
    let weight = 1 << 15;
    let outcome = call(&mut bench, Add { found: found(SSD_BYTES / 3), weight, ..add(4) });
    let words = [&(SSD_BYTES / 3).to_string(), &(SSD_BYTES / 2).to_string(), "--weight 0.33", "larger one"];
    refused(&outcome, FailedPrecondition, &words);
    joins(&mut bench, 4);
    bench.run_for(20_000);
    has_its_share(&bench, 4, 2, 1);
}

/// Otherwise each hole that a spare cannot take would stay.
#[test]
fn spares_that_are_away_or_small_hold_no_rebuild_up() {
    let _deadline = Deadline::after(LIMIT);
    for (weight, bytes, goes) in [(1 << 16, SSD_BYTES, true), (1 << 14, SSD_BYTES / 4, false)] {
        let mut bench = open_array(5);
        bench.ask(create_with("large", 400_000, None)).unwrap();
        let says = SsdSays { capacity_bytes: bytes, ..add(5).found.unwrap().says.unwrap() };
        let found = Some(Found { ssd: 5, says: Some(says), array: None, volume: None });
        let outcome = call(&mut bench, Add { spare: true, weight, found, ..add(5) });
        assert_eq!(outcome, Ok(Reply::Joins { ssd: 5, is_done: true }));
        bench.run_for(20_000);
        assert_eq!(states(&bench)[5], State3::Spare);
        if goes {
            bench.lose(5);
            bench.run_for(5_000);
        }
        bench.lose(2);
        bench.run_for(120_000);
        let counts = bench.core.fleet().unwrap().groups_by_copies;
        assert_eq!(counts, [0, 0, 64], "goes: {goes}; {:?}", states(&bench));
        all_maps_keep(&bench, 2);
    }
}

/// A weight that an SSD had once is not in the map any more when it comes back.
#[test]
fn a_small_ssd_that_left_takes_part_again_with_what_it_has_room_for() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = open_array(4);
    let says = SsdSays { capacity_bytes: SSD_BYTES / 4, ..add(4).found.unwrap().says.unwrap() };
    let found = || Some(Found { ssd: 4, says: Some(says), array: None, volume: None });
    let outcome = call(&mut bench, Add { weight: 1 << 14, found: found(), ..add(4) });
    assert_eq!(outcome, Ok(Reply::Joins { ssd: 4, is_done: true }));
    bench.array.ssd(4).lacks_bytes = SSD_BYTES / 4 * 3;
    bench.run_for(60_000);
    assert_eq!((states(&bench)[4], newest(&bench).ssds[4].weight), (State3::In, 1 << 14));
    done(bench.ask(drain(4)));
    bench.run_for(60_000);
    assert_eq!(states(&bench)[4], State3::Out);
    done(bench.ask(resume(4)));
    bench.run_for(60_000);
    assert_eq!((states(&bench)[4], newest(&bench).ssds[4].weight), (State3::In, 1 << 14));
    // The others' size counts by its weight: one with a whole share must be as large as they are.
    let says = SsdSays { capacity_bytes: SSD_BYTES / 4, ..add(5).found.unwrap().says.unwrap() };
    let found = Some(Found { ssd: 5, says: Some(says), array: None, volume: None });
    refused(&call(&mut bench, Add { found, ..add(5) }), FailedPrecondition, &["--weight 0.25"]);
}

#[test]
fn an_ssd_that_cannot_join_is_refused_with_numbers_and_the_remedy() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = open_array(4);
    let says = |change: &dyn Fn(&mut SsdSays)| {
        let mut says = add(4).found.unwrap().says.unwrap();
        change(&mut says);
        Add { found: Some(Found { ssd: 4, says: Some(says), array: None, volume: None }), ..add(4) }
    };
    let found = |array, volume: Option<&str>| {
        let volume = volume.map(str::to_owned);
        Add { found: Some(Found { array, volume, ..add(4).found.unwrap() }), ..add(4) }
    };
    let at = |address: &str| Add { address: address.into(), ..add(4) };
    let array = newest(&bench).array;
    let cases: Vec<(Add, _, Vec<&str>)> = vec![
        (says(&|s| s.uuid = [3; 16]), FailedPrecondition, vec!["SSD 2 of this array already"]),
        (says(&|s| s.takes_map3 = false), FailedPrecondition, vec!["of a version without votes"]),
        (
            says(&|s| s.capacity_bytes = 0),
            FailedPrecondition,
            vec!["has room for 0 bytes", "needs 1073741824"],
        ),
        (found(Some([9; 16]), None), FailedPrecondition, vec!["part of another array", "--format"]),
        (found(Some(array), Some("old")), FailedPrecondition, vec!["volume \"old\"", "--format"]),
        (at(""), InvalidArgument, vec!["HOST:PORT"]),
        (at("host:0"), InvalidArgument, vec!["HOST:PORT"]),
        (at(&format!("{}:1", "h".repeat(70))), InvalidArgument, vec!["72 bytes, and 71"]),
        (Add { weight: 1, ..add(4) }, InvalidArgument, vec!["use 0.01 to 100"]),
        (at("0.0.0.0:4424"), InvalidArgument, vec!["any machine"]),
        (
            Add { found: Some(Found { ssd: 5, ..add(4).found.unwrap() }), ..add(4) },
            FailedPrecondition,
            vec!["another SSD was added meanwhile"],
        ),
    ];
    for (add, code, words) in cases {
        refused(&call(&mut bench, add), code, &words);
    }
    assert_eq!(newest(&bench).ssds.len(), 4, "nothing was changed");
    // The array's own map without volumes: it was given to the SSD by a try before.
    assert_eq!(call(&mut bench, found(Some(array), None)), Ok(Reply::Joins { ssd: 4, is_done: true }));
    refused(&call(&mut bench, add(5)), Unavailable, &["SSD 4 at 127.0.0.1:4424 is being added"]);
    bench.run_for(20_000);
    let (array, now) = (bench.array.clone(), bench.now);
    let mut bench = Bench::cold_with(&array, now, apart());
    bench.run_for(20_000);
    refused(&call(&mut bench, add(4)), AlreadyExists, &["SSD 4 of this array is there"]);
    let far = Add { address: "192.0.2.1:4425".into(), ..add(5) };
    refused(&call(&mut bench, far), InvalidArgument, &["127.0.0.1:4424", "from its own machine only"]);
}

#[test]
fn arrays_that_do_not_grow_say_so() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    refused(&call(&mut bench, add(4)), FailedPrecondition, &["run in the daemon's process", "--ssd-at"]);
    let mut bench = Bench::start(&crate::array::SimArray::new(4), 0);
    refused(&call(&mut bench, add(4)), FailedPrecondition, &["format 2 names no voters", "gnstor cp"]);
    let mut bench = open_array(64);
    refused(&call(&mut bench, add(64)), FailedPrecondition, &["has 64 SSDs, and 64 is the most"]);
}

/// The SSD is gone before it has anything. It joins when it is back.
#[test]
fn an_ssd_that_goes_away_at_once_joins_when_it_is_back() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = open_array(4);
    joins(&mut bench, 4);
    bench.lose(4);
    bench.run_for(60_000);
    assert_eq!((newest(&bench).ssds.len(), states(&bench)[4]), (5, State3::Out));
    bench.ask(create("b")).unwrap();
    bench.lose(1);
    bench.run_for(DROP_MS + 100);
    assert_eq!(states(&bench)[1], State3::Out, "the others go on");
    bench.find(1);
    bench.find(4);
    bench.run_for(60_000);
    assert_eq!(states(&bench), [State3::In; 5]);
    assert_eq!(bench.core.fleet().unwrap().groups_by_copies, [0, 0, 64]);
    all_maps_keep(&bench, 2);
}

/// The writer has not spoken to this daemon. For an SSD that gets its own places that does not matter.
#[test]
fn an_ssd_that_is_back_gets_its_places_and_no_writer_has_to_follow_a_share() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = open_array(4);
    bench.ask(write("a", 7, 600_000)).unwrap();
    bench.lose(3);
    bench.run_for(DROP_MS + 100);
    let (array, now) = (bench.array.clone(), bench.now);
    let mut bench = Bench::cold_with(&array, now, apart());
    bench.run_for(20_000);
    bench.find(3);
    bench.run_for(20_000);
    assert_eq!(states(&bench), [State3::In; 4]);
    bench.ask(renew("a", 7, 1, 60_000)).unwrap();
}
