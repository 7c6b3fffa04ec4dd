// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The data of a page: finding it, and loading it from a file into a frame.
//!
//! ```text
//!   fetch --> has a frame? -- yes --> Here
//!               | no
//!               `--> a free frame? -- yes --> read from the file --> ended --> poll_loaded --> release
//!                          `-- no --> wait for one
//! ```

use super::{Flash, Inner, Open};
use crate::PAGE_BYTES;
use crate::frames::{Frame, Frames};
use crate::geometry::Ppa;
use crate::io::Job;
use crate::record::State;
use crate::types::{Copying, Fetch, Loaded, Ticket, Unreadable};
use gnstor_base::region::{HostRegion, LocalRef};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::Ordering;
use std::task::Poll;

/// Loads of one SSD, and frames that outlive their page's program.
#[derive(Debug, Default)]
pub(super) struct Loads {
    next: u32,
    of: HashMap<Ticket, Load>,
    /// Loads that wait for a frame.
    waiting: VecDeque<Ticket>,
    ended: VecDeque<Loaded>,
    /// Copies from the file, and how they have ended.
    copies: HashMap<Ticket, (Ppa, Option<Result<(), Unreadable>>)>,
    /// Frames of programmed pages that a reader still uses.
    lingering: Vec<(Ppa, Frame)>,
}

#[derive(Debug)]
struct Load {
    page: Ppa,
    frame: Option<Frame>,
    /// `poll_loaded` has returned it: the caller may release it.
    is_reported: bool,
}

impl Loads {
    pub(super) fn linger(&mut self, page: Ppa, frame: Frame) {
        self.lingering.push((page, frame));
    }

    /// A number that no load or copy has.
    fn ticket(&mut self) -> Ticket {
        loop {
            // Numbers repeat after 2^32 loads, and an old load may still exist.
            let ticket = Ticket(self.next);
            self.next = self.next.wrapping_add(1);
            if !self.of.contains_key(&ticket) && !self.copies.contains_key(&ticket) {
                return ticket;
            }
        }
    }

    fn end_copy(&mut self, ticket: Ticket, result: io::Result<()>) {
        if let Some((page, end)) = self.copies.get_mut(&ticket) {
            *end = Some(result.map_err(|error| {
                tracing::error!(page = page.0, %error, "reading a flash page from its file failed");
                Unreadable(*page)
            }));
        }
    }

    pub(super) fn clear(&mut self) {
        let next = self.next;
        *self = Self { next, ..Self::default() };
    }
}

impl Flash {
    /// Finds the data of a page. The caller has pinned the page, and unpins it when it no longer needs the
    /// data. The call takes no lock if the data is in a frame and no fault is injected.
    #[inline]
    pub fn fetch(&self, page: Ppa) -> Fetch {
        self.fetch_plainly(page).map_or_else(|| self.fetch_slowly(page), Fetch::Here)
    }

    /// As [`Self::fetch`]. A programmed page whose record has rotted gives nothing, also if it is in a frame.
    pub fn fetch_sound(&self, page: Ppa) -> Fetch {
        self.fetch_slowly(page)
    }

    /// As [`Self::fetch`] for the common case: the data is in a frame, and no fault must be drawn for this
    /// read. Else `None`.
    #[inline]
    pub fn fetch_plainly(&self, page: Ppa) -> Option<LocalRef> {
        if self.faults.is_armed() { None } else { self.resident(page).map(|frame| self.frames.at(frame)) }
    }

    #[inline]
    fn resident(&self, page: Ppa) -> Option<Frame> {
        self.records.resident(page).map(Frame)
    }

    #[cold]
    fn fetch_slowly(&self, page: Ppa) -> Fetch {
        if self.check_readable(page).is_err() {
            return Fetch::Unreadable;
        }
        match self.resident(page) {
            Some(frame) => Fetch::Here(self.frames.at(frame)),
            None if self.file.is_some() => self.load(page),
            None => Fetch::Unreadable,
        }
    }

    /// Applies the faults of a page that is read.
    fn check_readable(&self, page: Ppa) -> Result<(), Unreadable> {
        match self.records.state(page) {
            State::Buffered => Ok(()),
            State::Programmed if self.records.is_sound(page) => {
                if self.faults.read_fails(page) {
                    return Err(Unreadable(page));
                }
                for bit in self.faults.take_rot(page) {
                    self.flip(page, bit)?;
                }
                Ok(())
            }
            _ => Err(Unreadable(page)),
        }
    }

    /// Flips one bit of a page's data.
    fn flip(&self, page: Ppa, bit: u32) -> Result<(), Unreadable> {
        let flip_at = |region: &HostRegion, at: u64| {
            let mut byte = [0];
            region.read(at + u64::from(bit / 8), &mut byte);
            byte[0] ^= 1 << (bit % 8);
            region.write(at + u64::from(bit / 8), &byte);
        };
        if let Some(file) = &self.file {
            let all = PAGE_BYTES as usize;
            let rotted = HostRegion::alloc(all).and_then(|region| {
                region.read_file(0, all, file.data(), file.data_at(page))?;
                flip_at(&region, 0);
                region.write_file(0, all, file.data(), file.data_at(page))
            });
            rotted.map_err(|_| Unreadable(page))?;
        }
        if let Some(frame) = self.resident(page) {
            flip_at(self.frames.region(), Frames::offset(frame));
        }
        Ok(())
    }

    fn load(&self, page: Ppa) -> Fetch {
        let mut inner = self.lock();
        let loads = &mut inner.loads;
        let ticket = loads.ticket();
        loads.of.insert(ticket, Load { page, frame: None, is_reported: false });
        loads.waiting.push_back(ticket);
        self.pending.fetch_add(1, Ordering::Relaxed);
        self.start_loads(&mut inner);
        Fetch::Loading(ticket)
    }

    fn start_loads(&self, inner: &mut Inner) {
        while let Some(&ticket) = inner.loads.waiting.front() {
            let Some(frame) = self.frames.take(0) else { return };
            inner.loads.waiting.pop_front();
            match (inner.loads.of.get_mut(&ticket), &mut inner.engine) {
                (Some(load), Some(engine)) => {
                    load.frame = Some(frame);
                    engine.load(ticket, load.page, frame);
                }
                _ => self.frames.give(frame),
            }
        }
    }

    /// Takes a load that has ended, if any. On file media this call also advances loads and programs. Call it
    /// while any of them is pending.
    pub fn poll_loaded(&self) -> Option<Loaded> {
        if self.pending.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut inner = self.lock();
        self.pump(&mut inner);
        let loaded = inner.loads.ended.pop_front()?;
        self.pending.fetch_sub(1, Ordering::Relaxed);
        if let Some(load) = inner.loads.of.get_mut(&loaded.ticket) {
            load.is_reported = true;
        }
        Some(loaded)
    }

    /// The mover is done with a loaded frame. A ticket that is over, or that `poll_loaded` has not returned,
    /// is ignored.
    pub fn release(&self, ticket: Ticket) {
        let mut inner = self.lock();
        if !inner.loads.of.get(&ticket).is_some_and(|load| load.is_reported) {
            return;
        }
        if let Some(frame) = inner.loads.of.remove(&ticket).and_then(|load| load.frame) {
            self.frames.give(frame);
        }
        self.start_loads(&mut inner);
    }

    /// Takes results from the medium.
    pub(super) fn pump(&self, inner: &mut Inner) {
        let Inner { open, loads, engine: Some(engine) } = inner else { return };
        engine.reap();
        while let Some((job, result)) = engine.next_done() {
            match job {
                Job::Program(unit) => {
                    if let Err(error) = &result {
                        tracing::error!(unit = unit.0, %error, "writing a flash unit to its file failed");
                    }
                    self.pending.fetch_sub(1, Ordering::Relaxed);
                    open.insert(unit, Open::Ended { well: result.is_ok() });
                }
                Job::Load(ticket) if loads.copies.contains_key(&ticket) => loads.end_copy(ticket, result),
                Job::Load(ticket) => {
                    let Some(&Load { page, frame: Some(frame), .. }) = loads.of.get(&ticket) else {
                        continue;
                    };
                    let result = result.map(|()| self.frames.at(frame)).map_err(|error| {
                        tracing::error!(page = page.0, %error, "reading a flash page from its file failed");
                        loads.of.remove(&ticket);
                        self.frames.give(frame);
                        Unreadable(page)
                    });
                    loads.ended.push_back(Loaded { ticket, result });
                }
            }
        }
        self.held.store(engine.is_held(), Ordering::Relaxed);
        self.trying.store(engine.is_trying(), Ordering::Relaxed);
        loads.lingering.retain(|&(page, frame)| {
            let read = self.records.has_pins(std::iter::once(page));
            if !read {
                self.frames.give(frame);
                self.pending.fetch_sub(1, Ordering::Relaxed);
            }
            read
        });
        self.start_loads(inner);
    }

    /// Copies the data of a page into a frame, for collection. On file media the copy may go on, and the page
    /// stays pinned meanwhile. The caller leaves the frame alone until [`Self::poll_copy`] says how it ended.
    pub fn start_copy(&self, from: Ppa, to: Frame) -> Copying {
        // The pin keeps the page's frame in place during the copy.
        self.pin(from);
        let ended = match self.check_readable(from) {
            Err(error) => Err(error),
            Ok(()) => match self.resident(from) {
                Some(frame) => {
                    let (from, to) = (Frames::offset(frame), Frames::offset(to));
                    self.frames.region().copy_within(from, to, PAGE_BYTES as usize);
                    Ok(())
                }
                None => match self.load_into(from, to) {
                    Some(ticket) => return Copying::Running(ticket),
                    None => Err(Unreadable(from)),
                },
            },
        };
        self.unpin(from);
        Copying::Ended(ended)
    }

    fn load_into(&self, page: Ppa, frame: Frame) -> Option<Ticket> {
        let mut inner = self.lock();
        let Inner { loads, engine: Some(engine), .. } = &mut *inner else { return None };
        let ticket = loads.ticket();
        loads.copies.insert(ticket, (page, None));
        self.pending.fetch_add(1, Ordering::Relaxed);
        engine.load(ticket, page, frame);
        Some(ticket)
    }

    /// Whether a copy has ended, and how. It says so once. Without power a copy stays pending for ever.
    pub fn poll_copy(&self, ticket: Ticket) -> Poll<Result<(), Unreadable>> {
        let mut inner = self.lock();
        self.pump(&mut inner);
        let Some((_, Some(_))) = inner.loads.copies.get(&ticket) else { return Poll::Pending };
        match inner.loads.copies.remove(&ticket) {
            Some((page, Some(result))) => {
                self.pending.fetch_sub(1, Ordering::Relaxed);
                self.unpin(page);
                Poll::Ready(result)
            }
            _ => Poll::Pending,
        }
    }

    /// Copies the data of a page into a frame. On file media it waits for the file, where the page is in no
    /// frame.
    ///
    /// # Errors
    /// If the page cannot be read.
    pub fn copy(&self, from: Ppa, to: Frame) -> Result<(), Unreadable> {
        // The pin keeps the page's frame in place during the copy.
        self.pin(from);
        let copied = self.copy_pinned(from, to);
        self.unpin(from);
        copied
    }

    fn copy_pinned(&self, from: Ppa, to: Frame) -> Result<(), Unreadable> {
        self.check_readable(from)?;
        let (to, all) = (Frames::offset(to), PAGE_BYTES as usize);
        if let Some(frame) = self.resident(from) {
            self.frames.region().copy_within(Frames::offset(frame), to, all);
            return Ok(());
        }
        let file = self.file.as_ref().ok_or(Unreadable(from))?;
        self.frames.region().read_file(to, all, file.data(), file.data_at(from)).map_err(|error| {
            tracing::error!(page = from.0, %error, "reading a flash page from its file failed");
            Unreadable(from)
        })
    }
}
