// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long a transport's thread rests between two steps. The longer nothing happens, the longer it rests: a
//! busy array polls, an idle one takes almost no time of a core.
//!
//! ```text
//!   last activity -- spin, yield --> 1 ms -- 50 us naps --> 4 ms -- 200 us -->
//!   where bytes of a stream, a waker or the next event end the nap before all work:
//!   last activity -- spin, yield --> 20 to 300 us -- 100 ms -->
//! ```
//! Such a thread stays awake for as long as work has come without a pause of a millisecond. A load keeps it
//! awake between two requests, and a lone request costs little.
//!
//! On a crowded core the thread naps wherever it would yield ([`crowd`](super::crowd)).

use super::crowd::Crowd;
use crate::transport::Waits;
use gnstor_base::time::{Span, Time};

/// What the thread does until its next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rest {
    /// The thread makes the next step at once.
    Spin,
    /// The thread yields the core to other threads.
    Yield,
    /// The thread sleeps for so long, or until a job or bytes of a stream arrive.
    Nap(Span),
}

/// Number of steps without work before the thread yields.
const SPIN_STEPS: u32 = 20;

/// How a thread rests by the time for which it has been idle.
#[derive(Debug)]
struct Plan {
    /// Longest time for which the thread stays awake without work.
    awake: Span,
    /// Idle times, each with the length of the naps until then.
    naps: &'static [(Span, Span)],
    /// Length of the naps after that; `None`: as the transport is told.
    longest: Option<Span>,
}

/// The plan if work may come unannounced: an executor's, or another thread's.
const UNANNOUNCED: Plan = Plan {
    awake: Span::from_ms(1),
    naps: &[(Span::from_ms(4), SHORTEST), (Span::from_ms(20), SHORT), (Span::from_ms(200), Span::from_ms(1))],
    longest: Some(Span::from_ms(5)),
};
/// The plan if all work ends a nap.
const ANNOUNCED: Plan = Plan { awake: Span::from_ns(300_000), naps: &[], longest: None };
/// The longest naps of a transport that polls an executor.
const SHORT: Span = Span::from_ns(200_000);
/// The first naps of such a transport. They add little to the time of a request after a short pause.
const SHORTEST: Span = Span::from_ns(50_000);
/// How long before the next event a nap ends, since the operating system wakes a thread late.
const MARGIN: Span = Span::from_ns(150_000);

/// Shortest time for which a thread stays awake.
const LEAST_AWAKE: Span = Span::from_ns(20_000);
/// Work after a longer time begins anew.
const PAUSE: Span = Span::from_ms(1);

/// The rests of one thread.
#[derive(Debug)]
pub(super) struct Pace {
    /// The longest nap where all work ends it.
    longest: Span,
    idle_steps: u32,
    idle_since: Time,
    /// Time at which work came after the last pause of [`PAUSE`].
    busy_since: Time,
    crowd: Crowd,
}

impl Pace {
    pub(super) fn new(longest: Span) -> Self {
        let crowd = Crowd::default();
        Self { longest, idle_steps: 0, idle_since: Time::ZERO, busy_since: Time::ZERO, crowd }
    }

    /// Takes note of a [`Rest::Yield`]: the kernel let other threads run from `from` until `until`.
    pub(super) fn yielded(&mut self, from: Time, until: Time) {
        self.crowd.yielded(from, until);
    }

    /// The rest after a step that ended at `now`; `worked`: whether that step found work.
    pub(super) fn after(&mut self, now: Time, worked: bool, waits: impl FnOnce() -> Waits) -> Rest {
        match self.plan(now, worked, waits) {
            Rest::Yield if self.crowd.is_here(now) => Rest::Nap(SHORTEST),
            rest => rest,
        }
    }

    /// The rest where no core is crowded.
    fn plan(&mut self, now: Time, worked: bool, waits: impl FnOnce() -> Waits) -> Rest {
        if worked {
            if self.idle_steps > 0 && now.since(self.idle_since) >= PAUSE {
                self.busy_since = now;
            }
            self.idle_steps = 0;
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
        let awake = self.idle_since.since(self.busy_since).max(LEAST_AWAKE).min(ANNOUNCED.awake);
        if idle < awake {
            return Rest::Yield;
        }
        let Waits { next, is_due, polls } = waits();
        // An SSD that is due and did nothing waits for another thread, so the thread keeps polling.
        let looks = polls || is_due;
        let (plan, awake) = if looks { (&UNANNOUNCED, UNANNOUNCED.awake) } else { (&ANNOUNCED, awake) };
        if idle < awake {
            return Rest::Yield;
        }
        let nap = plan.naps.iter().find(|(until, _)| idle < *until).map(|(_, nap)| *nap);
        let nap = nap.or(plan.longest).unwrap_or(self.longest);
        let nap = if looks { nap.min(SHORT) } else { nap };
        match next {
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

    const LONGEST: Span = Span::from_ms(100);

    /// A thread whose steps take 1 us of virtual time, and whose naps last as long as it asks.
    struct Thread {
        pace: Pace,
        now: Time,
        naps: Vec<Span>,
        yields: u32,
    }

    impl Thread {
        fn new() -> Self {
            Self { pace: Pace::new(LONGEST), now: Time::ZERO, naps: Vec::new(), yields: 0 }
        }

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
    fn an_idle_engine_naps_at_most_10_times_a_second() {
        let _deadline = deadline();
        let mut thread = Thread::new();
        thread.idle_until(Time::ZERO + Span::from_ms(10_000), Waits::default());
        assert!(thread.naps.len() <= 100, "{} naps in ten seconds", thread.naps.len());
        assert!(thread.yields < 301, "and it does not stay awake");
    }

    #[test]
    fn work_far_ahead_does_not_keep_an_engine_awake_and_is_not_overslept() {
        let _deadline = deadline();
        let due = Time::ZERO + Span::from_ms(1003);
        for (is_due, most) in [(false, 60), (true, 8000)] {
            let mut thread = Thread::new();
            let waits = Waits { next: Some(due), is_due, polls: false };
            thread.idle_until(due.before(MARGIN), waits);
            assert!(thread.now <= due, "the last nap ends at {:?}", thread.now);
            assert!(thread.naps.len() < most, "{} naps", thread.naps.len());
            // Also behind the time that it is due: the step has read the clock before.
            for now in [due.before(MARGIN), due, due + Span::from_ns(500)] {
                assert_eq!(thread.pace.after(now, false, || waits), Rest::Yield);
            }
        }
    }

    const POLLS: [Waits; 2] =
        [Waits { next: None, is_due: false, polls: true }, Waits { next: None, is_due: true, polls: false }];

    #[test]
    fn an_activity_keeps_an_engine_awake_for_1_ms_where_nothing_announces_the_next() {
        let _deadline = deadline();
        for waits in POLLS {
            let mut thread = Thread::new();
            thread.idle_until(Time::ZERO + Span::from_ms(1000), waits);
            thread.step(true, waits);
            let (woken, naps) = (thread.now, thread.naps.len());
            thread.idle_until(woken + Span::from_ns(900_000), waits);
            assert_eq!(thread.naps.len(), naps, "it polls");
            thread.idle_until(woken + Span::from_ms(3), waits);
            assert_eq!(thread.naps.get(naps), Some(&SHORTEST), "then it naps");
        }
    }

    #[test]
    fn an_engine_whose_work_is_announced_stays_awake_as_long_as_it_was_busy_and_300_us_at_most() {
        let _deadline = deadline();
        for (busy_us, awake_us) in [(1, 20), (100, 100), (5000, 300)] {
            let mut thread = Thread::new();
            thread.idle_until(Time::ZERO + Span::from_ms(1000), Waits::default());
            (0..busy_us).for_each(|_| thread.step(true, Waits::default()));
            let (busy_until, naps, yields) = (thread.now, thread.naps.len(), thread.yields);
            thread.idle_until(busy_until + Span::from_ns(awake_us * 1000 - 3000), Waits::default());
            assert_eq!(thread.naps.len(), naps, "it polls");
            // Some steps spin at first.
            thread.idle_until(busy_until + Span::from_ns(awake_us * 1000 + 30_000), Waits::default());
            assert_eq!(thread.naps.get(naps), Some(&LONGEST));
            assert!(u64::from(thread.yields - yields) <= awake_us);
            let yields = thread.yields;
            thread.idle_until(busy_until + Span::from_ms(500), Waits::default());
            assert_eq!(thread.yields, yields, "it does not poll again");
        }
    }

    #[test]
    fn requests_one_after_another_find_an_engine_awake() {
        let _deadline = deadline();
        let mut thread = Thread::new();
        thread.idle_until(Time::ZERO + Span::from_ms(1000), Waits::default());
        for request in 0..100 {
            thread.naps.clear();
            thread.step(true, Waits::default());
            thread.naps.clear();
            // Bytes end a nap.
            for _ in 0..200 {
                thread.now = thread.now + Span::from_ns(1000);
                if let Rest::Nap(nap) = thread.pace.after(thread.now, false, Waits::default) {
                    thread.naps.push(nap);
                }
            }
            assert_eq!(thread.naps.is_empty(), request > 0, "request {request}");
        }
    }

    #[test]
    fn an_engine_on_a_crowded_core_naps_in_place_of_yielding() {
        let _deadline = deadline();
        let mut thread = Thread::new();
        thread.idle_until(Time::ZERO + Span::from_ms(1000), Waits::default());
        for waits in [Waits::default(), POLLS[0], POLLS[1]] {
            // This yield lasts as long as the slices of other threads.
            let from = thread.now;
            thread.now = from + Span::from_ms(40);
            thread.pace.yielded(from, thread.now);
            let (yields, naps) = (thread.yields, thread.naps.len());
            (0..300).for_each(|_| thread.step(true, waits));
            thread.idle_until(thread.now + Span::from_ms(3), waits);
            assert_eq!(thread.yields, yields, "{waits:?}");
            assert_eq!(thread.naps.get(naps), Some(&SHORTEST), "{waits:?}");
        }
        // What is due soon is not slept through for long.
        thread.step(true, Waits::default());
        let waits = Waits { next: Some(thread.now + Span::from_ns(100_000)), ..Waits::default() };
        let rests: Vec<_> = (0..30).map(|_| thread.pace.after(thread.now, false, || waits)).collect();
        assert_eq!(rests.last(), Some(&Rest::Nap(SHORTEST)));
    }

    #[test]
    fn an_engine_that_polls_an_executor_takes_short_naps_only() {
        let _deadline = deadline();
        for waits in POLLS {
            let mut thread = Thread::new();
            thread.idle_until(Time::ZERO + Span::from_ms(1000), waits);
            assert!(thread.naps.iter().all(|nap| *nap <= SHORT), "{waits:?}");
        }
    }
}
