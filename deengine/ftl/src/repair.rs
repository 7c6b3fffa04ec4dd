// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a repair asks of the layer (rules 13 and 14 of the fleet). It asks what is held of a block, and gives
//! the block another content whatever the stamps are.
//!
//! In a place that fills, a block is *current* once a client has changed it, or it was compared with the
//! group's first. What is not current is of an earlier life of the SSD. Nothing of this outlives a restart.

use crate::layer::{Ftl, Inner};
use crate::types::{CommitError, NewBlock, Target};
use crate::write::Commits;
use gnstor_base::time::Time;
use gnstor_durable::Seq;
use gnstor_flash::Ppa;
use gnstor_map::Batch;
use gnstor_proto::pull::{Kind, LEAF, Row};
use gnstor_proto::slba::{Stamp, Vid};
use std::collections::BTreeMap;

/// State of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// No block, and no TRIM that is still known.
    Nothing,
    /// A block.
    Block {
        /// Stamp of the block.
        stamp: Stamp,
        /// Block sum.
        sum: u32,
    },
    /// The block was trimmed with this stamp.
    Tombstone {
        /// The stamp.
        stamp: Stamp,
    },
}

const WORDS: usize = 64;
const WORD_SHIFT: u32 = 6;
const _: () = assert!(LEAF as usize <= Batch::MOST, "a digest's blocks are looked up together");
/// log2 of the number of blocks in one part: 64 words of 64 bits.
const PART_SHIFT: u32 = 12;

/// Current blocks, a bit for each: by volume, generation and part.
#[derive(Debug, Default)]
pub(crate) struct Current(BTreeMap<(u16, u32, u32), Box<[u64; WORDS]>>);

impl Current {
    /// Part, word and bit of a block.
    fn at(vba: u32) -> (u32, usize, u64) {
        let word = (vba >> WORD_SHIFT) as usize % WORDS;
        (vba >> PART_SHIFT, word, 1 << (vba % u64::BITS))
    }

    pub(crate) fn has(&self, vid: Vid, generation: u32, vba: u32) -> bool {
        let (part, word, bit) = Self::at(vba);
        self.0.get(&(vid.get(), generation, part)).is_some_and(|words| words[word] & bit != 0)
    }

    fn mark(&mut self, vid: Vid, generation: u32, vba: u32) {
        let (part, word, bit) = Self::at(vba);
        self.0.entry((vid.get(), generation, part)).or_insert_with(|| Box::new([0; WORDS]))[word] |= bit;
    }

    /// A client has changed this block of the target.
    #[inline]
    pub(crate) fn note(&mut self, target: &Target, vba: u32) {
        if target.fills {
            self.mark(target.vid, target.generation, vba);
        }
    }

    fn retain(&mut self, keep: impl Fn(u16, u32, u32) -> bool) {
        self.0.retain(|&(vid, generation, part), words| {
            for (word, bits) in (0u32..).zip(words.iter_mut()) {
                let first = part << PART_SHIFT | word << WORD_SHIFT;
                let kept = |bit: &u32| *bits >> bit & 1 == 1 && keep(vid, generation, first + bit);
                *bits = (0..u64::BITS).filter(kept).fold(0, |bits, bit| bits | 1 << bit);
            }
            words.iter().any(|&bits| bits != 0)
        });
    }
}

impl Ftl {
    /// Forgets which blocks are current, but for the ones that `keep` names by volume, generation and block.
    pub fn retain_current(&self, keep: impl Fn(u16, u32, u32) -> bool) {
        self.lock().stamps.current.retain(keep);
    }

    /// No block is current.
    pub fn forget_current(&self) {
        self.lock().stamps.current = Current::default();
    }

    fn kept(&self, inner: &Inner, vid: Vid, generation: u32, vba: u32) -> Kept {
        let page = self.map.find(&self.map.probe(vid, vba)).map(Ppa);
        let same =
            |oob: &gnstor_flash::Oob| (oob.vid, oob.generation, oob.vba) == (vid.get(), generation, vba);
        if let Some(oob) = page.and_then(|page| self.flash.oob(page)).filter(same) {
            return Kept::Block { stamp: oob.stamp, sum: oob.sum };
        }
        let trimmed = inner.stamps.held(vid, vba).filter(|stamp| *stamp != Stamp::default());
        trimmed.map_or(Kept::Nothing, |stamp| Kept::Tombstone { stamp })
    }
}

impl Kept {
    fn row(self, block: u32) -> Row {
        let (kind, stamp) = match self {
            Self::Nothing => (Kind::Nothing, Stamp::default()),
            Self::Block { stamp, sum } => (Kind::Block { sum }, stamp),
            Self::Tombstone { stamp } => (Kind::Tombstone, stamp),
        };
        Row { block, kind, stamp }
    }
}

impl Ftl {
    /// Asks for the records of these blocks, ahead of [`Commits::digest`]: at most [`LEAF`] of them.
    pub fn announce_rows(&self, vid: Vid, blocks: &[u32]) {
        self.announce(blocks.iter().map(|vba| (vid, *vba)), &mut Batch::default());
    }
}

impl Commits<'_> {
    /// What is held of a block now. Nothing changes while the lock is held.
    pub fn kept(&self, vid: Vid, generation: u32, vba: u32) -> Kept {
        self.ftl.kept(&self.inner, vid, generation, vba)
    }

    /// The digest of the current content of these blocks.
    pub fn digest(&self, vid: Vid, generation: u32, blocks: &[u32]) -> u64 {
        let row = |vba: &u32| self.kept(vid, generation, *vba).row(*vba).digest();
        blocks.iter().map(row).fold(0, u64::wrapping_add)
    }

    /// Whether the stamp of this block of a filling place counts.
    pub fn is_current(&self, vid: Vid, generation: u32, vba: u32) -> bool {
        self.inner.stamps.current.has(vid, generation, vba)
    }

    /// The block was compared with the first of its group.
    pub fn mark_current(&mut self, vid: Vid, generation: u32, vba: u32) {
        self.inner.stamps.current.mark(vid, generation, vba);
    }

    /// The block gets this content, whatever the stamps are; `None`: nothing. The transaction, and when the
    /// write buffer has the data.
    ///
    /// # Errors
    /// [`CommitError`]; then nothing has changed, and the frame is still the caller's.
    pub fn replace(
        &mut self,
        now: Time,
        target: &Target,
        block: Option<NewBlock>,
    ) -> Result<(Seq, Time), CommitError> {
        let inner = &mut *self.inner;
        let replaced = match block {
            Some(block) => {
                let committed = self.ftl.commit_locked(inner, now, now, target, &[block], true)?;
                (committed.seq, committed.done)
            }
            None => (self.ftl.trim_locked(inner, now, target, 1, true)?.seq, now),
        };
        self.applied += 1;
        Ok(replaced)
    }

    /// A block that is not mapped has this stamp from now on; the zero stamp: none.
    pub fn note_stamp(&mut self, vid: Vid, vba: u32, stamp: Stamp) {
        if self.inner.stamps.held(vid, vba).unwrap_or_default() != stamp {
            self.inner.stamps.histories.record(vid, vba, stamp);
        }
    }
}
