// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client of another process that keeps no rules harms only itself.

use super::*;
use gnstor_base::testing::deadline;

/// Sends frames as a client that keeps no rules, and steps the array until the controller has seen enough.
fn unruly(array: &mut RcTransport, wire: &mut Wire, frames: &[Frame], mut enough: impl FnMut() -> bool) {
    for frame in frames {
        wire.send(frame);
    }
    for step in 0..1_000_000u64 {
        wire.flush();
        array.step(Time::from_ns(step * 1000));
        while wire.poll().is_some() {}
        if enough() {
            return;
        }
    }
    panic!("the array did not take the frames");
}

#[test]
fn a_client_ends_no_transfer_but_its_own_and_each_once() {
    let _deadline = deadline();
    let (puppet, flash) = (Puppet::default(), HostRegion::alloc(1 << 16).unwrap());
    let mut array =
        RcTransport::new(TransportConfig { link: LinkConfig::PAPER_200GBE, ..TransportConfig::default() });
    array.add_target(Box::new(puppet.clone()), vec![Arc::clone(&flash)]);
    let ((mut honest, a), (mut liar, b)) = (pair(), pair());
    array.add_peer(a);
    array.add_peer(b);
    let connect = Frame::Connect { conn: 1, ssd: 0, request: CmRequest::default() };
    unruly(&mut array, &mut honest, std::slice::from_ref(&connect), || puppet.seen().opened.len() == 1);
    // The same number again would make the first connection unreachable.
    unruly(&mut array, &mut liar, &[connect.clone(), connect], || puppet.seen().opened.len() == 2);
    let queue = puppet.seen().opened[0];
    let remote = Memory { address: 0, key: 0 };
    let local = flash.slice(0, 4096);
    puppet.seen().on_submit = vec![Effect::Pull { transfer: TransferId(1), queue, cid: 0, remote, local }];
    let seen = puppet.clone();
    unruly(&mut array, &mut honest, &[Frame::Send { conn: 1, capsule: [0; 64] }], || {
        seen.seen().on_submit.is_empty()
    });
    let tag = *array.transfers.keys().next().expect("the pull is under way");
    let done = |data: Vec<u8>| Frame::Done { conn: 1, tag, status: COPY_OK, sum: 0, data };
    let mut steps = 0;
    unruly(&mut array, &mut liar, &[done(vec![9; 4096]), done(vec![])], || {
        steps += 1;
        steps > 1000
    });
    assert!(puppet.seen().ended.is_empty(), "a stranger ended it");
    let end = [done(vec![7; 4096]), done(vec![8; 4096]), done(vec![])];
    unruly(&mut array, &mut honest, &end, || !puppet.seen().ended.is_empty());
    let mut first = [0];
    flash.read(0, &mut first);
    assert_eq!((first[0], puppet.seen().ended.len()), (7, 1));
    assert_eq!(puppet.seen().opened.len(), 2);
}

#[test]
fn what_a_client_sends_after_it_closed_lands_nowhere() {
    let _deadline = deadline();
    let (puppet, flash) = (Puppet::default(), HostRegion::alloc(1 << 16).unwrap());
    let mut array = RcTransport::new(TransportConfig::default());
    array.add_target(Box::new(puppet.clone()), vec![Arc::clone(&flash)]);
    let (mut client, far) = pair();
    array.add_peer(far);
    let connect = Frame::Connect { conn: 1, ssd: 0, request: CmRequest::default() };
    unruly(&mut array, &mut client, &[connect], || puppet.seen().opened.len() == 1);
    let queue = puppet.seen().opened[0];
    let pull = Effect::Pull {
        transfer: TransferId(1),
        queue,
        cid: 0,
        remote: Memory { address: 0, key: 0 },
        local: flash.slice(0, 4096),
    };
    puppet.seen().on_submit = vec![pull];
    unruly(&mut array, &mut client, &[Frame::Send { conn: 1, capsule: [0; 64] }], || {
        puppet.seen().on_submit.is_empty()
    });
    let tag = *array.transfers.keys().next().expect("the pull is under way");
    let late = Frame::Done { conn: 1, tag, status: COPY_OK, sum: 0, data: vec![9; 4096] };
    let mut steps = 0;
    unruly(&mut array, &mut client, &[Frame::Close { conn: 1 }, late], || {
        steps += 1;
        steps > 1000
    });
    assert_eq!(puppet.seen().ended, [Outcome::ConnectionLost]);
    let mut first = [0];
    flash.read(0, &mut first);
    assert_eq!(first, [0], "the buffer may be another command's by now");
}
