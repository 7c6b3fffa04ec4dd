// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An NVMe-oF queue whose queue pair is in host memory: the admin queues of clients and of the daemon.
//!
//! It writes genuine mlx5 work requests and reads genuine completions; the transport's soft executor executes them.
//!
//! ```text
//!   0      4 KiB      5 KiB      6 KiB      10 KiB  11 KiB  12 KiB          64 KiB
//!   | UAR  | SQ 16x64 | RQ 16x16 | CQ 64x64 | DBR   | recv  | capsules 1 KiB | data 1 MiB
//! ```

use crate::admin::{AdminChannel, ChannelError, Payload};
use crate::hca::abi::{ACCESS_LOCAL_WRITE, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE};
use crate::hca::soft::{SoftMr, SoftQp};
use crate::mlx5::{self, Cqe64, CtrlSeg, DataSeg, cqe_opcode, opcode};
use crate::runtime::TransportHandle;
use crate::transport::{ConnId, Connect, ExecutorId, Port, REFUSED_NO_PEER, RcTransport};
use gnstor_base::region::HostRegion;
use gnstor_proto::fabrics::{
    self, CmRequest, ConnectData, ConnectFields, Host, PropertyFields, fctype, property,
};
use gnstor_proto::nvme::{self, Cqe, IdentifyController, KeyedSgl, Sqe};
use gnstor_proto::status::{Detail, Refusal, Status};
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
const CQ_DBR: u64 = 10304;
const RECV: u64 = 11264;
const CAPSULES: u64 = 12288;
const DATA: u64 = 65536;
/// Most data of one admin command.
pub const MAX_DATA: usize = 1 << 20;
const MEMORY: usize = 65536 + MAX_DATA;

static NEXT_QPN: AtomicU32 = AtomicU32::new(0x10_0000);

/// One admin queue to one controller.
#[derive(Debug)]
pub struct HostQueue {
    transport: TransportHandle,
    executor: ExecutorId,
    conn: ConnId,
    qpn: u32,
    key: u32,
    memory: Arc<HostRegion>,
    peer: String,
    sent: u16,
    posted: u16,
    consumed: u32,
    cntlid: u16,
    broken: Option<String>,
}

impl HostQueue {
    /// Connects the admin queue of a controller: RDMA connection, Fabrics Connect as `host`, controller
    /// enable.
    ///
    /// # Errors
    /// [`ChannelError`] says who refused and why, or what did not answer.
    pub fn connect(
        transport: &TransportHandle,
        executor: ExecutorId,
        port: Port,
        subnqn: &str,
        host: impl Into<Host>,
        kato: Duration,
        deadline: Duration,
    ) -> Result<Self, ChannelError> {
        let peer = subnqn.to_owned();
        let broken = |cause: String| ChannelError::Broken { peer: peer.clone(), cause };
        let memory =
            HostRegion::alloc(MEMORY).map_err(|e| broken(format!("no memory for the queue: {e}")))?;
        let qpn = NEXT_QPN.fetch_add(1, Ordering::Relaxed) & 0xFF_FFFF;
        let key = qpn << 8 | 1;
        // The hardware hands entries over by the owner bit: they start as the other owner's, and invalid.
        memory.fill(CQ, 64 << CQ_LOG, 0);
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
            cq_dbr: Some(CQ_DBR),
            dbr: DBR,
            uar: UAR,
        };
        let access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE;
        let mr = SoftMr { memory: Arc::clone(&memory), range: (0, MEMORY as u64), key, access, pd: qpn };
        let request = CmRequest {
            hrqsize: RQ_ENTRIES.try_into().map_or(0.into(), |n: u16| n.into()),
            hsqsize_z: 15.into(),
            ..CmRequest::default()
        };
        let (reply, answer) = mpsc::channel();
        let conn = transport
            .call(move |e: &mut RcTransport, now| {
                let soft = e.soft(executor)?;
                soft.create_qp(qp);
                soft.register(mr);
                Some(e.connect(now, Connect { executor, qpn, port, request }, reply))
            })
            .map_err(|e| broken(e.to_string()))?
            .ok_or_else(|| broken("the transport has no executor for host queues".into()))?;
        let mut queue = Self {
            transport: transport.clone(),
            executor,
            conn,
            qpn,
            key,
            memory,
            peer: peer.clone(),
            sent: 0,
            posted: 0,
            consumed: 0,
            cntlid: 0,
            broken: None,
        };
        match answer.recv_timeout(deadline) {
            Ok(Ok(())) => {}
            Ok(Err(REFUSED_NO_PEER)) => {
                return Err(ChannelError::Refused { peer, cause: "no SSD answers there".into() });
            }
            Ok(Err(reason)) => return Err(ChannelError::Refused { peer, cause: format!("reason {reason}") }),
            Err(_) => return Err(ChannelError::Timeout { what: peer, after: deadline }),
        }
        queue.post_receives();
        queue.fabrics_connect(host.into(), subnqn, kato, deadline)?;
        queue.enable(deadline)?;
        Ok(queue)
    }

    /// The controller id that Connect gave.
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    fn post_receives(&mut self) {
        for i in 0..u64::from(RQ_ENTRIES) {
            let seg = DataSeg {
                byte_count: 16.into(),
                lkey: self.key.into(),
                address: (self.memory.address() + RECV + i * 16).into(),
            };
            self.memory.write(RQ + i * 16, seg.as_bytes());
        }
        self.posted = u16::try_from(RQ_ENTRIES).expect("a small queue");
        self.memory.word32(DBR).store(u32::from(self.posted).to_be(), Ordering::Release);
    }

    fn fabrics_connect(
        &mut self,
        host: Host,
        subnqn: &str,
        kato: Duration,
        deadline: Duration,
    ) -> Result<(), ChannelError> {
        let kato_ms = u32::try_from(kato.as_millis()).unwrap_or(u32::MAX);
        let fields =
            ConnectFields { sqsize_z: 15.into(), kato_ms: kato_ms.into(), ..ConnectFields::default() };
        let data = ConnectData::new(host, fabrics::CNTLID_ANY, subnqn);
        let cqe = self.execute(
            fabrics::command(fctype::CONNECT, &fields),
            Payload::Out(data.as_bytes()),
            deadline,
        )?;
        self.require(&cqe, "Connect")?;
        #[expect(clippy::cast_possible_truncation, reason = "CNTLID is the low 16 bits")]
        let cntlid = cqe.dw0.get() as u16;
        self.cntlid = cntlid;
        Ok(())
    }

    fn enable(&mut self, deadline: Duration) -> Result<(), ChannelError> {
        let cc = property::CC_ENABLE | 6 << 16 | 4 << 20;
        let set =
            PropertyFields { offset: property::CC.into(), value: cc.into(), ..PropertyFields::default() };
        let cqe = self.execute(fabrics::command(fctype::PROPERTY_SET, &set), Payload::None, deadline)?;
        self.require(&cqe, "controller enable")?;
        let get = PropertyFields { offset: property::CSTS.into(), ..PropertyFields::default() };
        let cqe = self.execute(fabrics::command(fctype::PROPERTY_GET, &get), Payload::None, deadline)?;
        self.require(&cqe, "controller status")?;
        if u64::from(cqe.dw0.get()) & property::CSTS_READY == 0 {
            return Err(ChannelError::Refused {
                peer: self.peer.clone(),
                cause: "the controller does not become ready".into(),
            });
        }
        Ok(())
    }

    fn require(&self, cqe: &Cqe, what: &str) -> Result<(), ChannelError> {
        let status = Status(cqe.status_word());
        if status.is_success() {
            return Ok(());
        }
        let refusal = Detail::from_dw0(cqe.dw0.get()).refusal();
        if refusal == Some(Refusal::NotReady) {
            return Err(ChannelError::NotReady { peer: self.peer.clone() });
        }
        let why = refusal.map_or("", Refusal::sentence);
        Err(ChannelError::Refused {
            peer: self.peer.clone(),
            cause: format!("{what}: status {status} {why}"),
        })
    }

    /// Identify Controller.
    ///
    /// # Errors
    /// As [`AdminChannel::execute`]; [`ChannelError::Refused`] for an error status.
    pub fn identify(&mut self, deadline: Duration) -> Result<IdentifyController, ChannelError> {
        let mut data = [0; IdentifyController::BYTES];
        let sqe = Sqe {
            opcode: nvme::admin::IDENTIFY,
            cdw10: u32::from(nvme::cns::CONTROLLER).into(),
            ..Sqe::default()
        };
        let cqe = self.execute(sqe, Payload::In(&mut data), deadline)?;
        self.require(&cqe, "Identify")?;
        Ok(IdentifyController::decode(&data))
    }

    /// Capacity of the namespace in bytes, from Identify Namespace.
    ///
    /// # Errors
    /// As [`Self::identify`].
    pub fn capacity_bytes(&mut self, deadline: Duration) -> Result<u64, ChannelError> {
        let mut data = [0; 4096];
        let cdw10 = u32::from(nvme::cns::NAMESPACE).into();
        let sqe = Sqe { opcode: nvme::admin::IDENTIFY, nsid: 1.into(), cdw10, ..Sqe::default() };
        let cqe = self.execute(sqe, Payload::In(&mut data), deadline)?;
        self.require(&cqe, "Identify Namespace")?;
        let blocks = u64::from_le_bytes(*data.first_chunk().expect("eight bytes of 4096"));
        Ok(blocks.saturating_mul(gnstor_proto::BLOCK_BYTES.into()))
    }

    /// Keep Alive.
    ///
    /// # Errors
    /// As [`Self::identify`].
    pub fn keep_alive(&mut self, deadline: Duration) -> Result<(), ChannelError> {
        let asked = self.ask_alive()?;
        self.answer_alive(asked, deadline)
    }

    /// Sends a Keep Alive, whose answer [`Self::answer_alive`] takes before another command is sent: who
    /// keeps many queues alive asks all of them before waiting for one.
    ///
    /// # Errors
    /// [`ChannelError::Broken`].
    pub fn ask_alive(&mut self) -> Result<Asked, ChannelError> {
        self.start(Sqe { opcode: nvme::admin::KEEP_ALIVE, ..Sqe::default() }, &Payload::None)
    }

    /// Waits for the answer of a Keep Alive; the deadline counts from when it was sent.
    ///
    /// # Errors
    /// As [`Self::identify`].
    pub fn answer_alive(&mut self, asked: Asked, deadline: Duration) -> Result<(), ChannelError> {
        let cqe = self.finish(asked, deadline)?;
        self.require(&cqe, "Keep Alive")
    }

    fn send(&mut self, capsule: &Sqe) {
        let index = self.sent;
        let block = u64::from(u32::from(index) % SQ_BLOCKS);
        let at = CAPSULES + block * 64;
        self.memory.write(at, capsule.as_bytes());
        let ctrl = CtrlSeg::new(opcode::SEND, index, self.qpn, 2, mlx5::CE_CQ_UPDATE);
        let data = DataSeg {
            byte_count: 64.into(),
            lkey: self.key.into(),
            address: (self.memory.address() + at).into(),
        };
        self.memory.write(SQ + block * 64, ctrl.as_bytes());
        self.memory.write(SQ + block * 64 + 16, data.as_bytes());
        self.sent = index.wrapping_add(1);
        // Pairs with the soft executor's acquire of the doorbell record and of the doorbell.
        self.memory.word32(DBR + 4).store(u32::from(self.sent).to_be(), Ordering::Release);
        let doorbell = u64::read_from_bytes(&mlx5::doorbell_value(self.sent, self.qpn)).expect("eight bytes");
        self.memory.words64(UAR + mlx5::UAR_DB0, 1)[0].store(doorbell, Ordering::Release);
    }

    /// The next completion, if there is one.
    fn poll(&mut self) -> Option<Cqe64> {
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
        Some(zerocopy::transmute!(raw))
    }

    #[expect(clippy::disallowed_methods, reason = "a blocking wait with a deadline in real time")]
    fn wait(&mut self, asked: &Asked, deadline: Duration) -> Result<Cqe, ChannelError> {
        let start = Instant::now();
        loop {
            let Some(completion) = self.poll() else {
                if asked.at.elapsed() > deadline {
                    return Err(ChannelError::Timeout { what: self.peer.clone(), after: deadline });
                }
                if start.elapsed() > Duration::from_millis(1) {
                    std::thread::sleep(Duration::from_micros(50))
                } else {
                    std::thread::yield_now()
                }
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
                    if cqe.cid.get() == asked.cid {
                        return Ok(cqe);
                    }
                }
                _ => {
                    let cause = mlx5::syndrome::name(completion.syndrome()).to_owned();
                    self.broken = Some(cause.clone());
                    return Err(ChannelError::Broken { peer: self.peer.clone(), cause });
                }
            }
        }
    }
}

/// A command that has been sent and not answered.
#[derive(Debug)]
#[must_use = "the answer of an abandoned command is taken for the next command's"]
pub struct Asked {
    cid: u16,
    at: Instant,
}

impl HostQueue {
    #[expect(clippy::disallowed_methods, reason = "a deadline in real time")]
    fn start(&mut self, mut sqe: Sqe, payload: &Payload<'_>) -> Result<Asked, ChannelError> {
        if let Some(cause) = &self.broken {
            return Err(ChannelError::Broken { peer: self.peer.clone(), cause: cause.clone() });
        }
        let cid = self.sent;
        sqe.cid = cid.into();
        sqe.flags = nvme::FLAGS_SGL;
        let bytes = match payload {
            Payload::None => 0,
            Payload::Out(data) => data.len(),
            Payload::In(data) => data.len(),
        };
        assert!(bytes <= MAX_DATA, "an admin command moves at most {MAX_DATA} bytes");
        if let Payload::Out(data) = payload {
            self.memory.write(DATA, data);
        }
        let length = u32::try_from(bytes).expect("checked above");
        sqe.dptr = KeyedSgl::keyed(self.memory.address() + DATA, length, self.key);
        self.send(&sqe);
        // A doorbell in memory does not wake the transport's thread.
        self.transport.cast(|transport, _| transport.look_everywhere());
        Ok(Asked { cid, at: Instant::now() })
    }

    fn finish(&mut self, asked: Asked, deadline: Duration) -> Result<Cqe, ChannelError> {
        let ended = self.wait(&asked, deadline);
        // A late answer would be taken for the next command's: the queue is of no more use.
        if let Err(e @ ChannelError::Timeout { .. }) = &ended {
            self.broken = Some(e.to_string());
        }
        ended
    }
}

impl AdminChannel for HostQueue {
    fn execute(&mut self, sqe: Sqe, payload: Payload<'_>, deadline: Duration) -> Result<Cqe, ChannelError> {
        let asked = self.start(sqe, &payload)?;
        let cqe = self.finish(asked, deadline)?;
        if let Payload::In(data) = payload
            && Status(cqe.status_word()).is_success()
        {
            self.memory.read(DATA, data);
        }
        Ok(cqe)
    }
}

impl Drop for HostQueue {
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
