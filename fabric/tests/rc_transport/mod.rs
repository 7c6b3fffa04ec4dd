// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The promises of an RC connection to its owner, in virtual time. The tests have a transport without
//! threads, a scripted controller, and a queue pair in host memory.

mod world;

use gnstor_base::controller::{Effect, Outcome};
use gnstor_base::testing::deadline;
use gnstor_base::time::{Span, Time};
use gnstor_fabric::link::LinkConfig;
use gnstor_fabric::mlx5::{CtrlSeg, DataSeg, opcode, syndrome};
use std::sync::Arc;
use world::*;
use zerocopy::IntoBytes;

#[test]
fn an_acknowledgement_completes_what_was_signalled_and_nothing_else() {
    let _deadline = deadline();
    let mut w = World::new(LinkConfig::UNLIMITED);
    for i in 0..6 {
        w.post(i, i % 3 == 2);
    }
    w.run_to(Time::from_ns(10));
    assert_eq!(w.completions(), [(SENT, 2, 0), (SENT, 5, 0)]);
    assert_eq!(w.state().submitted.iter().map(|s| s.1).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn an_acknowledgement_takes_the_link_both_ways() {
    let _deadline = deadline();
    let mut w = World::new(SLOW);
    w.post(1, true);
    w.run_to(Time::ZERO);
    // 64 bytes at 1 GB/s, 1,000 ns there: seen by the SSD at 1,064; back at 2,064.
    w.run_to(Time::from_ns(2063));
    assert_eq!(w.state().submitted, [(Time::from_ns(1064), 1)]);
    assert_eq!(w.completions(), []);
    w.run_to(Time::from_ns(2064));
    assert_eq!(w.completions(), [(SENT, 0, 0)]);
}

#[test]
fn a_response_is_never_seen_before_it_is_due() {
    let _deadline = deadline();
    let mut w = World::new(SLOW);
    w.receives(4);
    // The SSD is done 5 us after the start; 4,096 bytes of data and 16 of response take the link, then the
    // latency.
    let response = w.respond(1, Time::from_ns(5000), 4096);
    w.state().on_submit.push_back(vec![response]);
    w.post(1, false);
    w.run_to(Time::ZERO);
    let due = Time::from_ns(5000 + 4096 + 16 + 1000);
    while w.now < due {
        assert_eq!(w.completions(), [], "at {:?}", w.now);
        w.run_to((w.now + Span::from_ns(7)).min(due));
    }
    assert_eq!(w.completions(), [(RECEIVED, 0, 0)]);
}

#[test]
fn pulled_data_arrives_when_the_link_says_so() {
    let _deadline = deadline();
    let mut w = World::new(SLOW);
    let pull = w.pull(1);
    w.state().on_submit.push_back(vec![pull]);
    w.post(1, false);
    w.run_to(Time::ZERO);
    w.run_to(Time::from_ns(1064));
    // The request takes 1,000 ns to get there, and the data 4,096 + 1,000 ns to come.
    w.run_to(Time::from_ns(1064 + 6095));
    assert!(w.state().transferred.is_empty());
    w.run_to(Time::from_ns(1064 + 6096));
    assert!(matches!(w.state().transferred[..], [Outcome::Done { .. }]));
}

// Failures.

#[test]
fn a_silent_target_fails_the_oldest_send_and_flushes_the_others_in_order() {
    let _deadline = deadline();
    let mut w = World::new(LinkConfig::UNLIMITED);
    w.receives(3);
    w.transport.set_silent(0, true);
    for i in 0..4 {
        w.post(i, i == 3);
    }
    w.pass(Span::from_ms(49));
    assert_eq!(w.completions(), []);
    w.pass(Span::from_ms(1));
    let flushed = |i| (SEND_FAILED, i, syndrome::FLUSH);
    let mut expected = vec![(SEND_FAILED, 0, syndrome::RETRY_EXCEEDED), flushed(1), flushed(2), flushed(3)];
    expected.extend((0..3).map(|i| (RECEIVE_FAILED, i, syndrome::FLUSH)));
    assert_eq!(w.completions(), expected);
    // A request that is posted now fails at once.
    w.post(9, false);
    w.run_to(w.now);
    assert_eq!(w.completions(), [flushed(4)]);
    assert_eq!(w.transport.counters.broken, 1);
}

#[test]
fn a_clock_that_goes_from_event_to_event_meets_the_deadline_of_an_acknowledgement() {
    let _deadline = deadline();
    let mut w = World::new(SLOW);
    assert_eq!(w.transport.next_event(), None);
    w.post(0, true);
    let mut events = 0;
    w.turn(w.now);
    while let Some(at) = w.transport.next_event() {
        assert!(at < Time::ZERO + ACK_TIMEOUT, "a SEND that is answered has no deadline left: {at:?}");
        w.run_to(at);
        events += 1;
    }
    assert!(events > 0 && w.completions().len() == 1);
    w.transport.set_silent(0, true);
    let sent = w.now;
    w.post(1, true);
    w.turn(w.now);
    while let Some(at) = w.transport.next_event() {
        w.run_to(at);
    }
    assert_eq!(w.completions(), [(SEND_FAILED, 1, syndrome::RETRY_EXCEEDED)]);
    assert_eq!(w.now, sent + ACK_TIMEOUT);
}

#[test]
fn an_answering_target_never_times_out() {
    let _deadline = deadline();
    let mut w = World::new(SLOW);
    for i in 0..20 {
        w.post(i, true);
        w.pass(Span::from_ms(20));
    }
    assert_eq!(w.completions().len(), 20);
    assert_eq!(w.transport.counters.broken, 0);
}

#[test]
fn no_failure_is_reported_while_a_transfer_moves() {
    let _deadline = deadline();
    let mut w = World::new(SLOW);
    w.receives(2);
    // The SSD asks for data and breaks the connection in the same breath.
    let effects = vec![w.pull(1), Effect::Close { queue: w.queue() }];
    w.state().on_submit.push_back(effects);
    w.post(1, true);
    w.post(2, true);
    w.run_to(Time::ZERO);
    w.transport.step(Time::from_ns(1064)); // the first capsule arrives; the copy's end waits in the executor
    assert_eq!(w.state().submitted.len(), 1, "the second capsule finds a broken connection");
    assert!(
        w.state().transferred.is_empty() && w.completions().iter().all(|c| c.0 == SENT),
        "the copy's end is not known yet"
    );
    w.run_to(Time::from_ns(9000));
    assert_eq!(w.state().transferred.len(), 1);
    let failed = w.completions();
    assert_eq!(
        failed.iter().map(|c| c.0).collect::<Vec<_>>(),
        [SEND_FAILED, SEND_FAILED, RECEIVE_FAILED, RECEIVE_FAILED]
    );
    assert!(failed.iter().all(|c| c.2 == syndrome::FLUSH));
}

#[test]
fn a_faulty_receive_is_reported_only_when_no_transfer_moves() {
    let _deadline = deadline();
    let mut w = World::new(LinkConfig::UNLIMITED);
    w.receives(2);
    w.memory.write(RQ, DataSeg { byte_count: 16.into(), lkey: 0xBAD.into(), address: 0.into() }.as_bytes());
    // The response of one command meets the faulty receive just when another command's data is requested.
    let (response, pull) = (w.respond(1, Time::from_ns(100), 0), w.pull(2));
    w.state().on_submit.push_back(vec![response]);
    w.state().on_step = vec![pull];
    w.state().due = Some(Time::from_ns(100));
    w.post(1, false);
    w.turn(Time::ZERO);
    w.transport.step(Time::from_ns(100));
    assert!(w.state().transferred.is_empty());
    let memory = Arc::clone(&w.memory);
    w.state().watched = Some(memory);
    w.run_to(Time::from_ns(200));
    assert_eq!(w.state().saw, [0xF1], "no error is in the queue when the copy ends");
    assert_eq!(w.completions()[0], (RECEIVE_FAILED, 0, syndrome::LOCAL_PROTECTION));
}

#[test]
fn the_error_of_a_receive_comes_before_the_flush_of_those_behind_it() {
    let _deadline = deadline();
    let mut w = World::new(LinkConfig::UNLIMITED);
    w.receives(3);
    w.memory.write(RQ, DataSeg { byte_count: 8.into(), lkey: KEY.into(), address: 0.into() }.as_bytes());
    let response = w.respond(1, Time::ZERO, 0);
    w.state().on_submit.push_back(vec![response]);
    w.post(1, false);
    w.pass(Span::from_ns(1000));
    let flush = syndrome::FLUSH;
    assert_eq!(
        w.completions(),
        [(RECEIVE_FAILED, 0, syndrome::LOCAL_LENGTH), (RECEIVE_FAILED, 1, flush), (RECEIVE_FAILED, 2, flush)]
    );
    assert_eq!(w.state().closed.len(), 1, "the SSD learns of it");
}

#[test]
fn a_local_error_completes_with_its_own_syndrome_behind_what_was_sent() {
    let _deadline = deadline();
    let mut w = World::new(LinkConfig::UNLIMITED);
    w.post(0, true);
    w.run_to(Time::ZERO);
    w.post_raw(CtrlSeg::new(0x55, 1, QPN, 1, 0).as_bytes());
    w.post(2, false);
    w.run_to(Time::from_ns(1));
    let expected =
        [(SENT, 0, 0), (SEND_FAILED, 1, syndrome::LOCAL_QP_OPERATION), (SEND_FAILED, 2, syndrome::FLUSH)];
    assert_eq!(w.completions(), expected);
}

#[test]
fn rdma_of_the_initiator_meets_no_memory_at_an_nvme_target() {
    let _deadline = deadline();
    let mut w = World::new(LinkConfig::UNLIMITED);
    let address = w.memory.address() + DATA;
    let data = DataSeg { byte_count: 16.into(), lkey: KEY.into(), address: address.into() };
    w.post_raw(
        &[CtrlSeg::new(opcode::RDMA_READ, 0, QPN, 3, 0).as_bytes(), &[0; 16], data.as_bytes()].concat(),
    );
    w.run_to(Time::ZERO);
    assert_eq!(w.completions(), [(SEND_FAILED, 0, syndrome::REMOTE_ACCESS)]);
}

#[test]
fn the_controller_closes_and_the_receives_are_flushed_in_order() {
    let _deadline = deadline();
    let mut w = World::new(LinkConfig::UNLIMITED);
    w.receives(5);
    let response = w.respond(1, Time::ZERO, 0);
    w.state().on_submit.push_back(vec![response]);
    w.post(1, false);
    w.pass(Span::from_ns(100));
    assert_eq!(w.completions(), [(RECEIVED, 0, 0)]);
    let close = Effect::Close { queue: w.queue() };
    w.state().on_step = vec![close];
    w.state().due = Some(w.now);
    w.pass(Span::from_ns(100));
    let expected: Vec<Short> = (1..5).map(|i| (RECEIVE_FAILED, i, syndrome::FLUSH)).collect();
    assert_eq!(w.completions(), expected);
    let state = w.state();
    assert_eq!(state.closed, state.opened);
}

#[test]
fn closing_from_the_initiator_ends_transfers_and_tells_the_controller() {
    let _deadline = deadline();
    let mut w = World::new(SLOW);
    let pull = w.pull(1);
    w.state().on_submit.push_back(vec![pull]);
    w.post(1, true);
    w.run_to(Time::ZERO);
    w.transport.step(Time::from_ns(1064));
    let conn = w.conn;
    w.transport.close(Time::from_ns(1064), conn);
    assert_eq!(w.state().transferred, [Outcome::ConnectionLost]);
    assert_eq!(w.state().closed.len(), 1);
    w.run_to(Time::from_ns(9000));
    assert_eq!(w.state().transferred.len(), 1, "a transfer ends once");
    assert!(!w.transport.busy());
    let executor = w.executor;
    w.transport.remove_executor(w.now, executor);
}

// Receivers that are not ready.

#[test]
fn a_response_without_a_receive_is_tried_again_after_the_timer() {
    let _deadline = deadline();
    let mut w = World::new(LinkConfig::UNLIMITED);
    let response = w.respond(1, Time::ZERO, 0);
    w.state().on_submit.push_back(vec![response]);
    w.post(1, false);
    w.pass(Span::from_ns(50_000));
    assert_eq!((w.completions(), w.transport.counters.rnr), (vec![], 1));
    w.receives(1);
    w.pass(Span::from_ns(40_000));
    assert_eq!(w.completions(), [], "not before the timer");
    w.pass(Span::from_ns(20_000));
    assert_eq!(w.completions(), [(RECEIVED, 0, 0)]);
    assert_eq!(w.transport.counters.broken, 0);
}

#[test]
fn a_receiver_that_is_never_ready_breaks_the_connection_after_its_retries() {
    let _deadline = deadline();
    let mut w = World::new(LinkConfig::UNLIMITED);
    let response = w.respond(1, Time::ZERO, 0);
    w.state().on_submit.push_back(vec![response]);
    w.post(1, true);
    w.pass(Span::from_ns(250_000)); // the first try and two more
    assert_eq!((w.transport.counters.rnr, w.transport.counters.broken), (3, 0));
    w.pass(Span::from_ns(100_000));
    assert_eq!((w.transport.counters.rnr, w.transport.counters.broken), (4, 1));
    w.pass(Span::from_ms(1));
    assert_eq!(w.transport.counters.rnr, 4, "nothing is tried after that");
}

#[test]
fn many_responses_without_a_receive_each_have_their_own_retries() {
    let _deadline = deadline();
    let mut w = World::new(LinkConfig::UNLIMITED);
    for cid in 0..10 {
        let response = w.respond(cid, Time::ZERO, 0);
        w.state().on_submit.push_back(vec![response]);
        w.post(cid, false);
    }
    w.pass(Span::from_ns(50_000));
    assert_eq!(
        (w.transport.counters.rnr, w.transport.counters.broken),
        (10, 0),
        "ten misses in one instant are not ten retries"
    );
    w.receives(10);
    w.pass(Span::from_ns(100_000));
    assert_eq!(w.completions().len(), 10);
}
