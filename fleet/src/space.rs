// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Full SSDs (rule 15): all members of a group refuse the same blocks.

use crate::Refused;
use crate::map::{Map, Row};

/// Fill above which an SSD is full in the map, in percent of its blocks.
pub const FULL_PERCENT: u64 = 95;

/// Whether an SSD with so many blocks in use is to be called full.
pub fn is_full(used_blocks: u64, blocks: u64) -> bool {
    u128::from(used_blocks) * 100 > u128::from(blocks) * u128::from(FULL_PERCENT)
}

/// Whether a write is taken. The map decides, not the SSD's own fill: so all members decide alike. A block
/// that is mapped takes no room beyond what it has.
///
/// # Errors
/// [`Refused::GroupFull`].
pub fn admit(map: &Map, row: &Row, is_mapped: bool) -> Result<(), Refused> {
    if map.is_full(row) && !is_mapped { Err(Refused::GroupFull) } else { Ok(()) }
}
