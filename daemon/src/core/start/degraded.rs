// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The start of an array whose map names no voters, without some of its members.
//!
//! ```text
//!   Maps   SSD 0: format 2   SSD 1: format 2   SSD 2: not there for 2 s, or without a map beside volumes
//!   then   0 and 1 take the map with a new term, and their tables are read; 2 counts as away
//! ```
//! Each change of a volume is on all members before its caller hears of it. So the table of one member that
//! is there has all volumes. Each write is on all copies before it is acknowledged, so each copy that is
//! there is right. While a member is away the daemon changes no volume but the list of its readers, as after
//! a loss while it serves. So two daemons that reach different members grant no two write leases. The members
//! know the higher term when they are reached again, and refuse the other daemon.
//!
//! A member that is reached, and does not answer, is waited for. It may have taken a newer map.

use super::{Progress, Reach, Start, Step};
use crate::core::Core;
use crate::core::absence::WITHOUT_A_MAP;
use crate::core::members::members_of;
use gnstor_proto::placement::AnyMap;
use std::collections::BTreeSet;

/// Sides that starts without some members take. With this number the client ids of such starts, 1,024 for a
/// term, do not meet those of the start before.
const SIDES: u64 = 61;
/// Steps of so many terms that a start draws from.
const DRAWN: u64 = 16;

/// How much further than `term` a start without some members goes. `first` is the first member that it
/// reaches, and `instance` a drawn number. Two daemons that reach no common member have other first members,
/// and so they get other terms. Two with the same first member mostly draw other ones.
pub(super) fn apart(term: u64, first: u16, instance: u64) -> u64 {
    let side = u64::from(first) % SIDES;
    (side + SIDES - term % SIDES) % SIDES + SIDES * (instance % DRAWN)
}

impl Start {
    /// The first member that the start reaches.
    pub(super) fn first(&self) -> u16 {
        let reached = (0u16..)
            .zip(&self.probes)
            .find(|(ssd, probe)| !self.without.contains(ssd) && probe.map.is_some());
        reached.map_or(0, |(ssd, _)| ssd)
    }

    /// The start goes on without members of a map of format 2.
    pub(super) fn is_degraded(&self) -> bool {
        !self.without.is_empty() && matches!(self.newest(), Some(AnyMap::Two(_)))
    }

    /// Whether the members that have not answered are all known not to be there, and others are.
    pub(super) fn may_do_without_others(&self, answered: &BTreeSet<u16>) -> bool {
        let may = matches!(self.step, Step::Maps | Step::Survey | Step::Says | Step::Publish | Step::Tables);
        let silent = |probe: &&super::Probe| probe.progress != Progress::Answered;
        let has_map = |ssd: &u16| self.probes.get(usize::from(*ssd)).is_some_and(|probe| probe.map.is_some());
        may && answered.iter().any(has_map)
            && self.probes.iter().filter(silent).all(|probe| probe.reach == Reach::None)
    }

    /// Goes on without the members that have no map, if another one has a map of format 2.
    pub(super) fn go_on_without_mapless(&mut self) -> bool {
        let Some(map @ AnyMap::Two(_)) = self.newest() else { return false };
        let members = members_of(map);
        let is_mapless =
            |ssd: &u16| self.probes.get(usize::from(*ssd)).is_some_and(|probe| probe.map.is_none());
        let mapless: BTreeSet<u16> = members.into_iter().filter(is_mapless).collect();
        for &ssd in &mapless {
            self.probes[usize::from(ssd)].trouble = Some(WITHOUT_A_MAP.into());
        }
        self.without.extend(&mapless);
        self.mapless = mapless;
        !self.mapless.is_empty()
    }
}

impl Core {
    /// The members without which a start in format 2 goes on, and why.
    pub(super) fn members_without(&self) -> Vec<(u16, String)> {
        let crate::core::Phase::Starting(start) = &self.phase else { return Vec::new() };
        if !start.is_degraded() {
            return Vec::new();
        }
        let mut missing = self.members.missing(false);
        let why = |ssd: u16| {
            let trouble = start.probes.get(usize::from(ssd)).and_then(|probe| probe.trouble.clone());
            let known = trouble.filter(|_| start.mapless.contains(&ssd));
            let why = known.or_else(|| missing.remove(&ssd));
            (ssd, why.unwrap_or_else(|| "it does not answer".into()))
        };
        start.without.iter().copied().map(why).collect()
    }
}
