// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The last writes of a volume, by block and stamp (protocol rule 6).
//!
//! A writer keeps its outstanding sequences within a window of [`WINDOW`], so whoever remembers the last [`WINDOW`]
//! blocks knows about every write that an older one may still follow, also where the block has been deallocated since
//! and no page holds its stamp any more. Repair after a dead writer compares these lists between replicas.

use gnstor_proto::slba::Stamp;
use std::collections::HashMap;

/// Blocks remembered for each volume.
pub const WINDOW: usize = 4096;

/// The (vba, stamp) pairs applied last.
#[derive(Debug, Default)]
pub struct StampWindow {
    ring: Vec<(u32, Stamp)>,
    next: usize,
    newest: HashMap<u32, usize>,
}

impl StampWindow {
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

    /// Every remembered pair, in no particular order; a block may come up more than once.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Stamp)> + '_ {
        self.ring.iter().copied()
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
        let mut window = StampWindow::default();
        for vba in 0..10_000u32 {
            window.record(vba, stamp(u64::from(vba)));
        }
        assert_eq!(window.held(10_000 - 4096), Some(stamp(10_000 - 4096)));
        assert_eq!(window.held(10_000 - 4097), None);
        assert_eq!(window.iter().count(), WINDOW);
    }

    #[test]
    fn a_block_written_again_keeps_its_newest_stamp_when_the_old_one_leaves() {
        let mut window = StampWindow::default();
        window.record(7, stamp(1));
        window.record(7, stamp(2));
        for vba in 100..100 + 4095u32 {
            window.record(vba, stamp(3));
        }
        assert_eq!(window.held(7), Some(stamp(2)));
        window.record(9, stamp(4));
        assert_eq!(window.held(7), None);
    }
}
