// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The life of a write, first part: from the command to its data in frames. The second part is
//! [`commit`].
//!
//! ```text
//!                                                                                        lock
//!   submit        rules, frames, count in flight -> Pull                                 none
//!   transferred   the data of a block is there; with the last block the write has
//!                 arrived
//!   step          judge again, submit in the worker's combining queue                    none
//!                 the lock holder: rules still the same? commit all queues               the layer's
//!                 -> Complete                                                            none
//!                 the Ssd refuses a write, or completes one with FUA                     the Ssd's
//!                 no room for now: submitted again a little later, before later writes   none
//! ```
//! A worker that finds the layer's lock taken leaves its writes to the lock holder. It completes them with
//! its next command or transfer, or at the next step. If a sweep or a fence began before the lock was taken,
//! the version of the rules has changed by then. So writes judged by the version found under the lock are
//! committed before any sweep or fence. Other writes are judged again.
//!
//! If a worker may not begin a write alone, the firmware judges it. If it allows the write, it takes frames
//! for it, for which the write may have to wait ([`super::starve`]). Then it leaves the write with its frames
//! for the worker (`begin_granted_write`).

mod commit;

use super::pending::Waiting;
use super::under_way::{Begun, Command};
use super::worker::Worker;
use crate::commands::CompletionPermit;
use crate::commands::shares::Shares;
use crate::controller::refusal_of;
use crate::io::state::slab::Slab;
use crate::request::{Refused, Request, Submission};
use crate::workers::combining::CommitOutcome;
pub(super) use commit::target;
use gnstor_base::controller::{Effect, Outcome, QueueKey, TransferId};
use gnstor_base::time::{Span, Time};
use gnstor_flash::Frame;
use gnstor_ftl::NewBlock;
use gnstor_proto::nvme;
use gnstor_proto::slba::ClientId;
use gnstor_proto::status::Refusal;

/// Most blocks that a worker pulls while the modelled firmware is busy. It bounds the frames that such
/// writes hold.
const MOST_WAITING: usize = 256;
/// How long a write for which there was no room waits before it is tried again, also on a full disk.
const STALL_PAUSE: Span = Span::from_ns(20_000);
const FULL_PAUSE: Span = Span::from_ms(2);

/// The writes of one worker.
#[derive(Debug)]
pub(super) struct Writes {
    commands: Slab<Write>,
    pulls: Slab<Pull>,
    /// Writes whose data has arrived, oldest first.
    arrived: Vec<u32>,
    /// Time until which the oldest one waits for room, and whether there was none at the last try.
    stalled_until: Time,
    is_stalled: bool,
    /// All that have arrived are to be judged once more: rules have changed, or a queue has ended.
    judges_all: bool,
    /// The submitted writes, oldest first, and those among them that are to be refused.
    submitted: Vec<Submitted>,
    outcomes: Vec<CommitOutcome>,
    /// Submitted writes that must be submitted again.
    again: Vec<u32>,
    /// Blocks of writes that the modelled firmware has not taken.
    waiting: usize,
    /// Tries of the layer's lock that found it taken, since the last commit.
    looks: u32,
    /// Frames whose data is in flight, by client.
    shares: Shares,
    /// Reused lists.
    spare: Vec<Vec<NewBlock>>,
}

impl Writes {
    /// The writes of one of `workers` workers.
    pub(super) fn beside(workers: usize) -> Self {
        Self {
            shares: Shares::of(workers),
            commands: Slab::new(),
            pulls: Slab::marked_otherwise(),
            arrived: Vec::new(),
            stalled_until: Time::ZERO,
            is_stalled: false,
            judges_all: false,
            submitted: Vec::new(),
            outcomes: Vec::new(),
            again: Vec::new(),
            waiting: 0,
            looks: 0,
            spare: Vec::new(),
        }
    }
}

/// A write whose data is in flight or has arrived.
#[derive(Debug)]
struct Write {
    /// The command to complete; `None` once its queue is gone.
    command: Command,
    blocks: Vec<NewBlock>,
    stage: Stage,
    /// Time since which all of the data has been there. The model commits the write at this time, however
    /// late the worker is.
    data_at: Time,
    /// Blocks whose transfers have not ended.
    pending: u32,
    /// The client that the frames count for while the data is under way.
    client: ClientId,
    /// The firmware has taken the frames, and counts them for the client.
    is_granted: bool,
    /// Why it is not to be committed: the first transfer that failed, or the rules at its commit.
    failure: Option<Refused>,
    /// The version of the rules that it was judged by.
    version: u64,
    /// There was no room for the write. The model takes it when there is room, not before.
    is_stalled: bool,
}

impl Write {
    /// A write whose data is to be pulled. It was judged by this version of the rules.
    #[inline]
    fn new(begun: Begun, blocks: Vec<NewBlock>, stage: Stage, version: u64) -> Self {
        let Request { address, blocks: pending, .. } = *begun.1.get();
        Self {
            command: Some(begun),
            blocks,
            stage,
            data_at: Time::ZERO,
            pending,
            client: address.client,
            is_granted: false,
            failure: None,
            version,
            is_stalled: false,
        }
    }
}

/// A write is moved twice, in and out of its slot.
const _: () = assert!(size_of::<Option<Write>>() <= 160);

/// Progress of a write in the modelled firmware.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The firmware has been busy since the write arrived. Meanwhile the worker pulls the data.
    Waits { arrived: Time },
    /// The firmware has checked the write at this time.
    Accepted(Time),
}

impl Stage {
    /// The time at which the write reached this stage.
    fn time(self) -> Time {
        match self {
            Self::Waits { arrived: at } | Self::Accepted(at) => at,
        }
    }
}

/// A write that is about to be committed or refused.
#[derive(Debug)]
struct Submitted {
    write: u32,
    /// Whether the write is in the combining queue.
    is_job: bool,
}

/// A block under way.
#[derive(Debug)]
struct Pull {
    write: u32,
    /// Index of the block in the write.
    index: u32,
}

impl Writes {
    /// Time at which writes that have arrived need work.
    #[inline]
    pub(super) fn wants(&self) -> Option<Time> {
        match (self.submitted.is_empty(), self.arrived.is_empty()) {
            (false, _) => Some(Time::ZERO),
            (true, false) => Some(self.stalled_until),
            (true, true) => None,
        }
    }

    /// The modelled firmware has taken the write, and will have checked it by `at`.
    #[inline]
    pub(super) fn accept(&mut self, id: u32, at: Time) {
        if let Some(write) = self.commands.get_mut(id) {
            write.stage = Stage::Accepted(at);
            self.waiting -= write.blocks.len();
        }
    }

    /// Notes that there is no room for the write now.
    fn stall(&mut self, id: u32, now: Time, is_full: bool) {
        let pause = if is_full { FULL_PAUSE } else { STALL_PAUSE };
        (self.stalled_until, self.is_stalled) = (now + pause, true);
        if let Some(write) = self.commands.get_mut(id) {
            write.is_stalled = true;
        }
    }

    /// All writes that wait for room are judged and submitted once more at once.
    pub(super) fn try_again(&mut self) {
        (self.stalled_until, self.judges_all) = (Time::ZERO, true);
    }

    /// Frames that a client's data under way has.
    #[cfg(test)]
    pub(super) fn frames_of(&self, client: ClientId) -> u32 {
        self.shares.held(client)
    }

    /// The commands of the writes in flight.
    pub(super) fn commands(&mut self) -> impl Iterator<Item = &mut Command> {
        self.commands.iter_mut().map(|write| &mut write.command)
    }
}

impl Worker {
    /// Begins the write and adds it to the judged commands, if the worker may carry it out alone. `false`:
    /// nothing has happened.
    #[inline]
    pub(super) fn judge_write(
        &mut self,
        now: Time,
        arrived: Time,
        queue: QueueKey,
        submission: Submission<'_>,
    ) -> bool {
        let Some(id) = self.begin_write(now, arrived, queue, submission) else { return false };
        self.judged.add_write(arrived, id);
        true
    }

    /// Begins a write while the modelled firmware is busy, so that its data is there when the firmware takes
    /// it. `false`: it is no such write or there is no room, and nothing has happened.
    #[inline]
    pub(super) fn pull_ahead(&mut self, now: Time, queue: QueueKey, submission: Submission<'_>) -> bool {
        submission.sqe.opcode == nvme::io::WRITE
            && self.writes.waiting < MOST_WAITING
            && self.begin_write(now, now, queue, submission).is_some()
    }

    /// Takes frames for the data and pulls it, if the rules plainly allow the write and there is room.
    /// Otherwise nothing happens.
    #[inline]
    fn begin_write(
        &mut self,
        now: Time,
        arrived: Time,
        queue: QueueKey,
        submission: Submission<'_>,
    ) -> Option<u32> {
        if self.rules.is_recovering() {
            return None;
        }
        let Submission { identity, sqe } = submission;
        let request = Request::parse(&submission).ok()?;
        if !self.writes.commands.has_room(1) || !self.writes.pulls.has_room(request.blocks) {
            return None;
        }
        let request = self.rules.authorise(now, self.shared.workers().lease_end(), identity, request).ok()?;
        if self.rules.is_limited(&request) {
            return None;
        }
        let (count, client) = (request.get().blocks, request.get().address.client);
        if !self.writes.shares.allow(client, count, self.shared.ftl().flash().free_frames()) {
            return None;
        }
        let blocks = self.take_blocks(count)?;
        if !self.shared.workers().enter(self.shared.index(), request.slot(), self.rules.version()) {
            self.release_frames(blocks);
            return None;
        }
        self.state().entered();
        if let Some(port) = self.ports.get(queue) {
            port.fetch();
        }
        self.writes.shares.take(client, count);
        self.writes.waiting += count as usize;
        let begun = (CompletionPermit::issue(queue, sqe.cid.get()), request);
        let write = Write::new(begun, blocks, Stage::Waits { arrived }, self.rules.version());
        Some(self.pull_data(write))
    }

    /// Begins a write in frames that the firmware has taken. The model had taken the write at `at`.
    #[cold]
    pub(super) fn begin_granted_write(&mut self, now: Time, at: Time, begun: Begun, frames: &[Frame]) {
        let mut blocks = self.writes.spare.pop().unwrap_or_default();
        blocks.extend(frames.iter().map(|&frame| NewBlock { frame, sum: 0 }));
        let version = self.rules.version();
        let write = Write { is_granted: true, ..Write::new(begun, blocks, Stage::Accepted(at), version) };
        if self.writes.commands.has_room(1) && self.writes.pulls.has_room(write.pending) {
            self.pull_data(write);
        } else {
            self.shared.lock().commands.shares.give(write.client, write.pending);
            self.refuse_write(now, write, Refusal::NotReady.into());
        }
    }

    /// Gives the write a number, and pulls its data into its frames.
    #[inline]
    fn pull_data(&mut self, write: Write) -> u32 {
        let id = self.writes.commands.insert(write);
        let write = self.writes.commands.get_mut(id);
        let Some(Write { command: Some((permit, request)), blocks, .. }) = write else { return id };
        let (queue, cid) = (permit.queue(), permit.cid());
        for (index, block) in (0u32..).zip(&*blocks) {
            let transfer = TransferId(self.writes.pulls.insert(Pull { write: id, index }));
            let (remote, local) = (request.get().remote_of(index), self.shared.ftl().frame(block.frame));
            self.outbox.push(Effect::Pull { transfer, queue, cid, remote, local });
        }
        id
    }

    /// Takes frames for `count` blocks, if so many are free.
    fn take_blocks(&mut self, count: u32) -> Option<Vec<NewBlock>> {
        let mut blocks = self.writes.spare.pop().unwrap_or_default();
        self.shared.ftl().take_frames(count, |frame| blocks.push(NewBlock { frame, sum: 0 }));
        if blocks.len() < count as usize {
            self.shared.ftl().give_frames(blocks.drain(..).map(|block| block.frame));
            self.writes.spare.push(blocks);
            return None;
        }
        Some(blocks)
    }

    /// Handles the end of the transfer of a block.
    #[inline]
    pub(super) fn end_pull(&mut self, now: Time, transfer: TransferId, outcome: Outcome) {
        self.take_outcomes(now);
        let Some(Pull { write: id, index }) = self.writes.pulls.remove(transfer.0) else {
            self.shared.lock().smart_mut().count_unknown_transfer();
            return;
        };
        let Some(write) = self.writes.commands.get_mut(id) else { return };
        match outcome {
            Outcome::Done { sum } => write.blocks[index as usize].sum = sum,
            // The transfer was corrupted; the stored data is intact.
            Outcome::BadChecksum => write.failure = write.failure.or(Some(Refusal::TransferError.into())),
            _ => write.failure = write.failure.or(refusal_of(outcome).map(Refused::from)),
        }
        write.pending -= 1;
        if write.pending > 0 {
            return;
        }
        let count = u32::try_from(write.blocks.len()).expect("it was a u32");
        if write.is_granted {
            self.shared.lock().commands.shares.give(write.client, count);
        } else {
            self.writes.shares.give(write.client, count);
        }
        let Some(queue) = write.command.as_ref().map(|(permit, _)| permit.queue()) else {
            return self.abandon_write(id);
        };
        write.data_at = now;
        let (stage, is_well) = (write.stage, write.failure.is_none());
        let Stage::Waits { arrived } = stage else { return self.arrive(id) };
        self.dispatch_pending(now);
        if !(is_well && self.is_busy(now) && self.pend(queue, arrived, Waiting::Write(id))) {
            self.book_write(id, arrived);
        }
    }

    /// The modelled firmware has taken a write. If its data is there, the write is ready for its commit.
    #[inline]
    pub(super) fn go_on(&mut self, id: u32) {
        if self.writes.commands.get_mut(id).is_some_and(|write| write.pending == 0) {
            self.arrive(id);
        }
    }

    /// Ends a write without a completion.
    pub(super) fn abandon_write(&mut self, id: u32) {
        if let Some(write) = self.writes.commands.remove(id) {
            self.state().left();
            if let Stage::Waits { .. } = write.stage {
                self.writes.waiting -= write.blocks.len();
            }
            self.release_frames(write.blocks);
        }
    }

    /// Releases the frames of a write whose data is not needed.
    fn release_frames(&mut self, blocks: Vec<NewBlock>) {
        blocks.iter().for_each(|block| self.shared.ftl().give_frame(block.frame));
        self.keep_list(blocks);
    }

    fn keep_list(&mut self, mut blocks: Vec<NewBlock>) {
        blocks.clear();
        self.writes.spare.push(blocks);
    }
}
