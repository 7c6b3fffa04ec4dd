// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rules of the crate, and the bugs that the checker has to find: each planted bug replaces one rule.

use crate::map_ref::MapRef;
use crate::state::{COPIES, NOW, Ssd, State};
use gnstor_fleet::change::Unchanged;
use gnstor_fleet::client::Request;
use gnstor_fleet::fill::Filling;
use gnstor_fleet::leader::{Candidate, Round};
use gnstor_fleet::lease::{Asking, Lease, Timing};
use gnstor_fleet::map::{Map, Place, SsdState};
use gnstor_fleet::repair::Held;
use gnstor_fleet::set::SsdSet;
use gnstor_fleet::settle::{Settle, Step};
use gnstor_fleet::voter::{Promise, Voter};
use gnstor_fleet::{ArrayId, Epoch, Incarnation, Refused, SsdId, Term};

/// A bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Planted {
    LeaseFromReceipt,
    ClockBeforeIntake,
    HoldSkipped,
    WaitSkipped,
    AnyEpochClearsLossy,
    AckOverTwoEpochs,
    FillingServes,
    FilledBeforeCompared,
    TombstoneLostWhileFilling,
    FirstListsNoTombstones,
    AnswerOutlivesTheBarrier,
    HighestBeatsServing,
    OlderCopyOverwrites,
    ComparedIsNotCurrent,
    PeerIsBehind,
    TouchedLostUnnoticed,
    WalkNotBegunAnew,
    GrantBeforeSettle,
    FillingIsNotSettled,
    FlagLost,
    LastCopyDropped,
    TermGrantedTwice,
    ForeignSsdTaken,
    HeldMapNotProposedAgain,
    FirstByPlaceAlone,
}

/// The crate's rules, with at most one replaced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules(pub(crate) Option<Planted>);

impl Rules {
    pub(crate) fn is(self, planted: Planted) -> bool {
        self.0 == Some(planted)
    }

    pub(crate) fn take_term(
        self,
        voter: &mut Voter<MapRef>,
        array: ArrayId,
        term: Term,
        instance: u64,
    ) -> Result<Promise<MapRef>, Refused> {
        if self.is(Planted::TermGrantedTwice) && term >= voter.term {
            voter.term = term;
            voter.instance = instance;
        }
        voter.take_term(array, term, instance)
    }

    pub(crate) fn promised(self, candidate: &mut Candidate<MapRef>, voter: SsdId, promise: Promise<MapRef>) {
        if self.is(Planted::ForeignSsdTaken) {
            candidate.granted = candidate.granted.with(voter);
            if candidate.active.as_ref().is_none_or(|known| promise.active.epoch > known.epoch) {
                candidate.active = Some(promise.active);
            }
            return;
        }
        candidate.promised(voter, promise);
        if self.is(Planted::HeldMapNotProposedAgain) {
            candidate.held = None;
        }
    }

    pub(crate) fn may_activate(self, round: &Round<MapRef>, timing: Timing) -> bool {
        if self.is(Planted::HoldSkipped) {
            return true;
        }
        if self.is(Planted::WaitSkipped) {
            return round.decided_at.is_some();
        }
        round.may_activate(NOW, timing, SsdSet::EMPTY)
    }

    pub(crate) fn lose(self, map: &Map, ssd: SsdId, term: Term) -> Result<Map, Unchanged> {
        let mut next = map.lose(ssd, COPIES, term)?;
        if self.is(Planted::LastCopyDropped) && next.ssds[usize::from(ssd)].state == SsdState::Absent {
            next.ssds[usize::from(ssd)].state = SsdState::Out;
            for place in next.rows[0].places.iter_mut().filter(|place| place.ssd() == Some(ssd)) {
                *place = Place::Empty;
            }
        }
        Ok(next)
    }

    pub(crate) fn serve(
        self,
        map: &Map,
        ssd: SsdId,
        incarnation: Incarnation,
        term: Term,
    ) -> Result<Map, Unchanged> {
        let mut next = map.serve(0, ssd, incarnation, term)?;
        if self.is(Planted::FirstByPlaceAlone) {
            let row = &mut next.rows[0];
            let at = row.places.iter().position(|place| matches!(place, Place::Serving(_)));
            row.first = u8::try_from(at.unwrap_or(0)).unwrap_or(0);
        }
        Ok(next)
    }

    pub(crate) fn lease(
        self,
        asking: &Asking,
        voters: SsdSet,
        incarnation: Incarnation,
        timing: Timing,
    ) -> Option<Lease> {
        let lease = asking.lease(voters, incarnation, timing)?;
        if self.is(Planted::LeaseFromReceipt) {
            Some(Lease { until: NOW + timing.lease })
        } else {
            Some(lease)
        }
    }

    /// The clock as the SSD judges by it.
    pub(crate) fn judged_at(self, ssd: &Ssd) -> u64 {
        if self.is(Planted::ClockBeforeIntake) { NOW - ssd.lag } else { NOW }
    }

    /// The incarnation that an SSD judges by, in the map's terms.
    pub(crate) fn incarnation(self, ssd: &Ssd, id: SsdId) -> Incarnation {
        let of_map = ssd.map().ssd(id).map_or(0, |known| known.incarnation);
        if self.is(Planted::AnyEpochClearsLossy) && ssd.lossy_at.is_none_or(|at| ssd.map().epoch > at) {
            return of_map;
        }
        ssd.incarnation
    }

    pub(crate) fn restart(self, request: &mut Request, epoch: Epoch) {
        if self.is(Planted::AckOverTwoEpochs) {
            request.epoch = epoch;
        } else {
            request.restart(epoch);
        }
    }

    pub(crate) fn may_grant(self, settle: &Settle, active: Epoch) -> Option<u32> {
        if self.is(Planted::GrantBeforeSettle) && settle.step > Step::Barrier && settle.epoch == active {
            return Some(settle.lease_epoch + 1);
        }
        settle.may_grant(active)
    }

    /// An SSD takes another map, which decides what its walk is about.
    pub(crate) fn follow_fill(self, ssd: &mut Ssd, id: SsdId, was_filling: bool) {
        ssd.answer = None;
        if ssd.is_filling(id) != was_filling {
            ssd.block.is_current = was_filling;
            ssd.is_filled &= self.is(Planted::WalkNotBegunAnew);
        }
    }

    pub(crate) fn is_filled(self, ssd: &Ssd, id: SsdId) -> bool {
        ssd.is_filled || self.is(Planted::FilledBeforeCompared) && ssd.is_filling(id)
    }

    /// The answer of the first.
    pub(crate) fn listed(self, held: Held) -> Held {
        match held {
            Held::Tombstone { .. } if self.is(Planted::FirstListsNoTombstones) => Held::Nothing,
            held => held,
        }
    }

    /// A copy of the first.
    pub(crate) fn copy(self, block: &mut Filling, theirs: Held) {
        if self.is(Planted::HighestBeatsServing) {
            block.is_current = true;
        }
        if self.is(Planted::OlderCopyOverwrites) {
            block.is_current = false;
        }
        block.copy(theirs);
        if self.is(Planted::ComparedIsNotCurrent) {
            block.is_current = false;
        }
    }

    pub(crate) fn read_verdict(self, verdict: Result<(), Refused>) -> Result<(), Refused> {
        match verdict {
            Err(Refused::NotHereYet) if self.is(Planted::FillingServes) => Ok(()),
            verdict => verdict,
        }
    }

    /// Whether a lease runs: by the clock, or in a scope without clocks until a map deprives the SSD.
    pub(crate) fn has_lease(self, state: &State, id: SsdId, is_timed: bool) -> bool {
        let ssd = state.ssd(id);
        if is_timed { ssd.lease.runs(self.judged_at(ssd)) } else { !state.is_deprived(id) }
    }
}
