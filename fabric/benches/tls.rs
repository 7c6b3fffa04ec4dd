// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures what TLS costs on the data port. It sends frames of one block over a TCP connection of this
//! machine, plain and with TLS in turn. Each end has a thread that is busy all the time.
//!
//! ```text
//!   cargo bench -p gnstor-fabric --bench tls [-- ROUNDS]     5 rounds by default; the median is printed
//! ```
//! It measures the stream alone, without SSDs. An array does more than that, so it loses a smaller part.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock and has a thread for each end")]

use gnstor_fabric::tcp::{Callers, ClientTls, Frame, MAX_DATA, Places, ServerTls, Wire};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Blocks sent in a round.
const BLOCKS: u32 = 20_000;
/// Blocks under way.
const WINDOW: u32 = 256;
/// Blocks that are acknowledged together.
const ACK: u32 = 64;
/// Number of commands with their responses, one after the other.
const PINGS: u32 = 5000;
const HANDSHAKES: u32 = 50;

struct Tls {
    array: ServerTls,
    client: ClientTls,
}

fn tls() -> Tls {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let (certificate, key) = (certificate.as_bytes(), key.as_bytes());
    let array = ServerTls::new(certificate, key, Callers::Known(certificate)).expect("good");
    Tls { array, client: ClientTls::new(certificate, Some((certificate, key))).expect("good") }
}

/// Both ends of a new connection.
fn pair(tls: Option<&Tls>) -> (Wire, Wire) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let near = TcpStream::connect(listener.local_addr().expect("it has one")).expect("it listens");
    let (far, from) = listener.accept().expect("a connection");
    let place = Places::new(1, 1).take(from.ip()).expect("a place");
    let mut array = Wire::accepted(far, tls.map(|tls| &tls.array), place).expect("a socket");
    let client = std::thread::scope(|scope| {
        let within = Duration::from_secs(10);
        let connect = move || Wire::client(near, tls.map(|tls| &tls.client), "127.0.0.1", within);
        let client = scope.spawn(connect);
        while !array.shake_hands() {
            std::thread::yield_now();
        }
        client.join().expect("no panic").expect("a good handshake")
    });
    (client, array)
}

fn next(wire: &mut Wire) -> Frame {
    loop {
        if let Some(frame) = wire.poll() {
            return frame;
        }
        assert_eq!(wire.dead(), None);
        std::thread::yield_now();
    }
}

/// GB/s of blocks from one end to the other.
fn throughput(tls: Option<&Tls>) -> f64 {
    let (mut client, mut array) = pair(tls);
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for tag in 1..=BLOCKS {
                let Frame::Done { .. } = next(&mut array) else { panic!("another frame") };
                if tag.is_multiple_of(ACK) || tag == BLOCKS {
                    array.send(&Frame::Ack { conn: 1, count: tag });
                    array.flush();
                }
            }
        });
        let (mut sent, mut taken) = (0, 0);
        while taken < BLOCKS {
            while sent < BLOCKS && sent < taken + WINDOW {
                client.send(&Frame::Done { conn: 1, tag: sent, status: 0, sum: 0, data: vec![7; MAX_DATA] });
                sent += 1;
                if sent.is_multiple_of(16) {
                    client.flush();
                }
            }
            client.flush();
            let Frame::Ack { count, .. } = next(&mut client) else { panic!("another frame") };
            taken = count;
        }
    });
    f64::from(BLOCKS) * MAX_DATA as f64 / start.elapsed().as_secs_f64() / 1e9
}

/// Microseconds from a command to its response.
fn round_trip(tls: Option<&Tls>) -> f64 {
    let (mut client, mut array) = pair(tls);
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..PINGS {
                let Frame::Send { conn, .. } = next(&mut array) else { panic!("another frame") };
                array.send(&Frame::Response { conn, cqe: [0; 16] });
                array.flush();
            }
        });
        for _ in 0..PINGS {
            client.send(&Frame::Send { conn: 1, capsule: [0; 64] });
            client.flush();
            next(&mut client);
        }
    });
    start.elapsed().as_secs_f64() * 1e6 / f64::from(PINGS)
}

/// Microseconds to a connection that both ends may use.
fn connecting(tls: Option<&Tls>) -> f64 {
    let start = Instant::now();
    for _ in 0..HANDSHAKES {
        drop(pair(tls));
    }
    start.elapsed().as_secs_f64() * 1e6 / f64::from(HANDSHAKES)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Measures plain streams, or streams with TLS.
type Measure = fn(Option<&Tls>) -> f64;

fn main() {
    let rounds = std::env::args().skip(1).find_map(|word| word.parse::<usize>().ok()).unwrap_or(5).max(1);
    let tls = tls();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load of the machine before: {}", load.trim());
    let measures: [(&str, Measure); 3] = [
        ("blocks of 4 KiB one way, GB/s", throughput),
        ("command and response, us", round_trip),
        ("connecting, both ends with certificates, us", connecting),
    ];
    for (what, measure) in measures {
        let (mut plain, mut by_tls) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            plain.push(measure(None));
            by_tls.push(measure(Some(&tls)));
        }
        let (plain, by_tls) = (median(plain), median(by_tls));
        println!("{what:44} plain {plain:9.3}   TLS {by_tls:9.3}   ratio {:.2}", by_tls / plain);
    }
}
