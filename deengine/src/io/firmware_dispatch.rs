// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When the firmware takes which command.
//!
//! The firmware serves one command at a time. What arrives while it is busy waits in its queue; whenever it is free, the
//! next command is the one that arbitration names ([`crate::session`]). A preset that takes no time is never busy, so
//! nothing ever waits.
//!
//! ```text
//!   arrivals   a b c d                          time ->
//!   firmware   [a     ][c     ][b     ][d     ]      c is urgent
//!              ^ taken at once
//!                      ^ `step` at this time, or the next call behind it, takes c as of this time
//! ```
//! A late call makes nobody wait longer: commands are taken as of the time at which the firmware was free. They are
//! judged at the time of the call, never in the past.

use crate::controller::Ssd;
use crate::io::permit::CompletionPermit;
use crate::session::{Lane, Role, Waiting};
use gnstor_base::controller::QueueKey;
use gnstor_base::time::Time;
use gnstor_proto::fabrics;
use gnstor_proto::nvme::Sqe;
use gnstor_proto::status::Refusal;

impl Ssd {
    /// A capsule has arrived. `overrun`: the host has more under way than the queue has entries, as far as its worker knows.
    pub(crate) fn take_capsule(&mut self, now: Time, key: QueueKey, sqe: &Sqe, overrun: bool) {
        self.arbitrate(now);
        let busy = self.ftl.firmware_free() > now;
        let Some(queue) = self.hosts.queue(key) else {
            self.stats.late_capsules += 1;
            return;
        };
        queue.outstanding += 1;
        let overrun = overrun || queue.outstanding > u32::from(queue.size);
        let waits = busy && queue.lane != Lane::None && !overrun;
        let role = if waits { queue.role } else { queue.fetch() };
        let permit = self.issue(key, sqe.cid.get());
        if waits {
            self.hosts.wait(key, Waiting { permit, sqe: *sqe });
        } else if overrun {
            self.refuse(permit, 0, Refusal::SequenceError.into(), now);
        } else {
            self.dispatch_as(role, now, now, permit, key, sqe);
        }
    }

    /// Takes waiting commands as long as the firmware is free by `now` and it is not the turn of reads that wait with a worker.
    #[inline]
    pub(crate) fn arbitrate(&mut self, now: Time) {
        while self.hosts.waiting() > 0 {
            // Each of them came while the firmware was busy until now or later, so none is taken before it arrived.
            let free = self.ftl.firmware_free();
            if free > now || !self.hosts.is_admin_waiting() && !self.workers.is_firmwares_turn() {
                return;
            }
            let controllers = self.hosts.controllers_waiting();
            let Some((key, command)) = self.hosts.next_waiting() else {
                debug_assert!(false, "commands wait and none is next");
                return;
            };
            self.workers.firmware_took(controllers);
            self.dispatch(now, free, command.permit, key, &command.sqe);
        }
    }

    /// The queue's head moves: one more of its commands has been fetched.
    pub(crate) fn fetched(&mut self, key: QueueKey) {
        if let Some(queue) = self.hosts.queue(key) {
            queue.fetch();
        }
    }

    /// The firmware takes a command; it was free from `start` on.
    pub(crate) fn dispatch(
        &mut self,
        now: Time,
        start: Time,
        permit: CompletionPermit,
        key: QueueKey,
        sqe: &Sqe,
    ) {
        let Some(queue) = self.hosts.queue(key) else {
            debug_assert!(false, "a queue that is closed has no commands");
            permit.forfeit();
            self.stats.permits_forfeited += 1;
            return;
        };
        let role = queue.fetch();
        self.dispatch_as(role, now, start, permit, key, sqe);
    }

    /// As [`Self::dispatch`], for a command that has been fetched already.
    pub(crate) fn dispatch_as(
        &mut self,
        role: Role,
        now: Time,
        start: Time,
        permit: CompletionPermit,
        key: QueueKey,
        sqe: &Sqe,
    ) {
        let room = self.has_room();
        if !room
            || (self.table.is_recovering() && matches!(role, Role::Io(..)) && sqe.opcode != fabrics::OPCODE)
        {
            return self.refuse(permit, 0, Refusal::NotReady.into(), now);
        }
        match role {
            Role::Io(cntlid, identity) if sqe.opcode != fabrics::OPCODE => {
                self.tell_unwritten =
                    self.hosts.host(cntlid).is_some_and(|host| host.features.tell_unwritten);
                self.submit_io(now, start, permit, key, identity, sqe);
                self.activity.busy = self.activity.busy + self.ftl.firmware_free().since(start);
            }
            Role::Admin(cntlid) if sqe.opcode != fabrics::OPCODE => {
                self.submit_admin(now, permit, key, cntlid, sqe)
            }
            Role::Fresh | Role::Admin(_) | Role::Io(..) if sqe.opcode == fabrics::OPCODE => {
                self.submit_fabrics(now, permit, key, role, sqe);
            }
            Role::Fresh | Role::Connecting | Role::Ended | Role::Admin(_) | Role::Io(..) => {
                self.refuse(permit, 0, Refusal::SequenceError.into(), now);
            }
        }
    }
}
