// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes that have waited for frames, between the SSD that gives them frames and the worker of their queue.

use super::*;
use gnstor_flash::Frame;
use std::sync::atomic::{AtomicBool, Ordering};

const BLOCKS: u32 = 2;

/// A harness whose client 7 has `count` writes that wait for frames. A test has all of those.
fn starved(count: u32) -> (Harness, Vec<u16>, Vec<Frame>) {
    assert_ne!(worker_of(WRITER), worker_of(DAEMON));
    let (mut harness, mut frames) = (Harness::new(), Vec::new());
    harness.ssd().ftl().take_frames(u32::MAX, |frame| frames.push(frame));
    let write = |nth| {
        let sqe = harness.io(io::WRITE, WRITER, nth * BLOCKS, BLOCKS);
        harness.submit(WRITER, sqe)
    };
    let cids = (0..count).map(write).collect();
    assert_eq!(harness.in_flight(), count as usize);
    (harness, cids, frames)
}

/// As [`starved`]. Then there are frames, and the SSD gives them to the writes, in a step of the daemon's
/// worker. The worker of the writes has not heard of it.
fn granted(count: u32) -> (Harness, Vec<u16>) {
    let (mut harness, cids, frames) = starved(count);
    harness.ssd().ftl().give_frames(frames.into_iter());
    harness.now = harness.now + Span::from_ms(1);
    let now = harness.now;
    harness.worker(DAEMON).step(now);
    assert_eq!((shares(&harness), harness.in_flight()), (count * BLOCKS, count as usize));
    (harness, cids)
}

/// Frames that count for client 7 while its data is under way.
fn shares(harness: &Harness) -> u32 {
    let of_workers = harness.workers.iter().map(|worker| worker.share_of(client(7))).sum::<u32>();
    of_workers + harness.ssd().commands.frames_of(client(7))
}

fn assert_over(harness: &Harness) {
    let stats = harness.stats();
    assert_eq!(stats.permits_issued, stats.permits_spent + stats.permits_forfeited);
    assert_eq!((shares(harness), harness.in_flight(), harness.frames_are_whole()), (0, 0, true));
}

/// The daemon changes [`VOLUME`], and only its own worker runs meanwhile.
fn chmod_alone(harness: &mut Harness, change: impl FnOnce(&mut VolumeEntry)) -> u16 {
    let mut next = harness.ssd().table.volume(vid(VOLUME)).unwrap().entry().clone();
    next.version += 1;
    change(&mut next);
    harness.next_cid += 1;
    let cid = harness.next_cid;
    let sqe = harness.daemon_sqe(opcode::VOLUME_CHMOD, next.encode().as_bytes());
    harness.capsule(harness.now, DAEMON, &Sqe { cid: cid.into(), ..sqe });
    while let Some(effect) = harness.worker(DAEMON).pop_effect() {
        match effect {
            Effect::Complete { queue, cqe, at, pushed_bytes } => {
                harness.completions.push(Completion { queue, cqe, at, pushed_bytes });
            }
            _ => {
                let (transfer, outcome) = harness.moved(effect);
                let now = harness.now;
                harness.worker(DAEMON).transferred(now, transfer, outcome);
            }
        }
    }
    cid
}

fn is_complete(harness: &mut Harness, chmod: u16) -> bool {
    harness.take(DAEMON, chmod).is_some_and(|cqe| refusal(&cqe).is_none())
}

fn take_from_writer(entry: &mut VolumeEntry) {
    entry.writer = Some(client(9));
    entry.lease_epoch += 1;
}

#[test]
fn a_queue_that_ends_before_its_worker_takes_its_writes_gives_their_frames_back() {
    let (mut harness, _) = granted(3);
    harness.memory.remove(&WRITER);
    harness.hold = true;
    harness.close_queue(harness.now, WRITER);
    assert_over(&harness);
    harness.advance(Span::ZERO);
    assert_eq!((harness.held.len(), harness.stats().permits_forfeited), (0, 3));
    let chmod = harness.chmod(|entry| entry.readers.clear());
    assert_eq!(refusal(&harness.take(DAEMON, chmod).expect("nothing is in flight")), None);
}

#[test]
fn a_queue_that_ends_while_the_data_of_its_writes_is_under_way_gives_their_frames_back() {
    let (mut harness, _) = granted(3);
    harness.hold = true;
    harness.pump();
    assert_eq!(harness.held.len(), 3 * BLOCKS as usize);
    harness.memory.remove(&WRITER);
    harness.close_queue(harness.now, WRITER);
    let chmod = harness.chmod(|entry| entry.readers.clear());
    assert_eq!(refusal(&harness.take(DAEMON, chmod).expect("nothing is in flight")), None);
    assert!(!harness.frames_are_whole(), "data may still come");
    harness.release(|_| 0);
    assert_over(&harness);
    assert_eq!((harness.mapped_blocks(), harness.stats().permits_forfeited), (0, 3));
}

/// What is left over of a queue does not meet the next one of its name.
#[test]
fn a_queue_with_the_name_of_one_that_has_ended_gets_none_of_its_writes() {
    let (mut harness, _) = granted(1);
    let name = harness.worker(WRITER).name(WRITER);
    let request = CmRequest { qid: 1.into(), hrqsize: 64.into(), hsqsize_z: 63.into(), ..Default::default() };
    let has_name = |harness: &mut Harness| {
        harness.close_queue(harness.now, WRITER);
        harness.open_queue(harness.now, WRITER, &request).unwrap();
        harness.worker(WRITER).name(WRITER) == name
    };
    assert!((0..1 << 12).any(|_| has_name(&mut harness)), "names are used again");
    harness.hold = true;
    harness.advance(Span::ZERO);
    assert_eq!(harness.held.len(), 0);
    assert_over(&harness);
}

#[test]
fn a_change_of_rights_waits_until_the_worker_has_judged_a_granted_write() {
    let (mut harness, cids) = granted(1);
    let chmod = chmod_alone(&mut harness, |entry| entry.readers.clear());
    harness.now = harness.now + Span::from_ms(1);
    let now = harness.now;
    harness.worker(DAEMON).step(now);
    assert!(!is_complete(&mut harness, chmod), "a write of the older entry is in flight");
    // The current entry allows it, so the change need not wait for its data.
    harness.hold = true;
    harness.pump();
    harness.advance(Span::ZERO);
    assert_eq!(harness.held.len(), BLOCKS as usize);
    assert!(is_complete(&mut harness, chmod));
    harness.release(|_| 0);
    assert_eq!(refusal(&harness.take(WRITER, cids[0]).unwrap()), None);
    assert_over(&harness);
}

#[test]
fn a_change_of_rights_waits_for_the_data_of_a_granted_write() {
    let (mut harness, cids) = granted(1);
    harness.hold = true;
    harness.pump();
    let chmod = harness.chmod(|entry| entry.readers.clear());
    assert!(!is_complete(&mut harness, chmod), "a write of the older entry is in flight");
    harness.release(|_| 0);
    harness.advance(Span::from_ms(1));
    assert_eq!(refusal(&harness.take(WRITER, cids[0]).unwrap()), None);
    assert!(is_complete(&mut harness, chmod));
    assert_over(&harness);
}

#[test]
fn a_granted_write_is_judged_again_when_its_worker_takes_it() {
    let (mut harness, cids) = granted(1);
    chmod_alone(&mut harness, take_from_writer);
    harness.hold = true;
    harness.pump();
    assert_eq!(harness.held.len(), 0, "its data is not asked for");
    assert_eq!(refusal(&harness.take(WRITER, cids[0]).unwrap()), Some(Refusal::LeaseHeldByOther));
    assert_over(&harness);
}

#[test]
fn a_granted_write_is_judged_again_before_its_commit() {
    let (mut harness, cids) = granted(1);
    harness.hold = true;
    harness.pump();
    harness.chmod(take_from_writer);
    harness.release(|_| 0);
    assert_eq!(refusal(&harness.take(WRITER, cids[0]).unwrap()), Some(Refusal::LeaseHeldByOther));
    assert_eq!(harness.mapped_blocks(), 0);
    assert_over(&harness);
}

#[test]
fn an_ssd_may_be_switched_off_with_granted_writes() {
    drop(granted(3));
    let (mut harness, _) = granted(3);
    harness.hold = true;
    harness.pump();
    assert_eq!(harness.held.len(), 3 * BLOCKS as usize);
}

#[test]
fn a_write_that_finds_too_few_frames_takes_none() {
    let (mut harness, _, mut frames) = starved(1);
    harness.ssd().ftl().give_frame(frames.pop().unwrap());
    for _ in 0..2 {
        let sqe = harness.io(io::WRITE, WRITER, 8, BLOCKS);
        harness.submit(WRITER, sqe);
        harness.advance(Span::from_ms(1));
        assert_eq!((harness.free_frames(), shares(&harness)), (1, 0));
    }
    harness.ssd().ftl().give_frames(frames.into_iter());
    harness.advance(Span::from_ms(1));
    assert_over(&harness);
}

/// Another thread takes all frames and gives them back, again and again. So the SSD sees frames for a write,
/// and finds none when it takes them.
#[test]
fn writes_that_wait_are_all_carried_out_in_order_while_others_take_the_frames() {
    const WRITES: u32 = 60;
    let (mut rounds, mut met) = (0, 0);
    while met < 3 && rounds < 1000 {
        let (mut harness, cids, frames) = starved(WRITES);
        let (ftl, stop) = (harness.ssd().share_ftl(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut all = frames;
                while !stop.load(Ordering::Relaxed) {
                    ftl.give_frames(all.drain(..));
                    ftl.take_frames(u32::MAX, |frame| all.push(frame));
                }
                ftl.give_frames(all.drain(..));
            });
            for _ in 0..1000 {
                harness.advance(Span::from_ns(200_000));
            }
            stop.store(true, Ordering::Relaxed);
        });
        harness.advance(Span::from_ms(1));
        let ended = harness.completions.extract_if(.., |done| done.queue == WRITER);
        let ended: Vec<_> = ended.map(|done| (done.cqe.cid.get(), refusal(&done.cqe))).collect();
        let in_order: Vec<_> = cids.into_iter().map(|cid| (cid, None)).collect();
        assert_eq!(ended, in_order);
        assert_over(&harness);
        let tries = harness.ssd().commands.tried_and_judged().0;
        (rounds, met) = (rounds + 1, met + tries - u64::from(WRITES));
    }
    println!("summary {met} writes found no frames at their turn, in {rounds} rounds");
}
