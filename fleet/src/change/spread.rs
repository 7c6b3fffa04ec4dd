// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD takes its share of the places, while each block keeps all its copies.
//!
//! ```text
//!   row                                    places                       incoming
//!   before                                 [serving 0] [serving 3]
//!   spread     SSD 4 has joined            [serving 0] [serving 3]      SSD 4, place 1: fills
//!   serve_all  it has filled               [serving 0] [serving 4]
//! ```
//! It works like a drain, but takes some places of each SSD instead of all places of one. So the second epoch
//! takes places from many SSDs at once, and clients wait for a lease once.

use super::{ChangeBy, Unchanged};
use crate::map::{Incoming, Map, Place, SsdState};
use crate::set::SsdSet;
use crate::{Incarnation, SsdId};

impl Map {
    /// The map in which the SSD comes in for these places, one of each row at most. A row in which it is at a
    /// place that volumes of up to `most` replicas use, or in which another SSD comes in, stays. So does one
    /// that waits for an absent SSD, and a place that does not serve. Its places that no volume uses, in rows
    /// in which it comes in, are empty.
    ///
    /// # Errors
    /// [`Unchanged::NoPlace`] where no place is left; [`Unchanged::Incarnation`] if the SSD may have none.
    pub fn spread(
        &self,
        ssd: SsdId,
        incarnation: Incarnation,
        places: &[Option<u8>],
        ChangeBy { most, term }: ChangeBy,
    ) -> Result<Self, Unchanged> {
        let own = SsdSet::EMPTY.with(ssd);
        if self.may_fill(ssd, incarnation)?.state == SsdState::Full {
            return Err(Unchanged::NoPlace);
        }
        let mut next = self.next(term);
        let mut comes_in = false;
        for (row, place) in next.rows.iter_mut().zip(places) {
            let Some(place) = *place else { continue };
            let serves = matches!(row.places.get(usize::from(place)), Some(Place::Serving(_)));
            let is_there =
                row.members().contains(ssd) && (place >= most || !row.unused(own, most).contains(ssd));
            if !serves || is_there || row.incoming.is_some() || self.waits(row) {
                continue;
            }
            row.places.iter_mut().filter(|at| at.ssd() == Some(ssd)).for_each(|at| *at = Place::Empty);
            row.incoming = Some(Incoming { ssd, place });
            row.keep_first();
            comes_in = true;
        }
        let known = next.ssds.get_mut(usize::from(ssd)).ok_or(Unchanged::Unknown)?;
        (known.state, known.incarnation) = (SsdState::In, incarnation);
        if comes_in { Ok(next) } else { Err(Unchanged::NoPlace) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::drain::tests::{has_filled, keeps_all};
    use crate::change::tests::{SSDS, any_map, set, two_rows};
    use crate::deadline::{Deadline, LIMIT};
    use crate::map::FleetView;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn an_ssd_takes_its_places_in_two_epochs_and_the_others_stay_in() {
        let _deadline = Deadline::after(LIMIT);
        // [0] [1] and [1] [2]
        let map = two_rows();
        let in_ = map.spread(3, 1, &[Some(1), Some(0)], ChangeBy { most: 2, term: 4 }).unwrap();
        assert_eq!((in_.epoch, in_.term, in_.deprived()), (map.epoch + 1, 4, SsdSet::EMPTY));
        assert_eq!(in_.rows[0].incoming, Some(Incoming { ssd: 3, place: 1 }));
        assert_eq!((in_.filling(), in_.rows[0].places), (set(&[3]), map.rows[0].places));
        let out = in_.serve_all(&[(3, 1)], 4).unwrap();
        assert_eq!(out.rows[0].places[..2], [Place::Serving(0), Place::Serving(3)]);
        assert_eq!(out.rows[1].places[..2], [Place::Serving(3), Place::Serving(2)]);
        // SSD 1 has no place left, and SSD 2 loses none.
        assert_eq!((out.deprived(), out.ssds[1].state), (set(&[1]), SsdState::Out));
        let part = map
            .spread(3, 1, &[Some(0), None], ChangeBy { most: 2, term: 4 })
            .unwrap()
            .serve_all(&[(3, 1)], 4)
            .unwrap();
        assert_eq!(
            (part.deprived(), part.ssds[0].state, part.ssds[1].state),
            (set(&[0]), SsdState::Out, SsdState::In)
        );
        assert_eq!(part.rows[1], map.rows[1]);
        // As in a drain: each copy that serves has all that was acknowledged.
        assert_eq!(part.rows[0].first(), Some(3), "the first has gone");
    }

    /// A daemon answers no call meanwhile. If each row asked all others, this would take hours.
    #[test]
    fn an_ssd_takes_over_in_a_large_map_at_once() {
        let _deadline = Deadline::after(LIMIT);
        let mut map = two_rows();
        map.rows = map.rows.iter().copied().cycle().take(1 << 19).collect();
        let places: Vec<_> = [Some(1), Some(0)].into_iter().cycle().take(1 << 19).collect();
        let after = map
            .spread(3, 1, &places, ChangeBy { most: 2, term: 4 })
            .unwrap()
            .serve_all(&[(3, 1)], 4)
            .unwrap();
        assert!(after.rows.iter().all(|row| row.incoming.is_none() && row.members().contains(3)));
    }

    #[test]
    fn it_takes_no_place_that_does_not_serve_and_none_where_it_is() {
        let _deadline = Deadline::after(LIMIT);
        let map = two_rows();
        for places in [[None, None], [Some(2), Some(3)]] {
            assert_eq!(map.spread(3, 1, &places, ChangeBy { most: 2, term: 4 }), Err(Unchanged::NoPlace));
        }
        assert_eq!(
            map.spread(1, 1, &[Some(0), Some(1)], ChangeBy { most: 2, term: 4 }),
            Err(Unchanged::NoPlace)
        );
        assert_eq!(
            map.spread(3, 0, &[Some(0), None], ChangeBy { most: 2, term: 4 }),
            Err(Unchanged::Incarnation)
        );
        let mut waits = map.clone();
        waits.ssds[0].state = SsdState::Absent;
        assert_eq!(
            waits.spread(3, 1, &[Some(1), None], ChangeBy { most: 2, term: 4 }),
            Err(Unchanged::NoPlace)
        );
        let mut full = map.clone();
        full.ssds[3].state = SsdState::Full;
        assert_eq!(
            full.spread(3, 1, &[Some(1), None], ChangeBy { most: 2, term: 4 }),
            Err(Unchanged::NoPlace)
        );
    }

    proptest! {
        #[test]
        fn each_block_keeps_all_its_copies_while_an_ssd_takes_its_share(
            map in any_map(), joins in 0..SSDS, lost in 0u64..32, when in 0u8..3,
            places in prop::collection::vec(prop::option::of(0u8..4), 3), most in 1u8..=4,
        ) {
            let _deadline = Deadline::after(LIMIT);
            let lost: SsdSet = (0..SSDS).filter(|ssd| lost >> ssd & 1 == 1).collect();
            let lose = |map: Map, now| {
                if when == now { map.lose_all(lost, 1, 2).unwrap_or(map) } else { map }
            };
            let incarnation = |map: &Map| map.ssds[usize::from(joins)].incarnation;
            let by = ChangeBy { most, term: 2 };
            let Ok(in_) = map.spread(joins, incarnation(&map), &places, by) else { return Ok(()) };
            prop_assert_eq!(keeps_all(&map, &in_, most), Ok(()));
            prop_assert_eq!(in_.deprived(), SsdSet::EMPTY);
            let in_ = lose(in_, 1);
            let known = |ssd: SsdId| in_.ssds[usize::from(ssd)].incarnation;
            let filled: Vec<_> = in_.filling().iter().map(|ssd| (ssd, known(ssd))).collect();
            let Ok(out) = in_.serve_all(&filled, 2) else { return Ok(()) };
            prop_assert_eq!(keeps_all(&in_, &out, most), Ok(()));
            prop_assert!(has_filled(&in_, &out) && out.rows.iter().all(|row| row.incoming.is_none()));
            for (ssd, (old, new)) in (0..).zip(in_.ssds.iter().zip(&out.ssds)) {
                let had = |map: &Map, row: usize| map.rows[row].serving().contains(ssd);
                let loses = (0..in_.rows.len()).any(|row| had(&in_, row) && !had(&out, row));
                prop_assert_eq!(loses, new.shrunk_at == out.epoch, "voters give it no lease");
                prop_assert!(new.state == old.state || loses && new.state == SsdState::Out);
            }
        }
    }
}
