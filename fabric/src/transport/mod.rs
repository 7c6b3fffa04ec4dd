// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The transport: connections, acknowledgements, retries, errors and flush order of every queue pair, the link's
//! time, and target offload. One transport is one thread; it is stepped with `now` and reads no clock.
//! [Siblings](RcTransport::sibling) share a link, and the SSDs too where each has a core of every one.
//!
//! ```text
//!   executor (agent, soft, TCP peer) --UpEntry--> conn --link time--> target: Controller::submit
//!                                <---Down---- conn <--link time-- effects: Pull, Push, Complete
//! ```

mod answer;
mod conn;
mod events;
mod leaving;
mod lent;
mod remote;
mod step;
mod table;
mod target;

use crate::hca::abi::UpEntry;
use crate::hca::agent::AgentExecutor;
use crate::hca::soft::SoftExecutor;
use crate::hca::{Allowance, Down, QpExecutor};
use crate::link::{Link, LinkConfig};
use crate::tcp::{Frame, PeerExecutor, Wire};
use answer::Answers;
use conn::{Conn, To};
use events::Events;
use gnstor_base::controller::{Controller, QueueKey};
use gnstor_base::region::HostRegion;
use gnstor_base::time::{Span, Time};
use gnstor_proto::fabrics::CmRequest;
use gnstor_proto::nvme::{Cqe, Sqe};
use leaving::Leaving;
use remote::{Remote, Staging};
use rustc_hash::FxHashMap as HashMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use table::{Name, Table};

pub use lent::{Lent, lend};

/// Names an executor within an transport.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ExecutorId(u32);

/// Names a connection within an transport.
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

/// Where an SSD is, seen from an transport.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Port {
    /// A controller of this transport.
    Local(u16),
    /// SSD `ssd` behind the TCP link `remote`.
    Remote {
        /// Name from [`RcTransport::add_remote`].
        remote: u32,
        /// SSD number there.
        ssd: u16,
    },
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct TransportConfig {
    /// The modelled link of local connections.
    pub link: LinkConfig,
    /// A SEND that is not acknowledged for this long fails (RC transport: timeout times retries).
    pub ack_timeout: Span,
    /// Wait before a SEND that found no receive is tried again.
    pub rnr_timer: Span,
    /// Tries before it fails.
    pub rnr_retries: u8,
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self {
            link: LinkConfig::PAPER_200GBE,
            ack_timeout: Span::from_ms(500),
            rnr_timer: Span::from_ns(100_000),
            rnr_retries: 7,
        }
    }
}

/// A connection was refused: the reason of the RDMA connection manager.
pub type Refused = u16;
/// Reason given when the peer is not there.
pub const REFUSED_NO_PEER: Refused = 0xFFFF;

enum AnyExecutor {
    Agent(AgentExecutor),
    Soft(SoftExecutor),
    Peer(Box<PeerExecutor>),
    Other(Box<dyn QpExecutor>),
}

impl AnyExecutor {
    fn get(&mut self) -> &mut dyn QpExecutor {
        match self {
            Self::Agent(h) => h,
            Self::Soft(h) => h,
            Self::Peer(h) => h.as_mut(),
            Self::Other(h) => h.as_mut(),
        }
    }
}

struct LocalTarget {
    controller: Box<dyn Controller + Send>,
    regions: Vec<Arc<HostRegion>>,
    clock: Time,
    /// Fault injection: nothing reaches it, nothing leaves it.
    silent: bool,
    /// Capsules that have come up and will be submitted soon.
    pub(super) coming: Vec<Sqe>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A capsule reaches its target.
    Capsule { conn: ConnId, psn: u64, message: Message },
    /// Its acknowledgement reaches the initiator.
    Acked { conn: ConnId, psn: u64 },
    /// The modelled data of a Pull has arrived.
    Arrived { tag: u32 },
    /// An answer is due soon.
    Answer { number: u32 },
    /// An SSD is done at `at`, soon; the response takes the link then.
    Respond { conn: ConnId, message: Message, pushed: u32, at: Time },
    /// The response reaches the initiator.
    Deliver { conn: ConnId, message: Message, tries: u8, due: Time, allowance: Allowance },
}

/// Names a message in [`Messages`].
type Message = u32;

/// The bytes of messages under way, apart from their events: most events have none.
#[derive(Default)]
struct Messages {
    items: Vec<[u8; 64]>,
    free: Vec<Message>,
}

impl Messages {
    fn put(&mut self, bytes: &[u8]) -> Message {
        let name = self.free.pop().unwrap_or_else(|| {
            self.items.push([0; 64]);
            u32::try_from(self.items.len() - 1).expect("far fewer messages than 2^32")
        });
        self.items[name as usize][..bytes.len()].copy_from_slice(bytes);
        name
    }

    fn take<const N: usize>(&mut self, name: Message) -> [u8; N] {
        self.free.push(name);
        *self.items[name as usize].first_chunk().expect("messages are at most 64 bytes")
    }
}

/// A data transfer on its way through an executor.
struct Transfer {
    conn: ConnId,
    /// Who moves the data, where anybody does.
    executor: Option<ExecutorId>,
    origin: Origin,
    /// When the executor was asked, in real time.
    asked: Time,
    /// Modelled arrival of a Pull.
    not_before: Time,
    /// Of which command it is, for a local controller's Pull.
    cid: u16,
    outcome: Option<gnstor_base::controller::Outcome>,
}

enum Origin {
    /// A local controller's.
    Local { target: u16, transfer: gnstor_base::controller::TransferId, pull: bool },
    /// The transport's own, of an answer.
    Part { number: u32 },
    /// Asked for over TCP under this tag; the data is in this staging slot.
    Remote { remote: u32, tag: u32, slot: gnstor_base::region::LocalRef, pull: bool },
}

/// The transport.
pub struct RcTransport {
    config: TransportConfig,
    link: Link,
    executors: Table<ExecutorId, AnyExecutor>,
    targets: Vec<LocalTarget>,
    /// TCP links by name, and the order in which they are polled.
    remotes: HashMap<u32, Remote>,
    remote_order: Vec<u32>,
    /// Staging memory of links that have ended, where devices have it mapped.
    spare_staging: Vec<Staging>,
    /// The number by which clients of other processes call target 0.
    first_ssd: u16,
    conns: Table<ConnId, Conn>,
    by_qp: HashMap<(ExecutorId, u32), ConnId>,
    transfers: HashMap<u32, Transfer>,
    answers: Answers,
    leaving: Leaving,
    /// Connections with an invalidation that waits, once for each.
    settling: Vec<ConnId>,
    events: Events<Event>,
    messages: Messages,
    /// What has come up and is being handled, with the connections of commands.
    batch: Vec<(UpEntry, Option<ConnId>)>,
    /// The executors in the order in which they are polled.
    order: Vec<ExecutorId>,
    steps: u32,
    /// Pings under way: when they were sent, and how many are to follow.
    pings: HashMap<(ExecutorId, u32), (Time, u32)>,
    best_rtt: HashMap<ExecutorId, u64>,
    next_id: u32,
    last_timeout_check: Time,
    /// What was refused or broken, for a person to read.
    pub counters: Counters,
}

/// Counters of an transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Command capsules sent to targets.
    pub capsules: u64,
    /// Bytes that left the array.
    pub pushed_bytes: u64,
    /// Bytes that came to the array.
    pub pulled_bytes: u64,
    /// Connections that broke.
    pub broken: u64,
    /// SENDs that met no receive.
    pub rnr: u64,
    /// Real time from the executor's taking of a SEND to its being seen here, all SENDs together.
    pub fetch_time: Span,
    /// Copies that executors have ended.
    pub copies: u64,
    /// Real time from asking for a copy to seeing its end, all copies together.
    pub copy_time: Span,
    /// Steps that found something to do, and steps that did not.
    pub steps: [u64; 2],
}

impl std::iter::Sum for Counters {
    fn sum<I: Iterator<Item = Self>>(counters: I) -> Self {
        counters.fold(Self::default(), |a, b| Self {
            capsules: a.capsules + b.capsules,
            pushed_bytes: a.pushed_bytes + b.pushed_bytes,
            pulled_bytes: a.pulled_bytes + b.pulled_bytes,
            broken: a.broken + b.broken,
            rnr: a.rnr + b.rnr,
            fetch_time: a.fetch_time + b.fetch_time,
            copies: a.copies + b.copies,
            copy_time: a.copy_time + b.copy_time,
            steps: [a.steps[0] + b.steps[0], a.steps[1] + b.steps[1]],
        })
    }
}

impl RcTransport {
    /// An transport without anything.
    pub fn new(config: TransportConfig) -> Self {
        Self {
            config,
            link: Link::new(config.link),
            executors: Table::default(),
            targets: Vec::new(),
            remotes: HashMap::default(),
            remote_order: Vec::new(),
            spare_staging: Vec::new(),
            first_ssd: 0,
            conns: Table::default(),
            by_qp: HashMap::default(),
            transfers: HashMap::default(),
            answers: Answers::default(),
            leaving: Leaving::default(),
            settling: Vec::new(),
            events: Events::default(),
            messages: Messages::default(),
            batch: Vec::new(),
            order: Vec::new(),
            steps: 0,
            pings: HashMap::default(),
            best_rtt: HashMap::default(),
            next_id: 1,
            last_timeout_check: Time::ZERO,
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
        for executor in self.executors.values_mut() {
            add_regions(executor, &regions);
        }
        self.targets.push(LocalTarget {
            controller,
            regions,
            clock: Time::ZERO,
            silent: false,
            coming: Vec::new(),
        });
        u16::try_from(self.targets.len() - 1).expect("at most 65,536 SSDs an transport")
    }

    /// Clients of other processes call target 0 by this number, target 1 by the next, and so on: an SSD in a
    /// process of its own need not be the first of its array.
    pub fn set_first_ssd(&mut self, number: u16) {
        self.first_ssd = number;
    }

    /// The memory that transfers of its SSDs and links touch now: the caller that adds an executor may have it
    /// mapped beforehand, since pinning gigabytes takes seconds.
    pub fn regions(&self) -> Vec<Arc<HostRegion>> {
        let targets = self.targets.iter().flat_map(|target| target.regions.iter().cloned());
        let links =
            self.remotes.values().map(Remote::region).chain(self.spare_staging.iter().map(Staging::region));
        targets.chain(links).collect()
    }

    /// The memory that only its SSDs themselves touch.
    pub fn own_memory(&self) -> Vec<Arc<HostRegion>> {
        self.targets.iter().flat_map(|target| target.controller.own_memory()).collect()
    }

    /// Cuts an SSD off, or back on: fault injection.
    pub fn set_silent(&mut self, target: u16, silent: bool) {
        self.targets[usize::from(target)].silent = silent;
    }

    /// The controller of a local SSD, for inspection.
    pub fn controller(&mut self, target: u16) -> &mut (dyn Controller + Send) {
        self.targets[usize::from(target)].controller.as_mut()
    }

    /// Adds the resident kernel's executor.
    pub fn add_agent(&mut self, executor: AgentExecutor) -> ExecutorId {
        self.add_executor(AnyExecutor::Agent(executor))
    }

    /// Adds an executor for queue pairs in host memory.
    pub fn add_soft(&mut self) -> ExecutorId {
        self.add_executor(AnyExecutor::Soft(SoftExecutor::new()))
    }

    /// Adds a client that has connected over TCP.
    pub fn add_peer(&mut self, wire: Wire) -> ExecutorId {
        self.add_executor(AnyExecutor::Peer(Box::new(PeerExecutor::new(wire))))
    }

    /// Adds an executor of the caller's own, such as a load generator.
    pub fn add_other(&mut self, executor: Box<dyn QpExecutor>) -> ExecutorId {
        self.add_executor(AnyExecutor::Other(executor))
    }

    fn add_executor(&mut self, mut executor: AnyExecutor) -> ExecutorId {
        add_regions(&mut executor, &self.regions());
        let id = self.executors.insert(executor).expect("far fewer executors than 65,536");
        self.order.push(id);
        id
    }

    /// The soft executor with this id.
    pub fn soft(&mut self, id: ExecutorId) -> Option<&mut SoftExecutor> {
        match self.executors.get_mut(&id) {
            Some(AnyExecutor::Soft(executor)) => Some(executor),
            _ => None,
        }
    }

    /// Removes an executor and everything that goes through it. Memory that it may still touch stays taken until
    /// it has stopped.
    pub fn remove_executor(&mut self, now: Time, id: ExecutorId) {
        let mut conns: Vec<ConnId> =
            self.by_qp.iter().filter(|((h, _), _)| *h == id).map(|(_, c)| *c).collect();
        conns.sort_unstable();
        for conn in conns {
            self.close(now, conn);
        }
        if let Some(executor) = self.executors.remove(&id) {
            self.leaving.keep(id, executor);
        }
        self.order.retain(|executor| *executor != id);
        self.best_rtt.remove(&id);
    }

    /// Connects a queue pair with an SSD; the answer comes through `reply`, at once for a local SSD. A queue
    /// pair for whose last connection data still moves is refused, the two could not be told apart, and so is
    /// one more than there are names for: the name has no owner then.
    pub fn connect(
        &mut self,
        now: Time,
        executor: ExecutorId,
        qpn: u32,
        port: Port,
        request: &CmRequest,
        reply: Sender<Result<(), Refused>>,
    ) -> ConnId {
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
                    Some(t) if !t.silent => t.controller.open_queue(now, QueueKey(id.0), request),
                    _ => Err(REFUSED_NO_PEER),
                };
                if answer.is_err() {
                    self.forget(id);
                }
                let _ = reply.send(answer);
            }
            Port::Remote { remote, ssd } => self.connect_remote(remote, id, ssd, request, reply),
        }
        id
    }

    /// Ends a connection from the initiator's side. Its queue pair is left as it is; its transfers end as
    /// soon as its executor moves nothing for it any more.
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
                        r.send(&Frame::Close { conn: id.0 });
                    }
                }
            }
        }
        if let Some(conn) = self.conns.get(&id).filter(|conn| conn.transfers > 0) {
            self.leaving.add(id, conn);
        }
        self.forget(id);
        self.settle_leaving(now);
    }

    fn forget(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.remove(&id) {
            self.by_qp.remove(&(conn.executor, conn.qpn));
            if let To::Remote(remote) = conn.to
                && let Some(r) = self.remotes.get_mut(&remote)
            {
                r.left();
            }
        }
    }

    /// Measures the offset between the transport's clock and the executor's, by pings one after the other; the
    /// answers are taken by later steps. The first only waits for the executor to be there: its round trip says
    /// nothing.
    pub fn calibrate(&mut self, now: Time, executor: ExecutorId) {
        // The clocks drift by microseconds a second: what was measured before is good only until there is
        // something newer.
        if let Some(best) = self.best_rtt.get_mut(&executor) {
            *best = u64::MAX;
        }
        self.ping(now, executor, PINGS);
    }

    fn ping(&mut self, now: Time, executor: ExecutorId, to_follow: u32) {
        let tag = self.id();
        if let Some(h) = self.executors.get_mut(&executor) {
            self.pings.insert((executor, tag), (now, to_follow));
            h.get().push(Down::Ping { tag });
        }
    }
}

/// Pings of a calibration; the shortest round trip counts.
const PINGS: u32 = 16;

/// An transport time on an executor's clock, whose offset is `transport = executor + offset`.
fn executor_ns(at: Time, offset: i64) -> u64 {
    u64::try_from(i128::from(at.as_ns()) - i128::from(offset)).unwrap_or(0)
}

fn add_regions(executor: &mut AnyExecutor, regions: &[Arc<HostRegion>]) {
    for region in regions {
        match executor {
            AnyExecutor::Agent(h) => {
                if let Err(e) = h.add_region(region) {
                    tracing::error!("a region of {} bytes cannot be mapped: {e}", region.len());
                }
            }
            AnyExecutor::Soft(h) => h.add_region(Arc::clone(region)),
            AnyExecutor::Peer(h) => h.add_region(Arc::clone(region)),
            AnyExecutor::Other(_) => {}
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

#[expect(clippy::cast_possible_truncation, reason = "16-bit counters travel in 32-bit words")]
pub(crate) fn low16(word: u32) -> u16 {
    word as u16
}

#[cfg(test)]
mod tests;
