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
/// Such a lease would have gone on for so long after a goodbye.
const SPARED: Span = Span::from_ms(200);
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
    /// When a daemon first asked a voter to hold a map, by the map's epoch and the term that proposed it.
    made: BTreeMap<(u64, u64), Time>,
    /// The epoch of the newest map that was active.
    active: u64,
    /// The SSDs that have said goodbye: when, and with which number of openings.
    left: BTreeMap<u16, (Time, u32)>,
    /// Maps that were active before the lease of such an SSD would have been over.
    spared: u64,
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
            self.made.entry((map.epoch, map.term)).or_insert(now);
        }
    }

    /// When a daemon first asked a voter to hold the map. A later daemon may ask voters again.
    pub(in crate::survive) fn made_at(&self, map: &AnyMap) -> Option<Time> {
        let AnyMap::Three(map) = map else { return None };
        self.made.get(&(map.epoch, map.term)).copied()
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
        let Ok(Ask { epoch, opening, is_goodbye, .. }) = Ask::decode(data) else { return };
        // With that it gives its lease up.
        if is_goodbye {
            self.rounds.remove(&own);
            self.left.entry(own).or_insert((now, opening));
            return;
        }
        // The next start first asks with that number, to prove its content. A yes to this gives no lease.
        if self.left.get(&own).is_some_and(|(_, number)| *number == opening) {
            return;
        }
        self.left.remove(&own);
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
        // The only voter gives itself its lease, without a message.
        let is_alone = |voters: &BTreeSet<u16>| voters.len() == 1 && voters.contains(&ssd);
        let is_seen = is_voted && !self.voters.values().any(is_alone);
        is_seen && self.longest(ssd).is_none_or(|until| until <= shown)
    }

    /// The maps that did not wait for the lease of an SSD that had said goodbye, since the last look.
    pub(in crate::survive) fn take_spared(&mut self) -> u64 {
        std::mem::take(&mut self.spared)
    }

    /// Maps have become active: a lease that they end and that still runs.
    pub(in crate::survive) fn too_early(
        &mut self,
        now: Time,
        clock: impl Fn(u16) -> Option<Clock>,
    ) -> Option<String> {
        let ended = std::mem::take(&mut self.ended);
        // The SSD's last lease comes from a question at most 100 ms earlier.
        let is_spared = |(ssd, _): &&(u16, u64)| self.left.get(ssd).is_some_and(|(at, _)| now < *at + SPARED);
        self.spared += ended.iter().filter(is_spared).count() as u64;
        ended.into_iter().find_map(|(ssd, epoch)| {
            let until = self.until(ssd, |round| self.may_say_yes(ssd, round))?;
            let shown = clock(ssd)?.shows(now);
            (shown < until).then(|| {
                let (shown, until) = (seconds(shown), seconds(until));
                format!(
                    "epoch {epoch}: SSD {ssd} loses places, has a lease until {until}, and its clock \
                         shows {shown}"
                )
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;
    use gnstor_proto::placement::FleetMap;
    use gnstor_proto::placement::map3::FleetMap3;

    fn at(ms: u64) -> Time {
        Time::from_ns(ms * 1_000_000)
    }

    /// The map of three voters in which SSD 2 lost places last by this epoch.
    fn map(epoch: u64, shrunk_at: u64) -> Vec<u8> {
        let mut map = FleetMap3::of(&FleetMap::equal(3, 8, 7, 1).unwrap(), [5; 16]);
        map.ssds.iter_mut().for_each(|ssd| ssd.vote = Vote::Voter);
        (map.epoch, map.ssds[2].shrunk_at) = (epoch, shrunk_at);
        map.encode().unwrap()
    }

    /// SSD 2 asks SSDs 0 and 1 then, and these say yes.
    fn round(leases: &mut Leases, ms: u64, number: u32, yes: &[u16]) {
        round_of(leases, ms, number, yes, (0, false));
    }

    /// The same with this number of openings, or as a goodbye.
    fn round_of(leases: &mut Leases, ms: u64, number: u32, yes: &[u16], (opening, is_goodbye): (u32, bool)) {
        let (array, incarnation, uuid) = ([5; 16], 1, [0; 16]);
        let data = Ask { ssd: 2, array, epoch: 1, incarnation, opening, uuid, is_goodbye }.encode();
        for voter in 0..2 {
            let ask = AskId(2 * number + u32::from(voter));
            leases.asks(2, ask, &data, (at(ms), at(ms)));
            leases.answered(2, ask, voter, yes.contains(&voter));
        }
    }

    #[test]
    fn a_lease_runs_from_the_question_if_a_majority_said_yes() {
        let _deadline = deadline();
        let mut leases = Leases::default();
        leases.sent(&map(1, 0), true);
        assert!(leases.is_over(2, 1, at(0)), "it never asked");
        assert!(!leases.is_over(2, 9, at(0)), "no map names voters");
        round(&mut leases, 100, 0, &[]);
        assert!(leases.is_over(2, 1, at(110)), "only its own yes");
        round(&mut leases, 200, 1, &[1]);
        assert!(!leases.is_over(2, 1, at(499)));
        assert!(leases.is_over(2, 1, at(500)));
        leases.forget(2);
        assert!(leases.is_over(2, 1, at(210)), "its process is another one");
    }

    #[test]
    fn after_a_goodbye_only_the_next_number_of_openings_gives_a_lease() {
        let _deadline = deadline();
        let mut leases = Leases::default();
        leases.sent(&map(1, 0), true);
        round_of(&mut leases, 100, 0, &[0, 1], (7, false));
        assert!(!leases.is_over(2, 1, at(110)));
        round_of(&mut leases, 120, 1, &[0, 1], (7, true));
        assert!(leases.is_over(2, 1, at(130)), "it gave the lease up");
        leases.forget(2);
        round_of(&mut leases, 140, 2, &[0, 1], (7, false));
        assert!(leases.is_over(2, 1, at(150)), "its next start proves its content");
        round_of(&mut leases, 160, 3, &[0, 1], (8, false));
        assert!(!leases.is_over(2, 1, at(170)));
    }

    #[test]
    fn a_map_is_active_when_the_leases_that_it_ends_are_over() {
        let _deadline = deadline();
        let clock = |_| Some(Clock::new(0));
        for (now, is_early) in [(399, true), (400, false)] {
            let mut leases = Leases::default();
            leases.sent(&map(1, 0), true);
            round(&mut leases, 100, 0, &[0]);
            leases.hold(2, &map(2, 2), at(150));
            assert_eq!(leases.too_early(at(151), clock), None, "it is not active");
            leases.sent(&map(2, 2), true);
            assert_eq!(leases.too_early(at(now), clock).is_some(), is_early, "{now}");
            leases.sent(&map(2, 2), true);
            assert_eq!(leases.too_early(at(120), clock), None, "it was active before");
        }
        let mut leases = Leases::default();
        leases.sent(&map(1, 0), true);
        leases.hold(2, &map(2, 2), at(50));
        round(&mut leases, 100, 0, &[0]);
        leases.sent(&map(2, 2), true);
        assert_eq!(leases.too_early(at(150), clock), None, "it holds the map, and says no to itself");
    }
}
