// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocking gRPC calls to the daemon. Each call has a deadline. A runtime with one thread serves them.

use crate::credentials::{Credentials, Proof, SignedChannel, root_cause};
use crate::error::Error;
use gnstor_auth::ShownClient;
use gnstor_proto::grpc;
use gnstor_proto::grpc::fleet_client::FleetClient;
use gnstor_proto::grpc::volumes_client::VolumesClient;
use std::error::Error as _;
use std::future::Future;
use std::time::Duration;
use tonic::Code;
use tonic::transport::Channel;

/// Longest wait for one call. The daemon waits up to five seconds for each SSD.
const CALL: Duration = Duration::from_secs(15);
/// How often a client names its id, so that the daemon keeps it after a connection broke.
const KEEP: Duration = Duration::from_secs(5);

/// A connection to a daemon.
#[derive(Debug)]
pub(crate) struct Rpc {
    runtime: tokio::runtime::Runtime,
    channel: Channel,
    proof: Proof,
    endpoint: String,
    limit: Duration,
}

impl Rpc {
    pub(crate) fn connect(endpoint: &str, credentials: &Credentials) -> Result<Self, Error> {
        Self::connect_for(endpoint, credentials, CALL)
    }

    /// Connects with another deadline for each call.
    fn connect_for(endpoint: &str, credentials: &Credentials, limit: Duration) -> Result<Self, Error> {
        let unreachable = |cause: String| Error::Unreachable { endpoint: endpoint.into(), cause };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("gn-rpc")
            .enable_all()
            .build()
            .map_err(|cause| Error::Os { what: "starting the RPC runtime".into(), cause })?;
        let (target, proof) = credentials.endpoint(endpoint)?;
        let connected = runtime.block_on(target.timeout(limit).connect());
        let channel = connected.map_err(|e| unreachable(root_cause(&e)))?;
        Ok(Self { runtime, channel, proof, endpoint: endpoint.into(), limit })
    }

    pub(crate) fn volumes(&self) -> VolumesClient<SignedChannel> {
        VolumesClient::with_interceptor(self.channel.clone(), self.proof.clone())
    }

    pub(crate) fn fleet(&self) -> FleetClient<SignedChannel> {
        FleetClient::with_interceptor(self.channel.clone(), self.proof.clone())
    }

    /// From here on each call shows that the caller is this client.
    pub(crate) fn prove(&self, client: &ShownClient) {
        self.proof.set_client(client);
    }

    /// Names a client id to the daemon again and again, until this connection is dropped.
    pub(crate) fn keep(&self, client_id: u32) {
        let mut fleet = self.fleet();
        self.runtime.spawn(async move {
            loop {
                tokio::time::sleep(KEEP).await;
                if let Err(status) = fleet.keep(grpc::KeepRequest { client_id }).await {
                    tracing::debug!(client_id, %status, "the daemon did not hear of the client id");
                }
            }
        });
    }

    /// The answer of a call that is of use only within so long.
    pub(crate) fn within<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> Option<T> {
        let ended = self.runtime.block_on(async { tokio::time::timeout(limit, answer).await });
        Some(ended.ok()?.ok()?.into_inner())
    }

    /// Waits for a call. `call` names it in errors, as in "the list of volumes".
    ///
    /// # Errors
    /// [`Error::Silent`] when the deadline passes, [`Error::Unreachable`] when the connection breaks, or the
    /// daemon's.
    pub(crate) fn wait<T>(
        &self,
        call: &str,
        answer: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> Result<T, Error> {
        match self.runtime.block_on(answer) {
            Ok(response) => Ok(response.into_inner()),
            // A status of the daemon has no source. Tonic adds one to each status that it makes itself:
            // Cancelled when the deadline passes, Unavailable, Unknown or Internal when the connection
            // breaks.
            Err(status) if status.code() == Code::Cancelled && status.source().is_some() => {
                Err(Error::Silent { endpoint: self.endpoint.clone(), call: call.into(), waited: self.limit })
            }
            Err(status)
                if matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Internal)
                    && status.source().is_some() =>
            {
                Err(Error::Unreachable { endpoint: self.endpoint.clone(), cause: root_cause(&status) })
            }
            Err(status) => Err(Error::Daemon(status)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};
    use gnstor_proto::grpc;

    /// The kernel accepts the connection for the listener, and the listener never answers: like a stopped
    /// process.
    #[test]
    fn a_daemon_that_does_not_answer_is_named_with_the_call_and_the_time() {
        let _deadline = Deadline::after(LIMIT);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let rpc = Rpc::connect_for(&address, &Credentials::default(), Duration::from_millis(200))
            .expect("the kernel accepts");
        let error =
            rpc.wait("the list of volumes", rpc.volumes().list(grpc::ListRequest {})).expect_err("no answer");
        assert!(matches!(error, Error::Silent { .. }), "{error:?}");
        assert_eq!(error.errno(), 110);
        let sentence = error.to_string();
        for word in [address.as_str(), "the list of volumes", "200ms"] {
            assert!(sentence.contains(word), "'{word}' is missing in: {sentence}");
        }
    }
}
