// SPDX-License-Identifier: Apache-2.0 OR MIT
//! I/O commands: from an authorised request to its extents, transfers and completion.

use crate::command::{NewBlock, OK, TransferKind, Work, WriteEnd};
use crate::controller::Ssd;
use crate::ftl::Extent;
use crate::permission::Authorized;
use crate::permit::CompletionPermit;
use crate::request::{
    RANGE_BYTES, RANGE_SHIFT, Refused, Request, Submission, Verb, check_any_namespace, check_frame, check_namespace,
    data_pointer, raw_vid,
};
use gnstor_fabric::controller::QueueKey;
use gnstor_fabric::time::Time;
use gnstor_proto::fabrics::Identity;
use gnstor_proto::nvme::{Sqe, io};
use gnstor_proto::slba::Vid;
use gnstor_proto::status::Refusal;

/// Dataset Management, CDW11: attribute "deallocate". The other attributes are hints.
const DSM_DEALLOCATE: u32 = 1 << 2;

impl Ssd {
    pub(crate) fn submit_io(
        &mut self,
        now: Time,
        permit: CompletionPermit,
        queue: QueueKey,
        identity: Identity,
        sqe: &Sqe,
    ) {
        // The firmware's time is spent on refused commands too.
        let accepted =
            if sqe.opcode == io::READ { self.timing.accept_read(now) } else { self.timing.accept_write(now) };
        match sqe.opcode {
            io::FLUSH => match check_frame(sqe).and_then(|()| check_any_namespace(sqe)) {
                // The write buffer is power-protected: what is acknowledged is durable already.
                Ok(()) => self.complete(permit, OK, accepted, 0),
                Err(refused) => self.refuse(permit, 0, refused, accepted),
            },
            io::READ | io::WRITE | io::WRITE_ZEROES => {
                let submission = Submission { identity, sqe };
                let judged = Request::parse(&submission)
                    .and_then(|request| self.table.authorise(now, identity, self.fleet.as_ref(), request));
                match judged {
                    Ok(request) => match request.get().verb {
                        Verb::Read => self.begin_read(now, accepted, permit, queue, request),
                        Verb::Write => self.begin_write(accepted, permit, queue, identity, request),
                        Verb::Forget => {
                            self.forget(request);
                            self.stats.writes += 1;
                            self.complete(permit, OK, accepted, 0);
                        }
                    },
                    Err(refused) => self.refuse(permit, raw_vid(sqe), refused, accepted),
                }
            }
            io::DATASET_MANAGEMENT => self.begin_deallocate(accepted, permit, queue, identity, sqe),
            _ => self.refuse(permit, 0, Refusal::InvalidOpcode.into(), accepted),
        }
    }

    fn begin_read(
        &mut self,
        now: Time,
        accepted: Time,
        permit: CompletionPermit,
        queue: QueueKey,
        request: Authorized<Request>,
    ) {
        let first = *request.get();
        let vid = first.address.vid.get();
        let mut extents = std::mem::take(&mut self.extents);
        extents.clear();
        extents.extend((0..first.blocks).map(|index| self.ftl.extent(&request, index)));
        if extents.contains(&Extent::WrongKey) {
            self.extents = extents;
            self.leave(now, request);
            return self.refuse(permit, vid, Refusal::WrongKey.into(), accepted);
        }
        self.touched.clear();
        let mut zeros = 0;
        for extent in &extents {
            match *extent {
                Extent::Page(page, _) => self.touched.push(page),
                Extent::Unmapped | Extent::WrongKey => zeros += 1,
                Extent::StaleGeneration => {
                    zeros += 1;
                    self.stats.stale_generation_reads += 1;
                }
            }
        }
        self.stats.unmapped_reads += u64::from(zeros);
        let done_at = self.timing.read(accepted, &self.touched, zeros);
        let id = self.start(permit, queue, vid, done_at, Work::Read(request));
        for (index, extent) in (0u32..).zip(&extents) {
            let remote = first.remote_of(index);
            if let Extent::Page(page, sum) = *extent {
                self.ftl.media.pin(page);
                let local = self.ftl.media.local(page);
                self.push(id, TransferKind::FromPage(page), remote, local, Some(sum));
            } else {
                let local = self.ftl.media.zero_page();
                self.push(id, TransferKind::Other, remote, local, Some(self.zero_sum));
            }
        }
        self.extents = extents;
    }

    pub(crate) fn finish_read(
        &mut self,
        now: Time,
        permit: CompletionPermit,
        failure: Option<Refused>,
        done_at: Time,
        pushed_bytes: u32,
        request: Authorized<Request>,
    ) {
        let Request { blocks, address, .. } = *request.get();
        if let Some(refused) = failure {
            self.refuse(permit, address.vid.get(), refused, done_at.max(now));
        } else {
            self.stats.reads += 1;
            self.stats.blocks_read += u64::from(blocks);
            self.complete(permit, OK, done_at, pushed_bytes);
        }
        self.leave(now, request);
    }

    fn begin_write(
        &mut self,
        accepted: Time,
        permit: CompletionPermit,
        queue: QueueKey,
        identity: Identity,
        request: Authorized<Request>,
    ) {
        let first = *request.get();
        let vid = first.address.vid.get();
        let claimed = match self.ftl.claim(&request) {
            Ok(claimed) => claimed,
            Err(refusal) => {
                self.table.leave(request);
                return self.refuse(permit, vid, refusal.into(), accepted);
            }
        };
        let mut blocks = self.spare_blocks.pop().unwrap_or_default();
        blocks.extend((0..first.blocks).map_while(|_| self.ftl.media.allocate()).map(|page| NewBlock { page, sum: 0 }));
        if blocks.len() < first.blocks as usize {
            // Only pages pinned by reads under way can be missing here: the claim has counted the others.
            self.release_blocks(blocks);
            self.ftl.unclaim(claimed);
            self.table.leave(request);
            return self.refuse(permit, vid, Refusal::CapacityExceeded.into(), accepted);
        }
        self.touched.clear();
        self.touched.extend(blocks.iter().map(|block| block.page));
        let id = self.start(permit, queue, vid, accepted, Work::Write { request, identity, blocks, claimed });
        for index in 0..first.blocks {
            let local = self.ftl.media.local(self.touched[index as usize]);
            self.pull(id, TransferKind::ToBlock(index), first.remote_of(index), local);
        }
    }

    /// All data is there. Nothing has changed for readers yet, and whether it may is asked again now.
    pub(crate) fn finish_write(
        &mut self,
        now: Time,
        permit: CompletionPermit,
        failure: Option<Refused>,
        accepted: Time,
        end: WriteEnd,
    ) {
        let WriteEnd { request, identity, mut blocks, claimed } = end;
        self.ftl.unclaim(claimed);
        let address = request.get().address;
        let judged = match failure {
            Some(refused) => Err(refused),
            None => self.table.confirm(now, identity, self.fleet.as_ref(), &request),
        };
        if let Err(refused) = judged {
            self.release_blocks(blocks);
            self.leave(now, request);
            return self.refuse(permit, address.vid.get(), refused, accepted.max(now));
        }
        self.touched.clear();
        let mut full = None;
        for (index, block) in (0u32..).zip(blocks.drain(..)) {
            if !self.is_newer(&request, index) {
                self.stats.old_stamps += 1;
                self.ftl.media.free(block.page);
                continue;
            }
            match self.ftl.commit(&request, index, block.page, block.sum) {
                Ok(()) => {
                    self.table.stamps(&request).record(address.vba + index, request.get().stamp);
                    self.touched.push(block.page);
                }
                Err(refusal) => {
                    self.ftl.media.free(block.page);
                    full = Some(refusal);
                }
            }
        }
        self.spare_blocks.push(blocks);
        let done = self.timing.write(accepted.max(now), &self.touched);
        if let Some(refusal) = full {
            self.refuse(permit, address.vid.get(), refusal.into(), done);
        } else {
            self.stats.writes += 1;
            self.stats.blocks_written += u64::from(request.get().blocks);
            self.complete(permit, OK, done, 0);
        }
        self.leave(now, request);
    }

    /// Rule 6: a stamp at or below the one held was applied before, or has been overtaken.
    fn is_newer(&mut self, request: &Authorized<Request>, index: u32) -> bool {
        let stamp = request.get().stamp;
        let recent = self.table.stamps(request).held(request.get().address.vba + index);
        let held = recent.max(self.ftl.held_stamp(request, index));
        held.is_none_or(|held| stamp > held)
    }

    fn forget(&mut self, request: Authorized<Request>) {
        let Request { address, blocks, stamp, .. } = *request.get();
        for index in 0..blocks {
            if self.is_newer(&request, index) {
                self.stats.blocks_forgotten += u64::from(self.ftl.forget(&request, index));
                self.table.stamps(&request).record(address.vba + index, stamp);
            } else {
                self.stats.old_stamps += 1;
            }
        }
        self.table.leave(request);
    }

    fn begin_deallocate(
        &mut self,
        accepted: Time,
        permit: CompletionPermit,
        queue: QueueKey,
        identity: Identity,
        sqe: &Sqe,
    ) {
        let ranges = (sqe.cdw10.get() & 0xFF) + 1;
        let bytes = ranges << RANGE_SHIFT;
        let checked = check_frame(sqe).and_then(|()| check_namespace(sqe)).and_then(|()| data_pointer(sqe, bytes));
        let remote = match checked {
            Ok(remote) => remote,
            Err(refused) => return self.refuse(permit, 0, refused, accepted),
        };
        let Some(buffer) = self.scratch.take(bytes) else {
            return self.refuse(permit, 0, Refusal::NotReady.into(), accepted);
        };
        let local = self.scratch.local(&buffer);
        let id = self.start(permit, queue, 0, accepted, Work::Deallocate { sqe: *sqe, identity, buffer });
        self.pull(id, TransferKind::Other, remote, local);
    }

    /// Every range is judged before any is applied, so a refused command has done nothing.
    pub(crate) fn finish_deallocate(
        &mut self,
        now: Time,
        permit: CompletionPermit,
        accepted: Time,
        sqe: &Sqe,
        identity: Identity,
        data: &[u8],
    ) {
        let at = accepted.max(now);
        let mut requests = Vec::new();
        for range in data.as_chunks::<RANGE_BYTES>().0 {
            let judged = Request::parse_range(sqe, range)
                .and_then(|request| self.table.authorise(now, identity, self.fleet.as_ref(), request));
            match judged {
                Ok(request) => requests.push(request),
                Err(refused) => {
                    requests.into_iter().for_each(|request| self.table.leave(request));
                    let vid = Vid::new(u16::from_le_bytes([range[14], range[15]])).map_or(0, Vid::get);
                    return self.refuse(permit, vid, refused, at);
                }
            }
        }
        let deallocate = sqe.cdw11.get() & DSM_DEALLOCATE != 0;
        for request in requests {
            if deallocate {
                self.forget(request);
            } else {
                self.table.leave(request);
            }
        }
        self.stats.writes += 1;
        self.complete(permit, OK, at, 0);
    }

    /// The request is done; a fence may have waited for it.
    fn leave(&mut self, now: Time, request: Authorized<Request>) {
        self.table.leave(request);
        self.settle_fences(now);
    }
}
