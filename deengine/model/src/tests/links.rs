// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A link carries its rate: never more, and no less under a backlog.

use crate::link::Link;
use gnstor_base::time::{Span, Time};
use gnstor_flash::PAGE_BYTES;
use proptest::prelude::*;

const SLOT_NS: u64 = 4195;
const RATES: [u64; 4] = [838_860_800, 1_200_000_000, 14_000_000_000, 28_000_000_000];

proptest! {
    #[test]
    fn no_stretch_of_time_carries_more_than_the_rate(
        rate in prop::sample::select(&RATES[..]),
        work in prop::collection::vec((0u64..2_000_000, 1u32..64), 1..400),
    ) {
        let _deadline = crate::tests::deadline();
        let mut link = Link::new(rate);
        let booked: Vec<_> = work.iter().map(|&(from_ns, pages)| {
            let from = Time::from_ns(from_ns);
            let span = Span::transfer(u64::from(pages) * u64::from(PAGE_BYTES), rate);
            (from, link.book(from, pages), span)
        }).collect();
        for &(from, end, span) in &booked {
            // Each page may be cut by less than a picosecond.
            prop_assert!(end.since(from).as_ps() + 64 >= span.as_ps());
        }
        for (first, ..) in booked.iter().step_by(7) {
            for (_, last, _) in booked.iter().step_by(5) {
                let inside = booked.iter().filter(|(from, end, _)| from >= first && end <= last);
                let carried: u64 = inside.map(|(.., span)| span.as_ps()).sum();
                let room = last.since(*first) + Span::from_ns(2 * SLOT_NS);
                prop_assert!(carried <= room.as_ps(), "{carried} ps of work in {room:?}");
            }
        }
    }

    #[test]
    fn work_booked_out_of_order_ends_when_the_sum_says(
        rate in prop::sample::select(&RATES[..]),
        mut pages in prop::collection::vec(1u32..64, 1..300),
        early in 0u64..4000,
    ) {
        let _deadline = crate::tests::deadline();
        // All transfers at once at two moments, the later moment first. The backlog keeps the link busy.
        let mut link = Link::new(rate);
        let half = pages.len() / 2;
        let total: u64 = pages.iter().map(|pages| u64::from(*pages)).sum();
        let late = pages.split_off(half);
        let mut last = Time::ZERO;
        for pages in late {
            last = last.max(link.book(Time::from_ns(early), pages));
        }
        for pages in pages {
            last = last.max(link.book(Time::ZERO, pages));
        }
        let want = Span::transfer(total * u64::from(PAGE_BYTES), rate);
        prop_assert!(last.since(Time::ZERO) + Span::from_ps(total) >= want, "each page is cut by less than \
            1 ps");
        prop_assert!(last.since(Time::ZERO) <= want + Span::from_ns(early + SLOT_NS));
    }
}

#[test]
fn a_backlog_at_gen_5_rates_is_exact() {
    let _deadline = crate::tests::deadline();
    for (rate, page_ps) in [(14_000_000_000, 292_571), (14_500_000_000, 282_482), (28_000_000_000, 146_285)] {
        let mut link = Link::new(rate);
        let mut last = Time::ZERO;
        for _ in 0..100_000 {
            last = link.book(Time::ZERO, 1);
        }
        assert_eq!(last.as_ps(), 100_000 * page_ps, "{rate} bytes/s");
        let truth = Span::transfer(100_000 * u64::from(PAGE_BYTES), rate).as_ps();
        assert!(truth - last.as_ps() <= 100_000, "less than a picosecond a page");
    }
}

#[test]
fn a_booking_beyond_the_ring_does_not_give_old_slots_away_again() {
    let _deadline = crate::tests::deadline();
    let mut link = Link::new(1_000_000_000);
    let full = link.book(Time::ZERO, 1000);
    // The ring covers 69 ms, so this transfer replaces the slots that were just filled.
    let ring = Span::from_ps(1 << 36);
    link.book(Time::ZERO + ring, 1000);
    let again = link.book(Time::ZERO, 1);
    assert!(again >= full, "{again:?} lies in slots that were full up to {full:?}");
}

#[test]
fn a_rate_of_zero_takes_no_time() {
    let _deadline = crate::tests::deadline();
    let mut link = Link::new(0);
    assert_eq!(link.book(Time::from_ns(7), 1 << 20), Time::from_ns(7));
}
