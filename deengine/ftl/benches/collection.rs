// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures the two collection policies: write amplification under uniform and skewed overwrites at the same
//! over-provisioning. It also measures the spread of erase counts with and without wear levelling. It uses no
//! clock, so every machine gives the same results.
//!
//! `cargo bench -p gnstor-ftl --bench collection -- [--mib 256] [--rows 16] [--laps 4] [--json]`

mod common;

use common::skew::{Run, Skew};
use common::{flag, option};
use gnstor_ftl::Policy;

const POLICIES: [(&str, Policy); 2] = [("greedy", Policy::Greedy), ("cost-benefit", Policy::CostBenefit)];
/// A bound on erase counts that is never reached.
const NEVER: u32 = u32::MAX;

fn main() {
    let (mib, rows, laps): (u64, u32, u64) =
        (option("--mib", 256), option("--rows", 16), option("--laps", 4));
    let json = flag("--json");
    if !json {
        println!(
            "{mib} MiB logical, superblocks of {} pages, {laps} laps before and {laps} counted",
            rows * 16
        );
        println!(
            "{:<10} {:<6} {:<13} {:<11} {:>6}  erases: least mean most",
            "overwrites", "spare", "policy", "levelling", "WA"
        );
    }
    let print = |run: Run, name: &str| {
        let cost = run.cost();
        let bound = (run.wear_bound != NEVER).then_some(run.wear_bound);
        let levelling = bound.map_or("off".into(), |bound| format!("beyond {bound}"));
        let (skew, spare, wa, wear) =
            (run.skew.name(), run.spare_permille / 10, cost.amplification, cost.wear);
        let mean = wear.mean_milli / 1000;
        if json {
            println!(
                "{{\"bench\":\"collection\",\"overwrites\":\"{skew}\",\"spare_percent\":{spare},\
                 \"policy\":\"{name}\",\"wear_bound\":{},\"write_amplification\":{wa:.4},\
                 \"erases_least\":{},\"erases_mean\":{mean},\"erases_most\":{}}}",
                bound.map_or("null".into(), |bound| bound.to_string()),
                wear.least,
                wear.most
            );
        } else {
            println!(
                "{skew:<10} {spare:>3} %  {name:<13} {levelling:<11} {wa:>6.3}  {:>13} {mean:>4} {:>4}",
                wear.least, wear.most
            );
        }
    };
    let run = |policy, skew| Run {
        policy,
        wear_bound: NEVER,
        spare_permille: 150,
        skew,
        logical_pages: mib << 8,
        rows,
        laps: [laps; 2],
    };
    for skew in [Skew::Uniform, Skew::EightyTwenty, Skew::Zipf] {
        for spare_permille in [70, 150, 280] {
            for (name, policy) in POLICIES {
                print(Run { spare_permille, ..run(policy, skew) }, name);
            }
        }
    }
    for wear_bound in [NEVER, 200, 20, 8] {
        print(Run { wear_bound, ..run(Policy::Greedy, Skew::Tenth) }, "greedy");
    }
}
