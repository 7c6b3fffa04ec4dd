// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Strangers who begin a proof, on SSDs that demand a Diffie-Hellman group or none. Clients who prove
//! themselves, and then begin proofs of others on the same connection.

use crate::attack::{Beside, measure, more_pairs, pairs, slice, time_of};
use crate::beside::another_client_reads;
use crate::deep::Deep;
use crate::{LIMIT, guest, number, ssd_address};
use gnstor_auth::Secret;
use gnstor_hostile::attacks::Attack;
use gnstor_hostile::frames;
use gnstor_hostile::proof::Heard;
use gnstor_hostile::random::Random;
use gnstor_hostile::talk::Talk;
use gnstor_proto::fabrics::{CNTLID_ANY, Host, Identity};
use gnstor_tests::command::Up;
use gnstor_tests::folder::Folder;
use gnstor_tests::{long, within};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number of strangers to measure.
const STRANGERS: u32 = 100;

/// Clients who prove falsely, each on a connection of its own. For each of its messages a new client of their
/// host waits for a power of each of them. So a short run, on few cores, has fewer.
fn liars() -> u64 {
    number("GNSTOR_HOSTILE_LIARS", if long() { 64 } else { 16 })
}

/// Time of one run of the load.
const RUN: Duration = Duration::from_secs(2);
/// The load keeps this part of its rate at least, in percent, unless `GNSTOR_HOSTILE_KEEP` names another one.
/// It kept 1 % without the bound, and 70 to 120 % with it, on two loaded cores.
const KEPT: u64 = 20;

/// Each SSD challenges a stranger, who replies without the secret. Prints how long its messages take, with
/// their ways. Returns the group that the SSDs demand.
fn challenged(up: &Up) -> u8 {
    let mut talk = Talk::connect(ssd_address(up)).expect("it is let in");
    let (mut random, mut times, mut demanded) = (Random::new(7), Vec::new(), 0);
    for conn in 1..=STRANGERS {
        assert!(talk.open(conn, 0, 0).expect("an answer"), "stranger {conn} has a queue");
        assert_ne!(talk.connect_queue(conn, 0, 0, CNTLID_ANY).expect("an answer"), 0);
        let begun = Instant::now();
        let heard = talk.prove_falsely(conn, &mut random).expect("an answer");
        times.push(begun.elapsed().as_secs_f64() * 1e6);
        let Heard::Challenge { group } = heard else { panic!("stranger {conn} is not challenged") };
        demanded = group;
    }
    times.sort_by(f64::total_cmp);
    println!("summary a stranger's messages, group {demanded}: {:.0} us", times[times.len() / 2]);
    demanded
}

/// A group makes a stranger dear: for each of its two messages the SSD computes a power.
#[test]
fn the_load_beside_strangers_who_reply_to_challenges_has_no_error_and_goes_on() {
    let (pairs, slice) = (pairs(), slice());
    within(2 * LIMIT + time_of(pairs + more_pairs(), slice, 2), move || {
        for (name, group) in [("null", 0), ("3072", 2)] {
            let up = Up::start(&["--ssds", "2", "--dh-group", name]);
            let honest = guest(&up.daemon, "honest");
            assert_eq!(challenged(&up), group, "the SSDs demand the group of --dh-group");
            println!("beside strangers, --dh-group {name}:");
            let load = measure(&up, &honest, &[Beside::Attack(Attack::Unproven)], pairs, slice);
            another_client_reads(&guest(&up.daemon, "other"), &load.file);
            drop((load, honest));
            up.end("-TERM");
        }
    });
}

/// What the liars did.
#[derive(Default)]
struct Lies {
    /// Liars that have proven who they are.
    proven: AtomicU64,
    /// False replies that an SSD took.
    told: AtomicU64,
    stop: AtomicBool,
    /// They prove who they are one after the other: else a loaded machine answers the last ones too late.
    turn: Mutex<()>,
}

/// Ends the liars, also if the test that holds it fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Proves who it is, keeps that queue, and replies falsely on one queue after another of the same connection.
fn lie(address: SocketAddr, secret: Secret, (seed, liars): (u64, u64), lies: &Lies) {
    let (mut talk, mut random) = (Talk::connect(address).expect("it is let in"), Random::new(seed));
    assert!(talk.open(1, 0, 0).expect("an answer"), "it has a queue");
    assert_ne!(talk.connect_queue(1, 0, 0, CNTLID_ANY).expect("an answer"), 0);
    let turn = lies.turn.lock().expect("the others are believed");
    assert!(talk.prove(1, 0, secret).expect("an answer"), "it is believed");
    drop(turn);
    lies.proven.fetch_add(1, Ordering::Relaxed);
    while lies.proven.load(Ordering::Relaxed) < liars && !lies.stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(10));
    }
    for conn in 2.. {
        if lies.stop.load(Ordering::Relaxed) {
            return;
        }
        // Where an answer comes late, the next queue is tried.
        let opened = talk.open(conn, 0, 0).expect("the connection stays");
        if opened
            && talk.connect_queue(conn, 0, 0, CNTLID_ANY).expect("the connection stays") != 0
            && talk.prove_falsely(conn, &mut random).expect("the connection stays") != Heard::Nothing
        {
            lies.told.fetch_add(1, Ordering::Relaxed);
        }
        talk.send(&frames::close(conn)).expect("the connection stays");
        talk.sent.clear();
    }
}

/// The liars share the engine with the load, and their connections are those of admitted clients.
#[test]
fn the_load_beside_clients_who_reply_falsely_on_their_own_connections_goes_on() {
    let folder = Folder::new();
    let key = folder.path().join("manager.key").display().to_string();
    within(LIMIT, move || {
        let up = Up::start(&["--ssds", "2", "--engines", "1", "--dh-group", "3072", "--manager-key", &key]);
        let manager_key = Secret::parse(&std::fs::read_to_string(&key).expect("a key")).expect("a key");
        let address = ssd_address(&up);
        let client = Talk::connect(address).expect("it is let in").client;
        let secret = manager_key.of_host(&Host::from(Identity::Client(client)).nqn());
        let runs = || {
            let mut all = Deep::run(&up.daemon, RUN, &[up.pid()], &[]);
            (1..pairs()).for_each(|_| all.add(Deep::run(&up.daemon, RUN, &[up.pid()], &[])));
            all
        };
        let (alone, lies, count) = (runs(), Lies::default(), liars());
        let beside = std::thread::scope(|scope| {
            let liars: Vec<_> = (0..count)
                .map(|seed| {
                    let (secret, lies) = (secret.clone(), &lies);
                    scope.spawn(move || lie(address, secret, (seed, count), lies))
                })
                .collect();
            let _stop = Stop(&lies.stop);
            while lies.proven.load(Ordering::Relaxed) < count && !liars.iter().any(|liar| liar.is_finished())
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            assert!(!liars.iter().any(|liar| liar.is_finished()), "each of them is believed");
            println!("  {count} clients have proven themselves");
            runs()
        });
        let (keeps, told) = (beside.rate() / alone.rate(), lies.told.load(Ordering::Relaxed));
        println!("summary beside {count} clients who told {told} lies: keeps {keeps:.2}");
        println!("  alone:  {}\n  beside: {}", alone.summary(), beside.summary());
        let errors = [&alone.errors[..], &beside.errors].concat();
        assert!(errors.is_empty(), "no error is allowed: {errors:?}");
        assert!(told > 0, "they lied");
        let keep = number("GNSTOR_HOSTILE_KEEP", KEPT);
        assert!(keeps * 100.0 >= keep as f64, "it keeps {keeps:.2}, and was to keep {keep} %");
        up.end("-TERM");
    });
}
