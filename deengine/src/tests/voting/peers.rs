// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an SSD of the array can do at another one, beside asking for its lease and for blocks.

use super::*;

#[test]
fn a_peer_reads_the_map_and_makes_a_newer_one_of_its_array_active_that_was_not_held() {
    let map = voted(&[0, 1, 2]);
    let mut harness = with(&map);
    assert_eq!(harness.get_map(PEER, 0), map.encode().unwrap());
    let activate = |harness: &mut Harness, map: &FleetMap3| {
        let activation = Activation { array: map.array, map: name_of(map), base: 0 };
        let mut bytes = activation.encode(Some(&map.encode().unwrap()));
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        harness.poke(PEER, 0, &bytes);
        let length = u32::try_from(bytes.len()).unwrap();
        let dptr = KeyedSgl::keyed(0, length, KEY);
        harness.refused(PEER, Sqe { dptr, cdw10: (length / 4).into(), ..sqe(opcode::ACTIVATE) })
    };
    let foreign = FleetMap3 { array: [9; 16], ..next(&map) };
    assert_eq!(activate(&mut harness, &foreign), Some(Refusal::OtherArray));
    assert_eq!(activate(&mut harness, &map), Some(Refusal::StaleVersion));
    assert_eq!(activate(&mut harness, &next(&map)), None, "nothing was held");
    assert_eq!(harness.get_map(PEER, 0), next(&map).encode().unwrap());
}
