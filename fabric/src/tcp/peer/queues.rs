// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The queue pairs of a client, and how long the client and they may be idle.

use crate::cm::{REFUSED_NO_PEER, Refused};
use crate::tcp::host::{Asked, Entry};
use crate::tcp::limits::{End, HANDSHAKE, IDLE, PENDING, PENDING_CONNECTS, QUEUE_PAIRS};
use crate::tcp::places::Place;
use gnstor_base::peer_map::PeerMap;
use gnstor_base::time::Time;
use gnstor_proto::fabrics::{CmRequest, Identity, cm_reject};

/// The client's queue pairs, by its numbers of their connections.
#[derive(Debug, Default)]
pub(super) struct Queues {
    pub(super) open: PeerMap<u32, Pair>,
    pending: usize,
    has_connected: bool,
    clients: Known,
    /// Time since which there is no queue pair.
    pub(super) empty_since: Option<Time>,
}

/// The clients that were admitted on a connection.
#[derive(Clone, Copy, Debug, Default)]
enum Known {
    #[default]
    None,
    One(Identity),
    /// Clients of one process may share a connection.
    Several,
}

/// A queue pair of a client.
#[derive(Debug)]
pub(super) struct Pair {
    /// Since when it waits for its client's admission; `None`: the client is admitted.
    pending_since: Option<Time>,
    /// The queue pair's entry in the account of the client's host.
    entry: Option<Entry>,
}

impl Queues {
    /// The client asks for another queue pair. `place`: of its connection, if the listener keeps accounts.
    pub(super) fn open(
        &mut self,
        conn: u32,
        ssd: u16,
        request: &CmRequest,
        place: Option<&Place>,
    ) -> Result<(), Refused> {
        // A number identifies one connection. A second one with the same number would make the first
        // unreachable.
        if self.open.contains_key(&conn) {
            return Err(REFUSED_NO_PEER);
        }
        if self.open.len() >= QUEUE_PAIRS || self.pending >= PENDING_CONNECTS {
            return Err(cm_reject::NO_RESOURCES);
        }
        let entries = u32::from(request.hsqsize_z.get()) + 1;
        let entry = match place {
            None => None,
            Some(place) => {
                let who = if let Known::One(who) = self.clients { Some(who) } else { None };
                let asked = Asked { ssd, entries, conn, notice: place.notice(), who };
                let entry = place.host().open(&asked);
                Some(entry.ok_or(cm_reject::NO_RESOURCES)?)
            }
        };
        // The next tick sets the time.
        self.open.insert(conn, Pair { pending_since: Some(Time::NEVER), entry });
        self.pending += 1;
        self.has_connected = true;
        self.empty_since = None;
        Ok(())
    }

    pub(super) fn close(&mut self, conn: u32, place: Option<&Place>) {
        if let Some(Pair { pending_since, entry }) = self.open.remove(&conn) {
            self.pending -= usize::from(pending_since.is_some());
            if let (Some(place), Some(entry)) = (place, entry) {
                place.host().close(&entry);
            }
        }
    }

    /// Closes all queue pairs.
    pub(super) fn close_all(&mut self, place: Option<&Place>) {
        let conns = self.open.sorted(|_, _| true);
        conns.into_iter().for_each(|conn| self.close(conn, place));
    }

    /// The client `who` is admitted on this queue pair. Returns whether it and its host may have so much; if
    /// not, the queue pair is to be closed.
    pub(super) fn admitted(&mut self, conn: u32, who: Identity, place: Option<&Place>) -> bool {
        self.clients = match self.clients {
            Known::None => Known::One(who),
            Known::One(known) if known == who => Known::One(who),
            _ => Known::Several,
        };
        let Some(pair) = self.open.get_mut(&conn).filter(|pair| pair.pending_since.is_some()) else {
            return true;
        };
        if let (Some(place), Some(entry)) = (place, &mut pair.entry)
            && !(place.host().admit(entry, who) && place.set_admitted(who))
        {
            return false;
        }
        pair.pending_since = None;
        self.pending -= 1;
        true
    }

    /// Waits for the client, and for its Connects, begin anew.
    pub(super) fn wait_anew(&mut self, now: Time) {
        self.empty_since = self.empty_since.map(|since| since.max(now));
        if self.pending > 0 {
            self.open.sorted(|_, pair| {
                pair.pending_since = pair.pending_since.map(|since| since.max(now));
                false
            });
        }
    }

    /// Why the array must end the client's connection, if it must.
    pub(super) fn overdue(&mut self, now: Time) -> Option<End> {
        if !self.open.is_empty() {
            return None;
        }
        let idle = now.since(*self.empty_since.get_or_insert(now));
        match self.has_connected {
            false if idle >= HANDSHAKE => Some(End::NoHandshake),
            true if idle >= IDLE => Some(End::Idle),
            _ => None,
        }
    }

    pub(super) fn late_connects(&mut self, now: Time) -> Vec<u32> {
        if self.pending == 0 {
            return Vec::new();
        }
        self.open.sorted(|_, pair| {
            pair.pending_since = pair.pending_since.map(|since| since.min(now));
            pair.pending_since.is_some_and(|since| now.since(since) >= PENDING)
        })
    }
}
