// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares the identity that an SSD has stated with the one in the map (rule 3a). An SSD with another
//! identity gets no entry and no map. Its vote does not count, and its table is not read.

use super::Core;
use gnstor_proto::ssd_identity::SsdSays;

impl Core {
    /// The SSD's content is not that to which the map gives its places: it lost writes, or was formatted.
    pub(super) fn is_other_content(&self, ssd: u16) -> bool {
        let known = self.map_of_voters().and_then(|map| map.ssds.get(usize::from(ssd)));
        let differs = |says: &SsdSays| {
            known.is_some_and(|ssd| !ssd.is(&says.uuid) || ssd.incarnation != says.incarnation)
        };
        self.changes.says(ssd).is_some_and(differs)
    }

    /// Whether the SSD has stated the identity that the map names. Any other SSD gets no map, because it
    /// would take itself for a part of the array. A start asks all SSDs, and goes on without the answers of
    /// some.
    pub(super) fn has_said_who_it_is(&self, ssd: u16) -> bool {
        let known = self.map_of_voters().and_then(|map| map.ssds.get(usize::from(ssd)));
        let says = self.changes.says(ssd);
        known.is_some_and(|known| says.map_or(!self.is_serving(), |says| known.is(&says.uuid)))
    }

    /// Whether another SSD than the map names answers there.
    pub(super) fn is_stranger(&self, ssd: u16) -> bool {
        let known = self.map_of_voters().and_then(|map| map.ssds.get(usize::from(ssd)));
        known.zip(self.changes.says(ssd)).is_some_and(|(known, says)| !known.is(&says.uuid))
    }
}
