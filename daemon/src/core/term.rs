// SPDX-License-Identifier: Apache-2.0 OR MIT
//! This daemon's term (protocol rule 3). The rules are those of crate `fleet`: a term above all that were
//! seen, granted by a majority of the voters.
//!
//! ```text
//!   no term --ask--> asked --granted, by one SSD after the other--> elected
//!     ^                |
//!     +----------------+  an SSD has a newer one: the maps are read again
//! ```
//! Where the map names voters, a majority of them grants the term by TERM TAKE, to one start of a daemon
//! and to no other. Otherwise an SSD grants it when it takes MAP SET. Maps of format 2 name no voters: the
//! members vote, the first 64 of them. Maps of format 2 name no array either.

use super::Stop;
use super::epoch::Known;
use gnstor_fleet::ArrayId;
use gnstor_fleet::leader::{Candidate, Lead, next_term};
use gnstor_fleet::map::FleetView;
use gnstor_fleet::set::MAX_SSDS;
use gnstor_fleet::voter::Promise;

/// MAP SET says nothing of who sends it: two daemons that start together can share a term.
const NO_INSTANCE: u64 = 0;
/// The largest step to a next term, as a power of two. An SSD takes no step above 2^20.
const MOST_AHEAD: u32 = 19;

/// A term, and the SSDs that have granted it.
#[derive(Default, Debug)]
pub(super) struct Term {
    number: u64,
    /// The highest term that an SSD named when it refused this daemon's.
    seen: u64,
    /// Number of refusals that named no term.
    refused: u32,
    candidate: Option<Candidate<Known>>,
}

impl Term {
    /// The term; 0 until there is one.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Chooses the next term above the ones in `seen`.
    pub(super) fn choose(&mut self, seen: impl IntoIterator<Item = u64>) -> Result<u64, Stop> {
        let ahead = (1u64 << self.refused.min(MOST_AHEAD)) - 1;
        let next = next_term(seen.into_iter().chain([self.number, self.seen]));
        let term = next.and_then(|term| term.checked_add(ahead)).ok_or_else(used_up)?;
        (self.number, self.candidate) = (term, None);
        Ok(term)
    }

    /// Raises the term that was just chosen by so many. A start without some members of a map of format 2 has
    /// no majority, perhaps. Another daemon that reaches the others only may start at the same time. The two
    /// must not share a term: the lower one is deposed as soon as both reach the same SSD.
    pub(super) fn further(&mut self, by: u64) -> Result<u64, Stop> {
        let term = self.number.checked_add(by).ok_or_else(used_up)?;
        (self.number, self.candidate) = (term, None);
        Ok(term)
    }

    /// The SSD accepts this daemon's term together with this map.
    pub(super) fn granted(&mut self, ssd: u16, map: &Known) {
        if ssd >= MAX_SSDS {
            return;
        }
        let new = || Candidate::new(map.array(), self.number, NO_INSTANCE);
        let promise = Promise { array: map.array(), active: map.clone(), held: None };
        self.candidate.get_or_insert_with(new).promised(ssd, promise);
    }

    /// An SSD has granted a term as high or higher, perhaps this one, so the next term is above it. If the
    /// SSD does not name the term, the next one is further ahead, twice as far each time.
    pub(super) fn refused(&mut self, term: Option<u32>) {
        match term {
            // Terms have 32 bits: no SSD takes a higher one.
            Some(term) => self.seen = self.seen.max(term.into()),
            None => self.refused += 1,
        }
    }

    /// The SSD has granted the term to this instance of the daemon.
    pub(super) fn promised(&mut self, ssd: u16, array: ArrayId, instance: u64, promise: Promise<Known>) {
        let new = || Candidate::new(array, self.number, instance);
        self.candidate.get_or_insert_with(new).promised(ssd, promise);
    }

    /// The maps from which the daemon leads, once a majority has granted the term.
    pub(super) fn lead(&self) -> Option<Lead<Known>> {
        self.candidate.as_ref()?.elected()
    }

    /// Whether each voter has granted the term, and none holds a map that is not active. Then no map of an
    /// earlier daemon can be decided any more.
    pub(super) fn rules_out_earlier_maps(&self) -> bool {
        let Some(candidate) = &self.candidate else { return false };
        let is_of_all =
            |lead: Lead<Known>| lead.again.is_none() && lead.active.voters().is_subset_of(candidate.granted);
        candidate.elected().is_some_and(is_of_all)
    }

    /// A majority has granted it.
    pub(super) fn is_elected(&self) -> bool {
        self.lead().is_some()
    }
}

fn used_up() -> Stop {
    Stop::Array("the fleet map's term is the last possible one: the array must be formatted".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_proto::placement::FleetMap;

    #[test]
    fn a_term_is_above_all_and_counts_when_most_members_granted_it() {
        let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
        let mut term = Term::default();
        assert_eq!(term.choose([3, 8, 5]).unwrap(), 9);
        let map = Known::new(FleetMap::equal(4, 64, 7, 9).unwrap().without(1).into());
        for (ssd, elected) in [(0, false), (0, false), (1, false), (3, true), (2, true)] {
            term.granted(ssd, &map);
            assert_eq!(term.is_elected(), elected, "SSD 1 is out, and has no vote");
        }
        assert_eq!(term.choose([9]).unwrap(), 10);
        assert!(!term.is_elected(), "another term");
        assert!(matches!(term.choose([u64::MAX]), Err(Stop::Array(_))));
        assert_eq!(Term::default().choose([]).unwrap(), 1);
    }

    #[test]
    fn a_refused_term_is_followed_by_one_above_the_one_in_its_way() {
        let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
        let mut term = Term::default();
        assert_eq!(term.choose([4]).unwrap(), 5);
        term.refused(Some(5));
        assert_eq!(term.choose([4]).unwrap(), 6, "another instance has it");
        term.refused(Some(900));
        assert_eq!(term.choose([4]).unwrap(), 901);
        term.refused(Some(3));
        assert_eq!(term.choose([4]).unwrap(), 902, "it has had a higher one");
        let mut blind = Term::default();
        let mut next = || {
            blind.refused(None);
            blind.choose([4]).unwrap()
        };
        assert_eq!([next(), next(), next()], [6, 10, 18]);
    }

    #[test]
    fn of_an_array_of_hundreds_of_ssds_the_first_64_vote() {
        let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
        let mut term = Term::default();
        term.choose([]).unwrap();
        let map = Known::new(FleetMap::equal(300, 64, 7, 1).unwrap().into());
        (32..300).for_each(|ssd| term.granted(ssd, &map));
        assert!(!term.is_elected());
        term.granted(0, &map);
        assert!(term.is_elected());
    }
}
