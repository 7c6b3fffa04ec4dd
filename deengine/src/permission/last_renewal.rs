// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The last renewal of the serving lease ([`crate::admin`]: `lease.rs`).

use crate::request::Refused;
use gnstor_proto::status::Refusal;

/// Term and version of the last renewal of the lease. The lease's end is a word beside the rules
/// ([`crate::workers::WorkerSet::lease_end`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LastRenewal(Option<(u64, u64)>);

impl LastRenewal {
    /// Accepts a renewal whose term the table has accepted.
    pub(crate) fn take(&mut self, term: u64, version: u64) -> Result<(), Refused> {
        if self.0.is_some_and(|last| (term, version) < last) {
            return Err(Refusal::StaleVersion.into());
        }
        self.0 = Some((term, version));
        Ok(())
    }

    /// Whether the last renewal was of this term.
    pub(crate) fn is_of(self, term: u64) -> bool {
        self.0.is_some_and(|(last, _)| last == term)
    }
}
