// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Room for writes: superblocks are opened and closed, victims emptied, and erased when that is safe.
//!
//! ```text
//!   free superblocks and those to be erased   > low    nothing to do; in quiet times collection goes on in the background
//!                                             <= low   every host page pays for its share of the victim's pages
//!   free superblocks                          <= KEPT  only collection may open one; writes wait (Stalled) until an erase
//! ```
//! Collection moves what is valid, that is, what the map says is on this very page. An emptied superblock is erased
//! once every transaction that let go of its pages is durable and no reader has one of them pinned.

use crate::layer::{CommitError, Ftl, Inner};
use crate::space::{State, Stream};
use gnstor_base::time::{Span, Time};
use gnstor_durable::Record;
use gnstor_flash::{Block, Oob, PageState, Ppa, Superblock, Unit};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::slba::Vid;

/// Free superblocks that writes leave alone: one for collection, one for a restore.
const KEPT: u32 = 2;
/// Pages of emptied superblocks that may wait for their erase although nothing is in its way: 8 GiB.
const MOST_KEPT: u64 = 1 << 21;
/// Without a write for so long, collection goes on in the background.
pub(crate) const QUIET: Span = Span::from_ms(10);
/// Between two steps of it.
const QUIET_PAUSE: Span = Span::from_ns(100_000);
/// Background collection rests when this many times as many superblocks are free as foreground collection minds.
const PLENTY: u32 = 3;

/// A superblock that is being emptied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Victim {
    superblock: Superblock,
    /// Pages before this one have been looked at.
    next: u32,
    /// Valid pages when it was chosen, and the pages that its erase gives beyond those: `gain` pages of hosts pay for
    /// `valid` moves, so that it is empty when its gain is used up.
    valid: u32,
    gain: u32,
    /// Moves that hosts have paid for and that were not made yet, times `gain`; below 0 what was done ahead.
    owed: i64,
}

/// A superblock that is being erased, a few blocks at a time: thousands of pages at once would hold up everybody for milliseconds. Where the power
/// goes in between it is closed and empty, and is erased again.
#[derive(Debug)]
pub(crate) struct Erasing {
    superblock: Superblock,
    /// Blocks that are done with, one of each die.
    over: usize,
    /// Those that refused.
    bad: Vec<Block>,
    /// When the model has erased the last of them.
    erased_at: Time,
}

impl Erasing {
    fn new(superblock: Superblock, now: Time) -> Self {
        Self { superblock, over: 0, bad: Vec::new(), erased_at: now }
    }
}

impl Ftl {
    /// Blocks that are to be erased now: none while hosts write and there is room, as an erase holds up its die's reads and programs. What waits to
    /// be erased keeps its memory, so there is a bound.
    pub(crate) fn erases_at_once(&self, inner: &Inner, now: Time) -> u32 {
        let kept = inner.emptied.len() as u64 * u64::from(self.flash.geometry().superblock_pages());
        u32::from(inner.space.free() <= self.low + 1 || now >= inner.last_write + QUIET || kept > MOST_KEPT)
    }

    /// Makes sure that `blocks` pages can be placed, by collecting if need be.
    pub(crate) fn make_room(&self, inner: &mut Inner, now: Time, blocks: u32) -> Result<(), CommitError> {
        self.make_journal_room(inner, now, journal_bytes(blocks))?;
        self.make_dump_room(inner, now, blocks)?;
        if inner.worn_out {
            return Err(CommitError::WornOut);
        }
        while !self.has_room(inner, blocks) {
            self.settle_in(inner, now);
            self.erase_emptied(inner, now, u32::MAX);
            if self.has_room(inner, blocks) {
                break;
            }
            if self.is_freeing(inner) {
                // Programs under way are all that a superblock's erase waits for.
                inner.stats.stalls += 1;
                return Err(CommitError::Stalled);
            }
            if self.collect_some(inner, now, self.flash.geometry().superblock_pages()) {
                continue;
            }
            if inner.emptied.is_empty() && self.is_worn_out(inner) {
                inner.worn_out = true;
                return Err(CommitError::WornOut);
            }
            // What is left waits for half-filled units, for programs, for frames or for readers.
            let free = inner.space.free();
            self.hurry(inner, now);
            self.erase_emptied(inner, now, u32::MAX);
            if inner.space.free() <= free {
                inner.stats.stalls += 1;
                return Err(CommitError::Stalled);
            }
        }
        Ok(())
    }

    /// Whether an emptied superblock waits for nothing but programs that have been started.
    fn is_freeing(&self, inner: &Inner) -> bool {
        let filling = inner.streams.iter().filter_map(|s| s.filling_since()).min();
        inner.emptied.iter().any(|superblock| {
            let let_go = inner.space.get(*superblock).let_go;
            filling.is_none_or(|since| let_go < since) && !self.is_pinned(*superblock)
        })
    }

    /// Whether the host's stream has room for so many pages, in its open superblock and in those it may open.
    fn has_room(&self, inner: &Inner, blocks: u32) -> bool {
        let open = inner.streams[Stream::Host as usize].room(&self.flash, blocks);
        if open >= blocks {
            return true;
        }
        let free = inner.space.free().saturating_sub(KEPT);
        let whole = inner.space.iter().filter(|(_, e)| e.state == State::Free).map(|(_, e)| e.good).min().unwrap_or(0);
        u64::from(open) + u64::from(free) * u64::from(whole) >= u64::from(blocks)
    }

    fn is_worn_out(&self, inner: &Inner) -> bool {
        let needed = self.logical_pages + 2 * u64::from(self.flash.geometry().superblock_pages());
        inner.space.good_pages() < needed
    }

    /// Host writes pay for collection while free superblocks are few.
    pub(crate) fn pay(&self, inner: &mut Inner, now: Time, pages: u32) {
        // What is emptied needs nothing more to be moved: it waits for programs.
        let emptied = u32::try_from(inner.emptied.len()).expect("as many as superblocks");
        if inner.space.free() + emptied > self.low {
            return;
        }
        let Some(mut victim) = inner.victim.take().or_else(|| self.next_victim(inner)) else { return };
        victim.owed += i64::from(pages) * i64::from(victim.valid);
        let moves = u32::try_from(victim.owed.max(0) / i64::from(victim.gain)).unwrap_or(u32::MAX);
        inner.victim = Some(victim);
        if moves > 0 {
            self.collect_some(inner, now, moves);
        }
    }

    /// Collection in quiet times, a unit's worth of moves; when it wants to go on.
    pub(crate) fn collect_quietly(&self, inner: &mut Inner, now: Time) -> Time {
        let since = self.next_quiet(inner);
        if since > now {
            return since;
        }
        if !self.is_worth_moving(inner) {
            inner.nothing_to_collect = true;
            return Time::NEVER;
        }
        inner.stats.background_steps += 1;
        if !self.collect_some(inner, now, self.flash.geometry().unit_pages()) {
            return Time::NEVER;
        }
        now + QUIET_PAUSE
    }

    /// When collection may look for something to do in the background.
    pub(crate) fn next_quiet(&self, inner: &Inner) -> Time {
        let wanted = self.collection.background && inner.space.closed() > 0 && inner.space.free() < PLENTY * self.low;
        if wanted && !inner.nothing_to_collect { inner.last_write + QUIET } else { Time::NEVER }
    }

    /// Moving pages that will be let go of anyway is wear for nothing: only well emptied victims are worth it.
    fn is_worth_moving(&self, inner: &Inner) -> bool {
        inner.victim.is_some()
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

    /// Moves up to `moves` valid pages out of the victim, choosing one if there is none; whether anything was gained.
    fn collect_some(&self, inner: &mut Inner, now: Time, moves: u32) -> bool {
        let Some(mut victim) = inner.victim.take().or_else(|| self.next_victim(inner)) else { return false };
        let geometry = self.flash.geometry();
        let first = victim.superblock.0 * geometry.superblock_pages();
        let unit = geometry.unit_pages();
        let mut moved = 0;
        let mut group: Vec<(Ppa, Oob)> = Vec::new();
        while victim.next < geometry.superblock_pages() && moved < moves {
            // A die's planes sense at the same time: one plane after the other would hold up its programs for longer.
            let end = (victim.next / unit + 1) * unit;
            group.clear();
            group.extend((victim.next..end).filter_map(|index| self.valid(Ppa(first + index))));
            if !group.is_empty() {
                if !self.move_pages(inner, now, &group) {
                    inner.victim = Some(victim);
                    return moved > 0;
                }
                let count = u32::try_from(group.len()).expect("pages of a unit");
                moved += count;
                victim.owed -= i64::from(count) * i64::from(victim.gain);
            }
            victim.next = end;
        }
        if inner.space.get(victim.superblock).valid > 0 {
            assert!(victim.next < geometry.superblock_pages(), "{victim:?} was looked through and is not empty");
            inner.victim = Some(victim);
        }
        true
    }

    fn next_victim(&self, inner: &mut Inner) -> Option<Victim> {
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

    /// Copies pages to the collection's stream; `false` where it has no room or no frame for now.
    fn move_pages(&self, inner: &mut Inner, now: Time, pages: &[(Ppa, Oob)]) -> bool {
        let count = u32::try_from(pages.len()).expect("pages of a unit");
        let room = inner.streams[Stream::Collect as usize].room(&self.flash, count);
        if room < count && inner.space.free() == 0 {
            return false;
        }
        if !self.fits_dump(inner, count) {
            return false;
        }
        if self.flash.free_frames() < count || !inner.journal.has_room(u64::from(count) * TRANSACTION_BYTES) {
            return false;
        }
        let ready = self.timing().map_or(now, |mut timing| {
            let sensed: Vec<Ppa> = pages.iter().map(|(page, _)| *page).collect();
            timing.collect(now, &sensed)
        });
        for (page, oob) in pages {
            let Some(vid) = Vid::new(oob.vid) else { continue };
            let frame = self.flash.take_frame().expect("asked for above");
            let mut oob = *oob;
            if self.flash.copy(*page, frame).is_err() {
                // The data is lost, and stays lost: a sum that its zeros do not have makes every read say so.
                self.flash.write_frame(frame, &[0; BLOCK_BYTES as usize]);
                oob.sum = !gnstor_proto::checksum::block_sum(&[0; BLOCK_BYTES as usize]);
                inner.stats.lost_pages += 1;
            }
            self.put(inner, now, ready, Stream::Collect, &oob, &self.map.probe(vid, oob.vba), frame, None);
            inner.stats.moved_pages += 1;
        }
        true
    }

    pub(crate) fn open_superblock(&self, inner: &mut Inner, stream: Stream) {
        let superblock = inner.space.open(stream).expect("room was made before");
        inner.streams[stream as usize].open(superblock);
        let order = inner.space.opened();
        inner.journal.begin();
        inner.journal.add(Record::Opened { superblock, stream: stream as u8, order });
        inner.journal.commit();
    }

    /// After a page was placed: the unit may be full, and with it the superblock.
    pub(crate) fn close_unit(&self, inner: &mut Inner, now: Time, stream: Stream) {
        if let Some(full) = inner.streams[stream as usize].full(self.flash.geometry()) {
            self.seal(inner, now, stream, full);
        }
    }

    pub(crate) fn seal(&self, inner: &mut Inner, now: Time, stream: Stream, full: crate::stream::Full) {
        let superblock = self.flash.geometry().superblock_of_unit(full.unit);
        let from = full.ready.max(now).max(inner.space.get(superblock).erased_at);
        let kind = match stream {
            Stream::Host => gnstor_model::Stream::Host,
            Stream::Collect => gnstor_model::Stream::Collect,
        };
        self.flash.start_program(full.unit);
        let at = self.timing().map_or(now, |mut timing| timing.program(from, full.unit, kind));
        inner.space.get_mut(superblock).unsettled += 1;
        inner.stats.flash_pages += u64::from(self.flash.geometry().unit_pages());
        let writing = &mut inner.streams[stream as usize];
        writing.seal(full, at);
        if let Some(superblock) = writing.finished(&self.flash) {
            inner.space.close(superblock);
            inner.journal.begin();
            inner.journal.add(Record::Closed { superblock });
            inner.journal.commit();
            self.note_emptied(inner, superblock);
        }
    }

    /// A superblock may have lost its last valid page.
    pub(crate) fn note_emptied(&self, inner: &mut Inner, superblock: Superblock) {
        let entry = inner.space.get(superblock);
        let empty = entry.state == State::Closed && entry.valid == 0;
        if empty && !inner.emptied.contains(&superblock) {
            if inner.victim.is_some_and(|victim| victim.superblock == superblock) {
                inner.victim = None;
            }
            inner.emptied.push(superblock);
        }
    }

    /// Erases up to `most` blocks of what may be erased, one superblock after the other.
    pub(crate) fn erase_emptied(&self, inner: &mut Inner, now: Time, most: u32) {
        let mut left = most;
        while left > 0 {
            let before = left;
            let mut emptied = std::mem::take(&mut inner.emptied);
            emptied.retain(|&superblock| !self.is_erased(inner, now, superblock, &mut left));
            debug_assert!(inner.emptied.is_empty(), "erasing empties nothing");
            inner.emptied = emptied;
            // Those before the one that was begun already have been passed over.
            if left == before {
                break;
            }
        }
        inner.more_to_erase = left == 0 && !inner.emptied.is_empty();
    }

    /// Goes on with the erase of a superblock where it is its turn; whether that is over.
    fn is_erased(&self, inner: &mut Inner, now: Time, superblock: Superblock, left: &mut u32) -> bool {
        let mut erasing = match inner.erasing.take() {
            Some(erasing) if erasing.superblock == superblock => erasing,
            None if self.may_be_erased(inner, superblock) => Erasing::new(superblock, now),
            other => {
                inner.erasing = other;
                return false;
            }
        };
        let is_over = self.erase_some(&mut erasing, inner, now, left);
        if is_over {
            self.end_erase(inner, erasing);
        } else {
            inner.erasing = Some(erasing);
        }
        is_over
    }

    fn may_be_erased(&self, inner: &Inner, superblock: Superblock) -> bool {
        let entry = inner.space.get(superblock);
        entry.unsettled == 0 && entry.let_go <= inner.journal.durable() && !self.is_pinned(superblock)
    }

    /// Erases `left` good blocks at most; `false` where some are left. Nobody comes to read them: the map no longer names them.
    fn erase_some(&self, erasing: &mut Erasing, inner: &mut Inner, now: Time, left: &mut u32) -> bool {
        for block in self.blocks_of(erasing.superblock).skip(erasing.over) {
            if !self.flash.is_bad(block) {
                if *left == 0 {
                    return false;
                }
                *left -= 1;
                if let Some(mut timing) = self.timing() {
                    erasing.erased_at = erasing.erased_at.max(timing.erase(now, block));
                }
                if self.flash.erase(block).is_err() {
                    self.flash.mark_bad(block);
                    inner.stats.bad_blocks += 1;
                    erasing.bad.push(block);
                }
            }
            erasing.over += 1;
        }
        true
    }

    fn end_erase(&self, inner: &mut Inner, erasing: Erasing) {
        let Erasing { superblock, bad, erased_at, .. } = erasing;
        let erases = inner.space.get(superblock).erases + 1;
        inner.journal.begin();
        bad.into_iter().for_each(|block| inner.journal.add(Record::Bad { block }));
        inner.journal.add(Record::Erased { superblock, erases });
        inner.journal.commit();
        inner.stats.erases += 1;
        inner.space.freed(superblock, erases, self.good_pages(superblock));
        inner.space.get_mut(superblock).erased_at = erased_at;
    }

    fn blocks_of(&self, superblock: Superblock) -> impl Iterator<Item = Block> + '_ {
        let geometry = self.flash.geometry();
        let first = geometry.first_unit(superblock).0;
        (first..first + geometry.dies()).map(|unit| geometry.block_of(Unit(unit)))
    }

    fn is_pinned(&self, superblock: Superblock) -> bool {
        self.blocks_of(superblock).any(|block| self.flash.is_pinned(block))
    }

    /// Pages of a superblock on good blocks.
    pub(crate) fn good_pages(&self, superblock: Superblock) -> u32 {
        let good = self.blocks_of(superblock).filter(|block| !self.flash.is_bad(*block)).count();
        let geometry = self.flash.geometry();
        u32::try_from(good).expect("dies") * geometry.rows() * geometry.unit_pages()
    }
}

/// A transaction at its longest, near enough: an insertion with a dozen moves.
const TRANSACTION_BYTES: u64 = 600;

/// Room that the journal must have before `blocks` blocks are written or forgotten, and as many moved by collection.
pub(crate) fn journal_bytes(blocks: u32) -> u64 {
    2 * u64::from(blocks + 4) * TRANSACTION_BYTES
}
