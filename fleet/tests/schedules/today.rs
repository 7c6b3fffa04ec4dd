// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Schedules that lose data, or its readers, by the rules that arrays had before their SSDs voted. The texts
//! call these the rules of today.

use crate::deadline::{Deadline, LIMIT};
use crate::{ARRAY, MS, OPEN, OTHER, ask, block, first_write, map, set, stamp, standing};
use gnstor_fleet::Refused;
use gnstor_fleet::change::Unchanged;
use gnstor_fleet::fill::settles;
use gnstor_fleet::leader::{Candidate, Round};
use gnstor_fleet::lease::{Asking, Lease};
use gnstor_fleet::map::{Map, Place, SsdState};
use gnstor_fleet::repair::Held;
use gnstor_fleet::serve::Entry;
use gnstor_fleet::set::SsdSet;
use gnstor_fleet::voter::{Promise, Voter};

/// Rule 2a. SSD 0 asks at 0 and is cut off. A majority holds a map without it at 10, which is active at 320.
/// A yes of time 5 reaches SSD 0 at 290.
#[test]
fn a_late_answer_revives_no_ssd() {
    let _deadline = Deadline::after(LIMIT);
    let mut asking = Asking::new(ask(0, 1), 0);
    let mut voters = [Voter::new(map()), Voter::new(map()), Voter::new(map())];
    assert_eq!(voters[1].answer(&asking.ask, 1), Ok(None));
    let next = map().lose(0, 2, 2).unwrap();
    let mut round = Round::new(next.clone());
    for (v, voter) in (1..).zip(&mut voters[1..]) {
        voter.hold(2, 9, next.clone()).unwrap();
        round.held(v, next.voters, 10);
        assert_eq!(voter.answer(&ask(0, 1), 1), Err(Refused::Deprived), "no further lease for SSD 0");
        assert_eq!(voter.answer(&ask(1, 1), 1), Ok(None), "SSD 1 loses nothing in this map");
    }
    assert!(!round.may_activate(319, MS, SsdSet::EMPTY) && round.may_activate(320, MS, SsdSet::EMPTY));
    assert!(round.may_activate(10, MS, set(&[0])), "an SSD that says goodbye is not waited for");

    asking.said_yes(0);
    asking.said_yes(1);
    let from_receipt = Lease { until: 290 + MS.lease };
    assert!(from_receipt.runs(320), "the rule of today: it would serve beside the new map, until 590");
    let lease = asking.lease(next.voters, 1, MS).unwrap();
    assert!(lease.runs(299) && !lease.runs(300));
    assert_eq!(asking.lease(next.voters, 2, MS), None, "the content has become another one");
}

/// `fabric/src/runtime.rs` reads the clock before it takes commands in. The process stops in between, from
/// 290 to 790.
#[test]
fn the_clock_is_read_after_the_command_was_taken_in() {
    let _deadline = Deadline::after(LIMIT);
    let lease = Lease { until: 300 };
    let (read_before, read_after) = (290, 790);
    assert!(lease.runs(read_before), "the order of today: it answers a read of an array that dropped it");
    assert!(!lease.runs(read_after));
}

/// Rule 1a. SSD 1 lost its writes in epoch 1. SSD 0 is dropped; the map of epoch 2 was made for that.
#[test]
fn an_epoch_made_for_another_ssd_does_not_end_the_loss() {
    let _deadline = Deadline::after(LIMIT);
    let (lossy_since, incarnation) = (1, 2);
    let next = map().lose(2, 2, 2).unwrap();
    assert!(next.epoch > lossy_since, "the rule of today: any newer epoch ends the state of filling");
    let as_today = standing(&next, 1, 1).judge_read(&next.rows[1], 2, false, OPEN);
    assert_eq!(as_today, Ok(()), "it would answer with zeros");
    let judged = standing(&next, 1, incarnation).judge_read(&next.rows[1], 2, false, OPEN);
    assert_eq!(judged, Err(Refused::NotServing));
    assert_eq!(
        next.serve(1, 1, incarnation, 2),
        Err(Unchanged::Incarnation),
        "nor does a confirmation of it"
    );
}

/// Rule 1c. The first of a group is lossy: it refuses reads, and the other one says "ask the first".
#[test]
fn an_epoch_drops_a_lossy_first() {
    let _deadline = Deadline::after(LIMIT);
    let now = map();
    let read = |map: &Map, ssd, incarnation| {
        standing(map, ssd, incarnation).judge_read(&map.rows[0], map.epoch, false, OPEN)
    };
    assert_eq!(read(&now, 0, 2), Err(Refused::NotServing));
    assert_eq!(read(&now, 1, 1), Err(Refused::AskTheFirst), "today: no SSD answers, for ever");
    let next = now.lose(0, 2, 2).unwrap();
    assert_eq!(read(&next, 1, 1), Ok(()));
    let last = next.lose(1, 2, 2).unwrap();
    assert_eq!(last.ssds[1].state, SsdState::Absent, "the last copy is not dropped");
    assert_eq!(read(&last, 1, 1), Err(Refused::NotServing));
    assert_eq!(last.rows[1].places[0], Place::Empty, "its other group has another copy, and goes on");
    assert_eq!(last.back(1, 2, 3), Err(Unchanged::Lossy));
    assert_eq!(read(&last.back(1, 1, 3).unwrap(), 1, 1), Ok(()), "back with its content it serves again");
}

/// Rule 3a. Two daemons read the same highest term, 4, and start together.
#[test]
fn two_daemons_that_start_together_do_not_share_a_term() {
    let _deadline = Deadline::after(LIMIT);
    let today = |known: u64, term: u64| term >= known;
    assert!(today(4, 5) && today(5, 5), "the rule of today: no lower term, so both have term 5");
    let mut voters = [Voter::new(map()), Voter::new(map()), Voter::new(map())];
    let mut candidates = [Candidate::new(ARRAY, 5, 100), Candidate::new(ARRAY, 5, 200)];
    for (order, v) in [(0, 0), (1, 0), (1, 1), (0, 1), (0, 2), (1, 2)] {
        let candidate: &mut Candidate<Map> = &mut candidates[order];
        if let Ok(promise) = voters[v].take_term(ARRAY, candidate.term, candidate.instance) {
            candidate.promised(u16::try_from(v).unwrap(), promise);
        }
    }
    let elected = candidates.map(|candidate| candidate.elected().is_some());
    assert_eq!(elected, [true, false]);
}

/// Rule 3b. An SSD of another array, with epoch 90, answers at an address of this array.
#[test]
fn an_ssd_of_another_array_does_not_win_the_start() {
    let _deadline = Deadline::after(LIMIT);
    let foreign = Map { array: OTHER, epoch: 90, ..map() };
    let newest = [map(), foreign.clone(), map()].into_iter().max_by_key(|map| (map.epoch, map.term)).unwrap();
    assert_eq!(newest.array, OTHER, "the rule of today: the newest map wins");
    let mut candidate = Candidate::new(ARRAY, 5, 100);
    candidate.promised(1, Promise { array: OTHER, active: foreign.clone(), held: None });
    candidate.promised(0, Promise { array: ARRAY, active: map(), held: None });
    assert_eq!(candidate.elected(), None, "one of three");
    candidate.promised(2, Promise { array: ARRAY, active: map(), held: None });
    assert_eq!(candidate.elected().unwrap().active, map());
    let mut voter = Voter::new(foreign);
    assert_eq!(voter.take_term(ARRAY, 5, 100), Err(Refused::OtherArray));
    assert_eq!(voter.hold(5, 100, map()), Err(Refused::OtherArray));
    assert_eq!(voter.activate(map()), Err(Refused::OtherArray));
    assert_eq!(voter.answer(&ask(0, 1), 2), Err(Refused::OtherArray));
}

/// Rule 6a. Write 1 of block 300 reaches one of two replicas, and its writer ends. 4,096 writes of other
/// blocks went by: 128 slots do not bound the sequences in flight.
#[test]
fn a_settle_compares_every_block_and_not_the_window() {
    let _deadline = Deadline::after(LIMIT);
    let in_window = (2..=4097u64).any(|sequence| sequence * 1000 == 300);
    assert!(!in_window, "the rule of before: a settle by the window alone leaves the replicas different");
    assert!(settles(Held::Nothing, block(1, 0)) && settles(block(1, 0), Held::Nothing));
    let tombstone = Held::Tombstone { stamp: stamp(1) };
    assert!(!settles(tombstone, Held::Nothing), "both read the same");
}

/// Rule 8a. The daemon is away for ten minutes; an SSD restarts. The writer holds its lease.
#[test]
fn no_clock_of_an_ssd_ends_a_write_lease() {
    let _deadline = Deadline::after(LIMIT);
    let (renewed_at, lease_ms, now) = (0u64, 100_000u64, 600_000u64);
    assert!(now >= renewed_at + lease_ms, "the rule of today: every SSD refuses the writer");
    let map = map();
    let write = |entry| standing(&map, 0, 1).judge_write(&map.rows[0], first_write(), entry);
    assert_eq!(write(OPEN), Ok(()));
    let taken_away = Entry { has_writer: false, ..OPEN };
    assert_eq!(write(taken_away), Err(Refused::LeaseExpired), "CHMOD ends it");
}
