// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Passes and overruns of completion queues.

use super::bytes::nop;
use super::harness::*;
use gnstor_fabric::hca::Down;
use gnstor_fabric::hca::abi::*;
use gnstor_fabric::mlx5::{Cqe64, syndrome};

cases! {
    the_owner_bit_turns_with_each_pass_of_the_completion_queue
    a_queue_without_a_record_overwrites_what_was_not_taken
    a_checked_queue_goes_round_as_long_as_its_owner_takes
    a_completion_without_room_breaks_its_queue_pair_and_overwrites_nothing
    a_message_without_room_for_its_completion_is_not_delivered
}

const CHECKED: Size = Size { checked_cq: true, ..SMALL_SIZE };

fn the_owner_bit_turns_with_each_pass_of_the_completion_queue(harness: &Harness) {
    let end = harness.both(SMALL_SIZE, |s| {
        for pass in 0..3u16 {
            for i in 0..16 {
                s.complete(0, pass * 16 + i);
            }
            s.go();
            for i in 0..16 {
                let cqe = s.cqe(0, i);
                assert_eq!(cqe.op_own, u8::try_from(pass & 1).expect("a bit"), "pass {pass}");
                assert_eq!(
                    u64::from(cqe.wqe_counter.get()),
                    u64::from(pass) * 16 + i,
                    "completions in order"
                );
                assert!(Cqe64::is_valid(cqe.op_own, u32::from(pass) * 16, CQ_LOG));
            }
        }
        s.push(Down::Cqe { qpn: FIRST_QPN, opcode: 13, syndrome: syndrome::FLUSH, counter: 0xFFFE });
        s.go();
    });
    let cqe = end.cqe(0, 0);
    assert_eq!((cqe.op_own, cqe.syndrome(), cqe.wqe_counter.get()), (0xD1, syndrome::FLUSH, 0xFFFE));
}

/// Owner byte and counter of the entries.
fn entries(end: &Side) -> Vec<(u8, u16)> {
    (0..16).map(|i| end.cqe(0, i)).map(|cqe| (cqe.op_own, cqe.wqe_counter.get())).collect()
}

fn a_queue_without_a_record_overwrites_what_was_not_taken(harness: &Harness) {
    let end = harness.both(SMALL_SIZE, |s| {
        (0..18).for_each(|i| s.complete(0, i));
        s.go();
    });
    assert!(end.seen.is_empty());
    assert_eq!(entries(&end)[..3], [(1, 16), (1, 17), (0, 2)]);
}

fn a_checked_queue_goes_round_as_long_as_its_owner_takes(harness: &Harness) {
    let end = harness.both(CHECKED, |s| {
        for (from, taken) in [(0, 0), (8, 5), (16, 10), (24, 16), (32, 24)] {
            s.taken(0, taken);
            (from..from + 8).for_each(|i| s.complete(0, i));
            s.go();
        }
    });
    assert!(end.seen.is_empty());
    assert_eq!((entries(&end)[0], entries(&end)[7], entries(&end)[8]), ((0, 32), (0, 39), (1, 24)));
}

fn a_completion_without_room_breaks_its_queue_pair_and_overwrites_nothing(harness: &Harness) {
    let end = harness.both(CHECKED, |s| {
        (0..2).for_each(|i| s.complete(0, i));
        s.go();
        s.taken(0, 2);
        (2..20).for_each(|i| s.complete(0, i));
        s.go();
        // One overrun is enough, and taking all completions does not undo it.
        s.taken(0, 18);
        s.complete(0, 99);
        s.write_wqe(0, 0, &nop(0, 0));
        s.ring(0, 1);
        s.go();
    });
    assert_eq!(end.kinds(), [UP_CQ_ERROR, UP_WQE_FLUSH]);
    assert_eq!(end.seen[0].qpn, FIRST_QPN);
    assert_eq!(entries(&end)[..3], [(1, 16), (1, 17), (0, 2)]);
}

fn a_message_without_room_for_its_completion_is_not_delivered(harness: &Harness) {
    let end = harness.both(CHECKED, |s| {
        s.receives(0, 0, 4);
        (0..15).for_each(|i| s.complete(0, i));
        s.send(0, 1);
        s.send(0, 2);
        s.send(0, 3);
        s.go();
        s.push(Down::QpError { qpn: FIRST_QPN });
        s.go();
    });
    assert_eq!(end.kinds(), [UP_CQ_ERROR, UP_RQ_FLUSH]);
    assert_eq!((end.seen[1].index, end.seen[1].status), (1, 4), "receives 1 to 3 are left");
    assert_eq!(end.bytes(0, RECV, 32), [[1; 16], [0; 16]].concat());
}
