// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The readers' side, and why a reader without a lock is correct beside the writer.
//!
//! ```text
//!   writer, moving a key            1 store the new place     2 count the move   3 overwrite the old place
//!   reader, on a miss               1 load the count          2 look everywhere  3 load the count: the same?
//! ```
//! **A hit is right**: a slot is one word with its key and its page. While a key moves it is in two places,
//! with the same page in both. A change of the page comes before or after the move.
//!
//! **A miss is right**: let n be the count that the reader loaded first and last. It loads the count with
//! `Acquire`, so it sees the new places of the first n moves. Each is stored before its count (a
//! `Release`). Suppose that one of its loads saw the old place of a later move overwritten. Then its
//! `Acquire` fence after that load pairs with the `Release` of the overwrite, which comes after the count
//! of the move. So the second load of the count would have returned more than n. Therefore the key stayed
//! in one place for this reader, and the reader looked there. Moves are counted in stripes by the key's
//! remainder, so that moves of other keys rarely make a reader repeat its lookup.
//!
//! The first look of a reader does not load the count, because a hit needs none. The same holds for a batch:
//! blocks that it misses are then looked up one by one.

use crate::counter::Counter;
use crate::memory::Memory;
use crate::shape::{Shape, WHICH, block_of, key_of};
use crate::stash::{STASH, Stash};
use crate::table::{Compared, Probe, Table};
use crate::vector::Vector;
use crate::ways::Ways;
use crate::{Step, step};
use gnstor_base::region::HostRegion;
use gnstor_proto::slba::Vid;
use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Counters of moves.
const STRIPES: usize = 64;

/// The map of one SSD, as its readers see it: any number of threads, none of which ever waits for a lock.
#[derive(Debug)]
pub struct Map {
    pub(crate) table: Table,
    /// Present if the processor can handle eight keys at once.
    pub(crate) vector: Option<Vector>,
    pub(crate) stash: Stash,
    moves: [Counter; STRIPES],
    pub(crate) len: Counter,
    pub(crate) relocations: Counter,
}

impl Map {
    /// An empty map. It uses the instructions that only some processors have if there is a `vector`.
    pub(crate) fn over(shape: Shape, vector: Option<Vector>) -> std::io::Result<Self> {
        let lines = usize::try_from(shape.buckets)
            .map_err(|_| Error::new(ErrorKind::InvalidInput, "a map beyond the address space"))?;
        Ok(Self {
            table: Table { memory: Memory::new(lines, 2 * STASH)?, shape },
            vector,
            stash: Stash::default(),
            moves: std::array::from_fn(|_| Counter::default()),
            len: Counter::default(),
            relocations: Counter::default(),
        })
    }

    /// The page of a block.
    #[inline]
    pub fn get(&self, vid: Vid, vba: u32) -> Option<u32> {
        self.find(&self.place(vid, vba))
    }

    /// Computes the place of a block and has both its buckets fetched into the cache.
    #[inline]
    pub fn probe(&self, vid: Vid, vba: u32) -> Probe {
        let probe = self.place(vid, vba);
        self.table.memory.prefetch(u64::from(probe.first));
        self.table.memory.prefetch(u64::from(probe.second));
        probe
    }

    /// As [`Self::probe`], but only the first bucket, where most keys are.
    #[inline]
    pub fn probe_first(&self, vid: Vid, vba: u32) -> Probe {
        let probe = self.place(vid, vba);
        self.table.memory.prefetch(u64::from(probe.first));
        probe
    }

    /// The page of the block that the probe was made for, in this map.
    #[inline]
    pub fn find(&self, probe: &Probe) -> Option<u32> {
        if let Some(page) = self.look(u64::from(probe.first), probe.tag) {
            return Some(page);
        }
        step(Step::Missed);
        if let Some(page) = self.look(u64::from(probe.second), probe.tag | WHICH) {
            return Some(page);
        }
        step(Step::Missed);
        self.find_surely(probe)
    }

    /// Number of keys.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len.get()
    }

    /// Whether the map has no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of buckets, the range of [`Self::scan`].
    pub fn buckets(&self) -> u64 {
        self.table.shape.buckets
    }

    /// The two buckets that a block may be in.
    pub fn buckets_of(&self, vid: Vid, vba: u32) -> [u64; 2] {
        let probe = self.place(vid, vba);
        [probe.first.into(), probe.second.into()]
    }

    /// Keys that found no place in the table proper.
    #[inline]
    pub fn stashed(&self) -> usize {
        self.stash.len()
    }

    /// Number of slots that were moved to make room.
    #[inline]
    pub fn relocations(&self) -> u64 {
        self.relocations.get()
    }

    /// Keys by slots.
    #[expect(clippy::cast_precision_loss, reason = "a share; counts are below 2^36")]
    pub fn load(&self) -> f64 {
        self.len() as f64 / self.table.shape.slots() as f64
    }

    /// The mapped blocks in `count` buckets from `first_bucket`, with their pages. Bucket 0 includes the
    /// stash. While the map is written, and between two scans, an insertion may move a block from a bucket
    /// not yet scanned to a scanned one.
    pub fn scan(&self, first_bucket: u64, count: u64) -> impl Iterator<Item = (Vid, u32, u32)> + '_ {
        let end = first_bucket.saturating_add(count).min(self.table.shape.buckets);
        let stash = if first_bucket == 0 && count > 0 {
            self.stash.copy(self.table.memory.tail())
        } else {
            [None; STASH]
        };
        let table = (first_bucket.min(end)..end).flat_map(move |bucket| {
            self.table.memory.line(bucket).iter().filter_map(move |slot| {
                let slot = slot.load(Ordering::Acquire);
                (slot != 0).then(|| (self.table.shape.key(bucket, slot), self.table.shape.page(slot)))
            })
        });
        // A key always came from a valid volume id.
        table.chain(stash.into_iter().flatten()).filter_map(|(key, page)| {
            let (vid, vba) = block_of(key)?;
            Some((vid, vba, page))
        })
    }

    /// The memory that it is in.
    pub fn region(&self) -> &Arc<HostRegion> {
        self.table.memory.region()
    }

    /// Number of words of the image: the slots, then the stash.
    pub fn words(&self) -> u64 {
        self.table.memory.words().len() as u64
    }

    /// Copies words of the image while the map may change. Each copied word is as it was at some time during
    /// the copy. Replaying every change that the log got since the copy began, in order, gives the exact
    /// image.
    ///
    /// # Panics
    /// If the words are not all in the image.
    pub fn read_words(&self, first: u64, out: &mut [u64]) {
        let words = self.range(first, out.len()).expect("words of the image");
        for (out, word) in out.iter_mut().zip(words) {
            *out = word.load(Ordering::Relaxed);
        }
        fence(Ordering::Acquire);
    }

    /// Words of the image, if the image has this many.
    pub(crate) fn range(&self, first: u64, count: usize) -> Option<&[AtomicU64]> {
        let first = usize::try_from(first).ok()?;
        self.table.memory.words().get(first..first.checked_add(count)?)
    }

    #[inline]
    pub(crate) fn place(&self, vid: Vid, vba: u32) -> Probe {
        self.table.place_of(key_of(vid, vba))
    }

    /// The counter of a remainder's moves.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "only the lowest bits count")]
    pub(crate) fn moves(&self, rem: u64) -> &Counter {
        &self.moves[rem as usize % STRIPES]
    }

    /// The page beside a tag in a bucket.
    ///
    /// The page is the lowest bits of a slot. So `slot ^ tag` is the page where the tag matches, and more
    /// than any page elsewhere. Without vectors the minimum of the eight decides, without an unpredictable
    /// branch.
    #[inline]
    pub(crate) fn look(&self, bucket: u64, tag: u64) -> Option<u32> {
        let (line, page_mask) = (self.table.memory.line(bucket), self.table.shape.page_mask);
        let (hit, page) = match self.vector {
            Some(vector) => vector.page(line, tag, page_mask),
            None => {
                let least =
                    line.iter().fold(u64::MAX, |least, slot| least.min(slot.load(Ordering::Relaxed) ^ tag));
                (least <= page_mask, self.table.shape.page(least))
            }
        };
        // A reader that got a page from a slot sees the writes before the page was entered. A reader that
        // missed a key sees the count of the move that took it away.
        fence(Ordering::Acquire);
        hit.then_some(page)
    }

    /// Slots of a bucket that have a tag, and empty slots. Only the writer calls this, and needs no fence to
    /// see its own writes.
    #[inline]
    pub(crate) fn compare(&self, bucket: u64, tag: u64) -> Compared {
        let line = self.table.memory.line(bucket);
        match self.vector {
            Some(vector) => vector.compare(line, tag, self.table.shape.page_mask),
            None => self.table.compare_plainly(line, tag),
        }
    }

    /// The buckets to which the keys of a full bucket could move.
    #[inline]
    pub(crate) fn ways(&self, bucket: u64) -> Ways {
        match self.vector {
            Some(vector) => vector.ways(&self.table, bucket),
            None => Ways::plainly(&self.table, bucket),
        }
    }

    /// Repeats the lookup until no move happened during it.
    #[cold]
    #[inline(never)]
    pub(crate) fn find_surely(&self, probe: &Probe) -> Option<u32> {
        let moves = self.moves(self.table.shape.rem(probe.tag));
        loop {
            let before = moves.acquire();
            for (bucket, tag) in [(probe.first, probe.tag), (probe.second, probe.tag | WHICH)] {
                if let Some(page) = self.look(u64::from(bucket), tag) {
                    return Some(page);
                }
                step(Step::Missed);
            }
            step(Step::TableMissed);
            if let Some(page) = self.stash.look(self.table.memory.tail(), probe.key) {
                return Some(page);
            }
            fence(Ordering::Acquire);
            if moves.get() == before {
                return None;
            }
            std::hint::spin_loop();
        }
    }
}
