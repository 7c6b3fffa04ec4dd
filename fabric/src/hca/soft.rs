// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queue pairs in host memory, executed in Rust: the admin queues of clients and of the daemon, and the reference that the
//! agent is compared with.

use super::abi::*;
use super::{Down, Half};
use crate::mlx5::{self, BYTE_COUNT_MASK, CtrlSeg, DataSeg, INLINE_FLAG, RaddrSeg, cqe_opcode, opcode, syndrome};
use crate::region::{HostRegion, LocalRef, RegionId};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::checksum::block_sum;
use rustc_hash::FxHashMap as HashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

/// Longest SEND: one command capsule.
pub const SEND_MAX_BYTES: u32 = 64;

/// A queue pair and its completion queue, all within one region.
#[derive(Debug, Clone)]
pub struct SoftQp {
    /// Memory of the queues.
    pub memory: Arc<HostRegion>,
    /// Number of the queue pair.
    pub qpn: u32,
    /// Protection domain.
    pub pd: u32,
    /// Offset of the send queue, its blocks - 1.
    pub sq: (u64, u32),
    /// Offset of the receive queue, its entries - 1.
    pub rq: (u64, u32),
    /// Offset of the completion queue, log2 of its entries.
    pub cq: (u64, u32),
    /// Offset of the doorbell record.
    pub dbr: u64,
    /// Offset of the doorbell page.
    pub uar: u64,
}

#[derive(Debug)]
struct QpState {
    qp: SoftQp,
    error: bool,
    kick: [u8; 8],
    sq_head: u16,
    rq_head: u16,
    cq_pi: u32,
}

/// A memory region of the host.
#[derive(Debug, Clone)]
pub struct SoftMr {
    /// Memory.
    pub memory: Arc<HostRegion>,
    /// First byte and length.
    pub range: (u64, u64),
    /// Key.
    pub key: u32,
    /// `ACCESS_*`.
    pub access: u32,
    /// Protection domain.
    pub pd: u32,
}

/// The executor.
#[derive(Debug, Default)]
pub struct SoftHalf {
    qps: Vec<QpState>,
    mrs: HashMap<u32, SoftMr>,
    regions: HashMap<RegionId, Arc<HostRegion>>,
    up: VecDeque<UpEntry>,
}

impl SoftHalf {
    /// An executor without queue pairs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a queue pair, ready to send.
    pub fn create_qp(&mut self, qp: SoftQp) {
        self.qps.push(QpState { qp, error: false, kick: [0; 8], sq_head: 0, rq_head: 0, cq_pi: 0 });
    }

    /// Removes a queue pair.
    pub fn destroy_qp(&mut self, qpn: u32) {
        self.qps.retain(|q| q.qp.qpn != qpn);
    }

    /// Registers memory.
    pub fn register(&mut self, mr: SoftMr) {
        self.mrs.insert(mr.key, mr);
    }

    /// Forgets memory.
    pub fn deregister(&mut self, key: u32) {
        self.mrs.remove(&key);
    }

    /// Makes a region known that [`Down`] messages refer to.
    pub fn add_region(&mut self, region: Arc<HostRegion>) {
        self.regions.insert(region.id(), region);
    }

    /// Forgets a region.
    pub fn remove_region(&mut self, id: RegionId) {
        self.regions.remove(&id);
    }

    fn find(&self, qpn: u32) -> Option<usize> {
        self.qps.iter().position(|q| q.qp.qpn == qpn)
    }

    /// The memory that `key` opens for `bytes` at `address`, as region and offset.
    fn open(&self, pd: u32, key: u32, address: u64, bytes: u32, access: u32) -> Option<(&Arc<HostRegion>, u64)> {
        let mr = self.mrs.get(&key)?;
        let base = mr.memory.address() + mr.range.0;
        let offset = address.checked_sub(base)?;
        let fits = offset <= mr.range.1 && u64::from(bytes) <= mr.range.1 - offset;
        (mr.pd == pd && mr.access & access == access && fits).then_some((&mr.memory, mr.range.0 + offset))
    }

    fn serve(&mut self, i: usize) {
        let state = &self.qps[i];
        let qp = &state.qp;
        let mut kick = [0; 8];
        // Pairs with the owner's release store of the doorbell.
        let word = qp.memory.words64(qp.uar + mlx5::UAR_DB0, 1)[0].load(Ordering::Acquire);
        kick.copy_from_slice(word.as_bytes());
        if kick == state.kick {
            return;
        }
        let recorded = u32::from_be(qp.memory.word32(qp.dbr + 4).load(Ordering::Acquire));
        #[expect(clippy::cast_possible_truncation, reason = "the low 16 bits count")]
        let mut producer = recorded as u16;
        let first = U32::from_bytes([kick[0], kick[1], kick[2], kick[3]]).get();
        #[expect(clippy::cast_possible_truncation, reason = "a 16-bit field")]
        let rung = (first >> 8) as u16;
        if first & 0xFF == 0 && rung != producer && rung.wrapping_sub(producer) < 0x8000 {
            producer = rung;
        }
        self.qps[i].kick = kick;
        while self.qps[i].sq_head != producer {
            let index = self.qps[i].sq_head;
            let left = producer.wrapping_sub(index);
            if left > 0x8000 {
                break;
            }
            let mut entry = UpEntry { qpn: self.qps[i].qp.qpn, index: index.into(), ..UpEntry::default() };
            let mut blocks = self.decode(i, index, &mut entry);
            if u32::from(left) > self.qps[i].qp.sq.1 + 1 || blocks > left {
                blocks = left;
                fail(&mut entry, syndrome::LOCAL_QP_OPERATION);
            }
            if self.qps[i].error {
                entry.kind = UP_WQE_FLUSH;
            } else if entry.kind == UP_WQE_ERROR {
                self.qps[i].error = true;
            }
            self.qps[i].sq_head = index.wrapping_add(blocks);
            self.up.push_back(entry);
        }
    }

    fn segment<T: FromBytes + IntoBytes + Default>(&self, i: usize, index: u16, s: u16) -> T {
        let (offset, mask) = self.qps[i].qp.sq;
        let block = u64::from((u32::from(index) + u32::from(s / 4)) & mask);
        let mut out = T::default();
        self.qps[i]
            .qp
            .memory
            .read(offset + block * mlx5::WQEBB + u64::from(s % 4) * mlx5::DS_BYTES, out.as_mut_bytes());
        out
    }

    /// Decodes, checks and gathers the request at `index`; returns its length in blocks.
    fn decode(&self, i: usize, index: u16, e: &mut UpEntry) -> u16 {
        let ctrl: CtrlSeg = self.segment(i, index, 0);
        let (head, who) = (ctrl.opmod_idx_opcode.get(), ctrl.qpn_ds.get());
        let ds = (who & 0x3F) as u16;
        e.flags = if ctrl.fm_ce_se & 0x0C == mlx5::CE_CQ_UPDATE { UP_SIGNALLED } else { 0 };
        if ds == 0 || who >> 8 != self.qps[i].qp.qpn || head >> 8 & 0xFFFF != u32::from(index) {
            fail(e, syndrome::LOCAL_QP_OPERATION);
            return ds.div_ceil(4).max(1);
        }
        #[expect(clippy::cast_possible_truncation, reason = "the low byte is the opcode")]
        match head as u8 {
            opcode::SEND => self.gather_send(i, index, ds, e),
            opcode::RDMA_WRITE => self.check_rdma(i, index, ds, e, UP_WRITE),
            opcode::RDMA_READ => self.check_rdma(i, index, ds, e, UP_READ),
            opcode::NOP => e.kind = UP_NOP,
            _ => fail(e, syndrome::LOCAL_QP_OPERATION),
        }
        ds.div_ceil(4)
    }

    fn gather_send(&self, i: usize, index: u16, ds: u16, e: &mut UpEntry) {
        let pd = self.qps[i].qp.pd;
        let mut message = Vec::with_capacity(SEND_MAX_BYTES as usize);
        let mut s = 1;
        while s < ds {
            let seg: DataSeg = self.segment(i, index, s);
            let bytes = seg.byte_count.get() & BYTE_COUNT_MASK;
            // As the agent does it: a segment's key first, then the length so far.
            let is_inline = seg.byte_count.get() & INLINE_FLAG != 0;
            let opened = self.open(pd, seg.lkey.get(), seg.address.get(), bytes, 0);
            if !is_inline && opened.is_none() {
                return fail(e, syndrome::LOCAL_PROTECTION);
            }
            if message.len() as u64 + u64::from(bytes) > u64::from(SEND_MAX_BYTES) {
                return fail(e, syndrome::LOCAL_LENGTH);
            }
            let at = message.len();
            if is_inline {
                #[expect(clippy::cast_possible_truncation, reason = "at most SEND_MAX_BYTES")]
                let segments = (bytes + 4).div_ceil(16) as u16;
                if s + segments > ds {
                    return fail(e, syndrome::LOCAL_QP_OPERATION);
                }
                let raw: Vec<u8> = (s..s + segments).flat_map(|k| self.segment::<[u8; 16]>(i, index, k)).collect();
                message.extend_from_slice(&raw[4..4 + bytes as usize]);
                s += segments;
            } else if let Some((memory, offset)) = opened {
                message.resize(at + bytes as usize, 0);
                memory.read(offset, &mut message[at..]);
                s += 1;
            }
        }
        e.kind = UP_SEND;
        #[expect(clippy::cast_possible_truncation, reason = "at most SEND_MAX_BYTES")]
        let bytes = message.len() as u32;
        e.bytes = bytes;
        e.payload[..message.len()].copy_from_slice(&message);
    }

    fn check_rdma(&self, i: usize, index: u16, ds: u16, e: &mut UpEntry, kind: u32) {
        if ds != 3 {
            return fail(e, syndrome::LOCAL_QP_OPERATION);
        }
        let remote: RaddrSeg = self.segment(i, index, 1);
        let local: DataSeg = self.segment(i, index, 2);
        let bytes = local.byte_count.get() & BYTE_COUNT_MASK;
        let need = if kind == UP_READ { ACCESS_LOCAL_WRITE } else { 0 };
        if self.open(self.qps[i].qp.pd, local.lkey.get(), local.address.get(), bytes, need).is_none() {
            return fail(e, syndrome::LOCAL_PROTECTION);
        }
        e.kind = kind;
        e.bytes = bytes;
        e.arg = [remote.address.get(), local.address.get()];
        let keys = u64::from(remote.rkey.get()) << 32 | u64::from(local.lkey.get());
        e.payload[..8].copy_from_slice(keys.as_bytes());
    }

    fn write_cqe(&mut self, i: usize, opcode: u8, syndrome: u8, counter: u16, bytes: u32) {
        let state = &mut self.qps[i];
        let (offset, log) = state.qp.cq;
        let pi = state.cq_pi;
        state.cq_pi = pi.wrapping_add(1);
        let at = offset + u64::from(pi & ((1 << log) - 1)) * mlx5::CQE_BYTES;
        let owner = u8::from(pi >> log & 1 == 1);
        let mut cqe = mlx5::Cqe64 {
            flags_rqpn: state.qp.qpn.into(),
            byte_count: bytes.into(),
            sop_qpn: state.qp.qpn.into(),
            wqe_counter: counter.into(),
            op_own: opcode << 4 | owner,
            ..mlx5::Cqe64::default()
        };
        cqe.timestamp[7] = syndrome;
        let raw = cqe.as_bytes();
        state.qp.memory.write(at, &raw[..60]);
        let last = u32::read_from_bytes(&raw[60..]).expect("four bytes");
        state.qp.memory.word32(at + 60).store(last, Ordering::Release); // pairs with the poller's acquire
    }

    fn deliver(&mut self, qpn: u32, bytes: [u8; 16]) {
        let Some(i) = self.find(qpn) else { return };
        if self.qps[i].error {
            return;
        }
        let state = &self.qps[i];
        let qp = &state.qp;
        let posted = self.posted_receives(i);
        let at = state.rq_head;
        let ready = posted.wrapping_sub(at);
        if ready == 0 || u32::from(ready) > qp.rq.1 + 1 {
            let mut e = UpEntry { kind: UP_RNR, qpn, index: at.into(), bytes: 16, ..UpEntry::default() };
            e.arg = zerocopy::transmute!(bytes);
            self.up.push_back(e);
            return;
        }
        let mut seg = DataSeg::default();
        qp.memory.read(qp.rq.0 + u64::from(u32::from(at) & qp.rq.1) * mlx5::DS_BYTES, seg.as_mut_bytes());
        let fault = if seg.byte_count.get() & BYTE_COUNT_MASK < 16 {
            Some(syndrome::LOCAL_LENGTH)
        } else if let Some((memory, offset)) =
            self.open(qp.pd, seg.lkey.get(), seg.address.get(), 16, ACCESS_LOCAL_WRITE)
        {
            memory.write(offset, &bytes);
            None
        } else {
            Some(syndrome::LOCAL_PROTECTION)
        };
        self.qps[i].rq_head = at.wrapping_add(1);
        if let Some(status) = fault {
            self.qps[i].error = true;
            let e = UpEntry { kind: UP_RECV_ERROR, qpn, index: at.into(), status: status.into(), ..UpEntry::default() };
            self.up.push_back(e);
        } else {
            self.write_cqe(i, cqe_opcode::RESPONDER_SEND, 0, at, 16);
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low 16 bits count")]
    fn posted_receives(&self, i: usize) -> u16 {
        let qp = &self.qps[i].qp;
        u32::from_be(qp.memory.word32(qp.dbr).load(Ordering::Acquire)) as u16
    }

    fn copy(&mut self, qpn: u32, tag: u32, local: LocalRef, remote: (u64, u32), to_owner: bool, want: Option<u32>) {
        let mut e = UpEntry { kind: UP_DONE, qpn, index: tag, bytes: local.bytes, ..UpEntry::default() };
        let access = if to_owner { ACCESS_REMOTE_WRITE } else { ACCESS_REMOTE_READ };
        let opened = self.find(qpn).filter(|&i| !self.qps[i].error).and_then(|i| {
            self.open(self.qps[i].qp.pd, remote.1, remote.0, local.bytes, access).map(|(m, o)| (Arc::clone(m), o))
        });
        match (opened, self.regions.get(&local.region)) {
            (Some((memory, offset)), Some(region)) => {
                let mut data = vec![0; local.bytes as usize];
                let (from, to) = ((region, local.offset), (&memory, offset));
                let (from, to) = if to_owner { (from, to) } else { (to, from) };
                from.0.read(from.1, &mut data);
                to.0.write(to.1, &data);
                if local.bytes == BLOCK_BYTES {
                    e.sum = block_sum(&data);
                }
                if want.is_some_and(|want| local.bytes != BLOCK_BYTES || want != e.sum) {
                    e.status = COPY_BAD_SUM;
                }
            }
            _ => e.status = COPY_BAD_KEY,
        }
        self.up.push_back(e);
    }
}

fn fail(e: &mut UpEntry, syndrome: u8) {
    e.kind = UP_WQE_ERROR;
    e.status = syndrome.into();
}

impl Half for SoftHalf {
    fn poll(&mut self) -> Option<UpEntry> {
        if self.up.is_empty() {
            (0..self.qps.len()).for_each(|i| self.serve(i));
        }
        self.up.pop_front()
    }

    fn push(&mut self, message: Down) {
        match message {
            Down::ToOwner { qpn, local, address, key, tag, sum } => {
                self.copy(qpn, tag, local, (address, key), true, sum)
            }
            Down::FromOwner { qpn, local, address, key, tag } => {
                self.copy(qpn, tag, local, (address, key), false, None)
            }
            Down::Send { qpn, bytes, .. } => self.deliver(qpn, bytes),
            Down::Cqe { qpn, opcode, syndrome, counter } => {
                if let Some(i) = self.find(qpn) {
                    self.write_cqe(i, opcode, syndrome, counter, 0);
                }
            }
            Down::QpError { qpn } => {
                if let Some(i) = self.find(qpn) {
                    let (posted, head) = (self.posted_receives(i), self.qps[i].rq_head);
                    self.qps[i].error = true;
                    self.qps[i].rq_head = posted;
                    let (index, status) = (head.into(), posted.into());
                    self.up.push_back(UpEntry { kind: UP_RQ_FLUSH, qpn, index, status, ..UpEntry::default() });
                }
            }
            Down::Ping { tag } => self.up.push_back(UpEntry { kind: UP_PONG, index: tag, ..UpEntry::default() }),
        }
    }

    /// A copy is over when `push` returns.
    fn take_back(&mut self, _qpn: u32) -> bool {
        true
    }
}
