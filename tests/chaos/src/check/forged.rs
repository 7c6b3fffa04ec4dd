// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Forged histories. Each is broken in one way, and its honest neighbour differs in that alone.

use super::Judge;
use crate::block::{Found, Life, Stamp};
use crate::history::{Call, Event, Failure, Outcome, Time};

const V: Life = 5 << 32 | 1;
const OTHER: Life = 6 << 32 | 1;
/// The volume `V`, deleted and made again.
const AGAIN: Life = 5 << 32 | 2;
const HEALS: u64 = 60;

/// Lines in the making. A call begins, and ends 10 later; the next one begins 10 after that.
#[derive(Default)]
struct Lines {
    events: Vec<Event>,
    at: Time,
    next: u64,
    judge: Judge,
}

impl Lines {
    fn call(&mut self, who: &str, call: Call, outcome: Outcome) {
        self.beside(who, (self.at, self.at + 10), call, Some(outcome));
        self.at += 20;
    }

    /// A call with times of its own; without an outcome it has no end.
    fn beside(&mut self, who: &str, (begin, end): (Time, Time), call: Call, outcome: Option<Outcome>) {
        let (who, id) = (who.to_owned(), self.next);
        self.next += 1;
        self.events.push(Event::Begin { who: who.clone(), id, at: begin, call });
        if let Some(outcome) = outcome {
            self.events.push(Event::End { who, id, at: end, outcome });
        }
    }

    fn lease(&mut self, who: &str, life: Life, lease: u32) {
        let call = Call::Open { name: "v".into(), writes: true };
        self.call(who, call, Outcome::Opened(life, lease));
    }

    fn write(&mut self, who: &str, block: u32, stamp: Stamp) {
        self.call(who, Call::Write { life: V, block, blocks: 1, stamp }, Outcome::Done);
    }

    /// A write whose outcome its client does not know.
    fn doubtful(&mut self, who: &str, block: u32, stamp: Stamp) {
        let why = Outcome::Failed(Failure::TimedOut, "no completion before the deadline".into());
        self.call(who, Call::Write { life: V, block, blocks: 1, stamp }, why);
    }

    fn zero(&mut self, who: &str, block: u32, stamp: Stamp) {
        self.call(who, Call::Zero { life: V, block, blocks: 1, stamp }, Outcome::Done);
    }

    fn read(&mut self, block: u32, found: Found) {
        self.read_in(block, found, (1, 0));
    }

    /// A read in an epoch, behind which this is the last one that took a place from an SSD.
    fn read_in(&mut self, block: u32, found: Found, (epoch, shrunk): (u64, u64)) {
        let call = Call::Read { life: V, block, blocks: 1, writer: false, epoch };
        self.call("r", call, Outcome::Values(vec![found], shrunk));
    }

    fn copy(&mut self, replica: u32, block: u32, outcome: Outcome) {
        self.call("r", Call::Copy { life: V, block, blocks: 1, replica }, outcome);
    }

    fn round(&mut self, alone: bool) {
        self.events.push(Event::Round { round: 3, at: self.at, alone, faults: "KILL s1".into() });
        self.at += 1;
    }

    fn healed(&mut self, lacks: Option<&str>) {
        self.events.push(Event::Healed { at: self.at, lacks: lacks.map(String::from) });
        self.at += 1;
    }

    /// The lines until now are judged, and right.
    fn judged(&mut self) {
        assert_eq!(self.judge.judge(std::mem::take(&mut self.events)), []);
    }
}

fn of(block: u32, stamp: Stamp) -> Found {
    Found::Of(V, block, stamp, 0)
}

fn copy_of(found: Found) -> Outcome {
    Outcome::Values(vec![found], 0)
}

/// What all histories begin with: a lease, and two writes of block 4.
fn begun() -> Lines {
    let mut lines = Lines { at: 100, ..Lines::default() };
    lines.lease("a", V, 1);
    lines.write("a", 4, Stamp(1, 1));
    lines.write("a", 4, Stamp(1, 2));
    lines
}

/// Builds the forged history or the honest one. The forged one must break exactly this promise.
fn tried(rule: &str, build: impl Fn(&mut Lines, bool)) {
    for forged in [false, true] {
        let mut lines = begun();
        build(&mut lines, forged);
        let broken = lines.judge.judge(lines.events);
        if forged {
            assert!(!broken.is_empty(), "not found: {rule}");
            assert!(broken.iter().all(|violation| violation.rule.starts_with(rule)), "{broken:?}");
        } else {
            assert_eq!(broken, [], "the honest history");
        }
    }
}

const DURABLE: &str = "an acknowledged write is durable";
const STAYS: &str = "a value that was read stays";
const FOREIGN: &str = "no bytes of another place";

#[test]
fn an_older_value_after_an_acknowledged_one() {
    let _deadline = gnstor_base::testing::deadline();
    tried(DURABLE, |lines, forged| lines.read(4, of(4, Stamp(1, if forged { 1 } else { 2 }))));
}

#[test]
fn zeros_after_an_acknowledged_write() {
    let _deadline = gnstor_base::testing::deadline();
    tried(DURABLE, |lines, forged| lines.read(if forged { 4 } else { 5 }, Found::Zeros));
}

#[test]
fn a_value_that_was_unmapped() {
    let _deadline = gnstor_base::testing::deadline();
    tried(DURABLE, |lines, forged| {
        lines.zero("a", 4, Stamp(1, 3));
        lines.read(4, if forged { of(4, Stamp(1, 2)) } else { Found::Zeros });
    });
}

#[test]
fn zeros_of_an_unmapping_before_the_last_write() {
    let _deadline = gnstor_base::testing::deadline();
    tried(DURABLE, |lines, forged| {
        lines.zero("a", 4, Stamp(1, 3));
        lines.write("a", 4, Stamp(1, 4));
        lines.read(4, if forged { Found::Zeros } else { of(4, Stamp(1, 4)) });
    });
}

#[test]
fn a_value_of_rounds_ago_that_was_overwritten() {
    let _deadline = gnstor_base::testing::deadline();
    tried(DURABLE, |lines, forged| {
        lines.judged();
        lines.read(4, of(4, Stamp(1, if forged { 1 } else { 2 })));
    });
}

#[test]
fn copies_that_are_equal_and_too_old() {
    let _deadline = gnstor_base::testing::deadline();
    tried(DURABLE, |lines, forged| {
        let stamp = Stamp(1, if forged { 1 } else { 2 });
        (0..2).for_each(|replica| lines.copy(replica, 4, copy_of(of(4, stamp))));
    });
}

#[test]
fn a_read_beside_a_write_may_find_either_and_one_behind_it_may_not() {
    let _deadline = gnstor_base::testing::deadline();
    tried(DURABLE, |lines, forged| {
        let (begin, call) = (lines.at, Call::Write { life: V, block: 4, blocks: 1, stamp: Stamp(1, 3) });
        lines.beside("a", (begin, begin + 50), call, Some(Outcome::Done));
        lines.at += if forged { 60 } else { 5 };
        lines.read(4, of(4, Stamp(1, 2)));
    });
}

#[test]
fn a_lease_that_is_granted_twice() {
    let _deadline = gnstor_base::testing::deadline();
    tried("a write lease is granted once", |lines, forged| lines.lease("b", V, if forged { 1 } else { 2 }));
}

#[test]
fn a_lease_that_is_older_than_the_one_before() {
    let _deadline = gnstor_base::testing::deadline();
    tried("write leases grow", |lines, forged| {
        lines.lease("b", V, 3);
        lines.lease("c", V, if forged { 2 } else { 4 });
    });
}

#[test]
fn a_write_of_an_ended_lease() {
    let _deadline = gnstor_base::testing::deadline();
    tried("one writer at a time", |lines, forged| {
        let begin = lines.at;
        lines.lease("b", V, 2);
        let begin = if forged { lines.at } else { begin };
        let call = Call::Write { life: V, block: 7, blocks: 1, stamp: Stamp(1, 3) };
        lines.beside("a", (begin, begin + 90), call, Some(Outcome::Done));
    });
}

#[test]
fn an_unmapping_of_an_ended_lease() {
    let _deadline = gnstor_base::testing::deadline();
    tried("one writer at a time", |lines, forged| {
        lines.lease("b", V, 2);
        lines.zero("a", 7, Stamp(if forged { 1 } else { 2 }, 3));
    });
}

#[test]
fn a_value_that_was_read_vanishes_though_no_ssd_lost_a_place() {
    let _deadline = gnstor_base::testing::deadline();
    tried(STAYS, |lines, forged| {
        lines.doubtful("a", 4, Stamp(1, 3));
        lines.read_in(4, of(4, Stamp(1, 3)), (7, 6));
        lines.read_in(4, of(4, Stamp(1, 2)), (8, if forged { 7 } else { 8 }));
    });
}

#[test]
fn an_unmapping_that_was_seen_vanishes() {
    let _deadline = gnstor_base::testing::deadline();
    tried(STAYS, |lines, forged| {
        lines.read_in(4, of(4, Stamp(1, 2)), (7, 6));
        let call = Call::Zero { life: V, block: 4, blocks: 1, stamp: Stamp(1, 3) };
        lines.beside("a", (lines.at, 0), call, None);
        lines.at += 5;
        lines.read_in(4, if forged { Found::Zeros } else { of(4, Stamp(1, 2)) }, (7, 6));
        lines.read_in(4, of(4, Stamp(1, 2)), (7, 6));
    });
}

#[test]
fn a_value_that_vanished_comes_back() {
    let _deadline = gnstor_base::testing::deadline();
    tried("a value that vanished stays away", |lines, forged| {
        lines.doubtful("a", 4, Stamp(1, 3));
        lines.lease("b", V, 2);
        lines.read(4, of(4, Stamp(1, if forged { 2 } else { 3 })));
        lines.read(4, of(4, Stamp(1, 3)));
    });
}

#[test]
fn bytes_of_another_block() {
    let _deadline = gnstor_base::testing::deadline();
    tried(FOREIGN, |lines, forged| {
        lines.write("a", 9, Stamp(1, 3));
        lines.read(9, of(if forged { 4 } else { 9 }, Stamp(1, 3)));
    });
}

#[test]
fn bytes_of_another_volume_and_of_an_earlier_life() {
    let _deadline = gnstor_base::testing::deadline();
    for life in [OTHER, AGAIN] {
        tried(FOREIGN, |lines, forged| {
            lines.read(4, Found::Of(if forged { life } else { V }, 4, Stamp(1, 2), 0));
        });
    }
}

#[test]
fn a_deleted_volume_that_is_read() {
    let _deadline = gnstor_base::testing::deadline();
    tried("nothing of a deleted volume is read", |lines, forged| {
        let begin = lines.at;
        lines.call("b", Call::Delete { life: V }, Outcome::Done);
        let begin = if forged { lines.at } else { begin };
        let call = Call::Read { life: V, block: 4, blocks: 1, writer: false, epoch: 1 };
        lines.beside("r", (begin, begin + 40), call, Some(copy_of(of(4, Stamp(1, 2)))));
    });
}

#[test]
fn a_deleted_volume_that_is_written() {
    let _deadline = gnstor_base::testing::deadline();
    tried("nothing is written to a deleted volume", |lines, forged| {
        let how = Outcome::Failed(Failure::Daemon, "a client writes to it".into());
        lines.call("b", Call::Delete { life: V }, if forged { Outcome::Done } else { how });
        lines.write("a", 4, Stamp(1, 3));
    });
}

#[test]
fn a_block_of_two_writes() {
    let _deadline = gnstor_base::testing::deadline();
    tried("no block of two writes", |lines, forged| {
        let mixed = Found::Mixed("line 8 is of another write".into());
        lines.read(4, if forged { mixed } else { of(4, Stamp(1, 2)) });
    });
}

#[test]
fn a_value_that_no_write_had_yet() {
    let _deadline = gnstor_base::testing::deadline();
    tried("each value is of a write", |lines, forged| {
        let begin = lines.at + if forged { 30 } else { 5 };
        let call = Call::Write { life: V, block: 4, blocks: 1, stamp: Stamp(1, 3) };
        lines.beside("a", (begin, begin + 90), call, Some(Outcome::Done));
        lines.read(4, of(4, Stamp(1, 3)));
    });
}

#[test]
fn copies_that_differ() {
    let _deadline = gnstor_base::testing::deadline();
    tried("copies are equal", |lines, forged| {
        lines.doubtful("a", 4, Stamp(1, 3));
        lines.copy(0, 4, copy_of(of(4, Stamp(1, 3))));
        lines.copy(1, 4, copy_of(of(4, Stamp(1, if forged { 2 } else { 3 }))));
    });
}

#[test]
fn a_copy_that_cannot_be_read() {
    let _deadline = gnstor_base::testing::deadline();
    tried("each copy can be read", |lines, forged| {
        lines.copy(0, 4, copy_of(of(4, Stamp(1, 2))));
        let why = Outcome::Failed(Failure::Refused, "the place does not serve".into());
        lines.copy(1, 4, if forged { why } else { copy_of(of(4, Stamp(1, 2))) });
    });
}

#[test]
fn an_array_that_does_not_heal() {
    let _deadline = gnstor_base::testing::deadline();
    tried("the array is healthy again", |lines, forged| {
        lines.round(false);
        lines.at += HEALS;
        lines.healed(forged.then_some("SSD 1 is out"));
    });
}

#[test]
fn a_call_that_fails_where_one_ssd_alone_is_faulty() {
    let _deadline = gnstor_base::testing::deadline();
    for is_write in [false, true] {
        tried("no call fails", |lines, forged| {
            lines.round(forged);
            let stamp = Stamp(1, 3);
            let read = Call::Read { life: V, block: 4, blocks: 1, writer: false, epoch: 1 };
            let write = Call::Write { life: V, block: 4, blocks: 1, stamp };
            let why = Outcome::Failed(Failure::Io, "the connection to the SSD broke".into());
            lines.call("a", if is_write { write } else { read }, why);
            lines.healed(None);
        });
    }
}

#[test]
fn a_call_that_fails_because_its_volume_is_deleted_is_no_fault_of_the_array() {
    let _deadline = gnstor_base::testing::deadline();
    tried("no call fails", |lines, forged| {
        lines.round(true);
        let life = if forged { OTHER } else { V };
        lines.call("b", Call::Delete { life }, Outcome::Done);
        let read = Call::Read { life: V, block: 4, blocks: 1, writer: false, epoch: 1 };
        lines.call("r", read, Outcome::Failed(Failure::Refused, "the volume is being deleted".into()));
        lines.healed(None);
    });
}

#[test]
fn a_call_that_ends_twice() {
    let _deadline = gnstor_base::testing::deadline();
    tried("each call ends once", |lines, forged| {
        lines.read(4, of(4, Stamp(1, 2)));
        if forged {
            let again = lines.events.last().expect("a line").clone();
            lines.events.push(again);
        }
    });
}
