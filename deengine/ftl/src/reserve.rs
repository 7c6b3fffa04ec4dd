// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many superblocks there are beyond the over-provisioned space, and so when collection begins.
//!
//! ```text
//!   reserve  | open: host, collection | free for collection and a restore | emptied, not yet erased ... | one to choose next |
//! ```
//! An emptied superblock is erased only when the journal says durably where its pages went, and the journal follows the
//! data: everything that is in the write buffer by then goes to flash first. Meanwhile hosts and collection write on.
//! On a large SSD that is a small part of a superblock, on a small one many superblocks; were they taken out of the
//! over-provisioned space, the small SSD would collect more than the large one that it stands for.

use gnstor_flash::Geometry;
use gnstor_model::Preset;

/// Superblocks beyond the logical pages at the least: the two open ones, one for collection to go on with, one for a
/// restore, and one so that a full SSD has a victim with something to gain.
pub(crate) const LEAST: u32 = 5;

/// At most one superblock in so many of the data's waits for its erase; a smaller SSD has its writes wait instead.
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
    // What greedy collection of random writes programs for each page written, near enough.
    let programmed = u64::from(preset.buffer_pages) * (1000 + spare) / (2 * spare);
    let share = preset.physical_pages(logical_pages).div_ceil(superblock) / SHARE;
    // A quarter more, as it comes in fits and starts; and the victim that is half empty.
    let filled = (programmed + programmed / 4).div_ceil(superblock) + 2;
    u32::try_from(filled.min(share)).expect("less than the superblocks there are")
}
