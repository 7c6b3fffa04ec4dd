// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SSDs that go away and come back, with what they had or with less.

use crate::array::{Fault, SimArray, SimSsd};
use crate::bench::{Bench, client, create, delete, read, refused, release, renew, write};
use crate::deadline::{Deadline, LIMIT};
use gnstor_daemon::core::{Reply, Stop};
use gnstor_proto::placement::FleetMap;
use gnstor_proto::slba::Vid;
use gnstor_proto::status::{GrpcCode, Refusal};
use gnstor_proto::vendor::{VolumeEntry, opcode};

fn bench() -> Bench {
    let mut bench = Bench::start(&SimArray::new(3), 0);
    bench.ask(create("a")).unwrap();
    bench
}

fn count(bench: &Bench, ssd: usize, opcode: u8) -> u32 {
    bench.array.ssd(ssd).counts.get(&opcode).copied().unwrap_or(0)
}

#[test]
fn while_an_ssd_is_away_changes_are_refused_with_its_name_and_reach_no_ssd() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    bench.ask(read("a", 5)).unwrap();
    let before = bench.array.agreed();
    bench.lose(1);
    for request in [create("b"), delete("a", 1), write("a", 6, 1_000)] {
        let outcome = bench.ask(request);
        refused(&outcome, GrpcCode::Unavailable, &["SSD 1 is down (pulled)", "try again when all are back"]);
    }
    assert_eq!(bench.array.ssd(0).active(), before);
    assert_eq!(bench.list(), before, "what needs no SSD is served");
    assert!(bench.ask(read("a", 5)).is_ok(), "and a client keeps a right that it has");
    refused(&bench.ask(create("a")), GrpcCode::AlreadyExists, &[]);
    bench.find(1);
    bench.run_until_quiet();
    assert!(bench.ask(create("b")).is_ok());
    assert_eq!(bench.array.agreed().len(), 2);
}

/// An SSD that has not heard of a reader refuses it, and gets the entry when it is back.
#[test]
fn a_reader_is_let_in_while_an_ssd_is_away_which_hears_of_it_later() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    bench.lose(1);
    assert!(matches!(bench.ask(read("a", 6)), Ok(Reply::Opened { .. })));
    let readers = |bench: &Bench, ssd: usize| bench.array.ssd(ssd).active()[0].readers.clone();
    assert_eq!((readers(&bench, 0), readers(&bench, 1)), (vec![client(6)], vec![]));
    // When a second SSD is lost, one SSD still has the entry. When all SSDs are lost, none has it.
    bench.lose(0);
    assert!(bench.ask(read("a", 7)).is_ok());
    bench.lose(2);
    refused(&bench.ask(read("a", 8)), GrpcCode::Unavailable, &["SSD 2"]);
    for ssd in [2, 1, 0] {
        bench.find(ssd);
    }
    bench.run_until_quiet();
    assert_eq!(bench.array.agreed()[0].readers, [client(6), client(7)]);
    assert!(bench.ask(write("a", 6, 1_000)).is_ok(), "all are back");
}

#[test]
fn an_ssd_that_missed_nothing_is_asked_and_not_written() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    bench.lose(1);
    bench.array.ssd(1).counts.clear();
    bench.find(1);
    assert!(bench.core.absent()[&1].contains("brought up to date"), "{:?}", bench.core.absent());
    bench.run_until_quiet();
    assert!(bench.core.absent().is_empty());
    let counts =
        [opcode::MAP_GET, opcode::MAP_SET, opcode::VOLUME_LIST, opcode::VOLUME_CHMOD, opcode::VOLUME_ADD];
    assert_eq!(counts.map(|code| count(&bench, 1, code)), [1, 1, 1, 0, 0]);
    assert_eq!(bench.core.next_event(), None);
}

#[test]
fn an_ssd_that_comes_back_without_a_map_serves_only_an_array_without_volumes() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let mut bench = Bench::start(&array, 0);
    bench.lose(2);
    *array.ssd(2) = SimSsd::default();
    bench.find(2);
    bench.run_until_quiet();
    assert_eq!((bench.core.absent().len(), array.ssd(2).map.is_some()), (0, true));

    bench.ask(create("a")).unwrap();
    bench.lose(2);
    let old = std::mem::take(&mut *array.ssd(2));
    bench.find(2);
    bench.run_for(100_000);
    assert!(bench.core.absent()[&2].contains("put the old one back"), "{:?}", bench.core.absent());
    assert_eq!(array.ssd(2).map, None, "it serves no zeros");
    assert_eq!(array.ssd(2).table.len(), 0);
    refused(&bench.ask(create("b")), GrpcCode::Unavailable, &["SSD 2", "put the old one back"]);
    bench.lose(2);
    *array.ssd(2) = old;
    bench.find(2);
    bench.run_until_quiet();
    bench.ask(create("b")).unwrap();
    assert_eq!(array.agreed().len(), 2);
}

#[test]
fn an_ssd_that_lost_its_table_gets_every_volume() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    for i in 0..40 {
        bench.ask(create(&format!("v{i}"))).unwrap();
    }
    bench.lose(2);
    bench.array.ssd(2).table.clear();
    bench.find(2);
    bench.run_until_quiet();
    assert_eq!(bench.array.ssd(2).map, bench.array.ssd(0).map);
    assert_eq!((bench.array.agreed().len(), bench.core.next_event()), (41, None));
}

#[test]
fn an_ssd_with_an_older_entry_gets_the_newer_one() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    let old = bench.array.ssd(1).table.clone();
    bench.ask(write("a", 7, 10_000)).unwrap();
    bench.lose(1);
    bench.array.ssd(1).table = old;
    bench.pass(4_000);
    bench.find(1);
    bench.run_until_quiet();
    let entries = bench.array.agreed();
    assert_eq!(
        (entries[0].writer, entries[0].lease_ms),
        (Some(client(7)), 6_000),
        "what is left of the lease"
    );
    assert!(bench.ask(renew("a", 7, 1, 10_000)).is_ok());
}

#[test]
fn what_was_begun_before_is_repeated_at_once_when_the_ssd_is_back() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    bench.ask(read("a", 5)).unwrap();
    bench.ask(write("a", 6, 10_000)).unwrap();
    bench.lose(1);
    refused(&bench.ask(renew("a", 6, 1, 60_000)), GrpcCode::Unavailable, &["SSD 1", "repeated"]);
    refused(&bench.ask(release("a", 5)), GrpcCode::Unavailable, &["SSD 1", "repeated"]);
    bench.run_for(100_000);
    bench.find(1);
    bench.run_until_quiet();
    assert_eq!(bench.array.agreed()[0].readers, []);
    assert_eq!(bench.core.next_event(), None, "it did not wait for the next try");
}

#[test]
fn a_deletion_that_an_ssd_missed_is_finished_when_it_is_back() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    let ticket = bench.send(delete("a", 1));
    // The mark is everywhere. One SSD goes away before it is told to delete.
    for ssd in [0, 1, 2] {
        bench.execute(ssd);
    }
    bench.lose(2);
    bench.run_until_quiet();
    refused(&bench.replies[&ticket], GrpcCode::Unavailable, &["SSD 2", "is decided"]);
    bench.find(2);
    bench.run_until_quiet();
    assert!(bench.array.agreed().is_empty() && bench.list().is_empty());
}

#[test]
fn an_ssd_that_comes_back_during_a_change_gets_it_whatever_it_said_before() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    let old = bench.array.ssd(1).table.clone();
    let ticket = bench.send(read("a", 5));
    assert!(bench.execute(1) && bench.execute(2));
    // It said yes, and comes back without the entry while SSD 0 has yet to answer.
    bench.lose(1);
    bench.array.ssd(1).table = old;
    bench.find(1);
    assert!(bench.execute(1) && bench.execute(1) && bench.execute(1));
    assert!(bench.core.absent().is_empty() && !bench.replies.contains_key(&ticket));
    bench.run_until_quiet();
    assert!(bench.replies[&ticket].is_ok());
    assert_eq!(bench.array.agreed()[0].readers, [client(5)]);
}

#[test]
fn an_ssd_that_goes_again_on_its_way_back_is_taken_up_anew() {
    let _deadline = Deadline::after(LIMIT);
    for commands in 0..3 {
        let mut bench = bench();
        let old = bench.array.ssd(1).table.clone();
        bench.ask(read("a", 5)).unwrap();
        bench.lose(1);
        bench.array.ssd(1).table = old;
        bench.find(1);
        for _ in 0..commands {
            bench.execute(1);
        }
        bench.lose(1);
        bench.run_until_quiet();
        assert_eq!(bench.core.absent().len(), 1, "an answer of before counts for nothing");
        bench.find(1);
        bench.run_until_quiet();
        assert_eq!(bench.array.agreed()[0].readers, [client(5)], "after {commands} commands");
    }
}

#[test]
fn an_ssd_that_refuses_on_its_way_back_is_asked_again() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    bench.lose(1);
    bench.array.ssd(1).faults.push_back(Fault::Refuse(Refusal::NotReady));
    bench.find(1);
    bench.run_until_quiet();
    assert!(bench.core.absent()[&1].contains("refuses"), "{:?}", bench.core.absent());
    bench.run_for(1_000);
    assert!(bench.core.absent().is_empty());
}

#[test]
fn an_ssd_that_another_daemon_had_meanwhile_ends_this_one() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let mut bench = Bench::start(&array, 0);
    bench.lose(1);
    let mut newer = FleetMap::equal(3, 64, 9, 1).unwrap();
    newer.epoch = 9;
    array.ssd(1).map = Some(newer.into());
    bench.find(1);
    bench.run_until_quiet();
    assert!(
        matches!(&bench.stopped, Some(Stop::Deposed(why)) if why.contains("SSD 1")),
        "{:?}",
        bench.stopped
    );
}

#[test]
fn a_volume_that_was_deleted_does_not_come_back_with_an_ssd_and_a_strangers_is_left_alone() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    let a = bench.array.agreed()[0].clone();
    bench.ask(delete("a", 1)).unwrap();
    bench.ask(create("b")).unwrap();
    bench.lose(1);
    // A backup of its data file, with the old volume and a volume of another array.
    let strange = VolumeEntry { vid: Vid::new(77).unwrap(), name: "strange".into(), ..a.clone() };
    {
        let mut ssd = bench.array.ssd(1);
        let map = ssd.map.take();
        *ssd = SimSsd::default();
        ssd.map = map;
        ssd.table.insert(a.vid, a.clone());
        ssd.table.insert(strange.vid, strange.clone());
    }
    bench.find(1);
    bench.run_for(5_000);
    let names = |entries: Vec<VolumeEntry>| entries.into_iter().map(|e| e.name).collect::<Vec<_>>();
    assert_eq!(names(bench.array.ssd(1).active()), ["b", "strange"]);
    assert_eq!(names(bench.list()), ["b"]);
    assert_eq!(bench.array.ssd(0).active()[0], bench.array.ssd(1).active()[0]);
}

#[test]
fn an_ssd_that_goes_and_comes_while_the_daemon_starts_is_no_reason_to_ask_twice() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let mut bench = Bench::cold(&array, 0);
    bench.lose(1);
    bench.run_for(5_000);
    assert!(!bench.core.is_serving());
    assert!(bench.core.waits_for().unwrap().contains("SSD 1"));
    bench.find(1);
    bench.run_for(5_000);
    assert!(bench.core.is_serving() && bench.core.absent().is_empty());
    assert!(matches!(bench.ask(create("a")), Ok(Reply::Volume(_))));
}
