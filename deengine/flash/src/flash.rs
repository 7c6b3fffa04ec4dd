// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pages of one SSD.
//!
//! ```text
//!              RAM media                                    file media
//!   place      the frame becomes the page's                 the frame is the page's for now
//!   program    the record says programmed                   frame -> file, then the record, frame given back
//!   fetch      Here                                         Here while it has a frame, else Loading
//!                                                           -> poll_loaded -> release
//!   erase      frame given back                             only the record changes
//! ```
//! Readers take no lock while data is in a frame. A reader pins the page, asks the map again whether the page
//! is still the right one, and uses [`Flash::key`] and [`Flash::fetch`] only then. The eraser unmaps first
//! and checks the pins afterwards.

mod cut;
mod data;
#[cfg(test)]
mod probes;
mod program;

use crate::fault::Faults;
use crate::file::mirror::Mirror;
use crate::file::{DataFile, Entered};
use crate::frames::{Frame, Frames};
use crate::geometry::{Block, Geometry, Ppa, Unit};
use crate::io::Engine;
use crate::kept::{Kept, LeftBehind};
use crate::power::Power;
use crate::record::{Oob, RECORD_BYTES, Records, State};
use crate::types::{FlashConfig, MediaConfig, PageState};
use data::Loads;
use gnstor_base::region::{HostRegion, LocalRef};
use program::Open;
use rustc_hash::FxHashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The flash of one SSD.
#[derive(Debug)]
pub struct Flash {
    geometry: Geometry,
    faults: Arc<Faults>,
    power: Arc<Power>,
    records: Records,
    frames: Arc<Frames>,
    /// Frames that only loads may take, so that a full write buffer never stops reading.
    load_frames: u32,
    file: Option<Arc<DataFile>>,
    mirror: Option<Arc<Mirror>>,
    kept: Option<Kept>,
    blocks: Box<[AtomicU64]>,
    /// Ended or running loads, running programs on file media: nothing to poll for at 0.
    pending: AtomicU64,
    /// A program waits for room on a full disk.
    held: AtomicBool,
    trying: AtomicBool,
    inner: Mutex<Inner>,
}

/// State that changes seldom enough for a lock.
#[derive(Debug)]
struct Inner {
    /// Units with a page placed and not programmed yet.
    open: FxHashMap<Unit, Open>,
    loads: Loads,
    engine: Option<Engine>,
}

/// In the word of a block: the low half is the first row that may still be programmed.
const ROW: u64 = 0xFFFF_FFFF;
/// The row is known; on file media it is looked up when it is first asked for.
const KNOWN: u64 = 1 << 32;
const BAD: u64 = 1 << 33;

/// The most frames that are kept for loads.
const LOAD_FRAMES: u32 = 64;

impl Flash {
    /// Flash over its media: erased RAM, or the contents of the file.
    ///
    /// # Errors
    /// Where the memory cannot be allocated, or the file has another geometry.
    pub fn new(config: FlashConfig) -> io::Result<Self> {
        let FlashConfig { geometry, spare_frames, media, faults, power } = config;
        let pages = geometry.pages();
        let (file, shared, owned) = match media {
            MediaConfig::Ram { shared } => (None, shared, pages),
            MediaConfig::File(file) => (Some(file), false, 0),
        };
        let entered = file.as_ref().map(Entered::new).transpose()?;
        let (records, mirror) = match &file {
            None => {
                let bytes = usize::try_from(pages * RECORD_BYTES).map_err(io::Error::other)?;
                let region = if shared { HostRegion::shared(bytes)? } else { HostRegion::alloc(bytes)? };
                (Records::new(region, 1), None)
            }
            Some(file) => {
                file.check_geometry(&geometry)?;
                let life = DataFile::new_life();
                let mirror = file.records(life)?;
                let (region, changes) = (Arc::clone(mirror.region()), Arc::clone(mirror.changes()));
                (Records::noting(region, changes, file.next_boot(life)?), Some(mirror))
            }
        };
        let count = owned + u64::from(spare_frames);
        // Without its records a page that is in memory only could not be found again.
        let outlives = mirror.as_ref().is_some_and(|mirror| mirror.outlives());
        let kept = file.as_ref().filter(|_| outlives).and_then(|file| keep(file, count, &records));
        let frames = Arc::new(match &kept {
            Some(kept) => Frames::over(count, Arc::clone(kept.frames()))?,
            None => Frames::new(count, shared)?,
        });
        let engine = file.as_ref().zip(entered);
        let engine = engine
            .map(|(file, entered)| Engine::new(Arc::clone(file), entered, Arc::clone(&frames)))
            .transpose()?;
        let known = if file.is_none() { KNOWN } else { 0 };
        let block =
            |block| AtomicU64::new(if faults.is_factory_bad(Block(block)) { known | BAD } else { known });
        let blocks = (0..geometry.blocks()).map(block).collect();
        Ok(Self {
            records,
            kept,
            load_frames: if file.is_some() { (spare_frames / 4).min(LOAD_FRAMES) } else { 0 },
            inner: Mutex::new(Inner { open: FxHashMap::default(), loads: Loads::default(), engine }),
            pending: AtomicU64::new(0),
            held: AtomicBool::new(false),
            trying: AtomicBool::new(false),
            geometry,
            faults,
            power,
            frames,
            file,
            mirror,
            blocks,
        })
    }

    /// Geometry of the SSD.
    #[inline]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The memory that [`LocalRef`]s of this flash point into, to be registered with the mover.
    pub fn regions(&self) -> Vec<Arc<HostRegion>> {
        vec![Arc::clone(self.frames.region())]
    }

    /// The memory that only the flash itself touches: the pages' records and the frames' links.
    pub fn own_memory(&self) -> impl Iterator<Item = Arc<HostRegion>> {
        [self.records.region(), self.frames.links()].into_iter().map(Arc::clone)
    }

    /// 4 KiB of zeros.
    #[inline]
    pub fn zero_page(&self) -> LocalRef {
        self.frames.zeros()
    }

    /// Takes a frame for a future page; `None` if the write buffer is full.
    #[inline]
    pub fn take_frame(&self) -> Option<Frame> {
        self.frames.take(self.load_frames)
    }

    /// Takes up to `most` frames, as [`Self::take_frame`] does.
    pub fn take_frames(&self, most: u32, each: impl FnMut(Frame)) {
        self.frames.take_some(self.load_frames, most, each);
    }

    /// Gives back a frame that was taken and not placed.
    ///
    /// # Panics
    /// If it was given back before.
    #[inline]
    pub fn give_frame(&self, frame: Frame) {
        self.frames.give(frame);
    }

    /// Gives back these frames, as [`Self::give_frame`] does.
    ///
    /// # Panics
    /// If one was given back before.
    pub fn give_frames(&self, frames: impl Iterator<Item = Frame>) {
        self.frames.give_all(frames);
    }

    /// The bytes of a frame, for the mover.
    #[inline]
    pub fn frame(&self, frame: Frame) -> LocalRef {
        self.frames.at(frame)
    }

    /// Number of frames that [`Self::take_frame`] can still give.
    #[inline]
    pub fn free_frames(&self) -> u32 {
        self.frames.free().saturating_sub(self.load_frames)
    }

    /// Copies a frame out.
    pub fn read_frame(&self, frame: Frame, out: &mut [u8; 4096]) {
        self.frames.region().read(self.frames.at(frame).offset, out);
    }

    /// Copies the bytes of a fetched page out.
    pub fn read_fetched(&self, local: LocalRef, out: &mut [u8; 4096]) {
        self.frames.region().read(local.offset, out);
    }

    /// Copies a frame in.
    pub fn write_frame(&self, frame: Frame, data: &[u8; 4096]) {
        self.frames.region().write(self.frames.at(frame).offset, data);
    }

    /// State of a page; its record is checked.
    pub fn page(&self, page: Ppa) -> PageState {
        match self.records.state(page) {
            State::Erased => PageState::Erased,
            State::Broken => PageState::Damaged,
            _ if !self.records.is_sound(page) => PageState::Damaged,
            State::Pad | State::Padding => PageState::Padding,
            State::Buffered => PageState::Buffered(self.records.oob(page)),
            State::Programmed => PageState::Programmed(self.records.oob(page)),
        }
    }

    /// Whether the record of a page is intact. A bit of it may have flipped.
    pub fn is_sound(&self, page: Ppa) -> bool {
        self.records.is_sound(page)
    }

    /// A bit of a page's record flips: one of the 320 that keep their meaning over a power cut.
    #[doc(hidden)]
    pub fn rot_record(&self, page: Ppa, bit: u32) {
        self.records.rot(page, bit);
    }

    /// Volume, generation, block and block sum of a page with data. The record is not checked: the caller got
    /// the page from the map and compares the result with the block that it looked up.
    #[inline]
    pub fn key(&self, page: Ppa) -> Option<(u16, u32, u32, u32)> {
        self.records.key(page)
    }

    /// The record of a page with data; not checked, as with [`Self::key`].
    #[inline]
    pub fn oob(&self, page: Ppa) -> Option<Oob> {
        self.records.key(page).map(|_| self.records.oob(page))
    }

    /// Asks for the page's record to be in the cache soon.
    #[inline]
    pub fn prefetch(&self, page: Ppa) {
        self.records.prefetch(page);
    }

    /// A reader pins the page: its block is not erased until [`Self::unpin`].
    #[inline]
    pub fn pin(&self, page: Ppa) {
        self.records.pin(page);
    }

    /// A reader is done with a page that it has pinned.
    ///
    /// # Panics
    /// If the page has no pin.
    #[inline]
    pub fn unpin(&self, page: Ppa) {
        self.records.unpin(page);
    }

    /// Whether any page of a block is pinned.
    pub fn is_pinned(&self, block: Block) -> bool {
        let rows = self.next_row(block).max(self.open_rows(block));
        let units = self.geometry.units_of(block).take(rows as usize);
        self.records.has_pins(units.flat_map(|unit| self.geometry.pages_of(unit)))
    }

    /// Whether a block was bad from the factory or marked bad.
    #[inline]
    pub fn is_bad(&self, block: Block) -> bool {
        self.blocks[block.0 as usize].load(Ordering::Acquire) & BAD != 0
    }

    /// Retires a block: no further page is placed on it. Its data stays readable until [`Self::erase`]. A new
    /// `Flash` does not remember it.
    pub fn mark_bad(&self, block: Block) {
        self.blocks[block.0 as usize].fetch_or(BAD, Ordering::AcqRel);
    }

    /// Blocks that were bad from the start, in ascending order. They depend only on the seed.
    pub fn factory_bad(&self) -> Vec<Block> {
        (0..self.geometry.blocks()).map(Block).filter(|&block| self.faults.is_factory_bad(block)).collect()
    }

    /// The first row of a block that can still be programmed; the number of rows where the block is full.
    pub fn next_row(&self, block: Block) -> u32 {
        let word = self.blocks[block.0 as usize].load(Ordering::Acquire);
        if word & KNOWN != 0 {
            return row(word);
        }
        let blank =
            |unit: Unit| self.geometry.pages_of(unit).all(|page| self.records.state(page) == State::Erased);
        let rows = self.geometry.rows();
        let blank_rows = self.geometry.units_of(block).rev().take_while(|&unit| blank(unit)).count();
        let first = u64::from(rows) - blank_rows as u64;
        // Another thread was faster, and its state is newer: the block may have been programmed since.
        let update = |word: u64| (word & KNOWN == 0).then_some(word & !ROW | KNOWN | first);
        match self.blocks[block.0 as usize].fetch_update(Ordering::AcqRel, Ordering::Acquire, update) {
            Ok(_) => row(first),
            Err(word) => row(word),
        }
    }

    fn set_next_row(&self, block: Block, row: u32) {
        let update = |word: u64| Some(word & !ROW | KNOWN | u64::from(row));
        _ = self.blocks[block.0 as usize].fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
    }

    /// Memory that outlives the process, if the SSD has it.
    pub fn kept(&self) -> Option<&Kept> {
        self.kept.as_ref()
    }

    /// Memory that a killed process left, if it is whole.
    pub fn left_behind(&self) -> Option<LeftBehind> {
        let was_left = self.mirror.as_ref().is_some_and(|mirror| mirror.was_left());
        let file = self.file.as_ref().filter(|_| was_left)?;
        LeftBehind::find(file).unwrap_or_else(|error| {
            tracing::warn!("memory of an earlier process is not used: {error}");
            None
        })
    }

    /// The pages that a killed process had buffered, oldest first: page, record, and frame in the memory that
    /// it left. The flash has not been written since.
    pub fn left_pages(&self, left: &LeftBehind) -> Vec<(Ppa, Oob, u32)> {
        let in_range = |page: u32| u64::from(page) < self.geometry.pages();
        let found = left.owners().filter(|&(_, page)| in_range(page)).map(|(frame, page)| (Ppa(page), frame));
        let buffered = found.filter(|&(page, frame)| self.records.left_frame(page, left.mark) == Some(frame));
        let mut pages: Vec<_> = buffered.map(|(page, frame)| (page, self.records.oob(page), frame)).collect();
        pages.sort_by_key(|(page, oob, _)| (oob.seq, *page));
        pages
    }

    /// Whether a program that waited for room is being tried again, which takes as long as the disk takes.
    #[inline]
    pub fn is_trying(&self) -> bool {
        self.trying.load(Ordering::Relaxed)
    }

    /// Whether a program waits for room on a full disk. The pages of its unit stay readable.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Flash {
    fn drop(&mut self) {
        if let (Some(file), Some(mirror)) = (&self.file, &self.mirror) {
            file.close_records(mirror, self.kept.as_ref().is_some_and(Kept::stays));
        }
    }
}

/// Memory that outlives the process. Without it a kill is a power failure.
fn keep(file: &DataFile, frames: u64, records: &Records) -> Option<Kept> {
    let kept = Kept::create(file, frames + 1, records.mark());
    kept.inspect_err(|error| {
        tracing::warn!(
            path = %file.path().display(), %error,
            "no memory that outlives this process: if it is killed, writes that were not flushed are lost"
        );
    })
    .ok()
}

fn row(word: u64) -> u32 {
    (word & ROW) as u32
}
