// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes that workers do alone: together, put off, handed over, and (`in_threads`) on threads of their own.

mod in_threads;

use super::threads::{beside, change, complete};
use super::*;
use gnstor_proto::status::Refusal;

/// A second I/O queue of client 7, on another worker than [`WRITER`].
const OTHER: QueueKey = QueueKey(72);

fn harness() -> Harness {
    let mut harness = Harness::new();
    let Some(Role::Admin(cntlid)) = harness.role(QueueKey(70)) else { panic!("client 7 is connected") };
    assert_eq!(refusal(&harness.connect(OTHER, 2, Identity::Client(client(7)), cntlid)), None);
    assert_ne!(worker_of(WRITER), worker_of(OTHER));
    harness
}

/// Submits writes of these blocks and answers their transfers; they have arrived, and their worker's step
/// has not ended.
fn arrive(harness: &mut Harness, key: QueueKey, blocks: &[u32]) -> Vec<u16> {
    arrive_on(harness, blocks.iter().map(|&vba| (key, vba)))
}

fn arrive_on(harness: &mut Harness, writes: impl Iterator<Item = (QueueKey, u32)>) -> Vec<u16> {
    let mut write = |(key, vba)| {
        harness.poke(key, 0, &block(77));
        (key, harness.io(io::WRITE, key, vba, 1))
    };
    let sqes: Vec<_> = writes.map(&mut write).collect();
    harness.hold = true;
    let ids = sqes.into_iter().map(|(key, sqe)| harness.submit(key, sqe)).collect();
    for effect in std::mem::take(&mut harness.held) {
        let Effect::Pull { queue, .. } = effect else { panic!("{effect:?}") };
        let (transfer, outcome) = harness.moved(effect);
        let now = harness.now;
        harness.worker(queue).transferred(now, transfer, outcome);
    }
    harness.hold = false;
    ids
}

#[test]
fn writes_that_arrive_together_share_one_hold_of_the_lock() {
    let mut harness = harness();
    let before = harness.layer_stats();
    let ids = arrive(&mut harness, WRITER, &[1, 2, 3, 40, 41]);
    assert_eq!(
        harness.layer_stats().commit_holds,
        before.commit_holds,
        "nothing is committed before the step ends"
    );
    assert_eq!(harness.worker(WRITER).next_event(), Some(harness.now));
    harness.pump();
    for cid in ids {
        assert_eq!(refusal(&harness.take(WRITER, cid).unwrap()), None);
    }
    let after = harness.layer_stats();
    assert_eq!((after.host_pages - before.host_pages, after.commit_holds - before.commit_holds), (5, 1));
    assert_eq!(harness.read(41), block(77));
}

#[test]
fn a_write_waits_for_its_next_step_while_another_commits_and_is_not_answered_before() {
    let mut harness = harness();
    let ids = arrive(&mut harness, WRITER, &[5]);
    let ftl = &harness.ssd().share_ftl();
    let commits = ftl.commits();
    let worker = harness.worker(WRITER);
    worker.end_step();
    assert_eq!(worker.pop_effect(), None);
    drop(commits);
    assert_eq!(harness.stats().commits_put_off, 1);
    harness.pump();
    assert_eq!(refusal(&harness.take(WRITER, ids[0]).unwrap()), None);
}

#[test]
fn the_lock_holder_commits_for_all_and_each_worker_completes_its_own() {
    let mut harness = harness();
    let ids = arrive_on(&mut harness, [(WRITER, 5), (OTHER, 6)].into_iter());
    let commit = harness.worker(WRITER).committer();
    let ftl = &harness.ssd().share_ftl();
    let busy = ftl.commits();
    harness.worker(WRITER).end_step();
    harness.worker(OTHER).end_step();
    drop(busy);
    let before = harness.layer_stats();
    commit(harness.now);
    let after = harness.layer_stats();
    assert_eq!((after.host_pages - before.host_pages, after.commit_holds - before.commit_holds), (2, 1));
    harness.worker(OTHER).end_step();
    assert_eq!((harness.worker(WRITER).writes_done(), harness.worker(OTHER).writes_done()), (0, 1));
    harness.pump();
    for (key, cid) in [WRITER, OTHER].into_iter().zip(ids) {
        assert_eq!(refusal(&harness.take(key, cid).unwrap()), None);
    }
    assert_eq!(harness.layer_stats().commit_holds, after.commit_holds);
}

#[test]
fn what_another_has_committed_is_answered_before_the_step_ends() {
    let mut harness = harness();
    let ids = arrive(&mut harness, WRITER, &[5]);
    let commit = harness.worker(WRITER).committer();
    let ftl = &harness.ssd().share_ftl();
    let busy = ftl.commits();
    harness.worker(WRITER).end_step();
    arrive(&mut harness, WRITER, &[6]);
    drop(busy);
    assert_eq!(harness.worker(WRITER).writes_done(), 0, "the first is not committed yet");
    commit(harness.now);
    let (now, next) = (harness.now, harness.io(io::WRITE, WRITER, 7, 1));
    harness.worker(WRITER).submit(now, WRITER, &next);
    assert_eq!(harness.worker(WRITER).writes_done(), 1);
    harness.pump();
    assert_eq!(refusal(&harness.take(WRITER, ids[0]).unwrap()), None);
    assert_eq!(harness.worker(WRITER).writes_done(), 3);
}

/// The modelled firmware takes writes of sixteen blocks faster than dies program them. Sooner or later more
/// is under way than a power failure leaves time for (protocol rule 11).
fn slow_to_program() -> Harness {
    Harness::bare_as("gnstor-980pro", 0, 1 << 15).with_clients().with_volume()
}

#[test]
fn writes_for_which_there_is_no_room_stay_with_their_worker_in_their_order() {
    let mut harness = slow_to_program();
    let mut sent: Vec<u16> = Vec::new();
    while harness.layer_stats().stalls == 0 {
        assert!(sent.len() < 10_000);
        let vba = 16 * u32::try_from(sent.len() % 32).unwrap();
        harness.poke(WRITER, 0, &block(sent.len() as u64));
        let sqe = harness.io(io::WRITE, WRITER, vba, 16);
        sent.push(harness.submit(WRITER, sqe));
        harness.step_to(harness.now + Span::from_ns(1500));
    }
    // Further writes come after the waiting ones, and do not ask the layer each time.
    for _ in 0..20 {
        let sqe = harness.io(io::WRITE, WRITER, 0, 16);
        sent.push(harness.submit(WRITER, sqe));
        harness.step_to(harness.now + Span::from_ns(500));
    }
    assert_eq!(harness.ssd().commands.len(), 0, "the firmware has been asked for none of them");
    let (stalls, done) = (harness.layer_stats().stalls, harness.worker(WRITER).writes_done());
    assert!(stalls <= 3 && done + 20 < sent.len() as u64, "{stalls} stalls, {done} of {} done", sent.len());
    harness.step_to(harness.now + Span::from_ms(100));
    assert_eq!(harness.worker(WRITER).writes_done(), sent.len() as u64);
    let order: Vec<u16> = harness
        .completions
        .iter()
        .filter(|done| done.queue == WRITER)
        .map(|done| done.cqe.cid.get())
        .collect();
    assert!(order.ends_with(&sent));
    let due: Vec<Time> =
        harness.completions.iter().filter(|done| done.queue == WRITER).map(|done| done.at).collect();
    assert!(due.is_sorted());
}

#[test]
fn a_write_that_waits_for_room_gives_way_to_a_change_of_rights() {
    let mut harness = slow_to_program();
    let mut sent = Vec::new();
    while harness.layer_stats().stalls == 0 {
        let sqe = harness.io(io::WRITE, WRITER, 16 * u32::try_from(sent.len() % 32).unwrap(), 16);
        sent.push(harness.submit(WRITER, sqe));
        harness.step_to(harness.now + Span::from_ns(1500));
    }
    let chmod = harness.chmod(|entry| (entry.writer, entry.lease_epoch) = (None, LEASE + 1));
    // At once, and not when it would have been tried again.
    harness.step(harness.now);
    harness.pump();
    let last = harness.take(WRITER, *sent.last().unwrap()).unwrap();
    assert_eq!(refusal(&last), Some(Refusal::LeaseExpired));
    assert_eq!(harness.ssd().commands.len(), 0);
    harness.step_to(harness.now + Span::from_ms(100));
    assert_eq!(refusal(&harness.take(DAEMON, chmod).unwrap()), None);
    assert_eq!(harness.in_flight(), 0);
}

/// A slow disk makes the wait for room long. A fence that waited for it would end the writer's queue.
#[test]
fn a_change_of_rights_waits_for_no_write_that_only_waits_for_room() {
    let mut harness = slow_to_program();
    let mut sent = Vec::new();
    while harness.layer_stats().stalls == 0 {
        let sqe = harness.io(io::WRITE, WRITER, 16 * u32::try_from(sent.len() % 32).unwrap(), 16);
        sent.push(harness.submit(WRITER, sqe));
        harness.step_to(harness.now + Span::from_ns(1500));
    }
    for _ in 0..40 {
        let sqe = harness.io(io::WRITE, WRITER, 0, 16);
        sent.push(harness.submit(WRITER, sqe));
    }
    let last = *sent.last().unwrap();
    let before = harness.layer_stats().host_pages;
    let chmod = harness.chmod(|entry| entry.readers.push(client(9)));
    let changed = loop {
        if let Some(cqe) = harness.take(DAEMON, chmod) {
            break cqe;
        }
        assert!(harness.take(WRITER, last).is_none(), "the change waited for the last write");
        harness.step_to(harness.now + Span::from_ns(500));
    };
    assert_eq!(refusal(&changed), None);
    assert!(harness.take(WRITER, last).is_none(), "there is no room yet");
    // Each write has 16 blocks. Some 40 of them wait, and 16 test whether there is room.
    let got_room = (harness.layer_stats().host_pages - before) / 16;
    assert!(got_room < 4, "the change waited until {got_room} writes had got room");
    harness.step_to(harness.now + Span::from_ms(100));
    assert_eq!(refusal(&harness.take(WRITER, last).expect("there was room")), None);
    // It counts under the new entry, and a change of that waits for it.
    assert_eq!((harness.in_flight(), harness.stats().stragglers_closed), (0, 0));
    let chmod = harness.chmod(|entry| entry.readers.clear());
    harness.step(harness.now);
    harness.pump();
    assert_eq!(refusal(&harness.take(DAEMON, chmod).unwrap()), None);
}

#[test]
fn a_write_that_is_submitted_is_committed_before_its_queue_ends() {
    let mut harness = harness();
    arrive(&mut harness, WRITER, &[7, 8]);
    let ftl = &harness.ssd().share_ftl();
    let commits = ftl.commits();
    harness.worker(WRITER).end_step();
    drop(commits);
    harness.memory.remove(&WRITER);
    harness.close_queue(harness.now, WRITER);
    harness.pump();
    assert_eq!((harness.mapped_blocks(), harness.in_flight(), harness.stats().permits_forfeited), (2, 0, 0));
    assert!(harness.frames_are_whole());
}

#[test]
fn a_write_that_is_submitted_is_judged_again_where_the_rules_change() {
    let mut harness = harness();
    let ids = arrive(&mut harness, WRITER, &[6]);
    let ftl = &harness.ssd().share_ftl();
    let commits = ftl.commits();
    harness.worker(WRITER).end_step();
    drop(commits);
    harness.chmod(|entry| {
        entry.writer = Some(client(9));
        entry.lease_epoch += 1;
    });
    assert_eq!(refusal(&harness.take(WRITER, ids[0]).unwrap()), Some(Refusal::LeaseHeldByOther));
    assert_eq!((harness.mapped_blocks(), harness.in_flight()), (0, 0));
    assert!(harness.frames_are_whole());
}

#[test]
fn a_write_that_has_arrived_is_judged_by_the_rules_at_its_commit() {
    let mut harness = harness();
    let ids = arrive(&mut harness, WRITER, &[6]);
    harness.chmod(|entry| {
        entry.writer = Some(client(9));
        entry.lease_epoch += 1;
    });
    assert_eq!(refusal(&harness.take(WRITER, ids[0]).unwrap()), Some(Refusal::LeaseHeldByOther));
    assert_eq!((harness.mapped_blocks(), harness.in_flight()), (0, 0));
    assert!(harness.frames_are_whole());
}

#[test]
fn a_worker_whose_clock_is_behind_judges_by_the_latest_of_all() {
    let mut harness = harness();
    let ids = arrive(&mut harness, WRITER, &[5]);
    let later = harness.now + Span::from_ms(11_000);
    harness.worker(OTHER).step(later);
    // Submitted as of this worker's time, it would be found stale as of the other's, again and again.
    harness.worker(WRITER).end_step();
    harness.pump();
    assert!(refusal(&harness.take(WRITER, ids[0]).unwrap()).is_some(), "the lease is over");
    assert_eq!(harness.layer_stats().host_pages, 0);
}

/// The worker's two answers about a lease disagree for a microsecond: `runs_until` says that it is over,
/// `confirm` that it runs. The worker leaves such a write to the SSD, and does not submit it again and
/// again.
#[test]
fn a_write_in_the_instant_at_which_the_two_ends_of_a_lease_disagree_is_completed() {
    for (before_end, want) in [(500, None), (1, None), (0, Some(Refusal::LeaseExpired))] {
        let mut harness = harness();
        harness.ssd().table.end_early(Span::from_ns(1_000));
        let end = harness.now + Span::from_ms(10_000);
        harness.chmod(|_| {});
        let ids = arrive(&mut harness, WRITER, &[6]);
        harness.now = end.before(Span::from_ns(before_end));
        harness.step(harness.now);
        harness.pump();
        assert_eq!(refusal(&harness.take(WRITER, ids[0]).unwrap()), want, "{before_end} ns before the end");
        assert_eq!(harness.mapped_blocks(), u64::from(want.is_none()));
    }
}

#[test]
fn a_write_that_has_arrived_ends_with_its_lease() {
    let mut harness = harness();
    let ids = arrive(&mut harness, WRITER, &[6]);
    harness.advance(Span::from_ms(10_001));
    assert_eq!(refusal(&harness.take(WRITER, ids[0]).unwrap()), Some(Refusal::LeaseExpired));
    assert_eq!(harness.mapped_blocks(), 0);
}

#[test]
fn a_write_that_has_arrived_dies_with_its_queue() {
    let mut harness = harness();
    arrive(&mut harness, WRITER, &[7, 8]);
    harness.memory.remove(&WRITER);
    harness.close_queue(harness.now, WRITER);
    harness.pump();
    assert_eq!((harness.mapped_blocks(), harness.in_flight(), harness.stats().permits_forfeited), (0, 0, 2));
    assert!(harness.frames_are_whole());
}

#[test]
fn what_a_worker_hands_over_is_counted_once() {
    let mut harness = harness();
    let before = harness.stats();
    harness.write(1, &[1, 2, 3]);
    let mut fua = harness.io(io::WRITE, WRITER, 4, 2);
    fua.cdw12 = (fua.cdw12.get() | 1 << 30).into();
    assert_eq!(harness.refused(WRITER, fua), None);
    let after = harness.stats();
    assert_eq!((after.writes - before.writes, after.blocks_written - before.blocks_written), (2, 5));
    assert_eq!(after.permits_issued, after.permits_spent);
    let ssd = harness.ssd();
    let of_volume = ssd.table.volume_counters().find(|row| row.0 == VOLUME).unwrap().2;
    let of_client = ssd.table.client_counters().find(|row| row.0 == 7).unwrap().2;
    for counters in [of_volume, of_client] {
        assert_eq!((counters.writes, counters.blocks_written), (2, 5));
    }
    assert_eq!((ssd.activity().write_commands, ssd.activity().blocks_written, ssd.in_flight()), (2, 5, 0));
}
