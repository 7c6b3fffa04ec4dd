// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writers on threads of their own, beside changes of rights and sweeps.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// State that the writers share with the daemon's thread.
#[derive(Default)]
struct World {
    /// Odd while the right to write is gone and the daemon has been told so.
    epoch: AtomicU64,
    lease: AtomicU64,
    stop: AtomicBool,
    /// Writes that succeeded, and writes that were refused.
    done: AtomicU64,
    refused: AtomicU64,
}

impl World {
    fn seen(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }

    /// A sufficient number of rounds, and more if the machine has not let the writers run.
    fn rounds(&self) -> impl Iterator<Item = u64> {
        (0..100 * ROUNDS).take_while(|&round| round < ROUNDS || self.seen().0 == 0 || self.seen().1 == 0)
    }
}

/// Writes on one worker until told to stop.
fn write_on(worker: &mut Worker, key: QueueKey, map_epoch: u32, world: &World) {
    let (mut out, mut sequence) = (0, u64::from(key.0) << 32);
    let mut dice = u64::from(key.0);
    let mut now = Time::from_ns(2000);
    let mut under_way: Vec<TransferId> = Vec::new();
    while !world.stop.load(Ordering::Relaxed) || out > 0 {
        dice = gnstor_proto::placement::mix64(dice);
        if world.stop.load(Ordering::Relaxed) {
            // A write that waits for collection waits for time, and only this thread lets time pass.
            now = now + Span::from_ns(1000);
        } else if out < 8 {
            sequence += 1;
            let address =
                Address { vid: vid(VOLUME), client: client(7), vba: u32::try_from(dice % 512).unwrap() };
            let lease_epoch = u32::try_from(world.lease.load(Ordering::Relaxed)).unwrap();
            let mut sqe = sqe(io::WRITE);
            let stamp = Stamp { lease_epoch, sequence };
            ReadWrite {
                slba: Slba::pack(address),
                blocks: 1,
                fua: dice.is_multiple_of(61),
                map_epoch,
                stamp,
            }
            .encode(&mut sqe);
            sqe.dptr = KeyedSgl::keyed(0, 4096, KEY);
            worker.submit(now, key, &sqe);
            out += 1;
        }
        if dice.is_multiple_of(3) || world.stop.load(Ordering::Relaxed) {
            under_way
                .pop()
                .into_iter()
                .for_each(|transfer| worker.transferred(now, transfer, Outcome::Done { sum: 0 }));
        }
        let before = world.epoch.load(Ordering::SeqCst);
        let committed = worker.writes_done();
        worker.step(now);
        let committed = worker.writes_done() - committed;
        let after = world.epoch.load(Ordering::SeqCst);
        assert!(
            committed == 0 || before != after || before.is_multiple_of(2),
            "committed without the right to write"
        );
        while let Some(effect) = worker.pop_effect() {
            match effect {
                Effect::Pull { transfer, .. } => under_way.push(transfer),
                Effect::Complete { cqe, .. } => {
                    out -= 1;
                    let seen = if refusal(&cqe).is_none() { &world.done } else { &world.refused };
                    seen.fetch_add(1, Ordering::Relaxed);
                }
                _ => panic!("{effect:?}"),
            }
        }
    }
}

/// Runs one writer on each worker except the daemon's, and `daemon` beside them. Returns the writers'
/// results.
fn beside_writers(
    harness: &mut Harness,
    world: &World,
    daemon: impl FnOnce(&mut Harness, &mut Worker),
) -> (u64, u64) {
    let map_epoch = harness.map_epoch;
    world.lease.store(LEASE.into(), Ordering::Relaxed);
    let write = |worker: &mut Worker, key| write_on(worker, key, map_epoch, world);
    let commit = harness.worker(WRITER).committer();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // A third thread commits for both writers in turns of 512 rounds.
            for round in 0u32.. {
                if world.stop.load(Ordering::Relaxed) {
                    return;
                }
                if round / 512 % 2 == 0 {
                    commit(Time::from_ns(2000));
                } else {
                    std::thread::yield_now();
                }
            }
        });
        beside(harness, &[WRITER, OTHER], &world.stop, write, daemon);
    });
    world.seen()
}

const ROUNDS: u64 = if cfg!(debug_assertions) { 100 } else { 1000 };

/// The right to write is taken away and comes back while two workers write without a pause. After its end is
/// complete nothing is committed any more.
#[test]
fn a_lease_that_was_taken_away_commits_nothing_on_any_worker() {
    take_the_lease_away(false);
}

/// Writes wait for frames, and have them shortly before the right to write is taken away, or after.
#[test]
fn a_lease_that_was_taken_away_commits_nothing_that_has_waited_for_frames() {
    take_the_lease_away(true);
}

fn take_the_lease_away(is_short_of_frames: bool) {
    let (mut harness, world) = (harness(), World::default());
    let ftl = &harness.ssd().share_ftl();
    let (done, refused) = beside_writers(&mut harness, &world, |harness, worker| {
        for round in 0..100 * ROUNDS {
            // More rounds if the machine has not let the writers run, or none has waited for frames.
            let (tries, judged) = worker.ssd().commands.tried_and_judged();
            let has_waited = !is_short_of_frames || tries > 0 && judged > 0;
            if round >= ROUNDS && has_waited && world.seen().0 > 0 && world.seen().1 > 0 {
                break;
            }
            let mut frames = Vec::new();
            if is_short_of_frames {
                ftl.take_frames(u32::MAX, |frame| frames.push(frame));
                (0..round % 64).for_each(|_| std::thread::yield_now());
            }
            if round % 4 > 0 {
                ftl.give_frames(frames.drain(..));
            }
            (0..round % 8).for_each(|_| std::thread::yield_now());
            change(harness, worker, |entry| {
                (entry.writer, entry.lease_epoch) = (None, entry.lease_epoch + 1)
            });
            world.epoch.fetch_add(1, Ordering::SeqCst);
            (0..round % 40).for_each(|_| std::thread::yield_now());
            world.epoch.fetch_add(1, Ordering::SeqCst);
            ftl.give_frames(frames.drain(..));
            change(harness, worker, |entry| entry.writer = Some(client(7)));
            world.lease.fetch_add(1, Ordering::Relaxed);
            (0..round % 30).for_each(|_| std::thread::yield_now());
        }
    });
    assert!(done > 0 && refused > 0, "{done} {refused}");
    let stats = harness.stats();
    assert_eq!((harness.in_flight(), stats.writes, stats.permits_spent), (0, done, stats.permits_issued));
    assert!(harness.frames_are_whole());
    let (tries, judged) = harness.ssd().commands.tried_and_judged();
    println!("summary {done} writes, {tries} tries for frames, {judged} judged while they waited");
    assert!(!is_short_of_frames || tries > 0 && judged > 0, "some have waited");
}

/// Volumes are deleted while clients write to them. Nothing of a life that is over stays
/// mapped or is remembered.
#[test]
fn a_sweep_misses_nothing_that_a_worker_commits() {
    let (mut harness, world) = (harness(), World::default());
    let (done, refused) = beside_writers(&mut harness, &world, |harness, worker| {
        for round in world.rounds() {
            let entry = worker.ssd().table.volume(vid(VOLUME)).unwrap().entry().clone();
            let sqe = Harness::delete_sqe(entry.generation, entry.version + 1);
            complete(harness, worker, &sqe, &[]);
            let mut now = Time::from_ns(2000);
            while worker.ssd().table.volume(vid(VOLUME)).is_some() {
                now = now + Span::from_ns(50_000);
                worker.step(now);
                std::thread::yield_now();
            }
            let ftl = &worker.ssd().share_ftl();
            assert_eq!((ftl.mapped(), ftl.stamp_history(vid(VOLUME))), (0, Vec::new()), "round {round}");
            let next = VolumeEntry { generation: entry.generation + 1, version: 1, ..entry };
            let data = next.encode();
            let sqe = harness.daemon_sqe(opcode::VOLUME_ADD, data.as_bytes());
            complete(harness, worker, &sqe, data.as_bytes());
            (0..round % 30).for_each(|_| std::thread::yield_now());
        }
    });
    assert!(done > 0 && refused > 0, "{done} {refused}");
    assert!(harness.frames_are_whole());
}
