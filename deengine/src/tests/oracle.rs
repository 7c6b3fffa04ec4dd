// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each block may hold: a slow map of stamps, beside the SSD.
//!
//! ```text
//!   states of a block, by stamp:   0 ...... hard ...... acked ...... in flight
//!                                           |           |            |
//!                                           |           |            may be there, or not
//!                                           |           a read finds this or a later one;
//!                                           |           so does a restart with a dump
//!                                           a restart without a dump finds this or a later one
//! ```
//! A write at or below a stamp that was acknowledged before it was sent changes nothing (protocol rule 6),
//! so it adds no state. A refused write takes its states back. The zero stamp is the block that was never
//! written.

use gnstor_proto::placement::mix64;
use gnstor_proto::slba::Stamp;
use std::collections::{BTreeMap, HashMap};

/// Numbers from a seed.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix64(self.0)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }

    pub(super) fn small(&mut self, end: u32) -> u32 {
        u32::try_from(self.below(end.into())).expect("below a u32")
    }

    pub(super) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("below a usize")
    }

    pub(super) fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.index(list.len())]
    }

    pub(super) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// Volume id, generation, block.
pub(super) type Key = (u16, u32, u32);

/// A content: the number it follows from, or zeros.
pub(super) type Content = Option<u64>;

#[derive(Clone, Copy, Debug)]
struct State {
    stamp: Stamp,
    content: Content,
    command: u64,
}

const NEVER: State = State { stamp: Stamp { lease_epoch: 0, sequence: 0 }, content: None, command: 0 };

#[derive(Debug)]
struct Block {
    /// Possible contents since the last restart.
    states: Vec<State>,
    acked: Stamp,
    hard: Stamp,
    /// Data of any time, for a rebuild from records alone: a TRIM that only the journal knew comes undone.
    ever: Vec<(Stamp, u64)>,
}

impl Default for Block {
    fn default() -> Self {
        Self { states: vec![NEVER], acked: NEVER.stamp, hard: NEVER.stamp, ever: Vec::new() }
    }
}

/// Guarantee of a restart (protocol rule 11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Promise {
    /// All acknowledged writes.
    Acknowledged,
    /// Writes that were acknowledged before a Flush, or with FUA.
    Durable,
    /// As [`Self::Durable`], but a TRIM may be undone.
    Records,
    /// The content is either zeros or some content that was once written there.
    Ever,
}

/// The possible states of all blocks.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    blocks: BTreeMap<Key, Block>,
    commands: HashMap<u64, Vec<Key>>,
    /// Whether it keeps the states for [`Promise::Records`].
    keep_all: bool,
}

impl Oracle {
    /// An oracle that also knows what a rebuild may bring back.
    pub(super) fn keeping_all() -> Self {
        Self { keep_all: true, ..Self::default() }
    }

    /// A command that will put this content on a block has been sent.
    pub(super) fn sent(&mut self, command: u64, key: Key, stamp: Stamp, content: Content) {
        self.commands.entry(command).or_default().push(key);
        let block = self.blocks.entry(key).or_default();
        if stamp > block.acked {
            block.states.push(State { stamp, content, command });
            if let (true, Some(tag)) = (self.keep_all, content) {
                block.ever.push((stamp, tag));
            }
        }
    }

    /// The command was completed with success.
    pub(super) fn succeeded(&mut self, command: u64, stamp: Stamp, hard: bool) {
        for key in self.commands.remove(&command).unwrap_or_default() {
            let Some(block) = self.blocks.get_mut(&key) else { continue };
            block.acked = block.acked.max(stamp);
            if hard {
                block.hard = block.hard.max(stamp);
            }
        }
    }

    /// The command was refused: it has done nothing.
    pub(super) fn refused(&mut self, command: u64) {
        for key in self.commands.remove(&command).unwrap_or_default() {
            if let Some(block) = self.blocks.get_mut(&key) {
                block.states.retain(|state| state.command != command);
            }
        }
    }

    /// The writes that a Flush covers which is sent now.
    pub(super) fn snapshot(&self) -> Vec<(Key, Stamp)> {
        self.blocks.iter().filter(|(_, b)| b.acked > b.hard).map(|(&key, block)| (key, block.acked)).collect()
    }

    /// A Flush that was sent at the snapshot was completed.
    pub(super) fn flushed(&mut self, snapshot: &[(Key, Stamp)]) {
        for (key, stamp) in snapshot {
            if let Some(block) = self.blocks.get_mut(key) {
                block.hard = block.hard.max(*stamp);
            }
        }
    }

    /// The highest stamp acknowledged for a block.
    pub(super) fn acked(&self, key: Key) -> Stamp {
        self.blocks.get(&key).map_or(NEVER.stamp, |block| block.acked)
    }

    /// A content that the block may well have.
    pub(super) fn guess(&self, key: Key, dice: u64) -> Content {
        let states = &self.blocks.get(&key)?.states;
        // A volume on its way out has none, maybe.
        let back = usize::try_from(dice % 3).expect("small").min(states.len().saturating_sub(1));
        states.iter().rev().nth(back).and_then(|state| state.content)
    }

    /// A read that was sent when `floor` was acknowledged finds this: whether it may.
    pub(super) fn may_read(&self, key: Key, floor: Stamp, found: Content) -> bool {
        match self.blocks.get(&key) {
            None => found.is_none(),
            Some(block) => block.states.iter().any(|state| state.stamp >= floor && state.content == found),
        }
    }

    /// Checks whether a block may have this content after a restart. From here on it is the only state.
    pub(super) fn reconcile(&mut self, key: Key, promise: Promise, found: Content) -> Result<(), String> {
        let Some(block) = self.blocks.get_mut(&key) else {
            return if found.is_none() {
                Ok(())
            } else {
                Err(format!("{key:?}: {found:?} on a block never written"))
            };
        };
        let floor = if promise == Promise::Acknowledged { block.acked } else { block.hard };
        let fits = |state: &&State| state.stamp >= floor && state.content == found;
        let oldest = block.states.iter().filter(fits).map(|state| state.stamp).min();
        let stamp = match (oldest, promise) {
            (Some(stamp), Promise::Acknowledged | Promise::Durable) => stamp,
            (_, Promise::Records) => {
                let is_data = |state: &&State| state.stamp == floor && state.content.is_some();
                // A TRIM that was not made durable may have become durable, and the page been erased.
                let trimmed = block.states.iter().any(|state| state.stamp > floor && state.content.is_none());
                let hard_data = block.states.iter().any(|state| is_data(&state)) && !trimmed;
                match found {
                    None if hard_data => return Err(format!("{key:?}: a rebuild lost it: {block:?}")),
                    None => NEVER.stamp,
                    Some(tag) => {
                        let known =
                            block.ever.iter().find(|(_, known)| *known == tag).map(|(stamp, _)| *stamp);
                        known
                            .filter(|stamp| !hard_data || *stamp >= floor)
                            .ok_or_else(|| format!("{key:?}: a rebuild brought {tag}: {block:?}"))?
                    }
                }
            }
            (_, Promise::Ever) => match found {
                None => NEVER.stamp,
                Some(tag) => {
                    let known = block.ever.iter().find(|(_, known)| *known == tag).map(|(stamp, _)| *stamp);
                    known.ok_or_else(|| format!("{key:?}: {tag} was never written there: {block:?}"))?
                }
            },
            (None, _) => {
                return Err(format!("{key:?}: found {found:?}, promised {floor:?} or newer: {block:?}"));
            }
        };
        (block.acked, block.hard) = (stamp, stamp);
        block.states = vec![State { stamp, content: found, command: 0 }];
        Ok(())
    }

    /// Nothing is in flight, so only the last acknowledged state is possible.
    pub(super) fn quiesce(&mut self) {
        assert!(self.commands.is_empty(), "nothing is in flight");
        for block in self.blocks.values_mut() {
            block.states.retain(|state| state.stamp >= block.acked);
        }
    }

    /// The power went: what was in flight will not be answered any more.
    pub(super) fn cut(&mut self) {
        self.commands.clear();
    }

    /// A life of a volume is over.
    pub(super) fn forget(&mut self, vid: u16, generation: u32) {
        self.blocks.retain(|&(v, g, _), _| (v, g) != (vid, generation));
    }
}
