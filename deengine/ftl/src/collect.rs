// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collection: moves the valid pages of a victim, so that its superblock can be erased.
//!
//! ```text
//!   free superblocks and emptied ones  > low  collection only in the background, while hosts are idle
//!                                     <= low  every host page pays for its share of the victim's pages
//!   free superblocks                  <= KEPT only collection may open one; writes wait (Stalled)
//! ```
//! A page is valid when the map names exactly this page.
//!
//! Nothing here waits for a disk. Pages of a file are loaded into frames first, a few units ahead:
//!
//! ```text
//!   valid pages of a unit --start_copy--> frames --(a later call: all are there)--> still valid? --> placed
//! ```

pub(crate) mod state;

use crate::layer::{Ftl, Inner};
use crate::place::Placement;
use crate::space::{State, Stream};
use crate::types::{CommitError, other_than};
use gnstor_base::time::{Span, Time};
use gnstor_flash::{Copying, Frame, Oob, PageState, Ppa, Superblock};
use gnstor_proto::slba::Vid;
use state::{Load, Loading, Victim};
use std::task::Poll;

/// Free superblocks that host writes may not open: one for collection, one for a restore.
const KEPT: u32 = 2;
/// Pause between two steps of background collection.
const BACKGROUND_PAUSE: Span = Span::from_ns(100_000);
/// Pause before pages that are being loaded are looked at again.
const LOADING_PAUSE: Span = Span::from_ns(50_000);
/// Units that are loaded from a file at once.
const UNITS_AHEAD: usize = 4;
/// Background collection stops at this many times the superblocks at which foreground collection starts.
const PLENTY: u32 = 3;
/// Longest transaction, in bytes: an insertion with a dozen moves.
const TRANSACTION_BYTES: u64 = 600;

/// Journal bytes that must be free before `blocks` blocks are written or trimmed and as many are moved.
pub(crate) fn journal_bytes(blocks: u32) -> u64 {
    2 * u64::from(blocks + 4) * TRANSACTION_BYTES
}

/// What a step of collection has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Collected {
    /// It has moved pages, or passed the last of its victim.
    Some,
    /// The medium reads the pages that move next.
    Loading,
    /// There is no victim, or no room for its pages.
    Nothing,
}

/// State of the pages that began to load first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moved {
    /// So many have moved, or were overwritten meanwhile.
    All(u32),
    Loading,
    NoRoom,
}

impl Ftl {
    /// Makes sure that `blocks` pages can be placed, and collects for that if necessary.
    pub(crate) fn make_room(&self, inner: &mut Inner, now: Time, blocks: u32) -> Result<(), CommitError> {
        self.make_journal_room(inner, now, journal_bytes(blocks))?;
        self.make_dump_room(inner, now, blocks)?;
        if inner.collector.worn_out {
            return Err(CommitError::WornOut);
        }
        while !self.has_room(inner, blocks) {
            self.complete_programs(inner, now);
            self.erase_emptied(inner, now, u32::MAX);
            if self.has_room(inner, blocks) {
                break;
            }
            if self.awaits_programs(inner) {
                inner.stats.stalls += 1;
                return Err(CommitError::Stalled);
            }
            match self.collect_some(inner, now, self.flash.geometry().superblock_pages()) {
                Collected::Some => continue,
                Collected::Loading => {
                    inner.stats.stalls += 1;
                    return Err(CommitError::Stalled);
                }
                Collected::Nothing => {}
            }
            if self.is_at_its_end(inner) {
                // One that is stuck has room again when the blocks in it are written, trimmed or healed.
                inner.collector.worn_out = !inner.space.has_stuck();
                return Err(CommitError::WornOut);
            }
            // Erases still wait for half-filled units, for programs, for frames or for readers.
            let free = inner.space.free();
            self.unblock_erases(inner, now);
            self.erase_emptied(inner, now, u32::MAX);
            if inner.space.free() <= free {
                inner.stats.stalls += 1;
                return Err(CommitError::Stalled);
            }
        }
        Ok(())
    }

    /// Whether the host stream has room for so many pages, in its open superblock and in superblocks that it
    /// may open.
    fn has_room(&self, inner: &Inner, blocks: u32) -> bool {
        let open = inner.streams[Stream::Host as usize].room(&self.flash, blocks);
        if open >= blocks {
            return true;
        }
        let free = inner.space.free().saturating_sub(KEPT);
        let whole = inner
            .space
            .iter()
            .filter(|(_, e)| e.state == State::Free)
            .map(|(_, e)| e.good)
            .min()
            .unwrap_or(0);
        u64::from(open) + u64::from(free) * u64::from(whole) >= u64::from(blocks)
    }

    /// Whether no room can come back by itself: nothing is to be erased, and there is no victim or no place
    /// for its pages. The space that an SSD is made with rules this out until blocks have gone bad.
    fn is_at_its_end(&self, inner: &Inner) -> bool {
        if !inner.erasures.is_empty() || inner.space.has_unprogrammed() {
            return false;
        }
        let unit = self.flash.geometry().unit_pages();
        let room = inner.streams[Stream::Collect as usize].room(&self.flash, unit);
        let has_no_place = inner.space.free() == 0 && room < unit;
        let has_victim = inner.collector.victim.is_some() || inner.collector.is_loading();
        has_no_place || !has_victim && self.choose(inner).is_none()
    }

    /// Host writes pay for collection while free superblocks are few.
    pub(crate) fn pay(&self, inner: &mut Inner, now: Time, pages: u32) {
        // An emptied superblock needs no more moves, only programs that end.
        if inner.space.free() + inner.erasures.count() > self.low {
            return;
        }
        let Some(mut victim) = self.take_victim(inner) else { return };
        victim.owed += i64::from(pages) * i64::from(victim.valid);
        let moves = u32::try_from(victim.owed.max(0) / i64::from(victim.gain)).unwrap_or(u32::MAX);
        inner.collector.victim = Some(victim);
        if moves > 0 {
            self.collect_some(inner, now, moves);
        }
    }

    /// Collects one unit's worth of pages while hosts are idle. Returns when it wants to continue.
    pub(crate) fn collect_in_background(&self, inner: &mut Inner, now: Time) -> Time {
        let since = self.next_background(inner);
        if since > now {
            return since;
        }
        if !self.is_worth_moving(inner) {
            inner.collector.found_nothing = true;
            return Time::NEVER;
        }
        inner.stats.background_steps += 1;
        match self.collect_some(inner, now, self.flash.geometry().unit_pages()) {
            Collected::Nothing => Time::NEVER,
            Collected::Some | Collected::Loading => now + BACKGROUND_PAUSE,
        }
    }

    /// Time at which background collection may run next.
    pub(crate) fn next_background(&self, inner: &Inner) -> Time {
        let wanted =
            self.collection.background && inner.space.closed() > 0 && inner.space.free() < PLENTY * self.low;
        if wanted && !inner.collector.found_nothing { inner.collector.idle_from() } else { Time::NEVER }
    }

    /// Whether background collection has a victim that is at most half valid. Moving pages that hosts will
    /// overwrite anyway only wears the flash.
    fn is_worth_moving(&self, inner: &Inner) -> bool {
        inner.collector.victim.is_some()
            || self.choose(inner).is_some_and(|victim| {
                let entry = inner.space.get(victim);
                entry.valid <= entry.good / 2
            })
    }

    fn choose(&self, inner: &Inner) -> Option<Superblock> {
        if let Some(cold) = inner.space.cold(self.collection.wear_bound) {
            return Some(cold);
        }
        inner.space.victim(self.collection.policy)
    }

    /// Moves up to `moves` valid pages out of the victim.
    fn collect_some(&self, inner: &mut Inner, now: Time, moves: u32) -> Collected {
        let Some(mut victim) = self.take_victim(inner) else { return Collected::Nothing };
        let geometry = self.flash.geometry();
        let mut moved = 0;
        let mut next = Moved::All(0);
        while moved < moves {
            self.load_ahead(inner, now, &mut victim);
            if !inner.collector.is_loading() {
                break;
            }
            next = self.move_loaded(inner, now);
            let Moved::All(count) = next else { break };
            moved += count;
            victim.owed -= i64::from(count) * i64::from(victim.gain);
        }
        let is_passed = victim.next == geometry.superblock_pages() && !inner.collector.is_loading();
        if inner.space.get(victim.superblock).valid > 0 {
            if is_passed {
                // The records of the pages that are left do not say which blocks they hold.
                inner.space.get_mut(victim.superblock).is_stuck = true;
            } else {
                inner.collector.victim = Some(victim);
            }
        }
        match next {
            _ if moved > 0 || is_passed => Collected::Some,
            Moved::Loading => Collected::Loading,
            Moved::All(_) | Moved::NoRoom => Collected::Nothing,
        }
    }

    /// Begins to load the pages of the victim's next units, as far as there are frames and room for them.
    fn load_ahead(&self, inner: &mut Inner, now: Time, victim: &mut Victim) {
        let geometry = self.flash.geometry();
        let first = victim.superblock.0 * geometry.superblock_pages();
        let unit = geometry.unit_pages();
        let ahead = if self.in_memory { 1 } else { UNITS_AHEAD };
        while victim.next < geometry.superblock_pages() && inner.collector.loading.len() < ahead {
            // All planes of a die sense at once. One plane after the other would delay the die's programs
            // longer.
            let end = (victim.next / unit + 1) * unit;
            let pages = (victim.next..end).filter_map(|index| self.valid(Ppa(first + index)));
            let pages: Vec<(Ppa, Oob)> = pages.collect();
            if !pages.is_empty() && !self.start_loads(inner, now, &pages) {
                return;
            }
            victim.next = end;
        }
    }

    /// The current victim, or the next one.
    fn take_victim(&self, inner: &mut Inner) -> Option<Victim> {
        if let Some(victim) = inner.collector.victim.take() {
            return Some(victim);
        }
        let superblock = self.choose(inner)?;
        let entry = inner.space.get(superblock);
        let gain = (entry.good - entry.valid).max(1);
        inner.stats.victims += 1;
        Some(Victim { superblock, next: 0, valid: entry.valid, gain, owed: 0 })
    }

    /// The record of a page that the map names.
    fn valid(&self, page: Ppa) -> Option<(Ppa, Oob)> {
        let (vid, _, vba, _) = self.flash.key(page)?;
        let vid = Vid::new(vid)?;
        if self.map.get(vid, vba) != Some(page.0) {
            return None;
        }
        match self.flash.page(page) {
            PageState::Programmed(oob) | PageState::Buffered(oob) => Some((page, oob)),
            PageState::Erased | PageState::Padding | PageState::Damaged => None,
        }
    }

    /// Whether stream, dump and journal have room for so many moves.
    fn has_room_for_moves(&self, inner: &Inner, count: u32) -> bool {
        let room = inner.streams[Stream::Collect as usize].room(&self.flash, count);
        let bytes = u64::from(count) * TRANSACTION_BYTES;
        let has_journal_room = inner.journal.has_room(bytes) && inner.journal.has_kept_room(bytes);
        (room >= count || inner.space.free() > 0) && self.fits_dump(inner, count) && has_journal_room
    }

    /// Begins to copy pages into frames. Returns false where there are no frames or no room.
    fn start_loads(&self, inner: &mut Inner, now: Time, pages: &[(Ppa, Oob)]) -> bool {
        if !self.has_room_for_moves(inner, count_of(pages)) {
            return false;
        }
        // All of them before the first page moves: reads and writes take frames without the layer's lock.
        let frames: Vec<Frame> = std::iter::from_fn(|| self.flash.take_frame()).take(pages.len()).collect();
        if frames.len() < pages.len() {
            frames.into_iter().for_each(|frame| self.flash.give_frame(frame));
            return false;
        }
        let ready = self.timing().map_or(now, |mut timing| {
            let sensed: Vec<Ppa> = pages.iter().map(|(page, _)| *page).collect();
            timing.collect(now, &sensed)
        });
        let start =
            |(&(page, oob), frame)| Load { page, oob, frame, copy: self.flash.start_copy(page, frame) };
        let loads = pages.iter().zip(frames).map(start).collect();
        inner.collector.loading.push_back(Loading { ready, loads });
        true
    }

    /// Moves the pages that have been loading for longest, if all of them are there.
    fn move_loaded(&self, inner: &mut Inner, now: Time) -> Moved {
        let Some(loading) = inner.collector.loading.front_mut() else { return Moved::All(0) };
        for load in &mut loading.loads {
            if let Copying::Running(ticket) = load.copy {
                let Poll::Ready(result) = self.flash.poll_copy(ticket) else { return Moved::Loading };
                load.copy = Copying::Ended(result);
            }
        }
        let count = count_of(&loading.loads);
        if !self.has_room_for_moves(inner, count) {
            return Moved::NoRoom;
        }
        let Some(Loading { ready, loads }) = inner.collector.loading.pop_front() else {
            return Moved::All(0);
        };
        for load in loads {
            self.move_page(inner, now, ready, &load);
        }
        Moved::All(count)
    }

    /// Places a page that is in a frame. If its block was written or trimmed meanwhile, there is nothing to
    /// move.
    fn move_page(&self, inner: &mut Inner, now: Time, ready: Time, load: &Load) {
        let &Load { page, ref oob, frame, copy } = load;
        let vid = Vid::new(oob.vid).filter(|&vid| self.map.get(vid, oob.vba) == Some(page.0));
        let Some(vid) = vid else { return self.flash.give_frame(frame) };
        if copy != Copying::Ended(Ok(())) {
            // The data is lost, and every later read reports it. Stamp and sum stay those of the other
            // copies. With another sum a repair would take this copy for the one to be copied.
            self.flash.write_frame(frame, other_than(oob.sum));
            inner.stats.lost_pages += 1;
        }
        let probe = self.map.probe(vid, oob.vba);
        let placement =
            Placement { stream: Stream::Collect, oob, probe: &probe, frame, ready, applied: None };
        self.place_page(inner, now, &placement);
        inner.stats.moved_pages += 1;
    }

    /// Moves the pages that have been loaded, also while hosts do not write. Returns when it looks again.
    pub(crate) fn finish_loads(&self, inner: &mut Inner, now: Time) -> Time {
        while inner.collector.is_loading() {
            let Moved::All(count) = self.move_loaded(inner, now) else { return now + LOADING_PAUSE };
            if let Some(victim) = &mut inner.collector.victim {
                victim.owed -= i64::from(count) * i64::from(victim.gain);
            }
        }
        Time::NEVER
    }
}

fn count_of<T>(pages: &[T]) -> u32 {
    u32::try_from(pages.len()).expect("pages of a unit")
}
