// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From one map to the next. A loss makes holes at once and draws nothing; a later epoch fills them (rule
//! 1b). The last serving copy of a group is never dropped (rule 1c).
//!
//! ```text
//!   row            volumes of two replicas     volumes of one
//!   [serving 0]    a copy                      the only copy
//!   [serving 1]    a copy                      -
//! ```
//! So which copy is the last depends on the number of replicas. It is judged for all numbers from the fewest
//! that a volume has.

mod drain;
mod lost;
mod many;
mod salvage;
mod spread;
mod votes;

use crate::map::{Map, Place, Row, SsdState};
use crate::set::SsdSet;
use crate::{Incarnation, SsdId, Term};
use gnstor_proto::vendor::MAX_REPLICAS;

/// What every change of places goes by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChangeBy {
    /// The highest number of replicas that a volume has. A place at or above it has no data.
    pub most: u8,
    /// The daemon's term.
    pub term: Term,
}

/// Why there is no next map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unchanged {
    /// The map does not name the SSD.
    Unknown,
    /// The SSD has no place that the change is about.
    NoPlace,
    /// The SSD has lost writes: only the operator can call its copies good or lost.
    Lossy,
    /// The incarnation is not the one in the map, or was dropped before.
    Incarnation,
    /// An absent SSD with a copy is missing: it may have blocks that others lack.
    Incomplete,
    /// The map has more SSDs than the rules know.
    TooMany,
    /// The SSD votes already, or does not vote; or it is the only one that votes, or has no part in the map.
    Vote,
}

impl Map {
    fn next(&self, term: Term) -> Self {
        Self { term, epoch: self.epoch + 1, ..self.clone() }
    }

    /// The same places in the next epoch. Once this map is decided, no map of an earlier term can be.
    #[must_use]
    pub fn again(&self, term: Term) -> Self {
        self.next(term)
    }

    /// As [`Self::lose_all`], of one SSD.
    ///
    /// # Errors
    /// [`Unchanged::NoPlace`] if the places would stay the same.
    pub fn lose(&self, ssd: SsdId, fewest: u8, term: Term) -> Result<Self, Unchanged> {
        self.lose_all(SsdSet::EMPTY.with(ssd), fewest, term)
    }

    /// The map after these SSDs fell silent or came back lossy. Their places become empty. If they have the
    /// last serving copy of a group, their copies stay, and they become absent. `fewest` is the lowest number
    /// of replicas of any volume. A volume's copies are at the places below its number of replicas, so a
    /// serving SSD at a later place has no copy of it. An absent SSD loses its places, too, once another copy
    /// is back.
    ///
    /// # Errors
    /// [`Unchanged::NoPlace`] if the places would stay the same.
    pub fn lose_all(&self, lost: SsdSet, fewest: u8, term: Term) -> Result<Self, Unchanged> {
        if lost.iter().any(|ssd| self.ssd(ssd).is_none()) {
            return Err(Unchanged::Unknown);
        }
        let absent = self.in_state(SsdState::Absent);
        let mut next = self.next(term);
        let mut have_last_copy = SsdSet::EMPTY;
        for row in &mut next.rows {
            have_last_copy = have_last_copy.union(row.lose(lost, absent, fewest));
        }
        for ssd in lost.iter() {
            let is_deprived = self.takes_from(&next.rows, ssd);
            let known = &mut next.ssds[usize::from(ssd)];
            let state = match known.state {
                SsdState::In | SsdState::Full | SsdState::Absent if have_last_copy.contains(ssd) => {
                    SsdState::Absent
                }
                SsdState::In | SsdState::Full | SsdState::Absent => SsdState::Out,
                state @ (SsdState::Spare | SsdState::Out) => state,
            };
            if is_deprived || state != known.state {
                (known.state, known.shrunk_at) = (state, next.epoch);
            }
        }
        if next.ssds == self.ssds { Err(Unchanged::NoPlace) } else { Ok(next) }
    }

    fn in_state(&self, state: SsdState) -> SsdSet {
        (0..).zip(&self.ssds).filter(|(_, ssd)| ssd.state == state).map(|(id, _)| id).collect()
    }

    /// Whether the SSD has a place in a row of this map, and none in the same row of `rows`.
    fn takes_from(&self, rows: &[Row], ssd: SsdId) -> bool {
        let has = |row: &Row| row.members().contains(ssd);
        self.rows.iter().zip(rows).any(|(old, new)| has(old) && !has(new))
    }

    /// The map after an absent SSD is back with the content that it had: it serves again. An SSD whose copies
    /// were given up has no serving place, and may come back with a later content.
    ///
    /// # Errors
    /// [`Unchanged::Lossy`] if the SSD's incarnation is not the one in the map.
    pub fn back(&self, ssd: SsdId, incarnation: Incarnation, term: Term) -> Result<Self, Unchanged> {
        let known = self.ssd(ssd).ok_or(Unchanged::Unknown)?;
        if known.state != SsdState::Absent {
            return Err(Unchanged::NoPlace);
        }
        let may = match self.serves_some(ssd) {
            true => incarnation == known.incarnation,
            false => incarnation >= known.incarnation,
        };
        if !may {
            return Err(Unchanged::Lossy);
        }
        let mut next = self.next(term);
        let known = &mut next.ssds[usize::from(ssd)];
        (known.state, known.incarnation) = (SsdState::In, incarnation);
        Ok(next)
    }

    /// The map after this SSD, with a new incarnation, takes the hole of a group and fills it. `fewest`: as
    /// for [`Self::lose_all`].
    ///
    /// # Errors
    /// [`Unchanged::Incarnation`] if an earlier epoch dropped this incarnation. [`Unchanged::NoPlace`] if the
    /// group has no hole, or has the SSD already. So too if some volume that uses the place has no copy to
    /// fill from.
    pub fn fill(
        &self,
        row: usize,
        (ssd, incarnation): (SsdId, Incarnation),
        fewest: u8,
        term: Term,
    ) -> Result<Self, Unchanged> {
        self.may_fill(ssd, incarnation)?;
        let mut next = self.next(term);
        let target = next.rows.get_mut(row).ok_or(Unchanged::NoPlace)?;
        let hole =
            target.places.iter().take(usize::from(self.width)).position(|place| *place == Place::Empty);
        let hole = hole.ok_or(Unchanged::NoPlace)?;
        let users = fewest.max(u8::try_from(hole + 1).unwrap_or(u8::MAX));
        if target.members().contains(ssd) || target.copies(users).is_empty() {
            return Err(Unchanged::NoPlace);
        }
        target.places[hole] = Place::Filling(ssd);
        let known = &mut next.ssds[usize::from(ssd)];
        (known.state, known.incarnation) = (SsdState::In, incarnation);
        Ok(next)
    }

    /// The map after the content of a filling place was confirmed: it serves. It does not become the first:
    /// a value that the first has shown may not have reached it yet.
    ///
    /// # Errors
    /// [`Unchanged::Incarnation`] where the confirmation is of another incarnation.
    pub fn serve(
        &self,
        row: usize,
        ssd: SsdId,
        incarnation: Incarnation,
        term: Term,
    ) -> Result<Self, Unchanged> {
        if self.ssd(ssd).ok_or(Unchanged::Unknown)?.incarnation != incarnation {
            return Err(Unchanged::Incarnation);
        }
        let mut next = self.next(term);
        let target = next.rows.get_mut(row).ok_or(Unchanged::NoPlace)?;
        let place = target.places.iter_mut().find(|place| **place == Place::Filling(ssd));
        *place.ok_or(Unchanged::NoPlace)? = Place::Serving(ssd);
        target.keep_first();
        Ok(next)
    }
}

impl Row {
    /// Empties the places of these SSDs. Serving ones of the last copy stay, and so do filling ones if no
    /// copy serves. Returns the SSDs with the last copies.
    fn lose(&mut self, lost: SsdSet, absent: SsdSet, fewest: u8) -> SsdSet {
        if self.members().common(lost).is_empty() {
            return SsdSet::EMPTY;
        }
        let is_last = self.has_last_copy(lost.union(absent), fewest);
        let is_last_filling = self.has_last_filling(lost.union(absent), fewest);
        let mut stay = SsdSet::EMPTY;
        for place in &mut self.places {
            match *place {
                Place::Serving(ssd) if is_last && lost.contains(ssd) => stay = stay.with(ssd),
                Place::Filling(ssd) if is_last_filling && lost.contains(ssd) => stay = stay.with(ssd),
                _ if place.ssd().is_some_and(|ssd| lost.contains(ssd)) => *place = Place::Empty,
                _ => {}
            }
        }
        self.incoming = self.incoming.filter(|incoming| !lost.contains(incoming.ssd)).filter(|incoming| {
            // A hole needs no second copy beside it: the incoming SSD takes the place.
            let hole = self.places[usize::from(incoming.place)] == Place::Empty;
            if hole {
                self.places[usize::from(incoming.place)] = Place::Filling(incoming.ssd);
            }
            !hole
        });
        self.keep_first();
        stay
    }

    /// Whether for some number of replicas from `fewest` on, each copy is on one of these SSDs.
    fn has_last_copy(&self, away: SsdSet, fewest: u8) -> bool {
        let mut copies = (fewest.max(1)..=MAX_REPLICAS).map(|replicas| self.copies(replicas));
        copies.any(|copies| !copies.is_empty() && copies.is_subset_of(away))
    }
}

/// The incarnation that an SSD has after it learned of a map. An SSD that was dropped counts up, so that no
/// earlier map fits its content any more (rule 1a).
pub fn incarnation_under(map: &Map, ssd: SsdId, own: Incarnation) -> Incarnation {
    let Some(known) = map.ssd(ssd) else { return own };
    if known.state == SsdState::Out && own == known.incarnation { own + 1 } else { own }
}

/// A lease holder's report about an SSD that is to get a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HolderState {
    /// The holder has a queue pair to that SSD.
    Reaches,
    /// The holder's lease was revoked.
    Revoked,
    /// The holder has not answered.
    Unknown,
}

/// Whether an epoch may give an SSD a place. Every holder of a write lease must reach it, or hold no lease
/// any more. Otherwise that holder could not write.
pub fn may_grow(holders: impl IntoIterator<Item = HolderState>) -> bool {
    holders.into_iter().all(|state| state != HolderState::Unknown)
}

/// With fewer copies a volume's writes wait: one, or with three and more replicas all but one.
pub fn min_copies(replicas: u32) -> u32 {
    if replicas < 3 { 1 } else { replicas - 1 }
}

#[cfg(test)]
mod tests;
