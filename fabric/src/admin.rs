// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host's command channel to one controller, as the daemon and the control path of a client use it.
//!
//! | | commands | waits |
//! |---|---|---|
//! | [`AdminChannel`] | one at a time | in the call |
//! | [`AdminQueue`], driven by an [`Exchange`] | several in flight | never: its owner polls |

mod exchange;
mod window;

pub use exchange::{Ask, COMMANDS, Capsule, Data, Dialogue, Exchange, Reply};
use gnstor_proto::nvme::{Cqe, Sqe};
use std::time::Duration;
pub use window::{PIECE_BYTES, WINDOW_BYTES};

/// Data of an admin command.
#[derive(Debug)]
pub enum Payload<'a> {
    /// No data.
    None,
    /// Data for the controller.
    Out(&'a [u8]),
    /// Space for data of the controller.
    In(&'a mut [u8]),
}

/// Why a command got no completion.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChannelError {
    /// No completion before the deadline.
    #[error("{what} did not answer within {after:?}")]
    Timeout {
        /// The event that the caller waited for.
        what: String,
        /// Length of the wait.
        after: Duration,
    },
    /// The connection is in error.
    #[error("the connection to {peer} broke: {cause}")]
    Broken {
        /// Name of the other end.
        peer: String,
        /// What happened, such as the completion's syndrome.
        cause: String,
    },
    /// The controller answers but is not ready yet, for example while it recovers.
    #[error("{peer} is not ready: it recovers")]
    NotReady {
        /// Name of the other end.
        peer: String,
    },
    /// The SSD's hosts hold all its queues, or this host holds its quota. Later there may be room.
    #[error("{peer} has no room for another queue: hosts hold all that it gives out; try again later")]
    Full {
        /// Name of the other end.
        peer: String,
    },
    /// One of the two ends has not proven its identity.
    #[error("{peer}: {cause}")]
    Unproven {
        /// Name of the other end.
        peer: String,
        /// The missing proof.
        cause: String,
    },
    /// No SSD took the connection. Its link may have ended meanwhile.
    #[error("{peer} refused the connection: no SSD answers there: start it, or correct the address")]
    Absent {
        /// Name of the other end.
        peer: String,
    },
    /// The connection was refused.
    #[error("{peer} refused the connection: {cause}")]
    Refused {
        /// Name of the other end.
        peer: String,
        /// Why.
        cause: String,
    },
}

/// Executes admin commands one at a time.
pub trait AdminChannel: Send {
    /// Sends one command with its data and waits for the completion. The implementation fills in the command
    /// id, the flags and the data pointer. A completion with an error status is `Ok`: the caller reads the
    /// status.
    ///
    /// # Errors
    /// [`ChannelError`] if no completion came.
    fn execute(&mut self, sqe: Sqe, payload: Payload<'_>, deadline: Duration) -> Result<Cqe, ChannelError>;
}

/// An admin queue with several commands in flight. No call blocks.
pub trait AdminQueue: Send {
    /// Sends a capsule; the queue fills in flags and data pointer. At most [`COMMANDS`] and a Keep Alive are
    /// in flight.
    ///
    /// # Errors
    /// [`ChannelError`]: the queue is broken, for good.
    fn send(&mut self, capsule: &Capsule) -> Result<(), ChannelError>;

    /// The next completion, if one has come.
    ///
    /// # Errors
    /// As [`Self::send`].
    fn poll(&mut self) -> Result<Option<Cqe>, ChannelError>;

    /// Copies the bytes at this offset of the queue's window, which a command has brought.
    fn read(&mut self, at: usize, data: &mut [u8]);

    /// The owner gives the queue up: each later call fails for this reason.
    fn give_up(&mut self, error: &ChannelError);
}
