// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The actions of a repair, of a settle and of a grant.

use crate::model::{Action, FleetModel};
use crate::planted::Planted;
use crate::state::{ARRAY, Grant, REPLICAS, Role, State};
use gnstor_fleet::serve::Entry;
use gnstor_fleet::set::SsdSet;
use gnstor_fleet::settle::{Settle, Step};
use gnstor_fleet::{Epoch, SsdId};

impl FleetModel {
    pub(crate) fn settle_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (d, daemon) in state.daemons.iter().enumerate() {
            if let Role::Leader { settle, grant, .. } = &daemon.role {
                if settle.is_none() && grant.is_none() && state.ghost.granted < self.bounds.leases {
                    actions.push(Action::StartSettle(d));
                }
                if settle.is_some() {
                    actions.extend((0..REPLICAS).map(|s| Action::Settle(d, s)));
                    actions.push(Action::StartGrant(d));
                }
                if grant.is_some() {
                    actions.extend((0..REPLICAS).map(|s| Action::Grant(d, s)));
                }
            }
        }
    }

    /// The first of the group, if it has the same epoch and the content that the map names.
    fn peer(&self, state: &State, s: SsdId) -> Option<SsdId> {
        let ssd = state.ssd(s);
        let first = ssd.row().first().filter(|&first| first != s)?;
        let peer = state.ssd(first);
        let is_there = peer.map().epoch == ssd.map().epoch || self.rules.is(Planted::PeerIsBehind);
        (is_there && peer.is_content_of_map(first)).then_some(first)
    }

    /// A filling SSD asks the first, and the answer is on its way. An earlier one counts no more.
    pub(crate) fn compare(&self, state: &mut State, s: SsdId) -> Option<()> {
        if !state.ssd(s).is_filling(s) {
            return None;
        }
        let theirs = self.rules.listed(state.ssd(self.peer(state, s)?).block.held);
        state.ssds[usize::from(s)].answer = Some(theirs);
        Some(())
    }

    pub(crate) fn settle(&self, state: &mut State, action: Action) -> Option<()> {
        let (Action::StartSettle(d) | Action::Settle(d, _) | Action::StartGrant(d) | Action::Grant(d, _)) =
            action
        else {
            return None;
        };
        match action {
            Action::StartSettle(_) => {
                let Role::Leader { lead, settle, .. } = &mut state.daemons[d].role else { return None };
                let row = &lead.active.rows[0];
                if lead.active.waits(row) || row.first().is_none() {
                    return None;
                }
                *settle = Some(Settle::new(lead.active.epoch));
            }
            Action::Settle(_, s) => self.settle_step(state, d, s)?,
            Action::StartGrant(_) => {
                let Role::Leader { lead, settle, grant, .. } = &mut state.daemons[d].role else {
                    return None;
                };
                let lease_epoch = self.rules.may_grant(settle.as_ref()?, lead.active.epoch)?;
                *grant = Some(Grant { lease_epoch, epoch: lead.active.epoch, done: SsdSet::EMPTY });
                *settle = None;
            }
            Action::Grant(_, s) => self.grant(state, d, s)?,
            _ => return None,
        }
        Some(())
    }

    /// An SSD obeys a daemon in an epoch. It knows that epoch, and has granted no higher term to another. Its
    /// content is what the map gives its places to.
    fn obeys(&self, state: &mut State, d: usize, s: SsdId, epoch: Epoch) -> Option<()> {
        let ssd = &mut state.ssds[usize::from(s)];
        if ssd.map().epoch != epoch || !ssd.is_content_of_map(s) {
            return None;
        }
        let term = state.daemons[d].term;
        self.rules.take_term(&mut ssd.voter, ARRAY, term, d as u64 + 1).ok()?;
        Some(())
    }

    fn settle_step(&self, state: &mut State, d: usize, s: SsdId) -> Option<()> {
        let Role::Leader { lead, settle: Some(settle), .. } = &state.daemons[d].role else { return None };
        let (mut settle, row) = (*settle, lead.active.rows[0]);
        let first = row.first()?;
        let members = row.members();
        let needed = if self.rules.is(Planted::FillingIsNotSettled) && settle.step == Step::Copy {
            row.serving()
        } else {
            members
        };
        if settle.step == Step::Done || !needed.contains(s) || settle.done.contains(s) {
            return None;
        }
        self.obeys(state, d, s, settle.epoch)?;
        if settle.step == Step::Copy && s != first {
            self.obeys(state, d, first, settle.epoch)?;
            let theirs = self.rules.listed(state.ssd(first).block.held);
            let ssd = &mut state.ssds[usize::from(s)];
            ssd.block.settle(theirs);
            if !self.rules.is(Planted::AnswerOutlivesTheBarrier) {
                ssd.answer = None;
            }
        }
        let ssd = &mut state.ssds[usize::from(s)];
        match settle.step {
            Step::Barrier => (ssd.entry.has_writer, ssd.entry.unsettled) = (false, true),
            Step::Clear => ssd.entry.unsettled = false,
            Step::Copy | Step::Done => {}
        }
        settle.done(s, ssd.entry.lease_epoch);
        settle.advance(needed);
        if settle.step == Step::Done {
            state.ghost.settled = Some((settle.lease_epoch, state.ssd(first).block.held));
        }
        if let Role::Leader { settle: slot, .. } = &mut state.daemons[d].role {
            *slot = Some(settle);
        }
        Some(())
    }

    fn grant(&self, state: &mut State, d: usize, s: SsdId) -> Option<()> {
        let Role::Leader { lead, grant: Some(grant), .. } = &state.daemons[d].role else { return None };
        let (mut grant, row) = (*grant, lead.active.rows[0]);
        let (members, serving) = (row.members(), row.serving());
        if grant.done.contains(s) || !members.contains(s) {
            return None;
        }
        self.obeys(state, d, s, grant.epoch)?;
        let ssd = &mut state.ssds[usize::from(s)];
        ssd.entry = Entry { lease_epoch: grant.lease_epoch, has_writer: true, unsettled: false };
        grant.done = grant.done.with(s);
        let is_done = members.is_subset_of(grant.done);
        if let Role::Leader { grant: slot, .. } = &mut state.daemons[d].role {
            *slot = (!is_done).then_some(grant);
        }
        if is_done {
            let serving: Vec<SsdId> = serving.iter().collect();
            state.ghost.unequal_grant |= serving
                .windows(2)
                .any(|pair| !state.ssd(pair[0]).block.held.reads_as(state.ssd(pair[1]).block.held));
            state.ghost.granted = state.ghost.granted.max(grant.lease_epoch);
            state.client.lease_epoch = grant.lease_epoch;
            state.client.requests.clear();
        }
        Some(())
    }
}
