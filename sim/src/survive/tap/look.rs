// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls from the world to the tap, and results that the world takes from it.

use super::Leases;
use crate::survive::node::Asked;
use crate::survive::stats::Path;
use crate::survive::world::World;

impl World {
    /// An SSD asks another one.
    pub(in crate::survive) fn note_ask(&mut self, own: u16, (ask, _, question): &Asked) {
        if Leases::is_ask(question.sqe.opcode) {
            let now = self.post.now;
            let shown = self.nodes[usize::from(own)].clock().shows(now);
            self.post.tap.leases.asks(own, *ask, &question.data, (now, shown));
        }
    }

    /// Daemons may have activated maps: the leases that they end are over.
    pub(in crate::survive) fn leases_end(&mut self) {
        let (now, nodes) = (self.post.now, &self.nodes);
        let clock =
            |ssd: u16| nodes.get(usize::from(ssd)).filter(|node| node.is_up()).map(|node| node.clock());
        let early = self.post.tap.leases.too_early(now, clock);
        (0..self.post.tap.leases.take_spared()).for_each(|_| self.post.stats.path(Path::LeaseSpared));
        if let Some(facts) = early {
            self.history.broken(now, "a map is active before a lease that it ends is over (rule 2b)", facts);
        }
    }

    /// Reports a broken promise that the tap has found.
    pub(in crate::survive) fn look_at_tap(&mut self) {
        if let Some((rule, facts)) = self.post.tap.take_broken() {
            self.history.broken(self.post.now, rule, facts);
        }
    }
}
