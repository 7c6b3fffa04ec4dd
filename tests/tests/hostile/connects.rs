// SPDX-License-Identifier: Apache-2.0 OR MIT
//! New clients beside an attack and a load. The array has one engine, which serves the load. So the attackers
//! and the new clients share what that engine leaves to newcomers.

use crate::attack::connects;
use crate::beside::Attackers;
use crate::load::{Rounds, checked_load};
use crate::{Guest, LIMIT, guest, number, ssd_address};
use gnstor_hostile::attacks::Attack;
use gnstor_tests::command::Up;
use gnstor_tests::folder::Folder;
use gnstor_tests::{long, volume, within};
use libgnstor::{File, Rights};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Attacks that open connections or make an engine look at them.
const KINDS: [Attack; 4] = [Attack::Flicker, Attack::Unproven, Attack::Connects, Attack::Slow];
/// Calls of the load in flight: enough for the engine to be at work almost always.
const LOADS: usize = 4;
/// Longest time of an attack. It ends when the new clients are through.
const ATTACK: Duration = Duration::from_secs(60);
/// Longest time in which a new client is let in. The machine may be loaded.
const LET_IN: Duration = Duration::from_secs(20);

/// What `work` returns, and the load's results beside it.
fn beside_load<T>(files: &[File], first: u64, work: impl FnOnce() -> T) -> (T, Rounds) {
    let (stop, begun) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        let stop = &stop;
        let start = |file| scope.spawn(move || checked_load(file, first, stop));
        let loads: Vec<_> = files.iter().map(start).collect();
        // Ends the load though `work` may panic: else the scope would wait for ever.
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        stop.store(true, Ordering::Release);
        let mut rounds = Rounds::default();
        for load in loads {
            rounds.add(load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        rounds.over = begun.elapsed();
        (worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic)), rounds)
    })
}

/// Opens volumes for the load, one for each of its threads.
fn load_files(guest: &Guest) -> Vec<File> {
    let name = |nth| format!("load{nth}");
    (0..LOADS).for_each(|nth| _ = volume(&guest.client, &name(nth), 1 << 20, 2));
    (0..LOADS).map(|nth| guest.client.open(&name(nth), Rights::Write).unwrap()).collect()
}

/// The attackers and the clients share an address, so they share what one host may take.
#[test]
fn new_clients_of_the_same_host_connect_beside_an_attack_and_a_load() {
    let count = u32::try_from(number("GNSTOR_HOSTILE_CONNECTS", if long() { 20 } else { 3 })).expect("some");
    let folder = Folder::new();
    let key = folder.path().join("manager.key").display().to_string();
    within(LIMIT + 4 * ATTACK, move || {
        let up = Up::start(&["--ssds", "2", "--engines", "1", "--manager-key", &key]);
        let honest = guest(&up.daemon, "honest");
        volume(&honest.client, "v", 1 << 20, 1);
        let (files, mut first) = (load_files(&honest), 0);
        let mut slow = Vec::new();
        for what in [None].into_iter().chain(KINDS.map(Some)) {
            let address = ssd_address(&up);
            let mut attackers: Vec<_> = what
                .iter()
                .flat_map(|&attack| [0, 1].map(|seed| Attackers::start(address, ATTACK, seed, Some(attack))))
                .collect();
            let (times, mut rounds) = beside_load(&files, first, || {
                // The attackers have taken what they can by then.
                std::thread::sleep(Duration::from_millis(700));
                connects(&up, count)
            });
            first += (rounds.times.len() + rounds.errors.len()) as u64;
            let (middle, longest) = (times[times.len() / 2], times[times.len() - 1]);
            println!("summary connect beside a load and {what:?}: p50 {middle:.1?}, longest {longest:.1?}");
            println!("  load: {}", rounds.summary());
            assert!(rounds.errors.is_empty() && !rounds.times.is_empty(), "no error is allowed");
            let are_there = attackers.iter_mut().all(Attackers::are_there);
            assert!(are_there, "{what:?}: a client was let in only after the attack");
            if longest > LET_IN {
                slow.push(format!("{what:?}: {longest:.1?}"));
            }
        }
        assert!(slow.is_empty(), "a new client waits longer than {LET_IN:?} beside {slow:?}");
        drop((files, honest));
        up.end("-TERM");
    });
}
