// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Accepted streams that no engine takes yet: all engines serve clients, and newcomers have had their part of
//! the time. Hosts take turns, and the streams of a host keep their order. So a host with many streams delays
//! another one by one stream. A stream whose peer goes meanwhile costs no engine anything.

use gnstor_base::round_robin::RoundRobin;
use gnstor_fabric::tcp::Wire;
use gnstor_fabric::tcp::limits::{End, HANDSHAKE};
use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Longest wait.
const DEADLINE: Duration = Duration::from_millis(HANDSHAKE.as_ns() / 1_000_000);
/// The first token of a stream that waits. Handshakes have smaller ones.
const FIRST: usize = 1 << (usize::BITS - 1);

/// Hosts whose oldest streams are looked at, each time that late streams are ended.
const LOOKS: usize = 64;

/// The streams that wait, by the host of their peers.
#[derive(Default)]
pub(crate) struct WaitingStreams {
    waits: RoundRobin<Option<IpAddr>, Wire>,
    /// Hosts and deadlines of the streams, by their numbers. The oldest stream has the lowest one.
    streams: BTreeMap<u64, (Option<IpAddr>, Instant)>,
    /// The host whose oldest stream was looked at last.
    looked_at: Option<Option<IpAddr>>,
}

/// The token of the stream with this number.
fn token_of(number: u64) -> Token {
    Token(FIRST + usize::try_from(number).expect("far fewer streams than 2^63"))
}

/// Whether a stream that waits has this token.
pub(crate) fn is_at(token: Token) -> bool {
    token.0 >= FIRST
}

impl WaitingStreams {
    pub(crate) fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    /// Makes a stream wait. Its listener's places bound the number of waiting streams.
    pub(crate) fn wait(&mut self, registry: &Registry, wire: Wire, now: Instant) {
        let (host, descriptor) = (wire.host_address(), wire.descriptor());
        let number = self.waits.push(host, wire);
        if let Err(error) =
            registry.register(&mut SourceFd(&descriptor), token_of(number), Interest::READABLE)
        {
            tracing::debug!(%error, "the end of a stream that waits is not seen");
        }
        self.streams.insert(number, (host, now + DEADLINE));
    }

    /// An event of a stream that waits: its peer may have gone.
    pub(crate) fn look(&mut self, event: &Event) {
        if event.is_read_closed() || event.is_error() {
            drop(self.remove((event.token().0 - FIRST) as u64));
        }
    }

    fn remove(&mut self, number: u64) -> Option<Wire> {
        let (host, _) = self.streams.remove(&number)?;
        self.waits.remove(&host, number)
    }

    fn end(&mut self, number: u64, why: End) {
        self.remove(number).into_iter().for_each(|ended| ended.refuse(why));
    }

    /// Ends the streams whose time is over, and oldest ones that are to give way to others of their host.
    /// Some hosts are looked at in each call, and all of them in successive calls.
    pub(crate) fn end_late(&mut self, now: Instant) {
        while let Some((&number, &(_, until))) = self.streams.first_key_value()
            && now >= until
        {
            self.end(number, End::TooMany);
        }
        for _ in 0..LOOKS {
            let Some((host, number, wire)) = self.waits.first_after(self.looked_at.as_ref()) else { return };
            self.looked_at = Some(*host);
            if wire.must_end() {
                self.end(number, End::GaveWay);
            }
        }
    }

    /// The oldest stream of the host whose turn it is. Its events are its engine's from here on.
    pub(crate) fn next(&mut self, registry: &Registry) -> Option<Wire> {
        let (number, wire) = self.waits.pop()?;
        self.streams.remove(&number);
        _ = registry.deregister(&mut SourceFd(&wire.descriptor()));
        Some(wire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;
    use gnstor_fabric::tcp::{Frame, Places};
    use mio::{Events, Poll};
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    /// Streams of one host that wait, since these times in seconds, and their other ends.
    fn waiting(places: &Places, since: &[u64], now: Instant) -> (WaitingStreams, Poll, Vec<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (poll, mut waiting) = (Poll::new().unwrap(), WaitingStreams::default());
        let connect = |since: &u64| {
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            near.set_read_timeout(Some(DEADLINE)).unwrap();
            let (far, from) = listener.accept().unwrap();
            let wire = Wire::accepted(far, None, places.take(from.ip()).unwrap()).unwrap();
            waiting.wait(poll.registry(), wire, now + Duration::from_secs(*since));
            near
        };
        let near = since.iter().map(connect).collect();
        (waiting, poll, near)
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "waits have deadlines in real time")]
    fn a_host_with_many_streams_delays_another_one_by_one() {
        let _deadline = deadline();
        let (places, now) = (Places::new(8, 8), Instant::now());
        let (mut waiting, poll, _near) = waiting(&places, &[0, 0, 0, 0], now);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let place = places.take("192.0.2.1".parse().unwrap()).unwrap();
        let wire = Wire::accepted(listener.accept().unwrap().0, None, place).unwrap();
        waiting.wait(poll.registry(), wire, now);
        let hosts =
            std::iter::from_fn(|| waiting.next(poll.registry())).map(|wire| wire.host_address().unwrap());
        let hosts: Vec<String> = hosts.map(|host| host.to_string()).collect();
        assert_eq!(hosts, ["127.0.0.1", "192.0.2.1", "127.0.0.1", "127.0.0.1", "127.0.0.1"]);
    }

    fn is_closed(near: &mut TcpStream) -> bool {
        near.read_to_end(&mut Vec::new()).is_ok()
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "waits have deadlines in real time")]
    fn streams_go_in_their_order_and_those_whose_peers_are_gone_or_that_are_late_do_not() {
        let _deadline = deadline();
        let (places, now) = (Places::new(4, 4), Instant::now());
        let (mut waiting, mut poll, mut near) = waiting(&places, &[0, 1, 5, 5], now);
        let mut said = std::collections::VecDeque::new();
        Frame::Close { conn: 7 }.encode(&mut said);
        near[3].write_all(said.make_contiguous()).unwrap();
        drop(near.remove(1));
        let mut events = Events::with_capacity(8);
        while places.taken() == 4 {
            poll.poll(&mut events, Some(DEADLINE)).unwrap();
            events.iter().filter(|event| is_at(event.token())).for_each(|event| waiting.look(event));
        }
        waiting.end_late(now + DEADLINE);
        assert!(is_closed(&mut near[0]) && places.taken() == 2);
        let (mut third, mut fourth) =
            (waiting.next(poll.registry()).unwrap(), waiting.next(poll.registry()).unwrap());
        assert!(waiting.is_empty() && waiting.next(poll.registry()).is_none());
        // Bytes that the peer sent while it waited are kept.
        assert_eq!(third.poll(), None);
        assert_eq!(fourth.poll(), Some(Frame::Close { conn: 7 }));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "waits have deadlines in real time")]
    fn the_oldest_stream_that_waits_gives_way_to_another_of_its_host() {
        let _deadline = deadline();
        let (places, now) = (Places::new(4, 2), Instant::now());
        let (mut waiting, _poll, mut near) = waiting(&places, &[0, 0], now);
        let newest = places.take("127.0.0.1".parse().unwrap());
        waiting.end_late(now);
        let mut told = Vec::new();
        near[0].read_to_end(&mut told).expect("it is closed in order");
        let mut expected = std::collections::VecDeque::new();
        Frame::End { why: End::GaveWay.code() }.encode(&mut expected);
        assert_eq!((told, places.taken()), (Vec::from(expected), 2));
        assert!(newest.is_ok() && !waiting.is_empty());
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "waits have deadlines in real time")]
    fn each_call_looks_at_some_hosts_and_successive_calls_at_all() {
        const HOSTS: u8 = 100;
        let _deadline = deadline();
        let (places, now) = (Places::new(400, 1), Instant::now());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (poll, mut waiting, mut near) = (Poll::new().unwrap(), WaitingStreams::default(), Vec::new());
        for last in 0..HOSTS {
            near.push(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            let place = places.take([192, 0, 2, last].into()).unwrap();
            let wire = Wire::accepted(listener.accept().unwrap().0, None, place).unwrap();
            waiting.wait(poll.registry(), wire, now);
        }
        let _newest = places.take([192, 0, 2, HOSTS - 1].into()).unwrap();
        waiting.end_late(now);
        assert_eq!(waiting.streams.len(), usize::from(HOSTS), "{LOOKS} hosts were looked at");
        waiting.end_late(now);
        assert_eq!(waiting.streams.len(), usize::from(HOSTS) - 1);
        // All at once are late.
        waiting.end_late(now + DEADLINE);
        assert!(waiting.is_empty() && waiting.streams.is_empty());
    }
}
