// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The actions of the client, of readers, of a settle and of a repair.

use crate::model::{Action, FleetModel};
use crate::planted::Planted;
use crate::state::{ARRAY, Client, Grant, REPLICAS, Role, Sent, State, bit};
use gnstor_fleet::client::{Ended, Request};
use gnstor_fleet::history::ALL;
use gnstor_fleet::repair::{Held, Pass, Roles, Verdict, compare};
use gnstor_fleet::set::SsdSet;
use gnstor_fleet::settle::{Settle, Step};
use gnstor_fleet::{Epoch, SsdId};
use gnstor_proto::slba::Stamp;

impl FleetModel {
    pub(crate) fn data_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let client = &state.client;
        match client.request {
            None if state.writes.len() < self.bounds.writes => actions.push(Action::Issue),
            None => {}
            Some(_) => {
                actions.push(Action::Acknowledge);
                if state.ghost.give_ups < self.bounds.give_ups {
                    actions.push(Action::GiveUp);
                }
            }
        }
        let newer = (0..state.decided.len()).filter(|&i| state.decided[i].epoch > client.map.epoch);
        actions.extend(newer.map(Action::ClientLearn));
        for s in 0..REPLICAS {
            for (w, sent) in state.writes.iter().enumerate() {
                let epoch = state.ssd(s).map().epoch;
                if sent.epochs & bit(epoch) != 0 {
                    actions.push(Action::Commit(s, w));
                }
            }
            actions.extend([Action::Read(s), Action::StartPass(s), Action::Arrive(s)]);
            if self.bounds.marks {
                actions.push(Action::Mark(s));
            }
            if self.bounds.forget {
                actions.push(Action::Forget(s));
            }
            if self.bounds.trims {
                actions.push(Action::ForgetTombstone(s));
            }
        }
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

    pub(crate) fn data(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Issue => {
                let n = state.writes.len();
                let stamp = Stamp { lease_epoch: state.client.lease_epoch, sequence: n as u64 + 1 };
                let epoch = state.client.map.epoch;
                let is_trim = self.bounds.trims && n % 2 == 1;
                state.writes.push(Sent { stamp, is_trim, epochs: bit(epoch), done: [0; REPLICAS as usize] });
                state.client.request = Some(Request::new(stamp, epoch));
            }
            Action::Acknowledge => self.acknowledge(state)?,
            Action::GiveUp => {
                state.ghost.give_ups += 1;
                let stamp = state.client.request.take()?.stamp;
                state.client.ended.indeterminate();
                if self.rules.is(Planted::MarkPassesIndeterminate) {
                    state.client.ended = Ended { mark: stamp, is_stuck: false };
                }
            }
            Action::ClientLearn(i) => {
                let map = state.decided[i].clone();
                let epoch = map.epoch;
                state.client.map = map;
                let Some(request) = &mut state.client.request else { return Some(()) };
                self.rules.restart(request, epoch);
                let stamp = request.stamp;
                let sent = state.writes.iter_mut().find(|sent| sent.stamp == stamp)?;
                sent.epochs |= bit(epoch);
            }
            Action::Commit(s, w) => self.commit(state, s, w)?,
            Action::Read(s) => self.read(state, s)?,
            Action::Mark(s) => {
                let mark = state.client.ended.mark;
                let ssd = &mut state.ssds[usize::from(s)];
                if ssd.entry.lease_epoch != mark.lease_epoch || !ssd.entry.has_writer {
                    return None;
                }
                ssd.history.settle(mark);
            }
            Action::Forget(s) => state.ssds[usize::from(s)].history.forget_lowest(),
            Action::ForgetTombstone(s) => {
                let ssd = &mut state.ssds[usize::from(s)];
                let Held::Tombstone { stamp } = ssd.held else { return None };
                if !self.rules.may_forget(ssd, s, stamp) {
                    return None;
                }
                ssd.held = Held::Nothing;
            }
            Action::StartPass(s) => self.start_pass(state, s)?,
            Action::Arrive(s) => {
                let ssd = &mut state.ssds[usize::from(s)];
                let pull = ssd.pull.take()?;
                if self.rules.takes(ssd.pass.as_ref(), &pull, ssd.held) {
                    ssd.held = pull.theirs;
                }
            }
            _ => return self.settle(state, action),
        }
        Some(())
    }

    fn acknowledge(&self, state: &mut State) -> Option<()> {
        let Client { map, request, ended, .. } = &mut state.client;
        let now = request.as_mut()?;
        let sent = state.writes.iter().find(|sent| sent.stamp == now.stamp)?;
        for s in 0..REPLICAS {
            let done = sent.done[usize::from(s)];
            let counts = if self.rules.is(Planted::AckOverTwoEpochs) { done } else { done & bit(now.epoch) };
            for epoch in (0..8).filter(|&epoch| counts & bit(epoch) != 0) {
                if self.rules.is(Planted::AckOverTwoEpochs) {
                    now.has_it = now.has_it.with(s);
                } else {
                    now.completed(s, epoch);
                }
            }
        }
        let members = map.rows[0].members();
        if map.waits(&map.rows[0]) || !now.is_acknowledged(members) {
            return None;
        }
        let has_in_one = |epoch: Epoch| members.iter().all(|s| sent.done[usize::from(s)] & bit(epoch) != 0);
        state.ghost.mixed_ack |= !has_in_one(now.epoch);
        state.ghost.acked = state.ghost.acked.max(now.stamp);
        ended.acknowledged(now.stamp);
        *request = None;
        Some(())
    }

    fn commit(&self, state: &mut State, s: SsdId, w: usize) -> Option<()> {
        let sent = state.writes[w].clone();
        let has_lease = self.rules.has_lease(state, s, self.bounds.timing.is_some());
        let ssd = &mut state.ssds[usize::from(s)];
        let epoch = ssd.map().epoch;
        let standing = ssd.standing(s, self.rules.incarnation(ssd, s), has_lease);
        let verdict = standing.judge_write(
            ssd.row(),
            epoch,
            sent.stamp,
            ssd.entry,
            &ssd.history,
            REPLICAS.into(),
        );
        self.rules.write_verdict(verdict).ok()?;
        if ssd.held.is_older_than(sent.stamp) {
            ssd.held = if sent.is_trim {
                Held::Tombstone { stamp: sent.stamp }
            } else {
                Held::Block { stamp: sent.stamp, sum: 0 }
            };
            ssd.history.record(0, sent.stamp);
            state.ghost.stale_commit |= sent.stamp.lease_epoch < state.ghost.granted;
        }
        state.writes[w].done[usize::from(s)] |= bit(epoch);
        Some(())
    }

    /// Whether an SSD would answer a read now.
    pub(crate) fn answers(&self, state: &State, s: SsdId, is_writer: bool) -> bool {
        let ssd = state.ssd(s);
        let has_lease = self.rules.has_lease(state, s, self.bounds.timing.is_some());
        let standing = ssd.standing(s, self.rules.incarnation(ssd, s), has_lease);
        let verdict = standing.judge_read(ssd.row(), ssd.map().epoch, is_writer, &ssd.history);
        self.rules.read_verdict(verdict).is_ok()
    }

    fn read(&self, state: &mut State, s: SsdId) -> Option<()> {
        let stamp = state.ssd(s).held.stamp();
        let known = state.ghost.seen.map_or(state.ghost.acked, |(seen, ..)| seen.max(state.ghost.acked));
        if stamp <= known || !self.answers(state, s, false) {
            return None;
        }
        state.ghost.seen = Some((stamp, s, state.ssd(s).map().epoch));
        Some(())
    }

    /// The first of the group, if it is at the same epoch and has what the map gives it.
    fn peer(state: &State, s: SsdId) -> Option<SsdId> {
        let ssd = state.ssd(s);
        let first = ssd.row().first().filter(|&first| first != s)?;
        let peer = state.ssd(first);
        (peer.map().epoch == ssd.map().epoch && peer.is_content_of_map(first)).then_some(first)
    }

    fn start_pass(&self, state: &mut State, s: SsdId) -> Option<()> {
        if !state.ssd(s).is_filling(s) {
            return None;
        }
        let peer = state.ssd(Self::peer(state, s)?).clone();
        let ssd = &mut state.ssds[usize::from(s)];
        ssd.entry = peer.entry;
        let number = 3 - ssd.pull.map_or(1, |pull| pull.pass);
        let mut pass = Pass::new(number, ssd.map().epoch, peer.history.mark());
        let pull = self.rules.compare(&mut pass, ssd.held, peer.held);
        ssd.pull = ssd.pull.or(pull);
        ssd.is_confirmed = pass.confirms(ssd.map().epoch);
        ssd.pass = Some(pass);
        Some(())
    }

    fn settle(&self, state: &mut State, action: Action) -> Option<()> {
        let (Action::StartSettle(d) | Action::Settle(d, _) | Action::StartGrant(d) | Action::Grant(d, _)) = action
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
                let Role::Leader { lead, settle, grant, .. } = &mut state.daemons[d].role else { return None };
                let lease_epoch = self.rules.may_grant(settle.as_ref()?, lead.active.epoch)?;
                *grant = Some(Grant { lease_epoch, epoch: lead.active.epoch, done: SsdSet::EMPTY });
                *settle = None;
            }
            Action::Grant(_, s) => self.grant(state, d, s)?,
            _ => return None,
        }
        Some(())
    }

    /// An SSD obeys a daemon in an epoch: it knows that epoch, has granted no higher term to another, and
    /// its content is what the map gives its places to.
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
        let (members, serving, first) = (row.members(), row.serving(), row.first()?);
        let step = settle.step;
        if !settle.needed(members, serving, first).contains(s) || settle.done.contains(s) {
            return None;
        }
        self.obeys(state, d, s, settle.epoch)?;
        if matches!(step, Step::Gather | Step::Spread) {
            self.obeys(state, d, first, settle.epoch)?;
            let is_unsettled =
                self.rules.is_unsettled(state.ssd(first)) || self.rules.is_unsettled(state.ssd(s));
            let (puller, peer) = if step == Step::Gather { (first, s) } else { (s, first) };
            let roles = if row.serving().contains(puller) {
                Roles::BothServing { peer_is_first: peer == first }
            } else {
                Roles::FillingFromServing
            };
            let (own, theirs) = (state.ssd(puller).held, state.ssd(peer).held);
            if is_unsettled && compare(roles, own, theirs, None) == Verdict::Take {
                state.ssds[usize::from(puller)].held = theirs;
            }
        }
        let ssd = &mut state.ssds[usize::from(s)];
        match step {
            Step::Barrier => ssd.entry.has_writer = false,
            Step::Mark => ssd.history.settle(ALL),
            _ => {}
        }
        settle.done(s, ssd.entry.lease_epoch);
        settle.advance(members, serving, first);
        if let Role::Leader { settle: slot, .. } = &mut state.daemons[d].role {
            *slot = Some(settle);
        }
        Some(())
    }

    fn grant(&self, state: &mut State, d: usize, s: SsdId) -> Option<()> {
        let Role::Leader { lead, grant: Some(grant), .. } = &state.daemons[d].role else { return None };
        let (mut grant, members) = (*grant, lead.active.rows[0].members());
        if grant.done.contains(s) || !members.contains(s) {
            return None;
        }
        self.obeys(state, d, s, grant.epoch)?;
        let ssd = &mut state.ssds[usize::from(s)];
        ssd.entry.lease_epoch = grant.lease_epoch;
        ssd.entry.has_writer = true;
        ssd.history.granted(grant.lease_epoch);
        grant.done = grant.done.with(s);
        let is_done = members.is_subset_of(grant.done);
        if let Role::Leader { grant: slot, .. } = &mut state.daemons[d].role {
            *slot = (!is_done).then_some(grant);
        }
        if is_done {
            state.ghost.granted = state.ghost.granted.max(grant.lease_epoch);
            state.client.lease_epoch = grant.lease_epoch;
            state.client.request = None;
            state.client.ended = Ended::new(grant.lease_epoch);
        }
        Some(())
    }
}
