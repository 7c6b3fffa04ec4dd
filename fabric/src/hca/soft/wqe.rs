// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work requests in host memory: decoded, checked and gathered, as `fabric/cuda/fabric/hca/wqe.cuh` does it
//! for device memory.

use super::{Keyed, SoftExecutor};
use crate::hca::abi::*;
use crate::mlx5::{self, BYTE_COUNT_MASK, CtrlSeg, DataSeg, INLINE_FLAG, RaddrSeg, opcode, syndrome};
use zerocopy::{FromBytes, IntoBytes};

/// Longest SEND: one command capsule, the size of a target's receives.
pub const SEND_MAX_BYTES: u32 = 64;
/// Longest message of any kind.
const MESSAGE_MAX_BYTES: u32 = 1 << 31;

/// Place of a request: queue pair, index of its first block, segments.
#[derive(Clone, Copy)]
struct At {
    qp: usize,
    index: u16,
    ds: u32,
}

type Checked = Result<(), u8>;

pub(super) fn fail(e: &mut UpEntry, syndrome: u8) {
    e.kind = UP_WQE_ERROR;
    e.status = syndrome.into();
}

/// The memory that a segment names.
fn keyed(seg: &DataSeg) -> Keyed {
    let bytes = seg.byte_count.get() & BYTE_COUNT_MASK;
    Keyed { key: seg.lkey.get(), address: seg.address.get(), bytes }
}

impl SoftExecutor {
    fn segment<T: FromBytes + IntoBytes + Default>(&self, at: At, s: u32) -> T {
        let qp = &self.qps[at.qp].qp;
        let (offset, mask) = qp.sq;
        let block = u64::from((u32::from(at.index) + s / 4) & mask);
        let mut out = T::default();
        qp.memory.read(offset + block * mlx5::WQEBB + u64::from(s % 4) * mlx5::DS_BYTES, out.as_mut_bytes());
        out
    }

    /// Decodes, checks and gathers the request at `index`; returns its length in blocks.
    pub(super) fn decode(&self, qp: usize, index: u16, e: &mut UpEntry) -> u16 {
        let ctrl: CtrlSeg = self.segment(At { qp, index, ds: 1 }, 0);
        let (head, who) = (ctrl.opmod_idx_opcode.get(), ctrl.qpn_ds.get());
        let ds = who & 0x3F;
        #[expect(clippy::cast_possible_truncation, reason = "the low byte is the opcode")]
        let op = head as u8;
        e.flags = if ctrl.fm_ce_se & 0x0C == mlx5::CE_CQ_UPDATE { UP_SIGNALLED } else { 0 };
        if matches!(op, opcode::SEND_IMM | opcode::RDMA_WRITE_IMM) {
            e.flags |= UP_IMMEDIATE;
        }
        let is_ours = ds != 0 && who >> 8 == self.qps[qp].qp.qpn && head >> 8 & 0xFFFF == u32::from(index);
        let checked = match op {
            _ if !is_ours => Err(syndrome::LOCAL_QP_OPERATION),
            _ => self.check(At { qp, index, ds }, op, ctrl.imm.get(), e),
        };
        if let Err(syndrome) = checked {
            fail(e, syndrome);
        }
        ds.div_ceil(4).max(1) as u16
    }

    fn check(&self, at: At, op: u8, imm: u32, e: &mut UpEntry) -> Checked {
        match op {
            opcode::SEND | opcode::SEND_IMM => self.gather_send(at, imm, e, UP_SEND),
            opcode::SEND_INVAL => self.gather_send(at, imm, e, UP_SEND_INVAL),
            opcode::RDMA_WRITE | opcode::RDMA_WRITE_IMM => self.check_rdma(at, imm, e, UP_WRITE),
            opcode::RDMA_READ => self.check_rdma(at, imm, e, UP_READ),
            opcode::DUMP => self.dump(at, e),
            opcode::LOCAL_INVAL if at.ds == 1 => {
                e.kind = UP_LOCAL_INVAL;
                e.arg[0] = imm.into();
                Ok(())
            }
            opcode::NOP => {
                e.kind = UP_NOP;
                Ok(())
            }
            _ => Err(syndrome::LOCAL_QP_OPERATION),
        }
    }

    /// Reads the data segments from `s` on into `message`. The error is `too_long` if they are longer than
    /// `most` together.
    fn data(
        &self,
        at: At,
        mut s: u32,
        (most, too_long): (u32, u8),
        mut message: Option<&mut Vec<u8>>,
    ) -> Result<u32, u8> {
        let pd = self.qps[at.qp].qp.pd;
        let mut total = 0;
        while s < at.ds {
            let seg: DataSeg = self.segment(at, s);
            let bytes = seg.byte_count.get() & BYTE_COUNT_MASK;
            // As the agent does it: a segment's key first, then the length so far.
            let is_inline = seg.byte_count.get() & INLINE_FLAG != 0;
            let opened = self.open(pd, keyed(&seg), 0);
            if !is_inline && opened.is_none() {
                return Err(syndrome::LOCAL_PROTECTION);
            }
            total += bytes;
            if total > most {
                return Err(too_long);
            }
            let segments = if is_inline { (bytes + 4).div_ceil(16) } else { 1 };
            if s + segments > at.ds {
                return Err(syndrome::LOCAL_QP_OPERATION);
            }
            if let Some(message) = message.as_deref_mut() {
                let from = message.len();
                if is_inline {
                    let raw: Vec<u8> =
                        (s..s + segments).flat_map(|k| self.segment::<[u8; 16]>(at, k)).collect();
                    message.extend_from_slice(&raw[4..4 + bytes as usize]);
                } else if let Some((memory, offset)) = opened {
                    message.resize(from + bytes as usize, 0);
                    memory.read(offset, &mut message[from..]);
                }
            }
            s += segments;
        }
        Ok(total)
    }

    fn gather_send(&self, at: At, imm: u32, e: &mut UpEntry, kind: u32) -> Checked {
        let mut message = Vec::with_capacity(SEND_MAX_BYTES as usize);
        // The peer refuses a message that is longer than its receives, so the sender's request fails.
        let too_long = syndrome::REMOTE_INVALID_REQUEST;
        e.bytes = self.data(at, 1, (SEND_MAX_BYTES, too_long), Some(&mut message))?;
        e.kind = kind;
        e.arg[0] = imm.into();
        e.payload[..message.len()].copy_from_slice(&message);
        Ok(())
    }

    fn check_rdma(&self, at: At, imm: u32, e: &mut UpEntry, kind: u32) -> Checked {
        if at.ds < 3 {
            return Err(syndrome::LOCAL_QP_OPERATION);
        }
        let remote: RaddrSeg = self.segment(at, 1);
        e.bytes = match kind {
            UP_WRITE => self.data(at, 2, (MESSAGE_MAX_BYTES, syndrome::LOCAL_LENGTH), None)?,
            _ => self.read_into(at)?,
        };
        let local: DataSeg = self.segment(at, 2);
        let is_inline = local.byte_count.get() & INLINE_FLAG != 0;
        let (address, key) = if is_inline { (0, 0) } else { (local.address.get(), local.lkey.get()) };
        e.kind = kind;
        e.arg = [remote.address.get(), address];
        let keys = u64::from(remote.rkey.get()) << 32 | u64::from(key);
        e.payload[..8].copy_from_slice(keys.as_bytes());
        e.payload[8..16].copy_from_slice(u64::from(imm).as_bytes());
        Ok(())
    }

    /// The data segments of a READ: memory that may be written.
    fn read_into(&self, at: At) -> Result<u32, u8> {
        let mut total = 0;
        for s in 2..at.ds {
            let bytes = self.local(at, s, ACCESS_LOCAL_WRITE)?.0;
            total += bytes;
            if total > MESSAGE_MAX_BYTES {
                return Err(syndrome::LOCAL_LENGTH);
            }
        }
        Ok(total)
    }

    /// A data segment that must be memory: its length and address.
    fn local(&self, at: At, s: u32, access: u32) -> Result<(u32, u64), u8> {
        let seg: DataSeg = self.segment(at, s);
        let bytes = seg.byte_count.get() & BYTE_COUNT_MASK;
        if seg.byte_count.get() & INLINE_FLAG != 0 {
            return Err(syndrome::LOCAL_QP_OPERATION);
        }
        let opened = self.open(self.qps[at.qp].qp.pd, keyed(&seg), access);
        let (memory, offset) = opened.ok_or(syndrome::LOCAL_PROTECTION)?;
        Ok((bytes, memory.address() + offset))
    }

    /// Local memory is read and goes nowhere. In host memory nothing is under way that the read could wait
    /// for.
    fn dump(&self, at: At, e: &mut UpEntry) -> Checked {
        if at.ds != 2 {
            return Err(syndrome::LOCAL_QP_OPERATION);
        }
        (e.bytes, _) = self.local(at, 1, 0)?;
        e.kind = UP_DUMP;
        Ok(())
    }
}
