// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Honest clients beside floods of TLS hellos, at the data port and at the daemon's port.

use crate::attack::{Beside, measure, pairs, slice, time_of};
use crate::beside::Attackers;
use crate::load::Rounds;
use crate::tls::{Certs, array};
use crate::{Guest, guest_with, number};
use gnstor_hostile::attacks::Attack;
use gnstor_tests::command::{BUILD_LIMIT, Up};
use gnstor_tests::within;
use std::time::{Duration, Instant};

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
