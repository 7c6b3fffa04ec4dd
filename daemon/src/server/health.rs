// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services for tools that do not know GNStor: `grpc.health.v1`, and the definitions of all calls. The latter
//! are `grpc.reflection.v1` and its earlier version, which tools still use.
//!
//! Health says that the daemon serves, which each party may know that reaches its port: a probe has no
//! certificate and no token to show. Reflection is for callers with a proof, as all other calls.

use super::service::Answered;
use gnstor_proto::grpc::fleet_server::SERVICE_NAME as FLEET;
use gnstor_proto::grpc::volumes_server::SERVICE_NAME as VOLUMES;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::server::{Builder, v1, v1alpha};

/// Longest message to these services: the name of a service, of a file or of a message.
pub(super) const MESSAGE_BYTES: usize = 4 << 10;

/// The health of the daemon.
#[derive(Clone, Debug)]
pub(super) struct Healthy {
    /// Whether the daemon takes calls.
    pub(super) serves: watch::Receiver<bool>,
    /// How long a stream lasts.
    pub(super) stream: Duration,
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

fn status(serves: bool) -> ServingStatus {
    if serves { ServingStatus::Serving } else { ServingStatus::NotServing }
}

/// The daemon as a whole has no name.
fn is_known(service: &str) -> bool {
    ["", VOLUMES, FLEET].contains(&service)
}

#[tonic::async_trait]
impl Health for Healthy {
    type WatchStream = ReceiverStream<Result<HealthCheckResponse, Status>>;

    async fn check(&self, call: tonic::Request<HealthCheckRequest>) -> Answered<HealthCheckResponse> {
        if is_known(&call.get_ref().service) {
            return Ok(Response::new(answer(status(*self.serves.borrow()))));
        }
        let message =
            format!("the daemon has no such service: ask for {VOLUMES}, {FLEET}, or without a name");
        Err(Status::not_found(message))
    }

    async fn watch(&self, call: tonic::Request<HealthCheckRequest>) -> Answered<Self::WatchStream> {
        let (sender, stream) = mpsc::channel(1);
        let until = Instant::now() + self.stream;
        let is_known = is_known(&call.get_ref().service);
        tokio::spawn(follow(self.serves.clone(), is_known, sender, until));
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

/// Sends the health now and at each change, until this time. A stream without an end would count as an answer
/// that the client does not take.
async fn follow(
    mut serves: watch::Receiver<bool>,
    is_known: bool,
    to: mpsc::Sender<Result<HealthCheckResponse, Status>>,
    until: Instant,
) {
    loop {
        let now = status(*serves.borrow_and_update());
        let now = if is_known { now } else { ServingStatus::ServiceUnknown };
        let told = tokio::time::timeout_at(until, to.send(Ok(answer(now)))).await;
        if !matches!(told, Ok(Ok(()))) || now == ServingStatus::NotServing {
            return;
        }
        tokio::select! {
            changed = serves.changed() => if changed.is_err() { return },
            () = to.closed() => return,
            () = tokio::time::sleep_until(until) => return,
        }
    }
}

/// The definitions of all services of the daemon, in both versions of the service that tells them.
///
/// # Errors
/// A definition cannot be read, in words.
pub(super) fn reflection() -> Result<
    (
        v1::ServerReflectionServer<impl v1::ServerReflection>,
        v1alpha::ServerReflectionServer<impl v1alpha::ServerReflection>,
    ),
    String,
> {
    let builder = || {
        Builder::configure()
            .register_encoded_file_descriptor_set(gnstor_proto::grpc::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let words = |error: tonic_reflection::server::Error| format!("the definitions of the calls: {error}");
    let v1 = builder().build_v1().map_err(words)?.max_decoding_message_size(MESSAGE_BYTES);
    let v1alpha = builder().build_v1alpha().map_err(words)?.max_decoding_message_size(MESSAGE_BYTES);
    Ok((v1, v1alpha))
}
