// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The gRPC services: messages are checked once, here, and become requests of the core; its replies become
//! messages.

use super::runtime::{Absent, Input};
use crate::core::Reply;
use crate::core::failure::Failure;
use crate::core::request::{self, Create, Request, Rights, VolumeName};
use crate::port::SsdPort;
use gnstor_proto::grpc::fleet_server::Fleet;
use gnstor_proto::grpc::volumes_server::Volumes;
use gnstor_proto::grpc::{
    self, CreateRequest, DeleteRequest, DeleteResponse, GetMapRequest, GetMapResponse, GetRequest,
    ListRequest, ListResponse, OpenRequest, OpenResponse, PublishRequest, RegisterRequest, RegisterResponse,
    ReleaseRequest, ReleaseResponse, RenewRequest, RenewResponse, Ssd, Volume,
};
use gnstor_proto::slba::ClientId;
use gnstor_proto::status::GrpcCode;
use gnstor_proto::vendor::{Limits, VolumeEntry};
use gnstor_proto::{BLOCK_BYTES, BLOCK_SHIFT};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tonic::{Code, Response, Status};
use tracing::Instrument as _;

/// How much longer than the core's own deadline a call waits for it: the core answers first unless it is
/// stuck.
const MARGIN: Duration = Duration::from_secs(2);

/// Both services.
#[derive(Clone, Debug)]
pub(super) struct Service {
    inputs: mpsc::UnboundedSender<Input>,
    ssds: Arc<[Ssd]>,
    absent: watch::Receiver<Absent>,
    patience: Duration,
}

/// Metadata of the answers of List and GetMap: one for each SSD that is down, its index and the reason.
pub const SSD_DOWN: &str = "gnstor-ssd-down";

/// How clients reach an SSD.
pub(super) fn describe(port: &SsdPort) -> Ssd {
    Ssd {
        index: u32::from(port.index),
        subnqn: port.subnqn.clone(),
        transport: port.transport.clone(),
        address: port.address.clone(),
        capacity_bytes: port.capacity_bytes,
        model: port.model.clone(),
    }
}

impl Service {
    pub(super) fn new(
        inputs: mpsc::UnboundedSender<Input>,
        ssds: Vec<Ssd>,
        absent: watch::Receiver<Absent>,
        patience: Duration,
    ) -> Self {
        Self { inputs, ssds: ssds.into(), absent, patience: patience + MARGIN }
    }

    /// An answer that says which SSDs are down.
    fn with_absent<T>(&self, answer: T) -> Response<T> {
        let mut response = Response::new(answer);
        for (ssd, why) in self.absent.borrow().iter() {
            let plain: String = why.chars().map(|c| if matches!(c, ' '..='~') { c } else { '?' }).collect();
            if let Ok(value) = format!("{ssd} {plain}").parse() {
                response.metadata_mut().append(SSD_DOWN, value);
            }
        }
        response
    }

    /// Has the core serve a request, if it is one.
    async fn ask(&self, call: &'static str, request: Result<Request, Failure>) -> Result<Reply, Status> {
        let asked = async {
            let (reply, answered) = oneshot::channel();
            let gone = || Status::unavailable("the daemon is stopping: connect again later");
            let request = request.map_err(status)?;
            self.inputs.send(Input::Request { request, reply }).map_err(|_| gone())?;
            match tokio::time::timeout(self.patience, answered).await {
                Ok(Ok(result)) => result.map_err(status),
                Ok(Err(_)) => Err(gone()),
                Err(_) => {
                    Err(Status::deadline_exceeded(format!("{call} got no answer within {:?}", self.patience)))
                }
            }
        };
        asked.instrument(tracing::info_span!("rpc", call)).await
    }
}

fn status(failure: Failure) -> Status {
    Status::new(Code::from_i32(failure.code as i32), failure.message)
}

/// The core answered another request than was asked: a bug, told to the client as such.
fn mismatch<T>(reply: &Reply) -> Result<T, Status> {
    tracing::error!(?reply, "the core's reply does not fit the call");
    Err(Status::internal("internal error: the daemon's reply does not fit the call"))
}

type Answered<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Volumes for Service {
    async fn create(&self, call: tonic::Request<CreateRequest>) -> Answered<Volume> {
        match self.ask("Create", create(call.into_inner())).await? {
            Reply::Volume(entry) => Ok(Response::new(volume(&entry))),
            other => mismatch(&other),
        }
    }

    async fn list(&self, _: tonic::Request<ListRequest>) -> Answered<ListResponse> {
        match self.ask("List", Ok(Request::List)).await? {
            Reply::Volumes(entries) => {
                Ok(self.with_absent(ListResponse { volumes: entries.iter().map(volume).collect() }))
            }
            other => mismatch(&other),
        }
    }

    async fn get(&self, call: tonic::Request<GetRequest>) -> Answered<Volume> {
        let request = VolumeName::new(&call.into_inner().name).map(|name| Request::Get { name });
        match self.ask("Get", request).await? {
            Reply::Volume(entry) => Ok(Response::new(volume(&entry))),
            other => mismatch(&other),
        }
    }

    async fn delete(&self, call: tonic::Request<DeleteRequest>) -> Answered<DeleteResponse> {
        match self.ask("Delete", delete(&call.into_inner())).await? {
            Reply::Done => Ok(Response::new(DeleteResponse {})),
            other => mismatch(&other),
        }
    }

    async fn open(&self, call: tonic::Request<OpenRequest>) -> Answered<OpenResponse> {
        match self.ask("Open", open(&call.into_inner())).await? {
            Reply::Opened { volume: entry, lease_ms } => {
                Ok(Response::new(OpenResponse { volume: Some(volume(&entry)), lease_ms }))
            }
            other => mismatch(&other),
        }
    }

    async fn renew(&self, call: tonic::Request<RenewRequest>) -> Answered<RenewResponse> {
        match self.ask("Renew", renew(&call.into_inner())).await? {
            Reply::Renewed { lease_ms } => Ok(Response::new(RenewResponse { lease_ms })),
            other => mismatch(&other),
        }
    }

    async fn release(&self, call: tonic::Request<ReleaseRequest>) -> Answered<ReleaseResponse> {
        match self.ask("Release", release(&call.into_inner())).await? {
            Reply::Done => Ok(Response::new(ReleaseResponse {})),
            other => mismatch(&other),
        }
    }

    async fn publish(&self, call: tonic::Request<PublishRequest>) -> Answered<Volume> {
        match self.ask("Publish", super::publish::publish(&call.into_inner())).await? {
            Reply::Volume(entry) => Ok(Response::new(volume(&entry))),
            other => mismatch(&other),
        }
    }
}

#[tonic::async_trait]
impl Fleet for Service {
    async fn register(&self, call: tonic::Request<RegisterRequest>) -> Answered<RegisterResponse> {
        match self.ask("Register", Ok(Request::Register)).await? {
            Reply::Client(client) => {
                tracing::info!(%client, name = ?call.into_inner().name, "a client registered");
                Ok(Response::new(RegisterResponse { client_id: u32::from(client.get()) }))
            }
            other => mismatch(&other),
        }
    }

    async fn get_map(&self, _: tonic::Request<GetMapRequest>) -> Answered<GetMapResponse> {
        match self.ask("GetMap", Ok(Request::GetMap)).await? {
            Reply::Map(map) => {
                Ok(self.with_absent(GetMapResponse { map: map.to_vec(), ssds: self.ssds.to_vec() }))
            }
            other => mismatch(&other),
        }
    }
}

fn create(message: CreateRequest) -> Result<Request, Failure> {
    Ok(Request::Create(Create {
        name: VolumeName::new(&message.name)?,
        capacity_blocks: request::capacity_blocks(message.capacity_bytes)?,
        replicas: request::replicas(message.replicas)?,
        chunk_shift: request::chunk_shift(message.chunk_bytes)?,
        client: request::client_id(message.client_id)?,
        labels: request::labels(message.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())))?,
        request_id: request::request_id(&message.request_id)?,
        limits: message.limits.as_ref().map(limits).unwrap_or_default(),
    }))
}

fn limits(message: &grpc::Limits) -> Limits {
    Limits { max_iops: message.max_iops, max_bytes_per_s: message.max_bytes_per_s }
}

fn delete(message: &DeleteRequest) -> Result<Request, Failure> {
    Ok(Request::Delete {
        name: VolumeName::new(&message.name)?,
        client: request::client_id(message.client_id)?,
        request_id: request::request_id(&message.request_id)?,
    })
}

fn open(message: &OpenRequest) -> Result<Request, Failure> {
    let rights = match grpc::Rights::try_from(message.rights) {
        Ok(grpc::Rights::Read) => Rights::Read,
        Ok(grpc::Rights::Write) => Rights::Write { lease_ms: request::lease_ms(message.lease_ms) },
        Ok(grpc::Rights::Unspecified) | Err(_) => {
            return Err(Failure::new(
                GrpcCode::InvalidArgument,
                format!(
                    "volume {:?} cannot be opened with rights {}: ask for read (1) or write (2)",
                    message.name, message.rights
                ),
            ));
        }
    };
    Ok(Request::Open {
        name: VolumeName::new(&message.name)?,
        client: request::client_id(message.client_id)?,
        rights,
    })
}

fn renew(message: &RenewRequest) -> Result<Request, Failure> {
    Ok(Request::Renew {
        name: VolumeName::new(&message.name)?,
        client: request::client_id(message.client_id)?,
        lease_epoch: message.lease_epoch,
        lease_ms: request::lease_ms(message.lease_ms),
    })
}

fn release(message: &ReleaseRequest) -> Result<Request, Failure> {
    Ok(Request::Release {
        name: VolumeName::new(&message.name)?,
        client: request::client_id(message.client_id)?,
    })
}

fn volume(entry: &VolumeEntry) -> Volume {
    let labels = entry.labels.lines().filter_map(|line| line.split_once('='));
    Volume {
        name: entry.name.clone(),
        vid: u32::from(entry.vid.get()),
        generation: entry.generation,
        capacity_bytes: entry.capacity_blocks << BLOCK_SHIFT,
        replicas: u32::from(entry.replicas),
        chunk_bytes: BLOCK_BYTES << entry.chunk_shift,
        factor: entry.factor,
        owner: u32::from(entry.owner.get()),
        readers: entry.readers.iter().map(|reader| u32::from(reader.get())).collect(),
        any_reader: entry.any_reader,
        writer: u32::from(entry.writer.map_or(0, ClientId::get)),
        lease_epoch: entry.lease_epoch,
        labels: labels.map(|(key, value)| (key.into(), value.into())).collect(),
        version: entry.version,
        limits: Some(grpc::Limits {
            max_iops: entry.limits.max_iops,
            max_bytes_per_s: entry.limits.max_bytes_per_s,
        }),
    }
}
