// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The share of an SSD that joins: which places it takes over from the others.
//!
//! ```text
//!   four SSDs, and SSD 4 joins    [0] [1]   [1] [2]   [2] [3]   [3] [0]   [0] [2]
//!   one in five of each column    [4] [1]   [1] [4]   [2] [3]   [3] [0]   [0] [2]
//! ```
//! Each column of places is judged by itself: a volume of r replicas uses the first r. An SSD gives what it
//! has above its own share. Which rows these are is drawn. So no more places move than the SSD gets. In a row
//! in which the SSD has only a place that no volume uses, it gives that one up for one with data.

use super::{FleetMap3, Row3};
use crate::placement::mix64;
use alloc::vec;
use alloc::vec::Vec;

impl FleetMap3 {
    /// For each row the place that the SSD takes over, if there is one. `weights` has the weight of each SSD;
    /// one with 0 has no share. Only places that serve are taken over. The SSD has no copy there of a volume
    /// of up to `most` replicas, and no other SSD comes in. The first places of a row, which volumes use, get
    /// no fewer nodes.
    pub fn share(&self, ssd: u16, weights: &[u32], most: u8) -> Vec<Option<u8>> {
        let mut taken = vec![None; self.rows.len()];
        let all: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
        let Some(own) = weights.get(usize::from(ssd)).copied().filter(|&own| own > 0) else { return taken };
        let order = self.order(ssd);
        for (place, column) in (0..self.width).zip(0usize..) {
            let mut has = vec![0u64; self.ssds.len()];
            for row in &self.rows {
                if let Some(has) = row.places[column].and_then(|at| has.get_mut(usize::from(at.ssd))) {
                    *has += 1;
                }
            }
            let places: u64 = has.iter().sum();
            let fair = |weight: u32| places * u64::from(weight) / all;
            let wants = fair(own).saturating_sub(has[usize::from(ssd)]);
            let above = |(other, &has): (usize, &u64)| {
                let weight = weights.get(other).copied().unwrap_or(0);
                if other == usize::from(ssd) { 0 } else { has.saturating_sub(fair(weight)) }
            };
            let above: Vec<u64> = has.iter().enumerate().map(above).collect();
            let mut gives = divided(wants, &above);
            for &row in &order {
                let may_take_over = || self.may_take_over(ssd, &self.rows[row], column, most);
                let of = taken[row].is_none().then(may_take_over).flatten();
                let Some(left) = of.and_then(|of| gives.get_mut(usize::from(of))).filter(|left| **left > 0)
                else {
                    continue;
                };
                *left -= 1;
                taken[row] = Some(place);
            }
        }
        taken
    }

    /// The rows in an order that is drawn.
    fn order(&self, ssd: u16) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        let drawn = |row: usize| mix64(self.seed ^ mix64((row as u64) << 17 | u64::from(ssd)));
        order.sort_by_key(|&row| drawn(row));
        order
    }

    /// The SSD of a place that this one may take over.
    fn may_take_over(&self, ssd: u16, row: &Row3, column: usize, most: u8) -> Option<u16> {
        let place = row.places[column].filter(|place| !place.filling && row.incoming.is_none())?;
        let own = row.places.iter().position(|at| at.is_some_and(|at| at.ssd == ssd));
        let is_there = own.is_some_and(|own| column >= usize::from(most) || own < row.used(most));
        let node = |ssd: u16| self.ssds.get(usize::from(ssd)).map(|known| known.node);
        let is_on = |of: u16, replicas: usize| {
            let others = row.places[..replicas].iter().enumerate().filter(|(at, _)| *at != column);
            others.into_iter().any(|(_, at)| at.is_some_and(|at| at.ssd != ssd && node(at.ssd) == node(of)))
        };
        // A volume of fewer replicas than the row has places uses the first ones.
        let keeps_nodes = (column + 1..=row.places.len())
            .all(|replicas| !is_on(ssd, replicas) || is_on(place.ssd, replicas));
        (!is_there && keeps_nodes).then_some(place.ssd)
    }
}

impl Row3 {
    /// Number of places that count as used by volumes of up to `most` replicas: at least one of them serves.
    fn used(&self, most: u8) -> usize {
        let serves = self.places.iter().position(|place| place.is_some_and(|place| !place.filling));
        serves.map_or(0, |at| at + 1).max(usize::from(most))
    }
}

/// Divides a number by these shares, and gives none more than its share.
fn divided(number: u64, shares: &[u64]) -> Vec<u64> {
    let all: u64 = shares.iter().sum();
    let number = number.min(all);
    let part = |&share: &u64| (u128::from(share) * u128::from(number)).checked_div(all.into()).unwrap_or(0);
    let mut parts: Vec<u64> = shares.iter().map(|share| u64::try_from(part(share)).unwrap_or(0)).collect();
    let mut left = number.saturating_sub(parts.iter().sum());
    for (part, share) in parts.iter_mut().zip(shares) {
        if left > 0 && *part < *share {
            (*part, left) = (*part + 1, left - 1);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};
    use crate::placement::FleetMap;
    use crate::placement::map3::{Incoming3, Ssd3, State3, Vote};
    use proptest::prelude::*;

    const WHOLE: u32 = 1 << 16;

    /// An array of SSDs, and one more without places on this node.
    fn joined(ssds: usize, groups: u32, seed: u64, node: u16) -> FleetMap3 {
        let mut map = FleetMap3::of(&FleetMap::equal(ssds, groups, seed, 1).unwrap(), [5; 16]);
        let last = map.ssds.last().unwrap().clone();
        map.ssds.push(Ssd3 { id: last.id + 1, node, vote: Vote::None, state: State3::In, ..last });
        map
    }

    /// The map in which the SSD has taken over.
    fn taken_over(map: &FleetMap3, ssd: u16, taken: &[Option<u8>]) -> FleetMap3 {
        let mut after = map.clone();
        for (row, place) in after.rows.iter_mut().zip(taken) {
            if let Some(place) = *place {
                row.places[usize::from(place)].as_mut().unwrap().ssd = ssd;
            }
        }
        after
    }

    fn column(map: &FleetMap3, ssd: u16, column: usize) -> usize {
        map.rows.iter().filter(|row| row.places[column].is_some_and(|at| at.ssd == ssd)).count()
    }

    #[test]
    fn an_ssd_that_joins_has_as_many_places_of_each_column_as_the_others() {
        let _deadline = Deadline::after(LIMIT);
        for ssds in 1..9usize {
            let map = joined(ssds, 1024, 7, u16::try_from(ssds).unwrap());
            let joins = u16::try_from(ssds).unwrap();
            let weights = vec![WHOLE; ssds + 1];
            let after = taken_over(&map, joins, &map.share(joins, &weights, 2));
            for at in 0..usize::from(map.width) {
                let fair = 1024 / (ssds + 1);
                let has: Vec<usize> = (0..=joins).map(|ssd| column(&after, ssd, at)).collect();
                assert_eq!(has[ssds], fair, "{ssds} SSDs, column {at}: {has:?}");
                assert!(has.iter().all(|&has| has <= fair + 8), "{ssds} SSDs, column {at}: {has:?}");
            }
            after.check().unwrap();
            assert!(after.share(joins, &weights, 2).iter().all(Option::is_none), "it has its share");
        }
    }

    #[test]
    fn half_the_weight_has_half_the_places_and_no_weight_none() {
        let _deadline = Deadline::after(LIMIT);
        let map = joined(4, 4096, 3, 4);
        let places = |weight| {
            let weights = [WHOLE, WHOLE, WHOLE, WHOLE, weight];
            map.share(4, &weights, 2).iter().flatten().count()
        };
        assert_eq!((places(WHOLE / 2), places(0)), (4 * (4096 / 9), 0));
        assert_eq!(map.share(9, &[WHOLE; 5], 2).iter().flatten().count(), 0, "there is no such SSD");
    }

    #[test]
    fn a_place_that_fills_stays_and_so_does_a_row_where_another_ssd_comes_in() {
        let _deadline = Deadline::after(LIMIT);
        let mut map = joined(4, 64, 3, 4);
        for row in &mut map.rows[..32] {
            row.places.iter_mut().flatten().for_each(|place| place.filling = true);
        }
        for row in &mut map.rows[32..] {
            row.incoming = Some(Incoming3 { ssd: 4, place: 0 });
        }
        assert!(map.share(4, &[WHOLE; 5], 2).iter().all(Option::is_none));
    }

    /// Nodes of the first places, which a volume of so many replicas uses.
    fn nodes(map: &FleetMap3, row: &Row3, replicas: usize) -> usize {
        let mut nodes: Vec<u16> =
            row.places[..replicas].iter().flatten().map(|at| map.ssds[usize::from(at.ssd)].node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.len()
    }

    proptest! {
        #[test]
        fn joining_moves_no_more_than_the_share_and_no_group_has_two_places_in_a_node_for_it(
            ssds in 1usize..12, groups in 4u32..11, seed in any::<u64>(), node in 0u16..13,
            weights in prop::collection::vec(prop_oneof![Just(0), WHOLE / 4..4 * WHOLE], 13),
            nodes_of in prop::option::of(prop::collection::vec(0u16..6, 12)),
        ) {
            let _deadline = Deadline::after(LIMIT);
            let mut map = joined(ssds, 1 << groups, seed, node);
            for (known, node) in map.ssds.iter_mut().zip(nodes_of.iter().flatten()) {
                known.node = *node;
            }
            let joins = u16::try_from(ssds).unwrap();
            let equal = vec![WHOLE; ssds + 1];
            for weights in [&weights[..=ssds], &equal] {
                let taken = map.share(joins, weights, 2);
                let after = taken_over(&map, joins, &taken);
                prop_assert_eq!(after.check(), Ok(()), "no SSD is in a row twice");
                let moved = taken.iter().flatten().count();
                let places = map.rows.len() * usize::from(map.width);
                let all: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
                let share = (places as u64 * u64::from(weights[ssds])).checked_div(all).unwrap_or(0);
                prop_assert!(moved as u64 <= share);
                for (old, new) in map.rows.iter().zip(&after.rows) {
                    for replicas in 1..=old.places.len() {
                        prop_assert!(nodes(&after, new, replicas) >= nodes(&map, old, replicas));
                    }
                }
            }
            // The bound of an array in which each SSD weighs the same.
            let moved = map.share(joins, &equal, 2).iter().flatten().count();
            prop_assert!(2 * moved * (ssds + 1) <= 3 * map.rows.len() * usize::from(map.width));
        }
    }
}
