// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The error for a client whose request was not done in time.

use super::volume::Volume;
use super::{Core, Owner, Ticket};

impl Core {
    /// Describes what the request waits for.
    pub(super) fn late_message(&self, ticket: Ticket) -> String {
        let owns = |v: &&Volume| v.round.as_ref().is_some_and(|r| r.ticket() == Some(ticket));
        let secs = self.config.request_ms / 1000;
        if let Some(message) = self.waits_for_settle(ticket) {
            return message;
        }
        if self.waits_for_repair(ticket) {
            return format!("some SSD did not answer within {secs} s: try again later");
        }
        let Some(volume) = self.volumes.values().find(owns) else {
            return format!("an earlier change of the volume was not done within {secs} s: try again later");
        };
        let vid = volume.entry.vid;
        let waits: Vec<_> = self
            .commands
            .values()
            .filter(|(_, owner, _)| matches!(owner, Owner::Round { vid: v, .. } if *v == vid))
            .map(|(ssd, _, what)| format!("SSD {ssd} has not completed {what}"))
            .collect();
        format!(
            "the change was not done within {secs} s ({}); it is still being worked on: ask again, with \
             the same request id where there is one",
            waits.join(", ")
        )
    }
}
