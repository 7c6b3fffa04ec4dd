// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client's control path to every SSD: one admin queue each, which a thread keeps alive. An SSD that
//! falls silent may have acknowledged every command of an I/O queue, so that nothing there can fail. So the
//! heartbeat decides: if an admin queue breaks, the session gives up the I/O queues of its SSD too.
//!
//! A path that broke is replaced by a new one: [`Session::dial`] and [`Session::adopt`]. The new admin queue
//! is of the same host, with the same serial and secret, and authenticates anew.

use crate::error::NodeError;
use crate::node::{CONNECT_DEADLINE, Connection, IoQueue, Lifeline, Node};
use gnstor_auth::Secret;
use gnstor_fabric::admin::ChannelError;
use gnstor_fabric::host_queue::{Asked, Credentials, HostQueue, SsdPath};
use gnstor_fabric::transport::Port;
use gnstor_proto::fabrics::{CmRequest, ConnectData, Host, Identity};
use gnstor_proto::slba::ClientId;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How to reach an SSD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SsdAddress {
    /// Where it is, seen from the node's engine.
    pub port: Port,
    /// Its NQN.
    pub subnqn: String,
}

/// What the daemon gave a client when it registered.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Its id.
    pub client: ClientId,
    /// Number of the registration; 0 where the SSDs ask for no proof.
    pub serial: u64,
    /// Its secret; none where the SSDs ask for no proof.
    pub secret: Option<Secret>,
}

/// Keep-alive timeout asked for at Connect.
pub const KATO: Duration = Duration::from_secs(15);
/// From one Keep Alive to the next. It is well below a request's deadline: a request to a lost SSD ends
/// with the connection, and its error names the SSD.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Deadline of one admin command.
pub const ADMIN_DEADLINE: Duration = Duration::from_secs(5);

/// What leads to one SSD.
#[derive(Debug)]
struct Path {
    address: SsdAddress,
    admin: HostQueue,
    /// The I/O queues, as long as they are connected.
    io: Vec<Weak<Lifeline>>,
}

impl Path {
    /// Gives up its I/O queues.
    fn cut(&self) {
        self.io.iter().filter_map(Weak::upgrade).for_each(|lifeline| lifeline.cut());
    }
}

/// Admin queues to every SSD of an array.
#[derive(Debug)]
pub struct Session {
    client: ClientId,
    host: Host,
    secret: Option<Secret>,
    paths: Arc<Mutex<Vec<Path>>>,
    /// Whether the heartbeat found a path that is broken.
    is_hurt: Arc<AtomicBool>,
    keep_alive: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Session {
    /// Connects admin queues as the client of `registration`.
    ///
    /// # Errors
    /// The first SSD's error.
    pub fn connect(
        node: &Node,
        registration: Registration,
        addresses: Vec<SsdAddress>,
    ) -> Result<Self, NodeError> {
        let Registration { client, serial, secret } = registration;
        let host = Host { identity: Identity::Client(client), id: host_id(), serial };
        let mut session =
            Self { client, host, secret, paths: Arc::default(), is_hurt: Arc::default(), keep_alive: None };
        for address in addresses {
            let admin = session.dial(node, &address, ADMIN_DEADLINE)?;
            session.paths().push(Path { address, admin, io: Vec::new() });
        }
        session.keep_alive = Some(start_keep_alive(Arc::clone(&session.paths), Arc::clone(&session.is_hurt)));
        Ok(session)
    }

    /// Connects a new admin queue to one SSD, and authenticates. The session goes on with what it has until
    /// [`Self::adopt`]: several queues of one host stand side by side.
    ///
    /// # Errors
    /// The SSD refused, or did not answer within `deadline`.
    pub fn dial(
        &self,
        node: &Node,
        address: &SsdAddress,
        deadline: Duration,
    ) -> Result<HostQueue, ChannelError> {
        let path = SsdPath {
            transport: node.transport(),
            executor: node.soft_executor(),
            port: address.port,
            subnqn: &address.subnqn,
        };
        let who = Credentials { host: self.host, secret: self.secret.clone() };
        HostQueue::connect(&path, who, KATO, deadline)
    }

    /// Takes a new admin queue in place of the one to this SSD. The I/O queues of the old one end.
    pub fn adopt(&self, ssd: usize, address: SsdAddress, admin: HostQueue) {
        let old = std::mem::replace(&mut self.paths()[ssd], Path { address, admin, io: Vec::new() });
        old.cut();
        self.is_hurt.store(false, Ordering::Relaxed);
    }

    /// Whether the admin queue to an SSD answers, as far as is known.
    pub fn is_up(&self, ssd: usize) -> bool {
        !self.paths()[ssd].admin.is_broken()
    }

    /// Whether the last heartbeat found a path that is broken.
    pub fn is_hurt(&self) -> bool {
        // Only a reason to look: a heartbeat that is missed here is seen a second later.
        self.is_hurt.load(Ordering::Relaxed)
    }

    fn paths(&self) -> MutexGuard<'_, Vec<Path>> {
        self.paths.lock().expect("no panic while held")
    }

    /// Whose session it is.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// The identity with which its queues connect.
    pub fn host(&self) -> Host {
        self.host
    }

    /// Data of the Connect of I/O queue `qid` to one SSD. I/O queues to an SSD connect in the order in which
    /// their data are made.
    pub fn connect_data(&self, ssd: usize, qid: u16) -> ConnectData {
        self.with_queue(ssd, |queue| queue.connect_data(qid))
    }

    /// The SSDs.
    pub fn addresses(&self) -> Vec<SsdAddress> {
        self.paths().iter().map(|path| path.address.clone()).collect()
    }

    /// Controller id on each SSD, as I/O queues must name it.
    pub fn controller_ids(&self) -> Vec<u16> {
        self.paths().iter().map(|path| path.admin.cntlid()).collect()
    }

    /// Connects an I/O queue. It lives as long as the admin queue of its SSD.
    ///
    /// # Errors
    /// As [`Node::connect`].
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
        let port = self.paths()[queue.ssd].address.port;
        let connection = node.connect_within(queue, port, request, deadline)?;
        let mut paths = self.paths();
        let io = &mut paths[queue.ssd].io;
        io.retain(|lifeline| lifeline.strong_count() > 0);
        io.push(connection.lifeline());
        Ok(connection)
    }

    /// Runs `f` on the admin queue of one SSD.
    pub fn with_queue<R>(&self, ssd: usize, f: impl FnOnce(&mut HostQueue) -> R) -> R {
        f(&mut self.paths()[ssd].admin)
    }
}

/// This process, as SSDs tell it from others: where two processes come to have one client id, the newer one
/// is heard (protocol rule 4).
fn host_id() -> [u8; 16] {
    static ID: OnceLock<[u8; 16]> = OnceLock::new();
    // The hasher's keys come from the operating system.
    let random = || RandomState::new().hash_one(std::process::id()).to_le_bytes();
    *ID.get_or_init(|| {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&random());
        id[8..].copy_from_slice(&random());
        id
    })
}

#[expect(clippy::disallowed_methods, reason = "the keep-alive thread is the runtime part of this module")]
fn start_keep_alive(paths: Arc<Mutex<Vec<Path>>>, is_hurt: Arc<AtomicBool>) -> (Sender<()>, JoinHandle<()>) {
    let (stop, stopped) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(HEARTBEAT) {
            let mut paths = paths.lock().expect("no panic while held");
            // All are asked before one is waited for: an SSD that does not answer keeps no other one waiting.
            let asked: Vec<Option<Asked>> =
                paths.iter_mut().map(|path| path.admin.ask_alive().ok()).collect();
            let mut hurt = false;
            for (path, asked) in paths.iter_mut().zip(asked) {
                // A session that ends waits for one SSD that does not answer, not for all of them.
                if let Err(TryRecvError::Disconnected) = stopped.try_recv() {
                    return;
                }
                let alive = asked.map(|asked| path.admin.answer_alive(asked, ADMIN_DEADLINE));
                if let Some(Err(e)) = &alive {
                    tracing::warn!("keep-alive: {e}");
                }
                if !matches!(alive, Some(Ok(()))) {
                    hurt = true;
                    path.cut();
                }
            }
            is_hurt.store(hurt, Ordering::Relaxed);
        }
    });
    (stop, thread)
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.keep_alive.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}
