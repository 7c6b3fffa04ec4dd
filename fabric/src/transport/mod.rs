// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The transport: connections, acknowledgements, retries, errors and flush order of every queue pair, the
//! link's time, and target offload. One transport is one thread; it is stepped with a clock that its
//! caller passes. [Siblings](RcTransport::sibling) share a link, and the SSDs too where each has a core of
//! every one.
//!
//! ```text
//!   executor (agent, soft, TCP peer) --UpEntry--> conn --link time--> target: Controller::submit
//!                                <---Down---- conn <--link time-- effects: Pull, Push, Complete
//! ```

mod anew;
mod asks;
mod clock;
mod config;
mod conn;
mod counters;
mod events;
mod executors;
mod fused;
mod leaving;
mod lent;
mod newcomers;
mod ready;
mod remote;
mod reports;
mod sleep;
mod step;
mod table;
mod target;
mod times;

use crate::hca::{Allowance, Up};
use crate::link::Link;
use crate::tcp::{Frame, Regions};
use conn::{Conn, To};
use events::{Events, Message, Messages};
use executors::{AnyExecutor, Polled};
use fused::FusedResponses;
use gnstor_base::controller::{Controller, QueueKey};
use gnstor_base::peer_map::PeerMap;
use gnstor_base::region::HostRegion;
use gnstor_base::time::Time;
use gnstor_proto::nvme::{Cqe, Sqe};
use leaving::Leaving;
use newcomers::Account;
use ready::Ready;
use remote::{Asked, Remote, Staging};
use rustc_hash::FxHashMap as HashMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use table::{Name, Table};

pub use crate::cm::{REFUSED_NO_PEER, Refused};
pub use anew::Progress;
use asks::Asks;
pub use asks::PeerAsk;
pub use config::{Connect, Port, TransportConfig};
pub use counters::Counters;
pub use lent::{Lent, lend};
pub use sleep::Waker;
pub use step::Waits;

/// Names an executor within a transport.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ExecutorId(u32);

/// Names a connection within a transport.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ConnId(u32);

impl Name for ExecutorId {
    fn of(raw: u32) -> Self {
        Self(raw)
    }
    fn raw(self) -> u32 {
        self.0
    }
}

impl Name for ConnId {
    fn of(raw: u32) -> Self {
        Self(raw)
    }
    fn raw(self) -> u32 {
        self.0
    }
}

struct LocalTarget {
    controller: Box<dyn Controller + Send>,
    regions: Vec<Arc<HostRegion>>,
    clock: Time,
    /// Fault injection: nothing reaches it, nothing leaves it.
    silent: bool,
    /// Whether its effects are being carried out.
    is_draining: bool,
    /// Capsules that have arrived and will be submitted soon.
    pub(super) coming: Vec<Sqe>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A capsule reaches its target.
    Capsule { conn: ConnId, psn: u64, message: Message },
    /// The acknowledgement reaches the initiator.
    Acked { conn: ConnId, psn: u64 },
    /// The modelled data of a Pull has arrived.
    Arrived { tag: u32 },
    /// A fused response is due soon.
    Fused { number: u32 },
    /// An SSD will be done soon. Its response takes the link then.
    Respond(Respond),
    /// The response reaches the initiator.
    Deliver(Delivery),
}

/// A response of an SSD.
#[derive(Clone, Copy, Debug)]
struct Respond {
    conn: ConnId,
    message: Message,
    /// Number of bytes that take the link before it.
    pushed: u32,
    /// Time at which the SSD is done.
    at: Time,
}

/// A response on its way to the initiator.
#[derive(Clone, Copy, Debug)]
struct Delivery {
    conn: ConnId,
    message: Message,
    /// Number of times that it found no receive.
    tries: u8,
    due: Time,
    allowance: Allowance,
}

/// A data transfer on its way through an executor.
struct Transfer {
    conn: ConnId,
    /// The executor that moves the data; `None` if the connection broke before one was asked.
    executor: Option<ExecutorId>,
    origin: Origin,
    /// Real time at which the executor was asked.
    asked: Time,
    /// Modelled arrival of a Pull.
    not_before: Time,
    /// The command of the transfer, for a local controller's Pull.
    cid: u16,
    outcome: Option<gnstor_base::controller::Outcome>,
}

enum Origin {
    /// A local controller's.
    Local { target: u16, transfer: gnstor_base::controller::TransferId, pull: bool },
    /// The transport's own: a part of a fused response.
    Part { number: u32 },
    /// An SSD of another process asked for it, over TCP.
    Remote(Asked),
}

/// The transport.
pub struct RcTransport {
    config: TransportConfig,
    link: Link,
    executors: Table<ExecutorId, AnyExecutor>,
    targets: Vec<LocalTarget>,
    /// TCP links by name, and the order in which they came.
    remotes: HashMap<u32, Remote>,
    remote_order: Vec<u32>,
    /// A link has ended and is not forgotten.
    has_ended_remotes: bool,
    /// The TCP streams of clients and links.
    ready: Ready,
    /// The time of streams without a client.
    newcomers: Account,
    /// Memory to which transfers of clients in other processes may refer.
    peer_regions: Regions,
    /// Staging memory of links that have ended. Devices still have it mapped.
    spare_staging: Vec<Staging>,
    /// The number by which clients of other processes call target 0.
    first_ssd: u16,
    conns: Table<ConnId, Conn>,
    by_qp: PeerMap<(ExecutorId, u32), ConnId>,
    transfers: HashMap<u32, Transfer>,
    fused: FusedResponses,
    leaving: Leaving,
    /// Connections with an invalidation that waits, once for each.
    quiescing: Vec<ConnId>,
    events: Events<Event>,
    messages: Messages,
    /// Reports that are being handled, with the connections of commands.
    batch: Vec<(Up, Option<ConnId>)>,
    /// The executors in the order in which they are polled.
    order: Vec<Polled>,
    steps: u32,
    /// The next step polls every executor.
    poll_all: bool,
    /// Pings under way: when they were sent, and how many are to follow.
    pings: HashMap<(ExecutorId, u32), (Time, u32)>,
    best_rtt: HashMap<ExecutorId, u64>,
    /// Callers that wait for queue pairs to begin anew.
    anew: HashMap<(ExecutorId, u32), Sender<()>>,
    next_id: u32,
    /// SENDs that wait for their acknowledgement, and no later than the first deadline of one.
    waiting: u32,
    ack_alarm: Option<Time>,
    last_look: Time,
    /// Questions of its SSDs, and the thread that carries them.
    asks: Asks,
    /// Counts of refused and broken things, for a person to read.
    pub counters: Counters,
}

impl RcTransport {
    /// A transport without anything.
    pub fn new(config: TransportConfig) -> Self {
        Self {
            config,
            link: Link::new(config.link),
            executors: Table::default(),
            targets: Vec::new(),
            remotes: HashMap::default(),
            remote_order: Vec::new(),
            has_ended_remotes: false,
            ready: Ready::default(),
            newcomers: Account::default(),
            peer_regions: Regions::default(),
            spare_staging: Vec::new(),
            first_ssd: 0,
            conns: Table::default(),
            by_qp: PeerMap::default(),
            transfers: HashMap::default(),
            fused: FusedResponses::default(),
            leaving: Leaving::default(),
            quiescing: Vec::new(),
            events: Events::default(),
            messages: Messages::default(),
            batch: Vec::new(),
            order: Vec::new(),
            steps: 0,
            poll_all: false,
            pings: HashMap::default(),
            best_rtt: HashMap::default(),
            anew: HashMap::default(),
            next_id: 1,
            waiting: 0,
            ack_alarm: None,
            last_look: Time::ZERO,
            asks: Asks::default(),
            counters: Counters::default(),
        }
    }

    /// Another transport on the same link, for another thread. It has the same settings and no SSDs yet.
    #[must_use]
    pub fn sibling(&self) -> Self {
        Self { link: self.link.clone(), first_ssd: self.first_ssd, ..Self::new(self.config) }
    }

    fn id(&mut self) -> u32 {
        self.next_id = self.next_id % 0x7FFF_FFFF + 1;
        self.next_id
    }

    /// Adds an SSD with the memory its transfers refer to; returns its number.
    pub fn add_target(
        &mut self,
        controller: Box<dyn Controller + Send>,
        regions: Vec<Arc<HostRegion>>,
    ) -> u16 {
        regions.iter().for_each(|region| self.add_region(region));
        self.targets.push(LocalTarget {
            controller,
            regions,
            clock: Time::ZERO,
            silent: false,
            is_draining: false,
            coming: Vec::new(),
        });
        u16::try_from(self.targets.len() - 1).expect("at most 65,536 SSDs a transport")
    }

    /// Clients of other processes call target 0 by this number, target 1 by the next, and so on. An SSD in
    /// a process of its own need not be the first of its array.
    pub fn set_first_ssd(&mut self, number: u16) {
        self.first_ssd = number;
    }

    /// Cuts an SSD off, or back on: fault injection.
    pub fn set_silent(&mut self, target: u16, silent: bool) {
        self.targets[usize::from(target)].silent = silent;
    }

    /// The controller of a local SSD, for inspection.
    pub fn controller(&mut self, target: u16) -> &mut (dyn Controller + Send) {
        self.targets[usize::from(target)].controller.as_mut()
    }

    /// Connects a queue pair with an SSD. The answer comes through `reply`, at once for a local SSD. The
    /// transport refuses a queue pair while data of its last connection still moves, because the two could
    /// not be distinguished. It also refuses more connections than it has names for.
    pub fn connect(&mut self, now: Time, connect: Connect, reply: Sender<Result<(), Refused>>) -> ConnId {
        let Connect { executor, qpn, port, request } = connect;
        let to = match port {
            Port::Local(target) => To::Local(target),
            Port::Remote { remote, .. } => To::Remote(remote),
        };
        let is_free = !self.leaving.holds(executor, qpn);
        let Some(id) = is_free.then(|| self.conns.insert(Conn::new(executor, qpn, to))).flatten() else {
            let _ = reply.send(Err(REFUSED_NO_PEER));
            return ConnId(u32::MAX);
        };
        self.by_qp.insert((executor, qpn), id);
        match port {
            Port::Local(target) => {
                let answer = match self.targets.get_mut(usize::from(target)) {
                    Some(t) if !t.silent => t.controller.open_queue(now, QueueKey(id.0), &request),
                    _ => Err(REFUSED_NO_PEER),
                };
                if answer.is_err() {
                    self.forget(id);
                }
                let _ = reply.send(answer);
            }
            Port::Remote { remote, ssd } => {
                self.connect_remote(remote, id, Frame::Connect { conn: id.0, ssd, request }, reply);
            }
        }
        id
    }

    /// For a queue pair whose SSD cannot be reached: gives it a connection that is in error
    /// from the beginning. All its requests are flushed. `None` if there are no names left.
    pub fn connect_to_none(&mut self, executor: ExecutorId, qpn: u32) -> Option<ConnId> {
        // No link has this name.
        let id = self.conns.insert(Conn::in_error(executor, qpn, To::Remote(0)))?;
        self.by_qp.insert((executor, qpn), id);
        Some(id)
    }

    /// Ends a connection from the initiator's side. The queue pair does not change. The transfers end as soon
    /// as the executor moves no more data for them.
    pub fn close(&mut self, now: Time, id: ConnId) {
        if let Some(conn) = self.conns.get(&id) {
            match conn.to {
                To::Local(target) => {
                    let t = &mut self.targets[usize::from(target)];
                    t.controller.close_queue(now.max(t.clock), QueueKey(id.0));
                    self.drain_effects(now, target);
                }
                To::Remote(remote) => {
                    if let Some(r) = self.remotes.get_mut(&remote) {
                        r.closes(id);
                    }
                }
            }
        }
        if let Some(conn) = self.conns.get(&id).filter(|conn| conn.transfers > 0) {
            self.leaving.add(id, conn);
        }
        self.forget(id);
        self.reap_leaving(now);
    }

    fn forget(&mut self, id: ConnId) {
        self.set_proving(id, false);
        if let Some(conn) = self.conns.remove(&id) {
            self.waiting -= conn.waiting();
            if self.by_qp.get(&(conn.executor, conn.qpn)) == Some(&id) {
                self.by_qp.remove(&(conn.executor, conn.qpn));
            }
            if let To::Remote(remote) = conn.to
                && let Some(r) = self.remotes.get_mut(&remote)
            {
                r.left();
            }
        }
    }
}

/// The response capsule as bytes.
fn cqe_bytes(cqe: Cqe) -> [u8; 16] {
    zerocopy::transmute!(cqe)
}

fn sqe_of(raw: &[u8; 64]) -> Sqe {
    zerocopy::transmute!(*raw)
}

#[cfg(test)]
mod tests;
