// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Responses and SENDs that are handed over before they are due.

use super::*;

/// Whether something is seen that needs this process to get on within 150 ms: on a busy machine it is tried
/// again.
fn is_seen(mut once: impl FnMut() -> bool) -> bool {
    (0..10).any(|_| once())
}

#[test]
fn a_response_waits_until_it_is_due_and_holds_up_no_other() {
    let _deadline = deadline();
    assert!(is_seen(what_is_due_overtakes_a_response), "what is due goes first");
}

fn what_is_due_overtakes_a_response() -> bool {
    let mut world = World::new(64);
    #[expect(clippy::disallowed_methods, reason = "the agent has a clock of its own")]
    let clock = std::time::Instant::now();
    world.executor.push(Down::Ping { tag: 1 });
    world.launch();
    let pong_ns = world.pong_ns();
    // The agent's clock runs as the host's does.
    let soon = |ns: u64| pong_ns + u64::try_from(clock.elapsed().as_nanos()).expect("short") + ns;
    world.answer_at(1, &[world.part(1, 0)], soon(150_000_000));
    world.answer_at(2, &[world.part(2, 1)], 0);
    world.launch();
    assert_eq!(world.outcomes().len(), 2);
    world.responses() == [2, 1]
}

#[test]
fn a_send_that_comes_early_waits_and_holds_up_no_other_but_what_ends_its_queue_pair() {
    let _deadline = deadline();
    assert!(is_seen(what_is_due_overtakes_early_sends), "what is due goes before what is early");
}

#[test]
fn responses_are_counted_as_late_by_both_measures() {
    let _deadline = deadline();
    let mut world = World::new(64);
    // What was due long ago is seen seconds late, whatever the clock; what is due at 0 has no modelled time.
    let (long_ago, untimed) = (1, 0);
    let after = |late_ns, client_late_ns| Allowance { late_ns, client_late_ns };
    let sends = [
        (long_ago, Allowance::NEVER),
        (long_ago, after(5, 5)),
        (long_ago, after(5, -5)),
        (untimed, after(0, -5)),
        (untimed, Allowance::AT_ONCE),
    ];
    for (due_ns, allowance) in sends {
        let bytes = [0; 16];
        world.executor.push(Down::Send { qpn: QPN, bytes, due_ns, allowance });
    }
    world.launch();
    let stats = world.hca.stats().expect("contexts");
    assert_eq!((stats.responses, stats.late, stats.client_late), (5, 3, 3));
    // Seen within a second of its time: late to a client that had waited a second too long before.
    world.executor.push(Down::Ping { tag: 1 });
    world.launch();
    let pong_ns = world.pong_ns();
    let due_ns = pong_ns + 1_000_000;
    for client_late_ns in [i32::MAX, -1_000_000_000, i32::MIN] {
        let allowance = Allowance { late_ns: Allowance::NEVER.late_ns, client_late_ns };
        world.executor.push(Down::Send { qpn: QPN, bytes: [0; 16], due_ns, allowance });
    }
    world.launch();
    let stats = world.hca.stats().expect("contexts");
    assert_eq!((stats.responses, stats.late, stats.client_late), (8, 3, 5));
}

fn what_is_due_overtakes_early_sends() -> bool {
    let mut world = World::new(128);
    #[expect(clippy::disallowed_methods, reason = "the agent has a clock of its own")]
    let clock = std::time::Instant::now();
    world.executor.push(Down::Ping { tag: 1 });
    world.launch();
    let pong_ns = world.pong_ns();
    let soon = |ns: u64| pong_ns + u64::try_from(clock.elapsed().as_nanos()).expect("short") + ns;
    let mut send = |tag: u64, due_ns: u64| {
        let mut bytes = [0; 16];
        bytes[8..].copy_from_slice(&(tag | 1 << 63).to_le_bytes());
        world.executor.push(Down::Send { qpn: QPN, bytes, due_ns, allowance: Allowance::NEVER });
    };
    // More than wait at once.
    (0..80).for_each(|tag| send(tag, soon(150_000_000)));
    (80..120).for_each(|tag| send(tag, 0));
    world.executor.push(Down::QpError { qpn: QPN });
    world.launch();
    let mut seen = world.responses();
    assert_eq!(seen.len(), 120, "the SENDs due after the end came too");
    let place = |tag| seen.iter().position(|&other| other == tag);
    let is_first = place(80) < place(79);
    seen.sort_unstable();
    assert_eq!(seen, (0..120).collect::<Vec<_>>());
    is_first
}

#[test]
fn answers_that_were_taken_back_are_neither_sent_nor_told_and_their_slots_come_back() {
    let _deadline = deadline();
    let mut world = World::new(64);
    for round in 0..4 {
        for tag in 0..200u32 {
            world.answer(tag, &[world.part(1, 0), world.part(2, 1)]);
        }
        assert!(world.executor.take_back(QPN));
        world.launch();
        assert_eq!((world.outcomes(), world.responses()), (vec![], vec![]), "round {round}");
        assert_eq!([0, 1].map(|at| world.block(at)), [0, 0]);
    }
    world.answer(9, &[world.part(1, 0)]);
    world.launch();
    assert_eq!((world.outcomes(), world.responses()), (vec![(9, COPY_OK)], vec![9]));
}

#[test]
fn a_wait_takes_in_the_whole_of_an_answer_that_has_begun() {
    let _deadline = deadline();
    let mut world = World::new(64);
    let parts = vec![world.part(7, 0); 250];
    (0..10).for_each(|tag| world.answer(tag, &parts)); // the ring is full in the midst of the ninth
    let wait = world.executor.quiesce();
    assert!(world.outcomes().is_empty());
    world.launch();
    assert_eq!(world.outcomes().len(), 8);
    assert!(!world.executor.is_quiescent(wait), "the ninth is under way");
    world.launch();
    assert_eq!(world.outcomes(), [(8, COPY_OK)]);
    assert!(world.executor.poll().is_none() && world.executor.is_quiescent(wait));
    world.launch();
    assert_eq!(world.outcomes(), [(9, COPY_OK)], "the tenth began behind the wait");
    assert_eq!(world.responses().len(), 10);
}

#[test]
fn where_writes_are_not_ordered_the_data_of_a_fused_response_waits_for_a_dump() {
    let _deadline = deadline();
    let mut world = World::new(64);
    world.hca.set_unordered(Unordered::Data).expect("memory");
    world.answer(1, &[world.part(7, 0), world.part(8, 1)]);
    world.launch();
    assert_eq!((world.outcomes(), world.responses()), (vec![(1, COPY_OK)], vec![1]));
    assert_eq!([0, 1].map(|at| world.block(at)), [0, 0]);
    world.owner.write(SQ, CtrlSeg::new(opcode::DUMP, 0, QPN, 2, 0).as_bytes());
    let seg =
        DataSeg { byte_count: 16.into(), lkey: world.key.into(), address: world.owner.address().into() };
    world.owner.write(SQ + 16, seg.as_bytes());
    world.owner.write(DBR + 4, U32::new(1).as_bytes());
    world.owner.write(UAR + mlx5::UAR_DB0, &mlx5::doorbell_value(1, QPN));
    world.launch();
    let dump = world.executor.poll();
    assert!(matches!(dump, Some(Up::Request(WorkRequest { operation: Operation::Dump, .. }))), "{dump:?}");
    assert_eq!([0, 1].map(|at| world.block(at)), [8, 9]);
}
