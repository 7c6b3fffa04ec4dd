// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many rows in one epoch: each filling place has a source, and each serving place has filled.

use super::*;
use crate::change::tests::{SSDS, any_map, set};
use crate::deadline::{Deadline, LIMIT};
use crate::map::{FleetView, Incoming};
use alloc::vec;
use proptest::prelude::*;

fn first(_: usize, _: usize, open: SsdSet) -> Option<SsdId> {
    open.iter().next()
}

/// Rows change in places that were empty and now fill, on one of these SSDs that had no part in the row. Each
/// volume that uses such a place has a copy to fill from. No SSD of the row is absent.
fn only_fills(
    before: &Map,
    after: &Map,
    by: &[(SsdId, Incarnation)],
    fewest: u8,
) -> Result<(), &'static str> {
    for (old, new) in before.rows.iter().zip(&after.rows) {
        for (at, (was, is)) in old.places.iter().zip(&new.places).enumerate().filter(|(_, (a, b))| a != b) {
            let (Place::Empty, Place::Filling(ssd)) = (*was, *is) else { return Err("more than a hole") };
            if old.members().contains(ssd) || !by.iter().any(|(filler, _)| *filler == ssd) {
                return Err("an SSD that was not to get the hole");
            }
            if before.waits(old) {
                return Err("the row waits for an absent SSD");
            }
            let users = fewest.max(u8::try_from(at + 1).unwrap())..=gnstor_proto::vendor::MAX_REPLICAS;
            if users.into_iter().any(|replicas| old.copies(replicas).is_empty()) {
                return Err("nothing to fill from");
            }
        }
        if old.first() != new.first() {
            return Err("the first changed");
        }
    }
    Ok(())
}

#[test]
fn an_ssd_that_was_dropped_takes_its_holes_with_a_new_incarnation_and_serves_when_it_has_filled() {
    let _deadline = Deadline::after(LIMIT);
    let map = crate::change::tests::two_rows();
    let shrunk = map.lose(1, 2, 2).unwrap();
    assert_eq!(shrunk.fill_all(&[(1, 1)], (2, 4), 2, first), Err(Unchanged::Incarnation));
    let fills = shrunk.fill_all(&[(1, 2)], (2, 4), 2, first).unwrap();
    assert_eq!((fills.epoch, fills.filling(), fills.ssds[1].incarnation), (3, set(&[1]), 2));
    assert_eq!(fills.ssds[1].state, SsdState::In);
    assert!(fills.rows.iter().all(|row| row.members().contains(1) && !row.serving().contains(1)));
    assert_eq!(fills.serve_all(&[(1, 1)], 2), Err(Unchanged::NoPlace), "of an earlier content");
    assert_eq!(fills.serve_all(&[(0, 1)], 2), Err(Unchanged::NoPlace), "it fills nothing");
    let serves = fills.serve_all(&[(1, 2)], 2).unwrap();
    assert!(serves.rows.iter().all(|row| row.serving().contains(1)));
    assert_eq!(serves.filling(), SsdSet::EMPTY);
    assert!(fills.rows.iter().zip(&serves.rows).all(|(old, new)| old.first() == new.first()));
}

#[test]
fn a_row_whose_last_copy_is_absent_takes_no_ssd_until_that_one_is_back() {
    let _deadline = Deadline::after(LIMIT);
    let map = crate::change::tests::two_rows();
    let waits = map.lose(2, 2, 2).unwrap().lose(1, 2, 2).unwrap();
    assert_eq!(waits.ssds[1].state, SsdState::Absent, "row 1 is on SSDs 1 and 2");
    let fills = waits.fill_all(&[(2, 2)], (2, 4), 2, first).unwrap();
    assert_eq!(fills.rows[0].filling_ssds(), set(&[2]), "row 0 has SSD 0");
    assert_eq!(fills.rows[1], waits.rows[1]);
    let back = fills.back(1, 1, 2).unwrap();
    let more = back.fill_all(&[(2, 2)], (2, 4), 2, first).unwrap();
    assert_eq!(more.rows[1].filling_ssds(), set(&[2]), "under the incarnation that it has by now");
    assert_eq!(
        back.fill_all(&[(2, 3)], (2, 4), 2, first),
        Err(Unchanged::Incarnation),
        "that would be lossy"
    );
}

impl Row {
    fn filling_ssds(&self) -> SsdSet {
        self.members().iter().filter(|&ssd| !self.serving().contains(ssd)).collect()
    }
}

proptest! {
    #[test]
    fn whatever_is_lost_only_holes_with_a_source_are_filled_and_all_of_them(
        map in any_map(), fewest in 1u8..=4, lost in 0u64..32, absent in 0u64..32,
        picks in prop::collection::vec(any::<prop::sample::Index>(), 16),
        ups in prop::collection::vec(0u32..3, 5),
    ) {
        let _deadline = Deadline::after(LIMIT);
        let of = |bits: u64| (0..SSDS).filter(|ssd| bits >> ssd & 1 == 1).collect::<SsdSet>();
        let map = map.lose_all(of(lost), fewest, 2).unwrap_or(map);
        let map = map.lose_all(of(absent), fewest, 2).unwrap_or(map);
        let ssds: Vec<(SsdId, Incarnation)> = (0..SSDS).zip(ups.iter().map(|up| 1 + up)).collect();
        let mut turns = picks.iter().cycle();
        let next = map.fill_all(&ssds, (fewest, 4), 2, |_, _, open| {
            let all: Vec<SsdId> = open.iter().collect();
            (!all.is_empty()).then(|| all[turns.next().unwrap().index(all.len())])
        });
        match next {
            Ok(next) => {
                prop_assert_eq!(only_fills(&map, &next, &ssds, fewest), Ok(()));
                prop_assert_eq!((next.epoch, next.deprived()), (map.epoch + 1, SsdSet::EMPTY));
                for (id, (old, new)) in (0..).zip(map.ssds.iter().zip(&next.ssds)) {
                    let has = |row: &Row| row.members().contains(id);
                    let took = |(old, new): (&Row, &Row)| has(new) && !has(old);
                    prop_assert!(old == new || map.rows.iter().zip(&next.rows).any(took));
                }
                // A second time nothing is left for the same SSDs.
                prop_assert!(next.fill_all(&ssds, (fewest, 4), 2, first).is_err());
                let up = |ssd: SsdId| (ssd, next.ssds[usize::from(ssd)].incarnation);
                let filled: Vec<_> = next.filling().iter().map(up).collect();
                let serves = next.serve_all(&filled, 2).unwrap();
                for (old, new) in next.rows.iter().zip(&serves.rows) {
                    let taken_over = old.incoming.map(|incoming| old.places[usize::from(incoming.place)]);
                    let leaves = taken_over.and_then(Place::ssd);
                    let stays = old.first().filter(|&first| Some(first) != leaves);
                    prop_assert!(stays.is_none() || stays == new.first());
                    let is_left = |&ssd: &SsdId| Some(ssd) != leaves;
                    prop_assert_eq!(new.members(), old.members().iter().filter(is_left).collect());
                    prop_assert_eq!(new.serving(), new.members());
                }
            }
            Err(why) => {
                let may = ssds.iter().any(|&(ssd, up)| map.may_fill(ssd, up).is_ok());
                prop_assert_eq!(why, if may { Unchanged::NoPlace } else { Unchanged::Incarnation });
            }
        }
    }
}

#[test]
fn a_hole_that_volumes_use_is_filled_by_an_ssd_at_a_place_that_none_uses() {
    let _deadline = Deadline::after(LIMIT);
    let mut map = crate::change::tests::two_rows();
    map.rows.truncate(1);
    map.rows[0].places = [Place::Serving(0), Place::Empty, Place::Serving(1), Place::Empty];
    let all = [(0, 1), (1, 1)];
    assert_eq!(map.fill_all(&all, (2, 3), 2, first), Err(Unchanged::NoPlace), "a volume of three uses both");
    let next = map.fill_all(&all, (2, 2), 2, first).unwrap();
    assert_eq!(next.rows[0].places[..3], [Place::Serving(0), Place::Filling(1), Place::Empty]);
    assert_eq!(next.deprived(), SsdSet::EMPTY, "it stays in the row");
    let free =
        map.fill_all(&[(1, 1), (2, 1)], (2, 2), 2, |_, at, open| (at == 1).then(|| first(0, at, open))?);
    assert_eq!(free.unwrap().rows[0].places[1], Place::Filling(2), "one outside the row comes first");
    // A place that another SSD takes over stays.
    map.rows[0].incoming = Some(Incoming { ssd: 2, place: 2 });
    assert_eq!(map.fill_all(&all, (2, 2), 2, first), Err(Unchanged::NoPlace));
}

#[test]
fn a_hole_is_left_where_none_is_chosen() {
    let _deadline = Deadline::after(LIMIT);
    let shrunk = crate::change::tests::two_rows().lose(1, 2, 2).unwrap();
    let one = shrunk.fill_all(&[(1, 2)], (2, 4), 2, |row, _, _| (row == 0).then_some(1)).unwrap();
    assert_eq!(one.rows.iter().map(|row| row.members().contains(1)).collect::<Vec<_>>(), vec![true, false]);
    let foreign = shrunk.fill_all(&[(1, 2)], (2, 4), 2, |_, _, _| Some(4));
    assert_eq!(foreign, Err(Unchanged::NoPlace), "it may get no place");
}
