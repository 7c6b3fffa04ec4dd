// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The promises of an RC connection to its owner, in virtual time. The tests have a transport without
//! threads, a scripted controller, and a queue pair in host memory.

use gnstor_base::controller::{Controller, Effect, Outcome, QueueKey, Remote, TransferId};
use gnstor_base::region::HostRegion;
use gnstor_base::testing::deadline;
use gnstor_base::time::{Span, Time};
use gnstor_fabric::hca::abi::*;
use gnstor_fabric::hca::soft::{SoftMr, SoftQp};
use gnstor_fabric::link::LinkConfig;
use gnstor_fabric::mlx5::{self, CE_CQ_UPDATE, Cqe64, CtrlSeg, DataSeg, cqe_opcode, opcode, syndrome};
use gnstor_fabric::transport::{ConnId, Connect, ExecutorId, Port, RcTransport, TransportConfig};
use gnstor_proto::fabrics::CmRequest;
use gnstor_proto::nvme::{Cqe, Sqe};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use zerocopy::{FromBytes, IntoBytes};

// A controller that does what it is told.

#[derive(Default)]
struct Told {
    /// What the next commands cause, in this order; a command beyond them causes nothing.
    on_submit: VecDeque<Vec<Effect>>,
    on_transferred: VecDeque<Vec<Effect>>,
    due: Option<Time>,
    on_step: Vec<Effect>,
    effects: VecDeque<Effect>,
    submitted: Vec<(Time, u16)>,
    transferred: Vec<Outcome>,
    /// The completion queue's memory, and its first entry's last byte whenever a transfer ended.
    watched: Option<Arc<HostRegion>>,
    saw: Vec<u8>,
    opened: Vec<QueueKey>,
    closed: Vec<QueueKey>,
}

#[derive(Clone, Default)]
struct Puppet(Arc<Mutex<Told>>);

impl Puppet {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().expect("no panic while held")
    }
}

impl Controller for Puppet {
    fn open_queue(&mut self, _: Time, queue: QueueKey, _: &CmRequest) -> Result<(), u16> {
        self.told().opened.push(queue);
        Ok(())
    }
    fn close_queue(&mut self, _: Time, queue: QueueKey) {
        self.told().closed.push(queue);
    }
    fn submit(&mut self, now: Time, _: QueueKey, sqe: &Sqe) {
        let mut told = self.told();
        told.submitted.push((now, sqe.cid.get()));
        let effects = told.on_submit.pop_front().unwrap_or_default();
        told.effects.extend(effects);
    }
    fn announce(&mut self, _: &[Sqe]) {}
    fn own_memory(&self) -> Vec<Arc<HostRegion>> {
        Vec::new()
    }
    fn transferred(&mut self, _: Time, _: TransferId, outcome: Outcome) {
        let mut told = self.told();
        told.transferred.push(outcome);
        if let Some(memory) = told.watched.clone() {
            let mut owner = [0];
            memory.read(CQ + 63, &mut owner);
            told.saw.push(owner[0]);
        }
        let effects = told.on_transferred.pop_front().unwrap_or_default();
        told.effects.extend(effects);
    }
    fn step(&mut self, _: Time) {
        let mut told = self.told();
        told.due = None;
        let effects = std::mem::take(&mut told.on_step);
        told.effects.extend(effects);
    }
    fn next_event(&self) -> Option<Time> {
        self.told().due
    }
    fn pop_effect(&mut self) -> Option<Effect> {
        self.told().effects.pop_front()
    }
}

// A queue pair and its owner.

const QPN: u32 = 0x4242;
const KEY: u32 = 0x0701;
const SQ: u64 = 0;
const RQ: u64 = 0x1000;
const CQ: u64 = 0x2000;
const CQ_LOG: u32 = 6;
const DBR: u64 = 0x4000;
const UAR: u64 = 0x5000;
const RECV: u64 = 0x6000;
const CAPSULES: u64 = 0x7000;
const DATA: u64 = 0x8000;
const ACK_TIMEOUT: Span = Span::from_ms(50);
const RNR_TIMER: Span = Span::from_ns(100_000);

struct World {
    transport: RcTransport,
    executor: ExecutorId,
    conn: ConnId,
    puppet: Puppet,
    memory: Arc<HostRegion>,
    array: Arc<HostRegion>,
    now: Time,
    sent: u16,
    consumed: u32,
}

/// A completion in short: opcode, index, syndrome.
type Short = (u8, u16, u8);

impl World {
    fn new(link: LinkConfig) -> Self {
        let config = TransportConfig { link, ack_timeout: ACK_TIMEOUT, rnr_timer: RNR_TIMER, rnr_retries: 3 };
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

    fn queue(&self) -> QueueKey {
        self.puppet.told().opened[0]
    }

    /// Posts a SEND of a capsule with this command id.
    fn post(&mut self, cid: u16, signalled: bool) {
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

    fn post_raw(&mut self, wqe: &[u8]) {
        self.memory.write(SQ + u64::from(self.sent % 64) * 64, wqe);
        self.sent += 1;
        self.memory.word32(DBR + 4).store(u32::from(self.sent).to_be(), Ordering::Release);
        let doorbell = u64::read_from_bytes(&mlx5::doorbell_value(self.sent, QPN)).expect("eight bytes");
        self.memory.words64(UAR + mlx5::UAR_DB0, 1)[0].store(doorbell, Ordering::Release);
    }

    /// Posts receives up to `posted`.
    fn receives(&self, posted: u16) {
        for i in 0..u64::from(posted) {
            let address = self.memory.address() + RECV + i % 64 * 16;
            let seg = DataSeg { byte_count: 16.into(), lkey: KEY.into(), address: address.into() };
            self.memory.write(RQ + i % 64 * 16, seg.as_bytes());
        }
        self.memory.word32(DBR).store(u32::from(posted).to_be(), Ordering::Release);
    }

    /// Steps until the transport has looked at the host queue once: it does at every sixteenth step. Returns
    /// whether there was work.
    fn turn(&mut self, now: Time) -> bool {
        (0..16).fold(false, |worked, _| self.transport.step(now) || worked)
    }

    /// Lets the transport do all that is due by `now`.
    fn run_to(&mut self, now: Time) {
        assert!(now >= self.now, "time does not run backwards");
        self.now = now;
        while self.turn(now) {}
    }

    /// Lets `span` pass, event by event and at least every millisecond.
    fn pass(&mut self, span: Span) {
        let end = self.now + span;
        self.run_to(self.now);
        while self.now < end {
            let event = self.transport.next_event().filter(|at| *at > self.now).unwrap_or(end);
            self.run_to(event.min(self.now + Span::from_ms(1)).min(end));
        }
    }

    /// All completions that have come.
    fn completions(&mut self) -> Vec<Short> {
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

    fn respond(&self, cid: u16, at: Time, pushed_bytes: u32) -> Effect {
        Effect::Complete {
            queue: self.queue(),
            cqe: Cqe { cid: cid.into(), ..Cqe::default() },
            at,
            pushed_bytes,
        }
    }

    fn pull(&self, transfer: u32) -> Effect {
        let remote = Remote { address: self.memory.address() + DATA, key: KEY };
        Effect::Pull {
            transfer: TransferId(transfer),
            queue: self.queue(),
            cid: 0,
            remote,
            local: self.array.slice(0, 4096),
        }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.puppet.told()
    }
}

const SENT: u8 = cqe_opcode::REQUESTER;
const SEND_FAILED: u8 = cqe_opcode::REQUESTER_ERROR;
const RECEIVED: u8 = cqe_opcode::RESPONDER_SEND;
const RECEIVE_FAILED: u8 = cqe_opcode::RESPONDER_ERROR;

const SLOW: LinkConfig =
    LinkConfig { bytes_per_second: 1_000_000_000, latency: Span::from_ns(1000), overhead_bytes: 0 };

// Acknowledgements.

#[test]
fn an_acknowledgement_completes_what_was_signalled_and_nothing_else() {
    let _deadline = deadline();
    let mut w = World::new(LinkConfig::UNLIMITED);
    for i in 0..6 {
        w.post(i, i % 3 == 2);
    }
    w.run_to(Time::from_ns(10));
    assert_eq!(w.completions(), [(SENT, 2, 0), (SENT, 5, 0)]);
    assert_eq!(w.told().submitted.iter().map(|s| s.1).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn an_acknowledgement_takes_the_link_both_ways() {
    let _deadline = deadline();
    let mut w = World::new(SLOW);
    w.post(1, true);
    w.run_to(Time::ZERO);
    // 64 bytes at 1 GB/s, 1,000 ns there: seen by the SSD at 1,064; back at 2,064.
    w.run_to(Time::from_ns(2063));
    assert_eq!(w.told().submitted, [(Time::from_ns(1064), 1)]);
    assert_eq!(w.completions(), []);
    w.run_to(Time::from_ns(2064));
    assert_eq!(w.completions(), [(SENT, 0, 0)]);
}

#[test]
fn a_response_is_never_seen_before_it_is_due() {
    let _deadline = deadline();
    let mut w = World::new(SLOW);
    w.receives(4);
    // The SSD is done 5 us after the start; 4,096 bytes of data and 16 of response take the link, then the
    // latency.
    let response = w.respond(1, Time::from_ns(5000), 4096);
    w.told().on_submit.push_back(vec![response]);
    w.post(1, false);
    w.run_to(Time::ZERO);
    let due = Time::from_ns(5000 + 4096 + 16 + 1000);
    while w.now < due {
        assert_eq!(w.completions(), [], "at {:?}", w.now);
        w.run_to((w.now + Span::from_ns(7)).min(due));
    }
    assert_eq!(w.completions(), [(RECEIVED, 0, 0)]);
}

#[test]
fn pulled_data_arrives_when_the_link_says_so() {
    let _deadline = deadline();
    let mut w = World::new(SLOW);
    let pull = w.pull(1);
    w.told().on_submit.push_back(vec![pull]);
    w.post(1, false);
    w.run_to(Time::ZERO);
    w.run_to(Time::from_ns(1064));
    // The request goes back for 1,000 ns, the data comes for 4,096 + 1,000.
    w.run_to(Time::from_ns(1064 + 6095));
    assert!(w.told().transferred.is_empty());
    w.run_to(Time::from_ns(1064 + 6096));
    assert!(matches!(w.told().transferred[..], [Outcome::Done { .. }]));
}

// Failures.

#[test]
fn a_silent_target_fails_the_oldest_send_and_flushes_the_others_in_order() {
    let _deadline = deadline();
    let mut w = World::new(LinkConfig::UNLIMITED);
    w.receives(3);
    w.transport.set_silent(0, true);
    for i in 0..4 {
        w.post(i, i == 3);
    }
    w.pass(Span::from_ms(49));
    assert_eq!(w.completions(), []);
    w.pass(Span::from_ms(13)); // the check runs every ten milliseconds
    let flushed = |i| (SEND_FAILED, i, syndrome::FLUSH);
    let mut expected = vec![(SEND_FAILED, 0, syndrome::RETRY_EXCEEDED), flushed(1), flushed(2), flushed(3)];
    expected.extend((0..3).map(|i| (RECEIVE_FAILED, i, syndrome::FLUSH)));
    assert_eq!(w.completions(), expected);
    // What is posted now fails at once.
    w.post(9, false);
    w.run_to(w.now);
    assert_eq!(w.completions(), [flushed(4)]);
    assert_eq!(w.transport.counters.broken, 1);
}

#[test]
fn an_answering_target_never_times_out() {
    let _deadline = deadline();
    let mut w = World::new(SLOW);
    for i in 0..20 {
        w.post(i, true);
        w.pass(Span::from_ms(20));
    }
    assert_eq!(w.completions().len(), 20);
    assert_eq!(w.transport.counters.broken, 0);
}

#[test]
fn no_failure_is_reported_while_a_transfer_moves() {
    let _deadline = deadline();
    let mut w = World::new(SLOW);
    w.receives(2);
    // The SSD asks for data and breaks the connection in the same breath.
    let effects = vec![w.pull(1), Effect::Close { queue: w.queue() }];
    w.told().on_submit.push_back(effects);
    w.post(1, true);
    w.post(2, true);
    w.run_to(Time::ZERO);
    w.transport.step(Time::from_ns(1064)); // the first capsule arrives; the copy's end waits in the executor
    assert_eq!(w.told().submitted.len(), 1, "the second capsule finds a broken connection");
    assert!(
        w.told().transferred.is_empty() && w.completions().iter().all(|c| c.0 == SENT),
        "the copy's end is not known yet"
    );
    w.run_to(Time::from_ns(9000));
    assert_eq!(w.told().transferred.len(), 1);
    let failed = w.completions();
    assert_eq!(
        failed.iter().map(|c| c.0).collect::<Vec<_>>(),
        [SEND_FAILED, SEND_FAILED, RECEIVE_FAILED, RECEIVE_FAILED]
    );
    assert!(failed.iter().all(|c| c.2 == syndrome::FLUSH));
}

#[test]
fn a_faulty_receive_is_reported_only_when_no_transfer_moves() {
    let _deadline = deadline();
    let mut w = World::new(LinkConfig::UNLIMITED);
    w.receives(2);
    w.memory.write(RQ, DataSeg { byte_count: 16.into(), lkey: 0xBAD.into(), address: 0.into() }.as_bytes());
    // One command's response meets the faulty receive just when another one's data is asked for.
    let (response, pull) = (w.respond(1, Time::from_ns(100), 0), w.pull(2));
    w.told().on_submit.push_back(vec![response]);
    w.told().on_step = vec![pull];
    w.told().due = Some(Time::from_ns(100));
    w.post(1, false);
    w.turn(Time::ZERO);
    w.transport.step(Time::from_ns(100));
    assert!(w.told().transferred.is_empty());
    let memory = Arc::clone(&w.memory);
    w.told().watched = Some(memory);
    w.run_to(Time::from_ns(200));
    assert_eq!(w.told().saw, [0xF1], "no error is in the queue when the copy ends");
    assert_eq!(w.completions()[0], (RECEIVE_FAILED, 0, syndrome::LOCAL_PROTECTION));
}

#[test]
fn the_error_of_a_receive_comes_before_the_flush_of_those_behind_it() {
    let _deadline = deadline();
    let mut w = World::new(LinkConfig::UNLIMITED);
    w.receives(3);
    w.memory.write(RQ, DataSeg { byte_count: 8.into(), lkey: KEY.into(), address: 0.into() }.as_bytes());
    let response = w.respond(1, Time::ZERO, 0);
    w.told().on_submit.push_back(vec![response]);
    w.post(1, false);
    w.pass(Span::from_ns(1000));
    let flush = syndrome::FLUSH;
    assert_eq!(
        w.completions(),
        [(RECEIVE_FAILED, 0, syndrome::LOCAL_LENGTH), (RECEIVE_FAILED, 1, flush), (RECEIVE_FAILED, 2, flush)]
    );
    assert_eq!(w.told().closed.len(), 1, "the SSD learns of it");
}

#[test]
fn a_local_error_completes_with_its_own_syndrome_behind_what_was_sent() {
    let _deadline = deadline();
    let mut w = World::new(LinkConfig::UNLIMITED);
    w.post(0, true);
    w.run_to(Time::ZERO);
    w.post_raw(CtrlSeg::new(0x55, 1, QPN, 1, 0).as_bytes());
    w.post(2, false);
    w.run_to(Time::from_ns(1));
    let expected =
        [(SENT, 0, 0), (SEND_FAILED, 1, syndrome::LOCAL_QP_OPERATION), (SEND_FAILED, 2, syndrome::FLUSH)];
    assert_eq!(w.completions(), expected);
}

#[test]
fn rdma_of_the_initiator_meets_no_memory_at_an_nvme_target() {
    let _deadline = deadline();
    let mut w = World::new(LinkConfig::UNLIMITED);
    let address = w.memory.address() + DATA;
    let data = DataSeg { byte_count: 16.into(), lkey: KEY.into(), address: address.into() };
    w.post_raw(
        &[CtrlSeg::new(opcode::RDMA_READ, 0, QPN, 3, 0).as_bytes(), &[0; 16], data.as_bytes()].concat(),
    );
    w.run_to(Time::ZERO);
    assert_eq!(w.completions(), [(SEND_FAILED, 0, syndrome::REMOTE_ACCESS)]);
}

#[test]
fn the_controller_closes_and_the_receives_are_flushed_in_order() {
    let _deadline = deadline();
    let mut w = World::new(LinkConfig::UNLIMITED);
    w.receives(5);
    let response = w.respond(1, Time::ZERO, 0);
    w.told().on_submit.push_back(vec![response]);
    w.post(1, false);
    w.pass(Span::from_ns(100));
    assert_eq!(w.completions(), [(RECEIVED, 0, 0)]);
    let close = Effect::Close { queue: w.queue() };
    w.told().on_step = vec![close];
    w.told().due = Some(w.now);
    w.pass(Span::from_ns(100));
    let expected: Vec<Short> = (1..5).map(|i| (RECEIVE_FAILED, i, syndrome::FLUSH)).collect();
    assert_eq!(w.completions(), expected);
    let told = w.told();
    assert_eq!(told.closed, told.opened);
}

#[test]
fn closing_from_the_initiator_ends_transfers_and_tells_the_controller() {
    let _deadline = deadline();
    let mut w = World::new(SLOW);
    let pull = w.pull(1);
    w.told().on_submit.push_back(vec![pull]);
    w.post(1, true);
    w.run_to(Time::ZERO);
    w.transport.step(Time::from_ns(1064));
    let conn = w.conn;
    w.transport.close(Time::from_ns(1064), conn);
    assert_eq!(w.told().transferred, [Outcome::ConnectionLost]);
    assert_eq!(w.told().closed.len(), 1);
    w.run_to(Time::from_ns(9000));
    assert_eq!(w.told().transferred.len(), 1, "a transfer ends once");
    assert!(!w.transport.busy());
    let executor = w.executor;
    w.transport.remove_executor(w.now, executor);
}

// Receivers that are not ready.

#[test]
fn a_response_without_a_receive_is_tried_again_after_the_timer() {
    let _deadline = deadline();
    let mut w = World::new(LinkConfig::UNLIMITED);
    let response = w.respond(1, Time::ZERO, 0);
    w.told().on_submit.push_back(vec![response]);
    w.post(1, false);
    w.pass(Span::from_ns(50_000));
    assert_eq!((w.completions(), w.transport.counters.rnr), (vec![], 1));
    w.receives(1);
    w.pass(Span::from_ns(40_000));
    assert_eq!(w.completions(), [], "not before the timer");
    w.pass(Span::from_ns(20_000));
    assert_eq!(w.completions(), [(RECEIVED, 0, 0)]);
    assert_eq!(w.transport.counters.broken, 0);
}

#[test]
fn a_receiver_that_is_never_ready_breaks_the_connection_after_its_retries() {
    let _deadline = deadline();
    let mut w = World::new(LinkConfig::UNLIMITED);
    let response = w.respond(1, Time::ZERO, 0);
    w.told().on_submit.push_back(vec![response]);
    w.post(1, true);
    w.pass(Span::from_ns(250_000)); // the first try and two more
    assert_eq!((w.transport.counters.rnr, w.transport.counters.broken), (3, 0));
    w.pass(Span::from_ns(100_000));
    assert_eq!((w.transport.counters.rnr, w.transport.counters.broken), (4, 1));
    w.pass(Span::from_ms(1));
    assert_eq!(w.transport.counters.rnr, 4, "nothing is tried after that");
}

#[test]
fn many_responses_without_a_receive_each_have_their_own_retries() {
    let _deadline = deadline();
    let mut w = World::new(LinkConfig::UNLIMITED);
    for cid in 0..10 {
        let response = w.respond(cid, Time::ZERO, 0);
        w.told().on_submit.push_back(vec![response]);
        w.post(cid, false);
    }
    w.pass(Span::from_ns(50_000));
    assert_eq!(
        (w.transport.counters.rnr, w.transport.counters.broken),
        (10, 0),
        "ten misses in one instant are not ten retries"
    );
    w.receives(10);
    w.pass(Span::from_ns(100_000));
    assert_eq!(w.completions().len(), 10);
}
