// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Schedules with SSDs that were exchanged or began empty, which random cases have found.

use super::{Step, comes_to_one_state, of_so_many_comes_to_one_state};

/// An SSD that is absent was swapped for an empty one, and the daemon starts. Its rounds give the empty SSD
/// nothing, so it stays empty and can take the place.
#[test]
fn an_empty_ssd_that_is_there_when_a_daemon_starts_stays_empty() {
    let steps = vec![
        Step::Create { name: 0, id: None },
        Step::Replace { ssd: 0, lose_data: false },
        Step::Lossy { ssd: 0 },
        Step::Execute { ssd: 3, commands: 2, which: 0 },
        Step::Swap { ssd: 2 },
        Step::Restart,
        Step::Swap { ssd: 4 },
        Step::RunUntilQuiet,
        Step::Replace { ssd: 2, lose_data: false },
        Step::Pass { ms: 310 },
        Step::RunUntilQuiet,
        Step::Pass { ms: 310 },
        Step::Execute { ssd: 0, commands: 1, which: 0 },
        Step::Restart,
    ];
    of_so_many_comes_to_one_state(5, steps, 0, 0, true);
}

/// The sweep of a deleted volume makes an SSD refuse the entry of a new one, and the round still waits for
/// another SSD. Until it has the entry the SSD gets no place.
#[test]
fn an_ssd_that_refused_an_entry_gets_no_place_while_the_round_goes_on() {
    let steps = vec![
        Step::Create { name: 1, id: None },
        Step::Lossy { ssd: 2 },
        Step::RunUntilQuiet,
        Step::Pass { ms: 310 },
        Step::Write { name: 1, client: 1, lease_ms: 1000 },
        Step::Drain { ssd: 2 },
        Step::Lose { ssd: 2 },
        Step::Reboot { ssd: 0 },
        Step::RunUntilQuiet,
        Step::Drain { ssd: 1 },
        Step::Swap { ssd: 1 },
        Step::Pass { ms: 1500 },
        Step::RunUntilQuiet,
        Step::Restart,
        Step::Delete { name: 1, client: 1, force: false },
        Step::Resume { ssd: 1, lose_data: false },
        Step::Create { name: 3, id: None },
    ];
    of_so_many_comes_to_one_state(5, steps, 2, 0, true);
}

/// An SSD that begins empty has an entry of an earlier daemon, which says that copies may differ.
#[test]
fn an_ssd_that_begins_empty_need_not_settle() {
    let steps = vec![
        Step::Create { name: 2, id: None },
        Step::Write { name: 2, client: 4, lease_ms: 3191 },
        Step::RunUntilQuiet,
        Step::Lossy { ssd: 1 },
        Step::RunUntilQuiet,
        Step::Write { name: 2, client: 4, lease_ms: 1000 },
        Step::Reboot { ssd: 1 },
        Step::Lose { ssd: 0 },
        Step::Swap { ssd: 2 },
        Step::Execute { ssd: 1, commands: 3, which: 0 },
        Step::RunUntilQuiet,
        Step::Restart,
    ];
    comes_to_one_state(steps, 0, 0, true);
}
