// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a step of a start waits for.

use super::voters::voters_of;
use super::{Start, Step};
use crate::core::members::{Members, members_of};
use gnstor_proto::placement::AnyMap;
use std::collections::BTreeSet;

impl Start {
    /// The answers that the start waits for, and the SSDs that hold it up.
    pub(in crate::core) fn waits_for(&self, members: &Members) -> String {
        if let Some(lacks) = &self.lacks {
            return lacks.clone();
        }
        let awaited = match self.step {
            Step::Maps => "the SSDs' fleet maps",
            Step::Survey => "the permission tables of all SSDs, since some have no fleet map",
            Step::Says => "the SSDs to say who they are",
            Step::Publish => "the SSDs to take the fleet map",
            Step::Elect => "the SSDs to grant this daemon's term",
            Step::Again => "the voters to take the fleet map that is held",
            Step::Losses => "the voters to take a fleet map without the SSDs that are missing",
            Step::Tables => "the SSDs' permission tables",
            Step::Reconcile => "the SSDs to take one state of their permission tables",
        };
        if self.step == Step::Publish && self.is_without_voters() {
            return "a fleet map of format 3 that names voters: this one names none, so no daemon can be \
                    elected"
                .into();
        }
        let awaits = self.awaits(members);
        let troubles = (0u16..)
            .zip(&self.probes)
            .filter(|(i, _)| awaits.contains(i) || self.without.contains(i))
            .filter_map(|(i, p)| p.trouble.as_ref().map(|t| format!("SSD {i}: {t}")));
        troubles.fold(awaited.to_owned(), |text, trouble| format!("{text}; {trouble}"))
    }

    /// The SSDs for whose answers the step waits.
    pub(super) fn awaits(&self, members: &Members) -> BTreeSet<u16> {
        match self.step {
            Step::Maps | Step::Survey | Step::Says | Step::Elect => match self.newest() {
                Some(map) => {
                    // A map of format 2 does not know the witness.
                    let witness = self.witness.filter(|_| matches!(map, AnyMap::Two(_)));
                    let voters = voters_of(map).iter().chain(witness.filter(|_| self.step != Step::Maps));
                    let all: BTreeSet<u16> = members_of(map).into_iter().chain(voters).collect();
                    &all - &self.without
                }
                None => (0u16..).zip(&self.probes).map(|(ssd, _)| ssd).collect(),
            },
            Step::Reconcile => members.all().clone(),
            Step::Publish => members.all() - &self.without,
            Step::Tables => &(members.all() | &self.beside) - &self.without,
            Step::Again | Step::Losses => BTreeSet::new(),
        }
    }
}
