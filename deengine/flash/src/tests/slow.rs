// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Slow disks: a sync is started, and the caller polls for its end.
#![expect(clippy::disallowed_methods, reason = "the test is about real time")]

use super::*;
use crate::file::Writer;
use crate::store::{Started, SyncTicket};
use std::time::{Duration, Instant};

fn start(store: &dyn Store) -> SyncTicket {
    match store.start_sync().unwrap() {
        Started::Running(ticket) => ticket,
        other => panic!("{other:?}: a slow disk has not synced yet"),
    }
}

fn contents(store: &dyn Store) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(store.len()).unwrap()];
    store.read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_slow_sync_of_a_file_holds_up_only_callers_that_wait_for_it() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let file = new_file(&folder.path().join("ssd"), IoMode::Auto);
    let store = FileStore::new(Arc::clone(&file), Arc::new(Power::steady()));
    file.slow_syncs(1000);
    let begin = Instant::now();
    store.start_write(0, b"first").unwrap();
    let first = start(&store);
    store.start_write(4096, b"second").unwrap();
    let (second, third) = (start(&store), start(&store));
    assert!(store.poll_sync(first).is_pending());
    assert!(begin.elapsed() < Duration::from_millis(500), "asking took {:?}", begin.elapsed());
    store.wait_sync(first).unwrap();
    assert!(begin.elapsed() >= Duration::from_secs(1));
    store.wait_sync(third).unwrap();
    // One sync of the disk covered both.
    assert_eq!(store.poll_sync(second).map(|result| result.is_ok()), Poll::Ready(true));
    assert!(begin.elapsed() < Duration::from_millis(2900), "{:?}", begin.elapsed());
    assert_eq!((&contents(&store)[..5], &contents(&store)[4096..4102]), (&b"first"[..], &b"second"[..]));
    assert_eq!(store.queued_bytes(), 0);
}

#[test]
fn queued_bytes_are_read_back_and_newer_writes_win() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let file = new_file(&path, IoMode::Auto);
    let store = FileStore::new(Arc::clone(&file), Arc::new(Power::steady()));
    file.slow_syncs(200);
    let ticket = start(&store);
    for round in 0..50u8 {
        store.start_write(512, &[round; 3000]).unwrap();
        if round % 7 == 0 {
            store.write(512, &[round + 100; 3000]).unwrap();
            assert!(contents(&store)[512..3512] == [round + 100; 3000]);
        }
    }
    assert!(contents(&store)[512..3512] == [149; 3000], "the last one was written at once");
    store.wait_sync(ticket).unwrap();
    // Writes that are queued when the store is dropped still reach the file.
    store.start_write(512, &[200; 3000]).unwrap();
    drop((store, file));
    let store = FileStore::new(Arc::new(open(&path).unwrap()), Arc::new(Power::steady()));
    assert!(contents(&store)[512..3512] == [200; 3000]);
}

#[test]
fn a_flash_page_needs_a_barrier_until_a_sync_that_began_later_has_ended() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let file = new_file(&folder.path().join("ssd"), IoMode::Auto);
    let flash = on_file(&file);
    let store = FileStore::new(Arc::clone(&file), Arc::new(Power::steady()));
    assert_eq!(store.start_barrier().unwrap(), Started::NotNeeded);
    program(&flash, Unit(0), 10);
    file.slow_syncs(300);
    let Started::Running(ticket) = store.start_barrier().unwrap() else { panic!("a page was programmed") };
    std::thread::sleep(Duration::from_millis(100));
    program(&flash, Unit(1), 20);
    store.wait_sync(ticket).unwrap();
    let Started::Running(ticket) = store.start_barrier().unwrap() else {
        panic!("the second page was programmed while the sync ran")
    };
    store.wait_sync(ticket).unwrap();
    assert_eq!(store.start_barrier().unwrap(), Started::NotNeeded);
}

#[test]
fn a_started_sync_covers_the_writes_before_it_and_no_others() {
    let _deadline = crate::tests::deadline();
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..100 {
        let power = Arc::new(Power::steady());
        let store = RamStore::new(64 << 10, Arc::clone(&power)).with_slow_syncs(3);
        store.write(0, &[1; 512]).unwrap();
        let ticket = start(&store);
        store.write(0, &[2; 512]).unwrap();
        store.write(512, &[2; 512]).unwrap();
        assert!(store.poll_sync(ticket).is_pending() && store.poll_sync(ticket).is_pending());
        if seed % 2 == 0 {
            assert_eq!(store.poll_sync(ticket).map(|result| result.is_ok()), Poll::Ready(true));
        }
        power.cut();
        store.after_power_cut(seed);
        power.restore();
        let first = contents(&store)[0];
        assert!(seed % 2 == 1 || first != 0, "the first write was durable");
        kept += u32::from(first == 2);
        lost += u32::from(first == 0);
        assert!(store.poll_sync(ticket).map(|result| result.is_err()) == Poll::Ready(true), "it is over");
    }
    assert!(kept > 10 && lost > 3, "{kept} {lost}");
}

#[test]
fn an_open_waits_for_requests_that_a_killed_process_left_in_the_kernel() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    drop(new_file(&path, IoMode::Auto));
    // A request holds its open file, and so does this descriptor.
    let left = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    // A parallel test may be about to start a process, which has the descriptors of `new_file` until then.
    while !crate::sys::try_lock_io(&left).unwrap() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let begin = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(400));
            drop(left);
        });
        let file = open(&path).unwrap();
        assert!(begin.elapsed() >= Duration::from_millis(400), "{:?}", begin.elapsed());
        drop(file);
    });
}

/// The thread has a file that it may not write, so each queued write fails, and each sync works.
fn unwritable() -> (tempfile::TempDir, Writer) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("read-only");
    std::fs::write(&path, [0; 4096]).unwrap();
    let file = Arc::new(std::fs::File::open(&path).unwrap());
    (folder, Writer::new(file, Arc::default()))
}

fn sync(writer: &Writer) -> SyncTicket {
    match writer.sync().unwrap() {
        Started::Running(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_failed_sync_is_told_however_many_have_failed_since() {
    let _deadline = crate::tests::deadline();
    let (_folder, writer) = unwritable();
    let mut lost = Vec::new();
    for _ in 0..200 {
        writer.write(0, &[1; 512]).unwrap();
        let failed = sync(&writer);
        writer.wait(failed).unwrap_err();
        writer.wait(sync(&writer)).unwrap();
        lost.push(failed);
    }
    for ticket in lost {
        assert!(matches!(writer.poll(ticket), Poll::Ready(Err(_))), "{ticket:?} has failed");
    }
}
