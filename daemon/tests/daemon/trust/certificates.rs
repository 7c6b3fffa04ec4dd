// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Certificates and tokens as proof, and addresses that are served without any.

use super::*;
use gnstor_auth::Secret;
use gnstor_daemon::{DaemonError, Tls};
use gnstor_proto::fabrics::{Host, Identity as HostIdentity};
use gnstor_proto::slba::ClientId;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

/// A CA, and PEM of certificates that it issued.
pub(super) struct Ca(rcgen::CertificateParams, rcgen::KeyPair, pub(super) String);

impl Ca {
    pub(super) fn new() -> Self {
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

    pub(super) fn server(&self, clients: Option<&Self>) -> Tls {
        let (certificate, key) = self.issue("daemon");
        Tls {
            certificate: certificate.into(),
            key: key.into(),
            client_ca: clients.map(|ca| ca.2.clone().into()),
        }
    }

    fn endpoint(&self, daemon: &Daemon, identity: Option<(String, String)>) -> Endpoint {
        self.endpoint_at(daemon.local_addr(), identity)
    }

    fn endpoint_at(&self, address: SocketAddr, identity: Option<(String, String)>) -> Endpoint {
        let tls =
            ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.2)).domain_name("localhost");
        let tls = match identity {
            Some((certificate, key)) => tls.identity(Identity::from_pem(certificate, key)),
            None => tls,
        };
        Channel::from_shared(format!("https://{address}")).unwrap().tls_config(tls).unwrap()
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

/// A daemon that is not the array's: it has no manager key, and no certificate of the CA.
#[test]
fn a_rogue_daemon_takes_calls_of_a_client_that_names_no_ca_and_of_no_other() {
    let _deadline = Deadline::after(LIMIT);
    let (ca, foreign) = (Ca::new(), Ca::new());
    for tls in [None, Some(foreign.server(None))] {
        let is_plain = tls.is_none();
        let access = Access { tls, ..Access::default() };
        let rogue = Daemon::start(ANY, SimArray::new(2).ports(), DaemonConfig { access, ..config() });
        let rogue = rogue.unwrap();
        run(async {
            let names_the_ca = ca.endpoint(&rogue, Some(ca.issue("anna"))).connect().await;
            assert!(names_the_ca.is_err(), "a client that names the CA talks to the array's daemon only");
            if is_plain {
                let mut names_none = Client::connect(&rogue, Some("anna")).await;
                let id = names_none.register().await.expect("the rogue daemon takes its calls");
                names_none.create("v", id).await.unwrap();
            }
        });
    }
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
fn a_key_of_tls_that_other_users_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let _deadline = Deadline::after(LIMIT);
    let (certificate, key) = Ca::new().issue("daemon");
    let write = |text: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    };
    let (certificate, key) = (write(&certificate), write(&key));
    assert!(Tls::read(certificate.path(), key.path(), None).is_ok());
    for mode in [0o640, 0o604, 0o620, 0o644] {
        std::fs::set_permissions(key.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        let why = Tls::read(certificate.path(), key.path(), None).unwrap_err();
        assert!(why.contains("chmod 600"), "{mode:o}: {why}");
    }
}

/// A certificate is not revoked by itself: its CA is.
#[test]
fn a_restart_with_another_ca_ends_every_access() {
    let _deadline = Deadline::after(LIMIT);
    let (server, old, new) = (Ca::new(), Ca::new(), Ca::new());
    let array = SimArray::new(2);
    let identity = old.issue("anna");
    for (ca, is_served) in [(&old, true), (&new, false)] {
        let access = Access { tls: Some(server.server(Some(ca))), ..Access::default() };
        let daemon = Daemon::start(ANY, array.ports(), DaemonConfig { access, ..config() }).unwrap();
        run(async {
            let registers = async |identity| match server.endpoint(&daemon, Some(identity)).connect().await {
                Ok(channel) => Client::over(channel, None).register().await.is_ok(),
                Err(_) => false,
            };
            assert_eq!(registers(identity.clone()).await, is_served);
            assert!(registers(ca.issue("anna")).await, "one of the CA of now");
        });
        daemon.stop().unwrap();
    }
}

/// An address that leads one connection to the daemon; whatever the daemon sends is written down.
async fn wire(daemon: SocketAddr, heard: Arc<Mutex<Vec<u8>>>) -> SocketAddr {
    let listener = TcpListener::bind(ANY).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_daemon, mut to_daemon) = TcpStream::connect(daemon).await.unwrap().into_split();
        tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_daemon).await });
        let mut buffer = [0; 4096];
        while let Ok(bytes @ 1..) = from_daemon.read(&mut buffer).await {
            heard.lock().unwrap().extend_from_slice(&buffer[..bytes]);
            if to_client.write_all(&buffer[..bytes]).await.is_err() {
                break;
            }
        }
    });
    address
}

#[test]
fn the_secret_that_register_gives_is_heard_on_the_wire_without_tls() {
    let _deadline = Deadline::after(LIMIT);
    let ca = Ca::new();
    let key = Secret::new([0x5A; 32]);
    for tls in [None, Some(ca.server(None))] {
        let is_plain = tls.is_none();
        let access = Access { tls, ..with_tokens().access };
        let config = DaemonConfig { manager_key: Some(key.clone()), access, ..config() };
        let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config).unwrap();
        let heard = Arc::<Mutex<Vec<u8>>>::default();
        run(async {
            let address = wire(daemon.local_addr(), Arc::clone(&heard)).await;
            let endpoint = if is_plain {
                Channel::from_shared(format!("http://{address}")).unwrap()
            } else {
                ca.endpoint_at(address, None)
            };
            let mut anna = Client::over(endpoint.connect().await.unwrap(), Some("anna"));
            let register = anna.sign(RegisterRequest { name: "x".into() });
            let given = anna.fleet.register(register).await.unwrap().into_inner();
            // With it the client proves its name to each SSD.
            let id = u16::try_from(given.client_id).ok().and_then(ClientId::new).unwrap();
            let host = Host { serial: given.serial, ..Host::from(HostIdentity::Client(id)) };
            assert_eq!(given.secret, *key.of_host(&host.nqn()).to_text());
            let heard = heard.lock().unwrap();
            let is_heard = heard.windows(given.secret.len()).any(|bytes| bytes == given.secret.as_bytes());
            assert_eq!(is_heard, is_plain);
        });
    }
}

/// The first bytes that the daemon answers to a hello of TLS 1.2, without extensions.
async fn answer_to_a_hello_of_tls_1_2(address: SocketAddr) -> Vec<u8> {
    // TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 and no compression.
    let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0xC0, 0x2F, 1, 0]].concat();
    let length = u8::try_from(body.len()).unwrap();
    let record = [&[22, 3, 1, 0, length + 4, 1, 0, 0, length][..], &body].concat();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&record).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    answer
}

#[test]
fn the_daemon_answers_a_hello_of_tls_1_2_by_an_alert_only() {
    let _deadline = Deadline::after(LIMIT);
    let ca = Ca::new();
    let access = Access { tls: Some(ca.server(None)), ..with_tokens().access };
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), DaemonConfig { access, ..config() }).unwrap();
    run(async {
        let answer = answer_to_a_hello_of_tls_1_2(daemon.local_addr()).await;
        // A fatal alert, of two bytes, is all.
        assert_eq!((answer[0], &answer[3..6], answer.len()), (21, &[0, 2, 2][..], 7), "{answer:?}");
        let mut anna = Client::over(ca.endpoint(&daemon, None).connect().await.unwrap(), Some("anna"));
        let register = anna.sign(RegisterRequest { name: "x".into() });
        anna.fleet.register(register).await.expect("TLS 1.3 is spoken");
    });
}
