// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A clock that drifts and leaps ahead: its owner sees other times than the world's.

use gnstor_base::time::{Span, Time};

/// Millionths of a second in a second.
const MILLION: u64 = 1_000_000;

/// A clock. It shows the world's time, scaled by some millionths, plus the sum of its leaps. It never goes
/// back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// Its seconds in a million seconds of the world.
    rate: u64,
    /// The sum of its leaps.
    ahead: Span,
}

impl Clock {
    /// A clock that drifts by this number of millionths; negative: it is slow.
    pub(super) fn new(ppm: i32) -> Self {
        Self { rate: MILLION.saturating_add_signed(ppm.into()), ahead: Span::ZERO }
    }

    /// Makes the clock leap ahead.
    pub(super) fn leap(&mut self, by: Span) {
        self.ahead = Span::from_ps(self.ahead.as_ps() + by.as_ps());
    }

    /// The time that the clock shows at this time of the world.
    pub(super) fn shows(self, at: Time) -> Time {
        if at == Time::NEVER {
            at
        } else {
            Time::from_ps(scaled(at.as_ps(), self.rate, MILLION)) + self.ahead
        }
    }

    /// The first time of the world at which it shows this time or a later one, if it does not leap again.
    pub(super) fn reaches(self, shown: Time) -> Time {
        if shown == Time::NEVER {
            return shown;
        }
        let without = shown.before(self.ahead);
        if self.rate == MILLION {
            return without;
        }
        let mut at = Time::from_ps(scaled(without.as_ps(), MILLION, self.rate));
        while self.shows(at) < shown {
            at = Time::from_ps(at.as_ps() + 1);
        }
        at
    }
}

fn scaled(ps: u64, by: u64, of: u64) -> u64 {
    let scaled = u128::from(ps) * u128::from(by) / u128::from(of);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn a_clock_shows_a_time_when_it_is_reached_and_not_before() {
        let _deadline = deadline();
        for ppm in [-15_000, -500, -1, 0, 1, 500, 15_000] {
            let clock = Clock::new(ppm);
            for ps in [0, 1, 999, 1_000_003, 300_000_000_000, 90_000_000_000_007] {
                let shown = Time::from_ps(ps);
                let at = clock.reaches(shown);
                assert!(clock.shows(at) >= shown, "{ppm} {ps}");
                assert!(ps == 0 || clock.shows(at.before(Span::from_ps(1))) < shown, "{ppm} {ps}");
            }
        }
        let lease = Time::from_ns(300_000_000);
        assert_eq!(Clock::new(15_000).shows(lease), Time::from_ns(304_500_000));
        assert_eq!(Clock::new(-500).reaches(Time::NEVER), Time::NEVER);
    }

    #[test]
    fn a_clock_that_leapt_reaches_what_it_leapt_over_at_once() {
        let _deadline = deadline();
        for ppm in [-500, 0, 500] {
            let mut clock = Clock::new(ppm);
            let now = Time::from_ns(1_000_000_000);
            let before = clock.shows(now);
            clock.leap(Span::from_ms(300));
            clock.leap(Span::from_ms(700));
            assert_eq!(clock.shows(now), before + Span::from_ms(1_000));
            assert!(clock.reaches(before + Span::from_ms(999)) <= now, "{ppm}");
            let later = clock.reaches(before + Span::from_ms(1_001));
            assert!(later > now && clock.shows(later) >= before + Span::from_ms(1_001), "{ppm}");
            assert_eq!(clock.shows(Time::NEVER), Time::NEVER);
        }
    }
}
