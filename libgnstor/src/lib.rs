// SPDX-License-Identifier: Apache-2.0 OR MIT
//! libgnstor: what users of GNStor link.
//!
//! ```text
//!   Client::connect(node, options)      gRPC: client id, fleet map; NVMe-oF: admin queues, a channel
//!     .create(..) .list() .delete(..)   gRPC
//!     .open(name, Rights::Write)        gRPC: rights on every SSD; renews a write lease in the background
//!   File::read_at / write_at / flush    a transfer kernel on the device does the I/O
//!   File::launch(kernel, ..)            the user's own kernel, with include/gnstor/gnstor.cuh
//! ```
//! There is one initiator, the device's: the host calls run a kernel too. No call blocks without a deadline.
//!
//! The C interface is `include/gnstor.h` ([`capi`]), the device headers are in `include/gnstor`.

mod again;
pub mod capi;
mod client;
mod credentials;
mod daemons;
mod error;
mod file;
mod holders;
mod io_failure;
mod lease;
mod link;
mod manager;
mod maps;
mod pages;
mod rpc;
mod ssds;
mod transfer;
mod unreachable;

#[cfg(test)]
#[path = "../../proto/testing/deadline.rs"]
mod deadline;

pub use client::{Client, ConnectOptions, DeviceBuffer, Rights};
pub use credentials::{Credentials, Proof, SignedChannel};
pub use daemons::{Daemons, Health, Probe, is_no_leader};
pub use error::Error;
pub use file::{DeviceFile, File};
pub use gnstor_fabric::device::{Choice, Device, DeviceMem, Kernel, Residency};
pub use gnstor_fabric::hca::agent::{AgentStats, ClientKernel, Shape};
pub use gnstor_fabric::runtime::{TransportHandle, TransportThreads};
pub use gnstor_fabric::transport::{RcTransport, TransportConfig};
pub use gnstor_gnor::abi::describe as describe_status;
pub use gnstor_gnor::channel::ChannelStats;
pub use gnstor_gnor::node::Node;
pub use gnstor_gnor::session::{Missing, Session};
pub use gnstor_proto::labels;
pub use holders::LeaseInfo;
pub use io_failure::{FailedSsd, IoFailure};
pub use link::{TCP, TLS, connect_to_ssd};
pub use manager::{CreateOptions, Manager, Right, VolumeInfo};
pub use pages::PAGE;
pub use rpc::{dial, within};
pub use ssds::{Fabric, SsdInfo};
pub use unreachable::{unreachable, was_cut};

/// gRPC code in [`Error::Daemon`] for a volume that does not exist.
pub const NOT_FOUND: tonic::Code = tonic::Code::NotFound;
/// The code for a name that is taken.
pub const ALREADY_EXISTS: tonic::Code = tonic::Code::AlreadyExists;
/// The daemon cannot do it yet: a later try may succeed.
pub const UNAVAILABLE: tonic::Code = tonic::Code::Unavailable;

/// Bytes of a block: the unit of every offset and length.
pub const BLOCK_BYTES: u64 = gnstor_proto::BLOCK_BYTES as u64;
