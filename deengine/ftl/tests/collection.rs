// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Costs of collection that must stay in order, at a size that takes seconds; `--bench collection` prints
//! more.

use crate::common::skew::{Run, Skew};
use crate::deadline::deadline;
use gnstor_ftl::Policy;

const NEVER: u32 = u32::MAX;

fn run(policy: Policy, skew: Skew) -> Run {
    Run {
        policy,
        wear_bound: NEVER,
        spare_permille: 150,
        skew,
        logical_pages: 1 << 14,
        rows: 16,
        laps: [4, 4],
    }
}

#[test]
fn cost_benefit_costs_no_more_than_greedy_where_some_blocks_are_hot() {
    let _deadline = deadline();
    for skew in [Skew::EightyTwenty, Skew::Zipf] {
        for spare_permille in [70, 150, 280] {
            let cost = |policy| Run { spare_permille, ..run(policy, skew) }.cost().amplification;
            let (greedy, cost_benefit) = (cost(Policy::Greedy), cost(Policy::CostBenefit));
            println!(
                "{}, {spare_permille} permille: greedy {greedy:.3}, cost-benefit {cost_benefit:.3}",
                skew.name()
            );
            assert!(cost_benefit <= greedy, "{skew:?}, {spare_permille}: {cost_benefit:.3} and {greedy:.3}");
        }
    }
}

#[test]
fn greedy_costs_little_more_or_less_where_all_blocks_are_alike() {
    let _deadline = deadline();
    let cost = |policy| run(policy, Skew::Uniform).cost().amplification;
    let (greedy, cost_benefit) = (cost(Policy::Greedy), cost(Policy::CostBenefit));
    println!("uniform: greedy {greedy:.3}, cost-benefit {cost_benefit:.3}");
    assert!((cost_benefit / greedy - 1.0).abs() < 0.1, "{greedy:.3} and {cost_benefit:.3}");
}

#[test]
fn wear_levelling_bounds_the_spread_and_costs_moves() {
    let _deadline = deadline();
    let cost = |wear_bound| Run { wear_bound, ..run(Policy::Greedy, Skew::Tenth) }.cost();
    let (without, with) = (cost(NEVER), cost(8));
    println!("without {without:?}, with {with:?}");
    let spread = |wear: gnstor_ftl::Wear| wear.most - wear.least;
    assert!(spread(without.wear) > 3 * spread(with.wear), "{without:?} {with:?}");
    assert!(spread(with.wear) <= 8 + 3, "{with:?}");
    assert!(with.amplification > without.amplification, "cold data is moved for it: {without:?} {with:?}");
}
