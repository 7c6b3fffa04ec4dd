// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Schedules that random cases have found, each a test of its own.

use super::{Step, comes_to_one_state, of_so_many_comes_to_one_state};

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
        Step::Delete { name: 0, client: 1, force: false },
        Step::Write { name: 1, client: 1, lease_ms: 1000 },
        Step::Execute { ssd: 0, commands: 1, which: 0 },
        Step::Restart,
    ];
    comes_to_one_state(steps, 0, 0, true);
}

/// The array has forgotten a volume, and an SSD that was drained has it still.
#[test]
fn what_an_ssd_that_is_out_has_is_not_missed_by_one_that_has_filled() {
    let steps = vec![
        Step::Create { name: 3, id: None },
        Step::Drain { ssd: 0 },
        Step::RunUntilQuiet,
        Step::Create { name: 0, id: None },
        Step::Restart,
        Step::Delete { name: 3, client: 1, force: false },
    ];
    comes_to_one_state(steps, 0, 0, true);
}

/// An empty SSD was told the map, and its place was that of a member: it is not asked again and again.
#[test]
fn an_ssd_that_is_another_one_than_the_map_names_is_not_brought_up_to_date() {
    let steps = vec![
        Step::Create { name: 1, id: None },
        Step::Swap { ssd: 2 },
        Step::Reboot { ssd: 0 },
        Step::Replace { ssd: 2, lose_data: false },
        Step::RunUntilQuiet,
        Step::Restart,
        Step::Lossy { ssd: 2 },
        Step::RunUntilQuiet,
        Step::Pass { ms: 400 },
        Step::Swap { ssd: 2 },
    ];
    comes_to_one_state(steps, 0, 0, true);
}

#[test]
fn an_empty_ssd_that_got_a_volume_before_it_said_who_it_is_counts_as_empty() {
    let steps = vec![
        Step::Create { name: 1, id: None },
        Step::Execute { ssd: 1, commands: 1, which: 0 },
        Step::Swap { ssd: 1 },
        Step::Read { name: 1, client: 1 },
    ];
    comes_to_one_state(steps, 0, 0, true);
}

#[test]
fn a_lossy_ssd_is_replaced_while_a_volume_waits_for_a_map() {
    let steps = vec![
        Step::Lossy { ssd: 0 },
        Step::RunUntilQuiet,
        Step::Create { name: 2, id: None },
        Step::Pass { ms: 6866 },
        Step::RunUntilQuiet,
        Step::Swap { ssd: 0 },
    ];
    comes_to_one_state(steps, 0, 0, true);
}

/// The empty SSD grants no term, and no start waits for it.
#[test]
fn a_daemon_starts_while_an_empty_ssd_is_in_the_place_of_a_voter() {
    for ssd in 0..3 {
        let steps = vec![Step::Swap { ssd: 1 }, Step::Lossy { ssd: 2 }, Step::Lossy { ssd }, Step::Restart];
        comes_to_one_state(steps, 0, 0, true);
    }
}

#[test]
fn an_empty_ssd_that_was_given_the_place_is_exchanged_for_another_one() {
    let steps = vec![
        Step::Swap { ssd: 1 },
        Step::Restart,
        Step::Replace { ssd: 1, lose_data: false },
        Step::Swap { ssd: 1 },
    ];
    comes_to_one_state(steps, 0, 0, true);
}

/// A volume of one replica is not created. Until its request ends, the lost SSD counts as the last copy of
/// it.
#[test]
fn an_ssd_that_is_absent_for_a_request_alone_is_replaced_when_that_has_ended() {
    let steps = vec![
        Step::Create { name: 3, id: None },
        Step::Die { ssd: 1, dead: true },
        Step::RunUntilQuiet,
        Step::Pass { ms: 1000 },
        Step::Swap { ssd: 0 },
        Step::RunUntilQuiet,
    ];
    comes_to_one_state(steps, 0, 0, true);
}

#[test]
fn a_daemon_starts_though_the_empty_ssd_that_was_given_the_place_is_away() {
    let steps = vec![
        Step::Swap { ssd: 1 },
        Step::Restart,
        Step::Replace { ssd: 1, lose_data: false },
        Step::Lose { ssd: 1 },
        Step::RunUntilQuiet,
        Step::Restart,
    ];
    comes_to_one_state(steps, 0, 0, true);
}

/// No member of the map that is decided can be told it: the SSDs that are out are.
#[test]
fn the_only_member_of_the_next_map_is_exchanged_before_it_is_told() {
    let steps = vec![
        Step::Lossy { ssd: 2 },
        Step::RunUntilQuiet,
        Step::Lose { ssd: 1 },
        Step::Pass { ms: 310 },
        Step::RunUntilQuiet,
        Step::Swap { ssd: 0 },
    ];
    comes_to_one_state(steps, 0, 0, true);
}

/// A volume is made while an SSD comes back; another one is lost, so the volume is taken back.
#[test]
fn a_volume_that_is_not_made_stays_on_no_ssd_that_is_coming_back() {
    let steps = vec![
        Step::Create { name: 1, id: None },
        Step::Lossy { ssd: 2 },
        Step::RunUntilQuiet,
        Step::Pass { ms: 310 },
        Step::Fail { ssd: 0, kind: 0 },
        Step::RunUntilQuiet,
        Step::Create { name: 0, id: None },
        Step::Lose { ssd: 0 },
        Step::Execute { ssd: 2, commands: 3, which: 1 },
        Step::Execute { ssd: 2, commands: 2, which: 1 },
        Step::RunUntilQuiet,
    ];
    comes_to_one_state(steps, 0, 0, true);
}

/// The deletion of a volume has begun on an SSD alone that was dropped meanwhile. The next daemon ends it.
#[test]
fn a_deletion_that_only_a_dropped_ssd_knows_of_is_finished_by_the_next_daemon() {
    let steps = vec![
        Step::Create { name: 0, id: None },
        Step::Reboot { ssd: 2 },
        Step::RunUntilQuiet,
        Step::Delete { name: 0, client: 1, force: false },
        Step::Lose { ssd: 1 },
        Step::Swap { ssd: 0 },
        Step::Execute { ssd: 2, commands: 1, which: 0 },
        Step::Restart,
    ];
    comes_to_one_state(steps, 0, 0, true);
}

/// The schedule of the next test until the first restart.
fn until_a_restart_beside_a_drain() -> Vec<Step> {
    vec![
        Step::Release { name: 1, client: 3, clean: true },
        Step::Delete { name: 3, client: 2, force: false },
        Step::Renew { name: 2, client: 3, lease_ms: 7681 },
        Step::Delete { name: 3, client: 2, force: false },
        Step::Write { name: 0, client: 2, lease_ms: 12483 },
        Step::Create { name: 2, id: Some(0) },
        Step::Write { name: 3, client: 4, lease_ms: 11329 },
        Step::Epoch { add: true },
        Step::Execute { ssd: 0, commands: 1, which: 3 },
        Step::Write { name: 0, client: 2, lease_ms: 10723 },
        Step::Epoch { add: true },
        Step::Execute { ssd: 0, commands: 3, which: 2 },
        Step::Create { name: 1, id: None },
        Step::Execute { ssd: 2, commands: 1, which: 0 },
        Step::Read { name: 2, client: 4 },
        Step::Lose { ssd: 0 },
        Step::Read { name: 0, client: 2 },
        Step::Execute { ssd: 0, commands: 1, which: 3 },
        Step::Pass { ms: 6129 },
        Step::Execute { ssd: 1, commands: 1, which: 1 },
        Step::Epoch { add: true },
        Step::Fail { ssd: 0, kind: 3 },
        Step::Fail { ssd: 0, kind: 3 },
        Step::Reboot { ssd: 1 },
        Step::Execute { ssd: 1, commands: 1, which: 3 },
        Step::Write { name: 3, client: 2, lease_ms: 19808 },
        Step::Pass { ms: 4632 },
        Step::Find { ssd: 2 },
        Step::Execute { ssd: 1, commands: 2, which: 3 },
        Step::Resume { ssd: 2, lose_data: true },
        Step::Create { name: 3, id: Some(0) },
        Step::Publish { from: 1, name: 3 },
        Step::Restart,
    ]
}

/// Two SSDs come in for a third one, and one of them has filled. Epochs followed each other without a change.
#[test]
fn a_drain_with_one_ssd_that_has_filled_and_one_that_has_not_comes_to_an_end() {
    let mut steps = until_a_restart_beside_a_drain();
    steps.extend([
        Step::Create { name: 3, id: Some(5) },
        Step::RunUntilQuiet,
        Step::RunUntilQuiet,
        Step::Execute { ssd: 2, commands: 2, which: 3 },
        Step::Epoch { add: true },
        Step::Reboot { ssd: 1 },
        Step::Lossy { ssd: 1 },
        Step::Write { name: 2, client: 2, lease_ms: 15592 },
        Step::Lose { ssd: 2 },
        Step::Pass { ms: 5121 },
        Step::Read { name: 3, client: 3 },
        Step::Write { name: 0, client: 3, lease_ms: 6349 },
        Step::Find { ssd: 2 },
        Step::Delete { name: 0, client: 3, force: false },
        Step::Drain { ssd: 2 },
        Step::RunUntilQuiet,
        Step::Lose { ssd: 1 },
        Step::Restart,
        Step::Reboot { ssd: 0 },
        Step::Publish { from: 3, name: 3 },
        Step::Replace { ssd: 1, lose_data: true },
        Step::Write { name: 0, client: 2, lease_ms: 6143 },
        Step::Drain { ssd: 1 },
        Step::Find { ssd: 2 },
        Step::RunUntilQuiet,
        Step::Execute { ssd: 2, commands: 3, which: 0 },
        Step::Reboot { ssd: 1 },
        Step::Write { name: 0, client: 4, lease_ms: 9146 },
        Step::Execute { ssd: 0, commands: 2, which: 0 },
        Step::Write { name: 1, client: 4, lease_ms: 2977 },
        Step::Lossy { ssd: 2 },
        Step::Publish { from: 3, name: 1 },
    ]);
    comes_to_one_state(steps, 2, 1, true);
}

/// An SSD comes in for two replicas. Then the first volume is made, which has one: the place is not used.
#[test]
fn a_drain_goes_on_where_fewer_replicas_are_used_than_when_it_began() {
    let steps = vec![
        Step::Lossy { ssd: 1 },
        Step::RunUntilQuiet,
        Step::Pass { ms: 310 },
        Step::Execute { ssd: 0, commands: 1, which: 0 },
        Step::Pass { ms: 0 },
        Step::Reboot { ssd: 2 },
        Step::RunUntilQuiet,
        Step::Pass { ms: 310 },
        Step::Execute { ssd: 0, commands: 1, which: 0 },
        Step::Restart,
        Step::Drain { ssd: 2 },
        Step::Create { name: 3, id: None },
        Step::Create { name: 0, id: None },
    ];
    comes_to_one_state(steps, 0, 0, true);
}

/// Before the first volume a row has its only copy on the SSD that leaves, at a place that no volume uses.
#[test]
fn a_row_keeps_a_copy_where_no_volume_uses_any_yet() {
    let steps = vec![
        Step::Drain { ssd: 4 },
        Step::RunUntilQuiet,
        Step::Create { name: 0, id: None },
        Step::Lossy { ssd: 0 },
        Step::Pass { ms: 0 },
        Step::Lossy { ssd: 1 },
        Step::RunUntilQuiet,
        Step::Create { name: 0, id: None },
        Step::Swap { ssd: 4 },
        Step::Lossy { ssd: 0 },
        Step::Pass { ms: 310 },
        Step::Swap { ssd: 2 },
    ];
    of_so_many_comes_to_one_state(5, steps, 0, 0, true);
}

/// A map is held in which an SSD fills. When a daemon starts, an empty SSD is in the place of that one.
#[test]
fn a_start_does_not_wait_until_an_ssd_that_the_map_does_not_mean_has_a_held_map() {
    let steps = vec![
        Step::Lose { ssd: 0 },
        Step::Execute { ssd: 2, commands: 1, which: 0 },
        Step::Find { ssd: 0 },
        Step::Execute { ssd: 0, commands: 1, which: 1 },
        Step::Lossy { ssd: 1 },
        Step::Pass { ms: 310 },
        Step::RunUntilQuiet,
        Step::Pass { ms: 310 },
        Step::Execute { ssd: 2, commands: 2, which: 0 },
        Step::Swap { ssd: 0 },
        Step::Restart,
    ];
    comes_to_one_state(steps, 0, 0, true);
}

/// The SSD that leaves has the only copy of a row, which was called lost and fills from nothing.
#[test]
fn a_row_keeps_its_only_place_that_fills_where_no_volume_uses_any_yet() {
    let steps = vec![
        Step::Drain { ssd: 2 },
        Step::RunUntilQuiet,
        Step::Reboot { ssd: 3 },
        Step::RunUntilQuiet,
        Step::Lossy { ssd: 1 },
        Step::Pass { ms: 310 },
        Step::Swap { ssd: 4 },
        Step::Publish { from: 0, name: 0 },
        Step::Lossy { ssd: 2 },
    ];
    of_so_many_comes_to_one_state(5, steps, 0, 0, true);
}

/// A drain waits for an SSD that has just been found. A writer has its time to say that it reaches it.
#[test]
fn a_writer_has_its_time_before_a_drain_takes_its_lease() {
    let steps = vec![
        Step::Create { name: 0, id: None },
        Step::Replace { ssd: 0, lose_data: false },
        Step::Create { name: 0, id: None },
        Step::Epoch { add: false },
        Step::Drain { ssd: 0 },
        Step::RunUntilQuiet,
        Step::Create { name: 3, id: None },
        Step::Pass { ms: 5_000 },
        Step::RunUntilQuiet,
        Step::Write { name: 3, client: 2, lease_ms: 1_000 },
        Step::Find { ssd: 1 },
        Step::RunUntilQuiet,
        Step::Pass { ms: 100 },
        Step::Create { name: 0, id: None },
        Step::Write { name: 3, client: 1, lease_ms: 1_000 },
    ];
    of_so_many_comes_to_one_state(5, steps, 0, 0, true);
}
