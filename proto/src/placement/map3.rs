// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fleet map of format 3, for an array that loses SSDs and gets them back. `docs/formats-fleet.md` has the
//! byte boxes.

mod bytes;
mod convert;
mod draw;
mod patch;
mod share;
#[cfg(test)]
mod tests;

use super::{MAX_SSDS, MAX_WIDTH, MapError};
use alloc::string::String;
use alloc::vec::Vec;

/// Longest address of an SSD, bytes of UTF-8.
pub const ADDRESS_BYTES: usize = 71;
/// Largest number of voters.
pub const MAX_VOTERS: usize = 7;

/// State of an SSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State3 {
    /// Takes part.
    In = 1,
    /// Lost, or removed.
    Out = 2,
    /// May take the places of a lost SSD.
    Spare = 3,
    /// Silent, while it has the last copy of some group.
    Absent = 4,
    /// Takes part, but its groups accept writes only to blocks that are mapped.
    Full = 5,
}

/// Whether an SSD votes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vote {
    /// Does not vote.
    None,
    /// Votes.
    Voter,
    /// Votes, and holds no blocks.
    Witness,
}

/// An SSD of the map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ssd3 {
    /// Identity of the SSD, independent of its address.
    pub uuid: [u8; 16],
    /// The last epoch that took a place from the SSD or made it absent; 0 = none.
    pub shrunk_at: u64,
    /// Incarnation (number of the SSD's content) that has the places.
    pub incarnation: u32,
    /// Weight, 16.16 fixed point; 1.0 = 65,536.
    pub weight: u32,
    /// Number of the SSD in the array.
    pub id: u16,
    /// Node, a failure domain.
    pub node: u16,
    /// Rack, a failure domain.
    pub rack: u16,
    /// State.
    pub state: State3,
    /// Whether it votes.
    pub vote: Vote,
    /// Address of the SSD, at most [`ADDRESS_BYTES`] long.
    pub address: String,
}

/// One place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place3 {
    /// Index of the SSD in the map.
    pub ssd: u16,
    /// The SSD takes writes here and does not serve reads yet.
    pub filling: bool,
}

/// An SSD that fills in order to take over a place. Until then the present SSD of the place serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incoming3 {
    /// Index of the SSD in the map.
    pub ssd: u16,
    /// The place that it takes over.
    pub place: u8,
}

/// The places of one group.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Row3 {
    /// Place k holds replica k. Places beyond the map's width are empty.
    pub places: [Option<Place3>; MAX_WIDTH],
    /// The SSD that is going to take over a place of the row.
    pub incoming: Option<Incoming3>,
    /// The place that serves readers while the volume has a writer.
    pub first: Option<u8>,
}

/// A fleet map of format 3.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FleetMap3 {
    /// Id of the array.
    pub array: [u8; 16],
    /// Term that proposed the map first.
    pub term: u64,
    /// Epoch.
    pub epoch: u64,
    /// Seed of the draws.
    pub seed: u64,
    /// Places of a group.
    pub width: u8,
    /// The SSDs.
    pub ssds: Vec<Ssd3>,
    /// The groups: a power of two.
    pub rows: Vec<Row3>,
}

impl FleetMap3 {
    /// Makes the checks of the decoder, so that each map that can be encoded can be decoded.
    ///
    /// # Errors
    /// [`MapError`] names the fault.
    pub fn check(&self) -> Result<(), MapError> {
        if self.ssds.is_empty() || self.ssds.len() > MAX_SSDS {
            return Err(MapError::SsdCount);
        }
        if !self.rows.len().is_power_of_two() || self.rows.len() > 1 << 24 {
            return Err(MapError::Groups);
        }
        let voters = self.ssds.iter().filter(|ssd| ssd.vote != Vote::None).count();
        let addresses = self.ssds.iter().all(|ssd| ssd.address.len() <= ADDRESS_BYTES);
        let ages = self.ssds.iter().all(|ssd| ssd.shrunk_at <= self.epoch);
        if usize::from(self.width) > MAX_WIDTH || voters > MAX_VOTERS || !addresses || !ages {
            return Err(MapError::Format);
        }
        if self.rows.iter().all(|row| self.is_valid(row)) { Ok(()) } else { Err(MapError::Group) }
    }

    /// Whether a row is valid. Each of its SSDs must be allowed to have a place, and occurs once. The first
    /// place serves. The incoming SSD takes over a place that serves.
    fn is_valid(&self, row: &Row3) -> bool {
        let width = usize::from(self.width);
        let holds = |index: u16| {
            let ssd = self.ssds.get(usize::from(index));
            ssd.is_some_and(|ssd| {
                matches!(ssd.state, State3::In | State3::Full | State3::Absent) && ssd.vote != Vote::Witness
            })
        };
        let incoming = row.incoming.iter().map(|incoming| incoming.ssd);
        let named: Vec<u16> = row.places.iter().flatten().map(|place| place.ssd).chain(incoming).collect();
        let once = (1..named.len()).all(|i| !named[..i].contains(&named[i]));
        let serves =
            |at: u8| row.places.get(usize::from(at)).copied().flatten().is_some_and(|place| !place.filling);
        row.places[width.min(MAX_WIDTH)..].iter().all(Option::is_none)
            && once
            && named.into_iter().all(holds)
            && row.first.is_none_or(serves)
            && row.incoming.is_none_or(|incoming| serves(incoming.place))
    }
}
