// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disk space: reserved when a file is made. In a sparse file, writes wait for space.

use super::mounts::left_out;
use super::*;
use crate::file::{Size, Syncs};
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::process::Command;

/// A file system of the test's own; `None` where the test may be left out.
pub(super) struct Mounted(pub(super) tempfile::TempDir);

impl Mounted {
    pub(super) fn at(args: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").args(args).arg(folder.path()).output();
        if mounted.as_ref().is_ok_and(|mounted| mounted.status.success()) {
            return Some(Self(folder));
        }
        left_out("a mount", &mounted);
        None
    }

    pub(super) fn path(&self) -> PathBuf {
        self.0.path().join("ssd")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

fn blocks(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().blocks() * 512
}

fn hole(path: &Path) {
    File::create(path).unwrap().set_len(4096).unwrap();
}

fn start(flash: &Flash, unit: Unit, first: u64) {
    for (page, number) in flash.geometry().pages_of(unit).zip(first..) {
        put(flash, page, number);
    }
    flash.start_program(unit);
}

#[test]
fn a_file_has_all_of_its_space_and_a_hole_only_what_is_mapped() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let (whole, sparse) = (folder.path().join("whole"), folder.path().join("sparse"));
    drop(new_file(&whole, IoMode::Blocking));
    let len = std::fs::metadata(&whole).unwrap().len();
    assert!(blocks(&whole) >= len, "{} of {len} bytes are there", blocks(&whole));
    hole(&sparse);
    let file = new_file(&sparse, IoMode::Blocking);
    assert_eq!(std::fs::metadata(&sparse).unwrap().len(), len);
    let mapped = 64 * 1024 + 102_400 + 240 * 64;
    assert!((mapped..len).contains(&blocks(&sparse)), "{}", blocks(&sparse));
    program(&on_file(&file), Unit(0), 10);
    assert_holds(&on_file(&file), Ppa(0), 10, true);
}

#[test]
fn space_that_was_lost_under_the_records_is_set_aside_again() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("ssd"), folder.path().join("copy"));
    let file = new_file(&path, IoMode::Blocking);
    program(&on_file(&file), Unit(0), 10);
    drop(file);
    let copied = Command::new("cp").arg("--sparse=always").args([&path, &copy]).status().unwrap();
    assert!(copied.success());
    let before = blocks(&copy);
    let file = Arc::new(open(&copy).unwrap().with_io(IoMode::Blocking));
    let flash = on_file(&file);
    assert!(blocks(&copy) > before, "{before} bytes are all there is");
    assert_holds(&flash, Ppa(0), 10, true);
}

#[test]
fn what_a_killed_maker_left_is_made_use_of() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    drop(new_file(&path, IoMode::Blocking));
    let (len, header) =
        (std::fs::metadata(&path).unwrap().len(), std::fs::read(&path).unwrap()[..4096].to_vec());
    // Allocated space without a header, which is written last. Reading it must not make it look like data.
    std::fs::remove_file(&path).unwrap();
    let raw = File::create(&path).unwrap();
    crate::sys::reserve(&raw, len).unwrap();
    assert!(std::fs::read(&path).unwrap().iter().all(|&byte| byte == 0));
    assert!(matches!(DataFile::open(&path).unwrap_err(), DataFileError::Blank(_)));
    drop(new_file(&path, IoMode::Blocking));
    assert!(std::fs::read(&path).unwrap()[..4096] == header);
    assert!(blocks(&path) >= len, "it was not wished sparse");
    raw.set_len(0).unwrap();
    raw.set_len(len).unwrap();
    raw.write_all_at(b"x", len - 1).unwrap();
    let geometry = Geometry::new(shape(), 5).unwrap();
    assert!(matches!(DataFile::create(&path, &geometry, 0, "").unwrap_err(), DataFileError::Occupied { .. }));
}

#[test]
fn a_file_that_does_not_fit_is_refused_and_nothing_is_left_of_it() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let probe = File::create(folder.path().join("probe")).unwrap();
    let Some(room) = crate::sys::room(&probe).unwrap() else {
        panic!("a file system without a count of its space")
    };
    // More than there is, and less than a file of the most pages.
    let superblocks = u32::try_from((room + (64 << 30)) / (48 * 4096)).expect("less than 16 TiB of room");
    let geometry = Geometry::new(shape(), superblocks).unwrap();
    let error = DataFile::create(&path, &geometry, 0, "").unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, DataFileError::NoSpace { .. }), "{text}");
    assert!(text.contains("GiB of disk space") && text.contains(path.to_str().unwrap()), "{text}");
    assert!(!path.exists(), "a refused SSD left a file");
    // A file that was there stays, unchanged. As a hole its system area alone is too large.
    for (len, geometry, system_bytes) in
        [(0, geometry.clone(), 0), (8192, Geometry::new(shape(), 5).unwrap(), room + (64 << 30))]
    {
        File::create(&path).unwrap().set_len(len).unwrap();
        let error = DataFile::create(&path, &geometry, system_bytes, "").unwrap_err();
        assert!(matches!(error, DataFileError::NoSpace { .. }), "{error}");
        let meta = std::fs::metadata(&path).unwrap();
        assert_eq!((meta.len(), meta.blocks()), (len, 0));
    }
    std::fs::write(&path, b"a letter").unwrap();
    assert!(matches!(DataFile::create(&path, &geometry, 0, "").unwrap_err(), DataFileError::Occupied { .. }));
    assert_eq!(std::fs::read(&path).unwrap(), b"a letter");
    let nowhere = folder.path().join("none").join("ssd");
    assert!(
        DataFile::create(&nowhere, &geometry, 0, "").unwrap_err().to_string().contains("want of its folder")
    );
    assert_eq!((Size(1).to_string(), Size(20 << 30).to_string()), ("1 MiB".into(), "20 GiB".into()));
}

/// `/dev/full` has no room for any write. The file replaces it as soon as there is "room" again.
#[test]
fn a_write_that_finds_the_disk_full_waits_and_nothing_is_lost() {
    let _deadline = crate::tests::deadline();
    for io in [IoMode::Blocking, IoMode::Auto] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ssd");
        let file =
            DataFile::create(&path, &Geometry::new(shape(), 5).unwrap(), 100_000, "").unwrap().with_io(io);
        let full = OpenOptions::new().read(true).write(true).open("/dev/full").unwrap();
        let file = Arc::new(file.with_data(full));
        let flash = on_file(&file);
        (0..5).for_each(|unit| start(&flash, Unit(unit), u64::from(unit) * 4));
        for _ in 0..100_000 {
            assert!(flash.finish_program(Unit(3)).is_pending(), "a full disk is not a bad block");
        }
        for page in 0..20 {
            assert_holds(&flash, Ppa(page), u64::from(page), false);
        }
        // After a power failure nothing of the write is left, and the file is usable.
        drop((flash, file));
        let file = Arc::new(open(&path).unwrap().with_io(io));
        let flash = on_file(&file);
        assert_eq!(flash.page(Ppa(0)), PageState::Erased);
        program(&flash, Unit(0), 50);
        assert_holds(&flash, Ppa(0), 50, true);
    }
}

#[test]
fn a_write_that_fails_otherwise_is_a_failed_program() {
    let _deadline = crate::tests::deadline();
    for io in [IoMode::Blocking, IoMode::Auto] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ssd");
        let file =
            DataFile::create(&path, &Geometry::new(shape(), 5).unwrap(), 100_000, "").unwrap().with_io(io);
        // A descriptor without write permission acts as a broken disk.
        let flash = on_file(&Arc::new(file.with_data(File::open(&path).unwrap())));
        start(&flash, Unit(0), 10);
        assert_eq!(finish(&flash, Unit(0)), Err(ProgramFailed { unit: Unit(0), block: Block(0) }));
        (0..4).for_each(|page| assert_holds(&flash, Ppa(page), 10 + u64::from(page), false));
    }
}

#[test]
fn a_sparse_file_on_a_full_file_system_ends_no_process_and_continues_when_there_is_room() {
    let _deadline = crate::tests::deadline();
    let Some(mounted) = Mounted::at(&["-t", "tmpfs", "-o", "size=2m", "tmpfs"]) else { return };
    let (path, ballast) = (mounted.path(), mounted.0.path().join("ballast"));
    // Both the whole file and its mapped part are too large. The error names both sizes before anything is
    // written.
    let large = Geometry::new(shape(), 1000).unwrap();
    assert!(matches!(DataFile::create(&path, &large, 0, "").unwrap_err(), DataFileError::NoSpace { .. }));
    hole(&path);
    let error = DataFile::create(&path, &large, 4 << 20, "").unwrap_err();
    assert!(matches!(error, DataFileError::NoSpace { .. }), "{error}");
    for io in [IoMode::Blocking, IoMode::Auto] {
        hole(&path);
        let file = new_file(&path, io);
        let flash = on_file(&file);
        program(&flash, Unit(0), 100);
        let error =
            std::io::copy(&mut File::open("/dev/zero").unwrap(), &mut File::create(&ballast).unwrap());
        assert_eq!(error.unwrap_err().kind(), ErrorKind::StorageFull);
        (1..6).for_each(|unit| start(&flash, Unit(unit), u64::from(unit) * 4));
        for _ in 0..10_000 {
            assert!(flash.finish_program(Unit(5)).is_pending());
        }
        (0..4).for_each(|page| assert_holds(&flash, Ppa(page), 100 + u64::from(page), true));
        std::fs::remove_file(&ballast).unwrap();
        // Hundreds of units may be held.
        let (blocking, has_ring) = (flash.blocking(), flash.has_ring());
        (1..6).for_each(|unit| finish(&flash, Unit(unit)).unwrap());
        let blocking = flash.blocking() - blocking;
        assert!(if has_ring { blocking == 0 } else { blocking >= 5 }, "{blocking} blocking calls");
        (4..24).for_each(|page| assert_holds(&flash, Ppa(page), u64::from(page), true));
        drop((flash, file));
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn after_a_failed_sync_none_is_believed() {
    let _deadline = crate::tests::deadline();
    let syncs = Syncs::default();
    syncs.run(|| Ok(())).unwrap();
    syncs.run(|| Err(ErrorKind::StorageFull.into())).unwrap_err();
    let error = syncs.run(|| Ok(())).unwrap_err();
    assert!(error.to_string().contains("after a restart"), "{error}");
}
