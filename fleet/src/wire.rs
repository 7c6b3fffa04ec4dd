// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The map of the wire (format 3) as the rules look at it, and the next map of the wire from theirs.
//!
//! ```text
//!   FleetMap3 --Map::of--> Map --lose_all, back, fill, serve--> Map --Map::put_into--> FleetMap3
//!       '-- addresses, uuids, weights, nodes, seed: kept  --------------------------^
//! ```

use crate::change::Unchanged;
use crate::map::{FleetView, Incoming, Map, Place, Row, Ssd, SsdState};
use crate::set::{MAX_SSDS, SsdSet};
use crate::{ArrayId, Epoch, SsdId, Uuid};
use alloc::vec::Vec;
use gnstor_proto::placement::map3::{FleetMap3, Incoming3, Place3, Row3, Ssd3, State3, Vote};

/// No place: a row of the wire may name no first.
const NO_PLACE: u8 = u8::MAX;

impl Map {
    /// The map in the form of the rules; `None` if the map has more SSDs than the rules know.
    pub fn of(map: &FleetMap3) -> Option<Self> {
        if map.ssds.len() > usize::from(MAX_SSDS) {
            return None;
        }
        Some(Self {
            array: map.array(),
            term: map.term,
            epoch: map.epoch,
            width: map.width,
            voters: map.voters(),
            ssds: map.ssds.iter().map(ssd_of).collect(),
            rows: map.rows.iter().map(row_of).collect(),
        })
    }

    /// The map of the wire that follows `before`, from which this map was made.
    #[must_use]
    pub fn put_into(&self, before: &FleetMap3) -> FleetMap3 {
        let vote = |id, before| match (self.voters.contains(id), before) {
            (false, _) => Vote::None,
            (true, Vote::None) => Vote::Voter,
            (true, vote) => vote,
        };
        let ssds = (0..).zip(before.ssds.iter().zip(&self.ssds)).map(|(id, (before, ssd))| Ssd3 {
            state: state3(ssd.state),
            incarnation: ssd.incarnation,
            shrunk_at: ssd.shrunk_at,
            vote: vote(id, before.vote),
            ..before.clone()
        });
        let ssds: Vec<Ssd3> = ssds.collect();
        let rows = self.rows.iter().map(row3).collect();
        let FleetMap3 { array, seed, width, .. } = *before;
        FleetMap3 { array, term: self.term, epoch: self.epoch, seed, width, ssds, rows }
    }
}

/// The next map of the wire, by a change of [`crate::change`].
///
/// # Errors
/// As the change; [`Unchanged::TooMany`] where the map has more SSDs than the rules know.
pub fn change(
    map: &FleetMap3,
    change: impl FnOnce(&Map) -> Result<Map, Unchanged>,
) -> Result<FleetMap3, Unchanged> {
    let next = change(&Map::of(map).ok_or(Unchanged::TooMany)?)?;
    Ok(next.put_into(map))
}

fn ssd_of(ssd: &Ssd3) -> Ssd {
    let state = match ssd.state {
        State3::In => SsdState::In,
        State3::Out => SsdState::Out,
        State3::Spare => SsdState::Spare,
        State3::Absent => SsdState::Absent,
        State3::Full => SsdState::Full,
    };
    Ssd { state, incarnation: ssd.incarnation, shrunk_at: ssd.shrunk_at }
}

fn state3(state: SsdState) -> State3 {
    match state {
        SsdState::In => State3::In,
        SsdState::Out => State3::Out,
        SsdState::Spare => State3::Spare,
        SsdState::Absent => State3::Absent,
        SsdState::Full => State3::Full,
    }
}

fn row_of(row: &Row3) -> Row {
    let place = |place: Option<Place3>| match place {
        None => Place::Empty,
        Some(Place3 { ssd, filling: false }) => Place::Serving(ssd),
        Some(Place3 { ssd, filling: true }) => Place::Filling(ssd),
    };
    let incoming = row.incoming.map(|Incoming3 { ssd, place }| Incoming { ssd, place });
    Row { places: row.places.map(place), incoming, first: row.first.unwrap_or(NO_PLACE) }
}

fn row3(row: &Row) -> Row3 {
    let place = |place: Place| match place {
        Place::Empty => None,
        Place::Serving(ssd) => Some(Place3 { ssd, filling: false }),
        Place::Filling(ssd) => Some(Place3 { ssd, filling: true }),
    };
    let incoming = row.incoming.map(|Incoming { ssd, place }| Incoming3 { ssd, place });
    Row3 { places: row.places.map(place), incoming, first: row.first().map(|_| row.first) }
}

/// The SSDs that the rules know. Later SSDs do not vote and lose nothing.
fn numbered(map: &FleetMap3) -> impl Iterator<Item = (SsdId, &Ssd3)> {
    (0..MAX_SSDS).zip(&map.ssds)
}

impl FleetView for FleetMap3 {
    fn array(&self) -> ArrayId {
        ArrayId(self.array)
    }

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn voters(&self) -> SsdSet {
        numbered(self).filter(|(_, ssd)| ssd.vote != Vote::None).map(|(id, _)| id).collect()
    }

    fn shrunk_at(&self, ssd: SsdId) -> Option<Epoch> {
        self.ssds.get(usize::from(ssd)).map(|ssd| ssd.shrunk_at)
    }

    fn means(&self, ssd: SsdId, uuid: &Uuid) -> bool {
        *uuid == [0; 16] || self.ssds.get(usize::from(ssd)).is_none_or(|ssd| ssd.is(uuid))
    }

    fn deprived(&self) -> SsdSet {
        numbered(self).filter(|(_, ssd)| ssd.shrunk_at == self.epoch).map(|(id, _)| id).collect()
    }
}

#[cfg(test)]
mod tests;
