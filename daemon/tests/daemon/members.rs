// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The members of the fleet map: an array whose map leaves an SSD out, and maps that drop and add SSDs.

use crate::array::{Fault, SimArray, SimSsd};
use crate::bench::{Bench, client, config, create, create_with, delete, read, refused, release, write};
use crate::deadline::{Deadline, LIMIT};
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::{CoreConfig, NotNext, Reply, Stop};
use gnstor_proto::placement::{FleetMap, MAP_BYTES, SsdState};
use gnstor_proto::status::{GrpcCode, Refusal};
use gnstor_proto::vendor::opcode;

const OUT: usize = 2;
const MEMBERS: [usize; 3] = [0, 1, 3];

fn whole() -> FleetMap {
    FleetMap::equal(4, 64, 7, 1).unwrap()
}

/// The map of epoch 2, which leaves SSD 2 out, on its members; SSD 2 has `old`.
fn with_a_hole(old: Option<FleetMap>) -> SimArray {
    let array = SimArray::new(4);
    for ssd in MEMBERS {
        array.ssd(ssd).map = Some(whole().without(2).into());
    }
    array.ssd(OUT).map = old.map(Into::into);
    array
}

/// An array of four SSDs whose daemon serves, with volume "a".
fn serving() -> Bench {
    let mut bench = Bench::start(&SimArray::new(4), 0);
    bench.ask(create("a")).unwrap();
    bench
}

fn known(bench: &mut Bench) -> FleetMap {
    let Ok(Reply::Map(bytes)) = bench.ask(Request::GetMap) else { panic!("a map") };
    FleetMap::decode(&bytes).unwrap()
}

/// The next map with SSD 2 in it again; it holds no place.
fn back_in(map: &FleetMap) -> FleetMap {
    let mut next = map.clone();
    next.epoch += 1;
    next.ssds[OUT].state = SsdState::In;
    next
}

/// The members, but for SSD 2, take a map; then the daemon does.
fn activate(bench: &mut Bench, map: &FleetMap) {
    for ssd in MEMBERS {
        bench.array.ssd(ssd).map = Some(map.clone().into());
    }
    bench.take_map(map.clone()).unwrap();
}

fn names(bench: &Bench, ssd: usize) -> Vec<String> {
    bench.array.ssd(ssd).active().into_iter().map(|entry| entry.name).collect()
}

#[test]
fn an_array_whose_map_leaves_a_dead_ssd_out_starts_and_changes_without_it() {
    let _deadline = Deadline::after(LIMIT);
    let array = with_a_hole(Some(whole()));
    array.ssd(OUT).dead = true;
    let mut bench = Bench::start(&array, 0);
    assert!(bench.core.absent().is_empty(), "an SSD that is out is not away: {:?}", bench.core.absent());
    bench.ask(create("a")).unwrap();
    bench.ask(write("a", 7, 1_000)).unwrap();
    bench.ask(release("a", 7)).unwrap();
    bench.ask(delete("a", 1)).unwrap();
    bench.ask(create("b")).unwrap();
    for ssd in MEMBERS {
        assert_eq!(names(&bench, ssd), ["b"]);
    }
    bench.lose(2);
    bench.ask(create("d")).unwrap();
}

/// The SSD that is out may have volumes that are deleted by now, newer versions of a life that is over, or
/// anything.
#[test]
fn what_an_ssd_that_is_out_says_counts_for_nothing_and_it_is_told_the_map() {
    let _deadline = Deadline::after(LIMIT);
    let other = SimArray::new(4);
    Bench::start(&other, 0).ask(create("old")).unwrap();
    let array = with_a_hole(Some(whole()));
    array.ssd(OUT).table = std::mem::take(&mut other.ssd(OUT).table);
    array.ssd(OUT).faults.push_back(Fault::Refuse(Refusal::NotReady));
    let mut bench = Bench::start(&array, 0);
    assert!(bench.list().is_empty());
    let map = known(&mut bench);
    assert_eq!((map.epoch, map.ssds[OUT].state), (2, SsdState::Out));
    bench.array.ssd(OUT).counts.clear();
    bench.find(2);
    bench.run_until_quiet();
    assert_eq!(array.ssd(OUT).map, Some(map.into()), "it refuses clients with the older map");
    assert_eq!(array.ssd(OUT).counts.keys().collect::<Vec<_>>(), [&opcode::MAP_SET]);
    bench.ask(create("a")).unwrap();
    assert_eq!((names(&bench, OUT), names(&bench, 0)), (vec!["old".to_owned()], vec!["a".to_owned()]));
}

#[test]
fn a_start_waits_for_members_names_them_and_for_no_other_ssd() {
    let _deadline = Deadline::after(LIMIT);
    let array = with_a_hole(None);
    array.ssd(1).dead = true;
    array.ssd(OUT).dead = true;
    let mut bench = Bench::cold(&array, 0);
    bench.run_for(5_000);
    let awaited = bench.core.waits_for().expect("SSD 1 is a member");
    assert!(awaited.contains("SSD 1") && !awaited.contains("SSD 2"), "{awaited}");
    array.ssd(1).dead = false;
    bench.run_for(5_000);
    assert!(bench.core.is_serving(), "{:?}", bench.core.waits_for());
    bench.lose(3);
    let outcome = bench.ask(create("a"));
    refused(&outcome, GrpcCode::Unavailable, &["SSD 3 is down (pulled)"]);
    assert!(!outcome.unwrap_err().message.contains("SSD 2"));
    assert_eq!(bench.core.absent().into_keys().collect::<Vec<_>>(), [3]);
}

/// MAP GET of SSD 2 takes as long as the whole start.
#[test]
fn a_late_answer_of_an_earlier_step_is_no_answer_of_the_step() {
    let _deadline = Deadline::after(LIMIT);
    for late in [Some(whole()), None] {
        let array = with_a_hole(late);
        let mut bench = Bench::cold(&array, 0);
        while MEMBERS.into_iter().filter(|&ssd| bench.execute(ssd)).count() > 0 {}
        assert!(bench.core.is_serving(), "{:?}", bench.core.waits_for());
        bench.run_until_quiet();
        assert!(bench.stopped.is_none() && bench.core.absent().is_empty());
        bench.ask(create("a")).unwrap();
        assert_eq!(names(&bench, OUT), [""; 0]);
    }
}

#[test]
fn an_array_of_which_no_ssd_takes_part_is_not_served() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(1);
    array.ssd(0).map = Some(FleetMap::equal(1, 64, 7, 1).unwrap().without(0).into());
    let mut bench = Bench::cold(&array, 0);
    bench.run_for(5_000);
    assert!(!bench.core.is_serving());
}

/// 65,536 groups of width 4 fit, twice as many do not.
#[test]
fn a_map_without_room_on_the_ssds_stops_the_daemon_with_the_numbers() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(4);
    let groups = 1 << 17;
    let mut bench = Bench::cold_with(&array, 0, CoreConfig { groups, ..config() });
    bench.run_for(5_000);
    let Some(Stop::Array(why)) = &bench.stopped else { panic!("{:?}", bench.core.waits_for()) };
    let bytes = FleetMap::equal(4, groups, 7, 1).unwrap().encode().len();
    assert!(bytes > MAP_BYTES && why.contains("131072 placement groups"), "{why}");
    assert!(why.contains(&bytes.to_string()) && why.contains("fewer groups"), "{why}");
    assert!(array.ssd(0).map.is_none(), "nothing was written");
    let mut bench = Bench::cold_with(&array, 0, CoreConfig { groups: groups / 2, ..config() });
    bench.run_until_quiet();
    assert!(bench.core.is_serving());
}

#[test]
fn a_change_ends_when_the_silent_ssd_has_been_dropped() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving();
    let tickets = [create("b"), delete("a", 1)].map(|request| bench.send(request));
    let rest = |bench: &mut Bench| while MEMBERS.into_iter().filter(|&ssd| bench.execute(ssd)).count() > 0 {};
    rest(&mut bench);
    assert!(tickets.iter().all(|ticket| !bench.replies.contains_key(ticket)), "SSD 2 is silent");
    let next = known(&mut bench).without(2);
    activate(&mut bench, &next);
    rest(&mut bench);
    for ticket in tickets {
        assert!(bench.replies[&ticket].is_ok(), "{:?}", bench.replies[&ticket]);
    }
    assert_eq!(known(&mut bench), next);
    bench.ask(create("c")).unwrap();
    // It wakes up and answers all commands that it ever got.
    bench.run_until_quiet();
    assert!(bench.stopped.is_none());
    for ssd in MEMBERS {
        assert_eq!(names(&bench, ssd), ["c", "b"]);
    }
    bench.run_for(100_000);
    assert_eq!(bench.core.next_event(), None, "nothing is repeated for it");
}

/// The SSD has refused: the change is undone, or repeated for it, until it is dropped.
#[test]
fn what_is_repeated_for_an_ssd_ends_when_it_has_been_dropped() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving();
    let faults = || std::iter::repeat_n(Fault::Refuse(Refusal::NotReady), 1000);
    bench.array.ssd(OUT).faults.extend(faults());
    refused(&bench.ask(delete("a", 1)), GrpcCode::Unavailable, &["SSD 2", "repeated until"]);
    refused(&bench.ask(create("a")), GrpcCode::Unavailable, &["still being deleted"]);
    bench.run_for(3_000);
    let next = known(&mut bench).without(2);
    activate(&mut bench, &next);
    bench.run_for(60_000);
    assert_eq!(bench.core.next_event(), None);
    bench.ask(create("a")).unwrap();
    for ssd in MEMBERS {
        assert_eq!(names(&bench, ssd), ["a"]);
    }
}

/// All other SSDs have deleted the volume. The SSD that has not is dropped.
#[test]
fn a_deletion_that_only_the_dropped_ssd_lacks_is_done() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving();
    let ticket = bench.send(delete("a", 1));
    // The mark is everywhere.
    for ssd in 0..4 {
        assert!(bench.execute(ssd));
    }
    bench.array.ssd(OUT).faults.extend(std::iter::repeat_n(Fault::LostBefore, 1000));
    bench.run_until_quiet();
    refused(&bench.replies[&ticket], GrpcCode::Unavailable, &["SSD 2"]);
    let next = known(&mut bench).without(2);
    activate(&mut bench, &next);
    bench.run_for(60_000);
    assert!(bench.list().is_empty());
    assert_eq!(bench.core.next_event(), None);
    bench.ask(create("a")).unwrap();
}

#[test]
fn an_ssd_that_a_map_adds_is_brought_up_to_date_before_a_change_needs_it() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving();
    bench.ask(create("gone")).unwrap();
    let next = known(&mut bench).without(2);
    activate(&mut bench, &next);
    bench.ask(delete("gone", 2)).unwrap();
    bench.ask(create("b")).unwrap();
    bench.ask(write("a", 7, 300_000)).unwrap();
    activate(&mut bench, &back_in(&next));
    refused(&bench.ask_now(create("c")), GrpcCode::Unavailable, &["SSD 2", "brought up to date"]);
    // A deleted volume must not come back with it.
    bench.run_for(60_000);
    let outcome = bench.ask(create("c"));
    refused(&outcome, GrpcCode::Unavailable, &["SSD 2", "holds volume \"gone\"", "format it"]);
    bench.lose(2);
    *bench.array.ssd(OUT) = SimSsd::default();
    bench.find(2);
    bench.run_until_quiet();
    assert!(bench.core.absent().is_empty(), "{:?}", bench.core.absent());
    assert_eq!(bench.array.ssd(OUT).map, Some(back_in(&next).into()));
    let entries = bench.array.agreed();
    assert_eq!((entries.len(), entries[0].writer), (2, Some(client(7))));
    bench.ask(create("c")).unwrap();
    bench.ask(read("c", 5)).unwrap();
    assert_eq!(bench.array.agreed().len(), 3);
    // From now on it is a member like any other: without its map it has lost its blocks.
    bench.lose(2);
    *bench.array.ssd(OUT) = SimSsd::default();
    bench.find(2);
    bench.run_for(60_000);
    assert!(bench.core.absent()[&2].contains("put the old one back"), "{:?}", bench.core.absent());
}

#[test]
fn a_map_that_is_not_the_next_one_changes_nothing() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(4);
    let mut cold = Bench::cold(&array, 0);
    assert_eq!(cold.take_map(whole().without(2)), Err(NotNext::NotServing));
    let mut bench = serving();
    let map = known(&mut bench);
    let later = |mut map: FleetMap| {
        map.epoch = 9;
        map
    };
    let more = later(FleetMap::equal(5, 64, 7, 1).unwrap());
    assert_eq!(bench.take_map(more), Err(NotNext::Unconnected { given: 5, connected: 4 }));
    assert_eq!(bench.take_map(map.clone()), Err(NotNext::Stale { given: 1, known: 1 }));
    let mut none = later(map.clone());
    none.ssds.iter_mut().for_each(|ssd| ssd.state = SsdState::Out);
    assert_eq!(bench.take_map(none), Err(NotNext::NoneStays));
    let next = map.without(2);
    activate(&mut bench, &next);
    let serves = bench.take_map(later(map.clone()));
    assert_eq!(serves, Err(NotNext::ServesAtOnce { ssd: 2 }));
    let map = next;
    assert_eq!(known(&mut bench), map);
    bench.ask(create("b")).unwrap();
    assert_eq!(bench.array.agreed().len(), 2);
}

/// Two replicas of 700,000 blocks fit on six SSDs of 262,144, and not on five.
#[test]
fn room_is_counted_by_the_map_of_the_epoch() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = Bench::start(&SimArray::new(6), 0);
    let sized = |text, blocks| create_with(text, blocks, None);
    bench.ask(sized("big", 700_000)).unwrap();
    bench.ask(sized("small", 16)).unwrap();
    let next = known(&mut bench).without(2);
    bench.take_map(next).unwrap();
    refused(&bench.ask(sized("more", 4_096)), GrpcCode::ResourceExhausted, &["does not fit"]);
    bench.ask(delete("big", 1)).unwrap();
    refused(&bench.ask(sized("big", 700_000)), GrpcCode::ResourceExhausted, &["does not fit"]);
    bench.ask(sized("big", 500_000)).unwrap();
}
