// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Accepted streams that no engine takes yet: all engines serve clients, and newcomers have had their part of
//! the time. Hosts take turns, and the streams of a host keep their order. So a host with many streams delays
//! another one by one stream. One whose peer goes meanwhile costs no engine anything.

use gnstor_base::turns::Turns;
use gnstor_fabric::tcp::Wire;
use gnstor_fabric::tcp::limits::{End, HANDSHAKE};
use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Longest wait.
const DEADLINE: Duration = Duration::from_millis(HANDSHAKE.as_ns() / 1_000_000);
/// The first token of a stream that waits. Handshakes have smaller ones.
const FIRST: usize = 1 << (usize::BITS - 1);

#[derive(Debug)]
struct Waits {
    number: usize,
    wire: Wire,
    until: Instant,
}

/// The streams that wait, by the host of their peers.
#[derive(Default)]
pub(crate) struct Door {
    waits: Turns<Option<IpAddr>, Waits>,
    next: usize,
}

/// Whether a stream at the door has this token.
pub(crate) fn is_at(token: Token) -> bool {
    token.0 >= FIRST
}

impl Door {
    pub(crate) fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    /// The stream waits. Its listener's places bound how many there are.
    pub(crate) fn wait(&mut self, registry: &Registry, wire: Wire, now: Instant) {
        let number = self.next;
        self.next += 1;
        if let Err(error) =
            registry.register(&mut SourceFd(&wire.descriptor()), Token(FIRST + number), Interest::READABLE)
        {
            tracing::debug!(%error, "the end of a stream that waits is not seen");
        }
        self.waits.push(wire.host_address(), Waits { number, wire, until: now + DEADLINE });
    }

    /// An event of a stream that waits: its peer may have gone.
    pub(crate) fn look(&mut self, event: &Event) {
        if event.is_read_closed() || event.is_error() {
            let number = event.token().0 - FIRST;
            self.waits.remove(|waits| waits.number == number);
        }
    }

    /// Ends the streams whose time is over, and the oldest ones that are to give way to others of their host.
    /// The first stream of each host is looked at: it is its oldest.
    pub(crate) fn end_late(&mut self, now: Instant) {
        let why = |waits: &Waits| match waits {
            Waits { wire, .. } if wire.must_end() => Some(End::GaveWay),
            Waits { until, .. } if now >= *until => Some(End::TooMany),
            _ => None,
        };
        let first = |door: &Self| door.waits.firsts().find_map(|waits| Some((waits.number, why(waits)?)));
        while let Some((number, why)) = first(self) {
            let ended = self.waits.remove(|waits| waits.number == number);
            ended.into_iter().for_each(|ended| ended.wire.refuse(why));
        }
    }

    /// The oldest stream of the host whose turn it is. Its events are its engine's from here on.
    pub(crate) fn next(&mut self, registry: &Registry) -> Option<Wire> {
        let Waits { wire, .. } = self.waits.pop()?;
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

    /// A door at which streams of one host wait, since these times in seconds, and their other ends.
    fn door(places: &Places, since: &[u64], now: Instant) -> (Door, Poll, Vec<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (poll, mut door) = (Poll::new().unwrap(), Door::default());
        let connect = |since: &u64| {
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            near.set_read_timeout(Some(DEADLINE)).unwrap();
            let (far, from) = listener.accept().unwrap();
            let wire = Wire::accepted(far, None, places.take(from.ip()).unwrap()).unwrap();
            door.wait(poll.registry(), wire, now + Duration::from_secs(*since));
            near
        };
        let near = since.iter().map(connect).collect();
        (door, poll, near)
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "waits have deadlines in real time")]
    fn a_host_with_many_streams_delays_another_one_by_one() {
        let _deadline = deadline();
        let (places, now) = (Places::new(8, 8), Instant::now());
        let (mut door, poll, _near) = door(&places, &[0, 0, 0, 0], now);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let place = places.take("192.0.2.1".parse().unwrap()).unwrap();
        let wire = Wire::accepted(listener.accept().unwrap().0, None, place).unwrap();
        door.wait(poll.registry(), wire, now);
        let hosts =
            std::iter::from_fn(|| door.next(poll.registry())).map(|wire| wire.host_address().unwrap());
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
        let (mut door, mut poll, mut near) = door(&places, &[0, 1, 5, 5], now);
        let mut said = std::collections::VecDeque::new();
        Frame::Close { conn: 7 }.encode(&mut said);
        near[3].write_all(said.make_contiguous()).unwrap();
        drop(near.remove(1));
        let mut events = Events::with_capacity(8);
        while places.taken() == 4 {
            poll.poll(&mut events, Some(DEADLINE)).unwrap();
            events.iter().filter(|event| is_at(event.token())).for_each(|event| door.look(event));
        }
        door.end_late(now + DEADLINE);
        assert!(is_closed(&mut near[0]) && places.taken() == 2);
        let (mut third, mut fourth) =
            (door.next(poll.registry()).unwrap(), door.next(poll.registry()).unwrap());
        assert!(door.is_empty() && door.next(poll.registry()).is_none());
        // What a peer said while it waited is there.
        assert_eq!(third.poll(), None);
        assert_eq!(fourth.poll(), Some(Frame::Close { conn: 7 }));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "waits have deadlines in real time")]
    fn the_oldest_stream_at_the_door_gives_way_to_another_of_its_host() {
        let _deadline = deadline();
        let (places, now) = (Places::new(4, 2), Instant::now());
        let (mut door, _poll, mut near) = door(&places, &[0, 0], now);
        let newest = places.take("127.0.0.1".parse().unwrap());
        door.end_late(now);
        let mut told = Vec::new();
        near[0].read_to_end(&mut told).expect("it is closed in order");
        let mut expected = std::collections::VecDeque::new();
        Frame::End { why: End::GaveWay.code() }.encode(&mut expected);
        assert_eq!((told, places.taken()), (Vec::from(expected), 2));
        assert!(newest.is_ok() && !door.is_empty());
    }
}
