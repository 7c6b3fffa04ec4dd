// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drawn sessions of a map alone.

use crate::dice::Dice;
use crate::op::{Op, block_of};
use gnstor_proto::placement::mix64;
use std::collections::VecDeque;

/// A session of a map alone.
pub(crate) struct MapSession {
    dice: Dice,
    /// Seed of the blocks' numbers.
    seed: u64,
    pages: u32,
    keys: u32,
    is_large: bool,
    due: VecDeque<Op>,
}

pub(crate) fn map_session(seed: u64) -> MapSession {
    let mut dice = Dice(mix64(seed ^ 0x4D41_5000));
    let entries = dice.of(&[1u64, 30, 59, 200, 1000, 20_000]);
    let pages = dice.of(&[1u64, 100, 4096, 1 << 15]);
    let mut due = VecDeque::from([Op::Map { entries, pages, seed: dice.roll() }]);
    let slots = u32::try_from(entries * 100 / 93).expect("small").max(64);
    // In some sessions there are more keys than slots and stash hold, in others fewer. A full large table
    // takes long to find no place, and its image takes long to sum up.
    let is_large = entries == 20_000;
    let keys = slots * if is_large { 97 } else { dice.of(&[80, 96, 105, 150, 180]) } / 100;
    if is_large {
        // The number is so large that drawn blocks could not fill the map.
        due.extend([Op::Fill { first: 0, seed, count: slots * 93 / 100 }, Op::Image]);
    }
    MapSession { dice, seed, pages: u32::try_from(pages).expect("small"), keys, is_large, due }
}

impl MapSession {
    pub(crate) fn next(&mut self) -> Op {
        if let Some(op) = self.due.pop_front() {
            return op;
        }
        let number = self.dice.below(self.keys);
        let (vid, vba) = block_of(self.seed, number.into());
        let page = self.dice.below(self.pages);
        match self.dice.below(1000) {
            0..650 => Op::Insert { vid, vba, page },
            650..800 => Op::Remove { vid, vba },
            800..860 => Op::Replace { vid, vba, from: self.dice.below(self.pages), to: page },
            860..960 => Op::Find { vid, vba },
            960..963 => Op::Look { first: number.into(), seed: self.seed, count: self.dice.below(200) },
            963..965 => Op::Words { first: self.dice.below(2000).into(), count: self.dice.below(8) },
            965..971 => Op::Scan { first: self.dice.below(9).into(), count: self.dice.below(20).into() },
            971..973 => {
                let count = self.dice.of(&[1, 3, u64::MAX]);
                self.due.push_back(Op::Image);
                Op::Sweep { vid, first: 0, count }
            }
            973 if self.dice.one_in(8) => {
                let index = self.dice.below(140).into();
                self.due.extend([Op::Check, Op::Clear]);
                Op::SetWord { index, value: self.dice.roll() | u64::from(self.dice.below(2)) << 63 }
            }
            _ if self.is_large && !self.dice.one_in(50) => Op::Find { vid, vba },
            _ => Op::Image,
        }
    }
}
