// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Accepts clients of other processes: each accepted TCP stream goes to the engine with the fewest streams.
//!
//! ```text
//!   accept -- no descriptor, no memory --> log once, wait 100 ms to 2 s, again
//!      |----- all places taken, or the host's --> Frame::End, closed at once
//!      |----- place, no TLS -------------> slot
//!      `----- place, TLS --> Handshakes -- good --> slot
//!                               `-------- bad, or later than 10 s --> closed
//!   slot: an engine takes it ------------> RcTransport::add_client
//!         none does --> WaitingStreams -- later ---> RcTransport::add_client
//! ```
//! One thread accepts, and carries out the TLS handshakes of all streams that it has accepted. A peer whose
//! handshake has not ended takes no time of an engine.

use crate::handshakes::Handshakes;
use crate::waiting_streams::{self, WaitingStreams};
use gnstor_fabric::runtime::TransportHandle;
use gnstor_fabric::tcp::limits::{CONNECTIONS, End, HOST_CONNECTIONS};
use gnstor_fabric::tcp::{NoPlace, Places, ServerTls, Wire, lengthen_queue};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Wait after the first `accept` that fails.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest wait after an `accept` that fails.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Connections accepted before handshakes go on.
const BATCH: usize = 64;

/// An open listener; dropping it closes it. Clients that are connected stay connected.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Accepts connections to `listener`, at most [`CONNECTIONS`] at a time, and at most [`HOST_CONNECTIONS`]
    /// of one host. Uses TLS if `tls` is given.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn open(
        listener: TcpListener,
        engine: TransportHandle,
        tls: Option<ServerTls>,
    ) -> std::io::Result<Self> {
        Self::open_for(listener, engine, tls, Places::new(CONNECTIONS, HOST_CONNECTIONS))
    }

    /// The same with other limits.
    #[expect(clippy::disallowed_methods, reason = "the accepting thread is the runtime part of this module")]
    fn open_for(
        listener: TcpListener,
        engine: TransportHandle,
        tls: Option<ServerTls>,
        places: Places,
    ) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        lengthen_queue(&listener)?;
        let poll = Poll::new()?;
        poll.registry().register(&mut SourceFd(&listener.as_raw_fd()), LISTENER, Interest::READABLE)?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let stop = Arc::new(AtomicBool::new(false));
        let accepting = Accepting::new(engine, tls, places, &stop);
        let thread = std::thread::spawn(move || accepting.run(&listener, poll));
        Ok(Self { address, stop, waker, thread: Some(thread) })
    }

    /// The address at which the listener takes connections.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Err(error) = self.waker.wake() {
            tracing::warn!(%error, "the accepting thread is not woken");
            return;
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

const LISTENER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);

/// The accepting thread.
struct Accepting {
    engine: TransportHandle,
    tls: Option<ServerTls>,
    places: Places,
    handshakes: Handshakes,
    waiting: WaitingStreams,
    /// The last client found no place.
    is_full: bool,
    /// Length of the next wait; `None`: the last `accept` succeeded.
    pause: Option<Duration>,
    /// End of the present wait. Handshakes and streams that wait go on meanwhile.
    accept_at: Option<Instant>,
    stop: Arc<AtomicBool>,
}

impl Accepting {
    fn new(engine: TransportHandle, tls: Option<ServerTls>, places: Places, stop: &Arc<AtomicBool>) -> Self {
        Self {
            engine,
            tls,
            places,
            handshakes: Handshakes::default(),
            waiting: WaitingStreams::default(),
            is_full: false,
            pause: None,
            accept_at: None,
            stop: Arc::clone(stop),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the runtime part of this module reads the clock")]
    fn run(mut self, listener: &TcpListener, mut poll: Poll) {
        let mut events = Events::with_capacity(1024);
        // Connections may wait already.
        let mut may_accept = true;
        while !self.stop.load(Ordering::Acquire) {
            let may_go_on = may_accept && self.accept_at.is_none();
            let timeout = if may_go_on { Some(Duration::ZERO) } else { self.timeout() };
            if let Err(error) = poll.poll(&mut events, timeout)
                && error.kind() != ErrorKind::Interrupted
            {
                tracing::error!(%error, "no client is accepted any more");
                return;
            }
            for event in &events {
                match event.token() {
                    LISTENER => may_accept = true,
                    WAKER => {}
                    token if waiting_streams::is_at(token) => self.waiting.look(event),
                    Token(place) => {
                        let ended = self.handshakes.go_on(poll.registry(), place);
                        ended.into_iter().for_each(|wire| self.hand_over(poll.registry(), wire));
                    }
                }
            }
            self.handshakes.end_late(Instant::now());
            self.let_in(poll.registry());
            self.accept_at = self.accept_at.filter(|at| Instant::now() < *at);
            if may_accept && self.accept_at.is_none() {
                may_accept = self.accept_some(listener, &poll);
            }
        }
    }

    /// Time until work is due, unless an event comes.
    #[expect(clippy::disallowed_methods, reason = "the runtime part of this module reads the clock")]
    fn timeout(&self) -> Option<Duration> {
        let now = Instant::now();
        let handshakes = self.handshakes.wait(now);
        let accept = self.accept_at.map(|at| at.saturating_duration_since(now) + Duration::from_millis(1));
        // A poll rounds up to milliseconds.
        let waiting = (!self.waiting.is_empty()).then_some(Duration::from_micros(500));
        [handshakes, accept, waiting].into_iter().flatten().min()
    }

    /// Accepts a few connections. Returns whether there may be more.
    #[expect(clippy::disallowed_methods, reason = "the runtime part of this module reads the clock")]
    fn accept_some(&mut self, listener: &TcpListener, poll: &Poll) -> bool {
        for _ in 0..BATCH {
            match listener.accept() {
                Err(e) if e.kind() == ErrorKind::WouldBlock => return false,
                accepted => {
                    let Some(wire) = self.take(accepted) else {
                        // The client stays in the queue of the operating system, and `accept` would fail
                        // again at once.
                        if self.accept_at.is_some() {
                            return true;
                        }
                        continue;
                    };
                    if self.tls.is_none() {
                        self.hand_over(poll.registry(), wire);
                    } else if let Some(wire) = self.handshakes.begin(poll.registry(), wire, Instant::now()) {
                        self.hand_over(poll.registry(), wire);
                    }
                }
            }
        }
        true
    }

    /// Gives a stream to an engine, or has it wait behind the streams that wait already.
    #[expect(clippy::disallowed_methods, reason = "the runtime part of this module reads the clock")]
    fn hand_over(&mut self, registry: &Registry, wire: Wire) {
        if self.waiting.is_empty()
            && let Some((engine, slot)) = self.engine.slot()
        {
            return engine.cast(move |e, now| _ = e.add_client(now, wire, slot));
        }
        self.waiting.wait(registry, wire, Instant::now());
    }

    /// Gives streams that wait to engines that take them.
    #[expect(clippy::disallowed_methods, reason = "the runtime part of this module reads the clock")]
    fn let_in(&mut self, registry: &Registry) {
        self.waiting.end_late(Instant::now());
        while !self.waiting.is_empty()
            && let Some((engine, slot)) = self.engine.slot()
            && let Some(wire) = self.waiting.next(registry)
        {
            engine.cast(move |e, now| _ = e.add_client(now, wire, slot));
        }
    }

    fn take(&mut self, accepted: std::io::Result<(TcpStream, SocketAddr)>) -> Option<Wire> {
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                self.fail(&error);
                return None;
            }
        };
        if self.pause.take().is_some() {
            tracing::info!("clients are accepted again");
        }
        let place = match self.places.take(from.ip()) {
            Ok(place) => place,
            Err(why) => {
                if !self.is_full {
                    let taken = self.places.taken();
                    tracing::warn!("client {from} is turned away ({why:?}): {taken} are connected");
                }
                self.is_full = true;
                // A peer that is to speak TLS would not understand a frame.
                if self.tls.is_none() {
                    turn_away(stream, why);
                }
                return None;
            }
        };
        self.is_full = false;
        Wire::accepted(stream, self.tls.as_ref(), place)
            .inspect_err(|e| tracing::warn!("client {from}: {e}"))
            .ok()
    }

    /// A client could not be accepted: the next try is later, and each time later than before.
    #[expect(clippy::disallowed_methods, reason = "the runtime part of this module reads the clock")]
    fn fail(&mut self, error: &std::io::Error) {
        let pause = self.pause.unwrap_or_else(|| {
            tracing::warn!("no client is accepted: {error}; raise the limit of open files (ulimit -n)");
            PAUSE
        });
        self.accept_at = Some(Instant::now() + pause);
        self.pause = Some((pause * 2).min(LONGEST_PAUSE));
    }
}

/// Tells a client why it gets no place. The client may get this message, or only see that the stream has
/// ended.
fn turn_away(stream: TcpStream, why: NoPlace) {
    let end = match why {
        NoPlace::Full => End::TooMany,
        NoPlace::OfHost => End::TooManyOfHost,
    };
    if let Ok(wire) = Wire::new(stream) {
        wire.refuse(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;
    use gnstor_fabric::runtime::TransportThreads;
    use gnstor_fabric::tcp::Frame;
    use gnstor_fabric::transport::{RcTransport, TransportConfig};
    use gnstor_proto::fabrics::Identity;
    use gnstor_proto::slba::ClientId;
    use std::io::Read;

    #[test]
    fn a_client_beyond_the_limit_is_told_and_closed_and_a_place_is_given_back() {
        let _deadline = deadline();
        let threads = TransportThreads::start(vec![RcTransport::new(TransportConfig::default())]).unwrap();
        let places = Places::new(2, 2);
        // Two clients that have proven themselves have all places.
        let proven = [0, 1].map(|_| places.take("192.0.2.1".parse().unwrap()).unwrap());
        let client = Identity::Client(ClientId::MIN);
        proven.iter().for_each(|place| assert!(place.set_admitted(client)));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let listener = Listener::open_for(listener, threads.handle(), None, places).unwrap();
        let connect = || {
            let stream = TcpStream::connect(listener.address()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            stream
        };
        let mut told = Vec::new();
        connect().read_to_end(&mut told).expect("it is closed in order");
        let mut expected = std::collections::VecDeque::new();
        Frame::End { why: End::TooMany.code() }.encode(&mut expected);
        assert_eq!(told, Vec::from(expected));
        drop(proven);
        let taken = |mut stream: TcpStream| {
            stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            stream.read(&mut [0; 16]).is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock)
        };
        assert!(taken(connect()), "a place is free");
    }

    #[test]
    fn an_accept_that_fails_is_tried_again_ever_later() {
        let _deadline = deadline();
        let threads = TransportThreads::start(vec![RcTransport::new(TransportConfig::default())]).unwrap();
        let mut accepting = Accepting::new(threads.handle(), None, Places::new(1, 1), &Arc::default());
        let no_descriptor = || Err(std::io::Error::from_raw_os_error(24));
        let mut pauses = Vec::new();
        for _ in 0..2 {
            assert!(accepting.take(no_descriptor()).is_none());
            pauses.extend(accepting.pause);
        }
        assert_eq!(pauses, [PAUSE * 2, PAUSE * 4]);
        accepting.pause = Some(LONGEST_PAUSE.mul_f32(0.1));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(accepting.take(listener.accept()).is_some());
        assert_eq!(accepting.pause, None);
    }
}
