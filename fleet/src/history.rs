// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What may differ between the replicas of a volume: the window of stamps, the settled mark, and the regions
//! of blocks whose stamps left the window too early (rules 6 and 6a).
//!
//! ```text
//!   stamps   1 2 3 4 5 | 6 7 8 ...                     at or below the mark: the same on all replicas
//!                    mark ^     window                 above it: in the window, or its region has a bit
//! ```

use crate::Epoch;
use alloc::vec::Vec;
use gnstor_proto::slba::Stamp;

/// Blocks of a region: 1 MiB.
pub const REGION_BLOCKS: u32 = 256;

/// The stamp at or below which a volume is settled when no write lease is out.
pub const ALL: Stamp = Stamp { lease_epoch: u32::MAX, sequence: u64::MAX };

/// One volume's history on one SSD.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct History {
    capacity: usize,
    mark: Stamp,
    /// The newest epoch that a holder had when it reported a mark.
    marked_in: Epoch,
    /// Block and stamp, ascending by stamp.
    window: Vec<(u32, Stamp)>,
    /// Regions of stamps above the mark that left the window, ascending.
    regions: Vec<u32>,
    /// The highest of those stamps.
    left: Stamp,
    /// The power went: the window may lack stamps of the lease epoch.
    torn: bool,
}

/// What a settle compares.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unsettled {
    /// Every block of the volume that has a stamp of the lease epoch: the window was lost.
    Everything,
    /// These blocks, and each block of these regions.
    Some {
        /// Blocks.
        blocks: Vec<u32>,
        /// Regions of [`REGION_BLOCKS`].
        regions: Vec<u32>,
    },
}

impl Unsettled {
    /// Whether a settle compares the block.
    pub fn includes(&self, vba: u32) -> bool {
        match self {
            Self::Everything => true,
            Self::Some { blocks, regions } => {
                blocks.contains(&vba) || regions.contains(&(vba / REGION_BLOCKS))
            }
        }
    }
}

impl History {
    /// An empty history with room for so many stamps.
    pub fn new(capacity: usize) -> Self {
        let zero = Stamp::default();
        let (window, regions) = (Vec::new(), Vec::new());
        Self { capacity, mark: zero, marked_in: 0, window, regions, left: zero, torn: false }
    }

    /// A write was applied. The lowest stamp leaves a full window.
    pub fn record(&mut self, vba: u32, stamp: Stamp) {
        if stamp <= self.mark {
            return;
        }
        let at = self.window.partition_point(|&(_, known)| known < stamp);
        self.window.insert(at, (vba, stamp));
        if self.window.len() > self.capacity {
            self.forget_lowest();
        }
    }

    /// The lowest stamp leaves the window, as it does when more come. Above the mark it sets the bit of its
    /// region.
    pub fn forget_lowest(&mut self) {
        if self.window.is_empty() {
            return;
        }
        let (vba, stamp) = self.window.remove(0);
        if stamp > self.mark {
            let region = vba / REGION_BLOCKS;
            if let Err(at) = self.regions.binary_search(&region) {
                self.regions.insert(at, region);
            }
            self.left = self.left.max(stamp);
        }
    }

    /// MARK: everything at or below the stamp is the same on all replicas. `epoch` is that of the holder's
    /// map when it reported: a write beyond the mark can only end in that epoch or a later one. The regions
    /// end together, when the mark passes the highest stamp that left the window: one word instead of one for
    /// each region.
    pub fn settle(&mut self, mark: Stamp, epoch: Epoch) {
        self.marked_in = self.marked_in.max(epoch);
        self.mark = self.mark.max(mark);
        self.window.retain(|&(_, stamp)| stamp > self.mark);
        if self.mark >= self.left {
            (self.regions, self.left) = (Vec::new(), Stamp::default());
        }
        if self.mark == ALL {
            self.torn = false;
        }
    }

    /// A new write lease: the volume is not settled any more. Stamps of earlier leases stay settled. A mark
    /// within a lease stays as it is.
    pub fn granted(&mut self, lease_epoch: u32) {
        if self.mark == ALL {
            self.mark = Stamp { lease_epoch: lease_epoch.saturating_sub(1), sequence: u64::MAX };
        }
    }

    /// The power went and the window with it.
    pub fn tear(&mut self) {
        let (mark, marked_in) = (self.mark, self.marked_in);
        *self = Self { torn: true, mark, marked_in, ..Self::new(self.capacity) };
    }

    /// The mark.
    pub fn mark(&self) -> Stamp {
        self.mark
    }

    /// The epoch of the holder that reported it.
    pub fn marked_in(&self) -> Epoch {
        self.marked_in
    }

    /// All replicas are the same.
    pub fn is_settled(&self) -> bool {
        self.mark == ALL
    }

    /// What a settle has to compare.
    pub fn unsettled(&self) -> Unsettled {
        if self.torn {
            return Unsettled::Everything;
        }
        let blocks = self.window.iter().map(|&(vba, _)| vba).collect();
        Unsettled::Some { blocks, regions: self.regions.clone() }
    }
}
