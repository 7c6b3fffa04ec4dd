// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client's control path to every SSD: one admin queue each, which a thread keeps alive. An SSD that
//! falls silent may have acknowledged every command of an I/O queue, so that nothing there can fail. So the
//! heartbeat decides: if an admin queue breaks, the session gives up the I/O queues of its SSD too.

use crate::error::NodeError;
use crate::node::{Connection, IoQueue, Lifeline, Node};
use gnstor_auth::Secret;
use gnstor_fabric::host_queue::{Asked, Credentials, HostQueue, SsdPath};
use gnstor_fabric::transport::Port;
use gnstor_proto::fabrics::{CmRequest, ConnectData, Host, Identity};
use gnstor_proto::slba::ClientId;
use std::hash::{BuildHasher, RandomState};
use std::sync::mpsc::{self, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex, OnceLock, Weak};
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
    admin: HostQueue,
    /// The I/O queues, as long as they are connected.
    io: Vec<Weak<Lifeline>>,
}

/// Admin queues to every SSD of an array.
#[derive(Debug)]
pub struct Session {
    client: ClientId,
    host: Host,
    addresses: Vec<SsdAddress>,
    paths: Arc<Mutex<Vec<Path>>>,
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
        let connect = |ssd: &SsdAddress| {
            HostQueue::connect(
                &SsdPath {
                    transport: node.transport(),
                    executor: node.soft_executor(),
                    port: ssd.port,
                    subnqn: &ssd.subnqn,
                },
                Credentials { host, secret: secret.clone() },
                KATO,
                ADMIN_DEADLINE,
            )
        };
        let path = |admin| Path { admin, io: Vec::new() };
        let paths = addresses.iter().map(|ssd| connect(ssd).map(path)).collect::<Result<Vec<_>, _>>()?;
        let paths = Arc::new(Mutex::new(paths));
        let keep_alive = Some(start_keep_alive(Arc::clone(&paths)));
        Ok(Self { client, host, addresses, paths, keep_alive })
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
    pub fn addresses(&self) -> &[SsdAddress] {
        &self.addresses
    }

    /// Controller id on each SSD, as I/O queues must name it.
    pub fn controller_ids(&self) -> Vec<u16> {
        self.paths.lock().expect("no panic while held").iter().map(|path| path.admin.cntlid()).collect()
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
        let connection = node.connect(queue, self.addresses[queue.ssd].port, request)?;
        let mut paths = self.paths.lock().expect("no panic while held");
        let io = &mut paths[queue.ssd].io;
        io.retain(|lifeline| lifeline.strong_count() > 0);
        io.push(connection.lifeline());
        Ok(connection)
    }

    /// Runs `f` on the admin queue of one SSD.
    pub fn with_queue<R>(&self, ssd: usize, f: impl FnOnce(&mut HostQueue) -> R) -> R {
        f(&mut self.paths.lock().expect("no panic while held")[ssd].admin)
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
fn start_keep_alive(paths: Arc<Mutex<Vec<Path>>>) -> (Sender<()>, JoinHandle<()>) {
    let (stop, stopped) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(HEARTBEAT) {
            let mut paths = paths.lock().expect("no panic while held");
            // All are asked before one is waited for: an SSD that does not answer keeps no other one waiting.
            let asked: Vec<Option<Asked>> =
                paths.iter_mut().map(|path| path.admin.ask_alive().ok()).collect();
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
                    path.io.iter().filter_map(Weak::upgrade).for_each(|lifeline| lifeline.cut());
                }
            }
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
