// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Schedules that random cases have found, each a test of its own.

use super::{Step, comes_to_one_state};

/// An SSD is back and gets places by a map that is decided; the SSDs are being told it.
#[test]
fn an_ssd_that_goes_while_the_map_that_names_it_is_told_misses_no_grant() {
    let steps = vec![
        Step::Create { name: 0, id: None },
        Step::Reboot { ssd: 1 },
        Step::Find { ssd: 0 },
        Step::Execute { ssd: 1, commands: 1, which: 2 },
        Step::Execute { ssd: 0, commands: 1, which: 0 },
        Step::Lossy { ssd: 2 },
        Step::Create { name: 2, id: None },
        Step::RunUntilQuiet,
        Step::Pass { ms: 310 },
        Step::RunUntilQuiet,
        Step::Reboot { ssd: 2 },
        Step::RunUntilQuiet,
        Step::Write { name: 2, client: 1, lease_ms: 1000 },
        Step::Lossy { ssd: 0 },
        Step::Pass { ms: 310 },
        Step::Find { ssd: 1 },
        Step::Create { name: 0, id: None },
    ];
    comes_to_one_state(steps, 0, 0, true);
}

#[test]
fn an_ssd_that_restarted_takes_part_again_though_its_daemon_restarts_meanwhile() {
    let steps = vec![
        Step::Create { name: 1, id: None },
        Step::RunUntilQuiet,
        Step::Reboot { ssd: 0 },
        Step::RunUntilQuiet,
        Step::Delete { name: 0, client: 1 },
        Step::Write { name: 1, client: 1, lease_ms: 1000 },
        Step::Execute { ssd: 0, commands: 1, which: 0 },
        Step::Restart,
    ];
    comes_to_one_state(steps, 0, 0, true);
}
