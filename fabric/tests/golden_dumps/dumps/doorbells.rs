// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Doorbells and producer indexes.

use super::bytes::*;
use super::harness::*;
use gnstor_fabric::hca::abi::*;
use gnstor_fabric::mlx5::{self, opcode};

cases! {
    a_producer_index_beyond_the_ring_is_an_error_and_no_more
    indexes_wrap_at_65536
    a_request_of_two_blocks_lies_across_index_65535
    repeated_early_and_old_doorbells_execute_each_request_once
    every_register_of_the_page_is_a_doorbell
    the_first_eight_bytes_of_a_request_ring_in_every_register
    the_first_eight_bytes_of_a_nop_are_no_index
    a_late_old_doorbell_does_not_hide_a_newer_one
    an_old_value_in_another_register_stays_old
    a_doorbell_without_a_record_carries_the_index
    the_word_that_arms_a_completion_queue_is_no_doorbell
}

fn a_producer_index_beyond_the_ring_is_an_error_and_no_more(harness: &Harness) {
    let end = harness.both(SMALL_SIZE, |s| {
        for index in 0..16 {
            s.write_wqe(0, index, &nop(index, 0));
        }
        s.ring(0, 17);
        s.go();
    });
    assert_eq!(end.kinds(), [UP_WQE_ERROR]);
}

fn indexes_wrap_at_65536(harness: &Harness) {
    let end = harness.both(Size { qps: 1, sq_blocks: 2048, ..SMALL_SIZE }, |s| {
        for index in 0..2048 {
            s.write_wqe(0, index, &nop(index, 0));
        }
        let mut producer = 0u16;
        for _ in 0..33 {
            for i in 0..2048 {
                let index = producer.wrapping_add(i);
                s.write_wqe(0, index, &nop(index, 0));
            }
            producer = producer.wrapping_add(2048);
            s.ring(0, producer);
            s.go();
        }
    });
    assert_eq!(end.seen.len(), 33 * 2048);
    let right = |(i, e): (usize, &Seen)| e.kind == UP_NOP && e.index as usize == i % 65_536;
    assert!(end.seen.iter().enumerate().all(right));
}

fn a_request_of_two_blocks_lies_across_index_65535(harness: &Harness) {
    let end = harness.both(Size { qps: 1, sq_blocks: 2048, ..SMALL_SIZE }, |s| {
        let mut producer = 0u16;
        for _ in 0..32 {
            let n = if producer == 31 * 2048 { 2047 } else { 2048 };
            for i in 0..n {
                s.write_wqe(0, producer + i, &nop(producer + i, 0));
            }
            producer += n;
            s.ring(0, producer);
            s.go();
        }
        s.write_wqe(0, 65_535, &[ctrl(opcode::SEND, 65_535, 0, 6), inline(&[9; 64])].concat());
        s.write_wqe(0, 1, &nop(1, 0));
        s.ring(0, 2);
        s.go();
    });
    let last = &end.seen[65_535..];
    assert_eq!(last.iter().map(|e| (e.kind, e.index)).collect::<Vec<_>>(), [(UP_SEND, 65_535), (UP_NOP, 1)]);
}

fn repeated_early_and_old_doorbells_execute_each_request_once(harness: &Harness) {
    let end = harness.both(SMALL_SIZE, |s| {
        for index in 0..6 {
            s.write_wqe(0, index, &nop(index, 0));
        }
        s.record(0, 1); // a record alone rings nothing
        s.go();
        assert!(s.seen.is_empty());
        s.doorbell(0, 3); // newer than the record: it counts
        s.go();
        assert_eq!(s.seen.len(), 3);
        s.doorbell(0, 3);
        s.go();
        s.doorbell(0, 2); // an old one, late
        s.go();
        assert_eq!(s.seen.len(), 3);
        s.record(0, 6); // newer than the doorbell: it counts
        s.doorbell(0, 5);
        s.go();
        assert_eq!(s.seen.len(), 6);
        s.doorbell(0, 6);
        s.go();
    });
    assert_eq!(end.seen.iter().map(|e| e.index).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
}

const HALVES: [u64; 4] = [0x800, 0x900, 0xA00, 0xB00];

fn indexes(end: &Side) -> Vec<u32> {
    assert!(end.seen.iter().all(|e| e.kind == UP_NOP));
    end.seen.iter().map(|e| e.index).collect()
}

fn nops(s: &Side, indexes: std::ops::Range<u16>) {
    for index in indexes {
        s.write_wqe(0, index, &nop(index, 0));
    }
}

fn every_register_of_the_page_is_a_doorbell(harness: &Harness) {
    let end = harness.both(SMALL_SIZE, |s| {
        nops(s, 0..10);
        // Ahead of the record, register by register; then two at once, of which the older is written last.
        for (register, producer) in HALVES.into_iter().zip(1..) {
            s.doorbell_at(0, register, producer);
            s.go();
            assert_eq!(s.seen.len(), usize::from(producer));
        }
        s.doorbell_at(0, 0x900, 8);
        s.doorbell_at(0, 0xB00, 7);
        s.go();
        s.record(0, 10);
        s.doorbell_at(0, 0xA00, 9);
        s.go();
    });
    assert_eq!(indexes(&end), (0..10).collect::<Vec<_>>());
}

fn the_first_eight_bytes_of_a_request_ring_in_every_register(harness: &Harness) {
    // Whole requests, as BlueFlame pushes them. The bytes after the first eight are ignored.
    let end = harness.both(SMALL_SIZE, |s| {
        for (index, register) in (0..).zip(HALVES.repeat(2)) {
            let wqe = plain_send(s, 0, index);
            s.write_wqe(0, index, &wqe);
            s.record(0, index + 1);
            s.write(0, UAR + register, &wqe);
            s.go();
        }
    });
    assert_eq!(
        end.seen.iter().map(|e| (e.kind, e.index)).collect::<Vec<_>>(),
        (0..8).map(|i| (UP_SEND, i)).collect::<Vec<_>>()
    );
}

fn the_first_eight_bytes_of_a_nop_are_no_index(harness: &Harness) {
    let end = harness.both(SMALL_SIZE, |s| {
        for index in 0..3 {
            let wqe = nop(index, 0);
            s.write_wqe(0, index, &wqe);
            s.record(0, index + 1);
            s.write(0, UAR + 0x800, &wqe[..8]);
            s.go();
            assert_eq!(s.seen.len(), usize::from(index) + 1);
        }
    });
    assert_eq!(end.seen.iter().map(|e| e.index).collect::<Vec<_>>(), [0, 1, 2]);
}

fn a_late_old_doorbell_does_not_hide_a_newer_one(harness: &Harness) {
    let end = harness.both(SMALL_SIZE, |s| {
        nops(s, 0..6);
        s.record(0, 6);
        s.doorbell(0, 6);
        s.doorbell(0, 2); // the register keeps the last value only
        s.go();
    });
    assert_eq!(end.seen.len(), 6);
}

fn an_old_value_in_another_register_stays_old(harness: &Harness) {
    // Counters have 16 bits: 40,000 requests later the value in the other register would look as if it were
    // ahead.
    let end = harness.both(Size { qps: 1, sq_blocks: 2048, ..SMALL_SIZE }, |s| {
        nops(s, 0..2);
        s.doorbell_at(0, 0x900, 1);
        s.go();
        s.ring(0, 2);
        s.go();
        for from in (2..40_000u16).step_by(2000) {
            nops(s, from..from + 2000);
            s.ring(0, from + 2000);
            s.go();
        }
    });
    assert_eq!(indexes(&end), (0..40_002).collect::<Vec<_>>());
}

fn a_doorbell_without_a_record_carries_the_index(harness: &Harness) {
    let end = harness.both(Size { qps: 1, sq_blocks: 2048, ..SMALL_SIZE }, |s| {
        // The record stays 0, which after 40,000 requests would look as if it were ahead.
        for from in (0..40_000u16).step_by(2000) {
            nops(s, from..from + 2000);
            s.doorbell_at(0, mlx5::UAR_NO_RECORD, from + 2000);
            s.go();
        }
        s.doorbell_at(0, mlx5::UAR_NO_RECORD, 39_999); // of another thread, late
        s.go();
        nops(s, 40_000..40_001);
        s.doorbell_at(0, mlx5::UAR_NO_RECORD, 40_001);
        s.go();
    });
    assert_eq!(indexes(&end), (0..40_001).collect::<Vec<_>>());
}

fn the_word_that_arms_a_completion_queue_is_no_doorbell(harness: &Harness) {
    let end = harness.both(SMALL_SIZE, |s| {
        nops(s, 0..1);
        s.record(0, 1);
        s.write(0, UAR + mlx5::UAR_CQ_ARM, &[0xFF; 8]);
        s.go();
    });
    assert!(end.seen.is_empty());
}
