// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One SSD fails: the call names it, and the others are brought back to one state. In the end the failed SSD
//! has that state, too.

use crate::array::{Fault, SimArray};
use crate::bench::{
    Bench, client, create, create_with, created, delete, opened, read, refused, release, renew, write,
};
use crate::deadline::{Deadline, LIMIT};
use gnstor_daemon::core::Reply;
use gnstor_proto::status::{GrpcCode, Refusal};

fn bench() -> Bench {
    let mut bench = Bench::start(&SimArray::new(3), 0);
    bench.ask(create("a")).unwrap();
    bench
}

const LOST: [Fault; 2] = [Fault::LostBefore, Fault::LostAfter];

#[test]
fn a_create_that_fails_leaves_nothing() {
    let _deadline = Deadline::after(LIMIT);
    for fault in LOST.into_iter().chain([Fault::Refuse(Refusal::NotReady)]) {
        let mut bench = bench();
        bench.array.ssd(1).faults.push_back(fault.clone());
        refused(&bench.ask(create_with("b", 1, Some([3; 16]))), GrpcCode::Unavailable, &["SSD 1", "\"b\""]);
        assert_eq!(bench.array.agreed().len(), 1, "{fault:?}");
        let retried = created(bench.ask(create_with("b", 1, Some([3; 16]))));
        assert_eq!(bench.array.agreed()[1], retried);
    }
}

#[test]
fn a_full_permission_table_is_told_as_such() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    bench.array.ssd(2).faults.push_back(Fault::Refuse(Refusal::TableFull));
    refused(&bench.ask(create("b")), GrpcCode::ResourceExhausted, &["SSD 2", "table is full"]);
    assert_eq!(bench.array.agreed().len(), 1);
}

#[test]
fn the_name_of_a_failed_create_stays_taken_until_every_ssd_forgot_it() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    bench.array.ssd(1).faults.extend([Fault::LostAfter, Fault::LostBefore]);
    refused(&bench.ask(create("b")), GrpcCode::Unavailable, &["SSD 1"]);
    refused(&bench.ask(create("b")), GrpcCode::Unavailable, &["still being deleted", "SSD 1"]);
    bench.run_for(1_000);
    assert!(bench.ask(create("b")).is_ok());
    assert_eq!(bench.array.agreed().len(), 2);
}

#[test]
fn a_create_gives_up_when_every_volume_id_is_in_sweep() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    bench.array.ssd(0).faults.extend(vec![Fault::Refuse(Refusal::SweepPending); 8]);
    bench.array.ssd(1).faults.extend(vec![Fault::Delay(std::time::Duration::ZERO); 8]);
    refused(&bench.ask(create("b")), GrpcCode::ResourceExhausted, &["still being swept"]);
    assert_eq!(bench.array.agreed().len(), 1);
    assert!(bench.ask(create("b")).is_ok());
}

#[test]
fn an_open_for_reading_that_fails_is_undone() {
    let _deadline = Deadline::after(LIMIT);
    for fault in LOST {
        let mut bench = bench();
        bench.ask(read("a", 5)).unwrap();
        bench.array.ssd(2).faults.push_back(fault);
        refused(&bench.ask(read("a", 6)), GrpcCode::Unavailable, &["SSD 2", "was undone"]);
        assert_eq!(bench.array.agreed()[0].readers, [client(5)]);
        assert_eq!(opened(&bench.ask(read("a", 6))).readers.len(), 2);
    }
}

#[test]
fn a_grant_that_fails_leaves_no_writer_and_a_spent_epoch() {
    let _deadline = Deadline::after(LIMIT);
    for fault in LOST {
        let mut bench = bench();
        bench.array.ssd(0).faults.push_back(fault);
        refused(&bench.ask(write("a", 5, 10_000)), GrpcCode::Unavailable, &["SSD 0"]);
        let entry = &bench.array.agreed()[0];
        assert_eq!((entry.writer, entry.lease_epoch), (None, 1));
        assert_eq!(
            opened(&bench.ask(write("a", 6, 10_000))).lease_epoch,
            2,
            "and another client may write at once"
        );
    }
}

#[test]
fn no_grant_while_an_ssd_may_still_hold_the_old_epoch() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    bench.ask(write("a", 5, 1_000)).unwrap();
    bench.pass(2_000);
    bench.array.ssd(1).dead = true;
    refused(&bench.ask(write("a", 6, 1_000)), GrpcCode::Unavailable, &["SSD 1"]);
    assert_eq!(bench.array.ssd(1).active()[0].writer, Some(client(5)));
    bench.array.ssd(1).dead = false;
    bench.run_for(60_000);
    assert_eq!(bench.array.agreed()[0].writer, None);
    assert_eq!(opened(&bench.ask(write("a", 6, 1_000))).lease_epoch, 3);
}

#[test]
fn renewals_and_releases_are_repeated_until_they_are_everywhere() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    bench.ask(write("a", 5, 10_000)).unwrap();
    bench.array.ssd(1).faults.push_back(Fault::LostBefore);
    refused(&bench.ask(renew("a", 5, 1, 60_000)), GrpcCode::Unavailable, &["SSD 1", "repeated"]);
    assert_eq!(bench.array.agreed()[0].lease_ms, 60_000);
    bench.array.ssd(1).faults.extend([Fault::LostBefore, Fault::LostBefore]);
    refused(&bench.ask(release("a", 5)), GrpcCode::Unavailable, &["SSD 1", "repeated"]);
    bench.run_for(1_000);
    assert_eq!(bench.array.agreed()[0].writer, None);
}

#[test]
fn a_deletion_is_repeated_until_it_is_everywhere() {
    let _deadline = Deadline::after(LIMIT);
    for lost in 0..3 {
        let mut bench = bench();
        bench.array.ssd(2).faults.extend(vec![Fault::Delay(std::time::Duration::ZERO); lost]);
        bench.array.ssd(2).faults.push_back(Fault::LostAfter);
        let outcome = bench.ask(delete("a", 1));
        bench.run_for(2_000);
        assert!(bench.array.agreed().is_empty() && bench.list().is_empty());
        if lost < 2 {
            refused(&outcome, GrpcCode::Unavailable, &["SSD 2", "is decided"]);
        } else {
            assert_eq!(outcome, Ok(Reply::Ended(vec![])));
            bench.array.ssd(2).faults.clear();
        }
        assert!(bench.ask(create("a")).is_ok());
    }
}

#[test]
fn an_ssd_that_stays_away_is_tried_with_growing_waits() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    bench.array.ssd(1).dead = true;
    refused(&bench.ask(read("a", 5)), GrpcCode::Unavailable, &["SSD 1"]);
    let mut waits = Vec::new();
    while waits.len() < 9 {
        let at = bench.core.next_event().unwrap();
        waits.push(at - bench.now);
        bench.run_for(at - bench.now);
    }
    assert_eq!(waits, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
}

#[test]
fn a_request_is_answered_at_its_deadline_though_an_ssd_is_silent() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    let late = bench.send(read("a", 5));
    let behind = bench.send(read("a", 6));
    assert!(bench.execute(0) && bench.execute(2));
    bench.pass(30_000);
    refused(&bench.replies[&late], GrpcCode::Unavailable, &["SSD 1 has not completed VOLUME CHMOD", "30 s"]);
    refused(&bench.replies[&behind], GrpcCode::Unavailable, &["earlier change"]);
    bench.run_until_quiet();
    assert_eq!(
        bench.array.agreed()[0].readers,
        [client(5)],
        "what was begun is done; what only waited is not"
    );
}

#[test]
fn an_ssd_that_lost_an_entry_gets_it_again() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench();
    bench.array.ssd(1).table.clear();
    bench.ask(read("a", 5)).unwrap();
    assert_eq!(bench.array.agreed().len(), 1);
}
