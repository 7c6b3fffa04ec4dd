// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client's control path to every SSD: one admin queue each, kept alive by a thread of its own.

use crate::node::{Node, NodeError};
use gnstor_fabric::engine::Port;
use gnstor_fabric::host_queue::HostQueue;
use gnstor_proto::fabrics::{Host, Identity};
use gnstor_proto::slba::ClientId;
use std::hash::{BuildHasher, RandomState};
use std::sync::mpsc::{self, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex, OnceLock};
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

/// Keep-alive timeout asked for at Connect.
pub const KATO: Duration = Duration::from_secs(15);
/// Deadline of one admin command.
pub const ADMIN_DEADLINE: Duration = Duration::from_secs(5);

/// Admin queues to every SSD of an array.
#[derive(Debug)]
pub struct Session {
    client: ClientId,
    addresses: Vec<SsdAddress>,
    queues: Arc<Mutex<Vec<HostQueue>>>,
    keep_alive: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Session {
    /// Connects admin queues as `client`.
    ///
    /// # Errors
    /// The first SSD's error.
    pub fn connect(node: &Node, client: ClientId, addresses: Vec<SsdAddress>) -> Result<Self, NodeError> {
        let host = Host { identity: Identity::Client(client), id: host_id() };
        let connect = |ssd: &SsdAddress| {
            HostQueue::connect(node.engine(), node.soft_half(), ssd.port, &ssd.subnqn, host, KATO, ADMIN_DEADLINE)
        };
        let queues = addresses.iter().map(connect).collect::<Result<Vec<_>, _>>()?;
        let queues = Arc::new(Mutex::new(queues));
        let keep_alive = Some(start_keep_alive(Arc::clone(&queues)));
        Ok(Self { client, addresses, queues, keep_alive })
    }

    /// Whose session it is.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// As whom its queues connect.
    pub fn host(&self) -> Host {
        Host { identity: Identity::Client(self.client), id: host_id() }
    }

    /// The SSDs.
    pub fn addresses(&self) -> &[SsdAddress] {
        &self.addresses
    }

    /// Controller id on each SSD, as I/O queues must name it.
    pub fn controller_ids(&self) -> Vec<u16> {
        self.queues.lock().expect("no panic while held").iter().map(HostQueue::cntlid).collect()
    }

    /// Runs `f` on the admin queue of one SSD.
    pub fn with_queue<R>(&self, ssd: usize, f: impl FnOnce(&mut HostQueue) -> R) -> R {
        f(&mut self.queues.lock().expect("no panic while held")[ssd])
    }
}

/// This process, as SSDs tell it from others: where two processes come to have one client id, the newer one is heard (protocol rule 4).
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
fn start_keep_alive(queues: Arc<Mutex<Vec<HostQueue>>>) -> (Sender<()>, JoinHandle<()>) {
    let (stop, stopped) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(KATO / 3) {
            for queue in queues.lock().expect("no panic while held").iter_mut() {
                // A session that ends waits for one SSD that does not answer, not for all of them.
                if let Err(TryRecvError::Disconnected) = stopped.try_recv() {
                    return;
                }
                if let Err(e) = queue.keep_alive(ADMIN_DEADLINE) {
                    tracing::warn!("keep-alive: {e}");
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
