// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sets of SSDs, majorities, and how a set of voters changes (rule 3a).

use crate::SsdId;

/// A set of SSDs of one array.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct SsdSet(u64);

/// Most SSDs of a set.
pub const MAX_SSDS: u16 = 64;
/// Most voters of an array.
pub const MAX_VOTERS: u32 = 7;

impl SsdSet {
    /// No SSD.
    pub const EMPTY: Self = Self(0);

    /// The set with one more.
    ///
    /// # Panics
    /// If `ssd` is not below [`MAX_SSDS`].
    #[must_use]
    pub fn with(self, ssd: SsdId) -> Self {
        assert!(ssd < MAX_SSDS, "SSD {ssd} is beyond the {MAX_SSDS} of an array");
        Self(self.0 | 1 << ssd)
    }

    /// The set without this SSD.
    #[must_use]
    pub fn without(self, ssd: SsdId) -> Self {
        Self(self.0 & !1u64.checked_shl(ssd.into()).unwrap_or(0))
    }

    /// Whether the SSD is in it.
    pub fn contains(self, ssd: SsdId) -> bool {
        self.0 & 1u64.checked_shl(ssd.into()).unwrap_or(0) != 0
    }

    /// Number of SSDs in the set.
    pub fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether every SSD of this set is in the other.
    pub fn is_subset_of(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// The SSDs that both have.
    #[must_use]
    pub fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The SSDs that either has.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// A bit for each SSD, the lowest ones first.
    #[expect(clippy::cast_possible_truncation, reason = "the low and the high half are meant")]
    pub fn words(self) -> [u32; 2] {
        [self.0 as u32, (self.0 >> 32) as u32]
    }

    /// The set of these [words](Self::words).
    pub fn of_words([low, high]: [u32; 2]) -> Self {
        Self(u64::from(low) | u64::from(high) << 32)
    }

    /// The SSDs, ascending.
    pub fn iter(self) -> impl Iterator<Item = SsdId> {
        (0..MAX_SSDS).filter(move |&ssd| self.contains(ssd))
    }

    /// More than half of `voters` are in this set. Others than voters do not count.
    pub fn is_majority_of(self, voters: Self) -> bool {
        2 * self.common(voters).len() > voters.len()
    }
}

impl FromIterator<SsdId> for SsdSet {
    fn from_iter<T: IntoIterator<Item = SsdId>>(ssds: T) -> Self {
        ssds.into_iter().fold(Self::EMPTY, Self::with)
    }
}

/// Whether the voters may change in this way in one epoch: one joins or one leaves. Then any majority before
/// has an SSD in common with any majority after. An exchange of one voter for another in one epoch would
/// break that.
pub fn may_become(before: SsdSet, after: SsdSet) -> bool {
    let changed = SsdSet(before.0 ^ after.0).len();
    changed <= 1 && (1..=MAX_VOTERS).contains(&after.len())
}

/// Whether an array may rest with these voters: an even number is a step of a change only.
pub fn may_rest(voters: SsdSet) -> bool {
    voters.len() % 2 == 1 && voters.len() <= MAX_VOTERS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn majorities(voters: SsdSet) -> impl Iterator<Item = SsdSet> {
        (0u64..256).map(SsdSet).filter(move |set| set.is_subset_of(voters) && set.is_majority_of(voters))
    }

    #[test]
    fn majorities_before_and_after_a_change_of_one_voter_meet() {
        let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
        for before in (1u64..128).map(SsdSet) {
            for after in (1u64..256).map(SsdSet).filter(|&after| may_become(before, after)) {
                for old in majorities(before) {
                    assert!(majorities(after).all(|new| !old.common(new).is_empty()), "{before:?} {after:?}");
                }
            }
        }
    }

    #[test]
    fn an_exchange_of_one_voter_for_another_breaks_that() {
        let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
        let (before, after) = (SsdSet(0b0111), SsdSet(0b1011));
        assert!(!may_become(before, after));
        let apart = majorities(before).any(|old| majorities(after).any(|new| old.common(new).is_empty()));
        assert!(apart, "the rule would forbid too much");
    }

    #[test]
    fn an_array_rests_with_an_odd_number_of_voters() {
        let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
        assert!(may_rest(SsdSet(0b111)) && !may_rest(SsdSet(0b1111)) && !may_rest(SsdSet::EMPTY));
        assert!(!may_become(SsdSet(0x7F), SsdSet(0xFF)), "eight voters");
    }
}
