// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The power goes at every kind of moment, and comes back: what the whole SSD promises then (protocol
//! rules 3, 6, 8, 10 and 11).
//!
//! ```text
//!   mixed work --- the power goes --- [again during the restore] --- table, map, term, blocks --- work ...
//!                   |  between two operations, with a dump
//!                   |  while the dump is written
//!                   |  during a durable operation, no dump
//!                   `  as that, and journal and checkpoints cannot be read: records alone
//! ```
//! A seed is a run of four such rounds on one small SSD, mostly full. Some have faulty flash, some modelled
//! times. One in eight is in a data file, which is opened anew after each cut. `GNSTOR_CRASHES=n` cuts the
//! power in n rounds, `GNSTOR_CRASH_SEED=n` runs that seed, or begins with it.

mod admin;
mod damage;
mod on_file;
mod places;
mod probes;
mod single_cuts;
mod work;

use super::oracle::Promise;
use super::*;
use gnstor_ftl::{DUMP_BYTES, FtlConfig, Origin};
use on_file::Host;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
pub(super) use work::{Campaign, small_ssd};
use work::{LATE, Life, VOLUMES};

const SEEDS: u64 = 20;
const ROUNDS: u64 = 4;
/// One seed in this many has its SSD in a data file.
const ON_FILE: u64 = 8;
/// Seeds whose SSD is in a file, of the test of hosts that lose their power.
const HOST_SEEDS: u64 = 10;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Cut {
    Intact,
    Torn,
    Missing,
    Unreadable,
}

/// Counts of what a campaign has covered.
#[derive(Default, Debug)]
struct Covered {
    /// Cuts by kind, whether the power went again during the restore, and how the SSD came up.
    cuts: BTreeMap<(Cut, bool, &'static str), u64>,
    /// Durable operations done.
    operations: u64,
    erases: u64,
    checkpoints: u64,
    /// Seeds whose SSD was in a data file.
    on_file: u64,
    /// Number of cuts, and number of failures of the host among them.
    host_cuts: u64,
    /// Syncs after journal pages, and before them.
    syncs: (u64, u64),
}

impl Covered {
    fn count(&mut self, harness: &Harness) {
        let stats = harness.layer_stats();
        self.erases += stats.erases;
        self.checkpoints += stats.checkpoints;
        self.syncs.0 += stats.syncs.journal;
        self.syncs.1 += stats.syncs.data;
    }
}

/// How the SSD came up: the word for it, and what it promises.
fn came_up(ssd: &Ssd, cut: Cut, again: bool, whole: bool) -> (&'static str, Promise) {
    let origin = ssd.boot().origin.clone();
    let (name, promise) = match origin {
        Origin::Dump => ("dump", Promise::Acknowledged),
        Origin::NoDump(_) => ("no dump", Promise::Durable),
        Origin::Rebuilt(_) => ("rebuilt", Promise::Records),
        Origin::Fresh | Origin::Clean => panic!("{cut:?}, again {again}: came up as {origin:?}"),
    };
    // If the first restore ended, the dump is used up, and its content is in its places.
    let promise = if whole && promise == Promise::Durable && again { Promise::Acknowledged } else { promise };
    assert!(!whole || again || cut == Cut::Unreadable || name == "dump", "{cut:?}: {origin:?}");
    assert_eq!(name == "rebuilt", cut == Cut::Unreadable, "again {again}: {origin:?}");
    if number("GNSTOR_CRASH_SEED").is_some() && number("GNSTOR_CRASHES").is_none() {
        println!("{cut:?}, again {again}: {:?}", ssd.boot());
    }
    (name, promise)
}

impl Campaign {
    /// One round: work, the power fails and comes back, everything is checked.
    fn round(&mut self, covered: &mut Covered) {
        if self.dice.one_in(4) {
            let count = 300 + self.dice.below(1_500);
            self.trim_a_lot(count);
        }
        let steps = 100 + self.dice.below(900);
        self.work(steps);
        let cut =
            self.dice.of(&[Cut::Intact, Cut::Intact, Cut::Torn, Cut::Missing, Cut::Missing, Cut::Unreadable]);
        // From records alone no reader can tell a page that was lost with the host.
        let host_fails = self.file.is_some() && cut != Cut::Unreadable && self.dice.one_in(2);
        self.host = if host_fails { Host::Fails } else { Host::Stays };
        covered.host_cuts += u64::from(host_fails);
        let whole = self.cut_power(cut);
        let power = Arc::clone(&self.bench.power);
        covered.count(&self.harness);
        self.power_cycle();
        let again = self.dice.one_in(3);
        if again {
            power.arm(1 + self.dice.below(40), self.dice.roll());
            drop(self.reopen());
            self.power_cycle();
        }
        if cut == Cut::Unreadable {
            self.damage_checkpoints();
        }
        // Which of several unacknowledged states a block has now, and so which stamp, the oracle cannot
        // know: no writer goes on with stamps below those.
        self.sequence += LATE;
        let ssd = match self.reopen() {
            Ok(ssd) => ssd,
            Err(error) => panic!("{cut:?}, again {again}: {error}"),
        };
        let (name, promise) = came_up(&ssd, cut, again, whole);
        *covered.cuts.entry((cut, again, name)).or_default() += 1;
        self.check_after(ssd, promise);
    }

    /// Cuts the power in this way. Returns whether the dump is whole.
    fn cut_power(&mut self, cut: Cut) -> bool {
        let mut whole = false;
        let power = Arc::clone(&self.bench.power);
        match cut {
            Cut::Intact => {
                self.harness.ssd().power_fail().expect("there is power for the dump");
                whole = true;
            }
            Cut::Torn => {
                power.arm(1 + self.dice.below(10), self.dice.roll());
                whole = self.harness.ssd().power_fail().is_ok() && !power.is_cut();
            }
            Cut::Missing | Cut::Unreadable => {
                let most = self.dice.of(&[4, 30, 200]);
                power.arm(1 + self.dice.below(most), self.dice.roll());
                self.work(3_000);
            }
        }
        whole
    }

    /// Checks everything, before and after more work.
    fn check_after(&mut self, ssd: Ssd, promise: Promise) {
        let lossy = ssd.boot().is_lossy();
        self.connect_to(ssd);
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

    fn connect_to(&mut self, ssd: Ssd) {
        self.harness = Harness::around(ssd, Arc::clone(&self.bench.faults)).with_clients();
        self.start();
    }

    /// Makes the heads of both checkpoints unreadable.
    fn damage_checkpoints(&mut self) {
        let noise: Vec<u8> = (0..512).flat_map(|_| self.dice.roll().to_le_bytes()).collect();
        let checkpoints = sizes_of(&self.config).checkpoints_at();
        self.with_store(|store| {
            let mut heads = 0;
            for at in checkpoints {
                let mut word = [0; 4];
                store.read(at + 4, &mut word).expect("within the store");
                heads += u32::from(&word == b"GNVK");
                store.write(at, &noise).expect("within the store");
            }
            assert!(heads > 0, "a checkpoint has ended, and the power cut tears one at the most");
            store.sync().expect("there is power");
        });
    }

    /// A lossy SSD serves no reads until a newer map allows it.
    fn check_filling(&mut self) {
        if let Some(raw) = self.living().first() {
            let (_, refused) = self.read_now(*raw, 0, 1);
            assert_eq!(refused, Some(Refusal::NotHereYet), "it says that it may have lost writes");
        }
        self.set_map();
    }

    fn living(&self) -> Vec<u16> {
        VOLUMES.into_iter().filter(|raw| matches!(&self.table[raw], Life::There(e) if !e.deleting)).collect()
    }

    /// Every block of every volume.
    pub(super) fn check_blocks(&mut self, promise: Promise) {
        let mut mapped = 0;
        for raw in self.living() {
            let Life::There(entry) = self.table[&raw].clone() else { continue };
            for vba in (0..u32::try_from(entry.capacity_blocks).expect("small")).step_by(16) {
                let (found, refused) = self.read_now(raw, vba, 16);
                assert_eq!(refused, None, "volume {raw} block {vba}");
                for (index, content) in (0u32..).zip(found) {
                    let key = (raw, entry.generation, vba + index);
                    mapped += u64::from(content.is_some());
                    if let Err(why) = self.oracle.reconcile(key, promise, content) {
                        panic!("{promise:?}: {why}");
                    }
                }
            }
        }
        let sweeping =
            VOLUMES.iter().any(|raw| matches!(&self.table[raw], Life::There(entry) if entry.deleting));
        assert!(sweeping || self.harness.mapped_blocks() == mapped, "nothing else is mapped");
    }

    /// Leases do not survive, so each writer gets a new one.
    fn renew(&mut self) {
        for raw in self.living() {
            let Life::There(entry) = self.table[&raw].clone() else { continue };
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

/// Offset of the journal ring, with the checkpoints after it: the layout of `gnstor_durable`.
pub(super) fn journal_at(config: &SsdConfig) -> u64 {
    sizes_of(config).journal_at()
}

fn sizes_of(config: &SsdConfig) -> gnstor_durable::Sizes {
    FtlConfig::sizes(&config.preset, config.capacity_bytes / 4096, DUMP_BYTES).expect("an SSD's sizes")
}

fn run(seed: u64, covered: &mut Covered) {
    let faults = Faults::seeded(seed, 0);
    let in_file = seed % ON_FILE == ON_FILE - 1;
    covered.on_file += u64::from(in_file);
    let mut campaign = if in_file { Campaign::on_file(seed, faults) } else { Campaign::new(seed, faults) };
    if seed % 4 == 3 {
        // Few enough for the spare blocks to last.
        campaign.bench.faults.set_rates(0, 1_000, 300);
    }
    for _ in 0..ROUNDS {
        campaign.round(covered);
    }
    covered.operations += campaign.bench.power.ops();
}

pub(super) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn whenever_the_power_goes_what_was_promised_is_there() {
    let alone = number("GNSTOR_CRASH_SEED");
    let cuts = number("GNSTOR_CRASHES").unwrap_or(if alone.is_some() { 1 } else { SEEDS * ROUNDS });
    let (first, count) = (alone.unwrap_or(0), cuts.div_ceil(ROUNDS));
    let mut covered = Covered::default();
    for seed in first..first + count {
        if seed % 100 == 99 {
            println!("{} of {count} seeds, {} durable operations", seed - first, covered.operations);
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed, &mut covered))) {
            eprintln!(
                "seed {seed} fails; alone: GNSTOR_CRASH_SEED={seed} cargo test -p gnstor-deengine --lib crash"
            );
            resume_unwind(panic);
        }
    }
    println!("{covered:#?}");
}

/// Seeds of long campaigns that found an error, with what it was.
#[test]
fn what_campaigns_have_found_stays_mended() {
    // Collection took a superblock whose last valid page only the dump held, while the dump was written to
    // new places.
    run(4_001_118, &mut Covered::default());
}

#[test]
fn flushed_data_survives_any_write_order_of_a_failing_host() {
    let mut covered = Covered::default();
    let first = number("GNSTOR_HOST_SEED").unwrap_or(0);
    for nth in first..first + number("GNSTOR_HOST_SEEDS").unwrap_or(HOST_SEEDS) {
        println!("GNSTOR_HOST_SEED={nth}");
        run(nth * ON_FILE + ON_FILE - 1, &mut covered);
    }
    println!("{covered:#?}");
    assert!(
        covered.host_cuts > 0 && covered.syncs.1 > 0,
        "no host failed, or nothing was synced before a journal page"
    );
}
