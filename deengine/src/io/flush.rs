// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flush: makes the volumes that a client may write durable, and everything that it has written.
//!
//! ```text
//!   volumes whose entry names the client as writer --+
//!   volumes that it wrote before it lost the right --+--> newest transaction --> durable already? done
//!                                                                                else pad and sync up to it
//! ```
//! The namespace is all clients' together. A Flush makes durable what was acknowledged in the client's
//! volumes, also by another connection or by an earlier writer. For the volumes of others it does nothing.
//! Otherwise a client without rights could wear the flash and slow all writers: each Flush pads the open
//! unit, and syncs.

use crate::commands::Accepted;
use crate::controller::Ssd;
use gnstor_proto::fabrics::Identity;
use gnstor_proto::slba::{ClientId, Vid};

impl Ssd {
    pub(super) fn flush(&mut self, command: Accepted, identity: Identity) {
        let Accepted { now, at: accepted, permit } = command;
        // The daemon and the other SSDs have proven the array's key.
        let Identity::Client(client) = identity else { return self.make_durable(now, permit, 0, accepted) };
        if self.table.rules().is_unchecked() {
            return self.make_durable(now, permit, 0, accepted);
        }
        let before = self.table.written_before(client).unwrap_or_default();
        let (seq, at) = self.ftl().make_durable_of(now, self.table.volumes_of(client), before);
        self.await_durable(Accepted { now, at: accepted.max(at), permit }, 0, seq);
    }

    /// Notes that a client has lost the right to write this volume. Its next Flush still covers its writes,
    /// since no later commit is judged by the old entry.
    pub(crate) fn note_former_writer(&mut self, client: ClientId, vid: Vid) {
        let (last, durable) = self.ftl().last_change(vid);
        self.table.lost_writer(client, last, durable);
    }
}
