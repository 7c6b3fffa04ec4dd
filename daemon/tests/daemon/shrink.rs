// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon makes the next map when an SSD is lost or comes back with other content.

use crate::array::SimArray;
use crate::bench::{Bench, config, create, delete, read, refused, release, renew, write};
use crate::deadline::{Deadline, LIMIT};
use crate::voter::keeps_copies;
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::{CoreConfig, MapFormat, Stop};
use gnstor_fleet::set::SsdSet;
use gnstor_proto::placement::map3::{FleetMap3, State3, Vote};
use gnstor_proto::placement::{AnyMap, FleetMap};
use gnstor_proto::status::GrpcCode;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Lease and drift, and the time of a command.
pub(crate) const DROP_MS: u64 = 311;

pub(crate) fn three() -> CoreConfig {
    CoreConfig { map_format: MapFormat::Three, ..config() }
}

/// A serving daemon of a fresh array of format 3 with voters, with a volume of two replicas.
pub(crate) fn serving(ssds: usize) -> Bench {
    serving_with(ssds, three())
}

/// As [`serving`], with this configuration.
pub(crate) fn serving_with(ssds: usize, config: CoreConfig) -> Bench {
    let mut bench = Bench::cold_with(&SimArray::new(ssds), 0, config);
    bench.run_for(5_000);
    assert!(bench.core.is_serving(), "{:?} {:?}", bench.stopped, bench.core.waits_for());
    bench.ask(create("a")).unwrap();
    bench
}

pub(crate) fn of_replicas(text: &str, replicas: u8) -> Request {
    let mut request = create(text);
    if let Request::Create(create) = &mut request {
        create.replicas = replicas;
    }
    request
}

pub(crate) fn newest(bench: &Bench) -> FleetMap3 {
    let Some(AnyMap::Three(map)) = bench.array.newest() else { panic!("a map of format 3") };
    map
}

pub(crate) fn states(bench: &Bench) -> Vec<State3> {
    newest(bench).ssds.iter().map(|ssd| ssd.state).collect()
}

pub(crate) fn all_maps_keep(bench: &Bench, replicas: u8) {
    let log = Arc::clone(&bench.array.ssd(0).vote.log);
    let log = log.lock().unwrap();
    keeps_copies(log.active_from(0), replicas, &BTreeSet::new());
}

#[test]
fn a_fresh_array_gets_a_map_with_its_ssds_and_an_odd_number_of_voters() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(4);
    array.ssd(2).vote.incarnation = 7;
    let mut bench = Bench::cold_with(&array, 0, three());
    bench.run_for(5_000);
    assert!(bench.core.is_serving(), "{:?} {:?}", bench.stopped, bench.core.waits_for());
    let map = newest(&bench);
    assert_eq!((map.epoch, map.ssds[2].incarnation, map.ssds[3].uuid), (1, 7, [4; 16]));
    assert_ne!(map.array, [0; 16]);
    let votes: Vec<Vote> = map.ssds.iter().map(|ssd| ssd.vote).collect();
    assert_eq!(votes, [Vote::Voter, Vote::Voter, Vote::Voter, Vote::None]);
    for ssd in 0..4 {
        assert_eq!(array.ssd(ssd).map, Some(map.clone().into()));
    }
    bench.ask(create("a")).unwrap();
    bench.ask(write("a", 7, 1_000)).unwrap();
    bench.ask(release("a", 7)).unwrap();
    bench.ask(delete("a", 1)).unwrap();
}

#[test]
fn without_the_switch_a_fresh_array_gets_format_2() {
    let _deadline = Deadline::after(LIMIT);
    let bench = Bench::start(&SimArray::new(3), 0);
    assert!(matches!(bench.array.newest(), Some(AnyMap::Two(_))));
}

/// The clock of an SSD that still has a lease does not leap with the daemon's.
#[test]
fn a_daemon_whose_clock_leaps_still_waits_for_leases() {
    let _deadline = Deadline::after(LIMIT);
    for (before, leap) in [(0, 310), (150, 5_000), (290, 1_000_000)] {
        let mut bench = serving(4);
        let epoch = newest(&bench).epoch;
        bench.lose(3);
        bench.run_for(before);
        bench.pass(leap);
        bench.run_until_quiet();
        // A leap counts as one long step.
        bench.run_for(DROP_MS - before - 12);
        assert_eq!(newest(&bench).epoch, epoch, "its lease may run {before} {leap}");
        bench.run_for(12);
        assert_eq!(newest(&bench).epoch, epoch + 1, "{before} {leap}");
    }
}

#[test]
fn a_lost_ssd_is_dropped_after_the_lease_and_changes_go_on_without_it() {
    let _deadline = Deadline::after(LIMIT);
    for lost in [3, 0] {
        let mut bench = serving(4);
        let before = newest(&bench);
        bench.lose(lost);
        bench.run_until_quiet();
        refused(&bench.ask(create("b")), GrpcCode::Unavailable, &[&format!("SSD {lost} is down")]);
        bench.run_for(DROP_MS - 2);
        assert_eq!(newest(&bench).epoch, before.epoch, "its lease may run");
        bench.run_for(2);
        let map = newest(&bench);
        assert_eq!((map.epoch, map.ssds[usize::from(lost)].state), (before.epoch + 1, State3::Out));
        assert_eq!(map.ssds[usize::from(lost)].shrunk_at, map.epoch);
        assert!(bench.core.absent().is_empty(), "{:?}", bench.core.absent());
        bench.ask(create("b")).unwrap();
        bench.ask(write("b", 7, 1_000)).unwrap();
        bench.ask(delete("a", 1)).unwrap();
        bench.ask(read("b", 8)).unwrap();
        assert_eq!(bench.array.agreed().len(), 1);
        // It is back: it learns that it was dropped, and counts its content up.
        bench.find(lost);
        bench.run_for(1_000);
        let ssd = bench.array.ssd(usize::from(lost));
        assert_eq!((ssd.map.clone(), ssd.vote.incarnation), (Some(map.into()), 2));
    }
}

#[test]
fn losses_during_a_round_are_in_the_next_one_and_the_last_copies_stay() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(6);
    let first = newest(&bench).epoch;
    bench.lose(5);
    bench.run_until_quiet();
    bench.lose(4);
    bench.lose(3);
    bench.run_for(2 * DROP_MS);
    let map = newest(&bench);
    assert_eq!(map.epoch, first + 2, "one epoch for the two that came meanwhile");
    assert_eq!(map.ssds[5].state, State3::Out);
    all_maps_keep(&bench, 2);
    let absent: Vec<u16> = (0..6).filter(|&ssd| map.ssds[usize::from(ssd)].state == State3::Absent).collect();
    assert!(!absent.is_empty(), "two SSDs have the last copies of some group");
    for ssd in absent {
        bench.find(ssd);
    }
    bench.run_for(2_000);
    let now = states(&bench);
    assert!(!now.contains(&State3::Absent) && now[5] == State3::Out, "{now:?}");
    bench.ask(create("b")).unwrap();
    bench.array.agreed();
}

#[test]
fn the_only_copy_of_a_volume_of_one_replica_is_absent_and_comes_back() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    bench.ask(of_replicas("one", 1)).unwrap();
    bench.lose(3);
    bench.run_for(DROP_MS);
    assert_eq!(states(&bench)[3], State3::Absent);
    all_maps_keep(&bench, 1);
    refused(&bench.ask(create("b")), GrpcCode::Unavailable, &["SSD 3 is down"]);
    bench.find(3);
    bench.run_for(1_000);
    assert_eq!(states(&bench), [State3::In; 4]);
    bench.ask(create("b")).unwrap();
    assert_eq!(bench.array.agreed().len(), 3);
}

/// The writer renews each third of its lease, and another client opens the volume.
#[test]
fn a_lease_is_renewed_beside_an_ssd_that_stays_absent_and_other_opens_do_not_end_it() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    bench.ask(of_replicas("one", 1)).unwrap();
    bench.ask(write("a", 5, 1_000)).unwrap();
    bench.lose(3);
    bench.run_for(DROP_MS);
    assert_eq!(states(&bench)[3], State3::Absent);
    let seen = |bench: &Bench| {
        let table = bench.array.ssd(0).table.clone();
        table.into_values().find(|entry| entry.name == "a").expect("it is there")
    };
    for _ in 0..10 {
        bench.run_for(300);
        bench.ask(renew("a", 5, seen(&bench).lease_epoch, 1_000)).unwrap();
    }
    bench.ask(read("a", 6)).unwrap();
    assert!(seen(&bench).writer.is_some() && seen(&bench).lease_ms > 500, "{:?}", seen(&bench));
}

/// The lost SSD was stopped in order, and voters have heard its goodbye.
#[test]
fn a_map_waits_for_no_lease_of_an_ssd_whose_goodbye_a_majority_has_heard() {
    let _deadline = Deadline::after(LIMIT);
    // All five vote.
    for (heard, also_lost, waits) in [(3, None, false), (2, None, true), (0, None, true), (3, Some(4), true)]
    {
        let mut bench = serving(5);
        let epoch = newest(&bench).epoch;
        (0..heard).for_each(|voter| bench.array.ssd(voter).vote.gone = SsdSet::EMPTY.with(3));
        also_lost.into_iter().chain([3]).for_each(|ssd| bench.lose(ssd));
        bench.run_for(5);
        let is_made = newest(&bench).epoch > epoch;
        assert_eq!(is_made, !waits, "{heard} of five voters have heard it; lost without one: {also_lost:?}");
        bench.run_for(2 * DROP_MS);
        assert_ne!(states(&bench)[3], State3::In);
        all_maps_keep(&bench, 2);
    }
    // The last copy's SSD is absent, without a wait, too (rule 1c).
    let mut bench = serving(4);
    bench.ask(of_replicas("one", 1)).unwrap();
    (0..3).for_each(|voter| bench.array.ssd(voter).vote.gone = SsdSet::EMPTY.with(3));
    bench.lose(3);
    bench.run_for(5);
    assert_eq!(states(&bench)[3], State3::Absent);
    all_maps_keep(&bench, 1);
    bench.find(3);
    bench.run_for(1_000);
    assert_eq!(states(&bench), [State3::In; 4]);
}

/// A voter may hold a map that was judged for volumes of two replicas, and a later daemon proposes that map
/// again. So a map of this daemon's term must be decided before there is a volume of one replica.
#[test]
fn a_volume_with_fewer_replicas_waits_for_a_map_that_is_judged_by_them() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    // A map for two replicas was made.
    bench.lose(3);
    bench.run_for(DROP_MS + 100);
    bench.find(3);
    bench.run_for(10_000);
    assert_eq!(states(&bench), [State3::In; 4]);
    let epoch = newest(&bench).epoch;
    bench.ask(of_replicas("three", 3)).unwrap();
    assert_eq!(newest(&bench).epoch, epoch);
    let ticket = bench.send(of_replicas("one", 1));
    bench.execute(0);
    bench.execute(3);
    assert!(!bench.replies.contains_key(&ticket) && bench.array.ssd(0).active().len() == 2);
    bench.run_until_quiet();
    assert!(bench.replies[&ticket].is_ok(), "{:?}", bench.replies[&ticket]);
    assert_eq!(newest(&bench).epoch, epoch + 1);
    bench.ask(of_replicas("other", 1)).unwrap();
    let mut next = Bench::cold(&bench.array, 10_000);
    next.run_for(5_000);
    next.ask(of_replicas("third", 1)).unwrap();
    assert_eq!(newest(&bench).epoch, epoch + 1, "there is such a volume");
}

#[test]
fn a_volume_of_one_replica_waits_for_no_map_where_all_voters_know_of_no_other_one() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    bench.ask(of_replicas("one", 1)).unwrap();
    assert_eq!(newest(&bench).epoch, 1);
    bench.ask(delete("one", 1)).unwrap();
    // One voter is away when the next daemon starts, and may hold any map.
    bench.array.ssd(2).dead = true;
    let mut next = Bench::cold(&bench.array, 10_000);
    next.lose(2);
    next.run_for(20_000);
    assert!(next.core.is_serving(), "{:?}", next.core.waits_for());
    next.find(2);
    next.run_for(20_000);
    let epoch = newest(&next).epoch;
    next.ask(of_replicas("one", 1)).unwrap();
    assert_eq!(newest(&next).epoch, epoch + 1);
}

#[test]
fn an_ssd_that_comes_back_with_other_content_is_dropped() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    bench.array.ssd(1).lose_writes();
    bench.find(1);
    let (dropped_in, incarnation) = (newest(&bench).epoch + 1, newest(&bench).ssds[1].incarnation);
    bench.run_for(DROP_MS + 1_000);
    let map = newest(&bench);
    assert_eq!((map.ssds[1].shrunk_at, map.ssds[1].state), (dropped_in, State3::In));
    assert!(map.ssds[1].incarnation > incarnation, "it has filled its places");
    bench.ask(create("b")).unwrap();
    bench.format(2);
    bench.find(2);
    bench.run_for(DROP_MS + 1_000);
    let state = states(&bench)[2];
    assert!(matches!(state, State3::Out | State3::Absent));
    all_maps_keep(&bench, 2);
}

#[test]
fn without_a_majority_of_voters_nothing_changes_and_the_missing_are_named() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    let before = newest(&bench);
    bench.lose(0);
    bench.lose(1);
    bench.run_for(20_000);
    assert_eq!(newest(&bench), before);
    let absent = bench.core.absent();
    let why = &absent[&0];
    assert!(why.contains("majority of 3 voters") && why.contains("SSD 1 (pulled)"), "{why}");
    bench.find(1);
    bench.run_for(2_000);
    assert_eq!(states(&bench)[0], State3::Out);
    bench.ask(create("b")).unwrap();
}

#[test]
fn a_start_goes_on_without_a_dead_ssd_and_drops_it() {
    let _deadline = Deadline::after(LIMIT);
    for dead in [1, 3] {
        let array = serving(4).array;
        array.ssd(dead).dead = true;
        let mut bench = Bench::cold(&array, 10_000);
        bench.run_for(5_000);
        assert!(bench.core.is_serving(), "{:?} {:?}", bench.stopped, bench.core.waits_for());
        assert_eq!(states(&bench)[dead], State3::Out);
        bench.ask(create("b")).unwrap();
        assert_eq!(bench.array.agreed().len(), 2);
    }
}

#[test]
fn a_map_that_was_held_is_made_active_by_the_next_daemon() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    let epoch = newest(&bench).epoch;
    bench.lose(3);
    // All voters hold the map. The daemon ends before the leases are over.
    bench.run_until_quiet();
    let array = bench.array.clone();
    array.ssd(3).dead = false;
    let mut next = Bench::cold(&array, 10_000);
    next.run_for(5_000);
    assert!(next.core.is_serving(), "{:?}", next.core.waits_for());
    let log = Arc::clone(&array.ssd(0).vote.log);
    let map = log.lock().unwrap().active_from(epoch + 1).next().cloned().unwrap();
    assert_eq!((map.epoch, map.ssds[3].state), (epoch + 1, State3::Out), "the same map, though it is back");
    bench.run_for(20_000);
    refused(&bench.ask(create("late")), GrpcCode::Aborted, &["newer daemon"]);
    assert!(matches!(bench.stopped, Some(Stop::Deposed(_))), "{:?}", bench.stopped);
}

/// Only it has the blocks of a volume of one replica. That it came back often makes them no more readable
/// without it.
#[test]
fn an_absent_ssd_serves_again_however_often_it_was_away() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    bench.ask(of_replicas("one", 1)).unwrap();
    for _ in 0..6 {
        bench.lose(3);
        bench.run_for(DROP_MS);
        assert_eq!(states(&bench)[3], State3::Absent);
        bench.find(3);
        bench.run_for(1_000);
        assert_eq!(states(&bench)[3], State3::In);
        assert_eq!(bench.core.absent().get(&3), None);
    }
    assert!(bench.core.fleet().unwrap().ssds[3].flaps, "the operator sees that it came back often");
}

#[test]
fn a_map_without_voters_elects_no_daemon_and_the_daemon_says_so() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let map = FleetMap3::of(&FleetMap::equal(3, 64, 7, 1).unwrap(), [5; 16]);
    for ssd in 0..3 {
        array.ssd(ssd).map = Some(map.clone().into());
    }
    let mut bench = Bench::cold(&array, 0);
    bench.run_for(5_000);
    let waits = bench.core.waits_for().expect("no daemon is elected");
    assert!(waits.contains("names none"), "{waits}");
}
