// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD joins while clients work and faults happen, as by `gnstor fleet add`. It runs from the start on,
//! and is empty. The operator calls again until a map names it: the daemon may be killed meanwhile, and one
//! that starts is given the SSDs without it. Clients connect to it when they get a map that names it.
//!
//! ```text
//!   add, each 250 ms     a map names it     all writers reach it     it has filled
//!                                           it comes in              it serves its share
//! ```

use crate::survive::chaos::Ending;
use crate::survive::node::Node;
use crate::survive::stats::Path;
use crate::survive::world::World;
use gnstor_base::time::{Span, Time};
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::{Add, Found};
use gnstor_proto::placement::{AnyMap, Rows as _};
use gnstor_proto::ssd_identity::SsdSays;

/// Interval of the operator's calls.
const CALLS: Span = Span::from_ms(250);
/// A share like that of the others.
const WHOLE_WEIGHT: u32 = 1 << 16;

/// The address of an SSD, in worlds in which one joins.
pub(super) fn address_of(ssd: u16) -> String {
    format!("10.0.0.{}:4420", ssd + 1)
}

impl World {
    /// The operator adds the SSD, and looks again later whether a map names it.
    pub(super) fn joins(&mut self) {
        if self.adds() {
            self.chaos.end_at(self.post.now + CALLS, Ending::Join);
        }
    }

    /// The operator adds the SSD that is to join, if no map names it yet. Returns whether one may have to be
    /// added again.
    pub(super) fn adds(&mut self) -> bool {
        let ssd = self.shape.ssds;
        let is_named = |map: &AnyMap| matches!(map, AnyMap::Three(map) if map.ssds.len() > ssd.into());
        if self.shape.joins.is_none() || self.newest_map().as_ref().is_some_and(is_named) {
            return false;
        }
        let now = self.post.now;
        let leader = self.leader().filter(|daemon| daemon.core.is_serving()).map(|daemon| daemon.number);
        let daemon = self.daemons.iter_mut().find(|of| Some(of.number) == leader);
        if let (Some(daemon), Some(found)) = (daemon, found(&self.nodes[usize::from(ssd)], now)) {
            let add = Add {
                address: address_of(ssd),
                spare: false,
                node: None,
                rack: 0,
                weight: WHOLE_WEIGHT,
                found: Some(found),
            };
            daemon.operator(now, Request::Add(Box::new(add)));
            self.post.note(|| format!("the operator adds SSD {ssd}"));
            self.wake_daemons(now);
        }
        true
    }

    /// Whether the SSD that is to join has done so, or none is.
    pub(super) fn has_joined(&self) -> bool {
        let ssd = usize::from(self.shape.ssds);
        let fleet = self.leader().and_then(|daemon| daemon.core.fleet());
        self.shape.joins.is_none() || fleet.is_some_and(|fleet| fleet.ssds.len() > ssd)
    }

    /// All is whole: counts the SSD that has joined, if it serves blocks.
    pub(super) fn count_joined(&mut self) {
        let ssd = self.shape.ssds;
        let serves = |map: &AnyMap| {
            let mut rows = (0..map.groups()).map(|group| map.row(group).flatten());
            rows.any(|mut row| row.any(|place| place.ssd == ssd && !place.filling))
        };
        if self.shape.joins.is_some() && self.newest_map().as_ref().is_some_and(serves) {
            self.post.stats.path(Path::Joined);
        }
    }
}

/// An SSD's report about itself, if it answers.
fn found(node: &Node, now: Time) -> Option<Found> {
    let worker = node.worker().filter(|_| node.still_until <= now)?;
    let ssd = worker.ssd();
    let identity = ssd.identity();
    let array = ssd.fleet_map().map(|map| match map {
        AnyMap::Three(map) => map.array,
        AnyMap::Two(_) => [0; 16],
    });
    let says = SsdSays {
        uuid: identity.uuid,
        incarnation: identity.incarnation,
        takes_map3: true,
        is_lossy: ssd.boot().is_lossy(),
        capacity_bytes: node.capacity_bytes(),
    };
    let volume = ssd.volume_entries().into_values().next().map(|entry| entry.name.clone());
    Some(Found { ssd: node.index, says: Some(says), array, volume })
}
