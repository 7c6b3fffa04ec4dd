// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What Rust and the C++ compiler think of a channel.
#![expect(unsafe_code, reason = "reads the table that the C++ compiler made")]

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

#[test]
fn every_size_and_offset_is_the_same_in_both_languages() {
    let mirror = [
        ("queue_pair", size_of::<QueuePair>()),
        ("queue_pair.recv_addr", offset_of!(QueuePair, recv_addr)),
        ("queue_pair.qpn", offset_of!(QueuePair, qpn)),
        ("queue_pair.lkey", offset_of!(QueuePair, lkey)),
        ("queue_pair.error", offset_of!(QueuePair, error)),
        ("command", size_of::<Command>()),
        ("request", size_of::<Request>()),
        ("pool", size_of::<Pool>()),
        ("pool.blocks", offset_of!(Pool, blocks)),
        ("pool.rkey", offset_of!(Pool, rkey)),
        ("channel", size_of::<ChannelAbi>()),
        ("channel.queue_lkey", offset_of!(ChannelAbi, queue_lkey)),
        ("channel.ssds", offset_of!(ChannelAbi, ssds)),
        ("channel.first_qpn", offset_of!(ChannelAbi, first_qpn)),
        ("channel.cq_log", offset_of!(ChannelAbi, cq_log)),
        ("channel.cid_bits", offset_of!(ChannelAbi, cid_bits)),
        ("channel.req_bits", offset_of!(ChannelAbi, req_bits)),
        ("channel.protocol_errors", offset_of!(ChannelAbi, protocol_errors)),
        ("channel.qid", offset_of!(ChannelAbi, qid)),
        ("channel.retries", offset_of!(ChannelAbi, retries)),
        ("channel.data", offset_of!(ChannelAbi, data)),
        ("channel.commands", offset_of!(ChannelAbi, commands)),
        ("channel.requests", offset_of!(ChannelAbi, requests)),
        ("volume", size_of::<VolumeAbi>()),
        ("volume.places_addr", offset_of!(VolumeAbi, places_addr)),
        ("volume.next_sequence", offset_of!(VolumeAbi, next_sequence)),
        ("volume.groups", offset_of!(VolumeAbi, groups)),
        ("volume.map_epoch", offset_of!(VolumeAbi, map_epoch)),
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
        let expected = mirror.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("{name} has no mirror"));
        assert_eq!(row.value, expected.1, "{name}");
        rows += 1;
    }
    assert_eq!(rows, mirror.len(), "the C++ table and the mirror have the same rows");
}
