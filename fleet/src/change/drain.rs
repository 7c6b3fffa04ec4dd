// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD leaves while each block keeps all its copies (a drain).
//!
//! ```text
//!   row, volumes of two replicas      places                                 incoming
//!   before                            [serving 0] [serving 3] [serving 1]
//!   come_in    SSD 5 is free          [serving 0] [serving 3] [serving 1]    SSD 5, place 1: fills
//!     or none is: SSD 1 has no data   [serving 0] [serving 3] [empty    ]    SSD 1, place 1: fills
//!   serve_all  it has filled          [serving 0] [serving 5] [serving 1]
//! ```
//! The replacement takes each write from the first epoch on. So once it has filled, it has every acknowledged
//! write. Only the second epoch takes places, and takes all places of the leaving SSD at once. So its groups
//! wait for a lease only once.
//!
//! `most` is the highest number of replicas that a volume has. A place at or above it has no data.

use super::{ChangeBy, Unchanged};
use crate::map::{Incoming, Map, Place, Row, Ssd, SsdState};
use crate::set::SsdSet;
use crate::{Incarnation, SsdId, Term};
use alloc::vec::Vec;

impl Map {
    /// The map in which SSDs come in for all places of `leaves` that volumes use and that have none yet.
    /// `choose` picks the SSD for a row and place. SSDs outside the row are offered first. Where there are
    /// none, SSDs at places that no volume uses are.
    ///
    /// # Errors
    /// [`Unchanged::NoPlace`] if no row needs a replacement, or some row cannot get one. Then nothing
    /// changes.
    pub fn come_in(
        &self,
        leaves: SsdId,
        ssds: &[(SsdId, Incarnation)],
        ChangeBy { most, term }: ChangeBy,
        mut choose: impl FnMut(usize, usize, SsdSet) -> Option<SsdId>,
    ) -> Result<Self, Unchanged> {
        let may_come = |&(ssd, incarnation): &(SsdId, Incarnation)| {
            ssd != leaves && self.may_fill(ssd, incarnation).is_ok_and(|known| known.state != SsdState::Full)
        };
        let may: Vec<(SsdId, Incarnation)> = ssds.iter().copied().filter(may_come).collect();
        let all: SsdSet = may.iter().map(|(ssd, _)| *ssd).collect();
        let mut next = self.next(term);
        let mut taken = SsdSet::EMPTY;
        for (at, row) in next.rows.iter_mut().enumerate() {
            let Some(place) = row.place_of(leaves, most) else { continue };
            match (row.places[place], row.incoming) {
                (Place::Serving(_), None) if !self.waits(row) => {}
                (Place::Serving(_), Some(incoming)) if usize::from(incoming.place) == place => continue,
                _ => return Err(Unchanged::NoPlace),
            }
            let open = row.open_to(all, most);
            let ssd = choose(at, place, open).filter(|&ssd| open.contains(ssd)).ok_or(Unchanged::NoPlace)?;
            row.places.iter_mut().filter(|at| at.ssd() == Some(ssd)).for_each(|at| *at = Place::Empty);
            let place = u8::try_from(place).map_err(|_| Unchanged::NoPlace)?;
            row.incoming = Some(Incoming { ssd, place });
            row.keep_first();
            taken = taken.with(ssd);
        }
        for &(ssd, incarnation) in may.iter().filter(|(ssd, _)| taken.contains(*ssd)) {
            let known = &mut next.ssds[usize::from(ssd)];
            (known.state, known.incarnation) = (SsdState::In, incarnation);
        }
        if taken.is_empty() { Err(Unchanged::NoPlace) } else { Ok(next) }
    }

    /// The map in which only SSDs in `leave` are replaced: all other drains are called off.
    ///
    /// # Errors
    /// [`Unchanged::NoPlace`] if no other SSD is being replaced.
    pub fn stay(&self, leave: SsdSet, term: Term) -> Result<Self, Unchanged> {
        let mut next = self.next(term);
        for row in &mut next.rows {
            let leaves = |ssd: SsdId| leave.contains(ssd);
            let (incoming, places) = (row.incoming, row.places);
            row.incoming = incoming.filter(|of| places[usize::from(of.place)].ssd().is_some_and(leaves));
        }
        if next.rows == self.rows { Err(Unchanged::NoPlace) } else { Ok(next) }
    }

    /// The map in which an SSD that leaves has lost its places, if no volume uses them. The SSD is out then,
    /// even if it had no place: it may have been a replacement in a drain that was called off.
    ///
    /// # Errors
    /// [`Unchanged::NoPlace`] if the SSD is out already, or a volume uses one of its places.
    pub fn leave_unused(&self, ssd: SsdId, most: u8, term: Term) -> Result<Self, Unchanged> {
        let next = Self { epoch: self.epoch, ..self.next(term) }.left_unused(ssd, most, self.epoch + 1);
        let next = Self { epoch: self.epoch + 1, ..next };
        let is_same = next.rows == self.rows && next.ssds == self.ssds;
        if is_same { Err(Unchanged::NoPlace) } else { Ok(next) }
    }

    /// As [`Self::leave_unused`], applied to this map, which is the next one already.
    #[must_use]
    pub fn and_leave_unused(self, ssd: SsdId, most: u8) -> Self {
        let epoch = self.epoch;
        self.left_unused(ssd, most, epoch)
    }

    fn left_unused(mut self, ssd: SsdId, most: u8, epoch: u64) -> Self {
        if self.rows.iter().any(|row| row.place_of(ssd, most).is_some()) {
            return self;
        }
        let takes_part = |known: &Ssd| matches!(known.state, SsdState::In | SsdState::Full);
        let mut is_deprived = self.ssd(ssd).is_some_and(takes_part) && !self.has_place(ssd);
        for row in &mut self.rows {
            let used = row.used(most);
            for place in row.places.iter_mut().skip(used) {
                if place.ssd() == Some(ssd) {
                    (*place, is_deprived) = (Place::Empty, true);
                }
            }
            // Volumes have fewer replicas now, so there is no place that the replacement would take over.
            let places = row.places;
            row.incoming = row.incoming.filter(|of| places[usize::from(of.place)] != Place::Empty);
            row.keep_first();
        }
        if is_deprived {
            self.deprive(ssd, epoch);
        }
        self
    }

    /// Notes that the SSD loses places in this epoch. If it has none left, it is out.
    fn deprive(&mut self, ssd: SsdId, epoch: u64) {
        let has_place = self.has_place(ssd);
        if let Some(known) = self.ssds.get_mut(usize::from(ssd)) {
            known.shrunk_at = epoch;
            if !has_place {
                known.state = SsdState::Out;
            }
        }
    }

    /// Gives replacements the places of a leaving SSD, if all of them have filled. `self` is the next map
    /// already.
    pub(super) fn take_over(&mut self, filled: SsdSet) {
        let comes_in = |row: &Row| {
            let incoming = row.incoming?;
            Some((row.places[usize::from(incoming.place)].ssd()?, incoming.ssd))
        };
        // A map has tens of thousands of rows, so each is looked at once.
        let (mut leave, mut stay) = (SsdSet::EMPTY, SsdSet::EMPTY);
        for (of, incoming) in self.rows.iter().filter_map(comes_in) {
            leave = leave.with(of);
            if !filled.contains(incoming) {
                stay = stay.with(of);
            }
        }
        let leave: SsdSet = leave.iter().filter(|&ssd| !stay.contains(ssd)).collect();
        for row in &mut self.rows {
            let Some(incoming) = row.incoming else { continue };
            let place = &mut row.places[usize::from(incoming.place)];
            if !place.ssd().is_some_and(|ssd| leave.contains(ssd)) {
                continue;
            }
            *place = Place::Serving(incoming.ssd);
            row.incoming = None;
            if row.first == incoming.place {
                // The first is gone. Each copy that serves has all that was acknowledged.
                row.first = u8::MAX;
                row.keep_first();
            }
        }
        let epoch = self.epoch;
        leave.iter().for_each(|ssd| self.deprive(ssd, epoch));
    }
}

impl Row {
    /// The place that an SSD has, if volumes use it.
    fn place_of(&self, ssd: SsdId, most: u8) -> Option<usize> {
        self.places.iter().take(self.used(most)).position(|place| place.ssd() == Some(ssd))
    }

    /// Number of places that count as used by volumes of up to `most` replicas: at least one of them serves,
    /// or fills where none serves. Before the first volume a row may have its only copy at a later place, and
    /// without a copy it could never be filled.
    fn used(&self, most: u8) -> usize {
        let serving = self.places.iter().position(|place| matches!(place, Place::Serving(_)));
        let only = serving.or_else(|| self.places.iter().position(|place| *place != Place::Empty));
        only.map_or(0, |at| at + 1).max(usize::from(most))
    }

    /// The SSDs in `ssds` that may come in.
    fn open_to(&self, ssds: SsdSet, most: u8) -> SsdSet {
        let free: SsdSet = ssds.iter().filter(|&ssd| !self.members().contains(ssd)).collect();
        if !free.is_empty() {
            return free;
        }
        self.unused(ssds, most)
    }

    /// The SSDs in `ssds` at places that no volume uses, and that no SSD is about to take over.
    pub(super) fn unused(&self, ssds: SsdSet, most: u8) -> SsdSet {
        let taken_over = self.incoming.and_then(|of| self.places[usize::from(of.place)].ssd());
        let unused = self.places.iter().skip(self.used(most)).filter_map(|place| place.ssd());
        unused.filter(|&ssd| ssds.contains(ssd) && Some(ssd) != taken_over).collect()
    }
}

#[cfg(test)]
pub(super) mod tests;
