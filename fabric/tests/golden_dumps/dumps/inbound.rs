// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Inbound messages.

use super::bytes::*;
use super::harness::*;
use gnstor_fabric::hca::Down;
use gnstor_fabric::hca::abi::*;
use gnstor_fabric::mlx5::syndrome;

cases! {
    inbound_sends_consume_receives_in_order
    a_send_without_a_receive_comes_back_whole_and_consumes_nothing
    a_faulty_receive_breaks_the_queue_pair_and_takes_nothing_more
    sends_errors_and_completions_of_one_queue_pair_keep_their_order
    messages_for_a_queue_pair_that_is_gone_change_nothing
}

fn inbound_sends_consume_receives_in_order(harness: &Harness) {
    let end = harness.both(SMALL_SIZE, |s| {
        s.receives(0, 0, 8);
        for mark in 1..=8 {
            s.send(0, mark | 0x80); // bit 63 of both words: it travels apart
        }
        s.go();
    });
    assert!(end.seen.is_empty());
    for i in 0..8u16 {
        let cqe = end.cqe(0, i.into());
        assert_eq!((cqe.opcode(), cqe.wqe_counter.get(), cqe.byte_count.get()), (2, i, 16), "completion {i}");
        assert_eq!((cqe.sop_qpn.get(), cqe.op_own & 1), (FIRST_QPN, 0));
        let mark = u8::try_from(i + 1).expect("small") | 0x80;
        assert_eq!(end.bytes(0, RECV + u64::from(i) * 16, 16), [mark; 16], "message {i}");
    }
    assert_eq!(end.cqe(0, 8).op_own, 0xF1, "no further completion");
}

fn a_send_without_a_receive_comes_back_whole_and_consumes_nothing(harness: &Harness) {
    let end = harness.both(SMALL_SIZE, |s| {
        s.receives(0, 0, 1);
        s.send(0, 1);
        s.send(0, 0xF2);
        s.go();
        s.receives(0, 1, 2);
        s.send(0, 3);
        s.go();
        s.posted(0, 2 + 17); // more than the ring holds: as good as none
        s.send(0, 4);
        s.go();
    });
    assert_eq!(end.kinds(), [UP_RNR, UP_RNR]);
    assert_eq!((end.seen[0].index, end.seen[0].arg), (1, [0xF2F2_F2F2_F2F2_F2F2; 2]));
    assert_eq!((end.cqe(0, 1).wqe_counter.get(), end.bytes(0, RECV + 16, 1)), (1, vec![3]));
}

fn a_faulty_receive_breaks_the_queue_pair_and_takes_nothing_more(harness: &Harness) {
    for (bytes, key, at, status) in [
        (15, ALL, DATA, syndrome::LOCAL_LENGTH),
        (16, STALE, DATA, syndrome::LOCAL_PROTECTION),
        (16, READ_ONLY, DATA, syndrome::LOCAL_PROTECTION),
        (16, FOREIGN, DATA, syndrome::LOCAL_PROTECTION),
        (16, ALL, DATA + 8, syndrome::LOCAL_PROTECTION), // a response is stored in one piece of 16 bytes
    ] {
        let end = harness.both(SMALL_SIZE, |s| {
            s.receives(0, 0, 4);
            s.write_receive(0, 1, (bytes, key, s.address(0, at)));
            s.send(0, 1);
            s.send(0, 2);
            s.send(0, 3);
            s.go();
            s.write_wqe(0, 0, &plain_send(s, 0, 0));
            s.ring(0, 1);
            s.go();
            s.push(Down::QpError { qpn: FIRST_QPN });
            s.go();
        });
        assert_eq!(end.kinds(), [UP_RECV_ERROR, UP_WQE_FLUSH, UP_RQ_FLUSH]);
        assert_eq!((end.seen[0].index, end.seen[0].status), (1, status.into()));
        assert_eq!((end.seen[2].index, end.seen[2].status), (2, 4), "receives 2 and 3 are left to flush");
        assert_eq!((end.cqe(0, 0).op_own, end.cqe(0, 1).op_own), (0x20, 0xF1));
    }
}

fn sends_errors_and_completions_of_one_queue_pair_keep_their_order(harness: &Harness) {
    let end = harness.both(SMALL_SIZE, |s| {
        s.receives(0, 0, 3);
        s.send(0, 1);
        s.push(Down::Cqe { qpn: FIRST_QPN, opcode: 0, syndrome: 0, counter: 7 });
        s.send(0, 2);
        s.push(Down::QpError { qpn: FIRST_QPN });
        s.send(0, 3);
        for counter in 8..12 {
            s.push(Down::Cqe { qpn: FIRST_QPN, opcode: 13, syndrome: syndrome::FLUSH, counter });
        }
        s.go();
    });
    assert_eq!(end.kinds(), [UP_RQ_FLUSH]);
    assert_eq!((end.seen[0].index, end.seen[0].status), (2, 3));
    let order: Vec<(u8, u16)> =
        (0..7).map(|i| (end.cqe(0, i).opcode(), end.cqe(0, i).wqe_counter.get())).collect();
    assert_eq!(order, [(2, 0), (0, 7), (2, 1), (13, 8), (13, 9), (13, 10), (13, 11)]);
}

fn messages_for_a_queue_pair_that_is_gone_change_nothing(harness: &Harness) {
    let end = harness.both(SMALL_SIZE, |s| {
        s.destroy(0); // not the last one, so that its number is still within the agent's table
        let qpn = FIRST_QPN;
        s.send(0, 1);
        s.push(Down::QpError { qpn });
        s.push(Down::Cqe { qpn, opcode: 0, syndrome: 0, counter: 0 });
        let local = s.array.slice(0, 4096);
        s.push(Down::FromOwner { qpn, local, address: s.address(0, DATA), key: ALL, tag: 9 });
        s.push(Down::Ping { tag: 5 });
        s.go();
    });
    assert_eq!(end.kinds(), [UP_PONG, UP_DONE]);
    assert_eq!(end.seen[1].status, COPY_BAD_KEY);
    assert_eq!((end.cqe(0, 0).op_own, end.cqe(1, 0).op_own), (0xF1, 0xF1));
}
