// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The SSDs that a change goes to: the ones with a part in the fleet map.
//!
//! ```text
//!   connected   0  1  2  3      an SSD's number is its place in the fleet map
//!   members     0  1     3      the map has SSD 2 as out: no change needs it, and nothing waits for it
//!   absent            3         a member that is not there: a change that needs it is refused with its name
//!   guests         2            out of the map, back, and up to date: it gets each change as members do, so
//!                               that the next map can give it places
//! ```
//! A guest that goes away holds up no change.
//! Until the core knows a map, every SSD that is connected is a member.

use super::absence::Absence;
use gnstor_proto::BLOCK_SHIFT;
use gnstor_proto::placement::Rows;
use gnstor_proto::placement::map3::State3;
use std::collections::{BTreeMap, BTreeSet};

/// The members, and which of them are away.
#[derive(Debug)]
pub(super) struct Members {
    /// Capacity of each connected SSD in blocks.
    blocks: Vec<u64>,
    all: BTreeSet<u16>,
    absent: BTreeMap<u16, Absence>,
    /// Members that a map added and that have not been up to date since.
    joining: BTreeSet<u16>,
    /// The SSDs of `all` that the map does not name.
    guests: BTreeSet<u16>,
    /// SSDs outside the map that are being brought up to date, to be guests. They count as absent.
    coming: BTreeSet<u16>,
    /// SSDs for which a substitute answers, and the reasons. A substitute serves nothing.
    stands_in: BTreeMap<u16, String>,
    /// Number of SSDs that the daemon was given.
    given: usize,
    /// Those of them that were not reached at the start, so their capacities were assumed.
    assumed: BTreeSet<u16>,
}

/// The changes that a map makes to the members.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Moved {
    /// Members until now.
    pub(super) gone: BTreeSet<u16>,
    /// Members from now on.
    pub(super) new: BTreeSet<u16>,
}

/// The SSDs that take part in a map. An absent one has a copy that must come back.
pub(super) fn members_of(map: &impl Rows) -> BTreeSet<u16> {
    let count = u16::try_from(map.count()).unwrap_or(u16::MAX);
    let is_part = |ssd: &u16| matches!(map.state(*ssd), Some(State3::In | State3::Full | State3::Absent));
    (0..count).filter(is_part).collect()
}

impl Members {
    /// SSDs of these capacities, in bytes, are connected.
    pub(super) fn new(capacities: &[u64]) -> Self {
        let count = u16::try_from(capacities.len()).unwrap_or(u16::MAX);
        Self {
            blocks: capacities.iter().map(|bytes| bytes >> BLOCK_SHIFT).collect(),
            all: (0..count).collect(),
            absent: BTreeMap::new(),
            joining: BTreeSet::new(),
            guests: BTreeSet::new(),
            coming: BTreeSet::new(),
            stands_in: BTreeMap::new(),
            given: capacities.len(),
            assumed: BTreeSet::new(),
        }
    }

    /// Notes the SSDs for which a substitute answers.
    pub(super) fn stand_in(&mut self, stands_in: BTreeMap<u16, String>) {
        self.stands_in = stands_in;
    }

    /// Why a substitute answers for this SSD.
    pub(super) fn substitute(&self, ssd: u16) -> Option<&str> {
        self.stands_in.get(&ssd).map(String::as_str)
    }

    /// Whether a substitute answers for a member.
    pub(super) fn has_substitutes(&self) -> bool {
        self.stands_in.keys().any(|ssd| self.contains(*ssd))
    }

    /// From now on the members are those of this map. A new one counts as present; the caller says otherwise
    /// if needed.
    pub(super) fn follow(&mut self, map: &impl Rows) -> Moved {
        let members = members_of(map);
        self.guests.retain(|ssd| !members.contains(ssd));
        self.coming.retain(|ssd| !members.contains(ssd));
        let all = &members | &self.guests;
        let moved = Moved { gone: self.all.difference(&all).copied().collect(), new: &all - &self.all };
        self.absent.retain(|ssd, _| all.contains(ssd) || self.coming.contains(ssd));
        self.joining.retain(|ssd| all.contains(ssd));
        self.all = all;
        moved
    }

    /// The members.
    pub(super) fn all(&self) -> &BTreeSet<u16> {
        &self.all
    }

    pub(super) fn contains(&self, ssd: u16) -> bool {
        self.all.contains(&ssd)
    }

    /// SSDs that are connected, members or not.
    pub(super) fn connected(&self) -> usize {
        self.blocks.len()
    }

    /// The capacities of these SSDs are assumed.
    pub(super) fn assume(&mut self, ssds: &BTreeSet<u16>) {
        self.assumed.clone_from(ssds);
    }

    /// Whether the daemon began without knowing the SSD's capacity.
    pub(super) fn is_assumed(&self, ssd: u16) -> bool {
        usize::from(ssd) >= self.given || self.assumed.contains(&ssd)
    }

    /// Number of SSDs that were connected when the daemon began.
    pub(super) fn given(&self) -> usize {
        self.given
    }

    /// Notes the SSD's capacity. Returns whether it is a new value.
    pub(super) fn is_so_large(&mut self, ssd: u16, bytes: u64) -> bool {
        let Some(blocks) = self.blocks.get_mut(usize::from(ssd)) else { return false };
        std::mem::replace(blocks, bytes >> BLOCK_SHIFT) != bytes >> BLOCK_SHIFT
    }

    /// One more SSD is connected. It is no member until a map says so.
    pub(super) fn connect(&mut self, bytes: u64) {
        self.blocks.push(bytes >> BLOCK_SHIFT);
    }

    /// Capacity of each connected SSD in blocks.
    pub(super) fn blocks(&self) -> &[u64] {
        &self.blocks
    }

    /// Capacity of a connected SSD in bytes, as far as it is known.
    pub(super) fn bytes(&self, ssd: u16) -> u64 {
        self.blocks.get(usize::from(ssd)).map_or(0, |blocks| blocks << BLOCK_SHIFT)
    }

    /// The other members that are connected.
    pub(super) fn others(&self, ssd: u16) -> impl Iterator<Item = u16> {
        let is_member = |ssd: u16| self.contains(ssd) && !self.guests.contains(&ssd);
        (0..).zip(&self.blocks).map(|(other, _)| other).filter(move |&other| other != ssd && is_member(other))
    }

    /// Notes that a member, or a future guest, is away or not up to date. Ignores other SSDs.
    pub(super) fn lose(&mut self, ssd: u16, absence: Absence) {
        if self.contains(ssd) || self.coming.contains(&ssd) {
            self.absent.insert(ssd, absence);
        }
    }

    /// The SSD is present and up to date.
    pub(super) fn back(&mut self, ssd: u16) {
        self.absent.remove(&ssd);
        self.joining.remove(&ssd);
    }

    /// Notes that a map has added the SSD.
    pub(super) fn join(&mut self, ssd: u16) {
        self.joining.insert(ssd);
    }

    /// Whether a map has added the SSD, and it has not been up to date since.
    pub(super) fn is_joining(&self, ssd: u16) -> bool {
        self.joining.contains(&ssd)
    }

    /// An SSD outside the map is brought up to date, to be a guest.
    pub(super) fn invite(&mut self, ssd: u16) {
        if !self.contains(ssd) {
            self.coming.insert(ssd);
        }
    }

    pub(super) fn is_coming(&self, ssd: u16) -> bool {
        self.coming.contains(&ssd)
    }

    /// Makes the SSD a guest: it has all entries of the array, and gets each change from now on.
    pub(super) fn admit(&mut self, ssd: u16) {
        if self.coming.remove(&ssd) {
            self.guests.insert(ssd);
            self.all.insert(ssd);
        }
    }

    /// A guest, or a future one, went away. Returns whether it was a guest.
    pub(super) fn part(&mut self, ssd: u16) -> bool {
        if self.coming.remove(&ssd) {
            self.absent.remove(&ssd);
        }
        let was_guest = self.guests.remove(&ssd);
        if was_guest {
            self.all.remove(&ssd);
            self.absent.remove(&ssd);
        }
        was_guest
    }

    /// Guests: SSDs outside the map that have all entries of the array.
    pub(super) fn guests(&self) -> &BTreeSet<u16> {
        &self.guests
    }

    /// Notes that no SSD is known to be away.
    pub(super) fn forget_absent(&mut self) {
        self.absent.clear();
    }

    /// Whether the SSD is away or not up to date.
    pub(super) fn is_away(&self, ssd: u16) -> bool {
        self.absent.contains_key(&ssd)
    }

    pub(super) fn absent(&self) -> &BTreeMap<u16, Absence> {
        &self.absent
    }

    pub(super) fn absence_mut(&mut self, ssd: u16) -> Option<&mut Absence> {
        self.absent.get_mut(&ssd)
    }

    /// The members that are away or not up to date, with the reasons. `except_stood_in` leaves out members
    /// for which a substitute answers.
    pub(super) fn missing(&self, except_stood_in: bool) -> BTreeMap<u16, String> {
        let stood_in = self.stands_in.iter().filter(|(ssd, _)| !except_stood_in && self.contains(**ssd));
        let absent = self
            .absent
            .iter()
            .filter(|(ssd, _)| self.contains(**ssd))
            .map(|(&ssd, absence)| (ssd, absence.why().to_owned()));
        stood_in.map(|(&ssd, why)| (ssd, why.clone())).chain(absent).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_proto::placement::FleetMap;

    fn away(why: &str) -> Absence {
        Absence::new(why)
    }

    #[test]
    fn members_are_those_of_the_map_and_others_are_never_missing() {
        let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
        let mut members = Members::new(&[1 << 30; 4]);
        assert_eq!((members.all().len(), members.connected()), (4, 4), "without a map all are");
        members.lose(2, away("pulled"));
        members.lose(3, away("slow"));
        let whole = FleetMap::equal(4, 64, 7, 1).unwrap();
        let hole = whole.without(2);
        let of = |ssds: &[u16]| ssds.iter().copied().collect::<BTreeSet<u16>>();
        assert_eq!(members.follow(&hole), Moved { gone: of(&[2]), new: of(&[]) });
        assert_eq!(members.missing(false), BTreeMap::from([(3, "slow".into())]));
        members.lose(2, away("pulled again"));
        assert_eq!(members.missing(false).len(), 1, "it is no member");
        assert_eq!((members.all(), members.contains(2), members.blocks().len()), (&of(&[0, 1, 3]), false, 4));
        assert_eq!(members.follow(&whole), Moved { gone: of(&[]), new: of(&[2]) });
        members.back(3);
        assert!(members.missing(false).is_empty());
    }

    #[test]
    fn a_guest_gets_each_change_and_is_missed_by_none() {
        let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
        let mut members = Members::new(&[1 << 30; 3]);
        let whole = FleetMap::equal(3, 64, 7, 1).unwrap();
        let hole = whole.without(2);
        members.follow(&hole);
        members.invite(2);
        members.lose(2, away("is read"));
        assert!(members.missing(false).is_empty() && !members.contains(2) && members.is_away(2));
        members.follow(&hole);
        assert!(members.is_away(2), "it is on its way");
        members.admit(2);
        members.back(2);
        assert!(members.contains(2) && members.guests().contains(&2) && !members.is_away(2));
        let none = Moved { gone: BTreeSet::new(), new: BTreeSet::new() };
        assert_eq!(members.follow(&hole), none);
        assert!(members.part(2) && !members.contains(2) && !members.part(2));
        members.invite(2);
        members.admit(2);
        assert_eq!(members.follow(&whole), none, "it has all that the array has");
        assert!(members.contains(2) && members.guests().is_empty() && !members.part(2));
    }

    #[test]
    fn an_ssd_that_another_stands_in_for_is_missing_for_some_changes() {
        let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
        let mut members = Members::new(&[1 << 30; 2]);
        members.stand_in(BTreeMap::from([(1, "no power".into())]));
        assert_eq!((members.missing(false).len(), members.missing(true).len()), (1, 0));
        members.lose(1, away("pulled"));
        assert_eq!(members.missing(false)[&1], "pulled", "what was found out later");
    }
}
