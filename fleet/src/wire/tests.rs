// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A change of the wire's map is the change of the rules' map, and keeps all else.

use super::*;
use crate::deadline::{Deadline, LIMIT};
use alloc::format;
use gnstor_proto::placement::FleetMap;
use proptest::prelude::*;

/// Each field differs from SSD to SSD.
fn whole(ssds: usize) -> FleetMap3 {
    let mut map = FleetMap3::of(&FleetMap::equal(ssds, 64, 7, 1).unwrap(), [9; 16]);
    for (n, ssd) in (1u8..).zip(&mut map.ssds) {
        (ssd.uuid, ssd.incarnation, ssd.weight) = ([n; 16], u32::from(n) * 3, u32::from(n) << 16);
        (ssd.node, ssd.rack, ssd.address) = (u16::from(n) / 2, u16::from(n), format!("10.0.0.{n}:4420"));
        ssd.vote = if n <= 3 { Vote::Voter } else { Vote::None };
    }
    map
}

/// Makes the fields that a change may touch equal in both.
fn beside(map: &FleetMap3) -> FleetMap3 {
    let mut map = map.clone();
    (map.term, map.epoch) = (0, 0);
    map.rows.clear();
    for ssd in &mut map.ssds {
        (ssd.state, ssd.incarnation, ssd.shrunk_at) = (State3::In, 0, 0);
    }
    map
}

#[test]
fn a_map_that_names_no_first_keeps_naming_none() {
    let _deadline = Deadline::after(LIMIT);
    let mut map = whole(3);
    map.rows[5].first = None;
    assert_eq!(Map::of(&map).unwrap().put_into(&map), map);
    assert_eq!(Map::of(&map).unwrap().rows[5].first(), None);
}

#[test]
fn a_map_of_more_ssds_than_the_rules_know_is_refused() {
    let _deadline = Deadline::after(LIMIT);
    assert!(Map::of(&whole(64)).is_some());
    let many = FleetMap3::of(&FleetMap::equal(65, 64, 7, 1).unwrap(), [9; 16]);
    assert_eq!(change(&many, |map| map.lose(1, 2, 2)), Err(Unchanged::TooMany));
    assert_eq!(many.voters(), SsdSet::EMPTY);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_change_of_the_wire_is_the_change_of_the_rules(
        ssds in 2usize..7,
        fewest in 1u8..=4,
        steps in prop::collection::vec((0u8..4, 0u16..7, 0usize..64), 1..12),
    ) {
        let _deadline = Deadline::after(LIMIT);
        let first = whole(ssds);
        let (mut wire, mut map) = (first.clone(), Map::of(&first).unwrap());
        for (kind, ssd, row) in steps {
            let incarnation = map.ssd(ssd).map_or(0, |ssd| ssd.incarnation);
            let by = |map: &Map| match kind {
                0 => map.lose(ssd, fewest, 2),
                1 => map.back(ssd, incarnation, 2),
                2 => map.fill(row, (ssd, incarnation + 1), fewest, 2),
                _ => map.serve(row, ssd, incarnation, 2),
            };
            let (changed, expected) = (change(&wire, by), by(&map));
            prop_assert_eq!(changed.is_ok(), expected.is_ok());
            if let (Ok(changed), Ok(expected)) = (changed, expected) {
                prop_assert_eq!(changed.check(), Ok(()), "it can be encoded");
                prop_assert_eq!(&Map::of(&changed).unwrap(), &expected);
                prop_assert_eq!(beside(&changed), beside(&first));
                let epoch = (changed.epoch, changed.deprived(), changed.voters());
                prop_assert_eq!(epoch, (expected.epoch, expected.deprived(), expected.voters()));
                (wire, map) = (changed, expected);
            }
        }
    }
}
