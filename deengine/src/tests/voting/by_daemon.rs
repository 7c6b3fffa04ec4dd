// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers of openings that the daemon holds: OPENING.

use super::super::images::{Disk, end};
use super::rolled_back::{made, started, write_again};
use super::*;
use gnstor_proto::ssd_identity::KnownOpening;

/// Names a start of the SSD.
const START: u32 = 0x0102_0304;

impl Harness {
    /// The daemon says which number it knows. Returns the SSD's own.
    fn opening(&mut self, known: u32) -> Result<u32, Refusal> {
        let cid = self.submit(DAEMON, Sqe { flags: sqe(0).flags, ..KnownOpening(known).command() });
        let end = self.now + Span::from_ms(100);
        loop {
            if let Some(cqe) = self.take(DAEMON, cid) {
                let is_named = [0, START].contains(&cqe.dw1.get());
                assert!(refusal(&cqe).is_some() || is_named, "{cqe:?}");
                return refusal(&cqe).map_or(Ok(cqe.dw0.get()), Err);
            }
            assert!(self.now < end, "OPENING never completes");
            self.advance(Span::from_ms(1));
        }
    }

    /// The daemon says a number that shows an older image. The SSD closes the daemon's queue.
    fn is_older_than(&mut self, known: u32) {
        self.submit(DAEMON, Sqe { flags: sqe(0).flags, ..KnownOpening(known).command() });
        self.step_to(self.now + Span::from_ms(10));
        assert!(self.ssd().is_filling());
    }

    /// The voters that answer say yes until it serves.
    fn hears_yes(&mut self) {
        for _ in 0..4 {
            self.step_to(self.now + Span::from_ms(101));
            for (ask, ..) in self.questions() {
                self.say(ask, Ok(()));
            }
        }
    }
}

/// An SSD process starts: it serves nothing before a daemon knows of it.
fn waiting(disk: &Disk) -> Harness {
    let harness = started(disk);
    harness.ssd().await_opening(START);
    harness
}

#[test]
fn without_voters_an_ssd_serves_when_a_daemon_holds_the_number_of_its_start() {
    let disk = Disk::new();
    let mut harness = made(&disk, &[]);
    assert_eq!(refusal(&harness.write(3, &[1])), None);
    end(harness);
    let mut harness = waiting(&disk);
    assert_eq!(harness.read_stored(3), Err(Refusal::NotServing));
    assert_eq!(harness.opening(0), Ok(1), "it counts this start");
    assert_eq!(harness.read_stored(3), Err(Refusal::NotServing), "the daemon does not hold the number yet");
    assert_eq!(harness.opening(0), Ok(1), "it counts a start once");
    assert_eq!(harness.read_stored(3), Err(Refusal::NotServing));
    assert_eq!(harness.opening(1), Ok(1));
    assert_eq!(harness.read_stored(3), Ok(block(1)));
    assert_eq!(harness.opening(1), Ok(1));
    end(harness);
    // A daemon that has forgotten the numbers.
    let mut harness = waiting(&disk);
    assert_eq!(harness.opening(0), Ok(2), "the number is durable");
    assert_eq!(harness.opening(2), Ok(2));
    assert_eq!(harness.read_stored(3), Ok(block(1)));
}

#[test]
fn without_voters_an_older_image_gives_out_no_byte_and_fills_by_the_number_that_the_daemon_holds() {
    let disk = Disk::new();
    let mut harness = made(&disk, &[]);
    assert_eq!(refusal(&harness.write(3, &[1])), None);
    end(harness);
    disk.keep("older");
    let mut harness = waiting(&disk);
    assert_eq!((harness.opening(0), harness.opening(1)), (Ok(1), Ok(1)));
    write_again(&mut harness, 2);
    end(harness);
    disk.keep("newest");
    disk.put("older");
    let before = {
        let mut harness = waiting(&disk);
        assert_eq!(harness.read_stored(3), Err(Refusal::NotServing), "before the daemon has said a number");
        let before = harness.ssd().identity().incarnation;
        harness.is_older_than(1);
        assert!(harness.read_stored(3).is_err());
        end(harness);
        before
    };
    // Starting often does not help it, and changes nothing more.
    for _ in 0..2 {
        let mut harness = waiting(&disk);
        assert!(harness.ssd().is_filling() && harness.ssd().identity().incarnation == before + 1);
        assert_eq!(harness.opening(1), Err(Refusal::OlderImage));
        assert!(harness.read_stored(3).is_err());
        end(harness);
    }
    disk.put("newest");
    let mut harness = waiting(&disk);
    assert_eq!((harness.opening(1), harness.opening(2)), (Ok(2), Ok(2)));
    assert_eq!(harness.read_stored(3), Ok(block(2)), "the right file");
}

#[test]
fn an_older_image_of_a_voter_serves_no_more_when_the_daemon_says_a_higher_number() {
    let disk = Disk::new();
    let mut harness = made(&disk, &[0, 1, 2]);
    assert_eq!(harness.opening(0), Err(Refusal::NotReady), "no majority has proven it");
    harness.hears_yes();
    assert_eq!(harness.opening(0), Ok(1));
    assert_eq!(refusal(&harness.write(3, &[1])), None);
    end(harness);
    disk.keep("older");
    let mut harness = waiting(&disk);
    harness.hears_yes();
    assert_eq!((harness.opening(1), harness.opening(2)), (Ok(2), Ok(2)));
    write_again(&mut harness, 2);
    end(harness);
    disk.put("older");
    // The other voters were rolled back with it, so it counts up to the number that the daemon holds. The
    // daemon sees that another start has it (`gnstor_daemon`: `link/opening.rs`).
    let mut harness = waiting(&disk);
    harness.hears_yes();
    assert_eq!(harness.opening(2), Ok(2));
    harness.is_older_than(3);
    assert!(harness.read_stored(3).is_err());
}

#[test]
fn an_ssd_without_a_map_counts_no_start_and_waits_for_no_daemon() {
    let disk = Disk::new();
    let mut harness = disk.start();
    harness.ssd().await_opening(START);
    assert_eq!(harness.opening(0), Err(Refusal::NotServing));
    end(harness);
    let mut harness = made(&disk, &[]);
    assert_eq!(refusal(&harness.write(3, &[1])), None);
    assert_eq!(harness.read_stored(3), Ok(block(1)));
}
