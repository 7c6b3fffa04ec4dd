// SPDX-License-Identifier: Apache-2.0 OR MIT
//! mlx5 queue bytes: work requests, completions, doorbells. The CPU's counterpart of
//! `fabric/cuda/fabric/mlx5.h`.
//!
//! ```text
//!   SEND, one segment (2 x 16 bytes)            completion (64 bytes), last word stored last
//!   +------------------+------------------+     +-------------------------------+-----------+
//!   | opmod idx opcode | qpn          ds  |     | ... 44 byte count ... 55 syndrome ...     |
//!   | sig  -  fm_ce_se | imm              |     | 56 qpn        | 60 wqe counter | sig | own |
//!   +------------------+------------------+     +-------------------------------+-----------+
//!   | byte count | lkey | address (64)    |     own = opcode 7:4, format 3:2, solicited 1, owner 0
//!   +-------------------------------------+
//! ```

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a send queue block.
pub const WQEBB: u64 = 64;
/// Bytes of a segment.
pub const DS_BYTES: u64 = 16;
/// Bytes of a completion.
pub const CQE_BYTES: u64 = 64;
/// Bytes of a doorbell page.
pub const UAR_BYTES: u64 = 4096;
/// Offset of the first doorbell register in its page.
pub const UAR_DB0: u64 = 0x800;
/// Offset of the register for doorbells without a record.
pub const UAR_NO_RECORD: u64 = 0x600;
/// Offset of the word that arms a completion queue for an event. The emulated HCA has no events and does not
/// read it.
pub const UAR_CQ_ARM: u64 = 0x20;
/// The doorbell registers of a page: two of two halves each, which drivers ring in turn, and the one without
/// a record.
pub const UAR_REGISTERS: [u64; 5] = [UAR_DB0, 0x900, 0xA00, 0xB00, UAR_NO_RECORD];
/// `fm_ce_se`: always write a completion.
pub const CE_CQ_UPDATE: u8 = 0x08;
/// High bit of an inline segment's length.
pub const INLINE_FLAG: u32 = 0x8000_0000;
/// Byte count bits of a data segment.
pub const BYTE_COUNT_MASK: u32 = 0x7FFF_FFFF;

/// Work request opcodes.
pub mod opcode {
    #![expect(missing_docs, reason = "names of the hardware interface")]
    pub const NOP: u8 = 0x00;
    pub const SEND_INVAL: u8 = 0x01;
    pub const RDMA_WRITE: u8 = 0x08;
    pub const RDMA_WRITE_IMM: u8 = 0x09;
    pub const SEND: u8 = 0x0A;
    pub const SEND_IMM: u8 = 0x0B;
    pub const RDMA_READ: u8 = 0x10;
    pub const LOCAL_INVAL: u8 = 0x1B;
    pub const DUMP: u8 = 0x23;
}

/// Completion opcodes.
pub mod cqe_opcode {
    #![expect(missing_docs, reason = "names of the hardware interface")]
    pub const REQUESTER: u8 = 0;
    pub const RESPONDER_SEND: u8 = 2;
    pub const SIGNATURE_ERROR: u8 = 12;
    pub const REQUESTER_ERROR: u8 = 13;
    pub const RESPONDER_ERROR: u8 = 14;
    pub const INVALID: u8 = 15;
}

/// Syndromes of an error completion.
pub mod syndrome {
    #![expect(missing_docs, reason = "names of the hardware interface")]
    pub const LOCAL_LENGTH: u8 = 0x01;
    pub const LOCAL_QP_OPERATION: u8 = 0x02;
    pub const LOCAL_PROTECTION: u8 = 0x04;
    pub const FLUSH: u8 = 0x05;
    pub const MEMORY_OPERATION: u8 = 0x06;
    pub const REMOTE_INVALID_REQUEST: u8 = 0x12;
    pub const REMOTE_ACCESS: u8 = 0x13;
    pub const RETRY_EXCEEDED: u8 = 0x15;
    pub const RNR_EXCEEDED: u8 = 0x16;

    /// A syndrome in words.
    pub fn name(value: u8) -> &'static str {
        match value {
            LOCAL_LENGTH => "local length error",
            LOCAL_QP_OPERATION => "local queue pair operation error",
            LOCAL_PROTECTION => "local protection error",
            FLUSH => "flushed",
            MEMORY_OPERATION => "memory management operation error: no such key to invalidate",
            REMOTE_INVALID_REQUEST => "remote invalid request: the message is longer than the peer's receive",
            REMOTE_ACCESS => "remote access error",
            RETRY_EXCEEDED => "transport retry exceeded: the peer does not answer",
            RNR_EXCEEDED => "receiver-not-ready retry exceeded",
            _ => "unknown syndrome",
        }
    }
}

/// Control segment.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct CtrlSeg {
    /// opmod 31:24, index 23:8, opcode 7:0.
    pub opmod_idx_opcode: U32,
    /// QPN 31:8, segments 7:0.
    pub qpn_ds: U32,
    /// Signature.
    pub signature: u8,
    /// DCI stream.
    pub dci_stream: U16,
    /// Fence mode, completion mode, solicited.
    pub fm_ce_se: u8,
    /// Immediate data.
    pub imm: U32,
}

/// Remote address segment.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RaddrSeg {
    /// Remote address.
    pub address: U64,
    /// Remote key.
    pub rkey: U32,
    /// Reserved.
    pub reserved: U32,
}

/// Data segment. A receive entry is a data segment, too.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DataSeg {
    /// Byte count, or [`INLINE_FLAG`] and a length.
    pub byte_count: U32,
    /// Local key.
    pub lkey: U32,
    /// Address.
    pub address: U64,
}

/// A completion.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Cqe64 {
    /// Reserved or inline data.
    pub reserved0: [u8; 24],
    /// Flags and QPN of the receiver.
    pub flags_rqpn: U32,
    /// Reserved.
    pub reserved1: [u8; 8],
    /// Immediate or invalidated key.
    pub imm_inval: U32,
    /// Reserved.
    pub reserved2: U32,
    /// Bytes received.
    pub byte_count: U32,
    /// Timestamp; vendor syndrome at byte 54 and syndrome at 55 in an error.
    pub timestamp: [u8; 8],
    /// QPN.
    pub sop_qpn: U32,
    /// Index of the work request's first block.
    pub wqe_counter: U16,
    /// Signature.
    pub signature: u8,
    /// Opcode, format, solicited, owner.
    pub op_own: u8,
}

const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<CtrlSeg>() == 16 && size_of::<RaddrSeg>() == 16 && size_of::<DataSeg>() == 16);
    assert!(offset_of!(CtrlSeg, fm_ce_se) == 11);
    assert!(
        size_of::<Cqe64>() == 64 && offset_of!(Cqe64, byte_count) == 44 && offset_of!(Cqe64, sop_qpn) == 56
    );
    assert!(offset_of!(Cqe64, wqe_counter) == 60 && offset_of!(Cqe64, op_own) == 63);
};

impl CtrlSeg {
    /// The control segment of request `index` with `ds` segments.
    pub fn new(opcode: u8, index: u16, qpn: u32, ds: u8, fm_ce_se: u8) -> Self {
        Self {
            opmod_idx_opcode: (u32::from(index) << 8 | u32::from(opcode)).into(),
            qpn_ds: (qpn << 8 | u32::from(ds)).into(),
            fm_ce_se,
            ..Self::default()
        }
    }

    /// As [`Self::new`], with immediate data or a key to invalidate.
    #[must_use]
    pub fn with_imm(self, imm: u32) -> Self {
        Self { imm: imm.into(), ..self }
    }
}

impl Cqe64 {
    /// Opcode of the completion.
    pub fn opcode(&self) -> u8 {
        self.op_own >> 4
    }

    /// Syndrome of an error completion.
    pub fn syndrome(&self) -> u8 {
        self.timestamp[7]
    }

    /// Whether the hardware has written this entry in the pass that `consumer` is in.
    pub fn is_valid(op_own: u8, consumer: u32, log_entries: u32) -> bool {
        u32::from(op_own & 1) == consumer >> log_entries & 1 && op_own >> 4 != cqe_opcode::INVALID
    }
}

/// The doorbell value of gpunetio and NVSHMEM: be32(producer index << 8), be32(qpn << 8), as stored in memory
/// order.
pub fn doorbell_value(producer: u16, qpn: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(U32::new(u32::from(producer) << 8).as_bytes());
    bytes[4..].copy_from_slice(U32::new(qpn << 8).as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn golden_send() {
        let _deadline = deadline();
        let ctrl = CtrlSeg::new(opcode::SEND, 0x1234, 0xABCDE, 2, CE_CQ_UPDATE);
        assert_eq!(ctrl.as_bytes(), [0, 0x12, 0x34, 0x0A, 0x0A, 0xBC, 0xDE, 2, 0, 0, 0, 8, 0, 0, 0, 0]);
        let data =
            DataSeg { byte_count: 64.into(), lkey: 0x500.into(), address: 0x7F00_1122_3344_5566.into() };
        assert_eq!(data.as_bytes(), [0, 0, 0, 64, 0, 0, 5, 0, 0x7F, 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66]);
    }

    #[test]
    fn golden_doorbell_and_completion() {
        let _deadline = deadline();
        assert_eq!(doorbell_value(0x0102, 0x30405), [0, 1, 2, 0, 3, 4, 5, 0]);
        let cqe = Cqe64 { wqe_counter: 7.into(), op_own: 0x20, byte_count: 16.into(), ..Cqe64::default() };
        let bytes = cqe.as_bytes();
        assert_eq!((&bytes[44..48], &bytes[60..]), (&[0, 0, 0, 16][..], &[0, 7, 0, 0x20][..]));
        assert!(
            Cqe64::is_valid(0x20, 3, 4) && !Cqe64::is_valid(0x20, 16, 4) && !Cqe64::is_valid(0xF1, 16, 4)
        );
    }
}
