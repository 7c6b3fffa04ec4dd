// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Account of the admitted queue pairs of one host at one SSD, by the clients that have proven themselves on
//! them. No client holds what the other clients of its host need. When little of the clients' part is left, a
//! client gets more only if it has few. Key holders, which are the daemon and other SSDs, have a part of
//! their own.

use super::limits::{
    CLIENT_ENTRIES, CLIENT_QUEUE_PAIRS, CLIENTS_ENTRIES, CLIENTS_QUEUE_PAIRS, FEW_ENTRIES, FEW_QUEUE_PAIRS,
    HOLDERS_ENTRIES, HOLDERS_QUEUE_PAIRS,
};
use gnstor_base::peer_map::PeerMap;
use gnstor_proto::fabrics::Identity;

/// The account.
#[derive(Debug, Default)]
pub(super) struct Clients {
    of: PeerMap<Identity, Part>,
    all: Part,
    holders: Part,
}

/// Whether this is a client, and no key holder.
pub(super) fn is_client(who: Identity) -> bool {
    matches!(who, Identity::Client(_))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Part {
    queue_pairs: u32,
    entries: u32,
}

impl Part {
    /// With one more queue pair of so many entries.
    fn with(self, entries: u32) -> Self {
        Self { queue_pairs: self.queue_pairs + 1, entries: self.entries + entries }
    }

    fn without(self, entries: u32) -> Self {
        Self { queue_pairs: self.queue_pairs - 1, entries: self.entries - entries }
    }
}

impl Clients {
    /// Whether the client may have another queue pair with so many entries.
    pub(super) fn may_have(&self, who: Identity, entries: u32) -> bool {
        if !is_client(who) {
            let holders = self.holders.with(entries);
            return holders.queue_pairs <= HOLDERS_QUEUE_PAIRS && holders.entries <= HOLDERS_ENTRIES;
        }
        let own = self.of.get(&who).copied().unwrap_or_default().with(entries);
        let all = self.all.with(entries);
        // The last quarter is for clients with few.
        let leaves_queue_pairs = all.queue_pairs <= CLIENTS_QUEUE_PAIRS / 4 * 3;
        let leaves_entries = all.entries <= CLIENTS_ENTRIES / 4 * 3;
        let fits = all.queue_pairs <= CLIENTS_QUEUE_PAIRS && all.entries <= CLIENTS_ENTRIES;
        fits && own.queue_pairs <= CLIENT_QUEUE_PAIRS
            && own.entries <= CLIENT_ENTRIES
            && (own.queue_pairs <= FEW_QUEUE_PAIRS || leaves_queue_pairs)
            && (own.entries <= FEW_ENTRIES || leaves_entries)
    }

    pub(super) fn add(&mut self, who: Identity, entries: u32) {
        let own = self.of.get_or_insert(who, Part::default);
        *own = own.with(entries);
        let part = self.part_of(who);
        *part = part.with(entries);
    }

    fn part_of(&mut self, who: Identity) -> &mut Part {
        if is_client(who) { &mut self.all } else { &mut self.holders }
    }

    pub(super) fn remove(&mut self, who: Identity, entries: u32) {
        let Some(own) = self.of.get_mut(&who) else { return };
        *own = own.without(entries);
        if own.queue_pairs == 0 {
            self.of.remove(&who);
        }
        let part = self.part_of(who);
        *part = part.without(entries);
    }

    /// Number of clients.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.of.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;
    use gnstor_proto::slba::ClientId;

    fn client(id: u16) -> Identity {
        Identity::Client(ClientId::new(id).expect("an id"))
    }

    /// Number of clients that hold all that a host may have, if each takes what it may.
    fn clients_to_hold_all(entries: u32) -> u16 {
        let mut clients = Clients::default();
        let holds_all = |clients: &Clients| !clients.may_have(client(u16::MAX - 1), entries);
        let mut id = 0;
        while !holds_all(&clients) {
            id += 1;
            greedy(&mut clients, client(id), entries);
        }
        id
    }

    /// Adds queue pairs until no more are allowed. Returns their number.
    fn greedy(clients: &mut Clients, who: Identity, entries: u32) -> u32 {
        let mut count = 0;
        while clients.may_have(who, entries) {
            clients.add(who, entries);
            count += 1;
        }
        count
    }

    #[test]
    fn clients_with_many_queue_pairs_leave_the_last_quarter_to_clients_with_few() {
        let _deadline = deadline();
        let mut clients = Clients::default();
        assert_eq!(greedy(&mut clients, client(1), 2), CLIENT_QUEUE_PAIRS);
        let few = (2..=100).filter(|&id| greedy(&mut clients, client(id), 2) == FEW_QUEUE_PAIRS).count();
        assert!(few > 90, "{few} came to the last quarter");
        assert!(clients.all.queue_pairs < CLIENTS_QUEUE_PAIRS - 1500, "{:?}", clients.all);
        // Others have finished: one that has many may have more.
        (2..=100).for_each(|id| {
            while clients.of.contains_key(&client(id)) {
                clients.remove(client(id), 2)
            }
        });
        assert_eq!(clients.all, Part { queue_pairs: CLIENT_QUEUE_PAIRS, entries: 2 * CLIENT_QUEUE_PAIRS });
        clients.remove(client(1), 2);
        assert_eq!(greedy(&mut clients, client(1), 2), 1);
    }

    #[test]
    fn it_takes_many_clients_to_hold_all_that_a_host_may_have() {
        let _deadline = deadline();
        assert_eq!([clients_to_hold_all(2), clients_to_hold_all(FEW_ENTRIES)], [340, 80]);
        // One connection to the daemon has 64 ids. Whatever they take, a further client finds its few.
        for entries in [2, 64, FEW_ENTRIES] {
            let mut clients = Clients::default();
            (1..=64).for_each(|id| _ = greedy(&mut clients, client(id), entries));
            let found = greedy(&mut clients, client(65), FEW_ENTRIES / FEW_QUEUE_PAIRS);
            assert_eq!(found, FEW_QUEUE_PAIRS, "beside 64 clients with queue pairs of {entries} entries");
        }
    }

    #[test]
    fn clients_with_deep_queue_pairs_leave_entries_to_clients_with_few() {
        let _deadline = deadline();
        let mut clients = Clients::default();
        assert_eq!(greedy(&mut clients, client(1), 1024), CLIENT_ENTRIES / 1024);
        for id in 2..=64 {
            greedy(&mut clients, client(id), 64);
        }
        assert!(clients.all.entries < CLIENTS_ENTRIES - 5_000, "{:?}", clients.all);
        assert_eq!(greedy(&mut clients, client(100), 64), FEW_ENTRIES / 64);
        assert_eq!(clients.count(), 65);
    }
}
