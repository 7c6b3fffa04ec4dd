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
    puppet.seen().on_submit = vec![admitted(queue)];
    unruly(&mut array, &mut honest, &[Frame::Send { conn: 1, capsule: [0; 64] }], || {
        puppet.seen().on_submit.is_empty()
    });
    array.step(Time::from_ns(1));
    assert!(places.take("127.0.0.1".parse().unwrap()).is_err(), "a client that is admitted stays");
}

/// Another thread accepts the newcomer, while the array's thread sleeps.
#[test]
#[expect(clippy::disallowed_methods, reason = "a thread sleeps in real time")]
fn a_connection_that_is_to_give_way_wakes_its_thread() {
    let _deadline = deadline();
    let (mut array, _) = one_ssd();
    array.waker().expect("a descriptor");
    let places = Places::new(100, 1);
    let (mut idle, far) = placed(&places);
    array.add_peer(far);
    (0..200).for_each(|step| _ = array.step(Time::from_ns(step)));
    // The socket had room: that was an event.
    array.sleep(Span::from_ms(1));
    assert!(!array.waits(Time::ZERO).polls, "nothing keeps it awake");
    let begun = std::time::Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            drop(placed(&places));
        });
        array.sleep(Span::from_ms(100_000));
    });
    assert!(begun.elapsed().as_secs() < 50, "{:?}", begun.elapsed());
    array.step(Time::from_ns(1000));
    assert_eq!(idle.poll(), Some(Frame::End { why: limits::End::GaveWay.code() }));
}

/// On loopback all clients are of one host. One of them has as many queue pairs as a client may have, by
/// several connections.
#[test]
fn a_client_that_has_all_queue_pairs_that_it_may_is_refused_and_another_of_its_host_connects() {
    let _deadline = deadline();
    let (mut array, puppet) = one_ssd();
    let places = Places::new(100, 100);
    let mut clients: Vec<_> = (0..3)
        .map(|_| {
            let (client, far) = placed(&places);
            array.add_peer(far);
            client
        })
        .collect();
    let most = limits::CLIENT_QUEUE_PAIRS;
    // Opens queue pairs `conns` of client `id` on a connection, which proves itself on each.
    let mut opens = |client: usize, conns: std::ops::RangeInclusive<u32>, id| {
        let before = puppet.seen().opened.len();
        let connects: Vec<_> = conns.map(connect).collect();
        let wire: &mut Wire = &mut clients[client];
        unruly(&mut array, wire, &connects, || puppet.seen().opened.len() == before + connects.len());
        let opened = puppet.seen().opened[before..].to_vec();
        puppet.seen().on_submit = opened.into_iter().map(|queue| admitted_as(id, queue)).collect();
        unruly(&mut array, wire, &[Frame::Send { conn: 1, capsule: [0; 64] }], || {
            puppet.seen().on_submit.is_empty()
        });
        (0..200).for_each(|step| _ = array.step(Time::from_ns(step)));
        puppet.seen().closed.len()
    };
    for first in (1..most).step_by(128) {
        assert_eq!(opens(0, first..=(first + 127).min(most - 1), 1), 0);
    }
    assert_eq!(opens(1, 1..=1, 1), 0, "the last one that it may have");
    assert_eq!(opens(2, 1..=1, 2), 0, "a queue pair of another client");
    // On a connection that shows who it is, the next one gets a status.
    let mut steps = 0;
    clients[1].send(&connect(2));
    let refused = loop {
        clients[1].flush();
        array.step(Time::from_ns(steps));
        if let Some(frame) = clients[1].poll() {
            break frame;
        }
        steps += 1;
        assert!(steps < 1_000_000, "an answer comes");
    };
    assert_eq!(refused, Frame::Accept { conn: 2, refused: cm_reject::NO_RESOURCES });
    // On another one it is closed when it has proven itself.
    let (stranger, far) = placed(&places);
    array.add_peer(far);
    clients.push(stranger);
    let before = puppet.seen().opened.len();
    unruly(&mut array, &mut clients[3], &[connect(1)], || puppet.seen().opened.len() == before + 1);
    let queue = puppet.seen().opened[before];
    puppet.seen().on_submit = vec![admitted_as(1, queue)];
    unruly(&mut array, &mut clients[3], &[Frame::Send { conn: 1, capsule: [0; 64] }], || {
        puppet.seen().closed == [queue]
    });
}
