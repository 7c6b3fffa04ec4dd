// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The gRPC services: each call becomes a request of the core, and the core's reply becomes the answer.

use super::access::Access;
use super::answers::Weight;
use super::config::DaemonConfig;
use super::holders::{held, label, leases, rename, resize, revoke_lease};
use super::input::{Absent, Conditions, Ends, InUse, Input, Listed};
use super::messages::{create, delete, open, release, renew, revoke, share, volume};
use super::stream::Connection;
use crate::core::failure::Failure;
use crate::core::request::{Request, VolumeName};
use crate::core::rights::{Caller, ClientProof};
use crate::core::{Page, Reply};
use crate::port::connector::Connector;
use gnstor_auth::{CLIENT_PROOF, Secret, ShownClient};
use gnstor_proto::fabrics::{Host, Identity};
use gnstor_proto::grpc::volumes_server::Volumes;
use gnstor_proto::grpc::{
    CreateRequest, DeleteRequest, DeleteResponse, GetRequest, LabelRequest, ListLeasesRequest,
    ListLeasesResponse, ListRequest, ListResponse, OpenRequest, OpenResponse, PublishRequest,
    RegisterResponse, ReleaseRequest, ReleaseResponse, RenameRequest, RenewRequest, RenewResponse,
    ResizeRequest, RevokeLeaseRequest, RevokeLeaseResponse, RevokeRequest, ShareRequest, Volume,
};
use gnstor_proto::slba::ClientId;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tonic::{Code, Response, Status};
use tracing::Instrument as _;

/// How much longer than the core's own deadline a call waits for it: the core answers first unless it is
/// stuck.
const MARGIN: Duration = Duration::from_secs(2);

/// About what a volume takes in an answer that is not sent yet.
const VOLUME_BYTES: usize = 512;
/// The same of what a client has open.
const LEASE_BYTES: usize = 160;

/// Longest name of a client in the log.
pub(super) const NAME_CHARS: usize = 64;

/// Finds out who calls, before a byte of the message is read.
pub(super) fn prove(
    access: &Access,
    manager_key: Option<&Secret>,
    mut call: tonic::Request<()>,
) -> Result<tonic::Request<()>, Status> {
    let connection = call.extensions().get::<Connection>();
    let certificate = connection.and_then(Connection::certificate);
    let authorization = match call.metadata().get("authorization") {
        None => None,
        Some(value) => Some(value.to_str().map_err(|_| Status::unauthenticated("the token is no text"))?),
    };
    let id = connection.map_or(0, Connection::id);
    let mut caller = access.caller(id, certificate, authorization)?;
    let shown = call.metadata().get(CLIENT_PROOF).and_then(|value| ShownClient::parse(value.to_str().ok()?));
    caller.client = shown_client(manager_key, shown.as_ref());
    if !caller.single {
        connection.inspect(|connection| connection.set_admitted());
    }
    call.extensions_mut().insert(Arc::new(caller));
    Ok(call)
}

/// The caller's claim of a client id, and whether it is proven.
fn shown_client(manager_key: Option<&Secret>, shown: Option<&ShownClient>) -> ClientProof {
    let client = shown.and_then(|shown| Some((shown, ClientId::new(shown.id)?)));
    match (manager_key, client) {
        (None, None) => ClientProof::NotAsked,
        (None, Some((shown, client))) => ClientProof::Said(client, shown.serial),
        (Some(key), Some((shown, client))) if shown.is_of(&secret(key, client, shown.serial)) => {
            ClientProof::Of(client, shown.serial)
        }
        (Some(_), _) => ClientProof::Missing,
    }
}

/// The secret of a client's registration.
fn secret(manager_key: &Secret, client: ClientId, serial: u64) -> Secret {
    manager_key.of_host(&Host { serial, ..Host::from(Identity::Client(client)) }.nqn())
}

/// Both services.
#[derive(Clone, Debug)]
pub(super) struct Service {
    inputs: mpsc::UnboundedSender<Input>,
    listed: watch::Receiver<Listed>,
    /// The way to SSDs that join.
    pub(super) connector: Option<Arc<dyn Connector>>,
    absent: watch::Receiver<Absent>,
    conditions: watch::Receiver<Conditions>,
    /// The fleet map in use.
    pub(super) maps: watch::Receiver<Option<InUse>>,
    /// How long a stream of maps lasts.
    pub(super) stream: Duration,
    patience: Duration,
    manager_key: Option<Secret>,
}

/// Metadata of the answers of List and GetMap: one for each SSD that is down, its index and the reason.
pub const SSD_DOWN: &str = "gnstor-ssd-down";
/// The same of each SSD that may lack acknowledged writes and so serves no reads: its index.
pub const SSD_FILLING: &str = "gnstor-ssd-filling";
/// The header for SSDs that could not read all of their permission metadata at the start: their indexes.
pub const SSD_DAMAGED: &str = "gnstor-ssd-damaged";

/// Metadata of a List that asks how large a new volume can be. The answer has it once for each number of
/// replicas: the number and the bytes.
pub const ROOM: &str = "gnstor-room";

/// The header that says, once, that the SSDs ask no host for a proof.
pub const NO_AUTH: &str = "gnstor-no-auth";

impl Service {
    pub(super) fn new(ends: Ends, config: &DaemonConfig) -> Self {
        let patience = Duration::from_millis(config.core.request_ms) + MARGIN;
        let (manager_key, connector) = (config.manager_key.clone(), config.connector.clone());
        let stream = config.keep_alive;
        let Ends { inputs, absent, conditions, maps, listed, .. } = ends;
        Self { inputs, listed, absent, conditions, maps, connector, stream, patience, manager_key }
    }

    /// The SSDs, as clients hear of them.
    pub(super) fn ssds(&self) -> Listed {
        self.listed.borrow().clone()
    }

    /// Adds to an answer which SSDs are down.
    pub(super) fn with_absent<T>(&self, answer: T) -> Response<T> {
        let mut response = Response::new(answer);
        if self.manager_key.is_none() {
            response.metadata_mut().insert(NO_AUTH, 1.into());
        }
        for (ssd, why) in self.absent.borrow().iter() {
            let plain: String = why.chars().map(|c| if matches!(c, ' '..='~') { c } else { '?' }).collect();
            if let Ok(value) = format!("{ssd} {plain}").parse() {
                response.metadata_mut().append(SSD_DOWN, value);
            }
        }
        for (&ssd, condition) in self.conditions.borrow().iter() {
            let said = [(SSD_FILLING, condition.is_filling), (SSD_DAMAGED, condition.is_damaged)];
            for (name, _) in said.into_iter().filter(|(_, is_so)| *is_so) {
                response.metadata_mut().append(name, ssd.into());
            }
        }
        response
    }

    /// How large a new volume can be, with one replica, with two, and so on.
    async fn room(&self, call: &tonic::Request<ListRequest>) -> Result<Vec<u64>, Status> {
        let mut own = tonic::Request::new(());
        *own.extensions_mut() = call.extensions().clone();
        match self.ask("List", own, |()| Ok(Request::Room)).await? {
            Reply::Room(bytes) => Ok(bytes),
            other => mismatch(&other),
        }
    }

    /// The answer to Register: the number of the registration, and the client's secret if SSDs ask for it.
    pub(super) fn registration(&self, client: ClientId, serial: u64) -> RegisterResponse {
        let client_id = u32::from(client.get());
        let Some(key) = &self.manager_key else {
            return RegisterResponse { client_id, registration: serial, ..Default::default() };
        };
        let secret = secret(key, client, serial).to_text().to_string();
        RegisterResponse { client_id, serial, secret, registration: serial }
    }

    /// Makes the core execute a request, if the message is a valid one.
    pub(super) async fn ask<M>(
        &self,
        call: &'static str,
        message: tonic::Request<M>,
        request: impl FnOnce(M) -> Result<Request, Failure>,
    ) -> Result<Reply, Status> {
        let caller = message.extensions().get::<Arc<Caller>>().cloned();
        let caller = caller.ok_or_else(|| Status::internal("internal error: a call without a caller"))?;
        let connection = message.extensions().get::<Connection>().cloned();
        let request = request(message.into_inner());
        let asked = async {
            let (reply, answered) = oneshot::channel();
            let gone = || Status::unavailable("the daemon is stopping: connect again later");
            let request = request.map_err(status)?;
            self.inputs.send(Input::Request { caller, request, reply }).map_err(|_| gone())?;
            match tokio::time::timeout(self.patience, answered).await {
                Ok(Ok(result)) => {
                    if let (Ok(Reply::Opened { .. }), Some(connection)) = (&result, connection) {
                        connection.set_admitted();
                    }
                    result.map_err(status)
                }
                Ok(Err(_)) => Err(gone()),
                Err(_) => {
                    Err(Status::deadline_exceeded(format!("{call} got no answer within {:?}", self.patience)))
                }
            }
        };
        asked.instrument(tracing::info_span!("rpc", call)).await
    }
}

pub(super) fn status(failure: Failure) -> Status {
    Status::new(Code::from_i32(failure.code as i32), failure.message)
}

/// The core answered another request than was asked: a bug, told to the client as such.
pub(super) fn mismatch<T>(reply: &Reply) -> Result<T, Status> {
    tracing::error!(?reply, "the core's reply does not fit the call");
    Err(Status::internal("internal error: the daemon's reply does not fit the call"))
}

pub(super) type Answered<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Volumes for Service {
    async fn create(&self, call: tonic::Request<CreateRequest>) -> Answered<Volume> {
        match self.ask("Create", call, create).await? {
            Reply::Volume(entry) => Ok(Response::new(volume(&entry))),
            other => mismatch(&other),
        }
    }

    async fn list(&self, call: tonic::Request<ListRequest>) -> Answered<ListResponse> {
        let room = if call.metadata().contains_key(ROOM) { self.room(&call).await? } else { Vec::new() };
        let page = |list: ListRequest| Ok(Request::List(Page::new(list.page_size, &list.page_token)?));
        match self.ask("List", call, page).await? {
            Reply::Volumes { volumes, next } => {
                let volumes: Vec<Volume> = volumes.iter().map(volume).collect();
                let next_page_token = next.unwrap_or_default();
                let weight = Weight(volumes.len() * VOLUME_BYTES);
                let mut response = self.with_absent(ListResponse { volumes, next_page_token });
                response.extensions_mut().insert(weight);
                for (replicas, bytes) in (1..).zip(room) {
                    let value = format!("{replicas} {bytes}").parse().expect("digits");
                    response.metadata_mut().append(ROOM, value);
                }
                Ok(response)
            }
            other => mismatch(&other),
        }
    }

    async fn get(&self, call: tonic::Request<GetRequest>) -> Answered<Volume> {
        let get = |get: GetRequest| Ok(Request::Get { name: VolumeName::new(&get.name)? });
        match self.ask("Get", call, get).await? {
            Reply::Volume(entry) => Ok(Response::new(volume(&entry))),
            other => mismatch(&other),
        }
    }

    async fn delete(&self, call: tonic::Request<DeleteRequest>) -> Answered<DeleteResponse> {
        match self.ask("Delete", call, |message| delete(&message)).await? {
            Reply::Ended(ended) => Ok(Response::new(DeleteResponse { ended: held(&ended) })),
            other => mismatch(&other),
        }
    }

    async fn open(&self, call: tonic::Request<OpenRequest>) -> Answered<OpenResponse> {
        match self.ask("Open", call, |message| open(&message)).await? {
            Reply::Opened { volume: entry, lease_ms } => {
                Ok(Response::new(OpenResponse { volume: Some(volume(&entry)), lease_ms }))
            }
            other => mismatch(&other),
        }
    }

    async fn renew(&self, call: tonic::Request<RenewRequest>) -> Answered<RenewResponse> {
        match self.ask("Renew", call, |message| renew(&message)).await? {
            Reply::Renewed { lease_ms } => Ok(Response::new(RenewResponse { lease_ms })),
            other => mismatch(&other),
        }
    }

    async fn release(&self, call: tonic::Request<ReleaseRequest>) -> Answered<ReleaseResponse> {
        match self.ask("Release", call, |message| release(&message)).await? {
            Reply::Done => Ok(Response::new(ReleaseResponse {})),
            other => mismatch(&other),
        }
    }

    async fn publish(&self, call: tonic::Request<PublishRequest>) -> Answered<Volume> {
        match self.ask("Publish", call, |message| super::publish::publish(&message)).await? {
            Reply::Volume(entry) => Ok(Response::new(volume(&entry))),
            other => mismatch(&other),
        }
    }

    async fn share(&self, call: tonic::Request<ShareRequest>) -> Answered<Volume> {
        match self.ask("Share", call, |message| share(&message)).await? {
            Reply::Volume(entry) => Ok(Response::new(volume(&entry))),
            other => mismatch(&other),
        }
    }

    async fn revoke(&self, call: tonic::Request<RevokeRequest>) -> Answered<Volume> {
        match self.ask("Revoke", call, |message| revoke(&message)).await? {
            Reply::Volume(entry) => Ok(Response::new(volume(&entry))),
            other => mismatch(&other),
        }
    }

    async fn rename(&self, call: tonic::Request<RenameRequest>) -> Answered<Volume> {
        match self.ask("Rename", call, |message| rename(&message)).await? {
            Reply::Volume(entry) => Ok(Response::new(volume(&entry))),
            other => mismatch(&other),
        }
    }

    async fn label(&self, call: tonic::Request<LabelRequest>) -> Answered<Volume> {
        match self.ask("Label", call, label).await? {
            Reply::Volume(entry) => Ok(Response::new(volume(&entry))),
            other => mismatch(&other),
        }
    }

    async fn resize(&self, call: tonic::Request<ResizeRequest>) -> Answered<Volume> {
        match self.ask("Resize", call, |message| resize(&message)).await? {
            Reply::Volume(entry) => Ok(Response::new(volume(&entry))),
            other => mismatch(&other),
        }
    }

    async fn list_leases(&self, call: tonic::Request<ListLeasesRequest>) -> Answered<ListLeasesResponse> {
        match self.ask("ListLeases", call, |message| leases(&message)).await? {
            Reply::Leases { leases, next } => {
                let weight = Weight(leases.len() * LEASE_BYTES);
                let (leases, next_page_token) = (held(&leases), next.unwrap_or_default());
                let mut response = Response::new(ListLeasesResponse { leases, next_page_token });
                response.extensions_mut().insert(weight);
                Ok(response)
            }
            other => mismatch(&other),
        }
    }

    async fn revoke_lease(&self, call: tonic::Request<RevokeLeaseRequest>) -> Answered<RevokeLeaseResponse> {
        match self.ask("RevokeLease", call, |message| revoke_lease(&message)).await? {
            Reply::Ended(ended) => Ok(Response::new(RevokeLeaseResponse { ended: held(&ended) })),
            other => mismatch(&other),
        }
    }
}
