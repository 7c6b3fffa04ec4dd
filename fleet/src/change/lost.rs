// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The operator gives up blocks of groups whose last copy is damaged or gone (rule 1c). The SSD with that
//! copy is gone for good, or has lost writes.
//!
//! ```text
//!   SSD 0 absent    epoch n                 n + 1: called lost       n + 2: SSD 0 is up to date, `back`
//!   row 0           [serving 0] [empty]     [filling 0] [empty]      it fills, from nothing: `serve_all`
//!   row 1, 3 too    [serving 0] [serving 3] [filling 0] [empty]      SSD 3 fills from it later
//!   row 2, 3 too    [serving 3] [serving 0] [serving 3] [empty]      it waits for SSD 3
//! ```
//! A place that fills where no copy serves has nothing to compare with. So the SSD's own content becomes the
//! content of the group. An empty SSD makes the group empty. One absent copy of a row decides: that at the
//! lowest place, as each volume of the row has it. Without this rule copies that differ would serve together.

use super::Unchanged;
use crate::map::{Map, Place, Row, SsdState};
use crate::set::SsdSet;
use crate::{Incarnation, SsdId, Term};
use gnstor_proto::vendor::MAX_REPLICAS;

impl Map {
    /// The map after the operator gives up the blocks that the content `incarnation` of an absent SSD lacks.
    /// Its copies fill, and it stays absent until it is up to date ([`Self::back`]).
    ///
    /// # Errors
    /// [`Unchanged::NoPlace`] where the SSD is not absent.
    pub fn call_lost(&self, ssd: SsdId, incarnation: Incarnation, term: Term) -> Result<Self, Unchanged> {
        if self.ssd(ssd).ok_or(Unchanged::Unknown)?.state != SsdState::Absent {
            return Err(Unchanged::NoPlace);
        }
        let absent = self.in_state(SsdState::Absent);
        let mut next = self.next(term);
        for row in next.rows.iter_mut().filter(|row| row.members().contains(ssd)) {
            row.decide_by(ssd, absent);
        }
        for other in (0..).take(self.ssds.len()).filter(|other| !absent.contains(*other)) {
            if self.takes_from(&next.rows, other) {
                next.ssds[usize::from(other)].shrunk_at = next.epoch;
            }
        }
        for other in absent.iter() {
            let (is_deprived, has_place) = (self.takes_from(&next.rows, other), next.has_place(other));
            let known = &mut next.ssds[usize::from(other)];
            if is_deprived || other == ssd {
                known.shrunk_at = next.epoch;
            }
            match has_place {
                false => known.state = SsdState::Out,
                true if other == ssd => known.incarnation = incarnation,
                true => {}
            }
        }
        Ok(next)
    }

    /// Whether the SSD has a place that serves.
    pub(super) fn serves_some(&self, ssd: SsdId) -> bool {
        self.rows.iter().any(|row| row.serving().contains(ssd))
    }
}

impl Row {
    /// Only the absent copy at the lowest place stays. If that copy is on this SSD, its place fills. In a
    /// merge (rule 17) the others go on without this SSD.
    fn decide_by(&mut self, ssd: SsdId, absent: SsdSet) {
        if (1..=MAX_REPLICAS).any(|replicas| self.merging(replicas).contains(ssd)) {
            let mut places = self.places.iter_mut();
            places.find(|place| place.ssd() == Some(ssd)).into_iter().for_each(|at| *at = Place::Empty);
        }
        let is_absent = |place: &Place| matches!(place, Place::Serving(of) if absent.contains(*of));
        let decides = self.places.iter().position(is_absent);
        let is_own = decides.and_then(|at| self.places[at].ssd()) == Some(ssd);
        for (at, place) in self.places.iter_mut().enumerate().filter(|(_, place)| is_absent(place)) {
            match (is_own, Some(at) == decides) {
                (true, true) => *place = Place::Filling(ssd),
                (true, false) => *place = Place::Empty,
                (false, _) if place.ssd() == Some(ssd) => *place = Place::Empty,
                (false, _) => {}
            }
        }
        if is_own {
            self.end_other_fills(SsdSet::EMPTY.with(ssd));
        }
        self.incoming = self.incoming.filter(|incoming| {
            let place = self.places[usize::from(incoming.place)];
            matches!(place, Place::Serving(_)) && !absent.contains(incoming.ssd)
        });
        self.keep_first();
    }

    /// Whether for some number of replicas from `fewest` on no copy serves, and one that fills is on these
    /// SSDs. Without it no SSD would ever have the group's content. If several fill, they merge (rule 17),
    /// and any of them may have what the others lack.
    pub(super) fn has_last_filling(&self, away: SsdSet, fewest: u8) -> bool {
        (fewest.max(1)..=MAX_REPLICAS).any(|replicas| {
            let mut places = self.places.iter().take(usize::from(replicas));
            let is_away = |place: &Place| matches!(place, Place::Filling(ssd) if away.contains(*ssd));
            self.copies(replicas).is_empty() && places.any(is_away)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::tests::{set, two_rows};
    use crate::deadline::{Deadline, LIMIT};
    use alloc::vec::Vec;

    /// Both rows are on SSD 1 alone, which is absent.
    fn alone() -> Map {
        let map = two_rows();
        let others: SsdSet = (0..3).filter(|ssd| *ssd != 1).collect();
        let map = map.lose_all(others, 2, 4).unwrap().lose(1, 2, 4).unwrap();
        assert_eq!(map.in_state(SsdState::Absent), set(&[1]));
        map
    }

    #[test]
    fn what_is_called_lost_fills_from_nothing_and_serves_when_its_ssd_is_up_to_date() {
        let _deadline = Deadline::after(LIMIT);
        let map = alone();
        let had: Vec<SsdSet> = map.rows.iter().map(Row::serving).collect();
        assert!(had.contains(&set(&[1])));
        let lost = map.call_lost(1, 9, 5).unwrap();
        assert_eq!((lost.epoch, lost.term), (map.epoch + 1, 5));
        assert_eq!((lost.ssds[1].state, lost.ssds[1].incarnation), (SsdState::Absent, 9));
        assert_eq!(lost.ssds[1].shrunk_at, lost.epoch, "the one before it gets no lease");
        assert!(lost.rows.iter().all(|row| !row.serving().contains(1)));
        let back = lost.back(1, 9, 5).unwrap();
        assert_eq!(back.ssds[1].state, SsdState::In);
        let whole = back.serve_all(&[(1, 9)], 5).unwrap();
        assert_eq!(whole.rows.iter().map(Row::serving).collect::<Vec<_>>(), had);
        assert!(whole.rows.iter().all(|row| row.first().is_some() || row.serving().is_empty()));
    }

    #[test]
    fn one_that_goes_again_meanwhile_stays_absent_and_may_come_back_with_a_later_content() {
        let _deadline = Deadline::after(LIMIT);
        let back = alone().call_lost(1, 9, 5).unwrap().back(1, 9, 5).unwrap();
        let gone = back.lose(1, 2, 5).unwrap();
        assert_eq!(
            (gone.ssds[1].state, &gone.rows),
            (SsdState::Absent, &back.rows),
            "it is the last to fill"
        );
        assert_eq!(gone.back(1, 8, 5), Err(Unchanged::Lossy), "an earlier content");
        let again = gone.back(1, 10, 5).unwrap();
        assert_eq!((again.ssds[1].state, again.ssds[1].incarnation), (SsdState::In, 10));
        assert_eq!(gone.call_lost(1, 3, 5).unwrap().ssds[1].incarnation, 3, "and once more, of another SSD");
    }

    #[test]
    fn of_several_absent_copies_one_decides() {
        let _deadline = Deadline::after(LIMIT);
        let all: SsdSet = (0..3).collect();
        // [0] [1] and [1] [2], all absent.
        let map = two_rows().lose_all(all, 2, 4).unwrap();
        let places = |map: &Map| -> Vec<(SsdSet, SsdSet)> {
            map.rows.iter().map(|row| (row.serving(), row.members())).collect()
        };
        let states = |map: &Map| [0, 1, 2].map(|ssd| map.ssds[ssd].state);
        let shrunk = |map: &Map| [0, 1, 2].map(|ssd| map.ssds[ssd].shrunk_at == map.epoch);
        let (absent, out) = (SsdState::Absent, SsdState::Out);
        let lost = map.call_lost(1, 9, 5).unwrap();
        assert_eq!(places(&lost), [(set(&[0]), set(&[0])), (SsdSet::EMPTY, set(&[1]))]);
        assert_eq!((states(&lost), shrunk(&lost)), ([absent, absent, out], [false, true, true]));
        // No group takes its content from this SSD: another one has each of its groups at a lower place.
        let lost = map.call_lost(2, 9, 5).unwrap();
        assert_eq!(places(&lost), [(set(&[0, 1]), set(&[0, 1])), (set(&[1]), set(&[1]))]);
        assert_eq!((states(&lost), shrunk(&lost)), ([absent, absent, out], [false, false, true]));
        assert_eq!(lost.ssds[2].incarnation, 1, "one that is out counts up by itself");
        assert_eq!(two_rows().call_lost(1, 9, 5), Err(Unchanged::NoPlace), "it is there");
        assert_eq!(map.call_lost(9, 9, 5), Err(Unchanged::Unknown));
    }
}
