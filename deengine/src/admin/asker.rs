// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The SSD asks for its serving lease (rule 2a): all voters of its map, every 100 ms. If a majority says yes,
//! the SSD has a lease of 300 ms from the moment of asking. An SSD that votes asks itself without a message.
//!
//! ```text
//!   rounds   1         2         3         4            one each 100 ms
//!            asks -----.yes, yes: serves until 1 + 300 ms
//!                      asks ------------.yes, yes: serves until 2 + 300 ms
//! ```
//! The rounds of several SSDs begin together, at times that are the same for all of a process.
//!
//! A slow answer counts for the round that asked, so rounds are remembered as long as their lease would run.
//! A question that has had no answer for a second counts as lost. After a start, the SSD first proves that
//! its content is the newest (`gnstor_fleet::opening`). A majority's yes to the previous number of openings
//! is that proof, and gives no lease.
//!
//! An SSD that is stopped in order sends one more question, which is a goodbye ([`Ssd::say_goodbye`]).
//!
//! An SSD whose map names no voters does not ask. LEASE RENEW then sets the word of
//! [`crate::workers::WorkerSet::lease_end`].

use crate::admin::state::{Asker, ByDaemon, Change, UNANSWERED, name, round_of, voter_of};
use crate::commands::scratch::{Owner, QUESTION};
use crate::controller::Ssd;
use gnstor_base::controller::{AskId, Effect, Question};
use gnstor_base::time::Time;
use gnstor_fleet::known::Known;
use gnstor_fleet::lease::LeaseAsk;
use gnstor_fleet::map::FleetView;
use gnstor_fleet::opening::Stage;
use gnstor_fleet::{Incarnation, Opening, SsdId};
use gnstor_proto::nvme::Cqe;
use gnstor_proto::placement::AnyMap;
use gnstor_proto::status::{Detail, Refusal, Status};
use gnstor_proto::voting::Ask;

impl Ssd {
    /// Follows a change of the map or of the content: decides whether the SSD asks for leases, and as which
    /// content. A lease belongs to the content that asked.
    pub(crate) fn follow_voters(&mut self, now: Time) {
        if self.admin.asker.goodbye.is_some() {
            return;
        }
        let is_voted = self.table.fleet().is_some_and(|fleet| fleet.known().voted().is_some());
        let asks_as = is_voted.then(|| self.identity().incarnation);
        if asks_as == self.admin.asker.asks_as {
            return;
        }
        self.admin.asker.asks_as = asks_as;
        self.admin.asker.rounds.clear();
        // Without voters, the SSD serves without a lease, unless a daemon has granted one before.
        let needs_lease = is_voted || self.needs_a_lease();
        self.table.end_lease(if needs_lease { Time::ZERO } else { Time::NEVER });
        self.admin.asker.next_at = now;
        self.wake_at(now);
    }

    /// Whether the SSD serves nothing without a lease, although no voters give one.
    pub(super) fn needs_a_lease(&self) -> bool {
        let awaited = [ByDaemon::Awaited, ByDaemon::Counted { awaited: true }];
        self.admin.volumes.metadata().contents().leased || awaited.contains(&self.admin.asker.by_daemon)
    }

    /// Whether voters give this SSD its lease.
    pub(crate) fn asks_voters(&self) -> bool {
        self.admin.asker.asks_as.is_some()
    }

    /// Asks the voters if it is time. Returns the time of the next round.
    pub(crate) fn ask_voters(&mut self, now: Time) -> Time {
        if self.admin.asker.goodbye.is_some() {
            return Time::NEVER;
        }
        // If the SSD needs only its own yes, the next number may be durable at once.
        while let Some(incarnation) = self.admin.asker.asks_as.filter(|_| now >= self.admin.asker.next_at) {
            let own = self.table.fleet().and_then(|fleet| fleet.own()).unwrap_or_default();
            self.admin.asker.next_at = Asker::next_round(now, own);
            self.ask_round(now, incarnation);
        }
        if self.admin.asker.asks_as.is_some() { self.admin.asker.next_at } else { Time::NEVER }
    }

    /// The question that the SSD sends to the voters of its map.
    fn own_ask(&self, incarnation: Incarnation) -> Option<(Known, LeaseAsk)> {
        let fleet = self.table.fleet()?;
        let (known, ssd) = (fleet.known().clone(), fleet.own()?);
        let (array, epoch, opening) = (known.array(), known.epoch(), self.own_opening(ssd));
        let uuid = self.identity().uuid;
        Some((known, LeaseAsk { array, ssd, epoch, incarnation, opening, uuid }))
    }

    fn ask_round(&mut self, now: Time, incarnation: Incarnation) {
        let Some((known, ask)) = self.own_ask(incarnation) else { return };
        let (round, own) = (self.admin.asker.begin(now, ask), ask.ssd);
        for lost in self.admin.asker.forget_lost() {
            self.commands.scratch_mut().give(lost);
        }
        for voter in known.voters().iter().filter(|&voter| voter != own) {
            self.send_ask(&known, (round, voter), &ask, false);
        }
        if known.voters().contains(own) && self.judge_lease_ask(&ask).is_ok() {
            self.voter_said_yes(now, round, own);
        }
    }

    /// The SSD is to be stopped. It gives its lease up, asks for no other one, and says so to the voters
    /// (rule 2b). So the map without it need not wait for that lease. Returns whether a majority of them has
    /// heard it, or no answer is awaited. Further calls only return that.
    pub fn say_goodbye(&mut self, now: Time) -> bool {
        if self.admin.asker.goodbye.is_none()
            && let Some((known, ask)) = self.admin.asker.asks_as.and_then(|content| self.own_ask(content))
        {
            self.begin_goodbye(now, &known, &ask);
        }
        self.admin.asker.has_left()
    }

    fn begin_goodbye(&mut self, now: Time, known: &Known, ask: &LeaseAsk) {
        // The lease must end before any voter hears the goodbye.
        self.table.end_lease(Time::ZERO);
        let (round, own) = (self.admin.asker.leave(known.voters()), ask.ssd);
        for voter in known.voters().iter().filter(|&voter| voter != own) {
            self.send_ask(known, (round, voter), ask, true);
        }
        if known.voters().contains(own) {
            self.admin.voting.goodbyes.heard(ask);
            self.admin.asker.has_heard(round, own);
        }
        self.wake_at(now);
    }

    fn send_ask(&mut self, known: &Known, (round, voter): (u32, SsdId), ask: &LeaseAsk, is_goodbye: bool) {
        let AnyMap::Three(map) = known.map() else { return };
        let Some(peer) = map.ssds.get(usize::from(voter)) else { return };
        if self.admin.asker.unanswered(voter) >= UNANSWERED {
            return;
        }
        let Some(buffer) = self.commands.scratch_mut().take(Owner::Daemon, QUESTION) else { return };
        let LeaseAsk { array, ssd, epoch, incarnation, opening, uuid } = *ask;
        let data = Ask { ssd, array: array.0, epoch, incarnation, opening, uuid, is_goodbye }.encode();
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
            self.admin.asker.has_heard(round_of(ask), voter_of(ask));
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

    /// Handles a voter that knows a higher number of openings. An answer of an earlier round does not count.
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
