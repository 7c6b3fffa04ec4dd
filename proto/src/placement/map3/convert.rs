// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Conversion of a map of format 2 to one of format 3 with the same places.

use super::{FleetMap3, Place3, Row3, Ssd3, State3, Vote};
use crate::placement::{FleetMap, MAX_WIDTH, MapSsd, Member, Rows, SsdState};
use alloc::string::String;

impl Ssd3 {
    /// Converts an SSD of format 2. The result has no uuid, address or vote, and the first incarnation. Each
    /// failure domain becomes a node.
    pub fn of(ssd: &MapSsd) -> Self {
        Self {
            uuid: [0; 16],
            shrunk_at: 0,
            incarnation: 1,
            weight: ssd.weight,
            id: ssd.id,
            node: ssd.domain.into(),
            rack: 0,
            state: match ssd.state {
                SsdState::In => State3::In,
                SsdState::Out => State3::Out,
            },
            vote: Vote::None,
            address: String::new(),
        }
    }

    /// Whether this entry of the map is the SSD with the given uuid. An entry without a uuid names its SSD by
    /// number alone, so it matches any uuid.
    pub fn is(&self, uuid: &[u8; 16]) -> bool {
        self.uuid == [0; 16] || self.uuid == *uuid
    }
}

impl FleetMap3 {
    /// Converts a map of format 2: same term, epoch, SSDs and places. The first of a row is its lowest
    /// serving place, as in format 2.
    pub fn of(map: &FleetMap, array: [u8; 16]) -> Self {
        let row = |group| {
            let mut places = [None; MAX_WIDTH];
            let place = |member: Member| Place3 { ssd: member.ssd, filling: member.filling };
            places.iter_mut().zip(map.row(group)).for_each(|(to, member)| *to = member.map(place));
            let serves = |place: &Option<Place3>| place.is_some_and(|place| !place.filling);
            let first = (0..).zip(&places).find(|(_, place)| serves(place)).map(|(at, _)| at);
            Row3 { places, incoming: None, first }
        };
        Self {
            array,
            term: map.term,
            epoch: map.epoch,
            seed: map.seed,
            width: map.width,
            ssds: map.ssds.iter().map(Ssd3::of).collect(),
            rows: (0..map.groups()).map(row).collect(),
        }
    }
}
