// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rings of SSDs, and connections that get no answer.

use super::*;
use gnstor_base::testing::deadline;
use gnstor_fabric::device::Choice;
use gnstor_fabric::runtime::TransportThreads;
use gnstor_fabric::tcp::Wire;
use gnstor_fabric::transport::{RcTransport, TransportConfig};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

#[test]
fn ssds_share_the_rings_out_among_themselves() {
    let _deadline = deadline();
    let of =
        |ssds, rings, channel| (0..ssds).map(|ssd| part_of(ssd, ssds, rings, channel)).collect::<Vec<_>>();
    assert_eq!([of(4, 8, 0), of(4, 8, 1), of(4, 8, 2)], [[0, 2, 4, 6], [1, 3, 5, 7], [0, 2, 4, 6]]);
    assert_eq!(of(6, 4, 5), [0, 1, 1, 2, 3, 3]);
    assert_eq!([of(4, 12, 0), of(4, 12, 1), of(4, 12, 2)], [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]);
    assert_eq!((0..3).map(|channel| part_of(0, 1, 3, channel)).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(of(3, 1, 7), [0, 0, 0]);
    for (ssds, rings) in [(8, 12), (16, 12), (6, 4), (3, 8), (5, 7)] {
        let mut load = vec![0; rings];
        (0..rings).flat_map(|channel| of(ssds, rings, channel)).for_each(|ring| load[ring] += 1);
        assert_eq!(load, vec![ssds; rings], "{ssds} SSDs on {rings} rings");
    }
}

/// A link ends by itself a while after its last connection has.
#[test]
#[expect(clippy::disallowed_methods, reason = "waits for a transport in real time")]
fn a_connection_that_gets_no_answer_in_time_is_closed() {
    let _deadline = deadline();
    let engine =
        TransportThreads::start(vec![RcTransport::new(TransportConfig::default())]).expect("a thread");
    let device = Device::open(Choice::Host).expect("the host device is always there");
    let node = Node::new(engine.handle(), &device, Residency::TwoKernels).expect("a node starts");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let stream = TcpStream::connect(listener.local_addr().expect("an address")).expect("it is accepted");
    let wire = Wire::new(stream).expect("a stream");
    let remote = node.transport().call(move |e, _| e.add_remote(wire)).expect("it runs").expect("memory");
    let (queue, port) = (IoQueue { ring: 0, qpn: 7, ssd: 0 }, Port::Remote { remote, ssd: 0 });
    let refused = node.connect_within(queue, port, CmRequest::default(), Duration::from_millis(20));
    assert!(refused.expect_err("the listener is silent").to_string().contains("no answer"));
    let begun = Instant::now();
    while node.transport().call(|e, _| e.remotes()).expect("it runs") > 0 {
        // A peer that is silent for five seconds loses its link in any case.
        assert!(
            begun.elapsed() < Duration::from_secs(4),
            "the link is kept by a connection without an owner"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}
