// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Account of the connections of one host, and of their queue pairs.
//!
//! ```text
//!   connection  --enter--> newcomer --first queue pair admitted--> admitted
//!   queue pair  --open---> waiting  --admitted-------------------> admitted, of a client (`clients`)
//!                  `-- the host has its part? the oldest one here gives way
//! ```
//! The array cannot tell the processes of a host apart, so an attacker on a client's own host shares that
//! client's part. Therefore newcomers give way, the oldest first. An honest client is admitted within
//! milliseconds, and a newcomer that is older than that only fills the part. An admitted one keeps its place.

use super::clients::{Clients, is_client};
use super::limits::{
    CLIENTS_NAMES, HOST_ENTRIES, HOST_LEAVING, HOST_NAMES, HOST_PENDING_CONNECTS, HOST_QUEUE_PAIRS,
    SPARED_CONNECTION, WAITING_ENTRIES,
};
use super::notice::{Notice, lock};
use gnstor_base::peer_map::PeerMap;
use gnstor_proto::fabrics::Identity;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

/// The account.
#[derive(Debug, Default)]
pub(super) struct Host {
    account: Mutex<Held>,
    /// Bytes that its connections hold.
    held: AtomicUsize,
}

#[derive(Debug, Default)]
struct Held {
    connections: usize,
    /// Connections that were told to end and are still there.
    leaving: usize,
    /// Number of the next connection or queue pair: a smaller one is older.
    next: u64,
    /// Connections without an admitted queue pair.
    newcomers: BTreeMap<u64, Arc<Notice>>,
    /// Connections on which clients were admitted first, by their numbers.
    of_clients: BTreeSet<u64>,
    of_ssd: PeerMap<u16, OfSsd>,
    /// Queue pairs at all SSDs, and those of admitted clients among them.
    queue_pairs: u32,
    clients_pairs: u32,
    /// Queue pairs at all SSDs that were told to close and are still there.
    leaving_pairs: u32,
}

/// A connection that has begun.
pub(super) struct Entered {
    /// Its number.
    pub(super) number: u64,
    /// An older connection of the host was told to end.
    pub(super) one_gave_way: bool,
}

impl Held {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn give_way(&mut self) -> bool {
        let Some((_, oldest)) = self.newcomers.pop_first() else { return false };
        self.leaving += 1;
        oldest.end();
        true
    }

    /// Tells the oldest queue pair that waits at this SSD to close. False: there is none.
    fn pair_gives_way(&mut self, ssd: u16) -> bool {
        let Some(of_ssd) = self.of_ssd.get_mut(&ssd) else { return false };
        let Some((_, (oldest, of))) = of_ssd.waiting.pop_first() else { return false };
        of_ssd.leaving += 1;
        self.leaving_pairs += 1;
        of.close(oldest);
        true
    }

    /// The SSD at which most queue pairs of the host wait.
    fn waits_most_at(&mut self) -> Option<u16> {
        let (mut most, mut at) = (0, None);
        let ssds = self.of_ssd.sorted(|_, of_ssd| !of_ssd.waiting.is_empty());
        for ssd in ssds {
            let waiting = self.of_ssd.get(&ssd).map_or(0, |of_ssd| of_ssd.waiting.len());
            if waiting > most {
                (most, at) = (waiting, Some(ssd));
            }
        }
        at
    }
}

/// A host's queue pairs at one SSD.
#[derive(Debug, Default)]
struct OfSsd {
    queue_pairs: u32,
    entries: u32,
    /// Queue pairs whose client is not admitted yet, with the client's number.
    waiting: BTreeMap<u64, (u32, Arc<Notice>)>,
    /// Queue pairs that were told to close and are still there.
    leaving: u32,
    /// Queue pairs whose clients are admitted.
    clients: Clients,
}

/// A queue pair in its host's account.
#[derive(Debug)]
pub(super) struct Entry {
    ssd: u16,
    number: u64,
    entries: u32,
    /// Entries that count.
    counted: u32,
    /// The queue pair's client; `None` until the client is admitted.
    client: Option<Identity>,
}

/// A client asks for a queue pair.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) ssd: u16,
    pub(super) entries: u32,
    /// The client's number of it.
    pub(super) conn: u32,
    pub(super) notice: &'a Arc<Notice>,
    /// Who the client is, if exactly one has proven itself on its connection. A second client of that process
    /// is judged as the first until it has proven itself.
    pub(super) who: Option<Identity>,
}

impl Host {
    /// Adds a connection. If the host has `most` already, its oldest newcomer gives way. `None`: it has no
    /// newcomer.
    pub(super) fn enter(&self, most: usize, notice: &Arc<Notice>) -> Option<Entered> {
        let mut held = lock(&self.account);
        let is_full = held.connections - held.leaving >= most;
        if is_full && (held.leaving >= HOST_LEAVING as usize || !held.give_way()) {
            return None;
        }
        held.connections += 1;
        let number = held.number();
        held.newcomers.insert(number, Arc::clone(notice));
        Some(Entered { number, one_gave_way: is_full })
    }

    /// Whether the host has `most` connections. For a further one, one of its own must give way.
    pub(super) fn has_its_part(&self, most: usize) -> bool {
        let held = lock(&self.account);
        held.connections - held.leaving >= most
    }

    /// Connections without an admitted queue pair. One gives way if a client of another host needs its place.
    pub(super) fn newcomers(&self) -> usize {
        lock(&self.account).newcomers.len()
    }

    /// Tells the oldest newcomer to end. False: there is none.
    pub(super) fn give_way(&self) -> bool {
        lock(&self.account).give_way()
    }

    /// The counter of bytes that its connections hold.
    pub(super) fn held(&self) -> &AtomicUsize {
        &self.held
    }

    /// `who` is admitted on this connection, which gives way to no other from here on. Of `most` connections,
    /// clients leave some to others. `None`: the connection stays a newcomer. Else whether it is a further
    /// one of clients.
    pub(super) fn admit_connection(&self, number: u64, who: Identity, most: usize) -> Option<bool> {
        let mut held = lock(&self.account);
        let is_new = held.newcomers.contains_key(&number) && is_client(who);
        if is_new && held.of_clients.len() >= most - most / SPARED_CONNECTION {
            return None;
        }
        held.newcomers.remove(&number);
        Some(is_new && held.of_clients.insert(number))
    }

    /// Whether clients were admitted first on this connection.
    pub(super) fn is_of_clients(&self, number: u64) -> bool {
        lock(&self.account).of_clients.contains(&number)
    }

    /// A connection has ended. Returns whether the host has another one.
    pub(super) fn leave(&self, number: u64, notice: &Notice) -> bool {
        let mut held = lock(&self.account);
        held.connections -= 1;
        held.newcomers.remove(&number);
        held.of_clients.remove(&number);
        held.leaving -= usize::from(notice.must_end());
        held.connections > 0
    }

    /// Adds a queue pair whose Connect is in progress. Returns `None` if the host or the client may not have
    /// it.
    pub(super) fn open(&self, asked: &Asked<'_>) -> Option<Entry> {
        let &Asked { ssd, entries, conn, notice, who } = asked;
        let mut held = lock(&self.account);
        let number = held.number();
        let is_everywhere = held.queue_pairs - held.leaving_pairs >= HOST_NAMES;
        if is_everywhere {
            let at = held.waits_most_at()?;
            held.pair_gives_way(at);
        }
        let of_ssd = held.of_ssd.get_or_insert(ssd, OfSsd::default);
        let counted = entries.min(WAITING_ENTRIES);
        let is_over = of_ssd.queue_pairs >= HOST_QUEUE_PAIRS || of_ssd.leaving >= HOST_LEAVING;
        let is_many = who.is_some_and(|who| !of_ssd.clients.may_have(who, entries));
        if is_over || is_many || of_ssd.entries.saturating_add(counted) > HOST_ENTRIES {
            // The number may name no SSD.
            if of_ssd.queue_pairs == 0 {
                held.of_ssd.remove(&ssd);
            }
            return None;
        }
        if of_ssd.waiting.len() >= HOST_PENDING_CONNECTS as usize {
            held.pair_gives_way(ssd);
        }
        let of_ssd = held.of_ssd.get_or_insert(ssd, OfSsd::default);
        of_ssd.queue_pairs += 1;
        of_ssd.entries += counted;
        of_ssd.waiting.insert(number, (conn, Arc::clone(notice)));
        held.queue_pairs += 1;
        Some(Entry { ssd, number, entries, counted, client: None })
    }

    /// The client of a queue pair is admitted, so all its entries count. Returns whether the host and the
    /// client may have so many; if not, the queue pair is to be closed.
    pub(super) fn admit(&self, entry: &mut Entry, who: Identity) -> bool {
        let mut held = lock(&self.account);
        let waits = entry.client.is_none();
        let of_client = u32::from(is_client(who));
        if waits && of_client + held.clients_pairs > CLIENTS_NAMES {
            return false;
        }
        let Some(of_ssd) = held.of_ssd.get_mut(&entry.ssd).filter(|_| waits) else { return true };
        let all = of_ssd.entries - entry.counted + entry.entries;
        if all > HOST_ENTRIES || !of_ssd.clients.may_have(who, entry.entries) {
            return false;
        }
        if of_ssd.waiting.remove(&entry.number).is_some() {
            of_ssd.clients.add(who, entry.entries);
            (of_ssd.entries, entry.counted, entry.client) = (all, entry.entries, Some(who));
            held.clients_pairs += of_client;
        }
        true
    }

    /// A queue pair is gone.
    pub(super) fn close(&self, entry: &Entry) {
        let mut held = lock(&self.account);
        let Some(of_ssd) = held.of_ssd.get_mut(&entry.ssd) else { return };
        of_ssd.queue_pairs -= 1;
        of_ssd.entries -= entry.counted;
        let was_told = entry.client.is_none() && of_ssd.waiting.remove(&entry.number).is_none();
        of_ssd.leaving -= u32::from(was_told);
        if let Some(who) = entry.client {
            of_ssd.clients.remove(who, entry.entries);
        }
        if of_ssd.queue_pairs == 0 {
            held.of_ssd.remove(&entry.ssd);
        }
        held.clients_pairs -= u32::from(entry.client.is_some_and(is_client));
        held.leaving_pairs -= u32::from(was_told);
        held.queue_pairs -= 1;
    }
}

#[cfg(test)]
mod tests;
