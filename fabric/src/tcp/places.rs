// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Quotas of TCP connections: for a listener, and for one host.
//!
//! ```text
//!   Places --take(address)--> Place: held by a Wire until that is dropped
//!      `-- Host, by address: its connections, their queue pairs, Connects and queue entries
//! ```
//! A host is an IPv4 address, or the first 64 bits of an IPv6 address, since one host may have all addresses
//! of those. No host can have all places or all queue pairs, so one host's connections keep no other host
//! out. Hosts behind one translated address share its part, and so do the processes of one machine.

use super::limits::{HOST_ENTRIES, HOST_PENDING_CONNECTS, HOST_QUEUE_PAIRS};
use rustc_hash::FxHashMap as HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard};

/// A number of places, and the part of them that one host may take.
#[derive(Debug)]
pub struct Places {
    shared: Arc<Mutex<Shared>>,
    most: usize,
    of_host: usize,
}

#[derive(Debug, Default)]
struct Shared {
    taken: usize,
    hosts: HashMap<IpAddr, Arc<Host>>,
}

/// A place that is taken until this is dropped.
#[derive(Debug)]
pub struct Place {
    shared: Arc<Mutex<Shared>>,
    address: IpAddr,
    host: Arc<Host>,
}

/// Why no place is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoPlace {
    /// All places are taken.
    Full,
    /// The host has its part.
    OfHost,
}

/// Account of the connections of one host.
#[derive(Debug, Default)]
pub(super) struct Host(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    connections: usize,
    of_ssd: HashMap<u16, OfSsd>,
}

/// A host's queue pairs at one SSD.
#[derive(Clone, Copy, Debug, Default)]
struct OfSsd {
    queue_pairs: u32,
    pending: u32,
    entries: u32,
}

/// The part of a place's host, or the whole, that the rules name.
fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while held")
}

impl Places {
    /// All places are free.
    pub fn new(most: usize, of_host: usize) -> Self {
        Self { shared: Arc::default(), most, of_host }
    }

    /// A place for a connection from this address, if one is free.
    ///
    /// # Errors
    /// [`NoPlace`]
    pub fn take(&self, address: IpAddr) -> Result<Place, NoPlace> {
        let address = host_of(address);
        let mut shared = lock(&self.shared);
        if shared.taken >= self.most {
            return Err(NoPlace::Full);
        }
        let host = Arc::clone(shared.hosts.entry(address).or_default());
        {
            let mut held = lock(&host.0);
            if held.connections >= self.of_host {
                return Err(NoPlace::OfHost);
            }
            held.connections += 1;
        }
        shared.taken += 1;
        drop(shared);
        Ok(Place { shared: Arc::clone(&self.shared), address, host })
    }

    /// Number of taken places.
    pub fn taken(&self) -> usize {
        lock(&self.shared).taken
    }

    /// Hosts that have a place.
    #[cfg(test)]
    fn hosts(&self) -> usize {
        lock(&self.shared).hosts.len()
    }
}

impl Place {
    /// The address that identifies its host.
    pub fn host_address(&self) -> IpAddr {
        self.address
    }

    /// The account of its host.
    pub(super) fn host(&self) -> Arc<Host> {
        Arc::clone(&self.host)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut shared = lock(&self.shared);
        shared.taken -= 1;
        let mut held = lock(&self.host.0);
        held.connections -= 1;
        if held.connections == 0 {
            shared.hosts.remove(&self.address);
        }
    }
}

impl Host {
    /// Adds a queue pair with `entries` entries at this SSD, whose Connect is in progress. Returns whether
    /// the host may have it.
    pub(super) fn open(&self, ssd: u16, entries: u32) -> bool {
        let mut held = lock(&self.0);
        let OfSsd { queue_pairs, pending, entries: has } = held.of_ssd.get(&ssd).copied().unwrap_or_default();
        let is_over = queue_pairs >= HOST_QUEUE_PAIRS || pending >= HOST_PENDING_CONNECTS;
        if is_over || has.saturating_add(entries) > HOST_ENTRIES {
            return false;
        }
        let more = OfSsd { queue_pairs: queue_pairs + 1, pending: pending + 1, entries: has + entries };
        held.of_ssd.insert(ssd, more);
        true
    }

    /// A Connect that [`Self::open`] counted has its response.
    pub(super) fn answered(&self, ssd: u16) {
        if let Some(of_ssd) = lock(&self.0).of_ssd.get_mut(&ssd) {
            of_ssd.pending -= 1;
        }
    }

    /// A queue pair that [`Self::open`] counted is gone.
    pub(super) fn close(&self, ssd: u16, entries: u32, is_pending: bool) {
        let mut held = lock(&self.0);
        let Some(of_ssd) = held.of_ssd.get_mut(&ssd) else { return };
        of_ssd.queue_pairs -= 1;
        of_ssd.pending -= u32::from(is_pending);
        of_ssd.entries -= entries;
        if of_ssd.queue_pairs == 0 {
            held.of_ssd.remove(&ssd);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_place_is_free_again_when_it_is_dropped() {
        let _deadline = deadline();
        let (places, host) = (Places::new(2, 2), address("10.0.0.1"));
        let (first, second) = (places.take(host), places.take(host));
        assert!(first.is_ok() && second.is_ok());
        assert_eq!(places.take(host).err(), Some(NoPlace::Full));
        drop(first);
        assert_eq!(places.taken(), 1);
        assert!(places.take(host).is_ok());
    }

    #[test]
    fn one_host_leaves_places_to_others_and_is_forgotten_when_it_has_none() {
        let _deadline = deadline();
        let places = Places::new(4, 2);
        let greedy: Vec<_> = (0..2).map(|_| places.take(address("10.0.0.1")).expect("a place")).collect();
        assert_eq!(places.take(address("::ffff:10.0.0.1")).err(), Some(NoPlace::OfHost), "the same host");
        let other = places.take(address("10.0.0.2")).expect("a place of another host");
        drop(greedy);
        assert_eq!((places.taken(), places.hosts()), (1, 1));
        // One host may have 2^64 IPv6 addresses.
        let six: Vec<_> = (1..=2).map(|i| places.take(address(&format!("fd00::{i}"))).unwrap()).collect();
        assert_eq!(places.take(address("fd00::77")).err(), Some(NoPlace::OfHost));
        assert!(places.take(address("fd00:0:0:1::1")).is_ok());
        drop((other, six));
        assert_eq!((places.taken(), places.hosts()), (0, 0));
    }

    /// Two machines behind one translated address, or two processes of one machine: the SSD sees one address.
    #[test]
    fn hosts_behind_one_address_have_one_part_together() {
        let _deadline = deadline();
        let places = Places::new(8, 2);
        let first = places.take(address("192.0.2.1")).expect("a place");
        let second = places.take(address("192.0.2.1")).expect("a place");
        assert_eq!(places.take(address("192.0.2.1")).err(), Some(NoPlace::OfHost));
        let (first, second) = (first.host(), second.host());
        for _ in 0..HOST_QUEUE_PAIRS {
            assert!(first.open(0, 2));
            first.answered(0);
        }
        assert!(!second.open(0, 2), "the other one has had them all");
        let elsewhere = places.take(address("192.0.2.2")).expect("a place of another host");
        assert!(elsewhere.host().open(0, 2));
    }

    #[test]
    fn one_host_leaves_queue_pairs_of_an_ssd_to_others_and_gets_its_own_back() {
        let _deadline = deadline();
        let host = Host::default();
        assert!((0..HOST_PENDING_CONNECTS).all(|_| host.open(0, 2)));
        assert!(!host.open(0, 2), "so many Connects are under way");
        assert!(host.open(1, 1024), "another SSD");
        (0..HOST_PENDING_CONNECTS).for_each(|_| host.answered(0));
        for _ in HOST_PENDING_CONNECTS..HOST_QUEUE_PAIRS {
            assert!(host.open(0, 2));
            host.answered(0);
        }
        assert!(!host.open(0, 2), "so many queue pairs");
        host.close(0, 2, false);
        assert!(host.open(0, 2));
        host.close(0, 2, true);
        (1..HOST_QUEUE_PAIRS).for_each(|_| host.close(0, 2, false));
        host.close(1, 1024, true);
        assert!(lock(&host.0).of_ssd.is_empty());
        let deep = HOST_ENTRIES / 1024;
        for _ in 0..deep {
            assert!(host.open(0, 1024));
            host.answered(0);
        }
        assert!(!host.open(0, 1024) && !host.open(0, 1), "so many entries");
        host.close(0, 1024, false);
        assert!(host.open(0, 1024) && !host.open(0, 1), "its entries are its own again");
    }
}
