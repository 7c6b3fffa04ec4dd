// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Superblocks beyond the over-provisioned space, and so when collection begins.
//!
//! ```text
//!   reserve | open: host, collection | free for collection and a restore | emptied, unerased | next victim |
//! ```
//! An emptied superblock is erased only when the journal durably has the new places of its pages. The
//! journal follows the data: everything in the write buffer goes to flash first. Hosts and collection write
//! on meanwhile. On a large SSD they fill a small part of a superblock, on a small SSD many superblocks. If
//! the over-provisioned space had to hold these, a small SSD would collect more than the large SSD that it
//! stands for.

use gnstor_flash::Geometry;
use gnstor_model::Preset;

/// Least number of superblocks beyond the logical pages: two open ones, one for collection, one for a
/// restore. The fifth one gives a full SSD a victim with some gain.
pub(crate) const LEAST: u32 = 5;

/// At most one of this many data superblocks waits for its erase; on a smaller SSD writes wait instead.
const SHARE: u64 = 8;

/// Superblocks of an SSD of this preset and geometry beyond its over-provisioned space.
pub fn reserved_superblocks(preset: &Preset, geometry: &Geometry, logical_pages: u64) -> u32 {
    let reserved = preset.reserved_superblocks(geometry).max(LEAST);
    reserved.max(LEAST + in_transit(preset, geometry, logical_pages))
}

/// Superblocks that fill up while the write buffer is emptied once, collection's included.
fn in_transit(preset: &Preset, geometry: &Geometry, logical_pages: u64) -> u32 {
    if preset.is_null() {
        return 0;
    }
    let superblock = u64::from(geometry.superblock_pages());
    let spare = u64::from(preset.over_provisioning_permille.max(1));
    // Pages that greedy collection programs for each page of a random write, about.
    let programmed = u64::from(preset.buffer_pages) * (1000 + spare) / (2 * spare);
    let share = preset.physical_pages(logical_pages).div_ceil(superblock) / SHARE;
    // A quarter more, as it comes in fits and starts; and the victim that is half empty.
    let filled = (programmed + programmed / 4).div_ceil(superblock) + 2;
    u32::try_from(filled.min(share)).expect("less than the superblocks there are")
}
