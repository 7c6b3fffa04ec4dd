// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Newcomers: streams on which no client has been admitted. While an engine serves clients, newcomers get a
//! share of its time. Once they have used more, they must wait before the engine polls them again.
//!
//! ```text
//!   accepted stream --EngineLoad::take of the engine with the least--> StreamSlot --add_client--> newcomer
//!   newcomer --polled, timed--> debt of 8 times that time; --a client is admitted--> client
//!   debt above the credit, and clients at work --> newcomers are not polled, and no slot is given
//! ```
//! Debt goes down as time passes. Without active clients, newcomers are polled without limit. The credit lets
//! a client of many queues through at once.

use super::RcTransport;
use crate::tcp::EngineLoad;
use gnstor_base::time::{Clock, Span, Time};
use std::sync::Arc;

/// Newcomers get one part in `PART` of an engine's time.
const PART: u64 = 8;
/// Time that newcomers may use before they have to wait.
const CREDIT: Span = Span::from_ms(10);
/// The debt for that time.
const CREDIT_DEBT: Span = Span::from_ps(CREDIT.as_ps() * PART);
/// An engine is at work for clients for so long after it last did something for one. If a poll of a newcomer
/// owes more, that counts: clients can ask for nothing during a poll of milliseconds.
const AT_WORK: Span = Span::from_ns(100_000);
/// Notify other threads before their view of "clients are active" expires.
const TELL: Span = Span::from_ns(50_000);
/// Longest wait of newcomers.
const LONGEST_WAIT: Span = Span::from_ms(250);
/// Time of newcomers' polls after which clients have their turn, even if none was active.
pub(super) const AT_ONCE: Span = Span::from_ms(1);
/// Time that an engine needs to add a stream.
const ARRIVAL: Span = Span::from_ns(5_000);

/// An engine's account of its newcomers' time.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) load: Arc<EngineLoad>,
    /// When the debt will be gone.
    repaid: Time,
    /// The largest debt for one poll since newcomers owed nothing.
    dearest: Span,
    /// When the engine last served a client, and until when other threads take clients for active.
    served: Time,
    told: Time,
    /// The time for which the engine's thread has run; `None`: all time counts.
    work: Option<fn() -> Time>,
}

impl Account {
    /// Notes that the engine just served a client.
    #[inline]
    pub(super) fn serve(&mut self, now: Time) {
        self.served = now;
        if self.told.since(now) < TELL {
            self.told = now + AT_WORK;
            self.load.works_until(self.told);
        }
    }

    /// The time for which the engine's thread has run.
    pub(super) fn work(&self, clock: &mut dyn Clock) -> Time {
        self.work.map_or_else(|| clock.now(), |work| work())
    }

    /// Charges newcomers for a poll that took this time of the engine's thread.
    pub(super) fn spend(&mut self, now: Time, time: Span) {
        let debt = Span::from_ps(time.as_ps().saturating_mul(PART));
        self.dearest = if now < self.owes_until() { self.dearest.max(debt) } else { debt };
        self.add_debt(now, debt);
        let works_until = self.served + AT_WORK.max(self.dearest);
        if works_until > self.told {
            self.told = works_until;
            self.load.works_until(works_until);
        }
    }

    fn add_debt(&mut self, now: Time, debt: Span) {
        self.repaid = (self.repaid.max(now) + debt).min(now + CREDIT_DEBT + LONGEST_WAIT);
        self.load.owes_until(self.owes_until());
    }

    /// A stream was added.
    pub(super) fn arrive(&mut self, now: Time) {
        self.add_debt(now, Span::from_ps(ARRIVAL.as_ps() * PART));
    }

    /// Newcomers wait, since clients are at work.
    pub(super) fn is_shut(&self, now: Time) -> bool {
        now < self.owes_until() && now.since(self.served) <= AT_WORK.max(self.dearest)
    }

    fn owes_until(&self) -> Time {
        self.repaid.before(CREDIT_DEBT)
    }
}

impl RcTransport {
    /// Sets the clock for the time in which this transport's thread runs. So newcomers do not pay for the
    /// time in which other threads have its core.
    pub(crate) fn measure_work(&mut self, work: fn() -> Time) {
        self.newcomers.work = Some(work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    /// A power of a proof takes longer than a client's next command.
    #[test]
    fn a_poll_that_takes_milliseconds_is_waited_for_while_a_client_is_served_now_and_then() {
        let _deadline = deadline();
        let (mut account, at) = (Account::default(), |us: u64| Time::from_ns(1_000 * us));
        account.spend(at(0), CREDIT);
        account.serve(at(0));
        account.spend(at(1_500), Span::from_ns(1_500_000));
        assert!(account.is_shut(at(1_500)), "the client had no turn during the poll");
        account.serve(at(1_600));
        assert!(account.is_shut(at(10_000)), "it owes 12 ms");
        assert!(!account.is_shut(at(13_700)), "nothing was done for a client meanwhile");
        // Cheap polls owe less than the time for which a client counts as at work.
        let mut account = Account::default();
        (0..4_000).for_each(|_| account.spend(at(0), Span::from_ns(5_000)));
        account.serve(at(0));
        assert!(account.is_shut(at(100)) && !account.is_shut(at(101)));
    }

    #[test]
    fn what_a_dear_poll_owes_is_waited_for_beside_cheap_polls_and_new_streams() {
        let _deadline = deadline();
        let (mut account, at) = (Account::default(), |us: u64| Time::from_ns(1_000 * us));
        account.serve(at(0));
        account.spend(at(1_500), CREDIT + Span::from_ns(1_500_000));
        account.arrive(at(1_501));
        account.spend(at(1_502), Span::from_ns(5_000));
        assert!(account.is_shut(at(10_000)), "it owes 12 ms beyond the credit");
        assert!(account.load.is_shut(at(10_000)), "the listener gives it no stream");
        assert!(!account.is_shut(at(14_000)) && !account.load.is_shut(at(14_000)), "the debt is over");
        // The next polls are cheap ones.
        (0..100).for_each(|_| account.spend(at(14_000), Span::from_ns(5_000)));
        account.serve(at(14_000));
        assert!(account.is_shut(at(14_100)) && !account.is_shut(at(14_101)));
    }
}
