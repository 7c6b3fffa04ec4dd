// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that change blocks: from an authorised request to frames, to the map, to the completion.
//!
//! ```text
//!   begin_write   take frames, pull the data
//!   finish_write  authorise again, commit: readers see it        (Stalled: collection first, then again)
//!   make_durable        with FUA: complete when it is durable
//! ```

use crate::controller::Ssd;
use crate::io::command::{TransferKind, Work, WriteEnd};
use crate::io::permit::CompletionPermit;
use crate::permission::Authorized;
use crate::request::{Refused, Request};
use gnstor_base::controller::QueueKey;
use gnstor_base::time::Time;
use gnstor_ftl::{CommitError, Committed, NewBlock, Target};
use gnstor_proto::fabrics::Identity;
use gnstor_proto::status::Refusal;

impl Ssd {
    pub(crate) fn begin_write(
        &mut self,
        now: Time,
        accepted: Time,
        permit: CompletionPermit,
        queue: QueueKey,
        identity: Identity,
        request: Authorized<Request>,
    ) {
        let blocks = self.spare_blocks.pop().unwrap_or_default();
        let end = WriteEnd { request, identity, blocks };
        self.pull_write(now, accepted, permit, queue, end);
    }

    /// Takes frames for the write's data and has it pulled; without frames the write waits for some.
    pub(crate) fn pull_write(
        &mut self,
        now: Time,
        accepted: Time,
        permit: CompletionPermit,
        queue: QueueKey,
        mut end: WriteEnd,
    ) {
        let first = *end.request.get();
        let vid = first.address.vid.get();
        assert!(end.blocks.is_empty(), "a write that pulls its data has no frames yet");
        while end.blocks.len() < first.blocks as usize {
            let Some(frame) = self.ftl.take_frame() else {
                end.blocks.drain(..).for_each(|block| self.ftl.give_frame(block.frame));
                let id = self.start(permit, queue, vid, accepted, Work::Starved(end));
                return self.wait(now, id);
            };
            end.blocks.push(NewBlock { frame, sum: 0 });
        }
        let frames = std::mem::take(&mut self.frames);
        let frames = end.blocks.iter().fold(frames, |mut frames, block| {
            frames.push(block.frame);
            frames
        });
        let id = self.start(permit, queue, vid, accepted, Work::Write(end));
        for (index, frame) in (0u32..).zip(&frames) {
            self.pull(id, TransferKind::ToBlock(index), first.remote_of(index), self.ftl.frame(*frame));
        }
        self.frames = frames;
        self.frames.clear();
    }

    /// All data is there. Nothing has changed for readers yet, and whether it may is asked again now.
    pub(crate) fn finish_write(
        &mut self,
        now: Time,
        permit: CompletionPermit,
        queue: QueueKey,
        failure: Option<Refused>,
        accepted: Time,
        end: WriteEnd,
    ) {
        let vid = end.request.get().address.vid.get();
        let judged = match failure {
            Some(refused) => Err(refused),
            None => self.table.confirm(now, end.identity, &end.request),
        };
        if let Err(refused) = judged {
            self.give_up(now, end);
            return self.refuse(permit, vid, refused, accepted.max(now));
        }
        let (committed, maintain_at) = {
            let mut commits = self.ftl.commits();
            let committed = commits.commit(now, accepted.max(now), &target(&end.request), &end.blocks);
            (committed, commits.advance(now))
        };
        self.maintain_by(maintain_at);
        let committed = match committed {
            Ok(committed) => committed,
            Err(CommitError::Stalled) => {
                let id = self.start(permit, queue, vid, accepted, Work::Stalled(end));
                return self.wait(now, id);
            }
            Err(CommitError::WornOut | CommitError::Full) => {
                self.give_up(now, end);
                return self.refuse(permit, vid, Refusal::CapacityExceeded.into(), accepted.max(now));
            }
        };
        let WriteEnd { request, mut blocks, .. } = end;
        blocks.clear();
        self.spare_blocks.push(blocks);
        self.written(now, permit, queue, request, &committed);
    }

    /// The write is in the map: it is counted and answered.
    pub(crate) fn written(
        &mut self,
        now: Time,
        permit: CompletionPermit,
        queue: QueueKey,
        request: Authorized<Request>,
        committed: &Committed,
    ) {
        let vid = request.get().address.vid.get();
        self.stats.old_stamps += u64::from(committed.overtaken);
        self.stats.writes += 1;
        self.stats.blocks_written += u64::from(request.get().blocks);
        let fua = request.get().fua || !self.write_cache_enabled();
        self.count(&request);
        self.leave(now, request);
        if fua {
            self.make_durable(now, permit, queue, vid, committed.done);
        } else {
            self.acknowledge(permit, vid, committed.done);
        }
    }

    /// Takes over a write that a worker has begun.
    pub(crate) fn adopt(&mut self, request: &Authorized<Request>) {
        self.table.adopt(request);
    }

    /// A write that will not be: its frames go back.
    pub(crate) fn give_up(&mut self, now: Time, end: WriteEnd) {
        let WriteEnd { request, blocks, .. } = end;
        self.release_blocks(blocks);
        self.leave(now, request);
    }

    /// Unmaps the blocks of authorised requests, and completes.
    pub(crate) fn trim(
        &mut self,
        now: Time,
        accepted: Time,
        permit: CompletionPermit,
        queue: QueueKey,
        mut requests: Vec<Authorized<Request>>,
    ) {
        let mut fua = !self.write_cache_enabled();
        let vid = requests.first().map_or(0, |request| request.get().address.vid.get());
        while let Some(request) = requests.last() {
            let Request { address, blocks, .. } = *request.get();
            fua |= request.get().fua;
            let Ok(trimmed) = self.ftl.trim(now, &target(request), blocks) else {
                let id = self.start(permit, queue, address.vid.get(), accepted, Work::Trim(requests));
                return self.wait(now, id);
            };
            self.stats.blocks_trimmed += u64::from(trimmed.mapped);
            self.stats.old_stamps += u64::from(trimmed.overtaken);
            let done = requests.pop().expect("just looked at");
            self.count(&done);
            self.leave(now, done);
        }
        self.stats.writes += 1;
        if fua {
            self.make_durable(now, permit, queue, vid, accepted);
        } else {
            self.acknowledge(permit, vid, accepted.max(now));
        }
    }

    /// Completes when everything committed so far is durable without a dump: Flush, and FUA.
    pub(crate) fn make_durable(
        &mut self,
        now: Time,
        permit: CompletionPermit,
        queue: QueueKey,
        vid: u16,
        done: Time,
    ) {
        let (seq, at) = self.ftl.make_durable(now);
        let done = done.max(at);
        if self.ftl.durable() >= seq {
            return self.acknowledge(permit, vid, done);
        }
        let id = self.start(permit, queue, vid, done, Work::MakeDurable(seq));
        self.wait(now, id);
    }
}

pub(crate) fn target(request: &Authorized<Request>) -> Target {
    let Request { address, stamp, .. } = *request.get();
    // The permission check has seen that the last block is below a capacity of at most 2^32.
    Target { vid: address.vid, generation: request.generation(), vba: address.vba, stamp }
}
