// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands that the firmware executes under the SSD's lock: by the role of their queue, and by their
//! opcode.

use crate::commands::Accepted;
use crate::commands::CompletionPermit;
use crate::controller::Ssd;
use crate::hosts::{Queue, Role};
use crate::permission::Authorized;
use crate::request::{Request, Submission, Verb, check_any_namespace, check_frame};
use gnstor_base::controller::QueueKey;
use gnstor_base::time::Time;
use gnstor_proto::fabrics;
use gnstor_proto::nvme::{Sqe, io};
use gnstor_proto::status::Refusal;

impl Ssd {
    /// The firmware takes a command, at `start` of the modelled time. `false`: it does not know the queue.
    pub(crate) fn take_command(&mut self, now: Time, start: Time, key: QueueKey, sqe: &Sqe) -> bool {
        let Some(role) = self.hosts.queue(key).map(Queue::role) else { return false };
        let permit = self.issue(key, sqe.cid.get());
        let is_io = matches!(role, Role::Io(..)) && sqe.opcode != fabrics::OPCODE;
        if !self.commands.has_room() || is_io && self.table.is_recovering() {
            self.refuse(permit, 0, Refusal::NotReady.into(), now);
            return true;
        }
        match role {
            Role::Io(_, identity) if is_io => {
                self.submit_io(now, start, permit, Submission { identity, sqe });
                let busy = self.ftl().firmware_free().since(start);
                self.smart_mut().add_busy(busy);
            }
            Role::Admin(cntlid) if sqe.opcode != fabrics::OPCODE => {
                self.submit_admin(now, permit, cntlid, sqe);
            }
            Role::Fresh | Role::Unproven(_) | Role::Admin(_) | Role::Io(..)
                if sqe.opcode == fabrics::OPCODE =>
            {
                self.submit_fabrics(now, permit, role, sqe);
            }
            Role::Unproven(_) => self.refuse(permit, 0, Refusal::AuthenticationRequired.into(), now),
            Role::Fresh | Role::Connecting | Role::Ended(_) | Role::Admin(_) | Role::Io(..) => {
                self.refuse(permit, 0, Refusal::SequenceError.into(), now);
            }
        }
        true
    }

    /// The host has more commands under way than the queue has entries.
    pub(crate) fn refuse_overrun(&mut self, now: Time, key: QueueKey, cid: u16) {
        if self.hosts.queue(key).is_none() {
            self.smart_mut().count_late_capsule();
            return;
        }
        let permit = self.issue(key, cid);
        self.refuse(permit, 0, Refusal::SequenceError.into(), now);
    }

    pub(crate) fn submit_io(
        &mut self,
        now: Time,
        start: Time,
        permit: CompletionPermit,
        submission: Submission<'_>,
    ) {
        let sqe = submission.sqe;
        // The firmware's time is spent on refused commands too.
        let accepted = if sqe.opcode == io::READ {
            self.ftl().accept_read(start)
        } else {
            self.ftl().accept_write(start)
        };
        match sqe.opcode {
            io::FLUSH => match check_frame(sqe).and_then(|()| check_any_namespace(sqe)) {
                Ok(()) => self.flush(Accepted { now, at: accepted, permit }, submission.identity),
                Err(refused) => self.refuse(permit, 0, refused, accepted),
            },
            io::READ | io::WRITE | io::WRITE_ZEROES | io::COMPARE => {
                self.submit_request(Accepted { now, at: accepted, permit }, submission);
            }
            io::DATASET_MANAGEMENT => self.begin_deallocate(accepted, permit, submission),
            _ => self.refuse(permit, 0, Refusal::InvalidOpcode.into(), accepted),
        }
    }

    /// Begins a request that the permission table has allowed.
    pub(crate) fn begin(&mut self, command: Accepted, request: Authorized<Request>) {
        match request.get().verb {
            // The worker of its queue looks for the blocks.
            Verb::Read => self.grant(command, request, Vec::new()),
            Verb::Write => self.admit_write(command, request),
            Verb::Compare => self.begin_compare(command.at, command.permit, request),
            Verb::Trim => self.trim(command, vec![request]),
        }
    }

    /// Ends a request, which a fence may have waited for.
    pub(crate) fn leave(&mut self, now: Time, request: Authorized<Request>) {
        self.table.leave(request);
        self.complete_fences(now);
    }
}
