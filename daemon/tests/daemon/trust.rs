// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What callers may do, over real connections: owners and strangers, certificates and tokens, quotas,
//! deadlines, bytes that are no messages, silence.
#![expect(clippy::disallowed_methods, reason = "deadlines of calls are measured")]

#[path = "../../testing/raw_codec.rs"]
mod raw_codec;

use crate::array::SimArray;
use crate::deadline::{Deadline, LIMIT};
use gnstor_daemon::core::{CoreConfig, Quotas};
use gnstor_daemon::{Access, Daemon, DaemonConfig, DaemonError, Tls, Tokens};
use gnstor_proto::grpc::fleet_client::FleetClient;
use gnstor_proto::grpc::volumes_client::VolumesClient;
use gnstor_proto::grpc::{
    CreateRequest, DeleteRequest, GetMapRequest, GetRequest, KeepRequest, ListRequest, OpenRequest,
    RegisterRequest, ReleaseRequest, RenewRequest, RevokeRequest, Right, Rights, ShareRequest,
};
pub(crate) use raw_codec::Bytes;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
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
        let reply = self.volumes.list(self.sign(ListRequest {})).await.unwrap().into_inner();
        reply.volumes.into_iter().map(|volume| volume.name).collect()
    }

    async fn open(&mut self, name: &str, client_id: u32, rights: Rights) -> Result<(), Status> {
        let wish = OpenRequest { name: name.into(), client_id, rights: rights.into(), lease_ms: 0 };
        self.volumes.open(self.sign(wish)).await.map(drop)
    }

    async fn renew(&mut self, name: &str, client_id: u32) -> Result<(), Status> {
        let wish = RenewRequest { name: name.into(), client_id, lease_epoch: 1, lease_ms: 0 };
        self.volumes.renew(self.sign(wish)).await.map(drop)
    }

    async fn release(&mut self, name: &str, client_id: u32) -> Result<(), Status> {
        self.volumes.release(self.sign(ReleaseRequest { name: name.into(), client_id })).await.map(drop)
    }

    async fn delete(&mut self, name: &str, client_id: u32) -> Result<(), Status> {
        let wish = DeleteRequest { name: name.into(), client_id, request_id: Vec::new() };
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
fn a_call_without_proof_is_refused_whatever_it_asks() {
    let _deadline = Deadline::after(LIMIT);
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), with_tokens()).unwrap();
    run(async {
        for name in [None, Some("carl")] {
            let mut c = Client::connect(&daemon, name).await;
            refused(c.register().await, Code::Unauthenticated, "");
            refused(c.create("a", 1).await, Code::Unauthenticated, "");
            refused(c.get("a").await, Code::Unauthenticated, "");
            refused(c.open("a", 1, Rights::Read).await, Code::Unauthenticated, "");
            refused(c.renew("a", 1).await, Code::Unauthenticated, "");
            refused(c.release("a", 1).await, Code::Unauthenticated, "");
            refused(c.delete("a", 1).await, Code::Unauthenticated, "");
            refused(c.share("a", "x", Right::Read).await, Code::Unauthenticated, "");
            refused(c.revoke("a", "x").await, Code::Unauthenticated, "");
            let list = c.sign(ListRequest {});
            refused(c.volumes.list(list).await, Code::Unauthenticated, "");
            let map = c.sign(GetMapRequest {});
            refused(c.fleet.get_map(map).await, Code::Unauthenticated, "");
            let keep = c.sign(KeepRequest { client_id: 1 });
            refused(c.fleet.keep(keep).await, Code::Unauthenticated, "");
        }
    });
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

/// A CA, and PEM of certificates that it issued.
struct Ca(rcgen::CertificateParams, rcgen::KeyPair, String);

impl Ca {
    fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self(params, key, pem)
    }

    fn issue(&self, name: &str) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let issuer = rcgen::Issuer::from_params(&self.0, &self.1);
        (params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
    }

    fn server(&self, clients: Option<&Self>) -> Tls {
        let (certificate, key) = self.issue("daemon");
        Tls {
            certificate: certificate.into(),
            key: key.into(),
            client_ca: clients.map(|ca| ca.2.clone().into()),
        }
    }

    fn endpoint(&self, daemon: &Daemon, identity: Option<(String, String)>) -> Endpoint {
        let tls =
            ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.2)).domain_name("localhost");
        let tls = match identity {
            Some((certificate, key)) => tls.identity(Identity::from_pem(certificate, key)),
            None => tls,
        };
        let url = format!("https://{}", daemon.local_addr());
        Channel::from_shared(url).unwrap().tls_config(tls).unwrap()
    }
}

#[test]
fn a_certificate_of_the_ca_is_the_proof_and_no_other_is() {
    let _deadline = Deadline::after(LIMIT);
    let (ca, foreign) = (Ca::new(), Ca::new());
    let access = Access { tls: Some(ca.server(Some(&ca))), ..Access::default() };
    let open = SocketAddr::from(([0, 0, 0, 0], 0));
    let daemon = Daemon::start(open, SimArray::new(2).ports(), DaemonConfig { access, ..config() }).unwrap();
    run(async {
        let connect = async |identity| ca.endpoint(&daemon, identity).connect().await;
        let mut anna = Client::over(connect(Some(ca.issue("anna"))).await.unwrap(), None);
        let mut ben = Client::over(connect(Some(ca.issue("ben"))).await.unwrap(), None);
        let (a, b) = (anna.register().await.unwrap(), ben.register().await.unwrap());
        anna.create("v", a).await.unwrap();
        assert_eq!(anna.get("v").await.unwrap().labels["gnstor.owner"], "anna");
        refused(ben.open("v", b, Rights::Read).await, Code::PermissionDenied, "\"ben\" has no read right");
        for identity in [None, Some(foreign.issue("anna"))] {
            let fails = match connect(identity).await {
                Ok(channel) => Client::over(channel, None).register().await.is_err(),
                Err(_) => true,
            };
            assert!(fails, "a certificate of the CA is needed");
        }
        let stranger = foreign.endpoint(&daemon, None).connect().await;
        assert!(stranger.is_err(), "a client that trusts another CA does not talk to this daemon");
        let plain = Channel::from_shared(format!("http://{}", daemon.local_addr())).unwrap().connect().await;
        let plain = match plain {
            Ok(channel) => Client::over(channel, None).register().await.is_err(),
            Err(_) => true,
        };
        assert!(plain, "without TLS there is no answer");
    });
}

#[test]
fn with_a_ca_and_tokens_either_is_proof_and_they_must_agree() {
    let _deadline = Deadline::after(LIMIT);
    let ca = Ca::new();
    let access = Access { tls: Some(ca.server(Some(&ca))), ..with_tokens().access };
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), DaemonConfig { access, ..config() }).unwrap();
    run(async {
        let channel = async |identity| ca.endpoint(&daemon, identity).connect().await.unwrap();
        Client::over(channel(None).await, Some("anna")).register().await.unwrap();
        Client::over(channel(Some(ca.issue("anna"))).await, None).register().await.unwrap();
        Client::over(channel(Some(ca.issue("anna"))).await, Some("anna")).register().await.unwrap();
        let mixed = Client::over(channel(Some(ca.issue("ben"))).await, Some("anna")).register().await;
        refused(mixed, Code::Unauthenticated, "different principals");
        refused(Client::over(channel(None).await, None).register().await, Code::Unauthenticated, "prove");
    });
}

#[test]
fn an_address_that_others_reach_is_not_served_without_tls_and_proof() {
    let _deadline = Deadline::after(LIMIT);
    let open = SocketAddr::from(([0, 0, 0, 0], 0));
    let start = |access| Daemon::start(open, SimArray::new(2).ports(), DaemonConfig { access, ..config() });
    let ca = Ca::new();
    for (access, word) in [
        (Access::default(), "without TLS"),
        (with_tokens().access, "without TLS"),
        (Access { tls: Some(ca.server(None)), ..Access::default() }, "without proof"),
    ] {
        let error = start(access).unwrap_err();
        assert!(matches!(&error, DaemonError::Exposed(why) if why.contains(word)), "{error}");
    }
    start(Access { insecure: true, ..Access::default() }).unwrap();
    let broken = Tls { certificate: b"none".to_vec(), ..ca.server(None) };
    let error = start(Access { tls: Some(broken), insecure: true, ..Access::default() }).unwrap_err();
    assert!(matches!(error, DaemonError::Tls(_)), "{error}");
}

#[test]
fn ids_are_bounded_for_a_connection_and_come_back_with_it() {
    let _deadline = Deadline::after(LIMIT);
    let quotas =
        Quotas { connection_ids: 8, principal_ids: 12, idle_ms: 100, open_ms: 300, ..Quotas::default() };
    let array = SimArray::new(2);
    let mut config = with_tokens();
    config.core.quotas = quotas;
    let daemon = Daemon::start(ANY, array.ports(), config).unwrap();
    run(async {
        let mut anna = Client::connect(&daemon, Some("anna")).await;
        let a = anna.register().await.unwrap();
        anna.create("v", a).await.unwrap();
        anna.share("v", "ben", Right::Write).await.unwrap();

        let mut greedy = Client::connect(&daemon, Some("ben")).await;
        let mut ids = Vec::new();
        for _ in 0..8 {
            ids.push(greedy.register().await.unwrap());
        }
        refused(greedy.register().await, Code::ResourceExhausted, "this connection");
        let mut second = Client::connect(&daemon, Some("ben")).await;
        for _ in 0..4 {
            second.register().await.unwrap();
        }
        refused(second.register().await, Code::ResourceExhausted, "one principal");
        anna.register().await.expect("another principal has its own");

        greedy.open("v", ids[0], Rights::Read).await.unwrap();
        greedy.open("v", ids[1], Rights::Write).await.unwrap();
        assert_eq!(anna.get("v").await.unwrap().readers, [ids[0]]);
        drop(greedy);
        // What a killed client had open ends with its ids.
        loop {
            let volume = anna.get("v").await.unwrap();
            if (volume.readers.len(), volume.writer) == (0, 0) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for _ in 0..4 {
            second.register().await.expect("the ids came back");
        }
        drop(second);
        let mut third = Client::connect(&daemon, Some("ben")).await;
        for _ in 0..8 {
            third.register().await.expect("ids that wait give way");
        }
    });
}

#[test]
fn a_call_on_another_connection_keeps_an_id() {
    let _deadline = Deadline::after(LIMIT);
    let mut config = with_tokens();
    config.core.quotas = Quotas { idle_ms: 400, open_ms: 400, ..Quotas::default() };
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config).unwrap();
    run(async {
        let mut first = Client::connect(&daemon, Some("anna")).await;
        let a = first.register().await.unwrap();
        first.create("v", a).await.unwrap();
        first.open("v", a, Rights::Read).await.unwrap();
        drop(first);
        let mut second = Client::connect(&daemon, Some("anna")).await;
        let keep = second.sign(KeepRequest { client_id: a });
        second.fleet.keep(keep).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        assert_eq!(second.get("v").await.unwrap().readers, [a]);
    });
}

#[test]
fn register_calls_by_the_ten_thousand_keep_no_client_out() {
    let _deadline = Deadline::after(LIMIT);
    let mut config = config();
    config.core.quotas.connection_ids = 1 << 16;
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config).unwrap();
    run(async {
        let greedy = Client::connect(&daemon, None).await;
        let calls: Vec<_> = (0..8)
            .map(|_| {
                let mut greedy = greedy.clone();
                tokio::spawn(async move { while greedy.register().await.is_ok() {} })
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
        let mut honest = Client::connect(&daemon, None).await;
        refused(honest.register().await, Code::ResourceExhausted, "65,534");
        drop(greedy);
        while honest.register().await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn opens_are_bounded_for_a_principal() {
    let _deadline = Deadline::after(LIMIT);
    let mut config = with_tokens();
    config.core.quotas = Quotas { principal_opens: 2, ..Quotas::default() };
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config).unwrap();
    run(async {
        let mut anna = Client::connect(&daemon, Some("anna")).await;
        let a = anna.register().await.unwrap();
        for name in ["u", "v", "w"] {
            anna.create(name, a).await.unwrap();
        }
        anna.open("u", a, Rights::Read).await.unwrap();
        anna.open("v", a, Rights::Write).await.unwrap();
        refused(anna.open("w", a, Rights::Read).await, Code::ResourceExhausted, "2 volumes open");
        anna.release("u", a).await.unwrap();
        anna.open("w", a, Rights::Read).await.unwrap();
    });
}

/// Sends the bytes of a message as they are.
async fn raw(daemon: &Daemon, path: &'static str, message: Vec<u8>) -> Status {
    let endpoint = Channel::from_shared(format!("http://{}", daemon.local_addr())).unwrap();
    let mut grpc = tonic::client::Grpc::new(endpoint.connect().await.unwrap());
    grpc.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static(path);
    grpc.unary(Request::new(message), path, Bytes).await.expect_err("a refusal")
}

#[test]
fn bytes_that_are_no_message_are_an_invalid_argument() {
    let _deadline = Deadline::after(LIMIT);
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config()).unwrap();
    run(async {
        for path in ["/gnstor.v1.Volumes/Create", "/gnstor.v1.Volumes/Open", "/gnstor.v1.Fleet/Register"] {
            // A wire type that there is none of, a length beyond the end, text that is no UTF-8.
            for bytes in [vec![0x0F], vec![0x0A, 0xFF, 0x01, 0x41], vec![0x0A, 0x02, 0xC3, 0x28]] {
                let status = raw(&daemon, path, bytes).await;
                assert_eq!(status.code(), Code::InvalidArgument, "{path}: {status:?}");
                assert!(status.message().contains("not a message of its call"), "{status:?}");
            }
        }
        let status = raw(&daemon, "/gnstor.v1.Volumes/Create", vec![0; 65 << 10]).await;
        assert_eq!(status.code(), Code::OutOfRange, "a message that is too long: {status:?}");
    });
}

/// A call as HTTP/2: tonic's client would end a call itself at the deadline that it sends.
async fn timed(daemon: &Daemon, path: &str, timeout: &str, message: &impl prost::Message) -> (i32, String) {
    let stream = tokio::net::TcpStream::connect(daemon.local_addr()).await.unwrap();
    let (h2, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://daemon{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", timeout)
        .body(())
        .unwrap();
    let (response, mut body) = h2.ready().await.unwrap().send_request(request, false).unwrap();
    let length = u32::try_from(message.encoded_len()).unwrap();
    let mut frame = vec![0];
    bytes::BufMut::put_u32(&mut frame, length);
    message.encode(&mut frame).unwrap();
    body.send_data(frame.into(), true).unwrap();
    let mut response = response.await.unwrap();
    let headers = response.headers().clone();
    while let Some(data) = response.body_mut().data().await {
        let bytes = data.unwrap().len();
        response.body_mut().flow_control().release_capacity(bytes).unwrap();
    }
    let trailers = response.body_mut().trailers().await.unwrap().unwrap_or(headers);
    let told = Status::from_header_map(&trailers).expect("a status");
    (told.code().into(), told.message().to_owned())
}

#[test]
fn deadlines_of_calls_are_honoured_below_a_millisecond_too() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let daemon = Daemon::start(ANY, array.ports(), config()).unwrap();
    let (late, well, wrong) =
        (i32::from(Code::DeadlineExceeded), i32::from(Code::Ok), i32::from(Code::InvalidArgument));
    run(async {
        let list = "/gnstor.v1.Volumes/List";
        for short in ["0n", "1n", "900n", "1u"] {
            let (code, told) = timed(&daemon, list, short, &ListRequest {}).await;
            assert!(code == late && told.contains("deadline"), "{short}: {code} {told}");
        }
        assert_eq!(timed(&daemon, list, "30S", &ListRequest {}).await.0, well);
        let (code, told) = timed(&daemon, list, "soon", &ListRequest {}).await;
        assert!(code == wrong && told.contains("grpc-timeout"), "{code} {told}");

        array.ssd(1).faults.push_back(crate::array::Fault::Delay(Duration::from_millis(2_000)));
        let wish =
            CreateRequest { name: "v".into(), capacity_bytes: 4096, client_id: 1, ..Default::default() };
        let begun = Instant::now();
        let (code, told) = timed(&daemon, "/gnstor.v1.Volumes/Create", "50m", &wish).await;
        assert!(code == late && begun.elapsed() < Duration::from_millis(1_500), "{code} {told}");
    });
}

/// Reads until the other side closes; the time that took.
fn until_closed(daemon: &Daemon, greeting: &[u8]) -> Duration {
    let mut stream = std::net::TcpStream::connect(daemon.local_addr()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(greeting).unwrap();
    let begun = Instant::now();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return begun.elapsed(),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return begun.elapsed(),
            Err(error) => panic!("not closed within 20 s: {error}"),
        }
    }
}

#[test]
fn silent_connections_end_and_live_ones_stay() {
    let _deadline = Deadline::after(LIMIT);
    let config = DaemonConfig { keep_alive: Duration::from_millis(200), ..config() };
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config).unwrap();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    for greeting in [&b""[..], &preface[..10], preface, &[&preface[..], &settings].concat()] {
        let took = until_closed(&daemon, greeting);
        assert!(took < Duration::from_secs(5), "{} bytes: {took:?}", greeting.len());
    }
    run(async {
        let mut idle = Client::connect(&daemon, None).await;
        let a = idle.register().await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let mut second = Client::connect(&daemon, None).await;
        assert_ne!(second.register().await.unwrap(), a);
        idle.create("v", a).await.expect("a connection that answers pings stays");
    });
}

#[test]
fn connections_are_bounded_and_a_place_is_free_again() {
    let _deadline = Deadline::after(LIMIT);
    let config = DaemonConfig { max_connections: 3, ..config() };
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config).unwrap();
    run(async {
        let mut held = Vec::new();
        for _ in 0..3 {
            let mut client = Client::connect(&daemon, None).await;
            client.register().await.unwrap();
            held.push(client);
        }
        let late = async {
            let mut client = Client::connect(&daemon, None).await;
            client.register().await.unwrap()
        };
        tokio::pin!(late);
        let early = tokio::time::timeout(Duration::from_millis(300), &mut late).await;
        assert!(early.is_err(), "the fourth connection waits");
        held.pop();
        late.await;
    });
}
