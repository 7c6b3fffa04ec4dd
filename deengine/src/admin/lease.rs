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
//! ever. The SSD durably notes its first lease. So after a restart, an SSD that ever had a lease serves only
//! under a new one. Where the map names voters, they give the lease instead ([`super::asker`]).

use super::state::Change;
use super::volumes::version_and_term;
use crate::commands::{CompletionPermit, OK};
use crate::controller::Ssd;
use crate::request::Refused;
use gnstor_base::time::{Span, Time};
use gnstor_proto::nvme::Sqe;
use gnstor_proto::status::Refusal;
use gnstor_proto::vendor::{SERVING_LEASE_MS, takes_lease};

impl Ssd {
    /// LEASE RENEW.
    pub(crate) fn renew_lease(&mut self, now: Time, permit: CompletionPermit, sqe: &Sqe) {
        // Voters give this SSD its lease. A daemon may not know which maps they hold.
        if self.asks_voters() {
            return self.refuse(permit, 0, Refusal::InvalidOpcode.into(), now);
        }
        let (version, term) = version_and_term(sqe);
        // Judged before the term: a command that is not valid changes nothing.
        if !takes_lease(sqe.cdw12.get(), &SERVING_LEASE_MS) {
            return self.refuse(permit, 0, Refusal::InvalidField.into(), now);
        }
        let until = now + Span::from_ms(sqe.cdw12.get().into());
        if !self.table.was_renewed_in(term) {
            return self.ask_change(now, permit, 0, Change::Lease { term, version, until });
        }
        // The note of the lease has been durable since the term's first renewal, so this waits for no disk.
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

    /// The refusal of a command that is done at `at`, if the lease has ended by then.
    pub(crate) fn lease_over(&self, at: Time) -> Option<Refused> {
        (!self.table.serves(at)).then_some(Refusal::NotServing.into())
    }
}
