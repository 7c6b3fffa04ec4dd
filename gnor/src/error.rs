// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why the control path failed.

use gnstor_fabric::device::DeviceError;
use gnstor_fabric::runtime::TransportError;

/// Why a node, session or channel could not be set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The transport.
    #[error(transparent)]
    RcTransport(#[from] TransportError),
    /// An admin queue.
    #[error(transparent)]
    Admin(#[from] gnstor_fabric::admin::ChannelError),
    /// The SSD refused an I/O queue, or did not answer.
    #[error("SSD {ssd}: its I/O queue cannot be connected: {cause}")]
    Queue {
        /// Index of the SSD.
        ssd: usize,
        /// Why.
        cause: String,
    },
    /// There is no link to any SSD.
    #[error("SSD {ssd} cannot be reached: {cause}")]
    NoLink {
        /// Index of the first SSD.
        ssd: usize,
        /// Why.
        cause: String,
    },
    /// More SSDs than a channel can hold.
    #[error("a channel reaches at most {max} SSDs, the array has {ssds}")]
    TooManySsds {
        /// Number of SSDs that were requested.
        ssds: usize,
        /// The limit.
        max: usize,
    },
}
