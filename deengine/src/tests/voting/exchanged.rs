// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD was exchanged for another one: voters judge each by its own number of openings.

use super::super::map3::Cut;
use super::*;

const BEFORE: [u8; 16] = [0xA; 16];
const AFTER: [u8; 16] = [0xB; 16];

/// A map in which this SSD is SSD 1.
fn with_second(uuid: [u8; 16], epoch: u64) -> FleetMap3 {
    let mut map = FleetMap3 { epoch, ..voted(&[0, 2, 3]) };
    map.ssds[1].uuid = uuid;
    map
}

fn ask_of(uuid: [u8; 16], epoch: u64, opening: u32) -> Ask {
    Ask { ssd: 1, array: ARRAY, epoch, incarnation: 0, opening, uuid, is_goodbye: false }
}

#[test]
fn a_voter_without_the_map_of_an_exchanged_ssd_does_not_judge_its_number() {
    let mut harness = with(&with_second(BEFORE, 1));
    let ask = |harness: &mut Harness, ask| refusal(&harness.lease_ask(PEER, ask));
    assert_eq!(ask(&mut harness, ask_of(BEFORE, 1, 5)), None);
    // A map that this voter has not heard of gave the place to the SSD that asks.
    assert_eq!(ask(&mut harness, ask_of(AFTER, 2, 1)), Some(Refusal::MapBehind));
    assert_eq!(harness.ssd().openings()[1], 5, "it may be said to the SSD before");
    assert_eq!(ask(&mut harness, ask_of(BEFORE, 1, 4)), Some(Refusal::OlderImage));

    harness.set_map(&with_second(AFTER, 2));
    assert_eq!(harness.ssd().openings()[1], 0, "the number was of the SSD before");
    assert_eq!(ask(&mut harness, ask_of(AFTER, 2, 1)), None);
    assert_eq!(harness.ssd().openings()[1], 1);
}

#[test]
fn the_ssd_before_gets_no_lease_and_its_number_is_not_taken_for_that_of_the_new_one() {
    let mut harness = with(&with_second(BEFORE, 1));
    harness.take_term(5, 77).unwrap();
    let ask = |harness: &mut Harness, ask| refusal(&harness.lease_ask(PEER, ask));
    let exchanged = with_second(AFTER, 2);
    assert_eq!(harness.hold(5, 77, &exchanged), None);
    assert_eq!(ask(&mut harness, ask_of(BEFORE, 1, 7)), Some(Refusal::Deprived), "from the hold on");
    assert_eq!(harness.activate(&exchanged, None), None);
    for epoch in [1, 2] {
        assert_eq!(ask(&mut harness, ask_of(BEFORE, epoch, 7)), Some(Refusal::Deprived));
    }
    assert_eq!(ask(&mut harness, ask_of(AFTER, 2, 1)), None);
    assert_eq!(harness.ssd().openings()[1], 1);
}

/// The new SSD got the map that still names the previous one.
#[test]
fn an_ssd_keeps_its_own_number_under_the_map_that_names_it() {
    let (cut, ssd) = Cut::new();
    let own = ssd.identity();
    let mut map = voted(&[1, 2, 3]);
    map.ssds[0].uuid = BEFORE;
    let mut harness = cut.harness(ssd);
    harness.set_map(&map);
    harness.volume_command(opcode::VOLUME_ADD, &VolumeEntry { replicas: 2, ..entry(VOLUME) });
    harness.step_to(harness.now + Span::from_ms(101));
    for (ask, _, question) in harness.questions() {
        assert_eq!(Ask::decode(&question.data).unwrap().uuid, own.uuid, "it says which SSD it is");
        harness.say(ask, Ok(()));
    }
    assert_eq!(harness.ssd().openings(), [1]);
    let mut names_it = next(&map);
    (names_it.ssds[0].uuid, names_it.ssds[0].incarnation) = (own.uuid, own.incarnation);
    harness.set_map(&names_it);
    assert_eq!(harness.ssd().openings(), [1]);
}
