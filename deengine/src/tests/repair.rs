// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Three SSDs that repair themselves: their questions are carried by hand, in virtual time.

mod alone;
mod digests;
mod late;
mod media;
mod merge;
mod pace;
mod pause;
mod scrub;
mod slow;

use super::*;
use gnstor_base::controller::Question;
use gnstor_fleet::repair::Held;
use gnstor_ftl::Kept;
use gnstor_proto::placement::map3::{FleetMap3, Incoming3, Place3, Row3, State3};
use gnstor_proto::pull::{PeerRead, Wanted};
use gnstor_proto::repair::{FILL_LID, FillLog, FillState, SettleData};

/// Blocks of the volume.
const BLOCKS: u32 = 512;
const ARRAY: [u8; 16] = [3; 16];

/// A change that a client sends to each member.
#[derive(Clone, Copy, Debug)]
struct Change {
    vba: u32,
    sequence: u64,
    /// `None`: a TRIM.
    tag: Option<u64>,
}

struct World {
    ssds: Vec<Harness>,
    /// These answer no question.
    lost: Vec<u16>,
    /// Questions for data that were answered.
    fetched: usize,
    /// Number of blocks whose rows were answered, and whose digests were.
    listed: [u32; 2],
}

/// Admin queue of another SSD.
fn peer_key(peer: usize) -> QueueKey {
    QueueKey(u32::try_from(40 + peer).expect("few"))
}

/// A map of two groups with each SSD at its place. `fills` names the filling one; `first` the firsts.
fn map_of(epoch: u64, members: &[u16], fills: Option<u16>, firsts: [u16; 2]) -> FleetMap3 {
    let mut map = FleetMap3::of(&FleetMap::equal(3, 2, 7, 1).expect("a map"), ARRAY);
    let mut places = [None; 4];
    for &ssd in members {
        places[usize::from(ssd)] = Some(Place3 { ssd, filling: fills == Some(ssd) });
    }
    let first = |ssd: u16| Some(u8::try_from(ssd).expect("few"));
    (map.epoch, map.width) = (epoch, 3);
    map.rows = firsts.map(|ssd| Row3 { places, incoming: None, first: first(ssd) }).to_vec();
    map
}

impl World {
    fn new(map: &FleetMap3) -> Self {
        Self::of((0..3).map(Harness::connected).collect(), map, BLOCKS)
    }

    /// A world of these SSDs, with a volume of `blocks` blocks.
    fn of(mut ssds: Vec<Harness>, map: &FleetMap3, blocks: u32) -> Self {
        for (own, ssd) in ssds.iter_mut().enumerate() {
            for peer in (0..3).filter(|peer| *peer != own) {
                let identity = Identity::Peer(u16::try_from(peer).expect("few"));
                ssd.connect(peer_key(peer), 0, identity, CNTLID_ANY);
            }
            assert_eq!(refusal(&ssd.set_map(map)), None);
            let capacity_blocks = blocks.into();
            let volume = VolumeEntry { replicas: 3, lease_ms: 600_000, capacity_blocks, ..entry(VOLUME) };
            assert_eq!(refusal(&ssd.volume_command(opcode::VOLUME_ADD, &volume)), None);
        }
        Self { ssds, lost: Vec::new(), fetched: 0, listed: [0; 2] }
    }

    fn set_map(&mut self, map: &FleetMap3) {
        for ssd in &mut self.ssds {
            assert_eq!(refusal(&ssd.set_map(map)), None);
        }
    }

    fn send(&mut self, ssd: usize, change: Change) -> Option<Refusal> {
        let ssd = &mut self.ssds[ssd];
        ssd.sequence = change.sequence - 1;
        match change.tag {
            Some(tag) => refusal(&ssd.write(change.vba, &[tag])),
            None => {
                let sqe = ssd.io(io::WRITE_ZEROES, WRITER, change.vba, 1);
                ssd.refused(WRITER, sqe)
            }
        }
    }

    fn send_all(&mut self, ssds: &[usize], change: Change) {
        for &ssd in ssds {
            assert_eq!(self.send(ssd, change), None, "{change:?}");
        }
    }

    /// Carries the open questions, and advances by a millisecond.
    fn turn(&mut self) {
        for own in 0..self.ssds.len() {
            self.ssds[own].advance(Span::from_ms(1));
            for (ask, peer, local) in std::mem::take(&mut self.ssds[own].asked) {
                self.carry(own, ask, peer, local);
            }
        }
    }

    fn carry(&mut self, own: usize, ask: AskId, peer: u16, local: LocalRef) {
        let answer = self.answer(own, peer, local);
        self.hand_over(own, ask, answer);
    }

    /// The answer of an SSD now.
    fn answer(&mut self, own: usize, peer: u16, local: LocalRef) -> Option<(Cqe, Vec<u8>)> {
        let read = self.question(own, local);
        if self.lost.contains(&peer) {
            return None;
        }
        let (key, length) = (peer_key(own), u32::try_from(read.bytes()).expect("few"));
        let other = &mut self.ssds[usize::from(peer)];
        let sqe = Sqe { dptr: KeyedSgl::keyed(0, length, KEY), flags: FLAGS_SGL, ..read.command() };
        let cqe = other.run(key, sqe);
        match read.wanted {
            Wanted::Rows(blocks) => self.listed[0] += blocks,
            Wanted::Digests(blocks) => self.listed[1] += blocks,
            Wanted::Blocks(_) => {}
        }
        self.fetched += usize::from(matches!(read.wanted, Wanted::Blocks(_)));
        Some((cqe, self.ssds[usize::from(peer)].memory[&key][..read.bytes()].to_vec()))
    }

    fn question(&self, own: usize, local: LocalRef) -> PeerRead {
        let region = self.ssds[own].regions.iter().find(|region| region.id() == local.region);
        let mut bytes = [0; Question::BYTES];
        region.expect("its own").read(local.offset, &mut bytes);
        PeerRead::of(&Question::decode(&bytes).expect("a question").sqe).expect("one of a repair")
    }

    fn hand_over(&mut self, own: usize, ask: AskId, answer: Option<(Cqe, Vec<u8>)>) {
        let ssd = &mut self.ssds[own];
        let (cqe, data) = answer.map_or((None, Vec::new()), |(cqe, data)| (Some(cqe), data));
        ssd.workers[0].answered(ssd.now, ask, cqe.as_ref(), &data);
        ssd.pump();
    }

    fn log(&mut self, ssd: usize) -> FillLog {
        FillLog::decode(&self.ssds[ssd].log(DAEMON, start_of(FILL_LID, 16).retained()).expect("a page"))
            .expect("valid")
    }

    fn until_filled(&mut self, ssd: usize) -> FillLog {
        for _ in 0..2000 {
            let log = self.log(ssd);
            if log.state == FillState::Filled {
                return log;
            }
            self.turn();
        }
        panic!("it never filled: {:?}", self.log(ssd));
    }

    fn held(&self, ssd: usize, vba: u32) -> Held {
        match self.ssds[ssd].ssd().ftl().commits().kept(vid(VOLUME), 1, vba) {
            Kept::Nothing => Held::Nothing,
            Kept::Block { stamp, sum } => Held::Block { stamp, sum },
            Kept::Tombstone { stamp } => Held::Tombstone { stamp },
        }
    }

    /// Checks that each block reads the same on all these SSDs.
    fn are_equal(&self, ssds: &[usize]) {
        for vba in 0..BLOCKS {
            let held: Vec<Held> = ssds.iter().map(|ssd| self.held(*ssd, vba)).collect();
            assert!(held.iter().all(|one| one.reads_as(held[0])), "block {vba}: {held:?}");
        }
    }

    fn settle(&mut self, ssd: usize, epoch: u64) -> Cqe {
        let data = SettleData { term: 1, epoch, array: ARRAY, vid: vid(VOLUME), generation: 1 };
        self.ssds[ssd].daemon_out(opcode::SETTLE, &data.encode())
    }

    fn until_settled(&mut self, ssd: usize, epoch: u64) -> u32 {
        for _ in 0..2000 {
            let cqe = self.settle(ssd, epoch);
            assert_eq!(refusal(&cqe), None);
            if cqe.dw0.get() == 0 {
                return cqe.dw1.get();
            }
            self.turn();
        }
        panic!("it never settled");
    }
}

fn put(vba: u32, sequence: u64) -> Change {
    Change { vba, sequence, tag: Some(sequence) }
}

fn trim(vba: u32, sequence: u64) -> Change {
    Change { vba, sequence, tag: None }
}

#[test]
fn an_empty_ssd_fills_waits_for_a_peer_that_is_behind_and_serves_then() {
    let mut world = World::new(&map_of(1, &[0, 1], None, [0, 1]));
    (0..40).for_each(|n| world.send_all(&[0, 1], put(n * 7, u64::from(n) + 1)));
    (0..4).for_each(|n| world.send_all(&[0, 1], trim(n * 7, u64::from(n) + 100)));
    assert_eq!(world.log(2).state, FillState::Nothing);
    let fills = map_of(2, &[0, 1, 2], Some(2), [0, 1]);
    assert_eq!(refusal(&world.ssds[2].set_map(&fills)), None);
    (0..50).for_each(|_| world.turn());
    let log = world.log(2);
    assert_eq!((log.state, log.epoch, log.pulled), (FillState::Filling, 2, 0));
    assert!(log.waits_for.is_some_and(|peer| peer < 2), "both are behind: {log:?}");
    assert_eq!(refusal(&world.ssds[0].set_map(&fills)), None);
    (0..50).for_each(|_| world.turn());
    assert_eq!(world.log(2).waits_for, Some(1));
    assert_eq!(refusal(&world.ssds[1].set_map(&fills)), None);
    let log = world.until_filled(2);
    assert_eq!((log.pulled, log.compared, log.all), (36, u64::from(BLOCKS), u64::from(BLOCKS)));
    world.are_equal(&[0, 1, 2]);
    // The TRIMs are known here, too: writes that they overtook are not applied.
    assert_eq!(world.send(2, put(7, 50)), None);
    assert!(matches!(world.held(2, 7), Held::Tombstone { .. }));
    world.set_map(&map_of(3, &[0, 1, 2], None, [0, 1]));
    assert_eq!(world.log(2).state, FillState::Nothing);
    assert_eq!(world.ssds[2].read(35), block(6));
}

/// An empty SSD in the place of a lost one learns the map before it has the volumes.
#[test]
fn a_volume_that_is_added_after_a_fill_is_filled_too() {
    let mut world = World::new(&map_of(1, &[0, 1], None, [0, 1]));
    (0..40).for_each(|n| world.send_all(&[0, 1], put(n * 7, u64::from(n) + 1)));
    world.ssds[2] = Harness::connected(2);
    for peer in 0..2 {
        let identity = Identity::Peer(u16::try_from(peer).expect("few"));
        world.ssds[2].connect(peer_key(peer), 0, identity, CNTLID_ANY);
    }
    world.set_map(&map_of(2, &[0, 1, 2], Some(2), [0, 1]));
    let log = world.until_filled(2);
    assert_eq!((log.pulled, log.all), (0, 0), "it knows no volume");
    let volume =
        VolumeEntry { replicas: 3, lease_ms: 600_000, capacity_blocks: BLOCKS.into(), ..entry(VOLUME) };
    assert_eq!(refusal(&world.ssds[2].volume_command(opcode::VOLUME_ADD, &volume)), None);
    // In the map that follows the same places fill.
    world.set_map(&map_of(3, &[0, 1, 2], Some(2), [0, 1]));
    assert_eq!(world.log(2).state, FillState::Filling);
    assert_eq!(world.until_filled(2).pulled, 40);
    world.are_equal(&[0, 1, 2]);
}

#[test]
fn an_ssd_that_is_back_moves_only_what_changed() {
    let mut world = World::new(&map_of(1, &[0, 1, 2], None, [0, 1]));
    (0..100).for_each(|n| world.send_all(&[0, 1, 2], put(n, u64::from(n) + 1)));
    // It was never acknowledged, and its stamp is above all later ones in this test.
    world.send_all(&[2], put(50, 9000));
    world.send_all(&[2], put(200, 9001));
    let mut out = map_of(2, &[0, 1], None, [0, 1]);
    out.ssds[2].state = State3::Out;
    world.set_map(&out);
    (10..20).for_each(|n| world.send_all(&[0, 1], put(n, u64::from(n) + 200)));
    (30..35).for_each(|n| world.send_all(&[0, 1], trim(n, u64::from(n) + 200)));
    let mut fills = map_of(3, &[0, 1, 2], Some(2), [0, 1]);
    fills.ssds[2].incarnation = 2;
    world.set_map(&fills);
    // A write to a block that was not compared yet counts whatever stamp the block has there.
    world.send_all(&[0, 1, 2], put(200, 300));
    let log = world.until_filled(2);
    assert_eq!((log.incarnation, log.pulled), (2, 10 + 5 + 1), "with block 50");
    world.are_equal(&[0, 1, 2]);
}

#[test]
fn a_peer_that_is_lost_in_the_middle_is_waited_for_until_the_map_names_another_first() {
    let mut world = World::new(&map_of(1, &[0, 1], None, [0, 1]));
    (0..300).for_each(|n| world.send_all(&[0, 1], put(n, u64::from(n) + 1)));
    world.set_map(&map_of(2, &[0, 1, 2], Some(2), [0, 1]));
    while world.fetched < 3 {
        world.turn();
    }
    world.lost.push(0);
    (0..3000).for_each(|_| world.turn());
    let log = world.log(2);
    assert_eq!((log.state, log.waits_for), (FillState::Filling, Some(0)));
    let before = log.pulled;
    assert!(before > 0 && before < 300, "{before}");
    let mut without = map_of(3, &[1, 2], Some(2), [1, 1]);
    without.ssds[0].state = State3::Out;
    (1..3).for_each(|ssd| assert_eq!(refusal(&world.ssds[ssd].set_map(&without)), None));
    let log = world.until_filled(2);
    assert_eq!(log.pulled, 300, "nothing moves twice");
    world.are_equal(&[1, 2]);
}

#[test]
fn a_volume_is_settled_by_the_first_after_a_writer_that_reached_one_replica() {
    let map = map_of(1, &[0, 1, 2], None, [0, 0]);
    let mut world = World::new(&map);
    (0..50).for_each(|n| world.send_all(&[0, 1, 2], put(n, u64::from(n) + 1)));
    world.send_all(&[0], put(3, 100));
    world.send_all(&[1], put(4, 101));
    world.send_all(&[1], put(300, 102));
    world.send_all(&[2], trim(5, 103));
    assert_eq!(refusal(&world.settle(1, 1)), Some(Refusal::StaleVersion), "it has a writer");
    for ssd in &mut world.ssds {
        ssd.chmod(|entry| (entry.writer, entry.lease_ms, entry.unsettled) = (None, 0, true));
    }
    assert_eq!(refusal(&world.settle(1, 2)), Some(Refusal::MapBehind));
    assert_eq!(refusal(&world.settle(1, 0)), Some(Refusal::StaleMap));
    assert_eq!(world.until_settled(0, 1), 0);
    world.lost.push(0);
    assert_eq!(world.settle(1, 1).dw0.get(), 1);
    (0..3).for_each(|_| world.turn());
    let cqe = world.settle(1, 1);
    assert_eq!((cqe.dw0.get(), cqe.dw1.get()), (2, 0), "it waits for SSD 0");
    world.lost.clear();
    assert_eq!((world.until_settled(1, 1), world.until_settled(2, 1)), (3, 2));
    world.are_equal(&[0, 1, 2]);
    assert!(matches!(world.held(1, 3), Held::Block { stamp, .. } if stamp.sequence == 100));
    assert_eq!(world.until_settled(1, 1), 3, "it is asked again");
    world.ssds[1].chmod(|entry| entry.unsettled = false);
    assert_eq!(refusal(&world.settle(1, 1)), Some(Refusal::StaleVersion));
}
