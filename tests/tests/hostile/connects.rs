// SPDX-License-Identifier: Apache-2.0 OR MIT
//! New clients beside an attack and a load. The array has one engine, which serves the load. So the attackers
//! and the new clients share what that engine leaves to newcomers.

use crate::attack::connects;
use crate::beside::Attackers;
use crate::deep::Deep;
use crate::{LIMIT, guest, number, ssd_address};
use gnstor_hostile::attacks::Attack;
use gnstor_tests::command::Up;
use gnstor_tests::folder::Folder;
use gnstor_tests::{long, volume, within};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Attacks that open connections or make an engine look at them.
const KINDS: [Attack; 4] = [Attack::Flicker, Attack::Unproven, Attack::Connects, Attack::Slow];
/// Time of one run of the load. The load has 32 I/Os in flight, so the engine is at work almost always.
const RUN: Duration = Duration::from_millis(1500);
/// Longest time of an attack. It ends when the new clients are through.
const ATTACK: Duration = Duration::from_secs(60);
/// Longest time in which a new client is let in. The machine may be loaded.
const LET_IN: Duration = Duration::from_secs(20);

/// Runs the load until `work` ends. Returns what `work` returns, and the load's results.
fn beside_load<T>(up: &Up, work: impl FnOnce() -> T) -> (T, Deep) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut all = Deep::default();
            while !stop.load(Ordering::Acquire) {
                all.add(Deep::run(&up.daemon, RUN, &[up.pid()], &[]));
            }
            all
        });
        // Ends the load though `work` may panic: else the scope would wait for ever.
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        stop.store(true, Ordering::Release);
        let load = load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic)), load)
    })
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
        let mut slow = Vec::new();
        for what in [None].into_iter().chain(KINDS.map(Some)) {
            let name = what.map_or("no attack".into(), |attack| format!("{attack:?}"));
            let address = ssd_address(&up);
            let mut attackers: Vec<_> = what
                .iter()
                .flat_map(|&attack| [0, 1].map(|seed| Attackers::start(address, ATTACK, seed, Some(attack))))
                .collect();
            let (times, load) = beside_load(&up, || {
                // The attackers have taken what they can by then, and the load is under way.
                std::thread::sleep(Duration::from_millis(1200));
                connects(&up, count)
            });
            let (middle, longest) = (times[times.len() / 2], times[times.len() - 1]);
            println!("summary connect beside a load and {name}: p50 {middle:.1?}, longest {longest:.1?}");
            println!("  load: {}", load.summary());
            assert!(load.errors.is_empty(), "no error is allowed: {:?}", load.errors);
            let are_there = attackers.iter_mut().all(Attackers::are_there);
            assert!(are_there, "{name}: a client was let in only after the attack");
            if longest > LET_IN {
                slow.push(format!("{name}: {longest:.1?}"));
            }
        }
        assert!(slow.is_empty(), "a new client waits longer than {LET_IN:?} beside {slow:?}");
        drop(honest);
        up.end("-TERM");
    });
}
