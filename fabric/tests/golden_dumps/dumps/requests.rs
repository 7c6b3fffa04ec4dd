// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work requests that are good.

use super::bytes::*;
use super::harness::*;
use gnstor_fabric::hca::abi::*;
use gnstor_fabric::mlx5::{CE_CQ_UPDATE, CtrlSeg, opcode, syndrome};
use zerocopy::IntoBytes;

cases! {
    golden_bytes_of_a_send_are_executed_as_one
    a_send_gathers_its_segments_in_order
    inline_sends_of_two_blocks_wrap_at_the_rings_end
    rdma_requests_are_decoded_and_checked
    sends_carry_immediate_data_a_key_to_invalidate_or_a_clients_stamp
    writes_carry_immediate_data_and_take_several_segments
    a_dump_reads_what_its_key_opens
    no_fence_mode_changes_what_is_executed
    only_the_completion_mode_always_is_signalled
}

fn golden_bytes_of_a_send_are_executed_as_one(harness: &Harness) {
    let end = harness.both(SMALL_SIZE, |s| {
        s.fill_data(0);
        #[rustfmt::skip]
        let mut wqe = [
            0x00, 0x00, 0x00, 0x0A,  0x00, 0x01, 0x00, 0x02,  0x00, 0x00, 0x00, 0x08,  0x00, 0x00, 0x00, 0x00,
            0x00, 0x00, 0x00, 0x40,  0x00, 0x00, 0x00, 0x01,  0, 0, 0, 0, 0, 0, 0, 0,
        ];
        wqe[24..].copy_from_slice(zerocopy::byteorder::big_endian::U64::new(s.address(0, DATA)).as_bytes());
        s.write_wqe(0, 0, &wqe);
        s.ring(0, 1);
        s.go();
    });
    assert_eq!(end.seen.len(), 1);
    assert_eq!((end.seen[0].kind, end.seen[0].flags, end.seen[0].qpn), (UP_SEND, UP_SIGNALLED, FIRST_QPN));
    assert_eq!(end.seen[0].payload, end.bytes(0, DATA, 64));
}

fn a_send_gathers_its_segments_in_order(harness: &Harness) {
    let end = harness.both(SMALL_SIZE, |s| {
        s.fill_data(0);
        let at = |o| s.address(0, DATA + o);
        s.write_wqe(0, 0, &plain_send(s, 0, 0));
        s.write_wqe(
            0,
            1,
            &[ctrl(opcode::SEND, 1, 0, 3), data(16, ALL, at(100)), data(48, ALL, at(32))].concat(),
        );
        let three =
            [ctrl(opcode::SEND, 2, 0, 4), data(3, ALL, at(5)), data(29, ALL, at(201)), data(32, ALL, at(64))];
        s.write_wqe(0, 2, &three.concat());
        // A SEND may mix inline bytes and memory, and may be empty.
        s.write_wqe(0, 3, &[ctrl(opcode::SEND, 3, 0, 3), inline(b"abcd"), data(5, ALL, at(9))].concat());
        s.write_wqe(0, 4, &ctrl(opcode::SEND, 4, 0, 1));
        s.ring(0, 5);
        s.go();
    });
    let d = end.bytes(0, DATA, 256);
    assert_eq!(end.kinds(), [UP_SEND; 5]);
    assert_eq!(end.seen[1].payload, [&d[100..116], &d[32..80]].concat());
    assert_eq!(end.seen[2].payload, [&d[5..8], &d[201..230], &d[64..96]].concat());
    assert_eq!(end.seen[3].payload, [b"abcd", &d[9..14]].concat());
    assert_eq!(end.seen[4].bytes, 0);
}

fn inline_sends_of_two_blocks_wrap_at_the_rings_end(harness: &Harness) {
    let bytes: Vec<u8> = (1..=64).collect();
    let end = harness.both(SMALL_SIZE, |s| {
        for index in 0..15 {
            s.write_wqe(0, index, &nop(index, 0));
        }
        s.ring(0, 15);
        s.go();
        // Control and 4 + 64 bytes of inline data are six segments: block 15 and, behind the end, block 0.
        s.write_wqe(0, 15, &[ctrl(opcode::SEND, 15, 0, 6), inline(&bytes)].concat());
        s.write_wqe(0, 17, &[ctrl(opcode::SEND, 17, 0, 4), inline(&bytes[..44])].concat());
        s.ring(0, 18);
        s.go();
    });
    let sends = &end.seen[15..];
    assert_eq!((sends[0].index, sends[0].payload.as_slice()), (15, bytes.as_slice()));
    assert_eq!((sends[1].index, sends[1].payload.as_slice()), (17, &bytes[..44]));
}

fn rdma_requests_are_decoded_and_checked(harness: &Harness) {
    let end = harness.both(SMALL_SIZE, |s| {
        let local = s.address(0, DATA + 256);
        let remote = raddr(0x1122_3344_5566_7788, 0xAABB_CCDD);
        s.write_wqe(
            0,
            0,
            &[ctrl(opcode::RDMA_WRITE, 0, 0, 3), remote.clone(), data(512, ALL, local)].concat(),
        );
        s.write_wqe(
            0,
            1,
            &[ctrl(opcode::RDMA_READ, 1, 0, 3), remote.clone(), data(4096, ALL, local)].concat(),
        );
        // Writing needs no right to the local memory, reading does.
        let read_only = data(16, READ_ONLY, s.address(0, DATA));
        s.write_wqe(0, 2, &[ctrl(opcode::RDMA_WRITE, 2, 0, 3), remote.clone(), read_only.clone()].concat());
        s.write_wqe(0, 3, &[ctrl(opcode::RDMA_READ, 3, 0, 3), remote, read_only].concat());
        s.ring(0, 4);
        s.go();
    });
    assert_eq!(end.kinds(), [UP_WRITE, UP_READ, UP_WRITE, UP_WQE_ERROR]);
    assert_eq!(end.seen[0].arg, [0x1122_3344_5566_7788, end.at(0, DATA + 256)]);
    assert_eq!(end.seen[0].payload, 0xAABB_CCDD_0000_0001u64.as_bytes());
    assert_eq!(end.seen[3].status, u32::from(syndrome::LOCAL_PROTECTION));
}

fn only_the_completion_mode_always_is_signalled(harness: &Harness) {
    let end = harness.both(SMALL_SIZE, |s| {
        for (index, mode) in [(0, 0u8), (1, CE_CQ_UPDATE), (2, 0x04), (3, 0x0C), (4, CE_CQ_UPDATE | 0x42)] {
            s.write_wqe(0, index, CtrlSeg::new(opcode::NOP, index, FIRST_QPN, 1, mode).as_bytes());
        }
        s.ring(0, 5);
        s.go();
    });
    let flags: Vec<u32> = end.seen.iter().map(|e| e.flags).collect();
    assert_eq!(flags, [0, UP_SIGNALLED, 0, 0, UP_SIGNALLED]);
}

fn sends_carry_immediate_data_a_key_to_invalidate_or_a_clients_stamp(harness: &Harness) {
    let end = harness.both(SMALL_SIZE, |s| {
        s.fill_data(0);
        let local = data(64, ALL, s.address(0, DATA));
        s.write_wqe(0, 0, &[ctrl_imm(opcode::SEND_IMM, 0, 0, 2, 0x8123_4567), local.clone()].concat());
        s.write_wqe(0, 1, &[ctrl_imm(opcode::SEND_INVAL, 1, 0, 2, 0xFEDC_BA98), local].concat());
        s.write_wqe(0, 2, &[ctrl_imm(opcode::SEND_IMM, 2, 0, 4, 7), inline(&[5; 44])].concat());
        let local = data(64, ALL, s.address(0, DATA));
        s.write_wqe(0, 3, &[ctrl_imm(opcode::SEND, 3, 0, 2, 0xFFFF_FF01), local].concat());
        s.write_wqe(0, 4, &plain_send(s, 0, 4));
        s.ring(0, 5);
        s.go();
    });
    assert_eq!(end.kinds(), [UP_SEND, UP_SEND_INVAL, UP_SEND, UP_SEND, UP_SEND]);
    let args: Vec<(u32, u64)> = end.seen.iter().map(|e| (e.flags, e.arg[0])).collect();
    let stamps = [(0, 0xFFFF_FF01), (0, 0)];
    assert_eq!(args[..3], [(UP_IMMEDIATE, 0x8123_4567), (0, 0xFEDC_BA98), (UP_IMMEDIATE, 7)]);
    assert_eq!(args[3..], stamps);
    assert!(end.seen[..2].iter().all(|e| e.payload == end.bytes(0, DATA, 64)));
}

fn writes_carry_immediate_data_and_take_several_segments(harness: &Harness) {
    let end = harness.both(SMALL_SIZE, |s| {
        let (remote, at) = (raddr(0x10, 0xAABB_CCDD), |o| s.address(0, DATA + o));
        let imm = ctrl_imm(opcode::RDMA_WRITE_IMM, 0, 0, 3, 0xC0FF_EE00);
        s.write_wqe(0, 0, &[imm, remote.clone(), data(512, ALL, at(256))].concat());
        let two = [data(4096, ALL, at(0)), data(100, SMALL, at(0))];
        s.write_wqe(
            0,
            1,
            &[ctrl(opcode::RDMA_READ, 1, 0, 4), remote.clone(), two[0].clone(), data(64, SMALL, at(0))]
                .concat(),
        );
        s.write_wqe(0, 2, &[ctrl(opcode::RDMA_WRITE, 2, 0, 4), remote.clone(), inline(&[1; 28])].concat());
        // The second segment leaves its region.
        s.write_wqe(0, 3, &[ctrl(opcode::RDMA_WRITE, 3, 0, 4), remote, two.concat()].concat());
        s.ring(0, 4);
        s.go();
    });
    assert_eq!(end.kinds(), [UP_WRITE, UP_READ, UP_WRITE, UP_WQE_ERROR]);
    let bytes: Vec<u32> = end.seen[..3].iter().map(|e| e.bytes).collect();
    assert_eq!((bytes, end.seen[0].flags), (vec![512, 4160, 28], UP_IMMEDIATE));
    assert_eq!(end.seen[0].payload, [0xAABB_CCDD_0000_0001, 0xC0FF_EE00u64].as_bytes());
    assert_eq!(end.seen[3].status, u32::from(syndrome::LOCAL_PROTECTION));
}

fn a_dump_reads_what_its_key_opens(harness: &Harness) {
    let dump = |s: &Side, index, bytes, key| {
        [ctrl(opcode::DUMP, index, 0, 2), data(bytes, key, s.address(0, DATA))].concat()
    };
    let end = harness.both(SMALL_SIZE, |s| {
        s.write_wqe(0, 0, &dump(s, 0, 1, ALL));
        s.write_wqe(0, 1, &dump(s, 1, 64, SMALL));
        s.write_wqe(0, 2, &dump(s, 2, 1, READ_ONLY));
        s.write_wqe(0, 3, &dump(s, 3, 65, SMALL));
        s.write_wqe(0, 4, &dump(s, 4, 1, ALL));
        s.ring(0, 5);
        s.go();
    });
    assert_eq!(end.kinds(), [UP_DUMP, UP_DUMP, UP_DUMP, UP_WQE_ERROR, UP_WQE_FLUSH]);
    assert_eq!(end.seen[3].status, u32::from(syndrome::LOCAL_PROTECTION));
}

fn no_fence_mode_changes_what_is_executed(harness: &Harness) {
    let play = |fence: u8| {
        harness.both(SMALL_SIZE, |s| {
            s.fill_data(0);
            let mode = fence | CE_CQ_UPDATE;
            let ctrl = |op, index, ds| CtrlSeg::new(op, index, FIRST_QPN, ds, mode);
            let local = data(64, ALL, s.address(0, DATA));
            s.write_wqe(0, 0, &[ctrl(opcode::SEND, 0, 2).as_bytes(), &local].concat());
            s.write_wqe(0, 1, &[ctrl(opcode::DUMP, 1, 2).as_bytes(), &local].concat());
            s.write_wqe(0, 2, ctrl(opcode::LOCAL_INVAL, 2, 1).with_imm(SMALL).as_bytes());
            s.write_wqe(0, 3, ctrl(opcode::NOP, 3, 1).as_bytes());
            s.write_wqe(0, 4, &[ctrl(opcode::RDMA_READ, 4, 3).as_bytes(), &raddr(0, 0), &local].concat());
            s.ring(0, 5);
            s.go();
        })
    };
    let plain = play(0);
    assert_eq!(plain.kinds(), [UP_SEND, UP_DUMP, UP_LOCAL_INVAL, UP_NOP, UP_READ]);
    for fence in [0x20, 0x40, 0x60, 0x80] {
        assert_eq!(play(fence).seen, plain.seen, "fence mode {fence:#x}");
    }
}
