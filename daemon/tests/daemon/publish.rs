// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Publish: at every moment a name leads to one whole volume, the old one or the new one.

use crate::array::{Fault, SimArray};
use crate::bench::{Bench, client, create, created, delete, name, opened, read, refused, release, write};
use crate::deadline::{Deadline, LIMIT};
use gnstor_daemon::core::Reply;
use gnstor_daemon::core::request::{Create, Publish, Request};
use gnstor_proto::labels::{PARTIAL, REPLACES, SHA256};
use gnstor_proto::status::{GrpcCode, Refusal};
use gnstor_proto::vendor::VolumeEntry;

const SSDS: usize = 3;

/// A volume that is being copied in.
pub(crate) fn partial(bench: &mut Bench, text: &str) -> VolumeEntry {
    let Request::Create(create) = create(text) else { unreachable!("it creates") };
    let labels = format!("a=b\n{PARTIAL}=v\n");
    created(bench.ask(Request::Create(Create { labels, ..create })))
}

pub(crate) fn publish(entry: &VolumeEntry, text: &str, replace: bool) -> Request {
    Request::Publish(Publish {
        vid: entry.vid,
        generation: entry.generation,
        client: entry.owner,
        name: name(text),
        labels: format!("{SHA256}=12\n"),
        replace,
    })
}

fn get(bench: &mut Bench, text: &str) -> Option<VolumeEntry> {
    match bench.ask(Request::Get { name: name(text) }) {
        Ok(Reply::Volume(entry)) => Some(entry),
        Err(failure) if failure.code == GrpcCode::NotFound => None,
        other => panic!("Get: {other:?}"),
    }
}

#[test]
fn a_volume_gets_its_name_and_its_labels_and_loses_its_writer_in_one_change() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(SSDS);
    let mut bench = Bench::start(&array, 0);
    let made = partial(&mut bench, "t");
    opened(&bench.ask(write("t", 1, 10_000)));
    let ticket = bench.send(publish(&made, "v", true));
    assert!(bench.execute(0));
    assert!(get(&mut bench, "v").is_none() || bench.replies.contains_key(&ticket));
    bench.run_until_quiet();
    let published = get(&mut bench, "v").expect("it has its name");
    assert_eq!(
        (published.vid, published.writer, &*published.labels),
        (made.vid, None, "a=b\ngnstor.sha256=12\n")
    );
    assert_eq!(array.agreed(), std::slice::from_ref(&published));
    assert_eq!(get(&mut bench, "t"), None);
    // A repeated request succeeds and changes nothing; the writer's release finds nothing to do.
    assert_eq!(created(bench.ask(publish(&made, "v", true))), published);
    assert_eq!(bench.ask(release("t", 1)), Ok(Reply::Done));
    refused(&bench.ask(publish(&made, "w", true)), GrpcCode::FailedPrecondition, &["published already"]);
    assert_eq!(Bench::start(&array, 0).list(), [published]);
}

#[test]
fn a_publish_is_checked() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(SSDS);
    let mut bench = Bench::start(&array, 0);
    let made = partial(&mut bench, "t");
    bench.ask(create("v")).unwrap();
    refused(&bench.ask(publish(&made, "v", false)), GrpcCode::AlreadyExists, &["\"t\"", "\"v\""]);
    let stranger = VolumeEntry { owner: client(9), ..made.clone() };
    refused(&bench.ask(publish(&stranger, "v", true)), GrpcCode::PermissionDenied, &["not the owner"]);
    let earlier = VolumeEntry { generation: made.generation - 1, ..made.clone() };
    refused(&bench.ask(publish(&earlier, "v", true)), GrpcCode::NotFound, &["no volume with number"]);
    opened(&bench.ask(write("v", 7, 10_000)));
    refused(&bench.ask(publish(&made, "v", true)), GrpcCode::FailedPrecondition, &["client 7 holds"]);
    bench.ask(release("v", 7)).unwrap();
    opened(&bench.ask(write("t", 7, 10_000)));
    refused(&bench.ask(publish(&made, "v", true)), GrpcCode::FailedPrecondition, &["client 7 holds"]);
    bench.ask(release("t", 7)).unwrap();
    bench.lose(2);
    refused(&bench.ask(publish(&made, "v", true)), GrpcCode::Unavailable, &["SSD 2 is down"]);
    bench.find(2);
    bench.run_until_quiet();
    assert_eq!(created(bench.ask(publish(&made, "v", true))).vid, made.vid);
}

#[test]
fn the_sum_goes_with_the_first_grant_to_a_writer() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(SSDS);
    let mut bench = Bench::start(&array, 0);
    let made = partial(&mut bench, "t");
    bench.ask(publish(&made, "v", true)).unwrap();
    assert!(opened(&bench.ask(read("v", 5))).labels.contains(SHA256));
    assert_eq!(opened(&bench.ask(write("v", 5, 10_000))).labels, "a=b\n");
}

/// While a volume's name is taken, the volume itself is published under another name.
#[test]
fn a_volume_whose_name_is_being_taken_is_not_published() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(SSDS);
    let mut bench = Bench::start(&array, 0);
    let (new, old) = (partial(&mut bench, "t"), partial(&mut bench, "v"));
    let tickets = [publish(&new, "v", true), publish(&old, "w", true)].map(|request| bench.send(request));
    bench.run_until_quiet();
    assert_eq!(created(bench.replies[&tickets[0]].clone()).vid, new.vid);
    refused(&bench.replies[&tickets[1]], GrpcCode::NotFound, &["no volume with number"]);
    refused(&bench.ask(create("v")), GrpcCode::AlreadyExists, &["\"v\""]);
    bench.run_for(60_000);
    assert_eq!(array.agreed().len(), 1);
}

/// The round of the publish, and the round that repeats it, miss an SSD. The SSD is back for an open.
#[test]
fn a_publish_that_an_open_completes_deletes_the_replaced_volume() {
    let _deadline = Deadline::after(LIMIT);
    for lost in 0..SSDS {
        let array = SimArray::new(SSDS);
        let mut bench = Bench::start(&array, 0);
        bench.ask(create("v")).unwrap();
        let made = partial(&mut bench, "t");
        array.ssd(lost).dead = true;
        let outcome = bench.ask(publish(&made, "v", true));
        refused(&outcome, GrpcCode::Unavailable, &[&format!("SSD {lost}"), "repeated until"]);
        array.ssd(lost).dead = false;
        assert_eq!(opened(&bench.ask(read("v", 5))).vid, made.vid);
        bench.run_for(60_000);
        let names: Vec<_> = array.agreed().into_iter().map(|entry| (entry.vid, entry.name)).collect();
        assert_eq!(names, [(made.vid, "v".into())], "one volume has the name");
        assert_eq!(bench.core.next_event(), None);
        assert_eq!(Bench::start(&array, 0).list().len(), 1);
    }
}

#[test]
fn a_replaced_volume_is_deleted_and_what_waited_for_the_name_finds_the_new_one() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(SSDS);
    let mut bench = Bench::start(&array, 0);
    let old = created(bench.ask(create("v")));
    let (first, second) = (partial(&mut bench, "t1"), partial(&mut bench, "t2"));
    let replies: Vec<_> = [publish(&first, "v", true), publish(&second, "v", true), read("v", 5)]
        .into_iter()
        .map(|request| bench.send(request))
        .collect();
    assert!(bench.execute(1));
    assert_eq!(get_now(&mut bench).vid, old.vid, "the old one until the new one is on every SSD");
    bench.run_until_quiet();
    for ticket in &replies {
        assert!(bench.replies[ticket].is_ok(), "{:?}", bench.replies[ticket]);
    }
    let left = array.agreed();
    assert_eq!((left.len(), left[0].vid, &*left[0].name), (1, second.vid, "v"));
    assert_eq!(bench.list(), left);
    bench.ask(delete("v", 1)).unwrap();
    assert!(bench.list().is_empty() && array.agreed().is_empty());
}

/// The answer to Get "v" while changes are under way: no SSD is needed for it.
fn get_now(bench: &mut Bench) -> VolumeEntry {
    let ticket = bench.send(Request::Get { name: name("v") });
    match &bench.replies[&ticket] {
        Ok(Reply::Volume(entry)) => entry.clone(),
        other => panic!("Get: {other:?}"),
    }
}

/// Checks the state after a crash: "v" exists once and is whole, and it is the new one as soon as any SSD has
/// that.
fn check_after_a_crash(array: &SimArray, story: &str) {
    let new = (0..SSDS).any(|ssd| array.ssd(ssd).active().iter().any(|e| e.labels.contains(SHA256)));
    let mut second = Bench::start(array, 0);
    second.run_for(5_000);
    let left = array.agreed();
    assert_eq!(second.list(), left, "{story}");
    let found: Vec<_> = left.iter().filter(|e| e.name == "v").collect();
    assert_eq!(found.len(), 1, "{story}: {left:?}");
    assert_eq!(found[0].labels.contains(SHA256), new, "{story}: {left:?}");
    assert_eq!(left.len(), if new { 1 } else { 2 }, "{story}: {left:?}");
    // A third daemon can replace, delete and find what is left.
    let next = partial(&mut second, "next");
    second.ask(publish(&next, "v", true)).unwrap_or_else(|e| panic!("{story}: {e}"));
    second.run_for(5_000);
    let mut third = Bench::start(array, 0);
    assert_eq!(get(&mut third, "v").map(|e| e.vid), Some(next.vid), "{story}");
    third.ask(delete("v", 1)).unwrap();
    third.run_for(5_000);
    let mut fourth = Bench::start(array, 0);
    assert_eq!(get(&mut fourth, "v"), None, "{story}: a replaced volume came back");
}

#[test]
fn after_a_crash_between_any_two_messages_the_name_leads_to_one_whole_volume() {
    let _deadline = Deadline::after(LIMIT);
    // Each SSD in turn, or one SSD far ahead of the others.
    let orders: [fn(usize) -> usize; 4] =
        [|i| i % SSDS, |i| SSDS - 1 - i % SSDS, |i| i / 3 % SSDS, |i| (i / 2 + i) % SSDS];
    for (which, order) in orders.into_iter().enumerate() {
        for commands in 0..16 {
            let array = SimArray::new(SSDS);
            let mut first = Bench::start(&array, 0);
            first.ask(create("v")).unwrap();
            let new = partial(&mut first, "t");
            opened(&first.ask(write("t", 1, 10_000)));
            first.send(publish(&new, "v", true));
            for i in 0..commands {
                first.execute(order(i));
            }
            drop(first);
            check_after_a_crash(&array, &format!("order {which}, {commands} commands"));
        }
    }
}

#[test]
fn after_faults_and_a_crash_the_name_leads_to_one_whole_volume() {
    let _deadline = Deadline::after(LIMIT);
    let none = || Fault::Delay(std::time::Duration::ZERO);
    let faults = [Fault::LostBefore, Fault::LostAfter, Fault::Refuse(Refusal::NotReady)];
    for (which, fault) in faults.iter().enumerate() {
        for ssd in 0..SSDS {
            for at in 0..4 {
                for commands in (0..30).step_by(2) {
                    let array = SimArray::new(SSDS);
                    let mut first = Bench::start(&array, 0);
                    first.ask(create("v")).unwrap();
                    let new = partial(&mut first, "t");
                    array.ssd(ssd).faults.extend((0..at).map(|_| none()));
                    array.ssd(ssd).faults.extend([fault.clone(), fault.clone()]);
                    first.send(publish(&new, "v", true));
                    for i in 0..commands {
                        first.execute(i % SSDS);
                        if i % 6 == 5 {
                            first.pass(600);
                        }
                    }
                    for ssd in 0..SSDS {
                        array.ssd(ssd).faults.clear();
                    }
                    drop(first);
                    check_after_a_crash(
                        &array,
                        &format!("fault {which} of SSD {ssd} at {at}, {commands} commands"),
                    );
                }
            }
        }
    }
}

#[test]
fn a_new_volume_is_not_deleted_before_the_old_one_is_marked_everywhere() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(SSDS);
    let mut bench = Bench::start(&array, 0);
    bench.ask(create("v")).unwrap();
    let new = partial(&mut bench, "t");
    // The mark is lost on every SSD.
    for ssd in 0..SSDS {
        array.ssd(ssd).faults.extend([Fault::Delay(std::time::Duration::ZERO), Fault::LostBefore]);
    }
    bench.ask(publish(&new, "v", true)).unwrap();
    refused(&bench.ask(delete("v", 1)), GrpcCode::Unavailable, &["still being deleted", "SSD 0"]);
    let mut other = Bench::start(&array, 0);
    assert_eq!(get(&mut other, "v").map(|e| e.vid), Some(new.vid));
    other.ask(delete("v", 1)).unwrap();
    other.run_for(5_000);
    assert_eq!(get(&mut Bench::start(&array, 0), "v"), None);
}

#[test]
fn the_label_of_a_replacement_is_the_daemons() {
    let _deadline = Deadline::after(LIMIT);
    let labels = gnstor_daemon::core::request::labels([(REPLACES, "1.1")]);
    assert!(labels.is_err_and(|failure| failure.message.contains("only the daemon")));
}
