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

use super::host::{Entered, Host, lock};
use super::limits::{HELD, HOST_HELD, HOST_LEAVING, MOST_HELD, SPARED_HELD};
use super::notice::Notice;
use rustc_hash::FxHashMap as HashMap;
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
    hosts: HashMap<IpAddr, Known>,
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
        let is_told = self.leaving < HOST_LEAVING as usize && self.hosts[&greedy].host.give_way();
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
        shared.hosts.entry(address).or_default().host = Arc::clone(&host);
        shared.count(address);
        shared.taken += 1;
        drop(shared);
        let (shared, held) = (Arc::clone(&self.shared), Arc::clone(&self.held));
        Ok(Place { shared, address, host, number, notice, held, of_this: 0 })
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

    /// A client has proven itself on the connection: the place is kept from here on.
    pub fn set_admitted(&self) {
        let mut shared = lock(&self.shared);
        self.host.admit_connection(self.number);
        shared.count(self.address);
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
        let has_another = self.host.leave(self.number, &self.notice);
        shared.count(self.address);
        if !has_another {
            shared.hosts.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::HOST_LEAVING;
    use super::*;
    use gnstor_base::testing::deadline;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_place_is_free_again_when_it_is_dropped() {
        let _deadline = deadline();
        let (places, host) = (Places::new(2, 3), address("10.0.0.1"));
        let (first, second) = (places.take(host), places.take(host));
        for place in [&first, &second] {
            place.as_ref().expect("a place").set_admitted();
        }
        assert_eq!(places.take(host).err(), Some(NoPlace::Full));
        drop(first);
        assert_eq!(places.taken(), 1);
        assert!(places.take(host).is_ok());
    }

    #[test]
    fn one_host_leaves_places_to_others_and_is_forgotten_when_it_has_none() {
        let _deadline = deadline();
        let places = Places::new(4, 2);
        let admitted = |address| {
            let place = places.take(address)?;
            place.set_admitted();
            Ok(place)
        };
        let greedy: Vec<_> = (0..2).map(|_| admitted(address("10.0.0.1")).expect("a place")).collect();
        assert_eq!(admitted(address("::ffff:10.0.0.1")).err(), Some(NoPlace::OfHost), "the same host");
        let other = admitted(address("10.0.0.2")).expect("a place of another host");
        drop(greedy);
        assert_eq!((places.taken(), places.hosts()), (1, 1));
        // One host may have 2^64 IPv6 addresses.
        let six: Vec<_> = (1..=2).map(|i| admitted(address(&format!("fd00::{i}"))).unwrap()).collect();
        assert_eq!(admitted(address("fd00::77")).err(), Some(NoPlace::OfHost));
        assert!(admitted(address("fd00:0:0:1::1")).is_ok());
        drop((other, six));
        assert_eq!((places.taken(), places.hosts()), (0, 0));
    }

    /// Two hosts, each below its quota, could otherwise use up all connections. So could one host with two
    /// addresses.
    #[test]
    fn if_all_places_are_taken_the_host_with_most_newcomers_loses_its_oldest() {
        let _deadline = deadline();
        let places = Places::new(200, 100);
        let take = |address| places.take(address).expect("a place");
        let proven = take(address("10.0.0.1"));
        proven.set_admitted();
        // Many hosts have one connection each.
        let few: Vec<_> = (0..100).map(|i| take(address(&format!("10.0.1.{i}")))).collect();
        let greedy = [59, 40]
            .map(|count| (0..count).map(|_| take(address(&format!("10.0.2.{count}")))).collect::<Vec<_>>());
        let leave = |of: &[Place]| of.iter().filter(|place| place.must_end()).count();
        let mut others: Vec<_> = (0..8).map(|i| take(address(&format!("10.0.3.{i}")))).collect();
        assert_eq!([&few, &others, &greedy[0], &greedy[1]].map(|of| leave(of)), [0, 0, 8, 0]);
        assert!(greedy[0][7].must_end() && !proven.must_end() && places.taken() == 208);
        // All that were told to end are gone, and again all places are taken.
        let [mut first, second] = greedy;
        first.retain(|place| !place.must_end());
        drop(second);
        while places.taken() < 200 {
            others.push(take(address("10.0.4.1")));
        }
        [&first, &few, &others].into_iter().flatten().for_each(Place::set_admitted);
        assert_eq!(places.take(address("10.0.5.1")).err(), Some(NoPlace::Full), "all are admitted");
        drop((proven, first, few, others));
        assert_eq!((places.taken(), places.hosts(), lock(&places.shared).leaving), (0, 0, 0));
    }

    /// Two machines behind one translated address, or two processes of one machine: the SSD sees one address.
    #[test]
    fn hosts_behind_one_address_have_one_part_together_and_an_unproven_connection_gives_way() {
        let _deadline = deadline();
        let places = Places::new(1000, 2);
        let host = address("192.0.2.1");
        let (first, second) = (places.take(host).expect("a place"), places.take(host).expect("a place"));
        let rung = Arc::new(AtomicU32::new(0));
        let bell = Arc::clone(&rung);
        first.on_news(move || _ = bell.fetch_add(1, Ordering::Relaxed));
        let third = places.take(host).expect("the oldest gives way");
        assert_eq!([&first, &second, &third].map(Place::must_end), [true, false, false]);
        assert_eq!(rung.load(Ordering::Relaxed), 1);
        second.set_admitted();
        let fourth = places.take(host).expect("the oldest that is not admitted gives way");
        assert_eq!([&second, &third, &fourth].map(Place::must_end), [false, true, false]);
        fourth.set_admitted();
        assert_eq!(places.take(host).err(), Some(NoPlace::OfHost), "all are admitted");
        drop((first, third));
        assert_eq!(places.take(host).err(), Some(NoPlace::OfHost), "those had their successors");
        drop(second);
        assert!(places.take(host).is_ok());
        // Connections that were told to go and stay count nevertheless.
        let stubborn: Vec<_> = (0..1 + HOST_LEAVING).map(|_| places.take(host).expect("a place")).collect();
        assert_eq!(places.take(host).err(), Some(NoPlace::OfHost));
        assert!(places.take(address("192.0.2.2")).is_ok(), "another host");
        assert_eq!(stubborn.iter().filter(|place| place.must_end()).count(), HOST_LEAVING as usize);
    }
}
