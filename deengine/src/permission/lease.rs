// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The serving lease (protocol rule 2): an SSD serves only while a daemon that knows the fleet map renews
//! its lease.
//!
//! ```text
//!   renewals   R       R       R          (none comes)
//!   serves     =================================|    from here on reads and writes are refused
//!                              |<-- lease ms -->|
//! ```
//! Before the first renewal there is no lease and the SSD serves: a daemon that renews none is served as
//! ever. That there was one is written down: after a restart an SSD that ever had a lease serves when it
//! has one again. Where the map names voters, they give the lease instead ([`super::asker`]).

use crate::admin::changes::Change;
use crate::controller::Ssd;
use crate::io::command::OK;
use crate::io::permit::CompletionPermit;
use crate::request::Refused;
use gnstor_base::time::{Span, Time};
use gnstor_proto::nvme::Sqe;
use gnstor_proto::status::Refusal;

/// Whether a lease that ends at `until` still runs at `at`. Every comparison of a time with the end of a
/// lease is this one.
#[inline]
pub(crate) fn runs(until: Time, at: Time) -> bool {
    at < until
}

/// Who renewed the lease last, and with which version. When it ends is a word beside the rules
/// ([`crate::workers::WorkerSet::lease_end`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LastRenewal(Option<(u64, u64)>);

impl LastRenewal {
    /// Takes a renewal whose term the table has accepted.
    pub(crate) fn take(&mut self, term: u64, version: u64) -> Result<(), Refused> {
        if self.0.is_some_and(|last| (term, version) < last) {
            return Err(Refusal::StaleVersion.into());
        }
        self.0 = Some((term, version));
        Ok(())
    }

    /// Whether it was of this term.
    pub(crate) fn is_of(self, term: u64) -> bool {
        self.0.is_some_and(|(last, _)| last == term)
    }
}

impl Ssd {
    /// LEASE RENEW.
    pub(crate) fn renew_lease(&mut self, now: Time, permit: CompletionPermit, sqe: &Sqe) {
        // Voters give its lease: a daemon may not know what they hold.
        if self.asks_voters() {
            return self.refuse(permit, 0, Refusal::InvalidOpcode.into(), now);
        }
        let (version, term) = crate::admin::volumes::version_and_term(sqe);
        let until = now + Span::from_ms(sqe.cdw12.get().into());
        if !self.table.was_renewed_in(term) {
            return self.ask_change(now, permit, 0, Change::Lease { term, version, until });
        }
        // What it takes to be durable is so since the term's first renewal. So it waits for no disk.
        match self.table.renew_lease(term, version, until) {
            Ok(()) => self.complete(permit, OK, now, 0),
            Err(refused) => self.refuse(permit, 0, refused, now),
        }
    }

    /// A change of blocks is done at `at`. It is acknowledged, unless the lease is over by then. `vid` is
    /// 0 for a Flush, which depends on no volume's lease.
    pub(crate) fn acknowledge(&mut self, permit: CompletionPermit, vid: u16, at: Time) {
        match self.lease_over(at).filter(|_| vid != 0) {
            Some(refused) => self.refuse(permit, vid, refused, at),
            None => self.complete(permit, OK, at, 0),
        }
    }

    /// What a command that is done at `at` has missed in the meantime: the end of the lease.
    pub(crate) fn lease_over(&self, at: Time) -> Option<Refused> {
        (!self.table.serves(at)).then_some(Refusal::NotServing.into())
    }
}
