// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the firmware tells a worker, and what ends the sleep of the worker's thread.

use gnstor_base::controller::{Effect, QueueKey};
use std::fmt;

/// Work that the firmware leaves for a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Note {
    /// An effect to carry out. The queue has its name within the SSD.
    Effect(Effect),
    /// The firmware has allowed a read or write of this queue: the worker takes it from there.
    Granted(QueueKey),
    /// A fence is past its deadline: close the queues of the commands that hold it up, of the volume in
    /// this slot.
    CloseOlder(u16),
    /// The Abort `command` names this command, which may pend with the worker.
    TakeBack { queue: QueueKey, cid: u16, command: u32 },
}

/// Ends the sleep of a worker's thread.
pub(super) struct Wake(pub(super) Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wake")
    }
}
