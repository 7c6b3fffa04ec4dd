// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor-hostile ADDRESS SECONDS SEED`: attacks the array that listens there.

use gnstor_hostile::attacks::{Attack, run};
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let parsed = match &arguments[..] {
        [address, seconds, seed] => address.parse().ok().zip(seconds.parse().ok()).zip(seed.parse().ok()),
        _ => None,
    };
    let Some(((address, seconds), seed)) = parsed else {
        eprintln!("gnstor-hostile ADDRESS SECONDS SEED: attacks the array whose SSDs are reached at ADDRESS");
        return ExitCode::from(2);
    };
    let tally = run(address, seed, Duration::from_secs(seconds));
    println!("{} frames; {} attacks ended by the array", tally.frames, tally.ended);
    for (attack, count) in Attack::ALL.iter().zip(tally.attacks) {
        println!("{count:8} {attack:?}");
    }
    ExitCode::SUCCESS
}
