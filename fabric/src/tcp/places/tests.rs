// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::super::limits::HOST_LEAVING;
use super::*;
use gnstor_base::testing::deadline;
use gnstor_proto::slba::ClientId;
use std::sync::atomic::{AtomicU32, Ordering};

const CLIENT: Identity = Identity::Client(ClientId::MIN);

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn a_place_is_free_again_when_it_is_dropped() {
    let _deadline = deadline();
    let (places, host) = (Places::new(2, 3), address("10.0.0.1"));
    let (first, second) = (places.take(host), places.take(host));
    for place in [&first, &second] {
        place.as_ref().expect("a place").set_admitted(CLIENT);
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
        place.set_admitted(CLIENT);
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
    proven.set_admitted(CLIENT);
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
    [&first, &few, &others].into_iter().flatten().for_each(Place::keep);
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
    second.set_admitted(CLIENT);
    let fourth = places.take(host).expect("the oldest that is not admitted gives way");
    assert_eq!([&second, &third, &fourth].map(Place::must_end), [false, true, false]);
    fourth.set_admitted(CLIENT);
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

/// On loopback the clients, the daemon and other SSDs are of one host.
#[test]
fn clients_with_all_connections_that_they_may_have_leave_some_to_the_daemon_and_to_newcomers() {
    let _deadline = deadline();
    // One host alone, and then two that have all connections together.
    for (places, hosts) in [(Places::new(1000, 160), 1), (Places::new(160, 120), 2)] {
        let host = |nth: usize| address(&format!("192.0.2.{}", nth % hosts));
        let mut all: Vec<_> = (0..150).map(|nth| places.take(host(nth)).expect("a place")).collect();
        all.iter().for_each(|place| assert!(place.set_admitted(CLIENT)));
        let one_more = places.take(host(0)).expect("a place for a newcomer");
        assert!(!one_more.set_admitted(CLIENT), "clients leave the last ones to others");
        let strangers: Vec<_> = (0..100).map(|nth| places.take(host(nth)).expect("a place")).collect();
        assert!(one_more.must_end() && !strangers[99].must_end(), "newcomers give way to each other");
        let daemon = places.take(host(0)).expect("a place");
        assert!(daemon.set_admitted(Identity::Daemon) && !daemon.must_end());
        let (daemon_again, ssd) = (places.take(host(0)), places.take(host(0)));
        assert!(daemon_again.expect("a place").set_admitted(Identity::Daemon));
        assert!(ssd.expect("a place").set_admitted(Identity::Peer(3)));
        drop(all.pop());
        let place = places.take(host(1)).expect("a place");
        assert!(place.set_admitted(CLIENT), "the place of one that has gone");
        drop((all, one_more, strangers, daemon, place));
        let shared = lock(&places.shared);
        assert_eq!((shared.taken, shared.of_clients, shared.leaving), (0, 0, 0));
    }
}
