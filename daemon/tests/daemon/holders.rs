// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What clients have open: it is listed, and others end it by a revoke or a deletion.

use crate::array::{Fault, SimArray};
use crate::bench::{
    Bench, Outcome, client, create, created, delete, name, opened, read, refused, release, renew, write,
};
use crate::deadline::{Deadline, LIMIT};
use crate::shrink::serving;
use crate::trust::Party;
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::rights::{Caller, ClientProof, Right};
use gnstor_daemon::core::{Holder, Page, Reply, WriteLease};
use gnstor_proto::status::GrpcCode;

pub(crate) fn revoke_lease(text: &str, who: u16) -> Request {
    Request::RevokeLease { name: name(text), client: client(who) }
}

pub(crate) fn delete_all_the_same(text: &str, who: u16) -> Request {
    Request::Delete { name: name(text), client: client(who), request_id: None, force: true, only: None }
}

fn leases(text: Option<&str>) -> Request {
    Request::ListLeases { name: text.map(name), page: Page::ALL }
}

fn listed(outcome: Outcome) -> Vec<Holder> {
    match outcome {
        Ok(Reply::Leases { leases, next: None }) => leases,
        other => panic!("no list of leases: {other:?}"),
    }
}

fn ended(outcome: &Outcome) -> &[Holder] {
    match outcome {
        Ok(Reply::Ended(ended)) => ended,
        other => panic!("nothing has ended: {other:?}"),
    }
}

/// The clients, and the epochs of their write leases.
fn short(holders: &[Holder]) -> Vec<(u16, Option<u32>)> {
    holders.iter().map(|held| (held.client.get(), held.lease.map(|lease| lease.epoch))).collect()
}

/// Volume v of an array of two SSDs: client 5 writes it for 10 s, and clients 6 and 7 read it.
fn busy() -> Bench {
    let mut bench = Bench::start(&SimArray::new(2), 0);
    created(bench.ask(create("v")));
    for reader in [6, 7] {
        opened(&bench.ask(read("v", reader)));
    }
    opened(&bench.ask(write("v", 5, 10_000)));
    bench
}

#[test]
fn leases_are_listed_with_the_time_that_they_last() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = busy();
    created(bench.ask(create("w")));
    opened(&bench.ask(write("w", 5, 60_000)));
    bench.pass(4_000);
    let all = listed(bench.ask(leases(None)));
    let of = |text: &str| all.iter().filter(|held| held.volume == text).cloned().collect::<Vec<_>>();
    assert_eq!(short(&of("v")), [(5, Some(1)), (6, None), (7, None)], "the writer first");
    assert_eq!(short(&of("w")), [(5, Some(1))]);
    let left = |held: &Holder| held.lease.map(|lease| lease.left_ms);
    let drift = left(&of("w")[0]).unwrap() - 56_000;
    assert_eq!(left(&of("v")[0]), Some(6_000 + drift), "until no SSD's clock says otherwise");
    assert_eq!(listed(bench.ask(leases(Some("v")))), of("v"));
    refused(&bench.ask(leases(Some("x"))), GrpcCode::NotFound, &["no volume \"x\""]);
    bench.pass(6_000 + drift);
    assert_eq!(short(&listed(bench.ask(leases(Some("v"))))), [(6, None), (7, None)], "the lease has ended");
}

#[test]
fn a_page_of_leases_ends_with_a_whole_volume() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = busy();
    for text in ["idle", "w", "x"] {
        created(bench.ask(create(text)));
    }
    opened(&bench.ask(read("w", 6)));
    opened(&bench.ask(read("x", 6)));
    let (mut token, mut pages) = (String::new(), Vec::new());
    loop {
        let page = Page::new(2, &token).unwrap();
        let Ok(Reply::Leases { leases, next }) = bench.ask(Request::ListLeases { name: None, page }) else {
            panic!("no page")
        };
        pages.push(leases.iter().map(|held| held.volume.clone()).collect::<Vec<_>>());
        let Some(next) = next else { break };
        token = next;
    }
    assert_eq!(pages, [vec!["v", "v", "v"], vec!["w", "x"]]);
}

#[test]
fn a_revoked_writer_is_refused_everywhere_and_the_volume_is_settled() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    opened(&bench.ask(write("a", 7, 60_000)));
    opened(&bench.ask(read("a", 8)));
    let took = bench.send(revoke_lease("a", 7));
    assert!(bench.execute(0) && !bench.replies.contains_key(&took), "other SSDs have it as the writer");
    bench.run_until_quiet();
    assert_eq!(short(ended(&bench.replies[&took])), [(7, Some(1))]);
    bench.run_for(1_000);
    let entry = bench.array.agreed().remove(0);
    assert_eq!((entry.writer, entry.unsettled, &*entry.readers), (None, false, &[client(8)][..]));
    let settles = bench.array.ssd(0).counts.get(&gnstor_proto::vendor::opcode::SETTLE).copied();
    assert!(settles >= Some(1), "copies may have differed: {settles:?}");
    refused(
        &bench.ask(renew("a", 7, 1, 60_000)),
        GrpcCode::FailedPrecondition,
        &["open the volume", "again"],
    );
    assert_eq!(ended(&bench.ask(revoke_lease("a", 7))), [], "a second time there is nothing to end");
    assert_eq!(short(ended(&bench.ask(revoke_lease("a", 8)))), [(8, None)]);
    assert!(bench.array.agreed().remove(0).readers.is_empty());
    assert_eq!(opened(&bench.ask(write("a", 7, 60_000))).lease_epoch, 2, "its right is as it was");
    refused(&bench.ask(revoke_lease("x", 7)), GrpcCode::NotFound, &["no volume \"x\""]);
}

#[test]
fn a_lease_that_is_revoked_while_an_ssd_fails_ends_there_later() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = busy();
    bench.array.ssd(1).faults.extend([Fault::LostBefore, Fault::LostBefore]);
    refused(&bench.ask(revoke_lease("v", 5)), GrpcCode::Unavailable, &["SSD 1", "repeated until"]);
    assert_eq!(bench.array.ssd(0).active()[0].writer, None);
    assert_eq!(bench.array.ssd(1).active()[0].writer, Some(client(5)));
    bench.run_for(1_000);
    assert_eq!(bench.array.agreed()[0].writer, None);
}

#[test]
fn a_volume_is_deleted_under_its_writer_by_force_only_and_the_caller_is_told_of_all_clients() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = busy();
    let before = bench.array.agreed();
    let words =
        ["client 5 holds the write lease for at most another 1", "client 6 reads, client 7 reads", "--force"];
    refused(&bench.ask(delete("v", 9)), GrpcCode::FailedPrecondition, &words);
    assert_eq!(bench.array.agreed(), before);
    let id = Some([7; 16]);
    let Request::Delete { name, client, .. } = delete("v", 6) else { unreachable!("it deletes") };
    let request = Request::Delete { name, client, request_id: id, force: true, only: None };
    let outcome = bench.ask(request.clone());
    assert_eq!(short(ended(&outcome)), [(5, Some(1)), (7, None)], "but for the caller's own client");
    assert!(bench.array.agreed().is_empty());
    created(bench.ask(create("v")));
    opened(&bench.ask(write("v", 5, 10_000)));
    assert_eq!(ended(&bench.ask(request)), [], "the repeated call deletes no later volume");
    assert_eq!(bench.array.agreed()[0].writer.map(gnstor_proto::slba::ClientId::get), Some(5));
}

/// The SSD that fails takes the mark later. The deletion goes on until then, and names the clients at its
/// end.
#[test]
fn a_deletion_by_force_that_takes_longer_names_the_clients_to_the_call_that_sees_its_end() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = busy();
    bench.array.ssd(1).faults.push_back(Fault::LostBefore);
    refused(&bench.ask(delete_all_the_same("v", 9)), GrpcCode::Unavailable, &["SSD 1", "is decided"]);
    refused(&bench.ask(renew("v", 5, 1, 10_000)), GrpcCode::NotFound, &["no volume"]);
    let again = bench.send(delete_all_the_same("v", 9));
    bench.run_for(1_000);
    assert_eq!(short(ended(&bench.replies[&again])), [(5, Some(1)), (6, None), (7, None)]);
    assert!(bench.array.agreed().is_empty());
}

#[test]
fn many_readers_are_counted_in_a_refusal_and_not_all_named() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = busy();
    for reader in 10..30 {
        opened(&bench.ask(read("v", reader)));
    }
    let outcome = bench.ask(delete("v", 9));
    refused(&outcome, GrpcCode::FailedPrecondition, &["client 5 holds", "client 14 reads, 15 more read"]);
    assert!(!outcome.unwrap_err().message.contains("client 15"));
}

#[test]
fn leases_are_for_the_admins_of_a_volume_and_the_arrays_operator() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let mut bench = Bench::start(&array, 0);
    let (anna, ben) = (Party::new(&mut bench, "anna", 1), Party::new(&mut bench, "ben", 2));
    let root = Caller {
        name: "root".into(),
        admin: true,
        creator: true,
        single: false,
        connection: 3,
        client: ClientProof::NotAsked,
    };
    let root = Party::of(&mut bench, root);
    anna.make(&mut bench, "v");
    ben.make(&mut bench, "w");
    let (a, b) = (anna.id.get(), ben.id.get());
    anna.share(&mut bench, "v", "ben", Right::Write);
    opened(&ben.ask(&mut bench, write("v", b, 60_000)));
    opened(&ben.ask(&mut bench, read("w", b)));
    let seen = listed(anna.ask(&mut bench, leases(None)));
    assert_eq!((seen.len(), seen[0].principal.as_deref()), (1, Some("ben")), "her own volumes only");
    assert_eq!(seen[0].lease.map(|WriteLease { epoch, .. }| epoch), Some(1));
    assert_eq!(listed(root.ask(&mut bench, leases(None))).len(), 2);
    assert_eq!(listed(ben.ask(&mut bench, leases(None))).len(), 1, "the right to write is not enough");
    let before = array.agreed();
    let words = ["\"ben\" has no admin right to volume \"v\""];
    for request in [leases(Some("v")), revoke_lease("v", b), delete_all_the_same("v", b)] {
        refused(&ben.ask(&mut bench, request), GrpcCode::PermissionDenied, &words);
    }
    assert_eq!(array.agreed(), before);
    let words = [&*format!("client {b} (\"ben\") holds the write lease")];
    refused(&anna.ask(&mut bench, delete("v", a)), GrpcCode::FailedPrecondition, &words);
    assert_eq!(short(ended(&anna.ask(&mut bench, revoke_lease("v", b)))), [(b, Some(1))]);
    opened(&ben.ask(&mut bench, write("v", b, 60_000)));
    assert_eq!(short(ended(&root.ask(&mut bench, revoke_lease("v", b)))), [(b, Some(2))]);
    opened(&ben.ask(&mut bench, write("v", b, 60_000)));
    let outcome = root.ask(&mut bench, delete_all_the_same("v", root.id.get()));
    assert_eq!(ended(&outcome)[0].principal.as_deref(), Some("ben"));
    assert_eq!(array.agreed().len(), 1);
}

/// A daemon that starts knows the ids that have something open, and not yet their principals.
#[test]
fn after_a_restart_a_client_is_named_again_when_it_has_called() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let mut bench = Bench::start(&array, 0);
    let anna = Party::new(&mut bench, "anna", 1);
    anna.make(&mut bench, "v");
    let id = anna.id.get();
    opened(&anna.ask(&mut bench, write("v", id, 60_000)));
    let mut bench = Bench::start(&array, 0);
    let principal = |bench: &mut Bench| listed(bench.ask(leases(None)))[0].principal.clone();
    assert_eq!(principal(&mut bench), None);
    anna.ask(&mut bench, renew("v", id, 1, 60_000)).unwrap();
    assert_eq!(principal(&mut bench).as_deref(), Some("anna"));
    anna.ask(&mut bench, release("v", id)).unwrap();
    assert_eq!(listed(bench.ask(leases(Some("v")))), []);
}
