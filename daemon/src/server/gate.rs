// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The layer around the services: deadlines of calls, and the code for messages that cannot be decoded. It
//! also bounds the time in which a client must take its answer, and what requests may hold.

use super::stream::Connection;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};

/// The texts that tonic puts, with the code INTERNAL, into the error for bytes that are no message of the
/// call.
const NO_MESSAGE: [&str; 3] = [
    "failed to decode Protobuf message",
    "Missing request message",
    // The byte before the message that says how it is compressed.
    "protocol error: received message with",
];

/// Puts a [`Gate`] before a service.
#[derive(Clone, Copy, Debug)]
pub(super) struct GateLayer;

impl<S> Layer<S> for GateLayer {
    type Service = Gate<S>;

    fn layer(&self, inner: S) -> Gate<S> {
        Gate(inner)
    }
}

/// A service behind the gate.
#[derive(Clone, Debug)]
pub(super) struct Gate<S>(S);

impl<S> Service<http::Request<Body>> for Gate<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let begun = Instant::now();
        let wanted = request.headers().get("grpc-timeout").map(|value| value.to_str().ok().and_then(timeout));
        let limit = match wanted {
            None => None,
            Some(Some(limit)) => Some(limit),
            Some(None) => {
                let status =
                    Status::invalid_argument("grpc-timeout is 1 to 8 digits and one of H, M, S, m, u, n");
                return Box::pin(async move { Ok(status.into_http()) });
            }
        };
        let connection = connection_of(request.extensions()).cloned();
        let named = move |response| {
            let response = named(response);
            match &connection {
                Some(connection) => connection.answers().watched(response),
                None => response,
            }
        };
        let request = match connection_of(request.extensions()).map(|of| of.requests().clone()) {
            Some(account) => super::requests::counted(request, &account),
            None => request,
        };
        let answer = self.0.call(request);
        Box::pin(async move {
            let Some(limit) = limit else { return answer.await.map(named) };
            let late = || {
                let message = format!("the call was not done within its deadline of {limit:?}");
                Ok(Status::deadline_exceeded(message).into_http())
            };
            // The timer counts whole milliseconds, so the time of the answer is checked, too.
            match tokio::time::timeout_at(begun + limit, answer).await {
                Ok(answer) if begun.elapsed() < limit => answer.map(named),
                Ok(_) | Err(_) => late(),
            }
        })
    }
}

/// The connection of a call.
pub(super) fn connection_of(extensions: &http::Extensions) -> Option<&Connection> {
    extensions.get::<Connection>()
}

/// The answer to bytes that are no message has the code INVALID_ARGUMENT.
fn named(response: http::Response<Body>) -> http::Response<Body> {
    let Some(status) = Status::from_header_map(response.headers()) else { return response };
    let told = NO_MESSAGE.iter().any(|words| status.message().starts_with(words));
    if status.code() != Code::Internal || !told {
        return response;
    }
    Status::invalid_argument(format!("the request is not a message of its call: {}", status.message()))
        .into_http()
}

/// The duration that `grpc-timeout` names.
fn timeout(value: &str) -> Option<Duration> {
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};

    #[test]
    fn deadlines_are_read_in_every_unit() {
        let _deadline = Deadline::after(LIMIT);
        assert_eq!(timeout("3H"), Some(Duration::from_secs(10_800)));
        assert_eq!(timeout("250u"), Some(Duration::from_micros(250)));
        assert_eq!(timeout("99999999n"), Some(Duration::from_nanos(99_999_999)));
        for bad in ["", "u", "1", "1x", "-1S", "123456789S", "1 S", "１S", "Sä"] {
            assert_eq!(timeout(bad), None, "{bad}");
        }
    }
}
