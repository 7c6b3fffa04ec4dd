// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From one map to the next. A loss makes holes at once and draws nothing; a later epoch fills them (rule
//! 1b). The last serving copy of a group is never dropped (rule 1c).

use crate::map::{Map, Place, SsdState};
use crate::set::SsdSet;
use crate::{Incarnation, SsdId, Term};

/// Why there is no next map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unchanged {
    /// The map does not name the SSD.
    Unknown,
    /// The SSD has no place that the change is about.
    NoPlace,
    /// The SSD has lost writes: only the operator can call its copies good or lost.
    Lossy,
    /// The incarnation is not the one that the map gives its places to, or was dropped already.
    Incarnation,
}

impl Map {
    fn next(&self, term: Term) -> Self {
        Self { term, epoch: self.epoch + 1, ..self.clone() }
    }

    /// The map after `ssd` fell silent or came back lossy. Its places become empty. Where it has the last
    /// serving copy of a group, that place stays and the SSD is absent.
    ///
    /// # Errors
    /// [`Unchanged::NoPlace`] where the SSD has nothing to lose, or is absent already.
    pub fn lose(&self, ssd: SsdId, term: Term) -> Result<Self, Unchanged> {
        let before = self.ssd(ssd).ok_or(Unchanged::Unknown)?.state;
        if before == SsdState::Absent || !self.rows.iter().any(|row| row.members().contains(ssd)) {
            return Err(Unchanged::NoPlace);
        }
        let mut next = self.next(term);
        let mut has_last_copy = false;
        for row in &mut next.rows {
            let is_last = row.serving() == SsdSet::EMPTY.with(ssd);
            has_last_copy |= is_last;
            row.incoming = row.incoming.filter(|incoming| incoming.ssd != ssd);
            if !is_last {
                for place in row.places.iter_mut().filter(|place| place.ssd() == Some(ssd)) {
                    *place = Place::Empty;
                }
                row.incoming = row.incoming.filter(|incoming| {
                    // A hole needs no second copy beside it: the one that comes in takes the place.
                    let hole = row.places[usize::from(incoming.place)] == Place::Empty;
                    if hole {
                        row.places[usize::from(incoming.place)] = Place::Filling(incoming.ssd);
                    }
                    !hole
                });
                row.keep_first();
            }
        }
        let epoch = next.epoch;
        let lost = &mut next.ssds[usize::from(ssd)];
        lost.state = if has_last_copy { SsdState::Absent } else { SsdState::Out };
        lost.shrunk_at = epoch;
        Ok(next)
    }

    /// The map after an absent SSD is back with the content that it had: it serves again.
    ///
    /// # Errors
    /// [`Unchanged::Lossy`] where its incarnation is another one.
    pub fn back(&self, ssd: SsdId, incarnation: Incarnation, term: Term) -> Result<Self, Unchanged> {
        let known = self.ssd(ssd).ok_or(Unchanged::Unknown)?;
        if known.state != SsdState::Absent {
            return Err(Unchanged::NoPlace);
        }
        if known.incarnation != incarnation {
            return Err(Unchanged::Lossy);
        }
        let mut next = self.next(term);
        next.ssds[usize::from(ssd)].state = SsdState::In;
        Ok(next)
    }

    /// The map after `ssd`, with a new incarnation, takes the hole of a group and fills it.
    ///
    /// # Errors
    /// [`Unchanged::Incarnation`] where the incarnation was dropped by an earlier epoch;
    /// [`Unchanged::NoPlace`] where the group has no hole, no copy to fill from, or has the SSD already.
    pub fn fill(
        &self,
        row: usize,
        ssd: SsdId,
        incarnation: Incarnation,
        term: Term,
    ) -> Result<Self, Unchanged> {
        let known = self.ssd(ssd).ok_or(Unchanged::Unknown)?;
        let was_dropped = known.shrunk_at > 0 && incarnation <= known.incarnation;
        if was_dropped || incarnation < known.incarnation || known.state == SsdState::Absent {
            return Err(Unchanged::Incarnation);
        }
        let mut next = self.next(term);
        let target = next.rows.get_mut(row).ok_or(Unchanged::NoPlace)?;
        if target.members().contains(ssd) || target.serving().is_empty() {
            return Err(Unchanged::NoPlace);
        }
        let hole =
            target.places.iter_mut().find(|place| **place == Place::Empty).ok_or(Unchanged::NoPlace)?;
        *hole = Place::Filling(ssd);
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

/// The incarnation that an SSD has after it learned of a map: one that was dropped counts up, so that no
/// earlier map fits its content any more (rule 1a).
pub fn incarnation_under(map: &Map, ssd: SsdId, own: Incarnation) -> Incarnation {
    let Some(known) = map.ssd(ssd) else { return own };
    if known.state == SsdState::Out && own == known.incarnation { own + 1 } else { own }
}

/// What a holder of a write lease says of an SSD that is to get a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// It has a queue pair to that SSD.
    Yes,
    /// Its lease was taken away.
    Revoked,
    /// It has not answered.
    Unknown,
}

/// Whether an epoch may give an SSD a place: every holder of a write lease reaches it, or holds no lease any
/// more. Otherwise that holder could write nothing.
pub fn may_grow(holders: impl IntoIterator<Item = Reach>) -> bool {
    holders.into_iter().all(|reach| reach != Reach::Unknown)
}

/// Copies below which a volume's writes wait: one, from three replicas on all but one.
pub fn min_copies(replicas: u32) -> u32 {
    if replicas < 3 { 1 } else { replicas - 1 }
}
