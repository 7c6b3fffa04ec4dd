// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hosts that hold connections to the daemon and prove nothing.

use super::*;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

/// A connection from a host. All of 127.0.0.0/8 is this machine, so another of its addresses is another host.
fn from(daemon: &Daemon, last: u8) -> TcpStream {
    let stream = run(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
        socket.connect(daemon.local_addr()).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    stream
}

/// Whether the daemon greets the caller.
fn stays(stream: &mut TcpStream) -> bool {
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").is_ok()
        && stream.read(&mut [0; 9]).is_ok_and(|bytes| bytes > 0)
}

/// Whether the daemon has ended the connection.
fn is_over(stream: &mut TcpStream) -> bool {
    loop {
        match stream.read(&mut [0; 64]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

fn ends(stream: &mut TcpStream) {
    let begun = Instant::now();
    while !is_over(stream) {
        assert!(begun.elapsed() < Duration::from_secs(20), "the oldest one ends");
    }
}

/// Otherwise connections that prove nothing and answer pings keep every client out.
#[test]
fn one_host_leaves_connections_to_others() {
    let _deadline = Deadline::after(LIMIT);
    let config = DaemonConfig { max_connections: 5, max_host_connections: 3, ..config() };
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config).unwrap();
    let mut held: Vec<_> = (0..3).map(|_| from(&daemon, 2)).collect();
    assert!(held.iter_mut().all(stays));
    assert!(stays(&mut from(&daemon, 3)), "another host finds a place");
    // The host has its part, so one of its own gives way: the oldest.
    assert!(stays(&mut from(&daemon, 2)));
    ends(&mut held[0]);
    assert!(!is_over(&mut held[1]) && !is_over(&mut held[2]));
}

/// An attacker with two addresses.
#[test]
fn if_two_hosts_have_all_connections_the_one_with_most_loses_its_oldest_to_a_third() {
    let _deadline = Deadline::after(LIMIT);
    let config = DaemonConfig { max_connections: 5, max_host_connections: 4, ..config() };
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config).unwrap();
    let mut held: Vec<_> = [2, 2, 2, 3, 3].map(|last| from(&daemon, last)).into();
    assert!(held.iter_mut().all(stays));
    let mut third = from(&daemon, 4);
    assert!(stays(&mut third), "a third host is served");
    ends(&mut held[0]);
    assert!(held[1..].iter_mut().all(|stream| !is_over(stream)) && !is_over(&mut third));
}
