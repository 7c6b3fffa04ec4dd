// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The management plane, blocking: gRPC calls with a deadline on a small runtime of their own.

use crate::error::Error;
use gnstor_proto::grpc::fleet_client::FleetClient;
use gnstor_proto::grpc::volumes_client::VolumesClient;
use std::error::Error as _;
use std::future::Future;
use std::time::Duration;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

/// Longest wait for one call: the daemon gives every SSD five seconds.
const CALL: Duration = Duration::from_secs(15);
const CONNECT: Duration = Duration::from_secs(5);

/// A connection to a daemon.
#[derive(Debug)]
pub(crate) struct Rpc {
    runtime: tokio::runtime::Runtime,
    channel: Channel,
    endpoint: String,
}

impl Rpc {
    pub(crate) fn connect(endpoint: &str) -> Result<Self, Error> {
        let unreachable = |cause: String| Error::Unreachable { endpoint: endpoint.into(), cause };
        let url = if endpoint.contains("://") { endpoint.to_owned() } else { format!("http://{endpoint}") };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("gn-rpc")
            .enable_all()
            .build()
            .map_err(|cause| Error::Os { what: "starting the RPC runtime".into(), cause })?;
        let target = Endpoint::from_shared(url).map_err(|e| unreachable(e.to_string()))?;
        let target = target.connect_timeout(CONNECT).timeout(CALL);
        let channel = runtime.block_on(target.connect()).map_err(|e| unreachable(root_cause(&e)))?;
        Ok(Self { runtime, channel, endpoint: endpoint.into() })
    }

    pub(crate) fn volumes(&self) -> VolumesClient<Channel> {
        VolumesClient::new(self.channel.clone())
    }

    pub(crate) fn fleet(&self) -> FleetClient<Channel> {
        FleetClient::new(self.channel.clone())
    }

    /// Waits for a call.
    pub(crate) fn wait<T>(
        &self,
        call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> Result<T, Error> {
        match self.runtime.block_on(call) {
            Ok(response) => Ok(response.into_inner()),
            // Only a status that this side made of a broken connection has a cause; what the daemon says comes without one.
            Err(status) if matches!(status.code(), Code::Unavailable | Code::Unknown) && status.source().is_some() => {
                Err(Error::Unreachable { endpoint: self.endpoint.clone(), cause: root_cause(&status) })
            }
            Err(status) => Err(Error::Daemon(status)),
        }
    }
}

fn root_cause(e: &dyn std::error::Error) -> String {
    let mut cause = e;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
