// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Full SSDs (rule 15): all members of a group refuse the same blocks.

use crate::Refused;
use crate::map::{Map, Row};

/// Fill above which an SSD is full in the map, in percent of its blocks.
pub const FULL_PERCENT: u64 = 95;

/// Whether an SSD with `used_blocks` in use must be called full.
pub fn is_full(used_blocks: u64, blocks: u64) -> bool {
    u128::from(used_blocks) * 100 > u128::from(blocks) * u128::from(FULL_PERCENT)
}

/// Whether a write is accepted. The map decides, and not how full the SSD itself is. So all members decide
/// alike. A mapped block needs no further room.
///
/// # Errors
/// [`Refused::GroupFull`].
pub fn admit(map: &Map, row: &Row, is_mapped: bool) -> Result<(), Refused> {
    if map.is_full(row) && !is_mapped { Err(Refused::GroupFull) } else { Ok(()) }
}
