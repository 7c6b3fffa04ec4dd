// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TLS handshakes of callers, on a thread of their own.
//!
//! A handshake costs the daemon up to a millisecond of computing, and a stranger may ask for one after
//! another. On the threads of calls they would delay the calls of clients that are there. On one thread they
//! delay only each other, by the turns of [`Handshakes`], and take one core at most.

use super::accept::{Bounds, Connection, HELLO, Stream};
use super::handshakes::Handshakes;
use gnstor_base::turns::Turns;
use rustls::ServerConfig;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

/// A caller's stream that is ready for calls.
#[derive(Debug)]
pub(super) enum Wire {
    Plain(Stream),
    Tls(Box<TlsStream<Stream>>),
}

/// Where the streams of a daemon become ready.
pub(super) enum Hellos {
    /// Without TLS they are ready at once.
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
        let thread = super::runtime::spawn("gnstord-hello".into(), move || {
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
    // They wait for the server, which takes one after the other.
    let mut good: Turns<_, Wire> = Turns::default();
    loop {
        let late = under_way.deadline().unwrap_or_else(|| Instant::now() + IDLE);
        tokio::select! {
            // What waits here when the daemon stops is not begun any more.
            biased;
            () = ready.closed() => return,
            Ok(server) = ready.reserve(), if !good.is_empty() => {
                if let Some((_, wire)) = good.pop() {
                    server.send(Ok(wire));
                }
            }
            stream = begun.recv() => {
                let Some(stream) = stream else { return };
                let host = stream.connection().host();
                under_way.begin(host, acceptor.accept(stream), Instant::now() + time);
            }
            () = tokio::time::sleep_until(late) => under_way.end_late(Instant::now()),
            ended = std::future::poll_fn(|cx| under_way.poll_step(cx)) => {
                match ended {
                    Some((host, Ok(tls))) => _ = good.push(host, Wire::Tls(Box::new(tls))),
                    Some((host, Err(error))) => tracing::debug!(%host, %error, "a TLS handshake failed"),
                    None => {}
                }
                // Where steps are always due, the channels and the clock are looked at only after a yield.
                tokio::task::yield_now().await;
            }
        }
    }
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
