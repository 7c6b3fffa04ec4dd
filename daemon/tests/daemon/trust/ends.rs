// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What clients had open ends some time after their connections, all of it, and beside a load, too.

use super::rights::{Party, held, share};
use crate::array::SimArray;
use crate::bench::{Bench, config, create, created, opened, read};
use crate::deadline::{Deadline, LIMIT};
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::rights::{Caller, Right};
use gnstor_daemon::core::{CoreConfig, Quotas, Reply, Ticket};
use gnstor_proto::slba::ClientId;
use std::sync::Arc;

/// Time for which what is open outlives its connection, ms.
const OPEN_MS: u64 = 60_000;

/// A volume of anna's, and a hundred readers with connections of their own, 2 to 101.
fn with_a_hundred_readers() -> (SimArray, Bench, Party) {
    let array = SimArray::new(2);
    let mut quotas = Quotas::default();
    (quotas.ids, quotas.connection_ids) = (ClientId::new(110).unwrap(), 110);
    let mut bench = Bench::cold_with(&array, 0, CoreConfig { quotas, ..config() });
    bench.run_until_quiet();
    let anna = Party::new(&mut bench, "anna", 1);
    anna.make(&mut bench, "v");
    for connection in 2..102 {
        let reader = Party::new(&mut bench, "anna", connection);
        opened(&reader.ask(&mut bench, read("v", reader.id.get())));
    }
    (array, bench, anna)
}

/// Readers whose connections close together. The time of all is over in one moment.
#[test]
fn readers_of_closed_connections_end_together_and_also_beside_a_change_of_the_volume() {
    let _deadline = Deadline::after(LIMIT);
    for is_busy in [false, true] {
        let (array, mut bench, anna) = with_a_hundred_readers();
        (2..102).for_each(|connection| bench.core.closed(bench.now, connection));
        bench.run_for(OPEN_MS - 1);
        let before = array.agreed()[0].version;
        assert_eq!(held(&bench, 0).1.len(), 100);
        let change = is_busy.then(|| anna.send(&mut bench, share("v", "ben", Right::Read)));
        bench.pass(1);
        bench.run_until_quiet();
        let after = &array.agreed()[0];
        assert_eq!(after.readers, [], "busy: {is_busy}");
        assert!(change.is_none_or(|change| bench.replies[&change].is_ok()));
        // One change ends them all, so other requests of the volume wait for no more than that.
        assert_eq!(after.version - before, 1 + u64::from(is_busy));
    }
}

/// The Release of all of them counts as done on the SSDs that are there. The volume names none of them then,
/// and none of their ids waits for a turn of its own.
#[test]
fn readers_that_end_while_an_ssd_is_away_give_their_ids_back_together() {
    let _deadline = Deadline::after(LIMIT);
    let (array, mut bench, _anna) = with_a_hundred_readers();
    bench.lose(1);
    (2..102).for_each(|connection| bench.core.closed(bench.now, connection));
    bench.run_for(OPEN_MS - 1);
    assert_eq!((held(&bench, 0).1.len(), bench.core.clients()), (100, 101));
    bench.run_for(2_000);
    assert_eq!((held(&bench, 0).1.len(), bench.core.clients()), (0, 1));
    // The SSD that is away still names them. Another client with such an id could read there.
    let away = held(&bench, 1).1;
    assert_eq!(away.len(), 100);
    let other: Arc<Caller> = Caller::local(500).into();
    let register = |bench: &mut Bench| {
        let ticket = bench.send_as(Arc::clone(&other), Request::Register);
        match bench.replies[&ticket] {
            Ok(Reply::Client { client, .. }) => Some(client),
            _ => None,
        }
    };
    let given: Vec<_> = (0..100).map_while(|_| register(&mut bench)).collect();
    assert!((8..10).contains(&given.len()) && given.iter().all(|id| !away.contains(id)), "{given:?}");
    bench.find(1);
    bench.run_for(60_000);
    assert_eq!(array.agreed()[0].readers, []);
    assert!(away.contains(&register(&mut bench).expect("there are ids again")));
}

/// Ids whose time is over ask for what they had open again and again. No client's request is refused for
/// them.
#[test]
fn readers_that_end_leave_room_for_requests_of_their_volume() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let mut bench = Bench::start(&array, 0);
    let most = CoreConfig::default().max_queue;
    let anna = Party::new(&mut bench, "anna", 1);
    anna.make(&mut bench, "v");
    let readers: Vec<_> = (0..most as u64 + 10)
        .map(|nth| {
            let reader = Party::new(&mut bench, "anna", 2 + nth);
            opened(&reader.ask(&mut bench, read("v", reader.id.get())));
            reader
        })
        .collect();
    readers.iter().for_each(|reader| bench.core.closed(bench.now, reader.caller.connection));
    bench.run_until_quiet();
    // The change is under way while their time ends, and while they ask again.
    bench.pass(OPEN_MS - 1);
    anna.send(&mut bench, share("v", "ben", Right::Read));
    (0..3).for_each(|_| bench.pass(500));
    let late = anna.send(&mut bench, read("v", anna.id.get()));
    bench.run_until_quiet();
    opened(&bench.replies[&late]);
    assert_eq!(held(&bench, 0).1, [anna.id]);
}

fn ask(bench: &mut Bench, connection: u64, request: Request) -> Ticket {
    bench.send_as(Caller::local(connection).into(), request)
}

/// A daemon without proofs takes an id that it has not given: one of an earlier daemon, or one that it has
/// forgotten.
#[test]
fn a_reader_whose_id_the_daemon_does_not_know_ends_after_its_connection() {
    let _deadline = Deadline::after(LIMIT);
    for is_late in [false, true] {
        let array = SimArray::new(2);
        let mut bench = Bench::start(&array, 0);
        created(bench.ask(create("v")));
        let other = is_late.then(|| ask(&mut bench, 1, read("v", 700)));
        let open = ask(&mut bench, 2, read("v", 77));
        if is_late {
            // It waits for the other one's change, and is served when its connection has closed.
            bench.core.closed(bench.now, 2);
        }
        bench.run_until_quiet();
        opened(&bench.replies[&open]);
        bench.core.closed(bench.now, 1);
        bench.core.closed(bench.now, 2);
        bench.run_for(OPEN_MS - 1);
        assert_eq!(held(&bench, 0).1.len(), 1 + usize::from(other.is_some()), "it may come back");
        bench.run_for(2);
        assert_eq!(held(&bench, 0).1, [], "late: {is_late}");
        bench.run_for(500);
        assert_eq!(bench.core.clients(), 0);
    }
}

/// The client of a forgotten id was away for longer than its id waits, and comes back.
#[test]
fn a_reader_with_a_forgotten_id_is_kept_by_its_calls_and_ends_after_them() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let mut bench = Bench::start(&array, 0);
    created(bench.ask(create("v")));
    let registered = ask(&mut bench, 1, Request::Register);
    let Ok(Reply::Client { client, .. }) = bench.replies[&registered] else { panic!("no id") };
    bench.core.closed(bench.now, 1);
    bench.run_for(OPEN_MS);
    assert_eq!(bench.core.clients(), 0, "it is forgotten");
    ask(&mut bench, 2, read("v", client.get()));
    bench.run_for(10 * OPEN_MS);
    assert_eq!(held(&bench, 0).1, [client], "its connection lives");
    bench.core.closed(bench.now, 2);
    bench.run_for(OPEN_MS / 2);
    ask(&mut bench, 3, Request::Keep { client });
    bench.run_for(10 * OPEN_MS);
    assert_eq!(held(&bench, 0).1, [client], "a call on another connection keeps it");
    bench.core.closed(bench.now, 3);
    bench.run_for(OPEN_MS + 1);
    assert_eq!(held(&bench, 0).1, []);
}
