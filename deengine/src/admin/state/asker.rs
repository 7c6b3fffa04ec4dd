// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rounds of asking for the serving lease, and the names of their questions ([`crate::admin`]: `asker.rs`).

use crate::commands::scratch::Buffer;
use gnstor_base::controller::AskId;
use gnstor_base::time::{Span, Time};
use gnstor_fleet::lease::{Asking, LeaseAsk, Timing};
use gnstor_fleet::opening::Stage;
use gnstor_fleet::set::SsdSet;
use gnstor_fleet::{Incarnation, Opening, SsdId};
use std::collections::{BTreeMap, VecDeque};

/// Interval of an SSD's questions.
const EVERY: Span = Span::from_ms(100);
/// Numbers of SSDs that ask at the same times, which are multiples of [`EVERY`] for the first ones. So one
/// wake-up of an engine serves them all, and a large array does not ask all at once.
const TOGETHER: u64 = 8;
/// How much later the next group of SSDs asks.
const APART: Span = Span::from_ms(10);
/// The lease, in ns.
const TIMING: Timing =
    Timing { lease: Timing::DEFAULT_MS.lease * 1_000_000, drift: Timing::DEFAULT_MS.drift * 1_000_000 };
/// Rounds whose leases may still run.
const ROUNDS: usize = 3;
/// Questions to one voter without an answer.
pub(in crate::admin) const UNANSWERED: usize = 4;
/// Number of rounds after which a question counts as lost.
const LOST: u32 = 10;
const _: () = assert!(Timing::DEFAULT_MS.lease == 300 && ROUNDS == 3, "a round each 100 ms");
/// The top bit of a name is for questions of a repair.
const ROUND_MASK: u32 = 0x7F_FFFF;

/// The daemon's knowledge of this start of an SSD whose map names no voters.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in crate::admin) enum ByDaemon {
    /// The SSD has not counted this start, and serves without a daemon.
    #[default]
    NotAsked,
    /// The SSD has not counted this start, and serves nothing before a daemon knows of it.
    Awaited,
    /// The SSD has counted this start. It serves nothing before the daemon holds the number, if so.
    Counted { awaited: bool },
}

/// State of this SSD's questions for its lease.
#[derive(Debug, Default)]
pub(in crate::admin) struct Asker {
    /// The content that asks; `None`: the map names no voters.
    pub(in crate::admin) asks_as: Option<Incarnation>,
    /// Rounds by their numbers, the newest last.
    pub(in crate::admin) rounds: VecDeque<(u32, Asking)>,
    last: u32,
    pub(in crate::admin) next_at: Time,
    /// Progress of the SSD's number of openings since this start.
    pub(in crate::admin) stage: Stage,
    /// Names this start to the daemon; 0: it has no name.
    pub(in crate::admin) start: u32,
    /// Where no SSDs vote: whether the daemon has heard the number of this start.
    pub(in crate::admin) by_daemon: ByDaemon,
    /// Questions without an answer.
    pub(in crate::admin) open: BTreeMap<AskId, Buffer>,
    /// The SSD is being stopped: it asks for no lease any more.
    pub(in crate::admin) goodbye: Option<Goodbye>,
}

/// The goodbye of this SSD.
#[derive(Clone, Copy, Debug)]
pub(in crate::admin) struct Goodbye {
    /// Names its questions.
    pub(in crate::admin) round: u32,
    pub(in crate::admin) voters: SsdSet,
    /// The voters that have heard it.
    pub(in crate::admin) heard: SsdSet,
}

impl Asker {
    /// Begins the goodbye to these voters. Returns the number of its round. Answers of earlier rounds give no
    /// lease.
    pub(in crate::admin) fn leave(&mut self, voters: SsdSet) -> u32 {
        self.rounds.clear();
        self.last = (self.last + 1) & ROUND_MASK;
        self.goodbye = Some(Goodbye { round: self.last, voters, heard: SsdSet::EMPTY });
        self.last
    }

    /// Notes that a voter has heard the goodbye of this round.
    pub(in crate::admin) fn has_heard(&mut self, round: u32, voter: SsdId) {
        if let Some(goodbye) = self.goodbye.as_mut().filter(|goodbye| goodbye.round == round) {
            goodbye.heard = goodbye.heard.with(voter);
        }
    }

    /// Whether a goodbye has been said, and need not be waited for.
    pub(in crate::admin) fn has_left(&self) -> bool {
        let is_open = |round| self.open.keys().any(|ask| round_of(*ask) == round);
        self.goodbye.is_none_or(|said| said.heard.is_majority_of(said.voters) || !is_open(said.round))
    }

    /// Begins a round. Returns its number.
    pub(in crate::admin) fn begin(&mut self, now: Time, ask: LeaseAsk) -> u32 {
        self.last = (self.last + 1) & ROUND_MASK;
        if self.rounds.len() == ROUNDS {
            self.rounds.pop_front();
        }
        self.rounds.push_back((self.last, Asking::new(ask, now.as_ns())));
        self.last
    }

    /// The next round of `ssd`, [`EVERY`] from now at most.
    pub(in crate::admin) fn next_round(now: Time, ssd: SsdId) -> Time {
        let (every, apart) = (EVERY.as_ps(), APART.as_ps());
        let later = u64::from(ssd) / TOGETHER * apart % every;
        let rounds = (now.as_ps() + every - later) / every;
        Time::from_ps(rounds * every + later)
    }

    /// Notes a voter's yes in this round. Returns until when the SSD may serve, if a majority has said yes.
    pub(in crate::admin) fn said_yes(&mut self, round: u32, voter: SsdId, voters: SsdSet) -> Option<Time> {
        let incarnation = self.asks_as?;
        let (_, asking) = self.rounds.iter_mut().find(|(number, _)| *number == round)?;
        asking.said_yes(voter);
        asking.lease(voters, incarnation, TIMING).map(|lease| Time::from_ns(lease.until))
    }

    /// The SSD's number of openings could not be raised: the SSD asks a majority once more.
    pub(in crate::admin) fn is_not_raised(&mut self) {
        self.stage = Stage::Proves;
    }

    /// Whether this round asked with this number of openings.
    pub(in crate::admin) fn asked_with(&self, round: u32, opening: Opening) -> bool {
        let is_it = |(number, asking): &(u32, Asking)| (*number, asking.ask.opening) == (round, opening);
        self.rounds.iter().any(is_it)
    }

    pub(in crate::admin) fn unanswered(&self, voter: SsdId) -> usize {
        self.open.keys().filter(|ask| voter_of(**ask) == voter).count()
    }

    /// Forgets questions that count as lost, and returns their buffers. Otherwise a voter would be asked no
    /// more once [`UNANSWERED`] of them were lost.
    pub(in crate::admin) fn forget_lost(&mut self) -> Vec<Buffer> {
        let age = |ask: &AskId| self.last.wrapping_sub(round_of(*ask)) & ROUND_MASK;
        let lost: Vec<AskId> = self.open.keys().copied().filter(|ask| age(ask) >= LOST).collect();
        lost.iter().filter_map(|ask| self.open.remove(ask)).collect()
    }
}

pub(in crate::admin) fn name(round: u32, voter: SsdId) -> AskId {
    AskId(round << 8 | u32::from(voter) & 0xFF)
}

pub(in crate::admin) fn round_of(ask: AskId) -> u32 {
    ask.0 >> 8
}

pub(in crate::admin) fn voter_of(ask: AskId) -> SsdId {
    u16::from(ask.0.to_le_bytes()[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_ssds_ask_together_and_none_waits_longer_than_100_ms() {
        let _deadline = crate::deadline::deadline();
        for now_ns in [0, 1, 9_999_999, 10_000_000, 77_123_456, 100_000_000, 3_141_592_653_589] {
            let now = Time::from_ns(now_ns);
            let next = |ssd| Asker::next_round(now, ssd);
            for ssd in 0..64 {
                assert!(next(ssd) > now && next(ssd) <= now + EVERY, "SSD {ssd} at {now:?}: {:?}", next(ssd));
                assert_eq!(next(ssd), next(ssd / 8 * 8), "SSD {ssd} at {now:?}");
                // Further rounds follow at this interval.
                assert_eq!(Asker::next_round(next(ssd), ssd), next(ssd) + EVERY);
            }
            assert_eq!(
                (0..8).map(|group| next(group * 8)).collect::<std::collections::BTreeSet<_>>().len(),
                8
            );
        }
    }
}
