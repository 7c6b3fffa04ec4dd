// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Damaged requests: both executors give the same result, and a flipped bit gives the syndrome of its field.

use super::bytes::*;
use super::harness::*;
use gnstor_fabric::hca::abi::*;
use gnstor_fabric::mlx5::{opcode, syndrome};
use proptest::prelude::*;

cases! {
    any_flipped_bit_of_a_request_means_the_same_to_both_executors
    damaged_bytes_of_a_request_mean_the_same_to_both_executors
    one_flipped_bit_of_a_send_has_the_syndrome_of_its_field
    one_flipped_bit_of_a_read_has_the_syndrome_of_its_field
    one_flipped_bit_of_a_dump_has_the_syndrome_of_its_field
    one_flipped_bit_of_an_invalidation_has_the_syndrome_of_its_field
}

const QPS: usize = 128;

/// Each damaged request gets a queue pair of its own, up to 128 in one run, with two good ones behind it.
fn damaged<F: Fn(&Side, u32) -> Vec<u8>>(harness: &Harness, requests: &[F]) -> Vec<Side> {
    let run = |requests: &[F]| {
        let qps = u32::try_from(requests.len()).expect("few");
        harness.both(Size { qps, sq_blocks: 4, ..SMALL_SIZE }, |s| {
            for (q, request) in (0..).zip(requests) {
                s.write_wqe(q, 0, &request(s, q));
                s.write_wqe(q, 1, &nop(1, q));
                s.write_wqe(q, 2, &nop(2, q));
                s.ring(q, 3);
            }
            s.go();
        })
    };
    requests.chunks(QPS).map(run).collect()
}

fn key_of(q: u32) -> u32 {
    if q == FOREIGN_QP { FOREIGN } else { ALL }
}

const SHAPES: usize = 8;

fn shape(s: &Side, q: u32, which: usize) -> Vec<u8> {
    let local = |bytes| data(bytes, key_of(q), s.address(q, DATA));
    match which {
        0 => send_with(s, q, 0, key_of(q)),
        1 => [ctrl(opcode::SEND, 0, q, 4), inline(&[0x3C; 44])].concat(),
        2 => [ctrl(opcode::RDMA_READ, 0, q, 3), raddr(0x1000, 7), local(4096)].concat(),
        3 => [ctrl(opcode::SEND, 0, q, 3), local(32), data(32, key_of(q), s.address(q, RECV))].concat(),
        4 => [ctrl_imm(opcode::SEND_INVAL, 0, q, 2, 0x77), local(64)].concat(),
        5 => [ctrl_imm(opcode::RDMA_WRITE_IMM, 0, q, 3, 0x77), raddr(0x1000, 7), local(4096)].concat(),
        6 => [ctrl(opcode::DUMP, 0, q, 2), local(1)].concat(),
        _ => [ctrl(opcode::RDMA_WRITE, 0, q, 4), raddr(0x1000, 7), inline(&[0x3C; 28])].concat(),
    }
}

fn any_flipped_bit_of_a_request_means_the_same_to_both_executors(harness: &Harness) {
    for which in 0..SHAPES {
        let flips: Vec<_> = (0..256usize)
            .map(|bit| {
                move |s: &Side, q: u32| {
                    let mut wqe = shape(s, q, which);
                    wqe[bit / 8] ^= 1 << (bit % 8);
                    wqe
                }
            })
            .collect();
        damaged(harness, &flips);
    }
}

fn damaged_bytes_of_a_request_mean_the_same_to_both_executors(harness: &Harness) {
    let bytes = proptest::collection::vec((0usize..48, 1u8..), 1..4);
    let requests = proptest::collection::vec((0..SHAPES, bytes), 32);
    let config = ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(damage in requests)| {
        let requests: Vec<_> = damage
            .into_iter()
            .map(|(which, bytes)| {
                move |s: &Side, q: u32| {
                    let mut wqe = shape(s, q, which);
                    wqe.resize(64, 0);
                    // A damaged value differs from the original one. A damaged address is invalid on both
                    // sides, or leads to the same place.
                    for (at, value) in &bytes {
                        wqe[*at] ^= value;
                    }
                    wqe
                }
            })
            .collect();
        damaged(harness, &requests);
    });
}

// One bit.

/// Required result of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Done(u32),
    Fault(u8),
}
use Outcome::{Done, Fault};

const WRONG: Outcome = Fault(syndrome::LOCAL_QP_OPERATION);
const CLOSED: Outcome = Fault(syndrome::LOCAL_PROTECTION);

/// A field: its name, the 32-bit big-endian word of the request that holds it, its bits in that word.
type Field = (&'static str, usize, std::ops::Range<u32>);
const OPCODE: Field = ("opcode", 0, 0..8);
const INDEX: Field = ("index", 0, 8..24);
const QPN: Field = ("QPN", 1, 8..32);

/// The length and key of the data segment that is segment `s`.
fn data_fields(s: usize) -> [Field; 2] {
    [("length", 4 * s, 0..32), ("key", 4 * s + 1, 0..32)]
}

/// Flips each bit of each field and compares the result with `expected`. That gets the field,
/// the bit, and whether a range of bytes is in the region.
fn flip_each(
    harness: &Harness,
    fields: &[Field],
    bytes: u32,
    request: impl Fn(&Side, u32) -> Vec<u8>,
    expected: impl Fn(&str, u32, bool) -> Outcome,
) {
    let bits: Vec<_> =
        fields.iter().flat_map(|(name, word, bits)| bits.clone().map(move |b| (*name, *word, b))).collect();
    let flips: Vec<_> = bits
        .iter()
        .map(|&(_, word, bit)| {
            let request = &request;
            move |s: &Side, q: u32| {
                let mut wqe = request(s, q);
                wqe[4 * word + 3 - bit as usize / 8] ^= 1 << (bit % 8);
                wqe
            }
        })
        .collect();
    for (end, bits) in damaged(harness, &flips).iter().zip(bits.chunks(QPS)) {
        for (q, &(name, _, bit)) in (0..).zip(bits) {
            let of_this: Vec<&Seen> = end.seen.iter().filter(|e| e.qpn == FIRST_QPN + q).collect();
            let fits = end.at(q, DATA) + u64::from(bytes ^ 1 << bit) <= end.size.keyed();
            let got = match of_this[0].kind {
                UP_WQE_ERROR => Fault(u8::try_from(of_this[0].status).expect("a byte")),
                kind => Done(kind),
            };
            assert_eq!(got, expected(name, bit, fits), "bit {bit} of the {name}");
            let behind = if matches!(got, Fault(_)) { UP_WQE_FLUSH } else { UP_NOP };
            assert!(of_this[1..].iter().all(|e| e.kind == behind), "what is behind bit {bit} of the {name}");
        }
    }
}

fn one_flipped_bit_of_a_send_has_the_syndrome_of_its_field(harness: &Harness) {
    let fields = [&[OPCODE, INDEX, QPN][..], &data_fields(1)].concat();
    let request = |s: &Side, q| shape(s, q, 0);
    flip_each(harness, &fields, 64, request, |name, bit, fits| match (name, bit) {
        ("opcode", 0) => Done(UP_SEND), // SEND_IMM
        ("opcode" | "index" | "QPN", _) => WRONG,
        ("length", 6) => Done(UP_SEND), // of nothing
        ("length", 31) => WRONG,        // inline data that is not there
        ("length", _) if fits => Fault(syndrome::REMOTE_INVALID_REQUEST),
        _ => CLOSED,
    });
}

fn one_flipped_bit_of_a_read_has_the_syndrome_of_its_field(harness: &Harness) {
    let fields = [&[OPCODE, INDEX, QPN, ("remote key", 6, 0..32)][..], &data_fields(2)].concat();
    let request = |s: &Side, q| shape(s, q, 2);
    flip_each(harness, &fields, 4096, request, |name, bit, fits| match (name, bit) {
        ("opcode", 4) => Done(UP_NOP),
        ("opcode" | "index" | "QPN", _) | ("length", 31) => WRONG,
        ("remote key", _) => Done(UP_READ), // the peer judges it
        ("length", _) if fits => Done(UP_READ),
        _ => CLOSED,
    });
}

fn one_flipped_bit_of_a_dump_has_the_syndrome_of_its_field(harness: &Harness) {
    let fields = [&[OPCODE, INDEX, QPN][..], &data_fields(1)].concat();
    let request = |s: &Side, q| shape(s, q, 6);
    flip_each(harness, &fields, 1, request, |name, bit, fits| match (name, bit) {
        ("opcode" | "index" | "QPN", _) | ("length", 31) => WRONG,
        ("length", _) if fits => Done(UP_DUMP),
        _ => CLOSED,
    });
}

fn one_flipped_bit_of_an_invalidation_has_the_syndrome_of_its_field(harness: &Harness) {
    let fields = [OPCODE, INDEX, QPN, ("key", 3, 0..32)];
    let request = |_: &Side, q| ctrl_imm(opcode::LOCAL_INVAL, 0, q, 1, SMALL);
    flip_each(harness, &fields, 0, request, |name, bit, _| match (name, bit) {
        ("opcode", 4) => Done(UP_SEND), // SEND_IMM of nothing
        ("opcode" | "index" | "QPN", _) => WRONG,
        _ => Fault(syndrome::MEMORY_OPERATION),
    });
}
