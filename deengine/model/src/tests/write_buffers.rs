// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Room in the write buffer against a plain count.

use crate::write_buffer::WriteBuffer;
use gnstor_base::time::{Span, Time};
use proptest::prelude::*;

const UNIT: u32 = 8;
const PAGES: u32 = 64;

#[derive(Clone, Debug)]
enum Step {
    Write(u32),
    /// Fills the open unit up with padding and programs it.
    Flush,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1u32..17).prop_map(Step::Write),
        1 => Just(Step::Flush),
        2 => (1u64..3000).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn admitted_pages_fit_and_all_of_them_leave_again(
        steps in prop::collection::vec(step(), 1..300),
        spans in prop::collection::vec(1u64..2000, 1..20),
    ) {
        let _deadline = crate::tests::deadline();
        let mut buffer = WriteBuffer::new(PAGES, UNIT);
        let (mut now, mut open, mut programs) = (Time::ZERO, 0, 0);
        // The content of the buffer: (pages, from, until), the open unit's pages without an end.
        let mut held: Vec<(u32, Time, Time)> = Vec::new();
        for step in steps {
            match step {
                Step::Wait(ns) => now = now + Span::from_ns(ns),
                Step::Flush if open == 0 => {}
                Step::Write(blocks) => {
                    let at = buffer.admit(now, blocks);
                    prop_assert!(at >= now);
                    let now = || held.iter().filter(|(_, from, until)| *from <= at && *until > at);
                    let inside: u32 = now().map(|held| held.0).sum();
                    let leaving = now().any(|(_, _, until)| *until != Time::NEVER);
                    prop_assert!(inside + blocks <= PAGES || !leaving, "{inside} pages and {blocks} more \
                        at {at:?}");
                    for _ in 0..blocks {
                        held.push((1, at, Time::NEVER));
                        open += 1;
                        if open == UNIT {
                            leave(&mut buffer, &mut held, at, spans[programs % spans.len()]);
                            (open, programs) = (0, programs + 1);
                        }
                    }
                }
                Step::Flush => {
                    buffer.pad(UNIT - open);
                    leave(&mut buffer, &mut held, now, spans[programs % spans.len()]);
                    (open, programs) = (0, programs + 1);
                }
            }
        }
        buffer.admit(Time::from_ns(1 << 40), 0);
        prop_assert_eq!(buffer.used(), open, "only the open unit is left");
    }
}

fn leave(buffer: &mut WriteBuffer, held: &mut [(u32, Time, Time)], now: Time, span_ns: u64) {
    let latest = held.iter().map(|held| held.1).max().unwrap_or(now).max(now);
    let until = latest + Span::from_ns(span_ns);
    for page in held.iter_mut().filter(|page| page.2 == Time::NEVER) {
        page.2 = until;
    }
    buffer.release(until, UNIT);
}

#[test]
fn a_write_does_not_wait_where_no_room_will_come() {
    let _deadline = crate::tests::deadline();
    let mut buffer = WriteBuffer::new(PAGES, UNIT);
    assert_eq!(buffer.admit(Time::from_ns(5), 10 * PAGES), Time::from_ns(5));
}

#[test]
fn a_write_never_overtakes_one_that_waits_for_room() {
    let _deadline = crate::tests::deadline();
    let mut buffer = WriteBuffer::new(PAGES, UNIT);
    buffer.admit(Time::ZERO, PAGES);
    for unit in 1..=8 {
        buffer.release(Time::from_ns(1000 * unit), UNIT);
    }
    let large = buffer.admit(Time::from_ns(1), 2 * UNIT);
    assert_eq!(large, Time::from_ns(2000));
    assert_eq!(buffer.admit(Time::from_ns(2), 1), Time::from_ns(3000));
}
