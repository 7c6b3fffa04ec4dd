// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One epoch for many rows: SSDs that come in take holes, and places that have filled serve (rule 1b).
//!
//! ```text
//!   SSD 3 is back             epoch n                    n + 1                       n + 2
//!   row 0                     [serving 0] [empty    ]    [serving 0] [filling 3]    [serving 0] [serving 3]
//!   row 1                     [empty    ] [serving 2]    [filling 3] [serving 2]    [serving 3] [serving 2]
//!   row 2, copy on absent 1   [serving 1] [empty    ]    [serving 1] [empty    ]    the same
//! ```
//! A row that waits for an absent SSD takes none: its source is not there.

use super::Unchanged;
use crate::map::{Map, Place, Row, Ssd, SsdState};
use crate::set::SsdSet;
use crate::{Incarnation, SsdId, Term};
use alloc::vec::Vec;

impl Map {
    /// Checks whether an SSD with this incarnation may get places. An SSD with places gets more only under
    /// the incarnation of those. An SSD that was dropped must have counted up since.
    ///
    /// # Errors
    /// [`Unchanged::Incarnation`] if it may not.
    pub(super) fn may_fill(&self, ssd: SsdId, incarnation: Incarnation) -> Result<&Ssd, Unchanged> {
        let known = self.ssd(ssd).ok_or(Unchanged::Unknown)?;
        let may = match known.state {
            SsdState::Absent => false,
            SsdState::Out => incarnation > known.incarnation,
            SsdState::In | SsdState::Full | SsdState::Spare if self.has_place(ssd) => {
                incarnation == known.incarnation
            }
            SsdState::In | SsdState::Full | SsdState::Spare => incarnation >= known.incarnation,
        };
        if may { Ok(known) } else { Err(Unchanged::Incarnation) }
    }

    pub(super) fn has_place(&self, ssd: SsdId) -> bool {
        self.rows.iter().any(|row| row.members().contains(ssd))
    }

    /// The map after SSDs with these incarnations take holes and fill them. For each hole (row and place)
    /// `choose` names one of the SSDs that may take it; `None` leaves the hole. Volumes have from `fewest`
    /// replicas (as for [`Self::lose_all`]) to `most`. If a volume uses a hole, and all these SSDs are in the
    /// row, those at places that no volume uses may take it. They give up such a place, which has no data.
    ///
    /// # Errors
    /// [`Unchanged::NoPlace`] if no hole is taken; [`Unchanged::Incarnation`] if none of the SSDs may get a
    /// place.
    pub fn fill_all(
        &self,
        ssds: &[(SsdId, Incarnation)],
        (fewest, most): (u8, u8),
        term: Term,
        mut choose: impl FnMut(usize, usize, SsdSet) -> Option<SsdId>,
    ) -> Result<Self, Unchanged> {
        let may: Vec<(SsdId, Incarnation)> = ssds
            .iter()
            .copied()
            .filter(|&(ssd, incarnation)| self.may_fill(ssd, incarnation).is_ok())
            .collect();
        if may.is_empty() {
            return Err(Unchanged::Incarnation);
        }
        let all: SsdSet = may.iter().map(|(ssd, _)| *ssd).collect();
        let mut next = self.next(term);
        let mut taken = SsdSet::EMPTY;
        for (at, row) in next.rows.iter_mut().enumerate().filter(|(_, row)| !self.waits(row)) {
            for hole in row.holes(self.width, fewest) {
                let open = |ssd: &SsdId| !row.members().contains(*ssd);
                let free: SsdSet = may.iter().map(|(ssd, _)| *ssd).filter(open).collect();
                let is_used = hole < usize::from(most);
                let open = if free.is_empty() && is_used { row.unused(all, most) } else { free };
                let Some(ssd) = choose(at, hole, open).filter(|&ssd| open.contains(ssd)) else { continue };
                row.places.iter_mut().filter(|at| at.ssd() == Some(ssd)).for_each(|at| *at = Place::Empty);
                row.places[hole] = Place::Filling(ssd);
                row.keep_first();
                taken = taken.with(ssd);
            }
        }
        for &(ssd, incarnation) in may.iter().filter(|(ssd, _)| taken.contains(*ssd)) {
            let known = &mut next.ssds[usize::from(ssd)];
            if known.state != SsdState::Full {
                known.state = SsdState::In;
            }
            known.incarnation = incarnation;
        }
        if taken.is_empty() { Err(Unchanged::NoPlace) } else { Ok(next) }
    }

    /// The map after these SSDs have filled all their places: they serve them. An SSD whose incarnation is
    /// not the map's has lost the filled blocks, and is left out. As with [`Self::serve`] the first stays.
    /// Replacements of a leaving SSD take its places together, once all of them have filled.
    ///
    /// # Errors
    /// [`Unchanged::NoPlace`] if none of them has a place that fills.
    pub fn serve_all(&self, filled: &[(SsdId, Incarnation)], term: Term) -> Result<Self, Unchanged> {
        let same = |&(ssd, incarnation): &(SsdId, Incarnation)| {
            self.ssd(ssd).is_some_and(|known| known.incarnation == incarnation).then_some(ssd)
        };
        let filled: SsdSet = filled.iter().filter_map(same).collect();
        let mut next = self.next(term);
        for row in &mut next.rows {
            for place in &mut row.places {
                if let Place::Filling(ssd) = *place
                    && filled.contains(ssd)
                {
                    *place = Place::Serving(ssd);
                }
            }
            row.keep_first();
        }
        next.take_over(filled);
        // Some replacements of a leaving SSD may have filled before the others.
        let is_same = |(was, is): (&Row, &Row)| was.places == is.places && was.incoming == is.incoming;
        let nothing_serves = self.rows.iter().zip(&next.rows).all(is_same);
        if nothing_serves { Err(Unchanged::NoPlace) } else { Ok(next) }
    }

    /// The SSDs with places that fill.
    pub fn filling(&self) -> SsdSet {
        let fills = |place: &Place| if let Place::Filling(ssd) = *place { Some(ssd) } else { None };
        let places = self.rows.iter().flat_map(|row| row.places.iter().filter_map(fills));
        places.chain(self.rows.iter().filter_map(|row| Some(row.incoming?.ssd))).collect()
    }
}

impl Row {
    /// The empty places that can be filled: each volume that uses the place has another copy.
    pub(super) fn holes(&self, width: u8, fewest: u8) -> Vec<usize> {
        let has_copy = |hole: usize| {
            let users = fewest.max(u8::try_from(hole + 1).unwrap_or(u8::MAX));
            !self.copies(users).is_empty()
        };
        let places = self.places.iter().take(usize::from(width)).enumerate();
        let empty = places.filter(|(_, place)| **place == Place::Empty).map(|(hole, _)| hole);
        empty.filter(|&hole| has_copy(hole)).collect()
    }
}

#[cfg(test)]
mod tests;
