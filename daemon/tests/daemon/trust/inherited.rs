// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Client ids that a daemon before this one gave: what a Revoke and a Renew do to them.

use super::rights::{Party, get, held, revoke};
use crate::array::SimArray;
use crate::bench::{Bench, created, opened, read, refused, release, renew, write};
use crate::deadline::{Deadline, LIMIT};
use gnstor_daemon::core::Reply;
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::rights::Right;
use gnstor_proto::status::GrpcCode;

/// A daemon that starts does not know whose ids the entries name.
#[test]
fn a_revoke_does_not_end_what_an_id_of_an_earlier_daemon_has_open() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let mut first = Bench::start(&array, 0);
    let (anna, ben) = (Party::new(&mut first, "anna", 1), Party::new(&mut first, "ben", 2));
    anna.make(&mut first, "v");
    anna.share(&mut first, "v", "ben", Right::Read);
    opened(&ben.ask(&mut first, read("v", ben.id.get())));
    let mut second = Bench::start(&array, 0);
    created(anna.ask(&mut second, revoke("v", "ben")));
    refused(&ben.ask(&mut second, get("v")), GrpcCode::PermissionDenied, &["no read right"]);
    assert_eq!(held(&second, 0).1, [ben.id], "it is open");
    second.run_for(59_000);
    assert_eq!(held(&second, 0).1, [ben.id], "it is open until 60 s after the start");
    second.run_for(2_000);
    assert!(array.agreed()[0].readers.is_empty());

    // After its principal has adopted the id, a revoke ends what it has open.
    anna.share(&mut second, "v", "ben", Right::Read);
    let again = Party::of(&mut second, (*ben.caller).clone());
    opened(&again.ask(&mut second, read("v", again.id.get())));
    let mut third = Bench::start(&array, 0);
    assert_eq!(again.ask(&mut third, Request::Keep { client: again.id }), Ok(Reply::Done));
    created(anna.ask(&mut third, revoke("v", "ben")));
    assert!(array.agreed()[0].readers.is_empty());
}

/// The client that has lost the right is heard of, but not for the volume that it lost.
#[test]
fn a_right_that_is_revoked_after_a_restart_ends_though_the_client_goes_on_with_another_volume() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let mut first = Bench::start(&array, 0);
    let (anna, ben) = (Party::new(&mut first, "anna", 1), Party::new(&mut first, "ben", 2));
    anna.make(&mut first, "v");
    anna.share(&mut first, "v", "ben", Right::Read);
    ben.make(&mut first, "w");
    opened(&ben.ask(&mut first, read("v", ben.id.get())));
    let epoch = opened(&ben.ask(&mut first, write("w", ben.id.get(), 60_000))).lease_epoch;
    let mut second = Bench::start(&array, 0);
    created(anna.ask(&mut second, revoke("v", "ben")));
    for _ in 0..3 {
        ben.ask(&mut second, renew("w", ben.id.get(), epoch, 60_000)).expect("it is ben's");
        assert_eq!(array.agreed()[0].readers, [ben.id], "it is open until 60 s after the start");
        second.run_for(20_000);
    }
    second.run_for(2_000);
    assert!(array.agreed()[0].readers.is_empty());
}

/// A caller may name the id of another principal, with a right to a volume of its own.
#[test]
fn a_renew_of_another_volume_keeps_nothing_that_an_inherited_id_has_open() {
    let _deadline = Deadline::after(LIMIT);
    for named_by in ["no caller", "carl, with w", "carl, with v", "ben"] {
        let array = SimArray::new(2);
        let mut first = Bench::start(&array, 0);
        let (anna, ben) = (Party::new(&mut first, "anna", 1), Party::new(&mut first, "ben", 2));
        let carl = Party::new(&mut first, "carl", 3);
        anna.make(&mut first, "v");
        anna.share(&mut first, "v", "ben", Right::Read);
        opened(&ben.ask(&mut first, read("v", ben.id.get())));
        carl.make(&mut first, "w");
        let mut second = Bench::start(&array, 0);
        match named_by {
            "carl, with w" => {
                let outcome = carl.ask(&mut second, renew("w", ben.id.get(), 1, 60_000));
                refused(&outcome, GrpcCode::FailedPrecondition, &["cannot renew"]);
            }
            "carl, with v" => {
                let outcome = carl.ask(&mut second, renew("v", ben.id.get(), 1, 60_000));
                refused(&outcome, GrpcCode::PermissionDenied, &["no write right"]);
                let keep = Request::Keep { client: ben.id };
                refused(&carl.ask(&mut second, keep), GrpcCode::PermissionDenied, &["not one of \"carl\""]);
            }
            "ben" => assert_eq!(ben.ask(&mut second, Request::Keep { client: ben.id }), Ok(Reply::Done)),
            _ => {}
        }
        second.run_for(300_000);
        let readers = &array.agreed()[0].readers;
        assert_eq!(!readers.is_empty(), named_by == "ben", "{named_by}: {readers:?}");
    }
}

/// A caller that adopts the id of a writer may release the volume.
#[test]
fn the_id_of_a_writer_is_adopted_with_the_right_to_write_only() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let mut first = Bench::start(&array, 0);
    let (anna, ben) = (Party::new(&mut first, "anna", 1), Party::new(&mut first, "ben", 2));
    anna.make(&mut first, "v");
    anna.share(&mut first, "v", "ben", Right::Read);
    let epoch = opened(&anna.ask(&mut first, write("v", anna.id.get(), 60_000))).lease_epoch;
    let mut second = Bench::start(&array, 0);
    let keep = Request::Keep { client: anna.id };
    refused(&ben.ask(&mut second, keep), GrpcCode::PermissionDenied, &["not one of \"ben\""]);
    let free = ben.ask(&mut second, release("v", anna.id.get()));
    refused(&free, GrpcCode::PermissionDenied, &["no write right"]);
    anna.ask(&mut second, renew("v", anna.id.get(), epoch, 60_000)).expect("it is anna's");
    assert_eq!(array.agreed()[0].writer, Some(anna.id));
}
