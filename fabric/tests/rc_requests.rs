// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests other than plain SENDs. The executor here reports what the test tells it, and records its
//! messages.

use gnstor_base::controller::{AskId, Controller, Effect, Outcome, QueueKey, TransferId};
use gnstor_base::region::HostRegion;
use gnstor_base::testing::deadline;
use gnstor_base::time::Time;
use gnstor_fabric::hca::abi::*;
use gnstor_fabric::hca::{Down, QpExecutor, Up};
use gnstor_fabric::link::LinkConfig;
use gnstor_fabric::mlx5::{cqe_opcode, syndrome};
use gnstor_fabric::transport::{Connect, ExecutorId, Port, RcTransport, TransportConfig};
use gnstor_proto::fabrics::CmRequest;
use gnstor_proto::nvme::{Cqe, Sqe};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};

const QPN: u32 = 0x77;

#[derive(Default)]
struct State {
    up: VecDeque<UpEntry>,
    down: Vec<Down>,
    waits: u64,
    quiescent: u64,
}

#[derive(Clone, Default)]
struct Scripted(Arc<Mutex<State>>);

impl Scripted {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic while held")
    }
}

impl QpExecutor for Scripted {
    fn poll(&mut self) -> Option<Up> {
        self.state().up.pop_front().and_then(|entry| entry.decode())
    }
    fn push(&mut self, message: Down) {
        self.state().down.push(message);
    }
    fn quiesce(&mut self) -> u64 {
        self.state().waits += 1;
        self.state().waits
    }
    fn is_quiescent(&self, wait: u64) -> bool {
        self.state().quiescent >= wait
    }
}

/// An SSD that only counts the capsules it gets.
struct Counts(Arc<Mutex<u32>>);

impl Controller for Counts {
    fn open_queue(&mut self, _: Time, _: QueueKey, _: &CmRequest) -> Result<(), u16> {
        Ok(())
    }
    fn close_queue(&mut self, _: Time, _: QueueKey) {}
    fn submit(&mut self, _: Time, _: QueueKey, _: &Sqe) {
        *self.0.lock().expect("no panic while held") += 1;
    }
    fn announce(&mut self, _: &[Sqe]) {}
    fn own_memory(&self) -> Vec<Arc<HostRegion>> {
        Vec::new()
    }
    fn transferred(&mut self, _: Time, _: TransferId, _: Outcome) {}
    fn answered(&mut self, _: Time, _: AskId, _: Option<&Cqe>, _: &[u8]) {}
    fn step(&mut self, _: Time) {}
    fn next_event(&self) -> Option<Time> {
        None
    }
    fn pop_effect(&mut self) -> Option<Effect> {
        None
    }
}

struct World {
    transport: RcTransport,
    _executor: ExecutorId,
    script: Scripted,
    capsules: Arc<Mutex<u32>>,
}

/// A completion in short: opcode, syndrome, index.
type Short = (u8, u8, u16);

impl World {
    fn new() -> Self {
        let mut transport =
            RcTransport::new(TransportConfig { link: LinkConfig::UNLIMITED, ..TransportConfig::default() });
        let script = Scripted::default();
        let executor = transport.add_other(Box::new(script.clone()));
        let capsules = Arc::default();
        let target = transport.add_target(Box::new(Counts(Arc::clone(&capsules))), Vec::new());
        let (reply, answer) = mpsc::channel();
        let connect =
            Connect { executor, qpn: QPN, port: Port::Local(target), request: CmRequest::default() };
        transport.connect(Time::ZERO, connect, reply);
        assert_eq!(answer.try_recv(), Ok(Ok(())));
        Self { transport, _executor: executor, script, capsules }
    }

    /// Reports requests of these kinds, all signalled, from index `from` on. Returns the messages for the
    /// queue pair.
    fn report(&mut self, from: u32, kinds: &[u32]) -> (Vec<Short>, bool) {
        let entry =
            |(index, &kind)| UpEntry { kind, qpn: QPN, index, flags: UP_SIGNALLED, ..UpEntry::default() };
        self.script.state().up.extend((from..).zip(kinds).map(entry));
        self.step()
    }

    /// The completions that have come, and whether the queue pair was put into error.
    fn step(&mut self) -> (Vec<Short>, bool) {
        while self.transport.step(Time::from_ns(10)) {}
        let down = std::mem::take(&mut self.script.state().down);
        let completions = down.iter().filter_map(|message| match *message {
            Down::Cqe { opcode, syndrome, counter, .. } => Some((opcode, syndrome, counter)),
            _ => None,
        });
        (completions.collect(), down.iter().any(|message| matches!(message, Down::QpError { .. })))
    }
}

const DONE: u8 = cqe_opcode::REQUESTER;
const FAILED: u8 = cqe_opcode::REQUESTER_ERROR;

#[test]
fn a_dump_completes_behind_the_sends_before_it() {
    let _deadline = deadline();
    let mut w = World::new();
    let done = |range: std::ops::Range<u16>| range.map(|i| (DONE, 0, i)).collect::<Vec<_>>();
    assert_eq!(w.report(0, &[UP_SEND, UP_DUMP, UP_SEND, UP_DUMP]), (done(0..4), false));
    w.transport.set_silent(0, true);
    assert_eq!(
        w.report(4, &[UP_DUMP, UP_SEND, UP_DUMP]),
        (done(4..5), false),
        "a silent SSD acknowledges no SEND"
    );
}

#[test]
fn an_invalidation_completes_when_nothing_is_under_way_with_its_key() {
    let _deadline = deadline();
    let mut w = World::new();
    assert_eq!(w.report(0, &[UP_NOP, UP_LOCAL_INVAL, UP_SEND, UP_LOCAL_INVAL]).0, [(DONE, 0, 0)]);
    assert!(w.transport.busy());
    w.script.state().quiescent = 1;
    assert_eq!(w.step().0, [(DONE, 0, 1), (DONE, 0, 2)]);
    w.script.state().quiescent = 2;
    assert_eq!(w.step().0, [(DONE, 0, 3)]);
    assert!(!w.transport.busy());
}

#[test]
fn keys_and_memory_of_an_nvme_target_open_nothing() {
    let _deadline = deadline();
    for kind in [UP_SEND_INVAL, UP_WRITE, UP_READ] {
        let mut w = World::new();
        let refused = (vec![(FAILED, syndrome::REMOTE_ACCESS, 0), (FAILED, syndrome::FLUSH, 1)], true);
        assert_eq!(w.report(0, &[kind, UP_SEND]), refused, "kind {kind}");
        assert_eq!(
            *w.capsules.lock().expect("no panic while held"),
            0,
            "no message of kind {kind} is delivered"
        );
    }
}

#[test]
fn behind_an_error_everything_is_flushed_whatever_it_is() {
    let _deadline = deadline();
    let mut w = World::new();
    w.report(0, &[UP_SEND_INVAL]);
    let kinds = [UP_NOP, UP_DUMP, UP_LOCAL_INVAL, UP_SEND];
    let flushed = (1..5).map(|i| (FAILED, syndrome::FLUSH, i)).collect::<Vec<_>>();
    assert_eq!(w.report(1, &kinds).0, flushed);
    assert_eq!(w.script.state().waits, 0);
}

#[test]
fn a_completion_queue_that_overran_breaks_the_connection() {
    let _deadline = deadline();
    let mut w = World::new();
    assert_eq!(w.report(0, &[UP_CQ_ERROR]), (vec![], true));
    assert_eq!(w.transport.counters.broken, 1);
}
