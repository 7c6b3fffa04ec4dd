// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An attacker on a client's own host shares what the host may take, and does not keep the client out.

use super::*;
use crate::tcp::Places;

fn one_ssd() -> (RcTransport, Puppet) {
    let (mut array, puppet) = (RcTransport::new(TransportConfig::default()), Puppet::default());
    array.add_target(Box::new(puppet.clone()), vec![]);
    (array, puppet)
}

fn connect(conn: u32) -> Frame {
    Frame::Connect { conn, ssd: 0, request: CmRequest::default() }
}

/// The stream of a client and the array's end of it, which has a place of a listener.
fn placed(places: &Places) -> (Wire, Wire) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, from) = listener.accept().unwrap();
    let place = places.take(from.ip()).expect("a place");
    (Wire::new(client).unwrap(), Wire::accepted(server, None, place).unwrap())
}

/// An attacker on a client's own host holds all queue pairs that may wait, and sends nothing more.
#[test]
fn a_client_connects_beside_others_of_its_host_that_hold_all_that_may_wait() {
    let _deadline = deadline();
    let (mut array, puppet) = one_ssd();
    let places = Places::new(100, 100);
    let each = u32::try_from(limits::PENDING_CONNECTS).unwrap();
    let mut held = Vec::new();
    let mut count = 0;
    for _ in 0..limits::HOST_PENDING_CONNECTS / each {
        let (mut liar, far) = placed(&places);
        array.add_peer(far);
        count += limits::PENDING_CONNECTS;
        let connects: Vec<_> = (1..=each).map(connect).collect();
        unruly(&mut array, &mut liar, &connects, || puppet.seen().opened.len() == count);
        held.push(liar);
    }
    let (mut honest, far) = placed(&places);
    array.add_peer(far);
    let mut steps = 0;
    unruly(&mut array, &mut honest, &[connect(1)], || {
        steps += 1;
        steps > 1000
    });
    let oldest = puppet.seen().opened[0];
    assert_eq!(puppet.seen().opened.len(), count + 1, "the client has its queue pair");
    assert_eq!(puppet.seen().closed, [oldest], "the oldest one gave way");
    held[0].flush();
    let told = std::iter::from_fn(|| held[0].poll()).filter(|frame| *frame == Frame::Closed { conn: 1 });
    assert_eq!(told.count(), 1);
}

/// So do connections without a queue pair.
#[test]
fn a_connection_is_told_when_it_gives_way() {
    let _deadline = deadline();
    let (mut array, puppet) = one_ssd();
    let places = Places::new(100, 1);
    let (mut idle, far) = placed(&places);
    array.add_peer(far);
    let (mut honest, far) = placed(&places);
    array.add_peer(far);
    unruly(&mut array, &mut honest, &[connect(1)], || puppet.seen().opened.len() == 1 && places.taken() == 1);
    assert_eq!(idle.poll(), Some(Frame::End { why: limits::End::GaveWay.code() }));
    let queue = puppet.seen().opened[0];
    puppet.seen().on_submit = vec![Effect::Admitted { queue }];
    unruly(&mut array, &mut honest, &[Frame::Send { conn: 1, capsule: [0; 64] }], || {
        puppet.seen().on_submit.is_empty()
    });
    array.step(Time::from_ns(1));
    assert!(places.take("127.0.0.1".parse().unwrap()).is_err(), "a client that is admitted stays");
}
