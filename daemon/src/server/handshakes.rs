// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TLS handshakes under way. Hosts take turns, and a turn is one step of one handshake. So a host with many
//! handshakes delays a caller of another host by few steps before each of its own. Each handshake has a
//! deadline. Their number is bounded: beyond it the host with most handshakes loses its oldest one.
//!
//! A first step answers the caller's hello, and the others need its reply to that. Where steps of both kinds
//! are due, they alternate. So a flood of hellos does not delay a caller that has replied, and a flood of
//! replies delays no hello.

use atomic_waker::AtomicWaker;
use gnstor_base::round_robin::RoundRobin;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use tokio::time::Instant;

/// One handshake, as a future.
pub(super) trait Shake: Future + Unpin {
    /// Whether the caller's hello has been answered, so that its next bytes are a reply.
    fn is_answered(&self) -> bool;
}

/// The handshakes that can go on, by host.
#[derive(Default)]
struct Due {
    turns: Mutex<Both>,
    /// Wakes the thread of the handshakes.
    thread: AtomicWaker,
}

/// Steps that are due.
#[derive(Default)]
struct Both {
    first: RoundRobin<IpAddr, u64>,
    further: RoundRobin<IpAddr, u64>,
    /// The last turn was a first step.
    was_first: bool,
}

impl Both {
    fn pop(&mut self) -> Option<u64> {
        // Take the newest of a host. In a flood from that host, the oldest would always be closed just before
        // its turn.
        let first = |both: &mut Self| both.first.pop_newest().map(|(_, number)| (true, number));
        let further = |both: &mut Self| both.further.pop().map(|(_, number)| (false, number));
        let (is_first, number) = match self.was_first {
            true => further(self).or_else(|| first(self)),
            false => first(self).or_else(|| further(self)),
        }?;
        self.was_first = is_first;
        Some(number)
    }
}

impl Due {
    fn turns(&self) -> MutexGuard<'_, Both> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes have come for a handshake, can be sent, or its connection must end.
struct Bell {
    host: IpAddr,
    number: u64,
    is_due: AtomicBool,
    is_answered: AtomicBool,
    due: Arc<Due>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // A handshake waits for its turn once, however often it is woken meanwhile.
        if !self.is_due.swap(true, Ordering::AcqRel) {
            let mut due = self.due.turns();
            let is_answered = self.is_answered.load(Ordering::Acquire);
            let turns = if is_answered { &mut due.further } else { &mut due.first };
            turns.push(self.host, self.number);
            drop(due);
            self.due.thread.wake();
        }
    }
}

struct Handshake<F> {
    step: F,
    until: Instant,
    bell: Arc<Bell>,
}

/// The handshakes under way. They end when this is dropped.
pub(super) struct Handshakes<F> {
    /// By number: the oldest has the lowest one, and its deadline is the first.
    under_way: BTreeMap<u64, Handshake<F>>,
    of_hosts: BTreeMap<IpAddr, BTreeSet<u64>>,
    /// Hosts by the number of their handshakes. Of equal ones the last has the oldest handshake.
    greed: BTreeSet<(usize, Reverse<u64>, IpAddr)>,
    next: u64,
    most: usize,
    due: Arc<Due>,
}

impl<F: Shake> Handshakes<F> {
    /// At most this many at once.
    pub(super) fn new(most: usize) -> Self {
        Self {
            under_way: BTreeMap::new(),
            of_hosts: BTreeMap::new(),
            greed: BTreeSet::new(),
            next: 0,
            most,
            due: Arc::default(),
        }
    }

    /// Begins a handshake of this host. All have the same time, so later ones end later. Beyond the bound the
    /// oldest handshake of the host with most is closed.
    pub(super) fn begin(&mut self, host: IpAddr, step: F, until: Instant) {
        let number = self.next;
        self.next += 1;
        let due = Arc::clone(&self.due);
        let (is_due, is_answered) = (AtomicBool::new(false), AtomicBool::new(false));
        let bell = Arc::new(Bell { host, number, is_due, is_answered, due });
        Arc::clone(&bell).wake();
        self.under_way.insert(number, Handshake { step, until, bell });
        self.count(host, |numbers| _ = numbers.insert(number));
        if self.under_way.len() > self.most
            && let Some(&(count, Reverse(oldest), greedy)) = self.greed.last()
        {
            tracing::debug!(%greedy, count, "too many TLS handshakes: the oldest of this host is closed");
            self.end(oldest);
        }
    }

    /// Changes the handshakes of a host.
    fn count(&mut self, host: IpAddr, change: impl FnOnce(&mut BTreeSet<u64>)) {
        let greed = |numbers: &BTreeSet<u64>| Some((numbers.len(), Reverse(*numbers.first()?), host));
        let numbers = self.of_hosts.entry(host).or_default();
        if let Some(before) = greed(numbers) {
            self.greed.remove(&before);
        }
        change(numbers);
        match greed(numbers) {
            Some(now) => _ = self.greed.insert(now),
            None => _ = self.of_hosts.remove(&host),
        }
    }

    fn end(&mut self, number: u64) {
        if let Some(ended) = self.under_way.remove(&number) {
            self.count(ended.bell.host, |numbers| _ = numbers.remove(&number));
        }
    }

    /// When the first one must have ended.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.under_way.first_key_value().map(|(_, first)| first.until)
    }

    /// Closes the handshakes whose time is over.
    pub(super) fn end_late(&mut self, now: Instant) {
        while let Some((&number, first)) = self.under_way.first_key_value()
            && now >= first.until
        {
            tracing::debug!(host = %first.bell.host, "a TLS handshake took too long");
            self.end(number);
        }
    }

    /// Takes a step of the handshake whose turn it is. Returns its host and how it ended, if it did.
    pub(super) fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Option<(IpAddr, F::Output)>> {
        self.due.thread.register(cx.waker());
        loop {
            let Some(number) = self.due.turns().pop() else { return Poll::Pending };
            // A handshake that was closed takes no turn.
            let Some(handshake) = self.under_way.get_mut(&number) else { continue };
            // From here on a wake-up gives the handshake another turn.
            handshake.bell.is_due.store(false, Ordering::Release);
            let (host, waker) = (handshake.bell.host, Waker::from(Arc::clone(&handshake.bell)));
            let step = Pin::new(&mut handshake.step).poll(&mut Context::from_waker(&waker));
            handshake.bell.is_answered.store(handshake.step.is_answered(), Ordering::Release);
            return Poll::Ready(match step {
                Poll::Pending => None,
                Poll::Ready(output) => {
                    self.end(number);
                    Some((host, output))
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};
    use std::net::Ipv4Addr;
    use std::time::Duration;

    /// A handshake whose caller sends its hello, and then never replies. It notes each step.
    struct Steps(char, bool, Arc<Mutex<String>>);

    impl Future for Steps {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            self.1 = true;
            self.2.lock().unwrap().push(self.0);
            Poll::Pending
        }
    }

    impl Shake for Steps {
        fn is_answered(&self) -> bool {
            self.1
        }
    }

    #[test]
    fn one_that_has_replied_waits_for_no_flood_of_hellos_and_the_other_way_round() {
        let _deadline = Deadline::after(LIMIT);
        let steps = Arc::default();
        let mut under_way = Handshakes::new(100);
        let (host, until) = (Ipv4Addr::LOCALHOST.into(), Instant::now() + Duration::from_secs(1));
        let begin = |under_way: &mut Handshakes<_>, name| {
            under_way.begin(host, Steps(name, false, Arc::clone(&steps)), until);
        };
        let mut context = Context::from_waker(Waker::noop());
        let mut step = |under_way: &mut Handshakes<_>| under_way.poll_step(&mut context).is_ready();
        begin(&mut under_way, 'c');
        begin(&mut under_way, 'd');
        assert!(step(&mut under_way) && step(&mut under_way) && !step(&mut under_way));
        let bells = [0, 1].map(|number| Arc::clone(&under_way.under_way[&number].bell));
        // More hellos and more replies come than steps are taken.
        for _ in 0..4 {
            (0..2).for_each(|_| begin(&mut under_way, 'h'));
            bells.iter().for_each(|bell| Arc::clone(bell).wake());
            assert!(step(&mut under_way) && step(&mut under_way));
        }
        let steps = steps.lock().unwrap();
        assert_eq!(steps.matches('h').count(), 4, "{steps}");
        assert!(["c", "d"].iter().all(|name| steps.matches(name).count() >= 3), "{steps}");
    }
}
