// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes that the daemon holds for its callers: answers that they have not taken, and requests that are not
//! complete. If one host, or all, hold too many, further ones wait. If the oldest of them are older than a
//! second, their connection ends. A client that reads and writes without a pause has none that are old.
//!
//! ```text
//!   Account (of a connection) --hold--> Reservation   bytes in a MemoryBudget: by host, oldest first
//!      Room: a wait until the host, and all hosts, hold no more than they may
//! ```

use atomic_waker::AtomicWaker;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// Age from which bytes may end their connection, where others need the memory.
const OLD: Duration = Duration::from_secs(1);
/// Pause before a caller that found no room tries again.
const AGAIN: Duration = Duration::from_millis(20);

/// The bytes of all connections.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    most: usize,
    held: Mutex<OfAll>,
}

/// Bytes of connections that have not been told to end.
#[derive(Debug, Default)]
struct OfAll {
    count: u64,
    bytes: usize,
    hosts: HashMap<IpAddr, OfHost>,
}

#[derive(Debug, Default)]
struct OfHost {
    bytes: usize,
    /// Reservations by number, so that the oldest one comes first.
    reservations: BTreeMap<u64, Held>,
}

#[derive(Debug)]
struct Held {
    bytes: usize,
    since: Instant,
    ending: Arc<Ending>,
}

/// The order to a connection to end.
#[derive(Debug)]
pub(super) struct Ending {
    must_end: AtomicBool,
    waker: Arc<AtomicWaker>,
}

impl Ending {
    /// The waker wakes the connection when [`Self::must_end`] has become true.
    pub(super) fn new(waker: Arc<AtomicWaker>) -> Arc<Self> {
        Arc::new(Self { must_end: AtomicBool::new(false), waker })
    }

    /// Whether the connection is to end, because it holds memory for long that others need.
    pub(super) fn must_end(&self) -> bool {
        self.must_end.load(Ordering::Acquire)
    }
}

/// Bytes that count until this is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    budget: Arc<MemoryBudget>,
    host: IpAddr,
    number: u64,
}

impl MemoryBudget {
    /// Connections may hold `most` bytes together, and those of one host three quarters of them.
    pub(super) fn new(most: usize) -> Self {
        Self { most, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, OfAll> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether connections of this host may hold more. Ends connections that hold bytes for long, if needed.
    fn has_room(&self, host: IpAddr, now: Instant) -> bool {
        let mut held = self.held();
        while let Some(greedy) = held.greedy(host, self.most) {
            if !held.end_oldest(greedy, now) {
                return false;
            }
        }
        true
    }

    fn hold(self: &Arc<Self>, host: IpAddr, ending: &Arc<Ending>, bytes: usize, now: Instant) -> Reservation {
        let mut held = self.held();
        held.count += 1;
        held.bytes += bytes;
        let number = held.count;
        let of_host = held.hosts.entry(host).or_default();
        of_host.bytes += bytes;
        of_host.reservations.insert(number, Held { bytes, since: now, ending: Arc::clone(ending) });
        Reservation { budget: Arc::clone(self), host, number }
    }
}

impl OfAll {
    /// The host that must hold less: this one, if it holds more than its quota. If all hosts together hold
    /// too much, the host with the most.
    fn greedy(&self, host: IpAddr, most: usize) -> Option<IpAddr> {
        if self.hosts.get(&host).is_some_and(|of_host| of_host.bytes > most / 4 * 3) {
            return Some(host);
        }
        let largest = || self.hosts.iter().max_by_key(|(_, of_host)| of_host.bytes).map(|(&host, _)| host);
        if self.bytes > most { largest() } else { None }
    }

    /// Ends the connection of the host's oldest bytes, if these are old.
    fn end_oldest(&mut self, host: IpAddr, now: Instant) -> bool {
        let Some(of_host) = self.hosts.get_mut(&host) else { return false };
        let Some(oldest) = of_host.reservations.first_entry() else { return false };
        if now.saturating_duration_since(oldest.get().since) < OLD {
            return false;
        }
        let Held { bytes, ending, .. } = oldest.remove();
        of_host.bytes -= bytes;
        self.bytes -= bytes;
        ending.must_end.store(true, Ordering::Release);
        ending.waker.wake();
        true
    }
}

impl Reservation {
    /// Counts `bytes` more.
    pub(super) fn grow(&self, bytes: usize) {
        let mut held = self.budget.held();
        // If its connection was told to end, its bytes count no more.
        let of_host = held.hosts.get_mut(&self.host);
        let Some((of_host, reservation)) = of_host.and_then(|of_host| {
            let reservation = of_host.reservations.get_mut(&self.number)?;
            Some((&mut of_host.bytes, reservation))
        }) else {
            return;
        };
        reservation.bytes += bytes;
        *of_host += bytes;
        held.bytes += bytes;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut held = self.budget.held();
        let Some(of_host) = held.hosts.get_mut(&self.host) else { return };
        let bytes = of_host.reservations.remove(&self.number).map_or(0, |held| held.bytes);
        of_host.bytes -= bytes;
        if of_host.reservations.is_empty() {
            held.hosts.remove(&self.host);
        }
        held.bytes -= bytes;
    }
}

/// The bytes of one connection in a budget.
#[derive(Clone, Debug)]
pub(super) struct Account {
    budget: Arc<MemoryBudget>,
    host: IpAddr,
    ending: Arc<Ending>,
}

impl Account {
    /// The account of a connection from this host.
    pub(super) fn new(budget: Arc<MemoryBudget>, host: IpAddr, ending: Arc<Ending>) -> Self {
        Self { budget, host, ending }
    }

    pub(super) fn hold(&self, bytes: usize) -> Reservation {
        self.budget.hold(self.host, &self.ending, bytes, Instant::now())
    }
}

/// A wait for room in a budget.
#[derive(Debug, Default)]
pub(super) struct Room(Option<Pin<Box<Sleep>>>);

impl Room {
    /// Ready when the account's connection may hold more.
    pub(super) fn poll(&mut self, account: &Account, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(wait) = &mut self.0 {
                std::task::ready!(wait.as_mut().poll(cx));
                self.0 = None;
            }
            if account.budget.has_room(account.host, Instant::now()) {
                return Poll::Ready(());
            }
            self.0 = Some(Box::pin(tokio::time::sleep(AGAIN)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};

    fn ending() -> Arc<Ending> {
        Ending::new(Arc::default())
    }

    #[test]
    fn the_oldest_bytes_of_the_host_that_holds_too_much_end_and_no_others() {
        let _deadline = Deadline::after(LIMIT);
        let budget = Arc::new(MemoryBudget::new(400));
        let [a, b] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse::<IpAddr>().expect("an address"));
        let (first, second, third, other) = (ending(), ending(), ending(), ending());
        let begun = Instant::now();
        let (soon, later) = (begun + OLD / 2, begun + OLD);
        let ends = || [&first, &second, &third, &other].map(|ending| ending.must_end());
        let hold = |host, ending, bytes| budget.hold(host, ending, bytes, begun);
        let kept = [hold(b, &other, 40), hold(a, &first, 100), hold(a, &second, 200)];
        assert!(budget.has_room(a, later), "300 bytes are the part of a host");
        let more = hold(a, &third, 50);
        assert!(!budget.has_room(a, soon) && budget.has_room(b, soon), "it waits while no answer is old");
        assert_eq!(ends(), [false; 4]);
        assert!(budget.has_room(a, later));
        assert_eq!(ends(), [true, false, false, false]);
        // Bytes of a connection that must end, or that the caller has read, no longer count.
        drop(kept);
        drop(hold(a, &third, 250));
        assert!(budget.has_room(a, later));
        assert_eq!(ends(), [true, false, false, false]);
        // All hosts together: the one with the most gives way.
        let kept = [hold(a, &third, 200), hold(b, &other, 140)];
        assert!(budget.has_room(b, later));
        let last = hold(b, &other, 20);
        assert!(budget.has_room(b, later));
        assert_eq!(ends(), [true, false, true, false]);
        drop((kept, more, last));
        let held = budget.held();
        assert!((held.bytes, held.hosts.len()) == (0, 0), "{held:?}");
    }

    /// Bytes of a request come one after another.
    #[test]
    fn a_share_that_grows_counts_until_its_connection_is_told_to_end() {
        let _deadline = Deadline::after(LIMIT);
        let budget = Arc::new(MemoryBudget::new(400));
        let host = "192.0.2.1".parse::<IpAddr>().expect("an address");
        let (slow, begun) = (ending(), Instant::now());
        let reservation = budget.hold(host, &slow, 100, begun);
        reservation.grow(200);
        assert!(budget.has_room(host, begun + OLD));
        reservation.grow(1);
        assert!(!budget.has_room(host, begun) && !slow.must_end(), "it is not old");
        assert!(budget.has_room(host, begun + OLD) && slow.must_end());
        reservation.grow(1000);
        assert!(budget.has_room(host, begun), "it counts no more");
        drop(reservation);
        let held = budget.held();
        assert!((held.bytes, held.hosts.len()) == (0, 0), "{held:?}");
    }
}
