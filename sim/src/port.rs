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
use gnstor_proto::nvme::{Cqe, Sqe};
use gnstor_proto::placement::mix64;
use std::collections::VecDeque;
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

#[derive(Debug, Default)]
struct Inner {
    up: VecDeque<Up>,
    arrived: VecDeque<(u32, Arrived)>,
    /// Real bytes, for the commands that set up the world.
    data: Vec<u8>,
    regions: Vec<Arc<HostRegion>>,
}

/// The clients' end of the port. The engine has the other end, on the same thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Port(Arc<Mutex<Inner>>);

impl Port {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        if local.bytes == BLOCK_BYTES { token(qpn, address) } else { 0 }
    }
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
            Down::ToOwner { qpn, address, tag, sum, .. } => {
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
