// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A daemon that starts finds everything on the SSDs, and a daemon that was replaced finds out.

use crate::array::{Fault, SimArray};
use crate::bench::{
    Bench, client, create, create_with, created, delete, name, opened, read, refused, release, write,
};
use crate::deadline::{Deadline, LIMIT};
use crate::shrink::{newest, serving, states, three};
use gnstor_daemon::core::Page;
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::{CoreConfig, Reply, Stop};
use gnstor_proto::placement::FleetMap;
use gnstor_proto::placement::map3::State3;
use gnstor_proto::status::{GrpcCode, Refusal};
use gnstor_proto::vendor::opcode;

#[test]
fn a_restarted_daemon_has_the_same_state() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let mut first = Bench::start(&array, 0);
    for text in ["a", "b", "c"] {
        first.ask(create(text)).unwrap();
    }
    first.ask(read("a", 5)).unwrap();
    first.ask(write("b", 6, 10_000)).unwrap();
    first.ask(delete("c", 1)).unwrap();
    let before = first.list();
    drop(first);
    array.ssd(0).counts.clear();
    let mut second = Bench::start(&array, 0);
    assert_eq!(second.list(), before);
    assert_eq!(array.ssd(0).counts.get(&opcode::VOLUME_CHMOD), None, "what agrees is not written again");
    assert_eq!(second.core.term(), 2);
    assert_eq!(
        second.ask(Request::Register),
        Ok(Reply::Client { client: client(1025), serial: 2 << 32 | 1 })
    );
    refused(&second.ask(write("b", 7, 1_000)), GrpcCode::FailedPrecondition, &["client 6"]);
    second.pass(10_500);
    assert_eq!(opened(&second.ask(write("b", 7, 1_000))).lease_epoch, 2);
}

#[test]
fn the_map_is_published_again_with_the_new_term_and_its_epoch() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    drop(Bench::start(&array, 0));
    let mut newer = FleetMap::equal(3, 32, 9, 4).unwrap();
    newer.epoch = 7;
    array.ssd(1).map = Some(newer.clone().into());
    drop(Bench::start(&array, 0));
    newer.term = 5;
    for ssd in 0..3 {
        assert_eq!(array.ssd(ssd).map, Some(newer.clone().into()));
    }
}

#[test]
fn many_volumes_take_several_pages() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let mut first = Bench::start(&array, 0);
    for i in 0..50 {
        first.ask(create(&format!("v{i}"))).unwrap();
    }
    let before = first.list();
    array.ssd(0).counts.clear();
    let mut second = Bench::start(&array, 0);
    assert_eq!(second.list(), before);
    assert_eq!(array.ssd(0).counts[&opcode::VOLUME_LIST], 5, "four pages, and one of volumes that are gone");
}

#[test]
fn an_older_daemon_is_refused_and_stops() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let mut old = Bench::start(&array, 0);
    old.ask(create("a")).unwrap();
    let mut new = Bench::start(&array, 0);
    let outcome = old.ask(create("b"));
    refused(&outcome, GrpcCode::Aborted, &["newer daemon has taken over", "term is 1"]);
    assert!(matches!(old.stopped, Some(Stop::Deposed(_))));
    refused(&old.ask(Request::List(Page::ALL)), GrpcCode::Aborted, &["connect to the newer one"]);
    assert!(new.ask(create("b")).is_ok());
    assert_eq!(array.agreed().len(), 2);
}

#[test]
fn a_daemon_that_starts_while_another_does_reads_again() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let mut slow = Bench::cold(&array, 0);
    assert!(slow.execute(0) && slow.execute(1));
    // The slow daemon surveyed a fresh array. Before it publishes, two others start and one creates a volume.
    drop(Bench::start(&array, 0));
    let mut other = Bench::start(&array, 0);
    other.ask(create("a")).unwrap();
    slow.run_for(5_000);
    assert!(slow.core.is_serving(), "{:?} {:?}", slow.stopped, slow.core.waits_for());
    assert_eq!((slow.core.term(), slow.list().len()), (3, 1));
    refused(&other.ask(delete("a", 1)), GrpcCode::Aborted, &[]);
    assert_eq!(array.agreed().len(), 1);
}

#[test]
fn a_change_that_reached_some_ssds_is_finished_after_a_crash() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let mut first = Bench::start(&array, 0);
    first.ask(create("a")).unwrap();
    first.send(read("a", 5));
    first.send(create("b"));
    assert!(first.execute(1) && first.execute(1));
    drop(first);
    let mut second = Bench::start(&array, 0);
    let entries = array.agreed();
    assert_eq!(entries.len(), 2, "neither change had been answered; the newest state of each entry wins");
    assert_eq!(entries[0].readers, [client(5)]);
    assert_eq!(second.list(), entries);
}

#[test]
fn a_deletion_is_finished_after_a_crash_at_any_point() {
    let _deadline = Deadline::after(LIMIT);
    for commands in 0..12 {
        let array = SimArray::new(3);
        let mut first = Bench::start(&array, 0);
        first.ask(create("a")).unwrap();
        first.send(delete("a", 1));
        // One SSD after the other. So some have swept and forgotten the volume while others still have it.
        for i in 0..commands {
            first.execute(i % 3);
        }
        drop(first);
        let mut second = Bench::start(&array, 0);
        second.run_for(5_000);
        let left = array.agreed();
        assert_eq!(second.list(), left);
        assert_eq!(left.len(), usize::from(commands == 0), "after {commands} commands");
    }
}

#[test]
fn a_deletion_leaves_no_ssd_behind_though_the_others_forgot_the_volume() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let mut first = Bench::start(&array, 0);
    first.ask(create("a")).unwrap();
    array.ssd(2).faults.extend([Fault::Delay(std::time::Duration::ZERO), Fault::LostBefore]);
    refused(&first.ask(delete("a", 1)), GrpcCode::Unavailable, &["SSD 2", "is decided"]);
    assert!(array.ssd(0).table.is_empty() && array.ssd(2).table.len() == 1);
    drop(first);
    let mut second = Bench::start(&array, 0);
    assert!(array.agreed().is_empty() && second.list().is_empty());
}

#[test]
fn a_failed_create_whose_undoing_was_cut_off_is_undone_after_a_crash() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let mut first = Bench::start(&array, 0);
    array.ssd(1).faults.extend([Fault::LostAfter, Fault::LostBefore]);
    refused(&first.ask(create("a")), GrpcCode::Unavailable, &["SSD 1"]);
    assert!(array.ssd(0).table.is_empty() && array.ssd(1).active().len() == 1);
    drop(first);
    let mut second = Bench::start(&array, 0);
    second.run_for(2_000);
    assert!(second.list().is_empty() && array.agreed().is_empty());
    assert!(second.ask(create("a")).is_ok());
}

#[test]
fn retries_are_known_after_a_restart() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    for ssd in 0..3 {
        array.ssd(ssd).sweep_commands = 100;
    }
    let mut first = Bench::start(&array, 0);
    let a = created(first.ask(create_with("a", 1, Some([1; 16]))));
    first.ask(create("b")).unwrap();
    let request = Request::Delete {
        name: name("b"),
        client: client(1),
        request_id: Some([2; 16]),
        force: false,
        only: None,
    };
    first.ask(request.clone()).unwrap();
    let mut second = Bench::start(&array, 0);
    assert_eq!(created(second.ask(create_with("a", 1, Some([1; 16])))), a);
    assert_eq!(second.ask(request), Ok(Reply::Ended(vec![])));
    refused(&second.ask(delete("b", 1)), GrpcCode::NotFound, &[]);
}

#[test]
fn a_start_waits_for_every_ssd() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    drop(Bench::start(&array, 0));
    array.ssd(1).dead = true;
    let mut bench = Bench::cold(&array, 0);
    bench.run_for(10_000);
    assert!(!bench.core.is_serving() && bench.core.waits_for().unwrap().contains("SSD 1"));
    array.ssd(1).dead = false;
    array.ssd(1).faults.push_back(Fault::Refuse(Refusal::NotReady));
    bench.run_for(2_000);
    assert!(bench.core.is_serving());
}

#[test]
fn a_replaced_ssd_is_not_served_as_if_it_were_empty_and_the_array_starts_without_it() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let mut first = Bench::start(&array, 0);
    first.ask(create("a")).unwrap();
    *array.ssd(1) = Default::default();
    let mut second = Bench::cold(&array, 0);
    second.run_until_quiet();
    assert!(second.core.is_serving(), "{:?}", second.stopped);
    assert!(second.core.absent()[&1].contains("without a fleet map"), "{:?}", second.core.absent());
    assert!(second.ask(read("a", 5)).is_ok(), "the others have its copies");
    refused(&second.ask(write("a", 5, 1_000)), GrpcCode::Unavailable, &["SSD 1", "put the old one back"]);
    assert_eq!(array.ssd(1).map, None, "it is given no map, so it serves nothing");
    // No SSD is left that knows the array.
    drop(second);
    (0..3).for_each(|ssd| array.ssd(ssd).map = None);
    let mut third = Bench::cold(&array, 0);
    third.run_until_quiet();
    let Some(Stop::Array(why)) = &third.stopped else { panic!("{:?}", third.stopped) };
    assert!(why.contains("SSD 0, SSD 1, SSD 2 have no fleet map"), "{why}");
    refused(&third.ask(release("a", 1)).map(|_| Reply::Done), GrpcCode::Unavailable, &["SSD 1"]);
}

#[test]
fn a_fresh_array_whose_first_start_was_cut_off_starts() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    drop(Bench::start(&array, 0));
    array.ssd(2).map = None;
    assert_eq!(Bench::start(&array, 0).core.term(), 2);
}

#[test]
fn an_array_of_another_size_is_refused() {
    let _deadline = Deadline::after(LIMIT);
    drop(Bench::start(&SimArray::new(2), 0));
    let array = SimArray::new(3);
    for ssd in 0..3 {
        array.ssd(ssd).map = Some(FleetMap::equal(2, 64, 1, 1).unwrap().into());
    }
    let mut bench = Bench::cold(&array, 0);
    bench.run_until_quiet();
    let Some(Stop::Array(why)) = &bench.stopped else { panic!("{:?}", bench.stopped) };
    assert!(why.contains("names 2 SSDs, but 3 are connected"), "{why}");
}

/// A daemon that starts beside a serving one, and has heard from each SSD who it is.
fn beside(serving: &Bench) -> Bench {
    let mut starts = Bench::cold_with(&serving.array, serving.now, three());
    for _step in ["the maps", "who they are"] {
        (0..serving.array.len()).for_each(|ssd| assert!(starts.execute(ssd)));
    }
    starts
}

#[test]
fn what_an_ssd_said_before_it_learned_a_map_counts_for_nothing() {
    let _deadline = Deadline::after(LIMIT);
    let mut old = serving(4);
    old.lose(3);
    old.run_for(1_000);
    assert_eq!(states(&old)[3], State3::Out);
    old.array.ssd(3).dead = false;
    let mut new = beside(&old);
    // By the map that drops it the SSD counts its content up. Then it fills its places.
    old.find(3);
    old.run_for(5_000);
    let before = newest(&old);
    assert_eq!((before.ssds[3].state, before.ssds[3].incarnation), (State3::In, 2));
    new.run_for(10_000);
    assert!(new.core.is_serving(), "{:?} {:?}", new.stopped, new.core.waits_for());
    assert_eq!(newest(&new).epoch, before.epoch, "no SSD was dropped");
}

#[test]
fn an_ssd_that_is_lost_while_others_say_who_they_are_is_asked_again() {
    let _deadline = Deadline::after(LIMIT);
    let mut old = serving(4);
    // A map of its term: the next daemon is granted the first term that it asks for.
    old.lose(2);
    old.run_for(1_000);
    old.find(2);
    old.run_for(5_000);
    assert!(states(&old).iter().all(|state| *state == State3::In));
    let mut new = Bench::cold_with(&old.array, old.now, three());
    (0..4).for_each(|ssd| assert!(new.execute(ssd)));
    assert!(new.execute(3));
    new.lose(3);
    new.array.ssd(3).lose_writes();
    new.find(3);
    new.run_for(10_000);
    assert!(new.core.is_serving(), "{:?} {:?}", new.stopped, new.core.waits_for());
    let known = newest(&new);
    assert_eq!((known.ssds[3].state, known.ssds[3].incarnation > 1), (State3::In, true));
}

/// Executes commands until the start reads the tables, or no longer does.
fn until_tables(bench: &mut Bench, are_read: bool) {
    for _ in 0..200 {
        let waits = bench.core.waits_for();
        let reads = waits.as_ref().is_some_and(|waits| waits.starts_with("the SSDs' permission tables"));
        if waits.is_none() || reads == are_read {
            return;
        }
        if (0..bench.array.len()).filter(|&ssd| bench.execute(ssd)).count() == 0 {
            bench.pass(100);
        }
    }
    panic!("{:?}", bench.core.waits_for());
}

/// SSD 2 comes back first, with another content or another SSD: its table may lack volumes.
#[test]
fn a_table_of_an_ssd_whose_link_broke_since_it_said_who_it_is_is_not_trusted() {
    let _deadline = Deadline::after(LIMIT);
    for is_empty in [false, true] {
        let old = serving(3);
        let mut new = Bench::cold_with(&old.array, old.now, three());
        until_tables(&mut new, true);
        (0..3).for_each(|ssd| new.lose(ssd));
        new.run_until_quiet();
        if is_empty {
            new.format(2);
        } else {
            new.array.ssd(2).lose_writes();
            new.array.ssd(2).table.clear();
        }
        new.find(2);
        new.run_for(10_000);
        assert!(!new.core.is_serving(), "by the table of SSD 2 alone");
        new.find(0);
        new.find(1);
        new.run_for(10_000);
        assert!(new.core.is_serving(), "{:?} {:?}", new.stopped, new.core.waits_for());
        assert_eq!(new.list().len(), 1);
    }
}

/// Each time the tables are read, the link of SSD 2 breaks.
#[test]
fn a_start_goes_on_without_an_ssd_whose_link_breaks_again_and_again() {
    let _deadline = Deadline::after(LIMIT);
    let old = serving(3);
    let mut new = Bench::cold_with(&old.array, old.now, three());
    let mut breaks = 0;
    while breaks < 20 && !new.core.is_serving() {
        until_tables(&mut new, true);
        if !new.core.is_serving() {
            new.lose(2);
            new.find(2);
            breaks += 1;
            until_tables(&mut new, false);
        }
    }
    assert!(breaks > 1, "the first time all is read anew");
    assert!(new.core.is_serving(), "{:?} {:?}", new.stopped, new.core.waits_for());
    assert_eq!(new.list().len(), 1);
    new.run_for(20_000);
    new.ask(create("later")).unwrap();
    new.array.agreed();
}

/// SSD 4 has no places. Only its table is read, and then the map drops it.
#[test]
fn volumes_are_known_by_the_table_of_an_ssd_that_is_dropped_after_that() {
    let _deadline = Deadline::after(LIMIT);
    let config = || CoreConfig { groups: 1, ..three() };
    let mut old = Bench::cold_with(&SimArray::new(5), 0, config());
    old.run_for(5_000);
    old.ask(create("a")).unwrap();
    let mut new = Bench::cold_with(&old.array, old.now, config());
    until_tables(&mut new, true);
    (0..4).for_each(|ssd| new.lose(ssd));
    assert!(new.execute(4), "it is asked for its table");
    new.pass(2_100);
    new.lose(4);
    assert!(!new.core.is_serving());
    (0..3).for_each(|ssd| new.find(ssd));
    new.run_for(10_000);
    assert!(new.core.is_serving(), "{:?} {:?}", new.stopped, new.core.waits_for());
    assert_eq!(states(&new)[4], State3::Out);
    assert_eq!(new.list().len(), 1, "nothing is deleted");
    (3..5).for_each(|ssd| new.find(ssd));
    new.run_for(20_000);
    assert_eq!(new.array.agreed().len(), 1);
}
