// SPDX-License-Identifier: Apache-2.0 OR MIT
//! After a write lease that did not end cleanly the volume is settled before the next one.

use crate::array::SimArray;
use crate::bench::{Bench, create, delete, name, opened, read, refused, release, renew, write};
use crate::deadline::{Deadline, LIMIT};
use crate::shrink::{DROP_MS, newest, of_replicas, serving, states};
use gnstor_daemon::core::Page;
use gnstor_daemon::core::Reply;
use gnstor_daemon::core::request::Request;
use gnstor_proto::placement::map3::State3;
use gnstor_proto::status::GrpcCode;
use gnstor_proto::vendor::{VolumeEntry, opcode};

fn entry(bench: &Bench) -> VolumeEntry {
    bench.array.agreed().remove(0)
}

fn settles(bench: &Bench) -> u32 {
    (0..4).map(|ssd| bench.array.ssd(ssd).counts.get(&opcode::SETTLE).copied().unwrap_or(0)).sum()
}

fn takes(array: &SimArray, questions: u32) {
    (0..array.len()).for_each(|ssd| array.ssd(ssd).fill.takes = questions);
}

/// Client 7 writes volume a, with a lease of 2 s.
fn written(questions: u32) -> Bench {
    let mut bench = serving(4);
    takes(&bench.array, questions);
    opened(&bench.ask(write("a", 7, 2_000)));
    bench
}

fn clean(who: u16) -> Request {
    let mut request = release("a", who);
    if let Request::Release { all_acknowledged, .. } = &mut request {
        *all_acknowledged = true;
    }
    request
}

#[test]
fn a_clean_release_needs_no_settle() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = written(0);
    let lease = {
        let entry = entry(&bench);
        (entry.vid, entry.generation, entry.lease_epoch)
    };
    bench.array.ssd(0).vote.log.lock().unwrap().clean.insert(lease);
    bench.ask(clean(7)).unwrap();
    assert!(!entry(&bench).unsettled);
    opened(&bench.ask(write("a", 8, 2_000)));
    assert_eq!(settles(&bench), 0);
}

/// The daemon may carry out a Release long after its client gave it up.
#[test]
fn a_release_that_comes_late_ends_no_later_lease_of_its_client() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = written(0);
    let of_lease = |epoch| {
        let mut request = release("a", 7);
        if let Request::Release { lease_epoch, .. } = &mut request {
            *lease_epoch = Some(epoch);
        }
        request
    };
    bench.ask(of_lease(1)).unwrap();
    assert_eq!(entry(&bench).writer, None);
    assert_eq!(opened(&bench.ask(write("a", 7, 2_000))).lease_epoch, 2);
    // That of the first lease, and that of an open for reading.
    for epoch in [1, 0] {
        bench.ask(of_lease(epoch)).unwrap();
        assert!(entry(&bench).writer.is_some(), "epoch {epoch} ended the lease of epoch 2");
    }
    // It had a reader's place, too, which that of a file for reading ends.
    bench.ask(read("a", 7)).unwrap();
    assert_eq!(entry(&bench).readers.len(), 1);
    bench.ask(of_lease(0)).unwrap();
    assert!(entry(&bench).readers.is_empty() && entry(&bench).writer.is_some());
    bench.ask(of_lease(2)).unwrap();
    assert_eq!(entry(&bench).writer, None);
    // A client of an earlier version names no lease.
    opened(&bench.ask(write("a", 7, 2_000)));
    bench.ask(release("a", 7)).unwrap();
    assert_eq!(entry(&bench).writer, None);
}

#[test]
fn after_a_release_that_is_not_clean_the_next_writer_waits_for_the_settle() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = written(3);
    bench.ask(release("a", 7)).unwrap();
    assert!(entry(&bench).unsettled);
    assert_eq!(bench.core.fleet().unwrap().settles[0].waits_for, [0, 1, 2, 3]);
    let ticket = bench.send(write("a", 8, 2_000));
    bench.run_until_quiet();
    bench.ask(read("a", 9)).unwrap();
    assert!(entry(&bench).unsettled && !bench.replies.contains_key(&ticket));
    bench.run_for(200);
    let volume = opened(&bench.replies[&ticket]).clone();
    assert_eq!((volume.lease_epoch, volume.unsettled), (2, false));
    assert_eq!(settles(&bench), 16);
    assert!(bench.core.fleet().unwrap().settles.is_empty());
}

#[test]
fn a_lease_that_runs_out_is_settled_without_another_writer() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = written(1);
    bench.run_for(2_400);
    assert!(entry(&bench).writer.is_some());
    bench.run_for(1_000);
    let entry = entry(&bench);
    assert_eq!((entry.writer, entry.unsettled, settles(&bench)), (None, false, 8));
    assert_eq!(bench.core.next_event(), None);
}

/// Whether a client is told that replicas of volume a may differ.
fn shown(bench: &mut Bench) -> bool {
    let get = bench.ask(Request::Get { name: name("a") }).unwrap();
    let Reply::Volume(one) = get else { panic!("{get:?}") };
    let Reply::Volumes { volumes: all, .. } = bench.ask(Request::List(Page::ALL)).unwrap() else {
        panic!("no list")
    };
    assert_eq!(all[0].unsettled, one.unsettled);
    one.unsettled
}

#[test]
fn replicas_that_may_differ_are_shown_from_the_failed_write_until_the_volume_is_settled() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = written(3);
    assert!(!shown(&mut bench));
    let mut says = renew("a", 7, 1, 2_000);
    if let Request::Renew { in_doubt, .. } = &mut says {
        *in_doubt = true;
    }
    bench.ask(says).unwrap();
    assert!(shown(&mut bench) && entry(&bench).writer.is_some());
    bench.ask(renew("a", 7, 1, 2_000)).unwrap();
    assert!(shown(&mut bench), "a later renewal takes nothing back");
    // Nor does a release that contradicts it.
    bench.ask(clean(7)).unwrap();
    assert!(shown(&mut bench) && entry(&bench).unsettled);
    bench.run_for(300);
    assert!(!shown(&mut bench) && !entry(&bench).unsettled);
}

#[test]
fn a_second_open_by_the_holder_is_settled_first() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = written(2);
    let ticket = bench.send(write("a", 7, 2_000));
    bench.run_until_quiet();
    assert!(!bench.replies.contains_key(&ticket));
    bench.run_for(200);
    assert_eq!(opened(&bench.replies[&ticket]).lease_epoch, 2);
}

#[test]
fn a_new_epoch_starts_a_settle_over_and_a_lost_ssd_is_not_waited_for() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = written(5);
    bench.ask(release("a", 7)).unwrap();
    bench.run_for(20);
    let epoch = newest(&bench).epoch;
    bench.lose(3);
    let ticket = bench.send(write("a", 8, 2_000));
    bench.run_for(DROP_MS - 2);
    assert!(newest(&bench).epoch == epoch && !bench.replies.contains_key(&ticket), "SSD 3 may serve");
    bench.run_for(1_000);
    assert_eq!(newest(&bench).epoch, epoch + 1);
    let fleet = bench.core.fleet().unwrap();
    assert!(bench.replies.contains_key(&ticket), "{:?} {:?}", fleet.settles, bench.array.ssd(0).table);
    assert!(bench.replies[&ticket].is_ok(), "{:?}", bench.replies[&ticket]);
}

#[test]
fn a_daemon_that_starts_goes_on_with_a_settle() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = written(100);
    bench.ask(release("a", 7)).unwrap();
    bench.run_for(100);
    takes(&bench.array, 2);
    let mut next = Bench::cold(&bench.array, 10_000);
    next.run_for(3_000);
    assert!(next.core.is_serving(), "{:?}", next.core.waits_for());
    next.run_for(20_000);
    assert!(!entry(&next).unsettled);
    opened(&next.ask(write("a", 8, 2_000)));
}

#[test]
fn an_open_that_waits_too_long_is_told_for_which_ssds_and_a_delete_ends_the_wait() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = written(1_000_000);
    bench.ask(release("a", 7)).unwrap();
    let late = bench.send(write("a", 8, 2_000));
    bench.run_for(31_000);
    refused(&bench.replies[&late], GrpcCode::Unavailable, &["last writer", "SSD 0", "try again"]);
    let waits = bench.send(write("a", 8, 2_000));
    bench.run_until_quiet();
    bench.ask(delete("a", 1)).unwrap();
    refused(&bench.replies[&waits], GrpcCode::NotFound, &["no volume"]);
    bench.ask(create("a")).unwrap();
    opened(&bench.ask(write("a", 8, 2_000)));
}

#[test]
fn opens_that_wait_for_a_settle_are_bounded_and_an_open_that_was_answered_waits_no_more() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = written(1_000_000);
    bench.ask(release("a", 7)).unwrap();
    for _ in 0..2 {
        let waits: Vec<_> = (0..256).map(|client| bench.send(write("a", 8 + client, 2_000))).collect();
        let refused_at_once = bench.ask_now(write("a", 800, 2_000));
        refused(&refused_at_once, GrpcCode::Unavailable, &["256 requests wait", "settled", "try again"]);
        bench.run_for(31_000);
        for ticket in waits {
            refused(&bench.replies[&ticket], GrpcCode::Unavailable, &["last writer"]);
        }
    }
}

#[test]
fn an_open_that_waits_for_an_ssd_that_is_down_names_it_and_no_other() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = written(0);
    // It has the only copies of a volume, so it stays in the map.
    bench.ask(of_replicas("one", 1)).unwrap();
    bench.lose(2);
    bench.run_for(DROP_MS);
    assert_eq!(states(&bench)[2], State3::Absent);
    bench.send(release("a", 7));
    bench.run_until_quiet();
    let late = bench.send(write("a", 8, 2_000));
    bench.run_for(31_000);
    let words = &["last writer", "SSD 2 is down (pulled)", "try again when all are back"];
    refused(&bench.replies[&late], GrpcCode::Unavailable, words);
    assert!(!format!("{:?}", bench.replies[&late]).contains("SSD 3"));
}

/// The place may have kept a block that the others have trimmed (decision 57, the forgotten TRIM).
#[test]
fn a_clean_release_is_settled_where_a_place_filled_while_the_lease_ran() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    takes(&bench.array, 3);
    opened(&bench.ask(write("a", 7, 60_000)));
    bench.lose(3);
    bench.run_for(DROP_MS);
    bench.find(3);
    bench.run_for(10_000);
    assert!(newest(&bench).rows.iter().flat_map(|row| row.places).flatten().all(|place| !place.filling));
    bench.ask(clean(7)).unwrap();
    assert!(entry(&bench).unsettled, "it has filled, and serves by now");
    bench.run_for(1_000);
    assert!(!entry(&bench).unsettled && settles(&bench) > 0);
    let before = settles(&bench);
    let lease = opened(&bench.ask(write("a", 7, 60_000))).clone();
    let log = bench.array.ssd(0).vote.log.clone();
    log.lock().unwrap().clean.insert((lease.vid, lease.generation, lease.lease_epoch));
    bench.ask(clean(7)).unwrap();
    bench.run_for(1_000);
    assert_eq!(settles(&bench), before, "nothing has filled since the grant");
}
