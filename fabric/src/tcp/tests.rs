// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames over real sockets.

mod tls;

use super::frame::{Frame, MAX_DATA, MAX_FRAME};
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

proptest! {
    #[test]
    fn any_body_decodes_without_panic(body in proptest::collection::vec(any::<u8>(), 0..MAX_FRAME)) {
        let _deadline = deadline();
        let _ = Frame::decode(&body);
    }
}
