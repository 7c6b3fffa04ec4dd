// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When a serving lease is not needed, and what ends it: another map, another content, a power failure.

use super::*;

/// There the daemon takes the writer away and settles. Without voters it does neither.
#[test]
fn where_ssds_vote_the_end_of_a_write_lease_by_the_clock_settles_nothing() {
    for (voters, after) in [(&[0][..], Some(Refusal::AskTheFirst)), (&[][..], None)] {
        let mut map = voted(voters);
        map.rows[0].first = Some(1);
        let mut harness = with(&map);
        harness.step_to(harness.now + Span::from_ms(1));
        assert_eq!(harness.read_as(READER), Some(Refusal::AskTheFirst));
        harness.step_to(harness.now + Span::from_ms(20_000));
        assert_eq!(harness.read_as(READER), after, "voters {voters:?}");
        harness.chmod(|entry| (entry.writer, entry.lease_ms) = (None, 0));
        assert_eq!(harness.read_as(READER), None, "the volume has no writer, and is settled");
    }
}

#[test]
fn a_map_without_voters_needs_no_lease_and_one_with_voters_ends_what_ran() {
    let plain = voted(&[]);
    let mut harness = with(&plain);
    assert!(harness.serves() && harness.questions().is_empty());
    let voted = FleetMap3 { epoch: 2, ..voted(&[0]) };
    harness.set_map(&voted);
    assert!(!harness.serves());
    harness.step_to(harness.now + Span::from_ms(1));
    assert!(harness.serves() && harness.questions().is_empty(), "it is the only voter");
    harness.step_to(harness.now + Span::from_ms(5000));
    assert!(harness.serves(), "it goes on asking itself");
    harness.set_map(&FleetMap3 { epoch: 3, ..plain });
    assert!(harness.serves(), "as ever");
}

#[test]
fn another_content_has_no_lease_of_the_one_before() {
    let map = voted(&[0]);
    let mut harness = with(&map);
    let uuid = harness.ssd().identity().uuid;
    let named = |epoch, incarnation| {
        let mut map = FleetMap3 { epoch, ..map.clone() };
        (map.ssds[0].uuid, map.ssds[0].incarnation) = (uuid, incarnation);
        map
    };
    harness.set_map(&named(2, 1));
    harness.step_to(harness.now + Span::from_ms(101));
    assert!(harness.serves());
    let mut dropped = named(3, 1);
    (dropped.rows[0].places[0], dropped.rows[0].first) = (None, Some(1));
    dropped.ssds[0].state = gnstor_proto::placement::map3::State3::Out;
    harness.set_map(&dropped);
    harness.set_map(&named(4, 2));
    assert!(!harness.serves(), "its new content has not asked");
    harness.step_to(harness.now + Span::from_ms(101));
    assert!(harness.serves());
}

#[test]
fn what_a_voter_granted_and_holds_outlives_its_power_and_an_ssd_with_voters_starts_without_a_lease() {
    let (cut, ssd) = crate::tests::map3::Cut::new();
    let mut harness = cut.harness(ssd);
    let map = voted(&[0, 1, 2]);
    assert_eq!(refusal(&harness.set_map(&map)), None);
    harness.take_term(5, 77).unwrap();
    let held = next(&map);
    assert_eq!(harness.hold(6, 78, &held), None);
    harness.ssd().shut_down().unwrap();
    drop(harness);
    let mut harness = cut.harness(cut.reopen());
    assert_eq!(harness.take_term(6, 77), Err(Refusal::StaleTerm), "it was granted to the other one");
    let promise = harness.take_term(6, 78).unwrap();
    assert_eq!((promise.active, promise.held), (name_of(&map), Some((6, name_of(&held)))));
    let sqe = harness.io(io::READ, WRITER, 0, 1);
    assert_eq!(harness.refused(WRITER, sqe), Some(Refusal::NotServing));
    assert_eq!(harness.activate(&held, None), None);
}

#[test]
fn an_ssd_that_the_map_does_not_mean_grants_nothing() {
    let mut harness = Harness::connected(0);
    assert_eq!(harness.take_term(1, 1), Err(Refusal::NotServing), "it has no map");
    let mut map = voted(&[0, 1, 2]);
    map.ssds[0].uuid = [9; 16];
    assert_eq!(refusal(&harness.set_map(&map)), None);
    assert_eq!(harness.take_term(2, 1), Err(Refusal::NotReady), "another SSD has its number");
    harness.step_to(harness.now + Span::from_ms(1));
    assert_eq!(harness.questions().len(), 2, "it does not say yes to itself");
}
