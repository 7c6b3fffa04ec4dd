// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rule 7a: an SSD that has not heard of the end of a lease lets its holder read any replica. So a former
//! writer opens a volume for reading only when no SSD takes it for the writer.

use crate::array::{Fault, SimArray};
use crate::bench::{Bench, Outcome, client, create, opened, read, refused, release, write};
use crate::deadline::{Deadline, LIMIT};
use crate::shrink::{DROP_MS, newest, of_replicas, serving, states};
use gnstor_daemon::core::Command;
use gnstor_proto::placement::map3::State3;
use gnstor_proto::status::GrpcCode;

fn is_refused(outcome: &Outcome, ssd: u16) {
    refused(outcome, GrpcCode::Unavailable, &[&format!("SSD {ssd} is down"), "try again"]);
}

/// Client 7 has written volume a, with a lease of 2 s.
fn written() -> Bench {
    let mut bench = serving(4);
    (0..4).for_each(|ssd| bench.array.ssd(ssd).fill.takes = 0);
    opened(&bench.ask(write("a", 7, 2_000)));
    bench
}

#[test]
fn a_former_writer_waits_for_an_ssd_that_has_not_heard_of_its_release() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = written();
    // As the writer it reads any replica anyway.
    bench.ask(read("a", 7)).unwrap();
    bench.lose(3);
    refused(&bench.ask(release("a", 7)), GrpcCode::Unavailable, &["failed on SSD 3", "is repeated"]);
    bench.ask(read("a", 9)).unwrap();
    is_refused(&bench.ask(read("a", 7)), 3);
    assert!(!bench.array.ssd(0).table.values().any(|entry| entry.readers.contains(&client(7))));
    // Its serving lease is over then.
    bench.run_for(DROP_MS + 1_000);
    bench.ask(read("a", 7)).unwrap();
}

#[test]
fn a_client_whose_grant_was_undone_waits_as_a_former_writer_does() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = written();
    bench.ask(create("b")).unwrap();
    // The SSD has the grant, and not its end.
    bench.array.ssd(1).faults.extend([Fault::LostAfter, Fault::LostBefore]);
    refused(&bench.ask(write("b", 7, 2_000)), GrpcCode::Unavailable, &["was undone"]);
    bench.lose(2);
    bench.ask(read("b", 9)).unwrap();
    is_refused(&bench.ask(read("b", 7)), 2);
}

/// The next daemon reads the older entry, and the SSD is away before it takes the newer one.
#[test]
fn a_daemon_that_starts_knows_former_writers_by_the_older_entries() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = written();
    bench.array.ssd(3).faults.extend([Fault::LostBefore, Fault::LostBefore]);
    refused(&bench.ask(release("a", 7)), GrpcCode::Unavailable, &["failed on SSD 3"]);
    let mut next = Bench::cold(&bench.array, 10_000);
    let is_chmod = |command: &Command| matches!(command, Command::Chmod(_));
    while !next.core.is_serving() {
        assert!(next.now < 60_000, "{:?}", next.core.waits_for());
        while (0..3).filter(|&ssd| next.execute(ssd)).count() > 0 || next.execute_but(3, is_chmod) {}
        if next.queues[3].iter().any(|(_, command)| is_chmod(command)) {
            next.lose(3);
            next.run_until_quiet();
        }
        next.pass(1);
    }
    assert_eq!(states(&next)[3], State3::In);
    next.ask(read("a", 9)).unwrap();
    is_refused(&next.ask(read("a", 7)), 3);
    next.run_for(DROP_MS + 1_000);
    next.ask(read("a", 7)).unwrap();
}

/// It serves nothing until an epoch takes it back, however long that lasts.
#[test]
fn no_reader_waits_for_an_ssd_that_the_map_calls_absent() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = written();
    bench.ask(of_replicas("one", 1)).unwrap();
    bench.lose(3);
    refused(&bench.ask(release("a", 7)), GrpcCode::Unavailable, &["failed on SSD 3"]);
    is_refused(&bench.ask(read("a", 7)), 3);
    bench.run_for(DROP_MS + 1_000);
    assert_eq!(states(&bench)[3], State3::Absent);
    bench.ask(read("a", 7)).unwrap();
    bench.ask(read("a", 9)).unwrap();
    let mut next = Bench::cold(&bench.array, 10_000);
    next.lose(3);
    next.run_for(10_000);
    assert!(next.core.is_serving(), "{:?}", next.core.waits_for());
    for who in [7, 9, 11] {
        next.ask(read("a", who)).unwrap();
    }
    assert_eq!(newest(&next).ssds[3].state, State3::Absent);
}

/// There its lease ends by the clocks of the SSDs, and no SSD is ever dropped.
#[test]
fn no_reader_waits_where_the_map_names_no_voters() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = Bench::start(&SimArray::new(3), 0);
    bench.ask(create("a")).unwrap();
    bench.ask(write("a", 7, 2_000)).unwrap();
    bench.lose(2);
    refused(&bench.ask(release("a", 7)), GrpcCode::Unavailable, &["failed on SSD 2"]);
    bench.ask(read("a", 7)).unwrap();
}
