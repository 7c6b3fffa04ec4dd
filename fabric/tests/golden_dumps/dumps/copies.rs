// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies.

use super::harness::*;
use gnstor_fabric::hca::Down;
use gnstor_fabric::hca::abi::*;
use gnstor_proto::checksum::block_sum;

cases! {
    copies_with_the_right_key_move_the_bytes_and_their_sum
    only_whole_blocks_have_a_sum_whatever_their_alignment
    copies_with_a_wrong_key_move_nothing
    a_block_without_its_sum_is_reported
    a_queue_pair_in_error_opens_no_memory
}

fn copies_with_the_right_key_move_the_bytes_and_their_sum(harness: &Harness) {
    let end = harness.both(SMALL_SIZE, |s| {
        s.fill_data(0);
        let (qpn, key) = (FIRST_QPN, ALL);
        let to = s.array.slice(8192, 4096);
        s.push(Down::FromOwner { qpn, local: to, address: s.address(0, DATA), key, tag: 1 });
        s.go();
        let sum = Some(s.seen[0].sum);
        s.push(Down::ToOwner { qpn, local: to, address: s.address(0, DATA + 8192), key, tag: 2, sum });
        s.push(Down::ToOwner { qpn, local: to, address: s.address(0, DATA + 4096), key, tag: 3, sum: None });
        s.go();
    });
    let block = end.bytes(0, DATA, 4096);
    assert!(end.seen.iter().all(|e| e.status == COPY_OK && e.bytes == 4096 && e.sum == block_sum(&block)));
    assert_eq!((end.bytes(0, DATA + 8192, 4096), end.bytes(0, DATA + 4096, 4096)), (block.clone(), block));
}

fn only_whole_blocks_have_a_sum_whatever_their_alignment(harness: &Harness) {
    let end = harness.both(SMALL_SIZE, |s| {
        s.fill_data(0);
        s.write(0, DATA + 4096, &[0x5A; 4096]);
        let (qpn, key) = (FIRST_QPN, ALL);
        let pieces = [(0, 0, 512), (0, 4096, 8192), (3, 16_384, 4096), (4, 20_481, 4096), (1, 24_591, 17)];
        for (tag, (from, to, bytes)) in (0..).zip(pieces) {
            let local = s.array.slice(to, bytes);
            s.push(Down::FromOwner { qpn, local, address: s.address(0, DATA + from), key, tag });
        }
        s.go();
    });
    let data = end.bytes(0, DATA, 8192);
    let sums: Vec<u32> = end.seen.iter().map(|e| e.sum).collect();
    assert_eq!(sums, [0, 0, block_sum(&data[3..4099]), block_sum(&data[4..4100]), 0]);
}

fn copies_with_a_wrong_key_move_nothing(harness: &Harness) {
    let end = harness.both(SMALL_SIZE, |s| {
        s.fill_data(0);
        s.array.fill(0, 4096, 0xEE);
        let qpn = FIRST_QPN;
        let local = s.array.slice(0, 4096);
        let data = s.address(0, DATA);
        let end_of_memory = s.address(0, 0) + SMALL_SIZE.keyed();
        let refused = [
            (data, 0xDEAD_BEEF),
            (data, FOREIGN),
            (data, STALE),
            (data, SMALL),
            (data, READ_ONLY),
            (end_of_memory - 4095, ALL),
            (data | 1 << 63, ALL),
        ];
        for (tag, (address, key)) in (0..).zip(refused) {
            s.push(Down::ToOwner { qpn, local, address, key, tag, sum: None });
        }
        s.go();
        // The key that opens it for reading only does so.
        s.push(Down::FromOwner {
            qpn,
            local: s.array.slice(4096, 4096),
            address: data,
            key: READ_ONLY,
            tag: 20,
        });
        s.go();
    });
    assert_eq!(end.seen.iter().map(|e| e.status).collect::<Vec<_>>(), [1, 1, 1, 1, 1, 1, 1, COPY_OK]);
    assert_ne!(end.bytes(0, DATA, 64), [0xEE; 64]);
}

fn a_block_without_its_sum_is_reported(harness: &Harness) {
    let end = harness.both(SMALL_SIZE, |s| {
        let (qpn, key, address) = (FIRST_QPN, ALL, s.address(0, DATA));
        s.array.fill(0, 4096, 0x77);
        let right = block_sum(&[0x77; 4096]);
        for (tag, sum) in [(1, right), (2, right ^ 1)] {
            s.push(Down::ToOwner { qpn, local: s.array.slice(0, 4096), address, key, tag, sum: Some(sum) });
        }
        // Only a whole block has a sum, so a copy of another length that expects one fails.
        s.push(Down::ToOwner { qpn, local: s.array.slice(0, 512), address, key, tag: 3, sum: Some(0) });
        s.go();
    });
    assert_eq!(end.seen.iter().map(|e| e.status).collect::<Vec<_>>(), [COPY_OK, COPY_BAD_SUM, COPY_BAD_SUM]);
}

fn a_queue_pair_in_error_opens_no_memory(harness: &Harness) {
    let end = harness.both(SMALL_SIZE, |s| {
        let (qpn, local) = (FIRST_QPN, s.array.slice(0, 4096));
        s.push(Down::QpError { qpn });
        s.go();
        s.push(Down::FromOwner { qpn, local, address: s.address(0, DATA), key: ALL, tag: 1 });
        s.go();
    });
    assert_eq!((end.kinds(), end.seen[1].status), (vec![UP_RQ_FLUSH, UP_DONE], COPY_BAD_KEY));
}
