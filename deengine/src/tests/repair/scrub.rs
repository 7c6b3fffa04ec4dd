// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scrubs: rotten copies are healed from good ones, while clients write, and no copy gets worse.

use super::*;
use crate::tests::oracle::Dice;
use gnstor_proto::scrub::{Order, RepairOrder, SCRUB_LID, ScrubLog, ScrubState};
use std::collections::BTreeSet;

/// Blocks of the large volume, and bits that are flipped in it.
const MANY: u32 = 8 * 1024;
const BITS: usize = 10_000;

impl World {
    pub(super) fn order(&mut self, key: QueueKey, ssd: usize, term: u64, order: Order) -> Option<Refusal> {
        let sqe = Sqe { flags: FLAGS_SGL, ..RepairOrder { term, order }.command() };
        self.ssds[ssd].refused(key, sqe)
    }

    fn start_scrub(&mut self, ssd: usize) {
        assert_eq!(self.order(DAEMON, ssd, 1, Order::ScrubStart), None);
    }

    fn scrub_log(&mut self, ssd: usize) -> ScrubLog {
        ScrubLog::decode(&self.ssds[ssd].log(DAEMON, start_of(SCRUB_LID, 16).retained()).expect("a page"))
            .expect("valid")
    }

    fn until_scrubbed(&mut self, ssd: usize) -> ScrubLog {
        for _ in 0..4000 {
            let log = self.scrub_log(ssd);
            if log.state != ScrubState::Running {
                return log;
            }
            self.turn();
        }
        panic!("the scrub never ended: {:?}", self.scrub_log(ssd));
    }

    fn rest(&mut self) {
        for ssd in &mut self.ssds {
            ssd.chmod(|entry| (entry.writer, entry.lease_ms, entry.any_reader) = (None, 0, true));
        }
    }

    fn flip(&self, ssd: usize, vba: u32, bit: usize) {
        let harness = &self.ssds[ssd];
        let page = harness.page(vba);
        let Fetch::Here(local) = harness.ssd().ftl().fetch(page) else { panic!("RAM media") };
        let region = harness.regions.iter().find(|region| region.id() == local.region).expect("its own");
        let mut byte = [0];
        region.read(local.offset + bit as u64 / 8, &mut byte);
        region.write(local.offset + bit as u64 / 8, &[byte[0] ^ 1 << (bit % 8)]);
    }

    /// Checks whether a read returns the block with this tag. Otherwise returns why not.
    fn reads(&mut self, ssd: usize, vba: u32, tag: u64) -> Result<bool, Refusal> {
        let harness = &mut self.ssds[ssd];
        let sqe = harness.io(io::READ, WRITER, vba, 1);
        harness.refused(WRITER, sqe).map_or_else(|| Ok(harness.peek(WRITER, 0) == block(tag)), Err)
    }
}

fn many(firsts: [u16; 2]) -> World {
    let ssds = (0..3).map(|index| Harness::bare(index, 2 * u64::from(MANY)).with_clients()).collect();
    World::of(ssds, &map_of(1, &[0, 1], None, firsts), MANY)
}

#[test]
fn ten_thousand_flipped_bits_are_healed_in_one_scrub_beside_a_writer_and_no_block_gets_worse() {
    let mut world = many([0, 1]);
    let mut dice = Dice(24);
    let mut tags: Vec<u64> = (1..=u64::from(MANY)).collect();
    for (first, tags) in (0..MANY).step_by(16).zip(tags.chunks(16)) {
        for ssd in &mut world.ssds[..2] {
            ssd.sequence = u64::from(first);
            assert_eq!(refusal(&ssd.write(first, tags)), None);
        }
    }
    let mut flipped = BTreeSet::new();
    let mut rotten: [BTreeSet<u32>; 2] = Default::default();
    while flipped.len() < BITS {
        let (vba, bit) = (dice.small(MANY), dice.index(BLOCK * 8));
        if flipped.insert((vba, bit)) {
            // One copy of each block rots. The block's number decides which one.
            let ssd = usize::from(mix(vba));
            rotten[ssd].insert(vba);
            world.flip(ssd, vba, bit);
        }
    }
    let places: Vec<[Ppa; 2]> = (0..MANY).map(|vba| [0, 1].map(|ssd| world.ssds[ssd].page(vba))).collect();
    (0..2).for_each(|ssd| world.start_scrub(ssd));
    let (mut sequence, mut written, mut turns) = (u64::from(MANY) + 1, BTreeSet::new(), 0);
    while (0..2).any(|ssd| world.scrub_log(ssd).state == ScrubState::Running) {
        // A write reaches one SSD, then time passes, then it reaches the other.
        let vba = dice.small(MANY);
        sequence += 1;
        let change = Change { vba, sequence, tag: Some(sequence) };
        let first = dice.index(2);
        assert_eq!(world.send(first, change), None);
        world.turn();
        assert_eq!(world.send(1 - first, change), None);
        tags[vba as usize] = sequence;
        written.insert(vba);
        turns += 1;
        assert!(turns < 4000, "{:?}", world.scrub_log(0));
    }
    let logs = [0, 1].map(|ssd| world.scrub_log(ssd));
    println!("{BITS} bits in {} blocks, {} written meanwhile: {logs:?}", rotten_in(&rotten), written.len());
    for (ssd, log) in logs.iter().enumerate() {
        let least = rotten[ssd].difference(&written).count() as u64;
        assert_eq!((log.state, log.ended, log.differ), (ScrubState::Done, 1, 0));
        assert!(log.rotten >= least && log.rotten == log.healed, "{least}: {log:?}");
        assert_eq!((log.compared, log.all), (u64::from(MANY), u64::from(MANY)));
    }
    for vba in 0..MANY {
        for ssd in 0..2 {
            assert_eq!(world.reads(ssd, vba, tags[vba as usize]), Ok(true), "block {vba} of SSD {ssd}");
            let is_touched = written.contains(&vba) || rotten[ssd].contains(&vba);
            assert!(is_touched || world.ssds[ssd].page(vba) == places[vba as usize][ssd], "it moved");
        }
    }
    // The next scrub finds nothing.
    (0..2).for_each(|ssd| world.start_scrub(ssd));
    let logs = [0, 1].map(|ssd| world.until_scrubbed(ssd));
    assert!(logs.iter().all(|log| (log.rotten, log.healed, log.ended) == (0, 0, 2)), "{logs:?}");
}

/// The copy of a block that rots.
fn mix(vba: u32) -> u8 {
    u8::try_from(gnstor_proto::placement::mix64(vba.into()) & 1).expect("a bit")
}

fn rotten_in(rotten: &[BTreeSet<u32>; 2]) -> usize {
    rotten.iter().map(BTreeSet::len).sum()
}

#[test]
fn a_copy_is_never_healed_from_one_that_rotted_too_and_a_third_one_is_asked() {
    let mut world = World::new(&map_of(1, &[0, 1, 2], None, [0, 0]));
    (0..8).for_each(|n| world.send_all(&[0, 1, 2], put(n, u64::from(n) + 1)));
    for ssd in 0..2 {
        world.ssds[ssd].damage(3);
    }
    (0..3).for_each(|ssd| world.ssds[ssd].damage(5));
    (0..3).for_each(|ssd| world.start_scrub(ssd));
    let logs = [0, 1, 2].map(|ssd| world.until_scrubbed(ssd));
    assert_eq!(logs.map(|log| (log.rotten, log.healed)), [(2, 1), (2, 1), (1, 0)]);
    for ssd in 0..3 {
        assert_eq!(world.reads(ssd, 3, 4), Ok(true));
        assert_eq!(world.reads(ssd, 5, 0), Err(Refusal::BadChecksum), "no copy is good: it stays an error");
    }
}

#[test]
fn of_equal_stamps_with_other_data_the_firsts_is_right_and_a_newer_good_copy_heals_at_rest_only() {
    let mut world = World::new(&map_of(1, &[0, 1], None, [0, 0]));
    (0..8).for_each(|n| world.send_all(&[0, 1], put(n, u64::from(n) + 1)));
    world.send_all(&[0], put(2, 100));
    world.send_all(&[1], Change { tag: Some(7), ..put(2, 100) });
    // An older copy does not heal a newer one. A newer one heals an older one while no write is in progress.
    world.send_all(&[0], put(4, 101));
    world.send_all(&[1], put(6, 102));
    world.ssds[0].damage(4);
    world.ssds[0].damage(6);
    world.start_scrub(0);
    world.start_scrub(1);
    let logs = [0, 1].map(|ssd| world.until_scrubbed(ssd));
    assert_eq!(logs.map(|log| (log.rotten, log.healed, log.differ)), [(2, 0, 0), (1, 1, 0)]);
    assert_eq!(world.reads(1, 2, 100), Ok(true));
    world.rest();
    world.start_scrub(0);
    assert_eq!(world.until_scrubbed(0).healed, 1);
    assert_eq!(world.reads(0, 6, 102), Ok(true));
    assert_eq!(world.reads(0, 4, 0), Err(Refusal::BadChecksum));
    assert_eq!(world.reads(1, 4, 5), Ok(true));
    world.start_scrub(1);
    let log = world.until_scrubbed(1);
    // The first has stamp 101 and cannot read its copy, so this copy stays.
    assert_eq!((log.rotten, log.healed), (1, 0));
    assert_eq!(world.reads(1, 4, 5), Ok(true));
}

#[test]
fn what_the_first_lacks_is_not_taken_from_others_and_is_counted() {
    let mut world = World::new(&map_of(1, &[0, 1], None, [0, 0]));
    world.send_all(&[1], put(4, 9));
    world.rest();
    (0..2).for_each(|ssd| world.start_scrub(ssd));
    let logs = [0, 1].map(|ssd| world.until_scrubbed(ssd));
    assert_eq!(logs.map(|log| (log.rotten, log.healed, log.differ)), [(0, 0, 0), (0, 0, 1)]);
    assert_eq!((world.held(0, 4), world.reads(1, 4, 9)), (Held::Nothing, Ok(true)));
}

#[test]
fn a_scrub_is_the_daemons_waits_for_a_peer_goes_on_with_a_new_map_and_ends_by_order() {
    let mut world = World::new(&map_of(1, &[0, 1, 2], None, [0, 0]));
    (0..8).for_each(|n| world.send_all(&[0, 1, 2], put(n, u64::from(n) + 1)));
    assert_eq!(world.order(WRITER, 1, 1, Order::ScrubStart), Some(Refusal::InvalidOpcode));
    assert_eq!(world.order(peer_key(0), 1, 1, Order::ScrubStart), Some(Refusal::NotTheDaemon));
    assert_eq!(world.order(DAEMON, 1, 0, Order::ScrubStart), Some(Refusal::StaleTerm));
    assert_eq!(world.order(DAEMON, 1, 1, Order::Share(40)), None);
    assert_eq!((world.scrub_log(1).state, world.scrub_log(1).share), (ScrubState::Never, 40));
    world.ssds[1].damage(3);
    world.lost.push(0);
    world.start_scrub(1);
    (0..200).for_each(|_| world.turn());
    let log = world.scrub_log(1);
    assert_eq!((log.state, log.waits_for), (ScrubState::Running, Some(0)));
    let mut without = map_of(2, &[1, 2], None, [2, 2]);
    without.ssds[0].state = State3::Out;
    (1..3).for_each(|ssd| assert_eq!(refusal(&world.ssds[ssd].set_map(&without)), None));
    let log = world.until_scrubbed(1);
    assert_eq!((log.state, log.rotten, log.healed, log.waits_for), (ScrubState::Done, 1, 1, None));
    assert_eq!(world.reads(1, 3, 4), Ok(true));
    world.start_scrub(2);
    world.lost.push(1);
    assert_eq!(world.order(DAEMON, 2, 1, Order::ScrubStop), None);
    assert_eq!(world.scrub_log(2).state, ScrubState::Stopped);
    world.start_scrub(2);
    let mut out = map_of(3, &[1], None, [1, 1]);
    (out.ssds[0].state, out.ssds[2].state) = (State3::Out, State3::Out);
    assert_eq!(refusal(&world.ssds[2].set_map(&out)), None);
    assert_eq!(world.scrub_log(2).state, ScrubState::Stopped, "it serves nothing any more");
    assert_eq!(world.order(DAEMON, 2, 1, Order::ScrubStart), Some(Refusal::NotServing));
}

/// A scrub takes the copy of another SSD for a block whose record has rotted.
#[test]
fn a_copy_whose_record_has_rotted_is_healed() {
    for bit in [64, 96, 63, 190, 300, 257] {
        let mut world = World::new(&map_of(1, &[0, 1, 2], None, [0, 0]));
        (0..4).for_each(|n| world.send_all(&[0, 1, 2], put(n, u64::from(n) + 1)));
        world.rest();
        for rotten in [0, 1] {
            let page = world.ssds[rotten].page(2);
            world.ssds[rotten].ssd().ftl().flash().rot_record(page, bit);
            assert!(!world.ssds[rotten].ssd().ftl().flash().is_sound(page), "bit {bit}");
            world.start_scrub(rotten);
            let log = world.until_scrubbed(rotten);
            assert_eq!((log.rotten, log.healed), (1, 1), "bit {bit}");
            let page = world.ssds[rotten].page(2);
            assert!(world.ssds[rotten].ssd().ftl().flash().is_sound(page), "bit {bit}: it is another page");
            assert!(matches!(world.held(rotten, 2), Held::Block { stamp, .. } if stamp.sequence == 3));
        }
        world.are_equal(&[0, 1, 2]);
    }
}
