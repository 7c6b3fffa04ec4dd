// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests that the ring ends in part or with an error, and writes to a disk that is slow and full. No call
//! waits for what is tried again.
#![expect(clippy::disallowed_methods, reason = "the tests are about real time")]

use super::slow_folder::{SlowFolder, Word};
use super::*;
use crate::file::Entered;
use crate::frames::Frames;
use crate::io::{Engine, Job};
use std::time::{Duration, Instant};

/// What a write to the slow disk takes.
const SLOW_MS: u64 = 1000;
/// A call that takes longer has waited for the disk. Other programs may keep the processor for a while.
const STILL: Duration = Duration::from_millis(SLOW_MS / 2);

/// A flash on a disk that is not slow yet; `None` without FUSE or without a ring.
fn on_slow_disk() -> Option<(SlowFolder, Flash)> {
    let folder = SlowFolder::mount().inspect_err(|error| mounts::left_out("a FUSE mount", error)).ok()?;
    let flash = on_file(&new_file(&folder.path().join("ssd"), IoMode::Auto));
    flash.has_ring().then_some((folder, flash))
}

fn start(flash: &Flash, units: std::ops::Range<u32>) {
    for unit in units {
        for page in flash.geometry().pages_of(Unit(unit)) {
            put(flash, page, page.0.into());
        }
        flash.start_program(Unit(unit));
    }
}

/// Asks for a unit as an engine does. Returns whether it is programmed, and keeps the longest call.
fn look(flash: &Flash, unit: u32, longest: &mut Duration) -> bool {
    let before = Instant::now();
    let looked = flash.finish_program(Unit(unit));
    *longest = before.elapsed().max(*longest);
    std::thread::sleep(Duration::from_millis(1));
    match looked {
        Poll::Ready(result) => result.map(|()| true).unwrap(),
        Poll::Pending => false,
    }
}

#[test]
fn no_call_waits_for_a_disk_that_is_slow_and_full() {
    let _deadline = crate::tests::deadline();
    let Some((folder, flash)) = on_slow_disk() else { return };
    folder.set(Word::WriteMs, SLOW_MS);
    folder.set(Word::MostBytes, 0);
    let mut longest = Duration::ZERO;
    start(&flash, 0..3);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(7) {
        assert!(!look(&flash, 1, &mut longest), "there is no room");
    }
    let tries = folder.get(Word::Writes);
    folder.set(Word::MostBytes, u64::MAX);
    for unit in 0..3 {
        while !look(&flash, unit, &mut longest) {
            assert!(begin.elapsed() < Duration::from_secs(60), "it is not written though there is room");
        }
    }
    folder.set(Word::WriteMs, 0);
    eprintln!("{tries} writes found no room; longest call {longest:?}");
    assert!(tries > 3, "{tries} tries");
    assert!(longest < STILL, "a call took {longest:?}");
    (0..12).for_each(|page| assert_holds(&flash, Ppa(page), page.into(), true));
}

#[test]
fn no_call_waits_for_the_rest_of_a_write_that_ended_in_part() {
    let _deadline = crate::tests::deadline();
    let Some((folder, flash)) = on_slow_disk() else { return };
    folder.set(Word::WriteMs, SLOW_MS);
    // A page and a part of one.
    folder.set(Word::MostBytes, 5000);
    let mut longest = Duration::ZERO;
    start(&flash, 0..1);
    let begin = Instant::now();
    while !look(&flash, 0, &mut longest) {
        assert!(begin.elapsed() < Duration::from_secs(60), "it is never written whole");
    }
    folder.set(Word::WriteMs, 0);
    let writes = folder.get(Word::Writes);
    eprintln!("{writes} writes; longest call {longest:?}");
    assert!(writes > 3, "{writes} writes for 16 KiB");
    assert!(longest < STILL, "a call took {longest:?}");
    (0..4).for_each(|page| assert_holds(&flash, Ppa(page), page.into(), true));
}

/// The numbers are what the kernel returns: bytes, or an error below zero.
#[test]
fn the_rest_of_any_request_goes_through_the_ring() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let flash = on_file(&new_file(&folder.path().join("ssd"), IoMode::Auto));
    if !flash.has_ring() {
        return;
    }
    flash.bend(&[-libc::EAGAIN, -libc::EINTR, 5000, 1, 4096]);
    program(&flash, Unit(0), 0);
    (0..4).for_each(|page| assert_holds(&flash, Ppa(page), page.into(), true));
    for results in [&[-libc::EAGAIN, 100][..], &[4095], &[0], &[-libc::EIO]] {
        flash.bend(results);
        assert!(read(&flash, Ppa(2)).unwrap() == data(2), "{results:?}");
    }
    for results in [[-libc::EIO; 3], [0; 3]] {
        flash.bend(&results);
        assert_eq!(read(&flash, Ppa(1)), Err(Unreadable(Ppa(1))));
    }
    flash.bend(&[-libc::EIO; 3]);
    start(&flash, 1..2);
    finish(&flash, Unit(1)).unwrap_err();
    // A unit that found room for a part of it has the rest written when there is more.
    flash.bend(&[5000, -libc::ENOSPC, -libc::ENOSPC]);
    program(&flash, Unit(2), 8);
    (8..12).for_each(|page| assert_holds(&flash, Ppa(page), page.into(), true));
    assert_eq!(flash.blocking(), 0);
}

/// Reads take every slot of the ring as soon as it is free, and more of them wait.
#[test]
fn a_held_write_is_tried_again_though_requests_wait_for_every_slot() {
    let _deadline = crate::tests::deadline();
    let Ok(folder) = SlowFolder::mount().inspect_err(|error| mounts::left_out("a FUSE mount", error)) else {
        return;
    };
    let file = new_file(&folder.path().join("ssd"), IoMode::Auto);
    let frames = Arc::new(Frames::new(8, false).unwrap());
    let entered = Entered::new(&file).unwrap();
    let mut engine = Engine::new(Arc::clone(&file), entered, Arc::clone(&frames)).unwrap();
    if !engine.has_ring() {
        return;
    }
    let frame = frames.take(0).unwrap();
    // The first try finds no room either. The next one is due when the reads begin.
    engine.bent.extend([-libc::ENOSPC; 2]);
    engine.program(Unit(0), (0..4).map(|_| None));
    while !engine.bent.is_empty() {
        engine.reap();
    }
    assert!(engine.is_held());
    folder.set(Word::ReadMs, 5);
    let (mut reads, mut is_written) = (0.., false);
    let (begin, mut under_way) = (Instant::now(), 0);
    while !is_written {
        assert!(begin.elapsed() < Duration::from_secs(20), "the write is not tried");
        while under_way < 600 {
            engine.load(Ticket(reads.next().unwrap()), Ppa(0), frame);
            under_way += 1;
        }
        engine.reap();
        while let Some((job, result)) = engine.next_done() {
            result.unwrap();
            is_written |= job == Job::Program(Unit(0));
            under_way -= u32::from(job != Job::Program(Unit(0)));
        }
    }
    folder.set(Word::ReadMs, 0);
}
