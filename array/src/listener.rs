// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where clients of other processes come in: accepted TCP streams are given to the engines in turn.
//!
//! ```text
//!   accept -- no descriptor, no memory --> log once, wait 100 ms to 2 s, again
//!      |----- all places taken ----------> Frame::End, closed at once
//!      `----- place ---------------------> RcTransport::add_peer
//! ```

use gnstor_fabric::runtime::TransportHandle;
use gnstor_fabric::tcp::limits::{CONNECTIONS, End};
use gnstor_fabric::tcp::{Places, Wire};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Wait after the first `accept` that fails, and for the connection that ends the thread.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest wait after an `accept` that fails. A drop of the listener may wait for so long.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// An open listener; dropping it closes it. Connected clients stay.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Accepts connections to `listener`, at most [`CONNECTIONS`] at a time.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn open(listener: TcpListener, engine: TransportHandle) -> std::io::Result<Self> {
        Self::open_for(listener, engine, CONNECTIONS)
    }

    /// The same with another limit.
    #[expect(clippy::disallowed_methods, reason = "the accepting thread is the runtime part of this module")]
    fn open_for(listener: TcpListener, engine: TransportHandle, most: usize) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut accepting = Accepting {
            engine,
            places: Places::new(most),
            turn: 0,
            is_full: false,
            pause: None,
            stop: Arc::clone(&stop),
        };
        let thread = std::thread::spawn(move || {
            while !accepting.stop.load(Ordering::Acquire) {
                accepting.take(listener.accept());
            }
        });
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // The thread waits in `accept`.
        let _ = TcpStream::connect_timeout(&self.address, PAUSE);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The accepting thread.
struct Accepting {
    engine: TransportHandle,
    places: Places,
    /// The engine that gets the next client.
    turn: usize,
    /// The last client found no place.
    is_full: bool,
    /// How long the next wait is; `None`: the last `accept` worked.
    pause: Option<Duration>,
    stop: Arc<AtomicBool>,
}

impl Accepting {
    fn take(&mut self, accepted: std::io::Result<(TcpStream, SocketAddr)>) {
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => return self.fail(&error),
        };
        if self.pause.take().is_some() {
            tracing::info!("clients are accepted again");
        }
        // The connection of `drop` ends the wait.
        if self.stop.load(Ordering::Acquire) {
            return;
        }
        let Some(place) = self.places.take() else {
            if !self.is_full {
                tracing::warn!("client {from} is turned away: {} are connected", self.places.taken());
            }
            self.is_full = true;
            return turn_away(stream);
        };
        self.is_full = false;
        match Wire::placed(stream, place) {
            Ok(wire) => {
                self.engine.nth(self.turn).cast(move |e, _| _ = e.add_peer(wire));
                self.turn = self.turn.wrapping_add(1);
            }
            Err(e) => tracing::warn!("client {from}: {e}"),
        }
    }

    /// Waits, since the client stays in the queue of the operating system and `accept` would fail again at
    /// once.
    fn fail(&mut self, error: &std::io::Error) {
        let pause = self.pause.unwrap_or_else(|| {
            tracing::warn!("no client is accepted: {error}; raise the limit of open files (ulimit -n)");
            PAUSE
        });
        std::thread::sleep(pause);
        self.pause = Some((pause * 2).min(LONGEST_PAUSE));
    }
}

/// Tells a client why it gets no place. It may hear it, or only that the stream has ended.
fn turn_away(stream: TcpStream) {
    if let Ok(wire) = Wire::new(stream) {
        wire.refuse(End::TooMany);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;
    use gnstor_fabric::runtime::TransportThreads;
    use gnstor_fabric::tcp::Frame;
    use gnstor_fabric::transport::{RcTransport, TransportConfig};
    use std::io::Read;

    fn opened(most: usize) -> (Listener, TransportThreads) {
        let threads = TransportThreads::start(vec![RcTransport::new(TransportConfig::default())]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        (Listener::open_for(listener, threads.handle(), most).unwrap(), threads)
    }

    #[test]
    fn a_client_beyond_the_limit_is_told_and_closed_and_a_place_is_given_back() {
        let _deadline = deadline();
        let (listener, _threads) = opened(2);
        let connect = || {
            let stream = TcpStream::connect(listener.address()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            stream
        };
        let (first, _second) = (connect(), connect());
        let mut told = Vec::new();
        connect().read_to_end(&mut told).expect("it is closed in order");
        let mut expected = std::collections::VecDeque::new();
        Frame::End { why: End::TooMany.code() }.encode(&mut expected);
        assert_eq!(told, Vec::from(expected));
        drop(first);
        // The array sees the end of the first a little later.
        let taken = |mut stream: TcpStream| {
            stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            stream.read(&mut [0; 16]).is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock)
        };
        while !taken(connect()) {}
    }

    #[test]
    fn an_accept_that_fails_is_tried_again_ever_later() {
        let _deadline = deadline();
        let threads = TransportThreads::start(vec![RcTransport::new(TransportConfig::default())]).unwrap();
        let mut accepting = Accepting {
            engine: threads.handle(),
            places: Places::new(1),
            turn: 0,
            is_full: false,
            pause: None,
            stop: Arc::default(),
        };
        let no_descriptor = || Err(std::io::Error::from_raw_os_error(24));
        let mut pauses = Vec::new();
        for _ in 0..2 {
            accepting.take(no_descriptor());
            pauses.extend(accepting.pause);
        }
        assert_eq!(pauses, [PAUSE * 2, PAUSE * 4]);
        accepting.pause = Some(LONGEST_PAUSE.mul_f32(0.1));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        accepting.take(listener.accept());
        assert_eq!(accepting.pause, None);
    }
}
