// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Power cuts at every kind of moment: exactly the promise of rule 11.
//!
//! The layer reports which transactions were durable at the power cut, and after the restart which one is the
//! last. All blocks must be as they were after that one: none older, none newer.

use super::*;
use crate::restore::Origin;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Dumped {
    Intact,
    Torn,
    Missing,
}

/// A run of mixed work; it ends when the power goes, or after `steps`.
fn work(harness: &mut Harness, seed: u64, steps: u64) {
    for step in 0..steps {
        let dice = mix64(seed ^ mix64(step + 1));
        let key = (vid(u16::try_from(dice % 2).unwrap() + 1), u32::try_from((dice >> 8) % 180).unwrap());
        let powered = match (dice >> 40) % 20 {
            0 | 1 => harness.trim(key, 1),
            2 => {
                harness.tick();
                true
            }
            3 => harness.make_durable(),
            4 => harness.write((key.0, key.1 / 4 * 4), 4),
            _ => harness.write(key, 1),
        };
        if !powered || harness.config.power.is_cut() {
            return;
        }
    }
}

/// Cuts the power. Returns whether a whole dump was written.
fn cut(harness: &mut Harness, seed: u64, dumped: Dumped, dice: u64) -> bool {
    let power = Arc::clone(&harness.config.power);
    match dumped {
        Dumped::Missing => {
            power.arm(1 + dice % 60, seed);
            work(harness, seed ^ 0xABCD, 4_000);
            false
        }
        Dumped::Intact => {
            harness.ftl().power_fail().unwrap();
            true
        }
        Dumped::Torn => {
            power.arm(1 + dice % 12, seed);
            harness.ftl().power_fail().is_ok() && !power.is_cut()
        }
    }
}

fn cut_and_check(seed: u64, dumped: Dumped, again: bool) {
    let timed = seed.is_multiple_of(3);
    // On some disks syncs take a while.
    let polls = [0, 2, 25][usize::try_from(seed / 3 % 3).unwrap()];
    let mut harness = Harness::slow(400, timed, seed, polls);
    let dice = mix64(seed ^ 0xC0FFEE);
    if seed % 5 == 4 {
        // Few enough for the spare blocks to last.
        harness.config.faults.set_rates(0, 4_000, 0);
    }
    // Some work first, so that collection and checkpoints are in progress; then a cut at a random moment.
    work(&mut harness, seed, 150 + dice % 900);
    let whole = cut(&mut harness, seed, dumped, dice >> 16);
    let (last, durable) = (harness.last(), harness.ftl().durable());
    let flash = harness.power_cycle(mix64(seed));
    if again {
        // The power fails during the restore, too.
        harness.config.power.arm(1 + (dice >> 32) % 25, seed ^ 7);
        let _ = Ftl::open_on(Arc::clone(&flash), &harness.config, |_, _, _| true, &|_, _| {});
        harness.config.power.cut();
        harness.config.power.restore();
        flash.after_power_cut(seed ^ 8);
        harness.store.after_power_cut(seed ^ 9);
    }
    harness.reopen(flash).unwrap_or_else(|e| panic!("seed {seed} {dumped:?}: {e}"));
    let why = format!("seed {seed}, {dumped:?}, again {again}, {:?}", harness.boot);
    let found = harness.boot.last;
    let last_whole = whole || harness.boot.origin == Origin::Dump;
    // Transactions that the first restore adds have numbers, too; they are not part of the work before the
    // cut.
    let found = if last_whole {
        assert!(found >= last, "{why}: every acknowledged write, {found} of {last}");
        last
    } else if again {
        let reads_as_after =
            |seq: &Seq| harness.history.keys().all(|key| harness.read(*key) == harness.expected(*key, *seq));
        let is_after = |seq: &Seq| harness.has_histories_of(*seq) && reads_as_after(seq);
        (durable..=last)
            .find(is_after)
            .unwrap_or_else(|| panic!("{why}: no state between {durable} and {last}"))
    } else {
        assert!(matches!(harness.boot.origin, Origin::NoDump(_)), "{why}");
        assert!((durable..=last).contains(&found), "{why}: {durable}..={last}");
        found
    };
    harness.check(found, &why);
    assert!(harness.has_histories_of(found), "{why}: the stamp histories as of transaction {found}");
    // The SSD goes on, and survives another round.
    harness.stamped.retain(|(seq, ..)| *seq <= found);
    harness.history.retain(|_, history| {
        history.retain(|(seq, _)| *seq <= found);
        !history.is_empty()
    });
    harness.sequence += 1_000_000;
    work(&mut harness, seed ^ 0x5EED, 300);
    harness.check(harness.last(), &format!("{why}, going on"));
}

/// The seeds of a test: `GNSTOR_CRASHES` of them, 75 by default, from `GNSTOR_FUZZ_SEED` on, 0 by default.
fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("GNSTOR_FUZZ_SEED").unwrap_or(0);
    first..first + number("GNSTOR_CRASHES").unwrap_or(75)
}

/// Runs a test for each seed. A seed that fails is printed, as the value of `GNSTOR_FUZZ_SEED` that repeats
/// it.
fn for_each_seed(check: impl Fn(u64)) {
    for seed in seeds() {
        if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(seed))) {
            eprintln!("repeat this failure with GNSTOR_FUZZ_SEED={seed} GNSTOR_CRASHES=1");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn with_an_intact_dump_nothing_is_lost() {
    let _deadline = crate::tests::deadline();
    for_each_seed(|seed| cut_and_check(seed, Dumped::Intact, false));
}

#[test]
fn with_a_torn_dump_what_was_durable_is_there() {
    let _deadline = crate::tests::deadline();
    for_each_seed(|seed| cut_and_check(1_000_000 + seed, Dumped::Torn, false));
}

#[test]
fn without_a_dump_what_was_durable_is_there() {
    let _deadline = crate::tests::deadline();
    for_each_seed(|seed| cut_and_check(2_000_000 + seed, Dumped::Missing, false));
}

#[test]
fn a_second_cut_during_the_restore_changes_nothing() {
    let _deadline = crate::tests::deadline();
    // With seed 2563 the first restore writes a block to a place where the dump has an older write of it.
    let check = |seed| {
        cut_and_check(3_000_000 + seed, Dumped::Intact, true);
        cut_and_check(4_000_000 + seed, Dumped::Missing, true);
    };
    check(2563);
    for_each_seed(check);
}

#[test]
fn after_a_clean_shutdown_nothing_is_lost_and_nothing_reported() {
    let _deadline = crate::tests::deadline();
    for seed in 0..20 {
        let mut harness = Harness::new(400, seed % 2 == 0, seed);
        work(&mut harness, seed, 800);
        harness.ftl().shut_down().unwrap();
        let last = harness.last();
        let flash = harness.power_cycle(seed);
        harness.reopen(flash).unwrap();
        assert_eq!((&harness.boot.origin, harness.boot.is_lossy()), (&Origin::Clean, false));
        harness.check(last, "after a clean shutdown");
        assert!(harness.has_histories_of(last), "after a clean shutdown");
    }
}

#[test]
fn histories_that_change_while_a_checkpoint_copies_them_are_restored_as_they_were() {
    let _deadline = crate::tests::deadline();
    let mut behind = 0;
    for seed in 0..8 {
        let mut harness = Harness::new(400, seed % 2 == 0, seed);
        let mut copied = 0;
        // A checkpoint that takes some time, and then more work.
        for round in 0..2000 {
            work(&mut harness, seed << 32 | round, 40);
            let inner = harness.ftl().lock();
            copied = inner.checkpoints.ahead().unwrap_or(copied);
            if inner.stats.checkpoints > 1 && !inner.checkpoints.is_running() && copied > 0 {
                break;
            }
        }
        behind += copied;
        harness.ftl().power_fail().unwrap();
        let last = harness.last();
        let flash = harness.power_cycle(seed);
        harness.reopen(flash).unwrap();
        assert_eq!(harness.boot.origin, Origin::Dump);
        assert!(harness.has_histories_of(last), "seed {seed}: the stamp histories as of transaction {last}");
        harness.check(last, "after a dump");
    }
    assert!(behind > 0, "no history was copied later than its checkpoint began");
}
