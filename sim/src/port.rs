// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clients' end of an engine: a queue-pair executor that moves tokens instead of data.
//!
//! ```text
//!   client --send--> requests --Up--> engine          an RDMA READ of a block brings its token
//!   client <--take-- arrived  <-Down-- engine          an RDMA WRITE of a block delivers the token it has
//! ```
//! The firmware knows only the sum of a block's data. So the port reports a token as the sum of a written
//! block: a function of the client, the block and the write's sequence. The firmware keeps the token, and
//! returns it when the block is read. A client that gets another token has read the data of another block or
//! of another write.

use gnstor_base::region::{HostRegion, LocalRef, RegionId};
use gnstor_fabric::hca::abi::COPY_OK;
use gnstor_fabric::hca::{Copied, Down, Operation, QpExecutor, Up, WorkRequest};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::checksum::block_sum;
use gnstor_proto::nvme::{Cqe, Sqe};
use gnstor_proto::placement::mix64;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zerocopy::IntoBytes;

/// What an engine sends to a queue pair.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Arrived {
    /// A response.
    Response(Cqe),
    /// A block of a read, with the address of its destination and its token.
    Block { address: u64, token: u32 },
    /// All work requests up to the one with this index are done.
    Retired { index: u16 },
    /// The queue pair has failed.
    Broken,
}

/// The token of the block at `address` in the memory of the client that owns `qpn`.
pub(crate) fn token(qpn: u32, address: u64) -> u32 {
    u32::try_from(mix64(address ^ mix64(u64::from(qpn))) >> 32).expect("32 bits")
}

/// Memory of a host, for queues with real bytes.
pub(crate) type Memory = Arc<Mutex<Vec<u8>>>;

pub(crate) fn memory(bytes: usize) -> Memory {
    Arc::new(Mutex::new(vec![0; bytes]))
}

pub(crate) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The block that a client writes where SSDs copy blocks from each other: their sums must be right then.
fn page(qpn: u32, address: u64) -> [u8; BLOCK_BYTES as usize] {
    let mut page = [0; BLOCK_BYTES as usize];
    page[..8].copy_from_slice(&mix64(address ^ mix64(u64::from(qpn))).to_le_bytes());
    page
}

/// The sum under which the firmware keeps the block at `address`: a token, or the sum of real bytes.
pub(crate) fn sum_of(is_real: bool, qpn: u32, address: u64) -> u32 {
    if is_real { block_sum(&page(qpn, address)) } else { token(qpn, address) }
}

#[derive(Debug, Default)]
struct Inner {
    up: VecDeque<Up>,
    arrived: VecDeque<(u32, Arrived)>,
    /// Real bytes, for the commands that set up the world.
    data: Vec<u8>,
    regions: Vec<Arc<HostRegion>>,
    /// Memory of the queue pairs that move real bytes.
    memories: BTreeMap<u32, Memory>,
    /// Clients write real blocks.
    is_real: bool,
}

/// The clients' end of the port. The engine has the other end, on the same thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Port(Arc<Mutex<Inner>>);

impl Port {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.0)
    }

    /// Posts a command on queue pair `qpn` as its send request number `index`.
    pub(crate) fn send(&self, qpn: u32, index: u16, signalled: bool, sqe: &Sqe) {
        let mut capsule = [0; 64];
        capsule.copy_from_slice(sqe.as_bytes());
        let operation = Operation::Send { bytes: 64, capsule };
        let request = WorkRequest { stamp_ns: 0, client_stamp: 0, qpn, index, signalled, operation };
        self.lock().up.push_back(Up::Request(request));
    }

    /// Sets the data of the next command that brings real bytes.
    pub(crate) fn set_data(&self, data: &[u8]) {
        self.lock().data = data.to_vec();
    }

    /// The queue pair moves real bytes from now on: to and from this memory. `None`: not any more.
    pub(crate) fn lend(&self, qpn: u32, memory: Option<Memory>) {
        match memory {
            Some(memory) => self.lock().memories.insert(qpn, memory),
            None => self.lock().memories.remove(&qpn),
        };
    }

    /// Clients write real blocks from now on.
    pub(crate) fn move_real_blocks(&self) {
        self.lock().is_real = true;
    }

    /// Whether the engine has yet to take requests or ends of copies.
    pub(crate) fn has_requests(&self) -> bool {
        !self.lock().up.is_empty()
    }

    /// Moves all arrivals, with their queue pairs, into an empty list.
    pub(crate) fn take(&self, into: &mut VecDeque<(u32, Arrived)>) {
        std::mem::swap(&mut self.lock().arrived, into);
    }
}

impl Inner {
    fn copied(&mut self, qpn: u32, tag: u32, sum: u32) {
        self.up.push_back(Up::Copied(Copied { qpn, tag, status: COPY_OK, sum }));
    }

    /// Brings the data of the queue pair's owner to the SSD: real bytes, or the token of a block.
    fn fetch(&mut self, qpn: u32, local: LocalRef, address: u64) -> u32 {
        if !self.data.is_empty() {
            let bytes = self.data.len().min(local.bytes as usize);
            if let Some(region) = self.regions.iter().find(|region| region.id() == local.region) {
                region.write(local.offset, &self.data[..bytes]);
            }
            return 0;
        }
        if let Some(memory) = self.memories.get(&qpn).cloned() {
            let memory = lock(&memory);
            let at = usize::try_from(address).unwrap_or(usize::MAX);
            let bytes = memory.get(at..at.saturating_add(local.bytes as usize)).unwrap_or_default();
            self.write(local, bytes);
            return sum(bytes);
        }
        if local.bytes == BLOCK_BYTES && self.is_real {
            let page = page(qpn, address);
            self.write(local, &page);
            return block_sum(&page);
        }
        if local.bytes == BLOCK_BYTES { token(qpn, address) } else { 0 }
    }

    fn write(&self, local: LocalRef, bytes: &[u8]) {
        if let Some(region) = self.regions.iter().find(|region| region.id() == local.region) {
            region.write(local.offset, bytes);
        }
    }

    /// Brings data of the SSD to a queue pair that moves real bytes. Returns its sum; `None`: it moves none.
    fn bring(&self, qpn: u32, local: LocalRef, address: u64) -> Option<u32> {
        let mut memory = lock(self.memories.get(&qpn)?);
        let at = usize::try_from(address).unwrap_or(usize::MAX);
        let bytes = memory.get_mut(at..at.saturating_add(local.bytes as usize))?;
        let region = self.regions.iter().find(|region| region.id() == local.region)?;
        region.read(local.offset, bytes);
        Some(sum(bytes))
    }
}

/// As an HCA reports it: only whole blocks have a sum.
fn sum(bytes: &[u8]) -> u32 {
    if bytes.len() == BLOCK_BYTES as usize { block_sum(bytes) } else { 0 }
}

impl QpExecutor for Port {
    fn poll(&mut self) -> Option<Up> {
        self.lock().up.pop_front()
    }

    fn push(&mut self, message: Down) {
        let mut inner = self.lock();
        match message {
            Down::FromOwner { qpn, local, address, tag, .. } => {
                let sum = inner.fetch(qpn, local, address);
                inner.copied(qpn, tag, sum);
            }
            Down::ToOwner { qpn, local, address, tag, sum, .. } => {
                if let Some(sum) = inner.bring(qpn, local, address) {
                    inner.copied(qpn, tag, sum);
                    return;
                }
                let token = sum.unwrap_or(0);
                inner.arrived.push_back((qpn, Arrived::Block { address, token }));
                inner.copied(qpn, tag, token);
            }
            Down::Send { qpn, bytes, .. } => {
                let cqe: Cqe = zerocopy::transmute!(bytes);
                inner.arrived.push_back((qpn, Arrived::Response(cqe)));
            }
            Down::Cqe { qpn, syndrome: 0, counter, .. } => {
                inner.arrived.push_back((qpn, Arrived::Retired { index: counter }));
            }
            Down::Cqe { qpn, .. } | Down::QpError { qpn } => inner.arrived.push_back((qpn, Arrived::Broken)),
            // A world makes no queue pair anew, and the port uses the engine's clock.
            Down::QpAnew { .. } | Down::Ping { .. } => {}
        }
    }

    fn add_region(&mut self, region: &Arc<HostRegion>) {
        self.lock().regions.push(Arc::clone(region));
    }

    fn remove_region(&mut self, id: RegionId) {
        self.lock().regions.retain(|region| region.id() != id);
    }
}
