// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All SSD processes are killed at the same moment and start again, again and again, beside clients. What an
//! SSD took outlives its process (protocol rule 11a), so nothing is lost and no call fails.

use super::drain::call;
use super::{BUILD_LIMIT, Duration, Instant, Use, until, within};
use crate::fleet_daemon::Array;
use serde_json::Value;

/// Deadline of each I/O. A busy machine takes seconds to start four processes, and a call may meet more than
/// one kill.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// All SSDs are killed and start again.
pub(super) fn kill_all(array: &mut Array) {
    (0..4).for_each(|ssd| array.kill(ssd));
    (0..4).for_each(|ssd| array.restart(ssd));
}

fn kills(rounds: u32) {
    let mut array = Array::start();
    let mut clients = Use::start_for(&array, PATIENCE);
    let mut took = Vec::new();
    for round in 0..rounds {
        kill_all(&mut array);
        let back = Instant::now();
        until(&array, "all is there", |now| {
            clients.trimmer.renew();
            resume_flapping(&array, now);
            now["state"] == "healthy"
        });
        took.push(back.elapsed());
        if round % 8 == 0 {
            clients.trim(&array);
        }
        // The next kill comes at another moment of what goes on.
        std::thread::sleep(Duration::from_millis(u64::from(round) * 37 % 400));
    }
    took.sort_unstable();
    let (median, longest) = (took[took.len() / 2], took[took.len() - 1]);
    eprintln!("{rounds} kills: healthy {median:?} after all were back (median), at most {longest:?}");
    clients.end(&array, &[]);
    array.end();
}

/// An SSD that came back three times gets no places until an operator says so.
fn resume_flapping(array: &Array, now: &Value) {
    for ssd in now["ssds"].as_array().expect("SSDs").iter().filter(|ssd| ssd["flaps"] == true) {
        call(array, &["fleet", "resume", &ssd["index"].to_string()]).worked();
    }
}

/// `GNSTOR_ROUNDS`: how often (`scripts/fleet-kills`).
#[test]
fn all_ssds_are_killed_at_once_and_no_call_fails() {
    let rounds = std::env::var("GNSTOR_ROUNDS").map_or(2, |text| text.parse().expect("a number"));
    within(BUILD_LIMIT + Duration::from_secs(20) * rounds, move || kills(rounds));
}
