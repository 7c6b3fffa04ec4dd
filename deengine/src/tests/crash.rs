// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The power goes at every kind of moment, and comes back: what the whole SSD promises then (protocol rules 3, 6, 8, 10
//! and 11).
//!
//! ```text
//!   mixed work --- the power goes --- [again during the restore] --- table, map, term, every block --- work --- ...
//!                   |  between two operations, with a dump
//!                   |  while the dump is written
//!                   |  during a durable operation, no dump
//!                   `  as that, and journal and checkpoints cannot be read: records alone
//! ```
//! A seed is a run of several such rounds on one small SSD, mostly full, some with faulty flash, some with modelled
//! times. `GNSTOR_CRASHES=n` runs so many seeds, `GNSTOR_CRASH_SEED=n` one.

mod admin;
mod work;

use super::oracle::Promise;
use super::*;
use gnstor_flash::Store;
use gnstor_ftl::{DUMP_BYTES, Origin};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use work::{Campaign, Life, VOLUMES};

const SEEDS: u64 = 60;
const ROUNDS: u64 = 4;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Cut {
    Intact,
    Torn,
    Missing,
    Unreadable,
}

/// What a campaign has covered.
#[derive(Default, Debug)]
struct Covered {
    /// Cuts by kind, whether the power went again during the restore, and how the SSD came up.
    cuts: BTreeMap<(Cut, bool, &'static str), u64>,
    /// Durable operations done.
    operations: u64,
    erases: u64,
    checkpoints: u64,
}

impl Campaign {
    /// One round: work, the power goes and comes back, everything is looked at.
    fn round(&mut self, covered: &mut Covered) {
        let steps = 40 + self.dice.below(300);
        self.work(steps);
        let cut = self.dice.of(&[Cut::Intact, Cut::Intact, Cut::Torn, Cut::Missing, Cut::Missing, Cut::Unreadable]);
        let mut whole = false;
        let power = Arc::clone(&self.bench.power);
        match cut {
            Cut::Intact => {
                self.rig.ssd.power_fail().expect("there is power for the dump");
                whole = true;
            }
            Cut::Torn => {
                power.arm(1 + self.dice.below(10), self.dice.roll());
                whole = self.rig.ssd.power_fail().is_ok() && !power.is_cut();
            }
            Cut::Missing | Cut::Unreadable => {
                let most = self.dice.of(&[4, 30, 200]);
                power.arm(1 + self.dice.below(most), self.dice.roll());
                self.work(3_000);
            }
        }
        covered.erases += self.rig.ssd.ftl.stats().erases;
        covered.checkpoints += self.rig.ssd.ftl.stats().checkpoints;
        self.power_cycle();
        let again = self.dice.one_in(3);
        if again {
            power.arm(1 + self.dice.below(40), self.dice.roll());
            drop(Ssd::reopen(self.config.clone(), &self.bench));
            self.power_cycle();
        }
        if cut == Cut::Unreadable {
            self.damage_checkpoints();
        }
        let ssd = match Ssd::reopen(self.config.clone(), &self.bench) {
            Ok(ssd) => ssd,
            Err(error) => panic!("{cut:?}, again {again}: {error}"),
        };
        let origin = ssd.boot().origin.clone();
        let (name, promise) = match origin {
            Origin::Dump => ("dump", Promise::Acknowledged),
            Origin::NoDump(_) => ("no dump", Promise::Hardened),
            Origin::Rebuilt(_) => ("rebuilt", Promise::Records),
            Origin::Fresh | Origin::Clean => panic!("{cut:?}, again {again}: came up as {origin:?}"),
        };
        // Where the first restore came to its end, the dump is spent, and everything in it is in its place.
        let promise = if whole && promise == Promise::Hardened && again { Promise::Acknowledged } else { promise };
        assert!(!whole || again || cut == Cut::Unreadable || name == "dump", "{cut:?}: {origin:?}");
        assert_eq!(name == "rebuilt", cut == Cut::Unreadable, "{origin:?}");
        *covered.cuts.entry((cut, again, name)).or_default() += 1;
        let lossy = ssd.boot().is_lossy();
        self.rig = Rig { sequence: self.rig.sequence, ..Rig::around(ssd, Arc::clone(&self.bench.faults)).with_clients() };
        self.start();
        self.check_table();
        self.check_map();
        self.check_term();
        if lossy {
            self.check_filling();
        }
        self.check_blocks(promise);
        self.renew();
        self.check_stamps();
        self.drain();
        self.check_blocks(Promise::Acknowledged);
    }

    /// The power is gone, and comes back: what was not durable is not there.
    fn power_cycle(&mut self) {
        let (store, flash) = (self.bench.store.clone().expect("a store"), self.bench.flash.clone().expect("flash"));
        self.bench.power.cut();
        self.bench.power.restore();
        flash.after_power_cut(self.dice.roll());
        store.after_power_cut(self.dice.roll());
        self.oracle.cut();
    }

    /// The head of neither checkpoint can be read.
    fn damage_checkpoints(&mut self) {
        let store = self.bench.store.as_ref().expect("a store");
        let noise: Vec<u8> = (0..512).flat_map(|_| self.dice.roll().to_le_bytes()).collect();
        let first = journal_at() + (1 << 20);
        for at in [first, first + (store.len() - first) / 2] {
            store.write(at, &noise).expect("within the store");
        }
        store.sync().expect("there is power");
    }

    /// A lossy SSD serves no reads until a newer map says so.
    fn check_filling(&mut self) {
        if let Some(raw) = self.living().first() {
            let (_, refused) = self.read_now(*raw, 0, 1);
            assert_eq!(refused, Some(Refusal::NotHereYet), "it says that it may have lost writes");
        }
        self.set_map();
    }

    fn living(&self) -> Vec<u16> {
        VOLUMES.into_iter().filter(|raw| matches!(&self.table[raw], Life::There(e, _) if !e.deleting)).collect()
    }

    /// Every block of every volume.
    fn check_blocks(&mut self, promise: Promise) {
        let mut mapped = 0;
        for raw in self.living() {
            let Life::There(entry, _) = self.table[&raw].clone() else { continue };
            for vba in (0..u32::try_from(entry.capacity_blocks).expect("small")).step_by(16) {
                let (found, refused) = self.read_now(raw, vba, 16);
                assert_eq!(refused, None, "volume {raw} block {vba}");
                for (index, content) in (0u32..).zip(found) {
                    let key = (raw, entry.generation, vba + index);
                    mapped += u64::from(content.is_some());
                    if let Err(why) = self.oracle.settle(key, promise, content) {
                        panic!("{promise:?}: {why}");
                    }
                }
            }
        }
        let sweeping = VOLUMES.iter().any(|raw| matches!(&self.table[raw], Life::There(entry, _) if entry.deleting));
        assert!(sweeping || self.rig.ssd.mapped_blocks() == mapped, "nothing else is mapped");
    }

    /// Leases do not survive: each writer gets a new one.
    fn renew(&mut self) {
        for raw in self.living() {
            let Life::There(entry, _) = self.table[&raw].clone() else { continue };
            self.chmod(raw, *entry);
        }
    }

    /// A write that was overtaken before the power went is so after it, too.
    fn check_stamps(&mut self) {
        for raw in self.living() {
            for _ in 0..4 {
                self.write_late(raw);
            }
        }
    }
}

/// Where the journal ring begins, and behind it the checkpoints: the layout of `gnstor_durable`.
fn journal_at() -> u64 {
    let (volumes, tombstones) = (crate::permission::MAX_VOLUMES as u64, 65_536);
    24_576 + 2 * (1 << 20) + 2 * 8192 * volumes + 2 * 512 * tombstones + DUMP_BYTES
}

fn run(seed: u64, covered: &mut Covered) {
    let faults = Faults::seeded(seed, 0);
    let mut campaign = Campaign::new(seed, faults);
    if seed % 4 == 3 {
        // Few enough for the spare blocks to last.
        campaign.bench.faults.set_rates(0, 1_000, 300);
    }
    for _ in 0..ROUNDS {
        campaign.round(covered);
    }
    covered.operations += campaign.bench.power.ops();
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn whenever_the_power_goes_what_was_promised_is_there() {
    let seeds = match number("GNSTOR_CRASH_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("GNSTOR_CRASHES").unwrap_or(SEEDS),
    };
    let mut covered = Covered::default();
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed, &mut covered))) {
            eprintln!("seed {seed} fails; alone: GNSTOR_CRASH_SEED={seed} cargo test -p gnstor-deengine --lib crash");
            resume_unwind(panic);
        }
    }
    println!("{covered:#?}");
}
