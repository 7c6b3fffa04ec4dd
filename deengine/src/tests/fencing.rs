// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rule 8: a change of rights is complete only when nothing judged by the old ones is left.

use super::*;

/// A rig with one write and one read of [`VOLUME`] waiting for their data; their command ids.
fn with_both_in_flight() -> (Rig, u16, u16) {
    let mut rig = Rig::new();
    rig.write(0, &[1]);
    rig.hold = true;
    rig.poke(WRITER, 0, &block(2));
    let write = rig.io(io::WRITE, WRITER, 0, 1);
    let write = rig.submit(WRITER, write);
    let read = rig.io(io::READ, READER, 0, 1);
    let read = rig.submit(READER, read);
    (rig, write, read)
}

#[test]
fn chmod_completes_when_the_last_older_request_has_drained() {
    let (mut rig, write, read) = with_both_in_flight();
    let chmod = rig.chmod(|entry| entry.readers.clear());
    assert!(rig.take(DAEMON, chmod).is_none());
    let push = rig.held.pop().unwrap();
    rig.carry_out(push);
    assert_eq!(refusal(&rig.take(READER, read).unwrap()), None);
    assert!(rig.take(DAEMON, chmod).is_none(), "the write is still there");
    rig.release(|_| 0);
    assert!(rig.take(WRITER, write).is_some());
    assert_eq!(refusal(&rig.take(DAEMON, chmod).unwrap()), None);
    let sqe = rig.io(io::READ, READER, 0, 1);
    assert_eq!(rig.refused(READER, sqe), Some(Refusal::NotAReader));
}

#[test]
fn a_revoked_writer_is_refused_in_flight() {
    let (mut rig, write, _) = with_both_in_flight();
    rig.chmod(|entry| {
        entry.writer = Some(client(9));
        entry.lease_epoch += 1;
    });
    rig.release(|_| 0);
    assert_eq!(refusal(&rig.take(WRITER, write).unwrap()), Some(Refusal::LeaseHeldByOther));
    let sqe = rig.io(io::READ, READER, 0, 1);
    assert_eq!(rig.refused(READER, sqe), None);
    assert_eq!(rig.peek(READER, 0), block(1), "its data was never mapped");
}

#[test]
fn a_renewal_does_not_refuse_the_writes_under_way() {
    let (mut rig, write, _) = with_both_in_flight();
    let chmod = rig.chmod(|_| {});
    rig.release(|_| 0);
    assert_eq!(refusal(&rig.take(WRITER, write).unwrap()), None);
    assert_eq!(refusal(&rig.take(DAEMON, chmod).unwrap()), None);
    assert_eq!(rig.read(0), block(2));
}

#[test]
fn a_lease_that_ends_while_the_data_travels_refuses_the_write() {
    let (mut rig, write, _) = with_both_in_flight();
    rig.advance(Span::from_ms(10_001));
    rig.release(|_| 0);
    assert_eq!(refusal(&rig.take(WRITER, write).unwrap()), Some(Refusal::LeaseExpired));
}

#[test]
fn a_new_map_refuses_the_write_under_way() {
    let (mut rig, write, _) = with_both_in_flight();
    let mut map = FleetMap::equal(1, 64, 7, 1).unwrap();
    map.epoch = 2;
    let held = std::mem::take(&mut rig.held);
    rig.hold = false;
    rig.set_map(&map);
    rig.held = held;
    rig.release(|_| 0);
    assert_eq!(refusal(&rig.take(WRITER, write).unwrap()), Some(Refusal::StaleMap));
}

#[test]
fn stragglers_lose_their_queues_at_the_deadline() {
    let (mut rig, ..) = with_both_in_flight();
    let chmod = rig.chmod(|entry| entry.readers.clear());
    let end = rig.now + crate::volumes::FENCE_DEADLINE;
    rig.step_to(end - Span::from_ns(1));
    assert!(rig.take(DAEMON, chmod).is_none() && rig.closed.is_empty());
    rig.step_to(end);
    rig.closed.sort_unstable();
    assert_eq!(rig.closed, [WRITER, READER]);
    assert_eq!(refusal(&rig.take(DAEMON, chmod).unwrap()), None);
    assert_eq!(rig.stats().stragglers_closed, 2);
    // What the transfers touch is kept until they are answered, and then it is free again.
    let free = rig.free_frames();
    assert_eq!(rig.in_flight(), 2);
    rig.release(|_| 0);
    assert_eq!((rig.in_flight(), rig.free_frames()), (0, free + 1));
    assert_eq!(rig.stats().unknown_transfers, 0);
}

#[test]
fn delete_refuses_the_write_in_flight_and_waits_for_it() {
    let (mut rig, write, read) = with_both_in_flight();
    let delete = rig.submit(DAEMON, Rig::delete_sqe(1, 2));
    let now = rig.now + Span::from_ms(5);
    rig.step_to(now);
    assert!(rig.take(DAEMON, delete).is_none());
    assert!(rig.ssd().table.volume(vid(VOLUME)).is_some(), "the id is not free while old requests are in flight");
    rig.release(|_| 0);
    assert_eq!(refusal(&rig.take(WRITER, write).unwrap()), Some(Refusal::Deleting));
    assert_eq!(refusal(&rig.take(READER, read).unwrap()), None);
    assert_eq!(refusal(&rig.take(DAEMON, delete).unwrap()), None);
    rig.step_to(now + Span::from_ms(5));
    assert!(rig.ssd().table.volume(vid(VOLUME)).is_none());
    assert_eq!(rig.mapped_blocks(), 0);
}

#[test]
fn a_client_that_leaves_does_not_hold_up_a_fence() {
    let (mut rig, ..) = with_both_in_flight();
    let chmod = rig.chmod(|_| {});
    for key in [WRITER, READER] {
        rig.memory.remove(&key);
        rig.close_queue(rig.now, key);
    }
    rig.pump();
    assert_eq!(refusal(&rig.take(DAEMON, chmod).unwrap()), None);
}

#[test]
fn effects_nobody_has_taken_die_with_their_queue() {
    let mut rig = Rig::new();
    let free = rig.free_frames();
    let mut sqe = rig.io(io::WRITE, WRITER, 0, 4);
    sqe.cid = 500.into();
    rig.capsule(rig.now, WRITER, &sqe);
    rig.close_queue(rig.now, WRITER);
    assert_eq!(rig.pop_effect(), None);
    assert_eq!((rig.in_flight(), rig.free_frames()), (0, free));
}
