// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The actions of terms and maps.

use crate::map_ref::MapRef;
use crate::model::{Action, Change, FleetModel};
use crate::state::{ARRAY, COPIES, NOW, REPLICAS, Role, SSDS, State};
use gnstor_fleet::change::incarnation_under;
use gnstor_fleet::leader::{Candidate, Round};
use gnstor_fleet::map::FleetView;
use gnstor_fleet::voter::Promise;
use gnstor_fleet::{ArrayId, SsdId};

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
                    actions.extend([Action::ForeignPromise(d), Action::Lead(d)]);
                }
                Role::Leader { lead, round: None, .. } if lead.active.epoch < self.bounds.epochs => {
                    for s in 0..self.bounds.changing {
                        let all = [Change::Lose, Change::Back, Change::Fill, Change::Serve];
                        actions.extend(all.map(|change| Action::Propose(d, change, s)));
                    }
                }
                Role::Leader { round: Some(_), .. } => actions.push(Action::Activate(d)),
                Role::Leader { .. } => {}
            }
        }
        for (p, (term, _, map)) in state.proposals.iter().enumerate() {
            let may = |v: &SsdId| {
                let voter = &state.ssd(*v).voter;
                *term >= voter.term && map.epoch > voter.active.epoch
            };
            actions.extend((0..SSDS).filter(may).map(|v| Action::Hold(p, v)));
        }
        for (s, ssd) in (0u16..).zip(&state.ssds) {
            let newer = (0..state.decided.len()).filter(|&i| state.decided[i].epoch > ssd.map().epoch);
            actions.extend(newer.map(|i| Action::Learn(s, i)));
        }
        if self.bounds.clocks > 0 {
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
                let promise = Promise { array: map.array, active: MapRef::new(map), held: None };
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
            Change::Fill if self.bounds.returns && is_there => {
                map.fill(0, (s, ssd.incarnation), COPIES, term)
            }
            Change::Serve if is_there && self.rules.is_filled(&ssd, s) => {
                self.rules.serve(map, s, ssd.incarnation, term)
            }
            Change::Fill | Change::Serve => return None,
        };
        let next = MapRef::new(next.ok()?);
        // An SSD that is back gets each entry before a map gives it places.
        let first = map.rows[0].first();
        if let (Change::Fill, Some(first)) = (change, first) {
            state.ssds[usize::from(s)].entry = state.ssds[usize::from(first)].entry;
        }
        *round = Some(Round::new(next.clone()));
        if self.bounds.votes_at_once {
            let round = round.as_mut()?;
            (0..SSDS).for_each(|v| round.held(v, next.voters, NOW));
            self.activate(state, d)?;
            // The SSD that only votes has nothing else to do with a map.
            return state.ssds[2].voter.activate(next).ok();
        }
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

    pub(crate) fn activate(&self, state: &mut State, d: usize) -> Option<()> {
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
        let was_filling = ssd.is_filling(s);
        ssd.voter.activate(map.clone()).ok()?;
        self.rules.follow_fill(ssd, s, was_filling);
        let incarnation = incarnation_under(&map, s, ssd.incarnation);
        if incarnation != ssd.incarnation {
            ssd.incarnation = incarnation;
            Self::drop_lease(state, s);
        }
        Some(())
    }
}
