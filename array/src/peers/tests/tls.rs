// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SSDs that ask each other by TLS. With certificates of one CA they give each other leases. If one end
//! speaks no TLS, or has no certificate of that CA, no vote crosses the wire.

use super::*;
use gnstor_fabric::tcp::Callers;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// A certificate and its key.
type Own = (String, String);

struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Ca {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn issue(&self) -> Own {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
        (params.signed_by(&key, &self.issuer).expect("a certificate").pem(), key.serialize_pem())
    }

    /// Asks for a certificate of this CA.
    fn server(&self) -> Option<ServerTls> {
        let (certificate, key) = self.issue();
        let callers = Callers::Known(self.pem.as_bytes());
        Some(ServerTls::new(certificate.as_bytes(), key.as_bytes(), callers).expect("TLS"))
    }

    /// Trusts this CA, and shows this certificate.
    fn client(&self, own: Option<&Own>) -> Option<ClientTls> {
        let own = own.map(|(certificate, key)| (certificate.as_bytes(), key.as_bytes()));
        Some(ClientTls::new(self.pem.as_bytes(), own).expect("TLS"))
    }

    /// The TLS settings of `gnstor ssd --tls CERT KEY --client-ca CA`.
    fn both(&self) -> BothTls {
        BothTls { server: self.server(), client: self.client(Some(&self.issue())) }
    }
}

#[test]
fn ssds_give_each_other_leases_by_tls_and_come_back_after_a_stop() {
    let _deadline = deadline();
    leases_end_and_come_back(&Ca::new().both());
}

/// SSD 0 asks SSD 1 for votes. The third voter is away, so a lease needs both of them.
fn gets_a_lease(asking: BothTls, asked: BothTls, within: Duration) -> bool {
    let plans = in_memory(2, &preset("null").expect("a preset"), 4 << 20);
    let key = Secret::random();
    let start = |ssd: usize, tls| Shelf::with_tls(&plans[ssd..=ssd], Some(&key), Some("127.0.0.1:0"), tls);
    let shelves = [start(0, asking), start(1, asked)];
    let map = voted(&[shelves[0].address(), shelves[1].address(), "127.0.0.1:1".into()]);
    (0u16..2).zip(&shelves).for_each(|(ssd, shelf)| shelf.set_map(ssd, &map));
    let mut reader = shelves[0].reader(0);
    let begun = Instant::now();
    while begun.elapsed() < within {
        if reader.serves(&map) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

#[test]
fn no_vote_crosses_a_wire_without_tls_or_without_a_certificate_of_the_ca() {
    let _deadline = deadline();
    let (ca, other) = (Ca::new(), Ca::new());
    assert!(gets_a_lease(ca.both(), ca.both(), PATIENCE), "with good certificates it gets its lease");
    let only = |client| BothTls { server: ca.server(), client };
    let cases = [
        ("the asked one speaks no TLS", ca.both(), BothTls::default()),
        ("the asking one speaks no TLS", only(None), ca.both()),
        ("the asking one has no certificate", only(ca.client(None)), ca.both()),
        ("the asking one has another CA's certificate", only(ca.client(Some(&other.issue()))), ca.both()),
        ("the asked one has another CA's certificate", ca.both(), other.both()),
    ];
    std::thread::scope(|scope| {
        for (case, asking, asked) in cases {
            scope.spawn(move || assert!(!gets_a_lease(asking, asked, 4 * LEASE), "{case}"));
        }
    });
}
