// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A channel whose queues the CPU owns: how storage stacks without this library reach the same SSDs, for
//! comparisons.
//!
//! ```text
//!   CPU thread: place -> capsule, SEND, doorbell (host memory that the HCA sees)  ->  HCA -> SSD
//!               completion queue (host memory)                                    <-  HCA <- SSD
//!               any registered memory, of host or device                         <->  HCA <-> SSD: data
//! ```
//! The HCA, its queue formats and the SSDs are the ones that device channels use; the queues are in mapped
//! host memory. It works only while a kernel is resident (the emulated HCA lives as long as one does), from
//! one thread.

mod rings;

use gnstor_base::region::HostRegion;
use gnstor_fabric::hca::abi::{ACCESS_LOCAL_WRITE, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE};
use gnstor_fabric::hca::agent::{DeviceCq, DeviceMr, DeviceQp};
use gnstor_gnor::abi::{GN_NO_REPLICA, SLOTS};
use gnstor_gnor::node::{Connection, IoQueue, NodeError};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::fabrics::{self, CONNECT_DATA_BYTES, CmRequest, ConnectFields, fctype};
use gnstor_proto::nvme::{self, KeyedSgl, Sqe};
use gnstor_proto::placement::{Rows, group_of};
use gnstor_proto::slba::Vid;
use libgnstor::{Client, DeviceMem, Error, File, Rights, VolumeInfo};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// The session's device channel has queue 1.
const QID: u16 = 2;
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// One of this many SENDs asks for a completion, which retires the send queue.
const SIGNAL_EVERY: u32 = 16;
/// Blocks of one SSD's send queue, and its receives: no more commands are in flight to it.
const SQ_BLOCKS: u32 = 64;
const RQ_ENTRIES: u32 = 64;
/// Entries of the NVMe submission queue, counted from 0: twice as many as commands can be in flight, so that
/// it is never full.
const NVME_QUEUE_Z: u16 = 127;
const _: () = assert!(NVME_QUEUE_Z as u32 + 1 == 2 * RQ_ENTRIES);
/// `SAME_LOAD` of io.cuh, in commands.
const SAME_LOAD: u32 = 4;
const SQ_BYTES: usize = SQ_BLOCKS as usize * 64;
const RQ_BYTES: usize = RQ_ENTRIES as usize * 16;
/// Send queue, receive queue, responses, doorbell record, and a doorbell page.
const PER_SSD: usize = 16384;
const UAR: usize = 12288;
const _: () = assert!(SQ_BYTES + 2 * RQ_BYTES + 64 <= UAR);

/// One SSD's queue pair. Its counters use all 32 bits.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    sent: u32,
    retired: u32,
    posted: u32,
    in_flight: u32,
}

/// A command in flight.
#[derive(Clone, Copy, Debug)]
struct Slot {
    ssd: usize,
    user: u64,
}

/// A command that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ended {
    /// The caller's value.
    pub user: u64,
    /// Device status; see [`libgnstor::describe_status`].
    pub status: u32,
    /// DW0 of the completion.
    pub dw0: u32,
}

/// One command, for blocks within one chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    /// Write, not read.
    pub write: bool,
    /// First block.
    pub vba: u32,
    /// Blocks.
    pub blocks: u32,
    /// For a write the replica to write, for a read k for the k-th serving one.
    pub replica: usize,
    /// Sequence of a write, the same for all replicas.
    pub sequence: u64,
    /// Registered memory.
    pub address: u64,
    /// Remote key of the memory.
    pub key: u32,
    /// The caller's value, which the end of the command returns.
    pub user: u64,
}

/// A channel in host memory.
#[derive(Debug)]
pub(crate) struct HostChannel {
    client: Arc<Client>,
    memory: Arc<HostRegion>,
    /// Address of the memory for the HCA.
    base: u64,
    cq_log: u32,
    capsules: usize,
    connect_at: usize,
    queues_at: usize,
    queues: Vec<Queue>,
    slots: Vec<Option<Slot>>,
    consumed: u32,
    first_qpn: u32,
    cq: u32,
    pd: u32,
    keys: Vec<u32>,
    connections: Vec<Connection>,
    broken: Option<u32>,
}

impl HostChannel {
    /// Lays out and registers queues to every SSD, and connects them. [`Self::connect`] does the rest.
    ///
    /// # Errors
    /// Memory, driver and engine errors; an SSD that refuses; where writes to the device are not ordered.
    pub(crate) fn open(client: &Arc<Client>) -> Result<Self, Error> {
        let node = client.node();
        if node.hca().unordered().is_some() {
            return Err(Error::Unordered);
        }
        let ssds = client.ssds().len();
        let entries = (2 * SLOTS + ssds * RQ_ENTRIES as usize).next_power_of_two();
        let capsules = entries * 64;
        let connect_at = capsules + SLOTS * 64;
        let queues_at = (connect_at + ssds * CONNECT_DATA_BYTES).next_multiple_of(4096);
        let bytes = queues_at + ssds * PER_SSD;
        let memory = HostRegion::alloc(bytes)
            .map_err(|cause| Error::Os { what: format!("{bytes} bytes of host memory for queues"), cause })?;
        let base = node.device().map(&memory)?;
        for entry in 0..entries as u64 {
            memory.fill(entry * 64 + 63, 1, 0xF1); // invalid, and the other side's
        }
        let (hca, cq_log) = (node.hca(), entries.trailing_zeros());
        let pd = hca.alloc_pd();
        let cq = hca.create_cq(DeviceCq { address: base, log_entries: cq_log, dbr: None, in_host: true })?;
        let part = |ssd: usize, offset: usize| base + (queues_at + ssd * PER_SSD + offset) as u64;
        let spec = |ssd: usize, ring: usize| DeviceQp {
            sq: (part(ssd, 0), SQ_BLOCKS),
            rq: (part(ssd, SQ_BYTES), RQ_ENTRIES),
            dbr: part(ssd, SQ_BYTES + 2 * RQ_BYTES),
            uar: part(ssd, UAR),
            cq,
            pd,
            ring,
        };
        let rings = node.rings_for(client.session().ports().into_iter());
        let specs: Vec<DeviceQp> = rings.into_iter().enumerate().map(|(ssd, ring)| spec(ssd, ring)).collect();
        let first_qpn = hca.create_qps(&specs)?;
        let mut channel = Self {
            client: Arc::clone(client),
            memory,
            base,
            cq_log,
            capsules,
            connect_at,
            queues_at,
            queues: vec![Queue::default(); ssds],
            slots: vec![None; SLOTS],
            consumed: 0,
            first_qpn,
            cq,
            pd,
            keys: Vec::new(),
            connections: Vec::new(),
            broken: None,
        };
        let access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ;
        channel.keys.push(hca.register(DeviceMr { base, bytes: bytes as u64, access, pd })?);
        channel.post_receives();
        channel.connect_rdma(&specs)?;
        Ok(channel)
    }

    /// Registers device memory for this channel's commands; returns the key.
    ///
    /// # Errors
    /// When the HCA's table is full; driver errors.
    pub(crate) fn register(&mut self, memory: &DeviceMem) -> Result<u32, Error> {
        self.register_range(memory.address(), memory.len())
    }

    /// Registers host memory; returns the key and the address that commands name it by.
    ///
    /// # Errors
    /// As [`Self::register`].
    pub(crate) fn register_host(&mut self, memory: &Arc<HostRegion>) -> Result<(u32, u64), Error> {
        let address = self.client.node().device().map(memory)?;
        Ok((self.register_range(address, memory.len())?, address))
    }

    fn register_range(&mut self, base: u64, bytes: usize) -> Result<u32, Error> {
        let access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE;
        let mr = DeviceMr { base, bytes: bytes as u64, access, pd: self.pd };
        let key = self.client.node().hca().register(mr)?;
        self.keys.push(key);
        Ok(key)
    }

    fn connect_rdma(&mut self, specs: &[DeviceQp]) -> Result<(), Error> {
        let lost = |ssd| NodeError::Queue { ssd, cause: "the client does not reach the SSD".into() };
        for (ssd, spec) in specs.iter().enumerate() {
            let cntlid = self.client.session().controller_id(ssd).ok_or_else(|| lost(ssd))?;
            let request = CmRequest {
                qid: QID.into(),
                hrqsize: u16::try_from(RQ_ENTRIES).expect("small").into(),
                hsqsize_z: NVME_QUEUE_Z.into(),
                cntlid: cntlid.into(),
                ..CmRequest::default()
            };
            let qpn = self.first_qpn + u32::try_from(ssd).expect("few SSDs");
            let connection = self.client.session().connect_io(
                self.client.node(),
                IoQueue { ring: spec.ring, qpn, ssd },
                request,
            )?;
            self.connections.push(connection);
        }
        Ok(())
    }

    /// Fabrics Connect on every queue; while a kernel is resident.
    ///
    /// # Errors
    /// The SSD that refused, or did not answer.
    #[expect(clippy::disallowed_methods, reason = "a blocking wait with a deadline in real time")]
    pub(crate) fn connect(&mut self) -> Result<(), Error> {
        for ssd in 0..self.queues.len() {
            let at = self.connect_at + ssd * CONNECT_DATA_BYTES;
            let lost = || NodeError::Queue { ssd, cause: "the client does not reach the SSD".into() };
            let data = self.client.session().connect_data(ssd, QID).ok_or_else(lost)?;
            self.memory.write(at as u64, data.as_bytes());
            let fields =
                ConnectFields { qid: QID.into(), sqsize_z: NVME_QUEUE_Z.into(), ..ConnectFields::default() };
            let mut sqe = fabrics::command(fctype::CONNECT, &fields);
            let bytes = u32::try_from(CONNECT_DATA_BYTES).expect("a kilobyte");
            sqe.dptr = KeyedSgl::keyed(self.base + at as u64, bytes, self.keys[0]);
            let refused = |cause: String| Error::from(NodeError::Queue { ssd, cause });
            self.send(ssd, sqe, 0).map_err(|_| refused("its new queue is full".into()))?;
            let began = Instant::now();
            let mut answer = Vec::new();
            while answer.is_empty() {
                if began.elapsed() > CONNECT_DEADLINE {
                    return Err(refused(format!("Fabrics Connect: no answer within {CONNECT_DEADLINE:?}")));
                }
                if self.poll(&mut answer) == 0 {
                    std::thread::yield_now();
                }
            }
            if answer[0].status != 0 {
                let why = gnstor_gnor::abi::describe(answer[0].status, answer[0].dw0);
                return Err(refused(format!("Fabrics Connect: {why}")));
            }
        }
        Ok(())
    }

    /// The replica to which a read goes first. Of two, chosen in turn by `hint`, it is the one with less
    /// load, as in device code (`io.cuh`).
    pub(crate) fn idle_replica(&self, file: &File, vba: u32, hint: usize) -> usize {
        let load = |k| serving(file, vba, k).map_or(0, |ssd| self.queues[ssd].in_flight);
        if load(hint) > load(hint + 1) + SAME_LOAD { hint + 1 } else { hint }
    }

    /// Sends a command of an open file. `Ok(false)`: there is no room, poll first.
    ///
    /// # Errors
    /// The device status of a command that cannot be sent.
    pub(crate) fn submit(&mut self, file: &File, command: &Command) -> Result<bool, u32> {
        if let Some(status) = self.broken {
            return Err(status);
        }
        let Some(ssd) = place(file, command) else { return Err(GN_NO_REPLICA) };
        let info = file.info();
        let vid = u32::from(vid_of(info).ok_or(GN_NO_REPLICA)?.get());
        let [sequence_low, sequence_high] = [command.sequence, command.sequence >> 32];
        #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
        let (low, high) = (sequence_low as u32, sequence_high as u32);
        let sqe = Sqe {
            opcode: if command.write { nvme::io::WRITE } else { nvme::io::READ },
            flags: nvme::FLAGS_SGL,
            nsid: 1.into(),
            cdw2: file.fleet_map().wire_epoch().into(),
            cdw3: info.lease_epoch.into(),
            dptr: KeyedSgl::keyed(command.address, command.blocks * BLOCK_BYTES, command.key),
            cdw10: command.vba.into(),
            cdw11: (vid << 16 | u32::from(self.client.id())).into(),
            cdw12: (command.blocks - 1).into(),
            cdw14: low.into(),
            cdw15: high.into(),
            ..Sqe::default()
        };
        Ok(self.send(ssd, sqe, command.user).is_ok())
    }
}

fn vid_of(info: &VolumeInfo) -> Option<Vid> {
    Vid::new(u16::try_from(info.vid).ok()?)
}

/// The replicas of a block in order: the SSD of each, and whether it serves reads. `None`: the replica is
/// missing.
fn replicas(file: &File, vba: u32) -> Option<impl Iterator<Item = Option<(usize, bool)>>> {
    let (map, info) = (file.fleet_map(), file.info());
    let shift = u8::try_from((info.chunk_bytes / BLOCK_BYTES).trailing_zeros()).ok()?;
    let vid = vid_of(info)?;
    let group = group_of(vid, vba, shift, info.factor, map.groups());
    let row = map.row(group).take(info.replicas as usize);
    Some(row.map(|place| place.map(|member| (member.ssd.into(), !member.filling))))
}

/// The `k`-th SSD to read the block from.
fn serving(file: &File, vba: u32, k: usize) -> Option<usize> {
    let row = || replicas(file, vba).into_iter().flatten().flatten();
    let all = || row().filter(|(_, serves)| *serves).map(|(ssd, _)| ssd);
    all().nth(k % all().count().max(1))
}

/// The SSD of a command.
fn place(file: &File, command: &Command) -> Option<usize> {
    match command.write {
        true if file.rights() != Rights::Write => None,
        true => replicas(file, command.vba)?.nth(command.replica)?.map(|(ssd, _)| ssd),
        false => serving(file, command.vba, command.replica),
    }
}

impl Drop for HostChannel {
    fn drop(&mut self) {
        // The connections end before the memory they name does.
        self.connections.clear();
        let hca = self.client.node().hca();
        let gone = self.keys.iter().try_for_each(|key| hca.deregister(*key));
        if let Err(e) = gone.and_then(|()| hca.destroy_qps(self.first_qpn, self.queues.len(), self.cq)) {
            // The HCA still has queue pairs there, and looks at them in the next launch.
            tracing::warn!(
                "a channel's memory is not given back, as its queue pairs cannot be destroyed: {e}"
            );
            std::mem::forget(Arc::clone(&self.memory));
        }
    }
}
