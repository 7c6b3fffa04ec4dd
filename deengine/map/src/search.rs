// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The search for the shortest chain of moves that empties a slot.
//!
//! ```text
//!   wanted: a slot in A or B   A   B
//!   breadth first             /|\ /|\  each slot of a full bucket leads to the other bucket of its key
//!                            . C . . . until one has an empty slot: C.3 -> empty,  A.1 -> C.3,  A.1 is free
//!                             /|\
//! ```

use crate::SLOTS;
use crate::map::Map;
use crate::shape::WHICH;
use std::sync::atomic::Ordering;

/// Buckets that the search visits before an insertion fails.
const SEARCH_NODES: usize = 2000;
/// The longest chain. Four levels of eight-way branching are more than the nodes above.
pub(crate) const MAX_MOVES: usize = 5;

/// Buckets that are asked for ahead of the look into them. At 90 % load every second bucket has room.
const AHEAD: usize = 3;

/// A bucket that the search reached, and the slot of the previous bucket whose key would move into it.
#[derive(Clone, Copy, Debug)]
struct Node {
    bucket: u64,
    parent: u32,
    slot: u8,
    depth: u8,
}

const ROOT: u32 = u32::MAX;

/// Scratch of a search, allocated once.
#[derive(Debug)]
pub(crate) struct Search {
    nodes: Vec<Node>,
}

/// One slot of a bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) bucket: u64,
    pub(crate) slot: usize,
}

/// A chain of moves. The first one goes into the empty slot. Each move frees the slot for the next, and the
/// last one frees a slot for the new key.
#[derive(Debug)]
pub(crate) struct Chain {
    steps: [At; MAX_MOVES + 1],
    len: usize,
}

impl Chain {
    /// The empty slot, then the slot whose key moves there, and so on, up to a slot of a root bucket.
    pub(crate) fn steps(&self) -> &[At] {
        &self.steps[..self.len]
    }

    fn push(&mut self, at: At) {
        self.steps[self.len] = at;
        self.len += 1;
    }
}

impl Search {
    pub(crate) fn new() -> Self {
        Self { nodes: Vec::with_capacity(SEARCH_NODES) }
    }

    /// A chain that empties a slot of `first` or `second`, both of which are full.
    #[expect(clippy::cast_possible_truncation, reason = "fewer than 2000 nodes of 8 slots")]
    pub(crate) fn run(&mut self, map: &Map, first: u64, second: u64) -> Option<Chain> {
        self.nodes.clear();
        self.nodes.push(Node { bucket: first, parent: ROOT, slot: 0, depth: 1 });
        if second != first {
            self.nodes.push(Node { bucket: second, parent: ROOT, slot: 0, depth: 1 });
        }
        let mut head = 0;
        while head < self.nodes.len() {
            let Node { bucket: from, depth, .. } = self.nodes[head];
            let ways = Ways::from(map, from);
            ways.announce(map);
            for (turn, (bucket, slot)) in ways.iter().enumerate() {
                if let Some(&later) = ways.buckets.get(turn + AHEAD) {
                    map.memory.prefetch(later);
                }
                if bucket == from {
                    continue;
                }
                let empty = map.compare(bucket, 0).empty;
                if empty != 0 {
                    let empty = At { bucket, slot: empty.trailing_zeros() as usize };
                    return Some(self.chain(head as u32, slot, empty));
                }
                if self.nodes.len() < SEARCH_NODES && usize::from(depth) < MAX_MOVES {
                    self.nodes.push(Node { bucket, parent: head as u32, slot: slot as u8, depth: depth + 1 });
                }
            }
            head += 1;
        }
        None
    }

    /// The chain of moves from the empty slot back to a root of the search.
    fn chain(&self, mut node: u32, mut slot: usize, empty: At) -> Chain {
        let mut chain = Chain { steps: [empty; MAX_MOVES + 1], len: 1 };
        loop {
            let Node { bucket, parent, slot: before, .. } = self.nodes[node as usize];
            chain.push(At { bucket, slot });
            if parent == ROOT {
                return chain;
            }
            (node, slot) = (parent, usize::from(before));
        }
    }
}

/// The buckets to which the keys of a full bucket could move, in the order of the search. Keys that would
/// move to their first bucket come first, because readers look there first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ways {
    /// The other buckets of the keys.
    pub(crate) buckets: [u64; SLOTS],
    /// Their slots in the bucket that they are in.
    pub(crate) slots: [u64; SLOTS],
}

impl Ways {
    #[inline]
    pub(crate) fn from(map: &Map, bucket: u64) -> Self {
        match map.vector {
            Some(vector) => vector.ways(map, bucket),
            None => Self::plainly(map, bucket),
        }
    }

    pub(crate) fn plainly(map: &Map, bucket: u64) -> Self {
        let words = map.memory.line(bucket).each_ref().map(|slot| slot.load(Ordering::Relaxed));
        let mut ways = Self { buckets: [0; SLOTS], slots: [0; SLOTS] };
        let (mut seconds, mut firsts) = (0, words.iter().filter(|&word| word & WHICH != 0).count());
        for (slot, &word) in words.iter().enumerate() {
            let at = if word & WHICH != 0 { &mut seconds } else { &mut firsts };
            (ways.buckets[*at], ways.slots[*at]) =
                (map.shape.other(bucket, map.shape.rem(word)), slot as u64);
            *at += 1;
        }
        ways
    }

    /// Prefetches the buckets that the search visits first.
    #[inline]
    pub(crate) fn announce(&self, map: &Map) {
        self.buckets[..AHEAD].iter().for_each(|&bucket| map.memory.prefetch(bucket));
    }

    #[expect(clippy::cast_possible_truncation, reason = "a slot is below 8")]
    fn iter(&self) -> impl Iterator<Item = (u64, usize)> {
        self.buckets.iter().zip(&self.slots).map(|(&bucket, &slot)| (bucket, slot as usize))
    }
}
