// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A plane's calendar against a calendar that keeps every moment.

use crate::calendar::Calendar;
use proptest::prelude::*;

/// Busy or not, moment by moment.
struct Slow(Vec<bool>);

impl Slow {
    fn book(&mut self, from: usize, span: usize) -> usize {
        let idle: Vec<usize> = (from..self.0.len()).filter(|at| !self.0[*at]).take(span).collect();
        for at in &idle {
            self.0[*at] = true;
        }
        idle.last().expect("room in the test's time") + 1
    }
}

proptest! {
    /// Six pieces of work leave at most six holes, and the calendar keeps six.
    #[test]
    fn few_pieces_of_work_end_when_the_slow_calendar_says(
        work in prop::collection::vec((0usize..200, 1usize..40), 1..7),
    ) {
        let _deadline = crate::tests::deadline();
        let (mut calendar, mut slow) = (Calendar::default(), Slow(vec![false; 1000]));
        for (from, span) in work {
            let idle = (from..).find(|at| !slow.0[*at]).unwrap();
            prop_assert_eq!(calendar.idle_from(from as u64), idle as u64);
            prop_assert_eq!(calendar.book(from as u64, span as u64), slow.book(from, span) as u64);
        }
    }

    /// With more work some gaps are dropped: work may end later than possible, never sooner.
    #[test]
    fn much_work_is_never_done_faster_than_one_at_a_time(
        work in prop::collection::vec((0u64..5000, 1u64..200), 1..200),
    ) {
        let _deadline = crate::tests::deadline();
        let mut calendar = Calendar::default();
        let book = |&(from, span): &(u64, u64)| (from, calendar.book(from, span), span);
        let booked: Vec<_> = work.iter().map(book).collect();
        for &(from, end, span) in &booked {
            prop_assert!(end >= from + span);
        }
        for &(first, ..) in &booked {
            for &(_, last, _) in &booked {
                let within = booked.iter().filter(|work| work.0 >= first && work.1 <= last);
                let inside: u64 = within.map(|work| work.2).sum();
                prop_assert!(inside <= last.saturating_sub(first), "{inside} done from {first} to {last}");
            }
        }
    }
}

#[test]
fn a_late_piece_leaves_a_hole_that_an_early_one_uses() {
    let _deadline = crate::tests::deadline();
    let mut plane = Calendar::default();
    assert_eq!(plane.book(100, 50), 150);
    assert_eq!(plane.book(0, 60), 60, "fits before it");
    assert_eq!(plane.book(10, 60), 170, "40 in what is left of the hole, suspended, 20 behind");
    assert_eq!(plane.book(0, 1), 171, "nothing is left");
}
