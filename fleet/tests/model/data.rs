// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The actions of the client and of readers.

use crate::model::{Action, FleetModel};
use crate::planted::Planted;
use crate::state::{Client, REPLICAS, Sent, State, bit};
use gnstor_fleet::client::{Ended, Request};
use gnstor_fleet::repair::Held;
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
            let ssd = state.ssd(s);
            if ssd.held.stamp() > state.ghost.acked {
                actions.push(Action::Read(s));
            }
            if ssd.is_filling(s) {
                actions.push(Action::StartPass(s));
            }
            if ssd.pull.is_some() {
                actions.push(Action::Arrive(s));
            }
            let (mark, epoch) = (client.ended.mark, client.map.epoch);
            let is_news = mark > ssd.history.mark() || epoch > ssd.history.marked_in();
            if self.bounds.marks && is_news {
                actions.push(Action::Mark(s));
            }
            if self.bounds.forget && !state.writes.is_empty() {
                actions.push(Action::Forget(s));
            }
            if matches!(ssd.held, Held::Tombstone { .. }) {
                actions.push(Action::ForgetTombstone(s));
            }
        }
        self.settle_actions(state, actions);
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
                let (mark, epoch) = (state.client.ended.mark, state.client.map.epoch);
                let ssd = &mut state.ssds[usize::from(s)];
                if ssd.entry.lease_epoch != mark.lease_epoch || !ssd.entry.has_writer {
                    return None;
                }
                ssd.history.settle(mark, epoch);
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
        let has_lease = self.rules.has_lease(state, s, s < self.bounds.clocks);
        let ssd = &mut state.ssds[usize::from(s)];
        let epoch = ssd.map().epoch;
        let standing = ssd.standing(s, self.rules.incarnation(ssd, s), has_lease);
        let verdict =
            standing.judge_write(ssd.row(), epoch, sent.stamp, ssd.entry, &ssd.history, REPLICAS.into());
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
        let has_lease = self.rules.has_lease(state, s, s < self.bounds.clocks);
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
}
