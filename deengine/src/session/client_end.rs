// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CLIENT END: a client id has another holder, or none. The SSD ends the connections and rights of its
//! earlier holders.
//!
//! ```text
//!   CLIENT END 7, serial 9 --> secrets of id 7 with serials below 9 are not believed any more
//!                          '-> queues of hosts with such serials are closed --> completion
//! ```
//! The SSD keeps the serials in memory only. The daemon repeats them when an SSD comes back, before it sends
//! an entry that names the id.
//!
//! An SSD without a manager key does nothing: there a serial tells no host from another.

use crate::commands::CompletionPermit;
use crate::commands::OK;
use crate::controller::Ssd;
use crate::request::Refused;
use gnstor_base::time::Time;
use gnstor_proto::client_end::ClientEnd;
use gnstor_proto::fabrics::Identity;
use gnstor_proto::nvme::Sqe;
use gnstor_proto::status::Refusal;

impl Ssd {
    /// CLIENT END. It has no data. When it completes, no command of the earlier hosts begins any more. A
    /// write that a worker has begun is judged by its client id until the worker closes the queue. It may
    /// still be committed by the entry that there is. The next entry waits for it, and refuses it by its
    /// lease epoch.
    pub(crate) fn end_client(&mut self, now: Time, permit: CompletionPermit, sqe: &Sqe) {
        match self.end_earlier_hosts(now, sqe) {
            Ok(()) => self.complete(permit, OK, now, 0),
            Err(refused) => self.refuse(permit, 0, refused, now),
        }
    }

    fn end_earlier_hosts(&mut self, now: Time, sqe: &Sqe) -> Result<(), Refused> {
        let ClientEnd { client, serial, term } = ClientEnd::of(sqe).ok_or(Refusal::InvalidField)?;
        if term < self.table.term() {
            return Err(Refusal::StaleTerm.into());
        }
        if !self.hosts.asks_proof() {
            return Ok(());
        }
        let identity = Identity::Client(client);
        self.hosts.invalidate_below(identity, serial);
        let older = self.hosts.of_older_hosts(identity, serial);
        if !older.is_empty() {
            older.into_iter().for_each(|admin| self.shut(now, admin));
            // A worker may not have closed its queue yet. It looks at its queues before it judges again.
            self.table.touch();
        }
        Ok(())
    }
}
