// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Restore: words of an image, changes replayed over them, and a check of all before the map is used.

use crate::map::Map;
use crate::shape::{VALID, block_of};
use crate::stash::{self, STASH};
use crate::writer::MapWriter;
use crate::{SLOTS, Step, step};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets that are checked before their pages are reported.
const CHECKED: usize = 64;

/// Words that are no image of this map.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadImage {
    /// More words than the image has.
    #[error("words {first}..+{count} of an image of {words} words")]
    Beyond {
        /// First word.
        first: u64,
        /// Number of words.
        count: u64,
        /// Words of the image.
        words: u64,
    },
    /// A word that is neither empty nor a slot.
    #[error("word {index} of the image is {value:#018x}, neither empty nor taken")]
    Word {
        /// Index in the image.
        index: u64,
        /// The word.
        value: u64,
    },
    /// A slot with a page that the SSD does not have.
    #[error("word {index} of the image maps to page {page} of {pages}")]
    Page {
        /// Index in the image.
        index: u64,
        /// The page.
        page: u64,
        /// Pages are below this.
        pages: u64,
    },
    /// The key of a slot belongs to no block.
    #[error("word {index} of the image is {value:#018x}, which no block of any volume can have there")]
    Key {
        /// Index in the image.
        index: u64,
        /// The word.
        value: u64,
    },
    /// A key that is in the stash and in another place as well.
    #[error("word {index} of the image has a block that is in another place as well")]
    Twice {
        /// Index in the image.
        index: u64,
    },
}

impl MapWriter {
    /// Sets words of the image that [`Map::read_words`] returned. Call [`Self::finish_load`] before any other
    /// use.
    ///
    /// # Errors
    /// [`BadImage::Beyond`] if the image has no such words; then no word is set.
    pub fn load_words(&mut self, first: u64, words: &[u64]) -> Result<(), BadImage> {
        let Some(target) = self.map.range(first, words.len()) else {
            let (count, words) = (words.len() as u64, self.map.words());
            return Err(BadImage::Beyond { first, count, words });
        };
        self.loading = true;
        for (target, &word) in target.iter().zip(words) {
            set(target, word);
        }
        Ok(())
    }

    /// Sets one word of the image, as the log recorded it. Call [`Self::finish_load`] before any other use.
    ///
    /// # Errors
    /// As [`Self::load_words`].
    pub fn redo(&mut self, index: u64, value: u64) -> Result<(), BadImage> {
        self.load_words(index, &[value])
    }

    /// Checks the loaded words and counts the keys. Calls `each` with every mapped page.
    ///
    /// A used word must have a page below the map's `pages`, a remainder possible in its bucket, and a
    /// volume id that is not reserved. Words of the stash must also form pairs, and their keys must be in
    /// no other place. Not checked: a key that is twice in the table, and a page that is mapped twice.
    ///
    /// # Errors
    /// [`BadImage`] with the first wrong word. The map is unusable until other words are loaded and checked,
    /// or [`Self::clear`].
    pub fn finish_load(&mut self, mut each: impl FnMut(u32)) -> Result<(), BadImage> {
        self.loading = true;
        let (mut len, mut pages) = (0u64, [0; CHECKED * SLOTS]);
        let mut from = 0;
        while from < self.map.buckets() {
            let to = self.map.buckets().min(from + CHECKED as u64);
            let count = check(&self.map, from..to, &mut pages);
            let taken = &pages[..count.map_err(|bucket| wrong(&self.map, bucket))?];
            len += taken.len() as u64;
            taken.iter().for_each(|&page| each(page));
            from = to;
        }
        let stashed = self.check_stash(&mut each)?;
        self.map.stash.change(stashed, || {});
        self.map.len.set(len + stashed as u64);
        self.loading = false;
        Ok(())
    }

    /// Removes every key without a log entry: the caller begins a new image.
    pub fn clear(&mut self) {
        let (slots, tail) = (self.map.table.memory.words(), self.map.table.memory.tail());
        for word in &slots[..slots.len() - tail.len()] {
            set(word, 0);
            step(Step::Changed);
        }
        self.map.stash.change(0, || tail.iter().for_each(|word| set(word, 0)));
        self.map.len.set(0);
        self.loading = false;
    }

    fn check_stash(&self, each: &mut impl FnMut(u32)) -> Result<usize, BadImage> {
        let (shape, words) = (&self.map.table.shape, self.map.table.memory.tail());
        let mut count = 0;
        for at in 0..STASH {
            let index = shape.slots() + 2 * at as u64;
            let [first, second] = [0, 1].map(|word| words[2 * at + word].load(Ordering::Relaxed));
            if first == 0 && second == 0 {
                continue;
            }
            if first & VALID == 0 {
                return Err(BadImage::Word { index, value: first });
            }
            let key = first & !VALID;
            if block_of(key).is_none() {
                return Err(BadImage::Key { index, value: first });
            }
            if second >= shape.pages {
                return Err(BadImage::Page { index: index + 1, page: second, pages: shape.pages });
            }
            if stash::position(words, key) != Some(at) || self.in_table(key) {
                return Err(BadImage::Twice { index });
            }
            count += 1;
            each(stash::page(words, at));
        }
        Ok(count)
    }
}

/// Writes a word only if it differs, so that untouched memory stays untouched. `Release` serves readers
/// beside [`MapWriter::clear`].
#[inline]
fn set(target: &AtomicU64, word: u64) {
    if target.load(Ordering::Relaxed) != word {
        target.store(word, Ordering::Release);
    }
}

/// Checks the words of some buckets and puts the pages of used slots into `pages`, which has room for eight
/// per bucket. Returns the number of pages, or the first bucket with a wrong word.
pub(crate) fn check(map: &Map, buckets: Range<u64>, pages: &mut [u32]) -> Result<usize, u64> {
    match map.vector {
        Some(vector) => vector.check(&map.table, buckets, pages),
        None => check_plainly(map, buckets, pages),
    }
}

fn check_plainly(map: &Map, buckets: Range<u64>, pages: &mut [u32]) -> Result<usize, u64> {
    let mut count = 0;
    for bucket in buckets {
        for word in map.table.memory.line(bucket).iter() {
            let word = word.load(Ordering::Relaxed);
            if word == 0 {
                continue;
            }
            if !is_slot(map, bucket, word) {
                return Err(bucket);
            }
            pages[count] = map.table.shape.page(word);
            count += 1;
        }
    }
    Ok(count)
}

#[inline]
fn is_slot(map: &Map, bucket: u64, word: u64) -> bool {
    word & VALID != 0
        && word & map.table.shape.page_mask < map.table.shape.pages
        && map.table.shape.is_possible(bucket, word)
        && block_of(map.table.shape.key(bucket, word)).is_some()
}

/// The first wrong word of a bucket that has one.
#[cold]
fn wrong(map: &Map, bucket: u64) -> BadImage {
    let words = map.table.memory.line(bucket).each_ref().map(|word| word.load(Ordering::Relaxed));
    let is_wrong = |&word: &u64| word != 0 && !is_slot(map, bucket, word);
    let slot = words.iter().position(is_wrong).expect("a wrong word");
    let (index, value) = (bucket * SLOTS as u64 + slot as u64, words[slot]);
    let page = value & map.table.shape.page_mask;
    if value & VALID == 0 {
        BadImage::Word { index, value }
    } else if page >= map.table.shape.pages {
        BadImage::Page { index, page, pages: map.table.shape.pages }
    } else {
        BadImage::Key { index, value }
    }
}
