// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that wait for their volume's rate limit.
//!
//! Only an allowed command is charged, so no client uses up the rate of another. While it waits it is
//! judged by nothing: a change of rights need not wait for it. When its time has come it is judged anew.

use crate::commands::CompletionPermit;
use crate::commands::Work;
use crate::commands::{Accepted, Command};
use crate::controller::Ssd;
use crate::permission::Authorized;
use crate::request::{Refused, Request, Submission, raw_vid};
use gnstor_base::controller::QueueKey;
use gnstor_base::time::Time;
use gnstor_proto::status::Refusal;

impl Ssd {
    /// Judges a Read, Write, Compare or Write Zeroes and begins it, at once or when its volume's rate
    /// allows.
    pub(crate) fn submit_request(&mut self, command: Accepted, submission: Submission<'_>) {
        let Submission { identity, sqe } = submission;
        match self.judge(command.now, submission) {
            Ok(request) => {
                let at = self.table.charge(command.at, &request);
                if at <= command.at {
                    return self.begin(command, identity, request);
                }
                let vid = request.get().address.vid.get();
                self.table.leave(request);
                let id = self.start(command.permit, vid, at, Work::Delayed { sqe: Box::new(*sqe), identity });
                self.commands.delays.add(at, id);
                self.wake_at(at);
            }
            Err(refused) => self.refuse(command.permit, raw_vid(sqe), refused, command.at),
        }
    }

    fn judge(&mut self, now: Time, submission: Submission<'_>) -> Result<Authorized<Request>, Refused> {
        let request = Request::parse(&submission)?;
        self.table.authorise(now, submission.identity, request)
    }

    /// Begins the delayed commands whose time has come. Returns the time of the next one.
    pub(crate) fn begin_delayed(&mut self, now: Time) -> Time {
        while let Some((at, id)) = self.commands.delays.pop(now) {
            // The command may have been aborted, or its queue may be gone. Then another one may have its number.
            if !self.commands.get_mut(id).is_some_and(|command| command.is_delayed_until(at)) {
                continue;
            }
            let Some(Command { vid, permit: Some(permit), work: Work::Delayed { sqe, identity }, .. }) =
                self.commands.remove(id)
            else {
                continue;
            };
            match self.judge(now, Submission { identity, sqe: &sqe }) {
                Ok(request) if !self.has_room() => {
                    self.leave(now, request);
                    self.refuse(permit, vid, Refusal::NotReady.into(), now);
                }
                Ok(request) => self.begin(Accepted { now, at, permit }, identity, request),
                Err(refused) => self.refuse(permit, vid, refused, now),
            }
        }
        self.commands.delays.next()
    }

    /// Removes a delayed command of a queue.
    pub(crate) fn take_delayed(&mut self, queue: QueueKey, cid: u16) -> Option<CompletionPermit> {
        let is_named = |permit: &CompletionPermit| permit.queue() == queue && permit.cid() == cid;
        let (id, _) = self.commands.iter().find(|(_, command)| {
            matches!(command.work, Work::Delayed { .. }) && command.permit.as_ref().is_some_and(is_named)
        })?;
        self.commands.remove(id)?.permit
    }
}
