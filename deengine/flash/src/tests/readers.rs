// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pins, and readers beside a writer.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A reader may lose its CPU while it has a pin.
fn erase_between_readers(flash: &Flash, block: Block) {
    while let Err(error) = flash.erase(block) {
        assert_eq!(error, NotErased::Pinned(block));
        std::thread::yield_now();
    }
}

#[test]
fn a_block_is_pinned_while_any_of_its_pages_is() {
    let _deadline = crate::tests::deadline();
    let flash = ram();
    program(&flash, Unit(0), 1);
    program(&flash, Unit(4), 5);
    assert!(!flash.is_pinned(Block(0)));
    flash.pin(Ppa(17));
    flash.pin(Ppa(17));
    flash.pin(Ppa(0));
    assert!(flash.is_pinned(Block(0)) && !flash.is_pinned(Block(1)));
    flash.unpin(Ppa(0));
    flash.unpin(Ppa(17));
    assert!(flash.is_pinned(Block(0)));
    flash.unpin(Ppa(17));
    assert!(!flash.is_pinned(Block(0)));
    flash.erase(Block(0)).unwrap();
}

#[test]
#[should_panic(expected = "without a pin")]
fn an_unpin_needs_a_pin() {
    let _deadline = crate::tests::deadline();
    let flash = ram();
    flash.pin(Ppa(0));
    flash.unpin(Ppa(0));
    flash.unpin(Ppa(0));
}

/// One writer rewrites a block again and again, and notes in a "map" which page holds the newest number.
/// Readers follow the protocol: look up, pin, look up again, read. They must never see another number than
/// the one that they looked up.
fn readers_beside_a_writer(flash: &Flash, rounds: u64) {
    let map = AtomicU64::new(u64::MAX);
    let done = AtomicBool::new(false);
    let seen = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let found = map.load(Ordering::SeqCst);
                    let (page, number) = (Ppa(u32::try_from(found >> 32).unwrap()), found & 0xFFFF_FFFF);
                    if found == u64::MAX {
                        continue;
                    }
                    flash.pin(page);
                    if map.load(Ordering::SeqCst) == found {
                        let oob = oob(number);
                        assert_eq!(flash.key(page), Some((oob.vid, oob.generation, oob.vba, oob.sum)));
                        let Fetch::Here(local) = flash.fetch(page) else { panic!("RAM is always here") };
                        let mut bytes = [0; 4096];
                        flash.regions()[0].read(local.offset, &mut bytes);
                        assert!(bytes == data(number), "{page:?} does not hold {number} while it is pinned");
                        seen.fetch_add(1, Ordering::Relaxed);
                    }
                    flash.unpin(page);
                }
            });
        }
        let mut number = 0;
        for round in 0..rounds {
            let block = Block(u32::try_from(round % 2).unwrap());
            erase_between_readers(flash, block);
            for unit in flash.geometry().units_of(block) {
                for page in flash.geometry().pages_of(unit) {
                    put(flash, page, number);
                    map.store(u64::from(page.0) << 32 | number, Ordering::SeqCst);
                    number += 1;
                }
                flash.start_program(unit);
                finish(flash, unit).unwrap();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(seen.load(Ordering::Relaxed) > 0, "no reader ever saw a page");
}

#[test]
fn a_pinned_reader_sees_what_it_looked_for() {
    let _deadline = crate::tests::deadline();
    readers_beside_a_writer(&ram(), 300);
}

#[test]
fn a_reader_keeps_its_frame_when_the_page_moves_to_the_file() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let flash = on_file(&new_file(&folder.path().join("ssd"), IoMode::Auto));
    let free = flash.free_frames();
    flash.geometry().pages_of(Unit(0)).for_each(|page| put(&flash, page, u64::from(page.0)));
    flash.pin(Ppa(2));
    let Fetch::Here(local) = flash.fetch(Ppa(2)) else { panic!("a buffered page is here") };
    flash.start_program(Unit(0));
    finish(&flash, Unit(0)).unwrap();
    assert_eq!(flash.free_frames(), free - 1);
    // A caller that takes all frames gets one more.
    let mut taken = Vec::new();
    while let Some(frame) = flash.take_frame() {
        flash.write_frame(frame, &[0xEE; 4096]);
        taken.push(frame);
    }
    let mut bytes = [0; 4096];
    flash.regions()[0].read(local.offset, &mut bytes);
    assert!(bytes == data(2));
    assert_eq!(flash.poll_loaded(), None);
    assert_eq!(flash.free_frames(), 0);
    flash.unpin(Ppa(2));
    assert_eq!(flash.poll_loaded(), None);
    assert_eq!(flash.free_frames(), 1, "the frame comes back after the last pin");
    taken.into_iter().for_each(|frame| flash.give_frame(frame));
    assert_holds(&flash, Ppa(2), 2, true);
}

#[test]
fn a_reader_that_comes_too_late_does_not_stop_an_erase() {
    let _deadline = crate::tests::deadline();
    let flash = ram();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // It looked page 3 up before it was unmapped, and is about to find out.
                flash.pin(Ppa(3));
                flash.unpin(Ppa(3));
            }
        });
        for round in 0..2000 {
            program(&flash, Unit(0), round * 4);
            erase_between_readers(&flash, Block(0));
        }
        done.store(true, Ordering::Relaxed);
    });
}
