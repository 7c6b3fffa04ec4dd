// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fleet map as one SSD sees it: where it stands in each placement group.

use crate::request::Refused;
use gnstor_proto::placement::{AnyMap, Member, Rows, group_of};
use gnstor_proto::status::Refusal;
use gnstor_proto::vendor::VolumeEntry;

/// The map an SSD holds, and its own row in it.
#[derive(Debug)]
pub struct Fleet {
    map: AnyMap,
    own: Option<u16>,
    /// This SSD has lost writes, so it takes part as a filling one, even if the map says otherwise.
    filling: bool,
    /// This SSD stands in for another one, and refuses writes, too.
    stands_in: bool,
}

/// An SSD's part in the replicas of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// None: the block is not this SSD's.
    Absent,
    /// It takes writes and does not serve reads yet.
    Filling,
    /// It serves; `first` where no serving member comes before it.
    Serving {
        /// The one that readers beside a writer ask (protocol rule 7).
        first: bool,
    },
}

impl Fleet {
    /// The map as SSD number `id` sees it.
    pub fn new(map: AnyMap, id: u16, filling: bool) -> Self {
        let count = u16::try_from(map.count()).unwrap_or(u16::MAX);
        let own = (0..count).find(|&ssd| map.id(ssd) == Some(id));
        Self { map, own, filling, stands_in: false }
    }

    /// Whether this SSD stands in for one that cannot be used.
    #[must_use]
    pub(crate) fn standing_in(self, stands_in: bool) -> Self {
        Self { stands_in, ..self }
    }

    pub(crate) fn stands_in(&self) -> bool {
        self.stands_in
    }

    /// The map.
    pub fn map(&self) -> &AnyMap {
        &self.map
    }

    /// Compares the epoch that a command was placed by; both have 32 bits and may wrap.
    pub(crate) fn check_epoch(&self, epoch: u32) -> Result<(), Refused> {
        let ours = self.map.wire_epoch();
        if epoch == ours {
            return Ok(());
        }
        let ahead = epoch.wrapping_sub(ours) < 1 << 31;
        Err(Refused::at(if ahead { Refusal::MapBehind } else { Refusal::StaleMap }, ours))
    }

    /// This SSD's place among the replicas of a block.
    pub fn place(&self, entry: &VolumeEntry, vba: u32) -> Place {
        match &self.map {
            AnyMap::Two(map) => self.place_in(map, entry, vba),
            AnyMap::Three(map) => self.place_in(map, entry, vba),
        }
    }

    #[inline]
    fn place_in(&self, map: &impl Rows, entry: &VolumeEntry, vba: u32) -> Place {
        let group = group_of(entry.vid, vba, entry.chunk_shift, entry.factor, map.groups());
        let is_own = |member: &Member| Some(member.ssd) == self.own;
        match map.replicas(group, entry.replicas).find(is_own) {
            None => Place::Absent,
            Some(member) if member.filling || self.filling => Place::Filling,
            Some(_) => Place::Serving { first: map.first(group, entry.replicas) == self.own },
        }
    }
}
