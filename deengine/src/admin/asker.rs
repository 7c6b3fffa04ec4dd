// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The SSD asks for its serving lease (rule 2a): all voters of its map, every 100 ms. A majority that says
//! yes gives it a lease of 300 ms from the moment of asking. It asks itself without a message, where it
//! votes.
//!
//! ```text
//!   rounds   1         2         3         4            one each 100 ms
//!            asks -----.yes, yes: serves until 1 + 300 ms
//!                      asks ------------.yes, yes: serves until 2 + 300 ms
//! ```
//! A slow answer counts for the round that asked, so rounds are remembered as long as their lease would run.
//! A new start proves first that its content is the newest (`gnstor_fleet::opening`): what a majority says to
//! the number of openings before is no lease.
//!
//! An SSD whose map names no voters does not ask: the word of [`crate::workers::WorkerSet::lease_end`] is
//! then what LEASE RENEW has made of it.

use crate::admin::changes::Change;
use crate::commands::scratch::{Buffer, Owner};
use crate::controller::Ssd;
use gnstor_base::controller::{AskId, Effect, Question};
use gnstor_base::time::{Span, Time};
use gnstor_fleet::known::Known;
use gnstor_fleet::lease::{Asking, LeaseAsk, Timing};
use gnstor_fleet::map::FleetView;
use gnstor_fleet::opening::Stage;
use gnstor_fleet::set::SsdSet;
use gnstor_fleet::{Incarnation, Opening, SsdId};
use gnstor_proto::nvme::Cqe;
use gnstor_proto::placement::AnyMap;
use gnstor_proto::status::{Detail, Refusal, Status};
use gnstor_proto::voting::Ask;
use std::collections::{BTreeMap, VecDeque};

/// Interval between two rounds of questions.
const EVERY: Span = Span::from_ms(100);
/// The lease, in ns.
const TIMING: Timing =
    Timing { lease: Timing::DEFAULT_MS.lease * 1_000_000, drift: Timing::DEFAULT_MS.drift * 1_000_000 };
/// Number of rounds whose leases may still run.
const ROUNDS: usize = 3;
const _: () = assert!(Timing::DEFAULT_MS.lease == 300 && ROUNDS == 3, "a round each 100 ms");
/// Largest number of unanswered questions to one voter.
const UNANSWERED: usize = 4;
#[expect(clippy::cast_possible_truncation, reason = "200 bytes")]
pub(crate) const QUESTION: u32 = Question::BYTES as u32;
/// The top bit of a name is for questions of a repair.
const ROUND_MASK: u32 = 0x7F_FFFF;

/// State of the SSD's questions for its lease.
#[derive(Debug, Default)]
pub(super) struct Asker {
    /// The content that asks; `None`: the map names no voters.
    asks_as: Option<Incarnation>,
    /// Rounds by their numbers, the newest last.
    rounds: VecDeque<(u32, Asking)>,
    last: u32,
    next_at: Time,
    /// Whether it asks with a number of openings of this start.
    stage: Stage,
    /// Questions without an answer.
    open: BTreeMap<AskId, Buffer>,
}

impl Asker {
    /// A round begins; its number.
    fn begin(&mut self, now: Time, ask: LeaseAsk) -> u32 {
        self.last = (self.last + 1) & ROUND_MASK;
        if self.rounds.len() == ROUNDS {
            self.rounds.pop_front();
        }
        self.rounds.push_back((self.last, Asking::new(ask, now.as_ns())));
        self.next_at = now + EVERY;
        self.last
    }

    /// A voter said yes in this round. Returns the end of the lease, if a majority has said yes.
    fn said_yes(&mut self, round: u32, voter: SsdId, voters: SsdSet) -> Option<Time> {
        let incarnation = self.asks_as?;
        let (_, asking) = self.rounds.iter_mut().find(|(number, _)| *number == round)?;
        asking.said_yes(voter);
        asking.lease(voters, incarnation, TIMING).map(|lease| Time::from_ns(lease.until))
    }

    /// Its number of openings could not be raised: a majority is asked once more.
    pub(super) fn is_not_raised(&mut self) {
        self.stage = Stage::Proves;
    }

    /// Whether this round asked with this number of openings.
    fn asked_with(&self, round: u32, opening: Opening) -> bool {
        let is_it = |(number, asking): &(u32, Asking)| (*number, asking.ask.opening) == (round, opening);
        self.rounds.iter().any(is_it)
    }

    fn unanswered(&self, voter: SsdId) -> usize {
        self.open.keys().filter(|ask| voter_of(**ask) == voter).count()
    }
}

fn name(round: u32, voter: SsdId) -> AskId {
    AskId(round << 8 | u32::from(voter) & 0xFF)
}

fn round_of(ask: AskId) -> u32 {
    ask.0 >> 8
}

fn voter_of(ask: AskId) -> SsdId {
    u16::from(ask.0.to_le_bytes()[0])
}

impl Ssd {
    /// Map or content have changed: whether it asks from now on, and as which content. A lease belongs to the
    /// content that asked.
    pub(crate) fn follow_voters(&mut self, now: Time) {
        let is_voted = self.table.fleet().is_some_and(|fleet| fleet.known().voted().is_some());
        let asks_as = is_voted.then(|| self.identity().incarnation);
        if asks_as == self.admin.asker.asks_as {
            return;
        }
        self.admin.asker.asks_as = asks_as;
        self.admin.asker.rounds.clear();
        // Without voters it serves as ever: without a lease, unless a daemon has granted one before.
        let needs_lease = is_voted || self.admin.volumes.metadata().contents().leased;
        self.table.end_lease(if needs_lease { Time::ZERO } else { Time::NEVER });
        self.admin.asker.next_at = now;
        self.wake_at(now);
    }

    /// Whether voters give this SSD its lease.
    pub(crate) fn asks_voters(&self) -> bool {
        self.admin.asker.asks_as.is_some()
    }

    /// Asks the voters if it is time. Returns the time of the next round.
    pub(crate) fn ask_voters(&mut self, now: Time) -> Time {
        // If only its own yes is needed, the next number may be there at once.
        while let Some(incarnation) = self.admin.asker.asks_as.filter(|_| now >= self.admin.asker.next_at) {
            self.admin.asker.next_at = now + EVERY;
            self.ask_round(now, incarnation);
        }
        if self.admin.asker.asks_as.is_some() { self.admin.asker.next_at } else { Time::NEVER }
    }

    fn ask_round(&mut self, now: Time, incarnation: Incarnation) {
        let asking = self.table.fleet().and_then(|fleet| Some((fleet.known().clone(), fleet.own()?)));
        let Some((known, own)) = asking else { return };
        let (array, epoch, opening) = (known.array(), known.epoch(), self.own_opening(own));
        let uuid = self.identity().uuid;
        let ask = LeaseAsk { array, ssd: own, epoch, incarnation, opening, uuid };
        let round = self.admin.asker.begin(now, ask);
        for voter in known.voters().iter().filter(|&voter| voter != own) {
            self.send_ask(&known, round, voter, &ask);
        }
        if known.voters().contains(own) && self.judge_lease_ask(&ask).is_ok() {
            self.voter_said_yes(now, round, own);
        }
    }

    fn send_ask(&mut self, known: &Known, round: u32, voter: SsdId, ask: &LeaseAsk) {
        let AnyMap::Three(map) = known.map() else { return };
        let Some(peer) = map.ssds.get(usize::from(voter)) else { return };
        if self.admin.asker.unanswered(voter) >= UNANSWERED {
            return;
        }
        let Some(buffer) = self.commands.scratch_mut().take(Owner::Daemon, QUESTION) else { return };
        let LeaseAsk { array, ssd, epoch, incarnation, opening, uuid } = *ask;
        let data = Ask { ssd, array: array.0, epoch, incarnation, opening, uuid }.encode();
        let question = Question { sqe: Ask::command(), address: peer.address.clone(), data };
        self.commands.scratch().fill(&buffer, &question.encode());
        let (ask, local) = (name(round, voter), self.commands.scratch().local(&buffer));
        self.admin.asker.open.insert(ask, buffer);
        self.commands.emit(Effect::Ask { ask, peer: peer.id, local });
    }

    /// A voter answered, or was not reached.
    pub(crate) fn voter_answered(&mut self, now: Time, ask: AskId, answer: Option<&Cqe>) {
        let Some(buffer) = self.admin.asker.open.remove(&ask) else { return };
        self.commands.scratch_mut().give(buffer);
        let Some(cqe) = answer else { return };
        if Status(cqe.status_word()).is_success() {
            self.voter_said_yes(now, round_of(ask), voter_of(ask));
        } else {
            let refusal = Detail::from_dw0(cqe.dw0.get()).refusal();
            tracing::debug!(
                ssd = self.config().index,
                voter = voter_of(ask),
                ?refusal,
                "no lease from this voter"
            );
            if refusal == Some(Refusal::OlderImage) {
                self.is_older(now, round_of(ask), cqe.dw1.get());
            }
        }
    }

    /// A voter knows a higher number of openings. An answer to what it asked before is too late.
    fn is_older(&mut self, now: Time, round: u32, known: Opening) {
        let own = self.table.fleet().and_then(|fleet| fleet.own()).map(|own| self.own_opening(own));
        if own.is_some_and(|own| own < known && self.admin.asker.asked_with(round, own)) {
            self.ask_own_change(now, Change::Older { known });
        }
    }

    /// The next number of openings is durable: from now on the SSD asks for a lease.
    pub(crate) fn is_opened(&mut self, now: Time) {
        self.admin.asker.stage = Stage::Opened;
        self.admin.asker.rounds.clear();
        self.admin.asker.next_at = now;
        self.wake_at(now);
    }

    fn voter_said_yes(&mut self, now: Time, round: u32, voter: SsdId) {
        let Some(voters) = self.table.fleet().map(|fleet| fleet.known().voters()) else { return };
        let Some(until) = self.admin.asker.said_yes(round, voter, voters) else { return };
        match self.admin.asker.stage {
            Stage::Proves if !self.admin.volumes.stands_in() => {
                self.admin.asker.stage = Stage::Raises;
                self.ask_own_change(now, Change::Raise);
            }
            Stage::Raises => {}
            // Answers may come in any order, and a later one must not shorten the lease.
            Stage::Proves | Stage::Opened if until > self.table.lease_end() => self.table.end_lease(until),
            Stage::Proves | Stage::Opened => {}
        }
    }
}
