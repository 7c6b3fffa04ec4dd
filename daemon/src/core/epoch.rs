// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fleet map that this daemon serves by, and the step to the next one.
//!
//! ```text
//!   maps of the SSDs --newest--> this epoch --take_map: newer, some member stays--> next epoch
//!                                                 | dropped SSDs: no change waits for them any more
//!                                                 ' new SSDs: brought up to date like one that came back
//! ```
//! Where the map names no voters, a start waits for all members of the newest map that it finds. Each map is
//! on all of its members before the next one is made, and two consecutive maps have a member in common. So an
//! SSD that is out, or was never asked, knows of no newer map that was used. Where the map names voters, a
//! majority of them holds each map ([`super::shrink`]), and a start asks a majority.

use super::Core;
use super::capacity::Capacity;
use super::members::{Moved, members_of};
use super::volume::Stage;
use gnstor_fleet::Refused;
pub(super) use gnstor_fleet::known::Known;
use gnstor_fleet::map::FleetView;
use gnstor_fleet::voter::check_newer;
use gnstor_proto::placement::map3::Vote;
use gnstor_proto::placement::{AnyMap, MAP_BYTES, MapError, Rows};
use gnstor_proto::slba::Vid;
use gnstor_proto::voting::HELD_MAP_BYTES;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The map, and its bytes as SSDs and clients get them.
#[derive(Debug)]
pub(super) struct Epoch {
    map: Option<Known>,
    /// SSDs with places that fill.
    filling: BTreeSet<u16>,
    bytes: Arc<[u8]>,
}

impl Default for Epoch {
    fn default() -> Self {
        Self { map: None, filling: BTreeSet::new(), bytes: Arc::from([]) }
    }
}

/// Why a map cannot be the next one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotNext {
    /// The daemon reads the array, or has stopped.
    #[error("the daemon is not serving, so it takes no map: try again when it serves")]
    NotServing,
    /// The map is not newer than the daemon's.
    #[error("epoch {given} is not above epoch {known}: make the next map from the newest one (MAP GET)")]
    Stale {
        /// Epoch of the map.
        given: u64,
        /// Epoch of the map by which the daemon serves.
        known: u64,
    },
    /// The map belongs to another array, or has another format.
    #[error("the map is of another array than the one that the daemon serves, or does not name one")]
    OtherArray,
    /// The map has an SSD that is not connected.
    #[error("the map names {given} SSDs and {connected} are connected: connect all that it names")]
    Unconnected {
        /// SSDs of the map.
        given: usize,
        /// SSDs that are connected.
        connected: usize,
    },
    /// The map adds an SSD, and gives it a place that serves (protocol rule 1).
    #[error("SSD {ssd} was out and is to answer reads at once: give it places that fill")]
    ServesAtOnce {
        /// The SSD.
        ssd: u16,
    },
    /// The map is not valid.
    #[error("{0}")]
    Wrong(#[from] MapError),
    /// The SSDs have no room for it.
    #[error("{0}")]
    TooLarge(String),
    /// No present member takes part in the map.
    #[error("no SSD that takes part now takes part in the map: change some SSDs, and the others later")]
    NoneStays,
}

/// The newest of these maps. Maps of one epoch differ in their term only.
pub(super) fn newest<'a>(maps: impl IntoIterator<Item = &'a AnyMap>) -> Option<&'a AnyMap> {
    maps.into_iter().max_by_key(|map| (map.epoch(), map.term()))
}

/// SSDs have no room for a map larger than [`MAP_BYTES`]. The bound of a held map is a little lower.
pub(super) fn check_room(map: &AnyMap, bytes: usize) -> Result<(), String> {
    // A voter gets the map in MAP HOLD, after a head that takes some of the room.
    let is_voted = matches!(map, AnyMap::Three(map) if map.ssds.iter().any(|ssd| ssd.vote != Vote::None));
    let room = if is_voted { HELD_MAP_BYTES } else { MAP_BYTES };
    if bytes <= room {
        return Ok(());
    }
    Err(format!(
        "the fleet map of {} SSDs and {} placement groups takes {bytes} bytes, and an SSD has room for \
         {room}: use fewer groups or SSDs",
        map.count(),
        map.groups()
    ))
}

impl Epoch {
    /// Sets the map by which the daemon serves, and its bytes.
    pub(super) fn set(&mut self, map: AnyMap, bytes: Vec<u8>) {
        self.bytes = bytes.into();
        let rows = (0..map.groups()).flat_map(|group| map.row(group)).flatten();
        let come_in = (0..map.groups()).filter_map(|group| map.incoming(group)).map(|incoming| incoming.ssd);
        self.filling = rows.filter(|place| place.filling).map(|place| place.ssd).chain(come_in).collect();
        self.map = Some(Known::new(map));
    }

    /// The map as SSDs and clients get it; empty until there is one.
    pub(super) fn bytes(&self) -> Arc<[u8]> {
        Arc::clone(&self.bytes)
    }

    pub(super) fn map(&self) -> Option<&Known> {
        self.map.as_ref()
    }

    /// SSDs with places that fill.
    pub(super) fn filling(&self) -> &BTreeSet<u16> {
        &self.filling
    }

    fn check_next(&self, next: &Known) -> Result<(), NotNext> {
        let known = self.map.as_ref().ok_or(NotNext::NotServing)?;
        check_newer(known, next).map_err(|refused| match refused {
            Refused::OtherArray => NotNext::OtherArray,
            _ => NotNext::Stale { given: next.epoch(), known: known.epoch() },
        })?;
        let (before, after) = (members_of(known.map()), members_of(next.map()));
        if before.is_disjoint(&after) {
            return Err(NotNext::NoneStays);
        }
        let mut places = (0..next.map().groups()).flat_map(|group| next.map().row(group)).flatten();
        match places.find(|place| !place.filling && !before.contains(&place.ssd)) {
            Some(place) => Err(NotNext::ServesAtOnce { ssd: place.ssd }),
            None => Ok(()),
        }
    }
}

impl Core {
    /// What all volumes reserve under this map.
    pub(super) fn capacity_under(&self, map: AnyMap) -> Capacity {
        let entries = self.volumes.values().map(|volume| volume.grown(volume.entry.clone()));
        Capacity::new(map, self.members.blocks()).with(entries, self.capacity.as_ref())
    }

    /// The array has another map from now on: it is active, and every member of it has taken it. A change
    /// that waits for an SSD that the map drops goes on without it. A change that is under way needs the SSDs
    /// that the map adds. An SSD that the map adds gets all entries; until then it counts as away. It has no
    /// volume of its own: it is new, or was formatted (protocol rule 10). One that has volumes stays away.
    ///
    /// # Errors
    /// [`NotNext`]; nothing has changed.
    pub fn take_map(&mut self, now: u64, map: AnyMap) -> Result<(), NotNext> {
        if !self.is_serving() {
            return Err(NotNext::NotServing);
        }
        let (given, connected) = (map.count(), self.members.connected());
        if given > connected || self.epoch.map().is_some_and(|known| given < known.map().count()) {
            return Err(NotNext::Unconnected { given, connected });
        }
        self.epoch.check_next(&Known::new(map.clone()))?;
        let bytes = map.encode()?;
        check_room(&map, bytes.len()).map_err(NotNext::TooLarge)?;
        self.capacity = Some(self.capacity_under(map.clone()));
        let Moved { gone, new } = self.members.follow(&map);
        let filled = !self.epoch.filling().is_empty();
        self.epoch.set(map, bytes);
        self.follow_fills(now);
        let fills = filled || !self.epoch.filling().is_empty();
        self.volumes.values_mut().for_each(|volume| volume.has_filled |= fills);
        self.give_up_answers(&gone);
        // Must come first: the next request that waited must see these SSDs as away.
        new.iter().for_each(|&ssd| self.members.join(ssd));
        // An SSD that is being brought up to date may have been given the map before, and refuses that now.
        let again: Vec<u16> = self.returning().chain(new.iter().copied()).collect();
        again.into_iter().for_each(|ssd| self.resync(ssd));
        for vid in self.volumes.keys().copied().collect::<Vec<_>>() {
            gone.iter().for_each(|&ssd| self.go_on_without(vid, ssd));
            new.iter().for_each(|&ssd| self.extend_round(vid, ssd));
            self.end_round(now, vid);
        }
        Ok(())
    }

    /// Nothing of this volume waits for the SSD any more.
    pub(super) fn go_on_without(&mut self, vid: Vid, ssd: u16) {
        let Some(volume) = self.volumes.get_mut(&vid) else { return };
        volume.behind.remove(&ssd);
        if let Stage::Deleting(left) = &mut volume.stage {
            left.remove(&ssd);
        }
        if let Some(round) = &mut volume.round {
            round.drop_ssd(ssd);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_fleet::set::SsdSet;
    use gnstor_fleet::{ArrayId, Epoch as Number};
    use gnstor_proto::placement::map3::{FleetMap3, Row3};
    use gnstor_proto::placement::{FleetMap, SsdState};

    #[test]
    fn a_map_of_format_3_says_its_array_its_voters_and_the_deprived_ssds() {
        let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
        let whole = FleetMap3::of(&FleetMap::equal(3, 64, 7, 1).unwrap(), [5; 16]);
        let mut next = FleetMap3 { epoch: 2, ..whole.clone() };
        next.ssds[0].vote = Vote::Voter;
        next.ssds[2].vote = Vote::Witness;
        next.rows.iter_mut().for_each(|row| *row = Row3 { first: None, ..Row3::default() });
        (next.ssds[1].shrunk_at, next.ssds[2].shrunk_at) = (2, 1);
        let known = Known::new(next.clone().into());
        let set = |ssds: &[u16]| ssds.iter().copied().collect::<SsdSet>();
        assert_eq!(
            (known.array(), known.voters(), known.deprived()),
            (ArrayId([5; 16]), set(&[0, 2]), set(&[1]))
        );
        assert_eq!([0, 1, 2, 3].map(|ssd| known.shrunk_at(ssd)), [Some(0), Some(2), Some(1), None]);
        let mut epoch = Epoch::default();
        epoch.set(whole.into(), Vec::new());
        assert_eq!(epoch.check_next(&known), Ok(()));
        next.array = [6; 16];
        assert_eq!(epoch.check_next(&Known::new(next.into())), Err(NotNext::OtherArray));
        let two = at(9, FleetMap::equal(3, 64, 7, 1).unwrap());
        assert_eq!(epoch.check_next(&Known::new(two)), Err(NotNext::OtherArray));
    }

    fn at(epoch: Number, mut map: FleetMap) -> AnyMap {
        map.epoch = epoch;
        map.into()
    }

    #[test]
    fn the_newest_map_is_of_the_highest_epoch_then_term() {
        let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
        let map = |epoch, term| at(epoch, FleetMap::equal(2, 64, 7, term).unwrap());
        let maps = [map(2, 9), map(3, 1), map(3, 4), map(1, 12)];
        assert_eq!(newest(&maps), Some(&maps[2]));
        assert_eq!(newest([]), None);
    }

    #[test]
    fn the_next_map_is_newer_and_keeps_a_member() {
        let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
        let whole = FleetMap::equal(2, 64, 7, 1).unwrap();
        let (left, right) = (whole.without(1), whole.without(0));
        let mut epoch = Epoch::default();
        assert_eq!(epoch.check_next(&Known::new(whole.clone().into())), Err(NotNext::NotServing));
        let left = AnyMap::from(left);
        epoch.set(left.clone(), Vec::new());
        let stale = NotNext::Stale { given: 2, known: 2 };
        assert_eq!(epoch.check_next(&Known::new(left)), Err(stale));
        let later = |map: &FleetMap| Known::new(at(3, map.clone()));
        assert_eq!(epoch.check_next(&later(&right)), Err(NotNext::NoneStays));
        assert_eq!(epoch.check_next(&later(&whole)), Err(NotNext::ServesAtOnce { ssd: 1 }));
        let mut joined = whole.without(1);
        joined.ssds[1].state = SsdState::In;
        assert_eq!(epoch.check_next(&later(&joined)), Ok(()));
    }
}
