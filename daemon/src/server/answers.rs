// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers on their way to a client. An answer that is not taken in time ends its connection. A client
//! chooses its HTTP/2 window. Otherwise the daemon would keep as many answers as the client may make calls.
//! The sum over all connections is bounded, too ([`super::budget`]).
//!
//! ```text
//!   Watched (an answer) --poll_frame--> Piece, Piece, ...     of a connection: since when (Answers)
//!                                       each holds            of all: bytes by host, oldest first
//!                                       a Reservation         (MemoryBudget)
//! ```
//! An answer is on its way as long as its body, or a piece of its bytes, is in memory. HTTP/2 may have taken
//! a piece that it cannot send.

use super::budget::{Account, Reservation, Room};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;

/// Bytes that an answer holds before it is sent. The service says so of an answer that is large.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weight(pub(super) usize);

/// Answers of one connection that are being sent.
#[derive(Clone, Debug)]
pub(super) struct Answers {
    begun: Arc<Mutex<Begun>>,
    account: Account,
}

/// Answers by number, so that the oldest one comes first.
#[derive(Debug, Default)]
struct Begun {
    count: u64,
    at: BTreeMap<u64, Instant>,
}

impl Answers {
    /// The answers of one connection. `account` counts their bytes.
    pub(super) fn new(account: Account) -> Self {
        Self { begun: Arc::default(), account }
    }

    /// When the daemon began to send the oldest of these answers.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.with(|begun| begun.at.first_key_value().map(|(_, &at)| at))
    }

    /// Wraps a response, so that it counts as on its way until all of its bytes are gone.
    pub(super) fn watched(&self, response: http::Response<Body>) -> http::Response<Body> {
        let number = self.with(|begun| {
            begun.count += 1;
            begun.at.insert(begun.count, Instant::now());
            begun.count
        });
        let weight = response.extensions().get::<Weight>().map(|&Weight(bytes)| self.account.hold(bytes));
        let way = Arc::new(OnItsWay { of: self.clone(), number, _weight: weight });
        response.map(|body| Body::new(Watched { body, way, room: Room::default() }))
    }

    fn with<R>(&self, f: impl FnOnce(&mut Begun) -> R) -> R {
        f(&mut self.begun.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One answer on its way. Dropped with its last piece.
#[derive(Debug)]
struct OnItsWay {
    of: Answers,
    number: u64,
    _weight: Option<Reservation>,
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        self.of.with(|begun| begun.at.remove(&self.number));
    }
}

struct Watched {
    body: Body,
    way: Arc<OnItsWay>,
    room: Room,
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        std::task::ready!(this.room.poll(&this.way.of.account, cx));
        let frame = Pin::new(&mut this.body).poll_frame(cx);
        let piece = |bytes: Bytes| {
            let reservation = this.way.of.account.hold(bytes.len());
            Bytes::from_owner(Piece { bytes, _reservation: reservation, _way: Arc::clone(&this.way) })
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
    _reservation: Reservation,
    _way: Arc<OnItsWay>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
