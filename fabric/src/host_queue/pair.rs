// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A connected queue pair in host memory. It writes genuine mlx5 work requests and reads genuine completions;
//! the transport's soft executor executes them.
//!
//! ```text
//!   0      4 KiB      5 KiB      6 KiB      10 KiB  11 KiB  12 KiB          64 KiB
//!   | UAR  | SQ 16x64 | RQ 16x16 | CQ 64x64 | DBR   | recv  | capsules 1 KiB | data 1 MiB
//! ```

use crate::admin::{ChannelError, WINDOW_BYTES};
use crate::cm::REFUSED_NO_PEER;
use crate::hca::abi::{ACCESS_LOCAL_WRITE, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE};
use crate::hca::soft::{SoftMr, SoftQp};
use crate::mlx5::{self, Cqe64, CtrlSeg, DataSeg, cqe_opcode, opcode};
use crate::runtime::TransportHandle;
use crate::transport::{ConnId, Connect, ExecutorId, Port};
use gnstor_base::region::HostRegion;
use gnstor_proto::fabrics::{CmRequest, cm_reject};
use gnstor_proto::nvme::{self, Cqe, KeyedSgl, Sqe};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

const UAR: u64 = 0;
const SQ: u64 = 4096;
const SQ_BLOCKS: u32 = 16;
const RQ: u64 = 5120;
const RQ_ENTRIES: u16 = 16;
const CQ: u64 = 6144;
const CQ_LOG: u32 = 6;
const DBR: u64 = 10240;
const CQ_DBR: u64 = 10304;
const RECV: u64 = 11264;
const CAPSULES: u64 = 12288;
const DATA: u64 = 65536;
/// Largest amount of data of one command.
pub const MAX_DATA: usize = WINDOW_BYTES;
const MEMORY: usize = 65536 + MAX_DATA;

static NEXT_QPN: AtomicU32 = AtomicU32::new(0x10_0000);

/// How queues in host memory reach an SSD.
#[derive(Clone, Copy, Debug)]
pub struct SsdPath<'a> {
    /// The transport with the connection to the SSD.
    pub transport: &'a TransportHandle,
    /// The transport's executor for queue pairs in host memory.
    pub executor: ExecutorId,
    /// Address of the SSD.
    pub port: Port,
    /// The SSD's NQN.
    pub subnqn: &'a str,
}

/// Meaning of a completion.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Completion {
    /// A capsule was acknowledged.
    Sent,
    /// A response has come.
    Response(Cqe),
    /// The queue pair is in error: why, in words.
    Failed(&'static str),
}

/// A connected queue pair. Dropping it closes the connection.
#[derive(Debug)]
pub struct HostQp {
    transport: TransportHandle,
    executor: ExecutorId,
    conn: ConnId,
    qpn: u32,
    key: u32,
    memory: Arc<HostRegion>,
    sent: u16,
    posted: u16,
    consumed: u32,
    /// Whether the owner wakes the transport itself, after all its sends.
    is_rung_later: bool,
}

impl HostQp {
    /// Makes a queue pair and connects it, by a request to the RDMA connection manager; no command yet.
    ///
    /// # Errors
    /// [`ChannelError`] names the SSD that refused or did not answer within `deadline`.
    pub fn connect(path: &SsdPath<'_>, qid: u16, deadline: Duration) -> Result<Self, ChannelError> {
        let SsdPath { transport, executor, port, subnqn } = *path;
        let peer = || subnqn.to_owned();
        let broken = |cause: String| ChannelError::Broken { peer: peer(), cause };
        let memory =
            HostRegion::alloc(MEMORY).map_err(|e| broken(format!("no memory for the queue: {e}")))?;
        let qpn = NEXT_QPN.fetch_add(1, Ordering::Relaxed) & 0xFF_FFFF;
        let key = qpn << 8 | 1;
        // The hardware hands entries over by the owner bit: they start as the other owner's, and invalid.
        for i in 0..1 << CQ_LOG {
            memory.fill(CQ + i * 64 + 63, 1, 0xF1);
        }
        let (qp, mr) = registrations(&memory, qpn, key);
        let (hrqsize, hsqsize_z) = (RQ_ENTRIES.into(), (RQ_ENTRIES - 1).into());
        let request = CmRequest { qid: qid.into(), hrqsize, hsqsize_z, ..CmRequest::default() };
        let (reply, answer) = mpsc::channel();
        let conn = transport.call(move |transport, now| {
            let soft = transport.soft(executor)?;
            soft.create_qp(qp);
            soft.register(mr);
            Some(transport.connect(now, Connect { executor, qpn, port, request }, reply))
        });
        let conn = conn
            .map_err(|e| broken(e.to_string()))?
            .ok_or_else(|| broken("the transport has no executor for host queues".into()))?;
        let transport = transport.clone();
        let (sent, posted, consumed, is_rung_later) = (0, 0, 0, false);
        let mut pair =
            Self { transport, executor, conn, qpn, key, memory, sent, posted, consumed, is_rung_later };
        match answer.recv_timeout(deadline) {
            Ok(Ok(())) => {}
            Ok(Err(REFUSED_NO_PEER)) => return Err(ChannelError::Absent { peer: peer() }),
            Ok(Err(cm_reject::NO_RESOURCES)) => return Err(ChannelError::Full { peer: peer() }),
            Ok(Err(reason)) => {
                return Err(ChannelError::Refused { peer: peer(), cause: format!("reason {reason}") });
            }
            Err(_) => return Err(ChannelError::Timeout { what: peer(), after: deadline }),
        }
        pair.post_receives();
        Ok(pair)
    }

    fn post_receives(&mut self) {
        for i in 0..u64::from(RQ_ENTRIES) {
            let address = self.memory.address() + RECV + i * 16;
            let seg = DataSeg { byte_count: 16.into(), lkey: self.key.into(), address: address.into() };
            self.memory.write(RQ + i * 16, seg.as_bytes());
        }
        self.post(RQ_ENTRIES);
    }

    fn post(&mut self, receives: u16) {
        self.posted = self.posted.wrapping_add(receives);
        // Pairs with the soft executor's acquire of the record.
        self.memory.word32(DBR).store(u32::from(self.posted).to_be(), Ordering::Release);
    }

    /// Index of the next capsule: a number of its own for each capsule in flight.
    pub fn next_index(&self) -> u16 {
        self.sent
    }

    /// A data pointer to the first `bytes` of the registered data.
    pub fn data(&self, bytes: u32) -> KeyedSgl {
        self.data_at(0, bytes)
    }

    /// A data pointer to `bytes` of the registered data at this offset.
    pub(super) fn data_at(&self, at: usize, bytes: u32) -> KeyedSgl {
        KeyedSgl::keyed(self.memory.address() + DATA + at as u64, bytes, self.key)
    }

    /// Writes bytes to the place from which commands take their data.
    ///
    /// # Panics
    /// If they exceed [`MAX_DATA`].
    pub fn write_data(&self, data: &[u8]) {
        self.write_data_at(0, data);
    }

    /// As [`Self::write_data`], at an offset.
    pub(super) fn write_data_at(&self, at: usize, data: &[u8]) {
        assert!(at + data.len() <= MAX_DATA, "a command moves at most {MAX_DATA} bytes");
        self.memory.write(DATA + at as u64, data);
    }

    /// Takes the bytes that a command has brought.
    ///
    /// # Panics
    /// Beyond [`MAX_DATA`].
    pub fn read_data(&self, data: &mut [u8]) {
        self.read_data_at(0, data);
    }

    /// As [`Self::read_data`], at an offset.
    pub(super) fn read_data_at(&self, at: usize, data: &mut [u8]) {
        assert!(at + data.len() <= MAX_DATA, "a command moves at most {MAX_DATA} bytes");
        self.memory.read(DATA + at as u64, data);
    }

    /// From now on, [`Self::send`] does not wake the transport's thread. The owner of many queues wakes it
    /// once after all its sends.
    pub(super) fn ring_later(&mut self) {
        self.is_rung_later = true;
    }

    /// Sends a capsule as it is. No more than 16 may be in flight.
    pub fn send(&mut self, capsule: &Sqe) {
        let index = self.sent;
        let block = u64::from(u32::from(index) % SQ_BLOCKS);
        let at = CAPSULES + block * 64;
        self.memory.write(at, capsule.as_bytes());
        let ctrl = CtrlSeg::new(opcode::SEND, index, self.qpn, 2, mlx5::CE_CQ_UPDATE);
        let address = self.memory.address() + at;
        let data = DataSeg { byte_count: 64.into(), lkey: self.key.into(), address: address.into() };
        self.memory.write(SQ + block * 64, ctrl.as_bytes());
        self.memory.write(SQ + block * 64 + 16, data.as_bytes());
        self.sent = index.wrapping_add(1);
        // Pairs with the soft executor's acquire of the doorbell record and of the doorbell.
        self.memory.word32(DBR + 4).store(u32::from(self.sent).to_be(), Ordering::Release);
        let doorbell = u64::read_from_bytes(&mlx5::doorbell_value(self.sent, self.qpn)).expect("eight bytes");
        self.memory.words64(UAR + mlx5::UAR_DB0, 1)[0].store(doorbell, Ordering::Release);
        // A doorbell in memory does not wake the transport's thread.
        if !self.is_rung_later {
            self.transport.cast(|transport, _| transport.look_everywhere());
        }
    }

    /// The next completion, if there is one.
    pub fn poll(&mut self) -> Option<Completion> {
        let at = CQ + u64::from(self.consumed & ((1 << CQ_LOG) - 1)) * 64;
        let last = self.memory.word32(at + 60).load(Ordering::Acquire); // pairs with write_cqe's release
        if !Cqe64::is_valid(last.as_bytes()[3], self.consumed, CQ_LOG) {
            return None;
        }
        let mut raw = [0; 64];
        self.memory.read(at, &mut raw);
        self.consumed = self.consumed.wrapping_add(1);
        // Pairs with the acquire in `overruns`: the entry has been read.
        let record = self.memory.word32(CQ_DBR);
        record.store((self.consumed & 0xFF_FFFF).to_be(), Ordering::Release);
        let completion: Cqe64 = zerocopy::transmute!(raw);
        Some(match completion.opcode() {
            cqe_opcode::REQUESTER => Completion::Sent,
            cqe_opcode::RESPONDER_SEND => {
                let slot = u64::from(completion.wqe_counter.get() % RQ_ENTRIES);
                let mut raw = [0; nvme::CQE_BYTES];
                self.memory.read(RECV + slot * 16, &mut raw);
                self.post(1);
                Completion::Response(zerocopy::transmute!(raw))
            }
            _ => Completion::Failed(mlx5::syndrome::name(completion.syndrome())),
        })
    }
}

/// The queue pair and its memory, as the soft executor is told about them.
fn registrations(memory: &Arc<HostRegion>, qpn: u32, key: u32) -> (SoftQp, SoftMr) {
    let qp = SoftQp {
        memory: Arc::clone(memory),
        qpn,
        pd: qpn,
        sq: (SQ, SQ_BLOCKS - 1),
        rq: (RQ, u32::from(RQ_ENTRIES) - 1),
        cq: (CQ, CQ_LOG),
        cq_dbr: Some(CQ_DBR),
        dbr: DBR,
        uar: UAR,
    };
    let access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE;
    let mr = SoftMr { memory: Arc::clone(memory), range: (0, MEMORY as u64), key, access, pd: qpn };
    (qp, mr)
}

impl Drop for HostQp {
    fn drop(&mut self) {
        let (executor, conn, qpn, key) = (self.executor, self.conn, self.qpn, self.key);
        self.transport.cast(move |transport, now| {
            transport.close(now, conn);
            if let Some(soft) = transport.soft(executor) {
                soft.destroy_qp(qpn);
                soft.deregister(key);
            }
        });
    }
}
