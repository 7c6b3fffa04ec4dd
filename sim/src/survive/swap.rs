// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When all is whole, an SSD is exchanged for an empty one, and the operator gives it the place. If the SSD
//! before had the last copies of blocks, the operator gives these up, and nothing is judged of them any more.
//! All other blocks must be there, also where the empty SSD serves them.
//!
//! ```text
//!   0      0..2 s                     30 s at most
//!   gone   an empty one is there      fleet replace, until the map names it      all heals
//! ```

use crate::survive::node::Node;
use crate::survive::stats::Path;
use crate::survive::world::World;
use gnstor_base::time::Span;
use gnstor_daemon::core::request::Request;
use gnstor_proto::placement::AnyMap;
use gnstor_proto::placement::map3::{FleetMap3, State3};

/// The map names the empty SSD within this time.
const NAMED: Span = Span::from_ms(30_000);
/// Interval of the operator's calls.
const CALLS: Span = Span::from_ms(500);

impl World {
    /// Returns false if something is wrong.
    pub(super) fn swap(&mut self) -> bool {
        let ssd = self.chaos.dice.below(self.shape.with_blocks().into()) as usize;
        self.post.stats.path(Path::Swapped);
        self.one_daemon();
        self.say(|| format!("SSD {ssd} is exchanged for an empty one"));
        self.down(ssd, false);
        self.pass(0, 2_000);
        let index = self.nodes[ssd].index;
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&self.chaos.dice.bits().to_le_bytes());
        uuid[8..].copy_from_slice(&(self.chaos.dice.bits() | 1).to_le_bytes());
        match Node::new(self.shape.ssd(index), uuid, self.nodes[ssd].clock()) {
            Ok(mut node) => {
                node.life += self.nodes[ssd].life;
                self.nodes[ssd] = node;
            }
            Err(cause) => {
                let now = self.post.now;
                self.history.broken(now, "an SSD does not start", format!("SSD {ssd}: {cause}"));
                return false;
            }
        }
        self.wake_node(ssd, self.post.now);
        let most = self.post.now + NAMED;
        while self.history.violation.is_none() {
            let Some(map) = self.map_of_three() else { return false };
            if map.ssds[ssd].uuid == uuid {
                return true;
            }
            if self.post.now >= most {
                let (now, facts) = (self.post.now, self.unrest());
                self.history.broken(now, "an empty SSD does not get the place", facts);
                break;
            }
            self.replace(index, &map);
            // The daemon checks an SSD that was lost too often only when it is resumed.
            self.operate();
            self.run(self.post.now + CALLS);
        }
        false
    }

    /// An operator who exchanges an SSD has one daemon. Another one, begun before the array had a map, would
    /// take the empty SSD for one of a fresh array. Then an operator has to format it again.
    fn one_daemon(&mut self) {
        let Some(leader) = self.leader().map(|daemon| daemon.number) else { return };
        let numbers: Vec<u64> = self.daemons.iter().map(|daemon| daemon.number).collect();
        numbers.into_iter().filter(|number| *number != leader).for_each(|number| self.kill_daemon(number));
        self.clients.iter_mut().for_each(|client| client.daemon = leader);
    }

    fn map_of_three(&self) -> Option<FleetMap3> {
        match self.newest_map()? {
            AnyMap::Three(map) => Some(map),
            AnyMap::Two(_) => None,
        }
    }

    /// The operator calls, if the map says by now that the SSD is gone.
    fn replace(&mut self, ssd: u16, map: &FleetMap3) {
        let lose_data = match map.ssds[usize::from(ssd)].state {
            State3::Absent => true,
            State3::Out => false,
            State3::In | State3::Full | State3::Spare => return,
        };
        // An SSD that has left is resumed first.
        let fleet = self.leader().and_then(|daemon| daemon.core.fleet());
        if fleet.is_some_and(|fleet| fleet.ssds[usize::from(ssd)].taken_out) {
            return self.stays(ssd);
        }
        let leader = self.leader().map(|daemon| daemon.number);
        let Some(daemon) = self.daemons.iter_mut().find(|of| Some(of.number) == leader) else { return };
        if lose_data {
            self.history.give_up(map, ssd);
            self.post.stats.path(Path::CalledLost);
        }
        self.post.note(|| format!("the operator replaces SSD {ssd}, lost: {lose_data}"));
        daemon.operator(self.post.now, Request::Replace { ssd, lose_data });
        self.wake_daemons(self.post.now);
    }
}
