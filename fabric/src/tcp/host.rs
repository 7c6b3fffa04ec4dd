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

use super::clients::Clients;
use super::limits::{
    HOST_ENTRIES, HOST_LEAVING, HOST_NAMES, HOST_PENDING_CONNECTS, HOST_QUEUE_PAIRS, WAITING_ENTRIES,
};
use super::notice::Notice;
use gnstor_proto::fabrics::Identity;
use rustc_hash::FxHashMap as HashMap;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard};

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while held")
}

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
    of_ssd: HashMap<u16, OfSsd>,
    /// Queue pairs at all SSDs.
    queue_pairs: u32,
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

    /// A client of this connection is admitted: the connection gives way to no other from here on.
    pub(super) fn admit_connection(&self, number: u64) {
        lock(&self.account).newcomers.remove(&number);
    }

    /// A connection has ended. Returns whether the host has another one.
    pub(super) fn leave(&self, number: u64, notice: &Notice) -> bool {
        let mut held = lock(&self.account);
        held.connections -= 1;
        held.newcomers.remove(&number);
        held.leaving -= usize::from(notice.must_end());
        held.connections > 0
    }

    /// Adds a queue pair whose Connect is in progress. Returns `None` if the host or the client may not have
    /// it.
    pub(super) fn open(&self, asked: &Asked<'_>) -> Option<Entry> {
        let &Asked { ssd, entries, conn, notice, who } = asked;
        let mut held = lock(&self.account);
        let number = held.number();
        let is_everywhere = held.queue_pairs >= HOST_NAMES;
        let of_ssd = held.of_ssd.entry(ssd).or_default();
        let counted = entries.min(WAITING_ENTRIES);
        let is_over = of_ssd.queue_pairs >= HOST_QUEUE_PAIRS || of_ssd.leaving >= HOST_LEAVING;
        let is_many = who.is_some_and(|who| !of_ssd.clients.may_have(who, entries));
        if is_everywhere || is_over || is_many || of_ssd.entries.saturating_add(counted) > HOST_ENTRIES {
            // The number may name no SSD.
            if of_ssd.queue_pairs == 0 {
                held.of_ssd.remove(&ssd);
            }
            return None;
        }
        if of_ssd.waiting.len() >= HOST_PENDING_CONNECTS as usize {
            let (_, (oldest, of)) = of_ssd.waiting.pop_first()?;
            of_ssd.leaving += 1;
            of.close(oldest);
        }
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
        let Some(of_ssd) = held.of_ssd.get_mut(&entry.ssd).filter(|_| waits) else { return true };
        let all = of_ssd.entries - entry.counted + entry.entries;
        if all > HOST_ENTRIES || !of_ssd.clients.may_have(who, entry.entries) {
            return false;
        }
        if of_ssd.waiting.remove(&entry.number).is_some() {
            of_ssd.clients.add(who, entry.entries);
            (of_ssd.entries, entry.counted, entry.client) = (all, entry.entries, Some(who));
        }
        true
    }

    /// A queue pair is gone.
    pub(super) fn close(&self, entry: &Entry) {
        let mut held = lock(&self.account);
        let Some(of_ssd) = held.of_ssd.get_mut(&entry.ssd) else { return };
        of_ssd.queue_pairs -= 1;
        of_ssd.entries -= entry.counted;
        match entry.client {
            Some(who) => of_ssd.clients.remove(who, entry.entries),
            None if of_ssd.waiting.remove(&entry.number).is_none() => of_ssd.leaving -= 1,
            None => {}
        }
        if of_ssd.queue_pairs == 0 {
            held.of_ssd.remove(&entry.ssd);
        }
        held.queue_pairs -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::{CLIENT_QUEUE_PAIRS, FEW_ENTRIES};
    use super::*;
    use gnstor_base::testing::deadline;
    use gnstor_proto::slba::ClientId;

    fn notice() -> Arc<Notice> {
        Arc::default()
    }

    fn client(id: u16) -> Identity {
        Identity::Client(ClientId::new(id).expect("an id"))
    }

    /// A stranger asks for a queue pair.
    fn open(host: &Host, entries: u32, conn: u32, notice: &Arc<Notice>) -> Option<Entry> {
        host.open(&Asked { ssd: 0, entries, conn, notice, who: None })
    }

    fn admitted(host: &Host, ssd: u16, entries: u32, id: u16) -> Option<Entry> {
        let mut entry = host.open(&Asked { ssd, entries, conn: 0, notice: &notice(), who: None })?;
        if host.admit(&mut entry, client(id)) {
            return Some(entry);
        }
        host.close(&entry);
        None
    }

    /// Queue pairs of clients that take what they may, from client 1 on, until the host has its part.
    fn all_of_host(host: &Host, entries: u32) -> Vec<Entry> {
        let mut all = Vec::new();
        for id in 1..4096 {
            all.extend(std::iter::from_fn(|| admitted(host, 0, entries, id)));
        }
        all
    }

    #[test]
    fn the_oldest_queue_pair_that_waits_gives_way_and_admitted_ones_stay() {
        let _deadline = deadline();
        let (host, first, other) = (Host::default(), notice(), notice());
        let mut admitted = open(&host, 2, 1, &first).expect("room");
        assert!(host.admit(&mut admitted, client(1)));
        let all: Vec<_> =
            (0..HOST_PENDING_CONNECTS).map(|conn| open(&host, 2, 100 + conn, &first).unwrap()).collect();
        assert!(first.take().is_empty());
        let mut newest = open(&host, 2, 7, &other).expect("another gives way");
        assert_eq!((first.take(), other.take()), (vec![100], vec![]));
        assert_eq!(first.take(), [], "it is told once");
        // The new one is through before the others have asked for as many again.
        assert!(host.admit(&mut newest, client(1)));
        let more = open(&host, 2, 8, &other).expect("the place of the one that was admitted");
        assert_eq!(first.take(), []);
        all.iter().chain([&admitted, &newest, &more]).for_each(|entry| host.close(entry));
        assert!(lock(&host.account).of_ssd.is_empty());
    }

    #[test]
    fn no_more_give_way_than_have_not_left_yet() {
        let _deadline = deadline();
        let (host, notice) = (Host::default(), notice());
        let most = HOST_PENDING_CONNECTS + HOST_LEAVING;
        let mut all: Vec<_> = (0..most).map(|conn| open(&host, 2, conn, &notice).expect("room")).collect();
        assert!(open(&host, 2, most, &notice).is_none(), "so many were told to close and are still there");
        assert_eq!(notice.take(), (0..HOST_LEAVING).collect::<Vec<_>>());
        host.close(&all.remove(0));
        assert!(open(&host, 2, most, &notice).is_some());
        // A queue pair that was told to close does so even if it is admitted meanwhile.
        assert!(host.admit(&mut all[0], client(1)) && all[0].client.is_none());
    }

    #[test]
    fn one_host_leaves_queue_pairs_of_an_ssd_to_others_and_gets_its_own_back() {
        let _deadline = deadline();
        let host = Host::default();
        let mut all = all_of_host(&host, 2);
        assert_eq!(all.len(), HOST_QUEUE_PAIRS as usize);
        assert!(open(&host, 2, 0, &notice()).is_none(), "so many queue pairs");
        let elsewhere = admitted(&host, 1, 1024, 1).expect("another SSD");
        host.close(&all.pop().expect("some"));
        all.push(admitted(&host, 0, 2, 5000).expect("its own again"));
        all.iter().chain([&elsewhere]).for_each(|entry| host.close(entry));
        assert!(lock(&host.account).of_ssd.is_empty());
    }

    /// An engine has 65,536 names of connections for all its SSDs.
    #[test]
    fn one_host_leaves_names_of_an_engine_to_others_however_many_ssds_that_has() {
        let _deadline = deadline();
        let host = Host::default();
        let of_ssd = |ssd| (1..=4096).flat_map(move |id| (0..3).map(move |_| (ssd, id)));
        let all: Vec<_> =
            (0..8).flat_map(of_ssd).filter_map(|(ssd, id)| admitted(&host, ssd, 2, id)).collect();
        assert_eq!(all.len(), HOST_NAMES as usize);
        assert!(admitted(&host, 9, 2, 5000).is_none(), "an SSD at which it has none");
        host.close(&all[0]);
        let again = admitted(&host, 9, 2, 5000).expect("its own again");
        all[1..].iter().chain([&again]).for_each(|entry| host.close(entry));
        assert_eq!(lock(&host.account).queue_pairs, 0);
    }

    #[test]
    fn one_host_leaves_entries_of_an_ssd_to_others() {
        let _deadline = deadline();
        let host = Host::default();
        // All but the last quarter in deep queue pairs, and the last in shallow ones.
        let deep = all_of_host(&host, 1024);
        let shallow = all_of_host(&host, 64);
        assert!(deep.len() > 100 && shallow.len() > 100, "{} {}", deep.len(), shallow.len());
        assert!(open(&host, 1, 0, &notice()).is_none(), "so many entries");
        shallow[..8].iter().for_each(|entry| host.close(entry));
        // A queue pair that waits counts little, and all its entries must fit when it is admitted.
        let mut waiting: Vec<_> = (0..2).map(|_| open(&host, 512, 0, &notice()).expect("room")).collect();
        assert!(!host.admit(&mut waiting[0], client(5000)));
        host.close(&waiting.remove(0));
        assert!(host.admit(&mut waiting[0], client(5000)));
        assert!(open(&host, 1, 0, &notice()).is_none());
    }

    #[test]
    fn peers_that_prove_nothing_leave_entries_to_clients_of_their_host() {
        let _deadline = deadline();
        let host = Host::default();
        let deep: Vec<_> = (1..=2)
            .flat_map(|id| std::iter::from_fn(|| admitted(&host, 0, 1024, id)).collect::<Vec<_>>())
            .collect();
        let unproven: Vec<_> = (0..HOST_PENDING_CONNECTS)
            .map(|conn| open(&host, 1024, conn, &notice()).expect("room"))
            .collect();
        let few: Vec<_> = (100..150).filter_map(|id| admitted(&host, 0, FEW_ENTRIES, id)).collect();
        assert_eq!(few.len(), 50, "beside {} deep ones", deep.len());
        deep.iter().chain(&unproven).chain(&few).for_each(|entry| host.close(entry));
        assert!(lock(&host.account).of_ssd.is_empty());
    }

    /// On loopback all clients are of one host.
    #[test]
    fn one_client_leaves_queue_pairs_of_its_host_to_other_clients_and_gets_its_own_back() {
        let _deadline = deadline();
        let (host, notice) = (Host::default(), notice());
        let mut greedy: Vec<_> = std::iter::from_fn(|| admitted(&host, 0, 2, 1)).collect();
        assert_eq!(greedy.len(), CLIENT_QUEUE_PAIRS as usize);
        let known = Asked { ssd: 0, entries: 2, conn: 1, notice: &notice, who: Some(client(1)) };
        assert!(host.open(&known).is_none(), "it is refused before its Connect");
        let other = admitted(&host, 0, 2, 2).expect("another client");
        host.close(&greedy.pop().expect("some"));
        greedy.push(admitted(&host, 0, 2, 1).expect("its own again"));
        greedy.iter().chain([&other]).for_each(|entry| host.close(entry));
        assert!(lock(&host.account).of_ssd.is_empty());
    }
}
