// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD in a file on a disk where each read takes a second. It gives its copies to another SSD, and scrubs
//! them. No step of its engine waits for the disk.
#![expect(clippy::disallowed_methods, reason = "a disk is slow in real time")]

use super::super::barriers::on_file::{on_file, step_now};
use super::super::barriers::sqe_of_keep_alive;
use super::super::mounts::left_out;
use super::super::slow_folder::{SlowFolder, Word};
use super::*;
use gnstor_flash::Block;
use gnstor_proto::checksum::block_sum;
use gnstor_proto::placement::AnyMap;
use gnstor_proto::pull::{DATA_AT, Kind, Row};
use gnstor_proto::scrub::{Order, RepairOrder, SCRUB_LID, ScrubLog, ScrubState};
use std::time::{Duration, Instant};

/// What a read of the slow disk takes.
const SLOW_MS: u64 = 1000;
/// A step that takes longer has waited for the disk. Other programs may keep the processor for a while.
const STILL: Duration = Duration::from_millis(SLOW_MS / 2);
/// Blocks that are on the disk only.
const COLD: u32 = 32;
/// The SSD that asks.
const ASKER: usize = 2;

struct Slow {
    harness: Harness,
    start: Instant,
    longest: Duration,
    alive: u64,
    free: u32,
    folder: SlowFolder,
}

impl Slow {
    /// SSD 0, whose blocks have their numbers plus one as tags. `None`: this machine mounts no folder.
    fn new(map: &FleetMap3) -> Option<Self> {
        let folder = SlowFolder::mount().inspect_err(|error| left_out("a FUSE mount", error)).ok()?;
        let harness = on_file(folder.path(), |store| Arc::new(store)).with_clients();
        let (start, longest) = (Instant::now(), Duration::ZERO);
        let mut slow = Self { harness, start, longest, alive: 0, free: 0, folder };
        for peer in [1, ASKER] {
            let identity = Identity::Peer(u16::try_from(peer).unwrap());
            slow.harness.connect(peer_key(peer), 0, identity, CNTLID_ANY);
        }
        slow.set_map(map);
        let capacity_blocks = BLOCKS.into();
        let volume = VolumeEntry { replicas: 3, lease_ms: 600_000, capacity_blocks, ..entry(VOLUME) };
        slow.daemon(opcode::VOLUME_ADD, volume.encode().as_bytes());
        for vba in 0..COLD {
            assert_eq!(refusal(&slow.harness.write(vba, &[u64::from(vba) + 1])), None);
        }
        let flush = Sqe { nsid: 1.into(), ..sqe(io::FLUSH) };
        let cid = slow.harness.submit(WRITER, flush);
        assert_eq!(slow.ends(WRITER, cid), None);
        let is_cold = |vba| {
            let page = slow.harness.page(vba);
            slow.harness.ssd().ftl().fetch_plainly(page).is_none()
        };
        assert!((0..COLD).all(is_cold), "they are not in memory");
        slow.free = slow.harness.free_frames();
        slow.longest = Duration::ZERO;
        slow.folder.set(Word::ReadMs, SLOW_MS);
        Some(slow)
    }

    fn set_map(&mut self, map: &FleetMap3) {
        self.harness.map_epoch = map.wire_epoch();
        let mut bytes = AnyMap::from(map.clone()).encode().unwrap();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        self.daemon(opcode::MAP_SET, &bytes);
    }

    fn daemon(&mut self, opcode: u8, bytes: &[u8]) {
        let sqe = self.harness.daemon_sqe(opcode, bytes);
        let cid = self.harness.submit(DAEMON, sqe);
        assert_eq!(self.ends(DAEMON, cid), None);
    }

    /// Times a call of the engine.
    fn time<T>(&mut self, call: impl FnOnce(&mut Harness) -> T) -> T {
        let before = Instant::now();
        let result = call(&mut self.harness);
        self.longest = self.longest.max(before.elapsed());
        result
    }

    fn step(&mut self) {
        let start = self.start;
        self.time(|harness| step_now(harness, start));
        for admin in [DAEMON, QueueKey(70), QueueKey(80), QueueKey(90)] {
            let kept = self.time(|harness| harness.run(admin, sqe_of_keep_alive()));
            assert_eq!(refusal(&kept), None);
            self.alive += 1;
        }
        let is_late = self.start.elapsed() > Duration::from_secs(100);
        assert!(!is_late, "it never ends; longest call {:?}", self.longest);
        std::thread::sleep(Duration::from_millis(1));
    }

    fn completion(&mut self, key: QueueKey, cid: u16) -> Cqe {
        loop {
            if let Some(cqe) = self.harness.take(key, cid) {
                return cqe;
            }
            self.step();
        }
    }

    fn ends(&mut self, key: QueueKey, cid: u16) -> Option<Refusal> {
        refusal(&self.completion(key, cid))
    }

    /// Another SSD asks for the data of the first blocks.
    fn ask(&mut self, blocks: u32) -> (u16, PeerRead) {
        let (epoch, vid) = (self.harness.map_epoch, vid(VOLUME));
        let wanted = Wanted::Blocks(u64::MAX >> (64 - blocks));
        let read = PeerRead { epoch, vid, generation: 1, first: 0, wanted, of_any: false };
        let length = u32::try_from(read.bytes()).unwrap();
        let sqe = Sqe { dptr: KeyedSgl::keyed(0, length, KEY), flags: FLAGS_SGL, ..read.command() };
        (self.time(|harness| harness.submit(peer_key(ASKER), sqe)), read)
    }

    /// Takes an answer. Its blocks have these tags.
    fn is_answered(&mut self, (cid, read): (u16, PeerRead), tags: &[u64]) {
        let cqe = self.completion(peer_key(ASKER), cid);
        assert_eq!(refusal(&cqe), None);
        let data = &self.harness.memory[&peer_key(ASKER)][..read.bytes()];
        let rows = Row::decode_all(data, usize::try_from(cqe.dw0.get()).unwrap()).unwrap();
        assert_eq!(rows.len(), tags.len());
        for ((row, stored), &tag) in rows.iter().zip(data[DATA_AT..].chunks(BLOCK)).zip(tags) {
            assert_eq!(row.kind, Kind::Block { sum: block_sum(&block(tag)) }, "block {}", row.block);
            assert!(stored == block(tag), "block {} has the data of its row", row.block);
            let kept = self.harness.ssd().ftl().commits().kept(vid(VOLUME), 1, row.block);
            assert!(matches!(kept, Kept::Block { stamp, .. } if stamp == row.stamp), "{row:?}, {kept:?}");
        }
    }

    /// All frames and pins are given back, and no call waited.
    fn is_over(&mut self) {
        while self.harness.in_flight() > 0 {
            self.step();
        }
        self.folder.set(Word::ReadMs, 0);
        eprintln!("longest call {:?}, {} keep-alives, {:?}", self.longest, self.alive, self.start.elapsed());
        assert!(self.longest < STILL, "an engine stood still for {:?}", self.longest);
        assert!(self.alive > 100);
        assert_eq!(self.harness.free_frames(), self.free);
        let flash = Arc::clone(self.harness.ssd().ftl().flash());
        let blocks = flash.geometry().blocks();
        assert!((0..blocks).all(|block| !flash.is_pinned(Block(block))), "a pin is left");
    }

    fn order(&mut self, order: Order) {
        let sqe = Sqe { flags: FLAGS_SGL, ..RepairOrder { term: 1, order }.command() };
        assert_eq!(self.time(|harness| harness.refused(DAEMON, sqe)), None);
    }

    fn scrub_log(&mut self) -> ScrubLog {
        let log = self.harness.log(DAEMON, start_of(SCRUB_LID, 16).retained()).expect("a page");
        ScrubLog::decode(&log).expect("valid")
    }
}

fn filling() -> FleetMap3 {
    map_of(1, &[0, 1, 2], Some(2), [0, 0])
}

#[test]
fn no_step_of_an_engine_waits_while_its_ssd_gives_copies_to_another_one() {
    let Some(mut slow) = Slow::new(&filling()) else { return };
    let asked = slow.ask(COLD);
    let tags: Vec<u64> = (1..=COLD.into()).collect();
    slow.is_answered(asked, &tags);
    slow.is_over();
}

#[test]
fn a_block_that_is_written_while_its_copy_is_loaded_is_told_as_it_is_then() {
    let Some(mut slow) = Slow::new(&filling()) else { return };
    let asked = slow.ask(4);
    (0..10).for_each(|_| slow.step());
    assert_eq!(refusal(&slow.time(|harness| harness.write(1, &[99]))), None);
    slow.is_answered(asked, &[1, 99, 3, 4]);
    slow.free = slow.harness.free_frames();
    slow.is_over();
}

#[test]
fn an_answer_whose_right_or_queue_ends_while_pages_are_loaded_gives_them_back() {
    let Some(mut slow) = Slow::new(&filling()) else { return };
    let (cid, _) = slow.ask(8);
    (0..10).for_each(|_| slow.step());
    slow.set_map(&map_of(2, &[0, 1], None, [0, 0]));
    assert!(slow.ends(peer_key(ASKER), cid).is_some(), "it has no place any more");
    slow.set_map(&map_of(3, &[0, 1, 2], Some(2), [0, 0]));
    slow.ask(8);
    (0..10).for_each(|_| slow.step());
    assert!(slow.harness.in_flight() > 0);
    slow.harness.memory.remove(&peer_key(ASKER));
    let now = slow.harness.now;
    slow.time(|harness| harness.close_queue(now, peer_key(ASKER)));
    slow.is_over();
}

#[test]
fn no_step_of_an_engine_waits_while_its_ssd_scrubs() {
    let Some(mut slow) = Slow::new(&map_of(1, &[0, 1], None, [0, 0])) else { return };
    slow.order(Order::ScrubStart);
    (0..10).for_each(|_| slow.step());
    // One of the blocks that are being loaded is written anew.
    assert_eq!(refusal(&slow.time(|harness| harness.write(5, &[99]))), None);
    while slow.scrub_log().state == ScrubState::Running {
        slow.step();
    }
    let log = slow.scrub_log();
    assert_eq!((log.state, log.rotten, log.compared), (ScrubState::Done, 0, BLOCKS.into()));
    // A page that the medium does not give is found, and another SSD is asked.
    let page = slow.harness.page(7);
    slow.harness.faults.unreadable(page, false);
    slow.order(Order::ScrubStart);
    while slow.harness.asked.is_empty() {
        slow.step();
    }
    assert_eq!(slow.scrub_log().rotten, 1);
    slow.order(Order::ScrubStop);
    // It ends while pages are loaded.
    slow.order(Order::ScrubStart);
    slow.step();
    slow.order(Order::ScrubStop);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(10) {
        slow.step();
    }
    slow.free = slow.harness.free_frames();
    slow.is_over();
}
