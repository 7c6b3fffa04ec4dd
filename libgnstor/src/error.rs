// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One error type: each error names the request and the fault.

use crate::io_failure::IoFailure;
use gnstor_fabric::device::DeviceError;
use gnstor_gnor::node::NodeError;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The daemon refused; this is its message.
    #[error("{}", .0.message())]
    Daemon(tonic::Status),
    /// The daemon cannot be reached.
    #[error("cannot reach the daemon at {endpoint}: {cause}")]
    Unreachable {
        /// Address of the daemon or SSD.
        endpoint: String,
        /// Why not.
        cause: String,
    },
    /// The daemon did not answer in time: the process is stopped, or its machine cannot be reached any more.
    #[error(
        "the daemon at {endpoint} did not send {call} within {waited:?}: check that it runs and is not \
         stopped"
    )]
    Silent {
        /// Address of the daemon.
        endpoint: String,
        /// The answer that the client waited for, as `the list of volumes`.
        call: String,
        /// How long the call waited.
        waited: std::time::Duration,
    },
    /// A certificate, a key or a token cannot be used.
    #[error("credentials: {0}")]
    Credentials(String),
    /// The daemon answered something that makes no sense.
    #[error("the daemon's answer is not usable: {0}")]
    Protocol(String),
    /// Device, engine, admin queue or channel.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The CPU's queues have no DUMPs.
    #[error(
        "queues of the CPU trust their completions, and this HCA's writes to the device are not ordered: \
         read through gnstor's own queues"
    )]
    Unordered,
    /// An offset or a length is not a multiple of 4096.
    #[error("offset {offset} and length {bytes} must be multiples of 4096")]
    Unaligned {
        /// Requested offset.
        offset: u64,
        /// Requested length.
        bytes: u64,
    },
    /// The range ends beyond the volume.
    #[error("bytes {offset}..{} are beyond the volume's {capacity} bytes", .offset.saturating_add(*.bytes))]
    Range {
        /// Requested offset.
        offset: u64,
        /// Requested length.
        bytes: u64,
        /// The volume's capacity.
        capacity: u64,
    },
    /// An I/O failed.
    #[error(transparent)]
    Io(#[from] IoFailure),
    /// An earlier I/O of this client timed out.
    #[error(
        "an earlier I/O timed out and its data may still arrive: this client's buffers are not used again; \
         connect again"
    )]
    AfterTimeout,
    /// The write lease could not be renewed.
    #[error("the write lease of volume {volume} is lost: {cause}")]
    LeaseLost {
        /// The volume.
        volume: String,
        /// Why.
        cause: String,
    },
    /// The operating system.
    #[error("{what}: {cause}")]
    Os {
        /// The operation.
        what: String,
        /// The error.
        cause: std::io::Error,
    },
}

impl From<DeviceError> for Error {
    fn from(e: DeviceError) -> Self {
        Self::Node(e.into())
    }
}

impl From<tonic::Status> for Error {
    fn from(status: tonic::Status) -> Self {
        Self::Daemon(status)
    }
}

impl Error {
    /// The most similar POSIX error number.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Daemon(status) => match status.code() {
                tonic::Code::NotFound => 2,
                tonic::Code::AlreadyExists => 17,
                tonic::Code::PermissionDenied | tonic::Code::Unauthenticated => 13,
                tonic::Code::InvalidArgument | tonic::Code::OutOfRange => 22,
                tonic::Code::ResourceExhausted => 28,
                tonic::Code::FailedPrecondition => 16,
                tonic::Code::DeadlineExceeded => 110,
                _ => 5,
            },
            Self::Unreachable { .. } => 111,
            Self::Silent { .. } => 110,
            Self::Unaligned { .. } | Self::Range { .. } | Self::Credentials(_) => 22,
            Self::Io(failure) => failure.errno(),
            Self::LeaseLost { .. } => 116,
            Self::Unordered => 95,
            Self::Os { cause, .. } => cause.raw_os_error().unwrap_or(5),
            Self::Node(NodeError::Device(DeviceError::NoCuda(_))) => 19,
            Self::Node(NodeError::Device(DeviceError::Memory { .. })) => 12,
            Self::Node(NodeError::Device(DeviceError::Timeout { .. })) => 110,
            Self::AfterTimeout | Self::Protocol(_) | Self::Node(_) => 5,
        }
    }
}
