// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Modelled time: picoseconds since an arbitrary start, so that a 14 GB/s link does not round.
//!
//! Nothing in the model reads a clock. The caller of a component passes `now`: from a wall clock
//! (`fabric::runtime`) or a virtual one.

use core::fmt;
use core::ops::{Add, Sub};

/// A point in time, in picoseconds; 2^64 ps are 213 days.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

/// A span of time, in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

/// A source of the current time. A [`Time`] is a clock that does not move, for steps in virtual time.
pub trait Clock {
    /// The time.
    fn now(&mut self) -> Time;
}

impl Clock for Time {
    fn now(&mut self) -> Time {
        *self
    }
}

impl<F: FnMut() -> Time> Clock for F {
    fn now(&mut self) -> Time {
        self()
    }
}

impl Time {
    /// The start.
    pub const ZERO: Self = Self(0);
    /// After everything.
    pub const NEVER: Self = Self(u64::MAX);

    /// From nanoseconds since the start.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns * 1000)
    }

    /// From picoseconds since the start.
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// Whole nanoseconds since the start.
    pub const fn as_ns(self) -> u64 {
        self.0 / 1000
    }

    /// Picoseconds since the start.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// The time `span` earlier, but not before the start.
    #[must_use]
    pub const fn before(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// Time elapsed since `earlier`, zero if that is in the future.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// From picoseconds.
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// From nanoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns * 1000)
    }

    /// From milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms * 1_000_000_000)
    }

    /// The time that `bytes` need at `bytes_per_second`. A rate of 0 means "not limited", and takes no time.
    pub fn transfer(bytes: u64, bytes_per_second: u64) -> Self {
        if bytes_per_second == 0 {
            return Self::ZERO;
        }
        let ps = u128::from(bytes) * 1_000_000_000_000 / u128::from(bytes_per_second);
        Self(u64::try_from(ps).unwrap_or(u64::MAX))
    }

    /// Whole nanoseconds.
    pub const fn as_ns(self) -> u64 {
        self.0 / 1000
    }

    /// Picoseconds.
    pub const fn as_ps(self) -> u64 {
        self.0
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl Sub<Span> for Time {
    type Output = Time;
    fn sub(self, span: Span) -> Time {
        Time(self.0.saturating_sub(span.0))
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.as_ns())
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.as_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::deadline;

    #[test]
    fn transfers_do_not_round_to_nanoseconds() {
        let _deadline = deadline();
        assert_eq!(Span::transfer(128, 14_000_000_000).as_ps(), 9142);
        assert_eq!(Span::transfer(4096, 0), Span::ZERO);
    }
}
