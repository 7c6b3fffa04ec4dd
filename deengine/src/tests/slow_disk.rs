// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A slow disk: the commands that change the metadata wait for it, and nothing else does.
#![expect(clippy::disallowed_methods, reason = "one test is about real time")]

use super::*;
use gnstor_flash::{DataFile, FileStore, Power, RamStore, Started, Store, SyncTicket};
use gnstor_ftl::{DUMP_BYTES, FtlConfig, geometry_for};
use std::collections::HashMap;
use std::io as os;
use std::sync::Mutex;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Polls that a sync takes.
const POLLS: u32 = 7;
const MORE: u16 = VOLUME + 1;

/// An SSD in memory, with volumes, whose metadata is on a slow disk.
fn slow() -> Harness {
    let config = SsdConfig {
        index: 0,
        preset: Preset::by_name("null").unwrap(),
        capacity_bytes: 1024 * 4096,
        serial: "GN0001".into(),
        media: SsdMedia::Ram,
    };
    let bytes = FtlConfig::store_bytes(&config.preset, 1024, DUMP_BYTES).unwrap();
    let power = Arc::new(Power::steady());
    let store = RamStore::new(bytes, Arc::clone(&power)).with_slow_syncs(POLLS);
    let bench = Bench { power, store: Some(Arc::new(store)), ..Bench::default() };
    let mut harness = Harness::around(Ssd::format_with(config, &bench).unwrap(), bench.faults).with_clients();
    let mut map = FleetMap::equal(1, 64, 7, 1).unwrap().encode();
    map.resize(map.len().next_multiple_of(4), 0);
    let sqe = harness.daemon_sqe(opcode::MAP_SET, &map);
    assert_eq!(harness.later(sqe), None);
    let sqe = harness.daemon_sqe(opcode::VOLUME_ADD, entry(VOLUME).encode().as_bytes());
    assert_eq!(harness.later(sqe), None);
    harness
}

impl Harness {
    /// A command of the daemon that waits for the disk; its refusal.
    fn later(&mut self, sqe: Sqe) -> Option<Refusal> {
        let cid = self.submit(DAEMON, sqe);
        assert!(self.take(DAEMON, cid).is_none(), "it is acknowledged before it is durable");
        self.awaited(cid)
    }

    fn awaited(&mut self, cid: u16) -> Option<Refusal> {
        let end = self.now + Span::from_ms(100);
        while self.now < end {
            self.advance(Span::from_ns(100_000));
            if let Some(cqe) = self.take(DAEMON, cid) {
                return refusal(&cqe);
            }
        }
        panic!("it never completes")
    }
}

#[test]
fn commands_of_volumes_wait_for_the_disk_and_others_do_not() {
    let mut harness = slow();
    let sqe = harness.daemon_sqe(opcode::VOLUME_ADD, entry(MORE).encode().as_bytes());
    let added = harness.submit(DAEMON, sqe);
    // Meanwhile: keep-alive, I/O, and changes behind it.
    assert_eq!(refusal(&harness.run(DAEMON, sqe_of_keep_alive())), None);
    assert_eq!(refusal(&harness.write(3, &[1])), None);
    assert_eq!(harness.read(3), block(1));
    let sqe = harness.daemon_sqe(opcode::VOLUME_ADD, entry(MORE).encode().as_bytes());
    let again = harness.submit(DAEMON, sqe);
    let deleted = harness.submit(DAEMON, Harness::delete_sqe(1, 2));
    assert!(harness.completions.is_empty(), "a change is acknowledged before it is durable");
    assert_eq!(refusal(&harness.write(4, &[2])), None, "not deleted yet");
    assert_eq!(harness.awaited(added), None);
    assert_eq!(harness.awaited(again), Some(Refusal::VolumeExists), "judged after the first one");
    assert_eq!(harness.awaited(deleted), None);
    let sqe = harness.io(io::READ, READER, 3, 1);
    assert_eq!(harness.refused(READER, sqe), Some(Refusal::Deleting));
    // The tombstone is written beside all else, too.
    harness.advance(Span::from_ms(5));
    for _ in 0..100 {
        harness.advance(Span::from_ms(1));
    }
    assert!(harness.ssd().volumes.metadata().contents().tombstones.contains_key(&vid(VOLUME)));
    assert!(harness.ssd().table.volume(vid(VOLUME)).is_none());
    assert_eq!(harness.in_flight(), 0);
}

fn sqe_of_keep_alive() -> Sqe {
    sqe(admin::KEEP_ALIVE)
}

#[test]
fn a_change_whose_queue_is_gone_takes_effect_where_it_has_begun_and_not_where_it_waits() {
    let mut harness = slow();
    let sqe = harness.daemon_sqe(opcode::VOLUME_ADD, entry(MORE).encode().as_bytes());
    harness.submit(DAEMON, sqe);
    harness.submit(DAEMON, Harness::delete_sqe(1, 2));
    harness.close_queue(harness.now, DAEMON);
    assert_eq!(harness.in_flight(), 0);
    for _ in 0..100 {
        harness.advance(Span::from_ms(1));
    }
    let ssd = harness.ssd();
    assert!(ssd.table.volume(vid(MORE)).is_some(), "what is durable is in the table");
    assert!(!ssd.table.volume(vid(VOLUME)).unwrap().entry().deleting, "no command asks for that");
}

#[test]
fn counters_of_smart_hold_nothing_up() {
    let mut harness = slow();
    harness.write(1, &[1]);
    let before = harness.ssd().volumes.metadata().contents().smart_counters;
    harness.advance(Span::from_ms(61_000));
    // Both copies are written in the next milliseconds, not at the next save.
    for _ in 0..3 * POLLS {
        harness.advance(Span::from_ms(1));
    }
    let mut ssd = harness.ssd();
    assert!(!ssd.volumes.metadata_mut().poll_smart_counters().unwrap());
    assert_ne!(ssd.volumes.metadata().contents().smart_counters, before);
}

/// Time that a sync takes.
const BARRIER: Duration = Duration::from_secs(1);
/// A call that takes so long has stood still: for a disk, or because the machine is busy otherwise.
const STILL: Duration = Duration::from_millis(300);

/// The system area of a file on a slow disk.
#[derive(Debug)]
struct SlowStore {
    inner: FileStore,
    due: Mutex<HashMap<SyncTicket, Instant>>,
}

impl SlowStore {
    fn slowly(&self, started: os::Result<Started>) -> os::Result<Started> {
        let started = started?;
        if let Started::Running(ticket) = started {
            self.due.lock().unwrap().insert(ticket, Instant::now() + BARRIER);
        }
        Ok(started)
    }
}

impl Store for SlowStore {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> os::Result<()> {
        self.inner.read(at, out)
    }

    fn write(&self, at: u64, data: &[u8]) -> os::Result<()> {
        self.inner.write(at, data)
    }

    fn sync(&self) -> os::Result<()> {
        std::thread::sleep(BARRIER);
        self.inner.sync()
    }

    fn barrier(&self) -> os::Result<bool> {
        let took = self.inner.barrier()?;
        std::thread::sleep(BARRIER * u32::from(took));
        Ok(took)
    }

    fn start_write(&self, at: u64, data: &[u8]) -> os::Result<()> {
        self.inner.start_write(at, data)
    }

    fn start_sync(&self) -> os::Result<Started> {
        self.slowly(self.inner.start_sync())
    }

    fn start_barrier(&self) -> os::Result<Started> {
        self.slowly(self.inner.start_barrier())
    }

    fn poll_sync(&self, ticket: SyncTicket) -> Poll<os::Result<()>> {
        let due = self.due.lock().unwrap()[&ticket];
        if Instant::now() < due { Poll::Pending } else { self.inner.poll_sync(ticket) }
    }

    fn wait_sync(&self, ticket: SyncTicket) -> os::Result<()> {
        let due = self.due.lock().unwrap()[&ticket];
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        self.inner.wait_sync(ticket)
    }

    fn queued_bytes(&self) -> u64 {
        self.inner.queued_bytes()
    }
}

/// An SSD in a file whose syncs take a second from here on, and the file's folder.
fn on_slow_file() -> (Harness, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let preset = Preset::by_name("null").unwrap();
    let (index, serial) = (0, "GN0001".into());
    let config =
        SsdConfig { index, preset, capacity_bytes: 4096 << 12, serial, media: SsdMedia::File(path.clone()) };
    let bytes = FtlConfig::store_bytes(&config.preset, 4096, DUMP_BYTES).unwrap();
    let geometry = geometry_for(&config.preset, 4096).unwrap();
    let file = Arc::new(DataFile::create(&path, &geometry, bytes, "a test").unwrap());
    let bench = Bench::default();
    // A format and a start may wait for the disk.
    let store = Arc::new(FileStore::new(Arc::clone(&file), Arc::clone(&bench.power)));
    let mut ssd = Ssd::on_file(config.clone(), &bench, Arc::clone(&file), store, true).unwrap();
    ssd.shut_down().unwrap();
    drop(ssd);
    let inner = FileStore::new(Arc::clone(&file), Arc::clone(&bench.power));
    let store = Arc::new(SlowStore { inner, due: Mutex::default() });
    let ssd = Ssd::on_file(config, &bench, file, store, false).unwrap();
    (Harness::around(ssd, bench.faults), folder)
}

#[test]
fn commands_of_the_daemon_stop_no_engine_on_a_disk_whose_sync_takes_a_second() {
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
            still += if taken > STILL { taken } else { Duration::ZERO };
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
    assert!(all > 6 * BARRIER, "each command has two syncs at least: {all:?}");
    assert!(still < all / 8, "of {all:?} the SSD stood still for {still:?}, {longest:?} at a time");
    assert!(alive > 100, "{alive} keep-alives");
}
