// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks of the array's state, beside the daemon's answers.

use super::Run;
use gnstor_fleet::map::FleetView as _;
use gnstor_fleet::set::SsdSet;
use gnstor_proto::placement::AnyMap;
use gnstor_proto::placement::map3::{Place3, Row3, State3};
use gnstor_proto::slba::Vid;
use std::collections::BTreeSet;

impl Run {
    /// A daemon that starts trusts the table of a member with the content that the map means. Without such a
    /// member it needs all members: an empty SSD in the place of one is none of them.
    pub(super) fn may_start(&self) -> bool {
        let Some(AnyMap::Three(map)) = self.bench.array.newest() else { return true };
        let is_named = |index: usize| map.ssds[index].is(&self.bench.array.ssd(index).vote.uuid);
        let serves = |index: usize| {
            let places = || map.rows.iter().flat_map(|row| row.places).flatten();
            places().any(|place| usize::from(place.ssd) == index && !place.filling)
        };
        let has_content = |index: usize| {
            // An SSD whose copies were called lost may have no table yet.
            let begins_empty = map.ssds[index].state == State3::Absent && !serves(index);
            is_named(index)
                && !begins_empty
                && map.ssds[index].incarnation == self.bench.array.ssd(index).vote.incarnation
        };
        let named = self.bench.array.len().min(map.ssds.len());
        let members = || (0..named).filter(|&index| map.ssds[index].state != State3::Out);
        members().any(has_content) || members().all(is_named)
    }

    /// The voters that have forgotten nothing are a majority without this SSD.
    pub(super) fn may_swap(&self, ssd: usize) -> bool {
        let Some(AnyMap::Three(map)) = self.bench.array.newest() else { return false };
        let is_whole = |voter: &u16| {
            let index = usize::from(*voter);
            index != ssd && map.ssds[index].is(&self.bench.array.ssd(index).vote.uuid)
        };
        let whole: SsdSet = map.voters().iter().filter(is_whole).collect();
        whole.is_majority_of(map.voters())
    }

    /// Each place of each group has an SSD that serves it.
    pub(super) fn is_whole(&self) {
        let Some(AnyMap::Three(map)) = self.bench.array.newest() else { return };
        let serves = |place: &Option<Place3>| place.is_some_and(|place| !place.filling);
        let width = usize::from(map.width);
        let is_whole = |row: &Row3| row.places[..width].iter().all(serves) && row.incoming.is_none();
        let not_whole = map.rows.iter().position(|row| !is_whole(row));
        assert_eq!(not_whole, None, "{:?} {:?}", not_whole.map(|row| map.rows[row]), map.ssds);
    }

    /// The volumes that are on every SSD that takes part, and their replicas.
    pub(super) fn volumes(&self) -> BTreeSet<(Vid, u32, u8)> {
        let there = (0..self.bench.array.len()).filter(|&ssd| !self.bench.array.is_out(ssd));
        let all = there.map(|ssd| self.bench.array.ssd(ssd).active().into_iter());
        let sets = all.map(|entries| entries.map(|e| (e.vid, e.generation, e.replicas)).collect());
        sets.reduce(|a: BTreeSet<_>, b| &a & &b).unwrap_or_default()
    }
}
