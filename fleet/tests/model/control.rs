// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The actions of terms, maps, leases and time.

use crate::model::{Action, Change, FleetModel};
use crate::planted::Planted;
use crate::state::{ARRAY, NOW, REPLICAS, Role, SSDS, State};
use gnstor_fleet::change::incarnation_under;
use gnstor_fleet::history::History;
use gnstor_fleet::leader::{Candidate, Round};
use gnstor_fleet::lease::{Asking, Lease};
use gnstor_fleet::map::{FleetView, SsdState};
use gnstor_fleet::repair::Held;
use gnstor_fleet::set::SsdSet;
use gnstor_fleet::voter::Promise;
use gnstor_fleet::{ArrayId, SsdId};
use std::sync::Arc;

/// Each daemon starts once for each term that it takes; the two never share an instance.
fn instance(daemon: usize) -> u64 {
    daemon as u64 + 1
}

impl FleetModel {
    pub(crate) fn control_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for d in 0..2 {
            let daemon = &state.daemons[d];
            actions.extend((daemon.term + 1..=self.bounds.terms).map(|term| Action::Take(d, term)));
            match &daemon.role {
                Role::Idle => {}
                Role::Candidate(candidate) => {
                    let open = (0..SSDS).filter(|&v| !candidate.granted.contains(v));
                    actions.extend(open.map(|v| Action::Promise(d, v)));
                    if self.rules.is(Planted::ForeignSsdTaken) || self.bounds.returns {
                        actions.push(Action::ForeignPromise(d));
                    }
                    actions.push(Action::Lead(d));
                }
                Role::Leader { lead, round: None, .. } if lead.active.epoch < self.bounds.epochs => {
                    for s in 0..REPLICAS {
                        let all = [Change::Lose, Change::Back, Change::Fill, Change::Serve];
                        actions.extend(all.map(|change| Action::Propose(d, change, s)));
                    }
                }
                Role::Leader { round: Some(_), .. } => actions.push(Action::Activate(d)),
                Role::Leader { .. } => {}
            }
        }
        for p in 0..state.proposals.len() {
            actions.extend((0..SSDS).map(|v| Action::Hold(p, v)));
        }
        for (s, ssd) in (0u16..).zip(&state.ssds) {
            let newer = (0..state.decided.len()).filter(|&i| state.decided[i].epoch > ssd.map().epoch);
            actions.extend(newer.map(|i| Action::Learn(s, i)));
        }
        if self.bounds.timing.is_some() {
            self.lease_actions(state, actions);
        }
        for s in 0..REPLICAS {
            if state.ghost.lossy < self.bounds.lossy {
                actions.push(Action::Lossy(s));
            }
            if state.ghost.restarts < self.bounds.restarts {
                actions.push(Action::Restart(s));
            }
        }
    }

    fn lease_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for s in 0..REPLICAS {
            let ssd = state.ssd(s);
            match ssd.asking {
                None if ssd.row().members().contains(s) => actions.push(Action::Ask(s)),
                None => {}
                Some(asking) => {
                    let open = (0..SSDS).filter(|&v| v != s && !asking.yes.contains(v));
                    actions.extend(open.map(|v| {
                        if ssd.answers.contains(v) { Action::Deliver(s, v) } else { Action::Answer(s, v) }
                    }));
                }
            }
            if self.rules.is(Planted::ClockBeforeIntake) && ssd.lag > 0 {
                actions.push(Action::ReadClock(s));
            }
        }
        actions.extend((0..1u8 << REPLICAS).map(Action::Tick));
    }

    pub(crate) fn control(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Take(d, term) => {
                state.daemons[d].term = term;
                state.daemons[d].role = Role::Candidate(Candidate::new(ARRAY, term, instance(d)));
            }
            Action::Promise(d, v) => {
                let term = state.daemons[d].term;
                let voter = &mut state.ssds[usize::from(v)].voter;
                let promise = self.rules.take_term(voter, ARRAY, term, instance(d)).ok()?;
                let Role::Candidate(candidate) = &mut state.daemons[d].role else { return None };
                self.rules.promised(candidate, v, promise);
            }
            Action::ForeignPromise(d) => {
                let Role::Candidate(candidate) = &mut state.daemons[d].role else { return None };
                let mut map = (*state.decided[0]).clone();
                (map.array, map.epoch) = (ArrayId([2; 16]), 7);
                let promise = Promise { array: map.array, active: Arc::new(map), held: None };
                self.rules.promised(candidate, 2, promise);
            }
            Action::Lead(d) => Self::lead(state, d)?,
            Action::Propose(d, change, s) => self.propose(state, d, change, s)?,
            Action::Hold(p, v) => Self::hold(state, p, v)?,
            Action::Activate(d) => self.activate(state, d)?,
            Action::Learn(s, i) => self.learn(state, s, i)?,
            _ => return self.lease(state, action),
        }
        Some(())
    }

    fn lead(state: &mut State, d: usize) -> Option<()> {
        let Role::Candidate(candidate) = &state.daemons[d].role else { return None };
        let lead = candidate.elected()?;
        let (term, instance) = (candidate.term, candidate.instance);
        let owner = (term, instance);
        if !state.ghost.owners.contains(&owner) {
            state.ghost.owners.push(owner);
            state.ghost.owners.sort_unstable();
        }
        let again = lead.again.clone();
        if let Some(map) = &again {
            state.proposals.push((term, instance, map.clone()));
        }
        let round = again.map(Round::new);
        state.daemons[d].role = Role::Leader { lead, round, settle: None, grant: None };
        Some(())
    }

    fn propose(&self, state: &mut State, d: usize, change: Change, s: SsdId) -> Option<()> {
        let term = state.daemons[d].term;
        let ssd = state.ssd(s).clone();
        let Role::Leader { lead, round, .. } = &mut state.daemons[d].role else { return None };
        let map = &lead.active;
        let is_there = ssd.map().epoch == map.epoch;
        let next = match change {
            Change::Lose => self.rules.lose(map, s, term),
            Change::Back => map.back(s, ssd.incarnation, term),
            Change::Fill if self.bounds.returns && is_there => map.fill(0, s, ssd.incarnation, term),
            Change::Serve if is_there && ssd.is_confirmed => self.rules.serve(map, s, ssd.incarnation, term),
            Change::Fill | Change::Serve => return None,
        };
        let next = Arc::new(next.ok()?);
        *round = Some(Round::new(next.clone()));
        state.proposals.push((term, instance(d), next));
        Some(())
    }

    fn hold(state: &mut State, p: usize, v: SsdId) -> Option<()> {
        let (term, instance, map) = state.proposals[p].clone();
        state.ssds[usize::from(v)].voter.hold(term, instance, map.clone()).ok()?;
        for daemon in &mut state.daemons {
            if let Role::Leader { lead, round: Some(round), .. } = &mut daemon.role
                && daemon.term == term
                && round.map == map
            {
                round.held(v, lead.active.voters(), NOW);
            }
        }
        Some(())
    }

    fn activate(&self, state: &mut State, d: usize) -> Option<()> {
        let Role::Leader { lead, round, settle, grant } = &mut state.daemons[d].role else { return None };
        let timing = self.timing();
        let map = round.take_if(|round| self.rules.may_activate(round, timing))?.map;
        lead.active = map.clone();
        (*settle, *grant) = (None, None);
        if state.decided.contains(&map) {
            return Some(());
        }
        state.ghost.two_maps |= state.decided.iter().any(|known| known.epoch == map.epoch);
        let is_over = |&mut (_, by, epoch): &mut (_, SsdId, u64)| {
            map.shrunk_at(by).is_some_and(|shrunk| shrunk == map.epoch && shrunk > epoch)
        };
        state.ghost.seen.take_if(is_over);
        state.decided.push(map);
        Some(())
    }

    fn learn(&self, state: &mut State, s: SsdId, i: usize) -> Option<()> {
        let map = state.decided[i].clone();
        let ssd = &mut state.ssds[usize::from(s)];
        ssd.voter.activate(map.clone()).ok()?;
        (ssd.pass, ssd.is_confirmed) = (None, false);
        if !self.rules.is(Planted::PullOutlivesItsPass) {
            ssd.pull = None;
        }
        let incarnation = incarnation_under(&map, s, ssd.incarnation);
        if incarnation != ssd.incarnation {
            ssd.incarnation = incarnation;
            Self::drop_lease(state, s);
        }
        Some(())
    }

    fn drop_lease(state: &mut State, s: SsdId) {
        let ssd = &mut state.ssds[usize::from(s)];
        (ssd.lease, ssd.lease_bound) = (Lease::default(), 0);
        (ssd.asking, ssd.ask_bound, ssd.answers, ssd.lag) = (None, 0, SsdSet::EMPTY, 0);
    }

    fn lease(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Ask(s) => {
                let timing = self.timing();
                let ssd = &mut state.ssds[usize::from(s)];
                let mut asking = Asking::new(ssd.ask(s), NOW);
                if ssd.voter.answer(&asking.ask).is_ok() {
                    asking.said_yes(s);
                }
                (ssd.asking, ssd.ask_bound) = (Some(asking), timing.lease + timing.drift);
                ssd.answers = SsdSet::EMPTY;
            }
            Action::Answer(s, v) => {
                let asking = state.ssd(s).asking?;
                state.ssd(v).voter.answer(&asking.ask).ok()?;
                let ssd = &mut state.ssds[usize::from(s)];
                ssd.answers = ssd.answers.with(v);
            }
            Action::Deliver(s, v) => {
                let timing = self.timing();
                let ssd = &mut state.ssds[usize::from(s)];
                let mut asking = ssd.asking?;
                asking.said_yes(v);
                ssd.asking = Some(asking);
                let lease = self.rules.lease(&asking, ssd.map().voters, ssd.incarnation, timing);
                if let Some(lease) = lease {
                    (ssd.lease, ssd.lease_bound) = (lease, ssd.ask_bound);
                    (ssd.asking, ssd.ask_bound, ssd.answers) = (None, 0, SsdSet::EMPTY);
                }
            }
            Action::ReadClock(s) => state.ssds[usize::from(s)].lag = 0,
            Action::Tick(slow) => self.tick(state, slow)?,
            Action::Lossy(s) => {
                state.ghost.lossy += 1;
                let ssd = &mut state.ssds[usize::from(s)];
                let is_out = ssd.map().ssd(s).is_some_and(|known| known.state == SsdState::Out);
                if !is_out || ssd.incarnation == ssd.map().ssd(s)?.incarnation {
                    ssd.incarnation += 1;
                }
                if self.rules.is(Planted::AnyEpochClearsLossy) {
                    ssd.lossy_at = Some(ssd.map().epoch);
                }
                ssd.held = Held::Nothing;
                let mark = ssd.history.mark();
                ssd.history = History::new(4);
                ssd.history.settle(mark);
                ssd.history.tear();
                Self::stop(state, s);
            }
            Action::Restart(s) => {
                state.ghost.restarts += 1;
                Self::stop(state, s);
            }
            _ => return None,
        }
        Some(())
    }

    /// What lies in memory alone is gone. Copies that were asked for come no more: their connection ended.
    fn stop(state: &mut State, s: SsdId) {
        let ssd = &mut state.ssds[usize::from(s)];
        (ssd.pass, ssd.pull, ssd.is_confirmed) = (None, None, false);
        Self::drop_lease(state, s);
    }

    /// A tick of true time. The clocks of the SSDs in `slow` stand still, as far as the drift bound lets
    /// them.
    fn tick(&self, state: &mut State, slow: u8) -> Option<()> {
        let timing = self.timing();
        for s in 0..REPLICAS {
            let ssd = &mut state.ssds[usize::from(s)];
            let is_slow = slow >> s & 1 == 1;
            let (left, asked) = (ssd.lease.until.saturating_sub(NOW), ssd.asking.map(|asking| asking.asked_at));
            ssd.lease_bound = ssd.lease_bound.saturating_sub(1);
            ssd.ask_bound = ssd.ask_bound.saturating_sub(1);
            if is_slow {
                let runs = left > 0 || asked.is_some();
                let would = asked.map_or(0, |asked| (asked + timing.lease).saturating_sub(NOW));
                if !runs || left > ssd.lease_bound || would > ssd.ask_bound {
                    return None;
                }
                continue;
            }
            ssd.lease.until = ssd.lease.until.saturating_sub(1);
            let is_stale = self.rules.is(Planted::ClockBeforeIntake);
            if is_stale && ssd.lag < timing.lease + timing.drift {
                ssd.lag += 1;
            }
            if ssd.lease.until + if is_stale { timing.lease + timing.drift } else { 0 } <= NOW {
                (ssd.lease, ssd.lease_bound) = (Lease::default(), 0);
            }
            if let Some(asking) = &mut ssd.asking {
                let keeps = self.rules.is(Planted::LeaseFromReceipt);
                if asking.asked_at + timing.lease > NOW {
                    asking.asked_at -= 1;
                }
                if asking.asked_at + timing.lease <= NOW && !keeps {
                    (ssd.asking, ssd.ask_bound, ssd.answers) = (None, 0, SsdSet::EMPTY);
                }
            }
        }
        for daemon in &mut state.daemons {
            if let Role::Leader { round: Some(round), .. } = &mut daemon.role
                && let Some(at) = &mut round.decided_at
            {
                *at = (*at - 1).max(NOW - timing.lease - timing.drift);
            }
        }
        Some(())
    }
}
