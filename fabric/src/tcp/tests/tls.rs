// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TLS over real sockets: good and bad certificates, ends that speak something else, bytes that change.

use super::*;
use crate::tcp::{Callers, ClientTls, Places, ServerTls};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(20);

/// An authority, and its certificate.
struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key.
type Own = (String, String);

impl Ca {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn issue(&self, host: &str, last_year: i32) -> Own {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(last_year, 1, 1);
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    fn good(&self) -> Own {
        self.issue("127.0.0.1", 4000)
    }
}

fn server(own: &Own, callers: Callers<'_>) -> ServerTls {
    ServerTls::new(own.0.as_bytes(), own.1.as_bytes(), callers).unwrap()
}

fn client(ca: &Ca, own: Option<&Own>) -> ClientTls {
    let own = own.map(|(certificate, key)| (certificate.as_bytes(), key.as_bytes()));
    ClientTls::new(ca.pem.as_bytes(), own).unwrap()
}

fn streams() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// The array's end of a stream.
fn accept(stream: TcpStream, tls: &ServerTls) -> Wire {
    let place = Places::new(1, 1).take("127.0.0.1".parse().unwrap()).unwrap();
    Wire::accepted(stream, Some(tls), place).unwrap()
}

/// Both ends after the handshake: the client's as it ended for it.
fn shake(near: TcpStream, far: TcpStream, ends: (&ServerTls, &ClientTls)) -> (std::io::Result<Wire>, Wire) {
    let mut array = accept(far, ends.0);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| Wire::client(near, Some(ends.1), "127.0.0.1", WITHIN));
        while !array.shake_hands() {
            std::thread::yield_now();
        }
        (client.join().unwrap(), array)
    })
}

fn shaken(ends: (&ServerTls, &ClientTls)) -> (std::io::Result<Wire>, Wire) {
    let (near, far) = streams();
    shake(near, far, ends)
}

#[test]
fn frames_cross_tls_whole_and_in_order() {
    let _deadline = deadline();
    let ca = Ca::new("ca");
    let (own, anna) = (ca.good(), ca.good());
    let tls = (server(&own, Callers::Known(ca.pem.as_bytes())), client(&ca, Some(&anna)));
    let (client, mut array) = shaken((&tls.0, &tls.1));
    let mut client = client.expect("its certificate is good");
    // More than the sockets and the library buffer, so each end has to wait for the other.
    let frame = |tag: u32, conn| Frame::ToOwner {
        conn,
        tag,
        address: 1,
        key: 2,
        sum: None,
        data: vec![u8::try_from(tag % 251).unwrap(); MAX_DATA],
    };
    const COUNT: u32 = 1500;
    for tag in 0..COUNT {
        client.send(&frame(tag, 1));
        array.send(&frame(tag, 2));
    }
    let mut got = [0, 0];
    while got != [COUNT; 2] {
        for (end, wire) in [&mut client, &mut array].into_iter().enumerate() {
            if let Some(next) = wire.poll() {
                assert_eq!(next, frame(got[end], if end == 0 { 2 } else { 1 }));
                got[end] += 1;
            }
            assert_eq!(wire.dead(), None);
        }
    }
    assert!(client.rests() || client.poll().is_none());
}

#[test]
fn a_certificate_that_is_not_good_opens_nothing_and_the_client_is_told_why() {
    let _deadline = deadline();
    let (ca, other) = (Ca::new("ca"), Ca::new("other"));
    let (own, anna, stranger) = (ca.good(), ca.good(), other.good());
    let expired = ca.issue("127.0.0.1", 2001);
    let elsewhere = ca.issue("10.1.1.1", 4000);
    let known = Callers::Known(ca.pem.as_bytes());
    let or_silent = Callers::KnownOrSilent(ca.pem.as_bytes());
    // What it is, the array's side, the client's, and a word of what the client hears; none: it is let in.
    let cases = [
        ("all good", server(&own, known), client(&ca, Some(&anna)), None),
        (
            "the array's CA is not the client's",
            server(&own, known),
            client(&other, Some(&anna)),
            Some("UnknownIssuer"),
        ),
        ("the array's has expired", server(&expired, known), client(&ca, Some(&anna)), Some("xpired")),
        (
            "the array's is another host's",
            server(&elsewhere, known),
            client(&ca, Some(&anna)),
            Some("not valid for name"),
        ),
        ("the client has none", server(&own, known), client(&ca, None), Some("CertificateRequired")),
        ("the client's is of another CA", server(&own, known), client(&ca, Some(&stranger)), Some("alert")),
        (
            "the client's has expired",
            server(&own, known),
            client(&ca, Some(&expired)),
            Some("CertificateExpired"),
        ),
        ("none is asked", server(&own, Callers::Any), client(&ca, None), None),
        ("none is needed", server(&own, or_silent), client(&ca, None), None),
        (
            "none is needed, a bad one is refused",
            server(&own, or_silent),
            client(&ca, Some(&stranger)),
            Some("alert"),
        ),
    ];
    for (what, array, client, word) in &cases {
        let (client, array) = shaken((array, client));
        match (word, client) {
            (None, Ok(_)) => assert_eq!(array.dead(), None, "{what}"),
            (Some(word), Err(error)) => {
                assert!(error.to_string().contains(word), "{what}: {error}");
                assert_eq!(error.kind(), ErrorKind::InvalidData, "{what}");
                assert!(array.dead().is_some(), "{what}");
            }
            (_, other) => panic!("{what}: {other:?}"),
        }
    }
    for (certificate, key) in [("", own.1.as_str()), (&own.0, ""), (&own.0, &anna.1), ("x", "y")] {
        assert!(ServerTls::new(certificate.as_bytes(), key.as_bytes(), Callers::Any).is_err());
    }
    assert!(ClientTls::new(b"no certificate", None).unwrap_err().contains("no certificate"));
}

#[test]
fn an_end_that_does_not_speak_tls_is_named_and_ended() {
    let _deadline = deadline();
    let ca = Ca::new("ca");
    let own = ca.good();
    let (near, far) = streams();
    let (mut plain, mut array) = (Wire::new(near).unwrap(), accept(far, &server(&own, Callers::Any)));
    plain.send(&Frame::Close { conn: 1 });
    while plain.dead().is_none() {
        plain.poll();
        array.shake_hands();
    }
    assert_eq!(plain.dead(), Some("the peer speaks TLS, and this end does not"));
    assert!(array.dead().is_some_and(|why| why.contains("TLS")), "{:?}", array.dead());
    // The same in the other direction.
    let (near, far) = streams();
    let tls = client(&ca, None);
    let mut array = Wire::new(far).unwrap();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| Wire::client(near, Some(&tls), "127.0.0.1", WITHIN));
        while array.dead().is_none() {
            assert_eq!(array.poll(), None);
        }
        assert_eq!(array.dead(), Some("the peer speaks TLS, and this end does not"));
        drop(array);
        let error = client.join().unwrap().unwrap_err();
        assert!(
            error.to_string().contains("does it speak TLS?") || error.kind() == ErrorKind::ConnectionReset
        );
    });
    // An array that says nothing: the client's wait ends.
    let (near, far) = streams();
    let error = Wire::client(near, Some(&tls), "127.0.0.1", Duration::from_millis(200)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    drop(far);
}

/// A wire between both ends: records of the client pass through `bend`, which may end the stream.
fn between(from: TcpStream, into: TcpStream, mut bend: impl FnMut(usize, &mut Vec<u8>) -> bool) {
    let (mut from, mut into) = (from, into);
    let mut head = [0; 5];
    for number in 0.. {
        if from.read_exact(&mut head).is_err() {
            return;
        }
        let mut record = head.to_vec();
        record.resize(5 + (usize::from(head[3]) << 8 | usize::from(head[4])), 0);
        if from.read_exact(&mut record[5..]).is_err() {
            return;
        }
        let goes_on = bend(number, &mut record);
        if into.write_all(&record).is_err() || !goes_on {
            let _ = into.shutdown(std::net::Shutdown::Write);
            return;
        }
    }
}

/// The frames of a client that the array accepts, and how its stream ends. `bend` changes records on the way.
fn received(bend: impl FnMut(usize, &mut Vec<u8>) -> bool + Send) -> (Vec<Frame>, String) {
    let ca = Ca::new("ca");
    let own = ca.good();
    let tls = (server(&own, Callers::Any), client(&ca, None));
    let ((near, middle_in), (middle_out, far)) = (streams(), streams());
    let (back_in, back_out) = (middle_out.try_clone().unwrap(), middle_in.try_clone().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| between(middle_in, middle_out, bend));
        scope.spawn(|| between(back_in, back_out, |_, _| true));
        let (client, mut array) = shake(near, far, (&tls.0, &tls.1));
        let mut client = client.unwrap();
        let mut got = Vec::new();
        for conn in 1..=8 {
            client.send(&Frame::Done { conn, tag: 1, status: 0, sum: 0, data: vec![7; MAX_DATA] });
            client.flush();
            for _ in 0..200_000 {
                let Some(frame) = array.poll() else { continue };
                got.push(frame);
                break;
            }
        }
        while array.dead().is_none() {
            got.extend(array.poll());
        }
        let why = array.dead().unwrap().to_owned();
        drop((client, array));
        (got, why)
    })
}

/// Records of the client in the handshake: hello, a change of cipher that says nothing, finished.
const HANDSHAKE: usize = 3;

#[test]
fn a_record_that_changes_on_the_way_ends_the_stream_and_nothing_of_it_is_taken() {
    let _deadline = deadline();
    for at in [5, 6, 2000, 4000] {
        let (got, why) = received(move |number, record| {
            if number == HANDSHAKE + 2 {
                let at = at.min(record.len() - 1);
                record[at] ^= 0x10;
            }
            true
        });
        assert!(why.contains("TLS"), "{why}");
        assert!(got.len() <= 2, "{} frames were taken", got.len());
        assert!(
            got.iter().all(|frame| matches!(frame, Frame::Done { data, .. } if data[..] == [7; MAX_DATA]))
        );
    }
}

#[test]
fn a_record_that_is_cut_or_repeated_brings_nothing() {
    let _deadline = deadline();
    let (got, why) = received(|number, record| {
        record.truncate(if number == HANDSHAKE + 2 { 1000 } else { record.len() });
        number != HANDSHAKE + 2
    });
    assert!(got.len() <= 2 && why.contains("closed the stream"), "{}: {why}", got.len());
    let mut last = Vec::new();
    let (got, why) = received(move |number, record| {
        if number == HANDSHAKE + 2 {
            record.extend_from_slice(&last);
        }
        last.clone_from(record);
        true
    });
    assert!(got.len() <= 3 && why.contains("TLS"), "{}: {why}", got.len());
}

/// The first message of a client, byte by byte (RFC 8446, 4.1.2): our TLS library offers no version but 1.3.
#[expect(clippy::big_endian_bytes, reason = "lengths of TLS are big-endian")]
fn hello(versions: Option<&[u8]>) -> Vec<u8> {
    let extension = |kind: u8, body: &[u8]| {
        let length = u8::try_from(body.len()).unwrap();
        [&[0, kind, 0, length], body].concat()
    };
    // The groups x25519 and secp256r1; signatures by ECDSA with P-256.
    let mut extensions = extension(10, &[0, 4, 0, 0x1d, 0, 0x17]);
    extensions.extend(extension(13, &[0, 2, 4, 3]));
    if let Some(versions) = versions {
        let list = [&[u8::try_from(versions.len()).unwrap()], versions].concat();
        extensions.extend(extension(43, &list));
        // No key share yet, so the array asks for one.
        extensions.extend(extension(51, &[0, 0]));
    }
    // Version 1.2 in the old field, random bytes, no session, three ciphers, no compression.
    let ciphers = [0, 6, 0x13, 1, 0xc0, 0x2b, 0xc0, 0x2f];
    let fixed = [&[3, 3][..], &[7; 32], &[0], &ciphers, &[1, 0]].concat();
    let length = u16::try_from(extensions.len()).unwrap().to_be_bytes();
    let body = [fixed, length.to_vec(), extensions].concat();
    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
    let message = [&[1, 0][..], &length, &body].concat();
    let length = u16::try_from(message.len()).unwrap().to_be_bytes();
    [&[0x16, 3, 1][..], &length, &message].concat()
}

#[test]
fn a_client_that_offers_no_tls_1_3_is_refused_and_told_why() {
    let _deadline = deadline();
    const ALERT: u8 = 0x15;
    const SERVER_HELLO: u8 = 0x16;
    const FATAL_PROTOCOL_VERSION: [u8; 2] = [2, 70];
    let ca = Ca::new("ca");
    let tls = server(&ca.good(), Callers::Any);
    let (old, oldest, new) = ([3, 3], [3, 2, 3, 1], [3, 4]);
    for (versions, is_taken) in
        [(None, false), (Some(&old[..]), false), (Some(&oldest), false), (Some(&new), true)]
    {
        let (mut near, far) = streams();
        let mut array = accept(far, &tls);
        near.write_all(&hello(versions)).unwrap();
        let mut head = [0; 7];
        // If the array refuses, it answers at once. If it goes on, its first bytes are an answer, too.
        near.set_nonblocking(true).unwrap();
        while near.peek(&mut head).unwrap_or(0) < head.len() {
            array.shake_hands();
        }
        near.read_exact(&mut head).unwrap();
        assert_eq!(head[0], if is_taken { SERVER_HELLO } else { ALERT }, "{versions:?}: {head:?}");
        assert_eq!(array.dead().is_none(), is_taken, "{versions:?}: {:?}", array.dead());
        assert!(is_taken || head[5..] == FATAL_PROTOCOL_VERSION, "{versions:?}: {head:?}");
    }
}
