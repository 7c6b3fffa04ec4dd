// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers on their way to a client. An answer that is not taken in time ends its connection. A client
//! chooses its HTTP/2 window. Otherwise the daemon would keep as many answers as the client may make calls.
//! If the answers to a host, or to all, hold too many bytes, further ones wait. If the oldest of them is
//! older than a second, its connection ends: a client that takes its answers has none that is old.
//!
//! ```text
//!   Watched (an answer) --poll_frame--> Piece, Piece, ...   of a connection: since when (Answers)
//!                                       each holds a Share  of all: bytes by host, oldest first (Ledger)
//! ```
//! An answer is on its way as long as its body, or a piece of its bytes, is in memory. HTTP/2 may have taken
//! a piece that it cannot send.

use atomic_waker::AtomicWaker;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};
use tonic::Status;
use tonic::body::Body;

/// Age from which an answer that is not taken may end its connection, where others need its memory.
const OLD: Duration = Duration::from_secs(1);
/// Time after which an answer that found no room looks again.
const AGAIN: Duration = Duration::from_millis(20);

/// Bytes that an answer holds before it is sent. The service says so of an answer that is large.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weight(pub(super) usize);

/// The bytes of all answers on their way.
#[derive(Debug)]
pub(super) struct Ledger {
    most: usize,
    ways: Mutex<Ways>,
}

/// Bytes whose connections were not told to end.
#[derive(Debug, Default)]
struct Ways {
    count: u64,
    bytes: usize,
    hosts: HashMap<IpAddr, OfHost>,
}

#[derive(Debug, Default)]
struct OfHost {
    bytes: usize,
    /// Shares by number, so that the oldest one comes first.
    shares: BTreeMap<u64, Held>,
}

#[derive(Debug)]
struct Held {
    bytes: usize,
    since: Instant,
    ending: Arc<Ending>,
}

/// Tells a connection that it is to end.
#[derive(Debug)]
struct Ending {
    must_end: AtomicBool,
    waker: Arc<AtomicWaker>,
}

/// Bytes that count until this is dropped.
#[derive(Debug)]
struct Share {
    ledger: Arc<Ledger>,
    host: IpAddr,
    number: u64,
}

impl Ledger {
    /// Answers may hold `most` bytes together, and those to one host three quarters of them.
    pub(super) fn new(most: usize) -> Self {
        Self { most, ways: Mutex::default() }
    }

    fn ways(&self) -> MutexGuard<'_, Ways> {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a further answer to this host may take memory. Ends old answers, if that is needed.
    fn has_room(&self, host: IpAddr, now: Instant) -> bool {
        let mut ways = self.ways();
        while let Some(greedy) = ways.greedy(host, self.most) {
            if !ways.end_oldest(greedy, now) {
                return false;
            }
        }
        true
    }

    fn hold(self: &Arc<Self>, host: IpAddr, ending: &Arc<Ending>, bytes: usize, now: Instant) -> Share {
        let mut ways = self.ways();
        ways.count += 1;
        ways.bytes += bytes;
        let number = ways.count;
        let of_host = ways.hosts.entry(host).or_default();
        of_host.bytes += bytes;
        of_host.shares.insert(number, Held { bytes, since: now, ending: Arc::clone(ending) });
        Share { ledger: Arc::clone(self), host, number }
    }
}

impl Ways {
    /// The host whose oldest answer is to end: this one, if its answers hold more than its part. If those of
    /// all hosts hold too much, the host with the most.
    fn greedy(&self, host: IpAddr, most: usize) -> Option<IpAddr> {
        if self.hosts.get(&host).is_some_and(|of_host| of_host.bytes > most / 4 * 3) {
            return Some(host);
        }
        let largest = || self.hosts.iter().max_by_key(|(_, of_host)| of_host.bytes).map(|(&host, _)| host);
        if self.bytes > most { largest() } else { None }
    }

    /// Ends the connection of the host's oldest answer, if that is old.
    fn end_oldest(&mut self, host: IpAddr, now: Instant) -> bool {
        let Some(of_host) = self.hosts.get_mut(&host) else { return false };
        let Some(oldest) = of_host.shares.first_entry() else { return false };
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

impl Drop for Share {
    fn drop(&mut self) {
        let mut ways = self.ledger.ways();
        let Some(of_host) = ways.hosts.get_mut(&self.host) else { return };
        let bytes = of_host.shares.remove(&self.number).map_or(0, |held| held.bytes);
        of_host.bytes -= bytes;
        if of_host.shares.is_empty() {
            ways.hosts.remove(&self.host);
        }
        ways.bytes -= bytes;
    }
}

/// Answers of one connection that are being sent.
#[derive(Clone, Debug)]
pub(super) struct Answers {
    begun: Arc<Mutex<Begun>>,
    ledger: Arc<Ledger>,
    host: IpAddr,
    ending: Arc<Ending>,
}

/// Answers by number, so that the oldest one comes first.
#[derive(Debug, Default)]
struct Begun {
    count: u64,
    at: BTreeMap<u64, Instant>,
}

impl Answers {
    /// Of a connection of this host. The waker wakes it when [`Self::must_end`] has become true.
    pub(super) fn new(ledger: Arc<Ledger>, host: IpAddr, waker: Arc<AtomicWaker>) -> Self {
        let ending = Arc::new(Ending { must_end: AtomicBool::new(false), waker });
        Self { begun: Arc::default(), ledger, host, ending }
    }

    /// Whether the connection is to end, because its answers are old and take memory.
    pub(super) fn must_end(&self) -> bool {
        self.ending.must_end.load(Ordering::Acquire)
    }

    fn hold(&self, bytes: usize) -> Share {
        self.ledger.hold(self.host, &self.ending, bytes, Instant::now())
    }

    fn has_room(&self) -> bool {
        self.ledger.has_room(self.host, Instant::now())
    }

    /// Time since which the oldest of them is being sent.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.with(|begun| begun.at.first_key_value().map(|(_, &at)| at))
    }

    /// The response, which is on its way until all of its bytes are gone.
    pub(super) fn watched(&self, response: http::Response<Body>) -> http::Response<Body> {
        let number = self.with(|begun| {
            begun.count += 1;
            begun.at.insert(begun.count, Instant::now());
            begun.count
        });
        let weight = response.extensions().get::<Weight>().map(|&Weight(bytes)| self.hold(bytes));
        let way = Arc::new(OnItsWay { of: self.clone(), number, _weight: weight });
        response.map(|body| Body::new(Watched { body, way, wait: None }))
    }

    fn with<R>(&self, f: impl FnOnce(&mut Begun) -> R) -> R {
        f(&mut self.begun.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One answer. It ends with its last piece.
#[derive(Debug)]
struct OnItsWay {
    of: Answers,
    number: u64,
    _weight: Option<Share>,
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        self.of.with(|begun| begun.at.remove(&self.number));
    }
}

struct Watched {
    body: Body,
    way: Arc<OnItsWay>,
    /// Runs while there is no room for the next piece.
    wait: Option<Pin<Box<Sleep>>>,
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        while let Some(wait) = &mut self.wait {
            std::task::ready!(wait.as_mut().poll(cx));
            self.wait = (!self.way.of.has_room()).then(|| Box::pin(tokio::time::sleep(AGAIN)));
        }
        if !self.way.of.has_room() {
            self.wait = Some(Box::pin(tokio::time::sleep(AGAIN)));
            return self.poll_frame(cx);
        }
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        let piece = |bytes: Bytes| {
            let share = self.way.of.hold(bytes.len());
            Bytes::from_owner(Piece { bytes, _share: share, _way: Arc::clone(&self.way) })
        };
        frame.map(|frame| frame.map(|frame| frame.map(|frame| frame.map_data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Bytes of an answer.
struct Piece {
    bytes: Bytes,
    _share: Share,
    _way: Arc<OnItsWay>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};

    fn ending() -> Arc<Ending> {
        Arc::new(Ending { must_end: AtomicBool::new(false), waker: Arc::default() })
    }

    #[test]
    fn the_oldest_answers_of_the_host_that_holds_too_much_end_and_no_others() {
        let _deadline = Deadline::after(LIMIT);
        let ledger = Arc::new(Ledger::new(400));
        let [a, b] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse::<IpAddr>().expect("an address"));
        let (first, second, third, other) = (ending(), ending(), ending(), ending());
        let begun = Instant::now();
        let (soon, later) = (begun + OLD / 2, begun + OLD);
        let ends = || [&first, &second, &third, &other].map(|ending| ending.must_end.load(Ordering::Relaxed));
        let hold = |host, ending, bytes| ledger.hold(host, ending, bytes, begun);
        let kept = [hold(b, &other, 40), hold(a, &first, 100), hold(a, &second, 200)];
        assert!(ledger.has_room(a, later), "300 bytes are the part of a host");
        let more = hold(a, &third, 50);
        assert!(!ledger.has_room(a, soon) && ledger.has_room(b, soon), "it waits while no answer is old");
        assert_eq!(ends(), [false; 4]);
        assert!(ledger.has_room(a, later));
        assert_eq!(ends(), [true, false, false, false]);
        // What was told to end counts no more, and what was taken does not either.
        drop(kept);
        drop(hold(a, &third, 250));
        assert!(ledger.has_room(a, later));
        assert_eq!(ends(), [true, false, false, false]);
        // All hosts together: the one with the most gives way.
        let kept = [hold(a, &third, 200), hold(b, &other, 140)];
        assert!(ledger.has_room(b, later));
        let last = hold(b, &other, 20);
        assert!(ledger.has_room(b, later));
        assert_eq!(ends(), [true, false, true, false]);
        drop((kept, more, last));
        let ways = ledger.ways();
        assert!((ways.bytes, ways.hosts.len()) == (0, 0), "{ways:?}");
    }
}
