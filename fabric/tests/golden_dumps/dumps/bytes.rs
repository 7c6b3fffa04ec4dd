// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work requests, segment by segment.

use super::harness::{ALL, DATA, FIRST_QPN, Side};
use gnstor_fabric::mlx5::{CtrlSeg, DataSeg, INLINE_FLAG, RaddrSeg, opcode};
use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::U32;

pub(crate) fn ctrl(op: u8, index: u16, q: u32, ds: u8) -> Vec<u8> {
    CtrlSeg::new(op, index, FIRST_QPN + q, ds, 0).as_bytes().to_vec()
}

/// A control segment with immediate data, or a key to invalidate.
pub(crate) fn ctrl_imm(op: u8, index: u16, q: u32, ds: u8, imm: u32) -> Vec<u8> {
    CtrlSeg::new(op, index, FIRST_QPN + q, ds, 0).with_imm(imm).as_bytes().to_vec()
}

pub(crate) fn data(bytes: u32, key: u32, address: u64) -> Vec<u8> {
    DataSeg { byte_count: bytes.into(), lkey: key.into(), address: address.into() }.as_bytes().to_vec()
}

pub(crate) fn inline(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("short") | INLINE_FLAG;
    let mut out = U32::new(length).as_bytes().to_vec();
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(16), 0);
    out
}

pub(crate) fn raddr(address: u64, key: u32) -> Vec<u8> {
    RaddrSeg { address: address.into(), rkey: key.into(), reserved: 0.into() }.as_bytes().to_vec()
}

pub(crate) fn nop(index: u16, q: u32) -> Vec<u8> {
    ctrl(opcode::NOP, index, q, 1)
}

/// A SEND of 64 bytes in one segment.
pub(crate) fn plain_send(side: &Side, q: u32, index: u16) -> Vec<u8> {
    send_with(side, q, index, ALL)
}

/// As [`plain_send`], with another key.
pub(crate) fn send_with(side: &Side, q: u32, index: u16, key: u32) -> Vec<u8> {
    [ctrl(opcode::SEND, index, q, 2), data(64, key, side.address(q, DATA))].concat()
}
