// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drains beside deleted volumes, late SSDs, restarts, and calls that end a drain.

use crate::bench::{Bench, create_with, delete, refused, renew, write};
use crate::deadline::{Deadline, LIMIT};
use crate::drain::{done, drain, has_left, maps, resume, view};
use crate::shrink::{newest, of_replicas, serving, states};
use gnstor_daemon::core::Command;
use gnstor_daemon::core::request::Request;
use gnstor_fleet::map::FleetView;
use gnstor_fleet::set::SsdSet;
use gnstor_proto::placement::map3::{FleetMap3, State3};
use gnstor_proto::status::GrpcCode::{FailedPrecondition, Unavailable};

/// As `Bench::run_for`, but this SSD executes nothing.
fn run_without(bench: &mut Bench, late: usize, ms: u64) {
    for _ in 0..ms / 10 {
        bench.pass(10);
        while (0..bench.array.len()).filter(|&ssd| ssd != late && bench.execute(ssd)).count() > 0 {}
    }
}

/// A writer that says nothing of drains.
fn old_writer(name: &str, who: u16, lease_ms: u32) -> Request {
    let mut opens = write(name, who, lease_ms);
    if let Request::Open { follows_drains, .. } = &mut opens {
        *follows_drains = false;
    }
    opens
}

fn reaches(name: &str, who: u16, ssds: u64) -> Request {
    let mut request = renew(name, who, 1, 60_000);
    if let Request::Renew { reaches, .. } = &mut request {
        *reaches = Some(ssds);
    }
    request
}

fn has_places(map: &FleetMap3, ssd: u16) -> bool {
    map.rows.iter().flat_map(|row| row.places).flatten().any(|place| place.ssd == ssd)
}

fn comes_in(map: &FleetMap3) -> bool {
    map.rows.iter().any(|row| row.incoming.is_some())
}

/// Five SSDs; SSD 1 was drained and is back without a place.
fn with_a_free_ssd() -> Bench {
    let mut bench = serving(5);
    done(bench.ask(drain(1)));
    bench.run_for(10_000);
    done(bench.ask(resume(1)));
    bench.run_for(10_000);
    assert_eq!((states(&bench)[1], has_places(&newest(&bench), 1)), (State3::Out, false));
    bench
}

#[test]
fn an_ssd_that_has_filled_for_another_and_restarts_before_it_takes_over_is_not_lost() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = with_a_free_ssd();
    bench.ask(of_replicas("single", 1)).unwrap();
    bench.run_for(1_000);
    done(bench.ask(drain(2)));
    let is_taking_over =
        |bench: &Bench| comes_in(&newest(bench)) && bench.core.fleet().unwrap().next.is_some();
    while !is_taking_over(&bench) {
        bench.pass(10);
        bench.run_until_quiet();
        assert!(bench.now < 60_000, "{:?}", view(&bench, 2));
    }
    bench.lose(1);
    bench.array.ssd(1).restart();
    bench.run_for(5_000);
    bench.find(1);
    bench.run_for(20_000);
    assert_eq!(states(&bench)[1], State3::In, "{:?}", view(&bench, 1));
    assert_eq!(states(&bench)[2], State3::Out);
    assert_eq!(bench.core.fleet().unwrap().groups_by_copies, [0, 0, 64]);
    bench.ask(write("single", 7, 1_000)).unwrap();
}

#[test]
fn a_drain_goes_on_when_a_volume_that_left_no_room_is_deleted() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    bench.ask(old_writer("a", 7, 60_000)).unwrap();
    done(bench.ask(drain(3)));
    bench.ask(create_with("large", 400_000, None)).unwrap();
    bench.run_for(8_000);
    let waits = view(&bench, 3).leave_waits.unwrap();
    assert!(waits.contains("lacks") && waits.contains("bytes"), "{waits}");
    bench.ask(delete("large", 1)).unwrap();
    bench.run_for(10_000);
    has_left(&bench, 3, 2, 1);
}

#[test]
fn holes_are_rebuilt_when_a_volume_that_left_no_room_is_deleted() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(5);
    bench.ask(create_with("large", 550_000, None)).unwrap();
    bench.lose(4);
    bench.run_for(60_000);
    let counts = bench.core.fleet().unwrap().groups_by_copies;
    assert!(counts[1] > 0, "there is no room: {counts:?}");
    bench.ask(delete("large", 1)).unwrap();
    bench.run_for(10_000);
    assert_eq!(bench.core.fleet().unwrap().groups_by_copies, [0, 0, 64]);
}

#[test]
fn an_ssd_that_came_in_and_was_called_off_leaves_without_a_place() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = with_a_free_ssd();
    (0..5).for_each(|ssd| bench.array.ssd(ssd).fill.takes = 50);
    done(bench.ask(drain(2)));
    bench.run_for(1_000);
    assert!(comes_in(&newest(&bench)));
    done(bench.ask(resume(2)));
    bench.run_for(1_000);
    assert_eq!((states(&bench)[1], has_places(&newest(&bench), 1)), (State3::In, false));
    done(bench.ask(drain(1)));
    bench.run_for(5_000);
    has_left(&bench, 1, 2, 1);
}

#[test]
fn a_volume_of_more_replicas_waits_until_no_map_of_a_drain_can_come() {
    let _deadline = Deadline::after(LIMIT);
    // The map in which SSDs come in is under way, and then the one by which they take over.
    for comes in [false, true] {
        let mut bench = serving(4);
        done(bench.ask_now(drain(3)));
        let is_under_way = |bench: &Bench| {
            let (map, fleet) = (newest(bench), bench.core.fleet().unwrap());
            let is_in_use = map.epoch == fleet.epoch && fleet.next.is_some();
            let leaves = map.ssds[3].weight == 1 && map.ssds[3].state == State3::In;
            is_in_use && leaves && comes_in(&map) == comes
        };
        while !is_under_way(&bench) {
            if (0..4).filter(|&ssd| bench.execute(ssd)).count() == 0 {
                bench.pass(10);
            }
            assert!(bench.now < 60_000, "{:?}", view(&bench, 3));
        }
        done(bench.ask_now(resume(3)));
        let epoch = bench.core.fleet().unwrap().epoch;
        let ticket = bench.send(of_replicas("three", 3));
        while !bench.replies.contains_key(&ticket) {
            if (0..4).filter(|&ssd| bench.execute(ssd)).count() == 0 {
                bench.pass(10);
            }
        }
        assert!(bench.core.fleet().unwrap().epoch > epoch, "it waits for the map that is under way");
        if !comes {
            refused(&bench.replies[&ticket], Unavailable, &["SSD 3", "drained", "at most 2"]);
        }
        bench.run_for(60_000);
        bench.ask(of_replicas("later", 3)).unwrap();
        let all = newest(&bench);
        assert!(all.rows.iter().all(|row| row.places[..3].iter().all(Option::is_some)));
    }
}

#[test]
fn a_free_ssd_that_is_late_is_waited_for() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = with_a_free_ssd();
    done(bench.ask_now(drain(2)));
    run_without(&mut bench, 1, 3_000);
    let is_waiting = states(&bench)[2] == State3::In && !comes_in(&newest(&bench));
    assert!(is_waiting, "SSD 1 has not said that it has the map");
    let waits = view(&bench, 2).leave_waits.unwrap();
    assert!(waits.contains("SSD 1 is not up to date yet"), "{waits}");
    bench.run_for(10_000);
    assert_eq!(states(&bench), [State3::In, State3::In, State3::Out, State3::In, State3::In]);
    assert!(has_places(&newest(&bench), 1));

    // Not for ever.
    let mut bench = with_a_free_ssd();
    done(bench.ask_now(drain(2)));
    run_without(&mut bench, 1, 7_000);
    assert!(comes_in(&newest(&bench)) || states(&bench)[2] == State3::Out);
}

#[test]
fn a_writer_that_does_not_reach_the_ssd_that_is_to_come_in_loses_its_lease() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(5);
    bench.ask(of_replicas("four", 4)).unwrap();
    done(bench.ask(drain(1)));
    bench.run_for(10_000);
    done(bench.ask(resume(1)));
    bench.run_for(10_000);
    bench.ask(write("a", 7, 60_000)).unwrap();
    bench.ask(reaches("a", 7, 0b11101)).unwrap();
    done(bench.ask(drain(2)));
    bench.run_for(4_000);
    assert!(!comes_in(&newest(&bench)));
    let waits = view(&bench, 2).leave_waits.unwrap();
    assert!(waits.contains("a writer does not reach SSD 1"), "{waits}");
    bench.run_for(10_000);
    has_left(&bench, 2, 4, 1);
    let why = "open the volume for writing again";
    refused(&bench.ask(reaches("a", 7, 0b11101)), FailedPrecondition, &[why]);
}

fn set(ssds: &[u16]) -> SsdSet {
    ssds.iter().copied().collect()
}

fn voters(bench: &Bench) -> SsdSet {
    newest(bench).voters()
}

#[test]
fn the_vote_of_an_ssd_that_leaves_goes_to_another_one_if_there_is_one() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    assert_eq!(voters(&bench), set(&[0, 1, 2]));
    done(bench.ask(drain(1)));
    bench.run_for(10_000);
    has_left(&bench, 1, 2, 1);
    assert_eq!(voters(&bench), set(&[0, 2, 3]));
    let fewest = maps(&bench).iter().map(|map| map.voters().len()).min();
    assert_eq!(fewest, Some(3), "at no moment fewer SSDs vote");
    // It is unplugged, and later another one is lost: the others go on.
    bench.lose(1);
    bench.lose(0);
    bench.run_for(5_000);
    assert_eq!(states(&bench)[0], State3::Out);
    let mut bench = serving(3);
    done(bench.ask(drain(1)));
    bench.run_for(10_000);
    has_left(&bench, 1, 2, 1);
    assert_eq!(voters(&bench), set(&[0, 1, 2]), "no other SSD could vote");
    assert!(view(&bench, 1).votes);
}

#[test]
fn two_ssds_that_have_left_give_up_their_votes_where_no_others_could_vote() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(5);
    assert_eq!(voters(&bench), set(&[0, 1, 2, 3, 4]));
    done(bench.ask(drain(1)));
    bench.run_for(10_000);
    assert_eq!(voters(&bench), set(&[0, 1, 2, 3, 4]));
    done(bench.ask(drain(2)));
    bench.run_for(10_000);
    has_left(&bench, 1, 2, 1);
    has_left(&bench, 2, 2, 1);
    assert_eq!(voters(&bench), set(&[0, 3, 4]));
    (1..4).for_each(|ssd| bench.lose(ssd));
    bench.run_for(5_000);
    assert_eq!(states(&bench)[3], State3::Out, "both are unplugged, and the others decide");
}

/// A drain that is called off while a vote moves leaves an odd number of voters.
#[test]
fn a_drain_of_a_voter_that_is_called_off_leaves_an_odd_number_of_voters() {
    let _deadline = Deadline::after(LIMIT);
    for commands in 0..60 {
        for ssds in [4, 5] {
            let mut bench = serving(ssds);
            (0..ssds).for_each(|ssd| bench.array.ssd(ssd).fill.takes = 20);
            done(bench.ask_now(drain(1)));
            for turn in 0..commands {
                bench.execute(turn % ssds);
                if turn % ssds == 0 {
                    bench.pass(5);
                }
            }
            bench.ask_now(resume(1)).unwrap();
            bench.run_for(60_000);
            assert_eq!(states(&bench), vec![State3::In; ssds], "after {commands} commands");
            assert_eq!(voters(&bench).len() % 2, 1, "after {commands} commands: {:?}", voters(&bench));
            assert!(!comes_in(&newest(&bench)));
        }
    }
}

/// All that come in have filled, but no map can be made before the new voters have granted the term. By then
/// the drain is called off.
#[test]
fn an_ssd_that_is_to_stay_after_all_keeps_its_places_though_others_have_filled() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    let before = newest(&bench);
    done(bench.ask_now(drain(1)));
    for _ in 0..100 {
        bench.pass(10);
        let is_late = |command: &Command| matches!(command, Command::TermTake { .. });
        while (0..4).filter(|&ssd| bench.execute_but(ssd, is_late)).count() > 0 {}
    }
    let map = newest(&bench);
    assert!(comes_in(&map) && map.voters() == set(&[0, 1, 2, 3]), "a vote is on its way");
    done(bench.ask_now(resume(1)));
    bench.run_for(60_000);
    assert_eq!((states(&bench), newest(&bench).ssds[1].shrunk_at), (vec![State3::In; 4], 0));
    let used = |map: &FleetMap3| map.rows.iter().map(|row| row.places[..2].to_vec()).collect::<Vec<_>>();
    assert_eq!(used(&newest(&bench)), used(&before));
}
