// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The grants of one voter. The map of an epoch is one decision of Paxos with the voters as acceptors.
//!
//! ```text
//!   TERM TAKE (term, instance)   phase 1: no lower term is heard from here on; answers what is held
//!   MAP HOLD  (term, map)        phase 2: the map is held, and a lease that it ends is not renewed
//!   ACTIVATE  (map)              learned: a majority has held it and the leases are over
//!   LEASE ASK (ssd, epoch)       yes, unless a map that is held or active took a place from the SSD since;
//!                                its number of openings is judged by `crate::opening`
//! ```
//! All of it is durable before the answer.

use crate::lease::LeaseAsk;
use crate::map::FleetView;
use crate::opening;
use crate::{ArrayId, Instance, Opening, Refused, Term};

/// A map that a voter holds, and the term that it was proposed in.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Held<M> {
    /// The term of MAP HOLD. The map itself may be of an earlier term.
    pub term: Term,
    /// The map.
    pub map: M,
}

/// The answer to TERM TAKE.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Promise<M> {
    /// The array of the voter.
    pub array: ArrayId,
    /// The newest map that it knows to be active.
    pub active: M,
    /// The newer map that it holds.
    pub held: Option<Held<M>>,
}

/// One voter.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Voter<M> {
    /// The highest term granted; 0 = none.
    pub term: Term,
    /// The instance that it was granted to.
    pub instance: Instance,
    /// The newest map that is active.
    pub active: M,
    /// A newer map that is held.
    pub held: Option<Held<M>>,
}

/// Whether a machine that knows the map `known` to be active learns anything from `map`.
///
/// # Errors
/// [`Refused::OtherArray`], [`Refused::StaleVersion`].
pub fn check_newer<M: FleetView>(known: &M, map: &M) -> Result<(), Refused> {
    if map.array() != known.array() {
        return Err(Refused::OtherArray);
    }
    if map.epoch() <= known.epoch() {
        return Err(Refused::StaleVersion);
    }
    Ok(())
}

impl<M: FleetView> Voter<M> {
    /// A voter that has granted nothing.
    pub fn new(active: M) -> Self {
        Self { term: 0, instance: 0, active, held: None }
    }

    /// A term is granted once: to an instance that asks again, too, but to no other.
    fn grant(&mut self, array: ArrayId, term: Term, instance: Instance) -> Result<(), Refused> {
        if array != self.active.array() {
            return Err(Refused::OtherArray);
        }
        if term < self.term || (term == self.term && instance != self.instance) {
            return Err(Refused::StaleTerm);
        }
        (self.term, self.instance) = (term, instance);
        Ok(())
    }

    /// TERM TAKE.
    ///
    /// # Errors
    /// [`Refused::OtherArray`], [`Refused::StaleTerm`].
    pub fn take_term(
        &mut self,
        array: ArrayId,
        term: Term,
        instance: Instance,
    ) -> Result<Promise<M>, Refused> {
        self.grant(array, term, instance)?;
        Ok(Promise { array, active: self.active.clone(), held: self.held.clone() })
    }

    /// MAP HOLD. A late message of the same term does not replace a newer map.
    ///
    /// # Errors
    /// [`Refused::OtherArray`], [`Refused::StaleTerm`], [`Refused::StaleVersion`].
    pub fn hold(&mut self, term: Term, instance: Instance, map: M) -> Result<(), Refused> {
        self.grant(map.array(), term, instance)?;
        let is_older = |held: &Held<M>| (term, map.epoch()) < (held.term, held.map.epoch());
        if map.epoch() <= self.active.epoch() || self.held.as_ref().is_some_and(is_older) {
            return Err(Refused::StaleVersion);
        }
        self.held = Some(Held { term, map });
        Ok(())
    }

    /// ACTIVATE, or a map that MAP GET brought: it was decided, so no term is compared.
    ///
    /// # Errors
    /// [`Refused::OtherArray`], [`Refused::StaleVersion`].
    pub fn activate(&mut self, map: M) -> Result<(), Refused> {
        check_newer(&self.active, &map)?;
        self.held = self.held.take().filter(|held| held.map.epoch() > map.epoch());
        self.active = map;
        Ok(())
    }

    /// LEASE ASK: whether this voter says yes, and the number of openings that it must store before. `known`
    /// is the highest number that it knows of the SSD.
    ///
    /// # Errors [`Refused::OtherArray`]. [`Refused::OlderImage`] if the SSD has had a higher number.
    /// [`Refused::Deprived`] if a held or active map took a place from the SSD after the epoch in its
    /// question. So too if such a map gave the place to another SSD. [`Refused::MapBehind`] if the SSD may
    /// have got the place by a map that this voter does not have. Then the number that the voter knows
    /// belongs to the previous SSD.
    pub fn answer(&self, ask: &LeaseAsk, known: Opening) -> Result<Option<Opening>, Refused> {
        if ask.array != self.active.array() {
            return Err(Refused::OtherArray);
        }
        let means = |map: &M| map.means(ask.ssd, &ask.uuid);
        if !means(&self.active) {
            let is_behind = ask.epoch > self.active.epoch();
            return Err(if is_behind { Refused::MapBehind } else { Refused::Deprived });
        }
        let new = opening::check(known, ask.opening)?;
        let deprives = |map: &M| {
            let is_shrunk = map.shrunk_at(ask.ssd).is_none_or(|shrunk| shrunk > ask.epoch);
            map.epoch() > ask.epoch && (is_shrunk || !means(map))
        };
        let held = self.held.as_ref().map(|held| &held.map);
        if [Some(&self.active), held].into_iter().flatten().any(deprives) {
            return Err(Refused::Deprived);
        }
        Ok(new)
    }
}
