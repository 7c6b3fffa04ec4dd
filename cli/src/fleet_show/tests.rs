// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use gnstor_base::testing::deadline;

/// Four SSDs, 64 groups of two copies.
fn fleet() -> ShowResponse {
    let ssd = |index| FleetSsd { index, state: SsdState::In.into(), serving: 32, ..FleetSsd::default() };
    ShowResponse {
        map_format: 3,
        voters: vec![0, 1, 2],
        groups: 64,
        groups_by_copies: vec![0, 0, 64],
        replicas: 2,
        ssds: (0..4).map(ssd).collect(),
        ..ShowResponse::default()
    }
}

fn words(health: &Health, words: &[&str]) {
    let why = health.why().expect("something is wrong");
    words.iter().for_each(|word| assert!(why.contains(word), "'{word}' is missing in: {why}"));
}

fn json_of(fleet: &ShowResponse) -> Value {
    to_json(fleet, &fleet.ssds.iter().collect::<Vec<_>>())
}

#[test]
fn an_array_with_all_its_copies_is_healthy() {
    let _deadline = deadline();
    let mut fleet = fleet();
    assert_eq!(health(&fleet), Health::Healthy);
    // An SSD that was taken out, and whose groups have their copies elsewhere, is not missing.
    fleet.ssds[3].set_state(SsdState::Out);
    (fleet.ssds[3].taken_out, fleet.ssds[3].serving) = (true, 0);
    fleet.ssds[3].away = "it is off".into();
    assert_eq!(health(&fleet).exit_code(), 0);
}

#[test]
fn fewer_copies_are_degraded_with_numbers_and_what_to_do() {
    let _deadline = deadline();
    let mut fleet = fleet();
    fleet.groups_by_copies = vec![0, 1_234, 64];
    (fleet.groups, fleet.ssds[2].serving) = (1_298, 0);
    fleet.ssds[2].set_state(SsdState::Out);
    let degraded = health(&fleet);
    assert_eq!(degraded.exit_code(), 2);
    words(&degraded, &["1,234 of 1,298 groups have one copy", "start SSD 2 again"]);
    fleet.ssds[2].taken_out = true;
    words(&health(&fleet), &["gnstor fleet resume takes SSD 2 back"]);
    fleet.ssds[1].filling = 3;
    words(&health(&fleet), &["SSD 1 fills"]);
}

#[test]
fn an_ssd_that_is_down_and_has_the_only_copy_makes_blocks_unavailable() {
    let _deadline = deadline();
    let mut fleet = fleet();
    fleet.ssds[1].away = "it does not answer".into();
    fleet.ssds[1].down_ms = Some(4_123);
    assert_eq!(health(&fleet).exit_code(), 2);
    words(&health(&fleet), &["SSD 1 is down", "half a second"]);
    assert!(note(&fleet, &fleet.ssds[1]).contains("silent for 4.1 s: it does not answer"));
    fleet.ssds[1].drawn_anew_in_ms = Some(26_040);
    assert!(note(&fleet, &fleet.ssds[1]).contains("it does not answer; its places are kept for 26.0 s more"));
    assert_eq!(json_of(&fleet)["ssds"][1]["drawn_anew_in_ms"], 26_040);
    fleet.ssds[1].drawn_anew_in_ms = Some(0);
    assert!(note(&fleet, &fleet.ssds[1]).contains("other SSDs may take its places now"));
    fleet.ssds[1].last_copies = 5;
    assert_eq!(health(&fleet).exit_code(), 3);
    words(&health(&fleet), &["5 of 64 groups have no copy", "bring SSD 1 back"]);
    fleet.ssds[1] = FleetSsd { index: 1, ..FleetSsd::default() };
    fleet.ssds[1].set_state(SsdState::Absent);
    fleet.groups_by_copies = vec![7, 0, 57];
    words(&health(&fleet), &["7 of 64 groups", "bring SSD 1 back"]);
    assert_eq!(json_of(&fleet)["state"], "unavailable");
}

#[test]
fn without_a_majority_of_the_voters_blocks_are_unavailable() {
    let _deadline = deadline();
    let mut fleet = fleet();
    fleet.voters = vec![0, 1, 2];
    let down = |fleet: &mut ShowResponse, ssd: usize| {
        (fleet.ssds[ssd].away, fleet.ssds[ssd].down_ms) = ("it does not answer".into(), Some(900));
    };
    down(&mut fleet, 2);
    down(&mut fleet, 3);
    assert_eq!(health(&fleet).exit_code(), 2, "two of three voters are there");
    down(&mut fleet, 1);
    assert_eq!(health(&fleet).exit_code(), 3);
    words(&health(&fleet), &["SSD 1, 2 of the 3 voters", "start them again"]);
    let mut fleet = self::fleet();
    fleet.ssds[1].set_state(SsdState::Out);
    fleet.groups_by_copies = vec![0, 7, 57];
    fleet.ssds[1].away = "it is another SSD, and is empty: gnstor fleet replace 1 gives it the place".into();
    words(&health(&fleet), &["another SSD is in the place of SSD 1", "note"]);
}

#[test]
fn an_ssd_that_is_drained_says_who_takes_its_copies_and_what_it_waits_for() {
    let _deadline = deadline();
    let mut fleet = fleet();
    fleet.ssds[3].leaves = true;
    assert_eq!((state(&fleet.ssds[3]), health(&fleet).exit_code()), ("draining", 0));
    assert!(note(&fleet, &fleet.ssds[3]).contains("others take its copies soon; gnstor fleet resume 3"));
    fleet.ssds[1].filling = 8;
    assert!(note(&fleet, &fleet.ssds[3]).contains("SSD 1 takes its copies"));
    fleet.ssds[3].leave_waits = "SSD 1 lacks 4096 bytes".into();
    assert!(note(&fleet, &fleet.ssds[3]).contains("waits: SSD 1 lacks 4096 bytes"));
    assert_eq!(json_of(&fleet)["ssds"][3]["leaves"], true);
}

#[test]
fn an_array_without_voters_is_told_apart() {
    let _deadline = deadline();
    let mut fleet = fleet();
    fleet.voters.clear();
    assert_eq!(json_of(&fleet)["changes_itself"], false);
    fleet.ssds[1].away = "it does not answer".into();
    words(&health(&fleet), &["SSD 1 is down; start it again"]);
}

#[test]
fn numbers_and_times_are_written_for_people() {
    let _deadline = deadline();
    let texts = [1, 999, 1_000, 65_536, 4_294_967_295].map(grouped);
    assert_eq!(texts, ["1", "999", "1,000", "65,536", "4,294,967,295"]);
    assert_eq!([999, 4_100, 61_000].map(seconds), ["0.9 s", "4.1 s", "1 min 1 s"]);
}

#[test]
fn a_fill_says_how_far_it_is_and_which_ssd_it_waits_for() {
    let _deadline = deadline();
    let mut fleet = fleet();
    let report = SsdFill { compared_blocks: 256, blocks: 1_024, pulled_blocks: 128, ..SsdFill::default() };
    (fleet.ssds[3].filling, fleet.ssds[3].fill) = (8, Some(report));
    assert_eq!(state(&fleet.ssds[3]), "filling");
    assert_eq!(fill(&report), "1.0 MiB of 4.0 MiB");
    assert_eq!(note(&fleet, &fleet.ssds[3]), "25 %, 512.0 KiB copied");
    fleet.ssds[3].fill = Some(SsdFill { waits_for: Some(2), ..report });
    assert_eq!(note(&fleet, &fleet.ssds[3]), "25 %, waits for SSD 2");
}

#[test]
fn the_last_loss_names_its_ssds_and_what_it_waited_for() {
    let _deadline = deadline();
    let change = |stopped| MapChange { epoch: 7, deprived: vec![1, 3], stopped, waited_ms: 312 };
    for (stopped, end) in [
        (vec![], "SSD 1, 3; waited 312 ms until the lease of SSD 1, 3 was over"),
        (vec![3], "SSD 1, 3; waited 312 ms until the lease of SSD 1 was over"),
        (vec![1, 3], "SSD 1, 3; stopped in order, so there was no wait"),
    ] {
        assert_eq!(change_line(&change(stopped)), format!("last loss: epoch 7 took places from {end}"));
    }
    let mut fleet = fleet();
    fleet.changes = vec![change(vec![3])];
    let shown = &json_of(&fleet)["changes"];
    assert_eq!(
        shown,
        &json!([{ "epoch": 7, "deprived": [1, 3], "stopped_in_order": [3], "waited_ms": 312 }])
    );
}
