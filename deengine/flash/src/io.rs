// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data between frames and the file: through `io_uring` where it is permitted, else by calls that wait.

use crate::PAGE_BYTES;
use crate::file::{DataFile, IoMode};
use crate::flash::Ticket;
use crate::frames::{Frame, Frames};
use crate::geometry::{Ppa, Unit};
use crate::uring::Uring;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Once};

/// What was asked of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Job {
    Program(Unit),
    Load(Ticket),
}

/// Jobs that the ring has at once; more of them wait for the file themselves.
const SLOTS: usize = 256;

/// Pages of a file on their way.
#[derive(Debug)]
pub(crate) struct Engine {
    ring: Option<Uring>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    done: VecDeque<(Job, io::Result<()>)>,
    file: Arc<DataFile>,
    frames: Arc<Frames>,
}

#[derive(Debug)]
struct Slot {
    job: Job,
    /// Where in the file.
    at: u64,
    /// Where in the frames' region, page by page.
    pages: Vec<u64>,
}

impl Engine {
    pub(crate) fn new(file: Arc<DataFile>, frames: Arc<Frames>) -> io::Result<Self> {
        let ring = match file.io_mode() {
            IoMode::Blocking => None,
            mode => match Uring::new(Arc::clone(&file), Arc::clone(frames.region()), SLOTS) {
                Ok(ring) => Some(ring),
                Err(error) if mode == IoMode::Uring => return Err(error),
                Err(error) => {
                    static SAID: Once = Once::new();
                    SAID.call_once(|| {
                        tracing::warn!(%error, "io_uring is not to be had here: flash files are read and written by blocking calls");
                    });
                    None
                }
            },
        };
        file.enter()?;
        let slot = |_| Slot { job: Job::Program(Unit(0)), at: 0, pages: Vec::new() };
        let slots: Vec<Slot> = (0..if ring.is_some() { SLOTS } else { 1 }).map(slot).collect();
        Ok(Self { free: (0..slots.len()).collect(), slots, ring, done: VecDeque::new(), file, frames })
    }

    /// Writes a unit; pages without a frame are zeros.
    pub(crate) fn program(&mut self, unit: Unit, pages: impl Iterator<Item = Option<Frame>>) {
        let at = self.file.data_at(self.file.geometry().first_page(unit));
        let zeros = self.frames.zeros().offset;
        self.submit(Job::Program(unit), at, pages.map(|frame| frame.map_or(zeros, Frames::offset)));
    }

    /// Reads a page.
    pub(crate) fn load(&mut self, ticket: Ticket, page: Ppa, into: Frame) {
        let at = self.file.data_at(page);
        self.submit(Job::Load(ticket), at, std::iter::once(Frames::offset(into)));
    }

    fn submit(&mut self, job: Job, at: u64, pages: impl Iterator<Item = u64>) {
        let slot_number = loop {
            match self.free.pop() {
                Some(slot) => break slot,
                None => self.wait(),
            }
        };
        let slot = &mut self.slots[slot_number];
        (slot.job, slot.at) = (job, at);
        slot.pages.clear();
        slot.pages.extend(pages);
        match &mut self.ring {
            Some(ring) => ring.submit(slot_number, matches!(job, Job::Program(_)), at, &slot.pages),
            None => self.end(slot_number, None),
        }
    }

    /// Takes in what the ring has done.
    pub(crate) fn reap(&mut self) {
        while let Some((slot, result)) = self.ring.as_mut().and_then(Uring::next) {
            self.end(slot, Some(result));
        }
    }

    /// A job that ended.
    pub(crate) fn next_done(&mut self) -> Option<(Job, io::Result<()>)> {
        self.done.pop_front()
    }

    /// Waits until nothing is under way, and forgets what has ended.
    pub(crate) fn drain(&mut self) {
        while self.free.len() < self.slots.len() {
            self.wait();
        }
        self.done.clear();
    }

    fn wait(&mut self) {
        if let Some(ring) = &mut self.ring {
            ring.wait();
        }
        self.reap();
    }

    /// A job has ended in the ring with a number of bytes or an error, or was never there.
    fn end(&mut self, slot_number: usize, result: Option<i32>) {
        let slot = &self.slots[slot_number];
        let bytes = slot.pages.len() * PAGE_BYTES as usize;
        let whole = result.is_some_and(|moved| usize::try_from(moved) == Ok(bytes));
        // What the ring did not do or did in part is done again, and what is wrong with it is said by the second call.
        let result = if whole { Ok(()) } else { self.block_on(slot) };
        self.done.push_back((slot.job, result));
        self.free.push(slot_number);
    }

    fn block_on(&self, slot: &Slot) -> io::Result<()> {
        let (region, all) = (self.frames.region(), PAGE_BYTES as usize);
        for (at, &page) in (slot.at..).step_by(all).zip(&slot.pages) {
            match slot.job {
                Job::Program(_) => region.write_file(page, all, self.file.data(), at)?,
                Job::Load(_) => region.read_file(page, all, self.file.data(), at)?,
            }
        }
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.drain();
        self.file.leave();
    }
}
