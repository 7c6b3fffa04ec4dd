// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which blocks of places that fill are current ([`crate::Commits::is_current`]).

use crate::types::Target;
use gnstor_proto::slba::Vid;
use std::collections::BTreeMap;

const WORDS: usize = 64;
const WORD_SHIFT: u32 = 6;
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

    pub(crate) fn mark(&mut self, vid: Vid, generation: u32, vba: u32) {
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

    pub(crate) fn retain(&mut self, keep: impl Fn(u16, u32, u32) -> bool) {
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
