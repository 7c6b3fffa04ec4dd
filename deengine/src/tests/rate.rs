// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rate limits: over time a volume gets what its entry allows, and others are not affected.

mod granted;

use super::*;

const LIMITED: u16 = 6;

fn limited(mut harness: Harness, limits: Limits) -> Harness {
    let raw = VolumeEntry { limits, ..entry(LIMITED) }.encode();
    assert_eq!(refusal(&harness.daemon_out(opcode::VOLUME_ADD, raw.as_bytes())), None);
    harness
}

/// The command, on the limited volume.
fn of_limited(mut sqe: Sqe) -> Sqe {
    sqe.cdw11 = (u32::from(LIMITED) << 16 | (sqe.cdw11.get() & 0xFFFF)).into();
    sqe
}

/// Keeps `depth` commands in flight on the limited volume for `ms`; how many were done.
fn commands_done(harness: &mut Harness, depth: usize, blocks: u32, ms: u64) -> u64 {
    let end = harness.now + Span::from_ms(ms);
    let mut done = 0;
    harness.completions.clear();
    for _ in 0..depth {
        let sqe = harness.io(io::READ, WRITER, 0, blocks);
        harness.submit(WRITER, of_limited(sqe));
    }
    loop {
        let finished = std::mem::take(&mut harness.completions);
        for completion in &finished {
            assert_eq!(refusal(&completion.cqe), None);
            done += 1;
            let sqe = harness.io(io::READ, WRITER, 0, blocks);
            harness.submit(WRITER, of_limited(sqe));
        }
        if finished.is_empty() {
            match harness.next_event().filter(|&at| at <= end) {
                Some(at) => harness.step_to(at),
                None => return done,
            }
        }
    }
}

#[test]
fn commands_per_second_are_met_within_one_percent() {
    let limits = Limits { max_iops: 1500, max_bytes_per_s: 0 };
    let mut harness = limited(Harness::new(), limits);
    let done = commands_done(&mut harness, 32, 1, 4000);
    let (want, burst) = (6000, 150);
    assert!(done.abs_diff(want + burst) <= want / 100, "{done} commands in 4 s");
    let counters = harness.log(DAEMON, start_of(0xC0, 1024)).unwrap();
    let throttled = u64::from_le_bytes(counters[64 * 2 + 48..64 * 2 + 56].try_into().unwrap());
    assert!(throttled >= done - burst - 32, "{throttled} of {done} waited");
}

#[test]
fn bytes_per_second_are_met_within_one_percent() {
    let limits = Limits { max_iops: 0, max_bytes_per_s: 40_960_000 };
    let mut harness = limited(Harness::new(), limits);
    // 65,536 bytes each: 625 a second, and 62.5 of them at once.
    let done = commands_done(&mut harness, 32, 16, 4000);
    assert!(done.abs_diff(2500 + 62) <= 25, "{done} commands in 4 s");
}

#[test]
fn the_tighter_of_two_limits_counts() {
    let limits = Limits { max_iops: 100_000, max_bytes_per_s: 4_096_000 };
    let mut harness = limited(Harness::new(), limits);
    let done = commands_done(&mut harness, 32, 1, 1000);
    assert!(done.abs_diff(1000 + 100) <= 10, "{done} commands in 1 s");
}

#[test]
fn other_volumes_do_not_wait() {
    let mut harness = limited(Harness::timed(), Limits { max_iops: 10, max_bytes_per_s: 0 });
    harness.completions.clear();
    for _ in 0..30 {
        let sqe = harness.io(io::READ, WRITER, 0, 1);
        harness.submit(WRITER, of_limited(sqe));
    }
    let now = harness.now + Span::from_ms(1);
    harness.step_to(now);
    assert_eq!(harness.completions.len(), 1, "what 100 ms bring is one command");
    let latency = |harness: &mut Harness| {
        harness.completions.clear();
        let sqe = harness.io(io::READ, READER, 0, 1);
        harness.submit(READER, sqe);
        harness.completions.pop().unwrap().at.since(harness.now)
    };
    let beside = latency(&mut harness);
    let mut alone = Harness::timed();
    alone.step_to(harness.now);
    assert_eq!(beside, latency(&mut alone));
}

#[test]
fn a_write_waits_and_is_judged_when_its_time_has_come() {
    let limits = Limits { max_iops: 5, max_bytes_per_s: 0 };
    let mut harness = limited(Harness::new(), limits);
    let mut ids = Vec::new();
    for _ in 0..3 {
        let sqe = harness.io(io::WRITE, WRITER, 0, 1);
        ids.push(harness.submit(WRITER, of_limited(sqe)));
    }
    assert!(harness.take(WRITER, ids[0]).is_some() && harness.take(WRITER, ids[1]).is_none());
    // After a commit the SSD looks at the health of the flash.
    harness.step(harness.now);
    assert_eq!(harness.next_event(), Some(harness.now + Span::from_ms(200)));
    // A change of rights does not wait for commands that have not begun.
    let mut next = entry(LIMITED);
    (next.version, next.writer, next.limits) = (2, Some(client(8)), limits);
    assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_CHMOD, &next)), None);
    let abort = Sqe { cdw10: (u32::from(ids[2]) << 16 | 1).into(), ..sqe(admin::ABORT) };
    assert_eq!(harness.run(QueueKey(70), abort).dw0.get(), 0);
    assert_eq!(refusal(&harness.take(WRITER, ids[2]).unwrap()), Some(Refusal::AbortRequested));
    assert!(harness.take(WRITER, ids[1]).is_none(), "its time has not come");
    let end = harness.now + Span::from_ms(200);
    harness.step_to(end);
    assert_eq!(refusal(&harness.take(WRITER, ids[1]).unwrap()), Some(Refusal::LeaseHeldByOther));
    assert_eq!(harness.in_flight(), 0);
}

/// The client that wrote to the deleted volume writes to the new one, too.
#[test]
fn a_write_that_waited_for_a_deleted_volume_is_not_applied_to_the_next_one_with_its_id() {
    let limits = Limits { max_iops: 1, max_bytes_per_s: 0 };
    let mut harness = limited(Harness::new(), limits);
    let first = harness.io(io::WRITE, WRITER, 0, 1);
    assert_eq!(harness.refused(WRITER, of_limited(first)), None);
    let late = harness.io(io::WRITE, WRITER, 1, 1);
    let late = harness.submit(WRITER, of_limited(late));
    let delete = Sqe { cdw12: u32::from(LIMITED).into(), ..Harness::delete_sqe(1, 2) };
    assert_eq!(refusal(&harness.run(DAEMON, delete)), None);
    harness.advance(Span::from_ms(10));
    let again = VolumeEntry { generation: 2, ..entry(LIMITED) };
    assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_ADD, &again)), None);
    harness.step_to(harness.now + Span::from_ms(2000));
    let answer = harness.take(WRITER, late).expect("its time has come");
    assert_eq!(refusal(&answer), Some(Refusal::Deleting));
}

#[test]
fn a_refused_command_costs_the_volume_nothing() {
    let mut harness = limited(Harness::new(), Limits { max_iops: 10, max_bytes_per_s: 0 });
    for _ in 0..50 {
        let sqe = harness.io(io::READ, STRANGER, 0, 1);
        assert_eq!(harness.refused(STRANGER, of_limited(sqe)), Some(Refusal::NotAReader));
    }
    let sqe = harness.io(io::READ, WRITER, 0, 1);
    assert_eq!(harness.refused(WRITER, of_limited(sqe)), None);
}

#[test]
fn a_delayed_command_dies_with_its_queue() {
    let mut harness = limited(Harness::new(), Limits { max_iops: 1, max_bytes_per_s: 0 });
    for _ in 0..3 {
        let sqe = harness.io(io::READ, WRITER, 0, 1);
        harness.submit(WRITER, of_limited(sqe));
    }
    harness.memory.remove(&WRITER);
    harness.close_queue(harness.now, WRITER);
    assert_eq!((harness.in_flight(), harness.stats().permits_forfeited), (0, 2));
    harness.advance(Span::from_ms(5000));
    assert_eq!(harness.in_flight(), 0);
}

/// One command a second, and `count` reads of the writer; `count - 1` of them wait.
fn crowded(count: u32) -> Harness {
    let mut harness = limited(Harness::new(), Limits { max_iops: 1, max_bytes_per_s: 0 });
    for _ in 0..count {
        let sqe = harness.io(io::READ, WRITER, 0, 1);
        harness.submit(WRITER, of_limited(sqe));
    }
    assert_eq!(harness.in_flight(), count as usize - 1);
    harness
}

/// A read of the other client on the limited volume.
fn read_beside(harness: &mut Harness) -> u16 {
    let sqe = harness.io(io::READ, READER, 0, 1);
    harness.submit(READER, of_limited(sqe))
}

fn assert_read_by(harness: &mut Harness, cid: u16, ms: u64) {
    harness.advance(Span::from_ms(ms));
    let cqe = harness.take(READER, cid).expect("its turn has come");
    assert_eq!(refusal(&cqe), None);
}

#[test]
fn commands_of_a_closed_queue_cost_the_volume_nothing_and_others_move_up() {
    let mut harness = crowded(60);
    let behind = read_beside(&mut harness);
    harness.memory.remove(&WRITER);
    harness.close_queue(harness.now, WRITER);
    let later = read_beside(&mut harness);
    assert_read_by(&mut harness, behind, 1000);
    harness.advance(Span::from_ms(900));
    assert!(harness.take(READER, later).is_none(), "one a second");
    assert_read_by(&mut harness, later, 100);
}

#[test]
fn an_aborted_command_costs_the_volume_nothing_and_others_move_up() {
    let mut harness = limited(Harness::new(), Limits { max_iops: 1, max_bytes_per_s: 0 });
    let mut ids = Vec::new();
    for _ in 0..9 {
        let sqe = harness.io(io::READ, WRITER, 0, 1);
        ids.push(harness.submit(WRITER, of_limited(sqe)));
    }
    let behind = read_beside(&mut harness);
    for cid in &ids[1..] {
        let abort = Sqe { cdw10: (u32::from(*cid) << 16 | 1).into(), ..sqe(admin::ABORT) };
        assert_eq!(harness.run(QueueKey(70), abort).dw0.get(), 0);
        assert_eq!(refusal(&harness.take(WRITER, *cid).unwrap()), Some(Refusal::AbortRequested));
    }
    assert_read_by(&mut harness, behind, 1000);
}

#[test]
fn commands_that_are_refused_at_their_turn_cost_the_volume_nothing() {
    let limits = Limits { max_iops: 1, max_bytes_per_s: 0 };
    let mut harness = limited(Harness::new(), limits);
    for _ in 0..9 {
        let sqe = harness.io(io::WRITE, WRITER, 0, 1);
        harness.submit(WRITER, of_limited(sqe));
    }
    let behind = read_beside(&mut harness);
    let mut next = entry(LIMITED);
    (next.version, next.writer, next.limits) = (2, Some(client(8)), limits);
    assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_CHMOD, &next)), None);
    assert_read_by(&mut harness, behind, 1000);
}

#[test]
fn limits_are_listed_and_a_renewal_of_the_lease_fills_no_bucket() {
    let limits = Limits { max_iops: 10, max_bytes_per_s: 77 << 33 };
    let mut harness = limited(Harness::new(), limits);
    let list = Sqe {
        dptr: KeyedSgl::keyed(0, 4096, KEY),
        cdw10: 1024.into(),
        cdw12: u32::from(LIMITED).into(),
        ..sqe(opcode::VOLUME_LIST)
    };
    assert_eq!(harness.refused(DAEMON, list), None);
    assert_eq!(VolumeEntry::decode(harness.peek(DAEMON, 0)).unwrap().limits, limits);
    let sqe = harness.io(io::READ, WRITER, 0, 1);
    assert_eq!(harness.refused(WRITER, of_limited(sqe)), None);
    let raw = VolumeEntry { version: 2, limits, ..entry(LIMITED) }.encode();
    assert_eq!(refusal(&harness.daemon_out(opcode::VOLUME_CHMOD, raw.as_bytes())), None);
    let sqe = harness.io(io::READ, WRITER, 0, 1);
    let cid = harness.submit(WRITER, of_limited(sqe));
    assert!(harness.take(WRITER, cid).is_none(), "the bucket is still empty");
    let raw = VolumeEntry { version: 3, ..entry(LIMITED) };
    assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_CHMOD, &raw)), None);
    let sqe = harness.io(io::READ, WRITER, 0, 1);
    assert_eq!(harness.refused(WRITER, of_limited(sqe)), None, "no limit any more");
}

/// Numbers of commands come again: a slot has 256 ages.
#[test]
fn a_delayed_command_of_a_closed_queue_passes_for_no_later_command_with_its_number() {
    let mut harness = limited(Harness::new(), Limits { max_iops: 1, max_bytes_per_s: 0 });
    harness.write(0, &[1]);
    for _ in 0..2 {
        let sqe = harness.io(io::READ, WRITER, 0, 1);
        harness.submit(WRITER, of_limited(sqe));
    }
    assert_eq!(harness.in_flight(), 1, "one waits for a second");
    harness.memory.remove(&WRITER);
    harness.close_queue(harness.now, WRITER);
    harness.poke(READER, 0, &block(1));
    let compare = |harness: &mut Harness| {
        let sqe = harness.io(io::COMPARE, READER, 0, 1);
        harness.submit(READER, sqe)
    };
    for _ in 0..255 {
        let cid = compare(&mut harness);
        assert_eq!(refusal(&harness.take(READER, cid).unwrap()), None);
    }
    harness.hold = true;
    let cid = compare(&mut harness);
    harness.advance(Span::from_ms(2000));
    harness.hold = false;
    harness.release(|_| 0);
    assert_eq!(refusal(&harness.take(READER, cid).unwrap()), None);
    assert_eq!(harness.in_flight(), 0);
}

/// Otherwise each would wait for its turn, for a volume that is gone.
#[test]
fn commands_that_wait_for_the_rate_of_a_volume_end_when_it_is_deleted() {
    let limits = Limits { max_iops: 5, max_bytes_per_s: 0 };
    let mut harness = limited(Harness::new(), limits);
    let cids: Vec<u16> = (0..20)
        .map(|_| {
            let sqe = harness.io(io::WRITE, WRITER, 0, 1);
            harness.submit(WRITER, of_limited(sqe))
        })
        .collect();
    let waits = |harness: &Harness| harness.ssd().commands.len();
    assert_eq!(waits(&harness), 19);
    let delete = Sqe { cdw12: u32::from(LIMITED).into(), ..Harness::delete_sqe(1, 2) };
    assert_eq!(harness.refused(DAEMON, delete), None);
    harness.advance(Span::from_ms(1));
    assert_eq!(refusal(&harness.take(WRITER, cids[0]).expect("it had its turn")), None);
    for &cid in &cids[1..] {
        let refused = refusal(&harness.take(WRITER, cid).expect("it ends with the volume"));
        assert_eq!(refused, Some(Refusal::Deleting));
    }
    assert_eq!(harness.in_flight(), 0);
}
