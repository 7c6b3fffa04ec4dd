// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client's control path to every SSD that is there: one admin queue each, kept alive. An SSD that falls
//! silent may have acknowledged every command of an I/O queue, so that nothing there can fail. So the
//! heartbeat decides: if an admin queue breaks, the session gives up the I/O queues of its SSD too.
//!
//! A thread is the runtime of `Paths`, which decides when; threads that dial end with what they did. A path
//! that is found waits until a caller puts it in use: queue pairs are made anew then. Its admin queue is of
//! the same host, with the same serial and secret, and authenticates anew.

mod dial;
mod following;
mod inner;
mod map;
#[cfg(test)]
mod tests;
mod thread;

use crate::channel::Channel;
use crate::error::NodeError;
use crate::node::{CONNECT_DEADLINE, Connection, IoQueue, LaunchLock, Lifeline, Node};
use crate::paths::Paths;
use dial::Dialler;
use gnstor_auth::Secret;
use gnstor_fabric::admin::ChannelError;
use gnstor_fabric::host_queue::{Asked, HostQueue};
use gnstor_fabric::transport::Port;
use gnstor_proto::fabrics::{CmRequest, ConnectData, Host, Identity};
use gnstor_proto::slba::ClientId;
use inner::Inner;
use std::fmt::Debug;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use thread::{Runtime, Shared};

pub use map::{Follower, Taken};

/// Address of an SSD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SsdAddress {
    /// Port of the SSD, as the node's engine knows it.
    pub port: Port,
    /// NQN of the SSD.
    pub subnqn: String,
}

/// A client's registration with the daemon.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Client id.
    pub client: ClientId,
    /// Number of the registration; 0 if the SSDs ask for no proof.
    pub serial: u64,
    /// The client's secret; `None` if the SSDs ask for no proof.
    pub secret: Option<Secret>,
}

/// Why an SSD was not reached.
#[derive(Clone, Debug)]
pub struct Unreached {
    /// The reason, in words.
    pub why: String,
    /// No later try can help.
    pub for_good: bool,
    /// The connection was made, and ended before it was of use. A busy host makes some of its connections
    /// give way, so the next one may last.
    pub was_cut: bool,
}

/// The links to the SSDs of an array.
pub trait Connector: Debug + Send + Sync {
    /// Number of SSDs.
    fn ssds(&self) -> usize;

    /// Number of SSDs that there may be while the session lasts. Further ones are made known to the connector
    /// when they join.
    fn room(&self) -> usize {
        self.ssds()
    }

    /// SSDs with the same number share a link.
    fn link_of(&self, ssd: usize) -> usize;

    /// Whether a lost link can be made anew.
    fn reconnects(&self) -> bool;

    /// Makes new links to these SSDs, each within `deadline`.
    fn link(&self, ssds: &[usize], deadline: Duration) -> Vec<Result<SsdAddress, Unreached>>;
}

/// Keep-alive timeout in Connect.
pub const KATO: Duration = Duration::from_secs(15);
/// Deadline of one admin command.
pub const ADMIN_DEADLINE: Duration = Duration::from_secs(5);
/// How long a session that begins waits for SSDs while it has reached another one.
const ROLL_CALL: Duration = Duration::from_secs(6);

/// An SSD that a channel does not reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Number of the SSD.
    pub ssd: usize,
    /// Why, in words.
    pub why: String,
}

/// Result of a wait for lost SSDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A new path is found that is not in use yet, or no SSD is missing any more.
    Found,
    /// The client uses a newer map.
    Moved,
    /// No later try can help, for this reason.
    Hopeless(String),
    /// The time is over.
    Late,
}

/// The path to one SSD.
#[derive(Debug)]
pub(crate) struct Path {
    address: SsdAddress,
    admin: HostQueue,
    /// A Keep Alive that is not answered.
    asked: Option<Asked>,
    /// A question for the fleet map that is not answered.
    map: Option<following::Question>,
    /// The I/O queues while they are connected.
    io: Vec<Weak<Lifeline>>,
}

impl Path {
    fn new(address: SsdAddress, admin: HostQueue) -> Self {
        Self { address, admin, asked: None, map: None, io: Vec::new() }
    }

    /// Gives up the I/O queues of the path.
    fn cut(&self) {
        self.io.iter().filter_map(Weak::upgrade).for_each(|lifeline| lifeline.cut());
    }
}

/// New paths to SSDs, by number.
pub type NewPaths = Vec<(usize, NewPath)>;

/// A new path to an SSD that is up.
#[derive(Debug)]
pub struct NewPath(Path);

/// Admin queues to the SSDs of an array.
#[derive(Debug)]
pub struct Session {
    client: ClientId,
    dialler: Arc<Dialler>,
    shared: Arc<Shared>,
    kernel_runs: Arc<AtomicBool>,
    _runtime: Runtime,
}

/// Tells which SSDs a session reaches.
#[derive(Clone, Debug)]
pub struct ReachableSsds {
    shared: Arc<Shared>,
    kernel_runs: Arc<AtomicBool>,
}

impl ReachableSsds {
    /// A bit for each SSD that can be reached. While a kernel runs, it has a whole queue pair to that SSD.
    /// Otherwise the next launch connects to it.
    pub fn now(&self) -> u64 {
        let next_too = !self.kernel_runs.load(Ordering::Relaxed);
        let reached =
            |inner: &Inner, ssd: usize| inner.paths.is_up(ssd) || next_too && inner.paths.is_found(ssd);
        let bit = |inner: &Inner, ssd: usize| u64::from(reached(inner, ssd)) << ssd;
        self.shared.look(|inner| (0..inner.found.len().min(64)).map(|ssd| bit(inner, ssd)).sum())
    }
}

impl Session {
    /// Connects admin queues as the client of `registration`, to all SSDs at once. SSDs that do not answer
    /// are left out, and tried again in the background.
    ///
    /// # Errors
    /// The first SSD's error, if none is reached.
    pub fn connect(
        node: &Node,
        registration: Registration,
        connector: Arc<dyn Connector>,
    ) -> Result<Self, NodeError> {
        let Registration { client, serial, secret } = registration;
        let host = Host { identity: Identity::Client(client), id: host_id(), serial };
        let (transport, executor) = (node.transport().clone(), node.soft_executor());
        let dialler = Arc::new(Dialler { transport, executor, host, secret, connector });
        let (ssds, room) = (dialler.connector.ssds(), dialler.connector.room());
        let paths = Paths::new(ssds, room, thread::PACE, dialler.connector.reconnects());
        let shared = Arc::new(Shared::new(paths));
        let runtime = Runtime::start(&shared, &dialler, node.runs());
        let session = Self { client, dialler, shared, kernel_runs: node.runs(), _runtime: runtime };
        session.shared.roll_call(ROLL_CALL)?;
        session.put_in_use(Vec::new());
        Ok(session)
    }

    /// From here on, if an SSD is found while a kernel runs, its queue pair of this channel is made anew
    /// beside the kernel.
    pub fn make_anew_for(&self, channel: &Arc<Channel>) {
        self.shared.change(|inner, _| inner.anew.channel = Arc::downgrade(channel));
    }

    /// The SSDs that this session reaches, now and later.
    pub fn reachable_ssds(&self) -> ReachableSsds {
        ReachableSsds { shared: Arc::clone(&self.shared), kernel_runs: Arc::clone(&self.kernel_runs) }
    }

    /// Dials all SSDs that are up once more, for new queue pairs to them. The new paths get no Keep Alive
    /// before they are in use, so no kernel may run until then. An SSD that is not reached is lost. Only if
    /// `deadline` is shorter than [`ADMIN_DEADLINE`] and has passed, the SSD keeps its path: it may be well.
    #[expect(clippy::disallowed_methods, reason = "a blocking call with a deadline in real time")]
    pub fn dial_anew(&self, _: &LaunchLock<'_>, deadline: Duration) -> NewPaths {
        let (begun, is_short) = (std::time::Instant::now(), deadline < ADMIN_DEADLINE);
        let up: Vec<usize> = self.shared.look(|inner| inner.up().collect());
        let mut new = Vec::new();
        self.dialler.dial(&up, deadline, |ssd, dialled| match dialled {
            Ok(path) => new.push((ssd, NewPath(path))),
            Err(e) if is_short && e.is_late(begun.elapsed() >= deadline) => {
                tracing::info!("SSD {ssd} keeps its path, as there was no time to make another one");
            }
            Err(e) => self.lose(ssd, &e.unreached().why),
        });
        new
    }

    /// Puts new paths in use: the found ones, and these. The I/O queues of the old paths end.
    pub fn put_in_use(&self, new: NewPaths) {
        let old = self.shared.change(|inner, now| inner.put_in_use(now, new));
        old.iter().for_each(Path::cut);
    }

    /// The path to an SSD is of no use any more. It is dialled again.
    pub fn lose(&self, ssd: usize, why: &str) {
        self.shared.change(|inner, now| inner.lose(now, ssd, why));
        self.shared.nudge();
    }

    /// Whether the admin queue to an SSD answers, as far as is known.
    pub fn is_up(&self, ssd: usize) -> bool {
        self.shared.look(|inner| inner.paths.is_up(ssd))
    }

    /// Whether an SSD that was lost answers again, and is not in use yet.
    pub fn has_found(&self) -> bool {
        self.shared.has_found()
    }

    /// The SSDs that are not up, and why.
    pub fn missing(&self) -> Vec<Missing> {
        let all = |inner: &Inner| {
            inner.paths.missing().map(|(ssd, why)| Missing { ssd, why: why.to_owned() }).collect()
        };
        self.shared.look(all)
    }

    /// Waits until an SSD that was lost is found.
    pub fn wait_found(&self, most: Duration) -> Wait {
        self.shared.wait_found(most)
    }

    /// The client of the session.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// The identity with which its queues connect.
    pub fn host(&self) -> Host {
        self.dialler.host
    }

    /// Data for the Connect of I/O queue `qid` to one SSD; `None` if the SSD is not up. I/O queues to an SSD
    /// must connect in the order in which their data was made.
    pub fn connect_data(&self, ssd: usize, qid: u16) -> Option<ConnectData> {
        self.with_queue(ssd, |queue| queue.connect_data(qid))
    }

    /// Number of SSDs that the array has, as far as this session has heard.
    pub fn ssds(&self) -> usize {
        self.shared.look(|inner| (0..inner.paths.len()).filter(|&ssd| !inner.paths.is_vacant(ssd)).count())
    }

    /// Ports of all SSDs, and of SSDs that may join. An SSD that is not up gets the port of another one.
    pub fn ports(&self) -> Vec<Port> {
        self.shared.look(Inner::ports)
    }

    /// Controller id on an SSD that is up, as I/O queues must name it.
    pub fn controller_id(&self, ssd: usize) -> Option<u16> {
        self.shared.look(|inner| Some(inner.in_use(ssd)?.admin.cntlid()))
    }

    /// Connects an I/O queue. It lives as long as the admin queue of its SSD.
    ///
    /// # Errors
    /// As [`Node::connect`]; the SSD is not up.
    pub fn connect_io(
        &self,
        node: &Node,
        queue: IoQueue,
        request: CmRequest,
    ) -> Result<Connection, NodeError> {
        self.connect_io_within(node, queue, request, CONNECT_DEADLINE)
    }

    /// As [`Self::connect_io`], with a deadline.
    pub(crate) fn connect_io_within(
        &self,
        node: &Node,
        queue: IoQueue,
        request: CmRequest,
        deadline: Duration,
    ) -> Result<Connection, NodeError> {
        let port = self.shared.look(|inner| Some(inner.in_use(queue.ssd)?.address.port));
        let lost = || NodeError::Queue { ssd: queue.ssd, cause: "the SSD is not up".into() };
        let connection = node.connect_within(queue, port.ok_or_else(lost)?, request, deadline)?;
        let lifeline = connection.lifeline();
        self.shared.change(|inner, _| inner.keep(queue.ssd, lifeline)).ok_or_else(lost)?;
        Ok(connection)
    }

    /// Runs `f` on the admin queue of an SSD; `None` where it is not up.
    pub fn with_queue<R>(&self, ssd: usize, f: impl FnOnce(&mut HostQueue) -> R) -> Option<R> {
        self.shared.change(|inner, now| inner.with_queue(now, ssd, f))
    }
}

/// Identifies this process to the SSDs. If two processes have one client id, the SSD hears the newer one
/// (protocol rule 4).
fn host_id() -> [u8; 16] {
    static ID: OnceLock<[u8; 16]> = OnceLock::new();
    // The operating system provides the hasher's keys.
    let random = || RandomState::new().hash_one(std::process::id()).to_le_bytes();
    *ID.get_or_init(|| {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&random());
        id[8..].copy_from_slice(&random());
        id
    })
}

/// Why a dial failed.
#[derive(Debug)]
pub(crate) enum NotDialled {
    /// There is no link.
    Link(Unreached),
    /// The SSD did not answer, or refused.
    Admin(ChannelError),
}

impl NotDialled {
    /// Whether the dial may have failed for want of time. `is_over`: its time was over.
    fn is_late(&self, is_over: bool) -> bool {
        match self {
            Self::Link(_) => is_over,
            Self::Admin(e) => matches!(e, ChannelError::Timeout { .. }),
        }
    }

    fn unreached(&self) -> Unreached {
        match self {
            Self::Link(unreached) => unreached.clone(),
            // A proof that fails fails again; an SSD that is not there yet, or slow, may answer later.
            Self::Admin(e) => {
                let for_good = matches!(e, ChannelError::Unproven { .. });
                let was_cut = matches!(e, ChannelError::Broken { .. } | ChannelError::Absent { .. });
                Unreached { why: e.to_string(), for_good, was_cut }
            }
        }
    }
}
