// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD in a file: its refusals, and the content that it keeps.

use super::*;
use proptest::prelude::*;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    (folder, path)
}

#[test]
fn a_file_is_opened_once() {
    let _deadline = crate::tests::deadline();
    let (_folder, path) = place();
    let file = new_file(&path, IoMode::Auto);
    let error = DataFile::open(&path).unwrap_err();
    assert!(matches!(error, DataFileError::Locked(_)));
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    let flash = on_file(&file);
    let error = Flash::new(config(MediaConfig::File(Arc::clone(&file)))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "two flashes over one handle");
    drop((flash, file));
    let file = open(&path).unwrap();
    assert_eq!((file.label(), file.system_bytes(), file.geometry().superblocks()), ("a test", 100_000, 5));
}

#[test]
fn what_is_not_an_ssd_is_refused_with_a_reason() {
    let _deadline = crate::tests::deadline();
    let (folder, path) = place();
    let refused = |path: &std::path::Path| DataFile::open(path).unwrap_err().to_string();
    assert!(refused(&path).contains("cannot be opened"), "a file that is not there");
    drop(new_file(&path, IoMode::Auto));
    let geometry = Geometry::new(shape(), 5).unwrap();
    assert!(matches!(DataFile::create(&path, &geometry, 0, "").unwrap_err(), DataFileError::Occupied { .. }));
    let raw = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut header = [0; 4096];
    raw.read_exact_at(&mut header, 0).unwrap();
    for (at, reason) in [(3, "mark"), (9, "damaged"), (60, "damaged"), (4000, "damaged"), (4095, "damaged")] {
        raw.write_all_at(&[header[at] ^ 1], at as u64).unwrap();
        assert!(refused(&path).contains(reason), "byte {at}: {}", refused(&path));
        raw.write_all_at(&[header[at]], at as u64).unwrap();
    }
    // Sound, but of a later format.
    let mut later = header;
    later[8] += 1;
    let crc = crc32c::crc32c(&later[..4092]);
    later[4092..].copy_from_slice(&crc.to_le_bytes());
    raw.write_all_at(&later, 0).unwrap();
    assert!(refused(&path).contains("version 4, and this program reads version 3"), "{}", refused(&path));
    raw.write_all_at(&header, 0).unwrap();
    open(&path).unwrap();
    let len = raw.metadata().unwrap().len();
    raw.set_len(len - 1).unwrap();
    assert!(refused(&path).contains("cut short"));
    raw.set_len(100).unwrap();
    assert!(refused(&path).contains("less than a header"));
    assert!(refused(folder.path()).contains("is a folder"));
}

#[test]
fn another_geometry_is_refused() {
    let _deadline = crate::tests::deadline();
    let (_folder, path) = place();
    let file = new_file(&path, IoMode::Auto);
    let media = MediaConfig::File(file);
    let other = FlashConfig { geometry: Geometry::new(shape(), 6).unwrap(), ..config(media) };
    let error = Flash::new(other).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(error.to_string().contains("superblocks, and "));
}

proptest! {
    // Each case makes a file and waits for the disk.
    #![proptest_config(ProptestConfig::with_cases(50))]

    #[test]
    fn no_header_is_obeyed_that_was_not_written(at in 0..4096usize, bit in 0..8u32, noise: Vec<u8>) {
        let _deadline = crate::tests::deadline();
        let (_folder, path) = place();
        drop(new_file(&path, IoMode::Blocking));
        let raw = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut header = [0; 4096];
        raw.read_exact_at(&mut header, 0).unwrap();
        raw.write_all_at(&[header[at] ^ 1 << bit], at as u64).unwrap();
        prop_assert!(DataFile::open(&path).is_err());
        raw.write_all_at(&header, 0).unwrap();
        raw.write_all_at(&noise, at as u64).unwrap();
        _ = DataFile::open(&path);
    }

    /// Records are input: no record leads to a panic, and only records written for their page count.
    #[test]
    fn damaged_records_are_seen(flips in prop::collection::vec((0..24u32, 0..40u32, 0..8u32), 1..20)) {
        let _deadline = crate::tests::deadline();
        let (_folder, path) = place();
        let file = new_file(&path, IoMode::Blocking);
        let flash = on_file(&file);
        (0..6).for_each(|unit| program(&flash, Unit(unit), u64::from(unit) * 4));
        drop(flash);
        let records = 64 * 1024 + 102_400;
        let raw = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        for (page, at, bit) in flips {
            let at = records + u64::from(page) * 64 + u64::from(at);
            let mut byte = [0];
            raw.read_exact_at(&mut byte, at).unwrap();
            raw.write_all_at(&[byte[0] ^ 1 << bit], at).unwrap();
        }
        let flash = on_file(&file);
        for page in 0..24 {
            match flash.page(Ppa(page)) {
                PageState::Programmed(found) => prop_assert_eq!(found, oob(u64::from(page))),
                state => {
                    prop_assert!(!matches!(state, PageState::Padding | PageState::Buffered(_)));
                    prop_assert!(read(&flash, Ppa(page)).is_err());
                }
            }
            _ = (flash.key(Ppa(page)), flash.oob(Ppa(page)), copied(&flash, Ppa(page)));
        }
        (0..4).for_each(|block| flash.erase(Block(block)).unwrap());
        program(&flash, Unit(0), 500);
        assert_holds(&flash, Ppa(1), 501, true);
    }
}

#[test]
fn a_record_of_another_page_is_damage() {
    let _deadline = crate::tests::deadline();
    let (_folder, path) = place();
    let file = new_file(&path, IoMode::Blocking);
    program(&on_file(&file), Unit(0), 10);
    let raw = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let records = 64 * 1024 + 102_400;
    let mut record = [0; 64];
    raw.read_exact_at(&mut record, records + 64).unwrap();
    raw.write_all_at(&record, records + 128).unwrap();
    let flash = on_file(&file);
    assert_holds(&flash, Ppa(1), 11, true);
    assert_eq!(flash.page(Ppa(2)), PageState::Damaged);
}

#[test]
fn pages_survive_without_a_shutdown_in_every_way_of_io() {
    let _deadline = crate::tests::deadline();
    let modes = [IoMode::Blocking, IoMode::Auto, IoMode::Uring];
    for io in modes {
        let (_folder, path) = place();
        let file = new_file(&path, io);
        let flash = match Flash::new(config(MediaConfig::File(Arc::clone(&file)))) {
            Ok(flash) => flash,
            // If this machine forbids io_uring, the test covers the fallback.
            Err(error) if io == IoMode::Uring => {
                eprintln!("io_uring is not permitted here ({error}): not tested");
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        for unit in 0..40 {
            program(&flash, Unit(unit), u64::from(unit) * 4);
        }
        put(&flash, Ppa(160), 1000);
        drop((flash, file));
        for _ in 0..2 {
            let file = Arc::new(open(&path).unwrap().with_io(io));
            let flash = on_file(&file);
            (0..160).for_each(|page| assert_holds(&flash, Ppa(page), u64::from(page), true));
            assert_eq!((flash.page(Ppa(160)), flash.key(Ppa(160))), (PageState::Erased, None));
            assert_eq!(
                (flash.next_row(Block(8)), flash.next_row(Block(13)), flash.next_row(Block(15))),
                (3, 1, 1)
            );
        }
        let file = Arc::new(open(&path).unwrap().with_io(io));
        let flash = on_file(&file);
        program(&flash, Unit(40), 2000);
        flash.erase(Block(0)).unwrap();
        program(&flash, Unit(0), 3000);
        assert_holds(&flash, Ppa(160), 2000, true);
        assert_holds(&flash, Ppa(0), 3000, true);
        assert_eq!(flash.page(Ppa(16)), PageState::Erased);
    }
}

#[test]
fn many_loads_share_few_frames() {
    let _deadline = crate::tests::deadline();
    for io in [IoMode::Blocking, IoMode::Auto] {
        let (_folder, path) = place();
        let flash = on_file(&new_file(&path, io));
        for unit in 0..60 {
            program(&flash, Unit(unit), u64::from(unit) * 4);
        }
        let free = flash.free_frames();
        let mut tickets = std::collections::HashMap::new();
        for page in (0..240).map(Ppa) {
            flash.pin(page);
            match flash.fetch(page) {
                Fetch::Loading(ticket) => {
                    assert_eq!(tickets.insert(ticket, page), None, "a ticket is given once")
                }
                other => panic!("{other:?}"),
            }
        }
        let mut held = Vec::new();
        while !tickets.is_empty() || !held.is_empty() {
            if let Some(Loaded { ticket, result }) = flash.poll_loaded() {
                let page = tickets.remove(&ticket).unwrap();
                let mut bytes = [0; 4096];
                flash.regions()[0].read(result.unwrap().offset, &mut bytes);
                assert!(bytes == data(u64::from(page.0)));
                held.push((ticket, page));
            } else if let Some((ticket, page)) = held.pop() {
                flash.release(ticket);
                flash.release(ticket);
                flash.unpin(page);
            }
        }
        assert_eq!(flash.free_frames(), free);
        assert_eq!(flash.poll_loaded(), None);
    }
}

#[test]
fn faults_reach_files_too() {
    let _deadline = crate::tests::deadline();
    let (_folder, path) = place();
    let file = new_file(&path, IoMode::Auto);
    let faults = Arc::new(Faults::none());
    let media = MediaConfig::File(Arc::clone(&file));
    let flash = Flash::new(FlashConfig { faults: Arc::clone(&faults), ..config(media) }).unwrap();
    program(&flash, Unit(0), 10);
    faults.unreadable(Ppa(0), false);
    faults.rot(Ppa(1), 9);
    faults.fail_program(1);
    assert_eq!(read(&flash, Ppa(0)), Err(Unreadable(Ppa(0))));
    let mut rotten = data(11);
    rotten[1] ^= 2;
    assert!(read(&flash, Ppa(1)).unwrap() == rotten);
    let free = flash.free_frames();
    flash.geometry().pages_of(Unit(1)).for_each(|page| put(&flash, page, u64::from(page.0)));
    flash.start_program(Unit(1));
    finish(&flash, Unit(1)).unwrap_err();
    assert_holds(&flash, Ppa(5), 5, false);
    flash.mark_bad(Block(1));
    flash.erase(Block(1)).unwrap();
    assert_eq!(flash.free_frames(), free);
    drop(flash);
    assert!(read(&on_file(&file), Ppa(1)).unwrap() == rotten, "rot is in the file");
}

#[test]
fn boots_are_counted_and_one_damaged_count_is_survived() {
    let _deadline = crate::tests::deadline();
    let (_folder, path) = place();
    let file = new_file(&path, IoMode::Blocking);
    let first = file.next_boot(1).unwrap();
    assert_eq!(file.next_boot(1).unwrap(), first + 1);
    let raw = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    for slot in [4096, 8192] {
        let before = file.next_boot(1).unwrap();
        raw.write_all_at(&[0x55; 16], slot).unwrap();
        assert!(file.next_boot(1).unwrap() > before);
    }
    raw.write_all_at(&[0x55; 16], 4096).unwrap();
    raw.write_all_at(&[0x55; 16], 8192).unwrap();
    assert!(file.next_boot(1).unwrap_err().to_string().contains("boots are damaged"));
}

#[test]
fn a_barrier_is_a_sync_where_pages_were_programmed_or_erased_since_the_last_one() {
    let _deadline = crate::tests::deadline();
    let (_folder, path) = place();
    let file = new_file(&path, IoMode::Blocking);
    let store = FileStore::new(Arc::clone(&file), Arc::new(Power::steady()));
    let flash = on_file(&file);
    assert!(!store.barrier().unwrap(), "nothing was done");
    program(&flash, Unit(0), 0);
    assert!(store.barrier().unwrap());
    assert!(!store.barrier().unwrap());
    store.write(0, &[1; 512]).unwrap();
    assert!(!store.barrier().unwrap(), "what the store itself was given is no page");
    program(&flash, Unit(4), 4);
    store.sync().unwrap();
    assert!(!store.barrier().unwrap(), "a sync is a barrier");
    flash.erase(Block(0)).unwrap();
    assert!(store.barrier().unwrap());
    let power = Arc::new(Power::steady());
    let store = FileStore::new(Arc::clone(&file), Arc::clone(&power));
    program(&flash, Unit(1), 8);
    power.cut();
    assert!(store.barrier().is_err(), "not without power");
}

#[test]
fn the_bytes_that_a_file_will_take_are_known_before_it_is_made() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let bytes = DataFile::bytes_for(&Geometry::new(shape(), 5).unwrap(), 100_000).unwrap();
    drop(new_file(&path, IoMode::Blocking));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), bytes);
}
