// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The SSDs of an array, as the daemon names them, and how a client reaches them.

use gnstor_proto::grpc;

/// How a client reaches the SSDs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fabric {
    /// Over TCP, at the addresses that the daemon gives.
    #[default]
    Daemon,
    /// The array runs on this process's engine: SSD n is its target n.
    InProcess,
}

/// An SSD of the array.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "named and documented in gnstor.proto")]
pub struct SsdInfo {
    pub index: u32,
    pub subnqn: String,
    pub transport: String,
    pub address: String,
    pub capacity_bytes: u64,
    pub model: String,
}

impl From<grpc::Ssd> for SsdInfo {
    fn from(ssd: grpc::Ssd) -> Self {
        let grpc::Ssd { index, subnqn, transport, address, capacity_bytes, model, .. } = ssd;
        Self { index, subnqn, transport, address, capacity_bytes, model }
    }
}
