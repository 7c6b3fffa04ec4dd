// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A map as part of states.

use gnstor_fleet::map::{FleetView, Map};
use gnstor_fleet::set::SsdSet;
use gnstor_fleet::{ArrayId, Epoch, SsdId, Uuid};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// A map whose hash is computed once, because each state has a dozen maps.
#[derive(Clone, Debug)]
pub(crate) struct MapRef(Arc<Map>, u64);

impl MapRef {
    pub(crate) fn new(map: Map) -> Self {
        let mut hasher = DefaultHasher::new();
        map.hash(&mut hasher);
        Self(Arc::new(map), hasher.finish())
    }
}

impl std::ops::Deref for MapRef {
    type Target = Map;

    fn deref(&self) -> &Map {
        &self.0
    }
}

impl PartialEq for MapRef {
    fn eq(&self, other: &Self) -> bool {
        self.1 == other.1 && self.0 == other.0
    }
}

impl Eq for MapRef {}

impl Hash for MapRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.1);
    }
}

impl FleetView for MapRef {
    fn array(&self) -> ArrayId {
        self.array
    }

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn voters(&self) -> SsdSet {
        self.voters
    }

    fn shrunk_at(&self, ssd: SsdId) -> Option<Epoch> {
        self.0.shrunk_at(ssd)
    }

    fn means(&self, ssd: SsdId, uuid: &Uuid) -> bool {
        self.0.means(ssd, uuid)
    }

    fn deprived(&self) -> SsdSet {
        self.0.deprived()
    }
}
