// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Meaning of single words of an image, for readers of the log.

use crate::map::Map;
use crate::shape::{Shape, VALID, block_of};
use crate::stash::STASH;
use crate::{MAX_LOAD, SLOTS};
use gnstor_proto::slba::Vid;

impl Map {
    /// Words of the image of a map that [`Map::new`] makes with these sizes; `None` for impossible sizes.
    pub fn words_for(entries: u64, pages: u64) -> Option<u64> {
        let buckets = entries.checked_mul(100)?.div_ceil(MAX_LOAD).div_ceil(SLOTS as u64);
        Some(Shape::new(buckets, pages, 0)?.slots() + 2 * STASH as u64)
    }

    /// The block and page that word `index` of the image names with this value. `None` for an empty slot, and
    /// for words of the stash: those belong to no bucket.
    pub fn entry_of_word(&self, index: u64, value: u64) -> Option<(Vid, u32, u32)> {
        let bucket = self.bucket_of_word(index).filter(|_| value & VALID != 0)?;
        let (vid, vba) = block_of(self.table.shape.key(bucket, value))?;
        Some((vid, vba, self.table.shape.page(value)))
    }

    /// The new value of word `index` when its block moves from page `from` to page `to`. `None` where the
    /// word does not name page `from`, and for words of the stash.
    pub fn moved_word(&self, index: u64, value: u64, from: u32, to: u32) -> Option<u64> {
        let names = value & VALID != 0 && self.table.shape.page(value) == from;
        self.bucket_of_word(index)
            .filter(|_| names)
            .map(|_| value & !self.table.shape.page_mask | u64::from(to))
    }

    /// The bucket that word `index` of the image is in; `None` for words of the stash.
    pub fn bucket_of_word(&self, index: u64) -> Option<u64> {
        let bucket = index / SLOTS as u64;
        (bucket < self.buckets()).then_some(bucket)
    }
}
