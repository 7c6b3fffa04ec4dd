// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fleet as an operator sees it, and the operator's calls.

use crate::array::SimArray;
use crate::bench::{Bench, Outcome, create, refused};
use crate::deadline::{Deadline, LIMIT};
use crate::join::{add, open_array};
use crate::shrink::{DROP_MS, newest, of_replicas, serving, states};
use gnstor_daemon::core::Reply;
use gnstor_daemon::core::report::FleetStatus;
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::rights::{Caller, ClientProof};
use gnstor_proto::placement::map3::{Row3, State3};
use gnstor_proto::status::GrpcCode;
use std::sync::Arc;

fn fleet(bench: &mut Bench) -> FleetStatus {
    match bench.ask(Request::Fleet) {
        Ok(Reply::Fleet { status, .. }) => *status,
        other => panic!("{other:?}"),
    }
}

fn fail(ssd: u16) -> Request {
    Request::Fail { ssd, lose_data: false }
}

fn done(outcome: Outcome) {
    assert_eq!(outcome, Ok(Reply::Done));
}

#[test]
fn a_loss_is_seen_in_the_copies_and_at_its_ssd() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    let before = fleet(&mut bench);
    assert_eq!((before.format, before.replicas, &before.voters[..]), (3, 2, &[0, 1, 2][..]));
    assert_eq!(before.groups_by_copies, [0, 0, before.groups]);
    assert!(before.ssds.iter().all(|ssd| ssd.last_copies == 0 && ssd.away.is_none() && ssd.serving > 0));
    bench.lose(3);
    bench.run_for(DROP_MS + 100);
    let after = fleet(&mut bench);
    let [0, one, two] = after.groups_by_copies[..] else { panic!("{:?}", after.groups_by_copies) };
    assert_eq!((one, one + two), (before.ssds[3].serving, after.groups));
    let gone = &after.ssds[3];
    assert_eq!((gone.state, gone.serving, gone.shrunk_at), (State3::Out, 0, after.epoch));
    assert!(gone.away.is_some() && gone.down_since_ms.is_some(), "{gone:?}");
    let last: u32 = after.ssds.iter().map(|ssd| ssd.last_copies).sum();
    assert_eq!(last, one, "each group with one copy is one SSD's");
}

#[test]
fn groups_of_an_absent_ssd_have_no_copy_that_serves() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    bench.ask(of_replicas("single", 1)).unwrap();
    bench.run_for(1_000);
    let is_only = |row: &&Row3| row.places[0].is_some_and(|place| place.ssd == 3);
    let only = newest(&bench).rows.iter().filter(is_only).count();
    bench.lose(3);
    bench.run_until_quiet();
    let down = fleet(&mut bench);
    assert_eq!((down.ssds[3].state, down.ssds[3].last_copies as usize), (State3::In, only));
    bench.run_for(DROP_MS + 100);
    let after = fleet(&mut bench);
    assert_eq!(after.ssds[3].state, State3::Absent);
    // The volume of two replicas has another copy there. It waits all the same.
    assert_eq!(after.groups_by_copies[0] as usize, only, "{:?}", after.groups_by_copies);
    assert!(after.groups_by_copies[1] > 0, "others have lost one of two copies");
    assert_eq!(after.groups_by_copies.iter().sum::<u32>(), after.groups);
    bench.find(3);
    bench.run_for(20_000);
    assert_eq!(fleet(&mut bench).groups_by_copies, [0, 0, after.groups]);
}

#[test]
fn an_ssd_is_failed_and_resumed_and_a_repeated_wish_succeeds() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    for request in [fail(3), Request::Remove { ssd: 3 }] {
        done(bench.ask(request.clone()));
        bench.run_for(DROP_MS + 100);
        assert!(states(&bench)[3] == State3::Out && fleet(&mut bench).ssds[3].taken_out);
        done(bench.ask(request));
        done(bench.ask(Request::Resume { ssd: 3, lose_data: false }));
        bench.run_for(20_000);
        assert!(states(&bench)[3] == State3::In && !fleet(&mut bench).ssds[3].taken_out);
        done(bench.ask(Request::Resume { ssd: 3, lose_data: false }));
    }
    // A wish that is taken back before its map is active.
    done(bench.ask(fail(3)));
    done(bench.ask(Request::Resume { ssd: 3, lose_data: false }));
    bench.run_for(20_000);
    assert_eq!(states(&bench)[3], State3::In);
}

#[test]
fn an_ssd_that_is_failed_right_after_it_was_resumed_stays_out() {
    let _deadline = Deadline::after(LIMIT);
    // The map that resumes it may not be proposed yet, be under way, or be active while the SSD fills.
    for pause in [0, 1, 100, 400, 1_000] {
        let mut bench = serving(4);
        done(bench.ask(fail(3)));
        bench.run_for(DROP_MS + 100);
        done(bench.ask(Request::Resume { ssd: 3, lose_data: false }));
        bench.run_for(pause);
        done(bench.ask(fail(3)));
        assert!(fleet(&mut bench).ssds[3].taken_out, "{pause}");
        bench.run_for(20_000);
        assert_eq!(states(&bench)[3], State3::Out, "{pause}");
        assert!(fleet(&mut bench).ssds[3].taken_out, "{pause}");
        done(bench.ask(Request::Resume { ssd: 3, lose_data: false }));
        bench.run_for(20_000);
        assert_eq!(states(&bench)[3], State3::In, "{pause}");
    }
}

#[test]
fn the_only_copy_is_not_failed_without_the_word() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    // Others take the places of the failed SSD, and have not filled them yet.
    (0..4).for_each(|ssd| bench.array.ssd(ssd).fill.takes = 200);
    done(bench.ask(fail(3)));
    bench.run_for(DROP_MS + 100);
    let last = fleet(&mut bench).ssds[0].last_copies;
    assert!(last > 0);
    let words = [&format!("of {last} placement groups"), "--lose-data", "gnstor fleet show"];
    refused(&bench.ask(fail(0)), GrpcCode::FailedPrecondition, &words);
    refused(&bench.ask(Request::Remove { ssd: 0 }), GrpcCode::FailedPrecondition, &["last copy"]);
    bench.run_for(2_000);
    assert_eq!(states(&bench)[0], State3::In, "nothing was changed");
    let waits = bench.ask(Request::Fail { ssd: 0, lose_data: true });
    assert!(matches!(&waits, Ok(Reply::Lost(lost)) if lost.len() == 1 && lost[0].volume == "a"), "{waits:?}");
    bench.run_for(DROP_MS + 1_000);
    assert_eq!(states(&bench)[0], State3::Absent);
    assert!(fleet(&mut bench).groups_by_copies[0] > 0, "its groups wait");
}

/// The map that drops the first one is not there yet when the second one is to go.
#[test]
fn an_ssd_is_not_taken_out_beside_another_loss_that_no_map_names_yet() {
    let _deadline = Deadline::after(LIMIT);
    let remove = |ssd| Request::Remove { ssd };
    for second in [fail(2), remove(2)] {
        for is_killed in [true, false] {
            let mut bench = serving(4);
            (0..4).for_each(|ssd| bench.array.ssd(ssd).fill.takes = 200);
            if is_killed {
                bench.lose(1);
                bench.run_until_quiet();
            } else {
                done(bench.ask(fail(1)));
            }
            let words = ["leaves out SSD 1", "no copy", "gnstor fleet show"];
            refused(&bench.ask(second.clone()), GrpcCode::FailedPrecondition, &words);
            bench.run_for(DROP_MS + 1_000);
            assert_eq!(states(&bench)[2], State3::In);
            assert_eq!(fleet(&mut bench).groups_by_copies[0], 0, "each group has a copy");
            let waits = bench.ask(Request::Fail { ssd: 2, lose_data: true });
            assert!(matches!(waits, Ok(Reply::Lost(_))), "{waits:?}");
        }
    }
}

/// After 30 s the others have its places, and the empty ones have no data.
#[test]
fn an_ssd_that_is_resumed_after_others_took_its_places_gets_its_share_of_the_data() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = open_array(4);
    done(bench.ask(Request::Remove { ssd: 0 }));
    bench.run_for(60_000);
    done(bench.ask(Request::Resume { ssd: 0, lose_data: false }));
    bench.run_for(60_000);
    let now = fleet(&mut bench);
    assert_eq!(now.groups_by_copies, [0, 0, now.groups]);
    let fair = now.groups * 2 / 4;
    assert!(now.ssds[0].serving * 2 >= fair, "{} of {fair} copies", now.ssds[0].serving);
}

#[test]
fn three_ssds_vote_again_when_the_ones_that_were_taken_out_are_resumed() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    for ssd in [0, 1, 2] {
        done(bench.ask(fail(ssd)));
        bench.run_for(60_000);
    }
    for ssd in [0, 1, 2] {
        done(bench.ask(Request::Resume { ssd, lose_data: false }));
        bench.run_for(60_000);
    }
    let now = fleet(&mut bench);
    assert_eq!((now.voters.len(), now.groups_by_copies), (3, vec![0, 0, now.groups]), "{:?}", now.voters);
}

#[test]
fn wishes_that_make_no_sense_are_refused_with_the_remedy() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    for request in [fail(4), Request::Remove { ssd: 4 }, Request::Resume { ssd: u16::MAX, lose_data: false }]
    {
        refused(&bench.ask(request), GrpcCode::NotFound, &["SSDs 0 to 3"]);
    }
    bench.lose(3);
    bench.run_for(DROP_MS + 100);
    refused(
        &bench.ask(Request::Resume { ssd: 3, lose_data: false }),
        GrpcCode::FailedPrecondition,
        &["neither"],
    );
    let mut old = Bench::start(&SimArray::new(3), 0);
    let shown = fleet(&mut old);
    assert_eq!((shown.format, shown.voters.len(), shown.array), (2, 0, [0; 16]));
    refused(&old.ask(fail(1)), GrpcCode::FailedPrecondition, &["does not change its map", "gnstor cp"]);
    old.ask(create("a")).unwrap();
}

#[test]
fn only_an_administrator_changes_the_fleet_and_each_caller_sees_it() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    let anna = Arc::new(Caller {
        name: "anna".into(),
        admin: false,
        creator: true,
        single: false,
        connection: 9,
        client: ClientProof::NotAsked,
    });
    let mut ask = |request| {
        let ticket = bench.send_as(Arc::clone(&anna), request);
        bench.run_until_quiet();
        bench.replies.remove(&ticket).expect("an answer")
    };
    let (remove, resume) = (Request::Remove { ssd: 3 }, Request::Resume { ssd: 3, lose_data: false });
    let (replace, drain) = (Request::Replace { ssd: 3, lose_data: true }, Request::Drain { ssd: 3 });
    let salvage = Request::Salvage { dry_run: true, at_s: 1 };
    let joins = Request::Add(Box::new(add(4)));
    for request in [fail(3), remove, resume, replace, drain, salvage, joins] {
        refused(&ask(request), GrpcCode::PermissionDenied, &["anna", "administrators"]);
    }
    assert!(matches!(ask(Request::Fleet), Ok(Reply::Fleet { .. })));
    bench.run_for(2_000);
    assert_eq!(states(&bench)[3], State3::In);
}
