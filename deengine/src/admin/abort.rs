// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Abort: takes back commands that have not begun.
//!
//! | command | result |
//! |---|---|
//! | an Asynchronous Event Request that is held | aborted |
//! | a command that waits for the firmware or for its volume's rate limit | aborted: nothing has been done
//! for it |
//! | a command whose data is in flight | not aborted: its transfers would have no command |
//! | a VOLUME command that waits for its fence | not aborted: the table has changed already |
//!
//! Not aborted means DW0 bit 0 = 1; the command completes by itself. A read may wait with the worker of its
//! queue; then that worker answers.

use crate::commands::CompletionPermit;
use crate::commands::{Answer, Work};
use crate::controller::Ssd;
use gnstor_base::time::Time;
use gnstor_proto::nvme::Sqe;
use gnstor_proto::status::Refusal;

/// Identify ACL, zero-based: aborts are answered at once, so any number may come.
pub(crate) const ABORT_LIMIT_Z: u8 = 3;

impl Ssd {
    pub(crate) fn submit_abort(&mut self, now: Time, permit: CompletionPermit, cntlid: u16, sqe: &Sqe) {
        if self.abort(now, cntlid, sqe) {
            return self.complete(permit, Answer::dw0(0), now, 0);
        }
        let (qid, cid) = named(sqe);
        match self.hosts.queue_of(cntlid, qid) {
            None => self.complete(permit, Answer::dw0(1), now, 0),
            Some(queue) => {
                let id = self.start(permit, 0, now, Work::Abort);
                self.workers().take_back(queue, cid, id);
            }
        }
    }

    /// Completes an Abort after a worker has searched for the command that it names.
    pub(crate) fn end_abort(&mut self, now: Time, id: u32, aborted: bool) {
        // The Abort's own queue may be gone.
        if self.commands.get_mut(id).is_none_or(|command| !matches!(command.work(), Work::Abort)) {
            return;
        }
        if let Some(permit) = self.commands.remove(id).and_then(|command| command.end().permit) {
            self.complete(permit, Answer::dw0(u32::from(!aborted)), now, 0);
        }
    }

    /// Whether the command was taken back.
    fn abort(&mut self, now: Time, cntlid: u16, sqe: &Sqe) -> bool {
        let (qid, cid) = named(sqe);
        let Some(key) = self.hosts.queue_of(cntlid, qid) else { return false };
        if let Some(permit) = self.take_delayed(now, key, cid) {
            self.refuse(permit, 0, Refusal::AbortRequested.into(), now);
            return true;
        }
        let held = self
            .hosts
            .host(cntlid)
            .filter(|_| qid == 0)
            .map(|host| host.events().held().to_vec())
            .unwrap_or_default();
        for id in held {
            let is_named = |permit: &CompletionPermit| permit.cid() == cid;
            if self.commands.get_mut(id).is_some_and(|command| command.permit().is_some_and(is_named)) {
                if let Some(host) = self.hosts.host_mut(cntlid) {
                    host.events_mut().release(id);
                }
                if let Some(permit) = self.commands.remove(id).and_then(|command| command.end().permit) {
                    self.refuse(permit, 0, Refusal::AbortRequested.into(), now);
                }
                return true;
            }
        }
        false
    }
}

/// Queue and command that an Abort names.
fn named(sqe: &Sqe) -> (u16, u16) {
    let [a, b, c, d] = sqe.cdw10.get().to_le_bytes();
    (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]))
}
