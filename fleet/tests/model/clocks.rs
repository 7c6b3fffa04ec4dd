// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The actions of serving leases, of time, and of SSDs that stop.

use crate::model::{Action, FleetModel};
use crate::planted::Planted;
use crate::state::{NOW, Role, SSDS, State};
use gnstor_fleet::SsdId;
use gnstor_fleet::lease::{Asking, Lease};
use gnstor_fleet::map::SsdState;
use gnstor_fleet::repair::Held;
use gnstor_fleet::set::SsdSet;

impl FleetModel {
    pub(crate) fn lease_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for s in 0..self.bounds.clocks {
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
        actions.extend((0..1u8 << self.bounds.clocks).map(Action::Tick));
    }

    pub(crate) fn drop_lease(state: &mut State, s: SsdId) {
        let ssd = &mut state.ssds[usize::from(s)];
        (ssd.lease, ssd.lease_bound) = (Lease::default(), 0);
        (ssd.asking, ssd.ask_bound, ssd.answers, ssd.lag) = (None, 0, SsdSet::EMPTY, 0);
    }

    pub(crate) fn lease(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Ask(s) => {
                let timing = self.timing();
                let ssd = &mut state.ssds[usize::from(s)];
                let mut asking = Asking::new(ssd.ask(s), NOW);
                if ssd.voter.answer(&asking.ask, 1).is_ok() {
                    asking.said_yes(s);
                }
                (ssd.asking, ssd.ask_bound) = (Some(asking), timing.lease + timing.drift);
                ssd.answers = SsdSet::EMPTY;
            }
            Action::Answer(s, v) => {
                let asking = state.ssd(s).asking?;
                state.ssd(v).voter.answer(&asking.ask, 1).ok()?;
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
                ssd.block.held = Held::Nothing;
                self.stop(state, s);
            }
            Action::Restart(s) => {
                state.ghost.restarts += 1;
                let ssd = &mut state.ssds[usize::from(s)];
                // The SSD forgets which blocks clients have changed.
                if ssd.is_filling(s) && !self.rules.is(Planted::TouchedLostUnnoticed) {
                    ssd.incarnation += 1;
                }
                if self.rules.is(Planted::FlagLost) {
                    ssd.entry.unsettled = false;
                }
                self.stop(state, s);
            }
            _ => return None,
        }
        Some(())
    }

    /// The contents of memory are lost. Requested copies never come, because their connection ended.
    fn stop(&self, state: &mut State, s: SsdId) {
        let ssd = &mut state.ssds[usize::from(s)];
        let is_filled = ssd.is_filled && self.rules.is(Planted::WalkNotBegunAnew);
        (ssd.answer, ssd.is_filled) = (None, is_filled);
        ssd.block.is_current = !ssd.is_filling(s);
        Self::drop_lease(state, s);
    }

    /// A tick of true time. The clocks of the SSDs in `slow` stand still, as far as the drift bound lets
    /// them.
    fn tick(&self, state: &mut State, slow: u8) -> Option<()> {
        let timing = self.timing();
        for s in 0..self.bounds.clocks {
            let ssd = &mut state.ssds[usize::from(s)];
            let is_slow = slow >> s & 1 == 1;
            let (left, asked) =
                (ssd.lease.until.saturating_sub(NOW), ssd.asking.map(|asking| asking.asked_at));
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
