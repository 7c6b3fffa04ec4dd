// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mixed work, compared with a slow map, without power failures. Commands of several blocks overlap, and
//! transfers end in any order. There are Compares, changes of rights, and volumes that are created and
//! deleted. The SSD is small and always collecting.
//!
//! Every read and every Compare is judged when it is answered, and now and then every block.
//! `GNSTOR_MODEL_STEPS` and `GNSTOR_MODEL_SEED` set length and seed of the long run. Each step follows from a
//! number of its own, so any part of a run can be played. A failing run is shrunk, and `GNSTOR_MODEL_LIST`
//! plays the rest. The short runs are proptest's.

use super::crash::{Campaign, number};
use super::oracle::{Dice, Promise};
use super::shrink::{fails, shrink};
use super::*;
use gnstor_proto::placement::mix64;
use proptest::prelude::*;

/// Steps of the long run, over all seeds.
const STEPS: u64 = 80_000;
/// Steps of one seed.
const RUN: u64 = 20_000;
/// Number of steps between two checks of everything.
const LOOK: usize = 500;
/// Steps that shrinking may play: a few minutes.
const BUDGET: usize = 4_000_000;

fn look(campaign: &mut Campaign) {
    campaign.drain();
    campaign.check_blocks(Promise::Acknowledged);
    assert!(campaign.harness.frames_are_whole(), "no frame is lost");
}

/// Plays steps on the SSD of a seed; `done` counts those begun.
fn play(seed: u64, steps: &[u64], done: &mut usize) -> Campaign {
    let mut campaign = Campaign::new(seed, Faults::default());
    for part in steps.chunks(LOOK) {
        for step in part {
            *done += 1;
            campaign.dice = Dice(*step);
            campaign.step();
        }
        campaign.dice = Dice(0);
        look(&mut campaign);
    }
    campaign
}

/// Plays steps; where they fail, fewer that fail as well are printed, and then fail.
fn play_or_shrink(seed: u64, steps: &[u64]) -> Campaign {
    let mut done = 0;
    let mut campaign = None;
    if !fails(|| campaign = Some(play(seed, steps, &mut done))) {
        return campaign.expect("it was played");
    }
    let fewer = shrink(steps[..done].to_vec(), BUDGET, |fewer| fails(|| drop(play(seed, fewer, &mut 0))));
    let list: Vec<String> = fewer.iter().map(|step| format!("{step:x}")).collect();
    eprintln!(
        "{done} steps fail, and so do these {}: GNSTOR_MODEL_SEED={seed} GNSTOR_MODEL_LIST={}",
        fewer.len(),
        list.join(",")
    );
    play(seed, &fewer, &mut 0)
}

#[test]
fn every_completion_is_what_the_model_holds() {
    let (first, steps) =
        (number("GNSTOR_MODEL_SEED").unwrap_or(1), number("GNSTOR_MODEL_STEPS").unwrap_or(STEPS));
    if let Ok(list) = std::env::var("GNSTOR_MODEL_LIST") {
        let steps: Vec<u64> =
            list.split(',').map(|step| u64::from_str_radix(step, 16).expect("hex")).collect();
        return drop(play(first, &steps, &mut 0));
    }
    let (mut moved, mut erases, mut writes) = (0, 0, 0);
    for seed in first..first + steps.div_ceil(RUN) {
        println!("GNSTOR_MODEL_SEED={seed}");
        let steps: Vec<u64> = (0..RUN).map(|step| mix64(seed << 32 ^ step)).collect();
        let campaign = play_or_shrink(seed, &steps);
        let stats = campaign.harness.layer_stats();
        (moved, erases) = (moved + stats.moved_pages, erases + stats.erases);
        writes += campaign.harness.stats().blocks_written;
    }
    println!("{steps} steps: {writes} blocks written, {moved} pages moved, {erases} erases");
    assert!(moved > 0 && erases > 0, "the SSD was never full");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_short_list_of_steps_agrees_with_the_model(steps in proptest::collection::vec(any::<u64>(), 1..250)) {
        let mut campaign = Campaign::new(3, Faults::default());
        for seed in steps {
            campaign.dice = Dice(seed);
            campaign.step();
        }
        campaign.dice = Dice(0);
        look(&mut campaign);
    }
}
