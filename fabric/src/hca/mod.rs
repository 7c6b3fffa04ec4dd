// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The emulated HCA's queue pairs.
//!
//! A queue-pair executor executes the bytes of queue pairs where their memory is. [`agent::AgentExecutor`]
//! is the host's end of the resident kernel in `fabric/cuda` (device memory). [`soft::SoftExecutor`] does
//! the same work in Rust (host memory). Executors turn work requests into [`Up`] reports and carry out
//! [`Down`] messages. The transport does the rest for all of them: connections, acknowledgements, errors
//! and flush order. The cases in `tests/golden_dumps` run the same queues through both executors.

pub mod abi;
pub mod agent;
pub mod ring;
pub mod soft;
mod up;

pub use up::{Copied, Operation, Up, WorkRequest};

use crate::cm::Refused;
use gnstor_base::region::{HostRegion, LocalRef, RegionId};
use gnstor_proto::fabrics::Identity;
use std::sync::Arc;

/// Number of reports that the transport takes from an executor in one step, so that no executor starves the
/// others.
pub const STEP_REPORTS: usize = 64;

/// A part of a fused response: bytes that go to the queue owner's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Source.
    pub local: LocalRef,
    /// Destination.
    pub address: u64,
    /// Remote key.
    pub key: u32,
    /// Block sum that the data must have.
    pub sum: Option<u32>,
}

/// The message of a fused response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Response {
    /// The message.
    pub bytes: [u8; 16],
    /// As in [`Down::Send`].
    pub due_ns: u64,
    /// As in [`Down::Send`].
    pub allowance: Allowance,
}

/// How long after its modelled arrival a response may be seen before it counts as late, by two measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowance {
    /// Nanoseconds after the arrival from which on the emulator has delivered the response late; below 2^31.
    pub late_ns: u32,
    /// Nanoseconds after the arrival from which on the client has waited longer than the model gives this
    /// command alone. It is negative if the emulator had delayed the command by more than the allowance
    /// before the model saw it.
    pub client_late_ns: i32,
}

impl Allowance {
    /// The allowance of a response that is late as soon as it is seen after its time.
    pub const AT_ONCE: Self = Self { late_ns: 0, client_late_ns: 0 };
    /// The allowance of a response that no measure calls late.
    pub const NEVER: Self = Self { late_ns: i32::MAX as u32, client_late_ns: i32::MAX };
}

/// A message of the transport to an executor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Down {
    /// Inbound RDMA WRITE: local memory to the queue owner's, after a key check. It ends with [`Up::Copied`].
    ToOwner {
        /// Queue pair.
        qpn: u32,
        /// Source.
        local: LocalRef,
        /// Destination.
        address: u64,
        /// Remote key.
        key: u32,
        /// Name of the transfer, 31 bits.
        tag: u32,
        /// Block sum that the data must have.
        sum: Option<u32>,
    },
    /// Inbound RDMA READ: the queue owner's memory to local memory. It ends with [`Up::Copied`].
    FromOwner {
        /// Queue pair.
        qpn: u32,
        /// Destination.
        local: LocalRef,
        /// Source.
        address: u64,
        /// Remote key.
        key: u32,
        /// Name of the transfer, 31 bits.
        tag: u32,
    },
    /// Inbound SEND: consumes a receive and completes it.
    Send {
        /// Queue pair.
        qpn: u32,
        /// The message.
        bytes: [u8; 16],
        /// Modelled arrival on the executor's clock, ns: the owner must not see the message earlier. At most
        /// some microseconds ahead.
        due_ns: u64,
        /// How long after `due_ns` the message counts as late. A message that is due at 0 has no modelled
        /// time and is never late.
        allowance: Allowance,
    },
    /// A completion that the transport has made.
    Cqe {
        /// Queue pair.
        qpn: u32,
        /// Completion opcode.
        opcode: u8,
        /// Syndrome.
        syndrome: u8,
        /// Index of the work request or receive.
        counter: u16,
    },
    /// Puts the queue pair into error. The executor reports [`Up::FlushReceives`].
    QpError {
        /// Queue pair.
        qpn: u32,
    },
    /// A queue pair begins anew: its connection is closed, and its owner has made its queues anew. The
    /// executor reports [`Up::QpAnew`]. Only an executor whose control path cannot do this by itself gets
    /// this message: the agent, while it is resident.
    QpAnew {
        /// Queue pair.
        qpn: u32,
        /// Returned in the report.
        tag: u32,
    },
    /// The executor replies with [`Up::Pong`], by which the transport measures the offset of the clocks.
    Ping {
        /// Returned in the reply.
        tag: u32,
    },
}

/// Executes queue pairs where their memory is. No method blocks.
pub trait QpExecutor: Send {
    /// The next report, oldest first.
    fn poll(&mut self) -> Option<Up>;

    /// Carries out a message, or queues it.
    fn push(&mut self, message: Down);

    /// Interval of polls: the transport polls once in this number of steps.
    fn poll_interval(&self) -> u32 {
        1
    }

    /// Number of reports that the transport may take before it handles the first of them.
    fn poll_ahead(&self) -> usize {
        STEP_REPORTS
    }

    /// Whether queue owners may post work at any time without waking the transport's thread.
    fn must_be_polled(&self) -> bool {
        true
    }

    /// Whether the executor has ended by itself, such as by a broken connection, and has no more to report.
    fn is_dead(&self) -> bool {
        false
    }

    /// From here on [`Down`] messages may refer to this region.
    fn add_region(&mut self, _region: &Arc<HostRegion>) {}

    /// No later message refers to this region.
    fn remove_region(&mut self, _id: RegionId) {}

    /// Whether the executor keeps regions mapped after [`QpExecutor::remove_region`], as a device does. The
    /// transport then keeps such memory for its next use.
    fn keeps_mapped(&self) -> bool {
        true
    }

    /// Replies to an [`Up::Connect`]: 0 accepts, any other value is the reason of the refusal.
    fn reply_connect(&mut self, _qpn: u32, _refused: Refused) {}

    /// The controller has admitted the host of this queue pair: its Connect succeeded, and it has proven who
    /// it is where a proof is asked.
    fn admitted(&mut self, _qpn: u32, _who: Identity) {}

    /// Whether [`QpExecutor::push_fused`] may be called now.
    fn can_fuse(&self) -> bool {
        false
    }

    /// A fused response: inbound RDMA WRITEs followed by a SEND. The executor copies the 1 to 256 `parts`. If
    /// all of them succeed, it delivers `response`, whose first 8 bytes are zero, when that is due. It
    /// reports one [`Up::FusedDone`] with `tag`, before anything that the owner sends after the response.
    fn push_fused(&mut self, _qpn: u32, _tag: u32, _parts: &[Part], _response: &Response) {}

    /// Takes back the unfinished copies of a queue pair. True: from here on none of them touches memory, and
    /// the executor need not report them. False: a copy may be in progress. Then the executor reports it, or
    /// a later call returns true.
    fn take_back(&mut self, _qpn: u32) -> bool {
        false
    }

    /// Begins to quiesce the HCA. The wait is over when nothing that is under way now touches the queue
    /// owners' memory any more, on any executor of the HCA. Returns the name of the wait.
    fn quiesce(&mut self) -> u64 {
        0
    }

    /// Whether the wait with this name is over.
    fn is_quiescent(&self, _wait: u64) -> bool {
        true
    }

    /// Converts the executor's clock (ns) to the transport's: transport = executor + offset.
    fn clock_offset_ns(&self) -> i64 {
        0
    }

    /// How much earlier than it is due the transport hands over a [`Down::Send`], ns: the time that the
    /// message takes to the owner's memory.
    fn lead_ns(&self) -> u64 {
        0
    }

    /// The offset that the transport has measured, and the round trip by which it did.
    fn set_clock_offset_ns(&mut self, _offset: i64, _rtt_ns: u64) {}
}
