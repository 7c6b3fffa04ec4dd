// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From one fleet map to the next, in an array whose map names voters (rules 1b, 1c, 2b of the fleet).
//!
//! ```text
//!   nothing to change <---------------------------------------------------------------+
//!     | an SSD is silent, or has other content: lose_all; one that was absent: back    |
//!     v                                                                                |
//!   hold    MAP HOLD to the voters; what is lost meanwhile is for the next round       |
//!     | a majority holds it                                                            |
//!   wait    lease + drift, where the map deprives an SSD that has said no goodbye      |
//!     v                                                                                |
//!   tell    ACTIVATE to all SSDs that are there --all members have it--> the core's map
//! ```
//! Each round decides anew which SSDs to drop: SSDs that are down, whose content changed, or that the
//! operator took out. So a loss that comes during a round is in the next one, and an SSD that is back before
//! a round began loses nothing.
//!
//! **The fewest replicas.** A map that takes a copy away was judged by the fewest replicas of the volumes. A
//! voter may keep such a map for long, and a later daemon proposes it again, unchanged. So a volume with
//! fewer replicas than all others waits until a map of this daemon's term, judged by that number, was
//! decided. An older map cannot be decided any more.

mod drain;
mod fewest;
mod grow;
mod hold;
mod join;
mod lost;
mod salvage;
mod spread;
mod state;
mod votes;
mod wait;

use super::absence::OTHER;
use super::effect::WireMap;
use super::epoch::Known;
use super::members::members_of;
use super::{Answer, Command, CommandId, Core, Owner, Phase, Stop};
pub(in crate::core) use drain::{LEAVES, ssds_of};
use gnstor_fleet::change::Unchanged;
use gnstor_fleet::lease::Timing;
use gnstor_fleet::map::{FleetView, Map};
use gnstor_fleet::set::{MAX_SSDS, SsdSet};
use gnstor_fleet::wire;
use gnstor_proto::placement::map3::{ADDRESS_BYTES, FleetMap3, Ssd3, State3};
use gnstor_proto::placement::{AnyMap, Rows as _};
use gnstor_proto::ssd_identity::SsdSays;
use gnstor_proto::status::Refusal;
use spread::set_weight;
pub(super) use state::Changes;
use state::Proposed;
pub(super) use votes::Newcomer;

/// Returns of one SSD within [`FLAP_MS`] after which it gets no places until it is resumed. An SSD that has
/// the only copy of some blocks serves these again all the same.
const FLAP_RETURNS: usize = 3;
/// Ten minutes.
const FLAP_MS: u64 = 600_000;
/// The weight 1.0.
pub(super) const WHOLE_WEIGHT: u32 = 1 << 16;

impl Core {
    /// The map in use, if its voters decide on the next one.
    pub(super) fn map_of_voters(&self) -> Option<&FleetMap3> {
        self.epoch.map()?.voted()
    }

    /// Handles an SSD's answer to Identify.
    pub(super) fn ssd_says(&mut self, ssd: u16, says: Option<SsdSays>) {
        self.changes.heard(ssd, says);
        self.is_so_large(ssd, says);
    }

    /// Does what can be done for the next map.
    pub(super) fn change_step(&mut self, now: u64) {
        if self.map_of_voters().is_none() || !self.may_change() {
            return;
        }
        while self.may_change() {
            self.ask_voters_anew(now);
            if self.changes.round.is_none() && (self.changes.anew.is_some() || !self.propose(now)) {
                break;
            }
            self.ask_to_hold(now);
            let voters = self.epoch.map().map_or(SsdSet::EMPTY, FleetView::voters);
            let Some(proposed) = &mut self.changes.round else { break };
            proposed.look(now, voters, &mut self.changes.history);
            if !proposed.is_active {
                break;
            }
            self.tell(now);
            if !self.is_delivered() {
                break;
            }
            self.activated(now);
        }
        self.tell(now);
        if self.changes.round.is_none() && self.changes.anew.is_none() {
            self.start_changed(now);
        }
        self.invite();
    }

    /// A daemon that starts may change the map once it is elected. It must also know the volumes, or have to
    /// propose a held map again.
    fn may_change(&self) -> bool {
        match &self.phase {
            Phase::Starting(start) => start.may_change(),
            Phase::Serving => true,
            Phase::Stopped(_) => false,
        }
    }

    /// A map that may have been decided is proposed once more, as it is.
    pub(super) fn propose_again(&mut self, map: &Known) -> Result<(), Stop> {
        let bytes = map.map().encode().map_err(|e| Stop::Array(format!("the map that is held: {e}")))?;
        // The daemon does not know by which numbers of replicas the map was judged.
        self.changes.round = Some(Proposed::new(map.clone(), bytes.into(), (u8::MAX, 0)));
        Ok(())
    }

    /// Begins a round if something must change.
    fn propose(&mut self, now: u64) -> bool {
        if matches!(&self.phase, Phase::Starting(start) if !start.may_propose()) {
            return false;
        }
        let Some((next, fewest)) = self.next_fleet_map(now) else { return false };
        let most = self.most(&next);
        let known = Known::new(AnyMap::from(next));
        match known.map().encode() {
            Ok(bytes) => {
                tracing::warn!(epoch = known.epoch(), "the fleet map changes");
                self.changes.round = Some(Proposed::new(known, bytes.into(), (fewest, most)));
                true
            }
            Err(error) => {
                self.stop(Stop::Array(format!("the next fleet map: {error}")));
                false
            }
        }
    }

    /// SSDs that are there at other addresses than the map names.
    fn moved(&self, map: &FleetMap3) -> Vec<(u16, String)> {
        if !self.config.names_addresses || !self.is_serving() {
            return Vec::new();
        }
        let is_new = |((ssd, address), known): &((u16, &String), &Ssd3)| {
            let fits = !address.is_empty() && address.len() <= ADDRESS_BYTES;
            fits && known.address != **address && !self.changes.is_down(*ssd)
        };
        let new = (0u16..).zip(&self.addresses).zip(&map.ssds).filter(is_new);
        new.map(|((ssd, address), _)| (ssd, address.clone())).collect()
    }

    /// The next map, with the weights that the operator wants, and the addresses of the SSDs.
    fn next_fleet_map(&mut self, now: u64) -> Option<(FleetMap3, u8)> {
        self.end_drains();
        let next = self.next_places(now);
        let map = self.map_of_voters()?;
        let is_new = |(ssd, weight): &(u16, u32)| {
            map.ssds.get(usize::from(*ssd)).is_some_and(|known| known.weight != *weight)
        };
        let weights: Vec<(u16, u32)> =
            self.changes.weights.iter().map(|(&ssd, &weight)| (ssd, weight)).filter(is_new).collect();
        let (moved, joins) = (self.moved(map), self.changes.joins.next(map.ssds.len()).cloned());
        if weights.is_empty() && moved.is_empty() && joins.is_none() {
            return next;
        }
        let term = self.term.number();
        let again = || wire::change(map, |map: &Map| Ok::<_, Unchanged>(map.again(term))).ok();
        let (mut next, fewest) = next.or_else(|| Some((again()?, self.fewest())))?;
        weights.into_iter().for_each(|(ssd, weight)| set_weight(&mut next, ssd, weight));
        next.ssds.extend(joins);
        for (ssd, address) in moved {
            next.ssds[usize::from(ssd)].address = address;
        }
        Some((next, fewest))
    }

    /// The next map, and the fewest replicas by which it was judged. If SSDs are lost, the map drops them.
    /// Otherwise it adds SSDs that are back, have filled, or are to fill.
    fn next_places(&mut self, now: u64) -> Option<(FleetMap3, u8)> {
        let map = self.map_of_voters()?;
        let (term, fewest) = (self.term.number(), self.fewest());
        let lost = self.to_be_lost(map);
        let what = (map.epoch, lost, fewest);
        if !lost.is_empty() && self.changes.found_nothing != Some(what) {
            if let Ok(next) = wire::change(map, |map: &Map| map.lose_all(lost, fewest, term)) {
                self.changes.found_nothing = None;
                return Some((next, fewest));
            }
            self.changes.found_nothing = Some(what);
        }
        let map = self.map_of_voters()?;
        if let Some((ssd, incarnation)) = self.to_be_back(map)
            && let Ok(next) = wire::change(map, |map: &Map| map.back(ssd, incarnation, term))
        {
            self.changes.returned(ssd, now);
            return Some((next, fewest));
        }
        if let Some(next) = self.consented(now) {
            return Some((next, fewest));
        }
        if self.is_serving() {
            let map = self.map_of_voters()?.clone();
            // Must come first: an SSD that filled on behalf of one that is not leaving gets no place.
            if let Some(next) = self.called_off(&map) {
                return Some((next, fewest));
            }
            if let Some((next, back)) = self.grown(now, &map) {
                back.into_iter().for_each(|ssd| self.changes.returned(ssd, now));
                return Some((next, fewest));
            }
            if let Some(next) = self.drained(now, &map) {
                return Some((next, fewest));
            }
            if let Some(next) = self.next_voters(&map) {
                return Some((next, fewest));
            }
            if let Some(next) = self.spread(now, &map) {
                return Some((next, fewest));
            }
        }
        let map = self.map_of_voters()?;
        let is_to_be_judged = self.changes.is_to_be_judged_anew() || self.fills.has_forgotten();
        let again = || wire::change(map, |map: &Map| Ok::<_, Unchanged>(map.again(term))).ok();
        if is_to_be_judged { again().map(|next| (next, fewest)) } else { None }
    }

    /// The members to drop: they are down, have other content, or have weight 0.
    pub(in crate::core) fn to_be_lost(&self, map: &FleetMap3) -> SsdSet {
        let members = members_of(map).into_iter().filter(|&ssd| ssd < MAX_SSDS);
        let is_lost = |ssd: &u16| {
            self.changes.is_down(*ssd)
                || self.is_other_content(*ssd)
                || self.changes.weights.get(ssd) == Some(&0)
        };
        members.filter(is_lost).collect()
    }

    /// ACTIVATE to each SSD of the array that is there and does not have the newest active map.
    fn tell(&mut self, now: u64) {
        let newest = match &self.changes.round {
            Some(round) if round.is_active => round.wire(),
            _ => match self.epoch.map() {
                Some(map) => WireMap::of(map, self.epoch.bytes()),
                None => return,
            },
        };
        let connected = u16::try_from(self.members.connected()).unwrap_or(u16::MAX);
        // An SSD that is being brought up to date gets the map in that procedure.
        let returning: Vec<u16> = self.returning().collect();
        let is_open = |ssd: &u16| {
            self.changes.is_map_due(*ssd, newest.epoch, now)
                && !returning.contains(ssd)
                && self.has_said_who_it_is(*ssd)
        };
        let open: Vec<u16> = (0..connected).filter(is_open).collect();
        for ssd in open {
            let id = self.command(ssd, Owner::Tell, Command::Activate(newest.clone()));
            self.changes.telling(ssd, id, newest.epoch);
        }
    }

    pub(super) fn tell_answered(&mut self, now: u64, ssd: u16, id: CommandId, answer: &Answer) {
        let retry_at = now + self.config.retry_ms;
        // An SSD that refuses the map as not newer has it already.
        let has = matches!(answer, Answer::Done | Answer::Refused(Refusal::StaleVersion));
        self.changes.delivered(ssd, id, has, retry_at);
        self.change_step(now);
    }

    /// Whether every present member of the next map has received that map. While the daemon serves, at least
    /// one SSD must have it. A client that asks the SSDs for the newest map must find the one by which the
    /// daemon grants. That SSD need not be a member: the only member may have been exchanged meanwhile.
    fn is_delivered(&self) -> bool {
        let Some(proposed) = &self.changes.round else { return false };
        let (map, returning) = (proposed.round.map.map(), self.returning().collect::<Vec<_>>());
        // An SSD that answers in the place of another one gets no map.
        let is_another = |ssd: &u16| {
            let says = self.changes.says(*ssd).map(|says| says.uuid);
            says.is_some_and(|uuid| !proposed.round.map.means(*ssd, &uuid))
        };
        let waits = |ssd: &u16| !self.changes.is_down(*ssd) && !returning.contains(ssd) && !is_another(ssd);
        let has = |ssd: &u16| self.changes.has(*ssd, proposed.round.map.epoch());
        let members = members_of(map);
        let mut named = 0..u16::try_from(map.count()).unwrap_or(u16::MAX);
        let is_known = !self.is_serving() || named.any(|ssd| has(&ssd));
        is_known && members.iter().filter(|ssd| waits(ssd)).all(has)
    }

    /// Takes an active map, which the SSDs have, as the core's map.
    fn activated(&mut self, now: u64) {
        let Some(proposed) = self.changes.round.take() else { return };
        let map = proposed.round.map.map().clone();
        self.note_homes(&map);
        let before = self.map_of_voters().cloned();
        if let AnyMap::Three(map) = &map {
            let has = |(ssd, weight): (&u16, &mut u32)| {
                map.ssds.get(usize::from(*ssd)).is_none_or(|known| known.weight == *weight)
            };
            // An SSD with weight 0 that still has places is lost again until it has none.
            let stays = |ssd: &u16| map.ssds.get(usize::from(*ssd)).is_some_and(|s| s.state == State3::In);
            self.changes.weights.retain(|ssd, weight| !has((ssd, weight)) || *weight == 0 && stays(ssd));
        }
        self.changes.judged = Some(proposed.fewest);
        self.changes.joins.named(map.count());
        self.changes.accepted.retain(|&ssd| map.state(ssd) == Some(State3::Absent));
        self.changes.salvage.take_if(|salvage| salvage.is_over(&map));
        let taken = match &self.phase {
            Phase::Starting(_) => self.adopt_map(map).map_err(|stop| stop.to_string()),
            _ => self.take_map(now, map).map_err(|error| error.to_string()),
        };
        if let Err(error) = taken {
            return self.stop(Stop::Array(format!("the next fleet map cannot be served by: {error}")));
        }
        if let Some(before) = before {
            self.follow_voters(&before);
        }
        self.create_parked(now);
    }

    /// Lets an SSD take part again that came back too often, or that the operator took out.
    ///
    /// # Errors
    /// A sentence, if the SSD neither came back too often nor was taken out.
    pub fn resume(&mut self, now: u64, ssd: u16) -> Result<(), String> {
        let weight = self.map_of_voters().and_then(|map| Some(map.ssds.get(usize::from(ssd))?.weight));
        let is_taken_out =
            weight.is_some_and(|weight| weight <= LEAVES) || self.changes.weights.contains_key(&ssd);
        let is_kept_out = is_taken_out || self.changes.flaps(ssd);
        // Its earlier returns no longer count, even if they were not too many yet.
        self.changes.resume(ssd);
        if !is_kept_out {
            return Err(format!(
                "SSD {ssd} cannot be resumed: it was neither taken out nor has it come back too often"
            ));
        }
        if is_taken_out {
            self.changes.weights.insert(ssd, self.weight_of_size(ssd));
        }
        self.change_step(now);
        Ok(())
    }

    pub(super) fn change_wakes_at(&self) -> Option<u64> {
        if self.map_of_voters().is_none() || !self.may_change() {
            return None;
        }
        let returning: Vec<u16> = self.returning().collect();
        let changes = self.changes.wakes_at(Timing::DEFAULT_MS, &returning);
        let growth = self.growth_wakes_at(self.now).into_iter().chain(self.drain_wakes_at(self.now));
        changes.into_iter().chain(growth).chain(self.anew_wakes_at()).min()
    }
}
