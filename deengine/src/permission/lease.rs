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
//! has one again.

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

/// Until when the SSD may serve, and who said so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ServingLease {
    until: Option<Time>,
    term: u64,
    version: u64,
}

impl ServingLease {
    #[inline]
    pub(crate) fn runs(&self, at: Time) -> bool {
        self.until.is_none_or(|until| runs(until, at))
    }

    /// When it ends.
    #[inline]
    pub(crate) fn until(&self) -> Time {
        self.until.unwrap_or(Time::NEVER)
    }

    /// There was a lease before the power went: it is over, as its clock stopped.
    pub(crate) fn recall(&mut self) {
        self.until = Some(Time::ZERO);
    }

    /// Takes a renewal whose term the table has accepted.
    pub(crate) fn renew(&mut self, term: u64, version: u64, until: Time) -> Result<(), Refused> {
        if (term, version) < (self.term, self.version) {
            return Err(Refusal::StaleVersion.into());
        }
        *self = Self { until: Some(until), term, version };
        Ok(())
    }
}

impl Ssd {
    /// LEASE RENEW.
    pub(crate) fn renew_lease(&mut self, now: Time, permit: CompletionPermit, sqe: &Sqe) {
        let (version, term) = crate::admin::volumes::version_and_term(sqe);
        let until = now + Span::from_ms(sqe.cdw12.get().into());
        self.ask_change(now, permit, 0, Change::Lease { term, version, until });
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
