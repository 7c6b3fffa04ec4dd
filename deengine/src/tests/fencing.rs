// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rule 8: a change of rights is complete only when nothing judged by the old ones is left.

use super::*;

/// A harness with one write and one read of [`VOLUME`] that wait for their data. Returns their command ids.
fn with_both_in_flight() -> (Harness, u16, u16) {
    let mut harness = Harness::new();
    harness.write(0, &[1]);
    harness.hold = true;
    harness.poke(WRITER, 0, &block(2));
    let write = harness.io(io::WRITE, WRITER, 0, 1);
    let write = harness.submit(WRITER, write);
    let read = harness.io(io::READ, READER, 0, 1);
    let read = harness.submit(READER, read);
    (harness, write, read)
}

#[test]
fn chmod_completes_when_the_last_older_request_has_drained() {
    let (mut harness, write, read) = with_both_in_flight();
    let chmod = harness.chmod(|entry| entry.readers.clear());
    assert!(harness.take(DAEMON, chmod).is_none());
    let push = harness.held.pop().unwrap();
    harness.carry_out(push);
    assert_eq!(refusal(&harness.take(READER, read).unwrap()), None);
    assert!(harness.take(DAEMON, chmod).is_none(), "the write is still there");
    harness.release(|_| 0);
    assert!(harness.take(WRITER, write).is_some());
    assert_eq!(refusal(&harness.take(DAEMON, chmod).unwrap()), None);
    let sqe = harness.io(io::READ, READER, 0, 1);
    assert_eq!(harness.refused(READER, sqe), Some(Refusal::NotAReader));
}

#[test]
fn a_revoked_writer_is_refused_in_flight() {
    let (mut harness, write, _) = with_both_in_flight();
    harness.chmod(|entry| {
        entry.writer = Some(client(9));
        entry.lease_epoch += 1;
    });
    harness.release(|_| 0);
    assert_eq!(refusal(&harness.take(WRITER, write).unwrap()), Some(Refusal::LeaseHeldByOther));
    let sqe = harness.io(io::READ, READER, 0, 1);
    assert_eq!(harness.refused(READER, sqe), None);
    assert_eq!(harness.peek(READER, 0), block(1), "its data was never mapped");
}

#[test]
fn a_renewal_does_not_refuse_the_writes_under_way() {
    let (mut harness, write, _) = with_both_in_flight();
    let chmod = harness.chmod(|_| {});
    harness.release(|_| 0);
    assert_eq!(refusal(&harness.take(WRITER, write).unwrap()), None);
    assert_eq!(refusal(&harness.take(DAEMON, chmod).unwrap()), None);
    assert_eq!(harness.read(0), block(2));
}

#[test]
fn a_lease_that_ends_while_the_data_travels_refuses_the_write() {
    let (mut harness, write, _) = with_both_in_flight();
    harness.advance(Span::from_ms(10_001));
    harness.release(|_| 0);
    assert_eq!(refusal(&harness.take(WRITER, write).unwrap()), Some(Refusal::LeaseExpired));
}

#[test]
fn a_new_map_refuses_the_write_under_way() {
    let (mut harness, write, _) = with_both_in_flight();
    let mut map = FleetMap::equal(1, 64, 7, 1).unwrap();
    map.epoch = 2;
    let held = std::mem::take(&mut harness.held);
    harness.hold = false;
    harness.set_map(&map);
    harness.held = held;
    harness.release(|_| 0);
    assert_eq!(refusal(&harness.take(WRITER, write).unwrap()), Some(Refusal::StaleMap));
}

#[test]
fn stragglers_lose_their_queues_at_the_deadline() {
    let (mut harness, ..) = with_both_in_flight();
    let chmod = harness.chmod(|entry| entry.readers.clear());
    let end = harness.now + crate::admin::volumes::FENCE_DEADLINE;
    harness.step_to(end - Span::from_ns(1));
    assert!(harness.take(DAEMON, chmod).is_none() && harness.closed.is_empty());
    harness.step_to(end);
    harness.closed.sort_unstable();
    assert_eq!(harness.closed, [WRITER, READER]);
    assert_eq!(refusal(&harness.take(DAEMON, chmod).unwrap()), None);
    assert_eq!(harness.stats().stragglers_closed, 2);
    // What the transfers touch is kept until they are answered, and then it is free again.
    let free = harness.free_frames();
    assert_eq!(harness.in_flight(), 2);
    harness.release(|_| 0);
    assert_eq!((harness.in_flight(), harness.free_frames()), (0, free + 1));
    assert_eq!(harness.stats().unknown_transfers, 0);
}

#[test]
fn delete_refuses_the_write_in_flight_and_waits_for_it() {
    let (mut harness, write, read) = with_both_in_flight();
    let delete = harness.submit(DAEMON, Harness::delete_sqe(1, 2));
    let now = harness.now + Span::from_ms(5);
    harness.step_to(now);
    assert!(harness.take(DAEMON, delete).is_none());
    assert!(
        harness.ssd().table.volume(vid(VOLUME)).is_some(),
        "the id is not free while old requests are in flight"
    );
    harness.release(|_| 0);
    assert_eq!(refusal(&harness.take(WRITER, write).unwrap()), Some(Refusal::Deleting));
    assert_eq!(refusal(&harness.take(READER, read).unwrap()), None);
    assert_eq!(refusal(&harness.take(DAEMON, delete).unwrap()), None);
    harness.step_to(now + Span::from_ms(5));
    assert!(harness.ssd().table.volume(vid(VOLUME)).is_none());
    assert_eq!(harness.mapped_blocks(), 0);
}

#[test]
fn a_client_that_leaves_does_not_hold_up_a_fence() {
    let (mut harness, ..) = with_both_in_flight();
    let chmod = harness.chmod(|_| {});
    for key in [WRITER, READER] {
        harness.memory.remove(&key);
        harness.close_queue(harness.now, key);
    }
    harness.pump();
    assert_eq!(refusal(&harness.take(DAEMON, chmod).unwrap()), None);
}

#[test]
fn effects_not_yet_taken_die_with_their_queue() {
    let mut harness = Harness::new();
    let free = harness.free_frames();
    let mut sqe = harness.io(io::WRITE, WRITER, 0, 4);
    sqe.cid = 500.into();
    harness.capsule(harness.now, WRITER, &sqe);
    harness.close_queue(harness.now, WRITER);
    assert_eq!(harness.pop_effect(), None);
    assert_eq!((harness.in_flight(), harness.free_frames()), (0, free));
}

#[test]
fn a_term_that_jumps_is_refused_even_from_the_daemon() {
    let mut harness = Harness::new();
    let mut map = FleetMap::equal(1, 64, 7, 1).unwrap();
    let last = harness.ssd().table.term();
    for (term, refused) in [
        (u64::MAX, Some(Refusal::InvalidField)),
        (1 << 32, Some(Refusal::InvalidField)),
        (last + (1 << 20) + 1, Some(Refusal::InvalidField)),
        (last + (1 << 20), None),
    ] {
        map.term = term;
        assert_eq!(refusal(&harness.set_map(&map)), refused, "{term}");
    }
}

/// An SSD that takes an old array's place has heard of no term. But none may be so high that the numbers of
/// registrations end.
#[test]
fn the_first_term_of_an_ssd_may_be_any_below_2_to_the_32() {
    for (term, refused) in [(1 << 32, Some(Refusal::InvalidField)), (u64::from(u32::MAX), None)] {
        let mut harness = Harness::connected(0);
        let mut map = FleetMap::equal(1, 64, 7, 1).unwrap();
        map.term = term;
        assert_eq!(refusal(&harness.set_map(&map)), refused, "{term}");
    }
}

/// It would be believed until a restart, and lock out the daemon that the SSD has a durable term of.
#[test]
fn a_command_that_is_refused_leaves_the_term_as_it_is() {
    let mut harness = Harness::new();
    let last = harness.ssd().table.term();
    let newer = |raw, term| VolumeEntry { term, ..entry(raw) };
    let add = |harness: &mut Harness, entry: VolumeEntry| {
        refusal(&harness.volume_command(opcode::VOLUME_ADD, &entry))
    };
    assert_eq!(add(&mut harness, newer(VOLUME, 70)), Some(Refusal::VolumeExists));
    let same = newer(VOLUME, 71);
    let refused = refusal(&harness.volume_command(opcode::VOLUME_CHMOD, &same));
    assert_eq!(refused, Some(Refusal::StaleVersion));
    for (generation, refused) in [(7, Refusal::VolumeAbsent), (0, Refusal::StaleVersion)] {
        let sqe = Sqe { cdw14: 72u32.into(), ..Harness::delete_sqe(generation, 9) };
        assert_eq!(harness.refused(DAEMON, sqe), Some(refused));
    }
    let mut map = FleetMap::equal(1, 64, 7, 1).unwrap();
    (map.term, map.epoch) = (last, 2);
    assert_eq!(refusal(&harness.set_map(&map)), None);
    (map.term, map.epoch) = (73, 1);
    assert_eq!(refusal(&harness.set_map(&map)), Some(Refusal::StaleVersion));
    assert_eq!(harness.ssd().table.term(), last);
    assert_eq!(
        add(&mut harness, newer(VOLUME + 1, 69)),
        None,
        "the terms of the refused commands are not heard"
    );
    assert_eq!(harness.ssd().table.term(), 69);
}
