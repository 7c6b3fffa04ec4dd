// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rules of the crate, and the bugs that the checker has to find: each planted bug replaces one rule.

use crate::map_ref::MapRef;
use crate::state::{COPIES, NOW, Ssd, State};
use gnstor_fleet::change::Unchanged;
use gnstor_fleet::client::Request;
use gnstor_fleet::leader::{Candidate, Round};
use gnstor_fleet::lease::{Asking, Lease, Timing};
use gnstor_fleet::map::{Map, Place, SsdState};
use gnstor_fleet::repair::{Held, Pass, Pull, may_forget_tombstone};
use gnstor_fleet::serve::Entry;
use gnstor_fleet::set::SsdSet;
use gnstor_fleet::settle::{Settle, Step};
use gnstor_fleet::voter::{Promise, Voter};
use gnstor_fleet::{ArrayId, Epoch, Incarnation, Refused, SsdId, Term};
use gnstor_proto::slba::Stamp;

/// A bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Planted {
    LeaseFromReceipt,
    ClockBeforeIntake,
    HoldSkipped,
    WaitSkipped,
    AnyEpochClearsLossy,
    AckOverTwoEpochs,
    SettleByWindowAlone,
    FillingServes,
    TombstoneLostWhileFilling,
    PullOutlivesItsPass,
    HighestBeatsServing,
    GrantBeforeSettle,
    LastCopyDropped,
    TermGrantedTwice,
    ForeignSsdTaken,
    MarkNotLookedAtOnCommit,
    HeldMapNotProposedAgain,
    FirstByPlaceAlone,
    MarkPassesIndeterminate,
    MarkOfAnEarlierEpoch,
    MarkOfThePeerAlone,
    SettledWhileAway,
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

    /// Whether a settle compares the block.
    pub(crate) fn is_unsettled(self, ssd: &Ssd) -> bool {
        use gnstor_fleet::history::Unsettled;
        match ssd.history.unsettled() {
            Unsettled::Some { blocks, .. } if self.is(Planted::SettleByWindowAlone) => blocks.contains(&0),
            unsettled => unsettled.includes(0),
        }
    }

    pub(crate) fn compare(self, pass: &mut Pass, own: Held, peer: Held) -> Option<Pull> {
        if self.is(Planted::HighestBeatsServing) && own.stamp() > peer.stamp() {
            return None;
        }
        pass.compare(own, peer)
    }

    pub(crate) fn pass(self, number: u64, ssd: &Ssd, peer: &Ssd) -> Pass {
        let own = if self.is(Planted::MarkOfThePeerAlone) { &peer.history } else { &ssd.history };
        Pass::new(number, ssd.map().epoch, own, &peer.history)
    }

    pub(crate) fn put(self, ssd: &mut Ssd, newer: Entry) {
        if self.is(Planted::SettledWhileAway) {
            ssd.entry = newer;
        } else {
            ssd.entry.put(newer, &mut ssd.history);
        }
    }

    pub(crate) fn confirms(self, pass: &Pass, epoch: Epoch) -> bool {
        if self.is(Planted::MarkOfAnEarlierEpoch) {
            return pass.epoch == epoch && !pass.differs;
        }
        pass.confirms(epoch)
    }

    pub(crate) fn takes(self, pass: Option<&Pass>, pull: &Pull, own: Held) -> bool {
        if self.is(Planted::PullOutlivesItsPass) {
            return own == pull.compared;
        }
        pass.is_some_and(|pass| pass.takes(pull, own))
    }

    pub(crate) fn may_forget(self, ssd: &Ssd, id: SsdId, stamp: Stamp) -> bool {
        if self.is(Planted::TombstoneLostWhileFilling) && ssd.is_filling(id) {
            return true;
        }
        may_forget_tombstone(stamp, ssd.history.mark())
    }

    /// The verdict on a write, where a planted bug changes it.
    pub(crate) fn write_verdict(self, verdict: Result<(), Refused>) -> Result<(), Refused> {
        match verdict {
            Err(Refused::SettledAlready) if self.is(Planted::MarkNotLookedAtOnCommit) => Ok(()),
            verdict => verdict,
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
