// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The last writes of each volume, by block and stamp (protocol rule 6).
//!
//! A writer keeps its outstanding sequences within a window of [`WINDOW`], so whoever remembers the last [`WINDOW`]
//! blocks knows about every write that an older one may still follow, also where the block has been deallocated since
//! and no page holds its stamp any more. Repair after a dead writer compares these lists between replicas. They are
//! power-protected: the journal names every stamp applied, the checkpoint holds the windows whole.

use gnstor_proto::slba::{Stamp, Vid};
use std::collections::{BTreeMap, HashMap};

/// Blocks remembered for each volume.
pub const WINDOW: usize = 4096;

/// The (vba, stamp) pairs applied last to one volume.
#[derive(Debug, Default)]
pub struct Window {
    ring: Vec<(u32, Stamp)>,
    next: usize,
    newest: HashMap<u32, usize>,
}

impl Window {
    /// The highest stamp of a block within the window.
    pub fn held(&self, vba: u32) -> Option<Stamp> {
        self.newest.get(&vba).map(|&at| self.ring[at].1)
    }

    /// Remembers an applied write. The caller applies only stamps above the one held.
    pub fn record(&mut self, vba: u32, stamp: Stamp) {
        if self.ring.len() < WINDOW {
            self.ring.push((vba, stamp));
        } else {
            let (old, _) = std::mem::replace(&mut self.ring[self.next], (vba, stamp));
            if self.newest.get(&old) == Some(&self.next) {
                self.newest.remove(&old);
            }
        }
        self.newest.insert(vba, self.next);
        self.next = (self.next + 1) % WINDOW;
    }

    /// Remembers as [`Self::record`] does, for a restore: [`Self::settle`] comes before anything else is asked.
    fn load(&mut self, vba: u32, stamp: Stamp) {
        if self.ring.len() < WINDOW {
            self.ring.push((vba, stamp));
        } else {
            self.ring[self.next] = (vba, stamp);
        }
        self.next = (self.next + 1) % WINDOW;
    }

    /// Finds out once which entries count, not anew for each of the millions that a journal names.
    fn settle(&mut self) {
        self.newest.clear();
        self.newest.reserve(self.ring.len());
        let oldest = if self.ring.len() < WINDOW { 0 } else { self.next };
        for at in (oldest..self.ring.len()).chain(0..oldest) {
            let (vba, stamp) = self.ring[at];
            let held = self.newest.entry(vba).or_insert(at);
            if self.ring[*held].1 <= stamp {
                *held = at;
            }
        }
    }

    /// Every remembered pair, oldest first; a block may come up more than once.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Stamp)> + '_ {
        let (newer, older) = self.ring.split_at(if self.ring.len() < WINDOW { 0 } else { self.next });
        older.iter().chain(newer).copied()
    }
}

/// The windows of all volumes.
#[derive(Debug, Default)]
pub(crate) struct Windows(BTreeMap<Vid, Window>);

impl Windows {
    pub(crate) fn get(&self, vid: Vid) -> Option<&Window> {
        self.0.get(&vid)
    }

    pub(crate) fn held(&self, vid: Vid, vba: u32) -> Option<Stamp> {
        self.0.get(&vid)?.held(vba)
    }

    pub(crate) fn record(&mut self, vid: Vid, vba: u32, stamp: Stamp) {
        self.0.entry(vid).or_default().record(vba, stamp);
    }

    /// Remembers during a restore; [`Self::settle`] ends it.
    pub(crate) fn load(&mut self, vid: Vid, vba: u32, stamp: Stamp) {
        self.0.entry(vid).or_default().load(vba, stamp);
    }

    /// All that a restore has found is there.
    pub(crate) fn settle(&mut self) {
        self.0.values_mut().for_each(Window::settle);
    }

    /// The volume's life is over: its next one starts with no stamps.
    pub(crate) fn forget(&mut self, vid: Vid) {
        self.0.remove(&vid);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Vid, &Window)> {
        self.0.iter().map(|(&vid, window)| (vid, window))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(sequence: u64) -> Stamp {
        Stamp { lease_epoch: 1, sequence }
    }

    #[test]
    fn the_window_remembers_exactly_the_last_4096_blocks() {
        let mut window = Window::default();
        for vba in 0..10_000u32 {
            window.record(vba, stamp(u64::from(vba)));
        }
        assert_eq!(window.held(10_000 - 4096), Some(stamp(10_000 - 4096)));
        assert_eq!(window.held(10_000 - 4097), None);
        let order: Vec<u32> = window.iter().map(|(vba, _)| vba).collect();
        assert_eq!(order, (10_000 - 4096..10_000).collect::<Vec<_>>());
    }

    #[test]
    fn a_block_written_again_keeps_its_newest_stamp_when_the_old_one_leaves() {
        let mut window = Window::default();
        window.record(7, stamp(1));
        window.record(7, stamp(2));
        for vba in 100..100 + 4095u32 {
            window.record(vba, stamp(3));
        }
        assert_eq!(window.held(7), Some(stamp(2)));
        window.record(9, stamp(4));
        assert_eq!(window.held(7), None);
    }

    #[test]
    fn a_window_that_was_loaded_is_the_one_that_was_recorded() {
        for steps in [0, 1, 4095, 4096, 4097, 9_000u32] {
            let (mut recorded, mut loaded) = (Window::default(), Window::default());
            for step in 0..steps {
                recorded.record(step * 7 % 5000, stamp(u64::from(step)));
                loaded.load(step * 7 % 5000, stamp(u64::from(step)));
            }
            loaded.settle();
            assert!((0..5000).all(|vba| recorded.held(vba) == loaded.held(vba)), "{steps}");
            for step in steps..steps + 5_000 {
                recorded.record(step * 3 % 5000, stamp(u64::from(step)));
                loaded.record(step * 3 % 5000, stamp(u64::from(step)));
            }
            assert!(recorded.iter().eq(loaded.iter()), "{steps}");
            assert!((0..5000).all(|vba| recorded.held(vba) == loaded.held(vba)), "{steps}");
        }
    }

    #[test]
    fn a_window_told_again_in_its_order_is_the_same_window() {
        let mut window = Window::default();
        for step in 0..9_000u32 {
            window.record(step * 7 % 5000, stamp(u64::from(step)));
        }
        let mut again = Window::default();
        window.iter().for_each(|(vba, stamp)| again.record(vba, stamp));
        assert!((0..5000).all(|vba| window.held(vba) == again.held(vba)));
    }
}
