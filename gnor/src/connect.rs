// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The connections of a channel: RDMA by the CPU, Fabrics Connect by a kernel. A channel whose connections
//! broke connects anew between two launches.
//!
//! ```text
//!   broken --cut--> all flushed --launch (libgnstor drains)--> nothing in flight --reconnect--> connected
//! ```

use crate::abi::{self, ChannelAbi, ConnectArgs, QueuePair};
use crate::channel::{Channel, Life, QID};
use crate::error::NodeError;
use crate::layout::nvme_queue_entries;
use crate::node::{Connection, LaunchLock, Node};
use crate::session::Session;
use gnstor_fabric::device::Kernel;
use gnstor_fabric::hca::agent::{ClientKernel, Shape};
use gnstor_proto::fabrics::{CNTLID_ANY, CONNECT_DATA_BYTES, CmRequest};
use std::ffi::c_void;
use std::mem::{offset_of, size_of};
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

#[expect(unsafe_code, reason = "the kernel's entries for the CPU execution")]
mod entry {
    use std::ffi::c_void;
    unsafe extern "C" {
        pub(super) fn gn_channel_connect(launch: *mut c_void);
        pub(super) fn gn_channel_connect_one_grid(launch: *mut c_void);
    }
}

#[expect(unsafe_code, reason = "forwards to the C++ entry")]
unsafe extern "C" fn connect_entry(launch: *mut c_void) {
    // SAFETY: called by the CPU runtime with the launch's argument.
    unsafe { entry::gn_channel_connect(launch) }
}

#[expect(unsafe_code, reason = "forwards to the C++ entry")]
unsafe extern "C" fn connect_one_grid_entry(launch: *mut c_void) {
    // SAFETY: called by the CPU runtime with the launch's argument.
    unsafe { entry::gn_channel_connect_one_grid(launch) }
}

fn connect_kernel() -> ClientKernel {
    let image = include_bytes!("../cuda/gnor.fatbin");
    ClientKernel {
        beside_agent: Kernel { name: "gn_channel_connect", image, host: connect_entry },
        one_grid: Kernel { name: "gn_channel_connect_one_grid", image, host: connect_one_grid_entry },
    }
}

impl Channel {
    /// Sets a channel up and connects it to every SSD of the session that is up. Its pool may grow up to
    /// `pool_bytes`.
    ///
    /// # Errors
    /// [`NodeError`] of the first SSD, where none can be connected.
    pub fn open(node: &Arc<Node>, session: &Session, pool_bytes: usize) -> Result<Self, NodeError> {
        #[expect(clippy::disallowed_methods, reason = "said in a log")]
        let begun = std::time::Instant::now();
        let channel = Self::unconnected(node, session.ports(), session.ssds(), pool_bytes)?;
        channel.connect(session)?;
        channel.let_pool_grow();
        tracing::debug!(
            "a channel with room for {} SSDs is open after {:?}",
            channel.ssds(),
            begun.elapsed()
        );
        Ok(channel)
    }

    /// Connects the queue pairs of a new channel.
    fn connect(&self, session: &Session) -> Result<(), NodeError> {
        let lock = self.node.launch_lock();
        let failed = self.connect_some(&lock, session, CONNECT_DEADLINE)?;
        let none_is_up = (0..self.ssds()).all(|ssd| !session.is_up(ssd));
        failed.into_iter().next().filter(|_| none_is_up).map_or(Ok(()), |(_, cause)| Err(cause))
    }

    /// Connects the queue pairs to the SSDs that are up, and leaves the others in error. Returns what
    /// failed: those queue pairs are in error, too, and the session has lost those SSDs.
    fn connect_some(
        &self,
        lock: &LaunchLock<'_>,
        session: &Session,
        deadline: Duration,
    ) -> Result<Vec<(usize, NodeError)>, NodeError> {
        let mut failed = Vec::new();
        let made = self.queues().made.expect("made before");
        let mut queues = self.queues();
        queues.connections = std::iter::repeat_with(|| None).take(self.layout.queues()).collect();
        queues.lives = vec![Life::default(); self.ssds()];
        drop(queues);
        let mut wanted = vec![false; self.ssds()];
        for (ssd, wanted) in wanted.iter_mut().enumerate() {
            let Some(data) = session.connect_data(ssd, QID) else { continue };
            self.memory.write(self.layout.connect + ssd * CONNECT_DATA_BYTES, data.as_bytes())?;
            *wanted = true;
        }
        for (ssd, &wanted) in wanted.iter().enumerate() {
            let queue = self.io_queue(made, ssd);
            let connected = if wanted {
                session.connect_io_within(&self.node, queue, self.request(session, ssd), deadline)
            } else {
                self.node.connect_to_none(queue)
            };
            let connection = match connected {
                Ok(connection) => connection,
                Err(cause) => {
                    failed.push((ssd, cause));
                    self.node.connect_to_none(queue)?
                }
            };
            self.queues().connections[ssd] = Some(connection);
        }
        for (ssd, cause) in self.connect_fabrics(lock, deadline)? {
            self.queues().connections[ssd].iter().for_each(Connection::cut);
            if wanted[ssd] && failed.iter().all(|(other, _)| *other != ssd) {
                failed.push((ssd, NodeError::Queue { ssd, cause }));
            }
        }
        failed.iter().for_each(|(ssd, cause)| session.lose(*ssd, &cause.to_string()));
        Ok(failed)
    }

    fn request(&self, session: &Session, ssd: usize) -> CmRequest {
        CmRequest {
            qid: QID.into(),
            hrqsize: u16::try_from(self.layout.depth).expect("small").into(),
            hsqsize_z: u16::try_from(nvme_queue_entries(self.layout.depth) - 1).expect("small").into(),
            // An SSD that was lost meanwhile knows no such controller.
            cntlid: session.controller_id(ssd).unwrap_or(CNTLID_ANY).into(),
            ..CmRequest::default()
        }
    }

    /// Has the device post the receives and send Fabrics Connect to every SSD. Returns the SSDs that it did
    /// not connect to, and why.
    fn connect_fabrics(
        &self,
        lock: &LaunchLock<'_>,
        deadline: Duration,
    ) -> Result<Vec<(usize, String)>, NodeError> {
        let timeout_ns = u64::try_from(deadline.as_nanos()).expect("some seconds");
        let args = ConnectArgs { channel: self.memory.address(), timeout_ns, ..ConnectArgs::default() };
        let memory = self.node.device().alloc(size_of::<ConnectArgs>())?;
        memory.write(0, args.as_bytes())?;
        let shape = Shape { blocks: 1, threads: 32, smem_bytes: 0 };
        lock.launch(connect_kernel(), shape, memory.address(), deadline + CONNECT_DEADLINE)?;
        let mut raw = vec![0; size_of::<ConnectArgs>()];
        memory.read(0, &mut raw)?;
        let args = ConnectArgs::read_from_bytes(&raw).expect("the length matches");
        let cause = |ssd: usize| {
            (ssd, format!("Fabrics Connect: {}", abi::describe(args.status[ssd], args.dw0[ssd])))
        };
        Ok((0..self.ssds()).filter(|&ssd| args.status[ssd] != 0).map(cause).collect())
    }

    /// The SSDs whose queue pair is in error; between launches.
    ///
    /// # Errors
    /// Driver errors.
    pub fn broken(&self) -> Result<Vec<bool>, NodeError> {
        let mut raw = vec![0; self.ssds() * size_of::<QueuePair>()];
        self.memory.read(self.layout.qps, &mut raw)?;
        let pairs = raw.chunks_exact(size_of::<QueuePair>());
        Ok(pairs.map(|raw| QueuePair::read_from_bytes(raw).is_ok_and(|pair| pair.error != 0)).collect())
    }

    /// Gives up all connections. With the next launch every command in flight ends as flushed.
    pub fn cut(&self) {
        self.queues().connections.iter().flatten().for_each(Connection::cut);
    }

    /// Makes the queue pairs anew, and connects those whose SSDs are up. The others are in error from then
    /// on. Nothing of the channel may be in flight: its requests have ended after [`Self::cut`]. Address,
    /// keys and pool stay the same. Returns the number of SSDs that it reaches.
    ///
    /// # Errors
    /// Driver errors: the channel is unusable then.
    pub fn reconnect(
        &self,
        lock: &LaunchLock<'_>,
        session: &Session,
        deadline: Duration,
    ) -> Result<usize, NodeError> {
        let layout = &self.layout;
        let _alone = self.renewing();
        self.destroy_queues()?;
        // Queue pairs and doorbells still have the state of the old connections. The lists of waiting
        // commands lie between them.
        self.memory.write(layout.qps, &vec![0; layout.parked - layout.qps])?;
        self.memory.write(layout.per_ssd, &vec![0; layout.pool_words - layout.per_ssd])?;
        let made = self.create_queues()?;
        self.memory.write(offset_of!(ChannelAbi, first_qpn), &made.first_qpn.to_le_bytes())?;
        self.memory.write(offset_of!(ChannelAbi, cq_word), &0u32.to_le_bytes())?;
        for (_, cause) in self.connect_some(lock, session, deadline.min(CONNECT_DEADLINE))? {
            tracing::warn!("connecting anew: {cause}");
        }
        Ok((0..self.ssds()).filter(|&ssd| session.is_up(ssd)).count())
    }
}
