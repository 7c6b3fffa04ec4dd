// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who votes: one voter more or less in each epoch (rule 3a).
//!
//! ```text
//!   epoch n   voters 0 1 2     2 of 3 decide n + 1     SSD 2 was lost, and is to be replaced
//!   n + 1     voters 0 1       2 of 2 decide n + 2     an even number is a step between
//!   n + 2     voters 0 1 3     2 of 3 decide n + 3
//! ```
//! Each majority of the old voters has a member in common with each majority of the new ones. An SSD with an
//! empty file has forgotten what it promised. So it comes back as a voter only by way of a map in which it
//! does not vote.

use super::Unchanged;
use crate::map::{Map, SsdState};
use crate::set::may_become;
use crate::{SsdId, Term};

impl Map {
    /// The map in which the SSD votes, or no longer votes.
    ///
    /// # Errors [`Unchanged::Vote`] if that is so already, or if too few or too many would vote. So too if an
    /// SSD without a part in the map would vote.
    pub fn with_vote(&self, ssd: SsdId, votes: bool, term: Term) -> Result<Self, Unchanged> {
        let known = self.ssd(ssd).ok_or(Unchanged::Unknown)?;
        let takes_part = matches!(known.state, SsdState::In | SsdState::Full);
        if votes && !takes_part { Err(Unchanged::Vote) } else { self.voting(ssd, votes, term) }
    }

    /// The map in which the SSD votes as a witness. It needs no part in the map, since it holds no blocks.
    ///
    /// # Errors [`Unchanged::Vote`] if it votes already, or too many would vote.
    pub fn with_witness(&self, ssd: SsdId, term: Term) -> Result<Self, Unchanged> {
        self.ssd(ssd).ok_or(Unchanged::Unknown)?;
        self.voting(ssd, true, term)
    }

    fn voting(&self, ssd: SsdId, votes: bool, term: Term) -> Result<Self, Unchanged> {
        if self.voters.contains(ssd) == votes {
            return Err(Unchanged::Vote);
        }
        let voters = if votes { self.voters.with(ssd) } else { self.voters.without(ssd) };
        let may = may_become(self.voters, voters);
        if may { Ok(Self { voters, ..self.next(term) }) } else { Err(Unchanged::Vote) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::tests::{set, two_rows};
    use crate::deadline::{Deadline, LIMIT};
    use crate::set::may_rest;

    #[test]
    fn a_vote_is_taken_and_given_one_at_a_time_and_the_last_one_stays() {
        let _deadline = Deadline::after(LIMIT);
        let map = Map { voters: set(&[0, 1]), ..two_rows() };
        let one = map.with_vote(1, false, 4).unwrap();
        assert_eq!((one.voters, one.epoch, one.term), (set(&[0]), map.epoch + 1, 4));
        assert!(may_become(map.voters, one.voters) && may_rest(one.voters));
        assert_eq!((&one.rows, &one.ssds), (&map.rows, &map.ssds));
        assert_eq!(one.with_vote(0, false, 4), Err(Unchanged::Vote), "none would be left");
        assert_eq!(one.with_vote(1, false, 4), Err(Unchanged::Vote), "it does not vote");
        assert_eq!(one.with_vote(1, true, 4).unwrap().voters, map.voters);
        assert_eq!(map.with_vote(9, true, 4), Err(Unchanged::Unknown));
        let lost = map.lose(2, 2, 4).unwrap();
        assert_eq!(lost.with_vote(2, true, 4), Err(Unchanged::Vote), "it is out");
        assert!(lost.with_witness(2, 4).unwrap().voters.contains(2));
    }
}
