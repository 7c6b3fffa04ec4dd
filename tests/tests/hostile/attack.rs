// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures what share of its rate an honest load keeps beside each attack.

use crate::beside::{Attackers, Summary, another_client_reads};
use crate::cpu::{Cores, Watch};
use crate::load::{Load, Rounds};
use crate::{Guest, LIMIT, calls, guest, number, ssd_address};
use gnstor_hostile::attacks::Attack;
use gnstor_tests::command::Up;
use gnstor_tests::folder::Folder;
use gnstor_tests::{long, volume, within};
use libgnstor::Rights;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Attackers beside the load.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Beside {
    /// Two hostile clients that both make this attack.
    Attack(Attack),
    /// Hostile callers of the daemon.
    Callers,
    /// A thread that computes and does not use the array. It shows what a busy core costs the load on this
    /// machine. An attack turns the array's engine into such a thread.
    Computing,
}

impl Beside {
    /// The attacks that `GNSTOR_HOSTILE_ONLY` names (`Deaf,Connects`); without it all attacks and the thread.
    pub(crate) fn chosen() -> Vec<Self> {
        let only = std::env::var("GNSTOR_HOSTILE_ONLY").unwrap_or_default();
        let named = |attack: &Attack| {
            let name = format!("{attack:?}");
            only.is_empty() || only.split(',').any(|wanted| wanted.eq_ignore_ascii_case(&name))
        };
        // A stranger has no rights that it could misuse. This array's port has no TLS: `tls` has that load.
        let is_strangers = |attack: &Attack| !matches!(attack, Attack::Insider | Attack::Hellos);
        let strangers = Attack::ALL.into_iter().filter(is_strangers);
        strangers.filter(named).map(Self::Attack).chain([Self::Computing]).collect()
    }
}

/// Time that an attack runs before the load beside it is measured.
const BEFORE: Duration = Duration::from_millis(100);
/// Longest time of an attack beside new clients. It ends when they are through.
const ATTACK: Duration = Duration::from_secs(60);

/// Times of the load, over all pairs of a slice without and a slice beside something.
#[derive(Default)]
struct Measured {
    quiet: Rounds,
    beside: Rounds,
    ratios: Vec<f64>,
    summaries: Vec<Summary>,
    /// Processor time without and beside it.
    cores: [Cores; 2],
}

impl Measured {
    fn pair(&mut self, load: &mut Load, up: &Up, what: Beside, (seed, slice): (u64, Duration)) {
        let watch = Watch::start(&[up.pid()], &[]);
        let alone = load.run(slice);
        self.cores[0].add(watch.stop());
        // It begins a little before the measured load and ends after it.
        let time = 2 * slice + BEFORE;
        let address = ssd_address(up);
        let stop = AtomicBool::new(false);
        let attacked = std::thread::scope(|scope| {
            let mut attackers = Vec::new();
            match what {
                Beside::Attack(attack) => attackers
                    .extend([0, 1].map(|i| Attackers::start(address, time, 2 * seed + i, Some(attack)))),
                Beside::Callers => attackers.push(Attackers::run(calls::command(&up.daemon, time))),
                Beside::Computing => {
                    _ = scope.spawn(|| {
                        while !stop.load(Ordering::Relaxed) {
                            std::hint::spin_loop()
                        }
                    })
                }
            }
            std::thread::sleep(BEFORE);
            let pids: Vec<u32> = attackers.iter().map(Attackers::pid).collect();
            let watch = Watch::start(&[up.pid()], &pids);
            let attacked = load.run(slice);
            self.cores[1].add(watch.stop());
            stop.store(true, Ordering::Relaxed);
            self.summaries.extend(attackers.into_iter().map(Attackers::wait));
            attacked
        });
        self.ratios.push(attacked.times.len() as f64 / alone.times.len().max(1) as f64);
        self.quiet.add(alone);
        self.beside.add(attacked);
    }

    /// The share of its rate that the load keeps: the median of the pairs.
    fn keeps(&mut self) -> f64 {
        self.ratios.sort_by(f64::total_cmp);
        self.ratios[self.ratios.len() / 2]
    }

    /// Prints the result. Returns the share that the load keeps.
    fn report(&mut self, what: Beside) -> f64 {
        let (pairs, ratio) = (self.ratios.len(), self.keeps());
        let sent = if matches!(what, Beside::Callers) { "calls" } else { "frames" };
        let count: u64 = self.summaries.iter().map(|summary| summary.sent).sum();
        println!("summary {what:?}: keeps {ratio:.2}, median of {pairs} pairs; {count} {sent}");
        let [alone, beside] = self.cores.map(|cores| cores.summary());
        println!("  alone:  {}; {alone}", self.quiet.summary());
        println!("  beside: {}; {beside}", self.beside.summary());
        if let Beside::Attack(attack) = what {
            Summary::assert_attacked(&self.summaries, attack == Attack::Unproven);
        }
        ratio
    }
}

/// Number of pairs of slices to measure.
pub(crate) fn pairs() -> u64 {
    number("GNSTOR_HOSTILE_PAIRS", 1)
}

/// Time of a slice.
pub(crate) fn slice() -> Duration {
    Duration::from_millis(number("GNSTOR_HOSTILE_SLICE_MS", if long() { 1000 } else { 400 }))
}

/// Number of pairs to add if the first ones give too low a share: on a loaded machine one pair means little.
/// In a campaign that names a share, its own number of pairs decides.
pub(crate) fn more_pairs() -> u64 {
    if std::env::var_os("GNSTOR_HOSTILE_KEEP").is_some() { 0 } else { 4 }
}

/// Runs a load beside each of these, in pairs of a time without and a time beside it. No round may fail. The
/// share that the load keeps depends on the machine, too. `GNSTOR_HOSTILE_KEEP` sets the share in percent
/// that it must keep beside each, as the median of the pairs. Without it, the test fails only if the load
/// nearly stands still.
pub(crate) fn measure(up: &Up, guest: &Guest, all: &[Beside], pairs: u64, slice: Duration) -> Load {
    let (keep, more) = (number("GNSTOR_HOSTILE_KEEP", 10), more_pairs());
    volume(&guest.client, "v", 1 << 20, 2);
    let mut load = Load::new(guest.client.open("v", Rights::Write).unwrap());
    let _ = load.run(slice / 2);
    let (mut poor, mut errors) = (Vec::new(), 0);
    for &what in all {
        let mut measured = Measured::default();
        (0..pairs).for_each(|pair| measured.pair(&mut load, up, what, (pair, slice)));
        for pair in pairs..pairs + more {
            if measured.keeps() * 100.0 >= keep as f64 {
                break;
            }
            measured.pair(&mut load, up, what, (pair, slice));
        }
        let ratio = measured.report(what);
        errors += measured.quiet.errors.len() + measured.beside.errors.len();
        // Beside a thread that computes the machine alone decides, so this row is only for comparison.
        if ratio * 100.0 < keep as f64 && !matches!(what, Beside::Computing) {
            poor.push(format!("{what:?} leaves {ratio:.2}"));
        }
    }
    println!("summary each attack: {errors} ERRORS, below {keep} %: {poor:?}");
    assert!(errors == 0 && poor.is_empty(), "{errors} errors, {poor:?}");
    load
}

/// Time that pairs of slices take, with a second more each, and doubled for a loaded machine.
pub(crate) fn time_of(pairs: u64, slice: Duration, kinds: usize) -> Duration {
    let pairs = u32::try_from(pairs + more_pairs()).expect("a few");
    2 * (2 * slice + Duration::from_secs(1)) * pairs * u32::try_from(kinds).expect("a few")
}

#[test]
fn the_load_beside_each_attack_has_no_error_and_goes_on() {
    let (pairs, slice) = (pairs(), slice());
    let all = Beside::chosen();
    within(LIMIT + time_of(pairs, slice, all.len()), move || {
        let up = Up::start(&["--ssds", "2"]);
        let honest = guest(&up.daemon, "honest");
        let load = measure(&up, &honest, &all, pairs, slice);
        another_client_reads(&guest(&up.daemon, "other"), &load.file);
        drop((load, honest));
        up.end("-TERM");
    });
}

/// How long new clients take to connect to all SSDs, to open a volume and to read it.
pub(crate) fn connects(up: &Up, count: u32) -> Vec<Duration> {
    let one = |nth| {
        let start = Instant::now();
        let new = guest(&up.daemon, &format!("new{nth}"));
        // It has one replica, on both SSDs: nothing can be read around an SSD that lets no client in.
        let mut back = vec![0; 1 << 20];
        new.client.open("v", Rights::Read).unwrap().read_at(0, &mut back).unwrap();
        start.elapsed()
    };
    let mut times: Vec<_> = (0..count).map(one).collect();
    times.sort();
    times
}

/// The attackers and the clients share an address, so they share what one host may take.
#[test]
fn new_clients_of_the_same_host_connect_beside_each_attack() {
    let kinds = Beside::chosen();
    let count = if long() { 20 } else { 3 };
    let folder = Folder::new();
    let key = folder.path().join("manager.key").display().to_string();
    within(LIMIT + 3 * ATTACK, move || {
        // The SSDs ask for proofs, as those of a user do.
        let up = Up::start(&["--ssds", "2", "--manager-key", &key]);
        let honest = guest(&up.daemon, "honest");
        volume(&honest.client, "v", 1 << 20, 1);
        println!("summary connect alone: {:.1?}", connects(&up, count));
        for what in kinds {
            let Beside::Attack(attack) = what else { continue };
            let address = ssd_address(&up);
            let mut attackers = [0, 1].map(|seed| Attackers::start(address, ATTACK, seed, Some(attack)));
            // They have taken what they can by then.
            std::thread::sleep(Duration::from_millis(700));
            let times = connects(&up, count);
            println!("summary connect beside {what:?}: {times:.1?}");
            let are_there = attackers.iter_mut().all(Attackers::are_there);
            assert!(are_there, "{what:?}: a client was let in only after the attack");
        }
        drop(honest);
        up.end("-TERM");
    });
}
