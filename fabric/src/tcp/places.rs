// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Quotas of TCP connections: for a listener, and for one host.
//!
//! ```text
//!   Places --take(address)--> Place: held by a Wire until that is dropped
//!      |-- Host, by address: its connections and their queue pairs (`host`)
//!      `-- bytes that the connections hold, of each host and of all
//! ```
//! A host is an IPv4 address, or the first 64 bits of an IPv6 address, since one host may have all addresses
//! of those. No host can have all places or all queue pairs, so one host's connections keep no other host
//! out. Hosts behind one translated address share its part, and so do the processes of one machine. There the
//! oldest connection on which no client has proven itself gives way to a new one. If several hosts have all
//! places, the oldest such connection of the host with most of them gives way.

use super::host::{Entered, Host};
use super::limits::{HELD, HOST_HELD, HOST_LEAVING, MOST_HELD, SPARED_CONNECTION, SPARED_HELD};
use super::notice::Notice;
use super::notice::lock;
use gnstor_base::peer_map::PeerMap;
use gnstor_proto::fabrics::Identity;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes held are counted in steps of this size, so that few changes reach the counters.
const STEP: usize = 16 << 10;

/// A number of places, and the part of them that one host may take.
#[derive(Debug)]
pub struct Places {
    shared: Arc<Mutex<Shared>>,
    /// Bytes that all connections hold.
    held: Arc<AtomicUsize>,
    most: usize,
    of_host: usize,
}

#[derive(Debug, Default)]
struct Shared {
    taken: usize,
    /// Connections that were told to end and are still there.
    leaving: usize,
    /// Connections of clients.
    of_clients: usize,
    hosts: PeerMap<IpAddr, Known>,
    /// Hosts with newcomers, by how many they have.
    greed: BTreeSet<(usize, IpAddr)>,
}

/// A host that has places.
#[derive(Debug, Default)]
struct Known {
    host: Arc<Host>,
    /// Number of the host's newcomers, as in `greed`.
    newcomers: usize,
}

impl Shared {
    /// The number of a host's newcomers may have changed.
    fn count(&mut self, address: IpAddr) {
        let Some(known) = self.hosts.get_mut(&address) else { return };
        let before = std::mem::replace(&mut known.newcomers, known.host.newcomers());
        let now = known.newcomers;
        if before != now {
            self.greed.remove(&(before, address));
            if now > 0 {
                self.greed.insert((now, address));
            }
        }
    }

    /// Tells the oldest newcomer of the host with most of them to end. False: none is to give way.
    fn give_way(&mut self) -> bool {
        let Some(&(_, greedy)) = self.greed.last() else { return false };
        let is_told = self.leaving < HOST_LEAVING as usize
            && self.hosts.get(&greedy).is_some_and(|known| known.host.give_way());
        self.leaving += usize::from(is_told);
        self.count(greedy);
        is_told
    }
}

/// A place that is taken until this is dropped.
#[derive(Debug)]
pub struct Place {
    shared: Arc<Mutex<Shared>>,
    address: IpAddr,
    host: Arc<Host>,
    number: u64,
    notice: Arc<Notice>,
    /// Places in all, and of its host.
    most: [usize; 2],
    /// Bytes that all connections hold, and those of this one among them.
    held: Arc<AtomicUsize>,
    of_this: usize,
}

/// Why no place is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoPlace {
    /// All places are taken.
    Full,
    /// The host has used up its quota, and none of its connections gives way.
    OfHost,
}

/// The address that counts as the host: the first 64 bits of an IPv6 address, or all of an IPv4 one.
fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

impl Places {
    /// All places are free.
    pub fn new(most: usize, of_host: usize) -> Self {
        Self { shared: Arc::default(), held: Arc::default(), most, of_host }
    }

    /// A place for a connection from this address, if one is free.
    ///
    /// # Errors
    /// [`NoPlace`]
    pub fn take(&self, address: IpAddr) -> Result<Place, NoPlace> {
        let address = host_of(address);
        let mut shared = lock(&self.shared);
        let host = shared.hosts.get(&address).map(|known| Arc::clone(&known.host)).unwrap_or_default();
        let notice = Arc::default();
        let is_full = shared.taken - shared.leaving >= self.most;
        if is_full && !host.has_its_part(self.of_host) && !shared.give_way() {
            return Err(NoPlace::Full);
        }
        let Entered { number, one_gave_way } = host.enter(self.of_host, &notice).ok_or(NoPlace::OfHost)?;
        shared.leaving += usize::from(one_gave_way);
        shared.hosts.get_or_insert(address, Known::default).host = Arc::clone(&host);
        shared.count(address);
        shared.taken += 1;
        drop(shared);
        let (shared, held) = (Arc::clone(&self.shared), Arc::clone(&self.held));
        let most = [self.most, self.of_host];
        Ok(Place { shared, address, host, number, notice, most, held, of_this: 0 })
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

    /// Whether the connection must end, since another client of the host needs its place.
    pub fn must_end(&self) -> bool {
        self.notice.must_end()
    }

    /// Sets what is called, on any thread, when [`Self::must_end`] has become true or a queue pair is to be
    /// closed.
    pub fn on_news(&self, bell: impl Fn() + Send + Sync + 'static) {
        self.notice.on_news(bell);
    }

    /// The place is kept from here on.
    pub fn keep(&self) {
        self.set_admitted(Identity::Daemon);
    }

    /// `who` has proven itself on the connection: the place is kept from here on. False: clients have as many
    /// connections as they may, so the place is still a newcomer's.
    pub fn set_admitted(&self, who: Identity) -> bool {
        let mut shared = lock(&self.shared);
        let [most, of_host] = self.most;
        let is_client = matches!(who, Identity::Client(_));
        let is_known = self.host.is_of_clients(self.number);
        if is_client && !is_known && shared.of_clients >= most - most / SPARED_CONNECTION {
            return false;
        }
        let admitted = self.host.admit_connection(self.number, who, of_host);
        shared.of_clients += usize::from(admitted == Some(true));
        shared.count(self.address);
        admitted.is_some()
    }

    /// Counts the bytes that the connection holds from now on.
    pub(super) fn count_held(&mut self, bytes: usize) {
        let (before, now) = (self.of_this, bytes / STEP * STEP);
        if before == now {
            return;
        }
        for counter in [self.host.held(), &self.held] {
            // Only the sum counts, so no other memory must be visible with it.
            counter.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        }
        self.of_this = now;
    }

    /// Whether the connections of its host hold as much as they may. If all hold too much, a host that holds
    /// little may still hold more: two greedy hosts do not slow the others.
    pub(super) fn is_scarce(&self) -> bool {
        let (host, all) = (self.host.held().load(Ordering::Relaxed), self.held.load(Ordering::Relaxed));
        host >= HOST_HELD || all >= HELD && host >= SPARED_HELD || all >= MOST_HELD
    }

    /// The account of its host.
    pub(super) fn host(&self) -> &Host {
        &self.host
    }

    /// The orders to the place's connection.
    pub(super) fn notice(&self) -> &Arc<Notice> {
        &self.notice
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.count_held(0);
        let mut shared = lock(&self.shared);
        shared.taken -= 1;
        shared.leaving -= usize::from(self.notice.must_end());
        shared.of_clients -= usize::from(self.host.is_of_clients(self.number));
        let has_another = self.host.leave(self.number, &self.notice);
        shared.count(self.address);
        if !has_another {
            shared.hosts.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests;
