// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The power fails at every durable operation of a script, then again while the SSD is being restored, and
//! again.
//!
//! Without `GNSTOR_LONG` it fails at every third operation.

use super::world::World;
use super::{Bench, Dice, ID, SIZES, is_long};
use crate::{Durable, DurableError, State};

const STEPS: u32 = 150;

/// Runs the script. When the power fails, it restores with further cuts, and then continues without cuts.
fn live_through(seed: u64, cut: u64) {
    let mut world = World::new(seed);
    let mut dice = Dice(seed ^ cut << 20);
    world.bench.power.arm(cut, dice.next());
    if world.run(STEPS).is_ok() {
        return;
    }
    world.after_power_cut();
    for _ in 0..dice.below(4) {
        world.bench.power.arm(1 + dice.below(16), dice.next());
        if world.restore().is_err() {
            world.after_power_cut();
        } else {
            // The power lasts longer than needed: it fails within a few more steps, or not at all.
            match world.run(8) {
                Ok(()) => world.bench.power.restore(),
                Err(_) => world.after_power_cut(),
            }
        }
    }
    world.run(12).unwrap();
    world.restore().unwrap();
    world.restore().unwrap();
}

fn every_cut(seed: u64) {
    let mut world = World::new(seed);
    let before = world.bench.power.ops();
    world.run(STEPS).unwrap();
    let ops = world.bench.power.ops() - before;
    assert!(ops > 200, "the script has only {ops} durable operations");
    for cut in (1..=ops).step_by(if is_long() { 1 } else { 3 }) {
        let result = std::panic::catch_unwind(|| live_through(seed, cut));
        if let Err(panic) = result {
            eprintln!("script {seed}, power cut in operation {cut} of {ops}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn every_cut_of_script_1() {
    let _deadline = crate::tests::deadline();
    every_cut(1);
}

#[test]
fn every_cut_of_script_2() {
    let _deadline = crate::tests::deadline();
    every_cut(2);
}

#[test]
fn every_cut_of_script_3() {
    let _deadline = crate::tests::deadline();
    every_cut(3);
}

#[test]
fn every_cut_of_script_4() {
    let _deadline = crate::tests::deadline();
    every_cut(4);
}

#[test]
fn formatting_that_is_cut_is_refused_or_done() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    bench.format();
    let ops = bench.power.ops();
    for cut in 1..=ops {
        let bench = Bench::new();
        bench.power.arm(cut, cut);
        Durable::format(bench.store(), SIZES, ID).unwrap_err();
        bench.power.restore();
        bench.ram.after_power_cut(cut);
        match Durable::open(bench.store(), SIZES) {
            Ok(opened) => assert_eq!(opened.state, State::Fresh),
            Err(error) => assert!(matches!(error, DurableError::Header { .. }), "{error}"),
        }
        bench.format();
        assert_eq!(bench.open().state, State::Fresh);
        assert!(bench.open().durable.checkpoint().is_ok());
    }
}
