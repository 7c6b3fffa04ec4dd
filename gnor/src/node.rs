// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A GPU node: one device with one emulated HCA, attached to engines. Clients of one process share it.

pub use crate::error::NodeError;
use crate::growth::Growth;
use gnstor_fabric::device::{Device, DeviceError, Residency};
use gnstor_fabric::hca::agent::{AgentHca, ClientKernel, MAX_RINGS, Shape};
use gnstor_fabric::runtime::TransportHandle;
use gnstor_fabric::transport::{ConnId, Connect, ExecutorId, Port, Progress, REFUSED_NO_PEER};
use gnstor_proto::fabrics::CmRequest;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak, mpsc};
use std::time::Duration;

/// A GPU node.
#[derive(Debug)]
pub struct Node {
    /// A handle on the first engine. That one has the queue pairs in host memory, and the links to SSDs
    /// elsewhere.
    engine: TransportHandle,
    hca: AgentHca,
    /// For each ring pair: the transport that serves it, and its executor id there.
    rings: Vec<(TransportHandle, ExecutorId)>,
    soft: ExecutorId,
    channels: AtomicUsize,
    /// Pools that may ask for more memory.
    pools: Mutex<Vec<Weak<Growth>>>,
    /// Held during a launch, and while a channel connects anew.
    launches: Mutex<()>,
    /// Whether a kernel runs: only a reason for sessions to look more often.
    runs: Arc<AtomicBool>,
}

/// The exclusive right to launch. No other launch begins before it is dropped.
#[derive(Debug)]
pub struct LaunchLock<'a> {
    node: &'a Node,
    _alone: MutexGuard<'a, ()>,
}

/// A connection of a queue pair in device memory; it ends when it is dropped.
#[derive(Debug)]
pub struct Connection {
    line: Arc<Lifeline>,
}

/// Lets another part end a connection while it exists.
#[derive(Debug)]
pub(crate) struct Lifeline {
    engine: TransportHandle,
    id: ConnId,
}

impl Lifeline {
    /// Requests that wait end as flushed, and the queue pair is in error.
    pub(crate) fn cut(&self) {
        let id = self.id;
        self.engine.cast(move |e, now| e.give_up(now, id));
    }

    /// Progress of the connection; `None` if the engine does not answer.
    pub(crate) fn progress(&self) -> Option<Progress> {
        let id = self.id;
        self.engine.call(move |e, _| e.progress(id)).ok()
    }
}

impl Connection {
    /// As [`Lifeline::cut`].
    pub(crate) fn cut(&self) {
        self.line.cut();
    }

    pub(crate) fn lifeline(&self) -> Weak<Lifeline> {
        Arc::downgrade(&self.line)
    }

    pub(crate) fn line(&self) -> Arc<Lifeline> {
        Arc::clone(&self.line)
    }
}

pub(crate) const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// Interval at which pools are checked while kernels run. Getting memory takes longer.
const POOL_LOOK: Duration = Duration::from_micros(200);

/// A queue pair of a channel that must be connected.
#[derive(Clone, Copy, Debug)]
pub struct IoQueue {
    /// The pair of rings that serves it.
    pub ring: usize,
    /// Number of the queue pair.
    pub qpn: u32,
    /// Number of the SSD within its channel.
    pub ssd: usize,
}

impl Node {
    /// Attaches a device to the engines that were started together: a pair of rings, and a block of the
    /// agent, for each of them.
    ///
    /// # Errors
    /// Device and engine errors.
    pub fn new(
        engine: TransportHandle,
        device: &Arc<Device>,
        residency: Residency,
    ) -> Result<Self, NodeError> {
        let (hca, executors) = AgentHca::new(device, residency, engine.count().min(MAX_RINGS))?;
        let soft = engine.call(|e, _| e.add_soft())?;
        // This runs here and not on the engines' threads, which must answer soon.
        for region in engine.each(|e, _| e.regions())?.into_iter().flatten() {
            device.map(&region)?;
        }
        // A GPU has pinned all data of the SSDs, so their other memory may be allocated now, too.
        if device.kind() == "cuda" {
            engine.call(|e, _| e.own_memory())?.iter().for_each(|region| region.populate());
        }
        let mut node = Self {
            engine,
            hca,
            rings: Vec::new(),
            soft,
            channels: AtomicUsize::new(0),
            pools: Mutex::default(),
            launches: Mutex::default(),
            runs: Arc::default(),
        };
        // If a later one fails, dropping the node removes the earlier ones.
        for (number, executor) in executors.into_iter().enumerate() {
            let engine = node.engine.nth(number);
            let id = engine.call(move |e, _| e.add_agent(executor))?;
            node.rings.push((engine, id));
        }
        Ok(node)
    }

    /// The first engine.
    pub fn transport(&self) -> &TransportHandle {
        &self.engine
    }

    /// The HCA.
    pub fn hca(&self) -> &AgentHca {
        &self.hca
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        self.hca.device()
    }

    /// The first engine's name for queue pairs in host memory.
    pub fn soft_executor(&self) -> ExecutorId {
        self.soft
    }

    /// The pairs of rings for the queue pairs of a new channel, one for each port. Each SSD has its own part
    /// of the rings: the fewer transports share an SSD's lock, the faster it works. Channels rotate within
    /// that part. All links to SSDs elsewhere belong to the first engine.
    pub fn rings_for(&self, ports: impl ExactSizeIterator<Item = Port>) -> Vec<usize> {
        let channel = self.channels.fetch_add(1, Ordering::Relaxed);
        let (rings, ssds) = (self.rings.len(), ports.len());
        let ring = |(place, port)| match port {
            Port::Local(_) => part_of(place, ssds, rings, channel),
            Port::Remote { .. } => 0,
        };
        ports.enumerate().map(ring).collect()
    }

    /// Connects a queue pair in device memory with its SSD.
    ///
    /// # Errors
    /// [`NodeError::Queue`]: refused, or no answer in time.
    pub fn connect(&self, queue: IoQueue, port: Port, request: CmRequest) -> Result<Connection, NodeError> {
        self.connect_within(queue, port, request, CONNECT_DEADLINE)
    }

    /// Leaves a queue pair in error: what is posted to it is flushed.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub(crate) fn connect_to_none(&self, queue: IoQueue) -> Result<Connection, NodeError> {
        let IoQueue { ring, qpn, ssd } = queue;
        let (engine, executor) = self.rings[ring % self.rings.len()].clone();
        let id = engine.call(move |e, _| e.connect_to_none(executor, qpn))?;
        let none = || NodeError::Queue { ssd, cause: "there are too many connections".into() };
        Ok(Connection { line: Arc::new(Lifeline { engine, id: id.ok_or_else(none)? }) })
    }

    /// Resets this queue pair's queue state in the HCA. The queue pair has no connection. The answer comes
    /// while a kernel runs.
    pub(crate) fn begin_anew(&self, queue: IoQueue) -> Result<mpsc::Receiver<()>, NodeError> {
        let IoQueue { ring, qpn, .. } = queue;
        let (engine, executor) = self.rings[ring % self.rings.len()].clone();
        let (reply, answer) = mpsc::channel();
        engine.call(move |e, _| e.begin_anew(executor, qpn, reply))?;
        Ok(answer)
    }

    /// As [`Self::connect`], with this deadline.
    pub(crate) fn connect_within(
        &self,
        queue: IoQueue,
        port: Port,
        request: CmRequest,
        deadline: Duration,
    ) -> Result<Connection, NodeError> {
        let IoQueue { ring, qpn, ssd } = queue;
        let (engine, executor) = self.rings[ring % self.rings.len()].clone();
        let (reply, answer) = mpsc::channel();
        let id =
            engine.call(move |e, now| e.connect(now, Connect { executor, qpn, port, request }, reply))?;
        // If no answer comes in time, dropping this ends the connection: a late ACCEPT finds none.
        let connection = Connection { line: Arc::new(Lifeline { engine, id }) };
        let refused = |cause: String| Err(NodeError::Queue { ssd, cause });
        match answer.recv_timeout(deadline) {
            Ok(Ok(())) => Ok(connection),
            Ok(Err(REFUSED_NO_PEER)) => refused("no SSD listens there".into()),
            Ok(Err(reason)) => refused(format!("RDMA connection rejected, reason {reason}")),
            Err(_) => refused(format!("no answer within {deadline:?}")),
        }
    }

    /// Runs a client kernel beside the agent.
    ///
    /// # Errors
    /// As [`gnstor_fabric::device::Device::run`].
    pub fn launch(
        &self,
        kernel: ClientKernel,
        shape: Shape,
        args: u64,
        deadline: Duration,
    ) -> Result<(), DeviceError> {
        self.launch_lock().launch(kernel, shape, args, deadline)
    }

    /// Waits until no launch is in progress, and prevents others from beginning.
    pub fn launch_lock(&self) -> LaunchLock<'_> {
        LaunchLock { node: self, _alone: self.launches.lock().expect("no panic while held") }
    }

    /// Whether a kernel runs: it may end at any time.
    pub(crate) fn is_running(&self) -> bool {
        self.runs.load(Ordering::Relaxed)
    }

    /// Whether a kernel runs, now and later.
    pub(crate) fn runs(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.runs)
    }

    /// From here on answers this pool's requests.
    pub(crate) fn watch(&self, pool: &Arc<Growth>) {
        let mut pools = self.pools.lock().expect("no panic while held");
        pools.retain(|pool| pool.strong_count() != 0);
        pools.push(Arc::downgrade(pool));
    }

    /// Runs a launch with a thread beside it that answers the pools.
    fn with_growth<R>(&self, launch: impl FnOnce() -> R) -> R {
        let pools: Vec<Arc<Growth>> =
            self.pools.lock().expect("no panic while held").iter().filter_map(Weak::upgrade).collect();
        if pools.is_empty() {
            return launch();
        }
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let growing = scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    pools.iter().for_each(|pool| _ = pool.answer());
                    std::thread::park_timeout(POOL_LOOK);
                }
            });
            let result = launch();
            ended.store(true, Ordering::Relaxed);
            growing.thread().unpark();
            result
        })
    }

    /// Number of blocks of a client kernel that fit on the device at once, beside the agent. In a larger
    /// grid, blocks must not wait for each other.
    ///
    /// # Errors
    /// Driver errors.
    pub fn max_blocks(
        &self,
        kernel: &ClientKernel,
        threads: u32,
        smem_bytes: u32,
    ) -> Result<u32, DeviceError> {
        self.device().max_blocks(&kernel.beside_agent, threads, smem_bytes, self.hca.blocks())
    }

    /// As [`Self::launch`], for a grid whose blocks wait for each other. It is refused if they do not all
    /// fit.
    ///
    /// # Errors
    /// [`DeviceError::Kernel`] says how many fit.
    pub fn launch_together(
        &self,
        kernel: ClientKernel,
        shape: Shape,
        args: u64,
        deadline: Duration,
    ) -> Result<(), DeviceError> {
        let most = self.max_blocks(&kernel, shape.threads, shape.smem_bytes)?;
        if shape.blocks > most {
            let cause = format!("{} blocks do not fit beside the HCA's agent: at most {most}", shape.blocks);
            return Err(DeviceError::Kernel { kernel: kernel.beside_agent.name, cause });
        }
        self.launch(kernel, shape, args, deadline)
    }

    /// Removes the HCA from the engines, with all its connections. Tests use it to inject a fault.
    pub fn unplug(&self) {
        for (engine, executor) in self.rings.iter().cloned() {
            engine.cast(move |e, now| e.remove_executor(now, executor));
        }
    }
}

impl LaunchLock<'_> {
    /// As [`Node::launch`].
    ///
    /// # Errors
    /// As [`Node::launch`].
    pub fn launch(
        &self,
        kernel: ClientKernel,
        shape: Shape,
        args: u64,
        deadline: Duration,
    ) -> Result<(), DeviceError> {
        let node = self.node;
        let _expected = node.hca.expect_launch();
        for (engine, executor) in node.rings.iter().cloned() {
            engine.cast(move |e, now| e.calibrate(now, executor));
        }
        node.runs.store(true, Ordering::Relaxed);
        let ended = node.with_growth(|| node.hca.launch(kernel, shape, args, deadline));
        node.runs.store(false, Ordering::Relaxed);
        ended
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.unplug();
        let soft = self.soft;
        self.engine.cast(move |e, now| e.remove_executor(now, soft));
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let id = self.line.id;
        // The connection ends before the memory that its queue pair names does.
        let _ = self.line.engine.call(move |e, now| e.close(now, id));
    }
}

/// The ring for SSD `place` of `ssds` and channel number `channel`. Each SSD has an equal part of the rings,
/// which may begin or end within a ring. Channels rotate in it, so that all rings get the same number of
/// queue pairs.
fn part_of(place: usize, ssds: usize, rings: usize, channel: usize) -> usize {
    (place * rings + channel * ssds % rings) / ssds
}

#[cfg(test)]
mod tests;
