// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The operator has the copies of groups merged that are all lossy (rule 17).
//!
//! ```text
//!   all lost power         epoch n                  n + 1: salvage             n + 2: SSD 0 has merged
//!   row 0, 0 and 1 absent  [serving 0] [serving 1]  [filling 0] [filling 1]    [serving 0] [filling 1]
//!   row 1, 1 absent        [serving 1] [filling 2]  [filling 1] [empty    ]    [filling 1] [empty    ]
//!   row 2, 0 absent        [serving 0] [serving 3]  [filling 0] [serving 3]    [serving 0] [serving 3]
//! ```
//! Places that fill where none serves are those of a merge: each takes blocks with a higher stamp from each
//! other one ([`Row::merging`]). So the map needs no further state. Only former copies may merge: an SSD that
//! was filling has a part of the group only, beside blocks of an earlier life. It gives its place up (row 1).

use super::Unchanged;
use crate::map::{Map, Place, Row, SsdState};
use crate::salvage::{Unsalvaged, may_merge};
use crate::set::SsdSet;
use crate::{Incarnation, SsdId, Term};

impl Map {
    /// The map in which absent SSDs, which are there with these later contents, merge their copies.
    ///
    /// # Errors
    /// [`Unchanged::NoPlace`] if none of them has a last copy. [`Unchanged::Incarnation`] if one of them has
    /// the content that it had: it can serve. [`Unchanged::Incomplete`] if an absent SSD with a copy of some
    /// group is not among them.
    pub fn salvage(&self, lossy: &[(SsdId, Incarnation)], term: Term) -> Result<Self, Unchanged> {
        let of: SsdSet = lossy.iter().map(|(ssd, _)| *ssd).collect();
        let absent = self.in_state(SsdState::Absent);
        for &(ssd, incarnation) in lossy {
            let known = self.ssd(ssd).ok_or(Unchanged::Unknown)?;
            if known.state != SsdState::Absent || !self.serves_some(ssd) {
                return Err(Unchanged::NoPlace);
            }
            if incarnation <= known.incarnation {
                return Err(Unchanged::Incarnation);
            }
        }
        let mut next = self.next(term);
        let mut merges = false;
        for row in &mut next.rows {
            let former = row.serving().common(absent);
            if former.is_empty() {
                continue;
            }
            match may_merge(former, absent, of) {
                Ok(()) => row.salvage(of),
                Err(Unsalvaged::Missing(_) | Unsalvaged::HasGoodCopy) => return Err(Unchanged::Incomplete),
            }
            merges = true;
        }
        if !merges {
            return Err(Unchanged::NoPlace);
        }
        for ssd in (0..).take(self.ssds.len()) {
            let is_deprived = self.takes_from(&next.rows, ssd);
            let known = &mut next.ssds[usize::from(ssd)];
            if is_deprived || of.contains(ssd) {
                known.shrunk_at = next.epoch;
            }
        }
        for &(ssd, incarnation) in lossy {
            let known = &mut next.ssds[usize::from(ssd)];
            (known.state, known.incarnation) = (SsdState::In, incarnation);
        }
        Ok(next)
    }
}

impl Row {
    /// The copies of these SSDs fill.
    fn salvage(&mut self, of: SsdSet) {
        for place in &mut self.places {
            if let Place::Serving(ssd) = *place
                && of.contains(ssd)
            {
                *place = Place::Filling(ssd);
            }
        }
        self.end_other_fills(of);
        let (places, incoming) = (self.places, self.incoming);
        self.incoming =
            incoming.filter(|incoming| matches!(places[usize::from(incoming.place)], Place::Serving(_)));
        self.keep_first();
    }

    /// If some volume has no serving copy, only these SSDs fill: others have no source to fill from.
    pub(super) fn end_other_fills(&mut self, of: SsdSet) {
        let without_copy = self.places.iter_mut().take_while(|place| !matches!(place, Place::Serving(_)));
        for place in without_copy {
            if matches!(*place, Place::Filling(ssd) if !of.contains(ssd)) {
                *place = Place::Empty;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::tests::{map_of, row, set, two_rows};
    use crate::deadline::{Deadline, LIMIT};
    use Place::{Empty, Filling, Serving};
    use alloc::vec;
    use alloc::vec::Vec;

    fn places(map: &Map) -> Vec<Vec<Place>> {
        map.rows.iter().map(|row| row.places[..2].to_vec()).collect()
    }

    /// [0] [1] and [1] [2], all absent.
    fn dark() -> Map {
        two_rows().lose_all((0..3).collect(), 2, 4).unwrap()
    }

    const LOSSY: [(SsdId, Incarnation); 3] = [(0, 7), (1, 8), (2, 9)];

    #[test]
    fn all_former_copies_fill_and_take_part_and_serve_when_they_have_merged() {
        let _deadline = Deadline::after(LIMIT);
        let map = dark().salvage(&LOSSY, 5).unwrap();
        assert_eq!((map.epoch, map.term), (dark().epoch + 1, 5));
        assert_eq!(places(&map), [[Filling(0), Filling(1)], [Filling(1), Filling(2)]]);
        for (ssd, incarnation) in LOSSY {
            let known = map.ssd(ssd).unwrap();
            assert_eq!((known.state, known.incarnation), (SsdState::In, incarnation));
            assert_eq!(known.shrunk_at, map.epoch, "the content before it gets no lease");
        }
        assert_eq!((map.rows[0].merging(2), map.rows[1].merging(2)), (set(&[0, 1]), set(&[1, 2])));
        assert_eq!(map.rows[0].merging(1), SsdSet::EMPTY, "the only copy has nothing to compare with");
        let one = map.serve_all(&[(1, 8)], 5).unwrap();
        assert_eq!(places(&one), [[Filling(0), Serving(1)], [Serving(1), Filling(2)]]);
        assert_eq!((one.rows[0].first(), one.rows[0].merging(2)), (Some(1), SsdSet::EMPTY));
        let whole = one.serve_all(&[(0, 7), (2, 9)], 5).unwrap();
        assert_eq!(places(&whole), places(&two_rows()));
    }

    #[test]
    fn an_incomplete_set_is_not_merged() {
        let _deadline = Deadline::after(LIMIT);
        assert_eq!(dark().salvage(&LOSSY[..2], 5), Err(Unchanged::Incomplete));
        assert_eq!(dark().salvage(&[], 5), Err(Unchanged::Incomplete));
        let same = [LOSSY[0], LOSSY[1], (2, dark().ssd(2).unwrap().incarnation)];
        assert_eq!(dark().salvage(&same, 5), Err(Unchanged::Incarnation), "it has lost nothing");
        assert_eq!(two_rows().salvage(&LOSSY, 5), Err(Unchanged::NoPlace), "they are there");
        assert_eq!(two_rows().salvage(&[], 5), Err(Unchanged::NoPlace));
    }

    #[test]
    fn one_that_was_filling_gives_its_place_up_and_a_copy_that_serves_stays() {
        let _deadline = Deadline::after(LIMIT);
        let map = map_of(vec![
            row(&[Serving(0), Filling(1)]),
            row(&[Serving(0), Serving(1)]),
            row(&[Filling(1), Serving(0)]),
        ]);
        // A volume of one replica has its only copy at place 0.
        let map = map.lose(0, 1, 4).unwrap();
        assert_eq!(places(&map)[1], [Serving(0), Serving(1)]);
        let map = map.salvage(&[(0, 9)], 5).unwrap();
        assert_eq!(places(&map), [[Filling(0), Empty], [Filling(0), Serving(1)], [Empty, Filling(0)]]);
        assert_eq!(map.ssd(1).unwrap().shrunk_at, map.epoch, "a place was taken from it");
        assert!(map.rows.iter().all(|row| row.merging(2).is_empty()));
    }

    #[test]
    fn no_loss_takes_a_part_of_a_merge_away() {
        let _deadline = Deadline::after(LIMIT);
        let map = dark().salvage(&LOSSY, 5).unwrap();
        for lost in [set(&[1]), set(&[0, 2]), set(&[0, 1, 2])] {
            let gone = map.lose_all(lost, 2, 5).unwrap();
            assert_eq!(places(&gone), places(&map), "{lost:?}");
            assert!(lost.iter().all(|ssd| gone.ssd(ssd).unwrap().state == SsdState::Absent));
            let back = lost.iter().fold(gone, |map, ssd| map.back(ssd, 20, 5).unwrap());
            assert_eq!(places(&back), places(&map));
        }
        // Once a copy serves, a filling copy is no longer part of a merge.
        let one = map.serve_all(&[(1, 8)], 5).unwrap().lose(0, 2, 5).unwrap();
        assert_eq!(places(&one), [[Empty, Serving(1)], [Serving(1), Filling(2)]]);
    }

    #[test]
    fn one_that_is_called_lost_leaves_the_merge_to_the_others() {
        let _deadline = Deadline::after(LIMIT);
        let map = dark().salvage(&LOSSY, 5).unwrap().lose(0, 2, 5).unwrap();
        let map = map.call_lost(0, 30, 5).unwrap();
        assert_eq!(places(&map), [[Empty, Filling(1)], [Filling(1), Filling(2)]]);
        assert_eq!(map.ssd(0).unwrap().state, SsdState::Out);
    }
}
