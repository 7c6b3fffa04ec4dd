// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls, one rule at a time, on an array without faults.

use crate::array::{SSD_BYTES, SimArray};
use crate::bench::{
    Bench, client, config, create, create_with, created, delete, name, opened, read, refused, release, renew,
    write,
};
use crate::capacity::largest;
use crate::deadline::{Deadline, LIMIT};
use gnstor_daemon::core::Page;
use gnstor_daemon::core::request::{Create, Request};
use gnstor_daemon::core::rights::Caller;
use gnstor_daemon::core::{Reply, Ticket};
use gnstor_proto::placement::FleetMap;
use gnstor_proto::status::GrpcCode;
use gnstor_proto::vendor::MAX_READERS;

fn bench() -> Bench {
    Bench::start(&SimArray::new(3), 0)
}

#[test]
fn a_fresh_array_gets_a_map_on_every_ssd_before_it_serves() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let mut bench = Bench::cold(&array, 0);
    refused(&bench.ask_now(create("a")), GrpcCode::Unavailable, &["not serving yet", "try again"]);
    bench.run_until_quiet();
    let map = FleetMap::equal(3, 64, config().seed, 1).unwrap();
    for ssd in 0..3 {
        assert_eq!(array.ssd(ssd).map, Some(map.clone().into()));
    }
    assert_eq!(bench.ask(Request::GetMap), Ok(Reply::Map(map.encode().into())));
}

#[test]
fn a_created_volume_is_on_every_ssd_when_the_call_returns() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    let volume = created(bench.ask(create("a")));
    assert_eq!((volume.vid.get(), volume.generation, volume.replicas, volume.lease_epoch), (1, 4096, 2, 0));
    assert_eq!(bench.array.agreed(), vec![volume.clone()]);
    assert_eq!(bench.list(), vec![volume.clone()]);
    assert_eq!(bench.ask(Request::Get { name: name("a") }), Ok(Reply::Volume(volume)));
    let second = created(bench.ask(create("b")));
    assert_eq!(second.vid.get(), 2);
    assert_ne!(second.factor, bench.array.agreed()[0].factor);
}

#[test]
fn a_volume_is_not_seen_before_it_is_on_every_ssd() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    let ticket = bench.send(create("a"));
    assert!(bench.execute(0) && bench.execute(1));
    let listed = bench.send(Request::List(Page::ALL));
    let got = bench.send(Request::Get { name: name("a") });
    assert_eq!(bench.replies[&listed], Ok(Reply::Volumes { volumes: vec![], next: None }));
    refused(&bench.replies[&got], GrpcCode::NotFound, &["\"a\""]);
    assert!(!bench.replies.contains_key(&ticket));
    bench.run_until_quiet();
    assert!(bench.replies[&ticket].is_ok());
}

#[test]
fn create_refuses_what_cannot_be() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    bench.ask(create("a")).unwrap();
    refused(&bench.ask(create("a")), GrpcCode::AlreadyExists, &["\"a\"", "another name"]);
    let Request::Create(base) = create("b") else { unreachable!() };
    let four = Request::Create(Create { replicas: 4, ..base.clone() });
    refused(&bench.ask(four), GrpcCode::InvalidArgument, &["4 replicas", "1 to 3"]);
    // The SSDs have 3 GiB. Placement is uneven, so two replicas take slightly less than all of it.
    let largest = largest(&bench.ask(create_with("b", 3 << 18, None)));
    assert!(largest > 3 * SSD_BYTES / 2 / 4096 * 8 / 10 && largest < 3 * SSD_BYTES / 2 / 4096, "{largest}");
    refused(
        &bench.ask(create_with("b", largest + 1, None)),
        GrpcCode::ResourceExhausted,
        &["does not fit", &format!("at most {} bytes", largest * 4096), "delete volumes"],
    );
    bench.ask(create_with("b", largest, None)).unwrap();
    bench.ask(delete("b", 1)).unwrap();
    assert!(bench.ask(create_with("c", largest / 2, None)).is_ok());
}

#[test]
fn one_ssd_means_one_replica() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = Bench::start(&SimArray::new(1), 0);
    assert_eq!(created(bench.ask(create("a"))).replicas, 1);
}

#[test]
fn a_retried_create_returns_the_first_result() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    let first = created(bench.ask(create_with("a", 16, Some([7; 16]))));
    assert_eq!(created(bench.ask(create_with("a", 16, Some([7; 16])))), first);
    refused(&bench.ask(create_with("b", 16, Some([7; 16]))), GrpcCode::InvalidArgument, &["request id"]);
    let (one, two) =
        (bench.send(create_with("c", 1, Some([8; 16]))), bench.send(create_with("c", 1, Some([8; 16]))));
    bench.run_until_quiet();
    assert_eq!(bench.replies[&one], bench.replies[&two]);
    assert_eq!(bench.array.agreed().len(), 2);
}

#[test]
fn a_retried_delete_does_not_delete_the_next_volume_of_that_name() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    bench.ask(create("a")).unwrap();
    let request = Request::Delete {
        name: name("a"),
        client: client(1),
        request_id: Some([9; 16]),
        force: false,
        only: None,
    };
    assert_eq!(bench.ask(request.clone()), Ok(Reply::Ended(vec![])));
    assert_eq!(bench.ask(request.clone()), Ok(Reply::Ended(vec![])));
    let second = created(bench.ask(create("a")));
    assert_eq!(second.generation, 4097, "the volume id came again, in a new generation");
    assert_eq!(bench.ask(request), Ok(Reply::Ended(vec![])));
    assert_eq!(bench.array.agreed(), vec![second]);
    refused(&bench.ask(delete("b", 1)), GrpcCode::NotFound, &["\"b\""]);
}

/// The first copy of the call found no volume, or another Delete had taken its name away.
#[test]
fn a_delete_that_deleted_nothing_itself_deletes_no_later_volume_when_it_is_repeated() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    let delete = |id: u8| Request::Delete {
        name: name("a"),
        client: client(1),
        request_id: Some([id; 16]),
        force: false,
        only: None,
    };
    refused(&bench.ask(delete(1)), GrpcCode::NotFound, &["\"a\""]);
    bench.ask(create("a")).unwrap();
    refused(&bench.ask(delete(1)), GrpcCode::NotFound, &["\"a\""]);
    assert_eq!(bench.array.agreed().len(), 1);
    let both = [bench.send(delete(2)), bench.send(delete(3))];
    bench.run_until_quiet();
    let told = both.map(|call| bench.replies[&call].clone());
    assert_eq!(told[0], Ok(Reply::Ended(vec![])));
    let second = created(bench.ask(create("a")));
    assert_eq!([2, 3].map(|id| bench.ask(delete(id))), told);
    assert_eq!(bench.array.agreed(), vec![second]);
    assert_eq!(bench.ask(delete(4)), Ok(Reply::Ended(vec![])));
    assert!(bench.array.agreed().is_empty());
}

#[test]
fn a_volume_id_in_sweep_is_passed_over() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    bench.ask(create("a")).unwrap();
    bench.array.ssd(1).sweep_commands = 100;
    bench.ask(delete("a", 1)).unwrap();
    let second = created(bench.ask(create("a")));
    assert_eq!(second.vid.get(), 2);
    assert_eq!(bench.array.agreed(), vec![second]);
}

#[test]
fn a_delete_takes_the_rights_away_everywhere_before_any_ssd_sweeps() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    bench.ask(create("a")).unwrap();
    bench.ask(read("a", 5)).unwrap();
    bench.send(delete("a", 1));
    assert!(bench.execute(0) && bench.execute(0).eq(&false));
    assert!(bench.execute(1));
    assert!(
        bench.array.ssd(0).active()[0].readers.is_empty()
            && !bench.array.ssd(2).active()[0].readers.is_empty()
    );
    bench.run_until_quiet();
    assert!(bench.array.agreed().is_empty());
}

#[test]
fn readers_come_and_go() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    bench.ask(create("a")).unwrap();
    assert_eq!(opened(&bench.ask(read("a", 5))).readers, [client(5)]);
    let again = bench.ask(read("a", 5));
    assert_eq!(
        (opened(&again).version, opened(&again).readers.len()),
        (2, 1),
        "nothing changed, nothing was sent"
    );
    bench.ask(read("a", 6)).unwrap();
    assert_eq!(bench.ask(release("a", 5)), Ok(Reply::Done));
    assert_eq!(bench.array.agreed()[0].readers, [client(6)]);
    assert_eq!(
        bench.ask(release("a", 5)),
        Ok(Reply::Done),
        "a client that holds no rights may give them back"
    );
    assert_eq!(bench.ask(release("nowhere", 5)), Ok(Reply::Done));
    refused(&bench.ask(read("nowhere", 5)), GrpcCode::NotFound, &["nowhere"]);
    refused(&bench.ask(write("nowhere", 5, 1000)), GrpcCode::NotFound, &["nowhere"]);
    refused(&bench.ask(renew("nowhere", 5, 1, 1000)), GrpcCode::NotFound, &["nowhere"]);
}

#[test]
fn there_is_room_for_so_many_readers() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    bench.ask(create("a")).unwrap();
    let mut ask = |reader| {
        let ticket = bench.send_as(Caller::local(u64::from(reader)).into(), read("a", reader));
        bench.run_until_quiet();
        bench.replies[&ticket].clone()
    };
    for reader in 1..=u16::try_from(MAX_READERS).unwrap() {
        ask(reader).unwrap();
    }
    refused(&ask(60_000), GrpcCode::ResourceExhausted, &["512 readers"]);
}

#[test]
fn at_most_one_client_writes() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    bench.ask(create("a")).unwrap();
    let granted = bench.ask(write("a", 5, 10_000));
    assert_eq!((opened(&granted).writer, opened(&granted).lease_epoch), (Some(client(5)), 1));
    refused(&bench.ask(write("a", 6, 10_000)), GrpcCode::FailedPrecondition, &["client 5", "11 s"]);
    refused(&bench.ask(delete("a", 6)), GrpcCode::FailedPrecondition, &["client 5"]);
    refused(&bench.ask(renew("a", 6, 1, 10_000)), GrpcCode::FailedPrecondition, &["belongs to client 5"]);
    refused(&bench.ask(renew("a", 5, 0, 10_000)), GrpcCode::FailedPrecondition, &["epoch 1"]);
    bench.ask(release("a", 5)).unwrap();
    refused(&bench.ask(renew("a", 5, 1, 10_000)), GrpcCode::FailedPrecondition, &["given back"]);
    assert_eq!(opened(&bench.ask(write("a", 6, 10_000))).lease_epoch, 2);
    assert_eq!(
        opened(&bench.ask(write("a", 6, 10_000))).lease_epoch,
        3,
        "the holder's next grant is an epoch of its own"
    );
    bench.ask(delete("a", 6)).unwrap();
}

#[test]
fn a_lease_ends_after_its_time_and_the_drift_bound() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    bench.ask(create("a")).unwrap();
    bench.ask(write("a", 5, 10_000)).unwrap();
    bench.pass(10_499);
    refused(&bench.ask(write("a", 6, 10_000)), GrpcCode::FailedPrecondition, &["client 5"]);
    bench.pass(1);
    refused(&bench.ask(renew("a", 5, 1, 10_000)), GrpcCode::FailedPrecondition, &["expired"]);
    assert_eq!(bench.list()[0].writer, None, "after the lease has run out there is no writer");
    assert_eq!(opened(&bench.ask(write("a", 6, 10_000))).lease_epoch, 2);
}

#[test]
fn a_renewal_keeps_the_epoch_and_moves_the_end() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    bench.ask(create("a")).unwrap();
    bench.ask(write("a", 5, 10_000)).unwrap();
    bench.pass(9_000);
    assert_eq!(bench.ask(renew("a", 5, 1, 20_000)), Ok(Reply::Renewed { lease_ms: 20_000 }));
    assert_eq!(bench.array.agreed()[0].lease_epoch, 1);
    bench.pass(20_499);
    refused(&bench.ask(write("a", 6, 1_000)), GrpcCode::FailedPrecondition, &[]);
    bench.pass(1);
    assert!(bench.ask(write("a", 6, 1_000)).is_ok());
}

#[test]
fn a_new_reader_does_not_lengthen_the_writers_lease() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    bench.ask(create("a")).unwrap();
    bench.ask(write("a", 5, 10_000)).unwrap();
    bench.pass(8_000);
    bench.ask(read("a", 6)).unwrap();
    assert_eq!(bench.array.agreed()[0].lease_ms, 2_000);
    bench.pass(2_500);
    assert!(bench.ask(write("a", 6, 1_000)).is_ok());
}

#[test]
fn a_rest_that_no_ssd_takes_ends_the_lease_and_changes_do_not_keep_a_dead_writer() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    bench.ask(create("a")).unwrap();
    bench.ask(write("a", 5, 10_000)).unwrap();
    bench.pass(9_901);
    bench.ask(read("a", 6)).unwrap();
    assert_eq!(bench.array.agreed()[0].lease_ms, 0, "99 ms are left");
    refused(&bench.ask(write("a", 6, 1_000)), GrpcCode::FailedPrecondition, &["client 5"]);
    for who in 7..12 {
        bench.pass(100);
        bench.ask(read("a", who)).unwrap();
    }
    bench.pass(99);
    assert!(bench.ask(write("a", 6, 1_000)).is_ok(), "free at the time that was said at the grant");
}

#[test]
fn changes_of_one_volume_wait_for_each_other_and_others_do_not() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    bench.ask(create("a")).unwrap();
    bench.ask(create("b")).unwrap();
    let slow = bench.send(write("a", 5, 1_000));
    let behind = bench.send(write("a", 6, 1_000));
    let other = bench.send(write("b", 6, 1_000));
    bench.run_until_quiet();
    assert!(bench.replies[&slow].is_ok() && bench.replies[&other].is_ok());
    refused(&bench.replies[&behind], GrpcCode::FailedPrecondition, &["client 5"]);
    let order: Vec<_> = bench.news.iter().map(|(ticket, _)| *ticket).collect();
    let at = |ticket: Ticket| order.iter().position(|t| *t == ticket);
    assert!(at(slow) < at(behind));
}

#[test]
fn client_ids_are_given_once() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    bench.ask(create("a")).unwrap();
    bench.ask(read("a", 40)).unwrap();
    let mut given = std::collections::BTreeSet::from([client(40)]);
    for count in 1..=60 {
        let Ok(Reply::Client { client, serial }) = bench.ask(Request::Register) else { panic!("no id") };
        assert_eq!(serial, 1 << 32 | count);
        assert!(given.insert(client), "{client:?} is in use");
    }
}
