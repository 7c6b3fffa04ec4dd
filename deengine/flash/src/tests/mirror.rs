// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records in memory: when the file gets them, and which memory a start takes.

use super::*;
use crate::file::memory::path_of;
use std::os::unix::fs::{FileExt, PermissionsExt as _};

/// Offset of the records in the file of these tests.
const RECORDS_AT: u64 = 64 * 1024 + 102_400;

/// State bytes of the first pages in the file.
fn states(path: &Path) -> Vec<u8> {
    let raw = std::fs::File::open(path).unwrap();
    let state = |page: u64| {
        let mut byte = [0];
        raw.read_exact_at(&mut byte, RECORDS_AT + page * 64).unwrap();
        byte[0]
    };
    (0..8).map(state).collect()
}

/// Leaves a file and the memory of its records, in this mode, as a killed process does.
fn leave(path: &Path, image: &[u8], memory: &Path, left: &[u8], mode: u32) {
    std::fs::write(path, image).unwrap();
    std::fs::write(memory, left).unwrap();
    std::fs::set_permissions(memory, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn a_sync_brings_records_to_the_file_and_so_does_an_end_in_order() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let file = new_file(&path, IoMode::Auto);
    let flash = on_file(&file);
    let store = FileStore::new(Arc::clone(&file), Arc::new(Power::steady()));
    program(&flash, Unit(0), 10);
    assert_eq!(states(&path), [0; 8], "records are in memory");
    store.sync().unwrap();
    assert_eq!(states(&path), [3, 3, 3, 3, 0, 0, 0, 0]);
    flash.erase(Block(0)).unwrap();
    program(&flash, Unit(1), 20);
    let Started::Running(ticket) = store.start_barrier().unwrap() else { panic!("records have changed") };
    store.wait_sync(ticket).unwrap();
    assert_eq!(states(&path), [0, 0, 0, 0, 3, 3, 3, 3]);
    program(&flash, Unit(0), 30);
    drop(flash);
    assert_eq!(states(&path), [3; 8]);
}

#[test]
fn a_start_takes_the_memory_of_a_kill_and_no_other() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let file = new_file(&path, IoMode::Auto);
    let memory = path_of(&file).unwrap().with_extension("records");
    let flash = on_file(&file);
    program(&flash, Unit(0), 10);
    if !memory.exists() {
        eprintln!("no memory outlives a process here: not tested");
        return;
    }
    // As a kill leaves both: the memory has the records, and the file has not.
    let (left, image) = (std::fs::read(&memory).unwrap(), std::fs::read(&path).unwrap());
    drop((flash, file));
    assert!(!memory.exists(), "an end in order removes it");
    let leave = || leave(&path, &image, &memory, &left, 0o600);
    leave();
    let file = Arc::new(open(&path).unwrap());
    let flash = on_file(&file);
    (0..4).for_each(|page| assert_holds(&flash, Ppa(page), u64::from(page) + 10, true));
    drop((flash, file));
    assert_eq!(states(&path), [3, 3, 3, 3, 0, 0, 0, 0], "what the file lacked was found and written");

    // A start that does not use the memory comes in between: the memory is of another time.
    leave();
    drop(on_file(&Arc::new(open(&path).unwrap().volatile())));
    std::fs::write(&memory, &left).unwrap();
    let flash = on_file(&Arc::new(open(&path).unwrap()));
    assert!((0..8).all(|page| flash.page(Ppa(page)) == PageState::Erased));
    drop(flash);

    // Another file has the place of the one that was deleted.
    std::fs::File::options().write(true).truncate(true).open(&path).unwrap();
    std::fs::write(&memory, &left).unwrap();
    let flash = on_file(&new_file(&path, IoMode::Auto));
    assert!((0..8).all(|page| flash.page(Ppa(page)) == PageState::Erased), "they were another file's");
    program(&flash, Unit(0), 10);
    drop(flash);
    assert!(!memory.exists(), "an end in order removes it");
}

#[test]
fn memory_that_another_user_could_change_is_replaced_and_not_used() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let file = new_file(&path, IoMode::Auto);
    let memory = path_of(&file).unwrap().with_extension("records");
    let flash = on_file(&file);
    program(&flash, Unit(0), 10);
    if !memory.exists() {
        eprintln!("no memory outlives a process here: not tested");
        return;
    }
    let (left, image) = (std::fs::read(&memory).unwrap(), std::fs::read(&path).unwrap());
    drop((flash, file));
    leave(&path, &image, &memory, &left, 0o640);
    let file = Arc::new(open(&path).unwrap());
    let flash = on_file(&file);
    assert!((0..4).all(|page| flash.page(Ppa(page)) == PageState::Erased), "it is not used");
    // Memory of its own outlives this process again.
    program(&flash, Unit(0), 20);
    let (left, image) = (std::fs::read(&memory).unwrap(), std::fs::read(&path).unwrap());
    assert_eq!(memory.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    drop((flash, file));
    leave(&path, &image, &memory, &left, 0o600);
    let flash = on_file(&Arc::new(open(&path).unwrap()));
    (0..4).for_each(|page| assert_holds(&flash, Ppa(page), u64::from(page) + 20, true));
}
