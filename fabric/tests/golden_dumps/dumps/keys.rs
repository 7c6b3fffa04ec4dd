// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keys that are invalidated.

use super::bytes::*;
use super::faults::fault;
use super::harness::*;
use gnstor_fabric::hca::Down;
use gnstor_fabric::hca::abi::*;
use gnstor_fabric::mlx5::{opcode, syndrome};

cases! {
    an_invalidated_key_opens_nothing_behind_its_request
    an_invalidated_key_opens_nothing_for_what_arrives
    only_a_key_of_the_own_domain_is_invalidated
    a_key_is_invalidated_once
    an_invalidation_that_is_flushed_leaves_its_key
}

const THREE: Size = Size { qps: 3, ..SMALL_SIZE };

fn invalidate(index: u16, q: u32, key: u32) -> Vec<u8> {
    ctrl_imm(opcode::LOCAL_INVAL, index, q, 1, key)
}

fn an_invalidated_key_opens_nothing_behind_its_request(harness: &Harness) {
    // In one batch, the later request is decoded together with the earlier ones.
    let end = harness.both(THREE, |s| {
        s.fill_data(0);
        s.write_wqe(0, 0, &send_with(s, 0, 0, SMALL));
        s.write_wqe(0, 1, &invalidate(1, 0, SMALL));
        s.write_wqe(0, 2, &send_with(s, 0, 2, ALL));
        s.write_wqe(0, 3, &send_with(s, 0, 3, SMALL));
        s.write_wqe(0, 4, &nop(4, 0));
        s.ring(0, 5);
        s.go();
    });
    assert_eq!(end.kinds(), [UP_SEND, UP_LOCAL_INVAL, UP_SEND, UP_WQE_ERROR, UP_WQE_FLUSH]);
    assert_eq!(end.seen[0].payload, end.bytes(0, DATA, 64));
    assert_eq!((end.seen[1].arg[0], end.seen[3].status), (SMALL.into(), syndrome::LOCAL_PROTECTION.into()));
}

fn an_invalidated_key_opens_nothing_for_what_arrives(harness: &Harness) {
    let end = harness.both(THREE, |s| {
        s.write_wqe(0, 0, &invalidate(0, 0, SMALL));
        s.ring(0, 1);
        s.go();
        // Another queue pair of the same protection domain.
        let (qpn, address) = (FIRST_QPN + 2, s.address(0, DATA));
        let local = s.array.slice(0, 64);
        s.push(Down::ToOwner { qpn, local, address, key: SMALL, tag: 1, sum: None });
        s.push(Down::FromOwner { qpn, local, address, key: SMALL, tag: 2 });
        s.push(Down::ToOwner { qpn, local, address, key: ALL, tag: 3, sum: None });
        s.go();
        s.write_receive(2, 0, (16, SMALL, address));
        s.posted(2, 1);
        s.send(2, 7);
        s.go();
    });
    assert_eq!(end.kinds(), [UP_LOCAL_INVAL, UP_DONE, UP_DONE, UP_DONE, UP_RECV_ERROR]);
    let status: Vec<u32> = end.seen[1..].iter().map(|e| e.status).collect();
    assert_eq!(status, [COPY_BAD_KEY, COPY_BAD_KEY, COPY_OK, syndrome::LOCAL_PROTECTION.into()]);
}

fn only_a_key_of_the_own_domain_is_invalidated(harness: &Harness) {
    let bad = [FOREIGN, STALE, ALL ^ 1, 0xDEAD_BEEF].map(|key| fault(harness, |_| invalidate(1, 0, key)));
    assert_eq!(bad, [syndrome::MEMORY_OPERATION; 4]);
    let end = harness.both(THREE, |s| {
        s.write_wqe(0, 0, &invalidate(0, 0, FOREIGN));
        s.ring(0, 1);
        s.go();
        s.write_wqe(FOREIGN_QP, 0, &send_with(s, FOREIGN_QP, 0, FOREIGN));
        s.ring(FOREIGN_QP, 1);
        s.go();
    });
    assert_eq!(end.kinds(), [UP_WQE_ERROR, UP_SEND]);
}

fn a_key_is_invalidated_once(harness: &Harness) {
    let end = harness.both(THREE, |s| {
        for index in 0..3 {
            s.write_wqe(0, index, &invalidate(index, 0, SMALL));
        }
        s.ring(0, 3);
        s.go();
    });
    assert_eq!(end.kinds(), [UP_LOCAL_INVAL, UP_WQE_ERROR, UP_WQE_FLUSH]);
    assert_eq!(end.seen[1].status, syndrome::MEMORY_OPERATION.into());
}

fn an_invalidation_that_is_flushed_leaves_its_key(harness: &Harness) {
    let end = harness.both(THREE, |s| {
        s.write_wqe(0, 0, &send_with(s, 0, 0, STALE));
        s.write_wqe(0, 1, &invalidate(1, 0, SMALL));
        s.ring(0, 2);
        s.go();
        s.write_wqe(0, 2, &invalidate(2, 0, SMALL));
        s.ring(0, 3);
        s.go();
        let wqe = [ctrl(opcode::SEND, 0, 2, 2), data(64, SMALL, s.address(0, DATA))].concat();
        s.write_wqe(2, 0, &wqe);
        s.ring(2, 1);
        s.go();
    });
    assert_eq!(end.kinds(), [UP_WQE_ERROR, UP_WQE_FLUSH, UP_WQE_FLUSH, UP_SEND]);
}
