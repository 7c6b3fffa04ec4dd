// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queue pairs in host memory, executed in Rust: the admin queues of clients and of the daemon. Tests
//! compare the agent with this executor.

mod executor;
mod wqe;

use super::abi::*;
use super::{Down, QpExecutor, Up};
use crate::mlx5::{self, BYTE_COUNT_MASK, DataSeg, UAR_NO_RECORD, UAR_REGISTERS, cqe_opcode, syndrome};
use gnstor_base::region::{HostRegion, LocalRef, RegionId};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::checksum::block_sum;
use rustc_hash::FxHashMap as HashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

pub use wqe::SEND_MAX_BYTES;

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
    /// Offset of the completion queue's doorbell record, where its owner keeps the consumer index: then an
    /// overrun is an error. Without such a record (the hardware's `oi`) an overrun overwrites entries.
    pub cq_dbr: Option<u64>,
    /// Offset of the doorbell record.
    pub dbr: u64,
    /// Offset of the doorbell page.
    pub uar: u64,
}

#[derive(Debug)]
struct QpState {
    qp: SoftQp,
    error: bool,
    overrun: bool,
    seen_values: [u64; UAR_REGISTERS.len()],
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

/// Memory that a request names by a key.
#[derive(Clone, Copy, Debug)]
struct Keyed {
    key: u32,
    address: u64,
    bytes: u32,
}

/// A copy between local memory and the owner's.
struct Transfer {
    qpn: u32,
    tag: u32,
    local: LocalRef,
    keyed: Keyed,
    to_owner: bool,
    /// Block sum that the data must have.
    want: Option<u32>,
}

/// The executor.
#[derive(Debug, Default)]
pub struct SoftExecutor {
    qps: Vec<QpState>,
    mrs: HashMap<u32, SoftMr>,
    regions: HashMap<RegionId, Arc<HostRegion>>,
    up: VecDeque<UpEntry>,
}

impl SoftExecutor {
    /// An executor without queue pairs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a queue pair, ready to send.
    pub fn create_qp(&mut self, qp: SoftQp) {
        let seen_values = [0; UAR_REGISTERS.len()];
        self.qps.push(QpState {
            qp,
            error: false,
            overrun: false,
            seen_values,
            sq_head: 0,
            rq_head: 0,
            cq_pi: 0,
        });
    }

    /// Resets the queue pair. Its completion queue goes on.
    fn begin_anew(&mut self, qpn: u32) {
        if let Some(q) = self.qps.iter_mut().find(|q| q.qp.qpn == qpn) {
            (q.error, q.sq_head, q.rq_head) = (false, 0, 0);
            q.seen_values = [0; UAR_REGISTERS.len()];
        }
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

    /// The next entry, as the agent would write it: for tests that compare the two executors.
    pub fn poll_entry(&mut self) -> Option<UpEntry> {
        if self.up.is_empty() {
            (0..self.qps.len()).for_each(|i| self.serve(i));
        }
        self.up.pop_front()
    }

    fn find(&self, qpn: u32) -> Option<usize> {
        self.qps.iter().position(|q| q.qp.qpn == qpn)
    }

    /// The memory that a key opens for `access` from `pd`, as region and offset.
    fn open(&self, pd: u32, keyed: Keyed, access: u32) -> Option<(&Arc<HostRegion>, u64)> {
        let Keyed { key, address, bytes } = keyed;
        let mr = self.mrs.get(&key)?;
        let base = mr.memory.address() + mr.range.0;
        let offset = address.checked_sub(base)?;
        let fits = offset <= mr.range.1 && u64::from(bytes) <= mr.range.1 - offset;
        (mr.pd == pd && mr.access & access == access && fits).then_some((&mr.memory, mr.range.0 + offset))
    }

    /// Takes the new values of the doorbell registers. Returns the producer index, which may be an old one.
    fn take_doorbells(&mut self, i: usize) -> u16 {
        let QpState { qp, seen_values, sq_head, .. } = &mut self.qps[i];
        let (mut producer, mut recorded) = (*sq_head, None);
        let mut rung = Vec::new();
        for (seen, at) in seen_values.iter_mut().zip(UAR_REGISTERS) {
            // Pairs with the owner's release store of the doorbell.
            let value = qp.memory.words64(qp.uar + at, 1)[0].load(Ordering::Acquire);
            if value == *seen {
                continue;
            }
            *seen = value;
            if at != UAR_NO_RECORD {
                recorded = Some(u32::from_be(qp.memory.word32(qp.dbr + 4).load(Ordering::Acquire)));
            }
            let first = U32::read_from_bytes(&value.as_bytes()[..4]).expect("four bytes").get();
            if first & 0xFF == 0 {
                #[expect(clippy::cast_possible_truncation, reason = "a 16-bit field")]
                rung.push((first >> 8) as u16);
            }
        }
        #[expect(clippy::cast_possible_truncation, reason = "the low 16 bits count")]
        if let Some(recorded) = recorded {
            producer = recorded as u16;
        }
        for index in rung {
            if index != producer && index.wrapping_sub(producer) < 0x8000 {
                producer = index;
            }
        }
        producer
    }

    fn serve(&mut self, i: usize) {
        let producer = self.take_doorbells(i);
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
                wqe::fail(&mut entry, syndrome::LOCAL_QP_OPERATION);
            }
            if self.qps[i].error {
                entry.kind = UP_WQE_FLUSH;
            }
            if entry.kind == UP_LOCAL_INVAL && !self.invalidate(i, &entry) {
                wqe::fail(&mut entry, syndrome::MEMORY_OPERATION);
            }
            self.qps[i].error |= entry.kind == UP_WQE_ERROR;
            self.qps[i].sq_head = index.wrapping_add(blocks);
            self.up.push_back(entry);
        }
    }

    /// Invalidates the key that a LOCAL_INVAL names.
    fn invalidate(&mut self, i: usize, e: &UpEntry) -> bool {
        let pd = self.qps[i].qp.pd;
        let key = u32::try_from(e.arg[0]).expect("a key has 32 bits");
        self.mrs.get(&key).is_some_and(|mr| mr.pd == pd) && self.mrs.remove(&key).is_some()
    }

    /// Whether the next completion finds no room; then its queue pair is in error, which is reported once.
    fn overruns(&mut self, i: usize) -> bool {
        let state = &mut self.qps[i];
        let Some(dbr) = state.qp.cq_dbr else { return false };
        // Pairs with the owner's release: it has read the entry that is written next.
        let taken = u32::from_be(state.qp.memory.word32(dbr).load(Ordering::Acquire));
        let room = state.cq_pi.wrapping_sub(taken) & 0xFF_FFFF < 1 << state.qp.cq.1;
        state.overrun |= !room;
        if !state.overrun {
            return false;
        }
        if !state.error {
            state.error = true;
            self.up.push_back(UpEntry { kind: UP_CQ_ERROR, qpn: state.qp.qpn, ..UpEntry::default() });
        }
        true
    }

    fn write_cqe(&mut self, i: usize, (opcode, syndrome): (u8, u8), counter: u16, bytes: u32) {
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
        state.qp.memory.write(at, &raw[..56]);
        let last = u64::read_from_bytes(&raw[56..]).expect("eight bytes");
        // Pairs with the poller's acquire, which may be of the last word or of the last two.
        state.qp.memory.words64(at + 56, 1)[0].store(last, Ordering::Release);
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
        let keyed = Keyed { key: seg.lkey.get(), address: seg.address.get(), bytes: 16 };
        let opened = self.open(qp.pd, keyed, ACCESS_LOCAL_WRITE);
        let opened = opened.map(|(memory, offset)| (Arc::clone(memory), offset));
        let status = match opened {
            _ if seg.byte_count.get() & BYTE_COUNT_MASK < 16 => syndrome::LOCAL_LENGTH,
            None => syndrome::LOCAL_PROTECTION,
            _ if !seg.address.get().is_multiple_of(16) => syndrome::LOCAL_PROTECTION,
            Some(_) if self.overruns(i) => return,
            Some((memory, offset)) => {
                memory.write(offset, &bytes);
                self.qps[i].rq_head = at.wrapping_add(1);
                return self.write_cqe(i, (cqe_opcode::RESPONDER_SEND, 0), at, 16);
            }
        };
        self.qps[i].rq_head = at.wrapping_add(1);
        self.qps[i].error = true;
        let e = UpEntry {
            kind: UP_RECV_ERROR,
            qpn,
            index: at.into(),
            status: status.into(),
            ..UpEntry::default()
        };
        self.up.push_back(e);
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low 16 bits count")]
    fn posted_receives(&self, i: usize) -> u16 {
        let qp = &self.qps[i].qp;
        u32::from_be(qp.memory.word32(qp.dbr).load(Ordering::Acquire)) as u16
    }

    /// Copies between local memory and the owner's, and reports it.
    fn copy(&mut self, copy: Transfer) {
        let Transfer { qpn, tag, local, keyed, to_owner, want } = copy;
        let mut e = UpEntry { kind: UP_DONE, qpn, index: tag, bytes: local.bytes, ..UpEntry::default() };
        let access = if to_owner { ACCESS_REMOTE_WRITE } else { ACCESS_REMOTE_READ };
        let opened = self
            .find(qpn)
            .filter(|&i| !self.qps[i].error)
            .and_then(|i| self.open(self.qps[i].qp.pd, keyed, access).map(|(m, o)| (Arc::clone(m), o)));
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
