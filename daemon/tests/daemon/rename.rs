// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other names and other labels: each SSD has them when the call returns, and no name is one of two volumes.

use crate::array::{Fault, SimArray};
use crate::bench::{
    Bench, client, create, create_with, created, delete, name, opened, read, refused, release, write,
};
use crate::deadline::{Deadline, LIMIT};
use crate::holders::revoke_lease;
use crate::publish::{partial, publish};
use crate::trust::Party;
use gnstor_daemon::core::request::{Request, RequestId, labels};
use gnstor_daemon::core::rights::Right;
use gnstor_daemon::core::{Command, Label, Rename};
use gnstor_proto::labels::{PARTIAL, SHA256};
use gnstor_proto::status::GrpcCode;

const SSDS: usize = 3;

pub(crate) fn rename(from: &str, to: &str, request_id: Option<RequestId>) -> Request {
    Request::Rename(Rename { name: name(from), new_name: name(to), request_id })
}

fn label(text: &str, set: &[(&str, &str)], remove: &[&str]) -> Request {
    let set = labels(set.iter().copied()).unwrap();
    let remove = remove.iter().map(|key| (*key).to_owned()).collect();
    Request::Label(Label::new(name(text), set, remove).unwrap())
}

fn names(bench: &Bench) -> Vec<String> {
    bench.array.agreed().into_iter().map(|entry| entry.name).collect()
}

#[test]
fn a_renamed_volume_is_the_same_volume_by_its_new_name_on_every_ssd() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(SSDS);
    let mut bench = Bench::start(&array, 0);
    let made = created(bench.ask(create("v")));
    let ticket = bench.send(rename("v", "w", None));
    assert!(bench.execute(0) && !bench.replies.contains_key(&ticket));
    let waits = [bench.send(create("v")), bench.send(create("w"))];
    bench.run_until_quiet();
    let renamed = created(bench.replies[&ticket].clone());
    assert_eq!((renamed.vid, renamed.generation, &*renamed.name), (made.vid, made.generation, "w"));
    assert_eq!(renamed.labels, made.labels);
    created(bench.replies[&waits[0]].clone());
    refused(&bench.replies[&waits[1]], GrpcCode::AlreadyExists, &["\"w\""]);
    assert_eq!(names(&bench), ["w", "v"]);
    refused(&bench.ask(rename("x", "y", None)), GrpcCode::NotFound, &["no volume \"x\""]);
    assert_eq!(opened(&bench.ask(read("w", 5))).vid, made.vid);
    assert_eq!(Bench::start(&array, 0).list().len(), 2);
}

#[test]
fn a_repeated_rename_returns_what_the_first_one_did() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(SSDS);
    let mut bench = Bench::start(&array, 0);
    created(bench.ask(create_with("v", 16, Some([1; 16]))));
    let request = rename("v", "w", Some([2; 16]));
    let renamed = created(bench.ask(request.clone()));
    assert_eq!(created(bench.ask(request.clone())), renamed);
    let other = created(bench.ask(create("v")));
    assert_eq!(created(bench.ask(request.clone())), renamed, "and not the later volume of that name");
    assert_eq!(
        created(Bench::start(&array, 0).ask(request.clone())),
        renamed,
        "a later daemon knows it, too"
    );
    assert_eq!(array.agreed().last(), Some(&other));
    let reused = bench.ask(rename("v", "x", Some([2; 16])));
    refused(&reused, GrpcCode::InvalidArgument, &["request id", "use a new one"]);
    // The volume was made by request 1, whatever it is called.
    let create = bench.ask(create_with("v", 16, Some([1; 16])));
    refused(&create, GrpcCode::InvalidArgument, &["request id", "\"w\""]);
}

#[test]
fn a_volume_that_a_client_has_open_keeps_its_name() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = Bench::start(&SimArray::new(SSDS), 0);
    created(bench.ask(create("v")));
    opened(&bench.ask(read("v", 5)));
    opened(&bench.ask(write("v", 6, 60_000)));
    let words = ["\"v\"", "\"w\"", "client 6 holds the write lease", "client 5 reads", "gnstor lease revoke"];
    refused(&bench.ask(rename("v", "w", None)), GrpcCode::FailedPrecondition, &words);
    bench.ask(release("v", 6)).unwrap();
    refused(&bench.ask(rename("v", "w", None)), GrpcCode::FailedPrecondition, &["client 5 reads"]);
    bench.ask(revoke_lease("v", 5)).unwrap();
    created(bench.ask(rename("v", "w", None)));
    // A lease that has run out holds nothing up.
    opened(&bench.ask(write("w", 6, 1_000)));
    bench.run_for(5_000);
    created(bench.ask(rename("w", "v", None)));
    assert_eq!(names(&bench), ["v"]);
}

#[test]
fn a_name_that_is_taken_or_that_a_copy_gets_is_refused() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = Bench::start(&SimArray::new(SSDS), 0);
    created(bench.ask(create("a")));
    created(bench.ask(create("b")));
    refused(&bench.ask(rename("a", "b", None)), GrpcCode::AlreadyExists, &["\"b\"", "number 2"]);
    refused(&bench.ask(rename("a", "a", None)), GrpcCode::AlreadyExists, &["number 1"]);
    let copy = partial(&mut bench, "t");
    refused(
        &bench.ask(rename("t", "x", None)),
        GrpcCode::FailedPrecondition,
        &["copy into it is in progress"],
    );
    refused(
        &bench.ask(rename("a", "v", None)),
        GrpcCode::FailedPrecondition,
        &["\"t\" is a copy in progress"],
    );
    created(bench.ask(publish(&copy, "v", false)));
    refused(&bench.ask(rename("a", "v", None)), GrpcCode::AlreadyExists, &["number 3"]);
    // A volume that is still being deleted has its name.
    bench.array.ssd(2).faults.push_back(Fault::LostBefore);
    refused(&bench.ask(delete("b", 1)), GrpcCode::Unavailable, &["SSD 2"]);
    refused(&bench.ask(rename("a", "b", None)), GrpcCode::Unavailable, &["still being deleted"]);
    bench.run_for(1_000);
    created(bench.ask(rename("a", "b", None)));
    created(bench.ask(rename("v", "a", None)));
    assert_eq!(names(&bench), ["b", "a"]);
}

/// A daemon that would find two volumes of one name could not serve the array.
#[test]
fn the_old_name_is_free_when_no_ssd_has_it_any_more() {
    let _deadline = Deadline::after(LIMIT);
    for lost in 0..SSDS {
        let array = SimArray::new(SSDS);
        let mut bench = Bench::start(&array, 0);
        let made = created(bench.ask(create("v")));
        let copy = partial(&mut bench, "t");
        array.ssd(lost).faults.extend([Fault::LostBefore, Fault::LostBefore]);
        let outcome = bench.ask(rename("v", "w", None));
        refused(&outcome, GrpcCode::Unavailable, &[&format!("SSD {lost}"), "repeated until"]);
        assert_eq!(array.ssd(lost).active()[0].name, "v");
        let words = [&*format!("SSD {lost}"), "still has volume \"w\" by this name", "try again later"];
        refused(&bench.ask(create("v")), GrpcCode::Unavailable, &words);
        refused(&bench.ask(publish(&copy, "v", true)), GrpcCode::Unavailable, &words);
        let again = bench.ask(rename("w", "x", None));
        refused(&again, GrpcCode::Unavailable, &["still has an earlier name"]);
        bench.run_for(1_000);
        created(bench.ask(publish(&copy, "v", true)));
        assert_eq!(created(bench.ask(rename("w", "x", None))).vid, made.vid);
        assert_eq!(names(&bench), ["x", "v"]);
    }
}

#[test]
fn a_daemon_that_starts_in_the_middle_ends_the_rename() {
    let _deadline = Deadline::after(LIMIT);
    for took in 1..SSDS {
        let array = SimArray::new(SSDS);
        let mut bench = Bench::start(&array, 0);
        let made = created(bench.ask(create("v")));
        bench.send(rename("v", "w", Some([3; 16])));
        (0..took).for_each(|ssd| assert!(bench.execute(ssd)));
        let mut next = Bench::start(&array, 0);
        assert_eq!(names(&next), ["w"], "{took} SSDs had taken it");
        assert_eq!(created(next.ask(rename("v", "w", Some([3; 16])))).vid, made.vid);
        // It fails on one of them again: that SSD has the old name.
        array.ssd(2).faults.extend([Fault::LostBefore, Fault::LostBefore]);
        refused(&next.ask(rename("w", "v", None)), GrpcCode::Unavailable, &["SSD 2"]);
        let mut last = Bench::cold(&array, 0);
        let is_change = |command: &Command| matches!(command, Command::Chmod(_));
        while (0..SSDS).filter(|&ssd| last.execute_but(ssd, is_change)).count() > 0 {}
        array.ssd(2).faults.push_back(Fault::LostBefore);
        last.run_until_quiet();
        assert!(last.core.is_serving(), "{:?}", last.core.waits_for());
        refused(&last.ask(create("w")), GrpcCode::Unavailable, &["SSD 2", "by this name"]);
        last.run_for(2_000);
        created(last.ask(create("w")));
        assert_eq!(names(&last), ["v", "w"]);
    }
}

#[test]
fn names_and_labels_are_for_the_admins_of_a_volume() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(SSDS);
    let mut bench = Bench::start(&array, 0);
    let (anna, ben) = (Party::new(&mut bench, "anna", 1), Party::new(&mut bench, "ben", 2));
    anna.make(&mut bench, "v");
    let words = ["\"ben\" has no admin right to volume \"v\""];
    for right in [None, Some(Right::Read), Some(Right::Write)] {
        if let Some(right) = right {
            anna.share(&mut bench, "v", "ben", right);
        }
        let before = array.agreed();
        for request in [rename("v", "w", None), label("v", &[("a", "c")], &[])] {
            refused(&ben.ask(&mut bench, request), GrpcCode::PermissionDenied, &words);
        }
        assert_eq!(array.agreed(), before, "{right:?}");
    }
    let renamed = created(anna.ask(&mut bench, rename("v", "w", Some([5; 16]))));
    assert!(renamed.labels.contains("gnstor.owner=anna\n"), "{}", renamed.labels);
    // The id of another's request tells nothing of the volume.
    let stolen = ben.ask(&mut bench, rename("v", "w", Some([5; 16])));
    refused(&stolen, GrpcCode::InvalidArgument, &["request id"]);
    anna.share(&mut bench, "w", "ben", Right::Admin);
    created(ben.ask(&mut bench, label("w", &[("a", "c")], &[])));
    created(ben.ask(&mut bench, rename("w", "v", None)));
}

#[test]
fn labels_are_set_and_removed_and_those_of_the_array_stay() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(SSDS);
    let mut bench = Bench::start(&array, 0);
    let copy = partial(&mut bench, "t");
    let before = created(bench.ask(publish(&copy, "v", false)));
    assert_eq!(before.labels, format!("a=b\n{SHA256}=12\n"));
    opened(&bench.ask(read("v", 5)));
    let changed = created(bench.ask(label("v", &[("b", "x=y"), ("z", "")], &["a", "nowhere"])));
    assert_eq!(changed.labels, format!("b=x=y\n{SHA256}=12\nz=\n"));
    assert_eq!(changed.readers, [client(5)], "what is open stays open");
    assert_eq!(array.agreed(), [changed]);
    let version = array.agreed()[0].version;
    created(bench.ask(label("v", &[("z", "")], &["a"])));
    assert_eq!(array.agreed()[0].version, version, "nothing has changed, so no SSD is asked");
    created(bench.ask(label("v", &[("z", "1")], &["z"])));
    assert!(array.agreed()[0].labels.ends_with("z=1\n"), "what is set wins");
    for key in [PARTIAL, SHA256, "gnstor.x"] {
        let set = Label::new(name("v"), format!("{key}=1\n"), Vec::new());
        assert!(set.unwrap_err().message.contains("the array's own"), "{key}");
        assert!(Label::new(name("v"), String::new(), vec![key.into()]).is_err(), "{key}");
    }
    let long = "x".repeat(1_000);
    let full = bench.ask(label("v", &[("long", &long)], &[]));
    refused(&full, GrpcCode::InvalidArgument, &["1024", "remove labels"]);
    refused(&bench.ask(label("w", &[], &[])), GrpcCode::NotFound, &["\"w\""]);
}

#[test]
fn labels_that_an_ssd_does_not_take_are_as_they_were() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(SSDS);
    let mut bench = Bench::start(&array, 0);
    created(bench.ask(create("v")));
    array.ssd(1).faults.push_back(Fault::LostAfter);
    refused(&bench.ask(label("v", &[("a", "c")], &[])), GrpcCode::Unavailable, &["SSD 1", "was undone"]);
    bench.run_for(1_000);
    assert_eq!(array.agreed()[0].labels, "a=b\n");
    bench.lose(2);
    let refusal = bench.ask(label("v", &[("a", "c")], &[]));
    refused(&refusal, GrpcCode::Unavailable, &["SSD 2 is down", "labelled"]);
}
