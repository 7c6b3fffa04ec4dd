// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way of a page from erased to programmed and back, and the rules of NAND on it.

use super::{Flash, Inner};
use crate::frames::Frame;
use crate::geometry::{Block, Ppa, Unit};
use crate::power::Step;
use crate::record::{Oob, State};
use crate::types::{NotErased, ProgramFailed};
use gnstor_proto::placement::mix64;
use std::sync::atomic::Ordering;
use std::task::Poll;

/// Times that other threads get to run before an erase is put off. The caller holds a lock meanwhile.
const PATIENCE: u32 = 1 << 8;

/// A unit between its first page and its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Open {
    /// Pages are placed.
    Filling,
    /// On its way to the file.
    Started,
    /// The medium has taken it, or refused it.
    Ended { well: bool },
    /// The program failed, and the caller knows.
    Failed,
}

impl Flash {
    /// A page takes the data of `frame`, and the frame with it: the page is buffered from now on. Without
    /// power nothing happens.
    ///
    /// # Panics
    /// If this breaks a rule of NAND: the page is not erased, or the page before it in the unit is. Or the
    /// block is bad, or a later row of the block was programmed.
    pub fn place(&self, page: Ppa, frame: Frame, oob: &Oob) {
        if self.open_page(page) {
            // This comes before the record, because a restart looks for the data in the frame that the owner
            // word names.
            if let Some(kept) = &self.kept {
                kept.own(frame.0, page.0);
            }
            self.records.place(page, frame.0, oob);
        }
    }

    /// A page gets nothing, so that its unit can be programmed.
    ///
    /// # Panics
    /// As [`Self::place`].
    pub fn pad(&self, page: Ppa) {
        if self.open_page(page) {
            self.records.pad(page);
        }
    }

    /// Checks that a page may be placed now; false where the power is off.
    fn open_page(&self, page: Ppa) -> bool {
        if self.power.is_cut() {
            return false;
        }
        let unit = self.geometry.unit_of(page);
        let state = self.records.state(page);
        assert_eq!(state, State::Erased, "{page:?} is used again before its block was erased");
        if page == self.geometry.first_page(unit) {
            let block = self.geometry.block_of(unit);
            assert!(!self.is_bad(block), "{page:?} is on {block:?}, which is bad");
            let (row, next) = (self.geometry.row_of(unit), self.next_row(block));
            assert!(
                row >= next,
                "{page:?} is in row {row} of {block:?}, of which row {next} is the next to program"
            );
            let before = self.lock().open.insert(unit, Open::Filling);
            assert_eq!(before, None, "{unit:?} is opened twice");
        } else {
            let before = self.records.state(Ppa(page.0 - 1));
            assert!(
                matches!(before, State::Buffered | State::Pad),
                "{page:?} is used before the one in front of it"
            );
        }
        true
    }

    /// Begins to program a unit. Without power nothing happens.
    ///
    /// # Panics
    /// If a page of the unit is neither placed nor padded, the unit was started before, or a later row of the
    /// block was.
    pub fn start_program(&self, unit: Unit) {
        if self.power.is_cut() {
            return;
        }
        for page in self.geometry.pages_of(unit) {
            let state = self.records.state(page);
            assert!(
                matches!(state, State::Buffered | State::Pad),
                "{unit:?} is programmed with {page:?} {state:?}"
            );
        }
        let (block, row) = (self.geometry.block_of(unit), self.geometry.row_of(unit));
        let next = self.next_row(block);
        assert!(
            row >= next,
            "{unit:?} is in row {row} of {block:?}, of which row {next} is the next to program"
        );
        let mut inner = self.lock();
        let inner = &mut *inner;
        let open = inner.open.get_mut(&unit);
        let open = open.filter(|open| **open == Open::Filling).expect("a unit is programmed once");
        self.set_next_row(block, row + 1);
        *open = if self.faults.program_fails(unit) {
            Open::Ended { well: false }
        } else if let Some(engine) = &mut inner.engine {
            engine
                .program(unit, self.geometry.pages_of(unit).map(|page| self.records.frame(page).map(Frame)));
            self.pending.fetch_add(1, Ordering::Relaxed);
            Open::Started
        } else {
            Open::Ended { well: true }
        };
    }

    /// Whether the unit is programmed: ready when its pages are durable, or when the program has failed.
    /// Without power it stays pending for ever.
    ///
    /// # Errors
    /// When the program failed.
    ///
    /// # Panics
    /// If the unit was not started.
    pub fn finish_program(&self, unit: Unit) -> Poll<Result<(), ProgramFailed>> {
        if self.power.is_cut() {
            return Poll::Pending;
        }
        let mut inner = self.lock();
        self.pump(&mut inner);
        let failed = ProgramFailed { unit, block: self.geometry.block_of(unit) };
        match inner.open.get(&unit) {
            Some(Open::Started) => Poll::Pending,
            Some(Open::Ended { well: true }) => match self.power.step() {
                Step::Whole => {
                    inner.open.remove(&unit);
                    self.complete(&mut inner, unit);
                    Poll::Ready(Ok(()))
                }
                Step::Torn(seed) => {
                    inner.open.remove(&unit);
                    self.tear(unit, seed);
                    Poll::Pending
                }
                Step::Off => Poll::Pending,
            },
            Some(Open::Ended { well: false } | Open::Failed) => {
                inner.open.insert(unit, Open::Failed);
                Poll::Ready(Err(failed))
            }
            Some(Open::Filling) | None => panic!("{unit:?} is finished without a start"),
        }
    }

    /// All pages of a unit are durable.
    fn complete(&self, inner: &mut Inner, unit: Unit) {
        for page in self.geometry.pages_of(unit) {
            match self.records.state(page) {
                State::Pad => self.records.set_state(page, State::Padding),
                _ => self.records.set_state(page, State::Programmed),
            }
            if self.file.is_some()
                && let Some(frame) = self.records.take_frame(page).map(Frame)
            {
                // A reader that got `Here` continues with the frame; later readers load the page.
                if self.records.has_pins(std::iter::once(page)) {
                    inner.loads.linger(page, frame);
                    self.pending.fetch_add(1, Ordering::Relaxed);
                } else {
                    self.frames.give(frame);
                }
            }
        }
        self.note_change();
    }

    /// Notes that records have changed: the file must be synced before the system area names them.
    fn note_change(&self) {
        if let Some(file) = &self.file {
            file.note_change();
        }
    }

    /// The power failed while the unit was being programmed. Its first pages may be complete, and some others
    /// are damaged.
    pub(super) fn tear(&self, unit: Unit, seed: u64) {
        let whole = seed % (u64::from(self.geometry.unit_pages()) + 1);
        for (slot, page) in (0..).zip(self.geometry.pages_of(unit)) {
            let dice = mix64(seed ^ mix64(slot));
            if slot < whole {
                let padding = self.records.state(page) == State::Pad;
                self.records.set_state(page, if padding { State::Padding } else { State::Programmed });
            } else if dice.is_multiple_of(2) {
                self.records.damage(page, dice >> 1);
                self.records.take_frame(page);
            } else {
                self.records.erase(page);
            }
        }
    }

    /// Erases a block: its pages can be placed again, and its frames are free. A bad block loses its data.
    /// Without power the call does nothing.
    ///
    /// # Errors
    /// If the erase failed; then all pages of the block are damaged. Or if a page stays pinned; then nothing
    /// has changed.
    ///
    /// # Panics
    /// If a page is buffered although no program of it has failed.
    pub fn erase(&self, block: Block) -> Result<(), NotErased> {
        if self.power.is_cut() {
            return Ok(());
        }
        if !self.is_left_by_readers(block) {
            return Err(NotErased::Pinned(block));
        }
        let mut inner = self.lock();
        let mut rows = self.next_row(block);
        for (row, unit) in (0..).zip(self.geometry.units_of(block)) {
            match inner.open.get(&unit) {
                None => continue,
                Some(Open::Failed) => rows = rows.max(row + 1),
                Some(open) => panic!("{block:?} is erased while {unit:?} is {open:?}"),
            }
            inner.open.remove(&unit);
        }
        let units = self.geometry.units_of(block).take(rows as usize);
        let pages = units.flat_map(|unit| self.geometry.pages_of(unit));
        if self.faults.erase_fails(block, |page| self.geometry.block_of(self.geometry.unit_of(page)) == block)
        {
            for page in pages {
                self.free_frame(page);
                self.records.set_state(page, State::Broken);
            }
            self.set_next_row(block, self.geometry.rows());
            self.note_change();
            return Err(NotErased::Failed(block));
        }
        match self.power.step() {
            Step::Whole => {
                // In ascending order, so that a block that a killed process left half erased never counts as
                // programmable.
                self.frames.give_all(pages.filter_map(|page| self.records.erase(page)).map(Frame));
                self.set_next_row(block, 0);
                self.note_change();
            }
            Step::Torn(seed) => self.tear_erase(pages, seed),
            Step::Off => {}
        }
        Ok(())
    }

    /// A reader that looked a page up before it was unmapped may pin it for a moment, until it has checked
    /// the map again. The moment is long if its thread loses its CPU. Returns whether no reader has a pin.
    fn is_left_by_readers(&self, block: Block) -> bool {
        for _ in 0..PATIENCE {
            if !self.is_pinned(block) {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    fn tear_erase(&self, pages: impl Iterator<Item = Ppa>, seed: u64) {
        for page in pages {
            let dice = mix64(seed ^ mix64(u64::from(page.0)));
            match dice % 3 {
                0 => {}
                1 => {
                    self.records.set_state(page, State::Broken);
                    self.records.take_frame(page);
                }
                _ => _ = self.records.erase(page),
            }
        }
    }

    fn free_frame(&self, page: Ppa) {
        if let Some(frame) = self.records.take_frame(page) {
            self.frames.give(Frame(frame));
        }
    }

    /// Rows of a block that open units reach up to.
    pub(super) fn open_rows(&self, block: Block) -> u32 {
        let inner = self.lock();
        let rows = inner.open.keys().filter(|&&unit| self.geometry.block_of(unit) == block);
        rows.map(|&unit| self.geometry.row_of(unit) + 1).max().unwrap_or(0)
    }
}
