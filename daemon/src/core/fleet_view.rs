// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fleet as an operator sees it, and what the operator may ask: `gnstor fleet`.

use super::Core;
use super::report::{FleetStatus, Refusal, SsdView};
use super::shrink::ssds_of;
use gnstor_fleet::map::{FleetView, Map};
use gnstor_fleet::set::{MAX_SSDS, SsdSet};
use gnstor_fleet::wire;
use gnstor_proto::placement::AnyMap;
use gnstor_proto::placement::map3::{FleetMap3, Row3, Ssd3, State3, Vote};
use gnstor_proto::vendor::MAX_REPLICAS;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Groups of an SSD.
#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    serving: u32,
    filling: u32,
    last_copies: u32,
}

/// The SSDs whose copies merge, for volumes of this number of replicas (rule 17).
fn merging(row: &Row3, replicas: usize) -> Vec<u16> {
    let places: Vec<_> = row.places.iter().take(replicas).flatten().collect();
    let merges = places.len() > 1 && places.iter().all(|place| place.filling);
    places.into_iter().filter(|_| merges).map(|place| place.ssd).collect()
}

impl Core {
    /// The state of the fleet; `None` while there is no map.
    pub fn fleet(&self) -> Option<FleetStatus> {
        let known = self.epoch.map()?;
        // A map of format 2 is shown as one of format 3 without votes.
        let (map, format) = match known.map() {
            AnyMap::Three(map) => (map.clone(), 3),
            AnyMap::Two(map) => (FleetMap3::of(map, [0; 16]), 2),
        };
        let replicas =
            self.volumes.values().map(|v| v.entry.replicas).max().unwrap_or(map.width.min(MAX_REPLICAS));
        let mut groups_by_copies = vec![0; usize::from(replicas) + 1];
        let mut counts = vec![Counts::default(); map.ssds.len()];
        let takes_part = |ssd: u16| {
            map.ssds.get(usize::from(ssd)).is_some_and(|ssd| matches!(ssd.state, State3::In | State3::Full))
        };
        let fewest = usize::from(self.fewest().min(map.width).min(replicas));
        for row in &map.rows {
            let serve = |most: usize| {
                let places = row.places.iter().take(most).flatten();
                places.filter(|place| !place.filling && takes_part(place.ssd)).map(|place| place.ssd)
            };
            // A volume of fewer replicas has its copies at the lower places. A group waits for an SSD that is
            // absent, also where another one serves.
            let is_absent =
                |ssd: u16| map.ssds.get(usize::from(ssd)).is_some_and(|ssd| ssd.state == State3::Absent);
            let mut used = row.places.iter().take(replicas.into()).flatten();
            let waits = used.any(|place| is_absent(place.ssd)) || serve(fewest).next().is_none();
            groups_by_copies[if waits { 0 } else { serve(replicas.into()).count() }] += 1;
            for place in row.places.iter().take(replicas.into()).flatten() {
                if let Some(counts) = counts.get_mut(usize::from(place.ssd)) {
                    *if place.filling { &mut counts.filling } else { &mut counts.serving } += 1;
                }
            }
            if let Some(incoming) = row.incoming.filter(|incoming| incoming.place < replicas)
                && let Some(counts) = counts.get_mut(usize::from(incoming.ssd))
            {
                counts.filling += 1;
            }
            // A volume of r replicas has its copies at the places below r.
            let numbers = fewest..=usize::from(replicas);
            let alone = numbers.clone().filter(|&most| serve(most).count() == 1).flat_map(serve);
            let alone: BTreeSet<u16> = alone.chain(numbers.flat_map(|most| merging(row, most))).collect();
            alone.into_iter().for_each(|ssd| counts[usize::from(ssd)].last_copies += 1);
        }
        let ssds = (0u16..)
            .zip(map.ssds.iter().zip(counts))
            .map(|(index, (ssd, counts))| self.ssd_view(index, ssd, counts));
        Some(FleetStatus {
            array: map.array,
            format,
            epoch: map.epoch,
            term: self.term.number(),
            voters: (0u16..).zip(&map.ssds).filter(|(_, s)| s.vote != Vote::None).map(|(i, _)| i).collect(),
            groups: u32::try_from(map.rows.len()).unwrap_or(u32::MAX),
            groups_by_copies,
            replicas,
            next: self.changes.proposes().map(|epoch| (epoch, self.voters_missing())),
            ssds: ssds.collect(),
            fills_paused: self.repairs.are_fills_paused,
            settles: self.settling(),
            changes: self.changes.history.changes(),
        })
    }

    /// The map in use: its epoch and its bytes.
    pub fn map_in_use(&self) -> Option<(u64, Arc<[u8]>)> {
        let map = self.epoch.map().filter(|_| self.is_serving())?;
        Some((map.epoch(), self.epoch.bytes()))
    }

    /// Whether the map names voters. Then the loss of an SSD makes an epoch, so the daemon must notice it
    /// soon.
    pub fn has_voters(&self) -> bool {
        self.map_of_voters().is_some()
    }

    fn ssd_view(&self, index: u16, ssd: &Ssd3, counts: Counts) -> SsdView {
        let Counts { serving, filling, last_copies } = counts;
        let why = self.members.absent().get(&index).map(|absence| absence.why().to_owned());
        SsdView {
            index,
            uuid: ssd.uuid,
            address: ssd.address.clone(),
            node: ssd.node,
            rack: ssd.rack,
            state: ssd.state,
            votes: ssd.vote != Vote::None,
            incarnation: ssd.incarnation,
            shrunk_at: ssd.shrunk_at,
            away: self.changes.why_down(index).map(str::to_owned).or(why),
            down_since_ms: self.changes.down_since(index),
            drawn_anew_at_ms: self.drawn_anew_at(index).filter(|_| !self.changes.is_taken_out(index, ssd)),
            flaps: self.changes.flaps(index),
            taken_out: self.changes.is_taken_out(index, ssd),
            is_witness: self.is_witness(index, ssd),
            leaves: ssd.state != State3::Out && self.changes.leaves(index, ssd),
            leave_waits: self.changes.drain_waits.clone().filter(|_| self.changes.leaves(index, ssd)),
            share_waits: self.share_waits(index),
            serving,
            filling,
            fill: self.fills.report(index),
            last_copies,
            is_lossy: self.is_back_lossy(index),
        }
    }

    /// Drops an SSD now, although it answers, and keeps it out until it is resumed. If it has the last copy
    /// of a group, it becomes absent instead, and the group waits.
    ///
    /// # Errors
    /// A sentence with the reason.
    pub fn fail_ssd(&mut self, now: u64, ssd: u16) -> Result<(), Refusal> {
        self.may_take_out(ssd, "failed")?;
        self.changes.take_out(ssd);
        self.change_step(now);
        Ok(())
    }

    /// As [`Self::fail_ssd`], but only if each group that it serves has another copy.
    ///
    /// # Errors
    /// A sentence with the reason.
    pub fn remove_ssd(&mut self, now: u64, ssd: u16) -> Result<(), Refusal> {
        let map = self.may_take_out(ssd, "removed")?;
        if self.absent_by_loss(map, SsdSet::EMPTY.with(ssd)).contains(ssd) {
            return Err(format!(
                "SSD {ssd} cannot be removed: it has the last copy of some placement group, of a volume with \
                 {} replicas; move it (gnstor fleet drain {ssd}), wait for SSDs that fill (gnstor fleet show), or \
                 delete such volumes",
                self.fewest()
            ));
        }
        self.may_follow_others(ssd, "removed", "")?;
        self.changes.take_out(ssd);
        self.change_step(now);
        Ok(())
    }

    /// Checks that each group keeps a copy without this SSD and without the SSDs whose loss is in no map yet.
    pub(super) fn may_follow_others(&self, ssd: u16, done: &str, or: &str) -> Result<(), Refusal> {
        let Some(map) = self.map_of_voters() else { return Ok(()) };
        let going = self.to_be_lost(map).without(ssd);
        let (before, after) = (self.absent_by_loss(map, going), self.absent_by_loss(map, going.with(ssd)));
        if after.is_subset_of(before) {
            return Ok(());
        }
        let others: Vec<String> = going.iter().map(|other| other.to_string()).collect();
        Err(format!(
            "SSD {ssd} cannot be {done} now: the next fleet map leaves out SSD {}, and without both some \
             placement groups would have no copy; wait until other SSDs have filled (gnstor fleet show){or}",
            others.join(" and ")
        ))
    }

    /// The SSDs that are absent in the map without these ones.
    fn absent_by_loss(&self, map: &FleetMap3, lost: SsdSet) -> SsdSet {
        let (term, fewest) = (self.term.number(), self.fewest());
        let next = wire::change(map, |map: &Map| map.lose_all(lost, fewest, term));
        let next = next.as_ref().unwrap_or(map);
        ssds_of(next, |_, known| known.state == State3::Absent)
    }

    fn may_take_out(&self, ssd: u16, what: &str) -> Result<&FleetMap3, Refusal> {
        let Some(map) = self.map_of_voters().filter(|_| self.is_serving()) else {
            return Err(format!(
                "SSD {ssd} cannot be {what}: the array's map names no voters, or the daemon does not serve yet"
            ));
        };
        let state = map.ssds.get(usize::from(ssd)).filter(|_| ssd < MAX_SSDS).map(|known| known.state);
        match state {
            None => Err(format!(
                "SSD {ssd} cannot be {what}: the array has SSDs 0 to {}",
                map.ssds.len().saturating_sub(1)
            )),
            Some(State3::Out) if self.changes.is_taken_out(ssd, &map.ssds[usize::from(ssd)]) => {
                Err(format!("SSD {ssd} cannot be {what}: it has been taken out already"))
            }
            Some(_) => {
                let voters = map.voters();
                let away = || voters.iter().filter(|&voter| self.changes.why_down(voter).is_some());
                if u32::try_from(away().count()).is_ok_and(|away| away * 2 < voters.len()) {
                    return Ok(map);
                }
                let away: Vec<String> = away().map(|voter| format!("SSD {voter}")).collect();
                Err(format!(
                    "SSD {ssd} cannot be {what}: {} of the {} voters are down ({}), so no other map can be \
                     decided; start these first",
                    away.len(),
                    voters.len(),
                    away.join(", ")
                ))
            }
        }
    }
}
