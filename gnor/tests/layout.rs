// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sizes and offsets of a channel: Rust's against the C++ compiler's.
#![expect(unsafe_code, reason = "reads the table that the C++ compiler made")]

use gnstor_base::testing::deadline;
use gnstor_gnor::abi::*;
use std::ffi::{CStr, c_char};
use std::mem::{offset_of, size_of};

#[repr(C)]
struct Row {
    name: *const c_char,
    value: usize,
}

unsafe extern "C" {
    static gn_gnor_layout: Row;
}

/// Sizes and offsets in Rust.
const MIRROR: &[(&str, usize)] = &[
    ("queue_pair", size_of::<QueuePair>()),
    ("queue_pair.publish", offset_of!(QueuePair, publish)),
    ("queue_pair.error", offset_of!(QueuePair, error)),
    ("queue_pair.rung", offset_of!(QueuePair, rung)),
    ("dumps", size_of::<Dumps>()),
    ("dumps.posted", offset_of!(Dumps, posted)),
    ("slot", size_of::<Slot>()),
    ("pool", size_of::<Pool>()),
    ("pool.blocks", offset_of!(Pool, blocks)),
    ("pool.rkey", offset_of!(Pool, rkey)),
    ("pool.host_addr", offset_of!(Pool, host_addr)),
    ("pool.most", offset_of!(Pool, most)),
    ("pool_host", size_of::<PoolHost>()),
    ("channel", size_of::<ChannelAbi>()),
    ("channel.queues_addr", offset_of!(ChannelAbi, queues_addr)),
    ("channel.qps_addr", offset_of!(ChannelAbi, qps_addr)),
    ("channel.port_addr", offset_of!(ChannelAbi, port_addr)),
    ("channel.dumps_addr", offset_of!(ChannelAbi, dumps_addr)),
    ("channel.waiting_addr", offset_of!(ChannelAbi, waiting_addr)),
    ("channel.stamps", offset_of!(ChannelAbi, stamps)),
    ("channel.queue_lkey", offset_of!(ChannelAbi, queue_lkey)),
    ("channel.ssds", offset_of!(ChannelAbi, ssds)),
    ("channel.first_qpn", offset_of!(ChannelAbi, first_qpn)),
    ("channel.cq_log", offset_of!(ChannelAbi, cq_log)),
    ("channel.cq_word", offset_of!(ChannelAbi, cq_word)),
    ("channel.depth", offset_of!(ChannelAbi, depth)),
    ("channel.qid", offset_of!(ChannelAbi, qid)),
    ("channel.slot_bits", offset_of!(ChannelAbi, slot_bits)),
    ("channel.tickets", offset_of!(ChannelAbi, tickets)),
    ("channel.returned", offset_of!(ChannelAbi, returned)),
    ("channel.protocol_errors", offset_of!(ChannelAbi, protocol_errors)),
    ("channel.retries", offset_of!(ChannelAbi, retries)),
    ("channel.data", offset_of!(ChannelAbi, data)),
    ("channel.slots", offset_of!(ChannelAbi, slots)),
    ("channel.parked_addr", offset_of!(ChannelAbi, parked_addr)),
    ("channel.parked_bits", offset_of!(ChannelAbi, parked_bits)),
    ("parked", PARKED_BYTES),
    ("DBR_AT", DBR_AT),
    ("SQ_AT", SQ_AT),
    ("RQ_AT_EACH", RQ_AT_EACH),
    ("RECV_AT_EACH", RECV_AT_EACH),
    ("QUEUE_BYTES_EACH", QUEUE_BYTES_EACH),
    ("NVME_ENTRIES_EACH", NVME_ENTRIES_EACH as usize),
    ("volume", size_of::<VolumeAbi>()),
    ("volume.places_addr", offset_of!(VolumeAbi, places_addr)),
    ("volume.next_sequence", offset_of!(VolumeAbi, next_sequence)),
    ("volume.groups", offset_of!(VolumeAbi, groups)),
    ("volume.map", offset_of!(VolumeAbi, map)),
    ("volume.lease_epoch", offset_of!(VolumeAbi, lease_epoch)),
    ("volume.follows", offset_of!(VolumeAbi, follows)),
    ("volume.vid", offset_of!(VolumeAbi, vid)),
    ("volume.client", offset_of!(VolumeAbi, client)),
    ("volume.replicas", offset_of!(VolumeAbi, replicas)),
    ("volume.writer", offset_of!(VolumeAbi, writer)),
    ("connect_args", size_of::<ConnectArgs>()),
    ("connect_args.timeout_ns", offset_of!(ConnectArgs, timeout_ns)),
    ("connect_args.status", offset_of!(ConnectArgs, status)),
    ("connect_args.dw0", offset_of!(ConnectArgs, dw0)),
    ("client_launch", 24),
];

#[test]
fn every_size_and_offset_is_the_same_in_both_languages() {
    let _deadline = deadline();
    let first = &raw const gn_gnor_layout;
    let mut rows = 0;
    for i in 0.. {
        // SAFETY: the array ends with a null name, at which this loop ends too.
        let row = unsafe { &*first.add(i) };
        if row.name.is_null() {
            break;
        }
        // SAFETY: a string literal of the C++ file.
        let name = unsafe { CStr::from_ptr(row.name) }.to_str().expect("ASCII");
        let expected =
            MIRROR.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("{name} has no mirror"));
        assert_eq!(row.value, expected.1, "{name}");
        rows += 1;
    }
    assert_eq!(rows, MIRROR.len(), "the C++ table and the mirror have the same rows");
}
