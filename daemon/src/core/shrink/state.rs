// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State of the daemon on the way to the next map.

use super::join::Joins;
use super::salvage::Salvage;
use super::spread::{SearchedBy, Spread};
use super::votes::{Anew, Newcomer};
use super::wait::{History, Wait};
use super::{FLAP_MS, FLAP_RETURNS};
use crate::core::effect::WireMap;
use crate::core::epoch::Known;
use crate::core::members::members_of;
use crate::core::report::LostBlocks;
use crate::core::request::Create;
use crate::core::{CommandId, Ticket};
use gnstor_fleet::leader::Round;
use gnstor_fleet::lease::Timing;
use gnstor_fleet::map::FleetView;
use gnstor_fleet::set::SsdSet;
use gnstor_proto::placement::map3::Ssd3;
use gnstor_proto::ssd_identity::SsdSays;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A map that the voters are asked to hold.
#[derive(Debug)]
pub(in crate::core) struct Proposed {
    pub(super) round: Round<Known>,
    /// Smallest number of replicas for which the map was judged.
    pub(super) fewest: u8,
    /// Largest number of replicas for which the map was judged.
    pub(super) most: u8,
    /// A majority holds it, and the leases that it ends are over.
    pub(super) is_active: bool,
    pub(super) wait: Wait,
    bytes: Arc<[u8]>,
    asked: BTreeMap<u16, CommandId>,
    /// Voters that have not taken it: why, and when they are asked again.
    failed: BTreeMap<u16, (String, u64)>,
}

impl Proposed {
    pub(super) fn new(map: Known, bytes: Arc<[u8]>, (fewest, most): (u8, u8)) -> Self {
        let (asked, failed) = (BTreeMap::new(), BTreeMap::new());
        let wait = Wait::default();
        Self { round: Round::new(map), fewest, most, is_active: false, wait, bytes, asked, failed }
    }

    pub(super) fn wire(&self) -> WireMap {
        WireMap::of(&self.round.map, Arc::clone(&self.bytes))
    }

    pub(super) fn is_to_be_asked(&self, ssd: u16, now: u64) -> bool {
        let is_due = self.failed.get(&ssd).is_none_or(|(_, at)| *at <= now);
        is_due && !self.asked.contains_key(&ssd) && !self.round.held_by.contains(ssd)
    }

    pub(super) fn asked(&mut self, ssd: u16, id: CommandId) {
        self.failed.remove(&ssd);
        self.asked.insert(ssd, id);
    }

    /// Whether this is the answer that the round waits for.
    pub(super) fn was_asked(&mut self, ssd: u16, id: CommandId) -> bool {
        self.asked.get(&ssd) == Some(&id) && self.asked.remove(&ssd).is_some()
    }

    pub(super) fn failed(&mut self, ssd: u16, why: String, retry_at: u64) {
        self.failed.insert(ssd, (why, retry_at));
    }

    pub(super) fn trouble(&self, ssd: u16) -> Option<&str> {
        self.failed.get(&ssd).map(|(why, _)| why.as_str())
    }
}

/// Delivery of the active map to an SSD.
#[derive(Default, Debug)]
struct Delivery {
    /// The SSD has the map of this epoch, or a newer one.
    has: u64,
    /// The daemon is telling the SSD the map of this epoch.
    asked: Option<(CommandId, u64)>,
    retry_at: Option<u64>,
}

/// The change of the map in progress, and the inputs of the next one.
#[derive(Default, Debug)]
pub(in crate::core) struct Changes {
    pub(super) round: Option<Proposed>,
    pub(in crate::core) history: History,
    /// The fewest replicas by which the last map of this daemon's term was judged. 0: no map of an earlier
    /// daemon can be decided any more.
    pub(in crate::core) judged: Option<u8>,
    /// The fewest replicas of the volumes that a start has found.
    pub(in crate::core) found_fewest: Option<u8>,
    /// The epoch, the SSDs that are to be lost and the fewest replicas by which they have nothing to lose.
    pub(super) found_nothing: Option<(u64, SsdSet, u8)>,
    /// Volumes that wait for a map.
    pub(super) parked: Vec<(Ticket, Create)>,
    down: BTreeMap<u16, String>,
    /// SSDs without which a start went on: they count as down until the daemon serves.
    presumed: BTreeMap<u16, String>,
    says: BTreeMap<u16, SsdSays>,
    deliveries: BTreeMap<u16, Delivery>,
    returns: BTreeMap<u16, Vec<u64>>,
    /// SSDs that came back too often. They get no places until they are resumed.
    flapping: BTreeSet<u16>,
    /// Time at which each SSD was last lost.
    lost_at: BTreeMap<u16, u64>,
    /// Time at which each SSD that is back had all entries of the array.
    since: BTreeMap<u16, u64>,
    /// Inputs of the last search that found no hole.
    pub(super) found_no_hole: Option<SearchedBy>,
    /// Time at which each SSD was lost.
    down_since: BTreeMap<u16, u64>,
    /// SSDs that the map calls out, and since when as far as this daemon knows.
    pub(super) outs: BTreeMap<u16, u64>,
    /// SSDs that the operator takes out or back. Their weight in the next map is zero, or one.
    pub(super) weights: BTreeMap<u16, u32>,
    /// Rows in which an SSD lost its place, and which places, since this daemon serves.
    pub(super) homes: BTreeMap<(usize, usize), u16>,
    /// The SSDs in `homes`.
    home_ssds: BTreeSet<u16>,
    /// Voters that are new are asked for the term: until then no map is proposed.
    pub(super) anew: Option<Anew>,
    /// Absent SSDs that lack writes, and that the operator takes back as they are.
    pub(in crate::core) accepted: BTreeSet<u16>,
    /// The operator has copies merged that have all lost writes.
    pub(super) salvage: Option<Salvage>,
    /// What the operator has given up of each SSD (`--lose-data`).
    pub(in crate::core) given_up: BTreeMap<u16, Vec<LostBlocks>>,
    /// SSDs that answer at the addresses of others.
    pub(in crate::core) newcomers: BTreeMap<u16, Newcomer>,
    /// SSDs that took the place of others since this daemon serves, and their identities.
    pub(super) replaced: BTreeMap<u16, [u8; 16]>,
    /// SSDs that leave, and since when a map of this daemon says so.
    pub(super) leave_since: BTreeMap<u16, u64>,
    /// Inputs of the last search that found no SSD to come in.
    pub(super) found_none_to_come: Option<SearchedBy>,
    /// SSDs that have to come in for one that leaves, and that some writer does not reach.
    pub(super) unreached: Vec<u16>,
    /// When the daemon next checks such writers. A writer that is too late loses its lease.
    pub(super) revoke_at: Option<u64>,
    /// SSDs that join.
    pub(super) joins: Joins,
    /// An SSD that is to take its share of the places.
    pub(super) spread: Spread,
    /// What a drain waits for before SSDs come in.
    pub(in crate::core) drain_waits: Option<String>,
    /// The map in use has holes.
    pub(in crate::core) has_holes: bool,
    /// Whether this daemon does not know the former SSDs of some holes.
    pub(in crate::core) has_homeless: bool,
}

impl Changes {
    /// Notes that the SSD does not answer. When it answers again, the daemon asks for its state.
    pub(in crate::core) fn lost(&mut self, ssd: u16, why: String, now: u64) {
        let returns = self.returns.get(&ssd).into_iter().flatten();
        if returns.filter(|&&at| at + FLAP_MS > now).count() >= FLAP_RETURNS {
            self.flapping.insert(ssd);
        }
        // Another reason for the same absence is no new loss.
        if self.down.insert(ssd, why).is_none() {
            self.lost_at.insert(ssd, now);
        }
        self.down_since.entry(ssd).or_insert(now);
        self.since.remove(&ssd);
        self.newcomers.remove(&ssd);
        self.accepted.remove(&ssd);
        self.salvage.take_if(|salvage| salvage.has(ssd));
        if let Some(anew) = &mut self.anew {
            anew.lost(ssd);
        }
        self.says.remove(&ssd);
        self.deliveries.remove(&ssd);
    }

    /// The SSD answers again.
    pub(in crate::core) fn found(&mut self, ssd: u16) {
        self.down.remove(&ssd);
        self.down_since.remove(&ssd);
        if let Some(round) = &mut self.round {
            round.failed.remove(&ssd);
        }
    }

    pub(in crate::core) fn is_down(&self, ssd: u16) -> bool {
        self.down.contains_key(&ssd) || self.presumed.contains_key(&ssd)
    }

    /// The SSD's link says that the SSD is down. A start that goes on without an SSD does not say so.
    pub(in crate::core) fn is_disconnected(&self, ssd: u16) -> bool {
        self.down.contains_key(&ssd)
    }

    pub(in crate::core) fn why_down(&self, ssd: u16) -> Option<&str> {
        self.down.get(&ssd).or_else(|| self.presumed.get(&ssd)).map(String::as_str)
    }

    /// A start goes on without the SSD.
    pub(in crate::core) fn presume_down(&mut self, ssd: u16, why: String) {
        self.presumed.insert(ssd, why);
    }

    /// The start is over: the SSDs that it went on without are asked like others.
    pub(in crate::core) fn take_presumed(&mut self) -> BTreeMap<u16, String> {
        std::mem::take(&mut self.presumed)
    }

    /// Drops the request for the term: the daemon has been elected with another one.
    pub(in crate::core) fn elected_anew(&mut self) {
        self.anew = None;
    }

    pub(super) fn heard(&mut self, ssd: u16, says: Option<SsdSays>) {
        match says {
            Some(says) => drop(self.says.insert(ssd, says)),
            None => drop(self.says.remove(&ssd)),
        }
    }

    pub(in crate::core) fn says(&self, ssd: u16) -> Option<&SsdSays> {
        self.says.get(&ssd)
    }

    /// The map of this epoch is active, and the SSDs are being told.
    pub(in crate::core) fn is_telling(&self, epoch: u64) -> bool {
        self.round.as_ref().is_some_and(|round| round.is_active && round.round.map.epoch() == epoch)
    }

    /// The epoch that is proposed.
    pub(in crate::core) fn proposes(&self) -> Option<u64> {
        self.round.as_ref().map(|round| round.round.map.epoch())
    }

    /// Takes note of the SSDs that the map calls out.
    pub(in crate::core) fn follow_outs(&mut self, outs: &BTreeSet<u16>, now: u64) {
        self.outs.retain(|ssd, _| outs.contains(ssd));
        for &ssd in outs {
            self.outs.entry(ssd).or_insert(now);
        }
    }

    /// Notes which SSDs lost which places, and which holes are filled.
    pub(super) fn moved_homes(&mut self, lost: Vec<((usize, usize), u16)>, taken: &[(usize, usize)]) {
        self.homes.extend(lost);
        self.homes.retain(|hole, _| !taken.contains(hole));
        self.home_ssds = self.homes.values().copied().collect();
    }

    pub(in crate::core) fn has_home(&self, row: usize, place: usize) -> bool {
        self.homes.contains_key(&(row, place))
    }

    /// Whether some hole was a place of the SSD.
    pub(super) fn is_home(&self, ssd: u16) -> bool {
        self.home_ssds.contains(&ssd)
    }

    /// The operator takes the SSD out.
    pub(in crate::core) fn take_out(&mut self, ssd: u16) {
        self.weights.insert(ssd, 0);
    }

    /// Whether the operator has taken the SSD out, even if the map does not say so yet.
    pub(in crate::core) fn is_taken_out(&self, ssd: u16, known: &Ssd3) -> bool {
        self.weights.get(&ssd).map_or(known.weight == 0, |&weight| weight == 0)
    }

    /// The SSD is back and has all entries of the array.
    pub(in crate::core) fn admitted(&mut self, ssd: u16, now: u64) {
        self.since.insert(ssd, now);
    }

    pub(super) fn since(&self, ssd: u16) -> Option<u64> {
        self.since.get(&ssd).copied()
    }

    /// When the SSD was lost the last time, as far as this daemon knows.
    pub(super) fn lost_at(&self, ssd: u16) -> u64 {
        self.lost_at.get(&ssd).copied().unwrap_or(0)
    }

    pub(super) fn sinces(&self) -> impl Iterator<Item = (u16, u64)> {
        self.since.iter().map(|(&ssd, &at)| (ssd, at))
    }

    /// Time at which the SSD was lost, if it is.
    pub(in crate::core) fn down_since(&self, ssd: u16) -> Option<u64> {
        self.down_since.get(&ssd).copied()
    }

    /// Whether the proposed map makes the SSD a member. Then all changes need it from now on.
    pub(in crate::core) fn is_to_give_to(&self, ssd: u16) -> bool {
        self.round.as_ref().is_some_and(|round| members_of(round.round.map.map()).contains(&ssd))
    }

    /// Notes that the SSD has the map of this epoch.
    pub(in crate::core) fn knows(&mut self, ssd: u16, epoch: u64) {
        let delivery = self.deliveries.entry(ssd).or_default();
        delivery.has = delivery.has.max(epoch);
        delivery.retry_at = None;
    }

    pub(super) fn has(&self, ssd: u16, epoch: u64) -> bool {
        self.deliveries.get(&ssd).is_some_and(|delivery| delivery.has >= epoch)
    }

    pub(super) fn is_map_due(&self, ssd: u16, epoch: u64, now: u64) -> bool {
        let is_due =
            |delivery: &Delivery| delivery.asked.is_none() && delivery.retry_at.is_none_or(|at| at <= now);
        !self.is_down(ssd)
            && self.deliveries.get(&ssd).is_none_or(|delivery| delivery.has < epoch && is_due(delivery))
    }

    pub(super) fn telling(&mut self, ssd: u16, id: CommandId, epoch: u64) {
        let delivery = self.deliveries.entry(ssd).or_default();
        (delivery.asked, delivery.retry_at) = (Some((id, epoch)), None);
    }

    pub(super) fn delivered(&mut self, ssd: u16, id: CommandId, has: bool, retry_at: u64) {
        let Some(delivery) = self.deliveries.get_mut(&ssd) else { return };
        let Some((_, epoch)) = delivery.asked.take_if(|(asked, _)| *asked == id) else { return };
        if has {
            delivery.has = delivery.has.max(epoch);
        } else {
            delivery.retry_at = Some(retry_at);
        }
    }

    pub(super) fn returned(&mut self, ssd: u16, now: u64) {
        let returns = self.returns.entry(ssd).or_default();
        returns.retain(|&at| at + FLAP_MS > now);
        returns.push(now);
    }

    /// Whether the SSD gets no places until it is resumed.
    pub(in crate::core) fn flaps(&self, ssd: u16) -> bool {
        self.flapping.contains(&ssd)
    }

    pub(in crate::core) fn flapping(&self) -> &BTreeSet<u16> {
        &self.flapping
    }

    pub(super) fn resume(&mut self, ssd: u16) {
        self.returns.remove(&ssd);
        self.flapping.remove(&ssd);
    }

    /// The next time at which the changes have something to do without an answer. `returning` are the SSDs
    /// that get the map on their way back.
    pub(super) fn wakes_at(&self, timing: Timing, returning: &[u16]) -> Option<u64> {
        let round = self.round.as_ref().filter(|round| !round.is_active);
        let over = round.and_then(|round| round.round.decided_at).map(|at| at + timing.lease + timing.drift);
        let over = round.zip(over).map(|(round, over)| round.wait.looks_at(over));
        let asks = round.into_iter().flat_map(|round| &round.failed);
        let asks = asks.filter(|(ssd, _)| !self.is_disconnected(**ssd)).map(|(_, (_, at))| *at);
        let tells =
            self.deliveries.iter().filter(|(ssd, _)| !self.is_down(**ssd) && !returning.contains(ssd));
        let tells = tells.filter_map(|(_, delivery)| delivery.retry_at.filter(|_| delivery.asked.is_none()));
        over.into_iter().chain(asks).chain(tells).min()
    }
}
