// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sizes and offsets of structures: Rust's against the C++ compiler's.
#![expect(unsafe_code, reason = "reads the table that the C++ compiler made")]

use gnstor_base::ahead;
use gnstor_base::testing::deadline;
use gnstor_fabric::hca::abi::*;
use gnstor_fabric::hca::agent::{AGENT_THREADS, MAX_QPS};
use gnstor_fabric::hca::ring::{DOWN_WORDS, UP_WORDS};
use gnstor_fabric::mlx5::Cqe64;
use std::ffi::{CStr, c_char};
use std::mem::{offset_of, size_of};

#[repr(C)]
struct Row {
    name: *const c_char,
    value: usize,
}

unsafe extern "C" {
    static gn_fabric_layout: Row;
}

/// The rows of `fabric/cuda/layout.cpp`.
fn rows() -> Vec<(String, usize)> {
    let mut rows = Vec::new();
    let first = &raw const gn_fabric_layout;
    for i in 0.. {
        // SAFETY: the array ends with a null name, at which this loop ends too.
        let row = unsafe { &*first.add(i) };
        if row.name.is_null() {
            break;
        }
        // SAFETY: a string literal of the C++ file.
        let name = unsafe { CStr::from_ptr(row.name) };
        rows.push((name.to_str().expect("ASCII").to_owned(), row.value));
    }
    rows
}

macro_rules! table {
    ($($name:literal => $value:expr;)*) => { [$(($name, $value)),*] };
}

/// Sizes and offsets in Rust.
fn mirror() -> Vec<(&'static str, usize)> {
    [queues(), agents(), limits()].concat()
}

fn queues() -> Vec<(&'static str, usize)> {
    table! {
    "qp_ctx" => size_of::<QpCtx>();
    "qp_ctx.seen_first" => offset_of!(QpCtx, seen_first);
    "qp_ctx.qpn" => offset_of!(QpCtx, qpn);
    "qp_ctx.state" => offset_of!(QpCtx, state);
    "qp_ctx.sq_head" => offset_of!(QpCtx, sq_head);
    "qp_ctx.rq_head" => offset_of!(QpCtx, rq_head);
    "qp_ctx.cq" => offset_of!(QpCtx, cq);
    "qp_ctx.pd" => offset_of!(QpCtx, pd);
    "qp_ctx.ring" => offset_of!(QpCtx, ring);
    "qp_ctx.rq_posted" => offset_of!(QpCtx, rq_posted);
    "qp_ctx.many_registers" => offset_of!(QpCtx, many_registers);
    "qp_ctx.seen_others" => offset_of!(QpCtx, seen_others);
    "cq_ctx" => size_of::<CqCtx>();
    "cq_ctx.mask" => offset_of!(CqCtx, mask);
    "cq_ctx.in_host" => offset_of!(CqCtx, in_host);
    "cq_ctx.pi" => offset_of!(CqCtx, pi);
    "cq_ctx.state" => offset_of!(CqCtx, state);
    "cq_ctx.dbr_addr" => offset_of!(CqCtx, dbr_addr);
    "mr_ctx" => size_of::<MrCtx>();
    "mr_ctx.bytes" => offset_of!(MrCtx, bytes);
    "mr_ctx.key" => offset_of!(MrCtx, key);
    "mr_ctx.access" => offset_of!(MrCtx, access);
    "mr_ctx.pd" => offset_of!(MrCtx, pd);
    "mr_ctx.invalid" => offset_of!(MrCtx, invalid);
    "up_entry" => UP_WORDS * 8;
    "down_desc" => DOWN_WORDS * 8;
    "ring_ctx" => size_of::<RingCtx>();
    "ring_ctx.up_mask" => offset_of!(RingCtx, up_mask);
    "ring_ctx.up_tail" => offset_of!(RingCtx, up_tail);
    "ring_ctx.down_head" => offset_of!(RingCtx, down_head);
    "ring_ctx.responses" => offset_of!(RingCtx, responses);
    "ring_ctx.late" => offset_of!(RingCtx, late);
    "ring_ctx.client_late" => offset_of!(RingCtx, client_late);
    "ring_ctx.stop_addr" => offset_of!(RingCtx, stop_addr);
    "ring_ctx.ready_addr" => offset_of!(RingCtx, ready_addr);
    "ring_ctx.fused_addr" => offset_of!(RingCtx, fused_addr);
    "ring_ctx.lateness" => offset_of!(RingCtx, lateness);
    "fused_slot" => size_of::<FusedSlot>();
    "fused_slot.until" => offset_of!(FusedSlot, until);
    "fused_slot.response" => offset_of!(FusedSlot, response);
    }
    .to_vec()
}

fn agents() -> Vec<(&'static str, usize)> {
    table! {
    "agent_args" => size_of::<AgentArgs>();
    "agent_args.rings" => offset_of!(AgentArgs, rings);
    "agent_args.qp_count" => offset_of!(AgentArgs, qp_count);
    "agent_args.first_qpn" => offset_of!(AgentArgs, first_qpn);
    "agent_args.launch" => offset_of!(AgentArgs, launch);
    "agent_args.blocks" => offset_of!(AgentArgs, blocks);
    "agent_args.in_smem" => offset_of!(AgentArgs, in_smem);
    "agent_args.rings_a_block" => offset_of!(AgentArgs, rings_a_block);
    "agent_args.ring_count" => offset_of!(AgentArgs, ring_count);
    "agent_args.held_addr" => offset_of!(AgentArgs, held_addr);
    "agent_args.held_messages" => offset_of!(AgentArgs, held_messages);
    "agent_args.cqs_home" => offset_of!(AgentArgs, cqs_home);
    "agent_args.mrs_home" => offset_of!(AgentArgs, mrs_home);
    }
    .to_vec()
}

fn limits() -> Vec<(&'static str, usize)> {
    table! {
    "held_places" => HELD_PLACES;
    "max_qps" => MAX_QPS as usize;
    "held_ctx" => size_of::<HeldCtx>();
    "held_ctx.qpn" => offset_of!(HeldCtx, qpn);
    "held_ctx.bytes" => offset_of!(HeldCtx, bytes);
    "held_ctx.state" => offset_of!(HeldCtx, state);
    "agent_threads" => AGENT_THREADS as usize;
    "fused_lead_ns" => usize::try_from(ahead::FUSED.as_ns()).expect("64-bit host");
    "send_lead_ns" => usize::try_from(ahead::SEND.as_ns()).expect("64-bit host");
    "delay_max_ns" => usize::try_from(ahead::HOLD_MOST.as_ns()).expect("64-bit host");
    "cqe64" => size_of::<Cqe64>();
    "cqe64.byte_count" => offset_of!(Cqe64, byte_count);
    "cqe64.sop_qpn" => offset_of!(Cqe64, sop_qpn);
    "cqe64.counter_own" => offset_of!(Cqe64, wqe_counter);
    }
    .to_vec()
}

#[test]
fn every_size_and_offset_is_the_same_in_both_languages() {
    let _deadline = deadline();
    let (rows, mirror) = (rows(), mirror());
    for (name, value) in &rows {
        if name == "agent_smem" {
            continue; // no mirror: only its size matters, below
        }
        let here = mirror
            .iter()
            .find(|(n, _)| n == name)
            .unwrap_or_else(|| panic!("{name} has no mirror in this test"));
        assert_eq!(here.1, *value, "{name}");
    }
    assert_eq!(rows.len(), mirror.len() + 1, "a row of layout.cpp is missing or was added twice");
}

#[test]
fn the_agents_shared_memory_is_what_a_launch_asks_for() {
    let _deadline = deadline();
    let rows = rows();
    let bytes = rows.iter().find(|(name, _)| name == "agent_smem").expect("layout.cpp has the row").1;
    assert!(AGENT_SMEM_BYTES as usize >= bytes);
    assert_eq!(AGENT_SMEM_BYTES as usize, bytes.next_multiple_of(16));
}
