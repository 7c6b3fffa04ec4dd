// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads of blocks that are on the disk only, or that a host with DULBE reads: their worker carries them out.
#![expect(clippy::disallowed_methods, reason = "a disk is slow in real time")]

use super::on_file::{ends, with_cold_blocks};
use super::*;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const ADMIN: QueueKey = QueueKey(80);

/// Reads these blocks on a thread of their worker, while this thread has the SSD's lock. Returns the status,
/// unless the worker waits for the lock.
fn reads_beside_the_lock(harness: &mut Harness, blocks: u32) -> Option<u16> {
    let sqe = harness.io(io::READ, READER, 0, blocks);
    let mut worker = harness.workers.remove(worker_of(READER));
    let mut now = harness.now;
    let status = std::thread::scope(|scope| {
        let (ended, end) = mpsc::channel();
        let guard = harness.workers[0].ssd();
        let worker = &mut worker;
        scope.spawn(move || {
            worker.submit(now, READER, &sqe);
            loop {
                let status = match worker.pop_effect() {
                    Some(Effect::Push { transfer, role, .. }) => {
                        if role == PushRole::Part {
                            continue;
                        }
                        worker.transferred(now, transfer, Outcome::Done { sum: 0 });
                        let PushRole::Last(reply) = role else { continue };
                        reply.cqe.status_word()
                    }
                    Some(Effect::Complete { cqe, .. }) => cqe.status_word(),
                    _ => {
                        now = now + Span::from_ns(10_000);
                        worker.step(now);
                        continue;
                    }
                };
                _ = ended.send(status);
                return;
            }
        });
        let status = end.recv_timeout(Duration::from_secs(10)).ok();
        drop(guard);
        status
    });
    harness.workers.insert(worker_of(READER), worker);
    status
}

#[test]
fn cold_blocks_are_read_without_the_lock_of_the_ssd() {
    let (mut harness, _folder) = with_cold_blocks();
    assert_eq!(reads_beside_the_lock(&mut harness, 16), Some(0));
    assert_eq!(harness.in_flight(), 0);
}

#[test]
fn a_host_that_is_told_of_unwritten_blocks_reads_the_others_without_the_lock_of_the_ssd() {
    let mut harness = Harness::new();
    harness.write(0, &[1, 2]);
    let dulbe = Sqe { cdw10: 5.into(), cdw11: (1 << 16).into(), ..sqe(admin::SET_FEATURES) };
    assert_eq!(harness.refused(ADMIN, dulbe), None);
    for (vba, blocks, want) in
        [(0, 2, None), (1, 2, Some(Refusal::Deallocated)), (7, 1, Some(Refusal::Deallocated))]
    {
        let sqe = harness.io(io::READ, READER, vba, blocks);
        assert_eq!(harness.refused(READER, sqe), want, "{blocks} from {vba}");
    }
    assert_eq!(reads_beside_the_lock(&mut harness, 2), Some(0));
    let stats = harness.stats();
    assert_eq!((harness.in_flight(), stats.reads, stats.unmapped_reads), (0, 2, 0));
    assert_eq!(stats.permits_issued, stats.permits_spent);
}

/// A read of all cold blocks, which are still to be loaded.
fn submit_cold(harness: &mut Harness) -> u16 {
    let sqe = harness.io(io::READ, READER, 0, 16);
    let cid = harness.submit(READER, sqe);
    assert!(
        harness.take(READER, cid).is_none() && harness.held.is_empty(),
        "its blocks are still to be loaded"
    );
    cid
}

#[test]
fn a_read_that_waits_for_its_file_is_not_aborted_and_delivers_its_blocks() {
    let (mut harness, _folder) = with_cold_blocks();
    let cid = submit_cold(&mut harness);
    let abort = Sqe { cdw10: (u32::from(cid) << 16 | 1).into(), ..sqe(admin::ABORT) };
    assert_eq!(harness.run(ADMIN, abort).dw0.get(), 1, "it has begun");
    assert_eq!(ends(&mut harness, READER, cid), None);
    (0..16).for_each(|nth| assert_eq!(harness.peek(READER, nth), block(nth as u64 + 1)));
    let stats = harness.stats();
    assert_eq!((stats.permits_issued, harness.in_flight()), (stats.permits_spent, 0));
}

/// Advances until this holds.
fn advance_until(harness: &mut Harness, holds: impl Fn(&Harness) -> bool) {
    let start = Instant::now();
    while !holds(harness) {
        assert!(start.elapsed() < Duration::from_secs(60), "it never holds");
        harness.advance(Span::from_ns(10_000));
    }
}

#[test]
fn a_change_of_rights_waits_for_a_read_that_waits_for_its_file() {
    let (mut harness, _folder) = with_cold_blocks();
    harness.hold = true;
    let read = submit_cold(&mut harness);
    let chmod = harness.chmod(|entry| entry.readers.clear());
    advance_until(&mut harness, |harness| harness.held.len() == 16);
    // The new entry is durable by now, and only the read is left.
    for _ in 0..1000 {
        harness.advance(Span::from_ns(100_000));
    }
    assert!(harness.take(DAEMON, chmod).is_none(), "a read of the older entry is under way");
    harness.release(|_| 0);
    assert_eq!((ends(&mut harness, READER, read), ends(&mut harness, DAEMON, chmod)), (None, None));
    let sqe = harness.io(io::READ, READER, 0, 1);
    assert_eq!(harness.refused(READER, sqe), Some(Refusal::NotAReader));
}

/// The queue goes while the blocks are loaded, and while they are sent.
#[test]
fn a_read_of_a_closed_queue_gives_back_the_frames_of_its_loads() {
    for sent in [false, true] {
        let (mut harness, _folder) = with_cold_blocks();
        let free = harness.free_frames();
        harness.hold = true;
        submit_cold(&mut harness);
        if sent {
            advance_until(&mut harness, |harness| harness.held.len() == 16);
            assert!(harness.free_frames() < free);
        }
        harness.memory.remove(&READER);
        harness.close_queue(harness.now, READER);
        harness.release(|_| 0);
        advance_until(&mut harness, |harness| harness.in_flight() == 0 && harness.free_frames() == free);
        let stats = harness.stats();
        let ended = stats.permits_spent + stats.permits_forfeited;
        assert_eq!((stats.permits_forfeited, stats.permits_issued), (1, ended));
    }
}

#[test]
fn two_workers_and_the_firmware_take_their_own_loads() {
    let (mut harness, _folder) = with_cold_blocks();
    harness.poke(READER, 0, &block(4));
    let sqe = harness.io(io::COMPARE, READER, 3, 1);
    let compare = harness.submit(READER, sqe);
    let reads = [WRITER, READER].map(|key| {
        let sqe = harness.io(io::READ, key, 0, 16);
        (key, harness.submit(key, sqe))
    });
    assert!(harness.completions.is_empty(), "all of them wait for the file");
    assert_eq!(ends(&mut harness, READER, compare), None);
    for (key, cid) in reads {
        assert_eq!(ends(&mut harness, key, cid), None);
        (0..16).for_each(|nth| assert_eq!(harness.peek(key, nth), block(nth as u64 + 1)));
    }
    assert_eq!(harness.in_flight(), 0);
}
