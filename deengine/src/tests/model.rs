// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mixed work beside a slow map, with the power on: overlapping commands of several blocks, transfers that end in any order,
//! Compare, rights that change, volumes that come and go, a small SSD that is always collecting.
//!
//! Every read and every Compare is judged when it is answered, and now and then every block. `GNSTOR_MODEL_STEPS` and
//! `GNSTOR_MODEL_SEED` make the long run longer, or another one; the short runs are lists of steps that proptest shrinks.

use super::crash::{Campaign, number};
use super::oracle::{Dice, Promise};
use super::*;
use proptest::prelude::*;

/// Steps of the long run, over all seeds.
const STEPS: u64 = 80_000;
/// Steps of one seed.
const RUN: u64 = 20_000;
/// Steps after which everything is looked at.
const LOOK: u64 = 500;

fn look(campaign: &mut Campaign) {
    campaign.drain();
    campaign.check_blocks(Promise::Acknowledged);
    assert!(campaign.rig.frames_are_whole(), "no frame is lost");
}

#[test]
fn whatever_is_answered_is_what_the_model_holds() {
    let (first, steps) = (number("GNSTOR_MODEL_SEED").unwrap_or(1), number("GNSTOR_MODEL_STEPS").unwrap_or(STEPS));
    let (mut moved, mut erases, mut writes) = (0, 0, 0);
    for seed in first..first + steps.div_ceil(RUN) {
        println!("GNSTOR_MODEL_SEED={seed}");
        let mut campaign = Campaign::new(seed, Faults::default());
        for _ in 0..RUN / LOOK {
            campaign.work(LOOK);
            look(&mut campaign);
        }
        let stats = campaign.rig.layer_stats();
        (moved, erases) = (moved + stats.moved_pages, erases + stats.erases);
        writes += campaign.rig.stats().blocks_written;
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
