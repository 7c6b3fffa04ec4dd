// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A controller that follows the test's script, and an initiator's queue pair in front of it.

use gnstor_base::controller::{AskId, Controller, Effect, Outcome, QueueKey, Remote, TransferId};
use gnstor_base::region::HostRegion;
use gnstor_base::time::{Span, Time};
use gnstor_fabric::hca::abi::*;
use gnstor_fabric::hca::soft::{SoftMr, SoftQp};
use gnstor_fabric::link::LinkConfig;
use gnstor_fabric::mlx5::{self, CE_CQ_UPDATE, Cqe64, CtrlSeg, DataSeg, cqe_opcode, opcode};
use gnstor_fabric::transport::{ConnId, Connect, ExecutorId, Port, RcTransport, TransportConfig};
use gnstor_proto::fabrics::CmRequest;
use gnstor_proto::nvme::{Cqe, Sqe};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use zerocopy::{FromBytes, IntoBytes};

/// A controller that follows the test's state.
#[derive(Default)]
pub(crate) struct State {
    /// What the next commands cause, in this order; a command beyond them causes nothing.
    pub on_submit: VecDeque<Vec<Effect>>,
    pub on_transferred: VecDeque<Vec<Effect>>,
    pub due: Option<Time>,
    pub on_step: Vec<Effect>,
    pub effects: VecDeque<Effect>,
    pub submitted: Vec<(Time, u16)>,
    pub transferred: Vec<Outcome>,
    /// The completion queue's memory, and its first entry's last byte whenever a transfer ended.
    pub watched: Option<Arc<HostRegion>>,
    pub saw: Vec<u8>,
    pub opened: Vec<QueueKey>,
    pub closed: Vec<QueueKey>,
}

#[derive(Clone, Default)]
pub(crate) struct Puppet(Arc<Mutex<State>>);

impl Puppet {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic while held")
    }
}

impl Controller for Puppet {
    fn open_queue(&mut self, _: Time, queue: QueueKey, _: &CmRequest) -> Result<(), u16> {
        self.state().opened.push(queue);
        Ok(())
    }
    fn close_queue(&mut self, _: Time, queue: QueueKey) {
        self.state().closed.push(queue);
    }
    fn submit(&mut self, now: Time, _: QueueKey, sqe: &Sqe) {
        let mut state = self.state();
        state.submitted.push((now, sqe.cid.get()));
        let effects = state.on_submit.pop_front().unwrap_or_default();
        state.effects.extend(effects);
    }
    fn announce(&mut self, _: &[Sqe]) {}
    fn own_memory(&self) -> Vec<Arc<HostRegion>> {
        Vec::new()
    }
    fn transferred(&mut self, _: Time, _: TransferId, outcome: Outcome) {
        let mut state = self.state();
        state.transferred.push(outcome);
        if let Some(memory) = state.watched.clone() {
            let mut owner = [0];
            memory.read(CQ + 63, &mut owner);
            state.saw.push(owner[0]);
        }
        let effects = state.on_transferred.pop_front().unwrap_or_default();
        state.effects.extend(effects);
    }
    fn answered(&mut self, _: Time, _: AskId, _: Option<&Cqe>, _: &[u8]) {}
    fn step(&mut self, _: Time) {
        let mut state = self.state();
        state.due = None;
        let effects = std::mem::take(&mut state.on_step);
        state.effects.extend(effects);
    }
    fn next_event(&self) -> Option<Time> {
        self.state().due
    }
    fn pop_effect(&mut self) -> Option<Effect> {
        self.state().effects.pop_front()
    }
}

// A queue pair and its owner.

pub(crate) const QPN: u32 = 0x4242;
pub(crate) const KEY: u32 = 0x0701;
pub(crate) const SQ: u64 = 0;
pub(crate) const RQ: u64 = 0x1000;
pub(crate) const CQ: u64 = 0x2000;
pub(crate) const CQ_LOG: u32 = 6;
pub(crate) const DBR: u64 = 0x4000;
pub(crate) const UAR: u64 = 0x5000;
pub(crate) const RECV: u64 = 0x6000;
pub(crate) const CAPSULES: u64 = 0x7000;
pub(crate) const DATA: u64 = 0x8000;
pub(crate) const ACK_TIMEOUT: Span = Span::from_ms(50);
pub(crate) const RNR_TIMER: Span = Span::from_ns(100_000);

pub(crate) struct World {
    pub transport: RcTransport,
    pub executor: ExecutorId,
    pub conn: ConnId,
    pub puppet: Puppet,
    pub memory: Arc<HostRegion>,
    pub array: Arc<HostRegion>,
    pub now: Time,
    pub sent: u16,
    pub consumed: u32,
}

/// A completion in short: opcode, index, syndrome.
pub(crate) type Short = (u8, u16, u8);

impl World {
    pub(crate) fn new(link: LinkConfig) -> Self {
        let config = TransportConfig {
            link,
            ack_timeout: ACK_TIMEOUT,
            rnr_timer: RNR_TIMER,
            rnr_retries: 3,
            ..TransportConfig::default()
        };
        let mut transport = RcTransport::new(config);
        let executor = transport.add_soft();
        let (memory, array) =
            (HostRegion::alloc(1 << 17).expect("memory"), HostRegion::alloc(1 << 16).expect("memory"));
        for i in 0..1 << CQ_LOG {
            memory.fill(CQ + i * 64 + 63, 1, 0xF1);
        }
        let soft = transport.soft(executor).expect("added above");
        soft.create_qp(SoftQp {
            memory: Arc::clone(&memory),
            qpn: QPN,
            pd: 1,
            sq: (SQ, 63),
            rq: (RQ, 63),
            cq: (CQ, CQ_LOG),
            cq_dbr: None,
            dbr: DBR,
            uar: UAR,
        });
        let access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE;
        let range = (0, memory.len() as u64);
        soft.register(SoftMr { memory: Arc::clone(&memory), range, key: KEY, access, pd: 1 });
        let puppet = Puppet::default();
        let target = transport.add_target(Box::new(puppet.clone()), vec![Arc::clone(&array)]);
        let (reply, answer) = mpsc::channel();
        let conn = {
            let request = CmRequest::default();
            transport.connect(
                Time::ZERO,
                Connect { executor, qpn: QPN, port: Port::Local(target), request },
                reply,
            )
        };
        assert_eq!(answer.try_recv(), Ok(Ok(())));
        Self { transport, executor, conn, puppet, memory, array, now: Time::ZERO, sent: 0, consumed: 0 }
    }

    pub(crate) fn queue(&self) -> QueueKey {
        self.puppet.state().opened[0]
    }

    /// Posts a SEND of a capsule with this command id.
    pub(crate) fn post(&mut self, cid: u16, signalled: bool) {
        let (index, slot) = (self.sent, u64::from(self.sent % 64));
        self.memory.write(CAPSULES + slot * 64, Sqe { cid: cid.into(), ..Sqe::default() }.as_bytes());
        let mode = if signalled { CE_CQ_UPDATE } else { 0 };
        let ctrl = CtrlSeg::new(opcode::SEND, index, QPN, 2, mode);
        let address = self.memory.address() + CAPSULES + slot * 64;
        self.post_raw(
            &[
                ctrl.as_bytes(),
                DataSeg { byte_count: 64.into(), lkey: KEY.into(), address: address.into() }.as_bytes(),
            ]
            .concat(),
        );
    }

    pub(crate) fn post_raw(&mut self, wqe: &[u8]) {
        self.memory.write(SQ + u64::from(self.sent % 64) * 64, wqe);
        self.sent += 1;
        self.memory.word32(DBR + 4).store(u32::from(self.sent).to_be(), Ordering::Release);
        let doorbell = u64::read_from_bytes(&mlx5::doorbell_value(self.sent, QPN)).expect("eight bytes");
        self.memory.words64(UAR + mlx5::UAR_DB0, 1)[0].store(doorbell, Ordering::Release);
    }

    /// Posts receives up to `posted`.
    pub(crate) fn receives(&self, posted: u16) {
        for i in 0..u64::from(posted) {
            let address = self.memory.address() + RECV + i % 64 * 16;
            let seg = DataSeg { byte_count: 16.into(), lkey: KEY.into(), address: address.into() };
            self.memory.write(RQ + i % 64 * 16, seg.as_bytes());
        }
        self.memory.word32(DBR).store(u32::from(posted).to_be(), Ordering::Release);
    }

    /// Steps until the transport has polled the host queue once, which it does in every sixteenth step.
    /// Returns whether there was work.
    pub(crate) fn turn(&mut self, now: Time) -> bool {
        (0..16).fold(false, |worked, _| self.transport.step(now) || worked)
    }

    /// Lets the transport do all that is due by `now`.
    pub(crate) fn run_to(&mut self, now: Time) {
        assert!(now >= self.now, "time does not run backwards");
        self.now = now;
        while self.turn(now) {}
    }

    /// Lets `span` pass, event by event and at least every millisecond.
    pub(crate) fn pass(&mut self, span: Span) {
        let end = self.now + span;
        self.run_to(self.now);
        while self.now < end {
            let event = self.transport.next_event().filter(|at| *at > self.now).unwrap_or(end);
            self.run_to(event.min(self.now + Span::from_ms(1)).min(end));
        }
    }

    /// All completions that have come.
    pub(crate) fn completions(&mut self) -> Vec<Short> {
        let mut out = Vec::new();
        loop {
            let at = CQ + u64::from(self.consumed & ((1 << CQ_LOG) - 1)) * 64;
            let mut raw = [0; 64];
            self.memory.read(at, &mut raw);
            let cqe = Cqe64::read_from_bytes(&raw).expect("64 bytes");
            if !Cqe64::is_valid(cqe.op_own, self.consumed, CQ_LOG) {
                return out;
            }
            self.consumed += 1;
            let is_error = cqe.opcode() >= cqe_opcode::SIGNATURE_ERROR;
            out.push((cqe.opcode(), cqe.wqe_counter.get(), if is_error { cqe.syndrome() } else { 0 }));
        }
    }

    pub(crate) fn respond(&self, cid: u16, at: Time, pushed_bytes: u32) -> Effect {
        Effect::Complete {
            queue: self.queue(),
            cqe: Cqe { cid: cid.into(), ..Cqe::default() },
            at,
            pushed_bytes,
        }
    }

    pub(crate) fn pull(&self, transfer: u32) -> Effect {
        let remote = Remote { address: self.memory.address() + DATA, key: KEY };
        Effect::Pull {
            transfer: TransferId(transfer),
            queue: self.queue(),
            cid: 0,
            remote,
            local: self.array.slice(0, 4096),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.puppet.state()
    }
}

pub(crate) const SENT: u8 = cqe_opcode::REQUESTER;
pub(crate) const SEND_FAILED: u8 = cqe_opcode::REQUESTER_ERROR;
pub(crate) const RECEIVED: u8 = cqe_opcode::RESPONDER_SEND;
pub(crate) const RECEIVE_FAILED: u8 = cqe_opcode::RESPONDER_ERROR;

pub(crate) const SLOW: LinkConfig =
    LinkConfig { bytes_per_second: 1_000_000_000, latency: Span::from_ns(1000), overhead_bytes: 0 };

// Acknowledgements.
