// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A worker that comes only at moments at which others have made the firmware busy again.
//!
//! ```text
//!   firmware     [burst of a  ][burst of a  ][burst of a  ]
//!   worker a     ^ step        ^ step        ^ step           its queue is never empty
//!   worker b      ^ step        ^ step        ^ step          each finds the firmware busy
//! ```
//! In real time an engine that serves many SSDs comes so: seldom, and with a clock that it has read before.

use super::*;

/// The admin and the I/O queue of client 10, on worker b.
const ADMIN: QueueKey = QueueKey(100);
const LATE: QueueKey = QueueKey(103);
/// Another I/O queue of client 10, on a third worker.
const ABSENT: QueueKey = QueueKey(104);
/// The queue of client 8 is on worker a.
const BUSY: QueueKey = READER;
/// Steps of worker b that a test makes at most.
const ROUNDS: u32 = 10_000;

/// Client 10 is connected, and worker a has as many reads as its queue takes.
fn harness() -> Harness {
    let mut harness = Harness::timed();
    assert!(worker_of(BUSY) != worker_of(LATE) && worker_of(LATE) == worker_of(ADMIN));
    harness.chmod(|entry| entry.any_reader = true);
    let identity = Identity::Client(client(10));
    let cntlid = u16::try_from(harness.connect(ADMIN, 0, identity, CNTLID_ANY).dw0.get()).unwrap();
    harness.enable(ADMIN);
    assert_eq!(refusal(&harness.connect(LATE, 1, identity, cntlid)), None);
    assert_eq!(refusal(&harness.connect(ABSENT, 2, identity, cntlid)), None);
    harness.completions.clear();
    (0..60).for_each(|_| _ = read(&mut harness, BUSY));
    harness
}

fn read(harness: &mut Harness, key: QueueKey) -> u16 {
    let sqe = harness.io(io::READ, key, 0, 1);
    harness.submit(key, sqe)
}

/// Time at which the modelled firmware is free.
fn free(harness: &Harness) -> Time {
    harness.ssd().ftl().firmware_free()
}

/// Worker a steps when another worker's turn is over, and takes a burst. Its host replaces what is done.
/// Then worker b steps.
fn round(harness: &mut Harness) {
    let now = harness.now.max(free(harness) + Span::from_ns(500));
    harness.now = now;
    harness.worker(BUSY).step(now);
    harness.pump();
    let done = harness.completions.extract_if(.., |done| done.queue == BUSY).count();
    assert!(done > 0, "worker a goes on, whatever worker b waits for");
    (0..done).for_each(|_| _ = read(harness, BUSY));
    assert!(free(harness) > now, "the firmware is busy again");
    harness.worker(LATE).step(now);
    harness.pump();
}

/// Number of rounds until the command is answered.
fn rounds(harness: &mut Harness, key: QueueKey, cid: u16) -> Option<u32> {
    (0..ROUNDS).find(|_| {
        let is_there = harness.take(key, cid).is_some();
        if !is_there {
            round(harness);
        }
        is_there
    })
}

#[test]
fn an_admin_command_is_answered_at_once() {
    let mut harness = harness();
    round(&mut harness);
    for _ in 0..10 {
        let alive = harness.submit(ADMIN, sqe(admin::KEEP_ALIVE));
        assert_eq!(rounds(&mut harness, ADMIN, alive), Some(0));
        round(&mut harness);
    }
}

#[test]
fn a_new_client_connects_at_once() {
    let mut harness = harness();
    round(&mut harness);
    let (admin, queue) = (QueueKey(110), QueueKey(112));
    assert_eq!((worker_of(admin), worker_of(queue)), (2, 1));
    let identity = Identity::Client(client(11));
    let cntlid = u16::try_from(harness.connect(admin, 0, identity, CNTLID_ANY).dw0.get()).unwrap();
    round(&mut harness);
    harness.enable(admin);
    round(&mut harness);
    assert_eq!(refusal(&harness.connect(queue, 1, identity, cntlid)), None);
}

#[test]
fn a_command_of_a_worker_that_was_passed_over_is_taken_with_its_next_step() {
    let mut harness = harness();
    round(&mut harness);
    for _ in 0..10 {
        let late = read(&mut harness, LATE);
        let rounds = rounds(&mut harness, LATE, late);
        assert!(rounds.is_some_and(|rounds| rounds <= 2), "{rounds:?}");
    }
}

#[test]
fn a_worker_that_does_not_run_holds_up_no_other_for_more_than_some_bursts() {
    let mut harness = harness();
    round(&mut harness);
    // The third worker stays the one that has dispatched least.
    let absent = read(&mut harness, ABSENT);
    for _ in 0..10 {
        let late = read(&mut harness, LATE);
        let rounds = rounds(&mut harness, LATE, late);
        assert!(rounds.is_some_and(|rounds| rounds <= 4), "{rounds:?}");
    }
    assert!(harness.take(ABSENT, absent).is_none());
}
