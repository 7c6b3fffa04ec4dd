// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The writer of the map. There is only one.

use crate::batch::{Batch, each};
use crate::map::Map;
use crate::search::{At, Search};
use crate::shape::{VALID, WHICH};
use crate::stash::{self, STASH};
use crate::table::{Compared, Probe};
use crate::{SLOTS, Step, step};
use gnstor_proto::slba::Vid;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The table has no place for another key; nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the map has no place for another block")]
pub struct Full;

/// Changes the map. Every call reports each word that it changes to `log`, in order, as (index in the image,
/// new value). The change is complete only with all of these words, at most [`crate::MAX_CHANGES`].
#[derive(Debug)]
pub struct MapWriter {
    pub(crate) map: Arc<Map>,
    search: Search,
    /// Words were loaded and not checked yet.
    pub(crate) loading: bool,
}

/// If the first bucket has at least this many empty slots, a new key goes there; otherwise it goes to the
/// emptier bucket. Readers look into the first bucket first, and the emptier one saves moves.
const ENOUGH: u32 = 4;

/// A bucket and its slots for a key.
#[derive(Clone, Copy)]
struct Found {
    bucket: u64,
    slots: Compared,
}

impl Found {
    fn hit(self) -> Option<At> {
        self.at(self.slots.hit)
    }

    fn empty(self) -> Option<At> {
        self.at(self.slots.empty)
    }

    /// Number of empty slots.
    #[expect(clippy::cast_possible_truncation, reason = "eight slots")]
    fn room(self) -> u32 {
        (self.slots.empty as u8).count_ones()
    }

    fn at(self, bits: u32) -> Option<At> {
        (bits != 0).then(|| At { bucket: self.bucket, slot: bits.trailing_zeros() as usize })
    }
}

impl MapWriter {
    pub(crate) fn new(map: Arc<Map>) -> Self {
        Self { map, search: Search::new(), loading: false }
    }

    /// The map.
    pub fn map(&self) -> &Arc<Map> {
        &self.map
    }

    /// Maps a block to a page; the page it was mapped to before.
    ///
    /// # Errors
    /// [`Full`] where a new key has no place.
    ///
    /// # Panics
    /// If the page is not below the map's `pages`, or words were loaded and not checked.
    pub fn insert(
        &mut self,
        vid: Vid,
        vba: u32,
        page: u32,
        log: &mut impl FnMut(u64, u64),
    ) -> Result<Option<u32>, Full> {
        self.insert_at(&self.map.place(vid, vba), page, log)
    }

    /// As [`Self::insert`], for the block of the probe.
    ///
    /// # Errors
    /// [`Full`] if a new key has no place.
    ///
    /// # Panics
    /// As [`Self::insert`].
    pub fn insert_at(
        &mut self,
        probe: &Probe,
        page: u32,
        log: &mut impl FnMut(u64, u64),
    ) -> Result<Option<u32>, Full> {
        self.check(page);
        let first = self.look(u64::from(probe.first), probe.tag);
        if let Some(at) = first.hit() {
            return Ok(Some(self.set_page(at, page, log)));
        }
        let second = self.look(u64::from(probe.second), probe.tag | WHICH);
        if let Some(at) = second.hit() {
            return Ok(Some(self.set_page(at, page, log)));
        }
        if let Some(at) = self.stash_position(probe.key) {
            return Ok(Some(self.set_stashed(at, page, log)));
        }
        let content = probe.tag | u64::from(page);
        if !self.place_key(first, second, content, log) {
            let at = self.stash_gap().ok_or(Full)?;
            self.change_stash(at, VALID | probe.key, page, log);
        }
        self.map.len.set(self.map.len() + 1);
        Ok(None)
    }

    /// Prefetches for a batch that is about to be inserted. If both buckets of a new block are full, it
    /// prefetches the buckets to which other keys could move.
    #[inline]
    pub fn announce(&self, batch: &Batch) {
        for at in each(self.map.crowded(batch)) {
            self.map.ways(u64::from(batch.probe(at).first)).announce(&self.map.table);
        }
    }

    /// Unmaps a block; the page it was mapped to.
    ///
    /// # Panics
    /// If words were loaded and not checked.
    pub fn remove(&mut self, vid: Vid, vba: u32, log: &mut impl FnMut(u64, u64)) -> Option<u32> {
        self.remove_at(&self.map.place(vid, vba), log)
    }

    /// As [`Self::remove`], of the block that the probe was made for.
    ///
    /// # Panics
    /// As [`Self::remove`].
    pub fn remove_at(&mut self, probe: &Probe, log: &mut impl FnMut(u64, u64)) -> Option<u32> {
        self.check(0);
        let page = if let Some(at) = self.position(probe) {
            let page = self.map.table.shape.page(self.slot(at));
            self.store(at, 0, log);
            self.unstash(log);
            page
        } else {
            let at = self.stash_position(probe.key)?;
            let page = stash::page(self.map.table.memory.tail(), at);
            self.change_stash(at, 0, 0, log);
            page
        };
        self.map.len.set(self.map.len() - 1);
        Some(page)
    }

    /// Changes the page of the block that the probe was made for from `from` to `to`, if the block is mapped
    /// to `from`. Returns whether it was.
    ///
    /// # Panics
    /// As [`Self::insert`].
    pub fn replace_at(&mut self, probe: &Probe, from: u32, to: u32, log: &mut impl FnMut(u64, u64)) -> bool {
        self.check(to);
        if let Some(at) = self.position(probe) {
            let is = self.map.table.shape.page(self.slot(at)) == from;
            if is {
                self.set_page(at, to, log);
            }
            return is;
        }
        let Some(at) = self.stash_position(probe.key) else { return false };
        let is = stash::page(self.map.table.memory.tail(), at) == from;
        if is {
            self.set_stashed(at, to, log);
        }
        is
    }

    #[inline]
    fn check(&self, page: u32) {
        assert!(!self.loading, "the map was loaded and not checked");
        assert!(
            u64::from(page) < self.map.table.shape.pages,
            "page {page} of {}",
            self.map.table.shape.pages
        );
    }

    #[inline]
    fn look(&self, bucket: u64, tag: u64) -> Found {
        Found { bucket, slots: self.map.compare(bucket, tag) }
    }

    #[inline]
    fn position(&self, probe: &Probe) -> Option<At> {
        let second = || self.look(u64::from(probe.second), probe.tag | WHICH).hit();
        self.look(u64::from(probe.first), probe.tag).hit().or_else(second)
    }

    #[inline]
    fn slot(&self, at: At) -> u64 {
        self.map.table.memory.line(at.bucket)[at.slot].load(Ordering::Relaxed)
    }

    /// `Release`: a reader of the word sees the writes before it: the page's record, the count of a move.
    #[inline]
    fn store(&self, at: At, content: u64, log: &mut impl FnMut(u64, u64)) {
        self.map.table.memory.line(at.bucket)[at.slot].store(content, Ordering::Release);
        log(at.bucket * SLOTS as u64 + at.slot as u64, content);
        step(Step::Changed);
    }

    #[inline]
    fn set_page(&self, at: At, page: u32, log: &mut impl FnMut(u64, u64)) -> u32 {
        let old = self.slot(at);
        self.store(at, old & !self.map.table.shape.page_mask | u64::from(page), log);
        self.map.table.shape.page(old)
    }

    /// Puts a new key into one of its buckets. If both are full, it moves other keys.
    fn place_key(
        &mut self,
        first: Found,
        second: Found,
        content: u64,
        log: &mut impl FnMut(u64, u64),
    ) -> bool {
        let (firsts, seconds) = (first.room(), second.room());
        // As an index, because which it is cannot be foreseen: a branch would often go wrong.
        let at = match [first, second][usize::from(firsts < ENOUGH && seconds > firsts)].empty() {
            Some(at) => at,
            None => match self.make_room(first.bucket, second.bucket, log) {
                Some(at) => at,
                None => return false,
            },
        };
        self.store(at, if at.bucket == first.bucket { content } else { content | WHICH }, log);
        true
    }

    /// Moves keys until a slot of one of two full buckets may be overwritten, which the caller does next. The
    /// moves begin at the chain's end, so that each key is in the table at every moment.
    fn make_room(&mut self, first: u64, second: u64, log: &mut impl FnMut(u64, u64)) -> Option<At> {
        let chain = self.search.run(&self.map, first, second)?;
        let steps = chain.steps();
        for pair in steps.windows(2) {
            self.shift(pair[1], pair[0], log);
        }
        steps.last().copied()
    }

    /// Copies a slot to its key's other bucket and counts the move, before the old place is overwritten.
    pub(crate) fn shift(&self, from: At, to: At, log: &mut impl FnMut(u64, u64)) {
        let content = self.slot(from);
        self.store(to, content ^ WHICH, log);
        self.count_move(self.map.table.shape.rem(content));
        self.map.relocations.set(self.map.relocations() + 1);
    }

    fn count_move(&self, rem: u64) {
        let moves = self.map.moves(rem);
        moves.set(moves.get().wrapping_add(1));
        step(Step::Changed);
    }

    fn stash_position(&self, key: u64) -> Option<usize> {
        if self.map.stash.is_empty() { None } else { stash::position(self.map.table.memory.tail(), key) }
    }

    fn stash_gap(&self) -> Option<usize> {
        (0..STASH).find(|&at| stash::key(self.map.table.memory.tail(), at).is_none())
    }

    /// Writes an empty entry of the stash, or empties an entry.
    fn change_stash(&self, at: usize, key: u64, page: u32, log: &mut impl FnMut(u64, u64)) {
        let (stash, words) = (&self.map.stash, self.map.table.memory.tail());
        let count = if key == 0 { stash.len() - 1 } else { stash.len() + 1 };
        stash.change(count, || {
            words[2 * at].store(key, Ordering::Relaxed);
            words[2 * at + 1].store(u64::from(page), Ordering::Relaxed);
        });
        let index = self.map.table.shape.slots() + 2 * at as u64;
        log(index, key);
        log(index + 1, u64::from(page));
        step(Step::Changed);
    }

    fn set_stashed(&self, at: usize, page: u32, log: &mut impl FnMut(u64, u64)) -> u32 {
        let (stash, words) = (&self.map.stash, self.map.table.memory.tail());
        let old = stash::page(words, at);
        let word: &AtomicU64 = &words[2 * at + 1];
        stash.change(stash.len(), || word.store(u64::from(page), Ordering::Relaxed));
        log(self.map.table.shape.slots() + 2 * at as u64 + 1, u64::from(page));
        old
    }

    /// Whether a key of the stash is in the table too.
    pub(crate) fn in_table(&self, key: u64) -> bool {
        self.position(&self.map.table.place_of(key)).is_some()
    }

    /// After a removal an entry of the stash may fit into the table again.
    fn unstash(&mut self, log: &mut impl FnMut(u64, u64)) {
        if self.map.stash.is_empty() {
            return;
        }
        let words = self.map.table.memory.tail();
        let Some((at, key)) = (0..STASH).find_map(|at| stash::key(words, at).map(|key| (at, key))) else {
            return;
        };
        let page = stash::page(words, at);
        let probe = self.map.table.place_of(key);
        let first = self.look(u64::from(probe.first), probe.tag);
        let second = self.look(u64::from(probe.second), probe.tag | WHICH);
        if self.place_key(first, second, probe.tag | u64::from(page), log) {
            self.count_move(self.map.table.shape.rem(probe.tag));
            self.change_stash(at, 0, 0, log);
        }
    }
}
