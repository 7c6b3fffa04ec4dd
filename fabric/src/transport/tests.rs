// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links between two transports over a real socket, on a clock that the test moves. Both ends forget a
//! client or array that has gone.

mod asks;
mod ends;
mod fused;
mod fuzz;
mod leaving;
mod newcomers;
mod turns;
mod unruly;

use super::*;
use crate::hca::abi::*;
use crate::hca::soft::{SoftMr, SoftQp};
use crate::hca::{Down, QpExecutor};
use crate::link::LinkConfig;
use crate::mlx5::{self, CtrlSeg, DataSeg, opcode};
use crate::tcp::Wire;
use gnstor_base::controller::{AskId, Effect, Outcome, PushRole, Remote as Memory, TransferId};
use gnstor_base::testing::deadline;
use gnstor_base::time::Span;
use gnstor_proto::fabrics::CmRequest;
use nix::sys::socket::{setsockopt, sockopt};
use std::collections::VecDeque;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, MutexGuard, Weak};
use zerocopy::IntoBytes;

/// What a controller saw, and how it answers a command.
#[derive(Default)]
struct Seen {
    opened: Vec<QueueKey>,
    closed: Vec<QueueKey>,
    on_submit: Vec<Effect>,
    resumed: u32,
    ended: Vec<Outcome>,
    unanswered: Vec<AskId>,
    effects: VecDeque<Effect>,
}

#[derive(Clone, Default)]
struct Puppet(Arc<Mutex<Seen>>);

impl Puppet {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().expect("no panic while held")
    }
}

impl Controller for Puppet {
    fn open_queue(&mut self, _: Time, queue: QueueKey, _: &CmRequest) -> Result<(), u16> {
        self.seen().opened.push(queue);
        Ok(())
    }
    fn close_queue(&mut self, _: Time, queue: QueueKey) {
        self.seen().closed.push(queue);
    }
    fn submit(&mut self, _: Time, _: QueueKey, _: &Sqe) {
        let mut seen = self.seen();
        let effects = std::mem::take(&mut seen.on_submit);
        seen.effects.extend(effects);
    }
    fn announce(&mut self, _: &[Sqe]) {}
    fn own_memory(&self) -> Vec<Arc<HostRegion>> {
        Vec::new()
    }
    fn transferred(&mut self, _: Time, _: TransferId, outcome: Outcome) {
        self.seen().ended.push(outcome);
    }
    fn answered(&mut self, _: Time, ask: AskId, answer: Option<&Cqe>, _: &[u8]) {
        assert_eq!(answer, None, "no test carries a question");
        self.seen().unanswered.push(ask);
    }
    fn step(&mut self, _: Time) {}
    fn resumed(&mut self, _: Time) {
        self.seen().resumed += 1;
    }
    fn next_event(&self) -> Option<Time> {
        None
    }
    fn pop_effect(&mut self) -> Option<Effect> {
        self.seen().effects.pop_front()
    }
}

/// Two ends of a TCP connection. The operating system holds few bytes for them, on machines of any settings.
fn pair() -> (Wire, Wire) {
    let (client, server) = streams();
    for end in [&client, &server] {
        setsockopt(end, sockopt::RcvBuf, &KERNEL_BYTES).unwrap();
        setsockopt(end, sockopt::SndBuf, &KERNEL_BYTES).unwrap();
    }
    (Wire::new(client).unwrap(), Wire::new(server).unwrap())
}

fn streams() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// The operating system's buffer for one direction of a stream.
const KERNEL_BYTES: usize = 128 << 10;
const QPN: u32 = 7;
const KEY: u32 = 0x0701;
const DBR: u64 = 0x4000;
const UAR: u64 = 0x5000;
const CAPSULE: u64 = 0x7000;
const DATA: u64 = 0x8000;

fn soft_qp(memory: &Arc<HostRegion>) -> SoftQp {
    SoftQp {
        memory: Arc::clone(memory),
        qpn: QPN,
        pd: 1,
        sq: (0, 15),
        rq: (0x1000, 15),
        cq: (0x2000, 6),
        cq_dbr: None,
        dbr: DBR,
        uar: UAR,
    }
}

fn to(executor: ExecutorId, qpn: u32, port: Port) -> Connect {
    Connect { executor, qpn, port, request: CmRequest::default() }
}

/// The owner's first work request: a capsule.
fn send_a_command(memory: &HostRegion) {
    memory.write(CAPSULE, Sqe::default().as_bytes());
    let ctrl = CtrlSeg::new(opcode::SEND, 0, QPN, 2, 0);
    let address = memory.address() + CAPSULE;
    let seg = DataSeg { byte_count: 64.into(), lkey: KEY.into(), address: address.into() };
    memory.write(0, ctrl.as_bytes());
    memory.write(16, seg.as_bytes());
    memory.word32(DBR + 4).store(1u32.to_be(), Ordering::Release);
    let doorbell = zerocopy::FromBytes::read_from_bytes(&mlx5::doorbell_value(1, QPN)).unwrap();
    memory.words64(UAR + mlx5::UAR_DB0, 1)[0].store(doorbell, Ordering::Release);
}

/// An array with one SSD, and a client with one queue pair, in transports of their own.
struct Two {
    array: RcTransport,
    client: RcTransport,
    puppet: Puppet,
    executor: ExecutorId,
    remote: u32,
    memory: Arc<HostRegion>,
    flash: Arc<HostRegion>,
    now: Time,
}

impl Two {
    fn new(first_ssd: u16) -> Self {
        let (mut array, mut client) = (
            RcTransport::new(TransportConfig::default()),
            RcTransport::new(TransportConfig { link: LinkConfig::UNLIMITED, ..TransportConfig::default() }),
        );
        let (puppet, flash) = (Puppet::default(), HostRegion::alloc(1 << 16).unwrap());
        array.add_target(Box::new(puppet.clone()), vec![Arc::clone(&flash)]);
        array.set_first_ssd(first_ssd);
        let (near, far) = pair();
        array.add_peer(far);
        let executor = client.add_soft();
        let remote = client.add_remote(near).unwrap();
        let memory = HostRegion::alloc(1 << 17).unwrap();
        let soft = client.soft(executor).unwrap();
        soft.create_qp(soft_qp(&memory));
        let access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE;
        soft.register(SoftMr { memory: Arc::clone(&memory), range: (0, 1 << 17), key: KEY, access, pd: 1 });
        Self { array, client, puppet, executor, remote, memory, flash, now: Time::ZERO }
    }

    fn connect(&mut self, ssd: u16) -> (ConnId, Receiver<Result<(), Refused>>) {
        let (reply, answer) = mpsc::channel();
        let port = Port::Remote { remote: self.remote, ssd };
        (self.client.connect(self.now, to(self.executor, QPN, port), reply), answer)
    }

    /// Steps both transports, a microsecond a round, until `holds` returns true.
    fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        for _ in 0..2_000_000 {
            if holds(self) {
                return;
            }
            self.now = self.now + Span::from_ns(1000);
            self.client.step(self.now);
            self.array.step(self.now);
        }
        panic!("never: {what}");
    }

    /// Lets time pass, a millisecond a round.
    fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now = self.now + Span::from_ms(1);
            self.client.step(self.now);
            self.array.step(self.now);
        }
    }

    fn connected(&mut self) -> ConnId {
        let (conn, answer) = self.connect(0);
        let mut got = None;
        self.until("an answer", |_| {
            got = answer.try_recv().ok();
            got.is_some()
        });
        assert_eq!(got, Some(Ok(())));
        conn
    }

    /// Sends a command whose data the SSD pulls or pushes: one block.
    fn command(&mut self, pull: bool) {
        self.command_of(pull, 4096);
    }

    fn command_of(&mut self, pull: bool, bytes: u32) {
        let (transfer, queue) = (TransferId(1), *self.puppet.seen().opened.last().expect("a queue"));
        let remote = Memory { address: self.memory.address() + DATA, key: KEY };
        let local = self.flash.slice(0, bytes);
        self.puppet.seen().on_submit = vec![if pull {
            Effect::Pull { transfer, queue, cid: 0, remote, local }
        } else {
            Effect::Push { transfer, queue, remote, local, sum: None, role: PushRole::Alone }
        }];
        send_a_command(&self.memory);
    }

    fn staging(&self) -> Weak<HostRegion> {
        Arc::downgrade(&self.client.remotes[&self.remote].region())
    }
}
