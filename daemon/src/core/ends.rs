// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When a client id ends, the daemon releases the volumes that it had open.
//!
//! ```text
//!   the id's time is over --> it is ending --> one Release for all such ids of a volume --> forgotten
//!                                 ^----- again every 500 ms, until the volume names it no more
//! ```
//! The Release has a ticket of the core's own. It waits for the volume's changes like any other. It needs no
//! right, since no caller may name an id that is ending. The core drops the ids once the volume lists none of
//! them, even if an SSD has not stored the new entry yet. It is not reused until each SSD has the entry.
//! Otherwise another client with the id would have the rights of the former one at that SSD.

use super::request::{Request, VolumeName};
use super::rights::Caller;
use super::volume::{Purpose, Round, Stage, Volume};
use super::{Core, OWN_TICKETS, Ticket};
use gnstor_proto::slba::{ClientId, Vid};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Ticket {
    /// Whether the core itself made the request, so that no client waits for the reply.
    pub(super) fn is_own(self) -> bool {
        self.0 >= OWN_TICKETS
    }
}

impl Core {
    /// Releases the volumes that ended ids had open.
    pub(super) fn clients_step(&mut self, now: u64) {
        if !self.is_serving() {
            return;
        }
        let volumes = &self.volumes;
        self.clients.rest_step(now, |vid| volumes.get(&vid).is_none_or(Volume::is_everywhere));
        let ends = self.clients.step(now, |id, vid| holds(volumes, id, vid));
        self.end_clients();
        let mut by_volume: BTreeMap<Vid, Vec<ClientId>> = BTreeMap::new();
        for (client, vid) in ends {
            by_volume.entry(vid).or_default().push(client);
        }
        for (vid, clients) in by_volume {
            let Some(volume) = self.volumes.get(&vid) else { continue };
            if volume.has_let_go(&clients) {
                let is_everywhere = volume.is_everywhere();
                clients.into_iter().for_each(|client| self.let_go(now, client, vid, is_everywhere));
                continue;
            }
            let Some(&client) = clients.last() else { continue };
            // A Release that already waits ends these ids, too. Further Releases would keep clients' requests
            // out of the queue.
            let waits = volume.queue.iter().any(|(ticket, _)| ticket.is_own());
            let Ok(name) = VolumeName::new(&volume.entry.name) else { continue };
            if waits {
                continue;
            }
            let ticket = Ticket(self.next_own_ticket);
            self.next_own_ticket += 1;
            self.tickets.insert(ticket, now + self.config.request_ms);
            self.callers.insert(ticket, Arc::new(Caller::local(0)));
            self.dispatch(
                now,
                ticket,
                Request::Release { name, client, all_acknowledged: false, lease_epoch: None },
            );
        }
    }

    /// Drops a client id after the volume's entry has stopped listing it.
    pub(super) fn let_go(&mut self, now: u64, client: ClientId, vid: Vid, is_everywhere: bool) {
        if is_everywhere {
            self.clients.released(now, client, vid);
        } else {
            self.clients.released_early(now, client, vid);
        }
    }
}

impl Volume {
    /// Whether each SSD has the entry, or gets a client's change now. False for a volume that is being
    /// deleted: only some SSDs still have it.
    pub(super) fn is_everywhere(&self) -> bool {
        let repairs = |round: &Round| matches!(round.purpose, Purpose::Reconcile { .. });
        let goes = matches!(self.stage, Stage::Marked | Stage::Deleting(_));
        !goes && self.behind.is_empty() && !self.round.as_ref().is_some_and(repairs)
    }

    /// Whether a Release would change nothing: the volume lists none of these clients, or is being deleted,
    /// and no change is pending. An SSD that is away gets the entry when it is back.
    fn has_let_go(&self, clients: &[ClientId]) -> bool {
        let entry = &self.entry;
        let names = |id: &ClientId| entry.writer == Some(*id) || entry.readers.contains(id);
        let rests = self.round.is_none() && self.queue.is_empty();
        rests && (self.stage != Stage::Active || !clients.iter().any(names))
    }
}

/// Whether the client has a right to the volume, or a pending change may grant it one.
pub(super) fn holds(volumes: &BTreeMap<Vid, Volume>, client: ClientId, vid: Vid) -> bool {
    volumes.get(&vid).is_some_and(|v| {
        let entry = &v.entry;
        let pending = v.round.is_some() || !v.queue.is_empty() || !v.behind.is_empty();
        pending || entry.writer == Some(client) || entry.readers.contains(&client)
    })
}
