// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Maps of format 3: decoding gives back what was encoded, and refuses all other bytes.

use super::*;
use crate::deadline::{Deadline, LIMIT};
use proptest::prelude::*;
use std::format;

fn ssd() -> impl Strategy<Value = Ssd3> {
    let numbers = (any::<[u8; 16]>(), 0u64..3, any::<u32>(), any::<u32>(), any::<[u16; 3]>());
    (numbers, 0usize..5, 0usize..8, "[a-z0-9.:]{0,71}").prop_map(|(numbers, state, vote, address)| {
        let (uuid, shrunk_at, incarnation, weight, [id, node, rack]) = numbers;
        let state = [State3::In, State3::Out, State3::Spare, State3::Absent, State3::Full][state];
        let vote = [Vote::Voter, Vote::Witness].get(vote).copied().unwrap_or(Vote::None);
        Ssd3 { uuid, shrunk_at, incarnation, weight, id, node, rack, state, vote, address }
    })
}

/// A valid row of a map, built from random numbers.
fn row(ssds: &[Ssd3], width: u8, draw: [u16; MAX_WIDTH + 1], filling: u8) -> Row3 {
    let may = |ssd: &Ssd3| {
        matches!(ssd.state, State3::In | State3::Full | State3::Absent) && ssd.vote != Vote::Witness
    };
    let mut open: Vec<u16> = (0u16..).zip(ssds).filter(|(_, ssd)| may(ssd)).map(|(i, _)| i).collect();
    let mut row = Row3::default();
    let mut take = |draw: u16| {
        // One draw in four leaves the place empty.
        (!open.is_empty() && !draw.is_multiple_of(4)).then(|| open.remove(usize::from(draw) / 4 % open.len()))
    };
    for (at, &draw) in draw[..usize::from(width)].iter().enumerate() {
        row.places[at] = take(draw).map(|ssd| Place3 { ssd, filling: filling >> at & 1 == 1 });
    }
    row.first = (0u8..).zip(&row.places).find(|(_, p)| p.is_some_and(|p| !p.filling)).map(|(at, _)| at);
    if let (Some(place), Some(ssd)) = (row.first, take(draw[MAX_WIDTH])) {
        row.incoming = Some(Incoming3 { ssd, place });
    }
    row
}

fn map() -> impl Strategy<Value = FleetMap3> {
    let draws = prop::collection::vec((any::<[u16; MAX_WIDTH + 1]>(), any::<u8>()), 16);
    let numbers = (any::<[u8; 16]>(), any::<u64>(), 2u64..u64::MAX, any::<u64>());
    (prop::collection::vec(ssd(), 1..7), 0u8..=4, 0u32..5, draws, numbers).prop_map(
        |(ssds, width, shift, draws, (array, term, epoch, seed))| {
            let rows =
                draws[..1 << shift].iter().map(|&(d, filling)| row(&ssds, width, d, filling)).collect();
            FleetMap3 { array, term, epoch, seed, width, ssds, rows }
        },
    )
}

/// The next map, in which some SSDs and rows come from another map.
fn next_of(map: &FleetMap3, other: &FleetMap3, changed: u16) -> FleetMap3 {
    let mut next = FleetMap3 { epoch: map.epoch + 1, term: other.term, ..map.clone() };
    for (i, ssd) in other.ssds.iter().enumerate().filter(|(i, _)| changed >> i & 1 == 1) {
        if let Some(slot) = next.ssds.get_mut(i) {
            // States and votes stay, so that the rows stay valid.
            *slot = Ssd3 { state: slot.state, vote: slot.vote, ..ssd.clone() };
        }
    }
    for (i, row) in next.rows.iter_mut().enumerate().filter(|(i, _)| changed >> (i % 16) & 1 == 1) {
        *row = if i % 2 == 0 { Row3::default() } else { Row3 { incoming: None, ..*row } };
    }
    next
}

fn in_nodes(nodes: &[u16], groups: u32, seed: u64) -> FleetMap3 {
    let ssd = |(id, &node): (u16, &u16)| Ssd3 {
        uuid: [0; 16],
        shrunk_at: 0,
        incarnation: 1,
        weight: 1 << 16,
        id,
        node,
        rack: 0,
        state: State3::In,
        vote: Vote::None,
        address: String::new(),
    };
    let ssds = (0u16..).zip(nodes).map(ssd).collect();
    let rows = alloc::vec![Row3::default(); groups as usize];
    FleetMap3 { array: [1; 16], term: 1, epoch: 1, seed, width: 3, ssds, rows }
}

fn fill(map: &mut FleetMap3) {
    for group in 0..map.rows.len() {
        for place in 0..usize::from(map.width) {
            if map.rows[group].places[place].is_none() {
                let ssd = map.draw(u32::try_from(group).unwrap());
                map.rows[group].places[place] = ssd.map(|ssd| Place3 { ssd, filling: true });
            }
        }
    }
}

#[test]
fn an_ssd_is_drawn_by_its_weight() {
    let _deadline = Deadline::after(LIMIT);
    let mut map = in_nodes(&[0, 0, 1, 1], 16_384, 7);
    map.width = 1;
    map.ssds[2].weight *= 3;
    fill(&mut map);
    let mut count = [0i32; 4];
    map.rows.iter().for_each(|row| count[usize::from(row.places[0].unwrap().ssd)] += 1);
    for (count, of_six) in count.into_iter().zip([1, 1, 3, 1]) {
        let expected = 16_384 * of_six / 6;
        assert!((count - expected).abs() < 16_384 / 50, "{count}, not about {expected}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// No two places of a group lie on one node while there are enough nodes. The loss of an SSD moves only
    /// its own places, about 1/N of all.
    #[test]
    fn places_lie_on_different_nodes_and_a_loss_moves_its_own(
        nodes in prop::collection::vec(0u16..6, 4..12), seed: u64, lost: prop::sample::Index,
    ) {
        let _deadline = Deadline::after(LIMIT);
        let mut map = in_nodes(&nodes, 512, seed);
        fill(&mut map);
        let lost = u16::try_from(lost.index(nodes.len())).unwrap();
        let mut next = map.clone();
        next.ssds[usize::from(lost)].state = State3::Out;
        for place in next.rows.iter_mut().flat_map(|row| &mut row.places) {
            *place = place.filter(|place| place.ssd != lost);
        }
        fill(&mut next);
        for (map, without) in [(&map, None), (&next, Some(lost))] {
            prop_assert_eq!(map.check(), Ok(()));
            let left = (0u16..).zip(&nodes).filter(|(i, _)| Some(*i) != without).map(|(_, &node)| node);
            let distinct = left.collect::<std::collections::BTreeSet<_>>().len().min(3);
            for row in &map.rows {
                let used: Vec<u16> = row.places.iter().flatten().map(|p| nodes[usize::from(p.ssd)]).collect();
                let apart = used.iter().collect::<std::collections::BTreeSet<_>>().len();
                prop_assert_eq!(used.len(), 3.min(nodes.len() - usize::from(without.is_some())));
                // A loss moves no place that is left, so these places may still share nodes as before.
                prop_assert!(apart == distinct || without.is_some() && apart + 1 >= distinct);
            }
        }
        for (before, after) in map.rows.iter().zip(&next.rows) {
            for (before, after) in before.places.iter().zip(&after.places) {
                prop_assert!(before == after || before.is_some_and(|place| place.ssd == lost));
            }
        }
    }

    #[test]
    fn maps_round_trip(map in map()) {
        let _deadline = Deadline::after(LIMIT);
        let mut bytes = map.encode().unwrap();
        prop_assert_eq!(FleetMap3::decode(&bytes), Ok(map.clone()));
        bytes.extend_from_slice(&[0xAA; 100]);
        prop_assert_eq!(FleetMap3::decode(&bytes), Ok(map), "bytes behind the map");
    }

    #[test]
    fn a_flipped_bit_or_a_cut_is_refused(map in map(), at: prop::sample::Index) {
        let _deadline = Deadline::after(LIMIT);
        let bytes = map.encode().unwrap();
        prop_assert!(FleetMap3::decode(&bytes[..at.index(bytes.len())]).is_err());
        let (mut flipped, bit) = (bytes.clone(), at.index(bytes.len() * 8));
        flipped[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(FleetMap3::decode(&flipped).is_err(), "bit {}", bit);
    }

    /// Bytes with a correct checksum are refused, or they are a map that encodes to the same bytes.
    #[test]
    fn the_encoding_of_a_map_is_the_only_one(map in map(), at: prop::sample::Index, byte: u8) {
        let _deadline = Deadline::after(LIMIT);
        let mut bytes = map.encode().unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes[56..60].fill(0);
        let crc = crc32c::crc32c(&bytes);
        bytes[56..60].copy_from_slice(&crc.to_le_bytes());
        if let Ok(map) = FleetMap3::decode(&bytes) {
            let again = map.encode().unwrap();
            prop_assert_eq!(&again[..], &bytes[..again.len()]);
        }
    }

    #[test]
    fn a_patch_makes_the_next_map_and_fits_no_other(
        map in map(), other in map(), changed: u16, bit: prop::sample::Index,
    ) {
        let _deadline = Deadline::after(LIMIT);
        let next = next_of(&map, &other, changed);
        let patch = map.patch_to(&next).unwrap().expect("the next epoch of the same array");
        prop_assert_eq!(map.patched(&patch), Ok(next.clone()));
        prop_assert_eq!(next.patched(&patch), Err(MapError::Format), "it is at that epoch already");
        let foreign = FleetMap3 { array: [9; 16], ..map.clone() };
        prop_assert!(map.array == [9; 16] || foreign.patched(&patch).is_err());
        prop_assert_eq!(next.patch_to(&map), Ok(None));
        let (mut flipped, bit) = (patch.clone(), bit.index(patch.len() * 8));
        flipped[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(map.patched(&flipped).is_err(), "bit {}", bit);
    }

    #[test]
    fn any_bytes_are_judged_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _deadline = Deadline::after(LIMIT);
        let _ = FleetMap3::decode(&bytes);
        let mut bytes = bytes;
        if bytes.len() >= 6 {
            bytes[..4].copy_from_slice(b"GNFM");
            bytes[4..6].copy_from_slice(&[3, 0]);
            prop_assert!(FleetMap3::decode(&bytes).is_err());
        }
    }
}

#[test]
fn what_a_map_must_not_say_is_refused() {
    let _deadline = Deadline::after(LIMIT);
    let ssd = |id: u16| Ssd3 {
        uuid: [0; 16],
        shrunk_at: 0,
        incarnation: 1,
        weight: 1 << 16,
        id,
        node: id,
        rack: 0,
        state: State3::In,
        vote: Vote::Voter,
        address: format!("10.0.0.{id}:4420"),
    };
    let serving = |ssd| Some(Place3 { ssd, filling: false });
    let row = Row3 { places: [serving(0), serving(1), None, None], incoming: None, first: Some(0) };
    let ssds: Vec<Ssd3> = (0..3).map(ssd).collect();
    let map = FleetMap3 { array: [1; 16], term: 1, epoch: 1, seed: 0, width: 2, ssds, rows: [row].into() };
    assert_eq!(map.check(), Ok(()));
    let with = |change: fn(&mut FleetMap3)| {
        let mut map = map.clone();
        change(&mut map);
        map.encode()
    };
    assert_eq!(with(|map| map.ssds.clear()), Err(MapError::SsdCount));
    assert_eq!(with(|map| map.rows.clear()), Err(MapError::Groups));
    assert_eq!(with(|map| map.width = 5), Err(MapError::Format));
    assert_eq!(with(|map| map.width = 1), Err(MapError::Group), "a place beyond the width");
    assert_eq!(with(|map| map.ssds[0].shrunk_at = 2), Err(MapError::Format), "an epoch to come");
    assert_eq!(with(|map| map.ssds[0].state = State3::Out), Err(MapError::Group));
    assert_eq!(with(|map| map.ssds[0].vote = Vote::Witness), Err(MapError::Group));
    assert_eq!(with(|map| map.ssds[0].address = "x".repeat(72)), Err(MapError::Format));
    assert_eq!(with(|map| map.rows[0].first = Some(2)), Err(MapError::Group), "the first is empty");
    assert_eq!(with(|map| map.rows[0].places[1] = map.rows[0].places[0]), Err(MapError::Group));
    assert_eq!(
        with(|map| map.rows[0].incoming = Some(Incoming3 { ssd: 1, place: 0 })),
        Err(MapError::Group),
        "it has a place already"
    );
    assert_eq!(
        with(|map| map.ssds.extend((3..9).map(|id| Ssd3 { id, ..map.ssds[0].clone() }).collect::<Vec<_>>())),
        Err(MapError::Format),
        "nine voters"
    );
}
