// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that wait for the translation layer: for frames, for collection, for durability, for the
//! medium.

use crate::commands::CompletionPermit;
use crate::commands::Ended;
use crate::commands::{Accepted, Work};
use crate::controller::Ssd;
use crate::io::state::{Commands, Load, LoadFor};
use crate::permission::Authorized;
use crate::request::{Refused, Request};
use gnstor_base::time::{Span, Time};
use gnstor_durable::Seq;
use gnstor_flash::{Loaded, Ticket};
use gnstor_ftl::{CommitError, NotDurable, medium_pause};
use gnstor_proto::fabrics::Identity;
use gnstor_proto::slba::{ClientId, Vid};
use gnstor_proto::status::Refusal;

/// How soon to try a waiting command again, where the layer does not know better.
const RETRY_PAUSE: Span = Span::from_ns(20_000);
/// This pause on a full disk, and where commands wait for syncs only: the layer knows better when those end.
const LONG_PAUSE: Span = Span::from_ms(2);

/// How soon to look whether there are frames for writes that wait for some. The layer knows when a program
/// gives some back; the data of others may arrive at any time.
const STARVED_PAUSE: Span = Span::from_ns(200_000);

/// Most commands that are tried again at a time.
pub(super) const MOST_TRIES: usize = 1024;

impl Ssd {
    /// Keeps the command, to retry it when the layer has progressed.
    pub(crate) fn wait(&mut self, now: Time, id: u32) {
        self.commands.waiting.push_back(id);
        if !self.commands.is_retrying {
            self.wake_at(now);
        }
    }

    /// Makes a write wait for frames: none are free, or its client has used its share. The write is tried
    /// again before later ones of its client.
    pub(super) fn starve(&mut self, now: Time, (client, vid): (ClientId, Vid), id: u32) {
        let is_tried = self.commands.is_retrying;
        self.commands.starved.join(client, vid, id, is_tried);
        if !is_tried {
            self.wake_at(now + STARVED_PAUSE);
        }
    }

    /// A page is being loaded for the command.
    pub(crate) fn load(&mut self, id: u32, ticket: Ticket, load: Load) {
        if let Some(command) = self.commands.get_mut(id) {
            command.begin_transfer(0);
        }
        if self.commands.loads.is_empty() {
            self.commands.loads_since = None;
        }
        self.commands.loads.insert(ticket, load);
        // The medium does not notify: it is polled.
        self.wake_at(Time::ZERO);
    }

    /// Notes a failure of a part of the command. The command completes with the first one.
    pub(crate) fn fail(&mut self, id: u32, refusal: Refusal) {
        if let Some(command) = self.commands.get_mut(id) {
            command.fail(refusal.into());
        }
    }

    /// Notes that the layer has something to do at `at`.
    pub(crate) fn maintain_by(&mut self, at: Time) {
        self.workers().maintain_by(at);
    }

    /// Compares blocks whose pages the medium has loaded, or keeps them for a repair.
    pub(crate) fn take_loads(&mut self, now: Time) {
        loop {
            let mut own = std::mem::take(&mut self.commands.loads);
            let ended = self.workers().loads().take(self.ftl(), &mut own);
            self.commands.loads = own;
            let Some((load, loaded)) = ended else { return };
            self.commands.loads_since = Some(now);
            let LoadFor::Compare(index) = load.to else {
                self.take_cold(now, &load, loaded);
                continue;
            };
            let (Load { command: id, page, sum, .. }, Loaded { ticket, result }) = (load, loaded);
            let gone = self.commands.get_mut(id).is_none_or(|command| command.permit().is_none());
            match result {
                Ok(local) => {
                    if !gone {
                        self.compare_stored(id, index, local, sum);
                    }
                    self.ftl().release(ticket);
                }
                Err(_) => self.fail(id, Refusal::Unreadable),
            }
            self.ftl().unpin(page);
            self.ended(now, id);
        }
    }

    /// Notes that a load or transfer of the command has ended.
    pub(crate) fn ended(&mut self, now: Time, id: u32) {
        let Some(command) = self.commands.get_mut(id) else { return };
        command.end_transfer();
        if command.is_idle() {
            self.finish(now, id);
        }
    }

    /// Runs the layer's maintenance, and tries the commands that wait for it. Returns when to call this
    /// again.
    pub(crate) fn maintain(&mut self, now: Time) -> Time {
        let layer = self.ftl().maintain(now);
        let judge = self.judge_on(now);
        self.take_loads(now);
        if self.waits() {
            self.commands.is_retrying = true;
            let gives_up = self.ftl().gives_up(now);
            self.try_starved(now, gives_up);
            // One client may have as many waiting commands as its queues hold.
            for _ in 0..self.commands.waiting.len().min(MOST_TRIES) {
                let Some(id) = self.commands.waiting.pop_front() else { break };
                self.try_again(now, id, gives_up);
            }
            self.commands.is_retrying = false;
        }
        // If no command here waits for the layer, the workers maintain it without this lock.
        let mut next = if self.waits() {
            layer.min(now + self.retry_pause())
        } else {
            self.workers().maintain_by(layer);
            Time::NEVER
        };
        if !self.commands.loads.is_empty() {
            let since = *self.commands.loads_since.get_or_insert(now);
            next = next.min(now + medium_pause(now.since(since)));
        }
        next.min(judge)
    }

    /// Whether a command waits for the layer.
    fn waits(&self) -> bool {
        !self.commands.waiting.is_empty() || !self.commands.starved.is_empty()
    }

    fn retry_pause(&mut self) -> Span {
        let is_held = self.ftl().flash().is_held();
        let Commands { waiting, starved, slots, .. } = &mut self.commands;
        let mut for_syncs = |&id: &u32| {
            slots.get_mut(id).is_none_or(|command| matches!(command.work(), Work::MakeDurable(_)))
        };
        match (is_held, waiting.iter().all(&mut for_syncs)) {
            (true, _) => LONG_PAUSE,
            (false, false) => RETRY_PAUSE,
            (false, true) if starved.is_empty() => LONG_PAUSE,
            (false, true) => STARVED_PAUSE,
        }
    }

    pub(super) fn try_again(&mut self, now: Time, id: u32, gives_up: Option<NotDurable>) {
        #[cfg(test)]
        (self.commands.tries += 1);
        // Numbers are reused: the waiting command may be gone with its queue, and another command may have
        // its number.
        let Some(command) = self.commands.get_mut(id).filter(|command| command.waits_for_layer()) else {
            return;
        };
        if let Work::MakeDurable(seq) = *command.work()
            && self.ftl().durable() < seq
            && gives_up.is_none()
        {
            return self.commands.waiting.push_back(id);
        }
        let Some(command) = self.commands.remove(id) else { return };
        let Ended { permit: Some(permit), vid, done_at, work, .. } = command.end() else { return };
        match (work, gives_up) {
            // The data that was written stays, and is not durable yet.
            (Work::MakeDurable(seq), Some(why)) if self.ftl().durable() < seq => {
                self.refuse(permit, vid, not_durable(why).into(), done_at.max(now));
            }
            (Work::Starved(request), Some(why))
                if self.ftl().flash().free_frames() < request.get().blocks =>
            {
                self.leave(now, request);
                self.refuse(permit, vid, not_durable(why).into(), done_at.max(now));
            }
            (work, _) => self.do_again(now, Accepted { now, at: done_at, permit }, vid, work),
        }
    }

    fn do_again(&mut self, now: Time, command: Accepted, vid: u16, work: Work) {
        let Accepted { at: done_at, permit, .. } = command;
        match work {
            Work::MakeDurable(_) => self.acknowledge(permit, vid, done_at.max(now)),
            Work::Starved(request) => match self.judge_anew(now, request) {
                Ok(request) => self.admit_write(Accepted { now, at: done_at, permit }, request),
                Err(refused) => self.refuse(permit, vid, refused, done_at.max(now)),
            },
            Work::Trim(requests) => {
                let mut refused = None;
                let mut judged = Vec::with_capacity(requests.len());
                for request in requests {
                    match self.judge_anew(now, request) {
                        Ok(request) => judged.push(request),
                        Err(why) => refused = refused.or(Some(why)),
                    }
                }
                let Some(why) = refused else {
                    return self.trim(Accepted { now, at: done_at, permit }, judged);
                };
                judged.into_iter().for_each(|request| self.leave(now, request));
                self.refuse(permit, vid, why, done_at.max(now));
            }
            other => unreachable!("{other:?} does not wait for the layer"),
        }
    }
}

impl Ssd {
    /// Judges a request by the entry of now, if its own was replaced while it waited for the layer. A fence
    /// does not wait for a disk, and closes no queue that only waits for one. What a refused request would
    /// have changed, such as the stamps of a volume id that has a new life, stays as it is.
    pub(super) fn judge_anew(
        &mut self,
        now: Time,
        request: Authorized<Request>,
    ) -> Result<Authorized<Request>, Refused> {
        if !self.table.is_older(&request) {
            return Ok(request);
        }
        let identity = Identity::Client(request.get().address.client);
        if let Err(refused) = self.table.confirm(now, identity, &request) {
            self.leave(now, request);
            return Err(refused);
        }
        let renewed = self.table.renew(request);
        self.complete_fences(now);
        Ok(renewed)
    }
}

/// The refusal for a command that finds no room, and will not soon.
pub(crate) fn without_room(error: CommitError) -> Refusal {
    match error {
        CommitError::Failing | CommitError::Stalled => Refusal::NotReady,
        CommitError::Full | CommitError::WornOut | CommitError::Unmapped => Refusal::CapacityExceeded,
    }
}

/// The refusal for a command whose write cannot become durable.
pub(crate) fn not_durable(why: NotDurable) -> Refusal {
    match why {
        NotDurable::Full => Refusal::CapacityExceeded,
        NotDurable::Failing => Refusal::NotReady,
    }
}

impl Ssd {
    /// Completes when everything committed so far is durable without a dump: FUA.
    pub(crate) fn make_durable(&mut self, now: Time, permit: CompletionPermit, vid: u16, done: Time) {
        let (seq, at) = self.ftl().make_durable(now);
        self.await_durable(Accepted { now, at: done.max(at), permit }, vid, seq);
    }

    /// Completes when transaction `seq` is durable without a dump, which the layer has begun to do.
    pub(super) fn await_durable(&mut self, command: Accepted, vid: u16, seq: Seq) {
        let Accepted { now, at: done, permit } = command;
        if self.ftl().durable() >= seq {
            return self.acknowledge(permit, vid, done);
        }
        let id = self.start(permit, vid, done, Work::MakeDurable(seq));
        self.wait(now, id);
    }
}
