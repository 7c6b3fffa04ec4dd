// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The translation layer in one hand: what readers may do without a lock, and the lock under which everything else
//! happens.
//!
//! ```text
//!   readers (any core)     map --probe--> page --pin, look again--> frame            no lock
//!   writers                Inner: streams, space, journal, windows, collection       one lock
//!   both                   Timing, unless the preset takes no time                   one lock, never held with data
//! ```
//! A page that a reader has pinned and that the map still names *after* the pin is not erased before the reader lets go:
//! the collection unmaps first and looks at the pins afterwards, so one of the two sees the other.

use crate::collect::Victim;
use crate::config::{Collection, FtlConfig, OpenError};
use crate::settle::Running;
use crate::space::{Space, Stream};
use crate::stats::{Health, LayerStats};
use crate::stream::Writing;
use crate::sweep::Sweep;
use crate::windows::{Window, Windows};
use gnstor_durable::{Durable, Journal, Record, Seq};
use gnstor_fabric::region::{HostRegion, LocalRef};
use gnstor_fabric::time::Time;
use gnstor_flash::{Fetch, Flash, Frame, Loaded, Oob, PageState, Power, Ppa, Ticket};
use gnstor_map::{Map, MapWriter, Probe};
use gnstor_model::{Preset, Timing};
use gnstor_proto::slba::{Stamp, Vid};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where a block is. A [`Extent::Page`] is pinned: it goes back with [`Ftl::unpin`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// On this page; the data has this block sum.
    Page(Ppa, u32),
    /// Nowhere: never written, or forgotten. It reads as zeros.
    Unmapped,
    /// On a page of another life of the volume id: it reads as zeros (protocol rule 10).
    StaleGeneration,
    /// On a page whose record names another block, or none: an internal error.
    WrongKey,
}

/// Which blocks a write is for. Block `i` of the write is `vba + i`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// The volume.
    pub vid: Vid,
    /// Its life.
    pub generation: u32,
    /// First block.
    pub vba: u32,
    /// Stamp of the write.
    pub stamp: Stamp,
}

/// A block whose data is there and which is not mapped yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewBlock {
    /// The frame with the data; the layer owns it once the write is committed.
    pub frame: Frame,
    /// Block sum of the data.
    pub sum: u32,
}

/// A write that readers see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committed {
    /// When the model has the data in the write buffer.
    pub done: Time,
    /// Its last transaction: durable once [`Ftl::durable`] has come to it.
    pub seq: Seq,
    /// Blocks applied.
    pub applied: u32,
    /// Blocks left alone because a newer or the same stamp was there (protocol rule 6).
    pub overtaken: u32,
}

/// Why a write cannot be committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CommitError {
    /// Nothing has been done; the same call is to be made again after [`Ftl::settle`] has run.
    #[error("collection has to finish first")]
    Stalled,
    /// Too many blocks have gone bad.
    #[error("the flash is worn out: no space is left beyond what is written")]
    WornOut,
}

/// Over the number of logical pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the SSD is full")]
pub struct Full;

/// The translation layer of one SSD.
#[derive(Debug)]
pub struct Ftl {
    pub(crate) flash: Arc<Flash>,
    pub(crate) power: Arc<Power>,
    pub(crate) map: Arc<Map>,
    pub(crate) durable: Durable,
    pub(crate) journal_bytes: u64,
    pub(crate) logical_pages: u64,
    pub(crate) collection: Collection,
    /// Free superblocks at and below which writes pay for collection.
    pub(crate) low: u32,
    /// `None` where nothing takes time.
    pub(crate) timing: Option<Mutex<Timing>>,
    pub(crate) inner: Mutex<Inner>,
}

/// What only one at a time may touch.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) writer: MapWriter,
    pub(crate) space: Space,
    pub(crate) streams: [Writing; 2],
    pub(crate) windows: Windows,
    pub(crate) journal: Journal,
    pub(crate) checkpoint: Option<Running>,
    pub(crate) victim: Option<Victim>,
    /// Superblocks without a valid page, to be erased when that is safe.
    pub(crate) emptied: Vec<gnstor_flash::Superblock>,
    pub(crate) sweeps: Vec<Sweep>,
    /// Words written behind the front of a sweep.
    pub(crate) behind: Vec<(u64, u64)>,
    /// Blocks that writes in flight will map anew: promised when a write starts, not when its data is there.
    pub(crate) claimed: u64,
    pub(crate) page_seq: u64,
    /// Somebody waits for this transaction to be durable.
    pub(crate) wanted: Seq,
    /// When the host last wrote, for background collection.
    pub(crate) last_write: Time,
    pub(crate) worn_out: bool,
    pub(crate) stats: LayerStats,
    /// Which blocks of the write in hand are to be applied.
    pub(crate) fresh: Vec<bool>,
    pub(crate) words: Vec<u64>,
    /// Transactions of the blocks that hosts wrote, for tests that look at each.
    #[cfg(test)]
    pub(crate) applied_at: Vec<Seq>,
}

impl Ftl {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic under the lock is a broken invariant; whoever still runs sees the state it left.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn timing(&self) -> Option<MutexGuard<'_, Timing>> {
        self.timing.as_ref().map(|timing| timing.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Blocks that can be mapped.
    pub fn logical_pages(&self) -> u64 {
        self.logical_pages
    }

    /// Blocks that are mapped.
    pub fn mapped(&self) -> u64 {
        self.map.len()
    }

    /// The merged map.
    pub fn map(&self) -> &Arc<Map> {
        &self.map
    }

    /// The flash below.
    pub fn flash(&self) -> &Arc<Flash> {
        &self.flash
    }

    /// Memory to be registered with whoever moves data.
    pub fn regions(&self) -> Vec<Arc<HostRegion>> {
        self.flash.regions()
    }

    /// Whether the preset takes no time, so that nobody need ask the model.
    pub fn is_timeless(&self) -> bool {
        self.timing.is_none()
    }

    // ---- reading: no lock ----

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
        self.timing().map_or(now, |mut timing| timing.accept_read(now))
    }

    /// The firmware takes any other I/O command; when it has been checked.
    #[inline]
    pub fn accept_write(&self, now: Time) -> Time {
        self.timing().map_or(now, |mut timing| timing.accept_write(now))
    }

    /// When the firmware can take the next command.
    #[inline]
    pub fn firmware_free(&self) -> Time {
        self.timing().map_or(Time::ZERO, |timing| timing.firmware_free())
    }

    // ---- writing ----

    /// A frame for incoming data, while the write buffer has one.
    pub fn take_frame(&self) -> Option<Frame> {
        self.flash.take_frame()
    }

    /// A frame whose data is not wanted.
    pub fn give_frame(&self, frame: Frame) {
        self.flash.give_frame(frame);
    }

    /// The bytes of a frame.
    pub fn frame(&self, frame: Frame) -> LocalRef {
        self.flash.frame(frame)
    }

    /// Promises room for those of `blocks` blocks that are not mapped yet; the number to hand to [`Self::unclaim`].
    ///
    /// # Errors
    /// [`Full`] where the logical capacity is used up (protocol rule 5).
    pub fn claim(&self, vid: Vid, vba: u32, blocks: u32) -> Result<u64, Full> {
        let mut inner = self.lock();
        let new = (0..blocks).filter(|index| self.map.get(vid, vba + index).is_none()).count() as u64;
        if self.map.len() + inner.claimed + new > self.logical_pages {
            return Err(Full);
        }
        inner.claimed += new;
        Ok(new)
    }

    /// The write is over, whichever way.
    pub fn unclaim(&self, blocks: u64) {
        self.lock().claimed -= blocks;
    }

    /// All data of a write is there: from now on reads find it. It is as good as the write buffer is; see
    /// [`Self::harden`].
    ///
    /// # Errors
    /// [`CommitError`]; then the frames are still the caller's.
    pub fn commit(
        &self,
        now: Time,
        accepted: Time,
        target: &Target,
        blocks: &[NewBlock],
    ) -> Result<Committed, CommitError> {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let count = u32::try_from(blocks.len()).expect("blocks of a command");
        self.make_room(inner, now, count)?;
        let mut fresh = std::mem::take(&mut inner.fresh);
        fresh.clear();
        fresh.extend((0..count).map(|index| self.is_newer(inner, target, index)));
        let applied = u32::try_from(fresh.iter().filter(|fresh| **fresh).count()).expect("at most count");
        let done = self.timing().map_or(accepted, |mut timing| timing.buffer(accepted, applied));
        for ((index, block), fresh) in (0u32..).zip(blocks).zip(&fresh) {
            if !fresh {
                self.flash.give_frame(block.frame);
                continue;
            }
            let vba = target.vba + index;
            inner.page_seq += 1;
            let oob = Oob {
                vid: target.vid.get(),
                generation: target.generation,
                vba,
                stamp: target.stamp,
                sum: block.sum,
                seq: inner.page_seq,
            };
            self.put(inner, now, done, Stream::Host, &oob, target.vid, block.frame, Some(target.stamp));
            inner.windows.record(target.vid, vba, target.stamp);
        }
        inner.fresh = fresh;
        inner.stats.host_pages += u64::from(applied);
        inner.last_write = now;
        self.pay(inner, now, applied);
        self.advance(inner, now, applied);
        Ok(Committed { done, seq: inner.journal.last(), applied, overtaken: count - applied })
    }

    /// Unmaps blocks, leaving their stamps behind; how many were mapped, and how many were left alone (rule 6).
    ///
    /// # Errors
    /// [`CommitError::Stalled`] where the journal has no room for now; nothing has been done then.
    pub fn forget(&self, now: Time, target: &Target, blocks: u32) -> Result<Forgotten, CommitError> {
        let mut guard = self.lock();
        let inner = &mut *guard;
        self.make_journal_room(inner, now, blocks)?;
        let mut forgotten = Forgotten::default();
        for index in 0..blocks {
            if !self.is_newer(inner, target, index) {
                forgotten.overtaken += 1;
                continue;
            }
            let vba = target.vba + index;
            inner.journal.begin();
            inner.journal.add(Record::Applied { vid: target.vid, vba, stamp: target.stamp });
            let journal = &mut inner.journal;
            let old = inner
                .writer
                .remove(target.vid, vba, &mut |index, value| journal.add(Record::Word { index, value }));
            let seq = inner.journal.commit();
            inner.windows.record(target.vid, vba, target.stamp);
            if let Some(old) = old {
                forgotten.mapped += 1;
                self.let_go(inner, Ppa(old), seq);
            }
        }
        forgotten.seq = inner.journal.last();
        self.advance(inner, now, blocks);
        Ok(forgotten)
    }

    /// Rule 6: a stamp at or below the one held was applied before, or has been overtaken.
    fn is_newer(&self, inner: &Inner, target: &Target, index: u32) -> bool {
        let vba = target.vba + index;
        let on_page = self.map.get(target.vid, vba).and_then(|page| {
            let page = Ppa(page);
            let key = self.flash.key(page)?;
            let same = (key.0, key.1, key.2) == (target.vid.get(), target.generation, vba);
            if same { self.flash.stamp(page) } else { None }
        });
        let held = inner.windows.held(target.vid, vba).max(on_page);
        held.is_none_or(|held| target.stamp > held)
    }

    /// Writes a frame to the next page of a stream and maps its block there. There is room: it was made before.
    #[expect(clippy::too_many_arguments, reason = "one page's whole story")]
    pub(crate) fn put(
        &self,
        inner: &mut Inner,
        now: Time,
        ready: Time,
        stream: Stream,
        oob: &Oob,
        vid: Vid,
        frame: Frame,
        applied: Option<Stamp>,
    ) {
        if !inner.streams[stream as usize].has_page(&self.flash) {
            self.open_superblock(inner, stream);
        }
        let seq = inner.journal.last() + 1;
        let page = inner.streams[stream as usize].take(&self.flash, seq, ready);
        // The record goes first: the map never names a page that does not say what it holds.
        self.flash.place(page, frame, oob);
        inner.journal.begin();
        if let Some(stamp) = applied {
            inner.journal.add(Record::Applied { vid, vba: oob.vba, stamp });
        }
        let Inner { writer, journal, sweeps, behind, .. } = inner;
        let old = writer.insert(vid, oob.vba, page.0, &mut |index, value| {
            journal.add(Record::Word { index, value });
            if !sweeps.is_empty() {
                behind.push((index, value));
            }
        });
        let old = old.expect("the map is sized for every logical page, and no write starts without its claim");
        let committed = inner.journal.commit();
        debug_assert_eq!(committed, seq);
        #[cfg(test)]
        if applied.is_some() {
            inner.applied_at.push(seq);
        }
        inner.space.get_mut(self.flash.geometry().superblock_of(page)).valid += 1;
        if let Some(old) = old {
            self.let_go(inner, Ppa(old), seq);
        }
        if !inner.behind.is_empty() {
            self.sweep_behind(inner);
        }
        self.close_unit(inner, now, stream);
    }

    /// The map no longer names this page.
    pub(crate) fn let_go(&self, inner: &mut Inner, page: Ppa, seq: Seq) {
        let superblock = self.flash.geometry().superblock_of(page);
        let entry = inner.space.get_mut(superblock);
        entry.valid -= 1;
        entry.let_go = entry.let_go.max(seq);
        self.note_emptied(inner, superblock);
    }

    // ---- asking ----

    /// The last transaction that survives a power cut without a dump.
    pub fn durable(&self) -> Seq {
        self.lock().journal.durable()
    }

    /// The stamp window of a volume, oldest first.
    pub fn window(&self, vid: Vid) -> Vec<(u32, Stamp)> {
        self.lock().windows.get(vid).map(|window| Window::iter(window).collect()).unwrap_or_default()
    }

    /// What has been counted since the start.
    pub fn stats(&self) -> LayerStats {
        self.lock().stats
    }

    /// How the flash is.
    pub fn health(&self) -> Health {
        let inner = self.lock();
        let geometry = self.flash.geometry();
        let spare = geometry.pages() - self.logical_pages;
        let left = inner.space.good_pages().saturating_sub(self.logical_pages);
        Health {
            wear: inner.space.wear(),
            spare_percent: u8::try_from((left * 100).checked_div(spare).unwrap_or(0).min(100)).expect("at most 100"),
            worn_out: inner.worn_out,
            free_superblocks: inner.space.free(),
            bad_blocks: inner.stats.bad_blocks,
        }
    }
}

/// What [`Ftl::forget`] did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Forgotten {
    /// Blocks that were mapped.
    pub mapped: u32,
    /// Blocks with a newer or the same stamp.
    pub overtaken: u32,
    /// The last transaction.
    pub seq: Seq,
}

/// The geometry of an SSD of this preset that promises `logical_pages`.
///
/// # Errors
/// Where no such geometry exists.
pub fn geometry_for(preset: &Preset, logical_pages: u64) -> Result<gnstor_flash::Geometry, OpenError> {
    if logical_pages == 0 {
        return Err(OpenError::Capacity("an SSD holds at least one block of 4 KiB".into()));
    }
    let geometry = preset.geometry(logical_pages)?;
    let page = u64::from(geometry.superblock_pages());
    let least = (logical_pages + RESERVE * page).div_ceil(page);
    let least = u32::try_from(least).map_err(|_| OpenError::Capacity(format!("{logical_pages} blocks are too many")))?;
    if geometry.superblocks() >= least {
        return Ok(geometry);
    }
    Ok(gnstor_flash::Geometry::new(*geometry.shape(), least)?)
}

/// Superblocks beyond the logical pages at the least: the two open ones, one for collection to go on with, one for a
/// restore, and one so that a full SSD has a victim with something to gain.
pub(crate) const RESERVE: u64 = 5;

impl FtlConfig {
    /// How large the store for the system area must be.
    ///
    /// # Errors
    /// As [`geometry_for`].
    pub fn store_bytes(preset: &Preset, logical_pages: u64, dump_bytes: u64) -> Result<u64, OpenError> {
        let geometry = geometry_for(preset, logical_pages)?;
        let words = Map::words_for(logical_pages, geometry.pages())
            .ok_or_else(|| OpenError::Capacity(format!("a map of {logical_pages} blocks is not possible")))?;
        Ok(crate::config::sizes(&geometry, logical_pages, words, dump_bytes)?.store_bytes())
    }
}
