// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A queue pair in host memory that sends any 64 bytes: no field is filled in, nothing is checked.

use gnstor_base::region::HostRegion;
use gnstor_fabric::admin::ChannelError;
use gnstor_fabric::hca::abi::{ACCESS_LOCAL_WRITE, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE};
use gnstor_fabric::hca::soft::{SoftMr, SoftQp};
use gnstor_fabric::mlx5::{self, Cqe64, CtrlSeg, DataSeg, cqe_opcode, opcode};
use gnstor_fabric::runtime::TransportHandle;
use gnstor_fabric::transport::{ConnId, Connect, ExecutorId, Port};
use gnstor_proto::fabrics::{self, CmRequest, ConnectData, ConnectFields, Identity, fctype};
use gnstor_proto::nvme::{self, Cqe, KeyedSgl, Sqe};
use gnstor_proto::status::Status;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

const UAR: u64 = 0;
const SQ: u64 = 4096;
const SQ_BLOCKS: u32 = 16;
const RQ: u64 = 5120;
const RQ_ENTRIES: u32 = 16;
const CQ: u64 = 6144;
const CQ_LOG: u32 = 6;
const DBR: u64 = 10240;
const RECV: u64 = 11264;
const CAPSULES: u64 = 12288;
const DATA: u64 = 65536;
const MEMORY: usize = 65536 + (64 << 10);

// Far from the numbers that admin queues take.
static NEXT_QPN: AtomicU32 = AtomicU32::new(0x80_0000);

/// A queue pair.
#[derive(Debug)]
pub struct RawQueue {
    engine: TransportHandle,
    executor: ExecutorId,
    conn: ConnId,
    qpn: u32,
    key: u32,
    memory: Arc<HostRegion>,
    sent: u16,
    posted: u16,
    consumed: u32,
}

impl RawQueue {
    /// An RDMA connection that asks to be queue `qid`; no Fabrics Connect yet.
    ///
    /// # Errors
    /// [`ChannelError::Refused`] with the reject reason.
    ///
    /// # Panics
    /// Without memory or an engine.
    pub fn open(
        engine: &TransportHandle,
        executor: ExecutorId,
        port: Port,
        qid: u16,
    ) -> Result<Self, ChannelError> {
        let memory = HostRegion::alloc(MEMORY).expect("memory for a queue");
        let qpn = NEXT_QPN.fetch_add(1, Ordering::Relaxed);
        let key = qpn << 8 | 1;
        for i in 0..1 << CQ_LOG {
            memory.fill(CQ + i * 64 + 63, 1, 0xF1);
        }
        let qp = SoftQp {
            memory: Arc::clone(&memory),
            qpn,
            pd: qpn,
            sq: (SQ, SQ_BLOCKS - 1),
            rq: (RQ, RQ_ENTRIES - 1),
            cq: (CQ, CQ_LOG),
            cq_dbr: None,
            dbr: DBR,
            uar: UAR,
        };
        let access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE;
        let mr = SoftMr { memory: Arc::clone(&memory), range: (0, MEMORY as u64), key, access, pd: qpn };
        let request =
            CmRequest { qid: qid.into(), hrqsize: 16.into(), hsqsize_z: 15.into(), ..CmRequest::default() };
        let (reply, answer) = mpsc::channel();
        let conn = engine.call(move |e, now| {
            let soft = e.soft(executor).expect("an executor for host queues");
            soft.create_qp(qp);
            soft.register(mr);
            e.connect(now, Connect { executor, qpn, port, request }, reply)
        });
        let conn = conn.expect("the engine runs");
        let mut queue = Self {
            engine: engine.clone(),
            executor,
            conn,
            qpn,
            key,
            memory,
            sent: 0,
            posted: 0,
            consumed: 0,
        };
        match answer.recv_timeout(Duration::from_secs(5)) {
            Ok(Ok(())) => {}
            Ok(Err(reason)) => {
                return Err(ChannelError::Refused {
                    peer: "the SSD".into(),
                    cause: format!("reason {reason}"),
                });
            }
            Err(_) => return Err(timeout(Duration::from_secs(5))),
        }
        queue.post_receives();
        Ok(queue)
    }

    /// Fabrics Connect of an I/O queue of controller `cntlid`.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    pub fn connect_io(
        &mut self,
        qid: u16,
        cntlid: u16,
        subnqn: &str,
        identity: Identity,
    ) -> Result<Status, ChannelError> {
        let data = ConnectData::new(identity, cntlid, subnqn);
        self.memory.write(DATA, data.as_bytes());
        let fields = ConnectFields { qid: qid.into(), sqsize_z: 15.into(), ..ConnectFields::default() };
        let mut sqe = fabrics::command(fctype::CONNECT, &fields);
        sqe.flags = nvme::FLAGS_SGL;
        sqe.dptr = self.data(1024);
        let answer = self.exchange(&sqe, Duration::from_secs(5))?;
        Ok(Status(answer.status_word()))
    }

    /// A data pointer to the first `bytes` of this queue's registered data.
    pub fn data(&self, bytes: u32) -> KeyedSgl {
        KeyedSgl::keyed(self.memory.address() + DATA, bytes, self.key)
    }

    fn post_receives(&mut self) {
        for i in 0..u64::from(RQ_ENTRIES) {
            let address = self.memory.address() + RECV + i * 16;
            let seg = DataSeg { byte_count: 16.into(), lkey: self.key.into(), address: address.into() };
            self.memory.write(RQ + i * 16, seg.as_bytes());
        }
        self.posted = 16;
        self.memory.word32(DBR).store(u32::from(self.posted).to_be(), Ordering::Release);
    }

    /// Sends one capsule as it is and waits for the response.
    ///
    /// # Errors
    /// [`ChannelError::Broken`] or [`ChannelError::Timeout`].
    ///
    /// # Panics
    /// When the response is for another command.
    #[expect(clippy::disallowed_methods, reason = "a blocking wait with a deadline in real time")]
    pub fn exchange(&mut self, capsule: &Sqe, deadline: Duration) -> Result<Cqe, ChannelError> {
        self.send(capsule);
        let start = Instant::now();
        loop {
            let Some(completion) = self.poll() else {
                if start.elapsed() > deadline {
                    return Err(timeout(deadline));
                }
                std::thread::sleep(Duration::from_micros(20));
                continue;
            };
            match completion.opcode() {
                cqe_opcode::REQUESTER => {}
                cqe_opcode::RESPONDER_SEND => {
                    let slot = u64::from(u32::from(completion.wqe_counter.get()) % RQ_ENTRIES);
                    let mut raw = [0; nvme::CQE_BYTES];
                    self.memory.read(RECV + slot * 16, &mut raw);
                    self.posted = self.posted.wrapping_add(1);
                    self.memory.word32(DBR).store(u32::from(self.posted).to_be(), Ordering::Release);
                    let cqe: Cqe = zerocopy::transmute!(raw);
                    assert_eq!(cqe.cid, capsule.cid, "the response is for another command");
                    return Ok(cqe);
                }
                _ => {
                    let cause = mlx5::syndrome::name(completion.syndrome()).to_owned();
                    return Err(ChannelError::Broken { peer: "the SSD".into(), cause });
                }
            }
        }
    }

    fn send(&mut self, capsule: &Sqe) {
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
    }

    fn poll(&mut self) -> Option<Cqe64> {
        let at = CQ + u64::from(self.consumed & ((1 << CQ_LOG) - 1)) * 64;
        let last = self.memory.word32(at + 60).load(Ordering::Acquire); // pairs with the soft executor's release
        if !Cqe64::is_valid(last.as_bytes()[3], self.consumed, CQ_LOG) {
            return None;
        }
        let mut raw = [0; 64];
        self.memory.read(at, &mut raw);
        self.consumed = self.consumed.wrapping_add(1);
        Some(zerocopy::transmute!(raw))
    }
}

fn timeout(after: Duration) -> ChannelError {
    ChannelError::Timeout { what: "the SSD".into(), after }
}

impl Drop for RawQueue {
    fn drop(&mut self) {
        let (executor, conn, qpn, key) = (self.executor, self.conn, self.qpn, self.key);
        self.engine.cast(move |engine, now| {
            engine.close(now, conn);
            if let Some(soft) = engine.soft(executor) {
                soft.destroy_qp(qpn);
                soft.deregister(key);
            }
        });
    }
}
