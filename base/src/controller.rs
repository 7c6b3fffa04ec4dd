// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The border between target offload and an SSD: what the HCA asks of a controller, and what a controller
//! asks back.
//!
//! ```text
//!   capsule --> Target --submit--> Controller --Pull/Push--> Target --> RDMA READ / WRITE
//!                                             <-transferred-
//!                                             --Complete---> Target --> response capsule
//!                                             --Ask--------> another controller of the array
//!                                             <-answered----
//! ```
//! A controller is sans-I/O: it is called, it queues [`Effect`]s, and its caller carries them out. It never
//! sees data, only [`LocalRef`]s to it.

use crate::region::{HostRegion, LocalRef};
use crate::time::Time;
use gnstor_proto::fabrics::{CmRequest, Identity};
use gnstor_proto::nvme::{Cqe, Sqe};
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// A connection of the controller: one queue pair, numbered by the target.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct QueueKey(pub u32);

/// Identifies one transfer of a controller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TransferId(pub u32);

/// Memory of the host at the other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// Address.
    pub address: u64,
    /// Remote key.
    pub key: u32,
}

/// Identifies a question of a controller to another SSD.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AskId(pub u32);

/// Work that a controller wants the target to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// RDMA READ: bring `local.bytes` bytes from the host into `local`; answered by
    /// [`Controller::transferred`].
    Pull {
        /// Name of the transfer.
        transfer: TransferId,
        /// The queue whose host owns the memory.
        queue: QueueKey,
        /// Id of the command that needs the data.
        cid: u16,
        /// Source.
        remote: Remote,
        /// Destination.
        local: LocalRef,
    },
    /// RDMA WRITE: bring `local` to the host; answered by [`Controller::transferred`].
    Push {
        /// Name of the transfer.
        transfer: TransferId,
        /// The queue whose host owns the memory.
        queue: QueueKey,
        /// Destination.
        remote: Remote,
        /// Source.
        local: LocalRef,
        /// The block sum that the data must have; the mover computes it while it copies. Only with 4 KiB
        /// transfers.
        sum: Option<u32>,
        /// Whether it is part of a fused response.
        role: PushRole,
    },
    /// Send the response capsule. Issued after every transfer of the command was answered.
    Complete {
        /// The queue.
        queue: QueueKey,
        /// The completion; the target fills in nothing.
        cqe: Cqe,
        /// Modelled time at which the SSD is done; the response must not be seen earlier.
        at: Time,
        /// Bytes that this command pushed: they take the link before the response does.
        pushed_bytes: u32,
    },
    /// The queue's host is admitted: its Connect succeeded, and the host has proven who it is where the
    /// controller asks for a proof. Until then the queue may have to give way to others.
    Admitted {
        /// The queue.
        queue: QueueKey,
        /// Who the host is.
        who: Identity,
    },
    /// Tear the connection down (keep-alive expired, fatal error).
    Close {
        /// The queue.
        queue: QueueKey,
    },
    /// Have another SSD of the array carry out a command; answered by [`Controller::answered`].
    Ask {
        /// Name of the question.
        ask: AskId,
        /// Number of the asked SSD.
        peer: u16,
        /// The [`Question`] as bytes. They may change once the effect has been taken.
        local: LocalRef,
    },
}

/// Most bytes of an address and of the data of a question.
const ASK_ADDRESS: usize = 71;
const ASK_DATA: usize = 64;

/// A command for another SSD, with that SSD's address. A command that brings data has its size in CDW10, in
/// dwords. Any other command carries `data`.
///
/// ```text
///   0         64               65        136
///   | capsule | address length | address | data, 64 bytes |
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Question {
    /// The command; flags, id and data pointer are those of the queue that carries it.
    pub sqe: Sqe,
    /// Address of the SSD in the fleet map; at most 71 bytes.
    pub address: String,
    /// The data to that SSD.
    pub data: [u8; ASK_DATA],
}

impl Question {
    /// Bytes of a question.
    pub const BYTES: usize = 64 + 1 + ASK_ADDRESS + ASK_DATA;

    /// The bytes.
    ///
    /// # Panics
    /// If the address is longer than a fleet map's may be.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let address = self.address.as_bytes();
        assert!(address.len() <= ASK_ADDRESS, "an address of {} bytes", address.len());
        bytes[..64].copy_from_slice(self.sqe.as_bytes());
        bytes[64] = u8::try_from(address.len()).expect("at most 71");
        bytes[65..65 + address.len()].copy_from_slice(address);
        bytes[65 + ASK_ADDRESS..].copy_from_slice(&self.data);
        bytes
    }

    /// Decodes a question; `None` if the bytes are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let address = bytes[65..65 + ASK_ADDRESS].get(..usize::from(bytes[64]))?;
        Some(Self {
            sqe: Sqe::read_from_bytes(&bytes[..64]).ok()?,
            address: String::from_utf8(address.to_vec()).ok()?,
            data: *bytes.last_chunk()?,
        })
    }
}

/// The part that a push has in a command. A fused response hands over the data of a command together with its
/// response. It is sent as an HCA sends RDMA WRITEs with a SEND after them. Its pushes follow each other
/// under one transfer id, which ends once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PushRole {
    /// Answered by itself.
    Alone,
    /// A part of a fused response, with more parts to follow.
    Part,
    /// The last part of a fused response. If all pushes end well, the response is sent. The transfer ends
    /// with [`Outcome::Done`], of no sum, before the host can send anything on the response. If a push fails,
    /// nothing is sent, and the controller completes the command.
    Last(Reply),
}

/// The response of a fused response's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The completion.
    pub cqe: Cqe,
    /// As in [`Effect::Complete`].
    pub at: Time,
}

/// How a transfer ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All bytes have arrived. `sum` is their block sum if 4 KiB were moved, else 0.
    Done {
        /// Block sum of what was moved.
        sum: u32,
    },
    /// The data moved did not have the sum it should have.
    BadChecksum,
    /// The host's HCA refused the key, the range or the access.
    RemoteAccess,
    /// The connection broke first.
    ConnectionLost,
}

/// An NVMe controller as target offload drives it. No method has a default: a wrapper that forgets to forward
/// one does not compile.
pub trait Controller {
    /// An RDMA connection asks to become a queue.
    ///
    /// # Errors
    /// The reject reason ([`gnstor_proto::fabrics::cm_reject`]).
    fn open_queue(&mut self, now: Time, queue: QueueKey, request: &CmRequest) -> Result<(), u16>;

    /// The connection is gone. The controller forgets its commands; transfers under way still end in
    /// [`Controller::transferred`] with [`Outcome::ConnectionLost`].
    fn close_queue(&mut self, now: Time, queue: QueueKey);

    /// A command capsule has arrived. The controller answers malformed ones and ignores none.
    fn submit(&mut self, now: Time, queue: QueueKey, sqe: &Sqe);

    /// A hint: these capsules will be submitted next, in this order, by this or another queue. The
    /// controller can prefetch the memory that they will need.
    fn announce(&mut self, commands: &[Sqe]);

    /// The memory that only the controller itself touches, under its locks.
    fn own_memory(&self) -> Vec<Arc<HostRegion>>;

    /// A transfer ended.
    fn transferred(&mut self, now: Time, transfer: TransferId, outcome: Outcome);

    /// Another SSD answered a question; `None`: it was not reached, or did not answer in time. `data` is what
    /// the answer brought.
    fn answered(&mut self, now: Time, ask: AskId, answer: Option<&Cqe>, data: &[u8]);

    /// Time passed.
    fn step(&mut self, now: Time);

    /// The process was stopped until now, or its machine: hosts have had no time to be heard.
    fn resumed(&mut self, _now: Time) {}

    /// The SSD is to be stopped in order: it serves nothing from here on, and tells the SSDs that gave it its
    /// right to serve. Repeated until it returns that nothing more is to be waited for.
    fn leave(&mut self, _now: Time) -> bool {
        true
    }

    /// The time of the next [`Controller::step`], if nothing else happens before.
    fn next_event(&self) -> Option<Time>;

    /// Takes the next effect, oldest first.
    fn pop_effect(&mut self) -> Option<Effect>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_comes_back_and_no_other_bytes_make_one() {
        let _deadline = crate::testing::deadline();
        let sqe = Sqe { opcode: 0xD9, nsid: 1.into(), ..Sqe::default() };
        for address in ["", "127.0.0.1:4420", &"x".repeat(71)] {
            let question = Question { sqe, address: address.into(), data: [9; 64] };
            let bytes = question.encode();
            assert_eq!(Question::decode(&bytes), Some(question));
            assert_eq!(Question::decode(&bytes[1..]), None);
            let mut bent = bytes;
            bent[64] = 72;
            assert_eq!(Question::decode(&bent), None, "an address longer than its room");
        }
    }
}
