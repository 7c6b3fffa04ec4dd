// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mutated protobuf requests of every call, over real connections. Each gets a status that says what is wrong
//! with the request, and never one that says that the daemon is broken. A correct client beside them works.

use crate::array::SimArray;
use crate::deadline::{Deadline, LIMIT};
use crate::trust::calls::every_call;
use gnstor_daemon::core::{CoreConfig, MapFormat};
use gnstor_daemon::{Daemon, DaemonConfig};
use gnstor_hostile::mutate::{bent, file_of, inputs, seeds};
use gnstor_hostile::random::Random;
use gnstor_proto::grpc::*;
use prost::Message as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Requests; the first byte of each is the place of its call in [`CALLS`].
const CORPUS: &[u8] = include_bytes!("../../../tests/hostile/corpus/grpc.bin");
const CALLS: [&str; 28] = [
    "/gnstor.v1.Volumes/Create",
    "/gnstor.v1.Volumes/List",
    "/gnstor.v1.Volumes/Get",
    "/gnstor.v1.Volumes/Delete",
    "/gnstor.v1.Volumes/Open",
    "/gnstor.v1.Volumes/Renew",
    "/gnstor.v1.Volumes/Release",
    "/gnstor.v1.Volumes/Share",
    "/gnstor.v1.Volumes/Revoke",
    "/gnstor.v1.Volumes/Publish",
    "/gnstor.v1.Fleet/Register",
    "/gnstor.v1.Fleet/Keep",
    "/gnstor.v1.Fleet/GetMap",
    "/gnstor.v1.Fleet/Show",
    WATCH,
    "/gnstor.v1.Fleet/Resume",
    "/gnstor.v1.Fleet/Fail",
    "/gnstor.v1.Fleet/Remove",
    "/gnstor.v1.Fleet/Replace",
    "/gnstor.v1.Fleet/Repair",
    "/gnstor.v1.Fleet/Drain",
    "/gnstor.v1.Fleet/Add",
    "/gnstor.v1.Fleet/Salvage",
    "/gnstor.v1.Volumes/Rename",
    "/gnstor.v1.Volumes/Label",
    "/gnstor.v1.Volumes/ListLeases",
    "/gnstor.v1.Volumes/RevokeLease",
    "/gnstor.v1.Volumes/Resize",
];
/// The call whose answer is a stream.
const WATCH: &str = "/gnstor.v1.Fleet/WatchMap";
/// Those of [`CALLS`] that an operator makes.
const FLEET: std::ops::Range<usize> = 13..23;

/// Correct requests of a client with id 1.
fn good() -> Vec<Vec<u8>> {
    let (name, principal, client_id) = ("fuzz".to_owned(), "anna".to_owned(), 1);
    let create = CreateRequest {
        name: name.clone(),
        capacity_bytes: 1 << 20,
        replicas: 2,
        chunk_bytes: 1 << 16,
        client_id,
        labels: [("kind".to_owned(), "text".to_owned())].into(),
        request_id: vec![7; 16],
        ..Default::default()
    };
    let open =
        OpenRequest { name: name.clone(), client_id, rights: Rights::Write.into(), ..Default::default() };
    let publish = PublishRequest {
        vid: 1,
        generation: 1,
        client_id,
        name: name.clone(),
        replace: true,
        ..Default::default()
    };
    let share = ShareRequest { name: name.clone(), principal: principal.clone(), right: Right::Read.into() };
    let bodies = [
        create.encode_to_vec(),
        ListRequest::default().encode_to_vec(),
        GetRequest { name: name.clone() }.encode_to_vec(),
        DeleteRequest {
            name: name.clone(),
            client_id,
            request_id: vec![8; 16],
            force: false,
            vid: 1,
            generation: 1,
        }
        .encode_to_vec(),
        open.encode_to_vec(),
        RenewRequest {
            name: name.clone(),
            client_id,
            lease_epoch: 1,
            lease_ms: 1000,
            reaches: None,
            in_doubt: false,
            follows_drains: false,
        }
        .encode_to_vec(),
        ReleaseRequest { name: name.clone(), client_id, ..Default::default() }.encode_to_vec(),
        share.encode_to_vec(),
        RevokeRequest { name: name.clone(), principal }.encode_to_vec(),
        publish.encode_to_vec(),
        RegisterRequest { name: "someone".into() }.encode_to_vec(),
    ];
    (0u8..)
        .zip(bodies.into_iter().chain(good_orders(client_id, name)))
        .map(|(call, body)| [&[call][..], &body].concat())
        .collect()
}

/// The requests from the call `Keep` on.
fn good_orders(client_id: u32, name: String) -> Vec<Vec<u8>> {
    vec![
        KeepRequest { client_id }.encode_to_vec(),
        GetMapRequest {}.encode_to_vec(),
        ShowRequest {}.encode_to_vec(),
        WatchMapRequest { after_epoch: 0 }.encode_to_vec(),
        ResumeRequest { ssd: 1, lose_data: false }.encode_to_vec(),
        FailRequest { ssd: 1, lose_data: true }.encode_to_vec(),
        RemoveRequest { ssd: 1 }.encode_to_vec(),
        ReplaceRequest { ssd: 1, lose_data: false }.encode_to_vec(),
        RepairRequest { order: RepairOrder::Share.into(), share_percent: 50 }.encode_to_vec(),
        DrainRequest { ssd: 1 }.encode_to_vec(),
        AddRequest { address: "127.0.0.1:9".into(), node: Some(1), rack: 2, weight: 1, ..Default::default() }
            .encode_to_vec(),
        SalvageRequest::default().encode_to_vec(),
        RenameRequest { name: name.clone(), new_name: "other".into(), request_id: vec![9; 16] }
            .encode_to_vec(),
        LabelRequest {
            name: name.clone(),
            set: [("kind".to_owned(), "sound".to_owned())].into(),
            remove: vec!["owner".into()],
        }
        .encode_to_vec(),
        ListLeasesRequest { name: name.clone(), page_size: 2, page_token: String::new() }.encode_to_vec(),
        RevokeLeaseRequest { name: name.clone(), client_id }.encode_to_vec(),
        ResizeRequest { name, capacity_bytes: 1 << 20 }.encode_to_vec(),
    ]
}

/// `GNSTOR_WRITE_CORPUS=1` writes the file anew.
#[test]
fn the_corpus_has_a_request_of_every_call() {
    let _deadline = Deadline::after(LIMIT);
    let good = good();
    if std::env::var_os("GNSTOR_WRITE_CORPUS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/hostile/corpus/grpc.bin");
        std::fs::write(path, file_of(&good)).expect("it can be written");
    }
    // The order of a map's entries is not fixed, but there is only one entry.
    assert_eq!(inputs(CORPUS), good);
    let (mut known, mut all) = (CALLS.map(str::to_owned).to_vec(), every_call());
    known.sort();
    all.sort();
    assert_eq!(known, all, "the calls of the corpus, and those of the proto file");
}

async fn call(channel: &Channel, path: &str, body: Vec<u8>) -> Result<(), Status> {
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.expect("the daemon is there");
    let mut request = Request::new(body);
    request.set_timeout(Duration::from_secs(20));
    let is_stream = path == WATCH;
    let path = http::uri::PathAndQuery::try_from(path).expect("a path");
    if !is_stream {
        return grpc.unary(request, path, crate::trust::Bytes).await.map(|_| ());
    }
    let mut maps = grpc.server_streaming(request, path, crate::trust::Bytes).await?.into_inner();
    // A stream with the newest map gets nothing for some seconds.
    let first = tokio::time::timeout(Duration::from_millis(20), maps.message()).await;
    first.unwrap_or(Ok(None)).map(|_| ())
}

/// Whether the status blames the request.
fn is_the_callers(status: &Status) -> bool {
    !matches!(
        status.code(),
        Code::Unknown
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
            | Code::Unimplemented
            | Code::DeadlineExceeded
            | Code::Cancelled
    )
}

#[test]
fn a_bent_request_is_refused_or_done_and_others_are_served() {
    let _deadline = Deadline::after(LIMIT);
    let corpus = inputs(CORPUS);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let core = CoreConfig { groups: 256, drift_ms: 50, retry_ms: 20, sweep_ms: 1, ..CoreConfig::default() };
    let config = DaemonConfig { core, start_timeout: Duration::from_secs(5), ..DaemonConfig::default() };
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config).unwrap();
    let endpoint = Channel::from_shared(format!("http://{}", daemon.local_addr())).unwrap();
    let channel = runtime.block_on(endpoint.connect()).unwrap();
    let mut taken = 0;
    let count = seeds(600, |seed| {
        let mut random = Random::new(seed);
        let input = match random.below(4) {
            0 => corpus[random.below(corpus.len())].clone(),
            _ => bent(&mut random, &corpus),
        };
        let Some((&first, body)) = input.split_first() else { return };
        let path = CALLS[usize::from(first) % CALLS.len()];
        match runtime.block_on(call(&channel, path, body.to_vec())) {
            Ok(()) => taken += 1,
            Err(status) => assert!(is_the_callers(&status), "seed {seed}, {path}: {status:?}"),
        }
        if seed.is_multiple_of(200) {
            runtime.block_on(honest(&daemon, seed));
        }
    });
    assert!(taken > count / 20, "{taken} of {count} requests were done");
    runtime.block_on(honest(&daemon, u64::MAX));
}

/// Orders to the fleet change it where the map names voters. What they leave shows itself.
#[test]
fn a_bent_order_to_a_fleet_with_voters_is_refused_or_done_and_the_fleet_answers() {
    let _deadline = Deadline::after(LIMIT);
    let corpus: Vec<_> = inputs(CORPUS).into_iter().filter(|i| FLEET.contains(&usize::from(i[0]))).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let timing = CoreConfig { groups: 256, drift_ms: 50, retry_ms: 20, sweep_ms: 1, ..CoreConfig::default() };
    let core = CoreConfig { map_format: MapFormat::Three, ..timing };
    let config = DaemonConfig { core, start_timeout: Duration::from_secs(5), ..DaemonConfig::default() };
    let daemon = Daemon::start(ANY, SimArray::new(4).lasting_ports(), config).unwrap();
    let endpoint = Channel::from_shared(format!("http://{}", daemon.local_addr())).unwrap();
    let channel = runtime.block_on(endpoint.connect()).unwrap();
    let mut taken = 0;
    let count = seeds(200, |seed| {
        let mut random = Random::new(seed);
        let input = match random.below(2) {
            0 => corpus[random.below(corpus.len())].clone(),
            _ => bent(&mut random, &corpus),
        };
        let Some((&first, body)) = input.split_first() else { return };
        let path = CALLS[FLEET.start + usize::from(first).abs_diff(FLEET.start) % FLEET.len()];
        match runtime.block_on(call(&channel, path, body.to_vec())) {
            Ok(()) => taken += 1,
            // No SSD that answers is left to order.
            Err(status) if status.code() == Code::Unavailable => {}
            Err(status) => assert!(is_the_callers(&status), "seed {seed}, {path}: {status:?}"),
        }
    });
    assert!(taken > count / 20, "{taken} of {count} orders were done");
    let shown = runtime.block_on(fleet_client::FleetClient::new(channel).show(ShowRequest {})).unwrap();
    assert_eq!(shown.into_inner().ssds.len(), 4);
}

/// A client that keeps the rules creates, opens and deletes.
async fn honest(daemon: &Daemon, seed: u64) {
    let endpoint = Channel::from_shared(format!("http://{}", daemon.local_addr())).unwrap();
    let channel = endpoint.connect().await.unwrap();
    let mut fleet = fleet_client::FleetClient::new(channel.clone());
    let mut volumes = volumes_client::VolumesClient::new(channel);
    let id = fleet.register(RegisterRequest { name: "honest".into() }).await.unwrap().into_inner().client_id;
    let name = format!("honest-{seed}");
    let wish =
        CreateRequest { name: name.clone(), capacity_bytes: 1 << 20, client_id: id, ..Default::default() };
    volumes.create(wish).await.unwrap();
    let open =
        OpenRequest { name: name.clone(), client_id: id, rights: Rights::Write.into(), ..Default::default() };
    volumes.open(open).await.unwrap();
    volumes
        .release(ReleaseRequest { name: name.clone(), client_id: id, ..Default::default() })
        .await
        .unwrap();
    let delete =
        DeleteRequest { name, client_id: id, request_id: Vec::new(), force: false, ..Default::default() };
    volumes.delete(delete).await.unwrap();
}
