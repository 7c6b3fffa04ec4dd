// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client of another process that keeps no rules harms only itself.

mod bounds;
mod client;
mod same_host;

use super::*;
use crate::tcp::{data_sum, limits};
use gnstor_base::testing::deadline;
use gnstor_proto::fabrics::{Identity, cm_reject};
use gnstor_proto::slba::ClientId;
use std::io::Write;

/// A client has proven itself on this queue.
fn admitted(queue: QueueKey) -> Effect {
    admitted_as(1, queue)
}

fn admitted_as(id: u16, queue: QueueKey) -> Effect {
    Effect::Admitted { queue, who: Identity::Client(ClientId::new(id).expect("an id")) }
}

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
    let done = |data: Vec<u8>| Frame::Done { conn: 1, tag, status: COPY_OK, sum: data_sum(&data), data };
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

/// Numbers of connections belong to the stream that opened them.
#[test]
fn a_capsule_for_the_number_of_another_client_comes_to_no_queue() {
    let _deadline = deadline();
    let (puppet, flash) = (Puppet::default(), HostRegion::alloc(1 << 16).unwrap());
    let mut array = RcTransport::new(TransportConfig::default());
    array.add_target(Box::new(puppet.clone()), vec![flash.clone()]);
    let ((mut honest, a), (mut liar, b)) = (pair(), pair());
    array.add_peer(a);
    array.add_peer(b);
    let connect = |conn| Frame::Connect { conn, ssd: 0, request: CmRequest::default() };
    unruly(&mut array, &mut honest, &[connect(1)], || puppet.seen().opened.len() == 1);
    unruly(&mut array, &mut liar, &[connect(2)], || puppet.seen().opened.len() == 2);
    let queue = puppet.seen().opened[0];
    let (remote, local) = (Memory { address: 0, key: 0 }, flash.slice(0, 4096));
    puppet.seen().on_submit = vec![Effect::Pull { transfer: TransferId(1), queue, cid: 0, remote, local }];
    let capsule = Frame::Send { conn: 1, capsule: [0; 64] };
    // The later Connect shows that the array has read the capsule.
    unruly(&mut array, &mut liar, &[capsule.clone(), connect(3)], || puppet.seen().opened.len() == 3);
    assert!(!puppet.seen().on_submit.is_empty(), "the SSD was given a command");
    unruly(&mut array, &mut honest, &[capsule], || puppet.seen().on_submit.is_empty());
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
    let late = Frame::Done { conn: 1, tag, status: COPY_OK, sum: data_sum(&[9; 4096]), data: vec![9; 4096] };
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

/// An array with one SSD and a client that speaks frames by hand.
struct Raw {
    array: RcTransport,
    puppet: Puppet,
    flash: Arc<HostRegion>,
    wire: Wire,
    executor: ExecutorId,
    got: Vec<Frame>,
    now: Time,
}

impl Raw {
    /// A client with `connections` connections, numbered from 1.
    fn new(connections: u32) -> Self {
        let config = TransportConfig { link: LinkConfig::UNLIMITED, ..TransportConfig::default() };
        let (mut array, puppet) = (RcTransport::new(config), Puppet::default());
        let flash = HostRegion::alloc(1 << 20).unwrap();
        array.add_target(Box::new(puppet.clone()), vec![Arc::clone(&flash)]);
        let (wire, far) = pair();
        let executor = array.add_peer(far);
        let mut raw = Self { array, puppet, flash, wire, executor, got: Vec::new(), now: Time::ZERO };
        for conn in 1..=connections {
            raw.sends(&[Frame::Connect { conn, ssd: 0, request: CmRequest::default() }]);
        }
        assert_eq!(raw.puppet.seen().opened.len(), connections as usize);
        raw
    }

    /// Sends frames, and gives the array time to handle them.
    fn sends(&mut self, frames: &[Frame]) {
        frames.iter().for_each(|frame| self.wire.send(frame));
        self.steps(Span::from_ns(1000));
    }

    /// Lets the operating system take what it takes of both ends, in real time, while the array's time stands
    /// still.
    fn until_nothing_moves(&mut self) {
        let (mut held, mut same) = (usize::MAX, 0);
        while same < 20 {
            self.wire.flush();
            self.array.step(self.now);
            let now = self.peer().expect("no time passes for it").wire().held_bytes();
            same = if now == held { same + 1 } else { 0 };
            held = now;
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    fn steps(&mut self, each: Span) {
        for _ in 0..600 {
            self.wire.flush();
            self.now = self.now + each;
            self.array.step(self.now);
            while let Some(frame) = self.wire.poll() {
                self.got.push(frame);
            }
        }
    }

    /// The SSD answers the next command of connection 1 with these effects.
    fn command(&mut self, effects: Vec<Effect>) {
        self.puppet.seen().on_submit = effects;
        self.sends(&[Frame::Send { conn: 1, capsule: [0; 64] }]);
        assert!(self.puppet.seen().on_submit.is_empty(), "the SSD has the command");
    }

    fn pull(&self, transfer: u32, offset: u64, bytes: u32) -> Effect {
        let (queue, local) = (self.puppet.seen().opened[0], self.flash.slice(offset, bytes));
        let remote = Memory { address: 0, key: 0 };
        Effect::Pull { transfer: TransferId(transfer), queue, cid: 0, remote, local }
    }

    fn push(&self, transfer: u32, offset: u64, bytes: u32) -> Effect {
        let (queue, local) = (self.puppet.seen().opened[0], self.flash.slice(offset, bytes));
        let (remote, role) = (Memory { address: 0, key: 0 }, PushRole::Alone);
        Effect::Push { transfer: TransferId(transfer), queue, remote, local, sum: None, role }
    }

    /// Tags of the transfers that the client was asked for.
    fn asked(&self) -> Vec<u32> {
        let tag = |frame: &Frame| match frame {
            Frame::FromOwner { tag, .. } | Frame::ToOwner { tag, .. } => Some(*tag),
            _ => None,
        };
        self.got.iter().filter_map(tag).collect()
    }

    fn ended(&self) -> Vec<Outcome> {
        self.puppet.seen().ended.clone()
    }

    fn flash(&self, offset: u64, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        self.flash.read(offset, &mut data);
        data
    }

    fn peer(&mut self) -> Option<&mut crate::tcp::PeerExecutor> {
        self.array.executors.get_mut(&self.executor).and_then(AnyExecutor::peer)
    }
}

fn done_of(conn: u32, tag: u32, data: Vec<u8>) -> Frame {
    Frame::Done { conn, tag, status: COPY_OK, sum: data_sum(&data), data }
}

#[test]
fn the_tag_of_a_transfer_in_pieces_ends_nothing() {
    let _deadline = deadline();
    let mut raw = Raw::new(1);
    raw.command(vec![raw.pull(1, 0, 8192)]);
    let whole = *raw.array.transfers.keys().next().expect("the pull is under way");
    let pieces = raw.asked();
    assert_eq!((pieces.len(), pieces.contains(&whole)), (2, false));
    raw.sends(&[done_of(1, whole, vec![]), done_of(1, whole, vec![9; 4096])]);
    assert_eq!(raw.ended(), [], "its pieces can still land");
    raw.sends(&[done_of(1, pieces[0], vec![1; 4096]), done_of(1, pieces[0], vec![9; 4096])]);
    assert_eq!(raw.ended(), [], "a piece ends once");
    raw.sends(&[done_of(1, pieces[1], vec![2; 4096])]);
    assert_eq!(raw.ended(), [Outcome::Done { sum: 0 }]);
    // From here on the memory belongs to another command.
    raw.sends(&[done_of(1, pieces[0], vec![9; 4096]), done_of(1, pieces[1], vec![9; 4096])]);
    raw.sends(&[done_of(1, whole, vec![9; 4096])]);
    assert_eq!(raw.flash(0, 8192), [[1; 4096], [2; 4096]].concat());
    assert_eq!(raw.ended().len(), 1);
}

#[test]
fn a_transfer_belongs_to_the_connection_that_it_was_asked_for() {
    let _deadline = deadline();
    let mut raw = Raw::new(2);
    raw.command(vec![raw.pull(1, 0, 4096)]);
    let tag = raw.asked()[0];
    raw.sends(&[done_of(2, tag, vec![9; 4096]), done_of(3, tag, vec![9; 4096])]);
    assert_eq!((raw.ended(), raw.flash(0, 1)), (vec![], vec![0]));
    // The end of the other connection does not end it either.
    raw.sends(&[Frame::Close { conn: 2 }]);
    assert_eq!(raw.ended(), []);
    raw.sends(&[done_of(1, tag, vec![7; 4096])]);
    assert!(matches!(raw.ended()[..], [Outcome::Done { .. }]));
    assert_eq!(raw.flash(0, 4096), [7; 4096]);
}

#[test]
fn data_that_was_not_asked_for_lands_nowhere() {
    let _deadline = deadline();
    let mut raw = Raw::new(1);
    raw.flash.write(0, &[5; 4096]);
    raw.command(vec![raw.push(1, 0, 4096)]);
    let tag = raw.asked()[0];
    raw.sends(&[done_of(1, tag, vec![9; 4096])]);
    assert_eq!(raw.ended(), [Outcome::RemoteAccess], "a push brings no data");
    // Another length, and data in a failure.
    raw.command(vec![raw.pull(2, 4096, 4096), raw.pull(3, 8192, 4096)]);
    let (short, failed) = (raw.asked()[1], raw.asked()[2]);
    let beside = Frame::Done {
        conn: 1,
        tag: failed,
        status: COPY_BAD_KEY,
        sum: data_sum(&[9; 4096]),
        data: vec![9; 4096],
    };
    raw.sends(&[done_of(1, short, vec![9; 4095]), beside]);
    assert_eq!(raw.ended(), [Outcome::RemoteAccess; 3]);
    // A tag of the future.
    raw.sends(&(1..1000).map(|n| done_of(1, failed + n, vec![9; 4096])).collect::<Vec<_>>());
    raw.command(vec![raw.pull(4, 12288, 4096)]);
    assert_eq!(raw.ended().len(), 3);
    assert_eq!(raw.flash(0, 16384), [vec![5; 4096], vec![0; 12288]].concat());
}

#[test]
fn data_with_another_sum_than_it_was_sent_with_is_not_taken() {
    let _deadline = deadline();
    let mut raw = Raw::new(1);
    raw.command(vec![raw.pull(1, 0, 4096), raw.pull(2, 4096, 100), raw.pull(3, 8192, 8192)]);
    let tags = raw.asked();
    for (tag, bytes) in [(tags[0], 4096), (tags[1], 100), (tags[2], 4096)] {
        let mut data = vec![6; bytes];
        let sum = data_sum(&data);
        data[bytes / 2] ^= 0x10;
        raw.sends(&[Frame::Done { conn: 1, tag, status: COPY_OK, sum, data }]);
    }
    raw.sends(&[done_of(1, tags[3], vec![6; 4096])]);
    assert_eq!(raw.ended(), [Outcome::BadChecksum; 3]);
    assert_eq!(raw.flash(0, 12288), [0; 12288]);
}

#[test]
fn a_tag_that_is_held_for_long_is_not_given_to_another_transfer() {
    let _deadline = deadline();
    let mut raw = Raw::new(1);
    raw.command(vec![raw.pull(1, 0, 4096)]);
    let tag = raw.asked()[0];
    // Two thousand million transfers later.
    raw.array.next_id = tag - 1;
    raw.command(vec![raw.pull(2, 4096, 4096)]);
    assert_ne!(raw.asked()[1], tag);
    raw.sends(&[done_of(1, tag, vec![7; 4096])]);
    assert_eq!((raw.flash(0, 1), raw.flash(4096, 1)), (vec![7], vec![0]));
}

#[test]
fn an_array_names_only_the_connections_that_lead_to_it() {
    let _deadline = deadline();
    let mut two = Two::new(0);
    let conn = two.connected();
    two.command(true);
    two.until("the command is done", |two| !two.puppet.seen().ended.is_empty());
    let mut memory = vec![0; 4096];
    two.memory.read(DATA, &mut memory);
    // Another array, to which the client has a link too.
    let (near, mut liar) = pair();
    two.client.add_remote(near).unwrap();
    let address = two.memory.address() + DATA;
    let asks = [
        Frame::ToOwner { conn: conn.0, tag: 1, address, key: KEY, sum: None, data: vec![9; 4096] },
        Frame::FromOwner { conn: conn.0, tag: 2, address, key: KEY, bytes: 4096 },
        Frame::Response { conn: conn.0, cqe: [9; 16] },
        Frame::Ack { conn: conn.0, count: 1 },
        Frame::Closed { conn: conn.0 },
    ];
    asks.iter().for_each(|frame| liar.send(frame));
    let mut got = Vec::new();
    two.until("both transfers are refused", |_| {
        liar.flush();
        got.extend(liar.poll());
        got.len() == 2
    });
    two.pass(20);
    let none = |tag| Frame::Done { conn: conn.0, tag, status: COPY_BAD_KEY, sum: 0, data: vec![] };
    assert_eq!(got, [none(1), none(2)]);
    let mut after = vec![0; 4096];
    two.memory.read(DATA, &mut after);
    assert!(after == memory && !two.client.conns.get(&conn).unwrap().broken());
}
