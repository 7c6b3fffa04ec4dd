// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Any 64 bytes as a capsule, on admin and I/O queues: noise, good commands with noise in them, every kind of
//! data pointer. A third are capsules of the corpus, mutated.
//!
//! Each is answered at most once and with one status. An unsupported descriptor moves nothing: data within
//! the capsule, a segment, one without a key. Whatever clients without the right to write send, the blocks,
//! the table and the term do not change. `GNSTOR_FUZZ_SECONDS` and `GNSTOR_FUZZ_SEED` as in `media.rs`.

mod recorded;

use super::media::seeds;
use super::oracle::Dice;
use super::voting::PEER;
use super::*;
use gnstor_hostile::mutate::{bent, inputs};
use gnstor_hostile::random::Random;
use gnstor_proto::placement::map3::FleetMap3;
use std::collections::BTreeSet;
use zerocopy::FromBytes;

/// Seeds of a short run, and capsules of each.
const SEEDS: u64 = 24;
const CAPSULES: u32 = 600;
const BLOCKS: u32 = 32;

/// Queues of hosts that may not write: two clients' admin and I/O queues, one where no host has connected,
/// and another SSD's admin queue.
const UNTRUSTED: [QueueKey; 6] = [QueueKey(80), READER, QueueKey(90), STRANGER, QueueKey(300), PEER];
const ALL: [QueueKey; 9] =
    [DAEMON, QueueKey(70), WRITER, QueueKey(80), READER, QueueKey(90), STRANGER, QueueKey(300), PEER];

/// Types of data descriptors: by address, in the capsule, segments, keyed, and what the standard has not
/// given out.
const KINDS: [u8; 12] = [0x00, 0x01, 0x10, 0x20, 0x21, 0x30, 0x31, 0x40, 0x4F, 0x50, 0xF0, 0xFF];

fn is_taken(kind: u8) -> bool {
    matches!(kind, 0x40 | 0x4F)
}

fn noise(dice: &mut Dice) -> Sqe {
    let bytes: Vec<u8> = (0..8).flat_map(|_| dice.roll().to_le_bytes()).collect();
    Sqe::read_from_bytes(&bytes).expect("64 bytes")
}

fn capsule(harness: &mut Harness, dice: &mut Dice, key: QueueKey, fleet: &FleetMap3, codes: &[u8]) -> Sqe {
    let mut sqe = noise(dice);
    match dice.below(10) {
        0 => return sqe,
        1 | 2 => (sqe.opcode, sqe.flags) = (dice.of(codes), FLAGS_SGL),
        3..6 => {
            let code = dice.of(&[io::READ, io::WRITE, io::COMPARE, io::WRITE_ZEROES, io::DATASET_MANAGEMENT]);
            let blocks = dice.of(&[1, 1, 2, 4]);
            sqe = harness.io(code, key, dice.small(BLOCKS), blocks);
        }
        6 | 7 => {
            let (command, data) = opcodes::of_the_fleet(dice, fleet);
            if harness.memory.contains_key(&key) {
                harness.poke(key, 0, &data);
            }
            sqe = command;
        }
        _ => {
            let code = dice.of(codes);
            let fields = [dice.small(8), dice.small(1 << 12), dice.small(1 << 16), u32::MAX];
            sqe = Sqe {
                dptr: KeyedSgl::keyed(0, 4 * dice.small(2000), KEY),
                cdw10: dice.of(&fields).into(),
                cdw11: dice.of(&fields).into(),
                cdw12: dice.of(&fields).into(),
                ..super::sqe(code)
            };
        }
    }
    if dice.one_in(4) {
        sqe.dptr.kind = dice.of(&KINDS);
    }
    for _ in 0..dice.below(3) {
        let at = dice.index(64);
        sqe.as_mut_bytes()[at] = dice.roll().to_le_bytes()[0];
    }
    sqe
}

/// A capsule of the corpus, mutated or as it is, with its data.
fn of_corpus(harness: &mut Harness, dice: &mut Dice, key: QueueKey, corpus: &[Vec<u8>]) -> Sqe {
    let input = match dice.one_in(4) {
        true => corpus[dice.index(corpus.len())].clone(),
        false => bent(&mut Random::new(dice.roll()), corpus),
    };
    let (sqe, data) = recorded::parts(&input);
    if harness.memory.contains_key(&key) {
        harness.poke(key, 0, data);
    }
    sqe
}

/// The contents of all blocks, and the rights to them.
fn truth(harness: &mut Harness) -> (Vec<Vec<u8>>, Vec<VolumeEntry>, u64) {
    let blocks = (0..BLOCKS).map(|vba| harness.read(vba)).collect();
    let ssd = harness.ssd();
    let entries = [VOLUME, 6].iter().filter_map(|raw| ssd.table.volume(vid(*raw))).map(|v| v.entry().clone());
    (blocks, entries.collect(), ssd.table.term())
}

/// Submits a command and holds its transfers back. Returns its id. An unsupported descriptor moves no data.
fn submit_held(harness: &mut Harness, key: QueueKey, sqe: Sqe) -> u16 {
    harness.hold = true;
    let cid = harness.submit(key, sqe);
    let own = |effect: &Effect| match effect {
        Effect::Pull { queue, .. } | Effect::Push { queue, .. } => *queue == key,
        _ => false,
    };
    let moves = harness.held.iter().any(own);
    let kind = sqe.dptr.kind;
    assert!(is_taken(kind) || !moves, "data moves by a descriptor of type {kind:#x}: {sqe:?}");
    cid
}

/// An SSD alone with a map of format 2, or the only voter of a map of format 3, to which another SSD has
/// connected.
fn target(votes: bool, fleet: &FleetMap3) -> Harness {
    if !votes {
        let mut harness = Harness::new();
        harness.connect(PEER, 0, Identity::Peer(1), CNTLID_ANY);
        return harness;
    }
    let mut harness = voting::with(fleet);
    // It asks itself for its lease.
    harness.step_to(harness.now + Span::from_ms(1));
    harness
}

/// The other SSD may have brought the next map.
fn follow_map(harness: &mut Harness) {
    let map = harness.get_map(DAEMON, 0);
    harness.map_epoch = FleetMap3::decode(&map).expect("a map").wire_epoch();
    harness.step_to(harness.now + Span::from_ms(150));
}

/// Runs one seed. Returns the numbers of succeeded and of refused commands.
fn run(seed: u64) -> [u64; 2] {
    let (mut dice, corpus) = (Dice(seed), inputs(recorded::CORPUS));
    let trusted = dice.one_in(2);
    let fleet = voting::voted(&[0]);
    let (votes, codes) = (dice.one_in(2), opcodes::all());
    let mut harness = target(votes, &fleet);
    (0..BLOCKS).for_each(|vba| assert_eq!(refusal(&harness.write(vba, &[u64::from(vba) + 1])), None));
    harness.open(QueueKey(300), 1, 32);
    let before = truth(&mut harness);
    harness.completions.clear();
    let mut open: BTreeSet<(QueueKey, u16)> = BTreeSet::new();
    let mut counts = [0; 2];
    for _ in 0..CAPSULES {
        let key = dice.of(if trusted { &ALL } else { &UNTRUSTED });
        if !harness.memory.contains_key(&key) {
            harness.open(key, 1, 32);
        }
        if dice.one_in(3) {
            let junk: Vec<u8> = (0..512).flat_map(|_| dice.roll().to_le_bytes()).collect();
            let entry = entry(VOLUME).encode();
            harness.poke(key, 0, if dice.one_in(2) { &junk } else { entry.as_bytes() });
        }
        let sqe = match dice.one_in(3) {
            true => of_corpus(&mut harness, &mut dice, key, &corpus),
            false => capsule(&mut harness, &mut dice, key, &fleet, &codes),
        };
        open.insert((key, submit_held(&mut harness, key, sqe)));
        harness.release(|left| left - 1);
        for completion in std::mem::take(&mut harness.completions) {
            let named = (completion.queue, completion.cqe.cid.get());
            assert!(open.remove(&named), "{named:?} was answered twice, or never asked");
            counts[usize::from(refusal(&completion.cqe).is_some())] += 1;
        }
        open.retain(|(queue, _)| harness.memory.contains_key(queue));
        if dice.one_in(50) {
            harness.advance(Span::from_ms(dice.below(30)));
        }
    }
    if !trusted {
        if votes {
            follow_map(&mut harness);
        }
        let after = truth(&mut harness);
        assert_eq!((&after.1, after.2), (&before.1, before.2), "table and term");
        assert!(after.0 == before.0, "a block was changed by hosts that may not write");
    }
    for key in ALL {
        harness.memory.remove(&key);
        harness.close_queue(harness.now, key);
    }
    harness.pump();
    assert_eq!(harness.in_flight(), 0);
    let stats = harness.stats();
    assert_eq!(stats.permits_issued, stats.permits_spent + stats.permits_forfeited);
    assert!(harness.frames_are_whole(), "no frame is lost");
    counts
}

#[test]
fn any_64_bytes_are_answered_and_change_nothing_that_they_may_not() {
    let mut counts = [0; 2];
    let seeds = seeds(SEEDS, |seed| {
        println!("seed {seed}");
        let [done, refused] = run(seed);
        counts = [counts[0] + done, counts[1] + refused];
    });
    println!("{seeds} seeds: {} commands done, {} refused", counts[0], counts[1]);
    assert!(
        counts[0] > SEEDS && counts[1] > 10 * SEEDS,
        "what is always refused, or never, tests little: {counts:?}"
    );
}
