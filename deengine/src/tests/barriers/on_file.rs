// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SSDs in files on slow and on full disks, in real time.
#![expect(clippy::disallowed_methods, reason = "a disk is slow in real time")]

use super::super::mounts::left_out;
use super::super::slow_store::{SlowStore, barrier_time, still_after};
use super::*;
use gnstor_flash::{DataFile, FileStore, Store};
use gnstor_ftl::geometry_for;
use std::io as os;
use std::time::{Duration, Instant};

/// An SSD in a file of a folder, with another store for its system area.
pub(in crate::tests) fn on_file(
    folder: &std::path::Path,
    store: impl FnOnce(FileStore) -> Arc<dyn Store>,
) -> Harness {
    let path = folder.join("ssd");
    // Erases wait for the journal, and so for the disk. There is room for some rounds of this.
    let preset = Preset { over_provisioning_permille: 3000, ..Preset::by_name("null").unwrap() };
    let (index, serial) = (0, "GN0001".into());
    let config =
        SsdConfig { index, preset, capacity_bytes: 4096 << 12, serial, media: SsdMedia::File(path.clone()) };
    let bytes = FtlConfig::store_bytes(&config.preset, 4096, DUMP_BYTES).unwrap();
    let geometry = geometry_for(&config.preset, 4096).unwrap();
    std::fs::File::create(&path).unwrap().set_len(4096).unwrap();
    let file = Arc::new(DataFile::create(&path, &geometry, bytes, "a test").unwrap());
    let bench = Bench::default();
    // A format and a start may wait for the disk.
    let plain = Arc::new(FileStore::new(Arc::clone(&file), Arc::clone(&bench.power)));
    let mut ssd = Ssd::on_file(config.clone(), &bench, Arc::clone(&file), plain, true).unwrap();
    ssd.shut_down().unwrap();
    drop(ssd);
    let store = store(FileStore::new(Arc::clone(&file), Arc::clone(&bench.power)));
    let ssd = Ssd::on_file(config, &bench, file, store, false).unwrap();
    Harness::around(ssd, bench.faults)
}

/// An SSD in a file whose syncs take long from here on, and the file's folder.
fn on_slow_file() -> (Harness, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let slow = |inner| Arc::new(SlowStore::new(inner)) as _;
    (on_file(folder.path(), slow), folder)
}

#[test]
fn commands_of_the_daemon_stop_no_engine_on_a_disk_whose_syncs_are_slow() {
    let (harness, _folder) = on_slow_file();
    let mut harness = harness.with_clients();
    let map = FleetMap::equal(1, 64, 7, 1).unwrap();
    let mut bytes = map.encode();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    harness.map_epoch = map.wire_epoch();
    let entry = entry(VOLUME).encode();
    let asked =
        [(opcode::MAP_SET, &bytes[..]), (opcode::VOLUME_ADD, entry.as_bytes()), (opcode::VOLUME_DELETE, &[])];
    let start = Instant::now();
    let (mut still, mut longest, mut alive) = (Duration::ZERO, Duration::ZERO, 0u32);
    for (opcode, data) in asked {
        let sqe = match data {
            [] => Harness::delete_sqe(1, 2),
            data => harness.daemon_sqe(opcode, data),
        };
        let cid = harness.submit(DAEMON, sqe);
        let cqe = loop {
            let before = Instant::now();
            harness.now = Time::from_ns(1000 + u64::try_from(start.elapsed().as_nanos()).unwrap());
            harness.step(harness.now);
            harness.pump();
            assert_eq!(refusal(&harness.run(DAEMON, sqe_of_keep_alive())), None);
            alive += 1;
            let taken = before.elapsed();
            longest = longest.max(taken);
            still += if taken > still_after() { taken } else { Duration::ZERO };
            if let Some(cqe) = harness.take(DAEMON, cid) {
                break cqe;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "a command never completes");
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(refusal(&cqe), None);
    }
    let all = start.elapsed();
    eprintln!("three commands took {all:?}; longest step {longest:?}; {alive} keep-alives");
    assert!(all > 6 * barrier_time(), "each command has two syncs at least: {all:?}");
    assert!(still < all / 4, "of {all:?} the SSD stood still for {still:?}, {longest:?} at a time");
    assert!(alive > 100, "{alive} keep-alives");
}

/// A lease that a slow change does not outlast.
const LEASE_MS: u32 = 60_000;

/// One command of each kind under way on a slow disk, and whether it has failed.
#[derive(Default)]
pub(super) struct Load {
    flush: Option<u16>,
    change: Option<u16>,
    writes: Vec<u16>,
    pub(super) done: [u64; 3],
    version: u64,
}

impl Load {
    pub(super) fn go_on(&mut self, harness: &mut Harness) {
        let ended = |harness: &mut Harness, key, cid: &mut Option<u16>| {
            let Some(cqe) = cid.and_then(|cid| harness.take(key, cid)) else { return 0 };
            assert_eq!(refusal(&cqe), None, "a slow disk is no reason to fail");
            *cid = None;
            1
        };
        self.done[0] += ended(harness, WRITER, &mut self.flush);
        self.done[1] += ended(harness, DAEMON, &mut self.change);
        for cid in std::mem::take(&mut self.writes) {
            let mut one = Some(cid);
            self.done[2] += ended(harness, WRITER, &mut one);
            self.writes.extend(one);
        }
        if self.flush.is_none() {
            let sqe = Sqe { nsid: 1.into(), ..sqe(io::FLUSH) };
            self.flush = Some(harness.submit(WRITER, sqe));
        }
        if self.change.is_none() {
            self.version += 1;
            let mut changed = VolumeEntry { lease_ms: LEASE_MS, ..entry(VOLUME) };
            changed.version += self.version;
            self.change = Some({
                let sqe = harness.daemon_sqe(opcode::VOLUME_CHMOD, changed.encode().as_bytes());
                harness.submit(DAEMON, sqe)
            });
        }
        while self.writes.len() < 4 {
            let vba = u32::try_from(self.done[2] % 500).unwrap();
            harness.poke(WRITER, 0, &block(self.done[2]));
            let sqe = harness.io(io::WRITE, WRITER, vba, 1);
            self.writes.push(harness.submit(WRITER, sqe));
        }
    }
}

/// Steps an SSD at the present real time.
pub(in crate::tests) fn step_now(harness: &mut Harness, start: Instant) {
    harness.now = Time::from_ns(1000 + u64::try_from(start.elapsed().as_nanos()).unwrap());
    harness.step(harness.now);
    harness.pump();
}

/// As [`Harness::with_volume`], on a slow disk.
pub(super) fn with_volume_later(harness: Harness, start: Instant) -> Harness {
    let mut harness = harness;
    let map = FleetMap::equal(1, 64, 7, 1).unwrap();
    harness.map_epoch = map.wire_epoch();
    let mut bytes = map.encode();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let entry = VolumeEntry { lease_ms: LEASE_MS, ..entry(VOLUME) }.encode();
    for (opcode, data) in [(opcode::MAP_SET, &bytes[..]), (opcode::VOLUME_ADD, entry.as_bytes())] {
        let sqe = harness.daemon_sqe(opcode, data);
        let cid = harness.submit(DAEMON, sqe);
        while harness.take(DAEMON, cid).is_none() {
            assert!(start.elapsed() < Duration::from_secs(60), "a command of the daemon has no status");
            step_now(&mut harness, start);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    harness
}

#[test]
fn keep_alive_is_answered_and_no_command_fails_on_a_disk_whose_syncs_are_slow() {
    let (harness, _folder) = on_slow_file();
    let start = Instant::now();
    let mut harness = with_volume_later(harness.with_clients(), start);
    let seconds = std::env::var("GNSTOR_SLOW_DISK_S").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    let (begin, mut load) = (Instant::now(), Load::default());
    let (mut still, mut longest, mut alive) = (Duration::ZERO, Duration::ZERO, 0u64);
    while begin.elapsed() < Duration::from_secs(seconds) {
        let before = Instant::now();
        step_now(&mut harness, start);
        load.go_on(&mut harness);
        // Hosts that write, and hosts that are idle.
        for admin in [DAEMON, QueueKey(70), QueueKey(80), QueueKey(90)] {
            assert_eq!(refusal(&harness.run(admin, sqe_of_keep_alive())), None);
            alive += 1;
        }
        let taken = before.elapsed();
        longest = longest.max(taken);
        still += if taken > still_after() { taken } else { Duration::ZERO };
        std::thread::sleep(Duration::from_millis(1));
    }
    let [flushes, changes, writes] = load.done;
    eprintln!(
        "{flushes} flushes, {changes} changes, {writes} writes, {alive} keep-alives; longest step {longest:?}"
    );
    assert!(still < begin.elapsed() / 4, "stood still for {still:?}, {longest:?} at a time");
    assert!(
        flushes > 1 && changes > 1 && writes > 100,
        "{flushes} flushes, {changes} changes, {writes} writes"
    );
    let stats = harness.stats();
    assert_eq!((stats.queues_closed, stats.stragglers_closed, &harness.closed), (0, 0, &Vec::new()));
}

/// A folder on a file system of its own, of which little is left.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = std::process::Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", "size=96m", "tmpfs"]).arg(folder.path()).output();
        if mounted.as_ref().is_ok_and(|mounted| mounted.status.success()) {
            return Some(Self(folder));
        }
        left_out("a mount", &mounted);
        None
    }

    fn fill(&self) {
        let mut ballast = std::fs::File::create(self.0.path().join("ballast")).unwrap();
        os::copy(&mut std::fs::File::open("/dev/zero").unwrap(), &mut ballast).unwrap_err();
    }

    fn make_room(&self) {
        std::fs::remove_file(self.0.path().join("ballast")).unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        _ = std::process::Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

/// A deallocation of one block.
fn submit_trim(harness: &mut Harness, vba: u32) -> u16 {
    let mut sqe = harness.io(io::DATASET_MANAGEMENT, WRITER, vba, 1);
    let slba = ReadWrite::decode(&sqe).slba.0.to_le_bytes();
    let range = [&[0; 4][..], &1u32.to_le_bytes(), &slba].concat();
    harness.poke(WRITER, 0, &range);
    sqe.dptr = KeyedSgl::keyed(0, 16, KEY);
    (sqe.cdw10, sqe.cdw11) = (0.into(), 4.into());
    harness.submit(WRITER, sqe)
}

#[test]
fn flush_fua_and_trim_have_a_status_on_a_full_disk_and_no_thread_spins() {
    let Some(mounted) = Mounted::new() else { return };
    let start = Instant::now();
    let harness = on_file(mounted.0.path(), |inner| Arc::new(inner));
    let mut harness = with_volume_later(harness.with_clients(), start);
    mounted.fill();
    // The SSD counts from its last look at the clock.
    step_now(&mut harness, start);
    let since = Instant::now();
    let mut asked = Vec::new();
    for vba in 0..8 {
        harness.poke(WRITER, 0, &block(u64::from(vba)));
        let mut sqe = harness.io(io::WRITE, WRITER, vba, 1);
        if vba % 2 == 1 {
            sqe.cdw12 = (sqe.cdw12.get() | 1 << 30).into();
        }
        asked.push(harness.submit(WRITER, sqe));
    }
    asked.push(harness.submit(WRITER, Sqe { nsid: 1.into(), ..sqe(io::FLUSH) }));
    let trim = submit_trim(&mut harness, 8);
    asked.push(trim);
    let (mut refused, mut steps) = (0, 0u32);
    while !asked.is_empty() {
        assert!(start.elapsed() < Duration::from_secs(10), "{} commands have no status", asked.len());
        step_now(&mut harness, start);
        steps += 1;
        asked.retain(|&cid| match harness.take(WRITER, cid) {
            None => true,
            Some(cqe) => {
                let said = refusal(&cqe);
                assert!(matches!(said, None | Some(Refusal::CapacityExceeded)), "{said:?}");
                assert!(cid != trim || said.is_none(), "a trim asks for no room that is not there: {said:?}");
                refused += u32::from(said == Some(Refusal::CapacityExceeded));
                false
            }
        });
        // Sleeps as an engine does, until the SSD wants a step.
        let next = harness.next_event().unwrap_or(harness.now + Span::from_ms(50));
        let pause = Duration::from_nanos(next.since(harness.now).as_ns());
        std::thread::sleep(pause.min(Duration::from_millis(50)));
    }
    let taken = since.elapsed();
    eprintln!("{refused} refused after {taken:?}, {steps} steps");
    assert_eq!(refused, 5, "each write with FUA, and the Flush");
    assert!(taken > Duration::from_millis(1900), "{taken:?}: its owner may be making room");
    assert!(f64::from(steps) < 3.0 * taken.as_secs_f64() * 1000.0, "{steps} steps in {taken:?}");
    // The written data is there, and becomes durable when there is room.
    mounted.make_room();
    let cid = harness.submit(WRITER, Sqe { nsid: 1.into(), ..sqe(io::FLUSH) });
    let cqe = loop {
        step_now(&mut harness, start);
        if let Some(cqe) = harness.take(WRITER, cid) {
            break cqe;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "the Flush has no status");
        std::thread::sleep(Duration::from_millis(1));
    };
    // The first Flush may come before the layer has found the room.
    assert!(matches!(refusal(&cqe), None | Some(Refusal::CapacityExceeded)));
}

/// An SSD in a file with sixteen blocks that are on the disk only.
pub(super) fn with_cold_blocks() -> (Harness, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut harness = on_file(folder.path(), |store| Arc::new(store)).with_clients();
    let map = FleetMap::equal(1, 64, 7, 1).unwrap();
    let mut bytes = map.encode();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    harness.map_epoch = map.wire_epoch();
    let entry = entry(VOLUME).encode();
    for (opcode, data) in [(opcode::MAP_SET, &bytes[..]), (opcode::VOLUME_ADD, entry.as_bytes())] {
        let sqe = harness.daemon_sqe(opcode, data);
        let cid = harness.submit(DAEMON, sqe);
        assert_eq!(ends(&mut harness, DAEMON, cid), None);
    }
    let tags: Vec<u64> = (1..=16).collect();
    assert_eq!(refusal(&harness.write(0, &tags)), None);
    let cid = harness.submit(WRITER, Sqe { nsid: 1.into(), ..sqe(io::FLUSH) });
    assert_eq!(ends(&mut harness, WRITER, cid), None);
    let is_cold = |vba| {
        let page = harness.page(vba);
        harness.ssd().ftl().fetch_plainly(page).is_none()
    };
    assert!((0..16).all(is_cold), "they are not in memory");
    (harness, folder)
}

/// The answer of a command, which real threads may work on.
pub(super) fn ends(harness: &mut Harness, key: QueueKey, cid: u16) -> Option<Refusal> {
    let start = Instant::now();
    loop {
        if let Some(cqe) = harness.take(key, cid) {
            return refusal(&cqe);
        }
        assert!(start.elapsed() < Duration::from_secs(60), "a command never completes");
        harness.advance(Span::from_ns(100_000));
    }
}

/// Compare of cold blocks: the engine goes on while the disk reads.
#[test]
fn a_compare_loads_its_blocks_beside_other_work() {
    let (mut harness, _folder) = with_cold_blocks();
    for (last, want) in [(16, None), (17, Some(Refusal::CompareFailed))] {
        (0..15).for_each(|nth| harness.poke(READER, nth * BLOCK, &block(nth as u64 + 1)));
        harness.poke(READER, 15 * BLOCK, &block(last));
        let sqe = harness.io(io::COMPARE, READER, 0, 16);
        let cid = harness.submit(READER, sqe);
        assert!(harness.take(READER, cid).is_none(), "its blocks are still to be loaded");
        assert_eq!(refusal(&harness.run(DAEMON, sqe_of_keep_alive())), None);
        assert_eq!(ends(&mut harness, READER, cid), want);
    }
    // Its queue goes while the blocks are loaded: their frames come back.
    let free = harness.free_frames();
    let sqe = harness.io(io::COMPARE, READER, 0, 16);
    harness.submit(READER, sqe);
    harness.memory.remove(&READER);
    harness.close_queue(harness.now, READER);
    let start = Instant::now();
    while harness.in_flight() > 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "its loads never end");
        harness.advance(Span::from_ns(100_000));
    }
    assert_eq!(harness.free_frames(), free);
}

/// The write buffer is full, and stays so: a Compare has frames of its own, as a read has.
#[test]
fn a_compare_of_cold_blocks_needs_no_frame_of_the_write_buffer() {
    let (mut harness, _folder) = with_cold_blocks();
    let mut frames = Vec::new();
    harness.ssd().ftl().take_frames(u32::MAX, |frame| frames.push(frame));
    harness.poke(READER, 0, &block(4));
    let sqe = harness.io(io::COMPARE, READER, 3, 1);
    let cid = harness.submit(READER, sqe);
    assert_eq!(ends(&mut harness, READER, cid), None);
    harness.ssd().ftl().give_frames(frames.into_iter());
}
