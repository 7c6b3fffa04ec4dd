// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a daemon uses the voters' answers: they elect it, and they decide one map after another.
//!
//! ```text
//!   Candidate --majority of promises--> Lead { active, again } --Round: held by a majority--> wait, active
//! ```

use crate::lease::Timing;
use crate::map::FleetView;
use crate::set::SsdSet;
use crate::voter::{Held, Promise};
use crate::{ArrayId, Instance, SsdId, Term};
use alloc::collections::BTreeMap;

/// A daemon that asks for a term.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Candidate<M> {
    /// The array that it serves.
    pub array: ArrayId,
    /// The term.
    pub term: Term,
    /// This start of the daemon.
    pub instance: Instance,
    /// The SSDs that granted it.
    pub granted: SsdSet,
    /// The newest active map that one of them knows.
    pub active: Option<M>,
    /// The newest map that one of them holds.
    pub held: Option<Held<M>>,
}

/// A daemon that a majority has elected.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lead<M> {
    /// The map that is active.
    pub active: M,
    /// A newer map that may have been decided. It is proposed first, unchanged.
    pub again: Option<M>,
}

/// The term to ask for, above all terms in `seen`. `None` if the terms are used up.
pub fn next_term(seen: impl IntoIterator<Item = Term>) -> Option<Term> {
    seen.into_iter().max().unwrap_or(0).checked_add(1)
}

impl<M: FleetView> Candidate<M> {
    /// A daemon begins to ask.
    pub fn new(array: ArrayId, term: Term, instance: Instance) -> Self {
        Self { array, term, instance, granted: SsdSet::EMPTY, active: None, held: None }
    }

    /// A voter granted the term. An SSD of another array does not count, whatever its epoch (rule 3b).
    pub fn promised(&mut self, voter: SsdId, promise: Promise<M>) {
        if promise.array != self.array || promise.active.array() != self.array {
            return;
        }
        self.granted = self.granted.with(voter);
        if self.active.as_ref().is_none_or(|known| promise.active.epoch() > known.epoch()) {
            self.active = Some(promise.active);
        }
        let order = |held: &Held<M>| (held.map.epoch(), held.term);
        if let Some(held) = promise.held
            && self.held.as_ref().is_none_or(|known| order(&held) > order(known))
        {
            self.held = Some(held);
        }
    }

    /// The leadership, once a majority of the voters of the newest active map has granted the term.
    pub fn elected(&self) -> Option<Lead<M>> {
        let active = self.active.clone()?;
        if !self.granted.is_majority_of(active.voters()) {
            return None;
        }
        let again = self.held.as_ref().map(|held| held.map.clone());
        let again = again.filter(|map| map.epoch() > active.epoch());
        Some(Lead { active, again })
    }
}

/// A map on its way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Round<M> {
    /// The map.
    pub map: M,
    /// The voters that hold it.
    pub held_by: SsdSet,
    /// Time at which a majority was known to hold it, on the leader's clock.
    pub decided_at: Option<u64>,
    /// By SSD, the voters that hold the map and had heard the SSD's goodbye before.
    pub goodbyes: BTreeMap<SsdId, SsdSet>,
}

impl<M: FleetView> Round<M> {
    /// A map that no voter holds yet.
    pub fn new(map: M) -> Self {
        Self { map, held_by: SsdSet::EMPTY, decided_at: None, goodbyes: BTreeMap::new() }
    }

    /// Notes that a voter holds the map. `voters` are the voters of the active map.
    pub fn held(&mut self, voter: SsdId, voters: SsdSet, now: u64) {
        self.held_by = self.held_by.with(voter);
        if self.decided_at.is_none() && self.held_by.is_majority_of(voters) {
            self.decided_at = Some(now);
        }
    }

    /// Notes that a voter that holds the map has heard the goodbyes of these SSDs.
    pub fn heard_goodbyes(&mut self, voter: SsdId, of: SsdSet) {
        for ssd in of.iter() {
            let heard = self.goodbyes.entry(ssd).or_insert(SsdSet::EMPTY);
            *heard = heard.with(voter);
        }
    }

    /// The SSDs whose goodbyes a majority of the voters has heard.
    pub fn gone(&self, voters: SsdSet) -> SsdSet {
        let gone = self.goodbyes.iter().filter(|(_, heard)| heard.is_majority_of(voters));
        gone.map(|(&ssd, _)| ssd).collect()
    }

    /// Whether the map may become active: a majority holds it, and each lease that it ends is over. A lease
    /// is also over if its SSD gave it up (`goodbyes`).
    pub fn may_activate(&self, now: u64, timing: Timing, goodbyes: SsdSet) -> bool {
        let Some(decided_at) = self.decided_at else { return false };
        let waits = !self.map.deprived().is_subset_of(goodbyes);
        !waits || now.saturating_sub(decided_at) >= timing.lease + timing.drift
    }
}
