// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames are handed out once.

use super::*;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn every_frame_can_be_had_and_none_twice() {
    let _deadline = crate::tests::deadline();
    let flash = ram();
    let all: Vec<Frame> = std::iter::from_fn(|| flash.take_frame()).collect();
    assert_eq!(all.len(), 240 + 48);
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    assert_eq!(flash.free_frames(), 0);
    all.iter().for_each(|&frame| flash.give_frame(frame));
    assert_eq!(flash.free_frames(), 240 + 48);
    let again: HashSet<Frame> = std::iter::from_fn(|| flash.take_frame()).collect();
    assert_eq!(again.len(), all.len());
}

#[test]
#[should_panic(expected = "given back twice")]
fn a_frame_is_not_given_back_twice() {
    let _deadline = crate::tests::deadline();
    let flash = ram();
    let frame = flash.take_frame().unwrap();
    flash.give_frame(frame);
    flash.give_frame(frame);
}

#[test]
#[should_panic(expected = "never taken")]
fn a_frame_that_was_not_taken_is_not_given_back() {
    let _deadline = crate::tests::deadline();
    ram().give_frame(Frame(7));
}

#[test]
fn threads_never_hold_the_same_frame() {
    let _deadline = crate::tests::deadline();
    let flash = ram();
    let held: Vec<AtomicBool> = (0..288).map(|_| AtomicBool::new(false)).collect();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (flash, held) = (&flash, &held);
            scope.spawn(move || {
                let mut mine = Vec::new();
                for step in 0..20_000u64 {
                    let dice = mix64(step ^ mix64(thread));
                    if dice.is_multiple_of(2) {
                        if let Some(frame) = flash.take_frame() {
                            assert!(
                                !held[frame.0 as usize].swap(true, Ordering::Relaxed),
                                "{frame:?} is held twice"
                            );
                            mine.push(frame);
                        }
                    } else if let Some(frame) = mine.pop() {
                        assert!(held[frame.0 as usize].swap(false, Ordering::Relaxed));
                        flash.give_frame(frame);
                    }
                }
                for frame in mine {
                    held[frame.0 as usize].store(false, Ordering::Relaxed);
                    flash.give_frame(frame);
                }
            });
        }
    });
    assert_eq!(flash.free_frames(), 288);
    assert_eq!(std::iter::from_fn(|| flash.take_frame()).count(), 288);
}

#[test]
fn the_page_of_zeros_is_zeros_and_no_frame() {
    let _deadline = crate::tests::deadline();
    let flash = ram();
    let zeros = flash.zero_page();
    let frames: Vec<Frame> = std::iter::from_fn(|| flash.take_frame()).collect();
    for &frame in &frames {
        assert_ne!(flash.frame(frame).offset, zeros.offset);
        flash.write_frame(frame, &[9; 4096]);
    }
    let mut out = [1; 4096];
    flash.regions()[0].read(zeros.offset, &mut out);
    assert!(out == [0; 4096]);
}

#[test]
fn shared_frames_can_be_mapped_by_their_descriptor() {
    let _deadline = crate::tests::deadline();
    let flash = Flash::new(config(MediaConfig::Ram { shared: true })).unwrap();
    program(&flash, Unit(0), 3);
    assert_holds(&flash, Ppa(2), 5, true);
    assert!(flash.regions()[0].backing().is_some());
    assert!(ram().regions()[0].backing().is_none());
}
