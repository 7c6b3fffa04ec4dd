// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The model as the checker sees it: actions and properties.

use crate::bounds::Bounds;
use crate::planted::{Planted, Rules};
use crate::state::{REPLICAS, State};
use gnstor_fleet::SsdId;
use gnstor_fleet::lease::Timing;
use gnstor_fleet::map::{FleetView, Map};
use gnstor_fleet::repair::Held;
use gnstor_proto::slba::Stamp;
use stateright::{Model, Property};

/// A change that a leader may propose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Lose,
    Back,
    Fill,
    Serve,
}

/// One step of one part. Indexes name daemons and maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    Take(usize, u64),
    Promise(usize, SsdId),
    ForeignPromise(usize),
    Lead(usize),
    Propose(usize, Change, SsdId),
    Hold(usize, SsdId),
    Activate(usize),
    Learn(SsdId, usize),
    Ask(SsdId),
    Answer(SsdId, SsdId),
    Deliver(SsdId, SsdId),
    ReadClock(SsdId),
    Tick(u8),
    Lossy(SsdId),
    Restart(SsdId),
    Issue,
    Acknowledge(usize),
    ClientLearn(usize),
    Commit(SsdId, usize),
    Read(SsdId),
    ForgetTombstone(SsdId),
    Compare(SsdId),
    Arrive(SsdId),
    StartSettle(usize),
    Settle(usize, SsdId),
    StartGrant(usize),
    Grant(usize, SsdId),
}

/// The model within its bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FleetModel {
    pub(crate) bounds: Bounds,
    pub(crate) rules: Rules,
}

impl FleetModel {
    pub(crate) fn timing(&self) -> Timing {
        if self.bounds.clocks > 0 { self.bounds.timing } else { Timing { lease: 0, drift: 0 } }
    }

    /// Whether a reader that was promised everything up to `floor` may see this.
    fn is_legitimate(state: &State, held: Held, floor: Stamp) -> bool {
        match held {
            Held::Block { stamp, .. } | Held::Tombstone { stamp } => stamp >= floor,
            Held::Nothing => {
                floor == Stamp::default() || state.writes.iter().any(|w| w.is_trim && w.stamp >= floor)
            }
        }
    }

    fn acknowledged_is_durable(&self, state: &State) -> bool {
        (0..REPLICAS).all(|s| {
            !self.answers(state, s, true)
                || Self::is_legitimate(state, state.ssd(s).block.held, state.ghost.acked)
        })
    }

    fn seen_stays_seen(&self, state: &State) -> bool {
        let Some((seen, ..)) = state.ghost.seen else { return true };
        (0..REPLICAS).all(|s| {
            !self.answers(state, s, false) || Self::is_legitimate(state, state.ssd(s).block.held, seen)
        })
    }

    fn readers_see_one_value(&self, state: &State) -> bool {
        let [a, b] = [state.ssd(0), state.ssd(1)];
        !(self.answers(state, 0, false) && self.answers(state, 1, false))
            || a.block.held.reads_as(b.block.held)
    }

    /// Checks that the outcome of each write was reported when its lease was settled.
    fn settled_stays_settled(&self, state: &State) -> bool {
        let Some((lease_epoch, then)) = state.ghost.settled else { return true };
        (0..REPLICAS).all(|s| {
            let held = state.ssd(s).block.held;
            let is_newer = held.stamp().lease_epoch > lease_epoch;
            is_newer || held.reads_as(then) || !self.answers(state, s, true)
        })
    }

    fn one_owner_a_term(&self, state: &State) -> bool {
        state.ghost.owners.windows(2).all(|pair| pair[0].0 != pair[1].0)
    }

    fn lease_within_bound(&self, state: &State) -> bool {
        (0..self.bounds.clocks).all(|s| !self.rules.has_lease(state, s, true) || state.ssd(s).lease_bound > 0)
    }

    fn deprived_does_not_serve(&self, state: &State) -> bool {
        (0..self.bounds.clocks).all(|s| !self.rules.has_lease(state, s, true) || !state.is_deprived(s))
    }

    fn last_copy_stays(&self, state: &State) -> bool {
        state.decided.iter().all(|map| !map.rows[0].serving().is_empty())
    }

    fn one_array(&self, state: &State) -> bool {
        state.decided.iter().all(|map| map.array() == state.decided[0].array)
            && state.proposals.iter().all(|(.., map)| map.array() == state.decided[0].array)
    }

    fn is_whole_again(&self, state: &State) -> bool {
        let is_whole = |map: &Map| map.rows[0].serving().len() == u32::from(REPLICAS);
        state.decided.last().is_some_and(|map| map.epoch > 1 && is_whole(map))
            && state.ghost.acked > Stamp::default()
    }
}

impl Model for FleetModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::first(&self.bounds)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.control_actions(state, actions);
        self.data_actions(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        let is_data = matches!(
            action,
            Action::Issue
                | Action::Acknowledge(_)
                | Action::ClientLearn(_)
                | Action::Commit(..)
                | Action::Read(_)
                | Action::ForgetTombstone(_)
                | Action::Compare(_)
                | Action::Arrive(_)
                | Action::StartSettle(_)
                | Action::Settle(..)
                | Action::StartGrant(_)
                | Action::Grant(..)
        );
        if is_data { self.data(&mut next, action) } else { self.control(&mut next, action) }?;
        next.tidy(self.rules.is(Planted::AckOverTwoEpochs));
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always("durable if acknowledged", Self::acknowledged_is_durable),
            Property::always("what a reader saw stays (7a)", Self::seen_stays_seen),
            Property::always("replicas that answer readers agree", Self::readers_see_one_value),
            Property::always("what a settle decided stays", Self::settled_stays_settled),
            Property::always("single writer", |_, state: &State| !state.ghost.stale_commit),
            Property::always("a lease begins with equal replicas", |_, state: &State| {
                !state.ghost.unequal_grant
            }),
            Property::always("one activated map an epoch", |_, state: &State| !state.ghost.two_maps),
            Property::always("one owner a term", Self::one_owner_a_term),
            Property::always("no lease beyond its bound", Self::lease_within_bound),
            Property::always("a deprived SSD does not serve", Self::deprived_does_not_serve),
            Property::always("last copy never dropped", Self::last_copy_stays),
            Property::always("no acknowledgement over two epochs", |_, state: &State| !state.ghost.mixed_ack),
            Property::always("one array", Self::one_array),
            Property::sometimes("the last map is active", |model, state: &State| {
                state.decided.last().is_some_and(|map| map.epoch == model.bounds.epochs)
            }),
        ];
        if self.bounds.writes > 0 {
            all.push(Property::sometimes("a write is acknowledged", |_, state: &State| {
                state.ghost.acked > Stamp::default()
            }));
        }
        if self.bounds.returns {
            all.push(Property::sometimes("two copies serve again after a loss", Self::is_whole_again));
        }
        if self.bounds.leases > 1 {
            all.push(Property::sometimes("a second write lease is granted", |_, state: &State| {
                state.ghost.granted > 1
            }));
        }
        all
    }
}
