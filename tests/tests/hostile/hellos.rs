// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Honest clients beside floods of TLS hellos, at the data port and at the daemon's port. New clients beside
//! floods of connections from their own host.

use crate::attack::{Beside, measure, pairs, slice, time_of};
use crate::beside::Attackers;
use crate::load::Rounds;
use crate::tls::{Certs, array};
use crate::{Guest, guest_with, number, ssd_address};
use gnstor_hostile::attacks::Attack;
use gnstor_tests::command::{BUILD_LIMIT, Up};
use gnstor_tests::{BLOCK, long, volume, within};
use libgnstor::{Credentials, Rights};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Longest time of a flood. It ends when the new clients are through.
const FLOODED: Duration = Duration::from_secs(120);

#[test]
fn the_load_beside_floods_of_tls_hellos_has_no_error_and_goes_on() {
    let (pairs, slice) = (pairs(), slice());
    let all = [Beside::Attack(Attack::Hellos), Beside::Computing];
    within(BUILD_LIMIT + time_of(pairs, slice, all.len()), move || {
        let certs = Certs::new(&["anna"]);
        let up = array(&certs);
        let anna = guest_with(&up.daemon, "anna", certs.of("anna"));
        drop((measure(&up, &anna, &all, pairs, slice), anna));
        up.end("-TERM");
    });
}

/// Lists the volumes, call after call.
fn call(guest: &Guest, over: Duration) -> Rounds {
    let (mut rounds, begun) = (Rounds { over, ..Rounds::default() }, Instant::now());
    while begun.elapsed() < over {
        let call = Instant::now();
        match guest.client.list() {
            Ok(_) => rounds.times.push(call.elapsed().as_secs_f64() * 1e3),
            Err(error) => rounds.errors.push(error.to_string()),
        }
    }
    rounds
}

/// Calls alone and beside two clients that flood the daemon's port with hellos.
fn pair(up: &Up, guest: &Guest, (seed, slice): (u64, Duration)) -> (Rounds, Rounds, u64) {
    let alone = call(guest, slice);
    let (daemon, time) = (up.daemon.parse().expect("an address"), slice + Duration::from_secs(1));
    let attackers = [0, 1].map(|i| Attackers::start(daemon, time, 2 * seed + i, Some(Attack::Hellos)));
    std::thread::sleep(Duration::from_millis(100));
    let beside = call(guest, slice);
    (alone, beside, attackers.into_iter().map(|attackers| attackers.wait().sent).sum())
}

/// The daemon computes a key exchange and a signature for each hello.
#[test]
fn the_load_of_calls_beside_floods_of_tls_hellos_has_no_error_and_goes_on() {
    let (pairs, slice, keep) = (pairs(), slice(), number("GNSTOR_HOSTILE_KEEP", 10));
    within(BUILD_LIMIT + time_of(pairs, slice, 1), move || {
        let certs = Certs::new(&["anna", "berta"]);
        let up = array(&certs);
        let anna = guest_with(&up.daemon, "anna", certs.of("anna"));
        let (mut alone, mut beside, mut ratios, mut hellos) =
            (Rounds::default(), Rounds::default(), Vec::new(), 0);
        for pair_nth in 0..pairs {
            let (a, b, sent) = pair(&up, &anna, (pair_nth, slice));
            ratios.push(b.rate() / a.rate());
            alone.add(a);
            beside.add(b);
            hellos += sent;
        }
        ratios.sort_by(f64::total_cmp);
        let keeps = ratios[ratios.len() / 2];
        println!("summary calls beside floods of hellos: keeps {keeps:.2}, {hellos} frames");
        println!("  alone:  {}\n  beside: {}", alone.summary(), beside.summary());
        assert!(alone.errors.is_empty() && beside.errors.is_empty(), "no call may fail");
        assert!(hellos > 20, "the attackers did something");
        assert!(keeps * 100.0 >= keep as f64, "calls keep {keeps:.2}");
        // Clients that come after the attack connect.
        drop(guest_with(&up.daemon, "berta", certs.of("berta")));
        drop(anna);
        up.end("-TERM");
    });
}

/// Longest time in which a new client connects and reads. The machine may be loaded.
const LET_IN: Duration = Duration::from_secs(20);

/// New clients, one after the other, while attackers open connections at this port as fast as they can.
fn beside_floods(up: &Up, port: &str, address: SocketAddr, credentials: &Credentials) {
    let count = number("GNSTOR_HOSTILE_CONNECTS", if long() { 100 } else { 24 });
    let start = |seed| Attackers::start_at_full_priority(address, FLOODED, seed, Some(Attack::Flood));
    let mut attackers = [0, 1, 2].map(start);
    // They have taken all places by then.
    std::thread::sleep(Duration::from_secs(1));
    let mut times = Vec::new();
    for _ in 0..count {
        let begun = Instant::now();
        let new = guest_with(&up.daemon, "anna", credentials.clone());
        let file = new.client.open("v", Rights::Read).expect("it is opened");
        file.read_at(0, &mut [0; BLOCK]).expect("it is read");
        times.push(begun.elapsed());
    }
    times.sort();
    let (middle, longest) = (times[times.len() / 2], times[times.len() - 1]);
    println!("summary {count} new clients beside floods at {port}: p50 {middle:.1?}, longest {longest:.1?}");
    assert!(attackers.iter_mut().all(Attackers::are_there), "a client was let in only after the attack");
    assert!(longest < LET_IN, "a new client waits {longest:.1?} beside floods at {port}");
}

/// The attackers take all places that a host may have, and each new connection makes the oldest one that has
/// proven nothing give way. That may be the one of a client that begins.
#[test]
fn new_clients_of_the_same_host_come_through_beside_floods_of_connections() {
    within(BUILD_LIMIT + 4 * FLOODED, || {
        let certs = Certs::new(&["anna"]);
        let arrays =
            [(array(&certs), certs.of("anna")), (Up::start(&["--ssds", "2"]), Credentials::default())];
        for (up, credentials) in arrays {
            let anna = guest_with(&up.daemon, "anna", credentials.clone());
            volume(&anna.client, "v", 1 << 20, 1);
            let tls = if credentials.tls_ca.is_some() { "TLS" } else { "no TLS" };
            let daemon = up.daemon.parse().expect("an address");
            beside_floods(&up, &format!("the daemon, {tls}"), daemon, &credentials);
            beside_floods(&up, &format!("the SSDs, {tls}"), ssd_address(&up), &credentials);
            drop(anna);
            up.end("-TERM");
        }
    });
}
