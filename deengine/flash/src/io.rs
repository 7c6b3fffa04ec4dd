// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data between frames and the file: through `io_uring` where it is permitted, else by blocking calls.
//!
//! A write to a full disk has not failed, and no block goes bad for it. It is *held*, and repeated until
//! there is room. Callers that wait for its unit wait until then.

use crate::PAGE_BYTES;
use crate::file::{DataFile, Entered, IoMode, is_full};
use crate::frames::{Frame, Frames};
use crate::geometry::{Ppa, Unit};
use crate::types::Ticket;
use crate::uring::Uring;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Once};

/// A request to the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Job {
    Program(Unit),
    Load(Ticket),
}

/// Jobs that the ring has at once; more of them wait for a slot.
const SLOTS: usize = 256;

/// Pages of a file on their way.
#[derive(Debug)]
pub(crate) struct Engine {
    ring: Option<Uring>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Requests that wait for a slot.
    waiting: VecDeque<Slot>,
    done: VecDeque<(Job, io::Result<()>)>,
    held: VecDeque<Slot>,
    /// Looks until the first held write is tried again, and how many there were the last time. The second
    /// number is 0 if no write was held since all writes ended well.
    looks: (u32, u32),
    /// Requests that a blocking call carried out.
    #[cfg(test)]
    blocking: std::cell::Cell<u32>,
    file: Arc<DataFile>,
    frames: Arc<Frames>,
    _entered: Entered,
}

/// Longest pause between two tries on a full disk. Callers look every few milliseconds while a write is held.
const MOST_LOOKS: u32 = 64;

#[derive(Debug)]
struct Slot {
    job: Job,
    /// Offset in the file.
    at: u64,
    /// Offset of each page in the frames' region.
    pages: Vec<u64>,
}

impl Engine {
    pub(crate) fn new(file: Arc<DataFile>, entered: Entered, frames: Arc<Frames>) -> io::Result<Self> {
        let ring = match file.io_mode() {
            IoMode::Blocking => None,
            mode => match Uring::new(Arc::clone(&file), Arc::clone(frames.region()), SLOTS) {
                Ok(ring) => Some(ring),
                Err(error) if mode == IoMode::Uring => return Err(error),
                Err(error) => {
                    static SAID: Once = Once::new();
                    SAID.call_once(|| {
                        tracing::warn!(%error, "io_uring is not to be had here: flash files are read and \
                            written by blocking calls");
                    });
                    None
                }
            },
        };
        let path = file.path().display();
        match &ring {
            Some(_) => tracing::info!(%path, "flash data is read and written through io_uring"),
            None => tracing::info!(%path, "flash data is read and written by blocking calls"),
        }
        let slot = |_| Slot { job: Job::Program(Unit(0)), at: 0, pages: Vec::new() };
        let slots: Vec<Slot> = (0..if ring.is_some() { SLOTS } else { 1 }).map(slot).collect();
        let (free, waiting) = ((0..slots.len()).collect(), VecDeque::new());
        let (done, held) = (VecDeque::new(), VecDeque::new());
        Ok(Self {
            ring,
            slots,
            free,
            waiting,
            done,
            held,
            looks: (0, 0),
            #[cfg(test)]
            blocking: std::cell::Cell::new(0),
            file,
            frames,
            _entered: entered,
        })
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
        let Some(slot_number) = self.free.pop() else {
            // Waiting here would make the caller wait for a slow disk.
            return self.waiting.push_back(Slot { job, at, pages: pages.collect() });
        };
        let slot = &mut self.slots[slot_number];
        (slot.job, slot.at) = (job, at);
        slot.pages.clear();
        slot.pages.extend(pages);
        self.start(slot_number);
    }

    fn start(&mut self, slot_number: usize) {
        let Slot { job, at, pages } = &self.slots[slot_number];
        match &mut self.ring {
            Some(ring) => ring.submit(slot_number, matches!(job, Job::Program(_)), *at, pages),
            None => self.end(slot_number, None),
        }
    }

    /// Takes completions from the ring.
    pub(crate) fn reap(&mut self) {
        while let Some((slot, result)) = self.ring.as_mut().and_then(Uring::next) {
            self.end(slot, Some(result));
        }
        self.try_held();
    }

    /// Whether a write waits for room on the disk.
    pub(crate) fn is_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether the data is read and written through the ring.
    #[cfg(test)]
    pub(crate) fn has_ring(&self) -> bool {
        self.ring.is_some()
    }

    /// Requests that a blocking call carried out.
    #[cfg(test)]
    pub(crate) fn blocking(&self) -> u32 {
        self.blocking.get()
    }

    /// Tries the first held write again, less and less often. If it finds room, the others are written like
    /// any new write: a caller waits for one write at most.
    fn try_held(&mut self) {
        if self.held.is_empty() {
            if self.looks.1 > 0 && self.free.len() == self.slots.len() {
                self.looks = (0, 0);
                let path = self.file.path().display();
                tracing::info!(%path, "there is room again: held flash data is written");
            }
            return;
        }
        if self.looks.0 > 0 {
            self.looks.0 -= 1;
            return;
        }
        let Some(slot) = self.held.pop_front() else { return };
        match self.block_on(&slot) {
            Err(error) if is_full(&error) => {
                self.held.push_front(slot);
                let looks = (self.looks.1 * 2).clamp(1, MOST_LOOKS);
                self.looks = (looks, looks);
            }
            result => {
                self.done.push_back((slot.job, result));
                self.looks = (0, self.looks.1.max(1));
                for Slot { job, at, pages } in std::mem::take(&mut self.held) {
                    self.submit(job, at, pages.into_iter());
                }
            }
        }
    }

    /// A job that ended.
    pub(crate) fn next_done(&mut self) -> Option<(Job, io::Result<()>)> {
        self.done.pop_front()
    }

    /// Waits until no request is pending, and drops completed and held requests.
    pub(crate) fn drain(&mut self) {
        self.waiting.clear();
        while self.free.len() < self.slots.len() {
            self.wait();
        }
        self.done.clear();
        self.held.clear();
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
        let is_first = self.held.is_empty() && self.looks.1 == 0;
        let bytes = slot.pages.len() * PAGE_BYTES as usize;
        let whole = result.is_some_and(|moved| usize::try_from(moved) == Ok(bytes));
        // A request that the ring did not complete, or only in part, is repeated by a call, which also
        // returns the error.
        let result = if whole { Ok(()) } else { self.block_on(slot) };
        match result {
            Err(error) if is_full(&error) && matches!(slot.job, Job::Program(_)) => {
                if is_first {
                    tracing::error!(
                        path = %self.file.path().display(), %error,
                        "no room for flash data of a sparse file: writes wait; make room on its file system"
                    );
                }
                self.held.push_back(Slot { job: slot.job, at: slot.at, pages: slot.pages.clone() });
            }
            result => self.done.push_back((slot.job, result)),
        }
        match self.waiting.pop_front() {
            None => self.free.push(slot_number),
            Some(next) => {
                self.slots[slot_number] = next;
                self.start(slot_number);
            }
        }
    }

    fn block_on(&self, slot: &Slot) -> io::Result<()> {
        #[cfg(test)]
        self.blocking.set(self.blocking.get() + 1);
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
    }
}
