// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a map says of the SSDs that a start needs.

use crate::core::Stop;
use gnstor_fleet::map::FleetView;
use gnstor_fleet::set::SsdSet;
use gnstor_proto::placement::{AnyMap, Rows};

/// The voters that a map names; none in format 2.
pub(super) fn voters_of(map: &AnyMap) -> SsdSet {
    match map {
        AnyMap::Two(_) => SsdSet::EMPTY,
        AnyMap::Three(map) => map.voters(),
    }
}

/// Other SSDs are connected than the map names.
pub(super) fn other_number(map: &impl Rows, connected: usize) -> Stop {
    let count = map.count();
    let witness = if connected + 1 == count { "; if the last one is its witness: --witness" } else { "" };
    Stop::Array(format!(
        "the array's fleet map names {count} SSDs, but {connected} are connected: connect all of them, in the \
         order of the map{witness}"
    ))
}
