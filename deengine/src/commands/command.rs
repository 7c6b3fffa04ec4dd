// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A command in flight: what it waits for, its next step, and its completion.

use crate::commands::CompletionPermit;
use crate::commands::cold::Telling;
use crate::commands::links::Links;
use crate::commands::scratch::Buffer;
use crate::permission::Authorized;
use crate::request::{Refused, Request};
use gnstor_base::controller::QueueKey;
use gnstor_base::time::Time;
use gnstor_durable::Seq;
use gnstor_proto::fabrics::{ConnectFields, Identity};
use gnstor_proto::nvme::Sqe;
use gnstor_proto::slba::Vid;

/// A command that has been accepted and not completed, or whose transfers are not all answered.
#[derive(Debug)]
pub(crate) struct Command {
    permit: Option<CompletionPermit>,
    queue: QueueKey,
    vid: u16,
    pending: u32,
    failure: Option<Refused>,
    done_at: Time,
    pushed_bytes: u32,
    work: Work,
    /// The command's neighbours in the list of its queue.
    links: Links,
}

/// A command whose transfers have ended, or that is taken from its list.
#[derive(Debug)]
pub(crate) struct Ended {
    /// `None` if the queue is gone.
    pub(crate) permit: Option<CompletionPermit>,
    pub(crate) vid: u16,
    pub(crate) failure: Option<Refused>,
    /// A read: when the model has its data at the host. Others: when the firmware had taken the command.
    pub(crate) done_at: Time,
    pub(crate) pushed_bytes: u32,
    pub(crate) work: Work,
}

impl Command {
    /// A command without transfers.
    pub(crate) fn new(permit: CompletionPermit, vid: u16, done_at: Time, work: Work) -> Self {
        let (queue, permit, links) = (permit.queue(), Some(permit), Links::UNLISTED);
        Self { permit, queue, vid, pending: 0, failure: None, done_at, pushed_bytes: 0, work, links }
    }

    /// A command whose queue is gone.
    #[cfg(test)]
    pub(crate) fn of_gone_queue(queue: QueueKey) -> Self {
        let (permit, failure, done_at, links) = (None, None, Time::ZERO, Links::UNLISTED);
        Self {
            permit,
            queue,
            vid: 0,
            pending: 0,
            failure,
            done_at,
            pushed_bytes: 0,
            work: Work::Change,
            links,
        }
    }

    /// The command leaves its slot.
    pub(crate) fn end(self) -> Ended {
        let Self { permit, vid, failure, done_at, pushed_bytes, work, .. } = self;
        Ended { permit, vid, failure, done_at, pushed_bytes, work }
    }

    pub(crate) fn queue(&self) -> QueueKey {
        self.queue
    }

    pub(crate) fn vid(&self) -> u16 {
        self.vid
    }

    pub(crate) fn work(&self) -> &Work {
        &self.work
    }

    /// The answer to another SSD that waits for pages, if the command is one.
    pub(crate) fn telling(&mut self) -> Option<&mut Telling> {
        if let Work::Tell(telling) = &mut self.work { Some(telling) } else { None }
    }

    /// `None` once the queue is gone: then the command only waits for its transfers.
    pub(crate) fn permit(&self) -> Option<&CompletionPermit> {
        self.permit.as_ref()
    }

    /// The queue is gone.
    pub(crate) fn take_permit(&mut self) -> Option<CompletionPermit> {
        self.permit.take()
    }

    /// A load begins, or a transfer that brings the host these bytes.
    pub(crate) fn begin_transfer(&mut self, pushed_bytes: u32) {
        self.pending += 1;
        self.pushed_bytes += pushed_bytes;
    }

    /// A load or transfer has ended.
    pub(crate) fn end_transfer(&mut self) {
        self.pending -= 1;
    }

    /// Whether no load or transfer is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending == 0
    }

    /// A part of the command has failed. The first failure counts.
    pub(crate) fn fail(&mut self, refused: Refused) {
        self.failure = self.failure.or(Some(refused));
    }

    /// Takes the work. [`Self::go_on`] must give the command other work.
    pub(crate) fn take_work(&mut self) -> Work {
        std::mem::replace(&mut self.work, Work::AwaitEvent)
    }

    pub(crate) fn go_on(&mut self, work: Work) {
        self.work = work;
    }

    pub(crate) fn links(&self) -> Links {
        self.links
    }

    pub(crate) fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }

    /// Whether the command waits for the translation layer.
    pub(crate) fn waits_for_layer(&self) -> bool {
        matches!(self.work, Work::MakeDurable(_) | Work::Starved(_) | Work::Trim(_))
    }
}

/// A command that the modelled firmware has accepted.
#[derive(Debug)]
pub(crate) struct Accepted {
    /// The time of the call.
    pub(crate) now: Time,
    /// Time at which the modelled firmware took the command.
    pub(crate) at: Time,
    pub(crate) permit: CompletionPermit,
}

/// The next step of a command when its transfers have ended.
#[derive(Debug)]
pub(crate) enum Work {
    /// Waits for frames to receive its data.
    Starved(Authorized<Request>),
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
    /// Loads pages, and then answers another SSD.
    Tell(Box<Telling>),
    /// Waits for a change of the metadata.
    Change,
    /// A VOLUME CHMOD or DELETE that waits until nothing judged by the older entry is in flight.
    Fence { vid: Vid, deadline: Time },
    /// An Asynchronous Event Request: held until the queue ends.
    AwaitEvent,
    /// An Abort: the worker of the queue is asked whether the command waits there.
    Abort,
    /// The queue is gone. Memory of its transfers is kept until they are answered.
    Orphan { buffer: Option<Buffer> },
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
            Self::Orphan { buffer } => buffer.as_ref(),
            Self::Starved(_)
            | Self::Trim(_)
            | Self::MakeDurable(_)
            | Self::Tell(_)
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
