// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The actions of the client and of readers.

use crate::model::{Action, FleetModel};
use crate::planted::Planted;
use crate::state::{Client, REPLICAS, Sent, State, bit};
use gnstor_fleet::client::Request;
use gnstor_fleet::repair::Held;
use gnstor_fleet::serve::Write;
use gnstor_fleet::{Epoch, SsdId};
use gnstor_proto::slba::Stamp;

impl FleetModel {
    pub(crate) fn data_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let client = &state.client;
        if client.requests.len() < self.bounds.open && state.writes.len() < self.bounds.writes {
            actions.push(Action::Issue);
        }
        actions.extend((0..client.requests.len()).map(Action::Acknowledge));
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
            if ssd.block.held.stamp() > state.ghost.acked {
                actions.push(Action::Read(s));
            }
            if ssd.is_filling(s) {
                actions.push(Action::Compare(s));
            }
            if ssd.answer.is_some() {
                actions.push(Action::Arrive(s));
            }
            let forgets = self.rules.is(Planted::TombstoneLostWhileFilling) && ssd.is_filling(s);
            if forgets && matches!(ssd.block.held, Held::Tombstone { .. }) {
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
                state.client.requests.push(Request::new(stamp, epoch));
            }
            Action::Acknowledge(r) => self.acknowledge(state, r)?,
            Action::ClientLearn(i) => {
                let map = state.decided[i].clone();
                let epoch = map.epoch;
                state.client.map = map;
                for request in &mut state.client.requests {
                    self.rules.restart(request, epoch);
                    let stamp = request.stamp;
                    let sent = state.writes.iter_mut().find(|sent| sent.stamp == stamp)?;
                    sent.epochs |= bit(epoch);
                }
            }
            Action::Commit(s, w) => self.commit(state, s, w)?,
            Action::Read(s) => self.read(state, s)?,
            Action::ForgetTombstone(s) => state.ssds[usize::from(s)].block.held = Held::Nothing,
            Action::Compare(s) => self.compare(state, s)?,
            Action::Arrive(s) => {
                let ssd = &mut state.ssds[usize::from(s)];
                let theirs = ssd.answer.take()?;
                self.rules.copy(&mut ssd.block, theirs);
                ssd.is_filled = true;
            }
            _ => return self.settle(state, action),
        }
        Some(())
    }

    fn acknowledge(&self, state: &mut State, r: usize) -> Option<()> {
        let Client { map, requests, .. } = &mut state.client;
        let now = requests.get_mut(r)?;
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
        requests.remove(r);
        Some(())
    }

    fn commit(&self, state: &mut State, s: SsdId, w: usize) -> Option<()> {
        let sent = state.writes[w].clone();
        let has_lease = self.rules.has_lease(state, s, s < self.bounds.clocks);
        let ssd = &mut state.ssds[usize::from(s)];
        let epoch = ssd.map().epoch;
        let standing = ssd.standing(s, self.rules.incarnation(ssd, s), has_lease);
        let write = Write { epoch, stamp: sent.stamp, replicas: REPLICAS.into() };
        standing.judge_write(ssd.row(), write, ssd.entry).ok()?;
        let stamp = sent.stamp;
        let new = if sent.is_trim { Held::Tombstone { stamp } } else { Held::Block { stamp, sum: 0 } };
        if ssd.block.write(new) {
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
        let verdict = standing.judge_read(ssd.row(), ssd.map().epoch, is_writer, ssd.entry);
        self.rules.read_verdict(verdict).is_ok()
    }

    fn read(&self, state: &mut State, s: SsdId) -> Option<()> {
        let stamp = state.ssd(s).block.held.stamp();
        let known = state.ghost.seen.map_or(state.ghost.acked, |(seen, ..)| seen.max(state.ghost.acked));
        if stamp <= known || !self.answers(state, s, false) {
            return None;
        }
        state.ghost.seen = Some((stamp, s, state.ssd(s).map().epoch));
        Some(())
    }
}
