// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The map of one epoch, with the properties that the rules use.
//!
//! ```text
//!   ssds   0: in,  incarnation 1, shrunk at 0      row 0   [serving 0] [serving 1]   first: 0
//!          1: in,  incarnation 3, shrunk at 7      row 1   [serving 0] [filling 1]   first: 0
//!          2: out, incarnation 1, shrunk at 5      row 2   [serving 1] [empty    ]   first: 1
//! ```
//! *Shrunk at* is the last epoch that took a place from the SSD or called it absent. With it a voter judges a
//! lease in one comparison, even if it has not seen the epochs in between.

use crate::set::SsdSet;
use crate::{ArrayId, Epoch, Incarnation, SsdId, Term, Uuid};
use alloc::sync::Arc;
use alloc::vec::Vec;
use gnstor_proto::placement::MAX_WIDTH;
use gnstor_proto::vendor::MAX_REPLICAS;

/// State of an SSD in the map.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SsdState {
    /// Takes part.
    In,
    /// Has no place; may take those of a lost SSD.
    Spare,
    /// Has the last copy of some group and is silent: those groups wait for it (rule 1c).
    Absent,
    /// Takes part, but its groups accept writes only to mapped blocks (rule 15).
    Full,
    /// Lost, or removed.
    Out,
}

/// An SSD in the map.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ssd {
    /// State of the SSD.
    pub state: SsdState,
    /// The incarnation that has the places (rule 1a).
    pub incarnation: Incarnation,
    /// The last epoch that took a place from it or called it absent; 0 = none.
    pub shrunk_at: Epoch,
}

/// One place of a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Place {
    /// A missing replica.
    #[default]
    Empty,
    /// Answers reads and takes writes.
    Serving(SsdId),
    /// Takes writes.
    Filling(SsdId),
}

impl Place {
    /// The SSD of the place.
    pub fn ssd(self) -> Option<SsdId> {
        match self {
            Self::Empty => None,
            Self::Serving(ssd) | Self::Filling(ssd) => Some(ssd),
        }
    }
}

/// A filling SSD that will take over a place whose SSD still serves. So a drain keeps all copies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Incoming {
    /// The SSD that fills.
    pub ssd: SsdId,
    /// The place that it will take over.
    pub place: u8,
}

/// The places of one group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Row {
    /// In the order of the replicas.
    pub places: [Place; MAX_WIDTH],
    /// The SSD that will take over a place.
    pub incoming: Option<Incoming>,
    /// The place that serves readers beside a writer. It does not change while its SSD serves.
    pub first: u8,
}

impl Row {
    /// The SSDs that take writes.
    pub fn members(&self) -> SsdSet {
        let places = self.places.iter().filter_map(|place| place.ssd());
        places.chain(self.incoming.map(|incoming| incoming.ssd)).collect()
    }

    /// The SSDs that answer reads.
    pub fn serving(&self) -> SsdSet {
        self.copies(MAX_REPLICAS)
    }

    /// The SSDs that serve reads of a volume with this number of replicas.
    pub fn copies(&self, replicas: u8) -> SsdSet {
        let serving = |place: &Place| if let Place::Serving(ssd) = *place { Some(ssd) } else { None };
        self.places.iter().take(usize::from(replicas)).filter_map(serving).collect()
    }

    /// The SSDs that merge their copies for volumes of this number of replicas (rule 17): no copy serves, and
    /// several fill. None otherwise. A single one has nothing to compare with.
    pub fn merging(&self, replicas: u8) -> SsdSet {
        let fills = self.places.iter().take(usize::from(replicas)).filter_map(|place| match *place {
            Place::Filling(ssd) => Some(ssd),
            Place::Empty | Place::Serving(_) => None,
        });
        let fills: SsdSet = fills.collect();
        if self.copies(replicas).is_empty() && fills.len() > 1 { fills } else { SsdSet::EMPTY }
    }

    /// The SSD that serves readers beside a writer.
    pub fn first(&self) -> Option<SsdId> {
        match self.places.get(usize::from(self.first)) {
            Some(&Place::Serving(ssd)) => Some(ssd),
            _ => None,
        }
    }

    /// Makes the first serving place the first, unless the first serves still.
    pub(crate) fn keep_first(&mut self) {
        if self.first().is_none() {
            let serving = (0u8..).zip(&self.places).find(|(_, place)| matches!(place, Place::Serving(_)));
            self.first = serving.map_or(0, |(at, _)| at);
        }
    }
}

/// The map of an epoch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Map {
    /// The array.
    pub array: ArrayId,
    /// The term that first proposed this map. A later term that proposes it again does not change this: one
    /// epoch has one map.
    pub term: Term,
    /// Epoch of the map.
    pub epoch: Epoch,
    /// Number of places of a group that the map uses. Later ones stay empty.
    pub width: u8,
    /// The voters.
    pub voters: SsdSet,
    /// The SSDs, by number.
    pub ssds: Vec<Ssd>,
    /// The groups.
    pub rows: Vec<Row>,
}

impl Map {
    /// The SSD of that number.
    pub fn ssd(&self, ssd: SsdId) -> Option<&Ssd> {
        self.ssds.get(usize::from(ssd))
    }

    /// Whether the group waits because one of its members is absent: the absent one may have newer data.
    pub fn waits(&self, row: &Row) -> bool {
        row.members().iter().any(|ssd| self.ssd(ssd).is_none_or(|ssd| ssd.state == SsdState::Absent))
    }

    /// Whether a place of the group is on a full SSD.
    pub fn is_full(&self, row: &Row) -> bool {
        row.members().iter().any(|ssd| self.ssd(ssd).is_some_and(|ssd| ssd.state == SsdState::Full))
    }
}

/// The properties of a map that voters and leaders use. Both the map of the wire and this one have them.
pub trait FleetView: Clone + PartialEq {
    /// The array.
    fn array(&self) -> ArrayId;
    /// Number of the map.
    fn epoch(&self) -> Epoch;
    /// The voters.
    fn voters(&self) -> SsdSet;
    /// The last epoch that took a place from the SSD or called it absent; `None` where the map does not name
    /// the SSD.
    fn shrunk_at(&self, ssd: SsdId) -> Option<Epoch>;
    /// Whether the SSD at that index has this uuid. True, too, if the map or the caller states no uuid.
    fn means(&self, ssd: SsdId, uuid: &Uuid) -> bool;
    /// The SSDs that lose a place in this map: it takes effect only when their leases are over.
    fn deprived(&self) -> SsdSet;
}

impl FleetView for Map {
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
        self.ssd(ssd).map(|ssd| ssd.shrunk_at)
    }

    /// The rules know SSDs by their numbers.
    fn means(&self, _: SsdId, _: &Uuid) -> bool {
        true
    }

    fn deprived(&self) -> SsdSet {
        let ssds = (0..).zip(&self.ssds);
        ssds.filter(|(_, ssd)| ssd.shrunk_at == self.epoch).map(|(id, _)| id).collect()
    }
}

impl<M: FleetView> FleetView for Arc<M> {
    fn array(&self) -> ArrayId {
        (**self).array()
    }

    fn epoch(&self) -> Epoch {
        (**self).epoch()
    }

    fn voters(&self) -> SsdSet {
        (**self).voters()
    }

    fn shrunk_at(&self, ssd: SsdId) -> Option<Epoch> {
        (**self).shrunk_at(ssd)
    }

    fn means(&self, ssd: SsdId, uuid: &Uuid) -> bool {
        (**self).means(ssd, uuid)
    }

    fn deprived(&self) -> SsdSet {
        (**self).deprived()
    }
}
