// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links and connections that end, and transfers that are under way then.

use super::*;

#[test]
fn a_client_whose_stream_ends_has_its_queues_closed_and_is_forgotten() {
    let _deadline = deadline();
    let mut two = Two::new(0);
    two.connected();
    let opened = two.puppet.seen().opened.clone();
    assert!(two.puppet.seen().closed.is_empty());
    // The client's process is gone, without a word.
    two.client = RcTransport::new(TransportConfig::default());
    two.until("the queue is closed", |two| !two.puppet.seen().closed.is_empty());
    assert_eq!(two.puppet.seen().closed, opened);
    assert!(two.array.executors.is_empty() && two.array.conns.is_empty() && two.array.by_qp.is_empty());
}

#[test]
fn a_client_that_goes_while_its_data_is_asked_for_ends_the_transfer() {
    let _deadline = deadline();
    let mut two = Two::new(0);
    two.connected();
    two.command(true);
    // The client transport is not stepped any more once it has sent the command.
    two.until("the pull has begun", |two| !two.array.transfers.is_empty());
    two.client = RcTransport::new(TransportConfig::default());
    two.until("the transfer has ended", |two| !two.puppet.seen().ended.is_empty());
    assert_eq!(two.puppet.seen().ended, [Outcome::ConnectionLost]);
    assert!(two.array.transfers.is_empty());
}

#[test]
fn a_removed_link_gives_back_its_memory_and_its_queues_end_at_the_array() {
    let _deadline = deadline();
    let mut two = Two::new(0);
    let conn = two.connected();
    let staging = two.staging();
    two.client.remove_remote(two.now, two.remote);
    assert_eq!((two.client.remotes(), staging.strong_count()), (0, 0));
    assert!(two.client.conns.get(&conn).unwrap().broken());
    two.until("the queue is closed", |two| !two.puppet.seen().closed.is_empty());
    // What is left of it does no harm: the name has no owner, the connection is closed late.
    let (_, answer) = two.connect(0);
    assert_eq!(answer.try_recv(), Ok(Err(REFUSED_NO_PEER)));
    two.client.close(two.now, conn);
    two.client.remove_remote(two.now, two.remote);
    assert!(two.client.conns.is_empty());
}

#[test]
fn a_link_that_breaks_gives_back_its_memory_by_itself() {
    let _deadline = deadline();
    let mut two = Two::new(0);
    let conn = two.connected();
    let (_, unanswered) = {
        let (reply, answer) = mpsc::channel();
        let port = Port::Remote { remote: two.remote, ssd: 0 };
        (two.client.connect(two.now, to(two.executor, QPN + 1, port), reply), answer)
    };
    let staging = two.staging();
    two.array = RcTransport::new(TransportConfig::default());
    two.until("the link is gone", |two| two.client.remotes() == 0);
    assert_eq!(staging.strong_count(), 0);
    assert!(two.client.conns.get(&conn).unwrap().broken());
    assert_eq!(unanswered.try_recv(), Ok(Err(REFUSED_NO_PEER)));
}

#[test]
fn an_array_that_is_busy_for_a_second_keeps_its_connections_and_one_that_hangs_does_not() {
    let _deadline = deadline();
    let mut two = Two::new(0);
    let conn = two.connected();
    two.command(true);
    for (ms, broken) in [(1_000, false), (5_000, true)] {
        // Only the client's time advances, because the array's process does something else.
        for _ in 0..ms {
            two.now = two.now + Span::from_ms(1);
            two.client.step(two.now);
        }
        assert_eq!(two.client.conns.get(&conn).unwrap().broken(), broken, "after another {ms} ms");
    }
}

/// A machine that is stopped stops both ends, and the client's may be the first to run again.
#[test]
fn time_in_which_the_client_itself_did_not_run_is_no_silence_of_the_array() {
    let _deadline = deadline();
    let mut two = Two::new(0);
    let conn = two.connected();
    two.command(true);
    for _ in 0..20 {
        two.now = two.now + Span::from_ms(1);
        two.client.step(two.now);
    }
    for stopped_ms in [6_000, 60_000] {
        two.now = two.now + Span::from_ms(stopped_ms);
        two.client.step(two.now);
        assert!(!two.client.conns.get(&conn).unwrap().broken(), "after {stopped_ms} ms");
    }
    // An array that hangs is given up nevertheless, when its time from then on is over.
    for (ms, broken) in [(4_900, false), (200, true)] {
        for _ in 0..ms {
            two.now = two.now + Span::from_ms(1);
            two.client.step(two.now);
        }
        assert_eq!(two.client.conns.get(&conn).unwrap().broken(), broken, "after another {ms} ms");
    }
}

#[test]
fn a_link_ends_a_while_after_its_last_connection_was_closed_and_not_before() {
    let _deadline = deadline();
    let mut two = Two::new(0);
    two.pass(1500);
    assert_eq!(two.client.remotes(), 1, "it was never used: its owner is about to");
    let conn = two.connected();
    let staging = two.staging();
    two.client.close(two.now, conn);
    two.pass(500);
    let again = two.connected();
    two.pass(1500);
    assert_eq!(two.client.remotes(), 1, "it is in use");
    two.client.close(two.now, again);
    two.pass(1500);
    assert_eq!((two.client.remotes(), staging.strong_count()), (0, 0));
}

/// A connection on a queue pair, and one before it whose owner did not wait for the answer.
fn connected_after_one_without_an_owner(ssd: u16) -> Two {
    let mut two = Two::new(0);
    drop(two.connect(ssd));
    two.connected();
    two
}

fn moves_data(two: &mut Two) {
    two.command(true);
    two.until("the transfer has ended", |two| !two.puppet.seen().ended.is_empty());
    assert!(matches!(two.puppet.seen().ended[..], [Outcome::Done { .. }]));
}

#[test]
fn a_late_refusal_of_an_earlier_connection_leaves_the_queue_pair_its_newer_one() {
    let _deadline = deadline();
    let mut two = connected_after_one_without_an_owner(5);
    assert_eq!(two.puppet.seen().opened.len(), 1, "SSD 5 is none");
    moves_data(&mut two);
}

#[test]
fn an_earlier_connection_that_the_ssd_closes_leaves_the_newer_one_whole() {
    let _deadline = deadline();
    let mut two = connected_after_one_without_an_owner(0);
    let first = two.puppet.seen().opened[0];
    two.puppet.seen().effects.push_back(Effect::Close { queue: first });
    two.array.drain_effects(two.now, 0);
    two.until("the client has heard of it", |two| two.client.counters.broken == 1);
    moves_data(&mut two);
}

#[test]
fn a_connection_that_is_closed_before_its_answer_keeps_no_link() {
    let _deadline = deadline();
    let mut two = Two::new(0);
    let (conn, answer) = two.connect(0);
    two.client.close(two.now, conn);
    assert!(two.client.remotes[&two.remote].awaits_none());
    two.pass(1500);
    assert_eq!((two.client.remotes(), answer.try_recv().is_ok()), (0, false));
    let seen = two.puppet.seen();
    assert_eq!((seen.opened.len(), &seen.opened), (1, &seen.closed));
}

#[test]
fn staging_memory_stays_while_a_transfer_moves_through_it() {
    let _deadline = deadline();
    let mut two = Two::new(0);
    two.connected();
    two.command(false);
    let staging = two.staging();
    two.until("a push is under way at the client", |two| !two.client.transfers.is_empty());
    two.client.remove_remote(two.now, two.remote);
    assert_eq!(
        (two.client.remotes(), staging.strong_count() > 0),
        (1, true),
        "an executor may still read it"
    );
    two.until("the link is gone", |two| two.client.remotes() == 0);
    assert_eq!(staging.strong_count(), 0);
}

#[test]
fn an_executor_that_is_removed_gives_back_the_staging_memory_of_its_transfers() {
    let _deadline = deadline();
    let mut two = Two::new(0);
    two.connected();
    two.command(false);
    two.until("a push is under way at the client", |two| !two.client.transfers.is_empty());
    two.client.remove_executor(two.now, two.executor);
    assert!(two.client.transfers.is_empty());
    two.client.remove_remote(two.now, two.remote);
    assert_eq!(two.client.remotes(), 0);
}

#[test]
fn transfers_longer_than_a_block_cross_the_link_whole() {
    let _deadline = deadline();
    for (pull, bytes) in [(true, 60_000), (false, 60_000), (true, 4097), (false, 8192), (true, 5)] {
        let mut two = Two::new(0);
        two.connected();
        let data: Vec<u8> = (0..bytes).map(|i| u8::try_from(i % 251).unwrap()).collect();
        if pull {
            two.memory.write(DATA, &data)
        } else {
            two.flash.write(0, &data)
        }
        two.command_of(pull, bytes);
        two.until("the transfer has ended", |two| !two.puppet.seen().ended.is_empty());
        assert!(
            matches!(two.puppet.seen().ended[..], [Outcome::Done { .. }]),
            "{:?}",
            two.puppet.seen().ended
        );
        let mut back = vec![0; data.len()];
        if pull {
            two.flash.read(0, &mut back)
        } else {
            two.memory.read(DATA, &mut back)
        }
        assert!(back == data, "{bytes} bytes, pull {pull}");
    }
}

#[test]
fn a_long_transfer_of_which_a_piece_fails_fails_once() {
    let _deadline = deadline();
    let mut two = Two::new(0);
    two.connected();
    // The client's registered memory ends within it.
    two.client.soft(two.executor).unwrap().deregister(KEY);
    let (access, range) = (ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE, (0, DATA + 20_000));
    let mr = SoftMr { memory: Arc::clone(&two.memory), range, key: KEY, access, pd: 1 };
    two.client.soft(two.executor).unwrap().register(mr);
    two.command_of(true, 60_000);
    two.until("the transfer has ended", |two| !two.puppet.seen().ended.is_empty());
    two.pass(20);
    assert_eq!(two.puppet.seen().ended, [Outcome::RemoteAccess]);
}

#[test]
fn an_ssd_of_its_own_answers_to_its_number_only() {
    let _deadline = deadline();
    let mut two = Two::new(3);
    for (ssd, answer) in
        [(0, Err(REFUSED_NO_PEER)), (2, Err(REFUSED_NO_PEER)), (4, Err(REFUSED_NO_PEER)), (3, Ok(()))]
    {
        let (_, told) = two.connect(ssd);
        let mut got = None;
        two.until("an answer", |_| {
            got = told.try_recv().ok();
            got.is_some()
        });
        assert_eq!(got, Some(answer), "SSD {ssd}");
    }
}

#[test]
fn a_lent_controller_comes_back_with_the_end_of_the_transport() {
    let _deadline = deadline();
    let mut transport = RcTransport::new(TransportConfig::default());
    let (lent, back) = lend(Puppet::default());
    transport.add_target(Box::new(lent), vec![]);
    transport.step(Time::ZERO);
    assert!(back.try_recv().is_err(), "the transport has it");
    drop(transport);
    assert!(back.try_recv().is_ok());
}
