// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Superblocks: their states, valid pages and erase counts.
//!
//! ```text
//!   Free -open-> Open -close-> Closed -(no valid page left, journal durable, nothing pinned) erase--> Free
//!                                                                                     `-- Dead
//! ```
//! This bookkeeping accesses no flash. A restore rebuilds it from the map and the journal.

use gnstor_base::time::Time;
use gnstor_durable::Seq;
use gnstor_flash::Superblock;
use gnstor_model::Policy;

/// Source of a stream of writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stream {
    /// Hosts.
    Host = 0,
    /// Collection.
    Collect = 1,
}

/// State of a superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Erased.
    Free,
    /// Being filled by this stream.
    Open(Stream),
    /// Full.
    Closed,
    /// The superblock has no good block left.
    Dead,
}

/// Superblocks count as equally worn if their erase counts differ by less than this.
const NEAR: u32 = 4;

/// One superblock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) state: State,
    /// Pages that the map names.
    pub(crate) valid: u32,
    /// Number of its pages. It is lower than the geometry's if blocks are bad.
    pub(crate) good: u32,
    pub(crate) erases: u32,
    /// Number of superblocks opened before it: the measure of its age.
    pub(crate) order: u64,
    /// The newest transaction that let go of one of its pages: it must be durable before the erase.
    pub(crate) released: Seq,
    /// Units started and not durable yet.
    pub(crate) unprogrammed: u32,
    /// Pages that the map names here and that only the dump holds, until they are written elsewhere. Pages
    /// programmed here since then belong to other blocks.
    pub(crate) in_dump: u32,
    /// Time at which it is erased in the model.
    pub(crate) erased_at: Time,
    /// Records of some of its valid pages have rotted: those pages cannot be moved. It waits until their
    /// blocks are written, trimmed or healed.
    pub(crate) is_stuck: bool,
}

/// All superblocks of one SSD.
#[derive(Debug)]
pub(crate) struct Space {
    entries: Vec<Entry>,
    free: u32,
    closed: u32,
    opened: u64,
}

impl Space {
    /// `good(superblock)` returns the pages of a superblock on good blocks.
    pub(crate) fn new(superblocks: u32, good: impl Fn(Superblock) -> u32) -> Self {
        let fresh = |number| {
            let good = good(Superblock(number));
            let state = if good == 0 { State::Dead } else { State::Free };
            Entry {
                state,
                valid: 0,
                good,
                erases: 0,
                order: 0,
                released: 0,
                unprogrammed: 0,
                in_dump: 0,
                erased_at: Time::ZERO,
                is_stuck: false,
            }
        };
        let entries: Vec<Entry> = (0..superblocks).map(fresh).collect();
        let free = entries.iter().filter(|e| e.state == State::Free).count();
        Self {
            entries,
            free: u32::try_from(free).expect("as many as there are superblocks"),
            closed: 0,
            opened: 0,
        }
    }

    pub(crate) fn get(&self, superblock: Superblock) -> &Entry {
        &self.entries[superblock.0 as usize]
    }

    pub(crate) fn get_mut(&mut self, superblock: Superblock) -> &mut Entry {
        &mut self.entries[superblock.0 as usize]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Superblock, &Entry)> {
        (0u32..).map(Superblock).zip(&self.entries)
    }

    /// Whether some superblock is stuck.
    pub(crate) fn has_stuck(&self) -> bool {
        self.entries.iter().any(|entry| entry.is_stuck)
    }

    /// Whether some full superblock is not all on flash yet. Until then it is no victim.
    pub(crate) fn has_unprogrammed(&self) -> bool {
        self.entries.iter().any(|entry| entry.state == State::Closed && !Self::is_programmed(entry))
    }

    /// Superblocks that can be opened.
    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// Superblocks that are full.
    pub(crate) fn closed(&self) -> u32 {
        self.closed
    }

    /// Number of pages on good blocks, over all superblocks. One that is stuck gains no page.
    pub(crate) fn good_pages(&self) -> u64 {
        self.entries.iter().map(|e| u64::from(if e.is_stuck { e.valid } else { e.good })).sum()
    }

    /// The erase counts of single superblocks are lost: each counts as the mean of all.
    pub(crate) fn assume_erases(&mut self, mean: u32) {
        self.entries.iter_mut().for_each(|entry| entry.erases = mean);
    }

    /// Number of superblocks opened so far.
    pub(crate) fn opened(&self) -> u64 {
        self.opened
    }

    pub(crate) fn set_opened(&mut self, opened: u64) {
        self.opened = self.opened.max(opened);
    }

    /// Opens the free superblock with the fewest erases; of several the one that was erased first. A
    /// superblock that was just erased still waits for its dies in modelled time, and a unit on it would
    /// wait, too.
    pub(crate) fn open(&mut self, stream: Stream) -> Option<Superblock> {
        let free = self.entries.iter().enumerate().filter(|(_, e)| e.state == State::Free);
        let (number, _) = free.min_by_key(|(_, e)| (e.erases / NEAR, e.erased_at))?;
        let superblock = Superblock(u32::try_from(number).expect("a superblock's number"));
        self.opened += 1;
        self.reopen(superblock, stream, self.opened);
        Some(superblock)
    }

    /// Opens a given superblock, for a restore.
    pub(crate) fn reopen(&mut self, superblock: Superblock, stream: Stream, order: u64) {
        self.set_opened(order);
        let entry = &mut self.entries[superblock.0 as usize];
        if entry.state == State::Free {
            self.free -= 1;
        }
        if entry.state == State::Closed {
            self.closed -= 1;
        }
        (entry.state, entry.order) = (State::Open(stream), order);
    }

    pub(crate) fn close(&mut self, superblock: Superblock) {
        let entry = &mut self.entries[superblock.0 as usize];
        if entry.state == State::Free {
            self.free -= 1;
        }
        if entry.state != State::Closed {
            self.closed += 1;
        }
        entry.state = State::Closed;
    }

    /// The superblock has been erased, as the `erases`th time; `good` pages are left on good blocks.
    pub(crate) fn freed(&mut self, superblock: Superblock, erases: u32, good: u32) {
        let entry = &mut self.entries[superblock.0 as usize];
        if entry.state == State::Free {
            self.free -= 1;
        }
        if entry.state == State::Closed {
            self.closed -= 1;
        }
        let state = if good == 0 { State::Dead } else { State::Free };
        if state == State::Free {
            self.free += 1;
        }
        *entry = Entry {
            state,
            valid: 0,
            good,
            erases,
            order: 0,
            released: 0,
            unprogrammed: 0,
            in_dump: 0,
            erased_at: Time::ZERO,
            is_stuck: false,
        };
    }

    /// Whether it is full, and all of it is on flash.
    fn is_programmed(entry: &Entry) -> bool {
        entry.state == State::Closed && entry.unprogrammed == 0 && entry.in_dump == 0
    }

    /// Whether collection may take it: it is full and on flash, and has pages to move and pages to gain.
    fn collectable(entry: &Entry) -> bool {
        Self::is_programmed(entry) && !entry.is_stuck && (1..entry.good).contains(&entry.valid)
    }

    /// The best victim.
    pub(crate) fn victim(&self, policy: Policy) -> Option<Superblock> {
        let candidates = self.iter().filter(|(_, e)| Self::collectable(e));
        let best = match policy {
            // Of several equal ones it takes the oldest, whose pages had the longest time to be overwritten.
            Policy::Greedy => candidates.min_by_key(|(_, e)| (e.valid, e.order)),
            Policy::CostBenefit => candidates.max_by_key(|(_, e)| {
                let age = u128::from(self.opened - e.order + 1);
                age * u128::from(e.good - e.valid) * 1024 / u128::from(2 * e.valid + 1)
            }),
        };
        best.map(|(superblock, _)| superblock)
    }

    /// The full superblock with the fewest erases, if the most worn one is more than `bound` erases ahead of
    /// it.
    pub(crate) fn cold(&self, bound: u32) -> Option<Superblock> {
        let most = self.entries.iter().map(|e| e.erases).max()?;
        let full = self.iter().filter(|(_, e)| Self::is_programmed(e) && !e.is_stuck && e.valid > 0);
        let (superblock, entry) = full.min_by_key(|(_, e)| (e.erases, e.order))?;
        (most - entry.erases > bound).then_some(superblock)
    }

    /// Fewest, mean and most erases of the superblocks that are not dead.
    pub(crate) fn wear(&self) -> Wear {
        let live = || self.entries.iter().filter(|e| e.state != State::Dead).map(|e| e.erases);
        let sum: u64 = live().map(u64::from).sum();
        let count = live().count() as u64;
        Wear {
            least: live().min().unwrap_or(0),
            most: live().max().unwrap_or(0),
            mean_milli: (sum * 1000).checked_div(count).unwrap_or(0),
        }
    }
}

/// Spread of the erase counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wear {
    /// Erases of the least worn superblock.
    pub least: u32,
    /// Erases of the most worn superblock.
    pub most: u32,
    /// Mean erases of a superblock, in thousandths.
    pub mean_milli: u64,
}

#[cfg(test)]
#[path = "tests/space.rs"]
mod tests;
