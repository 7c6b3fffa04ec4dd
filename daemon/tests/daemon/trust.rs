// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What callers may do, over real connections: owners and strangers. Below are the proof that each call asks
//! for, certificates and quotas. Then there are connections that send what is no message, or nothing. Rights
//! of several principals are also tested on a core alone, in `rights`.
#![expect(clippy::disallowed_methods, reason = "deadlines of calls are measured")]

pub(crate) mod calls;
mod certificates;
mod client_proof;
mod connections;
mod ends;
mod health;
mod hellos;
mod hoard;
mod hosts;
mod inherited;
mod quotas;
#[path = "../../testing/raw_codec.rs"]
mod raw_codec;
mod replaced;
mod rights;
mod shares;

use crate::array::SimArray;
use crate::deadline::{Deadline, LIMIT};
use gnstor_daemon::core::{CoreConfig, Quotas};
use gnstor_daemon::{Access, Daemon, DaemonConfig, Tokens};
use gnstor_proto::grpc::fleet_client::FleetClient;
use gnstor_proto::grpc::volumes_client::VolumesClient;
use gnstor_proto::grpc::{
    CreateRequest, DeleteRequest, GetMapRequest, GetRequest, KeepRequest, ListRequest, OpenRequest,
    RegisterRequest, ReleaseRequest, RenewRequest, RevokeRequest, Right, Rights, ShareRequest,
};
pub(crate) use raw_codec::Bytes;
pub(crate) use rights::Party;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const TOKENS: &str = "anna anna-anna-anna-anna\nben ben-ben-ben-ben-ben\nroot root-root-root-root\n";

fn config() -> DaemonConfig {
    let core = CoreConfig { groups: 256, drift_ms: 50, retry_ms: 20, sweep_ms: 1, ..CoreConfig::default() };
    DaemonConfig { core, start_timeout: Duration::from_secs(5), ..DaemonConfig::default() }
}

/// A daemon that knows anna, ben and root by their tokens; root is its admin.
fn with_tokens() -> DaemonConfig {
    let tokens = Some(Tokens::parse(TOKENS).unwrap());
    DaemonConfig { access: Access { tokens, admins: vec!["root".into()], ..Access::default() }, ..config() }
}

fn run<T>(calls: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime
        .block_on(async { tokio::time::timeout(Duration::from_secs(60), calls).await.expect("within 60 s") })
}

/// A connection of one caller.
#[derive(Clone)]
struct Client {
    volumes: VolumesClient<Channel>,
    fleet: FleetClient<Channel>,
    name: Option<&'static str>,
}

impl Client {
    async fn connect(daemon: &Daemon, name: Option<&'static str>) -> Self {
        let endpoint = Channel::from_shared(format!("http://{}", daemon.local_addr())).unwrap();
        Self::over(endpoint.connect().await.unwrap(), name)
    }

    fn over(channel: Channel, name: Option<&'static str>) -> Self {
        Self { volumes: VolumesClient::new(channel.clone()), fleet: FleetClient::new(channel), name }
    }

    fn sign<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        if let Some(name) = self.name {
            let token: MetadataValue<_> = format!("Bearer {name}-{name}-{name}-{name}")
                .replace("ben-ben-ben-ben", "ben-ben-ben-ben-ben")
                .parse()
                .unwrap();
            request.metadata_mut().insert("authorization", token);
        }
        request
    }

    async fn register(&mut self) -> Result<u32, Status> {
        let request = self.sign(RegisterRequest { name: "x".into() });
        self.fleet.register(request).await.map(|reply| reply.into_inner().client_id)
    }

    async fn create(&mut self, name: &str, client_id: u32) -> Result<(), Status> {
        let wish =
            CreateRequest { name: name.into(), capacity_bytes: 1 << 20, client_id, ..Default::default() };
        self.volumes.create(self.sign(wish)).await.map(drop)
    }

    async fn get(&mut self, name: &str) -> Result<gnstor_proto::grpc::Volume, Status> {
        self.volumes.get(self.sign(GetRequest { name: name.into() })).await.map(Response::into_inner)
    }

    async fn list(&mut self) -> Vec<String> {
        let reply = self.volumes.list(self.sign(ListRequest::default())).await.unwrap().into_inner();
        reply.volumes.into_iter().map(|volume| volume.name).collect()
    }

    async fn open(&mut self, name: &str, client_id: u32, rights: Rights) -> Result<(), Status> {
        let wish = OpenRequest {
            name: name.into(),
            client_id,
            rights: rights.into(),
            lease_ms: 0,
            follows_drains: false,
        };
        self.volumes.open(self.sign(wish)).await.map(drop)
    }

    async fn renew(&mut self, name: &str, client_id: u32) -> Result<(), Status> {
        let wish = RenewRequest {
            name: name.into(),
            client_id,
            lease_epoch: 1,
            lease_ms: 0,
            reaches: None,
            in_doubt: false,
            follows_drains: false,
        };
        self.volumes.renew(self.sign(wish)).await.map(drop)
    }

    async fn release(&mut self, name: &str, client_id: u32) -> Result<(), Status> {
        self.volumes
            .release(self.sign(ReleaseRequest { name: name.into(), client_id, ..Default::default() }))
            .await
            .map(drop)
    }

    async fn delete(&mut self, name: &str, client_id: u32) -> Result<(), Status> {
        let wish = DeleteRequest {
            name: name.into(),
            client_id,
            request_id: Vec::new(),
            force: false,
            ..Default::default()
        };
        self.volumes.delete(self.sign(wish)).await.map(drop)
    }

    async fn share(&mut self, name: &str, principal: &str, right: Right) -> Result<(), Status> {
        let wish = ShareRequest { name: name.into(), principal: principal.into(), right: right.into() };
        self.volumes.share(self.sign(wish)).await.map(drop)
    }

    async fn revoke(&mut self, name: &str, principal: &str) -> Result<(), Status> {
        let wish = RevokeRequest { name: name.into(), principal: principal.into() };
        self.volumes.revoke(self.sign(wish)).await.map(drop)
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Status>, code: Code, word: &str) {
    let status = result.expect_err("a refusal");
    assert_eq!(status.code(), code, "{status:?}");
    assert!(status.message().contains(word), "{word:?} is not in {:?}", status.message());
}

#[test]
fn a_stranger_cannot_see_open_release_share_or_delete_a_volume() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let daemon = Daemon::start(ANY, array.ports(), with_tokens()).unwrap();
    run(async {
        let mut anna = Client::connect(&daemon, Some("anna")).await;
        let mut ben = Client::connect(&daemon, Some("ben")).await;
        let mut root = Client::connect(&daemon, Some("root")).await;
        let (a, b, r) =
            (anna.register().await.unwrap(), ben.register().await.unwrap(), root.register().await.unwrap());
        anna.create("v", a).await.unwrap();
        anna.open("v", a, Rights::Write).await.unwrap();
        anna.open("v", a, Rights::Read).await.unwrap();

        refused(ben.get("v").await, Code::PermissionDenied, "no read right");
        assert_eq!((ben.list().await, anna.list().await), (vec![], vec!["v".to_owned()]));
        refused(ben.open("v", b, Rights::Read).await, Code::PermissionDenied, "no read right");
        refused(ben.open("v", b, Rights::Write).await, Code::PermissionDenied, "no write right");
        refused(ben.renew("v", b).await, Code::PermissionDenied, "no write right");
        refused(ben.share("v", "ben", Right::Admin).await, Code::PermissionDenied, "no admin right");
        refused(ben.revoke("v", "anna").await, Code::PermissionDenied, "no admin right");
        refused(ben.delete("v", b).await, Code::PermissionDenied, "no admin right");
        // The id of another is of no use, in any call that names one.
        refused(ben.create("w", a).await, Code::PermissionDenied, "not one of \"ben\"");
        refused(ben.release("v", a).await, Code::PermissionDenied, "not one of \"ben\"");
        let keep = ben.sign(KeepRequest { client_id: a });
        refused(ben.fleet.keep(keep).await, Code::PermissionDenied, "not one of \"ben\"");
        refused(root.release("v", a).await, Code::PermissionDenied, "not one of \"root\"");
        let held = anna.get("v").await.unwrap();
        assert_eq!((held.writer, held.readers, held.labels["gnstor.owner"].as_str()), (a, vec![a], "anna"));

        anna.share("v", "ben", Right::Read).await.unwrap();
        ben.open("v", b, Rights::Read).await.unwrap();
        refused(ben.open("v", b, Rights::Write).await, Code::PermissionDenied, "no write right");
        refused(ben.open("v", a, Rights::Read).await, Code::PermissionDenied, "not one of \"ben\"");
        anna.release("v", a).await.unwrap();
        anna.share("v", "ben", Right::Write).await.unwrap();
        ben.open("v", b, Rights::Write).await.unwrap();
        refused(ben.delete("v", b).await, Code::PermissionDenied, "no admin right");
        anna.revoke("v", "ben").await.unwrap();
        let held = anna.get("v").await.unwrap();
        assert_eq!((held.writer, held.readers), (0, vec![]), "what ben had open has ended");
        refused(ben.get("v").await, Code::PermissionDenied, "no read right");
        ben.release("v", b).await.unwrap();

        root.open("v", r, Rights::Read).await.unwrap();
        root.delete("v", r).await.unwrap();
        assert!(array.agreed().is_empty());
    });
}

#[test]
fn labels_cannot_claim_an_owner_and_names_cannot_break_a_list() {
    let _deadline = Deadline::after(LIMIT);
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), with_tokens()).unwrap();
    run(async {
        let mut ben = Client::connect(&daemon, Some("ben")).await;
        let b = ben.register().await.unwrap();
        for key in ["gnstor.owner", "gnstor.owner.admin"] {
            let labels = [(key.to_owned(), "anna".to_owned())].into();
            let wish = CreateRequest {
                name: "v".into(),
                capacity_bytes: 4096,
                client_id: b,
                labels,
                ..Default::default()
            };
            refused(ben.volumes.create(ben.sign(wish)).await, Code::InvalidArgument, "the daemon's own");
        }
        ben.create("v", b).await.unwrap();
        for bad in ["", "a,root", "a\ngnstor.owner=root", "a=b"] {
            refused(ben.share("v", bad, Right::Admin).await, Code::InvalidArgument, "principal");
        }
        refused(ben.share("v", "anna", Right::Unspecified).await, Code::InvalidArgument, "right 0");
        refused(ben.share("w", "anna", Right::Read).await, Code::NotFound, "\"w\"");
    });
}

#[test]
fn only_creators_create() {
    let _deadline = Deadline::after(LIMIT);
    let mut config = with_tokens();
    config.access.creators = Some(vec!["anna".into()]);
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config).unwrap();
    run(async {
        let mut anna = Client::connect(&daemon, Some("anna")).await;
        let mut ben = Client::connect(&daemon, Some("ben")).await;
        let (a, b) = (anna.register().await.unwrap(), ben.register().await.unwrap());
        anna.create("v", a).await.unwrap();
        refused(ben.create("w", b).await, Code::PermissionDenied, "may not create");
    });
}

#[test]
fn rights_and_opens_outlive_the_daemon() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let first = Daemon::start(ANY, array.ports(), with_tokens()).unwrap();
    let a = run(async {
        let mut anna = Client::connect(&first, Some("anna")).await;
        let a = anna.register().await.unwrap();
        anna.create("v", a).await.unwrap();
        anna.open("v", a, Rights::Write).await.unwrap();
        a
    });
    first.stop().unwrap();
    let second = Daemon::start(ANY, array.ports(), with_tokens()).unwrap();
    run(async {
        let mut anna = Client::connect(&second, Some("anna")).await;
        let mut ben = Client::connect(&second, Some("ben")).await;
        refused(ben.renew("v", a).await, Code::PermissionDenied, "no write right");
        refused(ben.release("v", a).await, Code::PermissionDenied, "no write right");
        anna.share("v", "ben", Right::Read).await.unwrap();
        refused(ben.release("v", a).await, Code::PermissionDenied, "no write right");
        anna.renew("v", a).await.unwrap();
        assert_ne!(ben.register().await.unwrap(), a);
        anna.release("v", a).await.unwrap();
        assert_eq!(anna.get("v").await.unwrap().writer, 0);
    });
}

#[test]
fn what_dead_clients_had_open_ends_after_a_restart_too_and_live_ones_keep_theirs() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let first = Daemon::start(ANY, array.ports(), with_tokens()).unwrap();
    let (dead, live) = run(async {
        let mut anna = Client::connect(&first, Some("anna")).await;
        let (dead, live) = (anna.register().await.unwrap(), anna.register().await.unwrap());
        anna.create("v", live).await.unwrap();
        anna.open("v", dead, Rights::Read).await.unwrap();
        anna.open("v", live, Rights::Read).await.unwrap();
        (dead, live)
    });
    first.stop().unwrap();
    let mut config = with_tokens();
    config.core.quotas = Quotas { idle_ms: 300, open_ms: 600, ..Quotas::default() };
    let second = Daemon::start(ANY, array.ports(), config).unwrap();
    run(async {
        let mut anna = Client::connect(&second, Some("anna")).await;
        let mut ben = Client::connect(&second, Some("ben")).await;
        let keep = ben.sign(KeepRequest { client_id: live });
        refused(ben.fleet.keep(keep).await, Code::PermissionDenied, "client id");
        let keep = anna.sign(KeepRequest { client_id: live });
        anna.fleet.keep(keep).await.unwrap();
        assert!(anna.get("v").await.unwrap().readers.contains(&dead), "it may come back yet");
        while anna.get("v").await.unwrap().readers.contains(&dead) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        assert_eq!(anna.get("v").await.unwrap().readers, [live]);
    });
    assert_eq!(array.agreed()[0].readers.len(), 1, "on every SSD");
}
