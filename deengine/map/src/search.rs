// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The search for the shortest chain of moves that empties a slot.
//!
//! ```text
//!   wanted: a slot in A or B   A   B
//!   breadth first             /|\ /|\  each slot of a full bucket leads to the other bucket of its key
//!                            . C . . . until one has an empty slot: C.3 -> empty,  A.1 -> C.3,  A.1 is free
//!                             /|\
//! ```

use crate::map::Map;
use crate::ways::AHEAD;

/// Buckets that the search visits before an insertion fails.
const SEARCH_NODES: usize = 2000;
/// The longest chain. Four levels of eight-way branching are more than the nodes above.
pub(crate) const MAX_MOVES: usize = 5;

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
            let ways = map.ways(from);
            ways.announce(&map.table);
            for (turn, (bucket, slot)) in ways.iter().enumerate() {
                if let Some(&later) = ways.buckets.get(turn + AHEAD) {
                    map.table.memory.prefetch(later);
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
