// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the messages of a host without a secret cost a controller: `cargo bench -p gnstor-auth`.
#![expect(clippy::disallowed_methods, reason = "time is measured")]

use gnstor_auth::{Controller, Dice, Failure, Group, Host, Names, Secret, random};
use std::time::Instant;

const RUNS: usize = 201;

/// The median, in us.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let names = || Names { host: "nqn.2026-11.dev.gnstor:client.0007.1".into(), subsystem: "ssd.2".into() };
    for group in [Group::Null, Group::Ffdhe2048, Group::Ffdhe3072] {
        let (mut negotiates, mut replies) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            let dice = || Dice::thrown(random::fill);
            // The host has another secret than the one that the controller derives.
            let (mut host, negotiate) = Host::begin(names(), Secret::new([1; 32]), &[group], 7, dice());
            let begun = Instant::now();
            let (mut ssd, challenge) =
                Controller::begin(names(), Secret::new([2; 32]), group, &negotiate, dice())
                    .expect("a challenge");
            negotiates.push(begun.elapsed().as_secs_f64() * 1e6);
            let reply = host.on_challenge(&challenge).expect("a reply");
            let begun = Instant::now();
            assert_eq!(ssd.on_reply(&reply).unwrap_err(), Failure::Authentication);
            replies.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        let (negotiate, reply) = (median(negotiates), median(replies));
        println!("{group:?}: {negotiate:.1} us for AUTH_Negotiate, {reply:.1} us for a false reply");
    }
}
