// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Power failure and shutdown: the dump, its restore, and repairs before the first new write.

use crate::collect::journal_bytes;
use crate::config::OpenError;
use crate::layer::{Ftl, Inner};
use crate::place::Placement;
use crate::space::{State, Stream};
use crate::stream::Writing;
use crate::types::CommitError;
use gnstor_base::time::Time;
use gnstor_durable::{Dump, DumpPage, DumpWriter, DurableError};
use gnstor_flash::{Fetch, Flash, KeptOwner, Oob, PageState, Ppa, Superblock, Unit};
use gnstor_proto::slba::Vid;
use std::io;
use std::time::Duration;

/// Polls of a medium that has not finished, about ten seconds.
const PATIENCE: u32 = 50_000_000;
/// Polls of a full disk, a pause apart: its owner may be making room.
const FULL_POLLS: u32 = 100;
const FULL_PAUSE: Duration = Duration::from_millis(10);
/// Most bytes of transactions that ask for no room in a dump.
const UNASKED_BYTES: u64 = 64 << 10;

/// Waits for the medium at a start and a shutdown, where no clock is.
#[derive(Debug, Default)]
struct Waiting {
    polls: u32,
    full: u32,
}

impl Waiting {
    /// A pause before the next poll.
    ///
    /// # Errors
    /// Where the disk stays full, or the medium does not finish its programs.
    fn pause(&mut self, ftl: &Ftl, what: &str) -> Result<(), OpenError> {
        if ftl.power.is_cut() {
            return Err(OpenError::Media(io::Error::other("the SSD has no power")));
        }
        let _ = ftl.flash.poll_loaded();
        self.polls += 1;
        if self.polls > PATIENCE {
            return Err(OpenError::Damaged(format!("{what}the medium does not finish its programs")));
        }
        if !ftl.flash.is_held() || ftl.flash.is_trying() {
            std::thread::yield_now();
            return Ok(());
        }
        self.full += 1;
        if self.full > FULL_POLLS {
            let text = format!("{what}no room on the disk under the data file");
            return Err(OpenError::Media(io::Error::new(io::ErrorKind::StorageFull, text)));
        }
        std::thread::sleep(FULL_PAUSE);
        Ok(())
    }
}

impl Ftl {
    /// Makes the superblocks usable after a restore: erases free ones, and continues open ones after their
    /// last page.
    pub(crate) fn tidy(&self) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let geometry = self.flash.geometry();
        let states: Vec<(Superblock, State, u64)> =
            inner.space.iter().map(|(superblock, entry)| (superblock, entry.state, entry.order)).collect();
        for &(superblock, state, _) in &states {
            if state == State::Free && self.units_used(superblock) > 0 {
                // It was opened and written after the last durable transaction, or half erased. After a
                // failed program, pages of durable transactions may have been relocated here.
                inner.space.close(superblock);
                if inner.space.get(superblock).valid == 0 {
                    inner.erasures.add(superblock);
                }
            }
        }
        for stream in [Stream::Host, Stream::Collect] {
            let open = states.iter().filter(|(_, state, _)| *state == State::Open(stream));
            let newest = open.clone().map(|(_, _, order)| *order).max();
            for &(superblock, _, order) in open {
                let units = self.units_used(superblock);
                if Some(order) == newest && units < geometry.superblock_units() {
                    inner.streams[stream as usize].resume(superblock, units);
                    if inner.streams[stream as usize].has_page(&self.flash) {
                        continue;
                    }
                    inner.streams[stream as usize] = Writing::default();
                }
                inner.space.close(superblock);
                self.note_emptied(inner, superblock);
            }
        }
        let closed: Vec<Superblock> = inner
            .space
            .iter()
            .filter(|(_, e)| e.state == State::Closed)
            .map(|(superblock, _)| superblock)
            .collect();
        for superblock in closed {
            self.note_emptied(inner, superblock);
        }
        self.erase_emptied(inner, Time::ZERO, u32::MAX);
    }

    /// One more than the last unit of a superblock whose program has begun. Earlier units that a cut
    /// prevented stay empty, because rows of a block are programmed in ascending order.
    fn units_used(&self, superblock: Superblock) -> u32 {
        let (geometry, first) = (self.flash.geometry(), self.flash.geometry().first_unit(superblock).0);
        let used =
            (0..geometry.dies()).map(|die| match self.flash.next_row(geometry.block_of(Unit(first + die))) {
                0 => 0,
                rows => (rows - 1) * geometry.dies() + die + 1,
            });
        used.max().unwrap_or(0)
    }

    /// Writes the pages of a dump to new places, and makes them and the dump's tail durable.
    pub(crate) fn rewrite(&self, dump: &Dump) -> Result<u64, OpenError> {
        let is_wanted = |DumpPage { page, oob, data }: &DumpPage<'_>| {
            let named = Vid::new(oob.vid).is_some_and(|vid| self.map.get(vid, oob.vba) == Some(page.0));
            data.is_some() && named && !self.holds_newer(*page, oob)
        };
        let wanted: Vec<DumpPage<'_>> = dump.pages().filter(is_wanted).collect();
        let superblock = |page: Ppa| self.flash.geometry().superblock_of(page);
        for DumpPage { page, .. } in &wanted {
            self.lock().space.get_mut(superblock(*page)).in_dump += 1;
        }
        self.lock().checkpoints.set_restoring(true);
        let mut rewritten = 0;
        for DumpPage { page, oob, data } in wanted {
            let (Some(data), Some(vid)) = (data, Vid::new(oob.vid)) else { continue };
            let mut guard = self.lock();
            let inner = &mut *guard;
            self.make_room_now(inner)?;
            let frame = self
                .flash
                .take_frame()
                .ok_or_else(|| OpenError::Damaged("restoring the dump: no frame is free".into()))?;
            self.flash.write_frame(frame, data);
            inner.space.get_mut(superblock(page)).in_dump -= 1;
            let probe = self.map.probe(vid, oob.vba);
            let (stream, ready, applied) = (Stream::Host, Time::ZERO, None);
            let placement = Placement { stream, oob: &oob, probe: &probe, frame, ready, applied };
            self.place_page(inner, Time::ZERO, &placement);
            inner.commits.raise_page_seq(oob.seq);
            rewritten += 1;
            self.complete_due(inner, Time::NEVER, Time::ZERO);
        }
        self.flush_now()?;
        self.lock().checkpoints.set_restoring(false);
        Ok(rewritten)
    }

    /// Whether a restore that was cut short has put a later write of the same block into this very place.
    fn holds_newer(&self, page: Ppa, oob: &Oob) -> bool {
        let key = |oob: &Oob| (oob.vid, oob.generation, oob.vba);
        let PageState::Programmed(there) = self.flash.page(page) else { return false };
        key(&there) == key(oob) && there.seq > oob.seq
    }

    /// Makes room for one page and waits for it, regardless of modelled time.
    fn make_room_now(&self, inner: &mut Inner) -> Result<(), OpenError> {
        let mut waiting = Waiting::default();
        loop {
            match self.make_room(inner, Time::ZERO, 1) {
                Ok(()) => return Ok(()),
                Err(CommitError::Stalled) if !self.power.is_cut() => {}
                Err(error) => return Err(OpenError::Damaged(format!("restoring the dump: {error}"))),
            }
            self.pad_units(inner, Time::ZERO);
            inner.want_all();
            self.complete_due(inner, Time::NEVER, Time::ZERO);
            waiting.pause(self, "restoring the dump: ")?;
        }
    }

    /// Makes everything durable, without regard to modelled time.
    pub(crate) fn flush_now(&self) -> Result<(), OpenError> {
        let mut guard = self.lock();
        let inner = &mut *guard;
        // File media finish programs in their own time; a lost one shows as an error before that.
        let mut waiting = Waiting::default();
        loop {
            // Repeated in each turn: pages of a failed program are in a unit that is being filled.
            self.pad_units(inner, Time::ZERO);
            self.complete_due(inner, Time::NEVER, Time::ZERO);
            if inner.streams.iter().all(|stream| stream.unprogrammed_since().is_none()) {
                inner.journal.flush(inner.journal.last(), true)?;
                return Ok(());
            }
            waiting.pause(self, "")?;
        }
    }

    /// Stops in good order: everything durable, nothing to restore but the checkpoint and the journal.
    ///
    /// # Errors
    /// [`OpenError`]; then the next start is one after a power failure.
    pub fn shut_down(&self) -> Result<(), OpenError> {
        self.flush_now()?;
        self.durable.mark_clean(&self.lock().journal)?;
        self.let_go();
        Ok(())
    }

    /// Whether a dump has room for everything that is not on flash, and for `pages` more (protocol rule 11).
    pub(crate) fn fits_dump(&self, inner: &Inner, pages: u32) -> bool {
        self.fits_dump_with(inner, journal_bytes(pages), pages)
    }

    /// The same with this number of bytes of transactions, and this number of pages, in addition.
    fn fits_dump_with(&self, inner: &Inner, bytes: u64, pages: u32) -> bool {
        let Some(budget) = self.dump_budget else { return true };
        let geometry = self.flash.geometry();
        let buffered: u64 = inner.streams.iter().map(|stream| stream.buffered_pages(geometry)).sum();
        // Some transactions ask for no room, such as those of erases and of bad blocks. They come in
        // addition.
        let unasked = (budget / 64).min(UNASKED_BYTES);
        let tail = inner.journal.tail_bytes() + bytes + unasked;
        gnstor_durable::dump::bytes_for(tail, buffered + u64::from(pages)) <= budget
    }

    /// Ensures that a dump has room for this many bytes of transactions when programs end. Trims and sweeps
    /// write no page, but the dump also has their transactions.
    pub(crate) fn make_dump_room_for_tail(
        &self,
        inner: &mut Inner,
        now: Time,
        bytes: u64,
    ) -> Result<(), CommitError> {
        if self.fits_dump_with(inner, bytes, 0) {
            return Ok(());
        }
        inner.want_all();
        self.complete_programs(inner, now);
        if self.fits_dump_with(inner, bytes, 0) {
            return Ok(());
        }
        inner.stats.stalls += 1;
        Err(CommitError::Stalled)
    }

    /// Makes sure that `pages` more fit into a dump, as programs end.
    pub(crate) fn make_dump_room(&self, inner: &mut Inner, now: Time, pages: u32) -> Result<(), CommitError> {
        if self.fits_dump(inner, pages) {
            return Ok(());
        }
        inner.want_all();
        self.complete_programs(inner, now);
        if self.fits_dump(inner, pages) {
            return Ok(());
        }
        inner.stats.stalls += 1;
        Err(CommitError::Stalled)
    }

    /// The power fails, and there is energy for a dump. Returns the dump's bytes.
    ///
    /// # Errors
    /// [`DurableError`], if the dump exceeds the budget or the store fails.
    pub fn power_fail(&self) -> Result<u64, DurableError> {
        let dump = self.write_dump();
        match (&dump, self.flash.kept()) {
            (Ok(_), _) => self.let_go(),
            // The machine still has its power, and so the memory.
            (Err(_), Some(kept)) if !self.power.is_cut() => kept.stay(),
            (Err(_), _) => {}
        }
        dump
    }

    fn write_dump(&self) -> Result<u64, DurableError> {
        let guard = self.lock();
        let inner = &*guard;
        let mut dump = DumpWriter::begin(&self.durable, &inner.journal)?;
        let mut data = [0; gnstor_flash::PAGE_BYTES as usize];
        let regions = self.flash.regions();
        for page in inner.streams.iter().flat_map(|stream| stream.buffered(self.flash.geometry())) {
            if let PageState::Buffered(oob) = self.flash.page(page) {
                let Fetch::Here(local) = self.flash.fetch(page) else { continue };
                let region =
                    regions.iter().find(|region| region.id() == local.region).expect("one of its regions");
                region.read(local.offset, &mut data);
                dump.page(DumpPage { page, oob, data: Some(&data) })?;
            }
        }
        dump.finish()
    }

    /// Everything is in the data file: memory that outlives the process is not needed any more.
    fn let_go(&self) {
        if let Some(kept) = self.flash.kept() {
            kept.remove();
        }
    }

    /// From now on the journal's tail outlives a kill of the process.
    pub(crate) fn keep_tail(&self) {
        if let Some(kept) = self.flash.kept() {
            self.lock().journal.keep(kept.tail());
        }
    }
}

/// From now on the next start finds what a killed process leaves. Everything from before is in the file.
pub(crate) fn arm(flash: &Flash, owner: KeptOwner) {
    if let Some(kept) = flash.kept()
        && let Err(error) = kept.arm(owner)
    {
        tracing::warn!("if this process is killed, writes that were not flushed are lost: {error}");
    }
}
