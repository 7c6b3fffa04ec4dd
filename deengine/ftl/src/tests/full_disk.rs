// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A sparse data file on a full disk. Writes get a status, the thread sleeps, and a shutdown ends soon. After
//! room is made, everything acknowledged is there.
#![expect(clippy::disallowed_methods, reason = "the test is about real time")]

use super::mounts::left_out;
use super::*;
use crate::restore::Origin;
use gnstor_flash::{DataFile, FileStore};
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A file system of the test's own; `None` where the test may be left out.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64m", "tmpfs"])
            .arg(folder.path())
            .output();
        if mounted.as_ref().is_ok_and(|mounted| mounted.status.success()) {
            return Some(Self(folder));
        }
        left_out("a mount", &mounted);
        None
    }

    /// Uses up the room that is left.
    fn fill(&self) {
        let mut ballast = File::create(self.0.path().join("ballast")).unwrap();
        std::io::copy(&mut File::open("/dev/zero").unwrap(), &mut ballast).unwrap_err();
    }

    fn make_room(&self) {
        std::fs::remove_file(self.0.path().join("ballast")).unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

fn on_file(path: &Path, is_new: bool) -> FtlConfig {
    on_file_with(path, is_new, crate::DUMP_BYTES)
}

/// As [`on_file`], with energy for a dump of `dump_bytes`.
fn on_file_with(path: &Path, is_new: bool, dump_bytes: u64) -> FtlConfig {
    let power = Arc::new(Power::steady());
    let (mut config, _) = config(2000, false, &power, 3);
    config.dump_bytes = dump_bytes;
    config.preset.power_protected = true;
    let geometry = crate::geometry_for(&config.preset, config.logical_pages).unwrap();
    let bytes = FtlConfig::store_bytes(&config.preset, config.logical_pages, config.dump_bytes).unwrap();
    if is_new {
        // A hole is its owner's wish.
        File::create(path).unwrap().set_len(4096).unwrap();
    }
    let file = if is_new { DataFile::create(path, &geometry, bytes, "") } else { DataFile::open(path) };
    let file = Arc::new(file.unwrap());
    config.store = Arc::new(FileStore::new(Arc::clone(&file), power));
    config.media = MediaConfig::File(file);
    config.spare_frames = 1024;
    config
}

fn try_write(ftl: &Ftl, now: Time, vba: u32, sequence: u64) -> Result<(), CommitError> {
    let Some(frame) = ftl.take_frame() else { return Err(CommitError::Stalled) };
    let stamp = Stamp { lease_epoch: 1, sequence };
    let data = content(tag(stamp, vba));
    ftl.flash().write_frame(frame, &data);
    let block = NewBlock { frame, sum: gnstor_proto::checksum::block_sum(&data) };
    let target = Target { vid: vid(1), generation: 1, vba, stamp, only_mapped: false, fills: false };
    let committed = ftl.commit(now, now, &target, &[block]);
    committed.map(drop).inspect_err(|_| ftl.give_frame(frame))
}

fn read(ftl: &Ftl, vba: u32) -> u64 {
    let data = super::stored(ftl, vba);
    let tag = u64::from_le_bytes(data[..8].try_into().unwrap());
    assert!(data == content(tag), "block {vba} is torn");
    tag
}

/// Checks that the layer asks its thread to come back in milliseconds, not in microseconds.
fn comes_back_seldom(ftl: &Ftl, now: impl Fn() -> Time) {
    let (asked, mut calls) = (now(), 0);
    while now() < asked + Span::from_ms(200) {
        let next = ftl.maintain(now());
        calls += 1;
        std::thread::sleep(Duration::from_nanos(next.since(now()).as_ns()).min(Duration::from_millis(50)));
    }
    assert!(calls < 100, "{calls} calls in 200 ms");
}

/// Checks that a start without room says so, and changes nothing.
fn start_without_room(path: &Path) {
    let config = on_file(path, false);
    let starting = Instant::now();
    let error = Ftl::open(&config, |_, _, _| true, &|_, _| {}).unwrap_err();
    assert!(error.to_string().contains("no room on the disk"), "{error}");
    assert!(starting.elapsed() < Duration::from_secs(10), "the start took {:?}", starting.elapsed());
}

#[test]
fn on_a_full_disk_writes_get_a_status_and_a_shutdown_ends_with_a_dump() {
    let _deadline = crate::tests::deadline();
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.0.path().join("ssd");
    let config = on_file(&path, true);
    let OpenedFtl { ftl, .. } = Ftl::format(&config).unwrap();
    let mut newest: BTreeMap<u32, u64> = BTreeMap::new();
    let begin = Instant::now();
    let now = || Time::from_ns(1 + u64::try_from(begin.elapsed().as_nanos()).unwrap());
    let mut sequence = 0;
    let mut write = |sequence: &mut u64, at: u64| {
        let vba = u32::try_from(at % 2000).unwrap();
        *sequence += 1;
        let result = try_write(&ftl, now(), vba, *sequence);
        if result.is_ok() {
            newest.insert(vba, tag(Stamp { lease_epoch: 1, sequence: *sequence }, vba));
        }
        result
    };
    for at in 0..300 {
        while write(&mut sequence, at).is_err() {
            ftl.maintain(now());
        }
    }
    mounted.fill();
    // The buffer takes some more writes. Further ones wait, and are refused.
    let mut stalled = None;
    let refused = loop {
        let at = sequence * 7;
        match write(&mut sequence, at) {
            Ok(()) => stalled = None,
            Err(CommitError::Stalled) => {
                let since = *stalled.get_or_insert_with(Instant::now);
                assert!(since.elapsed() < Duration::from_secs(10), "a write has no status");
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => break error,
        }
        ftl.maintain(now());
    };
    assert_eq!(refused, CommitError::Full);
    comes_back_seldom(&ftl, now);
    newest.iter().for_each(|(&vba, &tag)| assert_eq!(read(&ftl, vba), tag));
    // A shutdown does not wait for room, and leaves a dump.
    let stopping = Instant::now();
    ftl.shut_down().unwrap_err();
    ftl.power_fail().unwrap();
    assert!(stopping.elapsed() < Duration::from_secs(5), "the shutdown took {:?}", stopping.elapsed());
    drop((ftl, config));
    start_without_room(&path);
    mounted.make_room();
    let config = on_file(&path, false);
    let OpenedFtl { ftl, boot, .. } = Ftl::open(&config, |_, _, _| true, &|_, _| {}).unwrap();
    assert_eq!(boot.origin, Origin::Dump);
    newest.iter().for_each(|(&vba, &tag)| assert_eq!(read(&ftl, vba), tag, "block {vba}"));
}

#[test]
fn writes_go_on_when_there_is_room_again() {
    let _deadline = crate::tests::deadline();
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.0.path().join("ssd");
    let config = on_file(&path, true);
    let OpenedFtl { ftl, .. } = Ftl::format(&config).unwrap();
    mounted.fill();
    let begin = Instant::now();
    let now = || Time::from_ns(1 + u64::try_from(begin.elapsed().as_nanos()).unwrap());
    let mut sequence = 0;
    let mut newest = BTreeMap::new();
    let mut refused = false;
    while !refused || newest.len() < 2000 {
        sequence += 1;
        let vba = u32::try_from(newest.len() % 2000).unwrap();
        match try_write(&ftl, now(), vba, sequence) {
            Ok(()) => _ = newest.insert(vba, tag(Stamp { lease_epoch: 1, sequence }, vba)),
            Err(CommitError::Stalled) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => {
                assert_eq!(error, CommitError::Full);
                if !std::mem::replace(&mut refused, true) {
                    mounted.make_room();
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        ftl.maintain(now());
    }
    newest.iter().for_each(|(&vba, &tag)| assert_eq!(read(&ftl, vba), tag));
    ftl.shut_down().unwrap();
}

/// The journal of a sweep and of a trim waits for data that the disk does not take, and so is in the dump.
#[test]
fn what_is_deleted_on_a_full_disk_fits_the_dump_too() {
    let _deadline = crate::tests::deadline();
    for trims in [false, true] {
        let Some(mounted) = Mounted::new() else { return };
        let path = mounted.0.path().join("ssd");
        let config = on_file_with(&path, true, 1 << 20);
        let OpenedFtl { ftl, .. } = Ftl::format(&config).unwrap();
        let begin = Instant::now();
        let now = || Time::from_ns(1 + u64::try_from(begin.elapsed().as_nanos()).unwrap());
        let mut written = 0;
        while written < 1500 {
            written += u32::from(try_write(&ftl, now(), written, 1).is_ok());
            ftl.maintain(now());
        }
        ftl.flush_now().unwrap();
        mounted.fill();
        while try_write(&ftl, now(), written, 1).is_ok() {
            written += 1;
            ftl.maintain(now());
        }
        assert!(written > 1600, "some blocks are in the buffer: {written}");
        if !trims {
            ftl.sweep(vid(1), 1);
        }
        for vba in (0..written).cycle().take(4000) {
            if trims {
                let stamp = Stamp { lease_epoch: 1, sequence: u64::from(2 + vba) };
                let _ = ftl.trim(
                    now(),
                    &Target { vid: vid(1), generation: 1, vba, stamp, only_mapped: false, fills: false },
                    1,
                );
            }
            ftl.sweep_step(now(), 2048);
        }
        ftl.power_fail().unwrap();
        drop((ftl, config));
        mounted.make_room();
        let config = on_file_with(&path, false, 1 << 20);
        let OpenedFtl { boot, .. } = Ftl::open(&config, |_, _, _| true, &|_, _| {}).unwrap();
        assert_eq!(boot.origin, Origin::Dump);
    }
}
