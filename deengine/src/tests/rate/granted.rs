// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads of a limited volume whose turn has come: the worker of their queue carries them out.

use super::*;

/// A limited read of the writer that begins a second from now, on the daemon's worker.
fn due_read(harness: &mut Harness) -> u16 {
    let read = |harness: &mut Harness| {
        let sqe = harness.io(io::READ, WRITER, 0, 1);
        harness.submit(WRITER, of_limited(sqe))
    };
    read(harness);
    let cid = read(harness);
    harness.now = harness.now + Span::from_ms(1000);
    let now = harness.now;
    harness.worker(DAEMON).step(now);
    cid
}

/// A change of the limited volume's entry.
fn change(harness: &mut Harness) -> u16 {
    let mut next = entry(LIMITED);
    (next.version, next.readers) = (2, Vec::new());
    let sqe = harness.daemon_sqe(opcode::VOLUME_CHMOD, next.encode().as_bytes());
    harness.submit(DAEMON, sqe)
}

#[test]
fn a_change_of_rights_waits_for_a_read_that_has_begun_at_its_turn() {
    let mut harness = limited(Harness::new(), Limits { max_iops: 1, max_bytes_per_s: 0 });
    let read = due_read(&mut harness);
    harness.hold = true;
    harness.pump();
    assert_eq!(harness.held.len(), 1, "it is under way");
    let held = std::mem::take(&mut harness.held);
    harness.hold = false;
    let chmod = change(&mut harness);
    harness.advance(Span::from_ms(1));
    assert!(harness.take(DAEMON, chmod).is_none(), "a read of the older entry is under way");
    held.into_iter().for_each(|effect| harness.carry_out(effect));
    assert_eq!(refusal(&harness.take(WRITER, read).unwrap()), None);
    harness.advance(Span::from_ms(1));
    assert_eq!(refusal(&harness.take(DAEMON, chmod).unwrap()), None);
}

/// The read is on its way from the firmware to the worker of its queue.
#[test]
fn a_read_whose_queue_goes_at_its_turn_holds_up_no_change_of_rights() {
    let mut harness = limited(Harness::new(), Limits { max_iops: 1, max_bytes_per_s: 0 });
    due_read(&mut harness);
    harness.memory.remove(&WRITER);
    harness.close_queue(harness.now, WRITER);
    harness.advance(Span::ZERO);
    let stats = harness.stats();
    let ended = stats.permits_spent + stats.permits_forfeited;
    assert_eq!((harness.in_flight(), stats.permits_forfeited, stats.permits_issued), (0, 1, ended));
    let chmod = change(&mut harness);
    harness.advance(Span::from_ms(1));
    assert_eq!(refusal(&harness.take(DAEMON, chmod).unwrap()), None);
}
