// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A command in flight: what it waits for, its next step, and its completion.

use crate::commands::CompletionPermit;
use crate::commands::links::Links;
use crate::commands::scratch::Buffer;
use crate::permission::Authorized;
use crate::request::{Refused, Request};
use gnstor_base::controller::QueueKey;
use gnstor_base::time::Time;
use gnstor_durable::Seq;
use gnstor_flash::{Ppa, Ticket};
use gnstor_ftl::NewBlock;
use gnstor_proto::fabrics::{ConnectFields, Identity};
use gnstor_proto::nvme::Sqe;
use gnstor_proto::slba::Vid;
use gnstor_proto::status::Status;

/// A command that has been accepted and not completed, or whose transfers are not all answered.
#[derive(Debug)]
pub(crate) struct Command {
    /// `None` once the queue is gone: then the command only waits for its transfers.
    pub(crate) permit: Option<CompletionPermit>,
    pub(crate) queue: QueueKey,
    pub(crate) vid: u16,
    pub(crate) pending: u32,
    pub(crate) failure: Option<Refused>,
    /// A read: when the model has its data at the host. Others: when the firmware had taken the command.
    pub(crate) done_at: Time,
    pub(crate) pushed_bytes: u32,
    pub(crate) work: Work,
    /// The command's neighbours in the list of its queue.
    pub(crate) links: Links,
}

impl Command {
    /// Whether the command waits for the translation layer.
    pub(crate) fn waits_for_layer(&self) -> bool {
        matches!(self.work, Work::MakeDurable(_) | Work::Starved(_) | Work::Stalled(_) | Work::Trim(_))
    }
}

/// A command that the modelled firmware has accepted.
#[derive(Debug)]
pub(crate) struct Accepted {
    /// The time of the call.
    pub(crate) now: Time,
    /// Time at which the modelled firmware took the command. For a write whose data has arrived: the time at
    /// which the model has the data.
    pub(crate) at: Time,
    pub(crate) permit: CompletionPermit,
}

/// The next step of a command when its transfers have ended.
#[derive(Debug)]
pub(crate) enum Work {
    /// Completes.
    Read(Authorized<Request>),
    /// Maps the new blocks.
    Write(WriteEnd),
    /// Waits for frames to receive its data.
    Starved(WriteEnd),
    /// The write has its data, and waits until collection makes room for it.
    Stalled(WriteEnd),
    /// Waits for collection before these are unmapped.
    Trim(Vec<Authorized<Request>>),
    /// Waits for this transaction to be durable.
    MakeDurable(Seq),
    /// Compares the buffer with the blocks. Without `has_data`, the host's data is on its way into the
    /// buffer. With it, blocks are being loaded.
    Compare { request: Authorized<Request>, buffer: Buffer, has_data: bool },
    /// Begins when its volume's rate allows; nothing has been done for it.
    Delayed { sqe: Box<Sqe>, identity: Identity, turn: u64, generation: u32 },
    /// Checks and unmaps the ranges in the buffer.
    Deallocate { sqe: Box<Sqe>, identity: Identity, buffer: Buffer },
    /// Binds the queue to an identity.
    Connect { fields: ConnectFields, buffer: Buffer },
    /// Continues the authentication of the queue's host.
    Authenticate { buffer: Buffer },
    /// Completes with this DW0.
    Answer { dw0: u32, buffer: Buffer },
    /// Applies the permission entry in the buffer.
    Entry { opcode: u8, buffer: Buffer },
    /// Applies the map or lease in the buffer.
    Map { opcode: u8, buffer: Buffer },
    /// Waits for a change of the metadata.
    Change,
    /// A VOLUME CHMOD or DELETE that waits until nothing judged by the older entry is in flight.
    Fence { vid: Vid, deadline: Time },
    /// An Asynchronous Event Request: held until the queue ends.
    AwaitEvent,
    /// An Abort: the worker of the queue is asked whether the command waits there.
    Abort,
    /// The queue is gone. Memory of its transfers is kept until they are answered.
    Orphan { blocks: Vec<NewBlock>, buffer: Option<Buffer> },
}

impl Work {
    /// The scratch buffer that its transfers touch.
    pub(crate) fn buffer(&self) -> Option<&Buffer> {
        match self {
            Self::Compare { buffer, .. }
            | Self::Deallocate { buffer, .. }
            | Self::Connect { buffer, .. }
            | Self::Authenticate { buffer }
            | Self::Answer { buffer, .. }
            | Self::Entry { buffer, .. }
            | Self::Map { buffer, .. } => Some(buffer),
            Self::Orphan { buffer, .. } => buffer.as_ref(),
            Self::Read(_)
            | Self::Write(_)
            | Self::Starved(_)
            | Self::Stalled(_)
            | Self::Trim(_)
            | Self::MakeDurable(_)
            | Self::Delayed { .. }
            | Self::Change
            | Self::Fence { .. }
            | Self::AwaitEvent
            | Self::Abort => None,
        }
    }
}

/// A command is moved twice, in and out of its slot.
const _: () = assert!(size_of::<Command>() <= 216);

/// A transfer under way.
#[derive(Debug)]
pub(crate) struct Transfer {
    /// The command of the transfer.
    pub(crate) command: u32,
    /// What the transfer moves.
    pub(crate) kind: TransferKind,
}

/// The data that a transfer moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TransferKind {
    /// This pinned page to the host.
    FromPage(Ppa),
    /// This pinned page, which has been loaded, to the host.
    FromLoad(Ppa, Ticket),
    /// The host's data to the page of this block of the command.
    ToBlock(u32),
    /// Zeros to the host, or anything from or to a scratch buffer.
    Other,
}

/// Successful completion with nothing to say.
pub(crate) const OK: Answer = Answer { status: Status::SUCCESS, dw0: 0, dw1: 0 };

/// The words of a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub(crate) status: Status,
    pub(crate) dw0: u32,
    pub(crate) dw1: u32,
}

impl Answer {
    pub(crate) fn dw0(dw0: u32) -> Self {
        Self { dw0, ..OK }
    }
}

/// The state with which a write is finished.
#[derive(Debug)]
pub(crate) struct WriteEnd {
    pub(crate) request: Authorized<Request>,
    pub(crate) identity: Identity,
    pub(crate) blocks: Vec<NewBlock>,
}

/// Data that a host has for its command.
pub(crate) struct Fetched<W> {
    pub(crate) bytes: u32,
    /// The work that continues with the data.
    pub(crate) work: W,
}

/// An answer with data for the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivered<'a> {
    /// The data, which is cut or padded.
    pub(crate) data: &'a [u8],
    /// Bytes that the host takes.
    pub(crate) bytes: u32,
    /// DW0 of the completion.
    pub(crate) dw0: u32,
    /// When the SSD has all of the data.
    pub(crate) at: Time,
}

impl<'a> Delivered<'a> {
    /// An answer that the SSD has together at once.
    pub(crate) fn at_once(now: Time, bytes: u32, dw0: u32, data: &'a [u8]) -> Self {
        Self { data, bytes, dw0, at: now }
    }
}
