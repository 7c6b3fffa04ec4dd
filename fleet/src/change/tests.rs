// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The copies that a loss takes, for volumes of every number of replicas.

use super::*;
use crate::ArrayId;
use crate::deadline::{Deadline, LIMIT};
use crate::map::{FleetView, Incoming, Ssd};
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

pub(super) const SSDS: u16 = 5;

pub(super) fn set(ssds: &[SsdId]) -> SsdSet {
    ssds.iter().copied().collect()
}

pub(super) fn row(places: &[Place]) -> Row {
    let mut row = Row::default();
    row.places[..places.len()].copy_from_slice(places);
    row.keep_first();
    row
}

pub(super) fn map_of(rows: Vec<Row>) -> Map {
    let ssd = Ssd { state: SsdState::In, incarnation: 1, shrunk_at: 0 };
    let (array, voters) = (ArrayId([3; 16]), set(&[0, 1, 2]));
    Map { array, term: 1, epoch: 1, width: 4, voters, ssds: vec![ssd; SSDS.into()], rows }
}

/// Checks volumes with `fewest` replicas or more. No group that had a copy is without one. For a removed copy
/// there is another one on a present SSD.
fn keeps_copies(before: &Map, after: &Map, fewest: u8) -> Result<(), &'static str> {
    for (old, new) in before.rows.iter().zip(&after.rows) {
        for replicas in fewest..=MAX_REPLICAS {
            let (had, has) = (old.copies(replicas), new.copies(replicas));
            let there = |ssd: SsdId| matches!(after.ssds[usize::from(ssd)].state, SsdState::In);
            if has.is_empty() && !had.is_empty() {
                return Err("the last copy was dropped");
            }
            if has != had && !has.iter().any(there) {
                return Err("a copy was dropped while no other one is there");
            }
        }
    }
    Ok(())
}

#[test]
fn the_only_copy_of_a_volume_of_one_replica_is_at_place_0() {
    let _deadline = Deadline::after(LIMIT);
    let map = map_of(vec![row(&[Place::Serving(0), Place::Serving(1)])]);
    let of_two = map.lose(0, 2, 2).unwrap();
    assert_eq!((of_two.ssds[0].state, of_two.rows[0].first()), (SsdState::Out, Some(1)));
    let of_one = map.lose(0, 1, 2).unwrap();
    assert_eq!((of_one.ssds[0].state, of_one.rows[0]), (SsdState::Absent, map.rows[0]));
    assert_eq!(of_one.deprived(), set(&[0]), "it serves no more until an epoch says so");
    let other = map.lose(1, 1, 2).unwrap();
    assert_eq!((other.ssds[1].state, other.rows[0].places[1]), (SsdState::Out, Place::Empty));
}

#[test]
fn copies_that_go_together_all_stay_and_one_that_is_back_is_enough() {
    let _deadline = Deadline::after(LIMIT);
    let pair = row(&[Place::Serving(0), Place::Serving(1)]);
    let map = map_of(vec![pair, row(&[Place::Serving(1), Place::Serving(2)])]);
    let none = map.lose_all(set(&[0, 1]), 2, 2).unwrap();
    assert_eq!((none.epoch, none.rows[0], none.rows[1].places[0]), (2, pair, Place::Empty));
    assert_eq!([0, 1, 2].map(|ssd| none.ssds[ssd].state), [SsdState::Absent, SsdState::Absent, SsdState::In]);
    assert_eq!(none.lose_all(set(&[0, 1]), 2, 2), Err(Unchanged::NoPlace));
    let one = none.back(1, 1, 3).unwrap();
    assert!(one.waits(&one.rows[0]), "the other one is absent");
    let goes_on = one.lose(0, 2, 4).unwrap();
    assert_eq!((goes_on.ssds[0].state, goes_on.rows[0].first()), (SsdState::Out, Some(1)));
    assert!(!goes_on.waits(&goes_on.rows[0]));
}

#[test]
fn a_fill_has_a_copy_to_fill_from_for_each_volume_of_the_place() {
    let _deadline = Deadline::after(LIMIT);
    let map = map_of(vec![row(&[Place::Empty, Place::Serving(1)])]);
    assert_eq!(map.fill(0, (2, 1), 1, 2), Err(Unchanged::NoPlace), "a volume of one has no other copy");
    assert_eq!(map.fill(0, (2, 1), 2, 2).unwrap().rows[0].places[0], Place::Filling(2));
    let full = Map { width: 1, ..map_of(vec![row(&[Place::Serving(1)])]) };
    assert_eq!(full.fill(0, (2, 1), 1, 2), Err(Unchanged::NoPlace), "the map has one place");
}

/// SSDs 0 and 1, and SSDs 1 and 2.
pub(super) fn two_rows() -> Map {
    map_of(vec![row(&[Place::Serving(0), Place::Serving(1)]), row(&[Place::Serving(1), Place::Serving(2)])])
}

pub(super) fn any_map() -> impl Strategy<Value = Map> {
    let place = (0u8..6, any::<prop::sample::Index>());
    let rows = prop::collection::vec((prop::collection::vec(place, 1..=4), any::<bool>()), 1..4);
    rows.prop_map(|rows| {
        let row_of = |(draws, comes_in): (Vec<(u8, prop::sample::Index)>, bool)| {
            let mut open: Vec<SsdId> = (0..SSDS).collect();
            let mut take = |(kind, at): (u8, prop::sample::Index)| {
                let ssd = open.remove(at.index(open.len()));
                [Place::Serving(ssd), Place::Filling(ssd), Place::Empty][usize::from(kind.saturating_sub(3))]
            };
            let mut row = row(&draws.into_iter().map(&mut take).collect::<Vec<_>>());
            if comes_in && row.first().is_some() {
                row.incoming = Some(Incoming { ssd: open[0], place: row.first });
            }
            row
        };
        map_of(rows.into_iter().map(row_of).collect())
    })
}

proptest! {
    #[test]
    fn no_loss_takes_the_last_copy_of_a_volume_of_any_size(
        map in any_map(), fewest in 1u8..=4, losses in prop::collection::vec((0u64..32, 0..SSDS), 1..5),
    ) {
        let _deadline = Deadline::after(LIMIT);
        let mut map = map;
        for (lost, returns) in losses {
            let lost: SsdSet = (0..SSDS).filter(|ssd| lost >> ssd & 1 == 1).collect();
            if let Ok(next) = map.lose_all(lost, fewest, 2) {
                prop_assert_eq!(keeps_copies(&map, &next, fewest), Ok(()));
                prop_assert_eq!(next.epoch, map.epoch + 1);
                prop_assert!(next.deprived().is_subset_of(lost) && !next.deprived().is_empty());
                for (old, new) in map.rows.iter().zip(&next.rows) {
                    let is_gone = |ssd: &SsdId| !new.members().contains(*ssd);
                    let gone: SsdSet = old.members().iter().filter(is_gone).collect();
                    prop_assert!(gone.is_subset_of(next.deprived()));
                    let first = old.first().filter(|&ssd| new.serving().contains(ssd));
                    prop_assert!(first.is_none() || new.first() == first, "the first stays");
                }
                map = next;
            }
            map = map.back(returns, 1, 2).unwrap_or(map);
        }
    }

    /// Judged by all places of the row, as if each volume had the most replicas.
    #[test]
    fn the_check_finds_a_loss_that_is_judged_by_the_row_alone(ssd in 0u16..2) {
        let _deadline = Deadline::after(LIMIT);
        let map = map_of(vec![row(&[Place::Serving(ssd), Place::Serving(2)])]);
        let planted = map.lose(ssd, MAX_REPLICAS, 2).unwrap();
        prop_assert_eq!(keeps_copies(&map, &planted, 1), Err("the last copy was dropped"));
    }
}
