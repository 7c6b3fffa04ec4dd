// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A stream of writes: its open superblock, the unit being filled, and the units on their way to flash.
//!
//! ```text
//!   superblock  | sealed | sealed | filling . . | not yet          sealed: being programmed
//! ```
//! Units leave in the order in which they were filled. Each keeps the first transaction that put a page into
//! it. The journal may be durable only up to the transaction before the oldest of these.

use gnstor_base::time::Time;
use gnstor_durable::Seq;
use gnstor_flash::{Flash, Geometry, Ppa, Superblock, Unit};
use std::collections::VecDeque;

/// A unit that is full and not known to be on flash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sealed {
    pub(crate) unit: Unit,
    /// Time at which it is on flash in the model.
    pub(crate) at: Time,
    pub(crate) first: Seq,
}

/// A unit whose program failed. Its pages from `next` on have no other place yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed {
    pub(crate) sealed: Sealed,
    /// Slot of the unit.
    pub(crate) next: u32,
    /// Its pages had to wait for a place.
    pub(crate) is_stranded: bool,
}

/// The unit being filled.
#[derive(Clone, Copy, Debug)]
struct Filling {
    unit: Unit,
    slot: u32,
    /// First transaction with a page in it.
    first: Seq,
    /// Time at which the last of its data was in the buffer.
    ready: Time,
}

#[derive(Debug, Default)]
pub(crate) struct Writing {
    superblock: Option<Superblock>,
    /// First unit of the superblock that was not checked yet.
    next_unit: u32,
    filling: Option<Filling>,
    sealed: VecDeque<Sealed>,
    failed: VecDeque<Failed>,
}

/// A unit that has just been filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full {
    pub(crate) unit: Unit,
    pub(crate) ready: Time,
    first: Seq,
}

impl Writing {
    /// Takes a fresh superblock for the stream.
    pub(crate) fn open(&mut self, superblock: Superblock) {
        debug_assert!(self.superblock.is_none() && self.filling.is_none());
        (self.superblock, self.next_unit) = (Some(superblock), 0);
    }

    /// Takes a superblock whose first `units` units are done, for a restore.
    pub(crate) fn resume(&mut self, superblock: Superblock, units: u32) {
        (self.superblock, self.next_unit) = (Some(superblock), units);
    }

    /// Pages that can still be placed in the open superblock; no more than are needed are counted.
    pub(crate) fn room(&self, flash: &Flash, needed: u32) -> u32 {
        let geometry = flash.geometry();
        let Some(superblock) = self.superblock else { return 0 };
        let mut room = self.filling.map_or(0, |f| geometry.unit_pages() - f.slot);
        let first = geometry.first_unit(superblock).0;
        for unit in self.next_unit..geometry.superblock_units() {
            if room >= needed {
                break;
            }
            if !flash.is_bad(geometry.block_of(Unit(first + unit))) {
                room += geometry.unit_pages();
            }
        }
        room
    }

    /// Whether another page fits without opening a superblock; moves on past units on bad blocks.
    pub(crate) fn has_page(&mut self, flash: &Flash) -> bool {
        self.filling.is_some() || self.next_good(flash).is_some()
    }

    fn next_good(&mut self, flash: &Flash) -> Option<Unit> {
        let geometry = flash.geometry();
        let first = geometry.first_unit(self.superblock?).0;
        while self.next_unit < geometry.superblock_units() {
            let unit = Unit(first + self.next_unit);
            if !flash.is_bad(geometry.block_of(unit)) {
                return Some(unit);
            }
            self.next_unit += 1;
        }
        None
    }

    /// The next page, for transaction `seq`, whose data is in the buffer at `ready`. The caller has checked
    /// [`Self::has_page`].
    pub(crate) fn take(&mut self, flash: &Flash, seq: Seq, ready: Time) -> Ppa {
        if self.filling.is_none() {
            let unit = self.next_good(flash).expect("has_page was asked");
            self.next_unit += 1;
            self.filling = Some(Filling { unit, slot: 0, first: seq, ready });
        }
        let filling = self.filling.as_mut().expect("just made");
        filling.ready = filling.ready.max(ready);
        filling.first = filling.first.min(seq);
        let page = Ppa(flash.geometry().first_page(filling.unit).0 + filling.slot);
        filling.slot += 1;
        page
    }

    /// The unit that [`Self::take`] has filled to the brim.
    pub(crate) fn full(&mut self, geometry: &Geometry) -> Option<Full> {
        self.filling.take_if(|f| f.slot == geometry.unit_pages()).map(Filling::full)
    }

    /// The pages that are missing from the unit being filled, and the unit as if it were full.
    pub(crate) fn pad(&mut self, geometry: &Geometry) -> Option<(Full, std::ops::Range<u32>)> {
        let filling = self.filling.take()?;
        let first = geometry.first_page(filling.unit).0;
        Some((filling.full(), first + filling.slot..first + geometry.unit_pages()))
    }

    /// The unit is being programmed. It is on flash at `at`.
    pub(crate) fn seal(&mut self, full: Full, at: Time) {
        self.sealed.push_back(Sealed { unit: full.unit, at, first: full.first });
    }

    /// Gives up the superblock if it is full: all its units are filled or left out.
    pub(crate) fn finished(&mut self, flash: &Flash) -> Option<Superblock> {
        if self.filling.is_some() || self.next_good(flash).is_some() {
            return None;
        }
        self.superblock.take()
    }

    /// The unit whose program ends first.
    pub(crate) fn oldest(&self) -> Option<&Sealed> {
        self.sealed.front()
    }

    pub(crate) fn pop_oldest(&mut self) -> Option<Sealed> {
        self.sealed.pop_front()
    }

    /// The program of this unit failed. Until its pages have other places the journal waits for it, and a
    /// dump has them.
    pub(crate) fn fail(&mut self, sealed: Sealed) {
        self.failed.push_back(Failed { sealed, next: 0, is_stranded: false });
    }

    /// The unit whose program failed first.
    pub(crate) fn failed(&mut self) -> Option<&mut Failed> {
        self.failed.front_mut()
    }

    /// All pages of the unit that failed first have other places.
    pub(crate) fn pop_failed(&mut self) {
        self.failed.pop_front();
    }

    /// Whether pages of failed units wait for other places.
    pub(crate) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// First transaction of the unit being filled.
    pub(crate) fn filling_since(&self) -> Option<Seq> {
        self.filling.map(|f| f.first)
    }

    /// First transaction of the units on their way.
    pub(crate) fn sealed_since(&self) -> Option<Seq> {
        self.sealed.iter().map(|s| s.first).min()
    }

    /// The first transaction with a page that is not known to be on flash.
    pub(crate) fn unprogrammed_since(&self) -> Option<Seq> {
        let failed = self.failed.iter().map(|failed| failed.sealed.first);
        failed.chain(self.sealed_since()).chain(self.filling_since()).min()
    }

    /// Time at which the last sealed unit is on flash.
    pub(crate) fn programmed_at(&self) -> Option<Time> {
        self.sealed.iter().map(|s| s.at).max()
    }

    /// Time at which every sealed unit with a page of a transaction up to `seq` is on flash.
    pub(crate) fn programmed_with(&self, seq: Seq) -> Option<Time> {
        self.sealed.iter().filter(|s| s.first <= seq).map(|s| s.at).max()
    }

    /// Pages of [`Self::buffered`].
    pub(crate) fn buffered_pages(&self, geometry: &Geometry) -> u64 {
        let filling = self.filling.map_or(0, |filling| filling.slot);
        let failed: u32 = self.failed.iter().map(|failed| geometry.unit_pages() - failed.next).sum();
        self.sealed.len() as u64 * u64::from(geometry.unit_pages()) + u64::from(filling + failed)
    }

    /// Every page that is in the buffer only: of failed and sealed units, and of the one being filled.
    pub(crate) fn buffered<'a>(&'a self, geometry: &'a Geometry) -> impl Iterator<Item = Ppa> + 'a {
        let failed = self.failed.iter().map(|f| (f.sealed.unit, f.next..geometry.unit_pages()));
        let sealed = self.sealed.iter().map(|s| (s.unit, 0..geometry.unit_pages()));
        let units = failed.chain(sealed).chain(self.filling.map(|f| (f.unit, 0..f.slot)));
        units.flat_map(|(unit, slots)| {
            let first = geometry.first_page(unit).0;
            slots.map(move |slot| Ppa(first + slot))
        })
    }
}

impl Filling {
    fn full(self) -> Full {
        Full { unit: self.unit, ready: self.ready, first: self.first }
    }
}
