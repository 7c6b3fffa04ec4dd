// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All orders of two changes of one block beside its fill, exhaustively. Each change goes by the old map (the
//! first alone) or by the new one (both). It may start over by the new one with its stamp.

use super::*;
use crate::deadline::{Deadline, LIMIT};
use std::collections::HashSet;
use std::vec::Vec;

/// A mistake that is planted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    None,
    /// An untouched block keeps its own copy if its stamp is higher.
    UntouchedKeepsItsOwn,
    /// A touched block takes a copy with a lower stamp.
    TouchedTakesALowerStamp,
    /// A TRIM leaves no tombstone where the place fills.
    TombstoneForgotten,
    /// The first lists no tombstones.
    FirstListsNoTombstones,
    /// The first answers before it has the epoch in which the place fills.
    FirstIsBehind,
    /// A compared block still counts as of an earlier life.
    ComparedIsForgotten,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Change {
    what: Held,
    by_new_map: bool,
    at_first: bool,
    at_filling: bool,
    is_acknowledged: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    first_has_epoch: bool,
    first: Held,
    filling: Filling,
    /// The copy on its way.
    copy: Option<Held>,
    is_walked: bool,
    changes: [Change; 2],
}

fn apply_at_first(first: &mut Held, what: Held) {
    if first.is_older_than(what.stamp()) {
        *first = what;
    }
}

impl World {
    fn write_at_filling(&mut self, what: Held, mistake: Mistake) {
        self.filling.write(what);
        if mistake == Mistake::TombstoneForgotten && matches!(self.filling.held, Held::Tombstone { .. }) {
            self.filling.held = Held::Nothing;
        }
    }

    fn take_copy(&mut self, theirs: Held, mistake: Mistake) {
        let own = self.filling;
        match mistake {
            Mistake::UntouchedKeepsItsOwn if !own.is_current && own.held.stamp() > theirs.stamp() => {}
            Mistake::TouchedTakesALowerStamp if own.is_current => self.filling.held = theirs,
            _ => _ = self.filling.copy(theirs),
        }
        if mistake == Mistake::ComparedIsForgotten {
            self.filling.is_current = own.is_current;
        }
    }

    /// All possible next states.
    fn next(&self, mistake: Mistake) -> Vec<Self> {
        let mut next = Vec::new();
        let mut add = |change: &dyn Fn(&mut Self)| {
            let mut world = self.clone();
            change(&mut world);
            next.push(world);
        };
        add(&|world| world.first_has_epoch = true);
        if self.copy.is_none()
            && !self.is_walked
            && (self.first_has_epoch || mistake == Mistake::FirstIsBehind)
        {
            let hides = mistake == Mistake::FirstListsNoTombstones;
            let shown = self.first;
            let shown = if hides && matches!(shown, Held::Tombstone { .. }) { Held::Nothing } else { shown };
            add(&|world| world.copy = Some(shown));
        }
        if let Some(theirs) = self.copy {
            add(&|world| {
                world.take_copy(theirs, mistake);
                (world.copy, world.is_walked) = (None, true);
            });
        }
        for (at, change) in self.changes.iter().enumerate().filter(|(_, change)| !change.is_acknowledged) {
            if !change.at_first && change.by_new_map == self.first_has_epoch {
                add(&|world| {
                    world.changes[at].at_first = true;
                    apply_at_first(&mut world.first, change.what);
                });
            }
            if change.by_new_map && !change.at_filling {
                add(&|world| {
                    world.changes[at].at_filling = true;
                    world.write_at_filling(change.what, mistake);
                });
            }
            if !change.by_new_map {
                let again = Change { by_new_map: true, at_first: false, ..*change };
                add(&|world| world.changes[at] = again);
            }
            if change.at_first && (change.at_filling || !change.by_new_map) {
                add(&|world| world.changes[at].is_acknowledged = true);
            }
        }
        next
    }

    /// After the walk, with every change acknowledged, both read the same. At any time after the walk the
    /// filling SSD has what was acknowledged, or something newer.
    fn is_right(&self) -> bool {
        let acknowledged = self.changes.iter().filter(|change| change.is_acknowledged);
        let highest = acknowledged.clone().map(|change| change.what).max_by_key(|what| what.stamp());
        let lacks = highest.is_some_and(|highest| {
            matches!(highest, Held::Block { .. }) && self.filling.held.stamp() < highest.stamp()
        });
        let all = acknowledged.count() == self.changes.len();
        !self.is_walked || !lacks && (!all || self.filling.held.reads_as(self.first))
    }
}

fn stamp(sequence: u64) -> Stamp {
    Stamp { lease_epoch: 1, sequence }
}

fn block(sequence: u64) -> Held {
    Held::Block { stamp: stamp(sequence), sum: u32::try_from(sequence).unwrap() }
}

/// Number of states that were reached, and one that is wrong.
fn explore(mistake: Mistake) -> (usize, Option<World>) {
    let trim = |sequence| Held::Tombstone { stamp: stamp(sequence) };
    let change =
        |what| Change { what, by_new_map: false, at_first: false, at_filling: false, is_acknowledged: false };
    let mut open = Vec::new();
    for first in [Held::Nothing, block(2)] {
        for left_over in [Held::Nothing, block(1), block(2), block(9)] {
            for whats in [[block(3), block(4)], [block(3), trim(4)], [trim(3), block(4)], [trim(3), trim(4)]]
            {
                let filling = Filling { held: left_over, is_current: false };
                let changes = whats.map(change);
                let (first_has_epoch, copy, is_walked) = (false, None, false);
                open.push(World { first_has_epoch, first, filling, copy, is_walked, changes });
            }
        }
    }
    let mut met: HashSet<World> = open.iter().cloned().collect();
    while let Some(world) = open.pop() {
        if !world.is_right() {
            return (met.len(), Some(world));
        }
        for next in world.next(mistake) {
            if met.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    (met.len(), None)
}

#[test]
fn one_comparison_of_each_block_is_enough() {
    let _deadline = Deadline::after(LIMIT);
    let (met, wrong) = explore(Mistake::None);
    assert_eq!(wrong, None);
    assert!(met > 1000, "{met} states");
}

#[test]
fn planted_mistakes_are_found() {
    let _deadline = Deadline::after(LIMIT);
    for mistake in [
        Mistake::UntouchedKeepsItsOwn,
        Mistake::TouchedTakesALowerStamp,
        Mistake::TombstoneForgotten,
        Mistake::FirstListsNoTombstones,
        Mistake::FirstIsBehind,
        Mistake::ComparedIsForgotten,
    ] {
        assert!(explore(mistake).1.is_some(), "{mistake:?}");
    }
}

#[test]
fn a_settle_moves_what_differs_and_a_trim_that_is_known_is_listed() {
    let _deadline = Deadline::after(LIMIT);
    assert!(settles(block(9), block(1)) && settles(block(1), Held::Nothing));
    assert!(!settles(block(1), block(1)) && !settles(Held::Tombstone { stamp: stamp(3) }, Held::Nothing));
    assert_eq!(listed(None, Some(stamp(3))), Held::Tombstone { stamp: stamp(3) });
    assert_eq!((listed(None, None), listed(Some(block(2)), Some(stamp(2)))), (Held::Nothing, block(2)));
}
