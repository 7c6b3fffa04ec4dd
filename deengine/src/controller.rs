// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The SSD as target offload drives it: commands in flight, their transfers and their completions.

mod queues;

use crate::admin::state::Admin;
use crate::commands::CompletionPermit;
use crate::commands::{Accepted, Answer, Command, Ended, Work};
use crate::config::SsdConfig;
use crate::error::SsdError;
use crate::hosts::{Hosts, MAX_ADMIN_ENTRIES, MAX_IO_QUEUES, MAX_QUEUE_ENTRIES};
use crate::io::state::Commands;
use crate::permission::Table;
use crate::repair::state::Repair;
use crate::request::Refused;
use crate::smart::Smart;
use crate::smart::counters::Done;
use crate::smart::health::Activity;
use crate::smart::stats::Stats;
use crate::workers::WorkerSet;
use gnstor_base::controller::{Effect, Outcome, PushRole, QueueKey, Remote, TransferId};
use gnstor_base::region::{HostRegion, LocalRef};
use gnstor_base::time::{Span, Time};
use gnstor_ftl::{Boot, Ftl};
use gnstor_proto::fabrics::{CmRequest, cm_reject};
use gnstor_proto::nvme::Cqe;
use gnstor_proto::status::{Detail, Refusal};
use std::sync::Arc;

/// One emulated SSD.
///
/// A field that other rooms see is the state of one room, and only that room can write its inner fields.
/// Other rooms call its methods. It is a field and not behind a method, because its room changes it while it
/// reads the state of others. Plain values, such as an `Answer`, pass from room to room.
#[derive(Debug)]
pub struct Ssd {
    /// Room `permission`. Every command is judged by it.
    pub(crate) table: Table,
    /// Room `admin`. The start of an SSD recalls it.
    pub(crate) admin: Admin,
    /// Room `repair`, which alone uses it.
    pub(crate) repair: Repair,
    /// Room `hosts`. Session and admin commands say what happens to a host.
    pub(crate) hosts: Hosts,
    /// Room `io`. A session that ends removes its commands.
    pub(crate) commands: Commands,
    config: SsdConfig,
    boot: Boot,
    ftl: Arc<Ftl>,
    workers: Arc<WorkerSet>,
    smart: Smart,
    /// No later than the next time at which [`Self::step`] has something to do.
    alarm: Time,
}

impl Ssd {
    /// Makes an SSD around an opened translation layer. The permission table comes from the metadata.
    pub(crate) fn around(config: SsdConfig, opened: gnstor_ftl::OpenedFtl) -> Result<Self, SsdError> {
        let gnstor_ftl::OpenedFtl { ftl, metadata, boot } = opened;
        let protected = config.preset.power_protected;
        let mut ssd = Self {
            config,
            boot,
            ftl: Arc::new(ftl),
            workers: Arc::default(),
            table: Table::default(),
            admin: Admin::new(metadata),
            repair: Repair::default(),
            hosts: Hosts::default(),
            commands: Commands::new().map_err(SsdError::Memory)?,
            smart: Smart::default(),
            alarm: Time::NEVER,
        };
        ssd.set_write_cache(!protected);
        ssd.recall()?;
        ssd.smart.resume_activity();
        Ok(ssd)
    }

    /// The SSD's configuration.
    pub fn config(&self) -> &SsdConfig {
        &self.config
    }

    /// How the SSD came up.
    pub fn boot(&self) -> &Boot {
        &self.boot
    }

    /// The memory that transfers touch, to be registered with the mover.
    pub fn regions(&self) -> Vec<Arc<HostRegion>> {
        let mut regions = self.ftl.regions();
        regions.push(Arc::clone(self.commands.scratch().region()));
        regions
    }

    /// Says that the SSD is still being restored after a power failure, or that it is no longer. Until then
    /// I/O and the daemon's commands are refused with `NotReady`.
    pub fn set_recovering(&mut self, recovering: bool) {
        self.table.set_recovering(recovering);
    }

    /// Counters of all workers together.
    pub fn stats(&self) -> Stats {
        let (mut stats, tally) = (self.smart.stats().clone(), self.workers.tally());
        let Done { reads, writes } = tally.done;
        stats.reads += reads.commands;
        stats.blocks_read += reads.blocks;
        stats.unmapped_reads += tally.unmapped;
        stats.writes += writes.commands;
        stats.blocks_written += writes.blocks;
        stats.old_stamps += tally.overtaken;
        stats.commits_put_off += tally.put_off;
        stats.permits_issued += tally.entered;
        stats.permits_spent += reads.commands + writes.commands;
        stats.permits_forfeited += tally.forfeited;
        stats
    }

    /// Activity of all workers together.
    pub(crate) fn activity(&self) -> Activity {
        let (mut activity, tally) = (self.smart.activity(), self.workers.tally());
        let Done { reads, writes } = tally.done;
        activity.read_commands += reads.commands;
        activity.blocks_read += reads.blocks;
        activity.write_commands += writes.commands;
        activity.blocks_written += writes.blocks;
        activity.busy = activity.busy + tally.busy;
        activity
    }

    /// Sets the workers that serve its queues from now on.
    pub(crate) fn share(&mut self, workers: Arc<WorkerSet>) {
        self.table.share(Arc::clone(&workers));
        self.workers = workers;
    }

    /// The workers that serve its queues.
    #[inline]
    pub(crate) fn workers(&self) -> &WorkerSet {
        &self.workers
    }

    /// The SSD's health, counters and error log.
    #[inline]
    pub(crate) fn smart(&self) -> &Smart {
        &self.smart
    }

    #[inline]
    pub(crate) fn smart_mut(&mut self) -> &mut Smart {
        &mut self.smart
    }

    /// Turns every access check off, for good. A benchmark measures the cost of the checks against this.
    #[cfg(feature = "unchecked-for-benchmarks")]
    pub fn measure_unchecked(&mut self) {
        self.table.leave_unchecked();
    }

    /// The translation layer, for reports.
    #[inline]
    pub fn ftl(&self) -> &Ftl {
        &self.ftl
    }

    /// The translation layer, for the workers.
    pub(crate) fn share_ftl(&self) -> Arc<Ftl> {
        Arc::clone(&self.ftl)
    }

    /// A capsule arrived for a queue that is not open.
    pub(crate) fn count_late_capsule(&mut self) {
        self.smart.count_late_capsule();
    }

    /// Number of mapped blocks, over all volumes.
    pub fn mapped_blocks(&self) -> u64 {
        self.ftl.mapped()
    }

    /// Commands accepted and not completed yet.
    pub fn in_flight(&self) -> usize {
        let tally = self.workers.tally();
        let with_workers = usize::try_from(tally.entered.saturating_sub(tally.left)).unwrap_or(usize::MAX);
        self.commands.len() + with_workers
    }

    pub(crate) fn issue(&mut self, queue: QueueKey, cid: u16) -> CompletionPermit {
        self.smart.count_accepted();
        CompletionPermit::issue(queue, cid)
    }

    pub(crate) fn complete(&mut self, permit: CompletionPermit, answer: Answer, at: Time, pushed_bytes: u32) {
        let (key, cid) = permit.spend();
        self.smart.count_completed();
        if self.hosts.queue(key).is_none() {
            return;
        }
        // The worker of the queue knows how many commands have been fetched (SQHD).
        let mut cqe =
            Cqe { dw0: answer.dw0.into(), dw1: answer.dw1.into(), cid: cid.into(), ..Cqe::default() };
        cqe.set_status_word(answer.status.0);
        self.commands.emit(Effect::Complete { queue: key, cqe, at, pushed_bytes });
    }

    pub(crate) fn refuse(&mut self, permit: CompletionPermit, vid: u16, refused: Refused, at: Time) {
        self.smart.count_refusal(refused.refusal);
        let detail = Detail { code: refused.refusal as u8, ssd: None, vid }.from_ssd(self.config.index);
        let answer = Answer { status: refused.refusal.status(), dw0: detail.to_dw0(), dw1: refused.epoch };
        self.log_error(&permit, vid, &answer);
        self.complete(permit, answer, at, 0);
    }

    /// Gives a command a slot. The caller then starts its transfers, and the last one finishes the command.
    pub(crate) fn start(&mut self, permit: CompletionPermit, vid: u16, done_at: Time, work: Work) -> u32 {
        self.commands.insert(Command::new(permit, vid, done_at, work))
    }

    pub(crate) fn push(&mut self, id: u32, remote: Remote, local: LocalRef) {
        let Some(command) = self.commands.get_mut(id) else { return };
        command.begin_transfer(local.bytes);
        let (queue, role) = (command.queue(), PushRole::Alone);
        let transfer = TransferId(self.commands.add_transfer(id));
        self.commands.emit(Effect::Push { transfer, queue, remote, local, sum: None, role });
    }

    pub(crate) fn pull(&mut self, id: u32, remote: Remote, local: LocalRef) {
        let Some(command) = self.commands.get_mut(id) else { return };
        command.begin_transfer(0);
        let (queue, cid) = (command.queue(), command.permit().map_or(0, CompletionPermit::cid));
        let transfer = TransferId(self.commands.add_transfer(id));
        self.commands.emit(Effect::Pull { transfer, queue, cid, remote, local });
    }

    /// Time of the next call of [`Self::step`].
    #[inline]
    pub(crate) fn alarm(&self) -> Time {
        self.alarm
    }

    /// Asks for a call of [`Controller::step`] not later than `at`.
    pub(crate) fn wake_at(&mut self, at: Time) {
        self.alarm = self.alarm.min(at);
    }

    pub(crate) fn finish(&mut self, now: Time, id: u32) {
        let Some(command) = self.commands.remove(id) else { return };
        let Ended { permit, vid, failure, done_at, pushed_bytes, work } = command.end();
        let Some(permit) = permit else {
            let Work::Orphan { buffer } = work else { unreachable!("only orphans have no permit") };
            if let Some(buffer) = buffer {
                self.commands.scratch_mut().give(buffer);
            }
            return;
        };
        let command = Accepted { now, at: done_at, permit };
        match work {
            Work::Compare { request, buffer, has_data: false } => {
                self.compare_data(command, failure, request, buffer);
            }
            Work::Compare { request, buffer, has_data: true } => {
                self.finish_compare(command, failure, request, buffer);
            }
            Work::Tell(telling) => self.tell_on(now, command.permit, *telling),
            buffered @ (Work::Deallocate { .. }
            | Work::Connect { .. }
            | Work::Authenticate { .. }
            | Work::Answer { .. }
            | Work::Entry { .. }
            | Work::Map { .. }) => {
                self.finish_buffered(command, Moved { vid, failure, pushed_bytes }, buffered)
            }
            Work::Starved(_)
            | Work::Trim(_)
            | Work::MakeDurable(_)
            | Work::Change
            | Work::Fence { .. }
            | Work::AwaitEvent
            | Work::Abort
            | Work::Delayed { .. }
            | Work::Orphan { .. } => unreachable!("these have no transfers, or no permit"),
        }
    }

    /// The transfers of a command with a scratch buffer have ended.
    fn finish_buffered(&mut self, command: Accepted, moved: Moved, work: Work) {
        let Moved { vid, failure, pushed_bytes } = moved;
        let buffer = work.buffer().expect("the caller has seen that there is a buffer");
        // Data for the host need not be copied.
        let data = if matches!(work, Work::Answer { .. }) {
            Vec::new()
        } else {
            self.commands.scratch().read(buffer)
        };
        let Accepted { now, permit, .. } = command;
        match (work, failure) {
            (Work::Connect { fields, buffer }, failure) => {
                self.commands.scratch_mut().give(buffer);
                self.finish_connect(now, permit, &fields, failure.map_or(Ok(&data), Err));
            }
            (Work::Authenticate { buffer }, None) => {
                self.commands.scratch_mut().give(buffer);
                self.finish_auth_send(now, permit, data);
            }
            (Work::Deallocate { sqe, identity, buffer }, None) => {
                self.commands.scratch_mut().give(buffer);
                self.finish_deallocate(Accepted { now, at: command.at, permit }, &sqe, identity, &data);
            }
            (Work::Answer { dw0, buffer }, None) => {
                self.commands.scratch_mut().give(buffer);
                self.complete(permit, Answer::dw0(dw0), command.at.max(now), pushed_bytes);
            }
            (Work::Entry { opcode, buffer }, None) => {
                self.commands.scratch_mut().give(buffer);
                self.finish_entry(now, permit, opcode, &data);
            }
            (Work::Map { opcode, buffer }, None) => {
                self.commands.scratch_mut().give(buffer);
                self.finish_map(now, permit, opcode, data);
            }
            (
                Work::Deallocate { buffer, .. }
                | Work::Authenticate { buffer }
                | Work::Answer { buffer, .. }
                | Work::Entry { buffer, .. }
                | Work::Map { buffer, .. },
                Some(refused),
            ) => {
                self.commands.scratch_mut().give(buffer);
                self.refuse(permit, vid, refused, now);
            }
            (other, _) => unreachable!("{other:?} has no buffer"),
        }
    }
}

/// The outcome of a command's transfers.
struct Moved {
    vid: u16,
    failure: Option<Refused>,
    pushed_bytes: u32,
}

/// How soon after a step a command that began to wait in it is checked again.
const SOON: Span = Span::from_ns(1_000);

/// The refusal of a command whose transfer failed.
pub(crate) fn refusal_of(outcome: Outcome) -> Option<Refusal> {
    match outcome {
        Outcome::Done { .. } => None,
        Outcome::BadChecksum => Some(Refusal::BadChecksum),
        Outcome::RemoteAccess | Outcome::ConnectionLost => Some(Refusal::TransferError),
    }
}
