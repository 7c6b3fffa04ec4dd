// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data that waits for a DUMP, where writes to the owner's memory are not ordered.

use super::bytes::*;
use super::harness::*;
use gnstor_fabric::hca::Down;
use gnstor_fabric::hca::abi::*;
use gnstor_fabric::hca::agent::Unordered;
use gnstor_fabric::mlx5::opcode;
use std::ops::Range;

cases! {
    data_waits_behind_its_completion_for_a_dump_of_its_queue_pair
    a_request_behind_a_dump_sees_what_it_brought
    a_dump_that_is_not_executed_brings_nothing
    messages_wait_for_a_dump_where_all_does
    what_finds_no_place_does_not_wait
    what_waits_for_a_queue_pair_that_is_destroyed_is_forgotten
}

const UNORDERED: Size = Size { qps: 3, unordered: Some(Unordered::Data), ..SMALL_SIZE };
const PLACES: usize = HELD_PLACES;

fn dump(s: &Side, q: u32, index: u16) -> Vec<u8> {
    [ctrl(opcode::DUMP, index, q, 2), data(1, ALL, s.address(q, DATA))].concat()
}

/// Posts a DUMP as request `index`, and runs it.
fn dumps(s: &mut Side, q: u32, index: u16) {
    s.write_wqe(q, index, &dump(s, q, index));
    s.ring(q, index + 1);
    s.go();
}

/// An SSD writes bytes of value `mark` to this range of queue pair `q`'s data.
fn arrives(s: &mut Side, q: u32, range: Range<u64>, mark: u8, tag: u32) {
    let bytes = u32::try_from(range.end - range.start).expect("a few blocks");
    let local = s.array.slice(u64::from(mark) * 4096, bytes);
    s.array.fill(u64::from(mark) * 4096, 4096, mark);
    let address = s.address(q, DATA + range.start);
    s.push(Down::ToOwner { qpn: FIRST_QPN + q, local, address, key: ALL, tag, sum: None });
}

/// The content that the owner sees: the old content while data waits.
fn sees(s: &Side, q: u32, at: u64, waits: bool) -> u8 {
    let byte = s.bytes(q, DATA + at, 1)[0];
    assert!(waits == (byte == 0) || !s.is_agent(), "data at {at:#x} is {byte}");
    byte
}

fn data_waits_behind_its_completion_for_a_dump_of_its_queue_pair(harness: &Harness) {
    let end = harness.both(UNORDERED, |s| {
        s.receives(0, 0, 2);
        // A block, a piece that is not aligned, and more than waits.
        arrives(s, 0, 0..4096, 1, 1);
        arrives(s, 0, 4099..4116, 2, 2);
        arrives(s, 0, 8192..12289, 5, 3);
        arrives(s, 2, 0..64, 4, 4);
        s.go();
        s.send(0, 9);
        s.go();
        assert_eq!(s.cqe(0, 0).opcode(), 2, "the response is there");
        sees(s, 0, 0, true);
        sees(s, 0, 4099, true);
        sees(s, 0, 8192, false);
        // A DUMP of another queue pair only brings that one's data.
        dumps(s, 2, 0);
        sees(s, 2, 0, false);
        sees(s, 0, 0, true);
        dumps(s, 0, 0);
    });
    let kinds = [UP_DONE, UP_DONE, UP_DONE, UP_DONE, UP_DUMP, UP_DUMP];
    assert_eq!((end.kinds(), end.seen[0].status), (kinds.to_vec(), COPY_OK));
    assert_eq!(end.bytes(0, DATA, 4096), [1; 4096]);
    assert_eq!(end.bytes(0, DATA + 4098, 19), [&[0][..], &[2; 17], &[0]].concat());
}

fn a_request_behind_a_dump_sees_what_it_brought(harness: &Harness) {
    let end = harness.both(UNORDERED, |s| {
        arrives(s, 0, 0..64, 1, 1);
        s.go();
        s.write_wqe(0, 0, &dump(s, 0, 0));
        s.write_wqe(0, 1, &plain_send(s, 0, 1));
        s.ring(0, 2);
        s.go();
    });
    assert_eq!((end.kinds(), &end.seen[2].payload), (vec![UP_DONE, UP_DUMP, UP_SEND], &vec![1; 64]));
}

fn a_dump_that_is_not_executed_brings_nothing(harness: &Harness) {
    let end = harness.both(UNORDERED, |s| {
        arrives(s, 0, 0..64, 1, 1);
        s.go();
        s.write_wqe(0, 0, &send_with(s, 0, 0, STALE));
        s.write_wqe(0, 1, &dump(s, 0, 1));
        s.ring(0, 2);
        s.go();
        dumps(s, 0, 2);
        sees(s, 0, 0, true);
        s.write(0, DATA, &[0; 64]);
    });
    assert_eq!(end.kinds(), [UP_DONE, UP_WQE_ERROR, UP_WQE_FLUSH, UP_WQE_FLUSH]);
}

fn messages_wait_for_a_dump_where_all_does(harness: &Harness) {
    let all = Size { unordered: Some(Unordered::All), ..UNORDERED };
    let end = harness.both(all, |s| {
        s.receives(0, 0, 3);
        s.send(0, 9);
        s.send(0, 10);
        s.go();
        assert_eq!((s.cqe(0, 0).opcode(), s.cqe(0, 1).opcode()), (2, 2), "both are completed");
        let first = s.bytes(0, RECV, 32);
        assert!(first == [0; 32] || !s.is_agent(), "their bytes wait: {first:?}");
        dumps(s, 0, 0);
    });
    assert_eq!(end.bytes(0, RECV, 48), [[9; 16], [10; 16], [0; 16]].concat());
}

fn what_finds_no_place_does_not_wait(harness: &Harness) {
    let end = harness.both(UNORDERED, |s| {
        let fill = |s: &mut Side, mark| {
            for i in 0..PLACES as u64 + 40 {
                let tag = u32::try_from(i + 1).expect("few");
                arrives(s, 0, i * 16..(i + 1) * 16, mark, tag);
            }
            s.go();
            let landed = (0..PLACES + 40).filter(|i| s.bytes(0, DATA + *i as u64 * 16, 1)[0] == mark).count();
            assert!(landed == 40 || !s.is_agent(), "{landed} copies did not wait");
        };
        fill(s, 1);
        dumps(s, 0, 0);
        // The places are free again.
        fill(s, 2);
        dumps(s, 0, 1);
    });
    assert_eq!(end.bytes(0, DATA, (PLACES + 40) * 16), vec![2; (PLACES + 40) * 16]);
}

fn what_waits_for_a_queue_pair_that_is_destroyed_is_forgotten(harness: &Harness) {
    let end = harness.both(UNORDERED, |s| {
        for i in 0..PLACES as u64 {
            arrives(s, 0, i * 16..(i + 1) * 16, 1, u32::try_from(i + 1).expect("few"));
        }
        s.go();
        s.destroy(0);
        // The memory has another owner now.
        s.write(0, DATA, &[7; 16 * PLACES]);
        arrives(s, 2, 0..64, 3, 9999);
        s.go();
        sees(s, 2, 0, true);
        dumps(s, 2, 0);
    });
    assert_eq!(end.bytes(0, DATA, 16 * PLACES), [7; 16 * PLACES]);
    assert_eq!(end.bytes(2, DATA, 64), [3; 64]);
}
