// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an id had open ends with the id.
//!
//! ```text
//!   the id's time is over --> it is ending --> one Release for all such ids of a volume --> forgotten
//!                                 ^----- again every 500 ms, until the volume names it no more
//! ```
//! The Release has a ticket of the core's own. It waits for the volume's changes like any other. No right is
//! asked for it, since no caller may name an id that is ending.

use super::request::{Request, VolumeName};
use super::rights::Caller;
use super::volume::Volume;
use super::{Core, OWN_TICKETS, Ticket};
use gnstor_proto::slba::{ClientId, Vid};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Ticket {
    /// The core's own: its reply has no reader.
    pub(super) fn is_own(self) -> bool {
        self.0 >= OWN_TICKETS
    }
}

impl Core {
    /// The opens of ids that ended are released.
    pub(super) fn clients_step(&mut self, now: u64) {
        if !self.is_serving() {
            return;
        }
        let volumes = &self.volumes;
        let ends = self.clients.step(now, |id, vid| holds(volumes, id, vid));
        let by_volume: BTreeMap<Vid, ClientId> =
            ends.into_iter().map(|(client, vid)| (vid, client)).collect();
        for (vid, client) in by_volume {
            let Some(volume) = self.volumes.get(&vid) else { continue };
            // The one that waits ends them, too, and more would keep clients' requests out of the queue.
            let waits = volume.queue.iter().any(|(ticket, _)| ticket.is_own());
            let Ok(name) = VolumeName::new(&volume.entry.name) else { continue };
            if waits {
                continue;
            }
            let ticket = Ticket(self.next_own_ticket);
            self.next_own_ticket += 1;
            self.tickets.insert(ticket, now + self.config.request_ms);
            self.callers.insert(ticket, Arc::new(Caller::local(0)));
            self.dispatch(now, ticket, Request::Release { name, client, all_acknowledged: false });
        }
    }
}

/// The client has a right to the volume, or may get one by what is under way.
pub(super) fn holds(volumes: &BTreeMap<Vid, Volume>, client: ClientId, vid: Vid) -> bool {
    volumes.get(&vid).is_some_and(|v| {
        let entry = &v.entry;
        let pending = v.round.is_some() || !v.queue.is_empty() || !v.behind.is_empty();
        pending || entry.writer == Some(client) || entry.readers.contains(&client)
    })
}
