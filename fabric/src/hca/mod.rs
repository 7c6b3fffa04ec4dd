// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The emulated HCA's queue pairs.
//!
//! A queue pair's bytes are executed by a *executor* that sits where its memory is: [`agent::AgentExecutor`] stands
//! for the resident kernel in `fabric/cuda` (device memory), [`soft::SoftExecutor`] does the same work in Rust
//! (host memory). Both turn work requests into [`abi::UpEntry`]s and obey [`Down`] messages; connections,
//! acknowledgements, errors and flush order are the transport's, for both. The same queue dumps are run through
//! both in `tests/golden_dumps`.

pub mod abi;
pub mod agent;
pub mod ring;
pub mod soft;

use abi::UpEntry;
use gnstor_base::region::LocalRef;

/// A part of an answer: bytes that go to the queue owner's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Where from.
    pub local: LocalRef,
    /// Where to.
    pub address: u64,
    /// Remote key.
    pub key: u32,
    /// Block sum that the data must have.
    pub sum: Option<u32>,
}

/// The response of an answer.
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
    /// From here on, ns after the arrival, the emulator has delivered the response late; below 2^31.
    pub late_ns: u32,
    /// From here on, ns after the arrival, the client has waited longer than the model gives this command
    /// alone. It is negative where the emulator delayed the command by more than the allowance before the
    /// model saw it.
    pub client_late_ns: i32,
}

impl Allowance {
    /// Of a response that is late as soon as it is seen after its time.
    pub const AT_ONCE: Self = Self { late_ns: 0, client_late_ns: 0 };
    /// Of a response that is not late by any measure.
    pub const NEVER: Self = Self { late_ns: i32::MAX as u32, client_late_ns: i32::MAX };
}

/// What the transport asks of an executor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Down {
    /// Inbound RDMA WRITE: local memory to the queue owner's, after a key check. Answered by `UP_DONE` with
    /// `tag`.
    ToOwner {
        /// Queue pair.
        qpn: u32,
        /// Where from.
        local: LocalRef,
        /// Where to.
        address: u64,
        /// Remote key.
        key: u32,
        /// Name of the transfer, 31 bits.
        tag: u32,
        /// Block sum that the data must have.
        sum: Option<u32>,
    },
    /// Inbound RDMA READ: the queue owner's memory to local memory. Answered by `UP_DONE`.
    FromOwner {
        /// Queue pair.
        qpn: u32,
        /// Where to.
        local: LocalRef,
        /// Where from.
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
        /// Modelled arrival on the executor's clock, ns: the owner must not see the message earlier. At most some
        /// microseconds ahead.
        due_ns: u64,
        /// When it counts as late, from `due_ns` on. A message that is due at 0 has no modelled time and is
        /// never late.
        allowance: Allowance,
    },
    /// A completion made by the transport.
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
    /// Put the queue pair into error. Answered by `UP_RQ_FLUSH`.
    QpError {
        /// Queue pair.
        qpn: u32,
    },
    /// Answered by `UP_PONG`; measures the offset of the clocks.
    Ping {
        /// Returned in the answer.
        tag: u32,
    },
}

/// Executes queue pairs where their memory is.
pub trait QpExecutor: Send {
    /// The next thing that happened, oldest first.
    fn poll(&mut self) -> Option<UpEntry>;

    /// Does, or queues, what the transport asks. Never blocks.
    fn push(&mut self, message: Down);

    /// Whether [`QpExecutor::answer`] may be called now.
    fn can_answer(&self) -> bool {
        false
    }

    /// Inbound RDMA WRITEs and the SEND behind them: copies the one to 256 `parts`, and if all went well
    /// delivers `response`, whose first 8 bytes are zero, when it is due. Answered by one `UP_FUSED_DONE` with
    /// `tag` and how the parts ended (`COPY_*`); it is seen before anything that the owner sends when it has
    /// the response.
    fn answer(&mut self, _qpn: u32, _tag: u32, _parts: &[Part], _response: &Response) {}

    /// Whether queue owners may post work at any time, and the transport's thread is not woken when they do.
    fn must_be_polled(&self) -> bool {
        true
    }

    /// Takes back the copies of a queue pair that have not been answered. True: from here on none of them
    /// touches any memory, and none need be answered. False: one may be under way; it will be answered, or a
    /// later call says true. Never blocks.
    fn take_back(&mut self, _qpn: u32) -> bool {
        false
    }

    /// Begins to wait until nothing that is under way now touches the queue owners' memory any more, on this
    /// executor and on the others of its HCA; returns the wait's name.
    fn settle(&mut self) -> u64 {
        0
    }

    /// Whether it is so. Never blocks.
    fn settled(&self, _wait: u64) -> bool {
        true
    }

    /// Converts the executor's clock (ns) to the transport's: transport = executor + offset.
    fn clock_offset_ns(&self) -> i64 {
        0
    }

    /// How much earlier than it is due a [`Down::Send`] should be handed over, ns: the time it takes to the
    /// owner's memory.
    fn lead_ns(&self) -> u64 {
        0
    }

    /// Tells the executor the offset that the transport has measured, and the round trip by which it did.
    fn set_clock_offset_ns(&mut self, _offset: i64, _rtt_ns: u64) {}
}
