// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SSDs that a map dropped come back and fill places. Filled places then serve (rule 1b).
//!
//! ```text
//!   out, back --invite--> learns the map, counts up --table--> guest --writers reach it--> fill_all
//!     ^                                                          |                            |
//!     |  lost, or back three times within ten minutes            |                     fills: `fill`
//!     +----------------------------------------------------------+                            v
//!                                                                        serves <--serve_all-- filled
//! ```
//! A guest gets each change like a member. So its table is up to date in the epoch that gives it places, and
//! knows the volume of every write in that epoch.
//!
//! **Which hole.** A hole is kept for the SSD that had the place, as long as that SSD is not given up
//! ([`CoreConfig::out_after_ms`]). Then the hole is drawn among the SSDs that are in (rebuild). Where this
//! daemon has not seen which SSD had it, the hole goes to an SSD that is back. After that time it goes to one
//! that is drawn.
//!
//! [`CoreConfig::out_after_ms`]: crate::core::CoreConfig::out_after_ms

use super::LEAVES;
use super::spread::SearchedBy;
use crate::core::capacity::Capacity;
use crate::core::volume::{Purpose, Round, Stage, Volume};
use crate::core::{Core, Owner};
use gnstor_fleet::change::{HolderState, may_grow};
use gnstor_fleet::map::Map;
use gnstor_fleet::set::{MAX_SSDS, SsdSet};
use gnstor_fleet::wire;
use gnstor_proto::placement::map3::{FleetMap3, Row3, Ssd3, State3};
use gnstor_proto::placement::{AnyMap, MAX_WIDTH};
use gnstor_proto::slba::Vid;

/// How long a writer has to say that it reaches an SSD that is to get places.
pub(super) const REACH_MS: u64 = 5_000;
/// A writer that opens later has that time, too. This bounds how long a series of new writers can hold up an
/// SSD.
const OPENS_LATER_MS: u64 = 6 * REACH_MS;

/// A place of a row without an SSD, and the SSDs that may get it.
#[derive(Clone, Copy)]
struct Hole {
    row: usize,
    place: usize,
    open: SsdSet,
}

impl Core {
    /// Brings SSDs up to date that are there and that the map does not name.
    pub(super) fn invite(&mut self) {
        if !self.is_serving() {
            return;
        }
        let Some(map) = self.map_of_voters() else { return };
        let is_out = |(ssd, known): &(u16, &Ssd3)| {
            matches!(known.state, State3::Out | State3::Spare)
                && known.weight != 0
                && !self.changes.is_taken_out(*ssd, known)
                && !self.changes.leaves(*ssd, known)
        };
        let is_to_come = |ssd: &u16| {
            let is_known = self.members.contains(*ssd) || self.members.is_coming(*ssd);
            !is_known && !self.changes.is_down(*ssd) && !self.changes.flaps(*ssd)
        };
        let out = (0..MAX_SSDS).zip(&map.ssds).filter(is_out).map(|(ssd, _)| ssd);
        let come: Vec<u16> = out.filter(is_to_come).collect();
        for ssd in come {
            self.members.invite(ssd);
            self.resync(ssd);
        }
    }

    /// The SSDs that may get holes, with their incarnations: guests, and present members if there are holes
    /// that may be theirs.
    fn fillers(&self, now: u64, map: &FleetMap3) -> Vec<(u16, u32)> {
        let is_wanted = |ssd: u16| {
            let known = map.ssds.get(usize::from(ssd));
            known.is_some_and(|known| {
                !self.changes.is_taken_out(ssd, known)
                    && !self.changes.leaves(ssd, known)
                    && !self.is_witness(ssd, known)
            })
        };
        let is_there = |ssd: &u16| !self.is_silent(*ssd) && !self.changes.flaps(*ssd) && is_wanted(*ssd);
        let is_home = |ssd: &u16| self.changes.is_home(*ssd);
        let is_rebuilt = self.has_holes_to_rebuild(now, map);
        let takes = |ssd: &u16| {
            matches!(map.ssds.get(usize::from(*ssd)), Some(Ssd3 { state: State3::In, weight: 1.., .. }))
        };
        let of_members = |ssd: &u16| {
            let is_whole = takes(ssd) && !self.is_other_content(*ssd);
            self.members.guests().contains(ssd) || is_whole && (is_rebuilt || is_home(ssd))
        };
        let all = self.members.all().iter().copied().filter(|ssd| *ssd < MAX_SSDS);
        let all = all.filter(is_there).filter(of_members);
        all.filter_map(|ssd| Some((ssd, self.changes.says(ssd)?.incarnation))).collect()
    }

    /// Whether some hole belongs to an SSD that is given up, or to none that this daemon knows.
    fn has_holes_to_rebuild(&self, now: u64, map: &FleetMap3) -> bool {
        let is_for_others = |(row, place): (usize, usize)| match self.changes.homes.get(&(row, place)) {
            Some(&home) => self.is_given_up(home, now, map),
            None => self.are_outs_over(now, map),
        };
        let is_late = |ssd: &u16| self.is_given_up(*ssd, now, map);
        if !(self.changes.has_homeless || self.changes.has_holes && self.changes.outs.keys().any(is_late)) {
            return false;
        }
        let width = usize::from(map.width);
        map.rows.iter().enumerate().any(|(row, places)| {
            (0..width).any(|place| places.places[place].is_none() && is_for_others((row, place)))
        })
    }

    /// Until when the places of an SSD that is out since then are kept for it.
    fn kept_until(&self, since: u64) -> u64 {
        since.saturating_add(self.config.out_after_ms)
    }

    /// When other SSDs take the places of this one that are empty; `None`: there are none, or never.
    pub(in crate::core) fn drawn_anew_at(&self, ssd: u16) -> Option<u64> {
        let since = *self.changes.outs.get(&ssd)?;
        let is_home = self.changes.homes.values().any(|home| *home == ssd);
        Some(self.kept_until(since)).filter(|&at| is_home && at != u64::MAX)
    }

    /// Whether the SSD is out, and did not come back in time.
    fn is_given_up(&self, ssd: u16, now: u64, map: &FleetMap3) -> bool {
        let is_taken_out = map.ssds.get(usize::from(ssd)).is_none_or(|known| known.weight <= LEAVES);
        let since = self.changes.outs.get(&ssd).filter(|_| !self.members.guests().contains(&ssd));
        since.is_some_and(|&at| is_taken_out || self.kept_until(at) <= now)
    }

    /// Whether the daemon waits for none of the SSDs that are out.
    fn are_outs_over(&self, now: u64, map: &FleetMap3) -> bool {
        let is_taken_out =
            |ssd: u16| map.ssds.get(usize::from(ssd)).is_none_or(|known| known.weight <= LEAVES);
        let mut outs = self.changes.outs.iter();
        outs.all(|(&ssd, &at)| is_taken_out(ssd) || self.kept_until(at) <= now)
    }

    /// Whether the SSD has stored all changes of volumes that it missed.
    pub(super) fn has_all(&self, ssd: u16) -> bool {
        let misses = |volume: &Volume| {
            let repairs =
                |round: &Round| matches!(round.purpose, Purpose::Reconcile { .. }) && round.waits_for(ssd);
            let lacks = |round: &Round| repairs(round) || round.failed.contains_key(&ssd);
            volume.again || volume.behind.contains_key(&ssd) || volume.round.as_ref().is_some_and(lacks)
        };
        let has_strays =
            || self.commands.values().any(|(of, owner, _)| *of == ssd && matches!(owner, Owner::Stray));
        !self.volumes.values().any(misses) && !has_strays()
    }

    /// Whether every writer reaches the SSD, so that it can become a member.
    pub(super) fn is_reached(&self, ssd: u16, now: u64) -> bool {
        let Some(since) = self.changes.since(ssd) else { return false };
        let writers = self.volumes.values().filter(|v| v.stage == Stage::Active && v.writer(now).is_some());
        let lost_at = self.changes.lost_at(ssd);
        may_grow(writers.map(|volume| volume.holder_state(ssd, (lost_at, since), now)))
    }

    /// Writers that speak and do not reach an SSD in time lose their leases.
    pub(in crate::core) fn revoke_out_of_reach(&mut self, now: u64) {
        let Some(map) = self.map_of_voters().filter(|_| self.is_serving()) else { return };
        if !self.changes.sinces().any(|(_, since)| since + REACH_MS <= now) || !self.changes.has_holes {
            return;
        }
        let fillers = self.fillers(now, map);
        let is_filler = |ssd: u16| fillers.iter().any(|(filler, _)| *filler == ssd);
        let late = self.changes.sinces().filter(|&(ssd, since)| is_filler(ssd) && since + REACH_MS <= now);
        let waited: Vec<(u16, u64)> = late.collect();
        self.revoke_who_misses(now, &waited);
    }

    /// Writers that have had their time and do not reach one of these SSDs lose their leases. The SSDs have
    /// been there since then.
    pub(super) fn revoke_who_misses(&mut self, now: u64, waited: &[(u16, u64)]) {
        if waited.is_empty() {
            return;
        }
        let is_late = |volume: &Volume| {
            let misses = |&(ssd, since): &(u16, u64)| {
                let state = volume.holder_state(ssd, (self.changes.lost_at(ssd), since), now);
                let held_since = volume.held_since.min(since + OPENS_LATER_MS);
                state == HolderState::Unknown && since.max(held_since) + REACH_MS <= now
            };
            volume.stage == Stage::Active
                && volume.round.is_none()
                && volume.writer(now).is_some()
                && waited.iter().any(misses)
        };
        let late: Vec<Vid> =
            self.volumes.iter().filter(|(_, volume)| is_late(volume)).map(|(&vid, _)| vid).collect();
        for vid in late {
            tracing::warn!(%vid, "the writer does not reach an SSD that is to get places: its lease ends");
            self.end_lease(now, vid);
        }
    }

    /// The next map, if SSDs have filled their places or can get some; and the SSDs that get some.
    pub(super) fn grown(&mut self, now: u64, map: &FleetMap3) -> Option<(FleetMap3, Vec<u16>)> {
        let term = self.term.number();
        let filled = self.fills.filled();
        let (leaving, most) = (self.leaving(map), self.most(map));
        // Only an SSD of which the map says that it leaves: volumes that are made meanwhile go by the map.
        let leave = leaving.iter().filter(|&ssd| map.ssds[usize::from(ssd)].weight == LEAVES);
        let leave: SsdSet = leave.collect();
        let serve = |map: &Map| {
            let next = map.serve_all(&filled, term)?;
            // The other places of an SSD that leaves go in the same epoch.
            Ok(leave.iter().fold(next, |next, ssd| next.and_leave_unused(ssd, most)))
        };
        if !filled.is_empty()
            && let Ok(next) = wire::change(map, serve)
        {
            return Some((next, Vec::new()));
        }
        let all = self.fillers(now, map);
        let fewest = self.fewest();
        let by = self.searched_by(now, map, all, fewest);
        if by.ssds.is_empty() || self.changes.found_no_hole.as_ref() == Some(&by) {
            return None;
        }
        let is_ready = |&(ssd, _): &(u16, u32)| self.has_all(ssd) && self.is_reached(ssd, now);
        let ssds: Vec<(u16, u32)> = by.ssds.iter().copied().filter(is_ready).collect();
        let fill = |choose: &dyn Fn(usize, usize, SsdSet) -> Option<u16>| -> Option<FleetMap3> {
            let next = wire::change(map, |map: &Map| map.fill_all(&ssds, (fewest, most), term, choose));
            next.ok().filter(|next| self.has_room(next))
        };
        // A guest without a place is drawn like the SSDs that are in, and one that leaves is not.
        let mut drawn = map.clone();
        leaving.iter().for_each(|ssd| drawn.ssds[usize::from(ssd)].weight = 0);
        for (ssd, _) in &ssds {
            drawn.ssds[usize::from(*ssd)].state = State3::In;
        }
        // A spare that is not there takes no hole.
        let spares = drawn.ssds.iter_mut().filter(|known| known.state == State3::Spare);
        spares.for_each(|known| known.state = State3::Out);
        // Where no SSD is outside a row, the draw is among the SSDs at its places that no volume uses.
        let mut bare = drawn.clone();
        let unused = bare.rows.iter_mut().flat_map(|row| row.places.iter_mut().skip(usize::from(most)));
        unused.for_each(|place| *place = None);
        let maps = (&drawn, &bare);
        let next = fill(&|row, place, open| self.choose(now, maps, Hole { row, place, open }, true))
            // A spare may have too little room for all holes.
            .or_else(|| fill(&|row, place, open| self.choose(now, maps, Hole { row, place, open }, false)))
            // The SSDs have no room for the places of others, so each gets only its own places back.
            .or_else(|| fill(&|row, place, open| self.home(row, place).filter(|&home| open.contains(home))));
        if next.is_none() && ssds == by.ssds && !self.awaits_a_spare(now) {
            self.changes.found_no_hole = Some(by);
        }
        let next = next?;
        let gets = |ssd: &u16| next.ssds[usize::from(*ssd)] != map.ssds[usize::from(*ssd)];
        let gets: Vec<u16> = ssds.iter().map(|(ssd, _)| *ssd).filter(gets).collect();
        Some((next, gets))
    }

    /// The inputs of a search among these SSDs. With the same inputs it finds the same.
    pub(super) fn searched_by(
        &self,
        now: u64,
        map: &FleetMap3,
        ssds: Vec<(u16, u32)>,
        replicas: u8,
    ) -> SearchedBy {
        let reserved = self.capacity.iter().flat_map(Capacity::ssds).map(|ssd| ssd.reserved).collect();
        let is_late = |(_, at): &(&u16, &u64)| self.kept_until(**at) <= now;
        let late = self.changes.outs.iter().filter(is_late).map(|(&ssd, _)| ssd);
        let late = late.filter(|ssd| *ssd < MAX_SSDS).collect();
        SearchedBy { epoch: map.epoch, ssds, replicas, reserved, late }
    }

    /// The SSD that had the place.
    fn home(&self, row: usize, place: usize) -> Option<u16> {
        self.changes.homes.get(&(row, place)).copied()
    }

    /// Chooses the SSD for a hole: the SSD that had it, otherwise an SSD that is back, otherwise one that the
    /// draw chooses. Spares may come first in it. The second map has no places that no volume uses.
    fn choose(
        &self,
        now: u64,
        (map, bare): (&FleetMap3, &FleetMap3),
        hole: Hole,
        spares_first: bool,
    ) -> Option<u16> {
        let Hole { row, place, open } = hole;
        let is_in_row = |ssd| map.rows[row].places.iter().flatten().any(|at| at.ssd == ssd);
        let moves = open.iter().any(is_in_row);
        let draw = || {
            if let Some(spare) = self.spare_for(map, (row, place), open).filter(|_| spares_first) {
                return Some(spare);
            }
            // Keep the hole for a spare that was just added. If another SSD took it, the spare would not get
            // it later.
            if self.awaits_a_spare(now) {
                return None;
            }
            let group = u32::try_from(row).ok()?;
            let drawn = if moves { bare.draw(group) } else { map.draw(group) };
            drawn.filter(|&ssd| open.contains(ssd)).or_else(|| open.iter().next().filter(|_| moves))
        };
        match self.home(row, place) {
            Some(home) if open.contains(home) => Some(home),
            // The hole's former SSD may come back.
            Some(home) if !self.is_given_up(home, now, map) => None,
            Some(_) => draw(),
            None => {
                // Several SSDs that are back share the holes whose former SSD is not known.
                let has_own = |ssd: u16| (0..MAX_WIDTH).any(|place| self.home(row, place) == Some(ssd));
                let is_spare = |ssd| self.map_of_voters().is_some_and(|map| self.is_spare(ssd, map));
                let is_back = |ssd: &u16| self.members.guests().contains(ssd) && !is_spare(*ssd);
                let back = open.iter().filter(|ssd| is_back(ssd) && !has_own(*ssd));
                let back: Vec<u16> = back.collect();
                let is_late = self.are_outs_over(now, map);
                back.get(row % back.len().max(1)).copied().or_else(|| if is_late { draw() } else { None })
            }
        }
    }

    /// Whether all that the volumes reserve fits on the SSDs by this map.
    fn has_room(&self, next: &FleetMap3) -> bool {
        let capacity = self.capacity_under(AnyMap::from(next.clone()));
        let before = self.capacity.iter().flat_map(Capacity::ssds);
        // An SSD that was beyond its capacity before may stay so.
        capacity
            .ssds()
            .iter()
            .zip(before)
            .all(|(ssd, before)| ssd.reserved <= ssd.capacity.max(before.reserved))
    }

    /// Notes which SSDs had the places that are holes in the next map.
    pub(super) fn note_homes(&mut self, next: &AnyMap) {
        let (Some(map), AnyMap::Three(next)) = (self.map_of_voters(), next) else { return };
        let has = |row: &Row3, ssd| row.places.iter().flatten().any(|place| place.ssd == ssd);
        let (mut lost, mut taken) = (Vec::new(), Vec::new());
        for (at, (old, new)) in map.rows.iter().zip(&next.rows).enumerate() {
            for (place, (was, is)) in old.places.iter().zip(&new.places).enumerate() {
                match (was, is) {
                    (Some(was), None) => lost.push(((at, place), was.ssd)),
                    (None, Some(_)) => taken.push((at, place)),
                    // The SSD has another place of the row by now.
                    (None, None) if self.home(at, place).is_some_and(|home| has(new, home)) => {
                        taken.push((at, place));
                    }
                    _ => {}
                }
            }
        }
        self.changes.moved_homes(lost, &taken);
    }

    /// The next time at which a wait ends: for a writer to say that it reaches a guest, or for an SSD that is
    /// out.
    pub(super) fn growth_wakes_at(&self, now: u64) -> Option<u64> {
        let is_waited_for = self.changes.has_holes && self.changes.sinces().next().is_some();
        let held = self.volumes.values().filter(|v| is_waited_for && v.writer(now).is_some());
        let mut held = held.map(|volume| volume.held_since).peekable();
        let has_writers = held.peek().is_some();
        let since = self.changes.sinces().filter(|_| has_writers);
        let since = since.flat_map(|(_, since)| [since, since + OPENS_LATER_MS]);
        let since = since.chain(held);
        let outs = self.changes.outs.values().map(|&at| self.kept_until(at));
        since.map(|at| at + REACH_MS).chain(outs).filter(|&at| at > now).min()
    }
}

impl Volume {
    /// What the writer has reported about an SSD since its loss. A writer reports once that it reaches an SSD
    /// again, perhaps before the daemon has found it. A holder whose renewals name no SSDs counts as reaching
    /// it after a while, because it connects as others do. That time begins when the SSD had all entries of
    /// the array.
    fn holder_state(&self, ssd: u16, (lost_at, since): (u64, u64), now: u64) -> HolderState {
        match self.reaches {
            Some((ssds, at)) if at >= lost_at && ssds >> ssd & 1 == 1 => HolderState::Reaches,
            None if since + REACH_MS <= now => HolderState::Reaches,
            _ => HolderState::Unknown,
        }
    }
}
