// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judged commands: a worker may carry them out alone, and they wait only for the modelled firmware's time.

use super::read::Read;
use super::worker::Worker;
use gnstor_base::region::LocalRef;
use gnstor_base::time::{Span, Time};
use gnstor_flash::Ppa;

/// The judged commands of a worker, until they are booked with the model.
#[derive(Debug, Default)]
pub(super) struct JudgedCommands {
    list: Vec<Judged>,
    /// The data of the reads in `list`, in order.
    found: Vec<Found>,
}

#[derive(Debug)]
struct Judged {
    arrived: Time,
    what: What,
}

#[derive(Debug)]
enum What {
    Read(Read),
    /// A write, by its number.
    Write(u32),
}

/// The data of a block: its page, its place in memory, its sum.
pub(super) type Found = (Option<Ppa>, LocalRef, u32);

impl JudgedCommands {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Adds a read whose data [`Self::keep_found`] got last.
    #[inline]
    pub(super) fn add_read(&mut self, arrived: Time, read: Read) {
        self.list.push(Judged { arrived, what: What::Read(read) });
    }

    #[inline]
    pub(super) fn add_write(&mut self, arrived: Time, id: u32) {
        self.list.push(Judged { arrived, what: What::Write(id) });
    }

    /// The data found for the reads so far. [`Self::keep_found`] takes it back with more.
    #[inline]
    pub(super) fn take_found(&mut self) -> Vec<Found> {
        std::mem::take(&mut self.found)
    }

    #[inline]
    pub(super) fn keep_found(&mut self, found: Vec<Found>) {
        self.found = found;
    }
}

impl Worker {
    /// Books the judged commands with the modelled firmware, one after the other.
    #[inline]
    pub(super) fn book_judged(&mut self, now: Time) {
        if self.judged.list.is_empty() {
            return;
        }
        let mut judged = std::mem::take(&mut self.judged.list);
        self.book(&mut judged);
        let mut found = self.judged.take_found();
        let mut blocks = found.drain(..);
        for Judged { what, .. } in judged.drain(..) {
            match what {
                What::Write(id) => self.go_on(id),
                What::Read(read) => self.send(now, read, &mut blocks),
            }
        }
        drop(blocks);
        self.judged = JudgedCommands { list: judged, found };
    }

    /// Books all of these commands in one hold of the model's lock.
    #[inline]
    fn book(&mut self, judged: &mut [Judged]) {
        let mut bookings = self.shared.ftl().bookings();
        if judged.len() > 1 {
            let pages = judged.iter().flat_map(|Judged { what, .. }| match what {
                What::Read(read) => read.pages(),
                What::Write(_) => &[],
            });
            pages.for_each(|&page| bookings.announce(page));
        }
        let mut busy = Span::ZERO;
        for Judged { arrived, what } in judged {
            let booked = match what {
                What::Read(read) => bookings.read(*arrived, read.pages(), read.unmapped()),
                What::Write(_) => bookings.write(*arrived),
            };
            match what {
                What::Read(read) => read.book(booked.done),
                What::Write(id) => self.writes.accept(*id, booked.done),
            }
            busy = busy + booked.busy;
        }
        drop(bookings);
        self.state().add_busy(busy);
    }

    /// Books a write with the modelled firmware.
    pub(super) fn book_write(&mut self, id: u32, arrived: Time) {
        self.judged.add_write(arrived, id);
        self.book_judged(self.now);
    }
}
