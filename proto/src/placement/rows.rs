// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The view of a fleet map, of either format, that every part of the array uses.
//!
//! ```text
//!   bytes --AnyMap::decode--> Two(FleetMap) --+
//!                             Three(FleetMap3) +--Rows: groups, places, first, states--> SSD, daemon, client
//! ```

use super::map3::{FleetMap3, Incoming3, State3};
use super::{FILLING, FleetMap, MapError, Member, NO_SSD, SsdState};
use alloc::vec::Vec;

/// The rows of a fleet map, and its SSDs. The index in the map names an SSD.
pub trait Rows {
    /// Term of the map.
    fn term(&self) -> u64;

    /// Epoch.
    fn epoch(&self) -> u64;

    /// Number of placement groups.
    fn groups(&self) -> u32;

    /// Places in each group.
    fn width(&self) -> usize;

    /// Number of SSDs.
    fn count(&self) -> usize;

    /// The SSD's number in the array; `None`: no such SSD.
    fn id(&self, ssd: u16) -> Option<u16>;

    /// The SSD's state; `None`: no such SSD.
    fn state(&self, ssd: u16) -> Option<State3>;

    /// The SSD at a place of a group; `None` if that replica is missing.
    ///
    /// # Panics
    /// If `group` is not below [`Self::groups`], or `place` not below [`Self::width`].
    fn place(&self, group: u32, place: usize) -> Option<Member>;

    /// The SSD that fills in order to take over a place of the group.
    ///
    /// # Panics
    /// If `group` is not below [`Self::groups`].
    fn incoming(&self, group: u32) -> Option<Incoming3>;

    /// The SSD that serves readers beside a writer, for a block of a volume with `replicas` replicas
    /// (protocol rule 7). `None` if there is none: readers then wait until the volume is settled.
    ///
    /// # Panics
    /// If `group` is not below [`Self::groups`].
    fn first(&self, group: u32, replicas: u8) -> Option<u16>;

    /// The low 32 bits of the epoch, as commands carry it.
    #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
    fn wire_epoch(&self) -> u32 {
        self.epoch() as u32
    }

    /// The places of a group in order, empty ones included.
    ///
    /// # Panics
    /// If `group` is not below [`Self::groups`].
    fn row(&self, group: u32) -> impl Iterator<Item = Option<Member>> {
        (0..self.width()).map(move |place| self.place(group, place))
    }

    /// The SSDs that take the writes of a block of a volume with `replicas` replicas, in order. The last one
    /// may be an SSD that fills to take over one of these places.
    ///
    /// Replica k is at place k of the block's group. An empty place is a missing replica. No later place
    /// replaces it, because the SSD there does not hold the block (protocol rule 1).
    ///
    /// # Panics
    /// If `group` is not below [`Self::groups`].
    fn replicas(&self, group: u32, replicas: u8) -> impl Iterator<Item = Member> {
        let incoming = self.incoming(group).filter(|incoming| incoming.place < replicas);
        let incoming = incoming.map(|incoming| Member { ssd: incoming.ssd, filling: true });
        self.row(group).take(usize::from(replicas)).flatten().chain(incoming)
    }

    /// The places of all groups as device code reads them, row by row.
    fn table(&self) -> Vec<u16> {
        let raw = |place: Option<Member>| match place {
            Some(Member { ssd, filling }) => ssd | if filling { FILLING } else { 0 },
            None => NO_SSD,
        };
        (0..self.groups()).flat_map(|group| self.row(group).map(raw)).collect()
    }
}

impl Rows for FleetMap {
    fn term(&self) -> u64 {
        self.term
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn groups(&self) -> u32 {
        self.groups
    }

    fn width(&self) -> usize {
        usize::from(self.width)
    }

    fn count(&self) -> usize {
        self.ssds.len()
    }

    fn id(&self, ssd: u16) -> Option<u16> {
        self.ssds.get(usize::from(ssd)).map(|ssd| ssd.id)
    }

    fn state(&self, ssd: u16) -> Option<State3> {
        self.ssds.get(usize::from(ssd)).map(|ssd| match ssd.state {
            SsdState::In => State3::In,
            SsdState::Out => State3::Out,
        })
    }

    #[inline]
    fn place(&self, group: u32, place: usize) -> Option<Member> {
        let width = usize::from(self.width);
        assert!(place < width, "place {place} of a row of {width}");
        let raw = self.places[group as usize * width + place];
        (raw != NO_SSD).then_some(Member { ssd: raw & !FILLING, filling: raw & FILLING != 0 })
    }

    #[inline]
    fn incoming(&self, _: u32) -> Option<Incoming3> {
        None
    }

    #[inline]
    fn first(&self, group: u32, replicas: u8) -> Option<u16> {
        self.replicas(group, replicas).find(|member| !member.filling).map(|member| member.ssd)
    }
}

impl Rows for FleetMap3 {
    fn term(&self) -> u64 {
        self.term
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    #[expect(clippy::cast_possible_truncation, reason = "at most 2^24 rows")]
    fn groups(&self) -> u32 {
        self.rows.len() as u32
    }

    fn width(&self) -> usize {
        usize::from(self.width)
    }

    fn count(&self) -> usize {
        self.ssds.len()
    }

    fn id(&self, ssd: u16) -> Option<u16> {
        self.ssds.get(usize::from(ssd)).map(|ssd| ssd.id)
    }

    fn state(&self, ssd: u16) -> Option<State3> {
        self.ssds.get(usize::from(ssd)).map(|ssd| ssd.state)
    }

    #[inline]
    fn place(&self, group: u32, place: usize) -> Option<Member> {
        assert!(place < usize::from(self.width), "place {place} of a row of {}", self.width);
        let place = self.rows[group as usize].places[place]?;
        Some(Member { ssd: place.ssd, filling: place.filling })
    }

    #[inline]
    fn incoming(&self, group: u32) -> Option<Incoming3> {
        self.rows[group as usize].incoming
    }

    #[inline]
    fn first(&self, group: u32, replicas: u8) -> Option<u16> {
        let row = &self.rows[group as usize];
        let first = row.first.filter(|&first| first < replicas)?;
        row.places.get(usize::from(first))?.map(|place| place.ssd)
    }
}

/// A fleet map of either format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AnyMap {
    /// Format 2.
    Two(FleetMap),
    /// Format 3.
    Three(FleetMap3),
}

impl From<FleetMap> for AnyMap {
    fn from(map: FleetMap) -> Self {
        Self::Two(map)
    }
}

impl From<FleetMap3> for AnyMap {
    fn from(map: FleetMap3) -> Self {
        Self::Three(map)
    }
}

impl AnyMap {
    /// Decodes and checks a map of either format. Bytes after the map are ignored.
    ///
    /// # Errors
    /// [`MapError`] names the fault.
    pub fn decode(bytes: &[u8]) -> Result<Self, MapError> {
        match bytes.get(4..6) {
            Some([3, 0]) => FleetMap3::decode(bytes).map(Self::Three),
            _ => FleetMap::decode(bytes).map(Self::Two),
        }
    }

    /// The epoch of a map of either format, from its first [`Self::HEAD_BYTES`] alone. The rest of the map is
    /// not checked, so it may be damaged.
    pub fn epoch_in(head: &[u8]) -> Option<u64> {
        let epoch_at = match (head.get(..4)?, head.get(4..6)?) {
            (b"GNFM", [2, 0]) => 16,
            (b"GNFM", [3, 0]) => 32,
            _ => return None,
        };
        head.get(epoch_at..)?.first_chunk().copied().map(u64::from_le_bytes)
    }

    /// Length of the head of a map that contains its epoch.
    pub const HEAD_BYTES: usize = 40;

    /// The same map, proposed by a daemon of this term.
    #[must_use]
    pub fn in_term(mut self, term: u64) -> Self {
        match &mut self {
            Self::Two(map) => map.term = term,
            Self::Three(map) => map.term = term,
        }
        self
    }

    /// The same bytes that the map was decoded from.
    ///
    /// # Errors
    /// As [`FleetMap3::check`], which each decoded map passes.
    pub fn encode(&self) -> Result<Vec<u8>, MapError> {
        match self {
            Self::Two(map) => Ok(map.encode()),
            Self::Three(map) => map.encode(),
        }
    }
}

/// Calls a method of the map, whichever its format.
macro_rules! ask {
    ($any:expr, $map:ident => $what:expr) => {
        match $any {
            AnyMap::Two($map) => $what,
            AnyMap::Three($map) => $what,
        }
    };
}

impl Rows for AnyMap {
    fn term(&self) -> u64 {
        ask!(self, map => map.term)
    }

    fn epoch(&self) -> u64 {
        ask!(self, map => map.epoch)
    }

    fn groups(&self) -> u32 {
        ask!(self, map => map.groups())
    }

    fn width(&self) -> usize {
        ask!(self, map => map.width())
    }

    fn count(&self) -> usize {
        ask!(self, map => map.count())
    }

    fn id(&self, ssd: u16) -> Option<u16> {
        ask!(self, map => map.id(ssd))
    }

    fn state(&self, ssd: u16) -> Option<State3> {
        ask!(self, map => map.state(ssd))
    }

    #[inline]
    fn place(&self, group: u32, place: usize) -> Option<Member> {
        ask!(self, map => map.place(group, place))
    }

    #[inline]
    fn incoming(&self, group: u32) -> Option<Incoming3> {
        ask!(self, map => map.incoming(group))
    }

    #[inline]
    fn first(&self, group: u32, replicas: u8) -> Option<u16> {
        ask!(self, map => map.first(group, replicas))
    }
}

#[cfg(test)]
mod tests {
    use super::super::map3::{Place3, Row3};
    use super::*;
    use crate::deadline::{Deadline, LIMIT};
    use alloc::vec;

    #[test]
    fn maps_of_both_formats_say_the_same_of_the_same_places() {
        let _deadline = Deadline::after(LIMIT);
        let two = FleetMap::equal(5, 64, 7, 3).unwrap().without(1).without(4);
        let three = AnyMap::from(FleetMap3::of(&two, [1; 16]));
        assert_eq!(AnyMap::decode(&three.encode().unwrap()), Ok(three.clone()));
        let two = AnyMap::from(two);
        assert_eq!(AnyMap::decode(&two.encode().unwrap()), Ok(two.clone()));
        for map in [&two, &three] {
            let bytes = map.encode().unwrap();
            assert_eq!(AnyMap::epoch_in(&bytes[..AnyMap::HEAD_BYTES]), Some(map.epoch()));
            assert_eq!(AnyMap::epoch_in(&bytes[..AnyMap::HEAD_BYTES - 17]), None, "half an epoch");
        }
        assert_eq!((two.term(), two.epoch(), two.groups()), (three.term(), three.epoch(), three.groups()));
        assert_eq!((two.width(), two.count(), two.table()), (three.width(), three.count(), three.table()));
        for ssd in 0..6 {
            assert_eq!((two.id(ssd), two.state(ssd)), (three.id(ssd), three.state(ssd)));
        }
        for group in 0..64 {
            for replicas in 1..=4 {
                let of = |map: &AnyMap| map.replicas(group, replicas).collect::<Vec<_>>();
                assert_eq!(of(&two), of(&three));
                // If the row's first place is not among the volume's places, format 3 names no first SSD.
                let first = three.first(group, replicas);
                assert!(first == two.first(group, replicas) || first.is_none());
            }
        }
    }

    #[test]
    fn the_first_stays_where_the_map_says_and_the_one_that_comes_in_takes_writes() {
        let _deadline = Deadline::after(LIMIT);
        let mut map = FleetMap3::of(&FleetMap::equal(4, 1, 7, 3).unwrap(), [1; 16]);
        let place = |ssd| Some(Place3 { ssd, filling: false });
        let incoming = Some(Incoming3 { ssd: 3, place: 1 });
        map.rows = vec![Row3 { places: [place(2), place(0), place(1), None], incoming, first: Some(1) }];
        map.check().unwrap();
        assert_eq!((map.first(0, 3), map.first(0, 2), map.first(0, 1)), (Some(0), Some(0), None));
        let of = |replicas| map.replicas(0, replicas).map(|m| (m.ssd, m.filling)).collect::<Vec<_>>();
        assert_eq!(of(3), [(2, false), (0, false), (1, false), (3, true)]);
        assert_eq!(of(1), [(2, false)], "the place that is taken over is not the volume's");
    }
}
