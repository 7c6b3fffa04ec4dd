// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long a transport's thread rests between two steps. The longer nothing happens, the longer it rests: a
//! busy array polls, an idle one takes almost no time of a core.
//!
//! ```text
//!   last activity -- spin, yield --> 4 ms -- 200 us naps --> 20 ms -- 1 ms --> 200 ms -- 5 ms -->
//! ```

use crate::transport::Waits;
use gnstor_base::time::{Span, Time};

/// How the thread spends the time to its next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rest {
    /// It steps again at once.
    Spin,
    /// It lets other threads run.
    Yield,
    /// It sleeps for so long, or until a job arrives.
    Nap(Span),
}

/// Steps without work before the thread lets others run.
const SPIN_STEPS: u32 = 200;
/// How long a thread without work stays awake.
const AWAKE: Span = Span::from_ms(4);
/// Idle times, each with the length of the naps until then.
const NAPS: [(Span, Span); 2] = [(Span::from_ms(20), SHORT), (Span::from_ms(200), Span::from_ms(1))];
const LONGEST: Span = Span::from_ms(5);
/// Naps of a transport that polls an executor.
const SHORT: Span = Span::from_ns(200_000);
/// A nap ends so long before the next event: the operating system wakes a thread late.
const MARGIN: Span = Span::from_ns(150_000);

/// The rests of one thread.
#[derive(Debug, Default)]
pub(super) struct Pace {
    idle_steps: u32,
    idle_since: Time,
}

impl Pace {
    /// A job has woken the thread: it stays awake as after a step with work.
    pub(super) fn wake(&mut self) {
        self.idle_steps = 0;
    }

    /// The rest after a step that ended at `now`; `worked`: whether that step found work.
    pub(super) fn after(&mut self, now: Time, worked: bool, waits: impl FnOnce() -> Waits) -> Rest {
        if worked {
            self.wake();
            return Rest::Spin;
        }
        if self.idle_steps == 0 {
            self.idle_since = now;
        }
        self.idle_steps = self.idle_steps.saturating_add(1);
        if self.idle_steps < SPIN_STEPS {
            return Rest::Spin;
        }
        let idle = now.since(self.idle_since);
        if idle < AWAKE {
            return Rest::Yield;
        }
        let Waits { next, polls } = waits();
        let nap = NAPS.iter().find(|(until, _)| idle < *until).map_or(LONGEST, |(_, nap)| *nap);
        let nap = if polls { nap.min(SHORT) } else { nap };
        match next {
            // An SSD that is due and did nothing polls another thread's work.
            Some(at) if at <= now => Rest::Nap(nap.min(SHORT)),
            Some(at) if at.since(now) <= MARGIN => Rest::Yield,
            Some(at) => Rest::Nap(nap.min(at.before(MARGIN).since(now))),
            None => Rest::Nap(nap),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    /// A thread whose steps take 1 us of virtual time, and whose naps last as long as it asks.
    #[derive(Default)]
    struct Thread {
        pace: Pace,
        now: Time,
        naps: Vec<Span>,
        yields: u32,
    }

    impl Thread {
        fn step(&mut self, worked: bool, waits: Waits) {
            self.now = self.now + Span::from_ns(1000);
            match self.pace.after(self.now, worked, || waits) {
                Rest::Spin => {}
                Rest::Yield => self.yields += 1,
                Rest::Nap(nap) => {
                    self.now = self.now + nap;
                    self.naps.push(nap);
                }
            }
        }

        fn idle_until(&mut self, end: Time, waits: Waits) {
            while self.now < end {
                self.step(false, waits);
            }
        }
    }

    #[test]
    fn an_idle_engine_naps_at_most_200_times_a_second() {
        let _deadline = deadline();
        let mut thread = Thread::default();
        thread.idle_until(Time::ZERO + Span::from_ms(1000), Waits::default());
        let first_second = thread.naps.len();
        assert!(first_second < 500, "{first_second} naps in the first second");
        thread.idle_until(Time::ZERO + Span::from_ms(11_000), Waits::default());
        assert!(thread.naps.len() - first_second <= 2000);
        assert!(thread.yields < 4001, "and it does not stay awake");
    }

    #[test]
    fn work_far_ahead_does_not_keep_an_engine_awake_and_is_not_overslept() {
        let _deadline = deadline();
        let mut thread = Thread::default();
        let due = Time::ZERO + Span::from_ms(1003);
        thread.idle_until(due.before(MARGIN), Waits { next: Some(due), polls: false });
        assert!(thread.now <= due, "the last nap ends at {:?}", thread.now);
        assert!(thread.naps.len() < 500, "{} naps", thread.naps.len());
        assert_eq!(
            thread.pace.after(due.before(MARGIN), false, || Waits { next: Some(due), polls: false }),
            Rest::Yield
        );
    }

    #[test]
    fn the_first_activity_wakes_an_idle_engine_for_a_while() {
        let _deadline = deadline();
        let mut thread = Thread::default();
        thread.idle_until(Time::ZERO + Span::from_ms(1000), Waits::default());
        assert_eq!(thread.naps.last(), Some(&LONGEST));
        thread.step(true, Waits::default());
        let (woken, naps) = (thread.now, thread.naps.len());
        thread.idle_until(woken + Span::from_ms(3), Waits::default());
        assert_eq!(thread.naps.len(), naps, "it polls");
        thread.idle_until(woken + Span::from_ms(6), Waits::default());
        assert_eq!(thread.naps.last(), Some(&SHORT), "its first naps are short");
    }

    #[test]
    fn an_engine_that_polls_an_executor_takes_short_naps_only() {
        let _deadline = deadline();
        for waits in [Waits { next: None, polls: true }, Waits { next: Some(Time::ZERO), polls: false }] {
            let mut thread = Thread::default();
            thread.idle_until(Time::ZERO + Span::from_ms(1000), waits);
            assert!(thread.naps.iter().all(|nap| *nap == SHORT), "{waits:?}");
        }
    }
}
