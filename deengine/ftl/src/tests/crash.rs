// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Power cuts at every kind of moment: exactly what rule 11 promises.
//!
//! The layer tells which transactions were durable when the power went, and after the restart which one is the last.
//! Everything must be as it was after that one: not a block older, not a block newer.

use super::*;
use crate::restore::Origin;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Dumped {
    Intact,
    Torn,
    Missing,
}

/// A run of mixed work; it ends when the power goes, or after `steps`.
fn work(rig: &mut Rig, seed: u64, steps: u64) {
    for step in 0..steps {
        let dice = mix64(seed ^ mix64(step + 1));
        let key = (vid(u16::try_from(dice % 2).unwrap() + 1), u32::try_from((dice >> 8) % 180).unwrap());
        let powered = match (dice >> 40) % 20 {
            0 | 1 => rig.forget(key, 1),
            2 => {
                rig.tick();
                true
            }
            3 => rig.harden(),
            4 => rig.write((key.0, key.1 / 4 * 4), 4),
            _ => rig.write(key, 1),
        };
        if !powered || rig.config.power.is_cut() {
            return;
        }
    }
}

fn cut_and_check(seed: u64, dumped: Dumped, again: bool) {
    let timed = seed.is_multiple_of(3);
    let mut rig = Rig::new(400, timed, seed);
    let dice = mix64(seed ^ 0xC0FFEE);
    if seed % 5 == 4 {
        // Few enough for the spare blocks to last.
        rig.config.faults.set_rates(0, 4_000, 0);
    }
    // Some work first, so that collection and checkpoints are under way; then the cut comes somewhere.
    work(&mut rig, seed, 150 + dice % 900);
    let mut whole = false;
    match dumped {
        Dumped::Missing => {
            let power = Arc::clone(&rig.config.power);
            power.arm(1 + (dice >> 16) % 60, seed);
            work(&mut rig, seed ^ 0xABCD, 4_000);
        }
        Dumped::Intact => {
            rig.ftl().power_fail().unwrap();
            whole = true;
        }
        Dumped::Torn => {
            rig.config.power.arm(1 + (dice >> 16) % 12, seed);
            whole = rig.ftl().power_fail().is_ok() && !rig.config.power.is_cut();
        }
    }
    let (last, durable) = (rig.last(), rig.ftl().durable());
    let flash = rig.power_cycle(mix64(seed));
    if again {
        // The power goes during the restore, too.
        rig.config.power.arm(1 + (dice >> 32) % 25, seed ^ 7);
        let _ = Ftl::open_on(Arc::clone(&flash), &rig.config, |_, _, _| true, &|_, _| {});
        rig.config.power.cut();
        rig.config.power.restore();
        flash.after_power_cut(seed ^ 8);
        rig.store.after_power_cut(seed ^ 9);
    }
    rig.reopen(flash).unwrap_or_else(|e| panic!("seed {seed} {dumped:?}: {e}"));
    let why = format!("seed {seed}, {dumped:?}, again {again}, {:?}", rig.boot);
    let found = rig.boot.last;
    let last_whole = whole || rig.boot.origin == Origin::Dump;
    // What the first restore wrote down of its own has numbers, too; they say nothing of the work before the cut.
    let found = if last_whole {
        assert!(found >= last, "{why}: every acknowledged write, {found} of {last}");
        last
    } else if again {
        let reads_as_after = |seq: &Seq| rig.history.keys().all(|key| rig.read(*key) == rig.expected(*key, *seq));
        let is_after = |seq: &Seq| rig.has_windows_of(*seq) && reads_as_after(seq);
        (durable..=last).find(is_after).unwrap_or_else(|| panic!("{why}: no state between {durable} and {last}"))
    } else {
        assert!(matches!(rig.boot.origin, Origin::NoDump(_)), "{why}");
        assert!((durable..=last).contains(&found), "{why}: {durable}..={last}");
        found
    };
    rig.check(found, &why);
    assert!(rig.has_windows_of(found), "{why}: the stamp windows as of transaction {found}");
    // It goes on, and survives another round.
    rig.stamped.retain(|(seq, ..)| *seq <= found);
    rig.history.retain(|_, history| {
        history.retain(|(seq, _)| *seq <= found);
        !history.is_empty()
    });
    rig.sequence += 1_000_000;
    work(&mut rig, seed ^ 0x5EED, 300);
    rig.check(rig.last(), &format!("{why}, going on"));
}

/// The seeds of a test: `GNSTOR_CRASHES` of them, 150 by default, from `GNSTOR_FUZZ_SEED` on, 0 by default.
fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("GNSTOR_FUZZ_SEED").unwrap_or(0);
    first..first + number("GNSTOR_CRASHES").unwrap_or(150)
}

/// Runs a test for each seed; a seed that fails is printed, as the value of `GNSTOR_FUZZ_SEED` that repeats it.
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
    // With 2563 the first restore puts a block where the dump has an older write of it.
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
        let mut rig = Rig::new(400, seed % 2 == 0, seed);
        work(&mut rig, seed, 800);
        rig.ftl().shut_down().unwrap();
        let last = rig.last();
        let flash = rig.power_cycle(seed);
        rig.reopen(flash).unwrap();
        assert_eq!((&rig.boot.origin, rig.boot.is_lossy()), (&Origin::Clean, false));
        rig.check(last, "after a clean shutdown");
        assert!(rig.has_windows_of(last), "after a clean shutdown");
    }
}

#[test]
fn windows_that_change_while_a_checkpoint_copies_them_are_restored_as_they_were() {
    let _deadline = crate::tests::deadline();
    let mut behind = 0;
    for seed in 0..8 {
        let mut rig = Rig::new(400, seed % 2 == 0, seed);
        let mut copied = 0;
        // A checkpoint that took some time, and then some more work.
        for round in 0..2000 {
            work(&mut rig, seed << 32 | round, 40);
            let inner = rig.ftl().lock();
            copied = inner.checkpoint.as_ref().map_or(copied, |running| running.ahead());
            if inner.stats.checkpoints > 1 && inner.checkpoint.is_none() && copied > 0 {
                break;
            }
        }
        behind += copied;
        rig.ftl().power_fail().unwrap();
        let last = rig.last();
        let flash = rig.power_cycle(seed);
        rig.reopen(flash).unwrap();
        assert_eq!(rig.boot.origin, Origin::Dump);
        assert!(rig.has_windows_of(last), "seed {seed}: the stamp windows as of transaction {last}");
        rig.check(last, "after a dump");
    }
    assert!(behind > 0, "no window was copied later than its checkpoint began");
}
