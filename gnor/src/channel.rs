// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A channel: queue pairs to every SSD, completion queue, command slots and buffer pool, all in device memory
//! (paper 4.2).
//!
//! The CPU lays the memory out, registers it and connects the RDMA side; the device posts the receives and
//! sends Fabrics Connect. After that the CPU has no part in the channel's I/O.

use crate::abi::{self, ChannelAbi, Dumps, Pool, QueuePair};
use crate::error::NodeError;
use crate::growth::Growth;
use crate::layout::{Layout, Owner};
use crate::node::{Connection, IoQueue, Node};
use gnstor_fabric::device::{DeviceError, DeviceMem};
use gnstor_fabric::hca::abi::{ACCESS_LOCAL_WRITE, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE};
use gnstor_fabric::hca::agent::{AgentHca, DeviceCq, DeviceMr, DeviceQp};
use gnstor_fabric::mlx5;
use gnstor_fabric::transport::Port;
use std::mem::{offset_of, size_of};
use std::sync::{Arc, Mutex, MutexGuard};
use zerocopy::{FromBytes, IntoBytes};

/// Queue id of a channel's queues: one I/O queue per SSD and session.
pub(crate) const QID: u16 = 1;
/// Number of keys for the channel's own memory, queues and pool. They come first among its keys.
const OWN_KEYS: usize = 2;

/// Most blocks of a pool, a range of 4 GiB. Their words take 256 KiB.
const POOL_MOST: u32 = 1 << 16;

/// Whether a completion guarantees nothing about its data before a DUMP. For tests `GNSTOR_DUMPS=0` trusts
/// completions anyway, and `GNSTOR_DUMPS=1` never does.
fn wants_dumps(hca: &AgentHca) -> Result<bool, DeviceError> {
    let name = "GNSTOR_DUMPS";
    let value = std::env::var_os(name).unwrap_or_default();
    match value.to_str() {
        Some("") => Ok(hca.unordered().is_some()),
        Some("0") => {
            if hca.unordered().is_some() {
                tracing::warn!(
                    "{name}=0: reads may bring old bytes, as this HCA's writes to the device are not ordered"
                );
            }
            Ok(false)
        }
        Some("1") => Ok(true),
        _ => Err(DeviceError::Switch { name, value: value.display().to_string(), allowed: "0 or 1" }),
    }
}

/// A channel, ready for I/O.
#[derive(Debug)]
pub struct Channel {
    pub(crate) node: Arc<Node>,
    pub(crate) memory: Arc<DeviceMem>,
    pool: Arc<Growth>,
    pub(crate) layout: Layout,
    ssds: usize,
    pd: u32,
    /// The pair of rings of each SSD's queue pair.
    rings: Vec<usize>,
    keys: Mutex<Vec<u32>>,
    queues: Mutex<Queues>,
    /// Held while queue pairs are made anew.
    pub(crate) renewing: Mutex<()>,
}

/// A channel's objects at the HCA. They are replaced when the channel reconnects.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// Completion queue and first queue pair; `None` if they could not be replaced.
    pub(crate) made: Option<Made>,
    /// The connection of each queue, by the queue's number.
    pub(crate) connections: Vec<Option<Connection>>,
    pub(crate) lives: Vec<Life>,
}

/// State of an SSD's sets of queues (anew.rs).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Life {
    /// The set in use.
    pub(crate) set: usize,
    /// For each set: whether its last Connect beside a kernel was answered.
    pub(crate) answered: [bool; 2],
    /// Tries that have failed, and whose completions the device may not have taken yet.
    pub(crate) vain: u32,
    /// Whether the HCA's state of the unused set is unknown.
    pub(crate) stuck: bool,
}

/// A completion queue and the queue pairs that complete there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    cq: u32,
    pub(crate) first_qpn: u32,
}

/// Counters of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelStats {
    /// Reads that were sent to another replica after a refusal, or because a queue pair was broken.
    pub retries: u64,
    /// Responses that named no command in flight.
    pub protocol_errors: u32,
    /// Requests of `submit_async` that ended after the kernel with their callbacks had gone.
    pub uncalled: u32,
    /// Requests of `submit_async` that no thread has in hand.
    pub parked: u32,
    /// Slots and pool blocks still taken.
    pub leaked: u32,
}

/// Makes a channel's completion queue.
fn create_cq(hca: &AgentHca, layout: &Layout, memory: &DeviceMem) -> Result<u32, DeviceError> {
    // Entries start as invalid and owned by the other side, so that no poller takes one that the HCA has not
    // written.
    let mut invalid = vec![0u8; 64 << layout.cq_log];
    invalid.iter_mut().skip(63).step_by(64).for_each(|own| *own = 0xF1);
    memory.write(layout.cq, &invalid)?;
    let address = memory.address() + layout.cq as u64;
    hca.create_cq(DeviceCq { address, log_entries: layout.cq_log, dbr: None, in_host: false })
}

impl Channel {
    /// A channel to SSDs behind these ports, whose queue pairs are not connected. The first `known` exist,
    /// and the others may join. Its pool may grow up to `pool_bytes`.
    pub(crate) fn unconnected(
        node: &Arc<Node>,
        ports: Vec<Port>,
        known: usize,
        pool_bytes: usize,
    ) -> Result<Self, NodeError> {
        let ssds = ports.len();
        if ssds > abi::MAX_SSDS {
            return Err(NodeError::TooManySsds { ssds, max: abi::MAX_SSDS });
        }
        let most = u32::try_from(pool_bytes / abi::POOL_BLOCK as usize)
            .unwrap_or(u32::MAX)
            .clamp(abi::POOL_BLOCKS, POOL_MOST);
        let pool = Arc::new(Growth::new(node.device(), most)?);
        // Within one process no connection is lost; a channel that executes DUMPs looks at first sets only.
        let is_remote = ports.iter().all(|port| matches!(port, Port::Remote { .. }));
        let sets = if is_remote && !wants_dumps(node.hca())? { 2 } else { 1 };
        let layout = Layout::new((ssds, known), sets, pool.most());
        let memory = Arc::new(node.device().alloc(layout.bytes)?);
        let hca = node.hca();
        let pd = hca.alloc_pd();
        let rings = node.rings_for(ports.into_iter());
        let channel = Self {
            node: Arc::clone(node),
            memory,
            pool,
            layout,
            ssds,
            pd,
            rings,
            keys: Mutex::default(),
            queues: Mutex::default(),
            renewing: Mutex::default(),
        };
        // From here on any failure removes the queue pairs again.
        let made = channel.create_queues()?;
        let (own, data) = (ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE);
        let queue_key = channel.register_own(channel.memory.address(), layout.queue_bytes as u64, own)?;
        let pool_bytes = u64::from(channel.pool.most()) * u64::from(abi::POOL_BLOCK);
        let pool_key = channel.register_own(channel.pool.address(), pool_bytes, own | data)?;
        channel.write_structures(made, queue_key, pool_key)?;
        Ok(channel)
    }

    /// From here on the pool grows, if it may.
    pub(crate) fn let_pool_grow(&self) {
        if self.pool.most() > abi::POOL_BLOCKS {
            self.node.watch(&self.pool);
        }
    }

    fn register_own(&self, base: u64, bytes: u64, access: u32) -> Result<u32, NodeError> {
        let key = self.node.hca().register(DeviceMr { base, bytes, access, pd: self.pd })?;
        self.keys().push(key);
        Ok(key)
    }

    /// A completion queue, and a queue pair for each set of queues of each SSD.
    pub(crate) fn create_queues(&self) -> Result<Made, NodeError> {
        let hca = self.node.hca();
        let cq = create_cq(hca, &self.layout, &self.memory)?;
        let (base, pd) = (self.memory.address(), self.pd);
        let spec = |queue| {
            let ring = self.rings[queue % self.ssds];
            self.layout.queue_pair(base, queue, Owner { cq, pd, ring })
        };
        let specs: Vec<DeviceQp> = (0..self.layout.queues()).map(spec).collect();
        match hca.create_spared(&specs, specs.len() - self.ssds) {
            Ok(first_qpn) => {
                let made = Made { cq, first_qpn };
                self.queues().made = Some(made);
                Ok(made)
            }
            Err(e) => {
                hca.destroy_cq(cq);
                Err(e.into())
            }
        }
    }

    pub(crate) fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().expect("no panic while held")
    }

    /// The queue pair of an SSD.
    pub(crate) fn io_queue(&self, made: Made, ssd: usize) -> IoQueue {
        self.io_queue_at(made, ssd, ssd)
    }

    pub(crate) fn io_queue_at(&self, made: Made, ssd: usize, queue: usize) -> IoQueue {
        let qpn = made.first_qpn + u32::try_from(queue).expect("at most two for each SSD");
        IoQueue { ring: self.rings[ssd], qpn, ssd }
    }

    /// Takes connections and queue pairs away. The connections end before the memory they name does.
    pub(crate) fn destroy_queues(&self) -> Result<(), DeviceError> {
        let Queues { made, connections, .. } = std::mem::take(&mut *self.queues());
        drop(connections);
        made.map_or(Ok(()), |made| self.node.hca().destroy_qps(made.first_qpn, self.layout.queues(), made.cq))
    }

    fn write_structures(&self, made: Made, queue_key: u32, pool_key: u32) -> Result<(), NodeError> {
        let layout = &self.layout;
        let at = |offset: usize| self.memory.address() + offset as u64;
        let abi = ChannelAbi {
            cq_addr: at(layout.cq),
            capsules_addr: at(layout.capsules),
            connect_addr: at(layout.connect),
            queues_addr: at(layout.per_ssd),
            uars_addr: at(layout.uars),
            qps_addr: at(layout.qps),
            parked_addr: at(layout.parked),
            port_addr: self.node.hca().port_address(),
            dumps_addr: if wants_dumps(self.node.hca())? { at(layout.dumps) } else { 0 },
            waiting_addr: at(layout.waiting),
            queue_lkey: queue_key,
            ssds: u32::try_from(self.ssds).expect("at most MAX_SSDS"),
            first_qpn: made.first_qpn,
            cq_log: layout.cq_log,
            depth: layout.depth,
            qid: QID.into(),
            data: Pool {
                base: self.pool.address(),
                words_addr: at(layout.pool_words),
                host_addr: self.pool.words(),
                blocks: abi::POOL_BLOCKS,
                rkey: pool_key,
                most: self.pool.most(),
                ..Pool::default()
            },
            ..ChannelAbi::default()
        };
        self.memory.write(0, abi.as_bytes())?;
        for i in 0..self.ssds {
            self.memory.write(layout.qps + i * size_of::<QueuePair>(), QueuePair::default().as_bytes())?;
            self.memory.write(layout.dumps + i * size_of::<Dumps>(), Dumps::default().as_bytes())?;
        }
        Ok(())
    }

    /// Device address of the channel.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// The node.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// SSDs the channel reaches.
    pub fn ssds(&self) -> usize {
        self.ssds
    }

    /// Bytes of queues, and of the pool as it is now.
    pub fn memory_bytes(&self) -> (usize, usize) {
        (self.layout.queue_bytes, self.pool.blocks() as usize * abi::POOL_BLOCK as usize)
    }

    /// Registers device memory for this channel's I/O; returns the key. Waits until no kernel runs.
    ///
    /// # Errors
    /// When the HCA's table is full; driver errors.
    pub fn register(&self, memory: &DeviceMem) -> Result<u32, NodeError> {
        self.register_range(memory.address(), memory.len())
    }

    /// The same for memory of the caller. It must not change until it is deregistered or the channel is
    /// closed.
    ///
    /// # Errors
    /// If it is not memory of the channel's device; as [`Self::register`].
    pub fn register_range(&self, address: u64, bytes: usize) -> Result<u32, NodeError> {
        self.node.device().check_memory(address, bytes)?;
        self.register_own(
            address,
            bytes as u64,
            ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE,
        )
    }

    /// Forgets memory that was registered: its key opens nothing from here on. Waits until no kernel runs.
    /// False for a key that is none of this channel's.
    ///
    /// # Errors
    /// Driver errors.
    pub fn deregister(&self, key: u32) -> Result<bool, NodeError> {
        let mut keys = self.keys();
        // The keys of its queues and its pool stay.
        let Some(at) = keys.iter().skip(OWN_KEYS).position(|k| *k == key) else { return Ok(false) };
        self.node.hca().deregister(key)?;
        keys.remove(OWN_KEYS + at);
        Ok(true)
    }

    /// The key of the channel's own queues.
    pub(crate) fn queue_key(&self) -> u32 {
        self.keys()[0]
    }

    fn keys(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.keys.lock().expect("no panic while held")
    }

    /// The channel's counters; between launches.
    ///
    /// # Errors
    /// Driver errors.
    pub fn stats(&self) -> Result<ChannelStats, NodeError> {
        let mut raw = vec![0; size_of::<ChannelAbi>()];
        self.memory.read(0, &mut raw)?;
        let c = ChannelAbi::read_from_bytes(&raw).expect("the length matches");
        let mut words = vec![0; self.pool.most() as usize * 4];
        self.memory.read(self.layout.pool_words, &mut words)?;
        let ones = |bits: &[u32]| bits.iter().map(|w| w.count_ones()).sum::<u32>();
        let taken = words.iter().filter(|b| **b != 0).count();
        let leaked = ones(&c.slot_bits) + u32::try_from(taken).expect("small");
        Ok(ChannelStats {
            retries: c.retries.into(),
            protocol_errors: c.protocol_errors,
            uncalled: c.uncalled,
            parked: ones(&c.parked_bits),
            leaked,
        })
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.queues().connections.clear();
        let (hca, keys) = (self.node.hca(), std::mem::take(&mut *self.keys()));
        let gone = keys.into_iter().try_for_each(|key| hca.deregister(key));
        if let Err(e) = gone.and_then(|()| self.destroy_queues()) {
            // The HCA still has queue pairs there, and looks at them in the next launch.
            tracing::warn!(
                "a channel's memory is not given back, as its queue pairs cannot be destroyed: {e}"
            );
            std::mem::forget((Arc::clone(&self.memory), Arc::clone(&self.pool)));
        }
    }
}

const _: () = assert!(offset_of!(ChannelAbi, data) % 8 == 0 && size_of::<QueuePair>() == 32);
const _: () = assert!(mlx5::WQEBB == 64);
