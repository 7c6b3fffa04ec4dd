// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process is stopped at the worst moment, in virtual time: after the transport has read its clock, and
//! before it takes its input. A command that arrived meanwhile must not be judged by the old time. Otherwise
//! a lease that has ended would still count (protocol rule 2).

use gnstor_base::controller::{AskId, Controller, Effect, Outcome, QueueKey, TransferId};
use gnstor_base::region::HostRegion;
use gnstor_base::testing::deadline;
use gnstor_base::time::{Span, Time};
use gnstor_fabric::hca::abi::*;
use gnstor_fabric::hca::{Down, QpExecutor, Up};
use gnstor_fabric::link::LinkConfig;
use gnstor_fabric::transport::{Connect, Port, RcTransport, TransportConfig};
use gnstor_proto::fabrics::CmRequest;
use gnstor_proto::nvme::{Cqe, Sqe};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};

const QPN: u32 = 0x77;
const START: Time = Time::from_ns(1_000_000_000);
const STOP: Span = Span::from_ms(10_000);
/// How much too early a command may be judged: half of the drift bound of leases.
const BOUND: Span = Span::from_ms(5);

/// The machine: its clock, what comes in when, and when the SSD judged what.
struct Machine {
    now: Time,
    /// The process is stopped for so long before the next look at an executor.
    stop: Option<Span>,
    up: VecDeque<UpEntry>,
    judged: Vec<Time>,
}

#[derive(Clone)]
struct Shared(Arc<Mutex<Machine>>);

impl Shared {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Machine {
            now: START,
            stop: None,
            up: VecDeque::new(),
            judged: Vec::new(),
        })))
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.0.lock().expect("no panic while held")
    }
}

impl QpExecutor for Shared {
    fn poll(&mut self) -> Option<Up> {
        let mut machine = self.machine();
        if let Some(stop) = machine.stop.take() {
            machine.now = machine.now + stop;
        }
        machine.up.pop_front().and_then(|entry| entry.decode())
    }

    fn push(&mut self, message: Down) {
        // The executor uses the transport's clock.
        if let Down::Ping { tag } = message {
            let mut machine = self.machine();
            let stamp_ns = machine.now.as_ns();
            machine.up.push_back(UpEntry { kind: UP_PONG, index: tag, stamp_ns, ..UpEntry::default() });
        }
    }
}

impl Controller for Shared {
    fn open_queue(&mut self, _: Time, _: QueueKey, _: &CmRequest) -> Result<(), u16> {
        Ok(())
    }
    fn close_queue(&mut self, _: Time, _: QueueKey) {}
    fn submit(&mut self, now: Time, _: QueueKey, _: &Sqe) {
        self.machine().judged.push(now);
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
    machine: Shared,
}

impl World {
    fn new(has_clock: bool) -> Self {
        let mut transport =
            RcTransport::new(TransportConfig { link: LinkConfig::UNLIMITED, ..TransportConfig::default() });
        let machine = Shared::new();
        let executor = transport.add_other(Box::new(machine.clone()));
        let target = transport.add_target(Box::new(machine.clone()), Vec::new());
        let (reply, answer) = mpsc::channel();
        let connect =
            Connect { executor, qpn: QPN, port: Port::Local(target), request: CmRequest::default() };
        transport.connect(START, connect, reply);
        assert_eq!(answer.try_recv(), Ok(Ok(())));
        if has_clock {
            transport.calibrate(START, executor);
        }
        let mut world = Self { transport, machine };
        world.step();
        world
    }

    fn step(&mut self) {
        let machine = self.machine.clone();
        while self.transport.step(|| machine.machine().now) {}
    }

    /// A command arrives, and its executor stamps it with this time.
    fn send(&mut self, stamp_ns: u64) {
        let mut entry = UpEntry { kind: UP_SEND, qpn: QPN, bytes: 64, stamp_ns, ..UpEntry::default() };
        entry.payload = zerocopy::transmute!(Sqe::default());
        self.machine.machine().up.push_back(entry);
        self.step();
    }

    fn judged(&self) -> Time {
        let judged = self.machine.machine().judged.clone();
        assert_eq!(judged.len(), 1, "one command came");
        judged[0]
    }
}

#[test]
fn a_command_that_came_while_the_process_was_stopped_is_judged_by_the_time_after() {
    let _deadline = deadline();
    for has_clock in [false, true] {
        let mut world = World::new(has_clock);
        world.machine.machine().stop = Some(STOP);
        // It arrived at the end of the stop, and has the executor's stamp of that time.
        world.send((START + STOP).as_ns());
        assert!(
            world.judged() >= START + STOP,
            "judged {:?} too early",
            (START + STOP).since(world.judged())
        );
    }
}

/// Stamps are right only as long as the offset of the executor's clock is. It was measured when the launch
/// began, and clocks drift.
#[test]
fn a_stamp_of_an_hour_ago_does_not_make_a_command_one_of_an_hour_ago() {
    let _deadline = deadline();
    let mut world = World::new(true);
    let now = START + Span::from_ms(3_600_000);
    world.machine.machine().now = now;
    world.send(START.as_ns());
    assert!(world.judged() >= now.before(BOUND), "judged {:?} too early", now.since(world.judged()));
}
