// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests that are not complete. A caller may begin many, and send the rest of none. So their bytes are
//! bounded in sum ([`super::budget`]).

use super::budget::{Account, Reservation, Room};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;

/// About what a request takes beside its headers and its message.
const REQUEST_BYTES: usize = 2 << 10;
/// About what a header takes beside its name and value.
const HEADER_BYTES: usize = 64;

/// The request, whose bytes count as long as its body is read.
pub(super) fn counted(request: http::Request<Body>, account: &Account) -> http::Request<Body> {
    let of_headers = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        name.as_str().len() + value.len() + HEADER_BYTES
    };
    let reservation = account.hold(REQUEST_BYTES + request.headers().iter().map(of_headers).sum::<usize>());
    let account = account.clone();
    request.map(|body| Body::new(Unfinished { body, account, reservation, room: Room::default() }))
}

struct Unfinished {
    body: Body,
    account: Account,
    reservation: Reservation,
    room: Room,
}

impl http_body::Body for Unfinished {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        std::task::ready!(this.room.poll(&this.account, cx));
        let frame = std::task::ready!(Pin::new(&mut this.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            this.reservation.grow(frame.data_ref().map_or(0, Bytes::len));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
