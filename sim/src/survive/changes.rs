// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The changes from one map to the next, for the counters.

use crate::survive::stats::Change;
use gnstor_proto::placement::map3::{FleetMap3, Place3, State3, Vote};
use gnstor_proto::placement::{AnyMap, Member, Rows as _};
use std::collections::BTreeSet;

/// The weight of an SSD that leaves.
const LEAVES: u32 = 1;

/// The kinds of change between two maps, each once.
pub(super) fn changes(before: &AnyMap, after: &AnyMap) -> BTreeSet<Change> {
    match (before, after) {
        (AnyMap::Three(before), AnyMap::Three(after)) => of_places(before, after)
            .chain(of_ssds(before, after))
            .chain(votes(before).ne(votes(after)).then_some(Change::Voters))
            .collect(),
        _ => BTreeSet::new(),
    }
}

fn votes(map: &FleetMap3) -> impl Iterator<Item = Vote> {
    map.ssds.iter().map(|ssd| ssd.vote)
}

fn of_places(before: &FleetMap3, after: &FleetMap3) -> impl Iterator<Item = Change> {
    let rows = before.rows.iter().zip(&after.rows);
    let places = rows.flat_map(|(was, is)| was.places.into_iter().zip(is.places));
    let places = places.filter_map(|pair| match pair {
        (Some(Place3 { filling: false, .. }), None) => Some(Change::PlaceLost),
        (Some(Place3 { filling: true, .. }), None) => Some(Change::FillLost),
        (None, Some(Place3 { filling: true, .. })) => Some(Change::PlaceFills),
        (Some(Place3 { filling: true, .. }), Some(Place3 { filling: false, .. })) => {
            Some(Change::PlaceServes)
        }
        (Some(was), Some(is)) if was.ssd != is.ssd => Some(Change::PlaceMoved),
        _ => None,
    });
    let rows = before.rows.iter().zip(&after.rows);
    let comes = before.rows.iter().zip(&after.rows);
    let comes = comes.filter(|(was, is)| was.incoming.is_none() && is.incoming.is_some());
    let comes = comes.map(|_| Change::ComesIn);
    let firsts = rows.filter(|(was, is)| was.first != is.first).map(|_| Change::First);
    places.chain(firsts).chain(comes)
}

fn of_ssds(before: &FleetMap3, after: &FleetMap3) -> impl Iterator<Item = Change> {
    let weights = before.ssds.iter().zip(&after.ssds).map(|(was, is)| (was.weight, is.weight));
    let leaves = weights.filter(|(was, is)| *was > LEAVES && *is == LEAVES).map(|_| Change::Leaves);
    let states = before.ssds.iter().zip(&after.ssds).map(|(was, is)| (was.state, is.state));
    let states = states.filter_map(|pair| match pair {
        (State3::In, State3::Out) => Some(Change::SsdOut),
        (State3::In, State3::Absent) => Some(Change::SsdAbsent),
        (State3::Absent, State3::In) => Some(Change::SsdBack),
        (State3::Absent, State3::Out) => Some(Change::AbsentOut),
        (State3::Out, State3::In) => Some(Change::SsdIn),
        _ => None,
    });
    states.chain(leaves)
}

/// A map in one line: the rows, with `f` where a place fills.
pub(super) fn shown(map: &AnyMap) -> String {
    let place = |place: Option<Member>| match place {
        Some(Member { ssd, filling }) => format!("{ssd}{}", if filling { "f" } else { "" }),
        None => "-".into(),
    };
    let row = |group: u32| map.row(group).map(place).collect::<Vec<_>>().join(" ");
    (0..map.groups()).map(row).collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;
    use gnstor_proto::placement::FleetMap;
    use gnstor_proto::placement::map3::Incoming3;

    #[test]
    fn each_change_of_a_map_is_seen_once() {
        let _deadline = deadline();
        let whole = FleetMap3::of(&FleetMap::equal(3, 8, 7, 1).unwrap(), [5; 16]);
        let of = |before: &FleetMap3, after: &FleetMap3| {
            let changes = changes(&AnyMap::from(before.clone()), &AnyMap::from(after.clone()));
            changes.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(of(&whole, &whole), []);
        let mut hole = whole.clone();
        let lost = hole.rows[0].places[1].take().unwrap();
        hole.rows[1].places[1] = None;
        hole.ssds[2].state = State3::Out;
        assert_eq!(of(&whole, &hole), [Change::PlaceLost, Change::SsdOut]);
        let mut fills = hole.clone();
        fills.rows[0].places[1] = Some(Place3 { filling: true, ..lost });
        fills.ssds[2].state = State3::In;
        assert_eq!(of(&hole, &fills), [Change::PlaceFills, Change::SsdIn]);
        let mut serves = fills.clone();
        serves.rows[0].places[1] = Some(lost);
        assert_eq!(of(&fills, &serves), [Change::PlaceServes]);
        assert_eq!(of(&fills, &hole), [Change::FillLost, Change::SsdOut]);
        let mut absent = whole.clone();
        absent.ssds[1].state = State3::Absent;
        absent.ssds[0].vote = Vote::Voter;
        assert_eq!(of(&whole, &absent), [Change::SsdAbsent, Change::Voters]);
        assert_eq!(of(&absent, &whole), [Change::SsdBack, Change::Voters]);
        let mut leaves = whole.clone();
        (leaves.ssds[2].weight, leaves.rows[0].incoming) = (LEAVES, Some(Incoming3 { ssd: 1, place: 0 }));
        assert_eq!(of(&whole, &leaves), [Change::Leaves, Change::ComesIn]);
    }
}
