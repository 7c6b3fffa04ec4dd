// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fewest replicas of the volumes, by which a map is judged.

use super::Changes;
use super::state::Proposed;
use crate::core::request::{Create, Request};
use crate::core::{Core, Ticket};
use gnstor_proto::vendor::MAX_REPLICAS;

impl Changes {
    /// Whether a volume waits for a map that is judged by fewer replicas.
    pub(super) fn is_to_be_judged_anew(&self) -> bool {
        !self.parked.is_empty()
    }
}

impl Core {
    /// The smallest number of replicas of all volumes: present ones, ones found at the start, and ones to be
    /// created.
    pub(in crate::core) fn fewest(&self) -> u8 {
        let volumes = self.volumes.values().map(|volume| volume.entry.replicas);
        let parked = self.changes.parked.iter().filter_map(|(_, request)| self.replicas(request).ok());
        volumes.chain(self.changes.found_fewest).chain(parked).min().unwrap_or(MAX_REPLICAS)
    }

    /// Whether a volume with this number of replicas has to wait. It does if a map may still be decided, or
    /// is being decided, that was judged by other numbers of replicas.
    fn must_wait(&self, replicas: u8) -> bool {
        if self.map_of_voters().is_none() {
            return false;
        }
        let others = self.volumes.values().any(|volume| volume.entry.replicas <= replicas);
        let is_first = !others && self.changes.judged.is_none_or(|judged| judged > replicas);
        let judges = |round: &Proposed| round.fewest > replicas || round.most < replicas;
        is_first || self.changes.round.as_ref().is_some_and(judges)
    }

    /// Makes a Create wait for the next map if it must. Otherwise returns it.
    pub(in crate::core) fn park(&mut self, now: u64, ticket: Ticket, request: Create) -> Option<Create> {
        let replicas = self.replicas(&request).ok();
        if !replicas.is_some_and(|replicas| self.must_wait(replicas)) {
            return Some(request);
        }
        self.changes.parked.push((ticket, request));
        self.change_step(now);
        None
    }

    /// Creates that were answered wait for no map any more.
    pub(in crate::core) fn forget_parked(&mut self) {
        let Self { changes, tickets, .. } = self;
        changes.parked.retain(|(ticket, _)| tickets.contains_key(ticket));
    }

    /// Continues the Creates that waited for this map.
    pub(super) fn create_parked(&mut self, now: u64) {
        for (ticket, request) in std::mem::take(&mut self.changes.parked) {
            self.dispatch(now, ticket, Request::Create(request));
        }
    }
}
