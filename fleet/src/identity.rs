// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When a client gets its id back (rule 16).

use crate::set::SsdSet;

/// A client that comes back with its own key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Returning {
    /// The SSDs that have ended its old queues (CLIENT END).
    pub ended: SsdSet,
}

impl Returning {
    /// Whether the client gets its id back: every member of the map has ended its old queues. A command that
    /// an old queue still carried would pass as one of the new process.
    pub fn may_have_its_id(self, members: SsdSet) -> bool {
        members.is_subset_of(self.ended)
    }
}

/// Whether an id may go to a new client: no SSD has a connection of it. After a restart of the daemon,
/// `connected` is asked of every member.
pub fn may_give_out(answered: SsdSet, members: SsdSet, connected: SsdSet) -> bool {
    members.is_subset_of(answered) && connected.is_empty()
}
