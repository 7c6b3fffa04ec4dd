// SPDX-License-Identifier: Apache-2.0 OR MIT
//! At every moment of a drain each block has all its copies, but for those of SSDs that are lost.

use super::*;
use crate::change::tests::{SSDS, any_map, set, two_rows};
use crate::deadline::{Deadline, LIMIT};
use crate::map::FleetView;
use alloc::vec;
use proptest::prelude::*;

fn first(_: usize, _: usize, open: SsdSet) -> Option<SsdId> {
    open.iter().next()
}

fn all(map: &Map) -> Vec<(SsdId, Incarnation)> {
    (0..).zip(&map.ssds).map(|(id, ssd)| (id, ssd.incarnation)).collect()
}

/// What a change of a drain may do. The copies of volumes with up to `most` replicas stay as many.
pub(in crate::change) fn keeps_all(before: &Map, after: &Map, most: u8) -> Result<(), &'static str> {
    for (old, new) in before.rows.iter().zip(&after.rows) {
        for replicas in 1..=most {
            if new.copies(replicas).len() < old.copies(replicas).len() {
                return Err("a copy is missing");
            }
        }
        let is_without = |had: SsdSet, has: SsdSet| has.is_empty() && !had.is_empty();
        if is_without(old.serving(), new.serving()) || is_without(old.members(), new.members()) {
            return Err("a row has no copy at all");
        }
        let places: Vec<SsdId> = new.places.iter().filter_map(|place| place.ssd()).collect();
        let named = places.iter().copied().chain(new.incoming.map(|incoming| incoming.ssd));
        if named.clone().count() != named.collect::<SsdSet>().len() as usize {
            return Err("an SSD is there twice");
        }
        let is_served = |of: Incoming| matches!(new.places[usize::from(of.place)], Place::Serving(_));
        if new.incoming.is_some_and(|incoming| !is_served(incoming)) {
            return Err("what comes in takes over no place that serves");
        }
        let has_first = new.serving().is_empty() || new.first().is_some();
        if !has_first {
            return Err("there is no first");
        }
        let stays = old.first().filter(|&ssd| new.serving().contains(ssd));
        if stays.is_some() && new.first() != stays {
            return Err("the first changed");
        }
    }
    Ok(())
}

/// A place that begins to serve was one that filled for it before.
pub(in crate::change) fn has_filled(before: &Map, after: &Map) -> bool {
    before.rows.iter().zip(&after.rows).all(|(old, new)| {
        (0u8..).zip(&new.places).all(|(at, place)| match *place {
            Place::Serving(ssd) => {
                let came_in = old.incoming == Some(Incoming { ssd, place: at });
                let had = old.places[usize::from(at)];
                came_in || had != Place::Empty && had.ssd() == Some(ssd)
            }
            _ => true,
        })
    })
}

#[test]
fn an_ssd_leaves_in_two_epochs_and_the_second_one_alone_takes_its_places() {
    let _deadline = Deadline::after(LIMIT);
    // [0] [1] and [1] [2]
    let map = two_rows();
    let in_ = map.come_in(1, &all(&map), ChangeBy { most: 2, term: 4 }, first).unwrap();
    assert_eq!((in_.epoch, in_.term, in_.deprived()), (map.epoch + 1, 4, SsdSet::EMPTY));
    let incoming = |map: &Map| -> Vec<Option<Incoming>> { map.rows.iter().map(|row| row.incoming).collect() };
    let (row_0, row_1) = (Incoming { ssd: 2, place: 1 }, Incoming { ssd: 0, place: 0 });
    assert_eq!(incoming(&in_), [Some(row_0), Some(row_1)]);
    assert_eq!(in_.filling(), set(&[0, 2]));
    assert_eq!(
        in_.come_in(1, &all(&map), ChangeBy { most: 2, term: 4 }, first),
        Err(Unchanged::NoPlace),
        "all have one"
    );
    assert_eq!(in_.serve_all(&[(2, 1)], 4), Err(Unchanged::NoPlace), "SSD 0 has not filled yet");
    let out = in_.serve_all(&[(2, 1), (0, 1)], 4).unwrap();
    assert_eq!((out.ssds[1].state, out.deprived()), (SsdState::Out, set(&[1])));
    assert_eq!(out.rows[0].places[..2], [Place::Serving(0), Place::Serving(2)]);
    assert_eq!(out.rows[1].places[..2], [Place::Serving(0), Place::Serving(2)]);
    // SSD 1 was the first of row 1.
    assert_eq!((out.rows[0].first(), out.rows[1].first()), (Some(0), Some(0)));
    assert_eq!(incoming(&out), [None, None]);
}

#[test]
fn where_each_ssd_has_a_place_one_gives_up_a_place_that_no_volume_uses() {
    let _deadline = Deadline::after(LIMIT);
    let mut map = two_rows();
    map.ssds.truncate(3);
    map.rows[0].places[2] = Place::Serving(2);
    map.rows[1].places[2] = Place::Serving(0);
    let in_ = map.come_in(1, &all(&map), ChangeBy { most: 2, term: 4 }, first).unwrap();
    assert_eq!(in_.rows[0].places[..3], [Place::Serving(0), Place::Serving(1), Place::Empty]);
    assert_eq!((in_.rows[0].incoming, in_.deprived()), (Some(Incoming { ssd: 2, place: 1 }), SsdSet::EMPTY));
    assert_eq!(
        map.come_in(1, &all(&map), ChangeBy { most: 3, term: 4 }, first),
        Err(Unchanged::NoPlace),
        "a volume of three needs all"
    );
    let out = in_.serve_all(&all(&map), 4).unwrap();
    assert_eq!(out.rows[0].places[..3], [Place::Serving(0), Place::Serving(2), Place::Empty]);
    assert_eq!(out.rows[1].places[..3], [Place::Serving(0), Place::Serving(2), Place::Empty]);
    // The one whose places no volume uses needs no other in its place.
    let map = Map { rows: vec![map.rows[0]], ..map };
    assert_eq!(map.come_in(2, &all(&map), ChangeBy { most: 2, term: 4 }, first), Err(Unchanged::NoPlace));
    let left = map.leave_unused(2, 2, 4).unwrap();
    assert_eq!((left.ssds[2].state, left.deprived(), left.epoch), (SsdState::Out, set(&[2]), map.epoch + 1));
    assert_eq!(left.rows[0].places[2], Place::Empty);
    assert_eq!(map.leave_unused(1, 2, 4), Err(Unchanged::NoPlace), "a volume uses its place");
}

/// No volume uses the row's only copy yet. Without it the row could never be filled.
#[test]
fn the_only_copy_of_a_row_does_not_leave_from_a_place_that_no_volume_uses() {
    let _deadline = Deadline::after(LIMIT);
    let mut map = two_rows();
    map.rows.truncate(1);
    map.rows[0].places = [Place::Empty, Place::Empty, Place::Serving(1), Place::Serving(2)];
    map.rows[0].first = 2;
    assert_eq!(map.leave_unused(1, 2, 4), Err(Unchanged::NoPlace));
    let in_ = map.come_in(1, &all(&map), ChangeBy { most: 2, term: 4 }, first).unwrap();
    assert_eq!(in_.rows[0].incoming, Some(Incoming { ssd: 0, place: 2 }));
    let out = in_.serve_all(&all(&in_), 4).unwrap();
    assert_eq!((out.rows[0].places[2], out.ssds[1].state), (Place::Serving(0), SsdState::Out));
    assert_eq!(map.leave_unused(2, 2, 4).unwrap().ssds[2].state, SsdState::Out, "that of another one may");
    map.rows[0].places = [Place::Empty, Place::Empty, Place::Filling(1), Place::Empty];
    assert_eq!(
        map.leave_unused(1, 2, 4),
        Err(Unchanged::NoPlace),
        "it was called lost, and no other copy fills"
    );
}

#[test]
fn an_ssd_without_a_place_leaves_at_once() {
    let _deadline = Deadline::after(LIMIT);
    let map = two_rows();
    let left = map.leave_unused(3, 2, 4).unwrap();
    assert_eq!((left.ssds[3].state, left.deprived(), &left.rows), (SsdState::Out, set(&[3]), &map.rows));
    assert_eq!(left.leave_unused(3, 2, 4), Err(Unchanged::NoPlace), "it is out");
}

#[test]
fn a_drain_that_is_called_off_takes_nothing_from_the_one_that_stays() {
    let _deadline = Deadline::after(LIMIT);
    let map = two_rows();
    let in_ = map.come_in(1, &all(&map), ChangeBy { most: 2, term: 4 }, first).unwrap();
    assert_eq!(in_.stay(set(&[1]), 4), Err(Unchanged::NoPlace));
    let stays = in_.stay(SsdSet::EMPTY, 4).unwrap();
    assert_eq!((&stays.rows, stays.epoch, stays.deprived()), (&map.rows, in_.epoch + 1, SsdSet::EMPTY));
}

#[test]
fn the_one_that_comes_in_takes_the_hole_of_one_that_is_lost_and_goes_when_it_is_lost_itself() {
    let _deadline = Deadline::after(LIMIT);
    let map = two_rows();
    let in_ = map.come_in(1, &all(&map), ChangeBy { most: 2, term: 4 }, first).unwrap();
    let lost = in_.lose(1, 2, 4).unwrap();
    assert_eq!(lost.rows[0].places[..2], [Place::Serving(0), Place::Filling(2)]);
    assert_eq!((lost.rows[0].incoming, lost.ssds[1].state), (None, SsdState::Out));
    let other = in_.lose(0, 2, 4).unwrap();
    assert_eq!((other.rows[1].incoming, other.rows[1].places), (None, map.rows[1].places));
    // Another one comes in.
    let again = other.come_in(1, &all(&map), ChangeBy { most: 2, term: 4 }, first);
    assert_eq!(again.unwrap().rows[1].incoming, Some(Incoming { ssd: 3, place: 0 }));
}

proptest! {
    /// A drain to its end, with losses between its steps.
    #[test]
    fn each_block_keeps_all_its_copies_while_an_ssd_leaves(
        map in any_map(), leaves in 0..SSDS, most in 1u8..=4, lost in 0u64..32, when in 0u8..4,
        picks in prop::collection::vec(any::<prop::sample::Index>(), 16), called_off in any::<bool>(),
    ) {
        let _deadline = Deadline::after(LIMIT);
        let map = map.stay(SsdSet::EMPTY, 1).unwrap_or(map);
        let map = map.serve_all(&all(&map), 1).unwrap_or(map);
        let lost: SsdSet = (0..SSDS).filter(|ssd| lost >> ssd & 1 == 1).collect();
        let lose = |map: Map, now| {
            if when == now { map.lose_all(lost, 1, 2).unwrap_or(map) } else { map }
        };
        let map = lose(map, 0);
        let mut turns = picks.iter().cycle();
        let come_in = map.come_in(leaves, &all(&map), ChangeBy { most, term: 2 }, |_, _, open| {
            let all: Vec<SsdId> = open.iter().collect();
            (!all.is_empty()).then(|| all[turns.next().unwrap().index(all.len())])
        });
        let Ok(in_) = come_in else {
            // None may come in for some row, or no volume has a copy there.
            let needs = |row: &&Row| row.place_of(leaves, most).is_some();
            let is_out = |ssd: SsdId| map.ssds[usize::from(ssd)].state != SsdState::In;
            let others: SsdSet = (0..SSDS).filter(|&ssd| ssd != leaves && !is_out(ssd)).collect();
            let cannot = |row: &&Row| {
                let place = row.place_of(leaves, most).unwrap();
                let serves = row.places[place] == Place::Serving(leaves);
                !serves || map.waits(row) || row.open_to(others, most).is_empty()
            };
            let mut need = map.rows.iter().filter(needs).peekable();
            prop_assert!(need.peek().is_none() || need.any(|row| cannot(&row)));
            return Ok(());
        };
        prop_assert_eq!(keeps_all(&map, &in_, most), Ok(()));
        prop_assert_eq!(in_.deprived(), SsdSet::EMPTY);
        for row in in_.rows.iter().filter(|row| row.place_of(leaves, most).is_some()) {
            prop_assert!(row.incoming.is_some(), "each place that has data has one that comes in");
        }
        let in_ = lose(in_, 1);
        if called_off && let Ok(stays) = in_.stay(SsdSet::EMPTY, 2) {
            prop_assert_eq!(keeps_all(&in_, &stays, most), Ok(()));
            prop_assert!(has_filled(&in_, &stays) && stays.deprived().is_empty());
            return Ok(());
        }
        let filled: Vec<_> = all(&in_).into_iter().filter(|(ssd, _)| in_.filling().contains(*ssd)).collect();
        if let Some((_, some)) = filled.split_first() && let Ok(part) = in_.serve_all(some, 2) {
            prop_assert_eq!(keeps_all(&in_, &part, most), Ok(()));
            prop_assert!(has_filled(&in_, &part));
        }
        let Ok(out) = in_.serve_all(&filled, 2) else { return Ok(()) };
        prop_assert_eq!(keeps_all(&in_, &out, most), Ok(()));
        prop_assert!(has_filled(&in_, &out) && out.rows.iter().all(|row| row.incoming.is_none()));
        let before = out.clone();
        let out = lose(out, 2);
        let out = if when == 2 { out } else { before.and_leave_unused(leaves, most) };
        if when == 0 || when == 3 {
            prop_assert_eq!(keeps_all(&in_, &out, most), Ok(()));
            prop_assert!(!out.rows.iter().any(|row| row.members().contains(leaves)));
            prop_assert_eq!(out.ssds[usize::from(leaves)].state, SsdState::Out);
            prop_assert_eq!(out.deprived(), set(&[leaves]));
        }
    }

    /// The checks of these tests find a drain that is not one.
    #[test]
    fn the_check_finds_a_place_that_is_taken_before_the_other_one_serves(leaves in 0u16..3) {
        let _deadline = Deadline::after(LIMIT);
        let map = two_rows();
        let in_ = map.come_in(leaves, &all(&map), ChangeBy { most: 2, term: 2 }, first).unwrap();
        let early = in_.lose(leaves, 2, 2).unwrap();
        prop_assert_eq!(keeps_all(&in_, &early, 2), Err("a copy is missing"));
        let mut unfilled = in_.clone();
        unfilled.take_over(set(&[0, 1, 2, 3, 4]));
        prop_assert!(has_filled(&in_, &unfilled) && !has_filled(&map, &unfilled));
    }
}
