// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Honest clients beside floods of TLS hellos, at the data port and at the daemon's port. New clients beside
//! floods of connections from their own host.

use crate::attack::{Beside, measure, pairs, slice, time_of};
use crate::beside::Attackers;
use crate::load::Rounds;
use crate::tls::{Certs, array};
use crate::{Guest, guest_with, number, ssd_address, try_guest};
use gnstor_fabric::tcp::limits::{HOST_CONNECTIONS, HOST_HANDSHAKES};
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

/// Connections that a port has, by the kernel's list of IPv4 connections.
fn connections_at(address: SocketAddr) -> usize {
    let (port, list) = (format!(":{:04X} ", address.port()), std::fs::read_to_string("/proc/net/tcp"));
    let is_one = |line: &&str| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().is_some_and(|local| format!("{local} ").ends_with(&port));
        local && fields.nth(1) == Some("01")
    };
    list.expect("Linux").lines().filter(is_one).count()
}

/// Connects a client. One that was cut off for two seconds comes again.
fn comes_in(up: &Up, credentials: &Credentials) -> Guest {
    let begun = Instant::now();
    loop {
        match try_guest(&up.daemon, "anna", credentials.clone()) {
            Ok(new) => return new,
            Err(libgnstor::Error::Unreachable { .. }) if begun.elapsed() < LET_IN => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Connects and reads new clients one after the other. Returns their times in order.
fn come(up: &Up, count: u64, credentials: &Credentials) -> Vec<Duration> {
    let mut times = Vec::new();
    for _ in 0..count {
        let begun = Instant::now();
        let new = comes_in(up, credentials);
        let file = new.client.open("v", Rights::Read).expect("it is opened");
        file.read_at(0, &mut [0; BLOCK]).expect("it is read");
        times.push(begun.elapsed());
    }
    times.sort();
    times
}

/// Files of an attacker, and of one at a port that gives thousands of connections to a host.
const FEW_FILES: u32 = 1024;
const MANY_FILES: u32 = 8192;

/// A port, and the connections that one host may have there.
struct Port<'a> {
    what: &'a str,
    address: SocketAddr,
    of_host: usize,
}

/// New clients beside attackers of their host. These have all connections of this port that the host may
/// have, and open others as fast as they can.
fn beside_floods(up: &Up, port: &Port<'_>, credentials: &Credentials) {
    let count = number("GNSTOR_HOSTILE_CONNECTS", if long() { 100 } else { 12 });
    let alone = come(up, count / 3, credentials);
    let files = if port.of_host > 3 * FEW_FILES as usize { MANY_FILES } else { FEW_FILES };
    let mut attackers = [0, 1, 2].map(|seed| Attackers::flood(port.address, FLOODED, seed, files));
    let begun = Instant::now();
    while connections_at(port.address) < port.of_host {
        assert!(begun.elapsed() < LET_IN, "the floods hold {}", connections_at(port.address));
        std::thread::sleep(Duration::from_millis(20));
    }
    let full = begun.elapsed();
    let times = come(up, count, credentials);
    let held = connections_at(port.address);
    let (middle, longest) = (times[times.len() / 2], times[times.len() - 1]);
    println!(
        "summary {count} new clients beside floods at {}: p50 {middle:.1?}, longest {longest:.1?}; alone p50 \
         {:.1?}; the floods have all places after {full:.1?}, and {held} at the end",
        port.what,
        alone[alone.len() / 2]
    );
    assert!(attackers.iter_mut().all(Attackers::are_there), "a client was let in only after the attack");
    assert!(longest < LET_IN, "a new client waits {longest:.1?} beside floods at {}", port.what);
}

/// The attackers take all places that a host may have, and each new connection makes the oldest one that has
/// proven nothing give way. That may be the one of a client that begins.
#[test]
fn new_clients_of_the_same_host_come_through_beside_floods_of_connections() {
    within(BUILD_LIMIT + 4 * FLOODED, || {
        let certs = Certs::new(&["anna"]);
        // Connections and TLS handshakes of one host, at the daemon and at the SSDs.
        let arrays = [
            (array(&certs), certs.of("anna"), [1024, HOST_HANDSHAKES]),
            (Up::start(&["--ssds", "2"]), Credentials::default(), [1536, HOST_CONNECTIONS]),
        ];
        for (up, credentials, [daemon, ssds]) in arrays {
            let mut prlimit = std::process::Command::new("prlimit");
            prlimit.args(["--pid", &up.pid().to_string(), "--nofile=16384:"]);
            assert!(prlimit.status().expect("prlimit runs").success(), "the array needs 16,384 files");
            let anna = guest_with(&up.daemon, "anna", credentials.clone());
            volume(&anna.client, "v", 1 << 20, 1);
            let tls = if credentials.tls_ca.is_some() { "TLS" } else { "no TLS" };
            let ports = [
                ("the daemon", up.daemon.parse().expect("an address"), daemon),
                ("the SSDs", ssd_address(&up), ssds),
            ];
            for (what, address, of_host) in ports {
                let what = &format!("{what}, {tls}");
                beside_floods(&up, &Port { what, address, of_host }, &credentials);
            }
            drop(anna);
            up.end("-TERM");
        }
    });
}
