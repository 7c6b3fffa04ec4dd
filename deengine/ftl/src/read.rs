// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What readers do, on any core: no lock but the model's, and that only where the preset takes time.

use crate::layer::{Extent, Ftl};
use gnstor_fabric::region::LocalRef;
use gnstor_fabric::time::Time;
use gnstor_flash::{Fetch, Loaded, PageState, Ppa, Ticket, Unreadable};
use gnstor_map::{Batch, Probe};
use gnstor_model::Timing;
use gnstor_proto::slba::Vid;
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

    /// Asks for all that [`Self::extent`] will need of blocks, as many of them as the batch takes: the map's buckets for all
    /// of them first, then the records of the pages found there.
    #[inline]
    pub fn announce(&self, blocks: impl IntoIterator<Item = (Vid, u32)>, batch: &mut Batch) {
        self.map.probe_batch_first(blocks, batch);
        self.map.find_batch(batch);
        for page in (0..batch.len()).filter_map(|at| batch.page(at)) {
            self.flash.prefetch(Ppa(page));
        }
    }

    /// Where a block is.
    #[inline]
    pub fn extent(&self, vid: Vid, generation: u32, vba: u32) -> Extent {
        self.extent_at(&self.map.probe(vid, vba), vid, generation, vba)
    }

    /// As [`Self::extent`], for a probe made before.
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
                    Extent::StaleGeneration
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

    /// The bytes of a pinned page, or the promise of them.
    #[inline]
    pub fn fetch(&self, page: Ppa) -> Fetch {
        self.flash.fetch(page)
    }

    /// As [`Self::fetch`] where that is plain: in memory, and without a fault to be drawn.
    #[inline]
    pub fn fetch_plainly(&self, page: Ppa) -> Option<LocalRef> {
        self.flash.fetch_plainly(page)
    }

    /// The bytes of a pinned page, at once: for what looks at single pages. File media block for as long as a read takes.
    ///
    /// # Errors
    /// [`Unreadable`], or where no frame is free for it.
    pub fn read_now(&self, page: Ppa, out: &mut [u8; gnstor_flash::PAGE_BYTES as usize]) -> Result<(), Unreadable> {
        let frame = self.flash.take_frame().ok_or(Unreadable(page))?;
        let copied = self.flash.copy(page, frame);
        if copied.is_ok() {
            self.flash.read_frame(frame, out);
        }
        self.flash.give_frame(frame);
        copied
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

    /// The firmware takes a read; when it has been checked.
    #[inline]
    pub fn accept_read(&self, now: Time) -> Time {
        self.accept(now, Timing::accept_read)
    }

    /// The firmware takes any other I/O command; when it has been checked.
    #[inline]
    pub fn accept_write(&self, now: Time) -> Time {
        self.accept(now, Timing::accept_write)
    }

    /// As [`Self::accept_write`], and when the firmware is free again.
    #[inline]
    pub fn book_write(&self, now: Time) -> Booked {
        let Some(mut timing) = self.timing() else { return Booked { free: now, done: now } };
        let done = timing.accept_write(now);
        Booked { free: self.publish_free(&timing), done }
    }

    fn accept(&self, now: Time, take: impl Fn(&mut Timing, Time) -> Time) -> Time {
        let Some(mut timing) = self.timing() else { return now };
        let accepted = take(&mut timing, now);
        self.publish_free(&timing);
        accepted
    }

    /// [`Self::accept_read`] and [`Self::read_time`] at once.
    #[inline]
    pub fn book_read(&self, now: Time, pages: &[Ppa], zeros: u32) -> Booked {
        let Some(mut timing) = self.timing() else { return Booked { free: now, done: now } };
        let accepted = timing.accept_read(now);
        let free = self.publish_free(&timing);
        Booked { free, done: self.read_time_in(&mut timing, accepted, pages, zeros) }
    }

    /// Whoever asks when the firmware is free takes no lock.
    fn publish_free(&self, timing: &Timing) -> Time {
        let free = timing.firmware_free();
        self.firmware_free.0.store(free.as_ps(), Ordering::Relaxed);
        free
    }

    /// When the firmware can take the next command.
    #[inline]
    pub fn firmware_free(&self) -> Time {
        Time::from_ps(self.firmware_free.0.load(Ordering::Relaxed))
    }
}

/// When the model does what of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Booked {
    /// The firmware can take the next command.
    pub free: Time,
    /// The host has the data; of a write, its data can be taken.
    pub done: Time,
}
