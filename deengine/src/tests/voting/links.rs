// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A daemon connects again, or another daemon takes over.

use super::*;

/// What is on its way there would be carried out after the daemon has read the table.
#[test]
fn a_term_that_is_granted_ends_the_connection_that_was_granted_one_before() {
    let mut harness = with(&voted(&[0, 1, 2]));
    let [second, third, reader] = [41, 42, 43].map(QueueKey);
    let late = VolumeEntry { term: 5, ..entry(9) };
    harness.take_term(5, 77).unwrap();
    for key in [second, third, reader] {
        harness.connect(key, 0, Identity::Daemon, CNTLID_ANY);
    }
    assert_eq!(harness.take_term_on(third, 5, 78), Err(Refusal::StaleTerm));
    assert!(harness.closed.is_empty(), "another connection, or a refusal, ends none");
    let add = harness.daemon_sqe(opcode::VOLUME_ADD, late.encode().as_bytes());
    harness.hold = true;
    let cid = harness.submit(DAEMON, add);
    harness.hold = false;
    assert!(harness.take_term_on(second, 5, 77).is_ok());
    harness.release(|_| 0);
    assert_eq!((harness.take(DAEMON, cid).is_none(), &harness.closed[..]), (true, &[DAEMON][..]));
    assert!(harness.ssd().table.volume(late.vid).is_none(), "its data was on its way");
    assert!(harness.take_term_on(second, 5, 77).is_ok(), "it asks again");
    assert!(harness.take_term_on(third, 6, 78).is_ok(), "the next daemon");
    assert_eq!(harness.closed, [DAEMON, second]);
    // Another host may get the key of a queue that is closed.
    harness.workers[0].close_queue(harness.now, third);
    harness.connect(third, 0, Identity::Peer(2), CNTLID_ANY);
    assert!(harness.take_term_on(reader, 6, 78).is_ok());
    assert_eq!(harness.closed, [DAEMON, second]);
}
