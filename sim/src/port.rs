// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clients' end of an engine: a queue-pair executor that moves tokens instead of data.
//!
//! ```text
//!   client --send--> requests --Up--> engine          an RDMA READ of a block brings its token
//!   client <--take-- arrived  <-Down-- engine          an RDMA WRITE of a block delivers the token it has
//! ```
//! The sum of a block is all that the firmware knows of its data. So the sum that the port reports for a
//! written block is a token: a function of the client, the block and the write's sequence. The firmware keeps
//! it, and hands it back with the block when that is read. A client that gets another token has read the
//! data of another block or of another write.

use gnstor_base::region::{HostRegion, LocalRef, RegionId};
use gnstor_fabric::hca::abi::COPY_OK;
use gnstor_fabric::hca::{Copied, Down, Operation, QpExecutor, Up, WorkRequest};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::nvme::{Cqe, Sqe};
use gnstor_proto::placement::mix64;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zerocopy::IntoBytes;

/// What an engine has for a queue pair.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Arrived {
    /// A response.
    Response(Cqe),
    /// A block of a read, for this address, with this token.
    Block { address: u64, token: u32 },
    /// Work requests up to the one of this index are done.
    Retired { index: u16 },
    /// The queue pair has failed.
    Broken,
}

/// The token of the block at `address` in the memory of the owner of `qpn`.
pub(crate) fn token(qpn: u32, address: u64) -> u32 {
    u32::try_from(mix64(address ^ mix64(u64::from(qpn))) >> 32).expect("32 bits")
}

#[derive(Debug, Default)]
struct Inner {
    up: VecDeque<Up>,
    arrived: VecDeque<(u32, Arrived)>,
    /// Real bytes, for the commands that set the world up.
    data: Vec<u8>,
    regions: Vec<Arc<HostRegion>>,
}

/// One end of the port; the other one is within the engine. Both are on one thread.
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

    /// The data of the next command that brings real bytes.
    pub(crate) fn set_data(&self, data: &[u8]) {
        self.lock().data = data.to_vec();
    }

    /// Whether the engine has not taken all requests and ends of copies.
    pub(crate) fn has_requests(&self) -> bool {
        !self.lock().up.is_empty()
    }

    /// Takes all arrivals, with their queue pairs, into an empty list.
    pub(crate) fn take(&self, into: &mut VecDeque<(u32, Arrived)>) {
        std::mem::swap(&mut self.lock().arrived, into);
    }
}

impl Inner {
    fn copied(&mut self, qpn: u32, tag: u32, sum: u32) {
        self.up.push_back(Up::Copied(Copied { qpn, tag, status: COPY_OK, sum }));
    }

    /// Brings what the owner of the queue pair has to the SSD: real bytes, or the token of a block.
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
            // A world makes no queue pair anew, and its port has the engine's clock.
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
