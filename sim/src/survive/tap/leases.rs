// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Serving leases, from the questions and answers on the wires (rules 2a, 2b). A lease runs from the moment
//! of asking, by the asker's clock, if a majority of voters said yes. When a map is active that takes places
//! from an SSD, its lease is over.

use crate::survive::clock::Clock;
use crate::survive::history::seconds;
use gnstor_base::controller::AskId;
use gnstor_base::time::{Span, Time};
use gnstor_proto::placement::AnyMap;
use gnstor_proto::placement::map3::Vote;
use gnstor_proto::vendor::opcode;
use gnstor_proto::voting::Ask;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A lease.
const LEASE: Span = Span::from_ms(300);
/// Rounds of an SSD that are remembered: one begins each 100 ms, and an answer comes within 250 ms.
const ROUNDS: usize = 16;

/// The questions of an SSD to voters at one moment.
#[derive(Clone, Debug)]
struct Round {
    asked: Time,
    /// What the clock of the SSD showed.
    shown: Time,
    epoch: u64,
    yes: BTreeSet<u16>,
}

/// A voter was asked to hold a map.
#[derive(Clone, Copy, Debug)]
struct Hold {
    ssd: u16,
    sent: Time,
    /// The last epoch that takes something from this SSD, by that map.
    shrunk_at: u64,
}

/// Leases of all SSDs.
#[derive(Default)]
pub(in crate::survive) struct Leases {
    /// The voters of the maps that daemons sent, by epoch.
    voters: BTreeMap<u64, BTreeSet<u16>>,
    rounds: BTreeMap<u16, VecDeque<Round>>,
    open: BTreeMap<(u16, AskId), Time>,
    holds: Vec<Hold>,
    /// The epoch of the newest map that was active.
    active: u64,
    /// SSDs that lose places by a map that has just become active, and its epoch.
    ended: Vec<(u16, u64)>,
}

impl Leases {
    /// A daemon asks a voter to hold a map.
    pub(in crate::survive) fn hold(&mut self, ssd: u16, bytes: &[u8], now: Time) {
        self.sent(bytes, false);
        if let Ok(AnyMap::Three(map)) = AnyMap::decode(bytes) {
            let shrunk_at = map.ssds.get(usize::from(ssd)).map_or(0, |known| known.shrunk_at);
            self.holds.push(Hold { ssd, sent: now, shrunk_at });
        }
    }

    /// A daemon sends a map.
    pub(in crate::survive) fn sent(&mut self, bytes: &[u8], is_active: bool) {
        let Ok(AnyMap::Three(map)) = AnyMap::decode(bytes) else { return };
        let voters = (0u16..).zip(&map.ssds).filter(|(_, ssd)| ssd.vote != Vote::None);
        self.voters.insert(map.epoch, voters.map(|(ssd, _)| ssd).collect());
        if is_active && map.epoch > self.active {
            let shrunk = (0u16..).zip(&map.ssds).filter(|(_, ssd)| ssd.shrunk_at > self.active);
            self.ended.extend(shrunk.map(|(ssd, _)| (ssd, map.epoch)));
            self.active = map.epoch;
        }
    }

    /// An SSD asks another one.
    pub(in crate::survive) fn asks(&mut self, own: u16, ask: AskId, data: &[u8], (now, shown): (Time, Time)) {
        let Ok(Ask { epoch, .. }) = Ask::decode(data) else { return };
        let rounds = self.rounds.entry(own).or_default();
        if rounds.back().is_none_or(|round| round.asked != now) {
            rounds.push_back(Round { asked: now, shown, epoch, yes: BTreeSet::new() });
            rounds.drain(..rounds.len().saturating_sub(ROUNDS));
        }
        self.open.insert((own, ask), now);
    }

    /// Whether a question is one for a lease.
    pub(in crate::survive) fn is_ask(of: u8) -> bool {
        of == opcode::LEASE_ASK
    }

    /// A voter has answered, and the SSD hears it.
    pub(in crate::survive) fn answered(&mut self, own: u16, ask: AskId, voter: u16, says_yes: bool) {
        let Some(asked) = self.open.remove(&(own, ask)).filter(|_| says_yes) else { return };
        let rounds = self.rounds.entry(own).or_default();
        if let Some(round) = rounds.iter_mut().find(|round| round.asked == asked) {
            round.yes.insert(voter);
        }
    }

    /// The SSD is gone, and all that it knew.
    pub(super) fn forget(&mut self, ssd: u16) {
        self.rounds.remove(&ssd);
        self.open.retain(|(own, _), _| *own != ssd);
    }

    /// When the SSD's lease ends, by its clock. An SSD goes by the voters of its map when an answer comes. It
    /// may vote itself, without a message: `own` says whether it said yes in a round.
    fn until(&self, ssd: u16, own: impl Fn(&Round) -> bool) -> Option<Time> {
        let has_majority = |round: &&Round| {
            let mut known = self.voters.range(round.epoch..).map(|(_, voters)| voters).peekable();
            let says = |voter: &u16| round.yes.contains(voter) || *voter == ssd && own(round);
            let is_majority =
                |voters: &BTreeSet<u16>| 2 * voters.iter().filter(|voter| says(voter)).count() > voters.len();
            known.peek().is_none() || known.any(is_majority)
        };
        let rounds = self.rounds.get(&ssd)?;
        rounds.iter().rev().find(has_majority).map(|round| round.shown + LEASE)
    }

    /// When the SSD's lease ends at the latest, by its clock.
    pub(super) fn longest(&self, ssd: u16) -> Option<Time> {
        self.until(ssd, |_| true)
    }

    /// Whether an SSD may have said yes to itself: no map that takes something from it was on its way to it.
    fn may_say_yes(&self, ssd: u16, round: &Round) -> bool {
        let is_before = |hold: &&Hold| hold.ssd == ssd && hold.sent <= round.asked;
        !self.holds.iter().filter(is_before).any(|hold| hold.shrunk_at > round.epoch)
    }

    /// Whether the SSD may not serve by the map of this epoch when its clock shows this time.
    pub(super) fn is_over(&self, ssd: u16, epoch: u64, shown: Time) -> bool {
        let is_voted = self.voters.get(&epoch).is_some_and(|voters| !voters.is_empty());
        is_voted && self.longest(ssd).is_none_or(|until| until <= shown)
    }

    /// Maps have become active: a lease that they end and that still runs.
    pub(in crate::survive) fn too_early(
        &mut self,
        now: Time,
        clock: impl Fn(u16) -> Option<Clock>,
    ) -> Option<String> {
        let ended = std::mem::take(&mut self.ended);
        ended.into_iter().find_map(|(ssd, epoch)| {
            let until = self.until(ssd, |round| self.may_say_yes(ssd, round))?;
            let shown = clock(ssd)?.shows(now);
            (shown < until).then(|| {
                let (shown, until) = (seconds(shown), seconds(until));
                format!("epoch {epoch}: SSD {ssd} loses places, has a lease until {until}, and its clock shows {shown}")
            })
        })
    }
}
