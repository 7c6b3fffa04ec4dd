// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work requests that are not, each with the syndrome that it must have.

use super::bytes::*;
use super::harness::*;
use gnstor_fabric::hca::abi::*;
use gnstor_fabric::mlx5::{CtrlSeg, opcode, syndrome};
use zerocopy::IntoBytes;

cases! {
    a_request_that_is_not_what_it_says_is_an_operation_error
    a_key_that_does_not_open_the_bytes_is_a_protection_error
    a_message_longer_than_the_peers_receive_is_an_invalid_request
    a_protection_domain_opens_its_own_keys_only
    good_requests_before_one_that_is_longer_than_what_was_posted_are_executed
}

/// Posts a faulty request between good ones. Returns the syndrome of the fault.
pub(crate) fn fault(harness: &Harness, wqe: impl Fn(&Side) -> Vec<u8>) -> u8 {
    let end = harness.both(SMALL_SIZE, |s| {
        s.write_wqe(0, 0, &nop(0, 0));
        let faulty = wqe(s);
        let blocks = u16::try_from(faulty.len().div_ceil(64)).expect("short");
        s.write_wqe(0, 1, &faulty);
        for index in 1 + blocks..4 + blocks {
            s.write_wqe(0, index, &nop(index, 0));
        }
        s.ring(0, 3 + blocks);
        s.go();
        s.ring(0, 4 + blocks);
        s.go();
    });
    assert_eq!(end.kinds(), [UP_NOP, UP_WQE_ERROR, UP_WQE_FLUSH, UP_WQE_FLUSH, UP_WQE_FLUSH]);
    let mut indexes: Vec<u32> = end.seen.iter().map(|e| e.index).collect();
    assert!(indexes.is_sorted());
    indexes.dedup();
    assert_eq!(indexes.len(), 5, "everything behind the error is flushed once, in order");
    u8::try_from(end.seen[1].status).expect("a byte")
}

fn a_request_that_is_not_what_it_says_is_an_operation_error(harness: &Harness) {
    let send = |op, index, qpn: u32, ds| {
        move |s: &Side| {
            [CtrlSeg::new(op, index, qpn, ds, 0).as_bytes().to_vec(), data(64, ALL, s.address(0, DATA))]
                .concat()
        }
    };
    let bad = [
        fault(harness, send(opcode::SEND, 2, FIRST_QPN, 2)),
        fault(harness, send(opcode::SEND, 1, FIRST_QPN + 1, 2)),
        fault(harness, send(0x55, 1, FIRST_QPN, 2)),
        fault(harness, send(opcode::SEND, 1, FIRST_QPN, 0)),
        fault(harness, send(opcode::RDMA_WRITE, 1, FIRST_QPN, 2)),
        // Inline data whose length exceeds the request.
        fault(harness, |_| [ctrl(opcode::SEND, 1, 0, 2), inline(&[7; 40])].concat()),
        // A READ cannot write to the place of its request, nor can a DUMP read there.
        fault(harness, |_| [ctrl(opcode::RDMA_READ, 1, 0, 3), raddr(0, 0), inline(&[0; 8])].concat()),
        fault(harness, |_| [ctrl(opcode::DUMP, 1, 0, 2), inline(&[0; 8])].concat()),
        fault(harness, send(opcode::DUMP, 1, FIRST_QPN, 1)),
        fault(harness, send(opcode::DUMP, 1, FIRST_QPN, 3)),
        fault(harness, send(opcode::LOCAL_INVAL, 1, FIRST_QPN, 2)),
    ];
    assert_eq!(bad, [syndrome::LOCAL_QP_OPERATION; 11]);
}

fn a_key_that_does_not_open_the_bytes_is_a_protection_error(harness: &Harness) {
    let send = |bytes, key, at: u64| {
        move |s: &Side| {
            [ctrl(opcode::SEND, 1, 0, 2), data(bytes, key, s.address(0, 0).wrapping_add(at))].concat()
        }
    };
    let end_of_memory = SMALL_SIZE.keyed();
    let bad = [
        fault(harness, send(64, 0xDEAD_BEEF, DATA)),
        fault(harness, send(64, ALL ^ 1, DATA)),
        fault(harness, send(64, FOREIGN, DATA)),
        fault(harness, send(64, STALE, DATA)),
        fault(harness, send(64, SMALL, DATA + 1)),
        fault(harness, send(64, SMALL, DATA - 1)),
        fault(harness, send(64, ALL, end_of_memory - 63)),
        fault(harness, send(16, ALL, u64::MAX - 0xFFFF)),
        // Too long, and its key is not valid: the key is checked first.
        fault(harness, send(65, SMALL, DATA)),
        // Rights are the key's too: "local access" (11h) is for a receive of the peer's RDMA WRITE with
        // immediate data alone.
        fault(harness, |s| {
            [ctrl(opcode::RDMA_READ, 1, 0, 3), raddr(0, 0), data(16, READ_ONLY, s.address(0, DATA))].concat()
        }),
    ];
    assert_eq!(bad, [syndrome::LOCAL_PROTECTION; 10]);
}

fn a_message_longer_than_the_peers_receive_is_an_invalid_request(harness: &Harness) {
    let bad = [
        fault(harness, |s| [ctrl(opcode::SEND, 1, 0, 2), data(65, ALL, s.address(0, DATA))].concat()),
        fault(harness, |s| {
            [ctrl(opcode::SEND, 1, 0, 3), data(64, ALL, s.address(0, DATA)), data(1, ALL, s.address(0, 0))]
                .concat()
        }),
        fault(harness, |_| [ctrl(opcode::SEND, 1, 0, 6), inline(&[7; 65])].concat()),
    ];
    assert_eq!(bad, [syndrome::REMOTE_INVALID_REQUEST; 3]);
}

fn a_protection_domain_opens_its_own_keys_only(harness: &Harness) {
    let end = harness.both(SMALL_SIZE, |s| {
        let q = FOREIGN_QP;
        s.write_wqe(q, 0, &[ctrl(opcode::SEND, 0, q, 2), data(64, FOREIGN, s.address(q, DATA))].concat());
        s.write_wqe(q, 1, &[ctrl(opcode::SEND, 1, q, 2), data(64, ALL, s.address(q, DATA))].concat());
        s.ring(q, 2);
        s.go();
    });
    assert_eq!(end.kinds(), [UP_SEND, UP_WQE_ERROR]);
}

fn good_requests_before_one_that_is_longer_than_what_was_posted_are_executed(harness: &Harness) {
    let end = harness.both(SMALL_SIZE, |s| {
        for index in 0..3 {
            s.write_wqe(0, index, &plain_send(s, 0, index));
        }
        s.write_wqe(0, 3, &[ctrl(opcode::SEND, 3, 0, 6), inline(&[7; 64])].concat());
        s.ring(0, 4); // one block short
        s.go();
    });
    assert_eq!(end.kinds(), [UP_SEND, UP_SEND, UP_SEND, UP_WQE_ERROR]);
    assert_eq!(end.seen[3].status, u32::from(syndrome::LOCAL_QP_OPERATION));
}
