// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD that has joined, or is back without places, takes its share of the places of others.
//!
//! ```text
//!   guest, or in with few places --writers follow and reach it--> spread: comes in --filled--> serve_all
//! ```
//! The ways of a drain serve it: an incoming place each, writers first, the check for room. There is one such
//! SSD at a time, and none while an SSD leaves, places fill, or places are empty. So the map says by itself
//! what its incoming places are for. One that takes over a place of an SSD of weight [`LEAVES`] is of a
//! drain. Each other one is of an SSD that takes its share.

use super::LEAVES;
use crate::core::Core;
use gnstor_fleet::change::ChangeBy;
use gnstor_fleet::change::Unchanged;
use gnstor_fleet::map::Map;
use gnstor_fleet::set::{MAX_SSDS, SsdSet};
use gnstor_fleet::wire;
use gnstor_proto::placement::map3::{FleetMap3, Row3, Ssd3, State3};

/// An SSD with less than this part of its share takes the rest.
const PART: u64 = 4;

/// The inputs of a search for SSDs that take places. Another search with the same inputs finds the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SearchedBy {
    pub(super) epoch: u64,
    /// The SSDs that may take them, with their incarnations.
    pub(super) ssds: Vec<(u16, u32)>,
    /// The replicas of a volume by which the map is judged.
    pub(super) replicas: u8,
    /// Blocks that the volumes reserve on each SSD.
    pub(super) reserved: Vec<u64>,
    /// SSDs that are out, and for which their places were kept long enough.
    pub(super) late: SsdSet,
}

/// An SSD that is to take its share.
#[derive(Default, Debug)]
pub(in crate::core) struct Spread {
    /// The SSD, and since when a map of this daemon says that it has less.
    pub(super) ssd: Option<(u16, u64)>,
    /// Inputs of the last search that found nothing.
    found_none: Option<SearchedBy>,
    /// Inputs of the last check in which every SSD had its share.
    none_lacks: Option<Looked>,
    /// What the SSD waits for.
    waits: Option<String>,
}

/// The inputs of a check whether an SSD lacks its share. The check reads all rows, and every answer of an SSD
/// asks for it.
#[derive(PartialEq, Eq, Debug)]
struct Looked {
    epoch: u64,
    /// The SSDs that may take places, with their incarnations.
    comers: Vec<(u16, u32)>,
    leaving: SsdSet,
}

impl Core {
    /// The next map, if an SSD is to take its share.
    pub(super) fn spread(&mut self, now: u64, map: &FleetMap3) -> Option<FleetMap3> {
        let lacks = if self.config.spreads { self.look_who_lacks(map) } else { None };
        let Some((ssd, incarnation)) = lacks else {
            if self.changes.spread.ssd.take().is_some() {
                self.changes.needs_to_come(Vec::new(), now);
            }
            self.changes.spread.waits = None;
            return None;
        };
        let term = self.term.number();
        if map.term != term {
            // Each writer renews under a new map, and says what it follows.
            return wire::change(map, |map: &Map| Ok::<_, Unchanged>(map.again(term))).ok();
        }
        if self.changes.spread.ssd.is_none_or(|(of, _)| of != ssd) {
            self.changes.spread.ssd = Some((ssd, now));
        }
        let is_followed = !self.volumes.values().any(Self::does_not_follow);
        let is_reached = self.is_reached(ssd, now);
        let unreached = if is_followed && !is_reached { vec![ssd] } else { Vec::new() };
        self.changes.needs_to_come(unreached, now);
        let waits = match (is_followed, is_reached, self.has_all(ssd)) {
            (false, ..) => Some("a writer has not said yet that it can follow"),
            (_, false, _) => Some("a writer does not reach it yet"),
            (.., false) => Some("it is not up to date yet"),
            _ => None,
        };
        self.changes.spread.waits = waits.map(str::to_owned);
        if waits.is_some() {
            return None;
        }
        let by = self.searched_by(now, map, vec![(ssd, incarnation)], self.most(map));
        if self.changes.spread.found_none.as_ref() == Some(&by) {
            return None;
        }
        let most = self.most(map);
        let places = map.share(ssd, &self.shares(ssd, map), most);
        let next =
            wire::change(map, |map: &Map| map.spread(ssd, incarnation, &places, ChangeBy { most, term }));
        let lacks = next.as_ref().map(|next| self.room_that_lacks(next)).unwrap_or_default();
        if let Some((on, bytes)) = lacks.first() {
            let why = format!("SSD {on} lacks {bytes} bytes for its share; delete volumes");
            self.changes.spread.waits = Some(why);
        }
        let next = next.ok().filter(|_| lacks.is_empty());
        if next.is_none() {
            self.changes.spread.found_none = Some(by);
        }
        next
    }

    /// The weight of each SSD that has a share, with this one among them; 0 for the others.
    fn shares(&self, ssd: u16, map: &FleetMap3) -> Vec<u32> {
        let share = |(other, known): (u16, &Ssd3)| {
            let is_part = other == ssd || matches!(known.state, State3::In | State3::Full | State3::Absent);
            if is_part && known.weight > LEAVES && !self.is_witness(other, known) { known.weight } else { 0 }
        };
        (0..).zip(&map.ssds).map(share).collect()
    }

    /// As [`Self::lacks_its_share`], but evaluated only once for the same map and SSDs.
    fn look_who_lacks(&mut self, map: &FleetMap3) -> Option<(u16, u32)> {
        let comers = self.comers(map);
        let by = Looked { epoch: map.epoch, comers, leaving: self.leaving(map) };
        if self.changes.spread.none_lacks.as_ref() == Some(&by) {
            return None;
        }
        let lacks = self.lacks_its_share(map, &by.comers);
        self.changes.spread.none_lacks = if lacks.is_none() { Some(by) } else { None };
        lacks
    }

    /// An SSD with much less than its share, and its incarnation. Nothing else changes.
    fn lacks_its_share(&self, map: &FleetMap3, comers: &[(u16, u32)]) -> Option<(u16, u32)> {
        let is_busy =
            |row: &Row3| row.incoming.is_some() || row.places.iter().flatten().any(|place| place.filling);
        // Holes come first: for its own ones an SSD that is back needs no writer that follows.
        let has_holes = self.changes.has_holes;
        if comers.is_empty() || has_holes || !self.leaving(map).is_empty() || map.rows.iter().any(is_busy) {
            return None;
        }
        // Places that volumes use count by themselves: the others have no data.
        let count = |columns: usize| {
            let mut has = vec![0u64; map.ssds.len()];
            for place in map.rows.iter().flat_map(|row| row.places.into_iter().take(columns)).flatten() {
                has[usize::from(place.ssd)] += 1;
            }
            has
        };
        let counts = [count(usize::from(self.most(map))), count(usize::from(map.width))];
        let lacks = |&(ssd, _): &(u16, u32)| {
            let shares = self.shares(ssd, map);
            let weights: u64 = shares.iter().map(|&weight| u64::from(weight)).sum();
            counts.iter().any(|has| {
                let all: u64 = has.iter().sum();
                let fair = (all * u64::from(shares[usize::from(ssd)])).checked_div(weights).unwrap_or(0);
                has[usize::from(ssd)] * PART < fair
            })
        };
        comers.iter().copied().filter(|(ssd, _)| !self.is_spare(*ssd, map)).find(lacks)
    }

    /// What an SSD waits for before it takes its share.
    pub(in crate::core) fn share_waits(&self, ssd: u16) -> Option<String> {
        let is_it = self.changes.spread.ssd.is_some_and(|(of, _)| of == ssd);
        self.changes.spread.waits.clone().filter(|_| is_it)
    }

    /// SSDs that leave by the map, and are to stay.
    pub(super) fn called_back(&self, map: &FleetMap3) -> SsdSet {
        let stays = |(ssd, known): &(u16, &Ssd3)| known.weight == LEAVES && !self.changes.leaves(*ssd, known);
        (0..MAX_SSDS).zip(&map.ssds).filter(stays).map(|(ssd, _)| ssd).collect()
    }

    /// The SSD that takes its share by this map.
    pub(super) fn takes_its_share(&self, map: &FleetMap3) -> Option<u16> {
        map.rows.iter().find_map(|row| {
            let incoming = row.incoming?;
            let place = row.places.get(usize::from(incoming.place)).copied().flatten()?;
            let known = map.ssds.get(usize::from(place.ssd))?;
            (known.weight != LEAVES).then_some(incoming.ssd)
        })
    }
}

/// Sets an SSD's weight in the next map. If this calls a drain off, the SSDs that were to replace the
/// draining one give up their incoming places.
pub(super) fn set_weight(next: &mut FleetMap3, ssd: u16, weight: u32) {
    let before = std::mem::replace(&mut next.ssds[usize::from(ssd)].weight, weight);
    if before != LEAVES || weight == LEAVES {
        return;
    }
    let of = |row: &Row3| row.places.get(usize::from(row.incoming?.place)).copied().flatten();
    let come_in = next.rows.iter_mut().filter(|row| of(row).is_some_and(|place| place.ssd == ssd));
    come_in.for_each(|row| row.incoming = None);
}
