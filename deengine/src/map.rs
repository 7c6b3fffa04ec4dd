// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The merged map, `[VID,VBA] -> PPA`: an exact quotient cuckoo table of 64-bit slots.
//!
//! ```text
//!   key (48) --keyed permutation--> p        i1 = p mod m      rem = p div m      i2 = (H(rem) - i1) mod m
//!
//!   slot    63    62                                                                        0
//!         +-----+-----+-------------------------------+------+-----------------------------+
//!         |valid|which|              rem              |spare |            PPA              |
//!         +-----+-----+-------------------------------+------+-----------------------------+
//! ```
//! The permutation loses nothing, and bucket, `which` and `rem` give `p` back: no key is stored and no lookup ever
//! matches falsely. A slot moves between its buckets without a look at flash, and a scan of the table lists every
//! mapped block. Four slots make a bucket of 32 bytes, so a lookup touches two cache lines at most. Any number of
//! buckets will do.
//!
//! A key that finds no place by moving others goes to a small stash; sized for [`MAX_LOAD`], the table is never so
//! full.

use crate::media::Ppa;
use gnstor_proto::placement::mix64;
use gnstor_proto::slba::Vid;

const SLOTS: usize = 4;
const KEY_BITS: u32 = 48;
const HALF_BITS: u32 = KEY_BITS / 2;
const HALF_MASK: u64 = (1 << HALF_BITS) - 1;
const ROUNDS: u64 = 4;
const VALID: u64 = 1 << 63;
const WHICH: u64 = 1 << 62;
/// Bits of a slot below `valid` and `which`.
const FIELD_BITS: u32 = 62;
/// Buckets looked at before an insertion gives up.
const SEARCH_NODES: usize = 2000;
const STASH: usize = 32;

/// The load a table is sized for, in percent. A study of it saw the first failed insertion at 97 %.
pub const MAX_LOAD: u64 = 93;

/// The table has no place for another key; what was in it still is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// The map of one SSD.
#[derive(Debug)]
pub struct Map {
    slots: Vec<u64>,
    buckets: u64,
    seed: u64,
    page_bits: u32,
    len: u64,
    relocations: u64,
    stash: Vec<(u64, Ppa)>,
    search: Vec<Node>,
}

/// A bucket reached by a search, and the slot of the bucket before whose content would move here.
#[derive(Clone, Copy, Debug)]
struct Node {
    bucket: u64,
    parent: usize,
    slot: usize,
}

const ROOT: usize = usize::MAX;

impl Map {
    /// A table for `entries` keys at [`MAX_LOAD`] with values below `pages`.
    ///
    /// # Panics
    /// If the fields do not fit in a slot; no geometry with fewer than 2^32 pages and as many entries as pages does
    /// that.
    pub fn new(entries: u64, pages: u32, seed: u64) -> Self {
        let buckets = (entries * 100).div_ceil(MAX_LOAD * SLOTS as u64).max(8);
        Self::with_buckets(buckets, pages, seed)
    }

    fn with_buckets(buckets: u64, pages: u32, seed: u64) -> Self {
        let page_bits = 32 - pages.saturating_sub(1).leading_zeros();
        let rem_bits = 64 - (((1u64 << KEY_BITS) - 1) / buckets).leading_zeros();
        assert!(rem_bits + page_bits <= FIELD_BITS, "{rem_bits} + {page_bits} bits do not fit in a slot");
        let slots = usize::try_from(buckets).expect("64-bit host") * SLOTS;
        Self {
            slots: vec![0; slots],
            buckets,
            seed,
            page_bits,
            len: 0,
            relocations: 0,
            stash: Vec::with_capacity(STASH),
            search: Vec::with_capacity(SEARCH_NODES),
        }
    }

    /// Number of keys.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of buckets, the range of [`Self::scan`].
    pub fn buckets(&self) -> u64 {
        self.buckets
    }

    /// Keys that found no place in the table proper.
    pub fn stashed(&self) -> usize {
        self.stash.len()
    }

    /// Slots moved so far to make room.
    pub fn relocations(&self) -> u64 {
        self.relocations
    }

    /// The page of a block.
    pub fn get(&self, vid: Vid, vba: u32) -> Option<Ppa> {
        let place = self.place(key_of(vid, vba));
        if let Some(at) = self.find(&place) {
            return Some(self.page(self.slots[at]));
        }
        self.stash.iter().find(|(key, _)| *key == key_of(vid, vba)).map(|&(_, page)| page)
    }

    /// Maps a block to a page; the page it was mapped to before.
    ///
    /// # Errors
    /// [`Full`] where a new key has no place.
    pub fn insert(&mut self, vid: Vid, vba: u32, page: Ppa) -> Result<Option<Ppa>, Full> {
        debug_assert!(u64::from(page.0) >> self.page_bits == 0, "{page:?} is beyond the geometry");
        let key = key_of(vid, vba);
        let place = self.place(key);
        if let Some(at) = self.find(&place) {
            let old = self.page(self.slots[at]);
            self.slots[at] = self.slots[at] & !self.page_mask() | u64::from(page.0);
            return Ok(Some(old));
        }
        if let Some(entry) = self.stash.iter_mut().find(|(stashed, _)| *stashed == key) {
            return Ok(Some(std::mem::replace(&mut entry.1, page)));
        }
        if !self.settle(&place, page) {
            if self.stash.len() == STASH {
                return Err(Full);
            }
            self.stash.push((key, page));
        }
        self.len += 1;
        Ok(None)
    }

    /// Unmaps a block; the page it was mapped to.
    pub fn remove(&mut self, vid: Vid, vba: u32) -> Option<Ppa> {
        let key = key_of(vid, vba);
        let place = self.place(key);
        let page = if let Some(at) = self.find(&place) {
            let page = self.page(self.slots[at]);
            self.slots[at] = 0;
            self.unstash();
            page
        } else {
            let at = self.stash.iter().position(|(stashed, _)| *stashed == key)?;
            self.stash.swap_remove(at).1
        };
        self.len -= 1;
        Some(page)
    }

    /// Every mapped block, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (Vid, u32, Ppa)> + '_ {
        self.scan(0, self.buckets)
    }

    /// The mapped blocks in `count` buckets from `first`, and with bucket 0 those of the stash. Between two scans an
    /// insertion may move a block from a bucket not yet scanned to one already scanned.
    pub fn scan(&self, first: u64, count: u64) -> impl Iterator<Item = (Vid, u32, Ppa)> + '_ {
        let end = (first + count).min(self.buckets);
        let stash: &[(u64, Ppa)] = if first == 0 { &self.stash } else { &[] };
        let table = (first.min(end)..end).flat_map(move |bucket| {
            let at = self.at(bucket);
            self.slots[at..at + SLOTS].iter().filter(|&&slot| slot & VALID != 0).map(move |&slot| {
                let p = self.rem(slot) * self.buckets + self.primary(bucket, slot);
                (self.unpermute(p), self.page(slot))
            })
        });
        table.chain(stash.iter().copied()).filter_map(|(key, page)| {
            #[expect(clippy::cast_possible_truncation, reason = "taking 16 and 32 bits out of 48")]
            let (vid, vba) = ((key >> 32) as u16, key as u32);
            // A key always came from a valid volume id.
            Vid::new(vid).map(|vid| (vid, vba, page))
        })
    }

    fn place(&self, key: u64) -> Place {
        let p = self.permute(key);
        let (rem, first) = (p / self.buckets, p % self.buckets);
        Place { rem, first, second: self.other(first, rem) }
    }

    fn find(&self, place: &Place) -> Option<usize> {
        let tag = VALID | place.rem << self.page_bits;
        [(place.first, tag), (place.second, tag | WHICH)].into_iter().find_map(|(bucket, tag)| {
            let at = self.at(bucket);
            (at..at + SLOTS).find(|&at| self.slots[at] & !self.page_mask() == tag)
        })
    }

    /// Puts a key that is not in the table into one of its buckets, moving others where it must.
    fn settle(&mut self, place: &Place, page: Ppa) -> bool {
        let slot = VALID | place.rem << self.page_bits | u64::from(page.0);
        for (bucket, slot) in [(place.first, slot), (place.second, slot | WHICH)] {
            if let Some(at) = self.empty_in(bucket) {
                self.slots[at] = slot;
                return true;
            }
        }
        let Some((bucket, at)) = self.make_room(place) else { return false };
        self.slots[at] = if bucket == place.first { slot } else { slot | WHICH };
        true
    }

    /// Breadth-first search for the shortest chain of moves that empties a slot of one of the two buckets. The moves
    /// are made from the chain's end, so that each key is in the table at every moment.
    fn make_room(&mut self, place: &Place) -> Option<(u64, usize)> {
        self.search.clear();
        for bucket in [place.first, place.second] {
            self.search.push(Node { bucket, parent: ROOT, slot: 0 });
        }
        let mut head = 0;
        while head < self.search.len() && self.search.len() + SLOTS <= SEARCH_NODES {
            let from = self.search[head].bucket;
            for slot in 0..SLOTS {
                let content = self.slots[self.at(from) + slot];
                let bucket = self.other(from, self.rem(content));
                if bucket == from {
                    continue;
                }
                if let Some(empty) = self.empty_in(bucket) {
                    return Some(self.shift(head, slot, empty));
                }
                self.search.push(Node { bucket, parent: head, slot });
            }
            head += 1;
        }
        None
    }

    /// Moves `slot` of node `node` to `empty`, then what the node before has into the gap, up to a root; the gap left
    /// there.
    fn shift(&mut self, mut node: usize, mut slot: usize, mut empty: usize) -> (u64, usize) {
        loop {
            let Node { bucket, parent, slot: before } = self.search[node];
            let at = self.at(bucket) + slot;
            self.slots[empty] = self.slots[at] ^ WHICH;
            self.slots[at] = 0;
            self.relocations += 1;
            if parent == ROOT {
                return (bucket, at);
            }
            (node, slot, empty) = (parent, before, at);
        }
    }

    /// After a removal the stash may fit into the table again.
    fn unstash(&mut self) {
        if let Some((key, page)) = self.stash.pop() {
            let place = self.place(key);
            if !self.settle(&place, page) {
                self.stash.push((key, page));
            }
        }
    }

    fn empty_in(&self, bucket: u64) -> Option<usize> {
        let at = self.at(bucket);
        (at..at + SLOTS).find(|&at| self.slots[at] == 0)
    }

    #[expect(clippy::cast_possible_truncation, reason = "a bucket number is below the table's length, a usize")]
    fn at(&self, bucket: u64) -> usize {
        bucket as usize * SLOTS
    }

    /// The other bucket of a remainder: its own inverse.
    fn other(&self, bucket: u64, rem: u64) -> u64 {
        let hash = mix64(rem ^ self.seed) % self.buckets;
        if hash >= bucket { hash - bucket } else { hash + self.buckets - bucket }
    }

    fn primary(&self, bucket: u64, slot: u64) -> u64 {
        if slot & WHICH == 0 { bucket } else { self.other(bucket, self.rem(slot)) }
    }

    fn rem(&self, slot: u64) -> u64 {
        (slot & !(VALID | WHICH)) >> self.page_bits
    }

    fn page_mask(&self) -> u64 {
        (1 << self.page_bits) - 1
    }

    #[expect(clippy::cast_possible_truncation, reason = "a page number has at most 32 bits")]
    fn page(&self, slot: u64) -> Ppa {
        Ppa((slot & self.page_mask()) as u32)
    }

    fn permute(&self, key: u64) -> u64 {
        let (mut left, mut right) = (key >> HALF_BITS, key & HALF_MASK);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ self.round(round, right));
        }
        left << HALF_BITS | right
    }

    fn unpermute(&self, p: u64) -> u64 {
        let (mut left, mut right) = (p >> HALF_BITS, p & HALF_MASK);
        for round in (0..ROUNDS).rev() {
            (left, right) = (right ^ self.round(round, left), left);
        }
        left << HALF_BITS | right
    }

    fn round(&self, round: u64, half: u64) -> u64 {
        mix64(self.seed ^ round << 56 ^ half) & HALF_MASK
    }
}

struct Place {
    rem: u64,
    first: u64,
    second: u64,
}

fn key_of(vid: Vid, vba: u32) -> u64 {
    u64::from(vid.get()) << 32 | u64::from(vba)
}

#[cfg(test)]
mod tests;
