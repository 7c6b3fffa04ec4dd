// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data between frames and the file: through `io_uring` where it is permitted, else by blocking calls.
//!
//! A write to a full disk has not failed, and no block goes bad for it. It is *held*, and repeated until
//! there is room. Callers that wait for its unit wait until then.
//!
//! With a ring no call waits for the disk. The rest of a request that ended in part goes through the ring at
//! a later look, and so does the first held write. The other held writes follow when it has found room.

use crate::PAGE_BYTES;
use crate::file::{DataFile, Entered, IoMode, is_full};
use crate::frames::{Frame, Frames};
use crate::geometry::{Ppa, Unit};
use crate::types::Ticket;
use crate::uring::{Transfer, Uring};
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
    /// Slots whose request did not end well, and the looks until its rest goes to the ring.
    again: Vec<(usize, u32)>,
    held: VecDeque<Slot>,
    /// The slot with the held write that the ring tries now.
    trying: Option<usize>,
    /// Looks until the first held write is tried again, and how many there were the last time. The second
    /// number is 0 if no write was held since all writes ended well.
    looks: (u32, u32),
    /// Requests that a blocking call carried out.
    #[cfg(test)]
    blocking: std::cell::Cell<u32>,
    /// What the next requests of the ring return, in place of their own results.
    #[cfg(test)]
    pub(crate) bent: VecDeque<i32>,
    file: Arc<DataFile>,
    frames: Arc<Frames>,
    _entered: Entered,
}

/// Longest pause between two tries on a full disk. Callers look every few milliseconds while a write is held.
const MOST_LOOKS: u32 = 64;
/// Tries of a request that the kernel puts off. It says so of no file in practice.
const PUT_OFF_TRIES: u32 = 1000;
/// Tries of a request that fails otherwise. A worker of the kernel begins all but the first.
const TRIES: u32 = 3;

#[derive(Debug)]
struct Slot {
    job: Job,
    /// Offset in the file.
    at: u64,
    /// Offset of each page in the frames' region.
    pages: Vec<u64>,
    /// Pages that earlier tries have moved.
    moved: usize,
    /// Tries since then that moved none.
    tries: u32,
}

impl Slot {
    fn new(job: Job, at: u64, pages: Vec<u64>) -> Self {
        Self { job, at, pages, moved: 0, tries: 0 }
    }

    /// The result of a request of the ring, or `None` if its rest is to be tried again.
    fn judge(&mut self, result: i32) -> Option<io::Result<()>> {
        let left = self.pages.len() - self.moved;
        // Direct I/O begins at a page. A page of which a part was moved is moved again.
        let error = match usize::try_from(result).map(|bytes| bytes / PAGE_BYTES as usize) {
            Ok(moved) if moved == left => return Some(Ok(())),
            Ok(0) if matches!(self.job, Job::Program(_)) => io::ErrorKind::WriteZero.into(),
            Ok(0) => io::ErrorKind::UnexpectedEof.into(),
            Ok(moved) => {
                (self.moved, self.tries) = (self.moved + moved, 0);
                return None;
            }
            Err(_) => io::Error::from_raw_os_error(-result),
        };
        self.tries += 1;
        let most = match () {
            () if is_put_off(&error) => PUT_OFF_TRIES,
            () if is_full(&error) => 0,
            () => TRIES,
        };
        (self.tries >= most).then_some(Err(error))
    }
}

/// Whether the kernel had no means for a request, which says nothing about the medium.
fn is_put_off(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, OutOfMemory, WouldBlock};
    matches!(error.kind(), Interrupted | WouldBlock | OutOfMemory)
        || matches!(error.raw_os_error(), Some(libc::ECANCELED | libc::ENOBUFS))
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
        let slot = |_| Slot::new(Job::Program(Unit(0)), 0, Vec::new());
        let slots: Vec<Slot> = (0..if ring.is_some() { SLOTS } else { 1 }).map(slot).collect();
        let (free, waiting) = ((0..slots.len()).collect(), VecDeque::new());
        let (done, held) = (VecDeque::new(), VecDeque::new());
        Ok(Self {
            ring,
            slots,
            free,
            waiting,
            done,
            again: Vec::new(),
            held,
            trying: None,
            looks: (0, 0),
            #[cfg(test)]
            blocking: std::cell::Cell::new(0),
            #[cfg(test)]
            bent: VecDeque::new(),
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
            return self.waiting.push_back(Slot::new(job, at, pages.collect()));
        };
        let slot = &mut self.slots[slot_number];
        (slot.job, slot.at, slot.moved, slot.tries) = (job, at, 0, 0);
        slot.pages.clear();
        slot.pages.extend(pages);
        self.start(slot_number);
    }

    fn start(&mut self, slot_number: usize) {
        let slot = &self.slots[slot_number];
        let Some(ring) = &mut self.ring else {
            let result = self.block_on(slot);
            return self.end(slot_number, result);
        };
        let &Slot { job, at, ref pages, moved, tries } = slot;
        let (at, pages) = (at + moved as u64 * u64::from(PAGE_BYTES), &pages[moved..]);
        let (is_write, is_again) = (matches!(job, Job::Program(_)), moved > 0 || tries > 0);
        ring.submit(slot_number, &Transfer { is_write, at, pages, is_again });
    }

    /// Takes completions from the ring.
    pub(crate) fn reap(&mut self) {
        if !self.again.is_empty() {
            let due: Vec<usize> =
                self.again.extract_if(.., |(_, looks)| *looks == 0).map(|it| it.0).collect();
            self.again.iter_mut().for_each(|(_, looks)| *looks -= 1);
            due.into_iter().for_each(|slot| self.start(slot));
        }
        while let Some((slot, result)) = self.ring.as_mut().and_then(Uring::next) {
            #[cfg(test)]
            let result = self.bent.pop_front().unwrap_or(result);
            match self.slots[slot].judge(result) {
                // The kernel has put it off for long. A blocking call waits until it does not.
                Some(Err(error)) if is_put_off(&error) => {
                    let result = self.block_on(&self.slots[slot]);
                    self.end(slot, result);
                }
                Some(result) => self.end(slot, result),
                // Not at once: the ring may end the next try in this loop, too.
                None => self.again.push((slot, self.slots[slot].tries.min(MOST_LOOKS))),
            }
        }
        self.try_held();
    }

    /// Whether a held write is being written.
    pub(crate) fn is_trying(&self) -> bool {
        self.trying.is_some()
    }

    /// Whether a write waits for room on the disk.
    pub(crate) fn is_held(&self) -> bool {
        !self.held.is_empty() || self.trying.is_some()
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
    /// any new write. Without a ring a caller waits for one write at most.
    fn try_held(&mut self) {
        if self.trying.is_some() {
            return;
        }
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
        let Some(slot_number) = self.free.pop() else { return };
        let Some(slot) = self.held.pop_front() else { return self.free.push(slot_number) };
        self.slots[slot_number] = slot;
        self.trying = Some(slot_number);
        self.start(slot_number);
    }

    /// A job that ended.
    pub(crate) fn next_done(&mut self) -> Option<(Job, io::Result<()>)> {
        self.done.pop_front()
    }

    /// Waits until no request is pending, and drops completed and held requests.
    pub(crate) fn drain(&mut self) {
        self.waiting.clear();
        self.held.clear();
        self.free.extend(self.again.drain(..).map(|(slot, _)| slot));
        while let Some(ring) = self.ring.as_mut().filter(|_| self.free.len() < self.slots.len()) {
            ring.wait();
            self.free.extend(std::iter::from_fn(|| ring.next()).map(|(slot, _)| slot));
        }
        (self.trying, self.looks) = (None, (0, 0));
        self.done.clear();
    }

    /// The request of a slot has ended.
    fn end(&mut self, slot_number: usize, result: io::Result<()>) {
        let is_try = self.trying.take_if(|trying| *trying == slot_number).is_some();
        let is_first = !self.is_held() && self.looks.1 == 0 && !is_try;
        let slot = &self.slots[slot_number];
        let mut has_room = false;
        match result {
            Err(error) if is_full(&error) && matches!(slot.job, Job::Program(_)) => {
                if is_first {
                    tracing::error!(
                        path = %self.file.path().display(), %error,
                        "no room for flash data of a sparse file: writes wait; make room on its file system"
                    );
                }
                let held = Slot { pages: slot.pages.clone(), tries: 0, ..*slot };
                if is_try {
                    self.held.push_front(held);
                    let looks = (self.looks.1 * 2).clamp(1, MOST_LOOKS);
                    self.looks = (looks, looks);
                } else {
                    self.held.push_back(held);
                }
            }
            result => {
                self.done.push_back((slot.job, result));
                has_room = is_try;
            }
        }
        // A held write that is due has the next slot: else requests that wait would take every one.
        let is_for_held =
            !self.held.is_empty() && self.trying.is_none() && self.looks.0 == 0 && self.free.is_empty();
        match if is_for_held { None } else { self.waiting.pop_front() } {
            None => self.free.push(slot_number),
            Some(next) => {
                self.slots[slot_number] = next;
                self.start(slot_number);
            }
        }
        if has_room {
            self.looks = (0, self.looks.1.max(1));
            for Slot { job, at, pages, .. } in std::mem::take(&mut self.held) {
                self.submit(job, at, pages.into_iter());
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
