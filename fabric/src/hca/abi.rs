// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mirror of `fabric/cuda/fabric/hca/abi.h`: contexts and ring entries that both executors of the HCA
//! share. Native byte order: these never leave the machine. `tests/layout.rs` compares every offset with
//! the C++ compiler's.
#![expect(missing_docs, reason = "documented field by field in abi.h")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub const QP_FREE: u32 = 0;
pub const QP_RTS: u32 = 1;
pub const QP_ERROR: u32 = 2;
pub const QP_SPARE: u32 = 3;
pub const QP_ANEW: u32 = 4;

pub const ACCESS_LOCAL_WRITE: u32 = 1;
pub const ACCESS_REMOTE_READ: u32 = 2;
pub const ACCESS_REMOTE_WRITE: u32 = 4;

pub const UP_SEND: u32 = 1;
pub const UP_WRITE: u32 = 2;
pub const UP_READ: u32 = 3;
pub const UP_NOP: u32 = 4;
pub const UP_WQE_ERROR: u32 = 5;
pub const UP_WQE_FLUSH: u32 = 6;
pub const UP_DONE: u32 = 7;
pub const UP_RNR: u32 = 8;
pub const UP_RECV_ERROR: u32 = 9;
pub const UP_RQ_FLUSH: u32 = 10;
pub const UP_PONG: u32 = 11;
pub const UP_FUSED_DONE: u32 = 12;
pub const UP_SEND_INVAL: u32 = 13;
pub const UP_LOCAL_INVAL: u32 = 14;
pub const UP_DUMP: u32 = 15;
pub const UP_CQ_ERROR: u32 = 16;
pub const UP_QP_ANEW: u32 = 17;
pub const FUSED_STATUS_SHIFT: u32 = 14;
pub const UP_SIGNALLED: u32 = 1;
pub const UP_IMMEDIATE: u32 = 2;

pub const CQ_OVERRUN: u32 = 1;

pub const COPY_OK: u32 = 0;
pub const COPY_BAD_KEY: u32 = 1;
pub const COPY_BAD_SUM: u32 = 2;

pub const DOWN_TO_DEVICE: u64 = 1;
pub const DOWN_TO_HOST: u64 = 2;
pub const DOWN_SEND: u64 = 3;
pub const DOWN_CQE: u64 = 4;
pub const DOWN_QP_ERROR: u64 = 5;
pub const DOWN_PING: u64 = 6;
pub const DOWN_FUSED: u64 = 7;
pub const DOWN_QP_ANEW: u64 = 8;
pub const DOWN_CHECK_SUM: u64 = 1;
pub const DOWN_PART: u64 = 2;
pub const DOWN_TWO: u64 = 4;
/// Bytes that a copy has a sum of.
pub const SUM_BYTES: u32 = 4096;
pub const SLOT_SHIFT: u32 = 42;
pub const PARTS_SHIFT: u32 = 51;
pub const FUSED_SLOTS: usize = 512;
pub const LATENESS_BUCKETS: usize = 32;
pub const PHASE_BIT: u64 = 1 << 63;
pub const UP_ARG: usize = 4;
pub const UP_PAYLOAD: usize = 8;
pub const UP_EVEN_SHIFT: u32 = 40;
pub const UP_ODD_SHIFT: u32 = 48;

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QpCtx {
    pub sq_addr: u64,
    pub rq_addr: u64,
    pub dbr_addr: u64,
    pub uar_addr: u64,
    pub seen_first: u64,
    pub qpn: u32,
    pub state: u32,
    pub sq_mask: u32,
    pub rq_mask: u32,
    pub sq_head: u32,
    pub rq_head: u32,
    pub cq: u32,
    pub pd: u32,
    pub ring: u32,
    pub rq_posted: u32,
    pub seen_others: [u64; 4],
    pub many_registers: u32,
    pub held_guard: u32,
    pub tag: u32,
    pub reserved: u32,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CqCtx {
    pub addr: u64,
    pub mask: u32,
    pub in_host: u32,
    pub pi: u32,
    pub state: u32,
    pub dbr_addr: u64,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MrCtx {
    pub base: u64,
    pub bytes: u64,
    pub key: u32,
    pub access: u32,
    pub pd: u32,
    pub invalid: u32,
}

/// An entry of the up ring, taken apart ([`UpRing::pop`](super::ring::UpRing::pop)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes)]
pub struct UpEntry {
    pub kind: u32,
    pub qpn: u32,
    pub stamp_ns: u64,
    pub index: u32,
    pub flags: u32,
    pub status: u32,
    pub bytes: u32,
    pub sum: u32,
    pub arg: [u64; 2],
    pub payload: [u8; 64],
}

impl UpEntry {
    /// The low half of its clock, which the client of a SEND has written in place of immediate data; or 0.
    pub fn client_stamp(&self) -> u32 {
        let is_stamped = self.kind == UP_SEND && self.flags & UP_IMMEDIATE == 0;
        if is_stamped { u32::try_from(self.arg[0]).unwrap_or(0) } else { 0 }
    }
}

impl Default for UpEntry {
    fn default() -> Self {
        zerocopy::FromZeros::new_zeroed()
    }
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RingCtx {
    pub up_addr: u64,
    pub up_head_addr: u64,
    pub down_addr: u64,
    pub down_head_addr: u64,
    pub up_mask: u32,
    pub down_mask: u32,
    pub up_tail: u32,
    pub up_head_seen: u32,
    pub down_head: u64,
    pub responses: u64,
    pub late: u64,
    pub stop_addr: u64,
    pub ready_addr: u64,
    pub fused_addr: u64,
    pub reports: u64,
    pub client_late: u64,
    pub reserved: [u64; 2],
    pub lateness: [u64; LATENESS_BUCKETS],
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FusedSlot {
    pub word: u32,
    pub qpn: u32,
    pub due: u64,
    pub allowance: u64,
    pub until: u64,
    pub response: u64,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AgentArgs {
    pub qps: u64,
    pub cqs: u64,
    pub mrs: u64,
    pub rings: u64,
    pub qp_count: u32,
    pub mr_count: u32,
    pub cq_count: u32,
    pub first_qpn: u32,
    pub launch: u32,
    pub blocks: u32,
    pub in_smem: u32,
    pub rings_a_block: u32,
    pub ring_count: u32,
    pub ring: u32,
    pub held_addr: u64,
    pub held_messages: u64,
    pub cqs_home: u64,
    pub mrs_home: u64,
}

pub const HELD_BYTES: usize = 4096;
/// Places of each agent block for data that waits for a DUMP.
pub const HELD_PLACES: usize = 256;

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HeldCtx {
    pub to: u64,
    pub qpn: u32,
    pub bytes: u32,
    pub state: u32,
    pub reserved: [u32; 3],
}

const _: () = {
    use core::mem::size_of;
    assert!(size_of::<QpCtx>() == 128 && size_of::<CqCtx>() == 32 && size_of::<MrCtx>() == 32);
    assert!(size_of::<RingCtx>() == 384 && size_of::<AgentArgs>() == 104);
    assert!(size_of::<FusedSlot>() == 40 && size_of::<HeldCtx>() == 32);
};

/// Shared memory an agent block needs: `sizeof(agent_smem)`, checked by `tests/layout.rs`.
pub const AGENT_SMEM_BYTES: u32 = 57_088;
