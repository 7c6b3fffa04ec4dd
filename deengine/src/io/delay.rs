// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that wait for their volume's rate limit.
//!
//! A command is charged when it begins. So a client uses up nothing of the rate by commands that are not
//! allowed, or that it takes back. While a command waits it is judged by nothing: a change of rights need not
//! wait for it. When its time has come it is judged anew. The commands of a volume begin in the order in
//! which they came. One that finds another volume with its volume's id is refused. When a volume is deleted,
//! the time of all its commands has come.

use crate::commands::CompletionPermit;
use crate::commands::Ended;
use crate::commands::Work;
use crate::commands::{Accepted, Command};
use crate::controller::Ssd;
use crate::io::state::Waiting;
use crate::permission::Authorized;
use crate::request::{Refused, Request, Submission, raw_vid};
use gnstor_base::controller::QueueKey;
use gnstor_base::time::Time;
use gnstor_proto::status::Refusal;

/// Most delayed commands that begin at a time.
const MOST_BEGUN: usize = 1024;

impl Ssd {
    /// Judges a Read, Write, Compare or Write Zeroes and begins it, at once or when its volume's rate
    /// allows.
    pub(crate) fn submit_request(&mut self, command: Accepted, submission: Submission<'_>) {
        let Submission { identity, sqe } = submission;
        match self.judge(command.now, submission) {
            Ok(request) => {
                let vid = request.get().address.vid.get();
                if self.commands.delays.has_line(vid) {
                    self.begin_delayed(command.now);
                }
                let blocks = request.get().charged_blocks();
                let start = self.table.start_of(command.at, vid, blocks);
                let has_line = self.commands.delays.has_line(vid);
                if !has_line && start <= command.at {
                    self.table.charge(command.at, &request);
                    return self.begin(command, request);
                }
                self.table.count_throttled(&request);
                let (turn, generation) = (self.commands.delays.next_turn(), request.generation());
                self.table.leave(request);
                let work = Work::Delayed { sqe: Box::new(*sqe), identity, turn, generation };
                let id = self.start(command.permit, vid, command.at, work);
                self.commands.delays.join(vid, turn, Waiting { id, since: command.at, blocks });
                if !has_line {
                    self.schedule(command.at, vid);
                }
            }
            Err(refused) => self.refuse(command.permit, raw_vid(sqe), refused, command.at),
        }
    }

    fn judge(&mut self, now: Time, submission: Submission<'_>) -> Result<Authorized<Request>, Refused> {
        let request = Request::parse(&submission)?;
        self.table.authorise(now, submission.identity, request)
    }

    /// Begins delayed commands whose time has come, a bounded number. Returns the time of the next one.
    pub(crate) fn begin_delayed(&mut self, now: Time) -> Time {
        for _ in 0..MOST_BEGUN {
            let Some((at, vid)) = self.commands.delays.due(now) else { break };
            let Some((turn, Waiting { id, .. })) = self.commands.delays.first(vid) else { break };
            self.commands.delays.leave(vid, turn);
            if let Some(Ended {
                permit: Some(permit),
                work: Work::Delayed { sqe, identity, generation, .. },
                ..
            }) = self.commands.remove(id).map(Command::end)
            {
                match self.judge(now, Submission { identity, sqe: &sqe }) {
                    Ok(request) if request.generation() != generation => {
                        self.leave(now, request);
                        self.refuse(permit, vid, Refusal::UnknownVolume.into(), now);
                    }
                    Ok(request) if !self.commands.has_room() => {
                        self.leave(now, request);
                        self.refuse(permit, vid, Refusal::NotReady.into(), now);
                    }
                    Ok(request) => {
                        self.table.charge(at, &request);
                        self.begin(Accepted { now, at, permit }, request);
                    }
                    Err(refused) => self.refuse(permit, vid, refused, now),
                }
            }
            self.schedule(at, vid);
        }
        self.commands.delays.next()
    }

    /// Sets the start of the first command in a volume's line, `now` or later. Called when that command or
    /// the volume's limits change.
    pub(crate) fn schedule(&mut self, now: Time, vid: u16) {
        let Some((_, first)) = self.commands.delays.first(vid) else { return };
        let start = self.table.start_of(now.max(first.since), vid, first.blocks);
        self.commands.delays.set_start(vid, start);
        self.wake_at(start);
    }

    /// A delayed command ends without having begun.
    pub(crate) fn leave_line(&mut self, now: Time, vid: u16, turn: u64) {
        if self.commands.delays.leave(vid, turn) {
            self.schedule(now, vid);
        }
    }

    /// Removes a delayed command of a queue.
    pub(crate) fn take_delayed(&mut self, now: Time, queue: QueueKey, cid: u16) -> Option<CompletionPermit> {
        let is_named = |permit: &CompletionPermit| permit.queue() == queue && permit.cid() == cid;
        let (id, _) = self.commands.iter().find(|(_, command)| {
            matches!(command.work(), Work::Delayed { .. }) && command.permit().is_some_and(is_named)
        })?;
        let Ended { permit, vid, work, .. } = self.commands.remove(id)?.end();
        if let Work::Delayed { turn, .. } = work {
            self.leave_line(now, vid, turn);
        }
        permit
    }
}
