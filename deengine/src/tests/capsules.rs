// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Any 64 bytes as a capsule, on admin and I/O queues: noise, good commands with noise in them, every kind of
//! data pointer. A third are capsules of the corpus, mutated.
//!
//! Each is answered at most once and with one status. An unsupported descriptor moves nothing: data within
//! the capsule, a segment, one without a key. Whatever clients without the right to write send, the blocks,
//! the table, the term, the map and the write cache do not change. A client without the right to read gets no
//! data of a block. `GNSTOR_FUZZ_SECONDS` and `GNSTOR_FUZZ_SEED` as in `media.rs`.

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

/// Queues of hosts that may not read: a client's, and the one where no host has connected.
const BLIND: [QueueKey; 3] = [QueueKey(90), STRANGER, QueueKey(300)];

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

/// What hosts that may not write cannot change.
struct Truth {
    blocks: Vec<Vec<u8>>,
    /// All volumes, with the rights to them.
    entries: Vec<VolumeEntry>,
    term: u64,
    map: Vec<u8>,
    /// Whether writes are acknowledged before they are durable.
    caches: bool,
}

impl Truth {
    fn of(harness: &mut Harness) -> Self {
        let blocks = (0..BLOCKS).map(|vba| harness.read(vba)).collect();
        let ssd = harness.ssd();
        let entries = ssd.table.volumes_from(0).map(|volume| volume.entry().clone()).collect();
        let map = ssd.table.fleet().expect("it has a map").bytes().to_vec();
        Self { blocks, entries, term: ssd.table.term(), map, caches: ssd.write_cache_enabled() }
    }

    /// Checks that nothing differs. A map with voters may be a newer one, which another SSD has brought.
    fn assert_kept(&self, after: &Self, votes: bool) {
        assert_eq!((&after.entries, after.term), (&self.entries, self.term), "table and term");
        assert_eq!(after.caches, self.caches, "the write cache is all clients'");
        assert!(after.blocks == self.blocks, "a block was changed by hosts that may not write");
        if after.map == self.map {
            return;
        }
        assert!(votes, "the map was changed by hosts that are not the daemon");
        let [before, after] = [&self.map, &after.map].map(|map| FleetMap3::decode(map).expect("a map"));
        assert!(before.array == after.array && before.epoch < after.epoch, "{before:?}, then {after:?}");
    }
}

/// Whether these bytes have 32 bytes of a block that [`run`] has written.
fn has_content(data: &[u8]) -> bool {
    let (first, last) = (first_word(1), first_word(u64::from(BLOCKS) + 1));
    let words = |part: &[u8]| -> Vec<u64> {
        part.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight"))).collect()
    };
    let follow = |words: &[u64]| words.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) == 1);
    data.chunks_exact(32).map(words).any(|words| (first..last).contains(&words[0]) && follow(&words))
}

/// The first eight bytes of [`block`], as a number. The next eight are one more.
fn first_word(tag: u64) -> u64 {
    u64::from_le_bytes(*block(tag).first_chunk().expect("a block"))
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

/// Runs one seed. Returns the numbers of succeeded and of refused commands, and of the pieces of blocks that
/// were read.
fn run(seed: u64) -> [u64; 3] {
    let (mut dice, corpus) = (Dice(seed), inputs(recorded::CORPUS));
    let trusted = dice.one_in(2);
    let fleet = voting::voted(&[0]);
    let (votes, codes) = (dice.one_in(2), opcodes::all());
    let mut harness = target(votes, &fleet);
    harness.ssd().set_write_cache(true);
    (0..BLOCKS).for_each(|vba| assert_eq!(refusal(&harness.write(vba, &[u64::from(vba) + 1])), None));
    harness.open(QueueKey(300), 1, 32);
    let before = Truth::of(&mut harness);
    harness.pushed = Some(Vec::new());
    harness.completions.clear();
    let mut open: BTreeSet<(QueueKey, u16)> = BTreeSet::new();
    let (mut counts, mut read) = ([0; 2], 0);
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
        let may_read = may_read(&mut harness, key);
        let sqe = match dice.one_in(3) {
            true => of_corpus(&mut harness, &mut dice, key, &corpus),
            false => capsule(&mut harness, &mut dice, key, &fleet, &codes),
        };
        open.insert((key, submit_held(&mut harness, key, sqe)));
        harness.release(|left| left - 1);
        for (to, data) in harness.pushed.take().expect("they are recorded") {
            read += u64::from(!BLIND.contains(&to) && has_content(&data));
            assert!(
                trusted || may_read || to != key || !has_content(&data),
                "{to:?} has read a block by {sqe:?}"
            );
        }
        harness.pushed = Some(Vec::new());
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
        before.assert_kept(&Truth::of(&mut harness), votes);
    }
    end(harness);
    [counts[0], counts[1], read]
}

/// Closes all queues: nothing of them is left.
fn end(mut harness: Harness) {
    for key in ALL {
        harness.memory.remove(&key);
        harness.close_queue(harness.now, key);
    }
    harness.pump();
    assert_eq!(harness.in_flight(), 0);
    let stats = harness.stats();
    assert_eq!(stats.permits_issued, stats.permits_spent + stats.permits_forfeited);
    assert!(harness.frames_are_whole(), "no frame is lost");
}

/// Whether this queue may be one of a host with the right to read. Where a queue was closed and opened again,
/// any host may have connected.
fn may_read(harness: &mut Harness, key: QueueKey) -> bool {
    match harness.role(key) {
        _ if !BLIND.contains(&key) => true,
        Some(Role::Admin(cntlid) | Role::Io(cntlid, _)) => {
            let identity = harness.ssd().hosts.identity_of(cntlid);
            identity != Some(Identity::Client(client(9)))
        }
        _ => false,
    }
}

#[test]
fn any_64_bytes_are_answered_and_change_nothing_that_they_may_not() {
    let mut counts = [0; 3];
    let seeds = seeds(SEEDS, |seed| {
        println!("seed {seed}");
        let more = run(seed);
        counts.iter_mut().zip(more).for_each(|(all, more)| *all += more);
    });
    let [done, refused, read] = counts;
    println!("{seeds} seeds: {done} commands done, {refused} refused, {read} pieces of blocks read");
    assert!(
        done > SEEDS && refused > 10 * SEEDS && read > SEEDS,
        "what is always refused, or never, tests little: {counts:?}"
    );
}
