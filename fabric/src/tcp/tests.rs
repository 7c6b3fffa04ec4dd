// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames over real sockets.

mod tls;

use super::frame::{Frame, MAX_DATA, MAX_FRAME};
use super::limits::{FEW_BYTES, HELD, HOST_HELD, MOST_HELD, OUTBOX_BYTES, SPARED_HELD};
use super::places::Places;
use super::wire::Wire;
use gnstor_base::testing::deadline;
use gnstor_proto::fabrics::CmRequest;
use proptest::prelude::*;
use std::net::{TcpListener, TcpStream};

fn pair() -> (Wire, Wire) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    (Wire::new(client).unwrap(), Wire::new(server).unwrap())
}

fn next(wire: &mut Wire) -> Frame {
    for _ in 0..1_000_000 {
        if let Some(frame) = wire.poll() {
            return frame;
        }
        assert!(wire.dead().is_none(), "{:?}", wire.dead());
    }
    panic!("no frame arrived");
}

#[test]
fn frames_cross_a_socket_whole() {
    let _deadline = deadline();
    let (mut client, mut server) = pair();
    let frames = [
        Frame::Connect { conn: 1, ssd: 3, request: CmRequest { qid: 1.into(), ..CmRequest::default() } },
        Frame::Send { conn: 1, capsule: [7; 64] },
        Frame::ToOwner { conn: 2, tag: 3, address: u64::MAX, key: 9, sum: Some(5), data: vec![1; MAX_DATA] },
        Frame::FromOwner { conn: 2, tag: 4, address: 1, key: 9, bytes: 4096 },
        Frame::Done { conn: 2, tag: 4, status: 1, sum: 2, data: vec![] },
        Frame::Response { conn: 1, cqe: [3; 16] },
        Frame::Close { conn: 1 },
    ];
    for frame in &frames {
        client.send(frame);
    }
    client.flush();
    for frame in &frames {
        assert_eq!(&next(&mut server), frame);
    }
}

#[test]
fn a_closed_stream_and_a_long_frame_are_seen() {
    let _deadline = deadline();
    let (client, mut server) = pair();
    drop(client);
    while server.dead().is_none() {
        assert_eq!(server.poll(), None);
    }
    let (mut client, mut server) = pair();
    client.outbox.extend(u32::MAX.to_le_bytes());
    client.flush();
    while server.dead().is_none() {
        assert_eq!(server.poll(), None);
    }
    assert!(server.dead().unwrap().contains("longer"));
}

/// One host has thousands of connections. Together they hold what one host may hold.
#[test]
fn where_memory_is_scarce_a_stream_holds_little_for_its_peer() {
    let _deadline = deadline();
    let (places, host) = (Places::new(9, 9), "192.0.2.1".parse().unwrap());
    let stream = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    };
    let (_client, server) = stream();
    let mut wire = Wire::accepted(server, None, places.take(host).unwrap()).unwrap();
    wire.limit_outbox(OUTBOX_BYTES);
    let frame = || Frame::Response { conn: 1, cqe: [3; 16] };
    (0..1000).for_each(|_| wire.send(&frame()));
    assert!(wire.has_room() && wire.held_bytes() > FEW_BYTES);
    let mut others: Vec<_> = (0..2).map(|_| places.take(host).unwrap()).collect();
    others[0].count_held(HOST_HELD / 2);
    assert!(wire.has_room());
    others[1].count_held(HOST_HELD / 2);
    assert!(!wire.has_room(), "its host holds its part");
    let mut elsewhere = places.take("192.0.2.2".parse().unwrap()).unwrap();
    assert!(!elsewhere.is_scarce(), "another host has its own part");
    elsewhere.count_held(HELD - HOST_HELD);
    assert!(elsewhere.is_scarce(), "all hosts together");
    let mut small = places.take("192.0.2.3".parse().unwrap()).unwrap();
    small.count_held(SPARED_HELD - 1);
    assert!(!small.is_scarce(), "two greedy hosts leave something to each other one");
    small.count_held(SPARED_HELD);
    assert!(small.is_scarce(), "but not more");
    elsewhere.count_held(MOST_HELD - HOST_HELD);
    small.count_held(0);
    assert!(small.is_scarce(), "all hosts hold the most");
    drop((elsewhere, small));
    // What a stream held counts no more when it ends.
    others.truncate(1);
    assert!(wire.has_room());
    drop((wire, others));
    let mut last = places.take(host).unwrap();
    last.count_held(HOST_HELD - 1);
    assert!(!last.is_scarce(), "nothing else is held");
}

proptest! {
    #[test]
    fn any_body_decodes_without_panic(body in proptest::collection::vec(any::<u8>(), 0..MAX_FRAME)) {
        let _deadline = deadline();
        let _ = Frame::decode(&body);
    }
}
