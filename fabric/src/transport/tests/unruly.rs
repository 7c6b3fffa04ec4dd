// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client of another process that keeps no rules harms only itself.

use super::*;
use crate::tcp::{data_sum, limits};
use gnstor_base::testing::deadline;
use gnstor_proto::fabrics::cm_reject;
use std::io::Write;

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
    /// With so many connections, numbered from 1.
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

    /// Sends frames and gives the array time to handle them.
    fn sends(&mut self, frames: &[Frame]) {
        frames.iter().for_each(|frame| self.wire.send(frame));
        self.steps(Span::from_ns(1000));
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

    /// The tags of the transfers that the client was asked for.
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
        match self.array.executors.get_mut(&self.executor) {
            Some(AnyExecutor::Peer(peer)) => Some(peer),
            _ => None,
        }
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
    // The memory is another command's from here on.
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
    // Nor does the end of the other connection end it.
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
    // Another length, and data beside a failure.
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
fn a_peer_that_does_not_read_is_sent_a_bounded_amount_and_then_closed() {
    let _deadline = deadline();
    let mut raw = Raw::new(1);
    // More than the operating system's buffers and the outbox take together.
    let pushes = (0..4000).map(|i| raw.push(i, 0, 65536)).collect();
    raw.puppet.seen().on_submit = pushes;
    raw.wire.send(&Frame::Send { conn: 1, capsule: [0; 64] });
    raw.wire.flush();
    let mut most = 0;
    for _ in 0..20_000 {
        raw.now = raw.now + Span::from_ns(1000);
        raw.array.step(raw.now);
        most = most.max(raw.peer().expect("it is there").wire().held_bytes());
    }
    assert!(most <= 4 * limits::OUTBOX_BYTES, "{most} bytes");
    assert!(raw.peer().expect("it is there").held() > 1000, "the others wait without their data");
    // It reads again before its time is over.
    let before = raw.got.len();
    raw.steps(Span::from_ms(1));
    assert!(raw.got.len() > before + 100 && raw.peer().is_some());
    raw.asked().into_iter().for_each(|tag| raw.wire.send(&done_of(1, tag, vec![])));
    raw.wire.flush();
    for _ in 0..limits::STALL.as_ns() / 1_000_000 + 1500 {
        raw.now = raw.now + Span::from_ms(1);
        raw.array.step(raw.now);
    }
    assert!(raw.peer().is_none(), "it took nothing for too long");
    assert!(raw.array.transfers.is_empty() && raw.array.conns.is_empty());
}

#[test]
fn a_peer_that_ends_no_transfer_is_closed() {
    let _deadline = deadline();
    let mut raw = Raw::new(1);
    raw.command(vec![raw.pull(1, 0, 4096), raw.pull(2, 4096, 8192)]);
    let tags = raw.asked();
    raw.steps(Span::from_ms(45));
    raw.sends(&[done_of(1, tags[0], vec![1; 4096])]);
    raw.steps(Span::from_ms(45));
    assert!(raw.peer().is_some(), "it has ended one in time");
    raw.steps(Span::from_ms(10));
    assert_eq!(raw.got.last(), Some(&Frame::End { why: limits::End::Unanswered.code() }));
    assert_eq!(raw.ended()[1..], [Outcome::ConnectionLost]);
    assert!(raw.array.transfers.is_empty());
}

#[test]
fn a_connection_without_a_connect_or_without_queue_pairs_ends_and_is_told_why() {
    let _deadline = deadline();
    let last = |raw: &Raw| raw.got.last().cloned();
    let mut raw = Raw::new(0);
    raw.steps(Span::from_ms(10));
    assert!(raw.peer().is_some(), "it has 10 s");
    raw.steps(Span::from_ms(10));
    assert!(raw.peer().is_none());
    assert_eq!(last(&raw), Some(Frame::End { why: limits::End::NoHandshake.code() }));
    let mut raw = Raw::new(1);
    raw.sends(&[Frame::Response { conn: 1, cqe: [0; 16] }]);
    raw.steps(Span::from_ms(50));
    assert!(raw.peer().is_some(), "it has a queue pair");
    raw.sends(&[Frame::Close { conn: 1 }]);
    raw.steps(Span::from_ms(50));
    assert!(raw.peer().is_some());
    raw.steps(Span::from_ms(100));
    assert!(raw.peer().is_none());
    assert_eq!(last(&raw), Some(Frame::End { why: limits::End::Idle.code() }));
}

#[test]
fn queue_pairs_whose_connects_do_not_end_are_bounded_and_given_back() {
    let _deadline = deadline();
    let mut raw = Raw::new(0);
    let connect = |conn| Frame::Connect { conn, ssd: 0, request: CmRequest::default() };
    let most = u32::try_from(limits::PENDING_CONNECTS).unwrap();
    raw.sends(&(1..=most + 1).map(connect).collect::<Vec<_>>());
    let refused = |conn, refused| Frame::Accept { conn, refused };
    assert_eq!(raw.got.last(), Some(&refused(most + 1, cm_reject::NO_RESOURCES)));
    assert_eq!(raw.puppet.seen().opened.len(), limits::PENDING_CONNECTS);
    // A response to one makes room for another, and so does a Close.
    let queue = raw.puppet.seen().opened[0];
    let complete = Effect::Complete { queue, cqe: Cqe::default(), at: Time::ZERO, pushed_bytes: 0 };
    raw.command(vec![complete]);
    raw.sends(&[connect(most + 1), Frame::Close { conn: 2 }, connect(2), connect(most + 2)]);
    let tail = [refused(most + 1, 0), refused(2, 0), refused(most + 2, cm_reject::NO_RESOURCES)];
    assert_eq!(raw.got[raw.got.len() - 3..], tail);
    // The late ones are closed; the one that had its response stays.
    raw.steps(Span::from_ms(120));
    assert_eq!(raw.array.conns.iter().count(), 1);
    raw.sends(&[connect(5000)]);
    assert_eq!(raw.got.last(), Some(&refused(5000, 0)));
}

#[test]
fn a_peer_has_so_many_queue_pairs() {
    let _deadline = deadline();
    let mut raw = Raw::new(0);
    let mut first = 1;
    let most = u32::try_from(limits::QUEUE_PAIRS).unwrap();
    while first <= most {
        raw.sends(
            &(first..first + 128)
                .map(|conn| Frame::Connect { conn, ssd: 0, request: CmRequest::default() })
                .collect::<Vec<_>>(),
        );
        let opened = raw.puppet.seen().opened[first as usize - 1..].to_vec();
        raw.puppet.seen().effects.extend(opened.into_iter().map(|queue| Effect::Complete {
            queue,
            cqe: Cqe::default(),
            at: Time::ZERO,
            pushed_bytes: 0,
        }));
        raw.command(vec![]);
        first += 128;
    }
    assert_eq!(raw.puppet.seen().opened.len(), limits::QUEUE_PAIRS);
    raw.sends(&[Frame::Connect { conn: 9999, ssd: 0, request: CmRequest::default() }]);
    assert_eq!(raw.got.last(), Some(&Frame::Accept { conn: 9999, refused: cm_reject::NO_RESOURCES }));
}

#[test]
fn idle_peers_are_not_polled_and_hold_no_buffers() {
    let _deadline = deadline();
    let mut raw = Raw::new(1);
    let idle: Vec<_> = (0..100)
        .map(|_| {
            let (mut wire, far) = pair();
            let id = raw.array.add_peer(far);
            wire.send(&Frame::Connect { conn: 1, ssd: 0, request: CmRequest::default() });
            wire.flush();
            (wire, id)
        })
        .collect();
    raw.steps(Span::from_ms(1));
    assert_eq!(raw.puppet.seen().opened.len(), 101);
    assert_eq!(raw.array.ready.awake(), 0);
    for (_, id) in &idle {
        let Some(AnyExecutor::Peer(peer)) = raw.array.executors.get_mut(id) else { panic!("it is there") };
        assert_eq!(peer.wire().held_bytes(), 0);
    }
    // Each wakes with its first frame.
    for (i, (mut wire, _)) in idle.into_iter().enumerate() {
        wire.send(&Frame::Close { conn: 1 });
        wire.flush();
        raw.steps(Span::from_ns(1000));
        assert_eq!(raw.puppet.seen().closed.len(), i + 1);
    }
}

#[test]
fn half_a_frame_holds_half_a_frame() {
    let _deadline = deadline();
    let mut raw = Raw::new(1);
    let (mut stream, far) = streams();
    let id = raw.array.add_peer(Wire::new(far).unwrap());
    stream.write_all(&[64, 0, 0, 0, 3]).unwrap();
    raw.steps(Span::from_ms(1));
    let Some(AnyExecutor::Peer(peer)) = raw.array.executors.get_mut(&id) else { panic!("it is there") };
    assert!(peer.wire().held_bytes() < 4096);
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

#[test]
fn frames_of_no_use_leave_a_turn_to_other_streams() {
    let _deadline = deadline();
    let mut raw = Raw::new(1);
    const JUNK: u32 = 1000;
    for tag in 0..JUNK {
        raw.wire.send(&Frame::Done { conn: 1, tag, status: COPY_OK, sum: 0, data: Vec::new() });
    }
    raw.wire.send(&Frame::Send { conn: 1, capsule: [0; 64] });
    let Some(AnyExecutor::Peer(peer)) = raw.array.executors.get_mut(&raw.executor) else { panic!("a peer") };
    let mut turns = 0;
    while peer.poll().is_none() {
        raw.wire.flush();
        turns += 1;
        assert!(turns < 1_000_000, "the command arrives");
    }
    // Without a bound all of them would be taken in the turn in which they arrived.
    assert!(turns >= JUNK / 16, "{turns} turns");
}

#[test]
fn a_client_whose_commands_are_refused_has_short_turns_and_another_has_long_ones() {
    let _deadline = deadline();
    let mut raw = Raw::new(1);
    let turn = |raw: &mut Raw| {
        (0..200).for_each(|_| raw.wire.send(&Frame::Send { conn: 1, capsule: [0; 64] }));
        raw.wire.flush();
        let Some(AnyExecutor::Peer(peer)) = raw.array.executors.get_mut(&raw.executor) else {
            panic!("a peer")
        };
        let mut turns = Vec::new();
        while turns.iter().sum::<usize>() < 200 {
            let count = std::iter::from_fn(|| peer.poll()).count();
            turns.extend((count > 0).then_some(count));
        }
        *turns.iter().max().expect("one")
    };
    let respond = |raw: &mut Raw, status: u8| {
        let Some(AnyExecutor::Peer(peer)) = raw.array.executors.get_mut(&raw.executor) else {
            panic!("a peer")
        };
        let mut bytes = [0; 16];
        // The phase tag is no part of the status.
        bytes[14] = status << 1 | 1;
        (0..8).for_each(|_| {
            peer.push(Down::Send { qpn: 1, bytes, due_ns: 0, allowance: crate::hca::Allowance::NEVER })
        });
    };
    let first = turn(&mut raw);
    respond(&mut raw, 0);
    let trusted = turn(&mut raw);
    respond(&mut raw, 0x02);
    let refused = turn(&mut raw);
    assert!(first <= 4 && trusted >= 64 && refused <= 4, "{first}, {trusted}, {refused}");
}
