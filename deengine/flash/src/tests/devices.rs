// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block devices: the SSD never overwrites foreign content, and leaves devices in use alone.

use super::mounts::left_out;
use super::space::Mounted;
use super::*;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

/// A loop device.
struct Loop {
    device: PathBuf,
    _backing: tempfile::NamedTempFile,
}

impl Loop {
    fn of(bytes: u64, sector: u32) -> Option<Self> {
        let backing = tempfile::NamedTempFile::new().unwrap();
        backing.as_file().set_len(bytes).unwrap();
        let sector = sector.to_string();
        let made = Command::new("losetup")
            .args(["--find", "--show", "--sector-size", &sector])
            .arg(backing.path())
            .output();
        match made {
            Ok(made) if made.status.success() => {
                let device = String::from_utf8(made.stdout).unwrap().trim().into();
                Some(Self { device, _backing: backing })
            }
            made => {
                left_out("a loop device", &made);
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}

const BYTES: u64 = 8 << 20;

fn geometry() -> Geometry {
    Geometry::new(shape(), 5).unwrap()
}

fn occupied(error: DataFileError) -> &'static str {
    match error {
        DataFileError::Occupied { what, .. } => what,
        other => panic!("{other}"),
    }
}

#[test]
fn what_a_device_holds_is_named_and_not_overwritten() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    let marks: [(u64, &[u8], &str); 6] = [
        (1080, b"\x53\xEF", "ext"),
        (65_600, b"_BHRfS_M", "btrfs"),
        (0, b"GNSTFLSH", "GNStor"),
        (510, b"\x55\xAA", "partition"),
        (900_000, b"x", "not zero"),
        (BYTES - 512, b"EFI PART", "not zero"),
    ];
    for (at, mark, name) in marks {
        let raw = File::create(&path).unwrap();
        raw.set_len(BYTES).unwrap();
        raw.write_all_at(mark, at).unwrap();
        let before = std::fs::read(&path).unwrap();
        let what = occupied(DataFile::create_as_device(&path, &geometry(), "").unwrap_err());
        assert!(what.contains(name), "{what}");
        assert!(std::fs::read(&path).unwrap() == before, "{name}: a refused device was changed");
    }
    let raw = File::create(&path).unwrap();
    raw.set_len(1 << 20).unwrap();
    let error = DataFile::create_as_device(&path, &geometry(), "").unwrap_err();
    assert!(matches!(error, DataFileError::TooSmall { has, .. } if has == 1 << 20), "{error}");
    // Old content in the middle is not taken for records or a journal; nothing is cut off.
    raw.set_len(BYTES).unwrap();
    raw.write_all_at(&vec![0x5A; 3 << 20], 1 << 20).unwrap();
    drop(DataFile::create_as_device(&path, &geometry(), "").unwrap());
    assert_eq!(raw.metadata().unwrap().len(), BYTES);
    let file = Arc::new(open(&path).unwrap().with_io(IoMode::Blocking));
    let flash = on_file(&file);
    assert_eq!(flash.page(Ppa(239)), PageState::Erased);
    program(&flash, Unit(0), 10);
    assert_holds(&flash, Ppa(0), 10, true);
}

#[test]
fn an_ssd_on_a_block_device_comes_back_whatever_its_sectors() {
    let _deadline = crate::tests::deadline();
    for sector in [512, 4096] {
        let Some(device) = Loop::of(BYTES, sector) else { return };
        let path = &device.device;
        assert!(matches!(DataFile::open(path).unwrap_err(), DataFileError::Blank(_)));
        let file = DataFile::create(path, &geometry(), 100_000, "on a device").unwrap();
        assert!(matches!(DataFile::open(path).unwrap_err(), DataFileError::Busy(_)));
        let file = Arc::new(file);
        let flash = on_file(&file);
        (0..60).for_each(|unit| program(&flash, Unit(unit), u64::from(unit) * 4));
        drop((flash, file));
        assert!(occupied(DataFile::create(path, &geometry(), 100_000, "").unwrap_err()).contains("GNStor"));
        let file = Arc::new(open(path).unwrap().with_io(IoMode::Blocking));
        assert_eq!(file.label(), "on a device");
        let flash = on_file(&file);
        (0..240).for_each(|page| assert_holds(&flash, Ppa(page), u64::from(page), true));
        assert!(file.is_direct(), "sectors of {sector} bytes are read and written past the page cache");
    }
}

#[test]
fn a_mounted_device_is_left_alone() {
    let _deadline = crate::tests::deadline();
    let Some(device) = Loop::of(4 * BYTES, 512) else { return };
    let made = Command::new("mkfs.ext4").arg("-q").arg(&device.device).status();
    if !made.as_ref().is_ok_and(std::process::ExitStatus::success) {
        return left_out("mkfs.ext4", &made);
    }
    let name = device.device.to_str().unwrap();
    {
        let Some(_mounted) = Mounted::at(&[name]) else { return };
        for error in [
            DataFile::open(&device.device).unwrap_err(),
            DataFile::create(&device.device, &geometry(), 0, "").unwrap_err(),
        ] {
            assert!(matches!(error, DataFileError::Busy(_)), "{error}");
            assert!(error.to_string().contains("mounted"), "{error}");
        }
    }
    assert!(occupied(DataFile::create(&device.device, &geometry(), 0, "").unwrap_err()).contains("ext"));
}

#[test]
fn what_is_neither_file_nor_device_is_refused_and_no_file_is_made_among_devices() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for (path, what) in
        [(folder.path(), "a folder"), (Path::new("/dev/null"), "a character device"), (&pipe, "a pipe")]
    {
        for error in
            [DataFile::open(path).unwrap_err(), DataFile::create(path, &geometry(), 0, "").unwrap_err()]
        {
            let text = error.to_string();
            assert!(text.contains(what) && text.contains(path.to_str().unwrap()), "{text}");
        }
    }
    let none = Path::new("/dev/gnstor-no-such-device");
    let error = DataFile::create(none, &geometry(), 0, "").unwrap_err().to_string();
    assert!(error.contains("no device of this machine") && !none.exists(), "{error}");
}
