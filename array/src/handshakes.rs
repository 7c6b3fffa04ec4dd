// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TLS handshakes that are under way at a listener. Each has a deadline; their number is bounded, and so is
//! that of one host. Beyond a bound an older handshake is closed: of the host that has its part, or of the
//! host with most.

use gnstor_fabric::tcp::Wire;
use gnstor_fabric::tcp::limits::{HANDSHAKE, HANDSHAKES, HOST_HANDSHAKES};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Longest time from accepting a TCP connection to the end of its handshake.
const DEADLINE: Duration = Duration::from_millis(HANDSHAKE.as_ns() / 1_000_000);

struct Handshake {
    wire: Wire,
    until: Instant,
}

/// Number of a host's handshakes, and its oldest one: its deadline and place.
type Oldest = (usize, Reverse<(Instant, usize)>);

/// The handshakes of a listener.
pub(crate) struct Handshakes {
    under_way: HashMap<usize, Handshake>,
    next: usize,
    /// Largest number of handshakes in progress, and largest number of one host.
    most: usize,
    of_host: usize,
}

impl Default for Handshakes {
    fn default() -> Self {
        Self { under_way: HashMap::new(), next: 0, most: HANDSHAKES, of_host: HOST_HANDSHAKES }
    }
}

impl Handshakes {
    /// Begins a handshake. Returns the stream if the handshake has already succeeded. If its host already has
    /// its maximum, the host's oldest handshake is closed: an attacker on a client's own host cannot keep the
    /// client out. If all hosts together have theirs, the host with most loses its oldest one.
    pub(crate) fn begin(&mut self, registry: &Registry, mut wire: Wire, now: Instant) -> Option<Wire> {
        let of_hosts = self.of_hosts();
        let host = wire.host_address();
        if of_hosts.get(&host).is_some_and(|(count, _)| *count >= self.of_host) {
            self.end_oldest(&of_hosts[&host]);
        } else if self.under_way.len() >= self.most
            && let Some(most) = of_hosts.values().max()
        {
            self.end_oldest(most);
        }
        if wire.shake_hands() {
            return good(wire);
        }
        self.next = self.next.wrapping_add(1) & (usize::MAX >> 1);
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = registry.register(&mut SourceFd(&wire.descriptor()), Token(self.next), interest) {
            tracing::warn!(%error, "a TLS handshake cannot be watched");
            return None;
        }
        self.under_way.insert(self.next, Handshake { wire, until: now + DEADLINE });
        None
    }

    /// Hosts with the number of their handshakes, and their oldest one. Of equal numbers the largest has the
    /// oldest handshake.
    fn of_hosts(&self) -> HashMap<Option<IpAddr>, Oldest> {
        let mut hosts: HashMap<_, Oldest> = HashMap::new();
        for (&place, handshake) in &self.under_way {
            let this = Reverse((handshake.until, place));
            let (count, oldest) = hosts.entry(handshake.wire.host_address()).or_insert((0, this));
            (*count, *oldest) = (*count + 1, this.max(*oldest));
        }
        hosts
    }

    fn end_oldest(&mut self, &(_, Reverse((_, place))): &Oldest) {
        if let Some(ended) = self.under_way.remove(&place) {
            tracing::debug!(from = ?ended.wire.host_address(), "a TLS handshake gives way to a later one");
        }
    }

    /// Bytes have arrived, or can be sent. Returns the stream when its handshake has succeeded.
    pub(crate) fn go_on(&mut self, registry: &Registry, place: usize) -> Option<Wire> {
        if !self.under_way.get_mut(&place)?.wire.shake_hands() {
            return None;
        }
        let Handshake { wire, .. } = self.under_way.remove(&place)?;
        // From here on the stream's events go to its engine.
        let _ = registry.deregister(&mut SourceFd(&wire.descriptor()));
        good(wire)
    }

    /// Closes the streams whose time is over.
    pub(crate) fn end_late(&mut self, now: Instant) {
        self.under_way.retain(|_, handshake| {
            let stays = now < handshake.until;
            if !stays {
                tracing::debug!(from = ?handshake.wire.host_address(), "a TLS handshake took too long");
            }
            stays
        });
    }

    /// Time until work is due, unless an event comes.
    pub(crate) fn wait(&self, now: Instant) -> Option<Duration> {
        let first = self.under_way.values().map(|handshake| handshake.until).min()?;
        // A millisecond more: the operating system's clock for waits is coarser.
        Some(first.saturating_duration_since(now) + Duration::from_millis(1))
    }

    /// Number of handshakes in progress.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.under_way.len()
    }
}

fn good(wire: Wire) -> Option<Wire> {
    if let Some(why) = wire.dead() {
        tracing::debug!(from = ?wire.host_address(), why, "a TLS handshake failed");
        return None;
    }
    Some(wire)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;
    use gnstor_fabric::tcp::{Callers, ClientTls, Places, ServerTls};
    use mio::{Events, Poll};
    use std::net::{TcpListener, TcpStream};

    fn tls() -> (ServerTls, ClientTls) {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let array = ServerTls::new(certificate.as_bytes(), key.as_bytes(), Callers::Any).unwrap();
        (array, ClientTls::new(certificate.as_bytes(), None).unwrap())
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "handshakes have deadlines in real time")]
    fn a_handshake_that_stalls_ends_and_one_host_has_only_so_many() {
        let _deadline = deadline();
        let (array, client) = tls();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, places) = (listener.local_addr().unwrap(), Places::new(4096, 4096));
        let mut poll = Poll::new().unwrap();
        let mut handshakes = Handshakes::default();
        let now = Instant::now();
        let accept = |from: &str| {
            let near = TcpStream::connect(address).unwrap();
            let (far, _) = listener.accept().unwrap();
            let place = places.take(from.parse().unwrap()).unwrap();
            (near, Wire::accepted(far, Some(&array), place).unwrap())
        };
        let mut silent = Vec::new();
        for _ in 0..HOST_HANDSHAKES + 10 {
            let (near, wire) = accept("10.0.0.1");
            assert!(handshakes.begin(poll.registry(), wire, now).is_none());
            silent.push(near);
        }
        assert_eq!((handshakes.len(), places.taken()), (HOST_HANDSHAKES, HOST_HANDSHAKES));
        // The handshake of another host succeeds beside them, and one of their own host.
        for from in ["10.0.0.2", "10.0.0.1"] {
            let (near, wire) = accept(from);
            let mut ended = handshakes.begin(poll.registry(), wire, now);
            std::thread::scope(|scope| {
                let honest = scope.spawn(|| Wire::client(near, Some(&client), "127.0.0.1", DEADLINE));
                let mut events = Events::with_capacity(64);
                while ended.is_none() {
                    poll.poll(&mut events, Some(DEADLINE)).unwrap();
                    for event in &events {
                        ended = ended.take().or_else(|| handshakes.go_on(poll.registry(), event.token().0));
                    }
                }
                honest.join().unwrap().expect("a good handshake");
            });
            assert!(ended.is_some_and(|wire| wire.dead().is_none()));
        }
        handshakes.end_late(now + DEADLINE - Duration::from_millis(1));
        assert_eq!(handshakes.len(), HOST_HANDSHAKES - 1, "one gave way to the client that is through");
        assert!(handshakes.wait(now).is_some_and(|wait| wait <= DEADLINE + Duration::from_millis(1)));
        handshakes.end_late(now + DEADLINE);
        assert_eq!((handshakes.len(), places.taken(), handshakes.wait(now)), (0, 0, None));
    }

    /// Bounds of eight, as 1,024 handshakes would need more descriptors than a test may have.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "handshakes have deadlines in real time")]
    fn all_hosts_together_have_only_so_many_handshakes() {
        let _deadline = deadline();
        let (array, _) = tls();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, places) = (listener.local_addr().unwrap(), Places::new(64, 64));
        let (poll, now) = (Poll::new().unwrap(), Instant::now());
        let mut handshakes = Handshakes::default();
        assert_eq!((handshakes.most, handshakes.of_host), (1024, 256));
        (handshakes.most, handshakes.of_host) = (8, 2);
        let mut near = Vec::new();
        let mut begin = |handshakes: &mut Handshakes, host: usize| {
            near.push(TcpStream::connect(address).unwrap());
            let (far, _) = listener.accept().unwrap();
            let place = places.take(format!("10.0.0.{host}").parse().unwrap()).unwrap();
            let wire = Wire::accepted(far, Some(&array), place).unwrap();
            assert!(handshakes.begin(poll.registry(), wire, now).is_none());
            (handshakes.len(), places.taken())
        };
        for count in 1..=8 {
            assert_eq!(begin(&mut handshakes, (count - 1) / 2), (count, count));
        }
        // Four hosts have two each. The one with the oldest handshake loses that, and no host its last one.
        for host in 9..13 {
            assert_eq!(begin(&mut handshakes, host), (8, 8));
        }
        let of_hosts = handshakes.of_hosts();
        let count = |host: usize| {
            of_hosts.get(&Some(format!("10.0.0.{host}").parse().unwrap())).map_or(0, |(count, _)| *count)
        };
        assert_eq!([0, 1, 2, 3, 9, 10, 11, 12].map(count), [1; 8]);
        handshakes.end_late(now + DEADLINE);
        assert_eq!(begin(&mut handshakes, 9), (1, 1));
    }
}
