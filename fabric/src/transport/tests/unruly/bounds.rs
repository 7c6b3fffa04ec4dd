// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much of the array a client can hold, and for how long.

use super::*;
use crate::hca::Allowance;

#[test]
fn a_peer_that_does_not_read_is_sent_a_bounded_amount_and_then_closed() {
    let _deadline = deadline();
    let mut raw = Raw::new(1);
    // More than the operating system's buffers and the outbox hold together.
    let queue = raw.puppet.seen().opened[0];
    let pushes = (0..4000).map(|i| raw.push(i, 0, 65536));
    let effects = [admitted(queue)].into_iter().chain(pushes).collect();
    raw.puppet.seen().on_submit = effects;
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
    // The client reads again before its time is over.
    let before = raw.got.len();
    raw.steps(Span::from_ms(1));
    assert!(raw.got.len() > before + 100 && raw.peer().is_some());
    raw.asked().into_iter().for_each(|tag| raw.wire.send(&done_of(1, tag, vec![])));
    raw.wire.flush();
    raw.until_nothing_moves();
    // After the longer time the connection would close because the client ends no transfer.
    const { assert!(limits::ANSWER.as_ns() >= 3 * limits::STALL.as_ns()) };
    for _ in 0..limits::ANSWER.as_ns() / 1_000_000 - 1000 {
        raw.now = raw.now + Span::from_ms(1);
        raw.array.step(raw.now);
        if raw.peer().is_none() {
            break;
        }
    }
    assert!(raw.peer().is_none(), "it took nothing for too long");
    assert!(raw.array.transfers.is_empty() && raw.array.conns.is_empty());
}

/// A peer with an outbox that stays full keeps its memory, however slowly it reads.
#[test]
fn a_peer_that_takes_a_little_now_and_then_is_closed() {
    let _deadline = deadline();
    let mut raw = Raw::new(1);
    let pushes = (0..4000).map(|i| raw.push(i, 0, 65536)).collect();
    raw.puppet.seen().on_submit = pushes;
    raw.wire.send(&Frame::Send { conn: 1, capsule: [0; 64] });
    raw.until_nothing_moves();
    // An outbox of a peer that has proven nothing is small.
    let held = raw.peer().expect("it is there").wire().held_bytes();
    assert!(held <= 4 * limits::FEW_BYTES, "{held} bytes");
    let begun = raw.now;
    while raw.peer().is_some() {
        assert!(raw.now.since(begun) < limits::STALL + limits::STALL, "it holds its bytes");
        assert!(raw.wire.take_raw(512) > 0, "it takes some");
        for _ in 0..100 {
            raw.now = raw.now + Span::from_ms(10);
            raw.array.step(raw.now);
        }
    }
    assert!(raw.now.since(begun) >= Span::from_ms(9_000), "it had its time");
}

/// Responses cannot be held back, so only they take the outbox beyond its limit. The SSD gives them as fast
/// as it can, and no time passes.
#[test]
fn a_peer_that_takes_no_responses_is_closed_at_their_bound() {
    let _deadline = deadline();
    let mut raw = Raw::new(1);
    // Length, type, connection, completion entry.
    const FRAME: usize = 4 + 1 + 4 + 16;
    let mut sent = 0;
    let peer = raw.peer().expect("it is there");
    while peer.wire().dead().is_none() {
        assert!(sent * FRAME <= limits::MOST_OUTBOX_BYTES, "{sent} responses");
        peer.push(Down::Send { qpn: 1, bytes: [7; 16], due_ns: 0, allowance: Allowance::AT_ONCE });
        sent += 1;
    }
    assert_eq!(peer.wire().dead(), Some(limits::End::Outbox.why()));
    assert!(sent * FRAME > limits::MOST_OUTBOX_BYTES, "{sent} responses");
    assert_eq!(peer.wire().held_bytes(), 0, "it gives its memory back");
    raw.steps(Span::from_ns(1000));
    assert!(raw.peer().is_none() && raw.array.conns.is_empty());
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

/// The client keeps what others need, for longer than any transfer takes.
#[test]
fn a_peer_that_ends_one_transfer_now_and_then_and_keeps_another_is_closed() {
    let _deadline = deadline();
    let mut raw = Raw::new(1);
    raw.command((0..9).map(|nth| raw.pull(nth, 4096 * u64::from(nth), 4096)).collect());
    let tags = raw.asked();
    let mut spans = 0;
    for &tag in &tags[1..] {
        raw.steps(Span::from_ms(40));
        if raw.peer().is_none() {
            break;
        }
        spans += 1;
        raw.sends(&[done_of(1, tag, vec![1; 4096])]);
    }
    assert!(raw.peer().is_none(), "the first transfer never ends");
    assert!((1..6).contains(&spans), "it has its time, and not for ever: {spans}");
    assert_eq!(raw.got.last(), Some(&Frame::End { why: limits::End::Unanswered.code() }));
    assert!(raw.array.transfers.is_empty());
}

#[test]
fn time_in_which_the_array_did_not_run_counts_for_no_deadline_of_its_peers() {
    let _deadline = deadline();
    let mut raw = Raw::new(1);
    raw.command(vec![raw.pull(1, 0, 4096)]);
    raw.steps(Span::from_ms(1));
    let mut silent = Raw::new(0);
    silent.steps(Span::from_ms(1));
    for stopped in [&mut raw, &mut silent] {
        stopped.now = stopped.now + Span::from_ms(100_000);
        stopped.steps(Span::from_ms(10));
        assert!(stopped.peer().is_some(), "its time begins anew");
    }
    assert_eq!(raw.puppet.seen().resumed, 1, "the SSDs hear of it");
    raw.steps(Span::from_ms(45));
    silent.steps(Span::from_ms(10));
    assert!(raw.peer().is_none() && silent.peer().is_none(), "and is over after that");
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
    // A response alone makes no room. An admission makes room for another, and so does a Close.
    let queue = raw.puppet.seen().opened[0];
    let complete = Effect::Complete { queue, cqe: Cqe::default(), at: Time::ZERO, pushed_bytes: 0 };
    raw.command(vec![complete]);
    raw.sends(&[connect(most + 1)]);
    assert_eq!(raw.got.last(), Some(&refused(most + 1, cm_reject::NO_RESOURCES)));
    raw.command(vec![admitted(queue)]);
    raw.sends(&[connect(most + 1), Frame::Close { conn: 2 }, connect(2), connect(most + 2)]);
    let tail = [refused(most + 1, 0), refused(2, 0), refused(most + 2, cm_reject::NO_RESOURCES)];
    assert_eq!(raw.got[raw.got.len() - 3..], tail);
    // The late connections are closed; the one whose client was admitted stays.
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
        raw.puppet.seen().effects.extend(opened.into_iter().map(admitted));
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
        let Some(peer) = raw.array.executors.get_mut(id).and_then(AnyExecutor::peer) else {
            panic!("it is there")
        };
        assert_eq!(peer.wire().held_bytes(), 0);
    }
    // Each wakes with its first frame.
    for (i, (mut wire, _)) in idle.into_iter().enumerate() {
        wire.send(&Frame::Close { conn: 1 });
        wire.flush();
        raw.steps(Span::from_ns(1000));
        assert_eq!(raw.puppet.seen().closed.len(), i + 1);
    }
    // Peers without a queue pair sleep, too.
    let silent = pair();
    raw.array.add_peer(silent.1);
    raw.steps(Span::from_ns(1000));
    assert_eq!(raw.array.ready.awake(), 0);
}

#[test]
fn half_a_frame_holds_half_a_frame() {
    let _deadline = deadline();
    let mut raw = Raw::new(1);
    let (mut stream, far) = streams();
    let id = raw.array.add_peer(Wire::new(far).unwrap());
    stream.write_all(&[64, 0, 0, 0, 3]).unwrap();
    raw.steps(Span::from_ms(1));
    let Some(peer) = raw.array.executors.get_mut(&id).and_then(AnyExecutor::peer) else {
        panic!("it is there")
    };
    assert!(peer.wire().held_bytes() < 4096);
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
    let Some(peer) = raw.array.executors.get_mut(&raw.executor).and_then(AnyExecutor::peer) else {
        panic!("a peer")
    };
    let mut turns = 0;
    while peer.poll().is_none() {
        raw.wire.flush();
        turns += 1;
        assert!(turns < 1_000_000, "the command arrives");
    }
    // Without a bound all of them would be handled in the turn in which they arrived.
    assert!(turns >= JUNK / 16, "{turns} turns");
}

#[test]
fn a_client_whose_commands_are_refused_has_short_turns_and_another_has_long_ones() {
    let _deadline = deadline();
    let mut raw = Raw::new(1);
    let turn = |raw: &mut Raw| {
        (0..200).for_each(|_| raw.wire.send(&Frame::Send { conn: 1, capsule: [0; 64] }));
        raw.wire.flush();
        let Some(peer) = raw.array.executors.get_mut(&raw.executor).and_then(AnyExecutor::peer) else {
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
        let Some(peer) = raw.array.executors.get_mut(&raw.executor).and_then(AnyExecutor::peer) else {
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

/// A host may have thousands of queues, which end with its admin queue. Hosts that prove nothing end
/// together. If each close ran within the previous one, each would take some hundred bytes of stack.
#[test]
fn an_ssd_that_closes_thousands_of_queues_at_once_takes_no_more_stack_than_for_one() {
    let _deadline = deadline();
    let close_all = || {
        let mut raw = Raw::new(0);
        let most = u32::try_from(limits::QUEUE_PAIRS).unwrap();
        for first in (1..=most).step_by(128) {
            let connect = |conn| Frame::Connect { conn, ssd: 0, request: CmRequest::default() };
            raw.sends(&(first..first + 128).map(connect).collect::<Vec<_>>());
            let opened = raw.puppet.seen().opened[first as usize - 1..].to_vec();
            raw.puppet.seen().effects.extend(opened.into_iter().map(admitted));
            raw.command(vec![]);
        }
        let opened = raw.puppet.seen().opened.clone();
        assert_eq!(opened.len(), limits::QUEUE_PAIRS);
        raw.command(opened.into_iter().map(|queue| Effect::Close { queue }).collect());
        raw.steps(Span::from_ms(1));
        assert!(raw.array.conns.is_empty());
    };
    // A tenth of what a thread of an engine has.
    let builder = std::thread::Builder::new().stack_size(200 << 10);
    builder.spawn(close_all).unwrap().join().unwrap();
}

/// A client that is told so need not answer.
#[test]
fn a_queue_that_the_ssd_closes_is_given_back_without_a_word_of_its_client() {
    let _deadline = deadline();
    let mut raw = Raw::new(2);
    let queue = raw.puppet.seen().opened[0];
    raw.command(vec![admitted(queue), Effect::Close { queue }]);
    assert_eq!(raw.got.last(), Some(&Frame::Closed { conn: 1 }));
    assert_eq!(raw.array.conns.iter().count(), 1);
    assert!(raw.puppet.seen().closed.iter().all(|&closed| closed == queue));
    // Its number is free.
    raw.sends(&[Frame::Connect { conn: 1, ssd: 0, request: CmRequest::default() }]);
    assert_eq!(raw.got.last(), Some(&Frame::Accept { conn: 1, refused: 0 }));
}
