// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads, on any core. They take no lock except the model's, and that only if the preset takes time.

use crate::layer::Ftl;
use crate::types::Extent;
use gnstor_base::region::LocalRef;
use gnstor_base::time::{Span, Time};
use gnstor_flash::{Fetch, Loaded, PageState, Ppa, Ticket};
use gnstor_map::{Batch, Probe};
use gnstor_model::Timing;
use gnstor_proto::slba::Vid;
use parking_lot::MutexGuard;
use std::sync::atomic::Ordering;

impl Ftl {
    /// Works out where a block's slot is and asks for it, ahead of [`Self::extent_at`].
    #[inline]
    pub fn probe(&self, vid: Vid, vba: u32) -> Probe {
        self.map.probe(vid, vba)
    }

    /// Asks for the record of the page that a probe finds, ahead of [`Self::extent_at`].
    #[inline]
    pub fn prefetch_record(&self, probe: &Probe) {
        if let Some(page) = self.map.find(probe) {
            self.flash.prefetch(Ppa(page));
        }
    }

    /// Prefetches for [`Self::extent`] of blocks, as many as the batch holds. It fetches the map's buckets
    /// for all of them first, then the records of the pages found there.
    #[inline]
    pub fn announce(&self, blocks: impl IntoIterator<Item = (Vid, u32)>, batch: &mut Batch) {
        self.map.probe_batch_first(blocks, batch);
        self.map.find_batch(batch);
        for page in (0..batch.len()).filter_map(|at| batch.page(at)) {
            self.flash.prefetch(Ppa(page));
        }
    }

    /// Finds a block.
    #[inline]
    pub fn extent(&self, vid: Vid, generation: u32, vba: u32) -> Extent {
        self.extent_at(&self.map.probe(vid, vba), vid, generation, vba)
    }

    /// As [`Self::extent`], with a probe that the caller has made.
    #[inline]
    pub fn extent_at(&self, probe: &Probe, vid: Vid, generation: u32, vba: u32) -> Extent {
        let Some(mut found) = self.map.find(probe) else { return Extent::Unmapped };
        loop {
            let page = Ppa(found);
            self.flash.pin(page);
            // The pin counts only if the map names the page after it was set; see the module's doc.
            match self.map.find(probe) {
                Some(again) if again == found => {}
                Some(again) => {
                    self.flash.unpin(page);
                    found = again;
                    continue;
                }
                None => {
                    self.flash.unpin(page);
                    return Extent::Unmapped;
                }
            }
            let extent = match self.flash.key(page) {
                Some((owner, life, block, sum)) if (owner, block) == (vid.get(), vba) => {
                    if life == generation {
                        return Extent::Page(page, sum);
                    }
                    // A generation that has rotted must not make zeros of a block.
                    if self.flash.is_sound(page) { Extent::StaleGeneration } else { Extent::WrongKey }
                }
                Some(_) | None => Extent::WrongKey,
            };
            self.flash.unpin(page);
            return extent;
        }
    }

    /// A pinned page is no longer read.
    #[inline]
    pub fn unpin(&self, page: Ppa) {
        self.flash.unpin(page);
    }

    /// The bytes of a pinned page, or a load of them.
    #[inline]
    pub fn fetch(&self, page: Ppa) -> Fetch {
        self.flash.fetch(page)
    }

    /// As [`Self::fetch`] where that is plain: in memory, and without a fault to be drawn.
    #[inline]
    pub fn fetch_plainly(&self, page: Ppa) -> Option<LocalRef> {
        self.flash.fetch_plainly(page)
    }

    /// Copies the bytes of a page that [`Self::fetch`] or [`Self::poll_loaded`] has found.
    pub fn read_fetched(&self, local: LocalRef, out: &mut [u8; gnstor_flash::PAGE_BYTES as usize]) {
        self.flash.read_fetched(local, out);
    }

    /// A page that has been loaded since.
    pub fn poll_loaded(&self) -> Option<Loaded> {
        self.flash.poll_loaded()
    }

    /// Loaded bytes are no longer read.
    pub fn release(&self, ticket: Ticket) {
        self.flash.release(ticket);
    }

    /// 4 KiB of zeros.
    pub fn zero_page(&self) -> LocalRef {
        self.flash.zero_page()
    }

    /// When the model has delivered these pages and `zeros` blocks of zeros to the host.
    pub fn read_time(&self, accepted: Time, pages: &[Ppa], zeros: u32) -> Time {
        let Some(mut timing) = self.timing() else { return accepted };
        self.read_time_in(&mut timing, accepted, pages, zeros)
    }

    fn read_time_in(&self, timing: &mut Timing, accepted: Time, pages: &[Ppa], zeros: u32) -> Time {
        let buffered = |page: &Ppa| matches!(self.flash.page(*page), PageState::Buffered(_));
        if !pages.iter().any(buffered) {
            return timing.read(accepted, pages, zeros);
        }
        let on_flash: Vec<Ppa> = pages.iter().copied().filter(|page| !buffered(page)).collect();
        let fast = u32::try_from(pages.len() - on_flash.len()).expect("blocks of a command");
        timing.read(accepted, &on_flash, zeros + fast)
    }

    /// The firmware takes a read. Returns when it has been checked.
    #[inline]
    pub fn accept_read(&self, now: Time) -> Time {
        self.accept(now, Timing::accept_read)
    }

    /// The firmware takes any other I/O command. Returns when it has been checked.
    #[inline]
    pub fn accept_write(&self, now: Time) -> Time {
        self.accept(now, Timing::accept_write)
    }

    fn accept(&self, now: Time, take: impl Fn(&mut Timing, Time) -> Time) -> Time {
        let Some(mut timing) = self.timing() else { return now };
        let accepted = take(&mut timing, now);
        self.publish_free(&timing);
        accepted
    }

    /// Takes the model's lock for several bookings, so that its state comes to this core's cache once for all
    /// of them.
    #[inline]
    pub fn bookings(&self) -> Bookings<'_> {
        Bookings { ftl: self, timing: self.timing() }
    }

    /// Publishes when the firmware is free, for readers without the lock.
    fn publish_free(&self, timing: &Timing) {
        self.firmware_free.0.store(timing.firmware_free().as_ps(), Ordering::Relaxed);
    }

    /// Time at which the firmware can take the next command.
    #[inline]
    pub fn firmware_free(&self) -> Time {
        Time::from_ps(self.firmware_free.0.load(Ordering::Relaxed))
    }
}

/// Commands that the modelled firmware takes one after the other, in one hold of its lock.
#[derive(Debug)]
pub struct Bookings<'a> {
    ftl: &'a Ftl,
    /// `None` if the preset takes no time.
    timing: Option<MutexGuard<'a, Timing>>,
}

impl Bookings<'_> {
    /// Prefetches the model's state of this page's plane, ahead of [`Self::read`].
    #[inline]
    pub fn announce(&self, page: Ppa) {
        if let Some(timing) = &self.timing {
            timing.announce(page);
        }
    }

    /// The firmware takes a read of these pages and `zeros` blocks of zeros that arrived at `arrived`.
    /// Returns when the host has the data.
    #[inline]
    pub fn read(&mut self, arrived: Time, pages: &[Ppa], zeros: u32) -> Booked {
        self.book(
            arrived,
            |timing, start| timing.accept_read(start),
            |ftl, timing, accepted| ftl.read_time_in(timing, accepted, pages, zeros),
        )
    }

    /// The firmware takes a write that arrived at `arrived`; when it has been checked.
    #[inline]
    pub fn write(&mut self, arrived: Time) -> Booked {
        self.book(arrived, |timing, start| timing.accept_write(start), |_, _, accepted| accepted)
    }

    #[inline]
    fn book(
        &mut self,
        arrived: Time,
        accept: impl FnOnce(&mut Timing, Time) -> Time,
        finish: impl FnOnce(&Ftl, &mut Timing, Time) -> Time,
    ) -> Booked {
        let Some(timing) = self.timing.as_deref_mut() else {
            return Booked { busy: Span::ZERO, done: arrived };
        };
        let start = timing.firmware_free().max(arrived);
        let accepted = accept(timing, start);
        let busy = timing.firmware_free().since(start);
        Booked { busy, done: finish(self.ftl, timing, accepted) }
    }
}

impl Drop for Bookings<'_> {
    fn drop(&mut self) {
        if let Some(timing) = &self.timing {
            self.ftl.publish_free(timing);
        }
    }
}

/// Modelled times of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Booked {
    /// Time for which the firmware takes no other command.
    pub busy: Span,
    /// The host has the data; of a write, its data can be taken.
    pub done: Time,
}
