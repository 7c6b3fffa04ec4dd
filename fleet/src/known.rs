// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The map of the wire, as voters and leaders look at it: daemon and firmware judge maps by the same view.

use crate::map::FleetView;
use crate::set::{MAX_SSDS, SsdSet};
use crate::{ArrayId, Epoch, SsdId, Uuid};
use alloc::sync::Arc;
use gnstor_proto::placement::map3::{FleetMap3, Ssd3, State3, Vote};
use gnstor_proto::placement::{AnyMap, Rows};

/// Maps of format 2 name no array: every array is this one. No array of format 3 is.
pub const NO_ARRAY: ArrayId = ArrayId([0; 16]);

/// A fleet map of either format. If format 2 lacks a property, the answer is the one with which nothing is
/// granted by mistake. An SSD is named by its index in the map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known(Arc<AnyMap>);

impl Known {
    /// A view of this map.
    pub fn new(map: AnyMap) -> Self {
        Self(Arc::new(map))
    }

    /// The map.
    pub fn map(&self) -> &AnyMap {
        &self.0
    }

    /// The map of format 3 that names voters: its SSDs ask them for serving leases.
    pub fn voted(&self) -> Option<&FleetMap3> {
        match &*self.0 {
            AnyMap::Three(map) if map.ssds.iter().any(|ssd| ssd.vote != Vote::None) => Some(map),
            _ => None,
        }
    }

    fn count(&self) -> u16 {
        u16::try_from(self.0.count()).unwrap_or(MAX_SSDS).min(MAX_SSDS)
    }

    /// The SSDs of a map of format 3 for which `is` holds.
    fn which(&self, map: &FleetMap3, is: impl Fn(&Ssd3) -> bool) -> SsdSet {
        (0..self.count()).zip(&map.ssds).filter(|(_, ssd)| is(ssd)).map(|(number, _)| number).collect()
    }
}

impl FleetView for Known {
    fn array(&self) -> ArrayId {
        match &*self.0 {
            AnyMap::Two(_) => NO_ARRAY,
            AnyMap::Three(map) => ArrayId(map.array),
        }
    }

    fn epoch(&self) -> Epoch {
        self.0.epoch()
    }

    /// Maps of format 2 name no voters: all members vote.
    fn voters(&self) -> SsdSet {
        match &*self.0 {
            AnyMap::Two(map) => (0..self.count()).filter(|&ssd| is_in(map.state(ssd))).collect(),
            AnyMap::Three(map) => self.which(map, |ssd| ssd.vote != Vote::None),
        }
    }

    /// In format 2 any epoch may have taken a place from an SSD.
    fn shrunk_at(&self, ssd: SsdId) -> Option<Epoch> {
        match &*self.0 {
            AnyMap::Two(map) => is_in(map.state(ssd)).then_some(map.epoch),
            AnyMap::Three(map) => map.ssds.get(usize::from(ssd)).map(|ssd| ssd.shrunk_at),
        }
    }

    fn means(&self, ssd: SsdId, uuid: &Uuid) -> bool {
        match &*self.0 {
            AnyMap::Two(_) => true,
            AnyMap::Three(map) => map.means(ssd, uuid),
        }
    }

    fn deprived(&self) -> SsdSet {
        match &*self.0 {
            AnyMap::Two(_) => (0..self.count()).collect(),
            AnyMap::Three(map) => self.which(map, |ssd| ssd.shrunk_at == map.epoch),
        }
    }
}

fn is_in(state: Option<State3>) -> bool {
    state == Some(State3::In)
}
