// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Seeds of `gnstor sim survive`.

use gnstor_base::testing::deadline;
use gnstor_sim::survive::{Options, run};

#[test]
fn seeds_are_clean() {
    let _deadline = deadline();
    let first: u64 = std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let count: u64 = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    for seed in first..first + count {
        let start = std::time::Instant::now();
        let outcome = run(seed, &Options { trace: std::env::var_os("TRACE").is_some(), ..Options::default() });
        for line in &outcome.log {
            println!("{line}");
        }
        println!("seed {seed}: {:x} {} steps {:?} faults {}: {:?}", outcome.digest, outcome.steps, start.elapsed(), outcome.faults.len(), outcome.violation);
        if std::env::var_os("STATS").is_some() {
            for (group, name, count) in outcome.stats.rows() { if count > 0 { println!("{group} {name}: {count}"); } }
        }
    }
}
