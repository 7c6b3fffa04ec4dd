// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Certificates and tokens as proof, and addresses that are served without any.

use super::*;
use gnstor_daemon::{DaemonError, Tls};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

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
