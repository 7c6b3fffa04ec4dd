// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD leaves while each block keeps all its copies (`gnstor fleet drain`).
//!
//! ```text
//!   wish: weight 1 --a map of this daemon says so--> writers say that they follow --come_in--> SSDs fill
//!     ^  resume: weight 1.0, the others stay                                                     |
//!     '------------------------------------------------- out, weight 0 <--serve_all: all have filled
//! ```
//! The wish is in the map, so a daemon that starts goes on. The rules are in `gnstor_fleet::change::drain`.
//!
//! **Writers first.** With such a map a write goes to one SSD more. A writer that does not say that it knows
//! this loses its lease 5 s after the map that says who leaves. Each writer renews under a new map. So a
//! daemon that starts makes one of its own term first.

use super::Changes;
use crate::core::capacity::Capacity;
use crate::core::report::{Refusal, SsdView};
use crate::core::volume::{Stage, Volume};
use crate::core::{Core, Vid};
use gnstor_fleet::change::ChangeBy;
use gnstor_fleet::change::Unchanged;
use gnstor_fleet::map::Map;
use gnstor_fleet::set::{MAX_SSDS, SsdSet};
use gnstor_fleet::wire;
use gnstor_proto::BLOCK_SHIFT;
use gnstor_proto::placement::AnyMap;
use gnstor_proto::placement::map3::{FleetMap3, Ssd3, State3};
use std::collections::BTreeSet;

/// The weight of an SSD that leaves, of 65,536. It gets no new place.
pub(in crate::core) const LEAVES: u32 = 1;
/// How long a writer has to say that it follows a map in which SSDs come in.
const FOLLOW_MS: u64 = 5_000;
/// Time between two looks at writers that do not reach an SSD that is to come in.
const REVOKE_MS: u64 = 100;
/// Names that a sentence has.
const NAMED: usize = 5;

impl Changes {
    /// The operator wants the SSD to leave, or the map says so.
    pub(in crate::core) fn leaves(&self, ssd: u16, known: &Ssd3) -> bool {
        self.weights.get(&ssd).map_or(known.weight == LEAVES, |&weight| weight == LEAVES)
    }

    /// A map of this daemon says since then that the SSD leaves.
    fn follow_leaving(&mut self, ssds: SsdSet, now: u64) {
        self.leave_since.retain(|ssd, _| ssds.contains(*ssd));
        for ssd in ssds.iter() {
            self.leave_since.entry(ssd).or_insert(now);
        }
        self.found_none_to_come = None;
        self.needs_to_come(Vec::new(), now);
    }

    /// Notes that a drain goes on only once writers reach these SSDs.
    pub(super) fn needs_to_come(&mut self, ssds: Vec<u16>, now: u64) {
        self.revoke_at = if ssds.is_empty() { None } else { self.revoke_at.or(Some(now + REVOKE_MS)) };
        self.unreached = ssds;
    }
}

/// The SSDs of the map for which `is_so` holds.
pub(in crate::core) fn ssds_of(map: &FleetMap3, is_so: impl Fn(u16, &Ssd3) -> bool) -> SsdSet {
    (0..MAX_SSDS).zip(&map.ssds).filter(|(ssd, known)| is_so(*ssd, known)).map(|(ssd, _)| ssd).collect()
}

fn list(ssds: impl IntoIterator<Item = u16>) -> String {
    ssds.into_iter().map(|ssd| ssd.to_string()).collect::<Vec<_>>().join(", ")
}

impl Core {
    /// The SSDs that leave.
    pub(in crate::core) fn leaving(&self, map: &FleetMap3) -> SsdSet {
        ssds_of(map, |ssd, known| self.changes.leaves(ssd, known))
    }

    /// The SSDs that leave, or for which SSDs may come in by a map that is under way.
    pub(in crate::core) fn may_be_leaving(&self, map: &FleetMap3) -> SsdSet {
        let is_called_off = ssds_of(map, |_, known| known.weight == LEAVES && known.state != State3::Out);
        self.leaving(map).union(is_called_off)
    }

    /// The most replicas that a volume has. Without volumes, the default of a Create.
    pub(in crate::core) fn most(&self, map: &FleetMap3) -> u8 {
        let volumes = self.volumes.values().map(|volume| volume.entry.replicas);
        volumes.max().unwrap_or(2).min(map.width)
    }

    /// Has an SSD leave.
    ///
    /// # Errors
    /// A sentence that says why not, and what to do.
    pub fn drain_ssd(&mut self, now: u64, view: &SsdView) -> Result<(), Refusal> {
        let ssd = view.index;
        let Some(map) = self.map_of_voters().filter(|_| self.is_serving()) else {
            return Err(format!("SSD {ssd} cannot be drained: the daemon does not serve yet"));
        };
        self.may_leave(map, view).map_err(|why| format!("SSD {ssd} cannot be drained: {why}"))?;
        self.changes.weights.insert(ssd, LEAVES);
        self.change_step(now);
        Ok(())
    }

    fn may_leave(&self, map: &FleetMap3, view: &SsdView) -> Result<(), String> {
        let ssd = view.index;
        if view.taken_out || matches!(view.state, State3::Out | State3::Spare) {
            return Err(format!("it has no place in the map; gnstor fleet resume {ssd} takes it back"));
        }
        if let Some(why) = &view.away {
            return Err(format!(
                "it does not answer ({why}), and a drain reads from it; start it again, or drop it (gnstor \
                 fleet fail {ssd})"
            ));
        }
        if let Some(other) = self.leaving(map).iter().find(|&other| other != ssd) {
            return Err(format!(
                "SSD {other} is being drained; wait until it is out (gnstor fleet show), or call that off (gnstor \
                 fleet resume {other})"
            ));
        }
        if let Some(other) = self.takes_its_share(map) {
            return Err(format!(
                "SSD {other} fills its share of the places; wait until it serves (gnstor fleet show)"
            ));
        }
        let takes_part = |other: u16, known: &Ssd3| {
            matches!(known.state, State3::In | State3::Full | State3::Absent)
                || self.members.guests().contains(&other)
        };
        let stays =
            ssds_of(map, |other, known| other != ssd && takes_part(other, known) && known.weight != 0);
        let most = self.most(map);
        if stays.len() < u32::from(most) {
            let of_most = self.volumes.values().map(|v| &v.entry).filter(|entry| entry.replicas == most);
            let names: Vec<String> = of_most.map(|entry| format!("{:?}", entry.name)).collect();
            let more = names.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} others") } else { String::new() };
            return Err(format!(
                "{} SSDs are left without it, and {} volumes have {most} replicas ({}{more}), each on an SSD of \
                 its own; add an SSD in the place of one that is out, or copy these volumes to ones of fewer \
                 replicas (gnstor cp) and delete them",
                stays.len(),
                names.len(),
                names.into_iter().take(NAMED).collect::<Vec<_>>().join(", ")
            ));
        }
        let nodes =
            |ssds: SsdSet| ssds.iter().map(|ssd| map.ssds[usize::from(ssd)].node).collect::<BTreeSet<_>>();
        let (left, now) = (nodes(stays).len(), nodes(stays.with(ssd)).len());
        if left < usize::from(most) && now >= usize::from(most) {
            return Err(format!(
                "volumes of {most} replicas have each on a node of its own, and {left} nodes are left without \
                 it; put an SSD on another node first (gnstor fleet replace)"
            ));
        }
        self.has_room_without(map, ssd, most)
    }

    /// Checks that the others have room for the SSD's blocks, if this is known because each of its places
    /// serves.
    fn has_room_without(&self, map: &FleetMap3, ssd: u16, most: u8) -> Result<(), String> {
        let content = |(ssd, known): (u16, &Ssd3)| match known.state {
            State3::In => Some((ssd, known.incarnation)),
            _ if self.members.guests().contains(&ssd) => Some((ssd, self.changes.says(ssd)?.incarnation)),
            _ => None,
        };
        let all = (0..MAX_SSDS).zip(&map.ssds).filter(|(_, known)| known.weight > LEAVES);
        let all: Vec<(u16, u32)> = all.filter_map(content).collect();
        let Ok(next) = self.with_others_in(map, ssd, &all, most) else { return Ok(()) };
        let lacks = self.room_that_lacks(&next);
        let Some((worst, bytes)) = lacks.iter().max_by_key(|(_, bytes)| *bytes) else { return Ok(()) };
        Err(format!(
            "SSD {} {} too little room for what it has: {bytes} bytes on SSD {worst}; delete volumes, or add an \
             SSD in the place of one that is out",
            list(lacks.iter().map(|(ssd, _)| *ssd)),
            if lacks.len() == 1 { "has" } else { "have" }
        ))
    }

    /// SSDs on which the volumes reserve more than there is in this map, and more than they do now; and how
    /// many bytes.
    pub(super) fn room_that_lacks(&self, next: &FleetMap3) -> Vec<(u16, u64)> {
        let capacity = self.capacity_under(AnyMap::from(next.clone()));
        let before = self.capacity.iter().flat_map(Capacity::ssds);
        let ssds = (0u16..).zip(capacity.ssds().iter().zip(before));
        let lacks = ssds.map(|(ssd, (next, before))| {
            (ssd, next.reserved.saturating_sub(next.capacity.max(before.reserved)) << BLOCK_SHIFT)
        });
        lacks.filter(|(_, bytes)| *bytes > 0).collect()
    }

    /// The map in which SSDs of these come in for one that leaves. Spares come first, if they have the room.
    fn with_others_in(
        &self,
        map: &FleetMap3,
        leaves: u16,
        ssds: &[(u16, u32)],
        most: u8,
    ) -> Result<FleetMap3, Unchanged> {
        let next = self.with_others_drawn(map, (leaves, true), ssds, most)?;
        if self.room_that_lacks(&next).is_empty() {
            return Ok(next);
        }
        self.with_others_drawn(map, (leaves, false), ssds, most)
    }

    fn with_others_drawn(
        &self,
        map: &FleetMap3,
        (leaves, spares_first): (u16, bool),
        ssds: &[(u16, u32)],
        most: u8,
    ) -> Result<FleetMap3, Unchanged> {
        let mut drawn = map.clone();
        for (ssd, _) in ssds {
            drawn.ssds[usize::from(*ssd)].state = State3::In;
        }
        let choose = |row: usize, place: usize, open: SsdSet| {
            if let Some(spare) = self.spare_for(map, (row, place), open).filter(|_| spares_first) {
                return Some(spare);
            }
            for (ssd, (known, before)) in (0u16..).zip(drawn.ssds.iter_mut().zip(&map.ssds)) {
                known.weight = if open.contains(ssd) { before.weight.max(LEAVES + 1) } else { 0 };
            }
            // Only SSDs that keep a copy stay out of the draw: places that no volume uses may be given up.
            let places = &mut drawn.rows.get_mut(row)?.places;
            places[place] = None;
            places.iter_mut().skip(usize::from(most)).for_each(|place| *place = None);
            drawn.draw(u32::try_from(row).ok()?)
        };
        let term = self.term.number();
        wire::change(map, |map: &Map| map.come_in(leaves, ssds, ChangeBy { most, term }, choose))
    }

    /// The SSDs that may come in, with their incarnations. Each has the map in use. So it knows that it does
    /// not fill yet, and compares all blocks anew.
    pub(super) fn comers(&self, map: &FleetMap3) -> Vec<(u16, u32)> {
        let may = |ssd: u16, known: &Ssd3| {
            known.weight > LEAVES
                && !self.is_silent(ssd)
                && !self.changes.flaps(ssd)
                && !self.changes.leaves(ssd, known)
                && !self.changes.is_taken_out(ssd, known)
                && !self.is_witness(ssd, known)
                && self.changes.has(ssd, map.epoch)
                && (self.members.guests().contains(&ssd)
                    || known.state == State3::In && !self.is_other_content(ssd))
        };
        let may = ssds_of(map, may);
        may.iter().filter_map(|ssd| Some((ssd, self.changes.says(ssd)?.incarnation))).collect()
    }

    /// A writer that does not follow a map in which SSDs come in. SSDs let it write until they hear that it
    /// is no longer the writer, whatever its lease is (rule 8a).
    pub(super) fn does_not_follow(volume: &Volume) -> bool {
        volume.stage == Stage::Active && volume.entry.writer.is_some() && !volume.follows
    }

    /// Writers that do not follow in time lose their leases.
    pub(in crate::core) fn revoke_who_cannot_follow(&mut self, now: u64) {
        let is_over = self.waits_to_be_followed().any(|since| since + FOLLOW_MS <= now);
        if !is_over || !self.is_serving() {
            return;
        }
        let late = self.volumes.iter().filter(|(_, v)| v.round.is_none() && Self::does_not_follow(v));
        let late: Vec<Vid> = late.map(|(&vid, _)| vid).collect();
        for vid in late {
            tracing::warn!(%vid, "the writer does not say that it follows SSDs that come in: its lease ends");
            self.end_lease(now, vid);
        }
    }

    /// Since when SSDs are to come in.
    fn waits_to_be_followed(&self) -> impl Iterator<Item = u64> {
        let share = self.changes.spread.ssd.map(|(_, since)| since);
        self.changes.leave_since.values().copied().chain(share)
    }

    /// Writers that do not reach an SSD without which a drain cannot go on lose their leases.
    pub(in crate::core) fn revoke_who_holds_up(&mut self, now: u64) {
        if self.changes.revoke_at.is_none_or(|at| at > now) || !self.is_serving() {
            return;
        }
        self.changes.revoke_at = (!self.changes.unreached.is_empty()).then_some(now + REVOKE_MS);
        let waited: Vec<(u16, u64)> =
            self.changes.unreached.iter().filter_map(|&ssd| Some((ssd, self.changes.since(ssd)?))).collect();
        self.revoke_who_misses(now, &waited);
    }

    pub(super) fn drain_wakes_at(&self, now: u64) -> Option<u64> {
        let follow = self.waits_to_be_followed().map(|since| since + FOLLOW_MS);
        let waits = self.changes.revoke_at.into_iter().chain(self.changes.joins.wakes_at(now));
        follow.chain(waits).filter(|&at| at > now).min()
    }

    /// Takes note of a new map.
    pub(in crate::core) fn follow_leaving(&mut self, now: u64) {
        let term = self.term.number();
        let leave = self.map_of_voters().filter(|map| map.term == term && self.is_serving());
        let leave =
            leave.map(|map| ssds_of(map, |_, known| known.weight == LEAVES && known.state != State3::Out));
        self.changes.follow_leaving(leave.unwrap_or_default(), now);
    }

    /// SSDs that have left are taken out: their weight is 0 from the next map on.
    pub(super) fn end_drains(&mut self) {
        let Some(map) = self.map_of_voters() else { return };
        let has_left = |ssd, known: &Ssd3| known.state == State3::Out && self.changes.leaves(ssd, known);
        let left = ssds_of(map, has_left);
        left.iter().for_each(|ssd| self.changes.take_out(ssd));
    }

    /// The next map, if a drain was called off.
    pub(super) fn called_off(&self, map: &FleetMap3) -> Option<FleetMap3> {
        let (stay, term) = (self.called_back(map), self.term.number());
        if stay.is_empty() {
            return None;
        }
        let others = (0..MAX_SSDS).filter(|&ssd| !stay.contains(ssd)).collect();
        wire::change(map, |map: &Map| map.stay(others, term)).ok()
    }

    /// The next map, if an SSD is to leave.
    pub(super) fn drained(&mut self, now: u64, map: &FleetMap3) -> Option<FleetMap3> {
        let (leaving, term, most) = (self.leaving(map), self.term.number(), self.most(map));
        let ssd = leaving.iter().find(|&ssd| {
            map.ssds[usize::from(ssd)].weight == LEAVES && map.ssds[usize::from(ssd)].state != State3::Out
        })?;
        let Some(&since) = self.changes.leave_since.get(&ssd) else {
            return wire::change(map, |map: &Map| Ok::<_, Unchanged>(map.again(term))).ok();
        };
        let by = self.searched_by(now, map, self.comers(map), most);
        if self.changes.found_none_to_come.as_ref() == Some(&by) {
            self.changes.needs_to_come(Vec::new(), now);
            return None;
        }
        let comers = &by.ssds;
        let is_ready = |(ssd, _): &&(u16, u32)| self.has_all(*ssd) && self.is_reached(*ssd, now);
        let ready: Vec<(u16, u32)> = comers.iter().filter(is_ready).copied().collect();
        let is_followed = !self.volumes.values().any(Self::does_not_follow);
        let late = self.late_comers(now, map, &ready).filter(|_| now < since + FOLLOW_MS);
        let all_are_ready = ready.len() == comers.len() && is_followed && late.is_none();
        let next = wire::change(map, |map: &Map| map.leave_unused(ssd, most, term)).or_else(|why| {
            if !is_followed || late.is_some() {
                return Err(why);
            }
            self.with_others_in(map, ssd, &ready, most)
        });
        let lacks = next.as_ref().map(|next| self.room_that_lacks(next)).unwrap_or_default();
        let unreached = || comers.iter().find(|(ssd, _)| !self.is_reached(*ssd, now));
        let waits = match (&next, lacks.first()) {
            (Ok(_), None) => None,
            (Ok(_), Some((on, bytes))) => Some(format!("SSD {on} lacks {bytes} bytes for what it has")),
            (Err(_), _) if !is_followed => Some("a writer has not said yet that it can follow".into()),
            (Err(_), _) => Some(match (unreached(), late) {
                (Some((ssd, _)), _) => format!("a writer does not reach SSD {ssd}"),
                (None, Some(ssd)) => format!("SSD {ssd} is not up to date yet"),
                (None, None) => "other SSDs have to be there, and to have filled their places".into(),
            }),
        };
        let needs_reach = next.is_err() && is_followed && late.is_none();
        let unreached = comers.iter().map(|(ssd, _)| *ssd).filter(|&ssd| !self.is_reached(ssd, now));
        let unreached: Vec<u16> = unreached.filter(|_| needs_reach).collect();
        self.changes.needs_to_come(unreached, now);
        let next = next.ok().filter(|_| lacks.is_empty());
        if next.is_none() && all_are_ready {
            self.changes.found_none_to_come = Some(by);
        }
        let is_moving = map.rows.iter().any(|row| row.incoming.is_some());
        self.changes.drain_waits = waits.filter(|_| !is_moving);
        next
    }

    /// A connected SSD that may come in later. An SSD that was just added counts, too: until its first answer
    /// the daemon knows nothing about it.
    fn late_comers(&self, now: u64, map: &FleetMap3, ready: &[(u16, u32)]) -> Option<u16> {
        let is_there = |ssd: u16, known: &Ssd3| {
            !self.changes.is_down(ssd) && self.changes.says(ssd).is_some_and(|says| known.is(&says.uuid))
        };
        let is_late = |ssd: u16, known: &Ssd3| {
            known.weight > LEAVES
                && (is_there(ssd, known) || self.changes.joins.is_awaited(ssd, now))
                && !self.changes.flaps(ssd)
                && !self.changes.leaves(ssd, known)
                && !self.changes.is_taken_out(ssd, known)
                && matches!(known.state, State3::In | State3::Out | State3::Spare)
                && !ready.iter().any(|(other, _)| *other == ssd)
        };
        ssds_of(map, is_late).iter().next()
    }
}
