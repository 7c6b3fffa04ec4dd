// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether other threads want the core of a transport's thread.
//!
//! A thread that yields lets every other runnable thread of its core go first, each for some milliseconds. A
//! thread that sleeps goes before them when it wakes. So a thread yields only as long as that costs little. A
//! yield that lasts long shows a crowd, and for some time no yield is tried again.

use gnstor_base::time::{Span, Time};

/// A yield that lasts so long let others run. The slices of the kernel's scheduler are longer.
const LONG_YIELD: Span = Span::from_ms(1);
/// How long the thread does not yield after the first long yield. Each further long yield doubles the time.
const FIRST: Span = Span::from_ms(100);
/// The longest such time.
const LONGEST: Span = Span::from_ms(6_400);

/// What the yields of one thread showed.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    /// Until when the thread does not yield.
    until: Time,
    /// How long it did not yield, the last time.
    last: Span,
}

impl Crowd {
    /// Takes note of a yield that lasted from `from` until `until`.
    pub(super) fn yielded(&mut self, from: Time, until: Time) {
        if until.since(from) < LONG_YIELD {
            return;
        }
        // A long yield soon after the last pause shows the same crowd.
        let is_same = from.since(self.until) < self.last;
        let pause = if is_same { Span::from_ns(2 * self.last.as_ns()).min(LONGEST) } else { FIRST };
        (self.until, self.last) = (until + pause, pause);
    }

    /// Whether the thread had better sleep than yield.
    pub(super) fn is_here(&self, now: Time) -> bool {
        now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    /// The lengths of the pauses if every yield lasts `long`, until `end`.
    fn pauses(crowd: &mut Crowd, now: &mut Time, long: Span, end: Time) -> Vec<Span> {
        let mut all = Vec::new();
        while *now < end {
            let from = *now;
            *now = *now + long;
            crowd.yielded(from, *now);
            let since = *now;
            while crowd.is_here(*now) {
                *now = *now + Span::from_ms(1);
            }
            all.push(now.since(since));
        }
        all
    }

    #[test]
    fn pauses_double_while_the_crowd_stays_and_begin_anew_after_it() {
        let _deadline = deadline();
        let (mut crowd, mut now) = (Crowd::default(), Time::ZERO);
        let short = pauses(&mut crowd, &mut now, Span::from_ns(900_000), Time::ZERO + Span::from_ms(100));
        assert!(short.iter().all(|pause| *pause == Span::ZERO), "{short:?}");
        let end = now + Span::from_ms(30_000);
        let long = pauses(&mut crowd, &mut now, Span::from_ms(20), end);
        let expected = [100, 200, 400, 800, 1600, 3200, 6400, 6400].map(Span::from_ms);
        assert_eq!(long[..8], expected);
        now = now + Span::from_ms(60_000);
        let end = now + Span::from_ms(1);
        assert_eq!(pauses(&mut crowd, &mut now, Span::from_ms(20), end), [FIRST]);
    }
}
