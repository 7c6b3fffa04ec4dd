// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD without data: page-mapped, two streams, greedy collection in the foreground.
//!
//! ```text
//!   host page -> share of the victim's pages first -> host stream  | unit | unit | -> program when full
//!                           '-> collection's stream   | unit | unit |                   -> program when full
//!   victim empty -> erased once all it held is on flash -> free
//! ```

use crate::preset::Preset;
use crate::timing::{Stream, Timing};
use gnstor_base::time::Time;
use gnstor_flash::{Block, Geometry, GeometryError, PAGE_BYTES, Ppa, Superblock, Unit};

const NOWHERE: u32 = u32::MAX;

/// The open end of a stream.
#[derive(Clone, Copy, Debug)]
struct Front {
    next: u32,
    end: u32,
    /// When all pages of the open unit are there and its block is erased.
    ready: Time,
    erased: Time,
}

#[derive(Clone, Copy, Debug)]
struct Victim {
    superblock: u32,
    /// Valid and invalid pages when it was chosen: the host pays `valid` pages moved for `invalid` written.
    valid: u64,
    invalid: u64,
    /// The superblock's next unit, counted from its first.
    unit: u32,
    owed: u64,
}

/// The SSD.
#[derive(Debug)]
pub struct Ssd {
    timing: Timing,
    geometry: Geometry,
    page_of: Vec<u32>,
    lba_of: Vec<u32>,
    valid: Vec<u32>,
    closed: Vec<bool>,
    erased_at: Vec<Time>,
    free: Vec<u32>,
    host: Front,
    moved: Front,
    /// Free superblocks below which the host pays for collection.
    low_water: usize,
    victim: Option<Victim>,
    /// When all programs of collection so far have ended.
    moved_until: Time,
    written: (u64, u64),
    scratch: Vec<Ppa>,
}

impl Ssd {
    /// An erased SSD of at least this many logical pages.
    ///
    /// # Errors
    /// When the preset's shape allows no SSD of that size.
    pub fn new(preset: &Preset, logical_pages: u32) -> Result<Self, GeometryError> {
        let geometry = preset.geometry(u64::from(logical_pages))?;
        let superblocks = geometry.superblocks();
        let pages = usize::try_from(geometry.pages()).expect("64-bit host");
        let front = Front { next: 0, end: 0, ready: Time::ZERO, erased: Time::ZERO };
        // Superblocks are whole; the logical size takes the remainder, so that the spare space is exact.
        let reserved = preset.reserved_superblocks(&geometry);
        let held = geometry.pages() - u64::from(reserved * geometry.superblock_pages());
        let exact = held * 1000 / (1000 + u64::from(preset.over_provisioning_permille));
        let logical_pages = usize::try_from(exact).expect("64-bit host");
        Ok(Self {
            timing: Timing::new(preset, &geometry),
            page_of: vec![NOWHERE; logical_pages],
            lba_of: vec![NOWHERE; pages],
            valid: vec![0; superblocks as usize],
            closed: vec![false; superblocks as usize],
            erased_at: vec![Time::ZERO; superblocks as usize],
            free: (0..superblocks).rev().collect(),
            host: front,
            moved: front,
            low_water: reserved as usize - 1,
            victim: None,
            moved_until: Time::ZERO,
            written: (0, 0),
            scratch: Vec::with_capacity(256),
            geometry,
        })
    }

    /// Puts every logical page on flash in order, in no time.
    pub fn fill_at_once(&mut self) {
        for (lba, page) in self.page_of.iter_mut().enumerate() {
            *page = u32::try_from(lba).expect("as many as pages");
        }
    }

    /// Pages that the host sees.
    pub fn logical_pages(&self) -> u32 {
        u32::try_from(self.page_of.len()).expect("fewer than pages on flash")
    }

    /// Pages written by the host, and pages programmed for both streams.
    pub fn written(&self) -> (u64, u64) {
        self.written
    }

    /// Bytes of the whole SSD, spare ones included.
    pub fn physical_bytes(&self) -> u64 {
        self.geometry.pages() * u64::from(PAGE_BYTES)
    }

    /// A read command at `now`; when it is done.
    pub fn read(&mut self, now: Time, first: u32, blocks: u32) -> Time {
        let accepted = self.timing.accept_read(now);
        let mapped = &self.page_of[first as usize..(first + blocks) as usize];
        self.scratch.clear();
        self.scratch.extend(mapped.iter().filter(|page| **page != NOWHERE).map(|page| Ppa(*page)));
        let zeros = blocks - u32::try_from(self.scratch.len()).expect("a command's blocks");
        self.timing.read(accepted, &self.scratch, zeros)
    }

    /// A write command at `now`; when it is done.
    pub fn write(&mut self, now: Time, first: u32, blocks: u32) -> Time {
        let accepted = self.timing.accept_write(now);
        let done = self.timing.buffer(accepted, blocks);
        for lba in first..first + blocks {
            self.pay(done);
            self.unmap(lba);
            self.place(Stream::Host, lba, done);
            self.written.0 += 1;
        }
        done
    }

    fn unmap(&mut self, lba: u32) {
        let page = std::mem::replace(&mut self.page_of[lba as usize], NOWHERE);
        if page != NOWHERE {
            self.lba_of[page as usize] = NOWHERE;
            self.valid[(page / self.geometry.superblock_pages()) as usize] -= 1;
        }
    }

    /// The next page of a stream gets this block; a full unit is programmed.
    fn place(&mut self, stream: Stream, lba: u32, ready: Time) {
        let mut front = if stream == Stream::Host { self.host } else { self.moved };
        if front.next == front.end {
            front = self.open(front);
        }
        let page = front.next;
        self.page_of[lba as usize] = page;
        self.lba_of[page as usize] = lba;
        self.valid[(page / self.geometry.superblock_pages()) as usize] += 1;
        front.next += 1;
        front.ready = front.ready.max(ready);
        if front.next.is_multiple_of(self.geometry.unit_pages()) {
            let programmed = self.timing.program(front.ready, self.geometry.unit_of(Ppa(page)), stream);
            if stream == Stream::Collect {
                self.moved_until = self.moved_until.max(programmed);
            }
            self.written.1 += u64::from(self.geometry.unit_pages());
            front.ready = front.erased;
        }
        *(if stream == Stream::Host { &mut self.host } else { &mut self.moved }) = front;
    }

    fn open(&mut self, full: Front) -> Front {
        if let Some(last) = full.end.checked_sub(1) {
            self.closed[(last / self.geometry.superblock_pages()) as usize] = true;
        }
        let superblock = self.free.pop().expect("collection keeps a superblock free");
        let next = superblock * self.geometry.superblock_pages();
        let erased = self.erased_at[superblock as usize];
        Front { next, end: next + self.geometry.superblock_pages(), ready: erased, erased }
    }

    /// Makes the host pay for one page: it collects the page's share of the victim.
    fn pay(&mut self, now: Time) {
        if self.free.len() >= self.low_water {
            return;
        }
        let mut victim = match self.victim.take() {
            Some(victim) => victim,
            None => self.choose(),
        };
        victim.owed += victim.valid;
        // Without a free superblock the victim is emptied at any cost, before the host takes the pages that
        // collection needs.
        let urgent = self.free.is_empty() && self.host.next == self.host.end;
        while victim.unit < self.geometry.superblock_units() {
            let pages = self.valid_pages_of(&victim);
            let price = pages * victim.invalid;
            if victim.owed < price && !urgent {
                break;
            }
            victim.owed = victim.owed.saturating_sub(price);
            if pages > 0 {
                self.empty_unit(now);
            }
            victim.unit += 1;
        }
        if victim.unit == self.geometry.superblock_units() {
            self.erase(victim.superblock);
        } else {
            self.victim = Some(victim);
        }
    }

    fn choose(&mut self) -> Victim {
        let all = 0..self.geometry.superblocks();
        let closed = all.filter(|superblock| self.closed[*superblock as usize]);
        let superblock =
            closed.min_by_key(|superblock| self.valid[*superblock as usize]).expect("one is closed");
        self.closed[superblock as usize] = false;
        let valid = u64::from(self.valid[superblock as usize]);
        let invalid = u64::from(self.geometry.superblock_pages()) - valid;
        Victim { superblock, valid, invalid: invalid.max(1), unit: 0, owed: 0 }
    }

    /// Puts the valid pages of the victim's next unit into the scratch list; how many there are.
    fn valid_pages_of(&mut self, victim: &Victim) -> u64 {
        let unit = self.geometry.first_unit(Superblock(victim.superblock)).0 + victim.unit;
        let first = self.geometry.first_page(Unit(unit)).0;
        let pages =
            (first..first + self.geometry.unit_pages()).filter(|page| self.lba_of[*page as usize] != NOWHERE);
        self.scratch.clear();
        self.scratch.extend(pages.map(Ppa));
        self.scratch.len() as u64
    }

    fn empty_unit(&mut self, now: Time) {
        let pages = std::mem::take(&mut self.scratch);
        let ready = self.timing.collect(now, &pages);
        for page in &pages {
            let lba = self.lba_of[page.0 as usize];
            self.unmap(lba);
            self.place(Stream::Collect, lba, ready);
        }
        self.scratch = pages;
    }

    fn erase(&mut self, superblock: u32) {
        // The last of its pages may still be in collection's buffer, which is as safe as the host's.
        let from = self.moved_until;
        let mut erased = from;
        for die in 0..self.geometry.dies() {
            let block = Block(superblock * self.geometry.dies() + die);
            erased = erased.max(self.timing.erase(from, block));
        }
        self.erased_at[superblock as usize] = erased;
        self.free.insert(0, superblock);
    }
}
