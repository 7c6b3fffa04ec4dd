// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client with the right to write a volume, by gRPC alone. Hostile clients use its name and its rights.

use gnstor_proto::grpc::fleet_client::FleetClient;
use gnstor_proto::grpc::volumes_client::VolumesClient;
use gnstor_proto::grpc::{CreateRequest, GetMapRequest, OpenRequest, RegisterRequest, RenewRequest, Rights};
use gnstor_proto::placement::{AnyMap, Rows as _};
use std::time::Duration;
use tonic::transport::Channel;

const VOLUME: &str = "w";
/// Blocks of the volume.
const BLOCKS: u64 = 256;
/// Time between two renewals of the lease, which holds for minutes.
const RENEWAL: Duration = Duration::from_secs(10);

/// The client. It keeps its lease until it is dropped.
pub(crate) struct Owner {
    /// What a hostile client must know to use its rights: the argument of `--as`.
    pub(crate) insider: String,
    _calls: tokio::runtime::Runtime,
}

impl Owner {
    /// Registers, creates a volume and opens it.
    pub(crate) fn at(daemon: &str) -> Self {
        let calls = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let calls = calls.expect("a thread starts");
        let endpoint = Channel::from_shared(format!("http://{daemon}")).expect("an address");
        let insider = calls.block_on(async { opened(endpoint.connect().await.expect("a connection")).await });
        Self { insider, _calls: calls }
    }
}

async fn opened(channel: Channel) -> String {
    let (mut fleet, mut volumes) = (FleetClient::new(channel.clone()), VolumesClient::new(channel));
    let registered = fleet.register(RegisterRequest { name: "hostile".into() }).await.expect("an id");
    let registered = registered.into_inner();
    let client_id = registered.client_id;
    let create = CreateRequest {
        name: VOLUME.into(),
        capacity_bytes: BLOCKS * 4096,
        replicas: 2,
        client_id,
        request_id: vec![1; 16],
        ..CreateRequest::default()
    };
    volumes.create(create).await.expect("a volume");
    let open = OpenRequest {
        name: VOLUME.into(),
        client_id,
        rights: Rights::Write.into(),
        ..OpenRequest::default()
    };
    let opened = volumes.open(open).await.expect("a lease").into_inner();
    let volume = opened.volume.expect("a volume");
    let map = fleet.get_map(GetMapRequest {}).await.expect("a map").into_inner().map;
    let epoch = AnyMap::decode(&map).expect("a map").wire_epoch();
    let renew = RenewRequest {
        name: VOLUME.into(),
        client_id,
        lease_epoch: volume.lease_epoch,
        ..RenewRequest::default()
    };
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(RENEWAL).await;
            // The array may end before this client.
            let _ = volumes.renew(renew.clone()).await;
        }
    });
    let proof = match registered.secret.as_str() {
        "" => String::new(),
        secret => format!(",{},{secret}", registered.serial),
    };
    format!("{client_id},{},{BLOCKS},{},{epoch}{proof}", volume.vid, volume.lease_epoch)
}
