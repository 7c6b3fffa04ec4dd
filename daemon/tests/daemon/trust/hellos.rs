// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TLS handshakes of several hosts at the daemon's port. All of 127.0.0.0/8 is this machine, and each of its
//! addresses is another host.

use super::certificates::Ca;
use super::*;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

/// A daemon with TLS, and what its clients trust.
fn with_tls(ca: &Ca, config: DaemonConfig) -> (Daemon, Arc<ClientConfig>) {
    let access = Access { tls: Some(ca.server(None)), ..Access::default() };
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), DaemonConfig { access, ..config }).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.2.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut client = client.with_root_certificates(roots).with_no_client_auth();
    client.alpn_protocols = vec![b"h2".to_vec()];
    (daemon, Arc::new(client))
}

/// A connection from this address.
fn from(daemon: &Daemon, last: u8) -> TcpStream {
    let stream = run(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
        socket.connect(daemon.local_addr()).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

fn handshake(client: &Arc<ClientConfig>) -> ClientConnection {
    ClientConnection::new(Arc::clone(client), ServerName::try_from("localhost").unwrap()).unwrap()
}

/// The first message of a handshake.
fn hello(client: &Arc<ClientConfig>) -> Vec<u8> {
    let mut bytes = Vec::new();
    handshake(client).write_tls(&mut bytes).unwrap();
    bytes
}

/// Carries out the handshake.
fn greet(client: &Arc<ClientConfig>, stream: &mut TcpStream) {
    let mut tls = handshake(client);
    while tls.is_handshaking() {
        tls.complete_io(stream).expect("a handshake that succeeds");
    }
    // The server's first frame comes when a server has taken the connection.
    tls.writer().write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut answer = [0; 9];
    rustls::Stream::new(&mut tls, stream).read_exact(&mut answer).expect("an answer");
}

/// Whether the daemon has closed the connection. One on which nothing comes for a moment is there.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    match stream.read(&mut [0; 64]) {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

fn until_closed(stream: &mut TcpStream) {
    let begun = Instant::now();
    while !is_closed(stream) {
        assert!(begun.elapsed() < Duration::from_secs(20), "the connection ends");
    }
}

/// The daemon computes a key exchange and a signature for each hello of the flood. A client that came last
/// and waits for all of them takes as long as they do. With turns it takes a few steps. So one round decides,
/// and a round in which the machine stops the client is played again.
#[test]
fn a_host_with_hundreds_of_hellos_delays_a_caller_of_another_host_by_few_of_them() {
    const HELLOS: usize = 300;
    const ROUNDS: usize = 10;
    let _deadline = Deadline::after(LIMIT);
    let (ca, mut seen) = (Ca::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (daemon, client) = with_tls(&ca, config());
        let hello = hello(&client);
        let mut flood: Vec<_> = (0..HELLOS).map(|_| from(&daemon, 2)).collect();
        let mut caller = from(&daemon, 3);
        flood.iter_mut().for_each(|stream| stream.write_all(&hello).unwrap());
        let begun = Instant::now();
        greet(&client, &mut caller);
        let greeted = begun.elapsed();
        flood.iter_mut().for_each(|stream| stream.read_exact(&mut [0]).expect("an answer to the hello"));
        seen.push((greeted, begun.elapsed()));
        println!(
            "through after {greeted:.1?}, the flood's hellos are answered after {:.1?}",
            begun.elapsed()
        );
        if greeted * 3 < begun.elapsed() {
            return;
        }
    }
    panic!("a caller of another host waits for the flood's handshakes: {seen:?}");
}

#[test]
fn beyond_the_bound_of_handshakes_the_host_with_most_loses_its_oldest() {
    let _deadline = Deadline::after(LIMIT);
    let (daemon, client) = with_tls(&Ca::new(), DaemonConfig { max_handshakes: 6, ..config() });
    let (mut few, mut many) = (vec![from(&daemon, 3), from(&daemon, 3)], Vec::new());
    many.extend((0..4).map(|_| from(&daemon, 2)));
    // A caller of a third host, which the client's own bytes do not make oldest.
    greet(&client, &mut from(&daemon, 4));
    until_closed(&mut many[0]);
    assert!(many[1..].iter_mut().chain(&mut few).all(|stream| !is_closed(stream)));
    // That handshake has ended, so there is room for one. The next ones of the host make its own oldest go.
    many.extend((0..2).map(|_| from(&daemon, 2)));
    until_closed(&mut many[1]);
    assert!(many[2..].iter_mut().chain(&mut few).all(|stream| !is_closed(stream)));
    greet(&client, &mut few[0]);
}

#[test]
fn a_handshake_that_brings_a_byte_now_and_then_has_a_deadline() {
    let _deadline = Deadline::after(LIMIT);
    let soon = DaemonConfig { keep_alive: Duration::from_millis(200), ..config() };
    let (daemon, client) = with_tls(&Ca::new(), soon);
    let (hello, mut slow) = (hello(&client), from(&daemon, 2));
    slow.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let begun = Instant::now();
    // Each of these bytes would come in time if the deadline began anew with it.
    for &byte in &hello[..hello.len() - 1] {
        let is_over = slow.write_all(&[byte]).is_err() || matches!(slow.read(&mut [0; 64]), Ok(0));
        if is_over {
            assert!(begun.elapsed() >= Duration::from_millis(300), "it had its time: {:?}", begun.elapsed());
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(6), "the handshake goes on for ever");
    }
    panic!("the hello has only {} bytes", hello.len());
}
