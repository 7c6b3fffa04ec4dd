// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TLS handshakes of callers, on a thread of their own.
//!
//! A handshake costs the daemon up to a millisecond of computing, and a stranger may ask for one after
//! another. On the threads of calls they would delay the calls of clients that are there. On one thread they
//! delay only each other, by the turns of [`Handshakes`], and take one core at most.
//!
//! A connection that says nothing costs this thread little, as the state of TLS is made when its first bytes
//! come. Steps have time between new connections. A flood may bring connections as fast as they are begun,
//! and the hellos of callers wait for steps.

use super::clock::spawn;
use super::handshakes::{Handshakes, Shake};
use super::stream::{Bounds, Connection, HELLO, Stream};
use gnstor_base::round_robin::RoundRobin;
use rustls::ServerConfig;
use std::io::IoSlice;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};
use tonic::transport::server::Connected;

/// Connections that are begun in a row where steps are due, and the longest time of the steps that follow.
const BEGUN: u32 = 16;
const STEPS: Duration = Duration::from_millis(1);

/// A caller's stream that is ready for calls.
#[derive(Debug)]
pub(super) enum Wire {
    Plain(Stream),
    Tls(Box<TlsStream<Stream>>),
}

/// Makes accepted streams ready for calls.
pub(super) enum Hellos {
    /// Without TLS, streams are ready at once.
    None(mpsc::Sender<std::io::Result<Wire>>),
    Thread(Thread),
}

impl Hellos {
    /// Ready streams go to `ready`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn new(
        tls: Option<Arc<ServerConfig>>,
        bounds: Bounds,
        ready: mpsc::Sender<std::io::Result<Wire>>,
    ) -> std::io::Result<Self> {
        Ok(match tls {
            None => Self::None(ready),
            Some(tls) => Self::Thread(Thread::start(tls, bounds, ready)?),
        })
    }

    /// Takes a new stream. Returns whether there is still a server to serve it.
    pub(super) async fn take(&self, stream: Stream) -> bool {
        match self {
            Self::None(ready) => ready.send(Ok(Wire::Plain(stream))).await.is_ok(),
            Self::Thread(thread) => thread.streams.as_ref().is_some_and(|to| to.send(stream).is_ok()),
        }
    }
}

/// A handshake.
enum Greeting {
    /// No byte has come.
    Awaited(Option<Stream>, TlsAcceptor),
    Answered(Box<Accept<Stream>>),
}

impl Shake for Greeting {
    fn is_answered(&self) -> bool {
        matches!(self, Self::Answered(_))
    }
}

impl Future for Greeting {
    type Output = std::io::Result<TlsStream<Stream>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Self::Awaited(stream, acceptor) = &mut *self {
            let come = stream.as_mut().expect("it is taken once").poll_bytes(cx);
            std::task::ready!(come)?;
            let shaking = Box::new(acceptor.accept(stream.take().expect("as above")));
            *self = Self::Answered(shaking);
        }
        match &mut *self {
            Self::Answered(shaking) => Pin::new(&mut **shaking).poll(cx),
            Self::Awaited(..) => Poll::Pending,
        }
    }
}

/// The thread; dropping it ends all handshakes.
pub(super) struct Thread {
    /// The number of connections is bounded, and so is this queue.
    streams: Option<mpsc::UnboundedSender<Stream>>,
    thread: Option<JoinHandle<()>>,
}

impl Thread {
    fn start(
        tls: Arc<ServerConfig>,
        bounds: Bounds,
        ready: mpsc::Sender<std::io::Result<Wire>>,
    ) -> std::io::Result<Self> {
        let (streams, begun) = mpsc::unbounded_channel();
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let thread = spawn("gnstord-hello".into(), move || {
            // The sockets and their timers stay with the runtime of the calls.
            match tokio::runtime::Builder::new_current_thread().enable_time().build() {
                Ok(runtime) => {
                    tell.send(Ok(())).ok();
                    runtime.block_on(shake_hands(TlsAcceptor::from(tls), bounds, begun, ready));
                }
                Err(error) => _ = tell.send(Err(error)),
            }
        })?;
        told.recv().expect("the thread says whether it has begun")?;
        Ok(Self { streams: Some(streams), thread: Some(thread) })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.streams = None;
        // The thread needs the runtime of the calls, so it must end first. It ends after the step of one
        // handshake.
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!(?panic, "the thread of TLS handshakes ended early");
        }
    }
}

async fn shake_hands(
    acceptor: TlsAcceptor,
    bounds: Bounds,
    mut begun: mpsc::UnboundedReceiver<Stream>,
    ready: mpsc::Sender<std::io::Result<Wire>>,
) {
    /// Longest sleep where no handshake is under way.
    const IDLE: Duration = Duration::from_secs(3600);
    let time = HELLO.min(bounds.silence);
    let mut under_way = Handshakes::new(bounds.handshakes);
    // Streams with a finished handshake. The server takes them one after the other.
    let mut good = RoundRobin::default();
    let mut in_a_row = 0;
    loop {
        let late = under_way.deadline().unwrap_or_else(|| Instant::now() + IDLE);
        tokio::select! {
            // When the daemon stops, streams that still wait here are dropped.
            biased;
            () = ready.closed() => return,
            Ok(server) = ready.reserve(), if !good.is_empty() => {
                if let Some((_, wire)) = good.pop() {
                    server.send(Ok(wire));
                }
            }
            stream = begun.recv(), if in_a_row < BEGUN => {
                let Some(stream) = stream else { return };
                let host = stream.connection().host();
                let greeting = Greeting::Awaited(Some(stream), acceptor.clone());
                under_way.begin(host, greeting, Instant::now() + time);
                in_a_row += 1;
                continue;
            }
            () = tokio::time::sleep_until(late) => under_way.end_late(Instant::now()),
            () = std::future::poll_fn(|cx| poll_steps(&mut under_way, &mut good, in_a_row > 0, cx)) => {
                in_a_row = 0;
                // Where steps are always due, the channels and the clock are looked at only after a yield.
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Takes the steps that are due, for a while. Without any it is ready if new connections were begun before.
fn poll_steps(
    under_way: &mut Handshakes<Greeting>,
    good: &mut RoundRobin<IpAddr, Wire>,
    mut is_ready: bool,
    cx: &mut Context<'_>,
) -> Poll<()> {
    let until = Instant::now() + STEPS;
    while let Poll::Ready(ended) = under_way.poll_step(cx) {
        is_ready = true;
        match ended {
            Some((host, Ok(tls))) => _ = good.push(host, Wire::Tls(Box::new(tls))),
            Some((host, Err(error))) => tracing::debug!(%host, %error, "a TLS handshake failed"),
            None => {}
        }
        if Instant::now() >= until {
            break;
        }
    }
    if is_ready { Poll::Ready(()) } else { Poll::Pending }
}

impl Connected for Wire {
    type ConnectInfo = Connection;

    fn connect_info(&self) -> Connection {
        match self {
            Self::Plain(stream) => stream.connection().clone(),
            Self::Tls(tls) => {
                let (stream, session) = tls.get_ref();
                let shown = session.peer_certificates().and_then(|chain| chain.first());
                stream.connection().with_certificate(shown.map(|der| Arc::from(der.as_ref())))
            }
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(tls) => tls.is_write_vectored(),
        }
    }
}
