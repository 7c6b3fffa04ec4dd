// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Questions from within the daemon's own process. They need no connection, and so no proof.

use super::service::{ROOM, Service};
use super::{Daemon, DaemonError};
use crate::core::rights::Caller;
use gnstor_proto::grpc::fleet_server::Fleet as _;
use gnstor_proto::grpc::volumes_server::Volumes as _;
use gnstor_proto::grpc::{GetMapRequest, GetMapResponse, ListRequest, ListResponse};
use std::sync::Arc;
use tokio::runtime::Handle;
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status};

/// Asks the services of a daemon of this process.
#[derive(Debug)]
pub(super) struct Looker {
    pub(super) runtime: Handle,
    pub(super) service: Service,
}

/// The answers of GetMap and List, which name the SSDs that are down in their metadata.
#[derive(Debug)]
pub struct Look {
    /// The fleet map and the SSDs.
    pub map: GetMapResponse,
    /// The volumes, and the size of the largest new one.
    pub list: Response<ListResponse>,
}

impl Look {
    /// Whether both looks found the same.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.map == other.map
            && self.list.get_ref() == other.list.get_ref()
            && self.list.metadata().as_ref() == other.list.metadata().as_ref()
    }
}

async fn look(service: Service) -> Result<Look, Status> {
    let map = service.get_map(own(GetMapRequest {})).await?.into_inner();
    let mut list = own(ListRequest::default());
    list.metadata_mut().insert(ROOM, MetadataValue::from_static("1"));
    Ok(Look { map, list: service.list(list).await? })
}

/// A call of this process. No connection has the number 0.
fn own<M>(message: M) -> Request<M> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(Arc::new(Caller::local(0)));
    request
}

impl Daemon {
    /// Asks for the state of the array. Blocks until the daemon answers, so async code must not call it.
    ///
    /// # Errors
    /// [`DaemonError::Silent`]: the daemon stops, or does not answer within its deadline for a request.
    pub fn look(&self) -> Result<Look, DaemonError> {
        let (answer, answered) = std::sync::mpsc::channel();
        let service = self.looker.service.clone();
        // The daemon's own runtime runs the call. If that has ended, so has the channel.
        self.looker.runtime.spawn(async move { answer.send(look(service).await).ok() });
        let looked = answered.recv().map_err(|_| DaemonError::Silent("it has stopped".into()))?;
        looked.map_err(|status| DaemonError::Silent(status.message().into()))
    }
}
