// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several workers on their own threads: when one worker has completed a change, it holds for all workers.

use super::threads::{beside, change};
use super::*;
use gnstor_proto::status::Refusal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const READERS: u32 = 3;

/// The I/O queues of client 8, each on a worker of its own.
fn reader_queue(number: u32) -> QueueKey {
    QueueKey(READER.0 + number)
}

/// A harness whose client 8 has an I/O queue on every worker.
fn harness() -> Harness {
    let mut harness = Harness::new();
    for at in 0..64 {
        harness.write(at * 8, &[1, 2, 3, 4, 5, 6, 7, 8]);
    }
    let admin = harness.role(QueueKey(80));
    let Some(Role::Admin(cntlid)) = admin else { panic!("client 8 is connected") };
    for number in 1..READERS {
        let qid = u16::try_from(number + 1).unwrap();
        assert_eq!(
            refusal(&harness.connect(reader_queue(number), qid, Identity::Client(client(8)), cntlid)),
            None
        );
    }
    harness
}

fn read_sqe(vba: u32, map_epoch: u32) -> Sqe {
    let address = Address { vid: vid(VOLUME), client: client(8), vba };
    let mut sqe = sqe(io::READ);
    let stamp = Stamp { lease_epoch: LEASE, sequence: 0 };
    ReadWrite { slba: Slba::pack(address), blocks: 1, fua: false, map_epoch, stamp }.encode(&mut sqe);
    sqe.dptr = KeyedSgl::keyed(0, 4096, KEY);
    sqe
}

/// The results of a thread's reads.
#[derive(Debug, Default)]
struct Seen {
    allowed: u64,
    refused: u64,
}

/// State that the readers share with the daemon's thread.
#[derive(Default)]
struct World {
    /// Odd while rights are taken away and every worker knows it.
    epoch: AtomicU64,
    stop: AtomicBool,
    /// Times that a reader has been round.
    turns: AtomicU64,
}

impl World {
    /// Lets the readers go round, also where the machine has not let them run yet.
    fn let_read(&self) {
        let from = self.turns.load(Ordering::Relaxed);
        for _ in 0..1_000_000 {
            if self.turns.load(Ordering::Relaxed) >= from + 64 {
                return;
            }
            std::thread::yield_now();
        }
    }
}

/// Takes the worker's effects. Returns the completed commands.
fn drain(worker: &mut Worker, under_way: &mut Vec<(TransferId, bool)>, seen: &mut Seen) -> u32 {
    let mut completed = 0;
    while let Some(effect) = worker.pop_effect() {
        match effect {
            Effect::Push { transfer, role, .. } => under_way.push((transfer, role != PushRole::Alone)),
            Effect::Complete { cqe, .. } => {
                completed += 1;
                match refusal(&cqe) {
                    None => seen.allowed += 1,
                    Some(Refusal::NotAReader) => seen.refused += 1,
                    Some(other) => panic!("{other:?}"),
                }
            }
            _ => panic!("{effect:?}"),
        }
    }
    completed
}

/// Reads on one worker until told to stop.
fn read_on(worker: &mut Worker, key: QueueKey, map_epoch: u32, world: &World) -> Seen {
    let World { epoch, stop, turns } = world;
    let (mut seen, mut dice) = (Seen::default(), u64::from(key.0));
    let now = Time::from_ns(2000);
    let mut under_way: Vec<(TransferId, bool)> = Vec::new();
    let mut out = 0;
    while !stop.load(Ordering::Relaxed) || out > 0 {
        turns.fetch_add(1, Ordering::Relaxed);
        dice = gnstor_proto::placement::mix64(dice);
        if !stop.load(Ordering::Relaxed) && out < 8 {
            let before = epoch.load(Ordering::SeqCst);
            worker.submit(now, key, &read_sqe(u32::try_from(dice % 512).unwrap(), map_epoch));
            out += 1;
            let effect = worker.pop_effect();
            let after = epoch.load(Ordering::SeqCst);
            if let Some(Effect::Push { transfer, role, .. }) = effect {
                assert!(before != after || before.is_multiple_of(2), "a read was begun without rights");
                under_way.push((transfer, role != PushRole::Alone));
            } else if let Some(Effect::Complete { cqe, .. }) = effect {
                out -= 1;
                assert_eq!(refusal(&cqe), Some(Refusal::NotAReader));
                seen.refused += 1;
            }
        }
        if dice.is_multiple_of(3)
            && let Some((transfer, is_answer)) = under_way.pop()
        {
            assert_eq!(
                epoch.load(Ordering::SeqCst) % 2,
                0,
                "the change of rights completed with a read under way"
            );
            worker.transferred(now, transfer, Outcome::Done { sum: 0 });
            if is_answer {
                (out, seen.allowed) = (out - 1, seen.allowed + 1);
            }
        }
        out -= drain(worker, &mut under_way, &mut seen);
        if stop.load(Ordering::Relaxed)
            && let Some((transfer, is_answer)) = under_way.pop()
        {
            worker.transferred(now, transfer, Outcome::Done { sum: 0 });
            if is_answer {
                (out, seen.allowed) = (out - 1, seen.allowed + 1);
            }
        }
    }
    seen
}

/// Rights go and come back while three threads read without a pause. A revocation that is complete finds
/// no read under way that the old rights allowed, and none begins after it.
#[test]
fn a_revocation_that_is_complete_is_so_on_every_worker() {
    let mut harness = harness();
    let map_epoch = harness.map_epoch;
    let world = World::default();
    let keys: Vec<QueueKey> = (0..READERS).map(reader_queue).collect();
    let read = |worker: &mut Worker, key| read_on(worker, key, map_epoch, &world);
    let seen = beside(&mut harness, &keys, &world.stop, read, |harness, worker| {
        let rounds = if cfg!(debug_assertions) { 200 } else { 2000 };
        world.let_read();
        for round in 0..rounds {
            change(harness, worker, |entry| entry.readers = Vec::new());
            world.epoch.fetch_add(1, Ordering::SeqCst);
            (0..round % 50).for_each(|_| std::thread::yield_now());
            if round < 10 {
                world.let_read();
            }
            world.epoch.fetch_add(1, Ordering::SeqCst);
            change(harness, worker, |entry| entry.readers = vec![client(8)]);
            (0..round % 30).for_each(|_| std::thread::yield_now());
        }
    });
    let (allowed, refused) = seen.iter().fold((0, 0), |(a, r), seen| (a + seen.allowed, r + seen.refused));
    assert!(allowed > 0 && refused > 0, "{seen:?}");
    let ssd = harness.ssd();
    let stats = ssd.stats();
    assert_eq!((ssd.in_flight(), stats.reads), (0, allowed));
    assert_eq!(stats.permits_issued, stats.permits_spent);
    let by_client: u64 = ssd.table.client_counters().find(|row| row.0 == 8).unwrap().2.reads;
    let by_volume: u64 = ssd.table.volume_counters().find(|row| row.0 == VOLUME).unwrap().2.reads;
    assert_eq!((by_client, by_volume), (allowed, allowed));
}

#[test]
fn an_ssd_is_divided_among_at_least_one_worker() {
    let _deadline = crate::deadline::deadline();
    for (asked, made) in [(0, 1), (1, 1), (255, 255), (256, 1)] {
        let preset = Preset::by_name("null").unwrap();
        let capacity_bytes = 64 * 4096;
        let config = SsdConfig { index: 0, preset, capacity_bytes, serial: "X".into(), media: SsdMedia::Ram };
        assert_eq!(Ssd::format(config).unwrap().into_workers(asked).len(), made);
    }
}

/// The head that a host gets advances by one for each command, wherever the command was served.
#[test]
fn the_head_of_a_queue_counts_what_the_worker_and_the_ssd_have_fetched() {
    let mut harness = Harness::new();
    let mut last = None;
    for round in 0..200u32 {
        let (opcode, blocks) = [(io::READ, 1), (io::READ, 2), (io::WRITE, 1)][round as usize % 3];
        let sqe = harness.io(opcode, WRITER, round % 8, blocks);
        let cqe = harness.run(WRITER, sqe);
        assert_eq!(refusal(&cqe), None);
        let head = cqe.sqhd.get();
        assert!(last.is_none_or(|last: u16| (last + 1) % 64 == head), "{last:?} {head}");
        last = Some(head);
    }
}

/// What is left over of a queue does not meet the next one of its key.
#[test]
fn a_key_may_be_used_again() {
    let mut harness = Harness::new();
    harness.write(0, &[1]);
    for _ in 0..600 {
        let sqe = harness.io(io::READ, READER, 0, 1);
        harness.capsule(harness.now, READER, &sqe);
        harness.close_queue(harness.now, READER);
        assert_eq!(harness.pop_effect(), None);
        let Some(Role::Admin(cntlid)) = harness.role(QueueKey(80)) else { panic!("connected") };
        assert_eq!(refusal(&harness.connect(READER, 1, Identity::Client(client(8)), cntlid)), None);
    }
    assert_eq!((harness.in_flight(), harness.stats().permits_forfeited), (0, 600));
    assert!(harness.frames_are_whole());
}

#[test]
fn the_lock_of_the_firmware_is_handed_over_to_a_thread_that_sleeps_for_it() {
    const ROUNDS: usize = 20;
    let harness = harness();
    let [own, other, ..] = harness.workers.as_slice() else { panic!("there are several workers") };
    let try_lock = || own.try_ssd();
    let handed_over = crate::handed_over::rounds_handed_over(ROUNDS, || other.ssd(), try_lock);
    assert!(handed_over * 4 >= ROUNDS * 3, "in {handed_over} of {ROUNDS} rounds");
}
