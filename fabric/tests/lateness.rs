// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The two measures of a late response, in virtual time. The tests delay the emulator before the model sees
//! a command, or before it hears of a write's data. The first measure does not see such a delay, the second
//! counts it.

use gnstor_base::controller::{
    AskId, Controller, Effect, Outcome, PushRole, QueueKey, Remote, Reply, TransferId,
};
use gnstor_base::region::HostRegion;
use gnstor_base::testing::deadline;
use gnstor_base::time::{Span, Time};
use gnstor_fabric::hca::abi::*;
use gnstor_fabric::hca::{Allowance, Down, Part, QpExecutor, Response, Up};
use gnstor_fabric::link::LinkConfig;
use gnstor_fabric::transport::{Connect, Port, RcTransport, TransportConfig};
use gnstor_proto::fabrics::CmRequest;
use gnstor_proto::nvme::{Cqe, Sqe, io};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};

const QPN: u32 = 0x77;
const CID: u16 = 3;
/// Time that the modelled SSD takes for every command.
const SERVICE: Span = Span::from_ns(10_000);
const DELAY: Span = Span::from_ns(100_000);
/// Both clocks begin here. The low half of the client's wraps between its stamp and the executor's.
const START: Time = Time::from_ns((1 << 32) + 1000);

/// An SSD that takes [`SERVICE`] for a command, from the call with the command or with its data. It asks for
/// every step, so that its clock follows the transport's.
struct Ssd {
    region: Arc<HostRegion>,
    queue: QueueKey,
    is_fused: bool,
    effects: VecDeque<Effect>,
    clock: Time,
}

impl Ssd {
    fn done(&self, now: Time) -> Reply {
        Reply { cqe: Cqe { cid: CID.into(), ..Cqe::default() }, at: now + SERVICE }
    }
}

impl Controller for Ssd {
    fn open_queue(&mut self, _: Time, queue: QueueKey, _: &CmRequest) -> Result<(), u16> {
        self.queue = queue;
        Ok(())
    }
    fn close_queue(&mut self, _: Time, _: QueueKey) {}
    fn submit(&mut self, now: Time, queue: QueueKey, sqe: &Sqe) {
        let (transfer, remote, local) =
            (TransferId(1), Remote { address: 0, key: 0 }, self.region.slice(0, 4096));
        let effect = if sqe.opcode == io::WRITE {
            Effect::Pull { transfer, queue, cid: CID, remote, local }
        } else if self.is_fused {
            Effect::Push { transfer, queue, remote, local, sum: None, role: PushRole::Last(self.done(now)) }
        } else {
            let Reply { cqe, at } = self.done(now);
            Effect::Complete { queue, cqe, at, pushed_bytes: 0 }
        };
        self.effects.push_back(effect);
    }
    fn announce(&mut self, _: &[Sqe]) {}
    fn own_memory(&self) -> Vec<Arc<HostRegion>> {
        Vec::new()
    }
    fn transferred(&mut self, now: Time, _: TransferId, _: Outcome) {
        let Reply { cqe, at } = self.done(now);
        self.effects.push_back(Effect::Complete { queue: self.queue, cqe, at, pushed_bytes: 0 });
    }
    fn answered(&mut self, _: Time, _: AskId, _: Option<&Cqe>, _: &[u8]) {}
    fn step(&mut self, now: Time) {
        self.clock = now;
    }
    fn next_event(&self) -> Option<Time> {
        Some(self.clock + Span::from_ns(1))
    }
    fn pop_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }
}

#[derive(Default)]
struct State {
    up: VecDeque<UpEntry>,
    pull: Option<u32>,
    response: Option<(u64, Allowance)>,
}

/// An executor with the transport's clock.
#[derive(Clone, Default)]
struct Executor(Arc<Mutex<State>>);

impl Executor {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic while held")
    }
}

impl QpExecutor for Executor {
    fn poll(&mut self) -> Option<Up> {
        self.state().up.pop_front().and_then(|entry| entry.decode())
    }
    fn push(&mut self, message: Down) {
        let mut state = self.state();
        match message {
            Down::Ping { tag } => {
                state.up.push_back(UpEntry {
                    kind: UP_PONG,
                    index: tag,
                    stamp_ns: START.as_ns(),
                    ..UpEntry::default()
                });
            }
            Down::FromOwner { tag, .. } => state.pull = Some(tag),
            Down::Send { due_ns, allowance, .. } => state.response = Some((due_ns, allowance)),
            other => panic!("{other:?}"),
        }
    }
    fn can_fuse(&self) -> bool {
        true
    }
    fn push_fused(&mut self, _: u32, _: u32, _: &[Part], response: &Response) {
        self.state().response = Some((response.due_ns, response.allowance));
    }
}

/// Delays of a command.
#[derive(Clone, Copy, Default)]
struct Delays {
    /// Delay between the client's stamp, if it writes one, and the executor's.
    commit: Option<Span>,
    /// Time from the executor's stamp until the transport reads it.
    command: Span,
    /// Time from the request for a write's data until the data arrives.
    data: Span,
    /// Between the response's modelled arrival and when the client can see it.
    response: Span,
}

/// Runs one command. Returns how long the client waits, and whether the response is late by the two measures.
fn run(opcode: u8, is_fused: bool, delays: Delays) -> (Span, bool, bool) {
    let mut transport =
        RcTransport::new(TransportConfig { link: LinkConfig::UNLIMITED, ..TransportConfig::default() });
    let executor = Executor::default();
    let id = transport.add_other(Box::new(executor.clone()));
    let region = HostRegion::alloc(4096).unwrap();
    let (effects, clock) = (VecDeque::new(), Time::ZERO);
    let ssd = Ssd { region: Arc::clone(&region), queue: QueueKey(0), is_fused, effects, clock };
    let target = transport.add_target(Box::new(ssd), vec![region]);
    let (reply, answer) = mpsc::channel();
    let connect =
        Connect { executor: id, qpn: QPN, port: Port::Local(target), request: CmRequest::default() };
    transport.connect(Time::ZERO, connect, reply);
    assert_eq!(answer.try_recv(), Ok(Ok(())));
    transport.calibrate(START, id);
    while transport.step(START) {}

    let mut now = START + delays.command;
    // The SSD's clock advances while the command waits for the transport.
    transport.step(now);
    let mut entry =
        UpEntry { kind: UP_SEND, qpn: QPN, bytes: 64, stamp_ns: START.as_ns(), ..UpEntry::default() };
    let sqe = Sqe { opcode, cid: CID.into(), ..Sqe::default() };
    entry.payload = zerocopy::transmute!(sqe);
    if let Some(wait) = delays.commit {
        let clock = START.as_ns() - wait.as_ns();
        entry.arg[0] = clock & 0xFFFF_FFFF | 1;
    }
    executor.state().up.push_back(entry);
    transport.step(now);
    let pull = executor.state().pull.take();
    if let Some(index) = pull {
        now = now + delays.data;
        transport.step(now);
        executor.state().up.push_back(UpEntry { kind: UP_DONE, qpn: QPN, index, ..UpEntry::default() });
        transport.step(now);
    }
    transport.step(now + SERVICE);
    let (due_ns, allowance) = executor.state().response.take().expect("the SSD has answered");
    let seen_ns = due_ns + delays.response.as_ns();
    // The comparison of `count_response` in inbound.cuh.
    let late = seen_ns > due_ns + u64::from(allowance.late_ns);
    let client_late = i128::from(seen_ns) - i128::from(due_ns) > i128::from(allowance.client_late_ns);
    (Time::from_ns(seen_ns).since(START) + delays.commit.unwrap_or(Span::ZERO), late, client_late)
}

#[test]
fn a_command_that_the_emulator_does_not_delay_is_late_by_no_measure() {
    let _deadline = deadline();
    for (opcode, is_fused) in [(io::READ, false), (io::READ, true), (io::WRITE, false)] {
        assert_eq!(run(opcode, is_fused, Delays::default()), (SERVICE, false, false));
    }
}

#[test]
fn a_delay_before_the_engine_sees_a_command_is_late_for_the_client_alone() {
    let _deadline = deadline();
    for (opcode, is_fused) in [(io::READ, false), (io::READ, true), (io::WRITE, false)] {
        let delays = Delays { command: DELAY, ..Delays::default() };
        assert_eq!(run(opcode, is_fused, delays), (SERVICE + DELAY, false, true));
    }
}

#[test]
fn a_delay_before_the_executor_takes_a_command_is_late_for_the_client_alone() {
    let _deadline = deadline();
    for (opcode, is_fused) in [(io::READ, false), (io::READ, true), (io::WRITE, false)] {
        let delays = Delays { commit: Some(DELAY), ..Delays::default() };
        assert_eq!(run(opcode, is_fused, delays), (SERVICE + DELAY, false, true));
        // It adds to the next delay. Neither of them alone exceeds the allowance.
        let part = Span::from_ns(1500);
        let delays = Delays { commit: Some(part), command: part, ..Delays::default() };
        assert_eq!(run(opcode, is_fused, delays), (SERVICE + part + part, false, true));
    }
}

#[test]
fn immediate_data_is_no_clients_stamp() {
    let _deadline = deadline();
    let stamp = |kind, flags| UpEntry { kind, flags, arg: [7, 0], ..UpEntry::default() }.client_stamp();
    assert_eq!((stamp(UP_SEND, 0), stamp(UP_SEND, UP_IMMEDIATE), stamp(UP_SEND_INVAL, 0)), (7, 0, 0));
}

#[test]
fn a_delay_of_a_writes_data_is_late_for_the_client_alone() {
    let _deadline = deadline();
    let delays = Delays { data: DELAY, ..Delays::default() };
    assert_eq!(run(io::WRITE, false, delays), (SERVICE + DELAY, false, true));
}

#[test]
fn a_delay_behind_the_model_is_late_by_both_measures() {
    let _deadline = deadline();
    for (opcode, is_fused) in [(io::READ, false), (io::READ, true), (io::WRITE, false)] {
        let delays = Delays { response: DELAY, ..Delays::default() };
        assert_eq!(run(opcode, is_fused, delays), (SERVICE + DELAY, true, true));
    }
}

#[test]
fn delays_within_the_allowance_are_late_by_no_measure() {
    let _deadline = deadline();
    let small = Span::from_ns(900);
    let delays = Delays { command: small, response: small, ..Delays::default() };
    assert_eq!(run(io::READ, false, delays), (SERVICE + small + small, false, false));
}
