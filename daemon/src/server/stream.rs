// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A connection of a client: its identity, its stream, and the reasons for which it ends.

use super::answers::Answers;
use super::budget::{Account, Ending, MemoryBudget};
use super::input::Input;
use atomic_waker::AtomicWaker;
use gnstor_fabric::tcp::Place;
use std::io::{Error, ErrorKind, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, Sleep};

/// Longest wait for the first bytes of a connection, and for the end of a TLS handshake.
pub(super) const HELLO: Duration = Duration::from_secs(10);
/// Number of checks of a connection's answers in the longest time of one.
const LOOKS: u32 = 8;
/// The bytes that begin an HTTP/2 connection.
const PREFACE: u64 = 24;

/// The bounds of connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) connections: usize,
    /// Connections of one host.
    pub(super) of_host: usize,
    /// TLS handshakes under way.
    pub(super) handshakes: usize,
    /// Bytes of answers on their way, to all clients.
    pub(super) answer_bytes: usize,
    /// Bytes of requests that are not complete, of all clients.
    pub(super) request_bytes: usize,
    /// Longest time without a byte from a client, of which its answers to keep-alive pings are some. As long
    /// an answer may be on its way.
    pub(super) silence: Duration,
}

/// The identity of a connection. When its last copy is dropped, the core learns that the connection closed.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    guard: Arc<Guard>,
    /// The certificate that its client showed, in DER. TLS has checked it.
    certificate: Option<Arc<[u8]>>,
}

impl Connection {
    pub(super) fn id(&self) -> u64 {
        self.guard.id
    }

    pub(super) fn answers(&self) -> &Answers {
        &self.guard.answers
    }

    /// The address that identifies its client's host.
    pub(super) fn host(&self) -> IpAddr {
        self.guard.place.host_address()
    }

    /// The account that counts the bytes of the connection's requests.
    pub(super) fn requests(&self) -> &Account {
        &self.guard.requests
    }

    pub(super) fn certificate(&self) -> Option<&[u8]> {
        self.certificate.as_deref()
    }

    pub(super) fn with_certificate(&self, certificate: Option<Arc<[u8]>>) -> Self {
        Self { guard: Arc::clone(&self.guard), certificate }
    }

    /// Marks the connection as admitted: it no longer gives way to others.
    pub(super) fn set_admitted(&self) {
        self.guard.place.keep();
    }
}

#[derive(Debug)]
struct Guard {
    id: u64,
    answers: Answers,
    requests: Account,
    ending: Arc<Ending>,
    inputs: mpsc::UnboundedSender<Input>,
    place: Place,
    /// After the place, since fields are dropped in their order.
    _freed: Freed,
    /// Wakes the stream when it is to give way.
    waker: Arc<AtomicWaker>,
}

/// Announces a free place when it is dropped.
#[derive(Debug)]
struct Freed(Arc<Notify>);

impl Drop for Freed {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // If the reader is gone, the daemon is stopping.
        self.inputs.send(Input::Closed { connection: self.id }).ok();
    }
}

/// What all connections reservation.
pub(super) struct Shared {
    pub(super) answers: Arc<MemoryBudget>,
    pub(super) requests: Arc<MemoryBudget>,
    pub(super) freed: Arc<Notify>,
    pub(super) inputs: mpsc::UnboundedSender<Input>,
    pub(super) silence: Duration,
}

impl Shared {
    /// The stream of a new connection.
    pub(super) fn stream(&self, id: u64, tcp: TcpStream, place: Place) -> Stream {
        let waker = Arc::new(AtomicWaker::new());
        let ending = Ending::new(Arc::clone(&waker));
        let account = |budget| Account::new(Arc::clone(budget), place.host_address(), Arc::clone(&ending));
        let (answers, requests) = (Answers::new(account(&self.answers)), account(&self.requests));
        let bell = Arc::clone(&waker);
        place.on_news(move || bell.wake());
        let (inputs, freed) = (self.inputs.clone(), Freed(Arc::clone(&self.freed)));
        let guard = Guard { id, answers, requests, ending, inputs, place, _freed: freed, waker };
        let connection = Connection { guard: Arc::new(guard), certificate: None };
        let silence = self.silence;
        let deadline = Box::pin(tokio::time::sleep(HELLO.min(silence)));
        let look = Box::pin(tokio::time::sleep(silence / LOOKS));
        Stream { tcp, connection, silence, deadline, look, read: 0 }
    }
}

/// A client's stream.
#[derive(Debug)]
pub(super) struct Stream {
    tcp: TcpStream,
    connection: Connection,
    silence: Duration,
    deadline: Pin<Box<Sleep>>,
    /// Time of the next check of its answers.
    look: Pin<Box<Sleep>>,
    read: u64,
}

impl Stream {
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Waits for bytes. Fails at once if the connection must end.
    pub(super) fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.end(cx) {
            Poll::Ready(error) => Poll::Ready(Err(error)),
            Poll::Pending => self.tcp.poll_read_ready(cx),
        }
    }

    /// The reason for which the connection must end, if there is one.
    fn end(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        let guard = &self.connection.guard;
        guard.waker.register(cx.waker());
        if guard.place.must_end() {
            tracing::debug!(connection = guard.id, "a connection gives way to another one");
            return Poll::Ready(Error::new(
                ErrorKind::ConnectionAborted,
                "another client needs the connection",
            ));
        }
        if guard.ending.must_end() {
            tracing::debug!(connection = guard.id, "its host holds too much, and its own bytes are oldest");
            return Poll::Ready(Error::new(
                ErrorKind::ConnectionAborted,
                "the client leaves requests or answers half done, and others need their memory",
            ));
        }
        if self.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Error::new(ErrorKind::TimedOut, "the client is silent"));
        }
        while self.look.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let is_late = |since: Instant| now.duration_since(since) >= self.silence;
            if self.connection.answers().oldest().is_some_and(is_late) {
                tracing::debug!(connection = self.connection.id(), "the client does not take its answers");
                return Poll::Ready(Error::new(ErrorKind::TimedOut, "the client takes no answer"));
            }
            let at = now + self.silence / LOOKS;
            self.look.as_mut().reset(at);
        }
        Poll::Pending
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        match Pin::new(&mut this.tcp).poll_read(cx, buf) {
            Poll::Ready(result) => {
                this.read += (buf.filled().len() - before) as u64;
                // Until the preface is complete, its bytes do not extend the time.
                if this.read >= PREFACE {
                    let at = Instant::now() + this.silence;
                    this.deadline.as_mut().reset(at);
                }
                Poll::Ready(result)
            }
            Poll::Pending => this.end(cx).map(Err),
        }
    }
}

/// HTTP/2 reads nothing while it waits to write, so the reasons for an end count here, too.
impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        match Pin::new(&mut self.tcp).poll_write(cx, buf) {
            Poll::Pending => self.end(cx).map(Err),
            ready => ready,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        match Pin::new(&mut self.tcp).poll_write_vectored(cx, bufs) {
            Poll::Pending => self.end(cx).map(Err),
            ready => ready,
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }
}
