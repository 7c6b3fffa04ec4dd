// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flash as far as this model has it: 4 KiB pages in RAM, an out-of-band record beside each, and who may be written
//! next.
//!
//! ```text
//!   page     0 1 2 3 4 5 6 7 | 8 ...                    one program unit (one-shot) after the other,
//!   LUN      0               | 1 ...                    each on the next LUN
//! ```
//! Pages are handed out a whole unit at a time, LUN after LUN, so that writes spread and a run of blocks stays
//! together; holes left by overwrites are used when no unit is wholly free. There are no erase blocks and no garbage
//! collection yet: a page can be rewritten as soon as it is free. They arrive with the flash model.
//!
//! A page that a transfer reads is pinned: freeing it takes effect when the last pin is gone, so that a read never
//! delivers somebody else's data.

use crate::preset::Preset;
use gnstor_fabric::region::{HostRegion, LocalRef};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::slba::Stamp;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// A physical page address: the number of a 4 KiB page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ppa(pub u32);

/// The out-of-band record of a page: what it holds, enough to rebuild the map from (protocol rule 10).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Oob {
    /// Volume id.
    pub vid: u16,
    /// Generation of the volume id.
    pub generation: u32,
    /// Block within the volume.
    pub vba: u32,
    /// Stamp of the write.
    pub stamp: Stamp,
    /// Block sum of the data.
    pub sum: u32,
    /// Order in which this SSD applied writes.
    pub seq: u64,
}

/// Set in a page's pin count while its last pin frees it.
const DYING: u32 = 1 << 31;

/// The pages of one SSD.
#[derive(Debug)]
pub struct Media {
    region: Arc<HostRegion>,
    pages: u32,
    oob: Vec<Oob>,
    pins: Vec<u32>,
    free: FreePages,
}

impl Media {
    /// Media of at least `pages` pages, rounded up to whole stripes of the preset.
    ///
    /// # Errors
    /// Where the memory cannot be had, or there are more pages than a [`Ppa`] can number.
    pub fn new(preset: &Preset, pages: u64) -> io::Result<Self> {
        let pages = pages.next_multiple_of(u64::from(preset.stripe_pages()));
        let pages = u32::try_from(pages)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "an SSD has fewer than 2^32 pages of 4 KiB"))?;
        // One page more than flash has: the zero page, which unmapped blocks are read from.
        let bytes = (u64::from(pages) + 1) * u64::from(BLOCK_BYTES);
        let region = HostRegion::alloc(usize::try_from(bytes).map_err(io::Error::other)?)?;
        Ok(Self {
            region,
            pages,
            oob: vec![Oob::default(); pages as usize],
            pins: vec![0; pages as usize],
            free: FreePages::new(preset, pages),
        })
    }

    /// The memory behind the pages.
    pub fn region(&self) -> &Arc<HostRegion> {
        &self.region
    }

    /// Number of pages.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Pages that can be handed out now.
    pub fn free_pages(&self) -> u64 {
        self.free.count
    }

    /// The bytes of a page, for a mover.
    pub fn local(&self, page: Ppa) -> LocalRef {
        debug_assert!(page.0 < self.pages);
        self.region.slice(u64::from(page.0) * u64::from(BLOCK_BYTES), BLOCK_BYTES)
    }

    /// The page of zeros.
    pub fn zero_page(&self) -> LocalRef {
        self.region.slice(u64::from(self.pages) * u64::from(BLOCK_BYTES), BLOCK_BYTES)
    }

    /// The record beside a page.
    pub fn oob(&self, page: Ppa) -> &Oob {
        &self.oob[page.0 as usize]
    }

    /// Writes the record beside a page.
    pub fn set_oob(&mut self, page: Ppa, oob: Oob) {
        self.oob[page.0 as usize] = oob;
    }

    /// Takes a free page.
    pub fn allocate(&mut self) -> Option<Ppa> {
        self.free.take()
    }

    /// Gives a page back, at once or when nobody reads it any more.
    pub fn free(&mut self, page: Ppa) {
        let pins = &mut self.pins[page.0 as usize];
        assert_eq!(*pins & DYING, 0, "{page:?} freed twice");
        if *pins == 0 {
            self.free.give(page);
        } else {
            *pins |= DYING;
        }
    }

    /// A transfer reads the page: it is not reused until [`Self::unpin`].
    pub fn pin(&mut self, page: Ppa) {
        self.pins[page.0 as usize] += 1;
    }

    /// A transfer that read the page has ended.
    pub fn unpin(&mut self, page: Ppa) {
        let pins = &mut self.pins[page.0 as usize];
        assert_ne!(*pins & !DYING, 0, "{page:?} unpinned without a pin");
        *pins -= 1;
        if *pins == DYING {
            *pins = 0;
            self.free.give(page);
        }
    }
}

/// The free pages, by program unit.
#[derive(Debug)]
struct FreePages {
    unit_pages: u32,
    luns: u32,
    /// One bit a page of each unit.
    bits: Vec<u16>,
    /// Units that are wholly free, for each LUN, longest free first.
    whole: Vec<VecDeque<u32>>,
    /// Units with a free page, for each LUN; an entry may be out of date and is checked when taken.
    partial: Vec<Vec<u32>>,
    in_partial: Vec<bool>,
    open: Option<u32>,
    next_lun: u32,
    count: u64,
}

impl FreePages {
    fn new(preset: &Preset, pages: u32) -> Self {
        let (unit_pages, luns) = (preset.program_pages, preset.luns());
        let units = pages / unit_pages;
        let of_lun = |lun: u32| (lun..units).step_by(luns as usize).collect();
        Self {
            unit_pages,
            luns,
            bits: vec![Self::full(unit_pages); units as usize],
            whole: (0..luns).map(of_lun).collect(),
            partial: vec![Vec::new(); luns as usize],
            in_partial: vec![false; units as usize],
            open: None,
            next_lun: 0,
            count: u64::from(pages),
        }
    }

    fn full(unit_pages: u32) -> u16 {
        u16::MAX >> (16 - unit_pages)
    }

    fn take(&mut self) -> Option<Ppa> {
        if self.count == 0 {
            return None;
        }
        let unit = match self.open.filter(|&unit| self.bits[unit as usize] != 0) {
            Some(unit) => unit,
            None => self.open_next()?,
        };
        let bits = &mut self.bits[unit as usize];
        let page = bits.trailing_zeros();
        *bits &= *bits - 1;
        self.count -= 1;
        Some(Ppa(unit * self.unit_pages + page))
    }

    fn open_next(&mut self) -> Option<u32> {
        let (luns, next) = (self.luns, self.next_lun);
        let order = (0..luns).map(move |step| (next + step) % luns);
        let unit = order
            .clone()
            .find_map(|lun| self.whole[lun as usize].pop_front())
            .or_else(|| order.clone().find_map(|lun| self.pop_partial(lun)))?;
        self.next_lun = (unit % luns + 1) % luns;
        self.open = Some(unit);
        Some(unit)
    }

    fn pop_partial(&mut self, lun: u32) -> Option<u32> {
        while let Some(unit) = self.partial[lun as usize].pop() {
            self.in_partial[unit as usize] = false;
            let bits = self.bits[unit as usize];
            if bits != 0 && bits != Self::full(self.unit_pages) {
                return Some(unit);
            }
        }
        None
    }

    fn give(&mut self, page: Ppa) {
        let unit = page.0 / self.unit_pages;
        let bit = 1u16 << (page.0 % self.unit_pages);
        let bits = &mut self.bits[unit as usize];
        assert_eq!(*bits & bit, 0, "{page:?} freed twice");
        *bits |= bit;
        self.count += 1;
        if self.open == Some(unit) {
            return;
        }
        let lun = (unit % self.luns) as usize;
        if *bits == Self::full(self.unit_pages) {
            self.whole[lun].push_back(unit);
        } else if !self.in_partial[unit as usize] {
            self.in_partial[unit as usize] = true;
            self.partial[lun].push(unit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_proto::placement::mix64;
    use std::collections::HashSet;

    fn media() -> Media {
        Media::new(&Preset::by_name("null").unwrap(), 512).unwrap()
    }

    #[test]
    fn fresh_pages_fill_one_unit_after_the_other_over_all_luns() {
        let mut media = media();
        let pages: Vec<u32> = std::iter::from_fn(|| media.allocate()).map(|p| p.0).collect();
        assert_eq!(pages, (0..512).collect::<Vec<_>>());
        assert_eq!(media.free_pages(), 0);
    }

    #[test]
    fn no_page_is_ever_handed_out_twice() {
        let mut media = media();
        let mut held = Vec::new();
        for step in 0..50_000u64 {
            let dice = mix64(step);
            if dice % 5 < 3 || held.is_empty() {
                if let Some(page) = media.allocate() {
                    held.push(page);
                }
            } else {
                let at = usize::try_from(dice / 5).unwrap() % held.len();
                media.free(held.swap_remove(at));
            }
            assert_eq!(media.free_pages(), 512 - held.len() as u64);
        }
        assert_eq!(held.iter().collect::<HashSet<_>>().len(), held.len());
        held.extend(std::iter::from_fn(|| media.allocate()));
        assert_eq!(held.iter().collect::<HashSet<_>>().len(), 512, "every free page can be had");
    }

    #[test]
    fn a_pinned_page_is_reused_only_after_the_last_unpin() {
        let mut media = media();
        let pages: Vec<Ppa> = std::iter::from_fn(|| media.allocate()).collect();
        media.pin(pages[3]);
        media.pin(pages[3]);
        media.free(pages[3]);
        assert_eq!(media.allocate(), None);
        media.unpin(pages[3]);
        assert_eq!(media.allocate(), None);
        media.unpin(pages[3]);
        assert_eq!(media.allocate(), Some(pages[3]));
    }

    #[test]
    fn whole_units_are_preferred_to_holes() {
        let mut media = media();
        let pages: Vec<Ppa> = std::iter::from_fn(|| media.allocate()).collect();
        media.free(pages[0]);
        pages[64..72].iter().for_each(|&page| media.free(page));
        let again: Vec<u32> = std::iter::from_fn(|| media.allocate()).map(|p| p.0).collect();
        assert_eq!(again, [64, 65, 66, 67, 68, 69, 70, 71, 0]);
    }
}
