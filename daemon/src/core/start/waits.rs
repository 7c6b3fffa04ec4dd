// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a start waits for, in words.

use super::{Start, Step};
use crate::core::members::Members;

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
}
