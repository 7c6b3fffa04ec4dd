// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks which writers reach an SSD that gets places. No map gives it a place before each writer has said
//! that it reaches the SSD, or was given its time. Otherwise that writer could not write.
//!
//! ```text
//!   SSD F is killed      F starts      writer: Renew, I reach F      a map has F fill
//! ```
//! Seen are calls that arrive at daemons, what links tell them, maps that clients get, and starts of SSDs.

use crate::survive::world::World;
use gnstor_base::time::{Span, Time};
use gnstor_daemon::core::request::Request;
use gnstor_proto::placement::{AnyMap, Rows as _};

/// A writer has so long to say that it reaches an SSD. Clocks may run off by some of it.
const REACH: Span = Span::from_ms(4_900);
/// A lease that ends within this time may be over for the daemon.
const ENDS: Span = Span::from_ms(200);

/// The SSDs that fill, or come in.
fn fills(map: &AnyMap) -> Vec<u16> {
    let of = |group| {
        let fills = map.row(group).flatten().filter(|place| place.filling).map(|place| place.ssd);
        fills.chain(map.incoming(group).map(|incoming| incoming.ssd)).collect::<Vec<_>>()
    };
    let mut all: Vec<u16> = (0..map.groups()).flat_map(of).collect();
    all.sort_unstable();
    all.dedup();
    all
}

impl World {
    /// A call arrives at a daemon.
    pub(super) fn note_reach(&mut self, client: usize, request: &Request) {
        let Request::Renew { reaches: Some(reaches), .. } = request else { return };
        for ssd in (0..self.shape.all_ssds()).filter(|ssd| reaches >> ssd & 1 == 1) {
            self.reached.insert((client, ssd), self.post.now);
        }
    }

    /// A client has got a newer map than all before.
    pub(super) fn check_reach(&mut self) {
        let now = self.post.now;
        let [before, map] = self.history.newest_maps();
        let (Some(before), Some(map)) = (before, map) else { return };
        // Writers need an SSD that has other places already.
        let has_place = |ssd: u16| {
            (0..before.groups()).any(|group| before.row(group).flatten().any(|place| place.ssd == ssd))
        };
        let known = fills(&before);
        for ssd in fills(&map).into_iter().filter(|ssd| !known.contains(ssd) && !has_place(*ssd)) {
            let node = &self.nodes[usize::from(ssd)];
            // The map may have been made before the SSD was lost, by an earlier daemon perhaps, and be active
            // only now.
            let held = self.post.tap.leases.made_at(&map);
            let last = node.started_at.max(node.stopped_at);
            let is_made_since = held.is_some_and(|at| at > last);
            if node.stopped_at == Time::ZERO || node.started_at + REACH <= now || !is_made_since {
                continue;
            }
            // A writer had less time to say so.
            if self.has_leapt(node.stopped_at) {
                continue;
            }
            // A daemon that had lost it before knows of one loss, and believes what was said since then.
            let lost = self.leader().map_or(Time::ZERO, |daemon| daemon.lost_at(ssd));
            // Its links broke unheard, or it was back before they did: it made the map in good faith.
            if held.is_some_and(|at| at < lost) {
                continue;
            }
            let since = node.stopped_at.min(lost);
            let said = |client: usize| self.reached.get(&(client, ssd)).is_some_and(|at| *at >= since);
            let late = self.clients.iter().enumerate().find(|(at, client)| {
                // The daemon whose clock leapt since may have ended the lease.
                let held = client.write_lease().is_some_and(|(opened, span)| {
                    opened < node.started_at && client.lease_until().before(span) > self.daemon_leapt_at
                });
                held && client.lease_until() > now + ENDS && !said(*at)
            });
            if let Some((client, _)) = late {
                let facts =
                    format!("epoch {}: SSD {ssd} fills, and client {client} does not reach it", map.epoch());
                return self.history.broken(now, "an SSD got places before a writer reached it", facts);
            }
        }
    }
}
