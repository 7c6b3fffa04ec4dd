// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The map that a start publishes: the newest that was found, or the first one of an array.

use super::voters::{other_number, voters_of};
use super::{Probe, Progress, Start, Step, degraded};
use crate::core::capacity::Capacity;
use crate::core::epoch::{check_room, newest};
use crate::core::members::members_of;
use crate::core::shrink::WHOLE_WEIGHT;
use crate::core::{Core, Phase, Stop};
use gnstor_fleet::set::MAX_SSDS;
use gnstor_proto::placement::map3::{ADDRESS_BYTES, FleetMap3, MAX_VOTERS, Ssd3, State3, Vote};
use gnstor_proto::placement::{AnyMap, FleetMap, Member, Rows, SsdState, mix64};
use gnstor_proto::ssd_identity::SsdSays;
use std::collections::BTreeMap;

impl Core {
    pub(super) fn publish(&mut self) {
        if let Err(stop) = self.next_map() {
            return self.stop(stop);
        }
        if let Phase::Starting(start) = &mut self.phase {
            start.enter(Step::Publish);
            start.skip_published();
        }
        self.ask();
    }

    /// Chooses the map to publish, and this daemon's term.
    fn next_map(&mut self) -> Result<(), Stop> {
        let Phase::Starting(start) = &self.phase else { return Ok(()) };
        let maps = || start.probes.iter().filter_map(|p| p.map.as_ref());
        let mut term = self.term.choose(maps().map(Rows::term))?;
        if start.is_degraded() {
            term = self.term.further(degraded::apart(term, start.first(), self.config.instance))?;
        }
        let map = match newest(maps()) {
            // A map that is held may name more SSDs than the active one. They are connected, too.
            Some(newest)
                if newest.count() > start.probes.len()
                    || newest.count() < start.probes.len()
                        && voters_of(newest).is_empty()
                        && !self.gets_witness(newest) =>
            {
                return Err(other_number(newest, start.probes.len()));
            }
            // Some SSDs have the map already, so the others get the same one.
            Some(newest) if !voters_of(newest).is_empty() => return self.adopt_map(newest.clone()),
            Some(newest) => self.converted(newest, &start.probes).unwrap_or_else(|| newest.clone()),
            None => self.fresh_map(&start.probes, term)?,
        };
        self.adopt_map(map.in_term(term))
    }

    /// The map has format 2, and knows all connected SSDs but the witness.
    fn gets_witness(&self, map: &AnyMap) -> bool {
        let is_old = matches!(map, AnyMap::Two(_));
        is_old && self.config.has_witness && map.count() + 1 == self.members.connected()
    }

    /// The daemon that starts uses this map.
    pub(in crate::core) fn adopt_map(&mut self, map: AnyMap) -> Result<(), Stop> {
        if members_of(&map).is_empty() {
            return Err(Stop::Array("no SSD takes part in the array's fleet map: it serves nothing".into()));
        }
        let bytes = map.encode().map_err(|e| Stop::Array(format!("the fleet map: {e}")))?;
        check_room(&map, bytes.len()).map_err(Stop::Array)?;
        self.members.follow(&map);
        self.capacity = Some(Capacity::new(map.clone(), self.members.blocks()));
        self.epoch.set(map, bytes);
        Ok(())
    }

    fn fresh_map(&self, probes: &[Probe], term: u64) -> Result<AnyMap, Stop> {
        let with_blocks = probes.len() - usize::from(self.config.has_witness);
        let equal = FleetMap::equal(with_blocks, self.config.groups, self.config.seed, term)
            .map_err(|e| Stop::Array(format!("no fleet map can be made: {e}")))?;
        Ok(self.voted(&equal, probes).map_or_else(|| equal.into(), AnyMap::from))
    }

    /// The map with votes, identities and addresses, if it should have voters and each SSD knows the format.
    fn voted(&self, map: &FleetMap, probes: &[Probe]) -> Option<FleetMap3> {
        let says: Option<Vec<SsdSays>> =
            probes.iter().map(|probe| probe.says.filter(|says| says.takes_map3)).collect();
        let is_wanted =
            self.config.map_format.has_voters(probes.len()) && probes.len() <= usize::from(MAX_SSDS);
        // A substitute has another SSD's place, and not its blocks. An SSD whose connection broke meanwhile
        // has said who it is, and the step after this waits for it.
        let says = says.filter(|_| is_wanted && !self.members.has_substitutes())?;
        let mut map = FleetMap3::of(map, array_of(&says));
        if self.config.has_witness {
            map.ssds.push(witness(map.ssds.len()));
        }
        for (ssd, says) in map.ssds.iter_mut().zip(&says) {
            (ssd.uuid, ssd.incarnation) = (says.uuid, says.incarnation);
        }
        for (ssd, address) in map.ssds.iter_mut().zip(&self.addresses) {
            ssd.address = Some(address.clone()).filter(|a| a.len() <= ADDRESS_BYTES).unwrap_or_default();
        }
        choose_voters(&mut map.ssds);
        Some(map)
    }

    /// The next epoch of an array of format 2, in format 3 and with the same places. Only if all SSDs have
    /// the same map, are whole, and none has a substitute. In the new map each place serves.
    fn converted(&self, newest: &AnyMap, probes: &[Probe]) -> Option<AnyMap> {
        let AnyMap::Two(known) = newest else { return None };
        let is_same =
            |probe: &Probe| matches!(&probe.map, Some(AnyMap::Two(map)) if map.epoch == known.epoch);
        let is_whole = |probe: &Probe| probe.says.is_some_and(|says| !says.is_lossy);
        let serves = |place: Option<Member>| place.is_some_and(|member| !member.filling);
        let is_full = (0..known.groups()).all(|group| known.row(group).all(serves))
            && known.ssds.iter().all(|ssd| ssd.state == SsdState::In);
        let is_good = probes.iter().take(known.ssds.len()).all(|probe| is_same(probe) && is_whole(probe));
        if !is_full || !is_good {
            return None;
        }
        let next = FleetMap3 { epoch: known.epoch.checked_add(1)?, ..self.voted(known, probes)? };
        let next = AnyMap::from(next);
        let bytes = next.encode().ok()?.len();
        if let Err(why) = check_room(&next, bytes) {
            tracing::warn!("the fleet map stays one of format 2: {why}");
            return None;
        }
        tracing::info!(epoch = next.epoch(), "the fleet map becomes one of format 3: its SSDs vote");
        Some(next)
    }
}

impl Start {
    /// Whether the newest map names voters, and each SSD that answered has a map with voters. If not, a
    /// daemon ended while it gave the SSDs their first such map. An SSD whose content the map does not name
    /// has lost its content, and gets nothing here. Nor does an SSD that is out of the map. It learns the map
    /// when it is brought up to date, and no step of a start waits for it.
    pub(super) fn is_published(&self) -> bool {
        let Some(AnyMap::Three(newest)) = self.newest().filter(|map| !voters_of(map).is_empty()) else {
            return false;
        };
        let lacks = |probe: &Probe, known: &Ssd3| {
            let is_meant = probe.says.is_some_and(|says| says.uuid == known.uuid);
            let takes_part = known.state != State3::Out || known.vote != Vote::None;
            is_meant && takes_part && !matches!(probe.map, Some(AnyMap::Three(_)))
        };
        let mut all = (0u16..).zip(self.probes.iter().zip(&newest.ssds));
        // An SSD that no step waits for cannot get the map now.
        !all.any(|(ssd, (probe, known))| !self.without.contains(&ssd) && lacks(probe, known))
    }

    /// The SSD has the newest map, which names voters.
    pub(super) fn has_newest(&self, ssd: u16) -> bool {
        let own = self.probes.get(usize::from(ssd)).and_then(|probe| probe.map.as_ref());
        let Some(AnyMap::Three(own)) = own else { return false };
        self.newest().is_some_and(|newest| newest.epoch() == own.epoch)
    }

    /// SSDs that have the newest map, which names voters, are not given it again.
    pub(super) fn skip_published(&mut self) {
        let count = u16::try_from(self.probes.len()).unwrap_or(u16::MAX);
        for ssd in (0..count).filter(|&ssd| self.has_newest(ssd)).collect::<Vec<_>>() {
            self.probes[usize::from(ssd)].progress = Progress::Answered;
        }
    }
}

/// The id of the array, derived from the identities that its SSDs drew when they were formatted. So two
/// daemons that make the first map at once make the same one, and SSDs that were formatted again are another
/// array.
fn array_of(says: &[SsdSays]) -> [u8; 16] {
    let words = says.iter().flat_map(|says| {
        let (low, high) = says.uuid.split_at(8);
        [low, high].map(|half| half.iter().fold(0u64, |word, &byte| word << 8 | u64::from(byte)))
    });
    let words: Vec<u64> = words.collect();
    let half = |start| words.iter().fold(mix64(start), |id, word| mix64(id ^ word));
    let mut id = [0; 16];
    id[..8].copy_from_slice(&half(1).to_le_bytes());
    id[8..].copy_from_slice(&half(2).to_le_bytes());
    id
}

/// The witness of a fresh map, in a failure domain of its own. It has no place: its state stays out.
fn witness(number: usize) -> Ssd3 {
    let number = u16::try_from(number).unwrap_or(u16::MAX);
    Ssd3 {
        uuid: [0; 16],
        shrunk_at: 0,
        incarnation: 1,
        weight: WHOLE_WEIGHT,
        id: number,
        node: number,
        rack: 0,
        state: State3::Out,
        vote: Vote::Witness,
        address: String::new(),
    }
}

/// Chooses an odd number of voters, at most seven, a witness among them: one of each node first, while there
/// are more nodes.
fn choose_voters(ssds: &mut [Ssd3]) {
    let mut turns: BTreeMap<u16, usize> = BTreeMap::new();
    let mut order: Vec<(usize, usize)> = Vec::new();
    let witnesses = ssds.iter().filter(|ssd| ssd.vote == Vote::Witness).count();
    for (index, ssd) in ssds.iter().enumerate().filter(|(_, ssd)| ssd.vote != Vote::Witness) {
        let turn = turns.entry(ssd.node).or_default();
        order.push((*turn, index));
        *turn += 1;
    }
    order.sort_unstable();
    let count = (order.len() + witnesses).min(MAX_VOTERS);
    let odd = if count.is_multiple_of(2) { count - 1 } else { count };
    for (_, index) in order.into_iter().take(odd.saturating_sub(witnesses)) {
        ssds[index].vote = Vote::Voter;
    }
}

/// Why a daemon does not start where these SSDs have no map, and others have volumes.
pub(super) fn without_a_map(ssds: impl Iterator<Item = u16>) -> String {
    let names: Vec<_> = ssds.map(|ssd| format!("SSD {ssd}")).collect();
    let have = if names.len() == 1 { "has" } else { "have" };
    format!(
        "the array holds volumes, but {} {have} no fleet map: formatted or replaced SSDs cannot be filled \
         again by this version; put the old ones back",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(uuid: u8) -> SsdSays {
        let capacity_bytes = 1 << 30;
        SsdSays { uuid: [uuid; 16], incarnation: 1, takes_map3: true, is_lossy: false, capacity_bytes }
    }

    #[test]
    fn an_odd_number_votes_in_different_nodes_first() {
        let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
        let voters = |nodes: &[u16]| {
            let mut map = FleetMap3::of(&FleetMap::equal(nodes.len(), 64, 7, 1).unwrap(), [1; 16]);
            map.ssds.iter_mut().zip(nodes).for_each(|(ssd, &node)| ssd.node = node);
            choose_voters(&mut map.ssds);
            map.check().unwrap();
            let voters = (0..nodes.len()).filter(|&ssd| map.ssds[ssd].vote == Vote::Voter);
            voters.collect::<Vec<_>>()
        };
        assert_eq!(voters(&[0]), [0]);
        assert_eq!(voters(&[0, 1]), [0]);
        assert_eq!(voters(&[0, 1, 2, 3]), [0, 1, 2]);
        assert_eq!(voters(&[0, 0, 0, 1, 2]), [0, 1, 2, 3, 4]);
        assert_eq!(voters(&[0, 0, 1, 2]), [0, 2, 3], "one of each node");
        assert_eq!(voters(&[0; 20]).len(), 7);
    }

    #[test]
    fn a_witness_makes_the_number_of_votes_odd() {
        let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
        for (with_blocks, votes) in [(2, 2), (4, 4), (6, 6), (8, 6)] {
            let mut map = FleetMap3::of(&FleetMap::equal(with_blocks, 64, 7, 1).unwrap(), [1; 16]);
            map.ssds.push(witness(with_blocks));
            choose_voters(&mut map.ssds);
            map.check().unwrap();
            assert_eq!(map.ssds.iter().filter(|ssd| ssd.vote == Vote::Voter).count(), votes);
            assert_eq!(map.ssds[with_blocks].vote, Vote::Witness);
            assert!(map.rows.iter().all(|row| row.places.iter().flatten().count() == with_blocks.min(4)));
        }
    }

    #[test]
    fn the_array_id_is_that_of_its_ssds() {
        let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
        let all = [says(1), says(2)];
        assert_eq!(array_of(&all), array_of(&[SsdSays { incarnation: 9, ..says(1) }, says(2)]));
        assert_ne!(array_of(&all), array_of(&[says(2), says(1)]));
        assert_ne!(array_of(&all), array_of(&[says(1), says(3)]));
        assert_ne!(array_of(&all)[..8], array_of(&all)[8..]);
    }
}
